/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c - one token's query or key: RMS norm across its heads, then rotation of its pairs.
 *
 *   h = x r weight,  r = 1 / sqrt(mean(x^2) + eps)      over all heads of the token
 *   y = h cc + swap(h) ss                               swap exchanges the elements of each pair
 *
 * A pair at angle a has cc = (cos a, cos a) and ss = (-sin a, sin a), so y is the pair rotated by
 * a; the gradient goes through the same with ss negated. rope holds cc and then ss, dim each, the
 * same for all heads; NULL leaves the rotation out, and weight NULL the norm.
 *
 * Shapes: x, weight: (heads, dim), contiguous; y: heads of dim, stride_y apart, for attention
 * reads the rows of a head one after another; without a norm y may be x. Bytes: 8 heads dim
 * forward, 12 backward.
 */
#include "entries.h"
#include "vec.h"

#include <math.h>
#include <string.h>

/* 1 / sqrt(mean(x^2) + eps) */
static float reciprocal(const float *x, int n, float eps)
{
    vf sum = {0};
    int i = 0;
    for (; i + VL <= n; i += VL) {
        const vf v = vf_load(x + i);
        sum += v * v;
    }
    if (i < n) {
        const vf v = vf_load_first(x + i, n - i);
        sum += v * v;
    }
    return 1.0f / sqrtf(vf_sum(sum) / (float)n + eps);
}

/* y = x cc + sign swap(x) ss; dim is a multiple of 8, so that of the widest vectors half may be
 * left over. y may be x. */
static void rotate(float *y, const float *x, const float *rope, int dim, float sign)
{
    const vf s = vf_set1(sign);
    int i = 0;
    for (; i + VL <= dim; i += VL) {
        const vf v = vf_load(x + i);
        vf_store(y + i, v * vf_load(rope + i) + s * vf_swap(v) * vf_load(rope + dim + i));
    }
    for (; i < dim; i += 2) {
        const float a = x[i], b = x[i + 1];
        y[i] = a * rope[i] + sign * b * rope[dim + i];
        y[i + 1] = b * rope[i + 1] + sign * a * rope[dim + i + 1];
    }
}

void TESS_K(tess__rms_rotary)(float *y, int64_t stride_y, const float *x, const float *weight,
                              const float *rope, int heads, int dim, float eps)
{
    const float r = weight ? reciprocal(x, heads * dim, eps) : 1.0f;
    for (int h = 0; h < heads; h++, y += stride_y, x += dim) {
        if (weight)
            for (int i = 0; i < dim; i++)
                y[i] = x[i] * r * weight[h * dim + i];
        else if (y != x)
            memcpy(y, x, (size_t)dim * sizeof *y);
        if (rope)
            rotate(y, y, rope, dim, 1.0f);
    }
}

/* One head's t = dy' weight, with dy' the gradient before the rotation, into dx; adds its part of
 * dweight and returns the sum of t x. */
static float backward_head(float *dx, float *dweight, const float *x, const float *weight, int dim,
                           float r)
{
    const vf rv = vf_set1(r);
    vf sum = {0};
    int i = 0;
    for (; i + VL <= dim; i += VL) {
        const vf g = vf_load(dx + i), v = vf_load(x + i), t = g * vf_load(weight + i);
        vf_store(dweight + i, vf_load(dweight + i) + g * v * rv);
        vf_store(dx + i, t);
        sum += t * v;
    }
    float rest = vf_sum(sum);
    for (; i < dim; i++) {
        dweight[i] += dx[i] * x[i] * r;
        dx[i] *= weight[i];
        rest += dx[i] * x[i];
    }
    return rest;
}

void TESS_K(tess__rms_rotary_backward)(float *dx, float *dweight, const float *dy,
                                       int64_t stride_dy, const float *x, const float *weight,
                                       const float *rope, int heads, int dim, float eps)
{
    const int n = heads * dim;
    const float r = weight ? reciprocal(x, n, eps) : 1.0f;
    float sum = 0.0f;
    for (int h = 0; h < heads; h++, dy += stride_dy) {
        float *d = dx + (int64_t)h * dim;
        if (rope)
            rotate(d, dy, rope, dim, -1.0f);
        else
            memcpy(d, dy, (size_t)dim * sizeof *d);
        if (weight)
            sum += backward_head(d, dweight + h * dim, x + h * dim, weight + h * dim, dim, r);
    }
    if (!weight)
        return;
    const float mean = r * r * sum / (float)n;
    for (int i = 0; i < n; i++)
        dx[i] = r * (dx[i] - x[i] * mean);
}
