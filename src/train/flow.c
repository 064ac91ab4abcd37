/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c - flow matching: noise levels, noised clips, the target, the loss and its gradient.
 *
 *   u_i = (i + r_i) / n,  s = shift u / (1 + (shift - 1) u)         one level in each n-th
 *   x = (1 - s) clip + s eps,  target = eps - clip
 *   loss = mean (out - target)^2,  gradient = 2 (out - target) / n
 *
 * Levels are stratified over all clips of a step, accumulated micro-batches included: the loss of a
 * step then varies less than with independent levels. Loops go over pieces of fixed size, and the
 * loss is summed in double precision in their order: the same bits for any threads.
 */
#include "train_internal.h"

enum { PART = 1024 }; /* numbers of noise at a time, on the stack */

uint64_t tess__stream(tess__purpose purpose, int64_t number)
{
    return (uint64_t)purpose << 56 | (uint64_t)number;
}

double tess__shifted(double shift, double u)
{
    return shift * u / (1.0 + (shift - 1.0) * u);
}

double tess__noise_level(uint64_t seed, int64_t step, int64_t i, int64_t n)
{
    float r;
    tess_random_uniform(seed, tess__stream(TESS__LEVEL, step), (uint64_t)i, &r, 1);
    return ((double)i + (double)r) / (double)n;
}

void tess__flow_noise(const tess_ctx *ctx, const tess__noising *noising, const float *clip,
                      int64_t n, float *x, float *target)
{
    const float s = (float)noising->s, rest = 1.0f - s;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t count = n - at < PART ? n - at : PART;
        float eps[PART];
        tess_random_normal(noising->seed, noising->stream, noising->first + (uint64_t)at, eps,
                           (size_t)count);
        for (int64_t i = 0; i < count; i++) {
            const float c = clip[at + i];
            x[at + i] = rest * c + s * eps[i];
            target[at + i] = eps[i] - c;
        }
    }
}

double tess__flow_loss(const tess_ctx *ctx, const float *target, int64_t n, double factor,
                       float *out, double *sums)
{
    const int64_t pieces = (n + TESS_PIECE - 1) / TESS_PIECE;
    const float slope = (float)(2.0 * factor / (double)n);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t begin = piece * TESS_PIECE;
        const int64_t end = n - begin < TESS_PIECE ? n : begin + TESS_PIECE;
        for (int64_t i = begin; i < end; i++)
            out[i] -= target[i];
        sums[piece] = ctx->kernels->sum_squares(out + begin, (size_t)(end - begin));
        for (int64_t i = begin; i < end; i++)
            out[i] *= slope;
    }
    double sum = 0.0;
    for (int64_t piece = 0; piece < pieces; piece++)
        sum += sums[piece];
    return sum / (double)n;
}
