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
#include "file_internal.h"

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
 * or 0 for an unknown one. */
static tess_status read_dtype(tess_file *file, const char *name, tess__entry *e, unsigned *bits)
{
    if (!*name || strlen(name) >= DTYPE_MAX || tess__name_rule(name, strlen(name)))
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
    e->refused = TESS_TAKE_STRING(&file->arena, why, (size_t)n);
    return TESS_OK;
}

static tess_status read_shape(tess_file *file, tess__cursor *s, tess__entry *e)
{
    int first = 1, more = 0, rank = 0;
    if (!tess__cursor_accept(s, '['))
        return tess__cursor_fail(s, "'['");
    for (;;) {
        int64_t length = 0;
        TESS_TRY(tess__cursor_next(s, ']', &first, &more));
        if (!more)
            break;
        TESS_TRY(tess__cursor_length(s, &length));
        if (rank < TESS_RANK_MAX)
            e->shape[rank] = length;
        rank++;
    }
    e->rank = rank;
    if (rank > TESS_RANK_MAX) {
        char why[64];
        const int n = snprintf(why, sizeof why, "rank is %d, must be 0..%d", rank, TESS_RANK_MAX);
        e->refused = TESS_TAKE_STRING(&file->arena, why, (size_t)n);
        return TESS_OK;
    }
    return TESS_OK;
}

/* Offset and bytes, still counted from the start of the data. */
static tess_status read_offsets(tess__cursor *s, size_t data, tess__entry *e)
{
    int64_t from = 0, to = 0;
    if (!tess__cursor_accept(s, '['))
        return tess__cursor_fail(s, "'['");
    TESS_TRY(tess__cursor_length(s, &from));
    if (!tess__cursor_accept(s, ','))
        return tess__cursor_fail(s, "','");
    TESS_TRY(tess__cursor_length(s, &to));
    if (!tess__cursor_accept(s, ']'))
        return tess__cursor_fail(s, "']'");
    if (from > to)
        return tensor_fail(e, "data_offsets [%lld,%lld] end before they begin", (long long)from,
                           (long long)to);
    if ((uint64_t)to > data)
        return tensor_fail(e, "data_offsets [%lld,%lld] end beyond the %zu bytes of data",
                           (long long)from, (long long)to, data);
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

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* One member of a tensor's object. */
static tess_status read_member(tess_file *file, tess__cursor *s, size_t data, tess__entry *e,
                               int *has, const char **dtype)
{
    static const struct {
        const char *quoted, *name;
        int bit;
    } keys[] = {{"\"dtype\"", "dtype", HAS_DTYPE},
                {"\"shape\"", "shape", HAS_SHAPE},
                {"\"data_offsets\"", "data_offsets", HAS_OFFSETS}};
    const char *key = NULL;
    int bit = 0;
    for (int i = 0; i < 3 && !bit; i++)
        bit = tess__cursor_word(s, keys[i].quoted) ? keys[i].bit : 0;
    if (!bit) { /* another key, or a known one with escapes */
        TESS_TRY(tess__cursor_string(s, &file->arena, &key));
        for (int i = 0; i < 3; i++)
            bit |= strcmp(key, keys[i].name) == 0 ? keys[i].bit : 0;
    }
    if (*has & bit)
        return tensor_fail(e, "%s is there twice", keys[bit / 2].name);
    *has |= bit;
    if (!tess__cursor_accept(s, ':'))
        return tess__cursor_fail(s, "':'");
    switch (bit) {
    case HAS_DTYPE: return tess__cursor_string(s, &file->arena, dtype);
    case HAS_SHAPE: return read_shape(file, s, e);
    case HAS_OFFSETS: return read_offsets(s, data, e);
    default: return tess__cursor_skip(s, 0);
    }
}

static tess_status read_tensor(tess_file *file, tess__cursor *s, const char *name, size_t data,
                               tess__entry *e)
{
    const char *dtype = "";
    unsigned bits = 0;
    int has = 0, first = 1, more = 0;
    *e = (tess__entry){.name = name, .source = &file->source};
    const char *rule = tess__name_rule(name, strlen(name));
    if (rule)
        return tess__fail(TESS_EFORMAT, "%s: header: the name of tensor number %d %s",
                          file->source.name, file->n_entries, rule);
    if (!tess__cursor_accept(s, '{'))
        return tess__cursor_fail(s, "'{'");
    for (;;) {
        TESS_TRY(tess__cursor_next(s, '}', &first, &more));
        if (!more)
            break;
        TESS_TRY(read_member(file, s, data, e, &has, &dtype));
    }
    if (has != HAS_ALL)
        return tensor_fail(e, "lacks %s",
                           !(has & HAS_DTYPE)   ? "dtype"
                           : !(has & HAS_SHAPE) ? "shape"
                                                : "data_offsets");
    TESS_TRY(read_dtype(file, dtype, e, &bits));
    if (bits > 0 && e->rank <= TESS_RANK_MAX)
        TESS_TRY(check_size(e, dtype, bits));
    return TESS_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const tess_meta *const *)a)->key, (*(const tess_meta *const *)b)->key);
}

static tess_status check_keys(tess_file *file)
{
    const size_t n = (size_t)file->n_metas;
    const tess_meta **sorted = TESS_TAKE(&file->arena, sizeof *sorted * n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &file->metas[i];
    qsort(sorted, n, sizeof *sorted, by_key);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            return tess__fail(TESS_EFORMAT, "%s: header: __metadata__: \"%.300s\" is there twice",
                              file->source.name, sorted[i]->key);
    }
    return TESS_OK;
}

/* The shortest pair and the shortest tensor with their commas: what bounds their number. */
enum { META_MIN = sizeof "\"\":\"\"", TENSOR_MIN = 40 };

static tess_status read_metadata(tess_file *file, tess__cursor *s)
{
    int first = 1, more = 0;
    if (file->metas)
        return tess__fail(TESS_EFORMAT, "%s: header: __metadata__ is there twice",
                          file->source.name);
    tess__cursor whole = *s;
    TESS_TRY(tess__cursor_skip(&whole, 0));
    if (!tess__cursor_accept(s, '{'))
        return tess__cursor_fail(s, "'{'");
    file->metas =
        TESS_TAKE(&file->arena, sizeof *file->metas * (1 + (whole.at - s->at) / META_MIN));
    for (;;) {
        tess_meta *meta = &file->metas[file->n_metas];
        TESS_TRY(tess__cursor_next(s, '}', &first, &more));
        if (!more)
            return check_keys(file);
        TESS_TRY(tess__cursor_string(s, &file->arena, &meta->key));
        if (!tess__cursor_accept(s, ':'))
            return tess__cursor_fail(s, "':'");
        TESS_TRY(tess__cursor_string(s, &file->arena, &meta->value));
        file->n_metas++;
    }
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

static tess_status read_header(tess_file *file, tess__cursor *s, size_t data)
{
    const char *name = "";
    int first = 1, more = 0;
    tess__cursor_accept(s, '{');
    file->entries =
        TESS_TAKE(&file->arena, sizeof *file->entries * (1 + (s->end - s->at) / TENSOR_MIN));
    for (;;) {
        TESS_TRY(tess__cursor_next(s, '}', &first, &more));
        if (!more)
            break;
        TESS_TRY(tess__cursor_string(s, &file->arena, &name));
        if (!tess__cursor_accept(s, ':'))
            return tess__cursor_fail(s, "':'");
        if (strcmp(name, "__metadata__") == 0) {
            TESS_TRY(read_metadata(file, s));
        } else {
            TESS_TRY(read_tensor(file, s, name, data, &file->entries[file->n_entries]));
            file->n_entries++;
        }
    }
    tess__cursor_space(s);
    return s->at == s->end ? TESS_OK : tess__cursor_fail(s, "nothing but spaces after '}'");
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

    const size_t base = PREFIX + (size_t)n, data = s->bytes - base;
    tess__cursor scan = {s, PREFIX, base};
    TESS_TRY(read_header(file, &scan, data));
    sort_entries(file);
    return check_layout(file, base, data);
}
