/* SPDX-License-Identifier: Apache-2.0 */
/* data_sizes.c - the sizes of data of several sizes: their text, and which one a clip gets.
 *
 *   8x32x32:4,16x64x64      frames x height x width in pixels, and how often among drawn clips
 *
 * A clip in a file gets the size that shows most of its own pixels: of the sizes that are not
 * longer than the clip and that it covers without being enlarged, the largest frames x height x
 * width x min(r, 1 / r), where r is the ratio of both shapes (width / height) and the minimum the
 * share of a frame that is left when it is cut. A clip that is smaller than every size gets the one
 * that enlarges it least. The first of equals.
 */
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>

/* A number of 1..most at *text, behind which *text then is; 0: there is none. */
static int64_t take_number(const char **text, int64_t most)
{
    char *end;
    const long long n = **text >= '0' && **text <= '9' ? strtoll(*text, &end, 10) : 0;
    if (n < 1 || n > most)
        return 0;
    *text = end;
    return n;
}

static int take_cross(const char **text)
{
    const int is = **text == 'x';
    *text += is;
    return is;
}

/* One size; *text is behind it, at its comma or end. */
static int take_size(const char **text, tess__data_size *size)
{
    const char *at = *text;
    *size = (tess__data_size){.weight = 1};
    size->frames = (int)take_number(&at, TESS__FRAMES_MAX);
    if (!size->frames || !take_cross(&at))
        return 0;
    size->height = (int)take_number(&at, TESS__SIDE_MAX);
    if (!size->height || !take_cross(&at))
        return 0;
    size->width = (int)take_number(&at, TESS__SIDE_MAX);
    if (*at == ':') {
        at++;
        size->weight = take_number(&at, 1000000);
        size->weighted = 1;
    }
    *text = at;
    return size->width && size->weight && (*at == ',' || *at == '\0');
}

static int same_size(const tess__data_size *a, const tess__data_size *b)
{
    return a->frames == b->frames && a->height == b->height && a->width == b->width;
}

tess_status tess__data_sizes(const char *text, tess__data_size *sizes, int *n)
{
    *n = 0;
    for (const char *at = text;; at++) {
        if (*n == TESS__SIZES_MAX)
            return tess__fail(TESS_EINVAL, "tess_data_open: sizes has more than %d sizes",
                              TESS__SIZES_MAX);
        const char *begin = at;
        if (!take_size(&at, &sizes[*n])) {
            const int length = (int)TESS_MIN(strcspn(begin, ","), 60);
            return tess__fail(TESS_EINVAL,
                              "tess_data_open: sizes has \"%.*s\", must be FRAMESxHEIGHTxWIDTH in "
                              "pixels, such as 8x32x32, or with a weight, 8x32x32:4",
                              length, begin);
        }
        for (int i = 0; i < *n; i++)
            if (same_size(&sizes[i], &sizes[*n]))
                return tess__fail(TESS_EINVAL, "tess_data_open: sizes has %dx%dx%d twice",
                                  sizes[i].frames, sizes[i].height, sizes[i].width);
        ++*n;
        if (*at == '\0')
            return TESS_OK;
    }
}

/* How much a frame of height x width would be enlarged to cover the size; at most 1: not at all. */
static double enlarged(const tess__data_size *s, int height, int width)
{
    const double down = (double)s->height / height, across = (double)s->width / width;
    return TESS_MAX(down, across);
}

/* Pixels of the clip that a sample of the size shows, where it is not enlarged. */
static double shown(const tess__data_size *s, int height, int width)
{
    const double r = (double)width / height * s->height / s->width;
    return (double)s->frames * s->height * s->width * TESS_MIN(r, 1.0 / r);
}

int tess__data_size_of(const tess__data_size *sizes, int n, int frames, int height, int width)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (sizes[i].frames > frames)
            continue;
        const double grows = TESS_MAX(enlarged(&sizes[i], height, width), 1.0);
        const double least =
            best < 0 ? grows : TESS_MAX(enlarged(&sizes[best], height, width), 1.0);
        const int more =
            best < 0 || shown(&sizes[i], height, width) > shown(&sizes[best], height, width);
        if (best < 0 || grows < least || (grows == least && more))
            best = i;
    }
    return best;
}
