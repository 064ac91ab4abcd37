/* SPDX-License-Identifier: Apache-2.0 */
/* decide_file.c - decisions.json of a checkpoint, out and in.
 *
 *   {"format": 1, "layers": 4, "heads": 2, "cube_chosen": true, "break_even": 0.31,
 *    "window": null, "predictor_loss": 0.04, "calibration": 1.0, "predictor_updates": 500,
 *    "attention": {...}, "cubes": [{"cube": [2, 4, 4], "overlap": 0.93, "overlaps": 9, "layers": [
 *        {"density": [[0.1, 0.2], ... by noise-level quartile], "profiles": [9, 9, 9, 9],
 *         "recall": [0.97, 0.99], "good": 2, "good_heads": [2, 2], "history": [0.3, ...],
 *         "compared": 9, "in_cubes": [0.8, 0.9], "by_content": [0.9, 0.9]}, ...]}],
 *    "decisions": [{"stage": "sparse", "since": 301, "back": [0, 0],
 *                   "sparse": [[1, 1], ...], "keys": [[56, 104], ...], "imposed": [[1, 0], ...],
 *                   "content": [1, 0]}]}
 *
 * Tables have a row for each noise-level quartile and a column for each head. Reals are written
 * with the digits that give back the same double. "keys" is for people: it follows from the rest.
 * "imposed" is there where choices are those of another run; "compared", what was measured of
 * groups in cubes and by content, and "content" where these are decided for each head.
 */
#include "decide.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS, LAYERS_MAX = 1024, HEADS_MAX = 8192, ALL_MAX = 1 << 18 };
static const int64_t count_max = (int64_t)1 << 52;

/* ---- out ------------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *numbers(const double *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        if (json_array_append_new(array, number(values[i])) != 0)
            goto out;
    return array;
out:
    json_decref(array);
    return NULL;
}

/* One integer of a table, for the writer below. */
typedef int64_t (*integer_fn)(const void *table, int64_t i);

static int64_t as_int(const void *table, int64_t i)
{
    return ((const int *)table)[i];
}

static int64_t as_int64(const void *table, int64_t i)
{
    return ((const int64_t *)table)[i];
}

static int64_t as_byte(const void *table, int64_t i)
{
    return ((const uint8_t *)table)[i];
}

static json_t *integers(integer_fn at, const void *table, int64_t first, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        if (json_array_append_new(array, json_integer(at(table, first + i))) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Takes the element; 0, or 1 when there is no memory. */
static int append(json_t *array, json_t *element)
{
    return json_array_append_new(array, element) != 0;
}

/* The array, or NULL and it is gone where something in it failed. */
static json_t *whole(json_t *array, int failed)
{
    if (!failed)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *measured_layer(const tess__dsv_state *d, const tess__cube_stats *m, int layer)
{
    const int64_t h = d->heads;
    json_t *density = json_array();
    int failed = !density;
    for (int b = 0; b < QUARTILES && !failed; b++)
        failed = append(density, numbers(m->density + (layer * QUARTILES + b) * h, d->heads));
    json_t *out =
        json_pack("{s:o,s:o,s:o,s:i,s:o,s:o}", "density", whole(density, failed), "profiles",
                  integers(as_int64, m->profiles, (int64_t)layer * QUARTILES, QUARTILES), "recall",
                  numbers(m->recall + layer * h, d->heads), "good", m->good[layer], "good_heads",
                  integers(as_int, m->good_heads, layer * h, d->heads), "history",
                  numbers(m->history + (int64_t)layer * TESS__HISTORY, TESS__HISTORY));
    if (!out || m->compared[layer] == 0)
        return out;
    const double *cubes = m->shared + layer * h, *content = cubes + d->layers * h;
    failed = json_object_set_new(out, "compared", json_integer(m->compared[layer])) != 0 ||
             json_object_set_new(out, "in_cubes", numbers(cubes, d->heads)) != 0 ||
             json_object_set_new(out, "by_content", numbers(content, d->heads)) != 0;
    return whole(out, failed);
}

static json_t *cube_out(const tess__dsv_state *d, const tess__cube_stats *m)
{
    json_t *layers = json_array();
    int failed = !layers;
    for (int layer = 0; layer < d->layers && !failed; layer++)
        failed = append(layers, measured_layer(d, m, layer));
    return json_pack("{s:[i,i,i],s:o,s:I,s:o}", "cube", m->cube[0], m->cube[1], m->cube[2],
                     "overlap", number(m->overlap), "overlaps", (json_int_t)m->overlaps, "layers",
                     whole(layers, failed));
}

static json_t *decided_layer(const tess__dsv_state *d, const tess__rules *rules, int32_t n,
                             int layer)
{
    const int64_t h = d->heads;
    const int cube = tess__best_cube(d);
    json_t *sparse = json_array(), *keys = json_array();
    int failed = !sparse || !keys;
    for (int b = 0; b < QUARTILES && !failed; b++) {
        json_t *row = json_array();
        failed =
            append(sparse, integers(as_byte, d->choice, (layer * QUARTILES + b) * h, d->heads));
        failed |= append(keys, row);
        for (int i = 0; i < d->heads && !failed; i++)
            failed = append(row, json_integer(tess__budget(d, rules, cube, layer, b, i, n)));
    }
    json_t *out = json_pack("{s:s,s:I,s:o,s:o,s:o}", "stage", d->sparse[layer] ? "sparse" : "dense",
                            "since", (json_int_t)d->since[layer], "back",
                            integers(as_byte, d->back, layer * h, d->heads), "sparse",
                            whole(sparse, failed), "keys", whole(keys, failed));
    if (out && rules->groups)
        out = whole(out,
                    json_object_set_new(out, "content",
                                        integers(as_byte, d->content, layer * h, d->heads)) != 0);
    if (!out || !d->imposed)
        return out;
    json_t *imposed = json_array();
    failed = json_object_set_new(out, "imposed", imposed) != 0;
    for (int b = 0; b < QUARTILES && !failed; b++)
        failed =
            append(imposed, integers(as_byte, d->imposed, (layer * QUARTILES + b) * h, d->heads));
    return whole(out, failed);
}

static json_t *decisions_out(const tess__dsv_state *d, const tess_attention_opts *attention,
                             int32_t n)
{
    tess__rules rules;
    tess__attention_rules(attention, &rules);
    json_t *cubes = json_array(), *layers = json_array();
    json_t *window =
        d->window[0] ? json_pack("[i,i,i]", d->window[0], d->window[1], d->window[2]) : json_null();
    int failed = !cubes || !layers;
    for (int c = 0; c < d->n_cubes && !failed; c++)
        failed = append(cubes, cube_out(d, &d->cubes[c]));
    for (int layer = 0; layer < d->layers && !failed; layer++)
        failed = append(layers, decided_layer(d, &rules, n, layer));
    return json_pack("{s:i,s:s,s:i,s:i,s:b,s:o,s:o,s:o,s:f,s:I,s:o,s:o,s:o}", "format", 1,
                     "version", tess_version(), "layers", d->layers, "heads", d->heads,
                     "cube_chosen", d->cube_chosen, "break_even", number(d->break_even), "window",
                     window, "predictor_loss", number(d->loss), "calibration", d->calibration,
                     "predictor_updates", (json_int_t)d->updates, "attention",
                     tess__attention_out(attention), "cubes", whole(cubes, failed), "decisions",
                     whole(layers, failed));
}

tess_status tess__dsv_state_write(tess_ctx *ctx, const char *path, const tess__dsv_state *d,
                                  const tess_attention_opts *attention, int32_t n)
{
    json_t *value = decisions_out(d, attention, n);
    const tess_status status = tess__json_write(ctx, path, value);
    json_decref(value);
    return status;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* A number of 0..max, or null for NaN. */
static tess_status number_in(tess__json_node node, double max, double *value)
{
    *value = (double)NAN;
    if (node.value && json_is_null(node.value))
        return TESS_OK;
    return tess__json_double(node, 0.0, max, value);
}

static tess_status numbers_in(tess__json_node node, int n, double max, double *values)
{
    tess__json_node array;
    size_t count;
    TESS_TRY(tess__json_array(node, (size_t)n, (size_t)n, &array, &count));
    for (size_t i = 0; i < count; i++)
        TESS_TRY(number_in(tess__json_element(&array, i), max, &values[i]));
    return TESS_OK;
}

static tess_status ints_in(tess__json_node node, int n, int min, int max, int *values)
{
    tess__json_node array;
    size_t count;
    TESS_TRY(tess__json_array(node, (size_t)n, (size_t)n, &array, &count));
    for (size_t i = 0; i < count; i++)
        TESS_TRY(tess__json_int(tess__json_element(&array, i), min, max, &values[i]));
    return TESS_OK;
}

/* 0 and 1 */
static tess_status flags_in(tess__json_node node, int n, uint8_t *values)
{
    tess__json_node array;
    size_t count;
    TESS_TRY(tess__json_array(node, (size_t)n, (size_t)n, &array, &count));
    for (size_t i = 0; i < count; i++) {
        int flag;
        TESS_TRY(tess__json_int(tess__json_element(&array, i), 0, 1, &flag));
        values[i] = (uint8_t)flag;
    }
    return TESS_OK;
}

/* What was measured of groups, in runs that decide them. */
static tess_status groups_in(const tess__json_node *o, const tess__dsv_state *d,
                             const tess__cube_stats *m, int layer)
{
    double *cubes = m->shared + (int64_t)layer * d->heads;
    if (!tess__json_optional(o, "compared").value)
        return TESS_OK;
    TESS_TRY(tess__json_int64(tess__json_member(o, "compared"), 1, count_max, &m->compared[layer]));
    TESS_TRY(numbers_in(tess__json_member(o, "in_cubes"), d->heads, 1e6, cubes));
    return numbers_in(tess__json_member(o, "by_content"), d->heads, 1e6,
                      cubes + (int64_t)d->layers * d->heads);
}

static tess_status measured_in(tess__json_node node, const tess__dsv_state *d,
                               const tess__cube_stats *m, int layer)
{
    const int64_t h = d->heads;
    tess__json_node o, density, profiles;
    size_t count;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    TESS_TRY(
        tess__json_array(tess__json_member(&o, "density"), QUARTILES, QUARTILES, &density, &count));
    TESS_TRY(tess__json_array(tess__json_member(&o, "profiles"), QUARTILES, QUARTILES, &profiles,
                              &count));
    for (int b = 0; b < QUARTILES; b++) {
        const int64_t place = (int64_t)layer * QUARTILES + b;
        TESS_TRY(numbers_in(tess__json_element(&density, (size_t)b), d->heads, 1.0,
                            m->density + place * h));
        TESS_TRY(tess__json_int64(tess__json_element(&profiles, (size_t)b), 0, count_max,
                                  &m->profiles[place]));
    }
    TESS_TRY(numbers_in(tess__json_member(&o, "recall"), d->heads, 2.0, m->recall + layer * h));
    TESS_TRY(tess__json_int(tess__json_member(&o, "good"), 0, 2, &m->good[layer]));
    TESS_TRY(
        ints_in(tess__json_member(&o, "good_heads"), d->heads, 0, 2, m->good_heads + layer * h));
    TESS_TRY(numbers_in(tess__json_member(&o, "history"), TESS__HISTORY, 1.0,
                        m->history + (int64_t)layer * TESS__HISTORY));
    return groups_in(&o, d, m, layer);
}

static tess_status cube_in(tess__json_node node, const tess__dsv_state *d, tess__cube_stats *m)
{
    tess__json_node o, layers;
    size_t count;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    TESS_TRY(ints_in(tess__json_member(&o, "cube"), 3, 1, 1 << 20, m->cube));
    TESS_TRY(number_in(tess__json_member(&o, "overlap"), 1e6, &m->overlap));
    TESS_TRY(tess__json_int64(tess__json_member(&o, "overlaps"), 0, count_max, &m->overlaps));
    TESS_TRY(tess__json_array(tess__json_member(&o, "layers"), (size_t)d->layers, (size_t)d->layers,
                              &layers, &count));
    for (int layer = 0; layer < d->layers; layer++)
        TESS_TRY(measured_in(tess__json_element(&layers, (size_t)layer), d, m, layer));
    return TESS_OK;
}

/* A row of flags for each noise-level quartile. */
static tess_status quartiles_in(tess__json_node node, const tess__dsv_state *d, int layer,
                                uint8_t *flags)
{
    tess__json_node rows;
    size_t count;
    TESS_TRY(tess__json_array(node, QUARTILES, QUARTILES, &rows, &count));
    for (int b = 0; b < QUARTILES; b++)
        TESS_TRY(flags_in(tess__json_element(&rows, (size_t)b), d->heads,
                          flags + ((int64_t)layer * QUARTILES + b) * d->heads));
    return TESS_OK;
}

static tess_status decided_in(tess__json_node node, tess__dsv_state *d, int layer)
{
    static const char *const stages[] = {"dense", "sparse"};
    const size_t all = (size_t)d->layers * QUARTILES * (size_t)d->heads;
    tess__json_node o;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    TESS_TRY(tess__json_enum(tess__json_member(&o, "stage"), stages, 2, &d->sparse[layer]));
    TESS_TRY(tess__json_int64(tess__json_member(&o, "since"), 0, count_max, &d->since[layer]));
    TESS_TRY(
        flags_in(tess__json_member(&o, "back"), d->heads, d->back + (int64_t)layer * d->heads));
    TESS_TRY(quartiles_in(tess__json_member(&o, "sparse"), d, layer, d->choice));
    if (tess__json_optional(&o, "content").value)
        TESS_TRY(flags_in(tess__json_member(&o, "content"), d->heads,
                          d->content + (int64_t)layer * d->heads));
    if (layer == 0 && tess__json_optional(&o, "imposed").value) {
        d->imposed = TESS_TAKE(&d->arena, all);
    }
    return d->imposed ? quartiles_in(tess__json_member(&o, "imposed"), d, layer, d->imposed)
                      : TESS_OK;
}

static tess_status tables_in(const tess__json_node *o, tess__dsv_state *d)
{
    tess__json_node cubes, layers;
    size_t count;
    TESS_TRY(tess__json_array(tess__json_member(o, "cubes"), 1, TESS_CUBES, &cubes, &count));
    for (size_t c = 0; c < count; c++)
        TESS_TRY(cube_in(tess__json_element(&cubes, c), d, &d->cubes[c]));
    TESS_TRY(tess__json_array(tess__json_member(o, "decisions"), (size_t)d->layers,
                              (size_t)d->layers, &layers, &count));
    for (int layer = 0; layer < d->layers; layer++)
        TESS_TRY(decided_in(tess__json_element(&layers, (size_t)layer), d, layer));
    return TESS_OK;
}

static tess_status scalars_in(const tess__json_node *o, tess__dsv_state *d)
{
    tess__json_node window = tess__json_member(o, "window");
    TESS_TRY(tess__attention_in(tess__json_member(o, "attention"), &d->attention));
    TESS_TRY(tess__json_bool(tess__json_member(o, "cube_chosen"), &d->cube_chosen));
    TESS_TRY(number_in(tess__json_member(o, "break_even"), 1e6, &d->break_even));
    TESS_TRY(number_in(tess__json_member(o, "predictor_loss"), 1e300, &d->loss));
    TESS_TRY(tess__json_double(tess__json_optional(o, "calibration"), 1e-9, 1e9, &d->calibration));
    TESS_TRY(
        tess__json_int64(tess__json_member(o, "predictor_updates"), 0, count_max, &d->updates));
    if (d->cube_chosen && d->n_cubes != 1)
        return tess__json_fail(tess__json_member(o, "cubes"),
                               "\"cubes\" has %d elements, must have 1 where one is chosen",
                               d->n_cubes);
    if (window.value && json_is_null(window.value))
        return TESS_OK;
    return ints_in(window, 3, 1, 1 << 20, d->window);
}

/* Sizes first: the tables take memory for as many layers, heads and cubes as the file states, all
 * of which its own arrays must then have. */
static tess_status read_root(tess_ctx *ctx, const tess__json *doc, tess__dsv_state *d)
{
    static const int none[TESS_CUBES][3];
    tess__json_node root = tess__json_root(doc), o, array;
    int format, layers, heads;
    size_t cubes, n;
    TESS_TRY(tess__json_object(root, NULL, 0, &o));
    TESS_TRY(tess__json_int(tess__json_member(&o, "format"), 1, 1, &format));
    TESS_TRY(tess__json_int(tess__json_member(&o, "layers"), 1, LAYERS_MAX, &layers));
    TESS_TRY(tess__json_int(tess__json_member(&o, "heads"), 1, HEADS_MAX, &heads));
    TESS_TRY(tess__json_array(tess__json_member(&o, "cubes"), 1, TESS_CUBES, &array, &cubes));
    TESS_TRY(tess__json_array(tess__json_member(&o, "decisions"), (size_t)layers, (size_t)layers,
                              &array, &n));
    if (layers * heads > ALL_MAX)
        return tess__json_fail(tess__json_member(&o, "heads"),
                               "%d layers of %d heads are %d, must be at most %d", layers, heads,
                               layers * heads, (int)ALL_MAX);
    TESS_TRY(tess__dsv_state_create(ctx, layers, heads, none, (int)cubes, d));
    TESS_TRY(scalars_in(&o, d));
    return tables_in(&o, d);
}

tess_status tess__dsv_state_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess__dsv_state *d)
{
    tess__json doc;
    tess__dsv_state read = {.layers = 0};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_root(ctx, &doc, &read);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *d = read;
    else
        tess__dsv_state_destroy(&read);
    return status;
}
