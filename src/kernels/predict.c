/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - losses between two tiles of scores, by column, and the products of their gradients.
 *
 * A tile holds the scores of n keys (rows, ld floats apart) by cols queries (columns): keys come as
 * they lie in memory, queries are few and packed once, so that keys are not transposed. cols is
 * a multiple of TESS_PANEL, and each column is one lane of a vector.
 *
 *   lse_columns:   m, l = the running maximum and sum of 2^(scale2 s - m)
 *   kl_columns:    a, p = 2^(scale2 s - lse2) of teacher and student;
 *                  loss += sum over keys of a (log2 a - log2 p);  student = weight (p - a)
 *   dot_columns:   tt, ts, ss += sums of the products of teacher t and student s
 *   blend_columns: student = x t + y s
 *   add_products:  C += A^T B,  A (n, rows), B (n, cols)
 *
 * Sums run over the keys in ascending order. Flop of add_products: 2 n rows cols, in blocks of 4
 * rows by 2 vectors: 6 loads and 8 multiply-adds for each key.
 */
#include "entries.h"
#include "vec.h"

#include <math.h>

enum { BR = 4 }; /* rows of a block of add_products */

/* ---- columns ------------------------------------------------------------------------------- */

/* 2^x of what is 0 or less but for its rounding; NaN stays. */
VINLINE vf share_of(vf x)
{
    return vf_exp2(vf_min(vf_set1(0.0f), x));
}

/* A column without scores has m = -inf and l = 0: 2^(-inf) is taken as 2^-126, times 0. A
 * NaN makes l NaN, and so does an infinite score. */
void TESS_K(tess__lse_columns)(float *m, float *l, const float *s, int64_t ld, int cols, int n,
                               float scale2)
{
    const vf scale = vf_set1(scale2);
    for (int c = 0; c < cols; c += VL) {
        const vf before = vf_load(m + c);
        vf max = before;
        for (int j = 0; j < n; j++)
            max = vf_max(vf_load(s + j * ld + c) * scale, max);
        vf sum = vf_load(l + c) * vf_exp2(before - max);
        for (int j = 0; j < n; j++)
            sum += share_of(vf_load(s + j * ld + c) * scale - max);
        vf_store(m + c, max);
        vf_store(l + c, sum);
    }
}

void TESS_K(tess__kl_columns)(float *loss, float *student, const float *teacher, int64_t ld,
                              int cols, int n, const tess__kl *kl)
{
    const vf scale_t = vf_set1(kl->scale2), scale_s = vf_set1(kl->scale2_low);
    const vf weight = vf_set1(kl->weight);
    for (int c = 0; c < cols; c += VL) {
        const vf lse_t = vf_load(kl->lse2 + c), lse_s = vf_load(kl->lse2_low + c);
        vf sum = vf_load(loss + c);
        for (int j = 0; j < n; j++) {
            float *to = student + j * ld + c;
            const vf log_a = vf_load(teacher + j * ld + c) * scale_t - lse_t;
            const vf log_p = vf_load(to) * scale_s - lse_s;
            const vf a = share_of(log_a);
            sum += a * (log_a - log_p);
            vf_store(to, weight * (share_of(log_p) - a));
        }
        vf_store(loss + c, sum);
    }
}

void TESS_K(tess__dot_columns)(float *tt, float *ts, float *ss, const float *student,
                               const float *teacher, int64_t ld, int cols, int n)
{
    for (int c = 0; c < cols; c += VL) {
        vf sum_tt = {0}, sum_ts = {0}, sum_ss = {0};
        for (int j = 0; j < n; j++) {
            const vf t = vf_load(teacher + j * ld + c), s = vf_load(student + j * ld + c);
            sum_tt += t * t;
            sum_ts += t * s;
            sum_ss += s * s;
        }
        vf_store(tt + c, vf_load(tt + c) + sum_tt);
        vf_store(ts + c, vf_load(ts + c) + sum_ts);
        vf_store(ss + c, vf_load(ss + c) + sum_ss);
    }
}

void TESS_K(tess__blend_columns)(float *student, const float *teacher, int64_t ld, int cols, int n,
                                 const float *x, const float *y)
{
    for (int c = 0; c < cols; c += VL) {
        const vf of_t = vf_load(x + c), of_s = vf_load(y + c);
        for (int j = 0; j < n; j++) {
            float *to = student + j * ld + c;
            vf_store(to, of_t * vf_load(teacher + j * ld + c) + of_s * vf_load(to));
        }
    }
}

/* ---- products ------------------------------------------------------------------------------ */

/* br rows by nv vectors of C; both are constants where this is inlined. */
VINLINE void add_block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                       int64_t ldb, int n, const int br, const int nv)
{
    vf sum[BR][2];
    VUNROLL
    for (int r = 0; r < br; r++)
        VUNROLL
    for (int v = 0; v < nv; v++)
        sum[r][v] = vf_load(c + r * ldc + v * VL);
    for (int k = 0; k < n; k++) {
        vf x[2];
        VUNROLL
        for (int v = 0; v < nv; v++)
            x[v] = vf_load(b + k * ldb + v * VL);
        VUNROLL
        for (int r = 0; r < br; r++) {
            const vf w = vf_set1(a[k * lda + r]);
            VUNROLL
            for (int v = 0; v < nv; v++)
                sum[r][v] += w * x[v];
        }
    }
    VUNROLL
    for (int r = 0; r < br; r++)
        VUNROLL
    for (int v = 0; v < nv; v++)
        vf_store(c + r * ldc + v * VL, sum[r][v]);
}

/* br rows by all columns. */
VINLINE void add_rows(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                      int64_t ldb, int n, const int br, int cols)
{
    int at = 0;
    for (; at + 2 * VL <= cols; at += 2 * VL)
        add_block(c + at, ldc, a, lda, b + at, ldb, n, br, 2);
    for (; at + VL <= cols; at += VL)
        add_block(c + at, ldc, a, lda, b + at, ldb, n, br, 1);
    for (; at < cols; at++)
        for (int r = 0; r < br; r++)
            for (int k = 0; k < n; k++)
                c[r * ldc + at] += a[k * lda + r] * b[k * ldb + at];
}

void TESS_K(tess__add_products)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                int64_t ldb, int n, int rows, int cols)
{
    int r = 0;
    for (; r + BR <= rows; r += BR)
        add_rows(c + r * ldc, ldc, a + r, lda, b, ldb, n, BR, cols);
    for (; r < rows; r++)
        add_rows(c + r * ldc, ldc, a + r, lda, b, ldb, n, 1, cols);
}
