/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_key.h - the mean key and the mean value of the rows that a tile's list leaves out.
 *
 *   half or more dropped    mean = (sum of all rows - sum of the listed rows) / dropped
 *   less than half dropped  mean = sum of the dropped rows / dropped, without a difference
 *
 * So at most half of the head's rows are summed, and the difference loses at most a factor of 2:
 * the whole has at least as many rows outside the list as in it. A chunk's rows are summed in fp32,
 * chunks in double: the error is that of some 96 additions in fp32, however long the list is.
 *
 * Cost: 2 D additions for each row, on rows that are needed anyway.
 */
#ifndef TESS_VIRTUAL_KEY_H
#define TESS_VIRTUAL_KEY_H

#include "keys.h"

/* sum[0..VL) += part. */
VINLINE void flush_sum(double *sum, vf part)
{
    float whole[VL];
    vf_store(whole, part);
    VUNROLL
    for (int c = 0; c < VL; c += VD) {
        const vd total = vd_load(sum + c) + vd_load_f32(whole + c);
        memcpy(sum + c, &total, sizeof total);
    }
}

/* sum[0..nv VL) += the sum over n rows of their columns d.. on, in nr interleaved sums. */
VINLINE void sum_columns(const int nr, const int nv, double *sum, const float *const *rows, int n,
                         int d)
{
    vf part[4][8] = {0};
    int i = 0;
    for (; i + nr <= n; i += nr)
        VFOR (r, nr)
            VFOR (j, nv)
                part[r][j] += vf_load(rows[i + r] + d + j * VL);
    for (; i < n; i++)
        VFOR (j, nv)
            part[0][j] += vf_load(rows[i] + d + j * VL);
    VFOR (j, nv) {
        VUNROLL
        for (int r = 1; r < nr; r++)
            part[0][j] += part[r][j];
        flush_sum(sum + j * VL, part[0][j]);
    }
}

/* sum[d] += the sum over i of rows[i][d]. As many columns at a time as there are sums to hide the
 * latency of an addition: pointers are read the less often. */
VINLINE void sum_rows(double *sum, const float *const *rows, int n, int dim)
{
    int d = 0;
    for (; d + 8 * VL <= dim; d += 8 * VL)
        sum_columns(1, 8, sum + d, rows, n, d);
    for (; d + 4 * VL <= dim; d += 4 * VL)
        sum_columns(2, 4, sum + d, rows, n, d);
    for (; d + 2 * VL <= dim; d += 2 * VL)
        sum_columns(4, 2, sum + d, rows, n, d);
    for (; d + VL <= dim; d += VL)
        sum_columns(4, 1, sum + d, rows, n, d);
    for (; d < dim; d++) {
        float whole = 0.0f;
        for (int i = 0; i < n; i++)
            whole += rows[i][d];
        sum[d] += (double)whole;
    }
}

/* Takes n rows, to which w->kp and w->vp point, into the sums. */
VINLINE void virtual_add(const tess__attn_tile *t, tess__attn_scratch *w, int n)
{
    sum_rows(w->sum, w->kp, n, t->dim);
    sum_rows(w->sum + t->dim, w->vp, n, t->dim);
}

VINLINE int virtual_by_dropped(const tess__attn_tile *t)
{
    return t->dropped < t->tokens - t->dropped;
}

/* Clears the sums, and fills them where the dropped rows are the fewer. Returns 1 if the listed
 * rows must be added by the caller. Uses w->rows, w->kp and w->vp. */
VINLINE int virtual_start(const tess__attn_tile *t, tess__attn_scratch *w)
{
    if (t->dropped == 0)
        return 0;
    memset(w->sum, 0, 2 * (size_t)t->dim * sizeof *w->sum);
    if (!virtual_by_dropped(t))
        return 1;
    key_cursor at = {0, 0};
    int n;
    while ((n = keys_next_below(&t->keys, t->tokens, 1, &at, w->rows)) > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        virtual_add(t, w, n);
    }
    return 0;
}

/* w->mean from the sums (2, dim). */
VINLINE void virtual_finish(const tess__attn_tile *t, const double *sums, tess__attn_scratch *w)
{
    const double inverse = 1.0 / (double)t->dropped;
    const int by_dropped = virtual_by_dropped(t);
    for (int i = 0; i < 2; i++) {
        const double *sum = sums + i * t->dim, *total = t->total + i * t->dim;
        float *mean = w->mean + i * tess__wide(t->dim);
        for (int d = 0; d < t->dim; d++)
            mean[d] = (float)((by_dropped ? sum[d] : total[d] - sum[d]) * inverse);
    }
}

#endif
