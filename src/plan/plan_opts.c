/* SPDX-License-Identifier: Apache-2.0 */
/* plan_opts.c - the options of a plan: rules between them, and the rates of the cluster. */
#include "strategy_internal.h"

#include "options/option_check.h"

#include <string.h>

static tess_status check_numbers(const char *who, const tess_plan_opts *o, int layers)
{
    TESS_TRY(tess__options_check(who, TESS_OPTIONS_PLAN, o));
    TESS_TRY(tess__check_range(who, "nodes", o->nodes, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "ulysses", o->strategy.ulysses, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "ring", o->strategy.ring, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "selective", o->strategy.selective, 0, o->ranks));
    for (int64_t i = 0; o->union_shares && i < ((int64_t)o->ranks + 1) * layers; i++)
        if (!(o->union_shares[i] >= 0.0 && o->union_shares[i] <= 1.0))
            return tess__invalid(who, "union_shares[%lld] is %g, must be 0..1", (long long)i,
                                 o->union_shares[i]);
    if (o->strategy.ring > 1 && o->strategy.selective > 1)
        return tess__invalid(who, "ring is %d and selective is %d, one must be 1", o->strategy.ring,
                             o->strategy.selective);
    for (int p = 0; o->speeds && p < o->ranks; p++)
        if (o->speeds[p] < 1 || o->speeds[p] > 1000000)
            return tess__invalid(who, "speeds[%d] is %d, must be 1..1000000", p, o->speeds[p]);
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
        return tess__invalid(who, "%d ranks on %d nodes, but a node of %s has %d GPUs", o->ranks,
                             o->nodes, c->name, c->node_gpus);
    if (o->nodes > 1 && !c->nics)
        return tess__invalid(who, "nodes is %d, must be 1: cluster %s has no network", o->nodes,
                             c->name);
    if (task->work->info.unit_pairs == 0.0)
        return tess__invalid(who,
                             "the work is of weights or of blocks without tokens, whose time on "
                             "a cluster is not known");
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
