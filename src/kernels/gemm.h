/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the register blocks that all products of attention are made of, and their packing.
 *
 * A block is MR rows by NR = 2 VL columns of C, held in registers. B is always a panel: `depth`
 * rows of NR contiguous floats, 64-byte aligned. A is read one float at a time and broadcast, in
 * one of two orders:
 *
 *   rows:  C[r][:] = sum_k a[r][k]        * B[k][:]      each row of A is contiguous, by pointer
 *   cols:  C[r][:] = sum_k a[k * lda + r] * B[k][:]      each column of A is contiguous
 *
 * Per k: 2 loads of B, MR broadcasts, 2 MR multiply-adds. Sums run over k in order, whatever the
 * block's size, so an element's bits do not depend on the block that computed it.
 */
#ifndef TESS_GEMM_H
#define TESS_GEMM_H

#include "tile_shapes.h"

VINLINE void gemm_zero(const int mr, vf c[MR][2])
{
    VUNROLL
    for (int r = 0; r < mr; r++)
        c[r][0] = c[r][1] = (vf){0};
}

VINLINE void gemm_rows(const int mr, int depth, const float *const *a, const float *b, vf c[MR][2])
{
    VUNROLL4
    for (int k = 0; k < depth; k++) {
        const vf b0 = vf_load(b + (size_t)k * NR), b1 = vf_load(b + (size_t)k * NR + VL);
        VUNROLL
        for (int r = 0; r < mr; r++) {
            const vf x = vf_set1(a[r][k]);
            c[r][0] += x * b0;
            c[r][1] += x * b1;
        }
    }
}

VINLINE void gemm_cols(const int mr, int depth, const float *a, int lda, const float *b,
                       vf c[MR][2])
{
    VUNROLL4
    for (int k = 0; k < depth; k++) {
        const vf b0 = vf_load(b + (size_t)k * NR), b1 = vf_load(b + (size_t)k * NR + VL);
        VUNROLL
        for (int r = 0; r < mr; r++) {
            const vf x = vf_set1(a[(size_t)k * (size_t)lda + (size_t)r]);
            c[r][0] += x * b0;
            c[r][1] += x * b1;
        }
    }
}

/* ---- packing ------------------------------------------------------------------------------- */

/* Panels of the transpose: out[p][d][j] = factor * row(p NR + j)[d], for n rows of dim floats, dim
 * a multiple of 4; columns past n are 0, or left alone from VL on if no more are used. out: ceil(n
 * / NR) * dim * NR floats. */
VINLINE void pack_transposed(float *out, const float *x, int64_t stride, int n, int dim,
                             float factor)
{
    for (int p = 0; p < n; p += NR, out += (size_t)dim * NR)
        for (int j = 0; j < (n - p <= VL ? VL : NR); j += 4) {
            const float *rows = x + (int64_t)(p + j) * stride;
            const int left = n - p - j;
            for (int d = 0; d < dim; d += left < 4 ? 1 : 4) {
                float *to = out + (size_t)d * NR + j;
                if (left >= 4)
                    v_transpose4(to, NR, rows + d, stride, factor);
                else
                    for (int i = 0; i < 4; i++)
                        to[i] = i < left ? factor * rows[i * stride + d] : 0.0f;
            }
        }
}

/* The same for rows of which rows[i] are the numbers; NULL: 0, 1, 2, ... room: n * dim floats, in
 * which they are brought side by side. */
VINLINE void pack_gathered(float *out, const float *x, int64_t stride, const int32_t *rows, int n,
                           int dim, float factor, float *room)
{
    for (int i = 0; rows && i < n; i++)
        memcpy(room + (size_t)i * (size_t)dim, x + rows[i] * stride, (size_t)dim * sizeof *room);
    pack_transposed(out, rows ? room : x, rows ? dim : stride, n, dim, factor);
}

/* A panel of rows: out[i][j] = factor * row(i)[d + j], for n rows; columns past dim are 0. */
VINLINE void pack_columns(float *out, const float *const *rows, int n, int d, int dim, float factor)
{
    const vf f = vf_set1(factor);
    for (int i = 0; i < n; i++, out += NR) {
        const float *row = rows[i] + d;
        if (d + NR <= dim) {
            vf_store(out, f * vf_load(row));
            vf_store(out + VL, f * vf_load(row + VL));
        } else {
            for (int j = 0; j < NR; j++)
                out[j] = d + j < dim ? factor * row[j] : 0.0f;
        }
    }
}

/* All panels of rows, one behind the other: ceil(dim / NR) * n * NR floats. */
VINLINE void pack_rows(float *out, const float *const *rows, int n, int dim, float factor)
{
    for (int d = 0; d < dim; d += NR)
        pack_columns(out + (size_t)d * (size_t)n, rows, n, d, dim, factor);
}

/* ---- the products of a tile ------------------------------------------------------------------ */

/* gemm_scores for one panel of which only the first VL columns are wanted: as many registers hold
 * twice the rows, so that a small group of queries costs what it has, not what a panel holds. */
VINLINE void gemm_scores_narrow(float *out, const float *const *rows, int n, const float *b,
                                int dim, float *top, float floor)
{
    vf most = vf_set1(floor);
    for (int i = 0; i < n; i += 2 * MR) {
        vf c[2 * MR];
        VUNROLL
        for (int r = 0; r < 2 * MR; r++)
            c[r] = (vf){0};
        VUNROLL2
        for (int k = 0; k < dim; k++) {
            const vf x = vf_load(b + (size_t)k * NR);
            VUNROLL
            for (int r = 0; r < 2 * MR; r++)
                c[r] += vf_set1(rows[i + r][k]) * x;
        }
        VUNROLL
        for (int r = 0; r < 2 * MR; r++) {
            vf_store(out + (size_t)(i + r) * TESS_SCORE_LD, c[r]);
            most = vf_max(most, c[r]);
        }
    }
    if (top)
        vf_store(top, most);
}

/* out[i][q] = rows[i] . column q of the panels, for n rows (up to the next multiple of 2 MR are
 * read and written) by nq columns (up to the next multiple of NR are written). With top, its column
 * q becomes the maximum over the rows, or `floor` if that is larger. */
VINLINE void gemm_scores(float *out, const float *const *rows, int n, const float *panels, int nq,
                         int dim, float *top, float floor)
{
    for (int p = 0; p < nq; p += NR) {
        const float *b = panels + (size_t)p * (size_t)dim;
        if (nq - p <= VL) {
            gemm_scores_narrow(out + p, rows, n, b, dim, top ? top + p : NULL, floor);
            return;
        }
        vf top0 = vf_set1(floor), top1 = top0;
        for (int i = 0; i < n; i += MR) {
            vf c[MR][2];
            gemm_zero(MR, c);
            gemm_rows(MR, dim, rows + i, b, c);
            float *s = out + (size_t)i * TESS_SCORE_LD + p;
            VUNROLL
            for (int r = 0; r < MR; r++) {
                vf_store(s + r * TESS_SCORE_LD, c[r][0]);
                vf_store(s + r * TESS_SCORE_LD + VL, c[r][1]);
                if (top) {
                    top0 = vf_max(top0, c[r][0]);
                    top1 = vf_max(top1, c[r][1]);
                }
            }
        }
        if (top) {
            vf_store(top + p, top0);
            vf_store(top + p + VL, top1);
        }
    }
}

/* mr rows of one panel of the output. */
VINLINE void gemm_output_rows(const int mr, float *acc, int wide, const float *weights, int n,
                              const float *panel)
{
    vf c[MR][2];
    VUNROLL
    for (int r = 0; r < mr; r++) {
        c[r][0] = vf_load(acc + r * wide);
        c[r][1] = vf_load(acc + r * wide + VL);
    }
    gemm_cols(mr, n, weights, TESS_SCORE_LD, panel, c);
    VUNROLL
    for (int r = 0; r < mr; r++) {
        vf_store(acc + r * wide, c[r][0]);
        vf_store(acc + r * wide + VL, c[r][1]);
    }
}

/* acc[q] += sum over n keys of weights[i][q] * row i, for nq queries (and one more if nq is odd).
 * acc's rows are tess__wide(dim) apart. A panel is packed when it is multiplied, so that it stays
 * in the first-level cache; room: n * NR floats for it. */
VINLINE void gemm_output(float *acc, const float *weights, int n, const float *const *rows,
                         float *room, int nq, int dim)
{
    const int wide = tess__wide(dim);
    for (int d = 0; d < dim; d += NR) {
        float *to = acc + d;
        int q = 0;
        pack_columns(room, rows, n, d, dim, 1.0f);
        /* Two blocks of 4 rather than one of 6 and one of 2, which would wait for its few sums. */
        for (; q + MR <= nq && (MR != 6 || nq - q != 8); q += MR, to += (ptrdiff_t)MR * wide)
            gemm_output_rows(MR, to, wide, weights + q, n, room);
        for (; q + 4 <= nq; q += 4, to += (ptrdiff_t)4 * wide)
            gemm_output_rows(4, to, wide, weights + q, n, room);
        for (; q < nq; q += 2, to += (ptrdiff_t)2 * wide)
            gemm_output_rows(2, to, wide, weights + q, n, room);
    }
}

#endif
