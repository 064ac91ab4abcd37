/* SPDX-License-Identifier: Apache-2.0 */
/* yuv.c - between RGB and YCbCr of 8 bits, in integers.
 *
 *   Y = Kr R + Kg G + Kb B,   Cb = (B - Y) / (2 (1 - Kb)),   Cr = (R - Y) / (2 (1 - Kr))
 *
 * BT.601: Kr .299, Kb .114; BT.709: Kr .2126, Kb .0722. The limited range puts Y on 16..235 and the
 * other two on 16..240 around 128; the full range uses all 256 values. The factors are rounded to
 * 2^-16 once, so that every machine makes the same bytes; a colour that goes there and back is off
 * by 2 at most.
 */
#include "media_internal.h"

enum { ONE = 1 << 16 };

static int fixed(double x)
{
    return (int)(x * ONE + (x < 0 ? -0.5 : 0.5));
}

int tess__yuv_is_709(int height)
{
    return height >= 720;
}

tess__yuv tess__yuv_of(int is_709, int full_range)
{
    const double kr = is_709 ? 0.2126 : 0.299, kb = is_709 ? 0.0722 : 0.114, kg = 1 - kr - kb;
    const double ys = full_range ? 1 : 219.0 / 255, cs = full_range ? 1 : 224.0 / 255;
    const double cu = cs / (2 * (1 - kb)), cv = cs / (2 * (1 - kr));
    return (tess__yuv){
        .y_zero = full_range ? 0 : 16,
        .y_scale = fixed(1 / ys),
        .r_v = fixed(1 / cv),
        .g_u = fixed(-kb / (kg * cu)),
        .g_v = fixed(-kr / (kg * cv)),
        .b_u = fixed(1 / cu),
        .y_r = fixed(kr * ys),
        .y_g = fixed(kg * ys),
        .y_b = fixed(kb * ys),
        .u_r = fixed(-kr * cu),
        .u_g = fixed(-kg * cu),
        .u_b = fixed((1 - kb) * cu),
        .v_r = fixed((1 - kr) * cv),
        .v_g = fixed(-kg * cv),
        .v_b = fixed(-kb * cv),
    };
}

/* x / 2^16 to the nearest, clamped to a byte. */
static uint8_t byte(int x)
{
    const int rounded = (x + ONE / 2) >> 16;
    return (uint8_t)(rounded < 0 ? 0 : rounded > 255 ? 255 : rounded);
}

void tess__yuv_to_rgb(const tess__yuv *m, int y, int u, int v, uint8_t rgb[3])
{
    const int luma = (y - m->y_zero) * m->y_scale;
    rgb[0] = byte(luma + (v - 128) * m->r_v);
    rgb[1] = byte(luma + (u - 128) * m->g_u + (v - 128) * m->g_v);
    rgb[2] = byte(luma + (u - 128) * m->b_u);
}

void tess__rgb_to_yuv(const tess__yuv *m, const int rgb[3], uint8_t out[3])
{
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    out[0] = byte(m->y_zero * ONE + r * m->y_r + g * m->y_g + b * m->y_b);
    out[1] = byte(128 * ONE + r * m->u_r + g * m->u_g + b * m->u_b);
    out[2] = byte(128 * ONE + r * m->v_r + g * m->v_g + b * m->v_b);
}
