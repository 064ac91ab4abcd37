/* SPDX-License-Identifier: Apache-2.0 */
/* ref_optim.c - one step of AdamW and of Muon in double precision, as plain as their papers. */
#include "ref_optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_adamw(int64_t n, const ref_optim *o, double decay, const double *g, double *m, double *v,
               double *p)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = o->beta1 * m[i] + (1.0 - o->beta1) * g[i];
        v[i] = o->beta2 * v[i] + (1.0 - o->beta2) * g[i] * g[i];
        const double mean = m[i] / (1.0 - pow(o->beta1, (double)o->step));
        const double square = v[i] / (1.0 - pow(o->beta2, (double)o->step));
        p[i] -= o->lr * (mean / (sqrt(square) + o->eps) + decay * p[i]);
    }
}

/* c = a b or a b^T: (rows, cols), inner length k. */
static void multiply(int64_t rows, int64_t cols, int64_t k, const double *a, const double *b,
                     int transposed, double *c)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * cols + j]);
            c[i * cols + j] = sum;
        }
}

/* Five steps of x = a x + (b A + c A^2) x with A = x x^T, from the left whatever the shape. */
static tess_status orthogonalise(int64_t rows, int64_t cols, double *x)
{
    const size_t n = (size_t)(rows * cols), square = (size_t)(rows * rows);
    double *gram = malloc((2 * square + n) * sizeof *gram);
    if (!gram)
        return TESS_ENOMEM;
    double *power = gram + square, *next = power + square, length = 0.0;
    for (size_t i = 0; i < n; i++)
        length += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] /= sqrt(length) + 1e-7;
    for (int step = 0; step < 5; step++) {
        multiply(rows, rows, cols, x, x, 1, gram);
        multiply(rows, rows, rows, gram, gram, 0, power);
        for (size_t i = 0; i < square; i++)
            power[i] = -4.7750 * gram[i] + 2.0315 * power[i];
        multiply(rows, cols, rows, power, x, 0, next);
        for (size_t i = 0; i < n; i++)
            x[i] = 3.4445 * x[i] + next[i];
    }
    free(gram);
    return TESS_OK;
}

tess_status ref_muon(int64_t rows, int64_t cols, const ref_optim *o, double decay, const double *g,
                     double *m, double *p)
{
    const int64_t n = rows * cols;
    double *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return TESS_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        m[i] = o->momentum * m[i] + (1.0 - o->momentum) * g[i];
        x[i] = (1.0 - o->momentum) * g[i] + o->momentum * m[i];
    }
    const tess_status status = orthogonalise(rows, cols, x);
    const double stretch = rows > cols ? sqrt((double)rows / (double)cols) : 1.0;
    for (int64_t i = 0; i < n && status == TESS_OK; i++)
        p[i] -= o->lr * (stretch * x[i] + decay * p[i]);
    free(x);
    return status;
}
