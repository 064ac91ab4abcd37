/* SPDX-License-Identifier: Apache-2.0 */
/* param_update.c - the elementwise passes of the optimisers, each over a piece of the parameters.
 *
 *   adamw     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
 *             p = decay p - step_size m / (sqrt(v) inv_sqrt_bias2 + eps),
 *             ema = ema + ema_rate (p - ema)
 *   momentum  m = b m + (1 - b) g,  u = (1 - b) g + b m         (Nesterov)
 *   apply_update    p = decay p - step_size u,  ema = ema + ema_rate (p - ema)
 *   mix       y = a x + b y
 *
 * where g is the gradient times g_scale (clipping). ema may be NULL. One pass reads and writes each
 * array once: AdamW moves 28 bytes per parameter, 36 with the average. The sum of squares is in
 * double precision, in lanes that are added in a fixed order. Loops are plain; the compiler
 * vectorises them.
 */
#include "entries.h"

#include <math.h>

static void average(float ema_rate, const float *restrict p, float *restrict ema, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ema[i] += ema_rate * (p[i] - ema[i]);
}

/* Blocks small enough to stay in the first cache between the update and the average. */
enum { BLOCK = 1024 };

static void adamw_block(const tess__param_update *d, const float *restrict g, float *restrict m,
                        float *restrict v, float *restrict p, size_t n)
{
    const float b1 = d->beta1, b2 = d->beta2, scale = d->g_scale, decay = d->decay,
                step_size = d->step_size, inv_sqrt_bias2 = d->inv_sqrt_bias2, eps = d->eps;
    for (size_t i = 0; i < n; i++) {
        const float x = scale * g[i];
        m[i] = b1 * m[i] + (1.0f - b1) * x;
        v[i] = b2 * v[i] + (1.0f - b2) * (x * x);
        p[i] = decay * p[i] - step_size * m[i] / (sqrtf(v[i]) * inv_sqrt_bias2 + eps);
    }
}

void TESS_K(tess__adamw)(const tess__param_update *d, const float *g, float *m, float *v, float *p,
                         float *ema, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t some = n - i < BLOCK ? n - i : BLOCK;
        adamw_block(d, g + i, m + i, v + i, p + i, some);
        if (ema)
            average(d->ema_rate, p + i, ema + i, some);
    }
}

void TESS_K(tess__momentum)(float b, float g_scale, const float *restrict g, float *restrict m,
                            float *restrict u, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float x = g_scale * g[i];
        m[i] = b * m[i] + (1.0f - b) * x;
        u[i] = (1.0f - b) * x + b * m[i];
    }
}

static void update_block(float decay, float step_size, const float *restrict u, float *restrict p,
                         size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = decay * p[i] - step_size * u[i];
}

void TESS_K(tess__apply_update)(const tess__param_update *d, const float *u, float *p, float *ema,
                                size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t some = n - i < BLOCK ? n - i : BLOCK;
        update_block(d->decay, d->step_size, u + i, p + i, some);
        if (ema)
            average(d->ema_rate, p + i, ema + i, some);
    }
}

void TESS_K(tess__mix)(float a, const float *restrict x, float b, float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}

double TESS_K(tess__sum_squares)(const float *x, size_t n)
{
    enum { LANES = 16 };
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * x[i + j];
    for (; i < n; i++)
        lane[i % LANES] += (double)x[i] * x[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}
