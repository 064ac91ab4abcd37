/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.c - the way a camera was held: frames rotated by quarters of a circle and mirrored.
 *
 * A display matrix of FFmpeg maps the place (x, y) of a stored frame to (a x + c y, b x + d y) of
 * the shown one, with a, b, c, d at its places 0, 1, 3, 4. Of these the eight that keep pixels
 * whole are followed; an angle between counts as the nearest of them.
 */
#include "media_internal.h"

#include <stdlib.h>

tess__rotation tess__rotation_of(const int32_t matrix[9])
{
    const int64_t a = matrix[0], b = matrix[1], c = matrix[3], d = matrix[4];
    if (llabs(a) + llabs(d) >= llabs(b) + llabs(c))
        return (tess__rotation){.mirror_x = a < 0, .mirror_y = d < 0};
    return (tess__rotation){.transpose = 1, .mirror_x = c < 0, .mirror_y = b < 0};
}

int tess__rotation_is_none(tess__rotation t)
{
    return !t.transpose && !t.mirror_x && !t.mirror_y;
}

void tess__rotate_frame(tess__rotation t, int height, int width, const uint8_t *from, uint8_t *to)
{
    const int to_width = t.transpose ? height : width, to_height = t.transpose ? width : height;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, from += 3) {
            const int across = t.transpose ? y : x, down = t.transpose ? x : y;
            const size_t column = (size_t)(t.mirror_x ? to_width - 1 - across : across);
            const size_t row = (size_t)(t.mirror_y ? to_height - 1 - down : down);
            uint8_t *pixel = to + (row * (size_t)to_width + column) * 3;
            for (int c = 0; c < 3; c++)
                pixel[c] = from[c];
        }
}
