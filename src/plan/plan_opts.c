/* SPDX-License-Identifier: Apache-2.0 */
/* plan_opts.c - the options of a plan: their rules and defaults, and the rates they lead to. */
#include "strategy_internal.h"

#include <string.h>

static tess_status check_numbers(const char *who, const tess_plan_opts *o, int layers)
{
    TESS_TRY(tess__check_range(who, "ranks", o->ranks, 1, TESS_PLAN_RANKS_MAX));
    TESS_TRY(tess__check_range(who, "nodes", o->nodes, 0, o->ranks));
    TESS_TRY(
        tess__check_range(who, "method", (int)o->strategy.method, 0, TESS_PLAN_METHOD_COUNT - 1));
    TESS_TRY(tess__check_range(who, "ulysses", o->strategy.ulysses, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "ring", o->strategy.ring, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "selective", o->strategy.selective, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "pass", (int)o->pass, 0, TESS_PLAN_PASS_COUNT - 1));
    TESS_TRY(tess__check_range(who, "head_dim", o->head_dim, 0, 4096));
    TESS_TRY(tess__check_range(who, "proj_dim", o->proj_dim, 0, 65536));
    TESS_TRY(tess__check_range(who, "lse", o->lse, 0, 1));
    TESS_TRY(tess__check_range(who, "memory", o->memory, 0, INT64_MAX));
    TESS_TRY(tess__check_range(who, "whole_keys", o->whole_keys, 0, 2));
    TESS_TRY(tess__check_range(who, "reward", o->reward, -1, 1000000));
    if (o->element_bytes != 0 && o->element_bytes != 2 && o->element_bytes != 4)
        return tess__fail(TESS_EINVAL, "%s: element_bytes is %d, must be 0, 2 or 4", who,
                          o->element_bytes);
    if (!(o->union_share >= 0.0 && o->union_share <= 1.0))
        return tess__fail(TESS_EINVAL, "%s: union_share is %g, must be 0..1", who, o->union_share);
    for (int64_t i = 0; o->union_shares && i < ((int64_t)o->ranks + 1) * layers; i++)
        if (!(o->union_shares[i] >= 0.0 && o->union_shares[i] <= 1.0))
            return tess__fail(TESS_EINVAL, "%s: union_shares[%lld] is %g, must be 0..1", who,
                              (long long)i, o->union_shares[i]);
    if (!(o->replan_above >= 0.0 && o->replan_above <= 1e9))
        return tess__fail(TESS_EINVAL, "%s: replan_above is %g, must be 0..1e9", who,
                          o->replan_above);
    if (o->strategy.ring > 1 && o->strategy.selective > 1)
        return tess__fail(TESS_EINVAL, "%s: ring is %d and selective is %d, one must be 1", who,
                          o->strategy.ring, o->strategy.selective);
    for (int p = 0; o->speeds && p < o->ranks; p++)
        if (o->speeds[p] < 1 || o->speeds[p] > 1000000)
            return tess__fail(TESS_EINVAL, "%s: speeds[%d] is %d, must be 1..1000000", who, p,
                              o->speeds[p]);
    return TESS_OK;
}

/* Nodes, memory and rates of the cluster. */
static tess_status use_cluster(const char *who, const tess_cluster *cluster, tess__task *task)
{
    const tess_cluster_info *c = &cluster->info;
    tess_plan_opts *o = &task->opts;
    const tess_precision precision =
        o->element_bytes == 4 ? TESS_PRECISION_FP32 : TESS_PRECISION_BF16;
    if (!o->nodes)
        o->nodes = (o->ranks + c->node_gpus - 1) / c->node_gpus;
    const int per_node = (o->ranks + o->nodes - 1) / o->nodes;
    if (per_node > c->node_gpus)
        return tess__fail(TESS_EINVAL, "%s: %d ranks on %d nodes, but a node of %s has %d GPUs",
                          who, o->ranks, o->nodes, c->name, c->node_gpus);
    if (o->nodes > 1 && !c->nics)
        return tess__fail(TESS_EINVAL, "%s: nodes is %d, must be 1: cluster %s has no network", who,
                          o->nodes, c->name);
    if (task->work->info.unit_pairs == 0.0)
        return tess__fail(TESS_EINVAL,
                          "%s: the work is of weights or of blocks without tokens, whose time on "
                          "a cluster is not known",
                          who);
    if (!o->memory)
        o->memory = c->memory;
    task->pricing.cluster = c;
    TESS_TRY(tess__attn_rates(cluster, o->head_dim, 0, 0.0, precision, &task->pricing.forward));
    return tess__attn_rates(cluster, o->head_dim, 1, 0.0, precision, &task->pricing.backward);
}

tess_status tess__task_make(const char *who, tess_ctx *ctx, const tess_work *work,
                            const tess_cluster *cluster, const tess_plan_opts *opts,
                            tess__task *task)
{
    TESS_TRY(check_numbers(who, opts, work->info.layers));
    *task = (tess__task){.ctx = ctx, .work = work, .opts = *opts};
    tess_plan_opts *o = &task->opts;
    o->head_dim = o->head_dim ? o->head_dim : 128;
    o->element_bytes = o->element_bytes ? o->element_bytes : 2;
    o->reward = o->reward == 0 ? 2 : o->reward < 0 ? 0 : o->reward;
    if (cluster)
        TESS_TRY(use_cluster(who, cluster, task));
    o->nodes = o->nodes ? o->nodes : 1;
    task->pricing.unit_pairs = work->info.unit_pairs;
    task->pricing.union_share = o->union_share;
    task->pricing.union_shares = o->union_shares;
    task->pricing.proj_dim = o->proj_dim;
    task->pricing.proj_layers = o->proj_layers;
    task->pricing.lse = o->lse;
    task->pricing.ranks = o->ranks;
    task->pricing.per_node = (o->ranks + o->nodes - 1) / o->nodes;
    tess__plan_info_of_work(work, &task->info);
    task->info.ranks = o->ranks;
    task->info.nodes = o->nodes;
    task->info.speeds = o->speeds;
    task->info.pass = o->pass;
    task->info.head_dim = o->head_dim;
    task->info.element_bytes = o->element_bytes;
    return TESS_OK;
}
