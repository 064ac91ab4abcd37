/* SPDX-License-Identifier: Apache-2.0 */
/* npz.c - NumPy's .npz: a zip archive whose members NAME.npy are the tensors NAME.
 *
 * Opening reads the directory and the .npy header of each
 * member, inflating a few hundred bytes where it is deflated. A member's size must be what its
 * .npy header says, so that nothing inflates to more than the array it claims to be, and what it
 * claims is bounded by deflate's best ratio before memory is taken.
 *
 * Members that do not end in .npy are no tensors and are passed over. A member that is encrypted,
 * packed by another method or of a dtype this library does not know is refused when asked for.
 */
#include "file_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    RATIO_MAX = 1032, /* deflate's best: 258 bytes for 2 bits */
    WHERE = 400,
};

/* The first bytes of a member, for as long as its .npy header is: in *data, or inflated into
 * *made, which the caller frees. */
static tess_status read_head(tess_ctx *ctx, const char *where, const tess__zip_entry *m,
                             const unsigned char *start, size_t *head, unsigned char **made)
{
    const size_t n = m->bytes < TESS_NPY_PREFIX ? (size_t)m->bytes : TESS_NPY_PREFIX;
    unsigned char prefix[TESS_NPY_PREFIX];
    tess__inflate *inflate;
    TESS_TRY(tess__inflate_open(ctx, where, start, (size_t)m->packed, &inflate));
    tess_status status = tess__inflate_read(inflate, prefix, n);
    if (status == TESS_OK)
        status = tess__npy_head(where, prefix, n, head);
    if (status == TESS_OK && *head > m->bytes)
        status = tess__fail(TESS_EFORMAT, "%s: header: needs %zu bytes, but the member has %llu",
                            where, *head, (unsigned long long)m->bytes);
    if (status == TESS_OK) {
        *made = tess__alloc(ctx, *head < n ? n : *head);
        status = *made ? TESS_OK : TESS_ENOMEM;
    }
    if (status == TESS_OK) {
        memcpy(*made, prefix, n);
        if (*head > n)
            status = tess__inflate_read(inflate, *made + n, *head - n);
    }
    tess__inflate_close(inflate);
    return status;
}

static tess_status read_npy(tess_ctx *ctx, const char *where, const tess__zip_entry *m,
                            const unsigned char *start, size_t *head, tess__npy *npy)
{
    if (m->method == TESS_ZIP_STORED) {
        const size_t n = (size_t)m->bytes;
        TESS_TRY(tess__npy_head(where, start, TESS_MIN(n, TESS_NPY_PREFIX), head));
        if (*head > n)
            return tess__fail(TESS_EFORMAT, "%s: header: needs %zu bytes, but the member has %zu",
                              where, *head, n);
        return tess__npy_read(where, start, *head, npy);
    }
    unsigned char *made = NULL;
    tess_status status = read_head(ctx, where, m, start, head, &made);
    if (status == TESS_OK)
        status = tess__npy_read(where, made, *head, npy);
    tess__free(ctx, made);
    return status;
}

static tess_status check_sizes(const char *where, const tess__zip_entry *m)
{
    if (m->method == TESS_ZIP_STORED && m->packed != m->bytes)
        return tess__fail(TESS_EFORMAT, "%s: is stored in %llu bytes, but has %llu", where,
                          (unsigned long long)m->packed, (unsigned long long)m->bytes);
    if (m->bytes / RATIO_MAX > m->packed)
        return tess__fail(TESS_EFORMAT, "%s: %llu deflated bytes cannot hold %llu", where,
                          (unsigned long long)m->packed, (unsigned long long)m->bytes);
    return TESS_OK;
}

/* Fills the entry of a member that can be read. */
static tess_status describe(tess_file *file, const char *where, const tess__zip_entry *m,
                            uint64_t limit, tess__entry *entry)
{
    size_t start, head;
    tess__npy npy;
    TESS_TRY(check_sizes(where, m));
    TESS_TRY(tess__zip_data(&file->source, where, m, limit, &start));
    TESS_TRY(read_npy(file->ctx, where, m, file->source.data + start, &head, &npy));
    if (npy.refused[0]) {
        entry->refused = TESS_TAKE_STRING(&file->arena, npy.refused, strlen(npy.refused));
        return TESS_OK;
    }
    if (npy.bytes != m->bytes - head) {
        char text[TESS_SHAPE_TEXT];
        return tess__fail(TESS_EFORMAT, "%s: data: %llu bytes, but %s %s needs %zu", where,
                          (unsigned long long)(m->bytes - head), tess_dtype_name(npy.dtype),
                          tess__shape_text(npy.rank, npy.shape, text), npy.bytes);
    }
    entry->dtype = npy.dtype;
    entry->rank = npy.rank;
    memcpy(entry->shape, npy.shape, sizeof npy.shape);
    entry->bytes = npy.bytes;
    entry->head = head;
    entry->crc = m->crc;
    entry->unchecked = 1;
    entry->packed = m->method == TESS_ZIP_STORED ? 0 : (size_t)m->packed;
    entry->offset = m->method == TESS_ZIP_STORED ? start + head : start;
    return TESS_OK;
}

static tess_status add_member(tess_file *file, const tess__zip_entry *m, uint64_t limit)
{
    static const char end[] = ".npy";
    if (m->length < 4 || memcmp(m->name + m->length - 4, end, 4) != 0)
        return TESS_OK;
    const char *rule = tess__name_rule(m->name, m->length);
    if (rule)
        return tess__fail(TESS_EFORMAT, "%s: member number %d: its name %s", file->source.name,
                          file->n_entries, rule);
    char where[WHERE];
    snprintf(where, sizeof where, "%.150s: member \"%.*s\"", file->source.name,
             (int)(m->length > 200 ? 200 : m->length), m->name);
    tess__entry *entry = &file->entries[file->n_entries];
    *entry = (tess__entry){.source = &file->source};
    entry->name = TESS_TAKE_STRING(&file->arena, m->name, m->length - 4);
    file->n_entries++;
    if (m->encrypted)
        entry->refused = "is encrypted";
    else if (m->method != TESS_ZIP_STORED && m->method != TESS_ZIP_DEFLATED)
        entry->refused = "is compressed by a method that is neither stored nor deflated";
    else
        return describe(file, where, m, limit, entry);
    return TESS_OK;
}

tess_status tess__npz_parse(tess_file *file)
{
    const tess__source *s = &file->source;
    tess__zip d;
    TESS_TRY(tess__zip_directory(s, &d));
    if (d.members > INT32_MAX)
        return tess__fail(TESS_ENOTSUP, "%s: has %llu members, at most %d can be read", s->name,
                          (unsigned long long)d.members, INT32_MAX);
    file->entries = TESS_TAKE(&file->arena, sizeof *file->entries * (size_t)d.members);
    size_t at = (size_t)d.offset;
    for (uint64_t i = 0; i < d.members; i++) {
        tess__zip_entry m;
        TESS_TRY(tess__zip_member(s, &at, (size_t)(d.offset + d.bytes), &m));
        TESS_TRY(add_member(file, &m, d.offset));
    }
    if (at != d.offset + d.bytes)
        return tess__fail(TESS_EFORMAT, "%s: byte %zu: %llu bytes follow the last member", s->name,
                          at, (unsigned long long)(d.offset + d.bytes - at));
    return TESS_OK;
}
