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
 * Cost: 2 D additions for each listed row of a group, forward and backward, and 16 D flop for each
 * query. Loops over rows are one thread's for each group, or for each range of keys, in the order
 * of groups: the same bits for any number of threads.
 */
#include "virtual_part.h"

#include "attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

void tess__attn_compensate(tess_attn *attn, int on)
{
    attn->shape.compensate = on;
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

void tess__row_sums(tess_attn *attn, int64_t rows, const tess_view *k, const tess_view *v,
                    float *sums)
{
    double total[2 * TESS_DIM_MAX];
    total_of(attn, rows, k, v, &attn->scratch[0], total);
    for (int d = 0; d < 2 * attn->shape.head_dim; d++)
        sums[d] = (float)total[d];
}

void tess__left_all(const tess_attn *attn, int64_t rows, const float *sums, const tess__left *left)
{
    const int dim = 2 * attn->shape.head_dim;
    for (int32_t g = 0; g < left->n_q; g++) {
        left->rows[g] += rows;
        for (int d = 0; d < dim; d++)
            left->sums[(int64_t)g * dim + d] += sums[d];
    }
}

void tess__left_out(tess_attn *attn, const tess_selection *sel, const tess_view *k,
                    const tess_view *v, const tess__left *left)
{
    const int dim = attn->shape.head_dim;
    double total[2 * TESS_DIM_MAX];
    total_of(attn, sel->tokens_k, k, v, &attn->scratch[0], total);
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++) {
        const tess__attn_tile t = tile_of(attn, sel, g, k, v);
        if (t.dropped == 0)
            continue;
        tess__attn_scratch *w = &attn->scratch[omp_get_thread_num()];
        double sums[2 * TESS_DIM_MAX] = {0};
        tess__key_cursor at = {0, 0};
        attn->ctx->kernels->attn_sums(&t, t.tokens, &at, sums, w);
        const int by_dropped = t.dropped < t.tokens - t.dropped; /* as attn_sums decides */
        float *to = left->sums + (int64_t)g * 2 * dim;
        for (int d = 0; d < 2 * dim; d++)
            to[d] += (float)(by_dropped ? sums[d] : total[d] - sums[d]);
        left->rows[g] += t.dropped;
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

/* The virtual key and value (2, dim) of a group; returns the log of how many keys it stands for. */
static float mean_of(const tess__left *left, int32_t g, int dim, float *mean)
{
    const float *sums = left->sums + (int64_t)g * 2 * dim;
    const double inverse = 1.0 / (double)left->rows[g];
    for (int d = 0; d < 2 * dim; d++)
        mean[d] = (float)((double)sums[d] * inverse);
    return logf((float)left->rows[g]);
}

static float join_row(float *o, float lse, const float *v, float s, int dim)
{
    const float m = TESS_MAX(lse, s), a = expf(lse - m), b = expf(s - m), sum = a + b;
    for (int d = 0; d < dim; d++)
        o[d] = (a * o[d] + b * v[d]) / sum;
    return m + logf(sum);
}

void tess__virtual_join(const tess_attn *attn, const tess__left *left, const tess_view *q,
                        const tess_view *o, float *lse)
{
    const int dim = attn->shape.head_dim;
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++) {
        float mean[2 * TESS_DIM_MAX];
        if (left->rows[g] == 0)
            continue;
        const float bias = mean_of(left, g, dim, mean);
        for (int64_t r = left->bounds_q[g]; r < left->bounds_q[g + 1]; r++) {
            const float s = attn->shape.scale * dot(tess__view_row(q, 0, 0, r), mean, dim) + bias;
            lse[r] = join_row(tess__view_row(o, 0, 0, r), lse[r], mean + dim, s, dim);
        }
    }
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

static void gradient_group(const tess_attn *attn, const tess__left *left, int32_t g,
                           const tess_attn_saved *saved, const tess_view *dout, const tess_view *dq,
                           float *each)
{
    const int dim = attn->shape.head_dim;
    const float scale = attn->shape.scale;
    float mean[2 * TESS_DIM_MAX];
    double e[2 * TESS_DIM_MAX] = {0};
    const float bias = mean_of(left, g, dim, mean);
    for (int64_t r = left->bounds_q[g]; r < left->bounds_q[g + 1]; r++) {
        const float *row = tess__view_row(saved->q, 0, 0, r), *g_o = tess__view_row(dout, 0, 0, r);
        const float p = expf(scale * dot(row, mean, dim) + bias - saved->lse[r]);
        const float ds =
            p * (dot(g_o, mean + dim, dim) - dot(g_o, tess__view_row(saved->o, 0, 0, r), dim));
        gradient_row(row, g_o, p, ds, mean, scale, dim, tess__view_row(dq, 0, 0, r), e);
    }
    const double inverse = 1.0 / (double)left->rows[g];
    for (int d = 0; d < dim; d++) {
        each[d] = (float)(e[d] * inverse * (double)scale);
        each[dim + d] = (float)(e[dim + d] * inverse);
    }
}

void tess__virtual_gradients(const tess_attn *attn, const tess__left *left,
                             const tess_attn_saved *saved, const tess_view *dout,
                             const tess_view *dq, float *each, float *all)
{
    const int dim = 2 * attn->shape.head_dim;
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < left->n_q; g++) {
        float *to = each + (int64_t)g * dim;
        if (left->rows[g] > 0)
            gradient_group(attn, left, g, saved, dout, dq, to);
        else
            memset(to, 0, (size_t)dim * sizeof *to);
    }
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

/* The rows of units [first, last) of the part. */
static void return_units(const tess_attn *attn, const tess_selection *sel, const float *each,
                         const float *all, const tess_view *dk, const tess_view *dv, int32_t first,
                         int32_t last)
{
    const int dim = attn->shape.head_dim;
    for (int64_t r = sel->bounds_k[first]; r < sel->bounds_k[last]; r++) {
        add_scaled(tess__view_row(dk, 0, 0, r), all, 1.0f, dim);
        add_scaled(tess__view_row(dv, 0, 0, r), all + dim, 1.0f, dim);
    }
    for (int32_t g = 0; g < sel->n_q; g++) {
        const float *e = each + (int64_t)g * 2 * dim;
        for (int64_t i = sel->offsets[g]; i < sel->offsets[g + 1]; i++) {
            const int32_t u = sel->indices[i];
            if (u < first || u >= last)
                continue;
            for (int64_t r = sel->bounds_k[u]; r < sel->bounds_k[u + 1]; r++) {
                add_scaled(tess__view_row(dk, 0, 0, r), e, -1.0f, dim);
                add_scaled(tess__view_row(dv, 0, 0, r), e + dim, -1.0f, dim);
            }
        }
    }
}

void tess__virtual_return(const tess_attn *attn, const tess_selection *sel, const float *each,
                          const float *all, const tess_view *dk, const tess_view *dv)
{
    const int64_t parts = attn->ctx->threads; /* rows' sums do not depend on it */
#pragma omp parallel for num_threads(attn->ctx->threads)
    for (int64_t part = 0; part < parts; part++)
        return_units(attn, sel, each, all, dk, dv, (int32_t)(sel->n_k * part / parts),
                     (int32_t)(sel->n_k * (part + 1) / parts));
}
