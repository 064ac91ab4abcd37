/* SPDX-License-Identifier: Apache-2.0 */
/* cp_plan.c - before each step: statistics of the last one, densities, and a plan reused or made.
 *
 * Two small all-reduces: the sum of densities and of the time of selectors, and the maximum of
 * times and bytes of layers. From there on every rank computes the same. The work of a head is its
 * time, in units of a pair of a list:
 *
 *   sparse   density * tokens + row_keys + select_keys      keys for each query row
 *   dense    tokens * dense
 *
 * and part_keys for each further key part that a row meets in a ring, which the price adds.
 * row_keys, part_keys and dense come from the probe, and select_keys from the callbacks of the last
 * step. A plan is reused by the rule of tess_plan_keep, which considers the balance; when the work
 * has grown or shrunk by a quarter, or projected q and k are sent in other layers, another strategy
 * may be the fastest, and a new plan is made.
 *
 * Cost of a step on P ranks with L layers of H heads: an all-reduce of L H + 1 doubles, after a
 * step that measured unions L parts TESS__UNION_COUNTS more; one of 2 L doubles; three agreements
 * of 4 bytes. For 30 layers of 12 heads that is 3.3 KiB to every other rank, and five latencies. A
 * new plan adds two agreements and the comparison of 8 bytes, besides the planner's time.
 */
#include "cp_internal.h"

#include "plan/strategy_internal.h"
#include "plan/work.h"

#include <math.h>
#include <string.h>

static const double work_ratio = 1.25; /* change of the work that makes another strategy likely */
static const double mean_decay = 0.8;  /* weight of the past in running means */

/* ---- values that ranks all-reduce ------------------------------------------------------------ */

static size_t n_heads(const tess_cp *c)
{
    return (size_t)c->opts.layers * (size_t)c->opts.heads;
}

static tess_status check(const tess_cp *c, int64_t step, const double *density)
{
    static const char who[] = "tess_cp_plan";
    TESS_TRY(tess__check_least(who, "step", step, 0));
    const size_t heads = (size_t)c->opts.heads;
    for (size_t i = 0; density && i < n_heads(c); i++)
        if (!(density[i] >= 0.0 && density[i] <= 1.0))
            return tess__invalid(who, "the density of layer %zu, head %zu is %g, must be 0..1",
                                 i / heads, i % heads, density[i]);
    return TESS_OK;
}

/* Times and bytes of the last step into c->step_stats; returns the time of selectors on this rank.
 * In training a forward pass alone, of a validation, does not count as a step. */
static double collect_stats(tess_cp *c)
{
    double select_ns = 0.0;
    memset(c->step_stats, 0, 2 * (size_t)c->opts.layers * sizeof *c->step_stats);
    for (int l = 0; c->plan && l < c->opts.layers; l++) {
        tess_dist_stats stats;
        if (tess_dist_attn_stats(c->attn, l, &stats) != TESS_OK ||
            (c->opts.train && !stats.backward))
            continue;
        c->step_stats[2 * l] = (double)(stats.attend_ns + stats.exchange_ns + stats.move_ns +
                                        stats.select_ns + stats.index_ns);
        c->step_stats[2 * l + 1] =
            (double)(stats.bytes[TESS_TRAFFIC_PAYLOAD] + stats.bytes[TESS_TRAFFIC_INDEX] -
                     (c->opts.lse ? 0 : stats.lse_bytes));
        select_ns += (double)stats.select_ns;
    }
    return select_ns;
}

static void add_to_mean(double *mean, double x)
{
    *mean = *mean < 0.0 ? x : mean_decay * *mean + (1.0 - mean_decay) * x;
}

/* Time of selecting the list of a sparse query row, in units of the time of a pair. */
static void update_select_keys(tess_cp *c, double select_ns)
{
    const double pair = c->rates.forward + (c->opts.train ? c->rates.backward : 0.0);
    double rows = 0.0;
    for (size_t i = 0; i < n_heads(c); i++)
        rows += c->density[i] < 1.0 ? (double)c->opts.tokens * c->opts.batch : 0.0;
    if (select_ns > 0.0 && rows > 0.0 && pair > 0.0) {
        const double keys = select_ns / (rows * pair);
        c->select_keys =
            c->select_keys == 0.0 ? keys : mean_decay * c->select_keys + (1.0 - mean_decay) * keys;
    }
}

/* Collective: densities, measured values and the time of selectors, the same on all ranks. */
static tess_status agree_numbers(tess_cp *c, const double *density)
{
    const size_t n = n_heads(c);
    for (size_t i = 0; i < n; i++)
        c->density[i] = density ? density[i] : 1.0;
    c->density[n] = collect_stats(c);
    TESS_TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, c->density,
                                 (int64_t)n + 1 + tess__cp_count_values(c), TESS_DTYPE_F64,
                                 TESS_REDUCE_SUM));
    if (c->plan)
        TESS_TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, c->step_stats,
                                     2 * (int64_t)c->opts.layers, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    for (size_t i = 0; i < n; i++)
        c->density[i] = fmin(c->density[i] / c->ranks, 1.0);
    for (int l = 0; l < c->opts.layers; l++)
        if (c->step_stats[2 * l] > 0.0) {
            add_to_mean(&c->layers[l].measured_ns, c->step_stats[2 * l]);
            add_to_mean(&c->layers[l].measured_bytes, c->step_stats[2 * l + 1]);
        }
    update_select_keys(c, c->density[n]);
    return TESS_OK;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Fills c->head_work and c->projects; returns the mean of head_work. */
static double compute_work(tess_cp *c)
{
    const size_t n = n_heads(c);
    const double row_work = (c->rates.row_keys + c->select_keys) / (double)c->opts.tokens;
    double sum = 0.0;
    memset(c->projects, 0, (size_t)c->opts.layers);
    for (size_t i = 0; i < n; i++) {
        const double d = c->density[i];
        c->head_work[i] = d < 1.0 ? d + row_work : c->rates.dense;
        c->projects[i / (size_t)c->opts.heads] |= d < 1.0 && c->opts.proj_dim > 0;
        sum += c->head_work[i];
    }
    return sum / (double)n;
}

static tess_status make_work(tess_cp *c, tess_work **work)
{
    const tess__head_work in = {.layers = c->opts.layers,
                                .heads = c->opts.heads,
                                .shares = c->head_work,
                                .bounds_q = c->blocks_q,
                                .bounds_k = c->blocks_k,
                                .n_q = c->n_q,
                                .n_k = c->n_k,
                                .unit_pairs = c->opts.batch};
    return tess__work_from_shares("tess_cp_plan", c->ctx, &in, work);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Layers by strategy: "20 layers fractional and 8 layers refined U4 x R2". */
static void list_strategies(const tess_cp *c, char *text, size_t size)
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

/* The previous plan, reported together with its successor. */
typedef struct {
    int64_t plans, reused, predicted, measured;
    double rho; /* of the current work; 0: no previous plan */
} previous_plan;

static void report_new_plan(const tess_cp *c, int64_t step, const previous_plan *before, double rho)
{
    char kinds[TESS_EVENT_MAX / 2] = "", time[40], was[40] = "", last[160] = "";
    double bytes = 0.0;
    for (int l = 0; l < c->opts.layers; l++)
        bytes += (double)c->layers[l].bytes;
    list_strategies(c, kinds, sizeof kinds);
    predicted_text(tess__cp_predicted(c), time);
    if (before->rho > 0.0)
        snprintf(was, sizeof was, " (was %.2f)", before->rho);
    if (before->plans > 0) {
        char old[40] = "";
        predicted_text(before->predicted, old);
        snprintf(last, sizeof last, "; the last was kept %lld step%s", (long long)before->reused,
                 before->reused == 1 ? "" : "s");
        if (before->measured >= 0)
            snprintf(last + strlen(last), sizeof last - strlen(last), ", %s, measured %.3g ms", old,
                     (double)before->measured * 1e-6);
    }
    tess__cp_report(c, TESS_CP_PLAN_NEW, step,
                    "plan %lld of step %lld: %s, imbalance %.2f%s, %s, %.1f MiB sent%s",
                    (long long)c->plans, (long long)step, kinds, rho, was, time, bytes / 1048576.0,
                    last);
}

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct {
    tess_cp *c;
    int64_t step;
    char last[192]; /* the last reason reported */
} reader;

/* Reads the bytes of the chosen candidates, and reports once why others are not possible; those
 * that are "not chosen: slower" are possible, and methods differ in heads alone. */
static void read_candidate(void *user, int layer, const tess_candidate *candidate)
{
    reader *r = user;
    const char *why = candidate->reason;
    if (candidate->chosen) {
        const int64_t once =
            r->c->projects[layer] ? tess__ring_announced(candidate->strategy.ring) : 0;
        r->c->layers[layer].bytes = (candidate->bytes - once) * r->c->opts.batch + once;
    }
    if (layer > 0 || candidate->ns >= 0 || r->c->plans > 1 || strstr(why, "chosen: ") ||
        (candidate->strategy.method != TESS_PLAN_REFINED &&
         candidate->strategy.method != TESS_PLAN_FRACTIONAL) ||
        strcmp(r->last, why) == 0)
        return;
    char words[TESS_STRATEGY_TEXT];
    tess_strategy_format(&candidate->strategy, words);
    if (r->c->measures_unions && strncmp(why, "not predictable", 15) == 0)
        why = "which keys its ranks would need is measured in the first step with lists";
    snprintf(r->last, sizeof r->last, "%s", candidate->reason);
    tess__cp_report(r->c, TESS_CP_FALLBACK, r->step, "%s is no candidate: %s", words, why);
}

/* Strategy and bytes of the layers of a new plan; its mean imbalance. */
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

/* Hash of n numbers; x may be NULL. */
static uint64_t hash_of(uint64_t before, const int32_t *x, int64_t n)
{
    return x ? tess__hash(before, x, (size_t)n * sizeof *x) : before;
}

/* Hash of everything that the executor reads from the plan, to be compared between ranks. */
static uint64_t plan_hash(const tess_cp *c, const tess_plan *plan)
{
    uint64_t hash = 0;
    for (int l = 0; l < c->opts.layers; l++) {
        tess_plan_layer v = {0};
        tess_plan_layer_view(plan, l, &v);
        const int degrees[] = {v.strategy.ulysses, v.strategy.ring, v.strategy.selective,
                               v.strategy.placement, v.groups};
        const int64_t parts = TESS_MAX(v.strategy.ring, v.strategy.selective);
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

/* Whether a layer of `now` has another selective degree, or its time has become known. */
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

/* Collective. keep 1: the current plan stays unless the new one selects otherwise; *made = 0 then.
 * On failure the group has the previous plan, and the executor of a rank may have either one: the
 * group cannot continue. */
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
    c->carried_ns = c->reused = 0;
    c->plans++;
    return TESS_OK;
}

/* Whether the plan can be reused for this work; verdict.rho is its imbalance. */
static tess_status check_reuse(tess_cp *c, const tess_work *work, double total, int *keep,
                               tess_plan_verdict *verdict)
{
    *keep = 0;
    *verdict = (tess_plan_verdict){0};
    if (!c->plan)
        return TESS_OK;
    TESS_TRY(tess_plan_keep(c->plan, work, c->priced, &c->how, c->carried_ns, verdict));
    const size_t layers = (size_t)c->opts.layers;
    *keep = verdict->keep && !c->opts.replan_always && total <= c->planned_work * work_ratio &&
            total * work_ratio >= c->planned_work &&
            memcmp(c->projects, c->projects + layers, layers) == 0;
    return TESS_OK;
}

/* changed 1: the measured unions differ from those that the plan was made with. */
static tess_status decide(tess_cp *c, int64_t step, const tess_work *work, double total,
                          int changed, int *replanned)
{
    tess_plan_verdict verdict;
    int keep;
    TESS_TRY(tess_comm_agree(c->comm, check_reuse(c, work, total, &keep, &verdict)));
    const previous_plan before = {.plans = c->plans,
                                  .reused = c->reused,
                                  .predicted = tess__cp_predicted(c),
                                  .measured = tess__cp_measured(c),
                                  .rho = verdict.rho};
    *replanned = 0;
    if (!keep || changed)
        TESS_TRY(replace_plan(c, work, keep, replanned));
    if (!*replanned) {
        c->carried_ns = verdict.carried_ns;
        c->reused++;
        tess__cp_report(c, TESS_CP_PLAN_REUSED, step,
                        "plan %lld kept for step %lld: imbalance %.2f; %s", (long long)c->plans,
                        (long long)step, verdict.rho, verdict.reason);
        return TESS_OK;
    }
    c->planned_work = total;
    memcpy(c->projects + c->opts.layers, c->projects, (size_t)c->opts.layers);
    report_new_plan(c, step, &before, describe(c, step));
    return TESS_OK;
}

tess_status tess_cp_plan(tess_cp *context, int64_t step, const double *density, int *replanned)
{
    TESS_REQUIRE(context);
    TESS_TRY(tess_comm_agree(context->comm, check(context, step, density)));
    TESS_TRY(agree_numbers(context, density));
    const int changed = tess__cp_update_unions(context, step);
    const double total = compute_work(context);
    tess_work *work = NULL;
    int made = 0;
    tess_status status = tess_comm_agree(context->comm, make_work(context, &work));
    if (status == TESS_OK)
        status = decide(context, step, work, total, changed, &made);
    tess_work_destroy(work);
    tess__cp_schedule_measure(context, made);
    if (status == TESS_OK && replanned)
        *replanned = made;
    return status;
}
