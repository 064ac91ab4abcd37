/* SPDX-License-Identifier: Apache-2.0 */
/* resize.c - scales frames to cover a size, and cuts them at the centre.
 *
 * One step in the result is `ratio` steps in the frame, the same in both directions: the smaller of
 * height / to_height and width / to_width, so that the frame covers the result. Along each axis a
 * pixel of the result is a weighted mean of the pixels around its place, with a triangle of half
 * width max(1, ratio): linear interpolation when it enlarges, an average without aliases when it
 * shrinks. Weights are integers that sum to 2^14, so that every machine makes the same bytes.
 *
 * Two passes: rows of the frame to the result's width, kept with 6 bits behind the point, then
 * columns. Cost: (height to_width + to_height to_width) taps, with taps = 2 max(1, ratio) + 1.
 */
#include "media_internal.h"

#include <string.h>

enum { BITS = 14, KEPT = 6 };

/* For each place of the result: where its taps begin, and their weights. */
typedef struct {
    int taps;
    int32_t *first;
    int32_t *weights; /* taps for each place */
} axis;

struct tess__resizer {
    tess_ctx *ctx;
    tess__arena arena;
    int height, width, to_height, to_width;
    axis x, y;
    uint16_t *rows; /* (height, to_width, 3) */
};

/* Weights of one place, rounded; what rounding left over goes to the heaviest. */
static void set_weights(double centre, double reach, int n, int taps, int32_t *first,
                        int32_t *weights)
{
    int start = (int)(centre - reach + 0.5);
    start = start > n - taps ? n - taps : start;
    start = start < 0 ? 0 : start;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        int total = 0, heaviest = 0;
        for (int k = 0; k < taps && start + k < n; k++) {
            const double away = start + k + 0.5 - centre;
            const double w = 1 - (away < 0 ? -away : away) / reach;
            if (pass == 0) {
                sum += TESS_MAX(w, 0);
                continue;
            }
            weights[k] = w > 0 ? (int32_t)(w / sum * (1 << BITS) + 0.5) : 0;
            total += weights[k];
            heaviest = weights[k] > weights[heaviest] ? k : heaviest;
        }
        if (pass == 1)
            weights[heaviest] += (1 << BITS) - total;
    }
    *first = start;
}

static tess_status axis_make(tess__arena *arena, int n, int to, double ratio, axis *a)
{
    const double reach = TESS_MAX(ratio, 1);
    const int taps = (int)(2 * reach) + 2;
    a->taps = TESS_MIN(taps, n);
    const size_t bytes = tess__bytes((size_t)to, (size_t)a->taps * sizeof *a->weights);
    a->first = TESS_TAKE(arena, (size_t)to * sizeof *a->first);
    a->weights = TESS_TAKE_ZERO(arena, bytes);
    for (int i = 0; i < to; i++) {
        const double centre = n / 2.0 + (i + 0.5 - to / 2.0) * ratio;
        set_weights(centre, reach, n, a->taps, &a->first[i],
                    a->weights + (size_t)i * (size_t)a->taps);
    }
    return TESS_OK;
}

tess_status tess__resizer_create(tess_ctx *ctx, int height, int width, int to_height, int to_width,
                                 tess__resizer **resizer)
{
    tess__resizer *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    *r = (tess__resizer){.ctx = ctx,
                         .arena = {.ctx = ctx},
                         .height = height,
                         .width = width,
                         .to_height = to_height,
                         .to_width = to_width};
    const double down = (double)height / to_height, across = (double)width / to_width;
    const double ratio = TESS_MIN(down, across);
    tess_status status = TESS_OK;
    if (height != to_height || width != to_width) {
        status = axis_make(&r->arena, width, to_width, ratio, &r->x);
        if (status == TESS_OK)
            status = axis_make(&r->arena, height, to_height, ratio, &r->y);
        if (status == TESS_OK) {
            r->rows = tess__arena_take(&r->arena,
                                       (size_t)height * (size_t)to_width * 3 * sizeof *r->rows);
            status = r->rows ? TESS_OK : TESS_ENOMEM;
        }
    }
    if (status == TESS_OK)
        *resizer = r;
    else
        tess__resizer_destroy(r);
    return status;
}

static void across(const tess__resizer *r, const uint8_t *from, uint16_t *to)
{
    for (int i = 0; i < r->to_width; i++) {
        const int32_t *w = r->x.weights + (size_t)i * (size_t)r->x.taps;
        const uint8_t *p = from + (size_t)r->x.first[i] * 3;
        int32_t sum[3] = {0};
        for (int k = 0; k < r->x.taps; k++)
            for (int c = 0; c < 3; c++)
                sum[c] += w[k] * p[k * 3 + c];
        for (int c = 0; c < 3; c++)
            to[i * 3 + c] = (uint16_t)((sum[c] + (1 << (BITS - KEPT - 1))) >> (BITS - KEPT));
    }
}

static void down(const tess__resizer *r, int y, uint8_t *to)
{
    const size_t stride = (size_t)r->to_width * 3;
    const int32_t *w = r->y.weights + (size_t)y * (size_t)r->y.taps;
    const uint16_t *p = r->rows + (size_t)r->y.first[y] * stride;
    for (size_t i = 0; i < stride; i++) {
        int32_t sum = 1 << (BITS + KEPT - 1);
        for (int k = 0; k < r->y.taps; k++)
            sum += w[k] * p[(size_t)k * stride + i];
        to[i] = (uint8_t)(sum >> (BITS + KEPT));
    }
}

void tess__resizer_run(tess__resizer *r, const uint8_t *from, uint8_t *to)
{
    if (!r->rows) {
        memcpy(to, from, (size_t)r->height * (size_t)r->width * 3);
        return;
    }
    const size_t stride = (size_t)r->to_width * 3;
    for (int y = 0; y < r->height; y++)
        across(r, from + (size_t)y * (size_t)r->width * 3, r->rows + (size_t)y * stride);
    for (int y = 0; y < r->to_height; y++)
        down(r, y, to + (size_t)y * stride);
}

void tess__resizer_destroy(tess__resizer *r)
{
    if (!r)
        return;
    tess_ctx *ctx = r->ctx;
    tess__arena_free(&r->arena);
    tess__free(ctx, r);
}
