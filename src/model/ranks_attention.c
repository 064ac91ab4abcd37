/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_attention.c - self attention of a pass through its context's executor.
 *
 * The executor asks for the keys of each share on the rank that computes it, and keeps what the
 * gradients need in a set of its own: one for each layer, or one that a block fills which is run
 * again. Its lists lie there as bits, so the pass keeps none.
 */
#include "ranks.h"

#include <string.h>

/* Groups the queries of a share, and selects keys for them. */
static tess_status select_share(tess_pass *p, const tess_share_in *in, int by_low,
                                const tess_view *k, tess_selection *lists)
{
    tess_view q = by_low ? *in->q_low : *in->q;
    tess_selection_lists l;
    TESS_TRY(tess_selection_view(lists, &l));
    if (in->rows)
        TESS_TRY(tess__groups_share(p, in, by_low ? p->room.proj_dim : p->z.head_dim,
                                    l.shape.bounds_q, &q));
    return tess__lists_select(p, in->layer, in->sample, in->head, &q, k, in->k, in->groups, lists);
}

/* The keys of one share, for a layer with sparse heads. */
static tess_status choose(void *user, const tess_share_in *in, tess_selection *lists, int *dense)
{
    tess_pass *p = user;
    const tess_attend_layer *how = &p->sparse.layers[in->layer];
    const int by_low = how->kind == TESS_SELECT_PREDICTOR;
    if (how->keys[(int64_t)in->sample * p->z.heads + in->head] == 0) {
        *dense = 1;
        return TESS_OK;
    }
    const tess_view *k = by_low ? in->k_low : in->k;
    const int reads = how->kind != TESS_SELECT_WINDOW && how->kind != TESS_SELECT_RANDOM;
    if ((!k && reads) || (p->sparse.attend.by_error && !in->k))
        return tess__fail(TESS_ENOTSUP,
                          "tess_pass_forward: layer %d: the selector reads all keys of a head, "
                          "which no rank of this plan has",
                          in->layer);
    const tess__lap lap = tess__lap_begin(p);
    const tess_status status = select_share(p, in, by_low, k, lists);
    p->times.select_ns += tess__lap_end(p, lap);
    return status;
}

static tess_dist_call call_of(tess_pass *p, int layer)
{
    int64_t between = 0;
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const int clusters = how->keys && p->room.compensate > 1;
    const float *centroids = clusters ? tess__clusters_of(p, layer, &between) : NULL;
    const int all = p->shape.keep == TESS_KEEP_ALL;
    return (tess_dist_call){
        .layer = layer,
        .save = !p->shape.train  ? -1
                : all            ? layer
                : p->recomputing ? 0
                                 : -1,
        .choose = how->keys ? choose : NULL,
        .user = p,
        .unions = p->ranks.unions,
        .centroids = centroids,
        .centroids_between = between,
    };
}

static tess_status copy_densities(tess_pass *p, int layer)
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    tess_dist_stats stats;
    TESS_TRY(tess_dist_attn_stats(p->ranks.attn, layer, &stats));
    memcpy(p->sparse.density + layer * heads, stats.density,
           (size_t)heads * sizeof *p->sparse.density);
    return TESS_OK;
}

tess_status tess__ranks_forward(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                                const tess_view *v, const tess_view *o, float *lse)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const tess__lap lap = tess__lap_begin(p);
    const int64_t selected = p->times.select_ns;
    tess_dist_call call = call_of(p, layer);
    tess_view q_low, k_low;
    if (how->keys && how->kind == TESS_SELECT_PREDICTOR) {
        tess__proj_views(p, &q_low, &k_low);
        call.q_low = &q_low;
        call.k_low = &k_low;
    }
    tess__lists_begin(p, layer);
    TESS_TRY(tess_dist_attn_forward(p->ranks.attn, &call, q, k, v, o, lse));
    TESS_TRY(tess__lists_share(p, layer));
    p->times.attention_ns += tess__lap_end(p, lap) - (p->times.select_ns - selected);
    return how->keys && !p->recomputing ? copy_densities(p, layer) : TESS_OK;
}

tess_status tess__ranks_backward(tess_pass *p, int layer, const tess_view *dout,
                                 const tess_view *dq, const tess_view *dk, const tess_view *dv)
{
    const tess__lap lap = tess__lap_begin(p);
    tess_dist_call call = call_of(p, layer);
    call.save = p->shape.keep == TESS_KEEP_ALL ? layer : 0;
    TESS_TRY(tess_dist_attn_backward(p->ranks.attn, &call, dout, dq, dk, dv));
    p->times.attention_ns += tess__lap_end(p, lap);
    return TESS_OK;
}
