/* SPDX-License-Identifier: Apache-2.0 */
/* reuse.c - whether a plan still serves the work of a later step.
 *
 * By db-SP's rule a plan is kept while the mean over layers of its imbalance under the new work
 * stays at or below a threshold. By cost it is kept while what it has lost since it was made stays
 * below what a new one costs:
 *
 *   loss of a step = sum over layers of compute * (1 - rho when planned / rho of this step)
 *
 * a fresh plan being taken to balance as well as this one did when it was fresh. Re-planning once
 * the sum of losses has reached the cost is at most twice as expensive as knowing the future. The
 * cost is a model, never a clock: the same on all ranks.
 */
#include "strategy_internal.h"

#include <string.h>

/* Of planning one layer: a part that is always there, and one per word of 64 mask bits, larger
 * where blocks are planned or everything is tried: about what 40 heads of 1184 x 1184 blocks take
 * on one core. */
enum { PLAN_NS = 50000, WORD_NS = 1, WORD_BLOCKS_NS = 8 };

/* Planning every layer, after an all-gather of the loads of all heads. */
static int64_t cost_of(const tess_plan *plan, const tess__task *task)
{
    const tess_plan_info *info = &plan->info;
    const tess_cluster_info *c = task->pricing.cluster;
    const int64_t words = (int64_t)info->heads * info->q_blocks * tess__work_words(task->work);
    const int far = info->nodes > 1;
    const double bandwidth = far ? c->nic_bandwidth * c->network_efficiency / c->oversubscription
                                 : c->link_bandwidth * c->link_efficiency;
    const double bytes = 8.0 * info->heads * info->layers;
    int64_t ns = c->launch + (far ? c->network_latency : c->link_latency) +
                 tess__ns(bytes * 1e9 / bandwidth);
    for (int at = 0; at < info->layers; at++) {
        const int blocks = plan->layers[at].q_order || task->opts.strategy.method == TESS_PLAN_AUTO;
        ns += PLAN_NS + words * (blocks ? WORD_BLOCKS_NS : WORD_NS);
    }
    return ns;
}

/* The imbalance of a layer under the work, and the extra time since the plan was made. */
static tess_status judge(const tess_plan *plan, const tess__task *task, int at, double *rho,
                         int64_t *loss)
{
    const tess_plan_layer *layer = &plan->layers[at];
    tess__arena arena = {.ctx = plan->ctx};
    int64_t *tiles = NULL;
    tess__price price = {0};
    tess_status status = tess__layer_tiles(&arena, &plan->info, layer, task->work, at, &tiles);
    if (status == TESS_OK)
        status = tess__layer_price(plan->ctx, &task->pricing, &plan->info, layer, task->work, at,
                                   tiles, &price);
    tess__arena_free(&arena);
    TESS_TRY(status);
    const double planned = layer->rho[TESS_RHO_RING];
    *rho = price.rho;
    *loss = price.compute_ns > 0 && price.rho > planned
                ? tess__ns((double)price.compute_ns * (1.0 - planned / price.rho))
                : 0;
    return TESS_OK;
}

static tess_status check(const char *who, const tess_plan *plan, const tess_work *work,
                         const tess_plan_opts *opts, int64_t carried_ns,
                         const tess_plan_verdict *answer)
{
    if (!plan || !work || !opts || !answer)
        return tess__invalid(who, "%s is NULL",
                             !plan   ? "plan"
                             : !work ? "work"
                             : !opts ? "opts"
                                     : "answer");
    TESS_TRY(tess__plan_fits(who, &plan->info, work));
    if (work->info.layers != plan->info.layers)
        return tess__invalid(who, "the work has %d layers, the plan %d", work->info.layers,
                             plan->info.layers);
    if (opts->ranks != plan->info.ranks)
        return tess__invalid(who, "ranks is %d, must be the plan's %d", opts->ranks,
                             plan->info.ranks);
    TESS_TRY(tess__check_least(who, "carried_ns", carried_ns, 0));
    return TESS_OK;
}

tess_status tess_plan_keep(const tess_plan *plan, const tess_work *work,
                           const tess_cluster *cluster, const tess_plan_opts *opts,
                           int64_t carried_ns, tess_plan_verdict *answer)
{
    tess__task task;
    TESS_TRY(check(__func__, plan, work, opts, carried_ns, answer));
    TESS_TRY(tess__task_make(__func__, plan->ctx, work, cluster, opts, &task));
    const int by_cost = !(opts->replan_above > 0.0) && cluster;
    const double threshold = opts->replan_above > 0.0 ? opts->replan_above : 1.1;
    if (!by_cost)
        task.pricing.cluster = NULL;
    tess_plan_verdict a = {.loss_ns = -1, .carried_ns = carried_ns, .cost_ns = -1};
    int64_t loss = 0;
    for (int at = 0; at < plan->info.layers; at++) {
        double rho = 0.0;
        int64_t ns = 0;
        TESS_TRY(judge(plan, &task, at, &rho, &ns));
        a.rho += rho;
        loss += ns;
    }
    a.rho /= plan->info.layers;
    if (!by_cost) {
        a.keep = a.rho <= threshold;
        snprintf(a.reason, sizeof a.reason, "imbalance %.3f, %s %.3f", a.rho,
                 a.keep ? "not above" : "above", threshold);
    } else {
        a.loss_ns = loss;
        a.carried_ns = carried_ns + loss;
        a.cost_ns = cost_of(plan, &task);
        a.keep = a.carried_ns < a.cost_ns;
        snprintf(a.reason, sizeof a.reason, "%.3f ms lost, %s the %.3f ms of a new plan",
                 (double)a.carried_ns * 1e-6, a.keep ? "below" : "not below",
                 (double)a.cost_ns * 1e-6);
    }
    *answer = a;
    return TESS_OK;
}
