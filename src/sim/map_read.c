/* SPDX-License-Identifier: Apache-2.0 */
/* map_read.c - column maps: JSON that says what the columns of a published table mean.
 *
 *   {"schema": 1, "about": "...", "detect": ["layers", "iter_time_ms"],
 *    "columns":   {"model.layers": "layers", "measured.step_ms": {"column": "t", "scale": 1000}},
 *    "constants": {"system.cluster": "a100-80"},
 *    "rules":     [{"when": {"model": "*LoRA*"}, "skip": "trains adapters alone"},
 *                  {"when": {"gpu": ["H100*", "h100"]}, "set": {"system.cluster": "h100"}}]}
 *
 * A value is a scalar (a constant), or an object: the cell of "column", or its first number with
 * "take": "number" (behind the text "after"), times "scale" and the numbers of the columns "times";
 * or what "values" makes of the cell: patterns in the order of the file, null for no value. An
 * empty cell makes a row unusable unless the value is "optional" or a measurement. Everything is
 * copied into the map's arena, texts included.
 */
#include "table.h"

#include "file/json.h"

#include <math.h>
#include <string.h>

enum { LIST_MAX = 4096 };

typedef struct {
    tess__arena *arena;
} reader;

static const char *copy(reader *r, const char *text)
{
    return tess__arena_string(r->arena, text, strlen(text));
}

/* A text, a number, true or false as the text that a setting takes. */
static tess_status scalar(reader *r, tess__json_node node, const char **text)
{
    char number[64];
    const char *from = number;
    switch (json_typeof(node.value)) {
    case JSON_STRING: from = json_string_value(node.value); break;
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(node.value));
        break;
    case JSON_REAL: tess__real_text(json_real_value(node.value), 0, number); break;
    case JSON_TRUE: from = "true"; break;
    case JSON_FALSE: from = "false"; break;
    default: return tess__json_fail(node, "must be a text, a number, true or false");
    }
    *text = TESS_MEMORY(copy(r, from));
    return TESS_OK;
}

/* "values": {"pattern": scalar or null, ...}. */
static tess_status read_words(reader *r, const tess__json_node *object, tess__value *value)
{
    tess__json_node words;
    TESS_TRY(tess__json_object(tess__json_optional(object, "values"), NULL, 0, &words));
    if (!words.value)
        return TESS_OK;
    const size_t n = json_object_size(words.value);
    value->words = TESS_TAKE_ZERO(r->arena, n * sizeof *value->words);
    value->values = TESS_TAKE_ZERO(r->arena, n * sizeof *value->values);
    const char *key;
    json_t *item;
    json_object_foreach(words.value, key, item)
    {
        const int i = value->n_words++;
        value->words[i] = TESS_MEMORY(copy(r, key));
        if (!json_is_null(item))
            TESS_TRY(scalar(r, tess__json_member(&words, key), &value->values[i]));
    }
    return TESS_OK;
}

static tess_status read_times(reader *r, const tess__json_node *object, tess__value *value)
{
    tess__json_node array;
    size_t n;
    TESS_TRY(
        tess__json_array(tess__json_optional(object, "times"), 0, TESS_VALUE_TIMES, &array, &n));
    for (; (size_t)value->n_times < n; value->n_times++)
        TESS_TRY(tess__json_text(tess__json_element(&array, (size_t)value->n_times), r->arena,
                                 &value->times[value->n_times]));
    return TESS_OK;
}

static tess_status read_value(reader *r, tess__json_node node, tess__value *value)
{
    static const char *const names[] = {"column", "take",   "after",   "scale",
                                        "times",  "values", "optional"};
    static const char *const takes[] = {"text", "number"};
    tess__json_node object;
    *value = (tess__value){.scale = 1};
    if (!json_is_object(node.value))
        return scalar(r, node, &value->constant);
    TESS_TRY(tess__json_object(node, names, 7, &object));
    TESS_TRY(tess__json_text(tess__json_member(&object, "column"), r->arena, &value->column));
    TESS_TRY(tess__json_enum(tess__json_optional(&object, "take"), takes, 2, &value->number));
    TESS_TRY(tess__json_text(tess__json_optional(&object, "after"), r->arena, &value->after));
    TESS_TRY(tess__json_bool(tess__json_optional(&object, "optional"), &value->optional));
    TESS_TRY(tess__json_double(tess__json_optional(&object, "scale"), -1e30, 1e30, &value->scale));
    TESS_TRY(read_times(r, &object, value));
    if (value->after || value->n_times || value->scale != 1)
        value->number = 1;
    return read_words(r, &object, value);
}

/* An object of assignments; a text in `columns` names a column. */
static tess_status read_set(reader *r, tess__json_node node, int columns, tess__assignment **set,
                            int *n)
{
    tess__json_node object;
    TESS_TRY(tess__json_object(node, NULL, 0, &object));
    *n = 0;
    if (!object.value)
        return TESS_OK;
    const size_t size = json_object_size(object.value);
    if (size > LIST_MAX)
        return tess__json_fail(object, "has %zu members, must have at most %d", size, LIST_MAX);
    *set = TESS_TAKE_ZERO(r->arena, size * sizeof **set);
    const char *key;
    json_t *item;
    json_object_foreach(object.value, key, item)
    {
        tess__assignment *a = &(*set)[(*n)++];
        a->key = TESS_MEMORY(copy(r, key));
        TESS_TRY(read_value(r, tess__json_member(&object, key), &a->value));
        if (columns && json_is_string(item)) {
            a->value.column = a->value.constant;
            a->value.constant = NULL;
        }
    }
    return TESS_OK;
}

/* "column": "pattern" or ["pattern", ...]. */
static tess_status read_condition(reader *r, tess__json_node node, tess__condition *c)
{
    tess__json_node array;
    size_t n = 1;
    const int list = json_is_array(node.value);
    if (list)
        TESS_TRY(tess__json_array(node, 1, LIST_MAX, &array, &n));
    c->column = TESS_MEMORY(copy(r, node.key));
    c->patterns = TESS_TAKE_ZERO(r->arena, n * sizeof *c->patterns);
    for (; (size_t)c->n < n; c->n++)
        TESS_TRY(
            scalar(r, list ? tess__json_element(&array, (size_t)c->n) : node, &c->patterns[c->n]));
    return TESS_OK;
}

static tess_status read_rule(reader *r, tess__json_node node, tess__map_rule *rule)
{
    static const char *const members[] = {"when", "skip", "set", "because"};
    tess__json_node object, when;
    TESS_TRY(tess__json_object(node, members, 4, &object));
    TESS_TRY(tess__json_object(tess__json_member(&object, "when"), NULL, 0, &when));
    rule->when = TESS_TAKE_ZERO(r->arena, json_object_size(when.value) * sizeof *rule->when);
    const char *key;
    json_t *item;
    json_object_foreach(when.value, key, item)
        TESS_TRY(read_condition(r, tess__json_member(&when, key), &rule->when[rule->n_when++]));
    TESS_TRY(tess__json_text(tess__json_optional(&object, "skip"), r->arena, &rule->skip));
    TESS_TRY(read_set(r, tess__json_optional(&object, "set"), 0, &rule->set, &rule->n_set));
    if (!rule->skip == !rule->n_set)
        return tess__json_fail(object, "a rule has either \"skip\" or \"set\"");
    return TESS_OK;
}

static tess_status read_rules(reader *r, const tess__json_node *root, tess__map *map)
{
    tess__json_node array;
    size_t n;
    TESS_TRY(tess__json_array(tess__json_optional(root, "rules"), 0, LIST_MAX, &array, &n));
    map->rules = TESS_TAKE_ZERO(r->arena, n * sizeof *map->rules);
    for (; (size_t)map->n_rules < n; map->n_rules++)
        TESS_TRY(read_rule(r, tess__json_element(&array, (size_t)map->n_rules),
                           &map->rules[map->n_rules]));
    return TESS_OK;
}

static tess_status read_detect(reader *r, const tess__json_node *root, tess__map *map)
{
    tess__json_node array;
    size_t n;
    TESS_TRY(
        tess__json_array(tess__json_member(root, "detect"), 1, TESS_TABLE_COLUMNS, &array, &n));
    map->detect = TESS_TAKE_ZERO(r->arena, n * sizeof *map->detect);
    for (; (size_t)map->n_detect < n; map->n_detect++)
        TESS_TRY(tess__json_text(tess__json_element(&array, (size_t)map->n_detect), r->arena,
                                 &map->detect[map->n_detect]));
    return TESS_OK;
}

/* Constants and columns become one list, constants first. */
static tess_status read_columns(reader *r, const tess__json_node *root, tess__map *map)
{
    tess__assignment *constants = NULL, *columns = NULL;
    int n_constants, n_columns;
    TESS_TRY(read_set(r, tess__json_optional(root, "constants"), 0, &constants, &n_constants));
    TESS_TRY(read_set(r, tess__json_optional(root, "columns"), 1, &columns, &n_columns));
    const size_t n = (size_t)n_constants + (size_t)n_columns;
    map->columns = TESS_TAKE_ZERO(r->arena, n * sizeof *map->columns);
    for (int i = 0; i < n_constants; i++)
        map->columns[map->n_columns++] = constants[i];
    for (int i = 0; i < n_columns; i++)
        map->columns[map->n_columns++] = columns[i];
    return TESS_OK;
}

static tess_status read_map(const tess__json *doc, tess__map *map)
{
    static const char *const members[] = {"schema",  "about",     "source", "detect",
                                          "columns", "constants", "rules"};
    reader r = {.arena = &map->arena};
    const tess__json_node top = tess__json_root(doc);
    tess__json_node root;
    int schema;
    TESS_TRY(tess__json_object(top, members, 7, &root));
    TESS_TRY(tess__json_int(tess__json_member(&root, "schema"), 1, 1, &schema));
    map->name = TESS_MEMORY(copy(&r, doc->name));
    map->about = "";
    TESS_TRY(tess__json_text(tess__json_optional(&root, "about"), r.arena, &map->about));
    TESS_TRY(read_detect(&r, &root, map));
    TESS_TRY(read_columns(&r, &root, map));
    return read_rules(&r, &root, map);
}

tess_status tess__map_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess__map *map)
{
    tess__json doc;
    tess__map made = {.arena = {.ctx = ctx}};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_map(&doc, &made);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *map = made;
    else
        tess__arena_free(&made.arena);
    return status;
}

void tess__map_close(tess__map *map)
{
    if (map->arena.ctx)
        tess__arena_free(&map->arena);
    *map = (tess__map){0};
}
