/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c - densities of heads over layers and steps, from a table in a CSV file.
 *
 * Lines may come in any order: they are gathered, sorted by (step, layer, head), and must then be
 * every step x every layer x every head, each once; a table without steps is one step, 0. Memory:
 * 40 bytes a line while reading, 8 after.
 *
 * The column is taken as the kept fraction, whatever it is called. Two kinds of name earn a
 * warning: one that speaks of sparsity, which is the dropped fraction by name, and one that speaks
 * of density where the mean lies above DENSE and below 1, as dropped fractions do.
 */
#include "work.h"

#include "file/csv.h"
#include "file/file_internal.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS_MAX = 65536, PROGRESS_LINES = 1 << 16 };
static const double DENSE = 0.75;

enum { STEP, LAYER, HEAD, VALUE, COLUMNS };

typedef struct {
    int64_t key[VALUE]; /* step, layer, head */
    double density;
    int64_t line;
} record;

typedef struct {
    tess_ctx *ctx;
    tess__csv csv;
    const char *names[COLUMNS];
    char value_name[TESS_CSV_QUOTE]; /* as the file writes it */
    int column[COLUMNS], n_columns;
    int meaning;
    record *records;
    size_t n;
    int64_t room; /* of records */
} reader;

struct tess_profile {
    tess__arena arena; /* the profile lies in it */
    tess_profile_view view;
};

/* ---- lines -------------------------------------------------------------------------------- */

static tess_status read_header(reader *r)
{
    tess__csv *csv = &r->csv;
    char quote[TESS_CSV_QUOTE];
    if (!tess__csv_record(csv))
        return tess__fail(TESS_EFORMAT, "%s: line 1: no names of columns", csv->name);
    const size_t begin = csv->at;
    for (int c = 0; c < COLUMNS; c++)
        r->column[c] = -1;
    do {
        tess__csv_field field;
        TESS_TRY(tess__csv_next(csv, &field));
        for (int c = 0; c < COLUMNS; c++) {
            if (!tess__csv_is(&field, r->names[c]))
                continue;
            if (r->column[c] >= 0)
                return tess__fail(TESS_EFORMAT, "%s: line %lld: two columns are called \"%s\"",
                                  csv->name, (long long)csv->line, tess__csv_quote(&field, quote));
            r->column[c] = r->n_columns;
            if (c == VALUE)
                tess__csv_quote(&field, r->value_name);
        }
        r->n_columns++;
    } while (!csv->end_of_record);
    size_t end = csv->at;
    while (end > begin && (csv->text[end - 1] == '\n' || csv->text[end - 1] == '\r'))
        end--;
    const tess__csv_field header = {csv->text + begin, end - begin};
    for (int c = 0; c < COLUMNS; c++)
        if (r->column[c] < 0 && c != STEP)
            return tess__fail(TESS_EFORMAT, "%s: line %lld: no column \"%s\" among %s", csv->name,
                              (long long)csv->line, r->names[c], tess__csv_quote(&header, quote));
    return TESS_OK;
}

static tess_status read_key(const reader *r, const tess__csv_field *field, int c, record *to)
{
    char quote[TESS_CSV_QUOTE];
    if (!tess__csv_integer(field, &to->key[c]))
        return tess__fail(TESS_EFORMAT,
                          "%s: line %lld: %s is \"%s\", must be an integer, 0 or more", r->csv.name,
                          (long long)r->csv.line, r->names[c], tess__csv_quote(field, quote));
    if (c == HEAD && to->key[c] > HEADS_MAX)
        return tess__fail(TESS_EFORMAT, "%s: line %lld: head is %lld, must be 0..%d", r->csv.name,
                          (long long)r->csv.line, (long long)to->key[c], HEADS_MAX);
    return TESS_OK;
}

static tess_status read_value(const reader *r, const tess__csv_field *field, record *to)
{
    char quote[TESS_CSV_QUOTE];
    if (!tess__csv_number(field, &to->density) || !(to->density >= 0.0 && to->density <= 1.0))
        return tess__fail(TESS_EFORMAT, "%s: line %lld: %s is \"%s\", must be a number 0..1",
                          r->csv.name, (long long)r->csv.line, r->value_name,
                          tess__csv_quote(field, quote));
    if (r->meaning == 2)
        to->density = 1.0 - to->density;
    return TESS_OK;
}

static tess_status read_record(reader *r, record *to)
{
    int at = 0;
    to->key[STEP] = 0; /* of a table without steps */
    to->line = r->csv.line;
    do {
        tess__csv_field field;
        TESS_TRY(tess__csv_next(&r->csv, &field));
        for (int c = 0; c < VALUE; c++)
            if (at == r->column[c])
                TESS_TRY(read_key(r, &field, c, to));
        if (at == r->column[VALUE])
            TESS_TRY(read_value(r, &field, to));
        at++;
    } while (!r->csv.end_of_record);
    if (at != r->n_columns)
        return tess__fail(TESS_EFORMAT, "%s: line %lld: %d fields, the first line has %d",
                          r->csv.name, (long long)r->csv.line, at, r->n_columns);
    return TESS_OK;
}

static tess_status read_lines(reader *r)
{
    TESS_TRY(read_header(r));
    while (tess__csv_record(&r->csv)) {
        TESS_GROW(r->ctx, r->records, (int64_t)r->n, (int64_t)r->n + 1, r->room);
        TESS_TRY(read_record(r, &r->records[r->n++]));
        if (r->n % PROGRESS_LINES == 0)
            TESS_TRY(tess__progress(r->ctx, "reading densities", (int64_t)r->csv.at,
                                    (int64_t)r->csv.bytes));
    }
    if (r->n == 0)
        return tess__fail(TESS_EFORMAT, "%s: no lines after the names of columns", r->csv.name);
    return TESS_OK;
}

/* ---- order -------------------------------------------------------------------------------- */

static int compare_keys(const record *a, const record *b, int n)
{
    for (int c = 0; c < n; c++)
        if (a->key[c] != b->key[c])
            return a->key[c] < b->key[c] ? -1 : 1;
    return 0;
}

static int by_key_and_line(const void *a, const void *b)
{
    const record *x = a, *y = b;
    const int order = compare_keys(x, y, VALUE);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sorts n numbers and drops those that come again; returns how many are left. */
static size_t distinct(int64_t *x, size_t n)
{
    size_t kept = 0;
    qsort(x, n, sizeof *x, tess__by_int64);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || x[i] != x[i - 1])
            x[kept++] = x[i];
    return kept;
}

static tess_status sort_records(reader *r)
{
    int sorted = 1;
    for (size_t i = 1; i < r->n && sorted; i++)
        sorted = compare_keys(&r->records[i - 1], &r->records[i], VALUE) < 0;
    if (sorted)
        return TESS_OK;
    qsort(r->records, r->n, sizeof *r->records, by_key_and_line);
    for (size_t i = 1; i < r->n; i++) {
        const record *a = &r->records[i - 1], *b = &r->records[i];
        if (compare_keys(a, b, VALUE) == 0)
            return tess__fail(
                TESS_EFORMAT, "%s: line %lld: step %lld, layer %lld, head %lld is in line %lld too",
                r->csv.name, (long long)b->line, (long long)b->key[STEP], (long long)b->key[LAYER],
                (long long)b->key[HEAD], (long long)a->line);
    }
    return TESS_OK;
}

/* The first head, 0 or 1, and how many there are. */
static tess_status count_heads(const reader *r, int64_t *first, int *heads)
{
    int64_t least = r->records[0].key[HEAD], most = least;
    for (size_t i = 1; i < r->n; i++) {
        least = TESS_MIN(r->records[i].key[HEAD], least);
        most = TESS_MAX(r->records[i].key[HEAD], most);
    }
    *first = TESS_MIN(least, 1);
    *heads = (int)(most - *first + 1);
    if (*heads > HEADS_MAX)
        return tess__fail(TESS_EFORMAT, "%s: %d heads, must be 1..%d", r->csv.name, *heads,
                          HEADS_MAX);
    return TESS_OK;
}

/* ---- the profile -------------------------------------------------------------------------- */

/* EFORMAT at the first (step, layer, head) that the records, in order, lack. */
static tess_status check_complete(const reader *r, const tess_profile_view *v, int64_t first_head)
{
    size_t at = 0;
    for (int s = 0; s < v->steps; s++)
        for (int l = 0; l < v->layers; l++)
            for (int h = 0; h < v->heads; h++, at++) {
                const record want = {.key = {v->step[s], v->layer[l], first_head + h}};
                if (at < r->n && compare_keys(&r->records[at], &want, VALUE) == 0)
                    continue;
                const char *name = r->csv.name;
                if (h == 0 && (at == r->n || compare_keys(&r->records[at], &want, HEAD) != 0))
                    return tess__fail(TESS_EFORMAT, "%s: step %lld: layer %lld is missing", name,
                                      (long long)want.key[STEP], (long long)want.key[LAYER]);
                return tess__fail(TESS_EFORMAT, "%s: step %lld, layer %lld: head %lld is missing",
                                  name, (long long)want.key[STEP], (long long)want.key[LAYER],
                                  (long long)want.key[HEAD]);
            }
    return TESS_OK;
}

/* numbers (n) = the distinct values of a key, ascending, as a piece of the arena. */
static tess_status take_numbers(const reader *r, tess__arena *arena, int key,
                                const int64_t **numbers, int *n)
{
    /* The records are in order: a number that is that of the record before comes again anyway. */
    size_t count = 0, at = 0;
    for (size_t i = 0; i < r->n; i++)
        count += i == 0 || r->records[i].key[key] != r->records[i - 1].key[key];
    int64_t *list = TESS_TAKE(arena, count * sizeof *list);
    for (size_t i = 0; i < r->n; i++)
        if (i == 0 || r->records[i].key[key] != r->records[i - 1].key[key])
            list[at++] = r->records[i].key[key];
    const size_t kept = distinct(list, count);
    if (kept > INT32_MAX)
        return tess__fail(TESS_EFORMAT, "%s: %zu numbers of a %s, must be below 2^31", r->csv.name,
                          kept, r->names[key]);
    *numbers = list;
    *n = (int)kept;
    return TESS_OK;
}

static tess_status build(const reader *r, tess__arena *arena, tess_profile_view *view)
{
    tess_profile_view v = {0};
    int64_t first_head;
    TESS_TRY(count_heads(r, &first_head, &v.heads));
    TESS_TRY(take_numbers(r, arena, STEP, &v.step, &v.steps));
    TESS_TRY(take_numbers(r, arena, LAYER, &v.layer, &v.layers));
    TESS_TRY(check_complete(r, &v, first_head));
    double *density = TESS_TAKE(arena, r->n * sizeof *density);
    for (size_t i = 0; i < r->n; i++)
        density[i] = r->records[i].density;
    v.density = density;
    *view = v;
    return TESS_OK;
}

/* Whether the name has the part in it, ASCII case apart. */
static int has_part(const char *name, const char *part)
{
    const size_t n = strlen(part);
    for (; strlen(name) >= n; name++)
        if (tess__csv_is(&(tess__csv_field){name, n}, part))
            return 1;
    return 0;
}

static void warn_of_name(const reader *r)
{
    if (r->meaning)
        return;
    double sum = 0.0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->records[i].density;
    const double mean = sum / (double)r->n;
    const char *column = r->value_name;
    if (has_part(column, "spars"))
        tess__log(
            r->ctx, TESS_LOG_WARN,
            "%s: column \"%s\" is taken as the kept fraction, mean %.4g, though its name says "
            "the dropped one",
            r->csv.name, column, mean);
    else if (has_part(column, "dens") && mean > DENSE && mean < 1.0)
        tess__log(r->ctx, TESS_LOG_WARN,
                  "%s: column \"%s\" is taken as the kept fraction, though its mean, %.4g, "
                  "looks like the dropped one",
                  r->csv.name, column, mean);
}

static tess_status parse(reader *r, tess_profile **profile)
{
    tess__arena arena = {.ctx = r->ctx};
    tess_profile *made = NULL;
    tess_status status = read_lines(r);
    if (status == TESS_OK)
        status = sort_records(r);
    if (status == TESS_OK && !(made = tess__arena_take(&arena, sizeof *made)))
        status = TESS_ENOMEM;
    if (status == TESS_OK)
        status = build(r, &arena, &made->view);
    if (status != TESS_OK) {
        tess__arena_free(&arena);
        return status;
    }
    warn_of_name(r);
    made->arena = arena;
    *profile = made;
    return TESS_OK;
}

tess_status tess__profile_read(tess_ctx *ctx, const char *name, const void *text, size_t bytes,
                               const tess_profile_opts *opts, tess_profile **profile)
{
    const char *column = opts && opts->column ? opts->column : "density";
    reader r = {.ctx = ctx,
                .csv = tess__csv_start(name, text, bytes),
                .meaning = opts ? opts->meaning : 0,
                .names = {"step", "layer", "head", column}};
    const tess_status status = parse(&r, profile);
    tess__free(ctx, r.records);
    return status;
}

tess_status tess_profile_open(tess_ctx *ctx, const char *path, const tess_profile_opts *opts,
                              tess_profile **profile)
{
    TESS_REQUIRE(ctx, path, profile);
    static const char *const keys[] = {"", "step", "layer", "head"};
    if (opts && opts->column) {
        const tess__csv_field column = {opts->column, strlen(opts->column)};
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            if (tess__csv_is(&column, keys[i]))
                return tess__invalid(
                    __func__, "column is \"%s\", must be that of the kept fraction", opts->column);
    }
    if (opts)
        TESS_TRY(tess__check_range(__func__, "meaning", opts->meaning, 0, 2));
    tess__source source;
    const size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        static const int none[3];
        const int *tiles = opts ? opts->tiles : none;
        if (tiles[0] < 1 || tiles[1] < 1 || tiles[2] < 1)
            return tess__invalid(__func__,
                                 "tiles is %dx%dx%d, must be the tiles of a clip for windows of "
                                 "sliding tile attention, such as 5x6x10",
                                 tiles[0], tiles[1], tiles[2]);
        return tess__profile_windows(ctx, path, tiles, profile);
    }
    TESS_TRY(tess__source_open(path, &source));
    const tess_status status =
        tess__profile_read(ctx, path, source.data, source.bytes, opts, profile);
    tess__source_close(&source);
    return status;
}

tess_status tess_profile_query(const tess_profile *profile, tess_profile_view *view)
{
    TESS_REQUIRE(profile, view);
    *view = profile->view;
    return TESS_OK;
}

void tess_profile_close(tess_profile *profile)
{
    if (!profile)
        return;
    tess__arena arena = profile->arena;
    tess__arena_free(&arena);
}
