/* SPDX-License-Identifier: Apache-2.0 */
/* shape_tables.c - shapes, colours and directions that the data set `shapes` is made of, and the
 * words for them.
 *
 * A shape is a signed distance d(p), negative inside, in units of its radius; its coverage of a
 * pixel is clamp(1/2 - d r, 0, 1) with r in pixels, which is anti-aliasing to within the curvature
 * of the edge. Only + - * / and square roots are used, so that the bytes are the same everywhere.
 */
#include "shape_tables.h"

#include "base/base_internal.h"

#include <math.h>

static float box(float x, float y, float half_x, float half_y)
{
    const float dx = fabsf(x) - half_x, dy = fabsf(y) - half_y;
    const float ox = TESS_MAX(dx, 0), oy = TESS_MAX(dy, 0);
    const float inside = TESS_MAX(dx, dy);
    return sqrtf(ox * ox + oy * oy) + TESS_MIN(inside, 0);
}

static float disc(float x, float y)
{
    return sqrtf(x * x + y * y) - 1.0F;
}

static float square(float x, float y)
{
    return box(x, y, 0.86F, 0.86F);
}

static float triangle(float x, float y)
{
    const float slope = 0.5F * (1.7320508F * fabsf(x) - (y - 0.15F)); /* of both upper sides */
    return TESS_MAX(slope - 0.57F, y - 0.15F - 0.57F);
}

static float ring(float x, float y)
{
    return fabsf(sqrtf(x * x + y * y) - 0.70F) - 0.28F;
}

static float cross(float x, float y)
{
    return TESS_MIN(box(x, y, 0.95F, 0.32F), box(x, y, 0.32F, 0.95F));
}

static float letter_l(float x, float y)
{
    return TESS_MIN(box(x + 0.38F, y, 0.27F, 0.95F), box(x, y - 0.68F, 0.65F, 0.27F));
}

static float letter_t(float x, float y)
{
    return TESS_MIN(box(x, y + 0.66F, 0.85F, 0.28F), box(x, y, 0.28F, 0.94F));
}

static float letter_h(float x, float y)
{
    return TESS_MIN(box(fabsf(x) - 0.52F, y, 0.26F, 0.92F), box(x, y, 0.6F, 0.24F));
}

const tess__shape_kind tess__shape_kinds[TESS__SHAPES] = {
    {"disc", disc, 0.34F},         {"square", square, 0.68F},     {"triangle", triangle, 0.76F},
    {"ring", ring, 0.84F},         {"cross", cross, 0.90F},       {"letter L", letter_l, 0.94F},
    {"letter T", letter_t, 0.97F}, {"letter H", letter_h, 1.00F},
};

const tess__shape_colour tess__shape_colours[TESS__SHAPE_COLOURS] = {
    {"red", {230, 45, 45}},     {"green", {45, 190, 75}}, {"blue", {50, 95, 245}},
    {"yellow", {250, 215, 50}}, {"cyan", {45, 205, 220}}, {"purple", {170, 70, 225}},
    {"white", {238, 238, 238}},
};

const uint8_t tess__shape_background[3] = {17, 18, 28};

const tess__shape_direction tess__shape_directions[TESS__SHAPE_DIRECTIONS] = {
    {"left", -1, 0},
    {"right", 1, 0},
    {"up", 0, -1},
    {"down", 0, 1},
};

float tess__shape_coverage(int kind, float x, float y, float radius)
{
    const float cover = 0.5F - tess__shape_kinds[kind].distance(x / radius, y / radius) * radius;
    return TESS_MAX(0, TESS_MIN(cover, 1.0F));
}
