/* SPDX-License-Identifier: Apache-2.0 */
/* palette.c - up to 256 colours for a clip.
 *
 * A clip with at most 256 colours keeps them exactly. Otherwise its pixels are counted in bins of
 * 5 + 5 + 5 bits, and the bins are cut into boxes (median cut, Heckbert 1982): again and again the
 * box with the most pixels times its longest side is cut across that side where half of its pixels
 * lie on either side. A box becomes the mean of its pixels; a bin then goes to the nearest colour.
 */
#include "media_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t count, sum[3];
    uint32_t place; /* the bin: 5 bits each of red, green, blue */
} bin;

typedef struct {
    bin *bins;
    size_t n;
    uint64_t count;
    int axis, length; /* of the longest side, in bins */
} box;

static uint32_t bin_of(const uint8_t rgb[3])
{
    return (uint32_t)(rgb[0] >> 3) << 10 | (uint32_t)(rgb[1] >> 3) << 5 | rgb[2] >> 3;
}

static int side_of(uint32_t place, int axis)
{
    return place >> (10 - 5 * axis) & 31;
}

/* ---- few colours ----------------------------------------------------------------------------- */

static int find(const tess__palette *p, const uint8_t rgb[3])
{
    for (int i = 0; i < p->n; i++)
        if (memcmp(p->rgb[i], rgb, 3) == 0)
            return i;
    return -1;
}

/* Adds the colours of a frame; 0 once they are too many. Neighbours mostly share a colour. */
static int add_colours(tess__palette *p, const uint8_t *rgb, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++) {
        const uint8_t *c = rgb + i * 3;
        if ((i > 0 && memcmp(c, c - 3, 3) == 0) || find(p, c) >= 0)
            continue;
        if (p->n == TESS__PALETTE_MAX)
            return 0;
        memcpy(p->rgb[p->n++], c, 3);
    }
    return 1;
}

/* ---- many colours ---------------------------------------------------------------------------- */

static int by_side(const bin *a, const bin *b, int axis)
{
    const int left = side_of(a->place, axis), right = side_of(b->place, axis);
    if (left != right)
        return left < right ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static int by_red(const void *a, const void *b)
{
    return by_side(a, b, 0);
}

static int by_green(const void *a, const void *b)
{
    return by_side(a, b, 1);
}

static int by_blue(const void *a, const void *b)
{
    return by_side(a, b, 2);
}

static box measure(bin *bins, size_t n)
{
    box b = {.bins = bins, .n = n};
    for (int axis = 0; axis < 3; axis++) {
        int low = 31, high = 0;
        for (size_t i = 0; i < n; i++) {
            const int s = side_of(bins[i].place, axis);
            low = TESS_MIN(s, low);
            high = TESS_MAX(s, high);
        }
        if (high - low > b.length) {
            b.length = high - low;
            b.axis = axis;
        }
    }
    for (size_t i = 0; i < n; i++)
        b.count += bins[i].count;
    return b;
}

/* Cuts the box in two; the second part is returned. */
static box cut(box *b)
{
    static int (*const orders[])(const void *, const void *) = {by_red, by_green, by_blue};
    qsort(b->bins, b->n, sizeof *b->bins, orders[b->axis]);
    uint64_t before = 0;
    size_t at = 0;
    while (at + 1 < b->n && (at == 0 || before + b->bins[at].count / 2 < b->count / 2))
        before += b->bins[at++].count;
    const box second = measure(b->bins + at, b->n - at);
    *b = measure(b->bins, at);
    return second;
}

static void cut_boxes(bin *bins, size_t n, tess__palette *p)
{
    box boxes[TESS__PALETTE_MAX];
    int made = 1;
    boxes[0] = measure(bins, n);
    while (made < TESS__PALETTE_MAX) {
        int best = 0;
        for (int i = 1; i < made; i++)
            if (boxes[i].count * (uint64_t)boxes[i].length >
                boxes[best].count * (uint64_t)boxes[best].length)
                best = i;
        if (boxes[best].n < 2)
            break;
        boxes[made++] = cut(&boxes[best]);
    }
    for (int i = 0; i < made; i++) {
        uint64_t sum[3] = {0};
        for (size_t k = 0; k < boxes[i].n; k++)
            for (int c = 0; c < 3; c++)
                sum[c] += boxes[i].bins[k].sum[c];
        for (int c = 0; c < 3; c++)
            p->rgb[i][c] = (uint8_t)((sum[c] + boxes[i].count / 2) / boxes[i].count);
    }
    p->n = made;
}

static void find_nearest(tess__palette *p)
{
    for (uint32_t place = 0; place < TESS__PALETTE_BINS; place++) {
        int best = 0, least = INT32_MAX;
        for (int i = 0; i < p->n; i++) {
            int away = 0;
            for (int c = 0; c < 3; c++) {
                const int d = side_of(place, c) * 8 + 4 - p->rgb[i][c];
                away += d * d;
            }
            if (away < least) {
                least = away;
                best = i;
            }
        }
        p->nearest[place] = (uint8_t)best;
    }
}

static void count_pixels(const tess__montage *m, uint8_t *frame, bin *bins)
{
    const size_t pixels = (size_t)m->height * (size_t)m->width;
    for (int t = 0; t < m->frames; t++) {
        tess__montage_frame(m, t, frame);
        for (size_t i = 0; i < pixels; i++) {
            bin *b = &bins[bin_of(frame + i * 3)];
            b->count++;
            for (int c = 0; c < 3; c++)
                b->sum[c] += frame[i * 3 + (size_t)c];
        }
    }
}

tess_status tess__palette_make(tess_ctx *ctx, const tess__montage *m, uint8_t *frame,
                               tess__palette *p)
{
    const size_t pixels = (size_t)m->height * (size_t)m->width;
    p->n = 0;
    p->exact = 1;
    for (int t = 0; t < m->frames && p->exact; t++) {
        tess__montage_frame(m, t, frame);
        p->exact = add_colours(p, frame, pixels);
    }
    if (p->exact)
        return TESS_OK;
    bin *bins = TESS_ALLOC_ZERO(ctx, TESS__PALETTE_BINS * sizeof *bins);
    count_pixels(m, frame, bins);
    size_t used = 0;
    for (uint32_t i = 0; i < TESS__PALETTE_BINS; i++)
        if (bins[i].count) {
            bins[used] = bins[i];
            bins[used++].place = i;
        }
    cut_boxes(bins, used, p);
    find_nearest(p);
    tess__free(ctx, bins);
    return TESS_OK;
}

int tess__palette_index(const tess__palette *p, const uint8_t rgb[3])
{
    return p->exact ? find(p, rgb) : p->nearest[bin_of(rgb)];
}
