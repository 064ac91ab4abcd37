/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - pixels as channels, and back.
 *
 * With p = pack, the pixel (y p + i, x p + j) of colour c becomes channel (c p + i) p + j of place
 * (y, x), the order of PyTorch's pixel_unshuffle. A byte b becomes b / 127.5 - 1, from -1 to 1.
 *
 *   rgb:  (frames, height p, width p, 3)   x: (3 p^2, frames, height, width)
 */
#include "data_internal.h"

#include <math.h>

/* Elements of x from one channel to the next. */
static size_t plane(const tess_data_info *info)
{
    return (size_t)info->frames * (size_t)info->height * (size_t)info->width;
}

void tess__pack_row(const tess_data_info *info, int t, int y, const uint8_t *rgb, float *x)
{
    const size_t p = (size_t)info->pack, width = (size_t)info->width, step = plane(info);
    const size_t i = (size_t)y % p;
    float *const row =
        x + ((size_t)t * (size_t)info->height + (size_t)y / p) * width + i * p * step;
    for (size_t c = 0; c < 3; c++)
        for (size_t j = 0; j < p; j++) {
            float *const to = row + (c * p * p + j) * step;
            for (size_t k = 0; k < width; k++)
                to[k] = (float)rgb[(k * p + j) * 3 + c] / 127.5F - 1.0F;
        }
}

static uint8_t to_byte(float value)
{
    const float scaled = (value + 1.0F) * 127.5F;
    return scaled >= 255.0F ? 255 : scaled > 0.0F ? (uint8_t)lrintf(scaled) : 0; /* NaN: 0 */
}

static void unpack_row(const tess_data_info *info, int t, int y, const float *x, uint8_t *rgb)
{
    const size_t p = (size_t)info->pack, width = (size_t)info->width, step = plane(info);
    const size_t i = (size_t)y % p;
    const float *const row =
        x + ((size_t)t * (size_t)info->height + (size_t)y / p) * width + i * p * step;
    for (size_t c = 0; c < 3; c++)
        for (size_t j = 0; j < p; j++) {
            const float *const from = row + (c * p * p + j) * step;
            for (size_t k = 0; k < width; k++)
                rgb[(k * p + j) * 3 + c] = to_byte(from[k]);
        }
}

tess_status tess_data_pixels(const tess_data_info *info, const float *x, uint8_t *pixels)
{
    TESS_REQUIRE(info, x, pixels);
    const int p = info->pack;
    TESS_TRY(tess__check_range(__func__, "pack", p, 1, TESS__PACK_MAX));
    if (info->frames < 1 || info->height < 1 || info->width < 1)
        return tess__invalid(__func__,
                             "the clip is %d x %d x %d, sides must be 1 "
                             "or more",
                             info->frames, info->height, info->width);
    if (info->channels != 3 * p * p)
        return tess__invalid(__func__, "channels is %d, pixels packed by %d have %d",
                             info->channels, p, 3 * p * p);
    const int rows = info->height * p;
    const size_t bytes = (size_t)info->width * (size_t)p * 3;
    for (int t = 0; t < info->frames; t++)
        for (int y = 0; y < rows; y++)
            unpack_row(info, t, y, x, pixels + ((size_t)t * (size_t)rows + (size_t)y) * bytes);
    return TESS_OK;
}
