/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - reading .safetensors.
 *
 *   8 bytes: length n | n bytes of JSON | data
 *
 *   {"__metadata__": {"format": "pt"},
 *    "a.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, ...}
 *
 * The format's rules, all of them checked: n is at most 100 MB; the JSON begins with { and no key
 * comes twice; data_offsets count from the start of the data; the tensors in the order of their
 * offsets fill the data without holes, overlaps or rest; a shape times its dtype's size is the span
 * of its offsets; metadata are strings. Further members of a tensor's object are passed over.
 *
 * A dtype this library does not read (F8_E4M3, I16) or a rank above 8 does not prevent opening:
 * that tensor is refused when it is asked for. Tensors are listed in the order of their data.
 */
#include "file.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, HEADER_MAX = 100 * 1000 * 1000, DTYPE_MAX = 32 };

/* Valid, but not read: their bits are needed for the check of sizes. */
static const struct {
    const char *name;
    unsigned bits;
} foreign[] = {
    {"I8", 8},      {"I16", 16},    {"U16", 16}, {"U32", 32},    {"U64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"C64", 64},
};

/* `file: tensor "name": ` and the rule. */
static tess_status tensor_fail(const tess__entry *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static tess_status tensor_fail(const tess__entry *e, const char *format, ...)
{
    char rule[400];
    va_list args;
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    return tess__fail(TESS_EFORMAT, "%s: tensor \"%.300s\": %s", e->source->name, e->name, rule);
}

/* Bits of an element: of a dtype we read (then e->dtype is set), a foreign one (e->refused is set),
 * or 0 for one nobody here has heard of. */
static tess_status read_dtype(tess_file *file, const json_t *value, tess__entry *e, unsigned *bits)
{
    const char *name = json_string_value(value);
    if (!name || json_string_length(value) >= DTYPE_MAX || tess__name_rule(name, strlen(name)))
        return tensor_fail(e, "dtype must be a name such as \"F32\"");
    for (int i = 0; i < TESS_DTYPE_COUNT; i++) {
        if (strcmp(name, tess_dtype_name((tess_dtype)i)) == 0) {
            e->dtype = (tess_dtype)i;
            *bits = 8 * (unsigned)tess_dtype_size((tess_dtype)i);
            return TESS_OK;
        }
    }
    *bits = 0;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strcmp(name, foreign[i].name) == 0)
            *bits = foreign[i].bits;
    }
    char why[DTYPE_MAX + 80];
    const int n =
        snprintf(why, sizeof why, "dtype %s is not one of F32 BF16 F16 F64 I32 I64 U8 BOOL", name);
    e->refused = tess__arena_string(&file->arena, why, (size_t)n);
    return e->refused ? TESS_OK : TESS_ENOMEM;
}

static int is_length(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static tess_status read_shape(tess_file *file, const json_t *value, tess__entry *e)
{
    const size_t rank = json_array_size(value);
    if (!json_is_array(value))
        return tensor_fail(e, "shape must be an array");
    if (rank > TESS_RANK_MAX) {
        char why[64];
        const int n = snprintf(why, sizeof why, "rank is %zu, must be 0..%d", rank, TESS_RANK_MAX);
        e->refused = tess__arena_string(&file->arena, why, (size_t)n);
        return e->refused ? TESS_OK : TESS_ENOMEM;
    }
    for (size_t i = 0; i < rank; i++) {
        const json_t *length = json_array_get(value, i);
        if (!is_length(length))
            return tensor_fail(e, "shape[%zu] must be an integer of at least 0", i);
        e->shape[i] = json_integer_value(length);
    }
    e->rank = (int)rank;
    return TESS_OK;
}

/* Offset and bytes, still counted from the start of the data. */
static tess_status read_offsets(const json_t *value, size_t data, tess__entry *e)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !is_length(begin) || !is_length(end))
        return tensor_fail(e, "data_offsets must be two integers of at least 0");
    const long long from = json_integer_value(begin), to = json_integer_value(end);
    if (from > to)
        return tensor_fail(e, "data_offsets [%lld,%lld] end before they begin", from, to);
    if ((unsigned long long)to > data)
        return tensor_fail(e, "data_offsets [%lld,%lld] end beyond the %zu bytes of data", from, to,
                           data);
    e->offset = (size_t)from;
    e->bytes = (size_t)(to - from);
    return TESS_OK;
}

static tess_status check_size(const tess__entry *e, const char *dtype, unsigned bits)
{
    char text[TESS_SHAPE_TEXT];
    size_t needs;
    if (tess__shape_bytes(bits, e->rank, e->shape, &needs))
        return tensor_fail(e, "%s %s has more than 2^63 bits", dtype,
                           tess__shape_text(e->rank, e->shape, text));
    if (needs % 8 != 0 || needs / 8 != e->bytes)
        return tensor_fail(e, "data_offsets [%zu,%zu] hold %zu bytes, but %s %s needs %zu",
                           e->offset, e->offset + e->bytes, e->bytes, dtype,
                           tess__shape_text(e->rank, e->shape, text), needs / 8 + (needs % 8 != 0));
    return TESS_OK;
}

static tess_status read_tensor(tess_file *file, const char *name, const json_t *value, size_t data,
                               tess__entry *e)
{
    unsigned bits = 0;
    *e = (tess__entry){.name = name, .source = &file->source};
    const char *rule = tess__name_rule(name, strlen(name));
    if (rule)
        return tess__fail(TESS_EFORMAT, "%s: header: the name of tensor number %d %s",
                          file->source.name, file->n_entries, rule);
    e->name = tess__arena_string(&file->arena, name, strlen(name));
    if (!e->name)
        return TESS_ENOMEM;
    if (!json_is_object(value))
        return tensor_fail(e, "must be an object with dtype, shape and data_offsets");
    TESS_TRY(read_dtype(file, json_object_get(value, "dtype"), e, &bits));
    TESS_TRY(read_shape(file, json_object_get(value, "shape"), e));
    TESS_TRY(read_offsets(json_object_get(value, "data_offsets"), data, e));
    if (bits > 0 && json_array_size(json_object_get(value, "shape")) <= TESS_RANK_MAX)
        TESS_TRY(check_size(e, json_string_value(json_object_get(value, "dtype")), bits));
    return TESS_OK;
}

static tess_status read_metadata(tess_file *file, json_t *object)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return tess__fail(TESS_EFORMAT, "%s: header: __metadata__ must be an object",
                          file->source.name);
    file->metas = tess__arena_take(&file->arena, sizeof *file->metas * json_object_size(object));
    if (!file->metas)
        return TESS_ENOMEM;
    json_object_foreach(object, key, value)
    {
        tess_meta *meta = &file->metas[file->n_metas];
        if (!json_is_string(value))
            return tess__fail(TESS_EFORMAT, "%s: header: __metadata__: \"%.300s\" must be a string",
                              file->source.name, key);
        meta->key = tess__arena_string(&file->arena, key, strlen(key));
        meta->value =
            tess__arena_string(&file->arena, json_string_value(value), json_string_length(value));
        if (!meta->key || !meta->value)
            return TESS_ENOMEM;
        file->n_metas++;
    }
    return TESS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const tess__entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Brings the entries into the order of their data. A file's header is nearly always in it, and then
 * keeps its order also among empty tensors. */
static void sort_entries(tess_file *file)
{
    for (int i = 1; i < file->n_entries; i++) {
        const tess__entry *a = &file->entries[i - 1], *b = &file->entries[i];
        if (a->offset > b->offset || (a->offset == b->offset && a->bytes > b->bytes)) {
            qsort(file->entries, (size_t)file->n_entries, sizeof *file->entries, by_offset);
            return;
        }
    }
}

/* No holes, no overlaps, no rest. Then offsets are made to count from the start of the file. */
static tess_status check_layout(tess_file *file, size_t base, size_t data)
{
    size_t at = 0;
    for (int i = 0; i < file->n_entries; i++) {
        tess__entry *e = &file->entries[i];
        if (e->offset != at)
            return tensor_fail(e, "data_offsets [%zu,%zu] %s, must begin at %zu", e->offset,
                               e->offset + e->bytes,
                               e->offset > at ? "leave a hole" : "overlap another tensor's", at);
        at += e->bytes;
        e->offset += base;
    }
    if (at != data)
        return tess__fail(TESS_EFORMAT, "%s: data: %zu bytes, but the tensors need %zu",
                          file->source.name, data, at);
    return TESS_OK;
}

static tess_status read_header(tess_file *file, json_t *root, size_t data)
{
    const char *name;
    json_t *value;
    const size_t n = json_object_size(root);
    if (n > INT32_MAX)
        return tess__fail(TESS_ENOTSUP, "%s: header: %zu tensors are too many", file->source.name,
                          n);
    file->entries = tess__arena_take(&file->arena, sizeof *file->entries * n);
    if (!file->entries)
        return TESS_ENOMEM;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TESS_TRY(read_metadata(file, value));
        } else {
            TESS_TRY(read_tensor(file, name, value, data, &file->entries[file->n_entries]));
            file->n_entries++;
        }
    }
    return TESS_OK;
}

static tess_status load_json(const tess__source *s, size_t n, json_t **root)
{
    json_error_t error;
    *root = json_loadb((const char *)s->data + PREFIX, n, JSON_REJECT_DUPLICATES, &error);
    if (*root)
        return TESS_OK;
    if (tess__json_short(&error))
        return tess__nomem(n);
    return tess__fail(TESS_EFORMAT, "%s: header: byte %d: %s", s->name, PREFIX + error.position,
                      error.text);
}

tess_status tess__safetensors_parse(tess_file *file)
{
    const tess__source *s = &file->source;
    uint64_t n = 0;
    if (s->bytes < PREFIX)
        return tess__fail(TESS_EFORMAT,
                          "%s: has %zu bytes, must have at least the %d of its length", s->name,
                          s->bytes, PREFIX);
    for (int i = PREFIX; i-- > 0;)
        n = n << 8 | s->data[i];
    if (n > HEADER_MAX)
        return tess__fail(TESS_EFORMAT, "%s: header: length is %llu, must be at most %d", s->name,
                          (unsigned long long)n, HEADER_MAX);
    if (n > s->bytes - PREFIX)
        return tess__fail(TESS_EFORMAT, "%s: header: length is %llu, but the file has %zu bytes",
                          s->name, (unsigned long long)n, s->bytes);
    if (n == 0 || s->data[PREFIX] != '{')
        return tess__fail(TESS_EFORMAT, "%s: header: byte %d: must be '{'", s->name, PREFIX);

    json_t *root;
    const size_t base = PREFIX + (size_t)n, data = s->bytes - base;
    TESS_TRY(load_json(s, (size_t)n, &root));
    tess_status status = read_header(file, root, data);
    json_decref(root);
    if (status == TESS_OK) {
        sort_entries(file);
        status = check_layout(file, base, data);
    }
    return status;
}
