/* SPDX-License-Identifier: Apache-2.0 */
/* cp_plan.c - before each step: what the last one took, densities, and a plan kept or made.
 *
 * Ranks exchange two small arrays: densities with the time of selectors, which are added up, and
 * times and bytes of layers, of which the largest count. From there on every rank computes the
 * same. The work of a head is its time, in pairs of lists:
 *
 *   sparse   density * tokens + row_keys + select_keys      keys for each query row
 *   dense    tokens * dense
 *
 * and part_keys for each further part of the keys that a row meets in a ring, which the price adds.
 * row_keys, part_keys and dense come from the probe, and select_keys from the callbacks
 * of the last step. A plan is kept by tess_plan_keep's rule, which looks at the balance; once there
 * is a quarter more or less work than it was made for, or low-rank vectors travel in other layers,
 * another strategy may be the fastest, and a new one is made.
 *
 * Cost of a step on P ranks with L layers of H heads: a sum of L H + 1 doubles, in steps after one
 * that looked also L parts TESS__UNION_COUNTS more; a maximum of 2 L doubles; three agreements of 4
 * bytes. For 30 layers of 12 heads that is 3.3 KiB to every other rank, and five latencies. A new
 * plan adds two agreements and the comparison of 8 bytes, besides the planner's time.
 */
#include "cp_internal.h"

#include "plan/strategy_internal.h"
#include "plan/work.h"

#include <math.h>
#include <string.h>

static const double work_changes = 1.25;   /* what makes another strategy likely */
static const double memory_of_means = 0.8; /* weight of the past in running means */

/* ---- what ranks tell each other -------------------------------------------------------------- */

static size_t n_heads(const tess_cp *c)
{
    return (size_t)c->opts.layers * (size_t)c->opts.heads;
}

static tess_status check(const tess_cp *c, int64_t step, const double *density)
{
    static const char who[] = "tess_cp_plan";
    if (step < 0)
        return tess__fail(TESS_EINVAL, "%s: step is %lld, must be at least 0", who,
                          (long long)step);
    const size_t heads = (size_t)c->opts.heads;
    for (size_t i = 0; density && i < n_heads(c); i++)
        if (!(density[i] >= 0.0 && density[i] <= 1.0))
            return tess__fail(TESS_EINVAL,
                              "%s: the density of layer %zu, head %zu is %g, must be 0..1", who,
                              i / heads, i % heads, density[i]);
    return TESS_OK;
}

/* Times and bytes of the last step into c->seen; returns the time of selectors on this rank. In
 * training a forward pass alone, of a validation, is no step. */
static double look_back(tess_cp *c)
{
    double select_ns = 0.0;
    memset(c->seen, 0, 2 * (size_t)c->opts.layers * sizeof *c->seen);
    for (int l = 0; c->plan && l < c->opts.layers; l++) {
        tess_dist_stats seen;
        if (tess_dist_attn_stats(c->attn, l, &seen) != TESS_OK || (c->opts.train && !seen.backward))
            continue;
        c->seen[2 * l] = (double)(seen.attend_ns + seen.exchange_ns + seen.move_ns +
                                  seen.select_ns + seen.index_ns);
        c->seen[2 * l + 1] =
            (double)(seen.bytes[TESS_TRAFFIC_PAYLOAD] + seen.bytes[TESS_TRAFFIC_INDEX] -
                     (c->opts.lse ? 0 : seen.lse_bytes));
        select_ns += (double)seen.select_ns;
    }
    return select_ns;
}

static void add_to_mean(double *mean, double x)
{
    *mean = *mean < 0.0 ? x : memory_of_means * *mean + (1.0 - memory_of_means) * x;
}

/* Pairs in whose time a sparse query row is given its list. */
static void learn_selecting(tess_cp *c, double select_ns)
{
    const double pair = c->rates.forward + (c->opts.train ? c->rates.backward : 0.0);
    double rows = 0.0;
    for (size_t i = 0; i < n_heads(c); i++)
        rows += c->density[i] < 1.0 ? (double)c->opts.tokens * c->opts.batch : 0.0;
    if (select_ns > 0.0 && rows > 0.0 && pair > 0.0) {
        const double keys = select_ns / (rows * pair);
        c->select_keys = c->select_keys == 0.0
                             ? keys
                             : memory_of_means * c->select_keys + (1.0 - memory_of_means) * keys;
    }
}

/* Collective: densities, measured values and the time of selectors, the same on all ranks. */
static tess_status agree_numbers(tess_cp *c, const double *density)
{
    const size_t n = n_heads(c);
    for (size_t i = 0; i < n; i++)
        c->density[i] = density ? density[i] : 1.0;
    c->density[n] = look_back(c);
    TESS_TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, c->density,
                                 (int64_t)n + 1 + tess__cp_counts(c), TESS_DTYPE_F64,
                                 TESS_REDUCE_SUM));
    if (c->plan)
        TESS_TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, c->seen,
                                     2 * (int64_t)c->opts.layers, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    for (size_t i = 0; i < n; i++)
        c->density[i] = fmin(c->density[i] / c->ranks, 1.0);
    for (int l = 0; l < c->opts.layers; l++)
        if (c->seen[2 * l] > 0.0) {
            add_to_mean(&c->layers[l].measured_ns, c->seen[2 * l]);
            add_to_mean(&c->layers[l].measured_bytes, c->seen[2 * l + 1]);
        }
    learn_selecting(c, c->density[n]);
    return TESS_OK;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* c->shares, and their mean; c->low. */
static double weigh(tess_cp *c)
{
    const size_t n = n_heads(c);
    const double opens = (c->rates.row_keys + c->select_keys) / (double)c->opts.tokens;
    double sum = 0.0;
    memset(c->low, 0, (size_t)c->opts.layers);
    for (size_t i = 0; i < n; i++) {
        const double d = c->density[i];
        c->shares[i] = d < 1.0 ? d + opens : c->rates.dense;
        c->low[i / (size_t)c->opts.heads] |= d < 1.0 && c->opts.proj_dim > 0;
        sum += c->shares[i];
    }
    return sum / (double)n;
}

static tess_status make_work(tess_cp *c, tess_work **work)
{
    const tess__head_work in = {.layers = c->opts.layers,
                                .heads = c->opts.heads,
                                .shares = c->shares,
                                .bounds_q = c->blocks_q,
                                .bounds_k = c->blocks_k,
                                .n_q = c->n_q,
                                .n_k = c->n_k,
                                .unit_pairs = c->opts.batch};
    return tess__work_from_shares("tess_cp_plan", c->ctx, &in, work);
}

/* ---- sentences ------------------------------------------------------------------------------- */

/* Layers by their words: "20 layers fractional and 8 layers refined U4 x R2". */
static void count_words(const tess_cp *c, char *text, size_t size)
{
    size_t used = 0;
    for (int l = 0; l < c->opts.layers && used < size; l++) {
        int before = 0, same = 0;
        for (int i = 0; i < l; i++)
            before += strcmp(c->layers[i].words, c->layers[l].words) == 0;
        for (int i = l; i < c->opts.layers; i++)
            same += strcmp(c->layers[i].words, c->layers[l].words) == 0;
        if (!before)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%d layer%s %s", used ? " and " : "",
                                 same, same == 1 ? "" : "s", c->layers[l].words);
    }
}

static void predicted_text(int64_t ns, char text[40])
{
    if (ns < 0)
        snprintf(text, 40, "time not predictable");
    else
        snprintf(text, 40, "predicted %.3g ms", (double)ns * 1e-6);
}

/* What the plan before was, told together with the one that follows it. */
typedef struct {
    int64_t plans, kept, predicted, measured;
    double rho; /* of the work at hand; 0: there was none */
} past;

static void tell_made(const tess_cp *c, int64_t step, const past *before, double rho)
{
    char kinds[TESS_TOLD / 2] = "", time[40], was[40] = "", last[160] = "";
    double bytes = 0.0;
    for (int l = 0; l < c->opts.layers; l++)
        bytes += (double)c->layers[l].bytes;
    count_words(c, kinds, sizeof kinds);
    predicted_text(tess__cp_predicted(c), time);
    if (before->rho > 0.0)
        snprintf(was, sizeof was, " (was %.2f)", before->rho);
    if (before->plans > 0) {
        char old[40] = "";
        predicted_text(before->predicted, old);
        snprintf(last, sizeof last, "; the last was kept %lld step%s", (long long)before->kept,
                 before->kept == 1 ? "" : "s");
        if (before->measured >= 0)
            snprintf(last + strlen(last), sizeof last - strlen(last), ", %s, measured %.3g ms", old,
                     (double)before->measured * 1e-6);
    }
    tess__cp_tell(
        c, TESS_CP_MADE, step, "plan %lld of step %lld: %s, imbalance %.2f%s, %s, %.1f MiB sent%s",
        (long long)c->plans, (long long)step, kinds, rho, was, time, bytes / 1048576.0, last);
}

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct {
    tess_cp *c;
    int64_t step;
    char last[192]; /* the reason told last */
} reader;

/* Takes the bytes of the chosen candidates, and tells once why others could not be; those that are
 * "not chosen: slower" could. */
static void read_candidate(void *user, int layer, const tess_candidate *candidate)
{
    reader *r = user;
    const char *why = candidate->reason;
    if (candidate->chosen) {
        const int64_t once = r->c->low[layer] ? tess__ring_told(candidate->strategy.ring) : 0;
        r->c->layers[layer].bytes = (candidate->bytes - once) * r->c->opts.batch + once;
    }
    if (layer > 0 || candidate->ns >= 0 || r->c->plans > 1 || strstr(why, "chosen: ") ||
        strcmp(r->last, why) == 0)
        return;
    char words[TESS_STRATEGY_TEXT];
    tess_strategy_format(&candidate->strategy, words);
    if (r->c->looks && strncmp(why, "not predictable", 15) == 0)
        why = "which keys its ranks would need is seen in the first step with lists";
    snprintf(r->last, sizeof r->last, "%s", candidate->reason);
    tess__cp_tell(r->c, TESS_CP_FALLBACK, r->step, "%s is no candidate: %s", words, why);
}

/* Words and bytes of the layers of a new plan; its mean imbalance. */
static double describe(tess_cp *c, int64_t step)
{
    reader r = {.c = c, .step = step};
    double rho = 0.0;
    for (int l = 0; l < c->opts.layers; l++) {
        tess_plan_layer layer = {0};
        tess_plan_layer_view(c->plan, l, &layer);
        tess_strategy_format(&layer.strategy, c->layers[l].words);
        c->layers[l].measured_ns = c->layers[l].measured_bytes = -1.0;
        rho += layer.rho[TESS_RHO_RING] / c->opts.layers;
    }
    tess_plan_explain(c->plan, read_candidate, &r);
    return rho;
}

/* Of n numbers, which may not be there. */
static uint64_t hash_of(uint64_t before, const int32_t *x, int64_t n)
{
    return x ? tess__hash(before, x, (size_t)n * sizeof *x) : before;
}

/* A number for all that the executor takes from the plan, to be compared between ranks. */
static uint64_t plan_hash(const tess_cp *c, const tess_plan *plan)
{
    uint64_t hash = 0;
    for (int l = 0; l < c->opts.layers; l++) {
        tess_plan_layer v = {0};
        tess_plan_layer_view(plan, l, &v);
        const int degrees[] = {v.strategy.ulysses, v.strategy.ring, v.strategy.selective,
                               v.strategy.placement, v.groups};
        const int64_t parts =
            v.strategy.ring > v.strategy.selective ? v.strategy.ring : v.strategy.selective;
        hash = tess__hash(hash, degrees, sizeof degrees);
        hash = tess__hash(hash, v.shares, (size_t)v.n_shares * sizeof *v.shares);
        hash = hash_of(hash, v.head_group, c->opts.heads);
        hash = hash_of(hash, v.q_cuts, v.groups * (parts + 1));
        hash = hash_of(hash, v.k_cuts, (int64_t)v.groups * (v.strategy.ring + 1));
        hash = hash_of(hash, v.q_order, (int64_t)v.groups * c->n_q);
        hash = hash_of(hash, v.k_order, (int64_t)v.groups * c->n_k);
    }
    return hash;
}

/* Whether a layer of `now` is selective in another way, or its time is known at last. */
static int selects_otherwise(const tess_plan *was, const tess_plan *now, int layers)
{
    for (int l = 0; l < layers; l++) {
        tess_plan_layer a = {0}, b = {0};
        tess_plan_layer_view(was, l, &a);
        tess_plan_layer_view(now, l, &b);
        if (a.strategy.selective != b.strategy.selective ||
            (a.predicted_ns < 0 && b.predicted_ns >= 0))
            return 1;
    }
    return 0;
}

/* Collective. keep 1: the plan at hand stays unless the new one selects otherwise; *made = 0 then.
 * On failure the plan before stays with the context, and the executor of a rank may have either:
 * the group cannot go on. */
static tess_status replace_plan(tess_cp *c, const tess_work *work, int keep, int *made)
{
    tess_plan *plan = NULL;
    tess__cp_price_unions(c);
    tess_status status = tess_plan_create(c->ctx, work, c->priced, &c->how, &plan);
    status = tess_comm_agree(c->comm, status);
    if (status == TESS_OK) {
        const uint64_t hash = plan_hash(c, plan);
        status = tess_comm_check_equal(c->comm, "plan", &hash, sizeof hash);
    }
    *made = status == TESS_OK && (!keep || selects_otherwise(c->plan, plan, c->opts.layers));
    if (*made)
        status = tess_comm_agree(c->comm, tess_dist_attn_plan(c->attn, plan));
    if (status != TESS_OK || !*made) {
        tess_plan_destroy(plan);
        return status;
    }
    tess_plan_destroy(c->plan);
    c->plan = plan;
    c->carried_ns = c->kept = 0;
    c->plans++;
    return TESS_OK;
}

/* Whether the plan serves this work; verdict.rho is its imbalance. */
static tess_status judge(tess_cp *c, const tess_work *work, double total, int *keep,
                         tess_plan_verdict *verdict)
{
    *keep = 0;
    *verdict = (tess_plan_verdict){0};
    if (!c->plan)
        return TESS_OK;
    TESS_TRY(tess_plan_keep(c->plan, work, c->priced, &c->how, c->carried_ns, verdict));
    const size_t layers = (size_t)c->opts.layers;
    *keep = verdict->keep && !c->opts.fresh && total <= c->planned * work_changes &&
            total * work_changes >= c->planned && memcmp(c->low, c->low + layers, layers) == 0;
    return TESS_OK;
}

/* far 1: what selective layers need is another share than the plan was made with. */
static tess_status decide(tess_cp *c, int64_t step, const tess_work *work, double total, int far,
                          int *replanned)
{
    tess_plan_verdict verdict;
    int keep;
    TESS_TRY(tess_comm_agree(c->comm, judge(c, work, total, &keep, &verdict)));
    const past before = {.plans = c->plans,
                         .kept = c->kept,
                         .predicted = tess__cp_predicted(c),
                         .measured = tess__cp_measured(c),
                         .rho = verdict.rho};
    *replanned = 0;
    if (!keep || far)
        TESS_TRY(replace_plan(c, work, keep, replanned));
    if (!*replanned) {
        c->carried_ns = verdict.carried_ns;
        c->kept++;
        tess__cp_tell(c, TESS_CP_KEPT, step, "plan %lld kept for step %lld: imbalance %.2f; %s",
                      (long long)c->plans, (long long)step, verdict.rho, verdict.reason);
        return TESS_OK;
    }
    c->planned = total;
    memcpy(c->low + c->opts.layers, c->low, (size_t)c->opts.layers);
    tell_made(c, step, &before, describe(c, step));
    return TESS_OK;
}

tess_status tess_cp_plan(tess_cp *context, int64_t step, const double *density, int *replanned)
{
    TESS_REQUIRE(context);
    TESS_TRY(tess_comm_agree(context->comm, check(context, step, density)));
    TESS_TRY(agree_numbers(context, density));
    const int far = tess__cp_learn(context, step);
    const double total = weigh(context);
    tess_work *work = NULL;
    int made = 0;
    tess_status status = tess_comm_agree(context->comm, make_work(context, &work));
    if (status == TESS_OK)
        status = decide(context, step, work, total, far, &made);
    tess_work_destroy(work);
    tess__cp_look(context, made);
    if (status == TESS_OK && replanned)
        *replanned = made;
    return status;
}
