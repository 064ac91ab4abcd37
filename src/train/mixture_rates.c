/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_rates.c - what plans of mixtures count with, measured from the steps themselves.
 *
 *   time of rank p = (pairs_p pair + tokens_p token) / speed_p
 *
 * pairs and tokens of each rank are known by the plan, its time in attention and in the rest of its
 * passes is measured by the clock, without waiting. A step gives pair and token as sums over ranks,
 * and each rank's speed as the work that they say it did over its time. Rates come into force
 *
 *   after step 1 of a job, and the medians of the next five steps once more: before, a plan counts
 *   FLOP; and whenever the median of the last steps, three to five, is PAYS less even than planned
 *
 * so a rank that becomes slow changes the plan, and one slow step does not. All ranks have the same
 * sums, and so the same rates. Rates of a cluster, and speeds that were given, stay as they are.
 */
#include "mixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double PAYS = 0.05, MOST = 0.99;
enum { LEAST = 3, MOST_SPEED = 1000 };

/* ---- life ------------------------------------------------------------------------------------ */

/* Speeds as they were given: as many numbers 1..1000000 as ranks. */
static tess_status read_speeds(const char *text, int ranks, int32_t *speeds)
{
    const char *at = text;
    for (int p = 0; p < ranks; p++) {
        char *end;
        const long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (value < 1 || value > 1000000 || *end != (p + 1 < ranks ? ',' : '\0'))
            return tess__invalid("tess_train_create",
                                 "speeds is \"%.80s\", must be %d integers 1..1000000 with commas "
                                 "between them",
                                 text, ranks);
        speeds[p] = (int32_t)value;
        at = end + 1;
    }
    return TESS_OK;
}

tess_status tess__rates_create(tess_train *t)
{
    tess__mixture_rates *r = &t->mixture->rates;
    const size_t ranks = (size_t)t->pg.size;
    r->speeds = TESS_TAKE(&t->arena, ranks * sizeof *r->speeds);
    r->speed = TESS_TAKE(&t->arena, TESS__RATE_STEPS * ranks * sizeof *r->speed);
    r->times = TESS_TAKE(&t->arena, 2 * ranks * sizeof *r->times);
    r->work = TESS_TAKE(&t->arena, 2 * ranks * sizeof *r->work);
    r->sorted = TESS_TAKE(&t->arena, TESS__RATE_STEPS * sizeof *r->sorted);
    r->fixed = t->opts.cluster || t->opts.speeds;
    for (size_t p = 0; p < ranks; p++)
        r->speeds[p] = MOST_SPEED;
    return t->opts.speeds ? read_speeds(t->opts.speeds, t->pg.size, r->speeds) : TESS_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static double sum_of(const double *x, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* The largest over the mean. */
static double imbalance_of(const tess__mixture_rates *r, int ranks)
{
    double most = 0.0, sum = 0.0;
    for (int p = 0; p < ranks; p++) {
        const double time = r->times[p] + r->times[ranks + p];
        most = fmax(most, time);
        sum += time;
    }
    return sum > 0.0 ? most * ranks / sum : 1.0;
}

/* What the step measured, at its place among the last ones. */
static void keep(tess__mixture_rates *r, int ranks, double planned)
{
    const int at = r->n++ % TESS__RATE_STEPS;
    const double *pairs = r->work, *tokens = r->work + ranks;
    const double pair = sum_of(r->times, ranks) / fmax(sum_of(pairs, ranks), 1.0);
    const double token = sum_of(r->times + ranks, ranks) / fmax(sum_of(tokens, ranks), 1.0);
    r->pairs[at] = pair;
    r->tokens[at] = token;
    r->planned[at] = planned;
    r->measured[at] = imbalance_of(r, ranks);
    for (int p = 0; p < ranks; p++) {
        const double time = r->times[p] + r->times[ranks + p];
        const double work = pairs[p] * pair + tokens[p] * token;
        r->speed[at * ranks + p] = work > 0.0 && time > 0.0 ? work / time : (double)NAN;
    }
}

/* The median of n values, `stride` apart, without those that are NaN; NaN: all are. */
static double median(const tess__mixture_rates *r, const double *x, int stride, int n)
{
    size_t count = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[(size_t)i * (size_t)stride]))
            r->sorted[count++] = x[(size_t)i * (size_t)stride];
    tess__sort(r->sorted, count);
    return count ? r->sorted[count / 2] : (double)NAN;
}

/* ---- new rates ------------------------------------------------------------------------------- */

void tess__mixture_say(const tess_train *t, const char *sentence)
{
    if (t->pg.rank > 0 || t->divergence.again)
        return;
    if (t->opts.event)
        t->opts.event(t->opts.event_user, sentence);
    else
        tess__log(t->ctx, TESS_LOG_INFO, "%s", sentence);
}

/* "1.00 0.98 0.51", the first eight and how many more. */
static void speeds_text(const int32_t *speeds, int ranks, char *text, size_t bytes)
{
    size_t used = 0;
    int32_t most = 1;
    for (int p = 0; p < ranks; p++)
        most = TESS_MAX(most, speeds[p]);
    for (int p = 0; p < ranks && p < 8 && used < bytes; p++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%.2f", p ? " " : "",
                                 (double)speeds[p] / most);
    if (ranks > 8 && used < bytes)
        snprintf(text + used, bytes - used, " and %d more", ranks - 8);
}

/* The medians of the steps kept come into force. Speeds count from the fastest rank's. */
static void adopt(tess_train *t, int n, int pays, double planned, double measured)
{
    tess__mixture_rates *r = &t->mixture->rates;
    const int ranks = t->pg.size, layers = t->model->config.layers, heads = t->model->config.heads;
    char speeds[128], text[384];
    double most = 1e-9;
    for (int p = 0; p < ranks; p++)
        most = fmax(most, fmax(median(r, r->speed + p, ranks, n), 0.0));
    for (int p = 0; p < ranks && !r->fixed; p++) {
        const double speed = median(r, r->speed + p, ranks, n);
        if (!isnan(speed))
            r->speeds[p] = (int32_t)fmax(lround(MOST_SPEED * speed / most), 1.0);
    }
    const double fastest = r->fixed ? 1.0 : most;
    r->pair = median(r, r->pairs, 1, n) / fastest / layers / heads;
    r->token = median(r, r->tokens, 1, n) / fastest / layers;
    speeds_text(r->speeds, ranks, speeds, sizeof speeds);
    r->adopted++;
    if (!pays)
        snprintf(text, sizeof text,
                 "rates measured up to step %lld: a pair %.3g ns, a token's other work %.3g us a "
                 "layer; speeds of ranks %s",
                 (long long)t->step + 1, r->pair, 1e-3 * r->token, speeds);
    else
        snprintf(text, sizeof text,
                 "clips are planned anew from step %lld on: imbalance %.2f measured, %.2f planned; "
                 "speeds of ranks %s",
                 (long long)t->step + 2, measured, planned, speeds);
    tess__mixture_say(t, text);
    r->n = 0;
}

tess_status tess__rates_step(tess_train *t, double attention, double all)
{
    tess__mixture *m = t->mixture;
    tess__mixture_rates *r = &m->rates;
    const int ranks = t->pg.size;
    memset(r->times, 0, 2 * (size_t)ranks * sizeof *r->times);
    all = fmax(all, 0.0);
    attention =
        fmin(attention, MOST * all); /* its clock is the wall's, of simulated links or not */
    r->times[t->pg.rank] = attention;
    r->times[ranks + t->pg.rank] = all - attention;
    TESS_TRY(tess__pg_allreduce(&t->pg, r->times, 2 * (int64_t)ranks));
    if (t->opts.cluster)
        return TESS_OK;
    keep(r, ranks, m->view.step[0].rho);
    const int n = TESS_MIN(r->n, TESS__RATE_STEPS);
    const double planned = median(r, r->planned, 1, n), measured = median(r, r->measured, 1, n);
    const int pays = !r->fixed && r->n >= LEAST && measured > planned + PAYS;
    if (r->adopted == 0 || (r->adopted == 1 && r->n == TESS__RATE_STEPS) || pays)
        adopt(t, n, pays, planned, measured);
    return TESS_OK;
}
