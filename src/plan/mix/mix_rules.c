/* SPDX-License-Identifier: Apache-2.0 */
/* mix_rules.c - the options of a mixture plan, checked, and the rates that follow from them.
 *
 *   linear layers   2 (4 width^2 + 2 width ffn) FLOP a token and layer forward, twice that backward
 *   attention       4 head_dim FLOP a pair of tokens and head forward, 10 backward
 *   held            (5 + ffn / width) width elements a token forward, in one layer; training saves
 *                   (9 + 2 ffn / width) width elements in each layer (Korthikanti et al. 2022)
 *
 * With a cluster attention runs at its rates for sparse attention, and linear layers at
 * linear_share of its peak; without one a FLOP is a unit of time. Times that were measured take the
 * place of both.
 */
#include "mix_plan.h"

#include <math.h>

static tess_status check_opts(const char *who, const tess_mix_opts *o)
{
    TESS_TRY(tess__check_range(who, "ranks", o->ranks, 1, 65536));
    TESS_TRY(tess__check_range(who, "nodes", o->nodes, 0, o->ranks));
    TESS_TRY(tess__check_range(who, "steps", o->steps, 1, 4096));
    TESS_TRY(tess__check_range(who, "width", o->width, 1, 1 << 20));
    TESS_TRY(tess__check_range(who, "heads", o->heads, 0, 65536));
    TESS_TRY(tess__check_range(who, "ffn", o->ffn, 0, 1 << 22));
    TESS_TRY(tess__check_range(who, "layers", o->layers, 1, 65536));
    TESS_TRY(tess__check_range(who, "group", o->group, 1, 1 << 20));
    TESS_TRY(tess__check_enum(who, "pass", (int)o->pass, TESS_PLAN_PASS_COUNT, "tess_plan_pass"));
    if (o->element_bytes != 2 && o->element_bytes != 4)
        return tess__invalid(who, "element_bytes is %d, must be 2 or 4", o->element_bytes);
    if (!(o->linear_share > 0.0 && o->linear_share <= 1.0))
        return tess__invalid(who, "linear_share is %g, must be above 0 up to 1", o->linear_share);
    TESS_TRY(tess__check_least(who, "memory", o->memory, 0));
    TESS_TRY(tess__check_range(who, "token_bytes", o->token_bytes, 0, (int64_t)1 << 40));
    TESS_TRY(tess__check_flag(who, "whole_clips", o->whole_clips));
    TESS_TRY(tess__check_range(who, "together", o->together, 0, o->ranks));
    if (o->together && o->memory)
        return tess__invalid(who, "memory is %lld, must be 0 with together", (long long)o->memory);
    if (!(o->pair_ns >= 0.0 && o->token_ns >= 0.0) || !isfinite(o->pair_ns + o->token_ns) ||
        (o->pair_ns > 0.0) != (o->token_ns > 0.0))
        return tess__invalid(who,
                             "pair_ns is %g and token_ns %g, both must be 0, or finite and above 0",
                             o->pair_ns, o->token_ns);
    for (int p = 0; o->speeds && p < o->ranks; p++)
        if (o->speeds[p] < 1 || o->speeds[p] > 1000000)
            return tess__invalid(who, "speeds[%d] is %d, must be 1..1000000", p, o->speeds[p]);
    return TESS_OK;
}

static tess_status use_cluster(const char *who, const tess_cluster *cluster, const tess_mix_opts *o,
                               tess__mix_rules *r)
{
    const tess_cluster_info *c = &cluster->info;
    const tess_precision precision =
        o->element_bytes == 4 ? TESS_PRECISION_FP32 : TESS_PRECISION_BF16;
    const double peak = o->element_bytes == 4 ? c->flops_fp32 : c->flops_bf16;
    tess__attn_rate rate = {0}, back = {0};
    if (r->per_node > c->node_gpus)
        return tess__invalid(who, "%d ranks on %d nodes, but a node of %s has %d GPUs", r->ranks,
                             r->nodes, c->name, c->node_gpus);
    if (r->nodes > 1 && !c->nics)
        return tess__invalid(who, "nodes is %d, must be 1: cluster %s has no network", r->nodes,
                             c->name);
    if (peak == 0.0)
        return tess__fail(TESS_ENOTSUP, "cluster %s: the peak in %s is not known", c->name,
                          o->element_bytes == 4 ? "fp32" : "bf16");
    TESS_TRY(tess__attn_rates(cluster, r->head_dim, 0, 0.0, precision, &rate));
    if (r->train)
        TESS_TRY(tess__attn_rates(cluster, r->head_dim, 1, 0.0, precision, &back));
    r->cluster = c;
    r->pair = rate.pair + back.pair;
    r->row = rate.row + back.row;
    r->token = r->token * 1e9 / (peak * o->linear_share);
    return TESS_OK;
}

/* Elements of a token that a rank holds, over all layers. */
static double held_elements(const tess_mix_opts *o, double ffn)
{
    const double width = o->width;
    return o->pass == TESS_PLAN_TRAIN ? (9.0 * width + 2.0 * ffn) * o->layers : 5.0 * width + ffn;
}

static void set_speeds(const tess_mix_opts *o, tess__mix_rules *r)
{
    int32_t fastest = 1;
    for (int p = 0; o->speeds && p < o->ranks; p++)
        fastest = TESS_MAX(fastest, o->speeds[p]);
    r->total_speed = 0.0;
    for (int p = 0; p < o->ranks; p++) {
        r->speed[p] = o->speeds ? (double)o->speeds[p] / fastest : 1.0;
        r->total_speed += r->speed[p];
    }
}

tess_status tess__mix_rules_make(const char *who, tess__arena *arena, const tess_cluster *cluster,
                                 const tess_mix_opts *o, tess__mix_rules *r)
{
    TESS_TRY(check_opts(who, o));
    const int heads = o->heads ? o->heads : TESS_MAX(o->width / 128, 1);
    const double ffn = o->ffn ? o->ffn : 4.0 * o->width, width = o->width;
    if (o->width % heads)
        return tess__invalid(who, "width is %d, must be a multiple of the %d heads", o->width,
                             heads);
    const int node_gpus = cluster ? cluster->info.node_gpus : o->ranks;
    *r = (tess__mix_rules){.ranks = o->ranks,
                           .nodes = o->nodes ? o->nodes : (o->ranks + node_gpus - 1) / node_gpus,
                           .heads = heads,
                           .head_dim = o->width / heads,
                           .layers = o->layers,
                           .train = o->pass == TESS_PLAN_TRAIN,
                           .group = o->group,
                           .memory = o->memory,
                           .whole_clips = o->whole_clips,
                           .together = o->whole_clips ? 0 : o->together};
    TESS_TRY(tess__check_range(who, "width / heads", r->head_dim, 1, 4096));
    r->per_node = (r->ranks + r->nodes - 1) / r->nodes;
    r->nodes = (r->ranks + r->per_node - 1) / r->per_node;
    r->row_bytes = (int64_t)r->head_dim * o->element_bytes;
    r->token_bytes =
        o->token_bytes ? o->token_bytes : (int64_t)(held_elements(o, ffn) * o->element_bytes + 0.5);
    r->pair = (r->train ? TESS_FLOP_FORWARD + TESS_FLOP_BACKWARD : TESS_FLOP_FORWARD) *
              (double)r->head_dim;
    r->token = (r->train ? 3.0 : 1.0) * 2.0 * (4.0 * width * width + 2.0 * width * ffn);
    if (cluster)
        TESS_TRY(use_cluster(who, cluster, o, r));
    if (o->token_ns > 0.0) {
        r->pair = o->pair_ns;
        r->row = 0.0;
        r->token = o->token_ns;
    }
    r->pair *= r->layers;
    r->row *= r->layers;
    r->token *= r->layers;
    r->speed = TESS_TAKE(arena, (size_t)r->ranks * sizeof *r->speed);
    set_speeds(o, r);
    return TESS_OK;
}
