/* SPDX-License-Identifier: Apache-2.0 */
/* ref_linear.c - linear layers in double precision: y = x w^T + bias, and its gradients. */
#include "ref.h"

#include <string.h>

void ref_linear_forward(int64_t rows, int64_t in, int64_t out, const float *x, const float *w,
                        const float *bias, double *y)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            double sum = bias ? bias[j] : 0.0;
            for (int64_t c = 0; c < in; c++)
                sum += (double)x[i * in + c] * w[j * in + c];
            y[i * out + j] = sum;
        }
}

/* to += factor * row */
static void add(double *to, double factor, const float *row, int64_t n)
{
    for (int64_t c = 0; to && c < n; c++)
        to[c] += factor * row[c];
}

void ref_linear_backward(int64_t rows, int64_t in, int64_t out, const float *x, const float *w,
                         const float *dy, double *dx, double *dw, double *dbias)
{
    if (dx)
        memset(dx, 0, (size_t)(rows * in) * sizeof *dx);
    if (dw)
        memset(dw, 0, (size_t)(out * in) * sizeof *dw);
    if (dbias)
        memset(dbias, 0, (size_t)out * sizeof *dbias);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            const double g = dy[i * out + j];
            add(dx ? dx + i * in : NULL, g, w + j * in, in);
            add(dw ? dw + j * in : NULL, g, x + i * in, in);
            if (dbias)
                dbias[j] += g;
        }
}
