/* SPDX-License-Identifier: Apache-2.0 */
/* key_clusters.c - the clusters of keys that have virtual keys of their own, in a pass.
 *
 * A key belongs to the nearest of its head's centroids, which are
 *
 *   its own      (batch, heads, clusters, head_dim): k-means on the keys of each sample and head in
 *                every forward pass; nothing outlives the pass
 *   the caller's (heads, clusters, head_dim) of each layer, for all samples: k-means on the keys of
 *                all samples of the batch in passes that renew them, read by the passes between
 *
 * Centroids are found before attention, where each rank has its rows of all heads: sums over ranks
 * move them, 8 C (head_dim + 1) bytes of each head (and sample) for the start and each round. For
 * the gradients, and for a block that is recomputed, a rank with all tokens keeps the labels, one
 * byte for each key and head of every layer; ranks that share tokens find them again by the same
 * centroids from the keys that the executor keeps. Labels are constants for the gradient.
 */
#include "attn/attn_internal.h"
#include "model/ranks.h"

#include "tessera/advanced/collectives.h"

#include <float.h>
#include <math.h>

static int64_t set_floats(const tess_pass *p)
{
    return (int64_t)p->z.heads * p->room.compensate * p->z.head_dim;
}

const float *tess__clusters_of(const tess_pass *p, int layer, int64_t *between)
{
    const int64_t set = set_floats(p);
    *between = p->sparse.attend.centroids ? 0 : set;
    if (p->sparse.attend.centroids)
        return p->sparse.attend.centroids + layer * set;
    return p->sparse.centroids + (p->shape.train ? layer * p->z.batch * set : 0);
}

uint8_t *tess__labels_of(const tess_pass *p, int layer, int sample, int head)
{
    const int64_t place = (int64_t)sample * p->z.heads + head;
    const int64_t all = (int64_t)p->z.batch * p->z.heads;
    return p->sparse.labels + ((p->shape.train ? layer * all : 0) + place) * p->z.tokens;
}

static tess_status sum_ranks(const tess_pass *p, const tess__centroid_shape *shape)
{
    if (!p->ranks.comm)
        return TESS_OK;
    return tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_CONTROL, p->sparse.centroid_sums,
                               tess__centroid_sums(shape), TESS_DTYPE_F64, TESS_REDUCE_SUM);
}

static tess_status find(tess_pass *p, const tess_view *k, int sets, float *centroids)
{
    const tess__centroid_shape shape = {.batch = p->z.batch,
                                        .heads = p->z.heads,
                                        .head_dim = p->z.head_dim,
                                        .clusters = p->room.compensate,
                                        .sets = sets,
                                        .tokens = p->z.tokens,
                                        .first = p->z.first,
                                        .local = p->z.local};
    double *const sums = p->sparse.centroid_sums;
    tess__centroids_start(&shape, k, sums);
    TESS_TRY(sum_ranks(p, &shape));
    tess__centroids_move(&shape, sums, centroids);
    for (int round = 0; round < TESS__KMEANS_ROUNDS; round++) {
        tess__centroids_round(p->cross, &shape, k, centroids, sums);
        TESS_TRY(sum_ranks(p, &shape));
        tess__centroids_move(&shape, sums, centroids);
    }
    return TESS_OK;
}

tess_status tess__clusters_find(tess_pass *p, int layer, const tess_view *k)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const int shared = p->sparse.attend.centroids != NULL;
    int64_t between;
    if (!how->keys || p->room.compensate <= 1 || p->recomputing || (shared && !how->renew))
        return TESS_OK;
    const tess__lap lap = tess__lap_begin(p);
    const float *centroids = tess__clusters_of(p, layer, &between);
    const tess_status status = find(p, k, shared ? 1 : p->z.batch, (float *)(uintptr_t)centroids);
    p->times.select_ns += tess__lap_end(p, lap);
    return status;
}

void tess__clusters_weigh(tess_pass *p, int layer, int sample, int head, const tess_view *k)
{
    const int dim = p->z.head_dim, n = p->room.compensate;
    int64_t between;
    const float *centroids = tess__clusters_of(p, layer, &between);
    centroids += sample * between + (int64_t)head * n * dim;
    tess__centroid_distances(p->cross, k, p->z.tokens, n, dim, centroids, p->sparse.weights);
    for (int64_t j = 0; j < p->z.tokens; j++) /* a key on its centroid is selected last */
        p->sparse.weights[j] = fmaxf(p->sparse.weights[j], FLT_MIN);
}
