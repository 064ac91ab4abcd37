/* SPDX-License-Identifier: Apache-2.0 */
/* data_shapes.c - coloured objects that move and bounce, with the sentence that describes them.
 *
 * A clip shows one object, seldom two, on a plain dark background: "a red disc moving left". What
 * makes the sentence learnable: objects are large (radius .17 to .25 of the shorter side), travel
 * .3 to .5 of it in the whole clip, and start where the wall ahead is at least four fifths of the
 * way off, so that the word of direction is true for most of the clip and a bounce comes, if it
 * comes, at the end.
 *
 * Shapes, colours and directions are those of shape_tables.c.
 *
 * Numbers of a sample's stream: 0 decides how many, then PER_OBJECT for each object.
 */
#include "data_internal.h"
#include "shape_tables.h"

#include <string.h>

enum { OBJECTS_MAX = 2, PER_OBJECT = 8, SIDE_MIN = 8 };

typedef struct {
    int kind, colour, direction;
    float radius;       /* pixels, as all lengths here */
    float x, y, vx, vy; /* centre in frame 0, and its way per frame */
} object;

typedef struct {
    int n;
    object objects[OBJECTS_MAX]; /* the last is in front */
} scene;

/* ---- what happens in a clip ------------------------------------------------------------------ */

static float between(float low, float high, float u)
{
    return low + (high - low) * u;
}

/* Where an object starts on the axis it moves along: `ahead` pixels before the wall in front. */
static float start(float u, float side, float radius, float travel, float sign)
{
    const float free = side - 2 * radius;
    const float ahead = between(TESS_MIN(0.8F * travel, free), free, u);
    return sign > 0 ? side - radius - ahead : radius + ahead;
}

static object make_object(const float u[PER_OBJECT], int height, int width, int frames, float most)
{
    object o = {0};
    while (u[0] >= tess__shape_kinds[o.kind].until)
        o.kind++;
    o.colour = (int)(u[1] * TESS__SHAPE_COLOURS);
    o.direction = (int)(u[2] * TESS__SHAPE_DIRECTIONS);
    const float unit = (float)TESS_MIN(height, width);
    o.radius = unit * between(0.17F, most, u[3]);
    const float travel = unit * between(0.3F, 0.5F, u[4]);
    const float dx = tess__shape_directions[o.direction].dx,
                dy = tess__shape_directions[o.direction].dy;
    const float step = frames > 1 ? travel / (float)(frames - 1) : 0;
    o.vx = dx * step;
    o.vy = dy * step;
    o.x = dx != 0 ? start(u[5], (float)width, o.radius, travel, dx)
                  : between(o.radius, (float)width - o.radius, u[5]);
    o.y = dy != 0 ? start(u[6], (float)height, o.radius, travel, dy)
                  : between(o.radius, (float)height - o.radius, u[6]);
    return o;
}

static void make_scene(const tess_data *data, uint64_t stream, scene *s)
{
    float u[1 + OBJECTS_MAX * PER_OBJECT];
    (void)tess_random_uniform(data->seed, stream, 0, u, sizeof u / sizeof *u);
    const int pack = data->info.pack;
    s->n = u[0] < 0.88F ? 1 : 2;
    for (int i = 0; i < s->n; i++)
        s->objects[i] =
            make_object(u + 1 + i * PER_OBJECT, data->info.height * pack, data->info.width * pack,
                        data->info.frames, s->n == 1 ? 0.25F : 0.20F);
    if (s->n == 2 && s->objects[1].colour == s->objects[0].colour)
        s->objects[1].colour = (s->objects[1].colour + 1) % TESS__SHAPE_COLOURS;
}

static void describe(const scene *s, tess__sample_meta *meta)
{
    int used = 0;
    for (int i = 0; i < s->n; i++) {
        const object *o = &s->objects[i];
        used +=
            snprintf(meta->words + used, sizeof meta->words - (size_t)used, "%sa %s %s moving %s",
                     i ? " and " : "", tess__shape_colours[o->colour].name,
                     tess__shape_kinds[o->kind].name, tess__shape_directions[o->direction].name);
    }
    meta->prompt = meta->words;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* A centre that walked past a wall comes back by as much. One bounce is enough: it goes at most
 * a fifth of .5 past the wall, and the room is at least 1 - 2 * .25 wide. */
static float bounce(float at, float side, float radius)
{
    if (at < radius)
        return 2 * radius - at;
    return at > side - radius ? 2 * (side - radius) - at : at;
}

static void draw_row(const scene *s, int t, int y, int height, int width, uint8_t *rgb)
{
    for (int x = 0; x < width; x++)
        memcpy(rgb + (size_t)x * 3, tess__shape_background, 3);
    for (int i = 0; i < s->n; i++) {
        const object *o = &s->objects[i];
        const float cx = bounce(o->x + o->vx * (float)t, (float)width, o->radius);
        const float cy = bounce(o->y + o->vy * (float)t, (float)height, o->radius);
        for (int x = 0; x < width; x++) {
            const float a = tess__shape_coverage(o->kind, (float)x + 0.5F - cx,
                                                 (float)y + 0.5F - cy, o->radius);
            if (a <= 0)
                continue;
            for (int c = 0; c < 3; c++) {
                uint8_t *p = rgb + (size_t)x * 3 + c;
                *p = (uint8_t)((float)*p * (1 - a) +
                               (float)tess__shape_colours[o->colour].rgb[c] * a + 0.5F);
            }
        }
    }
}

static tess_status shapes_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                 tess__sample_meta *meta)
{
    scene s;
    make_scene(data, tess__data_stream(split, index), &s);
    describe(&s, meta);
    if (!x)
        return TESS_OK;
    const int pack = data->info.pack, height = data->info.height * pack,
              width = data->info.width * pack;
    uint8_t rgb[TESS__SIDE_MAX * 3];
    for (int t = 0; t < data->info.frames; t++)
        for (int y = 0; y < height; y++) {
            draw_row(&s, t, y, height, width, rgb);
            tess__pack_row(&data->info, t, y, rgb, x);
        }
    return TESS_OK;
}

static tess_status shapes_open(tess_data *data, const tess_data_opts *opts)
{
    const int pack = data->info.pack;
    data->seed = tess__data_seed(opts->seed, "shapes");
    if (data->info.height * pack < SIDE_MIN || data->info.width * pack < SIDE_MIN)
        return tess__fail(TESS_EINVAL,
                          "tess_data_open: a frame is %d x %d, shapes need sides of %d or more",
                          data->info.height * pack, data->info.width * pack, SIDE_MIN);
    return TESS_OK;
}

const tess__data_source tess__data_shapes = {"shapes", shapes_open, shapes_sample, NULL};
