/* SPDX-License-Identifier: Apache-2.0 */
/* ref_select.c - the rules of the selectors in double precision.
 *
 *   predictor:  s_u = max or mean over keys j of unit u of  p . k_j,  p the mean or centre query
 *   pooled:     s_u = mean(queries of the group) . mean(keys of the unit)
 *   mass:       s_u = sum over queries i and keys j of exp(scale q_i . k_j - lse_i)
 *
 * One row after the other. Memory: a row of scores.
 */
#include "ref.h"

#include "base/base_internal.h"

#include <math.h>
#include <string.h>

enum { DIM_MAX = 256 };

static const float *row_of(const tess_view *v, int64_t b, int64_t h, int64_t s)
{
    return (const float *)v->data + (b * v->stride_b + h * v->stride_h + s * v->stride_s);
}

/* The mean of rows begin .. end - 1. */
static void mean_row(double *to, const tess_view *v, int64_t b, int64_t h, int64_t begin,
                     int64_t end, int dim)
{
    for (int d = 0; d < dim; d++)
        to[d] = 0.0;
    for (int64_t s = begin; s < end; s++) {
        const float *row = row_of(v, b, h, s);
        for (int d = 0; d < dim; d++)
            to[d] += (double)row[d] / (double)(end - begin);
    }
}

static double dot(const double *a, const double *b, int dim)
{
    double sum = 0.0;
    for (int d = 0; d < dim; d++)
        sum += a[d] * b[d];
    return sum;
}

/* a . k_j */
static double dot_key(const double *a, const tess_select_in *in, int64_t b, int64_t h, int64_t j)
{
    const float *key = row_of(in->k, b, h, j);
    double sum = 0.0;
    for (int d = 0; d < in->head_dim; d++)
        sum += a[d] * (double)key[d];
    return sum;
}

static void score_units(const double *proxy, const tess_select_in *in, const tess_sel_shape *shape,
                        int64_t b, int64_t h, double *scores)
{
    for (int32_t u = 0; u < shape->n_k; u++) {
        const int64_t first = shape->bounds_k[u], end = shape->bounds_k[u + 1];
        double max = -INFINITY;
        for (int64_t j = first; j < end; j++) {
            const double s = dot_key(proxy, in, b, h, j);
            max = s > max ? s : max;
        }
        scores[u] = max;
    }
}

static void score_pooled(const double *proxy, const tess_select_in *in, const tess_sel_shape *shape,
                         int64_t b, int64_t h, double *scores)
{
    double key[DIM_MAX];
    for (int32_t u = 0; u < shape->n_k; u++) {
        mean_row(key, in->k, b, h, shape->bounds_k[u], shape->bounds_k[u + 1], in->head_dim);
        scores[u] = dot(proxy, key, in->head_dim);
    }
}

tess_status ref_select_mass(tess_ctx *ctx, const tess_select_in *in, const tess_sel_shape *shape,
                            int64_t b, int64_t h, int64_t begin, int64_t end, double *mass,
                            double *lse)
{
    const double scale = in->scale != 0.0f ? (double)in->scale : 1.0 / sqrt((double)in->head_dim);
    const size_t bytes = sizeof(double) * (size_t)shape->tokens_k;
    double *s = TESS_ALLOC(ctx, bytes);
    for (int32_t u = 0; u < shape->n_k; u++)
        mass[u] = 0.0;
    for (int64_t i = begin; i < end; i++) {
        double q[DIM_MAX], max = -INFINITY, sum = 0.0;
        mean_row(q, in->q, b, h, i, i + 1, in->head_dim);
        for (int64_t j = 0; j < shape->tokens_k; j++) {
            s[j] = scale * dot_key(q, in, b, h, j);
            max = s[j] > max ? s[j] : max;
        }
        for (int64_t j = 0; j < shape->tokens_k; j++) {
            s[j] = exp(s[j] - max);
            sum += s[j];
        }
        for (int32_t u = 0; u < shape->n_k; u++)
            for (int64_t j = shape->bounds_k[u]; j < shape->bounds_k[u + 1]; j++)
                mass[u] += s[j] / sum;
        if (lse)
            lse[i - begin] = max + log(sum);
    }
    tess__free(ctx, s);
    return TESS_OK;
}

tess_status ref_select_scores(tess_ctx *ctx, const tess_selector_opts *opts,
                              const tess_select_in *in, const tess_sel_shape *shape, int64_t b,
                              int64_t h, int32_t group, double *scores)
{
    const int64_t begin = shape->bounds_q[group], end = shape->bounds_q[group + 1];
    const int64_t centre = begin + (end - begin) / 2;
    double proxy[DIM_MAX];
    if (opts->kind == TESS_SELECT_POOLED) {
        mean_row(proxy, in->q, b, h, begin, end, in->head_dim);
        score_pooled(proxy, in, shape, b, h, scores);
        return TESS_OK;
    }
    if (opts->kind != TESS_SELECT_PREDICTOR || opts->proxy == TESS_PROXY_SOFTMAX)
        return ref_select_mass(ctx, in, shape, b, h, begin, end, scores, NULL);
    if (opts->proxy == TESS_PROXY_CENTRE)
        mean_row(proxy, in->q, b, h, centre, centre + 1, in->head_dim);
    else
        mean_row(proxy, in->q, b, h, begin, end, in->head_dim);
    score_units(proxy, in, shape, b, h, scores);
    return TESS_OK;
}

double ref_select_miss(const double *scores, int32_t n, const int32_t *list, int64_t k)
{
    double taken = INFINITY, left = -INFINITY;
    for (int32_t u = 0, i = 0; u < n; u++) {
        if (i < k && list[i] == u) {
            taken = scores[u] < taken ? scores[u] : taken;
            i++;
        } else {
            left = scores[u] > left ? scores[u] : left;
        }
    }
    return left - taken;
}
