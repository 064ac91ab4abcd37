/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layer norm of rows, with a scale and a shift of its columns, forward and backward.
 *
 *   h = (x - mean) r,  r = 1 / sqrt(variance + eps)      y = h scale + shift
 *   dscale += sum of dy h      dshift += sum of dy
 *   dx += r (t - mean(t) - h mean(t h)),  t = dy scale
 *
 * The same code serves the norms with weights of their own and those that a timestep modulates
 * (scale is then 1 + the modulation). The backward pass computes the mean and the variance again
 * rather than reading them: a row is in the first cache by then.
 * Bytes: 8 n per row forward, 16 n backward; nothing is allocated.
 */
#include "entries.h"
#include "vec.h"

#include <math.h>

static float row_mean(const float *x, int64_t n)
{
    vf sum = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        sum += vf_load(x + i);
    if (i < n)
        sum += vf_load_first(x + i, n - i);
    return vf_sum(sum) / (float)n;
}

static float row_reciprocal(const float *x, float mean, int64_t n, float eps)
{
    const vf m = vf_set1(mean);
    vf sum = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vf d = vf_load(x + i) - m;
        sum += d * d;
    }
    if (i < n) {
        const vf d = vf_first(vf_load_first(x + i, n - i) - m, n - i);
        sum += d * d;
    }
    return 1.0f / sqrtf(vf_sum(sum) / (float)n + eps);
}

void TESS_K(tess__norm_forward)(float *restrict y, const float *restrict x,
                                const float *restrict scale, const float *restrict shift,
                                int64_t rows, int64_t n, float eps)
{
    for (int64_t row = 0; row < rows; row++, x += n, y += n) {
        const float mean = row_mean(x, n), r = row_reciprocal(x, mean, n, eps);
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * r * scale[i] + shift[i];
    }
}

/* Adds a row's part of dscale and dshift; *t1 and *t2 are the sums of t and of t h. */
static void backward_sums(float *dscale, float *dshift, const float *dy, const float *x,
                          const float *scale, int64_t n, float mean, float r, float *t1, float *t2)
{
    const vf m = vf_set1(mean), rv = vf_set1(r);
    vf sum = {0}, sum_h = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vf g = vf_load(dy + i), h = (vf_load(x + i) - m) * rv, t = g * vf_load(scale + i);
        vf_store(dscale + i, vf_load(dscale + i) + g * h);
        vf_store(dshift + i, vf_load(dshift + i) + g);
        sum += t;
        sum_h += t * h;
    }
    *t1 = vf_sum(sum);
    *t2 = vf_sum(sum_h);
    for (; i < n; i++) {
        const float h = (x[i] - mean) * r, t = dy[i] * scale[i];
        dscale[i] += dy[i] * h;
        dshift[i] += dy[i];
        *t1 += t;
        *t2 += t * h;
    }
}

void TESS_K(tess__norm_backward)(float *restrict dx, float *restrict dscale, float *restrict dshift,
                                 const float *restrict dy, const float *restrict x,
                                 const float *restrict scale, int64_t rows, int64_t n, float eps)
{
    for (int64_t row = 0; row < rows; row++, dx += n, dy += n, x += n) {
        const float mean = row_mean(x, n), r = row_reciprocal(x, mean, n, eps);
        float t1, t2;
        backward_sums(dscale, dshift, dy, x, scale, n, mean, r, &t1, &t2);
        t1 /= (float)n;
        t2 /= (float)n;
        for (int64_t i = 0; i < n; i++)
            dx[i] += r * (dy[i] * scale[i] - t1 - (x[i] - mean) * r * t2);
    }
}
