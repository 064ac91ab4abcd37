/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c - rows of matrices combined with vectors over their columns: biases, gates, sums.
 *
 *   epilogue      y = x + gate (y + bias)       what follows a product; each may be left out
 *   scale         y = x gate
 *   gate_gradient dw += factor m, and the sum of w m
 *   column_sums   sum[j] += sum over rows of x[i][j], in double
 */
#include "entries.h"
#include "vec.h"

void TESS_K(tess__epilogue)(float *restrict y, const float *restrict bias,
                            const float *restrict gate, const float *restrict x, int64_t n)
{
    if (bias)
        for (int64_t i = 0; i < n; i++)
            y[i] += bias[i];
    if (gate)
        for (int64_t i = 0; i < n; i++)
            y[i] *= gate[i];
    if (x)
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
}

void TESS_K(tess__scale)(float *restrict y, const float *restrict x, const float *restrict gate,
                         int64_t rows, int64_t n)
{
    for (int64_t row = 0; row < rows; row++, x += n, y += n)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * gate[i];
}

double TESS_K(tess__gate_gradient)(float *restrict dw, const float *restrict m,
                                   const float *restrict w, float factor, int64_t n)
{
    vd sum = {0};
    int64_t i = 0;
    for (; i + VD <= n; i += VD)
        sum += vd_load_f32(m + i) * vd_load_f32(w + i);
    double total = 0.0;
    for (int lane = 0; lane < VD; lane++)
        total += sum[lane];
    for (; i < n; i++)
        total += (double)m[i] * (double)w[i];
    for (i = 0; i < n; i++)
        dw[i] += factor * m[i];
    return total;
}

void TESS_K(tess__column_sums)(double *restrict sum, const float *restrict x, int64_t stride,
                               int64_t rows, int64_t n)
{
    for (int64_t row = 0; row < rows; row++, x += stride)
        for (int64_t j = 0; j < n; j++)
            sum[j] += (double)x[j];
}
