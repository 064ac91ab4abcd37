/* SPDX-License-Identifier: Apache-2.0 */
/* clusters.c - clusters of a head's keys, each of which has a virtual key of its own.
 *
 * Clusters are those of k-means on the rows of k: TESS__KMEANS_ROUNDS rounds from rows that are
 * spread evenly, on every n-th row so that at most SAMPLE rows take part, and then each row goes to
 * the nearest centroid. Centroids may be given instead (centroids.c). Nothing is random, and an
 * empty cluster keeps its centroid. For the gradients the assignment is a constant.
 *
 *   forward    labels, and the sums of k and v of each cluster; attn_forward.c
 *   backward   labels again, from the same k; attn_backward.c: dq of the virtual keys, weights of
 *              every query, and what each cluster is given, by parts of the tiles; their sum, with
 *              which every row of dk and dv begins
 *
 * Sums over rows are cut into slices as in virtual.c: the same bits for any number of threads.
 *
 * Cost: 2 C D flop for each key and for each sampled key of each round; D additions for each
 * sampled key of each round, and 4 D in double for each key. Memory of a head: 1 byte for each key,
 * 16 C D bytes for each slice, 4 C D; backward 8 C bytes for each query and 8 C D for each part of
 * the tiles.
 */
#include "tessera/advanced/clusters.h"
#include "attention.h"

#include <string.h>

enum { SAMPLE = 4096 };

static int64_t heads_of(const tess_attn_shape *s)
{
    return (int64_t)s->batch * s->heads;
}

/* Arrays of the arena, in its order. */
typedef struct {
    size_t labels, members, centroids, half;
} sizes;

static sizes sizes_of(const tess_attn_shape *s)
{
    const size_t heads = (size_t)heads_of(s), clusters = (size_t)s->compensate;
    return (sizes){heads * (size_t)s->tokens_k,
                   heads * (size_t)tess__virtual_slices(s) * clusters * sizeof(int64_t),
                   heads * clusters * (size_t)s->head_dim * sizeof(float),
                   heads * clusters * sizeof(float)};
}

size_t tess__cluster_bytes(const tess_attn_shape *shape)
{
    const sizes z = sizes_of(shape);
    return shape->compensate > 1 ? tess__arena_round(z.labels) + tess__arena_round(z.members) +
                                       tess__arena_round(z.centroids) + tess__arena_round(z.half)
                                 : 0;
}

void tess__cluster_take(tess_attn *attn)
{
    if (attn->shape.compensate <= 1)
        return;
    const sizes z = sizes_of(&attn->shape);
    attn->clusters = attn->shape.compensate;
    attn->labels = attn->own = tess__arena_take(&attn->arena, z.labels);
    attn->members = tess__arena_take(&attn->arena, z.members);
    attn->centroids = tess__arena_take(&attn->arena, z.centroids);
    attn->half = tess__arena_take(&attn->arena, z.half);
}

tess_status tess_attn_labels(const tess_attn *attn, const uint8_t **labels)
{
    TESS_REQUIRE(attn, labels);
    if (attn->clusters == 0)
        return tess__invalid(__func__, "compensate is %d, must be 2 or more",
                             attn->shape.compensate);
    *labels = attn->labels;
    return TESS_OK;
}

tess_status tess_attn_centroids(tess_attn *attn, const float *centroids)
{
    TESS_REQUIRE(attn);
    if (attn->clusters == 0)
        return tess__invalid(__func__, "compensate is %d, must be 2 or more",
                             attn->shape.compensate);
    attn->given = centroids;
    return TESS_OK;
}

void tess__attn_use_labels(tess_attn *attn, uint8_t *labels, int known)
{
    attn->labels = labels ? labels : attn->own;
    attn->known = labels && known;
}

void tess__attn_use_centroids(tess_attn *attn, const float *centroids)
{
    attn->given = centroids;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static double *sums_of(const tess_attn *attn, int64_t head, int64_t slice)
{
    const int64_t each = (int64_t)attn->clusters * 2 * attn->shape.head_dim;
    return attn->totals + (head * attn->slices + slice) * each;
}

static int64_t *members_of(const tess_attn *attn, int64_t head, int64_t slice)
{
    return attn->members + (head * attn->slices + slice) * attn->clusters;
}

static float *centroids_of(const tess_attn *attn, int64_t head)
{
    return attn->centroids + head * attn->clusters * attn->shape.head_dim;
}

/* Every `step`-th row of a head. */
static tess__rows rows_of(const tess_attn *attn, const tess_view *x, int64_t head, int64_t step)
{
    const int heads = attn->shape.heads;
    return (tess__rows){tess__view_row(x, head / heads, head % heads, 0), x->stride_s * step};
}

/* Labels of one slice of n rows, and its sums: of k, and of v unless that is NULL. */
static void sum_slice(tess_attn *attn, const tess_view *k, const tess_view *v, int64_t step,
                      int64_t n, int64_t item, tess__attn_scratch *w)
{
    const int64_t head = item / attn->slices, slice = item % attn->slices;
    const int64_t begin = n * slice / attn->slices, end = n * (slice + 1) / attn->slices;
    const tess__nearest nearest = {.k = rows_of(attn, k, head, step),
                                   .bf16 = k->dtype == TESS_DTYPE_BF16,
                                   .dim = attn->shape.head_dim,
                                   .clusters = attn->clusters,
                                   .centroids = centroids_of(attn, head),
                                   .half = attn->half + head * attn->clusters};
    uint8_t *labels = attn->labels + head * attn->shape.tokens_k;
    if (!attn->known)
        attn->ctx->kernels->attn_nearest(&nearest, begin, end, labels, w);
    tess__attn_tile rows = {.dim = nearest.dim,
                            .bf16 = nearest.bf16,
                            .k = nearest.k,
                            .keys = {.begin = begin, .end = end},
                            .clusters = attn->clusters,
                            .labels = labels};
    if (v)
        rows.v = rows_of(attn, v, head, step);
    attn->ctx->kernels->attn_cluster_sums(&rows, sums_of(attn, head, slice),
                                          members_of(attn, head, slice), w);
}

/* Slice 0 of a head becomes the sum of all. */
static void join_slices(tess_attn *attn, int64_t head)
{
    const int64_t n = (int64_t)attn->clusters * 2 * attn->shape.head_dim;
    double *sum = sums_of(attn, head, 0);
    int64_t *members = members_of(attn, head, 0);
    for (int64_t slice = 1; slice < attn->slices; slice++) {
        for (int64_t i = 0; i < n; i++)
            sum[i] += sum[slice * n + i];
        for (int c = 0; c < attn->clusters; c++)
            members[c] += members[slice * attn->clusters + c];
    }
}

/* ---- centroids ------------------------------------------------------------------------------- */

static void measure(tess_attn *attn, int64_t head)
{
    tess__centroid_halves(centroids_of(attn, head), attn->clusters, attn->shape.head_dim,
                          attn->half + head * attn->clusters);
}

/* Those of the caller. */
static void take_head(tess_attn *attn, int64_t head)
{
    const int64_t n = (int64_t)attn->clusters * attn->shape.head_dim;
    memcpy(centroids_of(attn, head), attn->given + head * n, (size_t)n * sizeof *attn->given);
    measure(attn, head);
}

/* Rows 0 to n - 1, spread evenly. */
static void start_head(tess_attn *attn, const tess_view *k, int64_t step, int64_t n, int64_t head)
{
    const int dim = attn->shape.head_dim, last = attn->clusters - 1;
    const tess__rows rows = rows_of(attn, k, head, step);
    for (int c = 0; c <= last; c++) {
        const int64_t at = (n - 1) * c / last * rows.stride;
        float *to = centroids_of(attn, head) + (int64_t)c * dim;
        if (k->dtype == TESS_DTYPE_BF16)
            attn->ctx->kernels->f32_from_bf16(to, (const uint16_t *)rows.data + at, (size_t)dim);
        else
            memcpy(to, (const float *)rows.data + at, (size_t)dim * sizeof *to);
    }
    measure(attn, head);
}

/* Centroids become the means of their rows. */
static void move_head(tess_attn *attn, int64_t head)
{
    const int dim = attn->shape.head_dim;
    join_slices(attn, head);
    const double *sum = sums_of(attn, head, 0);
    float *to = centroids_of(attn, head);
    for (int c = 0; c < attn->clusters; c++, sum += (ptrdiff_t)2 * dim, to += dim) {
        const int64_t members = members_of(attn, head, 0)[c];
        for (int d = 0; members > 0 && d < dim; d++)
            to[d] = (float)(sum[d] / (double)members);
    }
    measure(attn, head);
}

static void find_centroids(tess_attn *attn, const tess_view *k, tess__attn_scratch *w)
{
    const int64_t tokens = attn->shape.tokens_k, heads = heads_of(&attn->shape);
    const int64_t step = (tokens + SAMPLE - 1) / SAMPLE, n = (tokens + step - 1) / step;
#pragma omp for
    for (int64_t head = 0; head < heads; head++) {
        if (attn->given)
            take_head(attn, head);
        else
            start_head(attn, k, step, n, head);
    }
    for (int round = 0; !attn->given && round < TESS__KMEANS_ROUNDS; round++) {
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < heads * attn->slices; item++)
            sum_slice(attn, k, NULL, step, n, item, w);
#pragma omp for
        for (int64_t head = 0; head < heads; head++)
            move_head(attn, head);
    }
}

void tess__clusters(tess_attn *attn, const tess_view *k, const tess_view *v, tess__attn_scratch *w)
{
    const int64_t tokens = attn->shape.tokens_k, heads = heads_of(&attn->shape);
    if (tokens == 0)
        return;
    if (!attn->known)
        find_centroids(attn, k, w);
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < heads * attn->slices; item++)
        sum_slice(attn, k, v, 1, tokens, item, w);
#pragma omp for
    for (int64_t head = 0; head < heads; head++)
        join_slices(attn, head);
}

void tess__cluster_tile(const tess_attn *attn, int64_t head, tess__attn_tile *tile)
{
    tile->clusters = attn->clusters;
    tile->labels = attn->labels + head * attn->shape.tokens_k;
    tile->members = members_of(attn, head, 0);
    tile->total = sums_of(attn, head, 0);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/*   slots   weights (batch * heads, tokens_q, 2, clusters), by tile (2, clusters, n)
 *         | given (batch * heads, parts, clusters, 2, head_dim) */
size_t tess__cluster_slots(const tess_attn_shape *s, int64_t parts)
{
    size_t weights, given;
    const size_t heads = (size_t)heads_of(s), each = 2 * (size_t)s->compensate * sizeof(float);
    if (tess__mul(heads * each, (size_t)s->tokens_q, &weights) ||
        tess__mul(heads * each * (size_t)s->head_dim, (size_t)parts, &given) ||
        weights > SIZE_MAX - given)
        return SIZE_MAX;
    return weights + given;
}

float *tess__cluster_weights(const tess_attn *attn, int64_t head, int64_t query)
{
    return (float *)attn->slots + (head * attn->shape.tokens_q + query) * 2 * attn->clusters;
}

float *tess__cluster_given(const tess_attn *attn, int64_t parts, int64_t head, int64_t part)
{
    return tess__cluster_weights(attn, heads_of(&attn->shape), 0) +
           (head * parts + part) * attn->clusters * 2 * attn->shape.head_dim;
}

void tess__cluster_spread(tess_attn *attn, int64_t parts)
{
    const int64_t n = (int64_t)attn->clusters * 2 * attn->shape.head_dim;
#pragma omp for
    for (int64_t head = 0; head < heads_of(&attn->shape); head++) {
        float *given = tess__cluster_given(attn, parts, head, 0);
        for (int64_t i = 0; i < n; i++) {
            double sum = 0.0;
            for (int64_t part = 0; part < parts; part++)
                sum += (double)given[part * n + i];
            given[i] = (float)sum;
        }
    }
}
