/* SPDX-License-Identifier: Apache-2.0 */
/* attn_virtual.c - the virtual key outside the products: sums of all rows, and its gradients.
 *
 * A tile drops the rows that its list leaves out, a number n of them; one key stands for all:
 *
 *   k' = mean of the dropped k     v' = mean of the dropped v     s' = scale q.k' + log n
 *
 * and its gradients, with p' = e^(s' - lse) and ds' = p' (do.v' - delta), are
 *
 *   dq += scale ds' k'      dk_j += e,  e = scale / n  sum_q ds' q      for each dropped j
 *                           dv_j += f,  f = 1 / n  sum_q p' do
 *
 * Almost all rows are dropped by almost all tiles, so nothing is added row by row. With T the sum
 * of e over all tiles of the head, row j gets T - (the sum of e over the tiles that list it): rows
 * of dk begin as T, and a tile begins the sums for its listed rows with -e, in registers. The
 * difference cancels where most tiles list j. What it leaves of T is rounding, at most (t + 1)
 * 2^-24 |T| for t tiles that list j, beside t additions of the same size of error that the row's
 * own sum has. And T is small: it is the gradient of a row that no list has.
 *
 * Work: 2 D additions for each listed row, 12 n D flop for n queries. The rows are not in the
 * cache, so the caller walks the head's keys in blocks that fit into it, with many tiles side by
 * side.
 */
#include "attn_tile.h"
#include "cluster_keys.h"
#include "entries.h"
#include "virtual_key.h"

#include <math.h>

/* total (dim) = the sum of rows begin..end - 1. */
void TESS_K(tess__attn_total)(double *total, const tess__rows *x, int bf16, int dim, int64_t begin,
                              int64_t end, tess__attn_scratch *w)
{
    const tess__key_list all = {.begin = begin, .end = end};
    key_cursor at = keys_start(&all);
    int n;
    memset(total, 0, (size_t)dim * sizeof *total);
    while ((n = keys_next(&all, &at, w->rows)) > 0) {
        key_pointers(w->kp, x, w->rows, n, dim, bf16, w->kf);
        sum_rows(total, w->kp, n, dim);
    }
}

VINLINE float dot(const float *a, const float *b, int dim)
{
    vf sum = {0};
    int d = 0;
    for (; d + VL <= dim; d += VL)
        sum += vf_load(a + d) * vf_load(b + d);
    float s = vf_sum(sum);
    for (; d < dim; d++)
        s += a[d] * b[d];
    return s;
}

/* Takes the rows below `end` that the tile's sums want into them, from the cursor on. */
void TESS_K(tess__attn_sums)(const tess__attn_tile *t, int64_t end, tess__key_cursor *at,
                             double *sums, tess__attn_scratch *w)
{
    const int dropped = virtual_by_dropped(t);
    int n;
    while ((n = keys_next_below(&t->keys, end, dropped, at, w->rows)) > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        sum_rows(sums, w->kp, n, t->dim);
        sum_rows(sums + t->dim, w->vp, n, t->dim);
    }
}

/* The virtual keys of a tile that drops rows: rows of w->mean, their values as many rows later as
 * there are clusters, or one. bias is the base-2 logarithm of the rows that each stands for.
 * Returns how many. */
int TESS_K(tess__attn_means)(const tess__attn_tile *t, float *bias, tess__attn_scratch *w)
{
    int n = 1, of[TESS_CLUSTERS_MAX];
    bias[0] = (float)t->dropped;
    if (t->clusters > 0) {
        TESS_K(tess__attn_cluster_sums)(t, w->sum, w->count, w);
        n = clusters_finish(t, w, of, bias);
    } else {
        key_cursor at = {0, 0};
        memset(w->sum, 0, 2 * (size_t)t->dim * sizeof *w->sum);
        TESS_K(tess__attn_sums)(t, t->tokens, &at, w->sum, w);
        virtual_finish(t, w->sum, w);
    }
    for (int i = 0; i < n; i++)
        bias[i] = log2f(bias[i]);
    return n;
}

/* p' goes to w->m, ds' to w->l. */
static void find_weights(const tess__attn_bwd *job, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const float *k = w->mean, *v = w->mean + tess__wide(t->dim);
    const float bias = log2f((float)t->dropped);
    for (int q = 0; q < t->n; q++) {
        const int64_t at = tess__query_row(t, q);
        const float *row = (const float *)t->q.data + at * t->q.stride;
        const float *g = job->dout + at * job->stride_dout;
        const float *o = job->o + at * job->stride_o;
        const float delta = dot(g, o, t->dim) - (job->dlse ? job->dlse[at] : 0.0f);
        w->m[q] =
            t->scale * (float)M_LOG2E * dot(row, k, t->dim) + bias - job->lse[at] * (float)M_LOG2E;
        w->l[q] = dot(g, v, t->dim) - delta;
    }
    for (int q = 0; q < t->n; q += VL) {
        const vf p = vf_exp2(vf_load(w->m + q));
        vf_store(w->m + q, p);
        vf_store(w->l + q, p * vf_load(w->l + q));
    }
}

/* Writes the tile's rows of dq, and -e and -f to start (2, dim). */
void TESS_K(tess__attn_virtual)(const tess__attn_bwd *job, const double *sums, float *dq,
                                int64_t stride_dq, float *start, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int dim = t->dim;
    virtual_finish(t, sums, w);
    find_weights(job, w);
    const float fraction = 1.0f / (float)t->dropped, fraction_k = t->scale * fraction;
    memset(start, 0, 2 * (size_t)dim * sizeof *start);
    for (int q = 0; q < t->n; q++) {
        const int64_t at = tess__query_row(t, q);
        const float *row = (const float *)t->q.data + at * t->q.stride;
        const float *g = job->dout + at * job->stride_dout;
        const float p = w->m[q], ds = w->l[q], ds_k = t->scale * ds;
        float *out = dq + at * stride_dq;
        for (int d = 0; d < dim; d++) {
            out[d] = ds_k * w->mean[d];
            start[d] -= ds * row[d];
            start[dim + d] -= p * g[d];
        }
    }
    for (int d = 0; d < dim; d++) {
        start[d] *= fraction_k;
        start[dim + d] *= fraction;
    }
}
