/* SPDX-License-Identifier: Apache-2.0 */
/* ref_predict.c - the predictor's losses and their gradients in double precision.
 *
 *   s = scale q k^T, r = scale_low q_low k_low^T, one sampled query after the other
 *   KL:      L = sum_j a_j log(a_j / p_j),  a = softmax(s), p = softmax(r);   dr = p - a
 *   cosine:  L = 0.95 (1 - sh.rh) + 0.05 |sh - rh|^2 / S,  sh = s / |s|, rh = r / |r|;
 *            dr = (I - rh rh^T) (-0.95 sh + 0.1 (rh - sh) / S) / |r|
 *
 * Memory: three rows of scores.
 */
#include "ref_predict.h"

#include "base/base_internal.h"

#include <math.h>
#include <string.h>

static double element(const tess_view *v, int64_t b, int64_t h, int64_t s, int d)
{
    const int64_t at = b * v->stride_b + h * v->stride_h + s * v->stride_s + d;
    return v->dtype == TESS_DTYPE_F64 ? ((const double *)v->data)[at]
                                      : (double)((const float *)v->data)[at];
}

static void scores(double *to, double scale, const tess_view *q, const tess_view *k, int64_t b,
                   int64_t h, int64_t row, int64_t tokens, int dim)
{
    for (int64_t j = 0; j < tokens; j++) {
        double sum = 0.0;
        for (int d = 0; d < dim; d++)
            sum += element(q, b, h, row, d) * element(k, b, h, j, d);
        to[j] = scale * sum;
    }
}

static double lse_of(const double *x, int64_t n)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < n; j++)
        max = x[j] > max ? x[j] : max;
    for (int64_t j = 0; j < n; j++)
        sum += exp(x[j] - max);
    return max + log(sum);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++)
        sum += x[j] * y[j];
    return sum;
}

static double divergence(const double *s, const double *r, int64_t n, double *dr)
{
    const double lse_s = lse_of(s, n), lse_r = lse_of(r, n);
    double loss = 0.0;
    for (int64_t j = 0; j < n; j++) {
        const double a = exp(s[j] - lse_s);
        loss += a * ((s[j] - lse_s) - (r[j] - lse_r));
        dr[j] = exp(r[j] - lse_r) - a;
    }
    return loss;
}

static double cosine(const double *s, const double *r, int64_t n, double *dr)
{
    const double size_s = sqrt(dot(s, s, n)), size_r = sqrt(dot(r, r, n));
    memset(dr, 0, sizeof *dr * (size_t)n);
    if (size_s == 0.0 || size_r == 0.0)
        return 0.95 + 0.1 / (double)n;
    double loss = 0.95, along = 0.0;
    for (int64_t j = 0; j < n; j++) {
        const double sh = s[j] / size_s, rh = r[j] / size_r, apart = rh - sh;
        loss += -0.95 * sh * rh + 0.05 * apart * apart / (double)n;
        dr[j] = -0.95 * sh + 0.1 * apart / (double)n;
        along += rh * dr[j];
    }
    for (int64_t j = 0; j < n; j++)
        dr[j] = (dr[j] - along * r[j] / size_r) / size_r;
    return loss;
}

tess_status ref_predict_loss(tess_ctx *ctx, const tess_predict_shape *shape,
                             const tess_predict_in *in, double *loss_heads, double *dq, double *dk)
{
    const int64_t n = shape->tokens;
    const int rank = shape->rank;
    const size_t bytes = 3 * sizeof(double) * (size_t)n;
    double *s = tess__alloc(ctx, bytes);
    if (!s)
        return tess__nomem(bytes);
    double *r = s + n, *dr = r + n;
    const double scale = in->scale != 0.0f ? (double)in->scale : 1.0 / sqrt(shape->head_dim);
    const double scale_low = in->scale_low != 0.0f ? (double)in->scale_low : 1.0 / sqrt(rank);
    const int64_t heads = (int64_t)shape->batch * shape->heads;
    memset(dk, 0, sizeof *dk * (size_t)(heads * n * rank));
    memset(dq, 0, sizeof *dq * (size_t)(heads * in->n_rows * rank));
    for (int64_t head = 0; head < heads; head++) {
        const int64_t b = head / shape->heads, h = head % shape->heads;
        loss_heads[head] = 0.0;
        for (int i = 0; i < in->n_rows; i++) {
            const int64_t row = in->rows[i];
            scores(s, scale, in->q, in->k, b, h, row, n, shape->head_dim);
            scores(r, scale_low, in->q_low, in->k_low, b, h, row, n, rank);
            loss_heads[head] +=
                (in->loss == TESS_PREDICT_KL ? divergence : cosine)(s, r, n, dr) / in->n_rows;
            for (int64_t j = 0; j < n; j++)
                for (int d = 0; d < rank; d++) {
                    const double weight = scale_low * dr[j] / (double)(heads * in->n_rows);
                    dq[(head * in->n_rows + i) * rank + d] +=
                        weight * element(in->k_low, b, h, j, d);
                    dk[(head * n + j) * rank + d] += weight * element(in->q_low, b, h, row, d);
                }
        }
    }
    tess__free(ctx, s);
    return TESS_OK;
}
