/* SPDX-License-Identifier: Apache-2.0 */
/* mix_read.c - clips from a CSV file, a line for each kind of clip (mix.h has the columns). */
#include "mix_internal.h"

#include "file/csv.h"
#include "file/file_internal.h"

#include <string.h>

enum { QUARTILES = 4, PATH = 4096 };

enum {
    TOKENS,
    FRAMES,
    HEIGHT,
    WIDTH,
    COUNT,
    NOISE,
    DENSITY,
    DENSITY_1,
    PROFILE = DENSITY_1 + QUARTILES,
    COLUMNS
};

static const char *const NAMES[COLUMNS] = {"tokens",    "frames",    "height",    "width",
                                           "count",     "noise",     "density",   "density_1",
                                           "density_2", "density_3", "density_4", "profile"};

/* One line of the file. */
typedef struct {
    tess_mix_clip clip;
    int64_t count;
} kind;

typedef struct {
    tess_ctx *ctx;
    tess__csv csv;
    tess__arena arena; /* densities of heads */
    int column[COLUMNS], n_columns;
    kind *kinds;
    int64_t n, room, clips;
    char profile_name[PATH]; /* of the profile that is open, or "" */
    tess_profile *profile;
} reader;

static tess_status fail_line(const reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static tess_status fail_line(const reader *r, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tess__fail(TESS_EFORMAT, "%s: line %lld: %s", r->csv.name, (long long)r->csv.line, text);
}

static int has(const reader *r, int column)
{
    return r->column[column] >= 0;
}

static tess_status read_header(reader *r)
{
    char quoted[TESS_CSV_QUOTE];
    if (!tess__csv_record(&r->csv))
        return tess__fail(TESS_EFORMAT, "%s: line 1: no names of columns", r->csv.name);
    for (int c = 0; c < COLUMNS; c++)
        r->column[c] = -1;
    do {
        tess__csv_field field;
        TESS_TRY(tess__csv_next(&r->csv, &field));
        for (int c = 0; c < COLUMNS; c++) {
            if (!tess__csv_is(&field, NAMES[c]))
                continue;
            if (has(r, c))
                return fail_line(r, "two columns are called \"%s\"",
                                 tess__csv_quote(&field, quoted));
            r->column[c] = r->n_columns;
        }
        r->n_columns++;
    } while (!r->csv.end_of_record);
    const int sizes = has(r, FRAMES) + has(r, HEIGHT) + has(r, WIDTH);
    if (has(r, TOKENS) ? sizes != 0 : sizes != 3)
        return fail_line(r, "the columns must have tokens, or frames, height and width");
    int quartiles = 0;
    for (int q = 0; q < QUARTILES; q++)
        quartiles += has(r, DENSITY_1 + q);
    if (quartiles != 0 && quartiles != QUARTILES)
        return fail_line(r, "%d of the columns density_1 to density_4, must be all or none",
                         quartiles);
    if (quartiles && !has(r, NOISE))
        return fail_line(r, "density_1 to density_4 need the column noise");
    return TESS_OK;
}

static tess_status whole_number(const reader *r, const tess__csv_field *fields, int c, int64_t low,
                                int64_t high, int64_t *value)
{
    char quoted[TESS_CSV_QUOTE];
    if (!tess__csv_integer(&fields[c], value) || *value < low || *value > high)
        return fail_line(r, "%s is \"%s\", must be an integer %lld..%lld", NAMES[c],
                         tess__csv_quote(&fields[c], quoted), (long long)low, (long long)high);
    return TESS_OK;
}

static tess_status fraction(const reader *r, const tess__csv_field *fields, int c, double *value)
{
    char quoted[TESS_CSV_QUOTE];
    if (!tess__csv_number(&fields[c], value) || !(*value >= 0.0 && *value <= 1.0))
        return fail_line(r, "%s is \"%s\", must be a number 0..1", NAMES[c],
                         tess__csv_quote(&fields[c], quoted));
    return TESS_OK;
}

static tess_status read_tokens(const reader *r, const tess__csv_field *fields, int64_t *tokens)
{
    int64_t frames, height, width;
    if (has(r, TOKENS))
        return whole_number(r, fields, TOKENS, 1, INT32_MAX, tokens);
    TESS_TRY(whole_number(r, fields, FRAMES, 1, 1 << 20, &frames));
    TESS_TRY(whole_number(r, fields, HEIGHT, 16, 1 << 16, &height));
    TESS_TRY(whole_number(r, fields, WIDTH, 16, 1 << 16, &width));
    *tokens = (1 + (frames - 1) / 4) * (height / 16) * (width / 16);
    if (*tokens > INT32_MAX)
        return fail_line(r, "a clip has %lld tokens, must be 1..2147483647", (long long)*tokens);
    return TESS_OK;
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* Opens the profile of a field, beside the file, unless it is open already. */
static tess_status open_profile(reader *r, const tess__csv_field *field)
{
    const char *slash = strrchr(r->csv.name, '/');
    const size_t folder =
        field->length && field->text[0] != '/' && slash ? (size_t)(slash - r->csv.name) + 1 : 0;
    char path[PATH];
    if (folder + field->length >= sizeof path)
        return fail_line(r, "profile is a path of %zu characters, must be below %d",
                         folder + field->length, (int)PATH);
    memcpy(path, r->csv.name, folder);
    memcpy(path + folder, field->text, field->length);
    path[folder + field->length] = '\0';
    if (strcmp(path, r->profile_name) == 0)
        return TESS_OK;
    tess_profile_close(r->profile);
    r->profile = NULL;
    r->profile_name[0] = '\0';
    TESS_TRY(tess_profile_open(r->ctx, path, NULL, &r->profile));
    memcpy(r->profile_name, path, folder + field->length + 1);
    return TESS_OK;
}

/* Densities of heads: means over layers, in the step of a noise level, or over all without one. */
static tess_status use_profile(reader *r, double noise, tess_mix_clip *clip)
{
    tess_profile_view v;
    TESS_TRY(tess_profile_query(r->profile, &v));
    double *heads = TESS_TAKE(&r->arena, (size_t)v.heads * sizeof *heads);
    int64_t first = 0, last = v.steps;
    if (noise >= 0.0) {
        first = TESS_MIN((int64_t)((1.0 - noise) * v.steps), (int64_t)v.steps - 1);
        last = first + 1;
    }
    clip->density = 0.0;
    for (int h = 0; h < v.heads; h++) {
        double sum = 0.0;
        for (int64_t i = first * v.layers; i < last * v.layers; i++)
            sum += v.density[i * v.heads + h];
        heads[h] = TESS_MIN(sum / (double)((last - first) * v.layers), 1.0);
        clip->density += heads[h] / v.heads;
    }
    clip->density = TESS_MIN(clip->density, 1.0);
    clip->heads = heads;
    clip->n_heads = v.heads;
    return TESS_OK;
}

static tess_status read_density(reader *r, const tess__csv_field *fields, tess_mix_clip *clip)
{
    double noise = -1.0;
    clip->density = 1.0;
    if (has(r, NOISE) && fields[NOISE].length)
        TESS_TRY(fraction(r, fields, NOISE, &noise));
    if (has(r, DENSITY) && fields[DENSITY].length)
        TESS_TRY(fraction(r, fields, DENSITY, &clip->density));
    if (has(r, DENSITY_1)) {
        const int quartile = noise < 0.25 ? 0 : noise < 0.5 ? 1 : noise < 0.75 ? 2 : 3;
        if (fields[DENSITY_1 + quartile].length && noise < 0.0)
            return fail_line(r, "density_1 to density_4 need a noise level");
        if (fields[DENSITY_1 + quartile].length)
            TESS_TRY(fraction(r, fields, DENSITY_1 + quartile, &clip->density));
    }
    if (!has(r, PROFILE) || !fields[PROFILE].length)
        return TESS_OK;
    TESS_TRY(open_profile(r, &fields[PROFILE]));
    return use_profile(r, noise, clip);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static tess_status read_line(reader *r)
{
    tess__csv_field fields[COLUMNS] = {{0}};
    int at = 0;
    do {
        tess__csv_field field;
        TESS_TRY(tess__csv_next(&r->csv, &field));
        for (int c = 0; c < COLUMNS; c++)
            if (at == r->column[c])
                fields[c] = field;
        at++;
    } while (!r->csv.end_of_record);
    if (at != r->n_columns)
        return fail_line(r, "%d fields, the first line has %d", at, r->n_columns);
    kind k = {.count = 1, .clip = {.drawn_by = -1}};
    TESS_TRY(read_tokens(r, fields, &k.clip.tokens));
    if (has(r, COUNT) && fields[COUNT].length)
        TESS_TRY(whole_number(r, fields, COUNT, 0, TESS_MIX_CLIPS_MAX, &k.count));
    TESS_TRY(read_density(r, fields, &k.clip));
    r->clips += k.count;
    if (r->clips > TESS_MIX_CLIPS_MAX)
        return fail_line(r, "%lld clips, must be at most %d", (long long)r->clips,
                         (int)TESS_MIX_CLIPS_MAX);
    TESS_GROW(r->ctx, r->kinds, r->n, r->n + 1, r->room);
    r->kinds[r->n++] = k;
    return TESS_OK;
}

static tess_status finish(reader *r, tess_mix **mix)
{
    tess_mix_clip *clips;
    tess_mix *made;
    if (!r->clips)
        return tess__fail(TESS_EFORMAT, "%s: no clips after the names of columns", r->csv.name);
    TESS_TRY(tess__mix_new(r->ctx, r->clips, &made, &clips));
    int64_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        tess_mix_clip clip = r->kinds[i].clip;
        if (clip.heads) { /* into the memory of the mixture */
            const size_t bytes = (size_t)clip.n_heads * sizeof *clip.heads;
            double *heads = tess__arena_take(&made->arena, bytes);
            if (!heads) {
                tess_mix_destroy(made);
                return TESS_ENOMEM;
            }
            memcpy(heads, clip.heads, bytes);
            clip.heads = heads;
        }
        for (int64_t k = 0; k < r->kinds[i].count; k++)
            clips[at++] = clip;
    }
    *mix = made;
    return TESS_OK;
}

tess_status tess__mix_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                           tess_mix **mix)
{
    reader *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    r->ctx = r->arena.ctx = ctx;
    r->csv = tess__csv_start(name, text, bytes);
    tess_status status = read_header(r);
    while (status == TESS_OK && tess__csv_record(&r->csv))
        status = read_line(r);
    if (status == TESS_OK)
        status = finish(r, mix);
    tess_profile_close(r->profile);
    tess__free(ctx, r->kinds);
    tess__arena_free(&r->arena);
    tess__free(ctx, r);
    return status;
}

tess_status tess_mix_open(tess_ctx *ctx, const char *path, tess_mix **mix)
{
    TESS_REQUIRE(ctx, path, mix);
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    const tess_status status =
        tess__mix_read(ctx, path, (const char *)source.data, source.bytes, mix);
    tess__source_close(&source);
    return status;
}
