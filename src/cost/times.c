/* SPDX-License-Identifier: Apache-2.0 */
/* times.c - time of attention and of exchanges.
 *
 *   attention   (pairs + rows * row_keys) * 4 head_dim / (peak * share * sparse)   forward
 *               the same with 10 head_dim and the share of the backward pass       backward
 *   exchange    launch + max(latency + near / link, latency + far / adapters)
 *
 * The backward pass computes five products of the forward pass's two, so 2.5 times its FLOP. All
 * times are sums and quotients of doubles in a fixed order, rounded once to nanoseconds.
 */
#include "cost_internal.h"

int64_t tess__ns(double ns)
{
    const double most = 4611686018427387904.0; /* 2^62 */
    return ns >= most ? (int64_t)1 << 62 : (int64_t)(ns + 0.5);
}

/* ---- attention ------------------------------------------------------------------------------- */

tess_status tess__attn_rates(const tess_cluster *cluster, int head_dim, int backward, double flops,
                             tess_precision precision, tess__attn_rate *rate)
{
    const tess_cluster_info *info = &cluster->info;
    const double peak = precision == TESS_PRECISION_FP32 ? info->flops_fp32 : info->flops_bf16;
    double per_second = flops > 0.0 ? flops : info->attn_flops;
    if (per_second == 0.0) {
        if (peak == 0.0)
            return tess__fail(TESS_ENOTSUP, "cluster %s: the peak in %s is not known", info->name,
                              precision == TESS_PRECISION_FP32 ? "fp32" : "bf16");
        per_second =
            peak * (backward ? info->attn_backward : info->attn_forward) * info->attn_sparse;
    }
    const double flop = backward ? TESS_FLOP_BACKWARD : TESS_FLOP_FORWARD;
    rate->pair = flop * head_dim * 1e9 / per_second;
    rate->row = rate->pair * info->attn_row_keys;
    rate->part = rate->pair * info->attn_part_keys;
    return TESS_OK;
}

int64_t tess__attn_ns(const tess__attn_rate *rate, double pairs, int64_t rows, int64_t further)
{
    return tess__ns(pairs * rate->pair + (double)rows * rate->row +
                    (double)further * (rate->part - rate->row));
}

tess_status tess_cost_attention(const tess_cluster *cluster, const tess_attn_work *work,
                                int64_t *ns)
{
    TESS_REQUIRE(cluster, work, ns);
    if (!(work->pairs >= 0.0 && work->pairs <= 1e30))
        return tess__invalid(__func__, "pairs is %g, must be 0..1e30", work->pairs);
    TESS_TRY(tess__check_least(__func__, "rows", work->rows, 0));
    TESS_TRY(tess__check_range(__func__, "head_dim", work->head_dim, 1, 4096));
    if (!(work->flops == 0.0 || (work->flops >= 1e3 && work->flops <= 1e21)))
        return tess__invalid(__func__, "flops is %g, must be 0 or 1e3..1e21", work->flops);
    TESS_TRY(tess__check_enum(__func__, "precision", (int)work->precision, 2, "tess_precision"));
    tess__attn_rate rate = {0};
    TESS_TRY(tess__attn_rates(cluster, work->head_dim, work->backward, work->flops, work->precision,
                              &rate));
    *ns = tess__attn_ns(&rate, work->pairs, work->rows, 0);
    return TESS_OK;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* Seconds per byte times 1e9: what bytes are multiplied with. */
typedef struct {
    double link, rank, node; /* inside; between, of one rank; between, of a whole node */
} wires;

static wires wires_of(const tess_cluster_info *info)
{
    wires w = {.link = 1e9 / (info->link_bandwidth * info->link_efficiency)};
    if (info->nics > 0) {
        const double adapters =
            info->nics > info->node_gpus ? (double)info->nics / info->node_gpus : 1.0;
        const double nic = info->nic_bandwidth * info->network_efficiency / info->oversubscription;
        w.rank = 1e9 / (nic * adapters);
        w.node = 1e9 / (nic * info->nics);
    }
    return w;
}

void tess__exchange_ns(const tess_cluster_info *info, const tess_traffic *traffic, int n,
                       int per_node, int64_t *ns)
{
    const wires w = wires_of(info);
    for (int begin = 0; begin < n; begin += per_node) {
        const int end = n - begin < per_node ? n : begin + per_node;
        int64_t out = 0, in = 0;
        for (int p = begin; p < end; p++) {
            out += traffic[p].far_out;
            in += traffic[p].far_in;
        }
        const double node = (double)TESS_MAX(out, in) * w.node;
        for (int p = begin; p < end; p++) {
            const int64_t near = TESS_MAX(traffic[p].near_out, traffic[p].near_in);
            const int64_t far = TESS_MAX(traffic[p].far_out, traffic[p].far_in);
            const double inside = near ? (double)info->link_latency + (double)near * w.link : 0.0;
            double between = (double)far * w.rank;
            if (between < node)
                between = node;
            between = far ? (double)info->network_latency + between : 0.0;
            ns[p] = near || far ? info->launch + tess__ns(TESS_MAX(inside, between)) : 0;
        }
    }
}

tess_status tess_cost_exchange(const tess_cluster *cluster, const tess_traffic *traffic, int n,
                               int per_node, int64_t *ns)
{
    TESS_REQUIRE(cluster, traffic, ns);
    TESS_TRY(tess__check_least(__func__, "n", n, 1));
    TESS_TRY(tess__check_least(__func__, "per_node", per_node, 1));
    const int64_t limit = INT64_MAX / 4 / n;
    for (int p = 0; p < n; p++) {
        const tess_traffic *t = &traffic[p];
        const int64_t bytes[] = {t->near_out, t->near_in, t->far_out, t->far_in};
        for (int i = 0; i < 4; i++)
            if (bytes[i] < 0 || bytes[i] > limit)
                return tess__invalid(__func__, "rank %d moves %lld bytes, must be 0..%lld", p,
                                     (long long)bytes[i], (long long)limit);
        if ((t->far_out || t->far_in) && !cluster->info.nics)
            return tess__fail(TESS_ENOTSUP, "cluster %s: traffic between nodes needs a network",
                              cluster->info.name);
    }
    tess__exchange_ns(&cluster->info, traffic, n, per_node, ns);
    return TESS_OK;
}
