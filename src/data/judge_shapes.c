/* SPDX-License-Identifier: Apache-2.0 */
/* judge_shapes.c - does a clip show what its prompt says?
 *
 * Every pixel p is explained as background b plus coverage a of one colour c: the pair with the
 * smallest |p - b - a (c - b)|, 0 <= a <= 1. From there, for each object of the prompt:
 *
 *   colour      right if its colour is among the n colours of largest coverage, n objects
 *   direction   slope of the centroid over the first four fifths of the frames (a bounce comes
 *               later); none if the way is below a twentieth of the shorter side
 *   shape       the template with the largest sum over frames of sum min(a, t) / sum max(a, t).
 *               A template t has the mass and the centroid of a: with its area A r^2 and its
 *               centroid (u r, v r), r = sqrt(mass / A) and its centre is the centroid - (u, v) r
 *
 * Of a single object shape and direction are those of the colour that covers most, so that a wrong
 * colour is one mistake and not three; of two objects each is found by its own colour.
 * A pixel further than STRAY from every mixture of the background and a colour of the prompt is
 * stray. Cost: 7 projections and 8 templates a pixel.
 */
#include "data_internal.h"
#include "shape_tables.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { OBJECTS_MAX = 2, WORD_BYTES = 32, STRAY = 48, GRID = 128 };
static const double COVERED = 0.2;    /* coverage below which a pixel is background */
static const double SMALLEST = 0.002; /* of a frame, below which there is no object in it */

typedef struct {
    int colour, kind, direction; /* -1: not said, or not found */
} object;

/* ---- prompt ---------------------------------------------------------------------------------- */

/* The next word in lower case; returns what follows it. */
static const char *next_word(const char *s, char word[WORD_BYTES])
{
    size_t n = 0;
    while (*s && !isalnum((unsigned char)*s))
        s++;
    for (; isalnum((unsigned char)*s); s++)
        if (n + 1 < WORD_BYTES)
            word[n++] = (char)tolower((unsigned char)*s);
    word[n] = 0;
    return s;
}

/* A shape by its word; "letter l" by its last one. */
static int is_kind(int kind, const char *word)
{
    const char *name = tess__shape_kinds[kind].name, *space = strchr(name, ' ');
    return space ? tolower((unsigned char)space[1]) == word[0] && !word[1]
                 : strcmp(name, word) == 0;
}

static void take_word(const char *word, object *o)
{
    for (int i = 0; i < TESS__SHAPE_COLOURS; i++)
        if (strcmp(tess__shape_colours[i].name, word) == 0)
            o->colour = i;
    for (int i = 0; i < TESS__SHAPES; i++)
        if (is_kind(i, word))
            o->kind = i;
    for (int i = 0; i < TESS__SHAPE_DIRECTIONS; i++)
        if (strcmp(tess__shape_directions[i].name, word) == 0)
            o->direction = i;
}

static tess_status parse(const char *prompt, object objects[OBJECTS_MAX], int *n)
{
    static const object nothing = {-1, -1, -1};
    char word[WORD_BYTES];
    int said = 0;
    objects[0] = nothing;
    *n = 1;
    for (const char *s = next_word(prompt, word); word[0]; s = next_word(s, word)) {
        if (strcmp(word, "and") != 0) {
            take_word(word, &objects[*n - 1]);
            continue;
        }
        if (*n == OBJECTS_MAX)
            return tess__invalid("tess_shapes_judge", "prompt \"%.80s\" has more than %d objects",
                                 prompt, OBJECTS_MAX);
        objects[(*n)++] = nothing;
    }
    for (int i = 0; i < *n; i++)
        said |= objects[i].colour >= 0 || objects[i].kind >= 0 || objects[i].direction >= 0;
    if (!said)
        return tess__invalid("tess_shapes_judge",
                             "prompt \"%.80s\" names no colour, shape or direction of shapes",
                             prompt);
    if (*n == 2 &&
        (objects[0].colour < 0 || objects[1].colour < 0 || objects[0].colour == objects[1].colour))
        return tess__invalid("tess_shapes_judge",
                             "prompt \"%.80s\" must give two objects two colours", prompt);
    return TESS_OK;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* Distance of a pixel from the mixtures of the background and a colour, and the coverage. */
static double mixture(const uint8_t *p, int colour, double *coverage)
{
    double dot = 0, norm = 0, d[3], c[3];
    for (int i = 0; i < 3; i++) {
        d[i] = (double)p[i] - tess__shape_background[i];
        c[i] = (double)tess__shape_colours[colour].rgb[i] - tess__shape_background[i];
        dot += d[i] * c[i];
        norm += c[i] * c[i];
    }
    const double a = TESS_MAX(0, TESS_MIN(dot / norm, 1));
    double rest = 0;
    for (int i = 0; i < 3; i++)
        rest += (d[i] - a * c[i]) * (d[i] - a * c[i]);
    *coverage = a;
    return sqrt(rest);
}

typedef struct {
    int64_t pixels; /* of a frame */
    uint8_t *colour;
    float *coverage; /* of that colour, 0 for background: (frames, pixels) as above */
    double mass[TESS__SHAPE_COLOURS];
} explained;

static void explain(const tess_clip *clip, explained *e)
{
    for (int64_t i = 0; i < e->pixels * clip->frames; i++) {
        double least = INFINITY, a;
        for (int c = 0; c < TESS__SHAPE_COLOURS; c++) {
            const double distance = mixture(clip->pixels + 3 * i, c, &a);
            if (distance < least) {
                least = distance;
                e->colour[i] = (uint8_t)c;
                e->coverage[i] = a < COVERED ? 0 : (float)a;
            }
        }
        e->mass[e->colour[i]] += (double)e->coverage[i];
    }
}

static double stray(const tess_clip *clip, int64_t pixels, const object *objects, int n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < pixels * clip->frames; i++) {
        double least = INFINITY, a;
        for (int o = 0; o < n; o++) {
            const double distance = mixture(clip->pixels + 3 * i, objects[o].colour, &a);
            least = TESS_MIN(least, distance);
        }
        count += least > STRAY;
    }
    return (double)count / (double)(pixels * clip->frames);
}

/* ---- an object ------------------------------------------------------------------------------- */

typedef struct {
    double mass, x, y; /* pixels; centroid */
} blob;

static blob measure(const explained *e, int width, int t, int colour)
{
    blob b = {0};
    for (int64_t i = 0; i < e->pixels; i++) {
        const int64_t at = t * e->pixels + i;
        if (e->colour[at] != colour)
            continue;
        const double a = (double)e->coverage[at];
        const int64_t row = i / width, column = i % width;
        b.mass += a;
        b.x += a * ((double)column + 0.5);
        b.y += a * ((double)row + 0.5);
    }
    if (b.mass < SMALLEST * (double)e->pixels)
        return (blob){0};
    b.x /= b.mass;
    b.y /= b.mass;
    return b;
}

/* Slopes of least squares over the frames that show the object. */
static int direction_of(const tess_clip *clip, const explained *e, int colour)
{
    const int last = TESS_MAX(2, (4 * clip->frames + 4) / 5);
    double n = 0, st = 0, stt = 0, sx = 0, sy = 0, stx = 0, sty = 0;
    for (int t = 0; t < TESS_MIN(last, clip->frames); t++) {
        const blob b = measure(e, clip->width, t, colour);
        if (b.mass == 0)
            continue;
        n += 1, st += t, stt += (double)t * t;
        sx += b.x, sy += b.y, stx += t * b.x, sty += t * b.y;
    }
    const double spread = n * stt - st * st;
    if (spread <= 0)
        return -1;
    const double way = clip->frames - 1, dx = way * (n * stx - st * sx) / spread,
                 dy = way * (n * sty - st * sy) / spread;
    if (TESS_MAX(fabs(dx), fabs(dy)) < 0.05 * TESS_MIN(clip->height, clip->width))
        return -1;
    for (int i = 0; i < TESS__SHAPE_DIRECTIONS; i++) {
        const double along =
            dx * (double)tess__shape_directions[i].dx + dy * (double)tess__shape_directions[i].dy;
        if (along >= TESS_MAX(fabs(dx), fabs(dy)))
            return i;
    }
    return -1;
}

/* Area and centroid of a shape of radius 1, from a grid over [-1.25, 1.25]^2. */
static blob template_of(int kind)
{
    blob b = {0};
    for (int i = 0; i < GRID * GRID; i++) {
        const int row = i / GRID, column = i % GRID;
        const float x = 2.5F * ((float)column + 0.5F) / GRID - 1.25F;
        const float y = 2.5F * ((float)row + 0.5F) / GRID - 1.25F;
        if (tess__shape_kinds[kind].distance(x, y) < 0)
            b.mass += 1, b.x += (double)x, b.y += (double)y;
    }
    return (blob){b.mass * 6.25 / (GRID * GRID), b.x / b.mass, b.y / b.mass};
}

static double overlap(const explained *e, int width, int t, int colour, int kind, blob found,
                      blob unit)
{
    const double r = sqrt(found.mass / unit.mass);
    const float cx = (float)(found.x - unit.x * r), cy = (float)(found.y - unit.y * r);
    double both = 0, either = 0;
    for (int64_t i = 0; i < e->pixels; i++) {
        const int64_t at = t * e->pixels + i;
        const float a = e->colour[at] == colour ? e->coverage[at] : 0;
        const int64_t row = i / width, column = i % width;
        const float x = (float)column + 0.5F - cx, y = (float)row + 0.5F - cy;
        const float cover = tess__shape_coverage(kind, x, y, (float)r);
        both += (double)TESS_MIN(a, cover);
        either += (double)TESS_MAX(a, cover);
    }
    return either > 0 ? both / either : 0;
}

static int kind_of(const tess_clip *clip, const explained *e, int colour)
{
    double best = 0;
    int kind = -1;
    for (int k = 0; k < TESS__SHAPES; k++) {
        const blob unit = template_of(k);
        double sum = 0;
        for (int t = 0; t < clip->frames; t++) {
            const blob found = measure(e, clip->width, t, colour);
            if (found.mass > 0)
                sum += overlap(e, clip->width, t, colour, k, found, unit);
        }
        if (sum > best) {
            best = sum;
            kind = k;
        }
    }
    return kind;
}

/* ---- score ----------------------------------------------------------------------------------- */

/* The colour of rank 0 or 1 by coverage; -1: it covers too little to be an object. */
static int ranked(const tess_clip *clip, const explained *e, int rank)
{
    int first = -1, second = -1;
    for (int c = 0; c < TESS__SHAPE_COLOURS; c++)
        if (first < 0 || e->mass[c] > e->mass[first]) {
            second = first;
            first = c;
        } else if (second < 0 || e->mass[c] > e->mass[second])
            second = c;
    const int found = rank == 0 ? first : second;
    return e->mass[found] < SMALLEST * (double)e->pixels * clip->frames ? -1 : found;
}

static object see(const tess_clip *clip, const explained *e, int colour)
{
    if (colour < 0)
        return (object){-1, -1, -1};
    return (object){colour, kind_of(clip, e, colour), direction_of(clip, e, colour)};
}

static void count(tess_word_count *words, int asked, int found)
{
    words->asked += asked >= 0;
    words->right += asked >= 0 && asked == found;
}

static void describe(const object *found, tess_shapes_score *score)
{
    char *text = score->found;
    const size_t bytes = sizeof score->found, used = strlen(text);
    const char *joined = used ? " and " : "";
    if (found->colour < 0) {
        snprintf(text + used, bytes - used, "%snothing", joined);
        return;
    }
    snprintf(text + used, bytes - used, "%sa %s %s %s%s", joined,
             tess__shape_colours[found->colour].name,
             found->kind < 0 ? "object" : tess__shape_kinds[found->kind].name,
             found->direction < 0 ? "at rest" : "moving ",
             found->direction < 0 ? "" : tess__shape_directions[found->direction].name);
}

static void judge(const tess_clip *clip, const explained *e, object *objects, int n,
                  tess_shapes_score *score)
{
    const int first = ranked(clip, e, 0), second = ranked(clip, e, 1);
    for (int i = 0; i < n; i++) {
        const int own = objects[i].colour;
        const int colour = n == 1 ? first : own == first || own == second ? own : -1;
        const object found = see(clip, e, colour);
        count(&score->colour, own, found.colour);
        count(&score->shape, objects[i].kind, found.kind);
        count(&score->direction, objects[i].direction, found.direction);
        describe(&found, score);
        if (own < 0)
            objects[i].colour = TESS_MAX(first, 0); /* any colour is as the prompt says */
    }
    score->stray = stray(clip, e->pixels, objects, n);
}

static tess_status check_clip(const tess_clip *clip)
{
    TESS_TRY(tess__check_range("tess_shapes_judge", "frames", clip->frames, 1, TESS__FRAMES_MAX));
    TESS_TRY(tess__check_range("tess_shapes_judge", "height", clip->height, 1, TESS__SIDE_MAX));
    return tess__check_range("tess_shapes_judge", "width", clip->width, 1, TESS__SIDE_MAX);
}

tess_status tess_shapes_judge(tess_ctx *ctx, const tess_clip *clip, const char *prompt,
                              tess_shapes_score *score)
{
    TESS_REQUIRE(ctx, clip, prompt, score);
    TESS_REQUIRE(clip->pixels);
    TESS_TRY(check_clip(clip));
    object objects[OBJECTS_MAX];
    int n;
    TESS_TRY(parse(prompt, objects, &n));
    tess__arena arena = {.ctx = ctx};
    explained e = {.pixels = (int64_t)clip->height * clip->width};
    const size_t all = (size_t)e.pixels * (size_t)clip->frames;
    TESS_TRY(
        tess__arena_reserve(&arena, tess__bytes(all, sizeof *e.coverage + 1) + 2 * TESS_ALIGN));
    e.coverage = tess__arena_take(&arena, all * sizeof *e.coverage);
    e.colour = tess__arena_take(&arena, all);
    *score = (tess_shapes_score){0};
    explain(clip, &e);
    judge(clip, &e, objects, n, score);
    tess__arena_free(&arena);
    return TESS_OK;
}
