/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_key.h - the mean key and the mean value of the rows that a tile's list leaves out.
 *
 *   mean = (sum of all rows - sum of the listed rows) / dropped     or, where fewer are dropped
 * than mean = sum of the dropped rows / dropped                        listed, without a difference
 *
 * So at most half of the head's rows are summed, and the difference loses at most a factor of 2:
 * the whole has at least as many rows outside the list as in it. A chunk's rows are summed in fp32
 * in four interleaved sums, chunks in double: the error is that of some 24 additions in fp32,
 * however long the list is. The order follows from the list alone, so forward and backward see the
 * same bits.
 *
 * Cost: 2 D additions for each row, on rows that are needed anyway.
 */
#ifndef TESS_VIRTUAL_KEY_H
#define TESS_VIRTUAL_KEY_H

#include "keys.h"

/* sum[d] += the sum over i of rows[i][d]. */
VINLINE void sum_rows(double *sum, const float *const *rows, int n, int dim)
{
    for (int d = 0; d < dim; d += VL) {
        const int left = dim - d;
        vf part[4] = {{0}};
        int i = 0;
        if (left >= VL) {
            for (; i + 4 <= n; i += 4)
                for (int r = 0; r < 4; r++)
                    part[r] += vf_load(rows[i + r] + d);
            for (; i < n; i++)
                part[0] += vf_load(rows[i] + d);
        } else {
            for (; i < n; i++)
                part[0] += vf_load_first(rows[i] + d, left);
        }
        float whole[VL];
        vf_store(whole, (part[0] + part[1]) + (part[2] + part[3]));
        for (int j = 0; j < VL && j < left; j++)
            sum[d + j] += (double)whole[j];
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
    while ((n = keys_next_dropped(&t->keys, t->tokens, &at, w->rows)) > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        virtual_add(t, w, n);
    }
    return 0;
}

/* The sums become the means. */
VINLINE void virtual_finish(const tess__attn_tile *t, tess__attn_scratch *w)
{
    const double inverse = 1.0 / (double)t->dropped;
    const int by_dropped = virtual_by_dropped(t);
    for (int i = 0; i < 2; i++) {
        const double *sum = w->sum + i * t->dim, *total = t->total + i * t->dim;
        float *mean = w->mean + i * tess__wide(t->dim);
        for (int d = 0; d < t->dim; d++)
            mean[d] = (float)((by_dropped ? sum[d] : total[d] - sum[d]) * inverse);
    }
}

#endif
