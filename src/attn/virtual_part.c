/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_part.c - virtual keys of one head whose keys are never all in one place.
 *
 * A group's virtual key is the mean of the n rows that its list leaves out (attn_virtual.c has the
 * formulas). Their sum is that of what is left out of each part: of the part's rows that the list
 * names, or of those that it does not, whichever are fewer, so that a difference loses a factor of
 * 2 at most. Attention over the listed keys and the virtual key are then merged by lse:
 *
 *   k' = sum k / n   s' = scale q.k' + log n   o, lse = merge((o, lse), (v', s'))
 *
 * Backward, with the merged o and lse, the listed keys need nothing new, and a row that a group g
 * leaves out gets e_g: all rows of a part get the sum of e over groups, less e of those that list
 * them.
 *
 * With several clusters of keys all of this is done for each: a row belongs to the nearest of the
 * centroids in use, and gets e of its own cluster.
 *
 * Cost of C virtual keys: 2 D additions for each listed row of a group, forward and backward,
 * 16 C D flop for each query, 8 C D bytes for each group, twice in the backward pass; with clusters
 * 2 C D flop for each row of a part, forward and backward. Loops over rows are one thread's for
 * each group, or for each range of keys, in the order of groups: the same bits for any number of
 * threads.
 */
#include "virtual_part.h"

#include "attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

void tess__attn_compensate(tess_attn *attn, int virtual_keys)
{
    attn->shape.compensate = virtual_keys;
}

static tess__rows rows_of(const tess_view *view)
{
    return (tess__rows){view->data, view->stride_s};
}

/* The tile of a group's list, as the kernels' sums want it. */
static tess__attn_tile tile_of(const tess_attn *attn, const tess_selection *sel, int32_t g,
                               const tess_view *k, const tess_view *v)
{
    tess__attn_tile t = {.dim = attn->shape.head_dim,
                         .k = rows_of(k),
                         .v = rows_of(v),
                         .tokens = sel->tokens_k,
                         .dropped = sel->tokens_k};
    t.keys.units = sel->indices + sel->offsets[g];
    t.keys.n = sel->offsets[g + 1] - sel->offsets[g];
    t.keys.bounds = sel->unit == 1 ? NULL : sel->bounds_k;
    for (int64_t i = 0; i < t.keys.n; i++)
        t.dropped -= sel->bounds_k[t.keys.units[i] + 1] - sel->bounds_k[t.keys.units[i]];
    return t;
}

static void total_of(const tess_attn *attn, int64_t rows, const tess_view *k, const tess_view *v,
                     tess__attn_scratch *w, double *total)
{
    const int dim = attn->shape.head_dim;
    const tess__rows kr = rows_of(k), vr = rows_of(v);
    attn->ctx->kernels->attn_total(total, &kr, 0, dim, 0, rows, w);
    attn->ctx->kernels->attn_total(total + dim, &vr, 0, dim, 0, rows, w);
}

/* ---- clusters of a part's rows --------------------------------------------------------------- */

/* Labels of all rows in attn->own, and their sums by cluster. */
static void sum_clusters(tess_attn *attn, int64_t rows, const tess_view *k, const tess_view *v)
{
    tess__attn_use_labels(attn, NULL, 0);
    tess__attn_resize(attn, attn->shape.tokens_q, rows);
#pragma omp parallel num_threads(attn->ctx->threads)
    tess__clusters(attn, k, v, &attn->scratch[omp_get_thread_num()]);
}

void tess__row_labels(tess_attn *attn, int64_t rows, const tess_view *k, uint8_t *labels)
{
    enum { PIECE = 1024 };
    float half[TESS_CLUSTERS_MAX];
    tess__centroid_halves(attn->given, attn->clusters, attn->shape.head_dim, half);
    const tess__nearest nearest = {.k = rows_of(k),
                                   .dim = attn->shape.head_dim,
                                   .clusters = attn->clusters,
                                   .centroids = attn->given,
                                   .half = half};
#pragma omp parallel for num_threads(attn->ctx->threads)
    for (int64_t begin = 0; begin < rows; begin += PIECE)
        attn->ctx->kernels->attn_nearest(&nearest, begin, TESS_MIN(begin + PIECE, rows), labels,
                                         &attn->scratch[omp_get_thread_num()]);
}

/* What a group's list leaves out, by cluster; all rows are summed and labelled. */
static void leave_clusters(const tess_attn *attn, tess__attn_tile *t, int64_t *rows, float *sums,
                           tess__attn_scratch *w)
{
    const int n = 2 * attn->shape.head_dim;
    tess__cluster_tile(attn, 0, t);
    attn->ctx->kernels->attn_cluster_sums(t, w->sum, w->count, w);
    for (int c = 0; c < attn->clusters; c++) {
        const int64_t dropped = t->members[c] - w->count[c];
        rows[c] += dropped;
        for (int d = c * n; dropped > 0 && d < (c + 1) * n; d++)
            sums[d] += (float)(t->total[d] - w->sum[d]);
    }
}

/* ---- what lists leave out -------------------------------------------------------------------- */

void tess__row_sums(tess_attn *attn, int64_t rows, const tess_view *k, const tess_view *v,
                    int clusters, float *sums)
{
    const int dim = 2 * attn->shape.head_dim;
    double total[2 * TESS_DIM_MAX];
    const double *from = total;
    if (clusters > 1) {
        tess__attn_tile t = {0};
        sum_clusters(attn, rows, k, v);
        tess__cluster_tile(attn, 0, &t);
        from = t.total;
        for (int c = 0; c < clusters; c++)
            sums[clusters * dim + c] = rows > 0 ? (float)t.members[c] : 0.0f;
    } else {
        total_of(attn, rows, k, v, &attn->scratch[0], total);
    }
    for (int d = 0; d < clusters * dim; d++)
        sums[d] = rows > 0 ? (float)from[d] : 0.0f;
}

void tess__left_all(const tess_attn *attn, int64_t rows, const float *sums, const tess__left *left)
{
    const int n = left->clusters, dim = n * 2 * attn->shape.head_dim;
    for (int32_t g = 0; g < left->n_q; g++) {
        for (int c = 0; c < n; c++)
            left->rows[(int64_t)g * n + c] += n > 1 ? (int64_t)sums[dim + c] : rows;
        for (int d = 0; d < dim; d++)
            left->sums[(int64_t)g * dim + d] += sums[d];
    }
}

/* One group that has one virtual key. */
static void leave_one(const tess_attn *attn, const tess__attn_tile *t, const double *total,
                      int64_t *rows, float *sums, tess__attn_scratch *w)
{
    const int dim = 2 * attn->shape.head_dim;
    double listed[2 * TESS_DIM_MAX] = {0};
    tess__key_cursor at = {0, 0};
    attn->ctx->kernels->attn_sums(t, t->tokens, &at, listed, w);
    const int by_dropped = t->dropped < t->tokens - t->dropped; /* as attn_sums decides */
    for (int d = 0; d < dim; d++)
        sums[d] += (float)(by_dropped ? listed[d] : total[d] - listed[d]);
    *rows += t->dropped;
}

void tess__left_out(tess_attn *attn, const tess_selection *sel, const tess_view *k,
                    const tess_view *v, const tess__left *left)
{
    const int n = left->clusters, dim = n * 2 * attn->shape.head_dim;
    double total[2 * TESS_DIM_MAX];
    if (n > 1)
        sum_clusters(attn, sel->tokens_k, k, v);
    else
        total_of(attn, sel->tokens_k, k, v, &attn->scratch[0], total);
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++) {
        tess__attn_tile t = tile_of(attn, sel, g, k, v);
        tess__attn_scratch *w = &attn->scratch[omp_get_thread_num()];
        int64_t *rows = left->rows + (int64_t)g * n;
        float *sums = left->sums + (int64_t)g * dim;
        if (t.dropped > 0 && n > 1)
            leave_clusters(attn, &t, rows, sums, w);
        else if (t.dropped > 0)
            leave_one(attn, &t, total, rows, sums, w);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static float dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* A virtual key and its value (2, dim), from the sums of n rows; returns its log n. */
static float mean_of(const float *sums, int64_t n, int dim, float *mean)
{
    const double inverse = 1.0 / (double)n;
    for (int d = 0; d < 2 * dim; d++)
        mean[d] = (float)((double)sums[d] * inverse);
    return logf((float)n);
}

/* The virtual keys of one group, of clusters of which it leaves rows out. */
typedef struct {
    int n;
    int of[TESS_CLUSTERS_MAX];                        /* their clusters */
    float bias[TESS_CLUSTERS_MAX];                    /* log of the rows that each stands for */
    float mean[TESS_CLUSTERS_MAX * 2 * TESS_DIM_MAX]; /* (n, 2, dim) */
} group_keys;

static void make_keys(const tess__left *left, int32_t g, int dim, group_keys *x)
{
    x->n = 0;
    for (int c = 0; c < left->clusters; c++) {
        const int64_t at = (int64_t)g * left->clusters + c;
        if (left->rows[at] == 0)
            continue;
        x->bias[x->n] = mean_of(left->sums + at * 2 * dim, left->rows[at], dim,
                                x->mean + (ptrdiff_t)x->n * 2 * dim);
        x->of[x->n++] = c;
    }
}

/* Takes the virtual keys with scores s into o and lse of a row. */
static float join_row(float *o, float lse, const group_keys *x, float *s, int dim)
{
    float m = lse, sum;
    for (int i = 0; i < x->n; i++)
        m = TESS_MAX(m, s[i]);
    const float a = expf(lse - m);
    sum = a;
    for (int d = 0; d < dim; d++)
        o[d] *= a;
    for (int i = 0; i < x->n; i++) {
        const float b = expf(s[i] - m), *v = x->mean + (ptrdiff_t)(2 * i + 1) * dim;
        for (int d = 0; d < dim; d++)
            o[d] += b * v[d];
        sum += b;
    }
    for (int d = 0; d < dim; d++)
        o[d] /= sum;
    return m + logf(sum);
}

static void join_group(const tess_attn *attn, const tess__left *left, int32_t g, const tess_view *q,
                       const tess_view *o, float *lse)
{
    const int dim = attn->shape.head_dim;
    group_keys x;
    float s[TESS_CLUSTERS_MAX];
    make_keys(left, g, dim, &x);
    for (int64_t r = left->bounds_q[g]; x.n > 0 && r < left->bounds_q[g + 1]; r++) {
        const float *row = tess__view_row(q, 0, 0, r);
        for (int i = 0; i < x.n; i++)
            s[i] = attn->shape.scale * dot(row, x.mean + (ptrdiff_t)2 * i * dim, dim) + x.bias[i];
        lse[r] = join_row(tess__view_row(o, 0, 0, r), lse[r], &x, s, dim);
    }
}

void tess__virtual_join(const tess_attn *attn, const tess__left *left, const tess_view *q,
                        const tess_view *o, float *lse)
{
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++)
        join_group(attn, left, g, q, o, lse);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* One row: its dq grows, and what it gives to e (2, dim), before 1 / n and scale. */
static void gradient_row(const float *q, const float *dout, float p, float ds, const float *mean,
                         float scale, int dim, float *dq, double *e)
{
    for (int d = 0; d < dim; d++) {
        dq[d] += scale * ds * mean[d];
        e[d] += (double)(ds * q[d]);
        e[dim + d] += (double)(p * dout[d]);
    }
}

/* Virtual key i of a group: to dq of its rows, and each (2, dim) of its cluster. */
static void gradient_key(const tess_attn *attn, const tess__left *left, int32_t g,
                         const group_keys *x, int i, const tess_attn_saved *saved,
                         const tess_view *dout, const tess_view *dq, float *each)
{
    const int dim = attn->shape.head_dim;
    const float scale = attn->shape.scale, *mean = x->mean + (ptrdiff_t)2 * i * dim;
    double e[2 * TESS_DIM_MAX] = {0};
    for (int64_t r = left->bounds_q[g]; r < left->bounds_q[g + 1]; r++) {
        const float *row = tess__view_row(saved->q, 0, 0, r), *g_o = tess__view_row(dout, 0, 0, r);
        const float p = expf(scale * dot(row, mean, dim) + x->bias[i] - saved->lse[r]);
        const float ds =
            p * (dot(g_o, mean + dim, dim) - dot(g_o, tess__view_row(saved->o, 0, 0, r), dim));
        gradient_row(row, g_o, p, ds, mean, scale, dim, tess__view_row(dq, 0, 0, r), e);
    }
    const double inverse = 1.0 / (double)left->rows[(int64_t)g * left->clusters + x->of[i]];
    for (int d = 0; d < dim; d++) {
        each[d] = (float)(e[d] * inverse * (double)scale);
        each[dim + d] = (float)(e[dim + d] * inverse);
    }
}

static void gradient_group(const tess_attn *attn, const tess__left *left, int32_t g,
                           const tess_attn_saved *saved, const tess_view *dout, const tess_view *dq,
                           float *each)
{
    const int dim = attn->shape.head_dim;
    group_keys x;
    make_keys(left, g, dim, &x);
    memset(each, 0, (size_t)left->clusters * 2 * (size_t)dim * sizeof *each);
    for (int i = 0; i < x.n; i++)
        gradient_key(attn, left, g, &x, i, saved, dout, dq, each + (ptrdiff_t)x.of[i] * 2 * dim);
}

void tess__virtual_gradients(const tess_attn *attn, const tess__left *left,
                             const tess_attn_saved *saved, const tess_view *dout,
                             const tess_view *dq, float *each, float *all)
{
    const int dim = left->clusters * 2 * attn->shape.head_dim;
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++)
        gradient_group(attn, left, g, saved, dout, dq, each + (int64_t)g * dim);
    for (int d = 0; d < dim; d++) {
        double sum = (double)all[d];
        for (int32_t g = 0; g < left->n_q; g++)
            sum += (double)each[(int64_t)g * dim + d];
        all[d] = (float)sum;
    }
}

static void add_scaled(float *restrict to, const float *restrict from, float factor, int dim)
{
    for (int d = 0; d < dim; d++)
        to[d] += factor * from[d];
}

/* What the rows of a part get: labels NULL: all rows have one cluster. */
typedef struct {
    const tess_selection *sel;
    const uint8_t *labels;
    int clusters, dim;
    const float *each, *all;
    const tess_view *dk, *dv;
} returned;

/* To one row, the part of its cluster in vectors (clusters, 2, dim). */
static void return_row(const returned *x, int64_t r, const float *from, float factor)
{
    from += (ptrdiff_t)(x->labels ? x->labels[r] : 0) * 2 * x->dim;
    add_scaled(tess__view_row(x->dk, 0, 0, r), from, factor, x->dim);
    add_scaled(tess__view_row(x->dv, 0, 0, r), from + x->dim, factor, x->dim);
}

/* The rows of units [first, last) of the part. */
static void return_units(const returned *x, int32_t first, int32_t last)
{
    const tess_selection *sel = x->sel;
    for (int64_t r = sel->bounds_k[first]; r < sel->bounds_k[last]; r++)
        return_row(x, r, x->all, 1.0f);
    for (int32_t g = 0; g < sel->n_q; g++) {
        const float *e = x->each + (int64_t)g * x->clusters * 2 * x->dim;
        for (int64_t i = sel->offsets[g]; i < sel->offsets[g + 1]; i++) {
            const int32_t u = sel->indices[i];
            if (u < first || u >= last)
                continue;
            for (int64_t r = sel->bounds_k[u]; r < sel->bounds_k[u + 1]; r++)
                return_row(x, r, e, -1.0f);
        }
    }
}

void tess__virtual_return(tess_attn *attn, const tess_selection *sel, const tess_view *k,
                          int clusters, const float *each, const float *all, const tess_view *dk,
                          const tess_view *dv)
{
    const int64_t parts = attn->ctx->threads; /* rows' sums do not depend on it */
    const returned x = {
        sel, clusters > 1 ? attn->own : NULL, clusters, attn->shape.head_dim, each, all, dk, dv};
    if (clusters > 1)
        tess__row_labels(attn, sel->tokens_k, k, attn->own);
#pragma omp parallel for num_threads(attn->ctx->threads)
    for (int64_t part = 0; part < parts; part++)
        return_units(&x, (int32_t)(sel->n_k * part / parts),
                     (int32_t)(sel->n_k * (part + 1) / parts));
}
