/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - which candidate is better, and in words why another is not taken.
 *
 * Comparisons are of integers in a fixed order, so that every rank takes the same one: predicted
 * time (imbalance in whole percent without a cluster), bytes, whole heads, degrees, placement.
 */
#include "strategy_internal.h"

#include <string.h>

/* ---- order ----------------------------------------------------------------------------------- */

/* -1, 0 or 1. */
static int by(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Imbalance in whole percent, rounded up: 1.004 and 1.01 are equal, 1.011 is worse. */
static int64_t percent(double rho)
{
    const double scaled = rho * 100.0;
    const int64_t whole = (int64_t)scaled;
    return (double)whole < scaled ? whole + 1 : whole;
}

int tess__candidate_order(const tess__task *task, const tess_candidate *a, const tess_candidate *b)
{
    const int64_t far = INT64_MAX; /* what cannot be predicted comes last */
    int order = task->pricing.cluster ? by(a->ns < 0 ? far : a->ns, b->ns < 0 ? far : b->ns)
                                      : by(percent(a->rho), percent(b->rho));
    if (!order)
        order = by(a->bytes, b->bytes);
    if (!order) /* whole heads before fractional ones that happen to be whole */
        order = by(a->strategy.method == TESS_PLAN_FRACTIONAL,
                   b->strategy.method == TESS_PLAN_FRACTIONAL);
    if (!order)
        order = by(a->strategy.ulysses, b->strategy.ulysses);
    if (!order)
        order = by(a->strategy.ring, b->strategy.ring);
    return order ? order : by(a->strategy.placement, b->strategy.placement);
}

/* ---- reasons --------------------------------------------------------------------------------- */

void tess__candidate_bar(const tess__task *task, const tess_candidate *c,
                         char why[TESS_REASON_BYTES])
{
    const tess_plan_opts *o = &task->opts;
    const int heads = task->info.heads, fractional = c->strategy.method == TESS_PLAN_FRACTIONAL;
    const int splits = fractional || c->strategy.ring > 1 || c->strategy.selective > 1;
    const size_t size = TESS_REASON_BYTES;
    why[0] = '\0';
    if (c->strategy.ulysses > heads && !fractional)
        snprintf(why, size, "%d heads on %d ranks", heads, c->strategy.ulysses);
    else if ((o->whole_keys && c->strategy.ring > 1) ||
             (o->whole_keys > 1 && c->strategy.selective > 1))
        snprintf(why, size, "splits keys, which must stay whole");
    else if (o->whole_heads && splits && task->info.ranks > 1)
        snprintf(why, size, "splits heads, which must stay whole");
    else if (o->equal_heads && fractional && task->info.ranks > 1)
        snprintf(why, size, "gives ranks unequal numbers of heads");
    else if (o->equal_heads && heads % c->strategy.ulysses != 0)
        snprintf(why, size, "%d heads do not divide by %d", heads, c->strategy.ulysses);
    else if (fractional && c->strategy.ulysses * c->strategy.ring * c->strategy.selective > 1 &&
             (c->strategy.ring * c->strategy.selective != task->info.nodes ||
              task->info.nodes * c->strategy.ulysses != task->info.ranks))
        snprintf(why, size, "cuts heads inside of nodes, of which there are %d", task->info.nodes);
    else if (tess__cuts_inside(&c->strategy) && task->info.speeds)
        snprintf(why, size, "cuts heads alike in all nodes, whose ranks have unequal speeds");
    else if (tess__cuts_inside(&c->strategy) && task->info.q_blocks < task->info.ranks)
        snprintf(why, size, "%d query blocks on %d ranks", task->info.q_blocks, task->info.ranks);
    else if (c->strategy.ring * c->strategy.selective > TESS_PLAN_RING_MAX)
        snprintf(why, size, "%d parts of the sequence, at most %d are planned",
                 c->strategy.ring * c->strategy.selective, TESS_PLAN_RING_MAX);
    else if ((int64_t)heads * c->strategy.ring * c->strategy.selective > TESS_PLAN_SHARES_MAX)
        snprintf(why, size, "%lld shares, at most %d are planned",
                 (long long)heads * c->strategy.ring * c->strategy.selective, TESS_PLAN_SHARES_MAX);
    else if (c->strategy.ring > task->info.q_blocks || c->strategy.ring > task->info.k_blocks)
        snprintf(why, size, "%d blocks on a ring of %d",
                 task->info.q_blocks < task->info.k_blocks ? task->info.q_blocks
                                                           : task->info.k_blocks,
                 c->strategy.ring);
}

/* Appends to a reason. */
static void add(char why[TESS_REASON_BYTES], const char *format, double a, double b)
{
    const size_t used = strlen(why);
    snprintf(why + used, TESS_REASON_BYTES - used, format, a, b);
}

/* Names a term that makes up a tenth of the loss at least. */
static void add_time(char why[TESS_REASON_BYTES], const char *term, int64_t ns, int64_t best,
                     int64_t loss)
{
    const size_t used = strlen(why);
    if (ns - best > loss / 10)
        snprintf(why + used, TESS_REASON_BYTES - used, ", %s +%.3g ms", term,
                 (double)(ns - best) / 1e6);
}

static double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 1.0;
}

/* A bound of the time, and what has the larger part of the loss: compute_ns is a bound too. */
static void add_slower(char why[TESS_REASON_BYTES], const tess_candidate *c,
                       const tess_candidate *best)
{
    const int attention = 2 * (c->compute_ns - best->compute_ns) > c->ns - best->ns;
    add(why, "at least %.2fx slower by ", ratio(c->ns, best->ns), 0.0);
    add(why, attention ? "attention" : "exchanges", 0.0, 0.0);
}

void tess__candidate_reason(const tess__task *task, const tess_candidate *c,
                            const tess_candidate *best, int bounded, char why[TESS_REASON_BYTES])
{
    const int timed = task->pricing.cluster != NULL;
    why[0] = '\0';
    if (c->chosen) {
        snprintf(why, TESS_REASON_BYTES, "%s",
                 !timed       ? "chosen: balanced best, then fewest bytes"
                 : c->ns >= 0 ? "chosen: fastest"
                              : "chosen: the only one, not predictable");
        return;
    }
    if (timed ? c->ns < 0 : c->rho == 0.0) { /* not entered: its bytes are not known */
        snprintf(why, TESS_REASON_BYTES, "not predictable: selective needs masks or a union share");
        return;
    }
    snprintf(why, TESS_REASON_BYTES, "not chosen: ");
    if (bounded) {
        if (timed)
            add_slower(why, c, best);
        else if (percent(c->rho) > percent(best->rho))
            add(why, "imbalance at least %.2f against %.2f", c->rho, best->rho);
        else
            add(why, "at least %.2fx the bytes", ratio(c->bytes, best->bytes), 0.0);
        add(why, " whatever its blocks are", 0.0, 0.0);
        return;
    }
    const double slower = timed ? ratio(c->ns, best->ns) : 1.0;
    if (timed && slower > 1.005) {
        add(why, "%.2fx slower", slower, 0.0);
        add_time(why, "attention", c->compute_ns, best->compute_ns, c->ns - best->ns);
        add_time(why, "exchanges", c->comm_ns, best->comm_ns, c->ns - best->ns);
    } else {
        add(why, timed ? "as fast" : "no better balanced", 0.0, 0.0);
    }
    if (c->rho > best->rho + 0.01)
        add(why, ", imbalance %.2f against %.2f", c->rho, best->rho);
    if (c->kv_copies > best->kv_copies + 0.01)
        add(why, ", %.2f K/V copies against %.2f", c->kv_copies, best->kv_copies);
    if (ratio(c->bytes, best->bytes) > 1.005)
        add(why, ", %.2fx the bytes", ratio(c->bytes, best->bytes), 0.0);
}
