/* SPDX-License-Identifier: Apache-2.0 */
/* patches.c - between a latent, (batch, channels, frames, height, width), and rows of tokens.
 *
 * A token holds the numbers of its patch, in the order channel, frame, row, column on the way in
 * (the weights of a convolution) and frame, row, column, channel on the way out. Every number of
 * the latent belongs to one token, so that the way back is a copy too. Tokens stand in the pass's
 * order, raster or cubes: this is where it begins and ends.
 */
#include "pass_internal.h"

/* Copies one token's numbers to its row, or from it. */
static void copy_token(const tess_pass *p, int64_t sample, int64_t token, int channels,
                       int channel_last, float *row, float *x, int scatter)
{
    const int *patch = p->model->config.patch, *grid = p->z.grid;
    const int64_t raster = p->perm ? p->perm[token] : token;
    const int64_t f0 = raster / grid[2] / grid[1] * patch[0];
    const int64_t y0 = raster / grid[2] % grid[1] * patch[1], x0 = raster % grid[2] * patch[2];
    const int64_t height = p->shape.height, width = p->shape.width;
    const int64_t step = channel_last ? channels : 1;
    const int64_t volume = (int64_t)patch[0] * patch[1] * patch[2];
    for (int c = 0; c < channels; c++) {
        float *to = row + (channel_last ? c : c * volume);
        const int64_t plane = (sample * channels + c) * p->shape.frames;
        for (int f = 0; f < patch[0]; f++)
            for (int y = 0; y < patch[1]; y++) {
                float *from = x + ((plane + f0 + f) * height + y0 + y) * width + x0;
                for (int i = 0; i < patch[2]; i++, to += step) {
                    if (scatter)
                        from[i] = *to;
                    else
                        *to = from[i];
                }
            }
    }
}

static void copy_all(const tess_pass *p, tess__token_range span, float *rows, float *x,
                     int channels, int channel_last, int scatter)
{
    const int64_t n = channel_last ? p->z.patch_out : p->z.patch_in;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t row = 0; row < p->z.batch * span.n; row++)
        copy_token(p, row / span.n, span.first + row % span.n, channels, channel_last,
                   rows + row * n, x, scatter);
}

void tess__patches_gather(const tess_pass *p, const float *x, int channels, int channel_last,
                          float *rows)
{
    const tess__token_range local = {p->z.first, p->z.local};
    copy_all(p, local, rows, (float *)(uintptr_t)x, channels, channel_last, 0);
}

void tess__patches_scatter(const tess_pass *p, tess__token_range span, const float *rows,
                           int channels, int channel_last, float *x)
{
    copy_all(p, span, (float *)(uintptr_t)rows, x, channels, channel_last, 1);
}
