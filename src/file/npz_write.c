/* SPDX-License-Identifier: Apache-2.0 */
/* npz_write.c - writing .npz, stored or deflated, with zip64 where 32 bits do not do.
 *
 * A local header comes before the bytes it describes and is patched once their sizes and crc are
 * known. A stored member is padded by an extra field (0xd935, the one zipalign uses) so that its
 * elements are aligned to 64 bytes in a mapping. The date is always 1980-01-01: the same tensors
 * give the same bytes.
 */
#include "file_internal.h"

#include <string.h>
#include <zlib.h>

enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    ZIP64 = 20,  /* bytes of the local zip64 field: id, length, two sizes */
    PAD_MIN = 6, /* bytes of the padding field: id, length, alignment */
    ALIGN_DATA = 64,
    PIECE = 1 << 18,
    DATE = 0x21, /* 1980-01-01 */
    UTF8 = 0x800,
};
static const uint64_t limit32 = 0xffffffff;

typedef struct {
    uint64_t local, packed, bytes; /* offset of the local header; sizes as in zip.c */
    uint32_t crc;
    int wide; /* 1: its local header has the zip64 field */
} member;

typedef struct {
    tess__sink *sink;
    uint64_t at; /* bytes written */
    int method;
    unsigned char *piece; /* deflated bytes on their way */
    z_stream z;
} writer;

static unsigned char *write16(unsigned char *p, uint64_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
    return p + 2;
}

static unsigned char *write32(unsigned char *p, uint64_t v)
{
    return write16(write16(p, v), v >> 16);
}

static unsigned char *write64(unsigned char *p, uint64_t v)
{
    return write32(write32(p, v), v >> 32);
}

static uint64_t at_most_32(uint64_t v)
{
    return TESS_MIN(v, limit32);
}

static tess_status emit(writer *w, const void *bytes, size_t n)
{
    w->at += n;
    return tess__out_write(w->sink->out, bytes, n);
}

/* Version needed, flags, method, time, date, crc, sizes, length of the name: the part that local
 * and central headers share. */
static unsigned char *write_common(unsigned char *p, const writer *w, const member *m, size_t name)
{
    p = write16(write16(write16(p, m->wide ? 45 : 20), UTF8), (uint64_t)w->method);
    p = write16(write16(p, 0), DATE);
    p = write32(p, m->crc);
    p = write32(write32(p, m->wide ? limit32 : m->packed), m->wide ? limit32 : m->bytes);
    return write16(p, name + 4);
}

/* Bytes of padding, its field's head included, that align what follows a header ending at `end`. */
static size_t padding(const writer *w, uint64_t end)
{
    if (w->method != TESS_ZIP_STORED || end % ALIGN_DATA == 0)
        return 0;
    const size_t pad = ALIGN_DATA - end % ALIGN_DATA;
    return pad < PAD_MIN ? pad + ALIGN_DATA : pad;
}

/* Writes a member's local header, or writes it again over itself. */
static tess_status write_local(writer *w, const member *m, const char *name, int again)
{
    unsigned char head[LOCAL], extra[ZIP64 + ALIGN_DATA + PAD_MIN] = {0}, *p = extra;
    const size_t length = strlen(name);
    if (m->wide)
        p = write64(write64(write16(write16(p, 1), 16), m->bytes), m->packed);
    const size_t pad = padding(w, m->local + LOCAL + length + 4 + (size_t)(p - extra));
    if (pad > 0) {
        write16(write16(write16(p, 0xd935), pad - 4), ALIGN_DATA);
        p += pad;
    }
    memcpy(head, "PK\3\4", 4);
    write16(write_common(head + 4, w, m, length), (uint64_t)(p - extra));
    if (again) {
        TESS_TRY(tess__out_patch(w->sink->out, m->local, head, LOCAL));
        return tess__out_patch(w->sink->out, m->local + LOCAL + length + 4, extra,
                               (size_t)(p - extra));
    }
    TESS_TRY(emit(w, head, LOCAL));
    TESS_TRY(emit(w, name, length));
    TESS_TRY(emit(w, ".npy", 4));
    return emit(w, extra, (size_t)(p - extra));
}

/* Passes n bytes of a member on, deflated or not. `last` ends the deflated stream. */
static tess_status pack(writer *w, member *m, const void *bytes, size_t n, int last)
{
    m->crc = (uint32_t)crc32_z(m->crc, bytes, n);
    if (w->method == TESS_ZIP_STORED)
        return emit(w, bytes, n);
    w->z.next_in = (unsigned char *)bytes;
    w->z.avail_in = (unsigned)n;
    do {
        w->z.next_out = w->piece;
        w->z.avail_out = PIECE;
        deflate(&w->z, last ? Z_FINISH : Z_NO_FLUSH); /* cannot fail between init and end */
        TESS_TRY(emit(w, w->piece, PIECE - w->z.avail_out));
    } while (w->z.avail_out == 0);
    return TESS_OK;
}

static tess_status write_member(writer *w, const tess_tensor *tensor, member *m)
{
    char head[TESS_NPY_TEXT];
    const size_t length = tess__npy_format(tensor, head), bytes = tess__tensor_bytes(tensor);
    const char *data = tensor->data;
    *m = (member){.local = w->at, .bytes = length + bytes};
    /* Deflated bytes can be a little more than there were: the margin is generous. */
    m->wide = m->bytes >= limit32 - (limit32 >> 8);
    TESS_TRY(write_local(w, m, tensor->name, 0));
    const uint64_t start = w->at;
    if (w->method == TESS_ZIP_DEFLATED)
        deflateReset(&w->z);
    TESS_TRY(pack(w, m, head, length, bytes == 0));
    for (size_t at = 0; at < bytes;) {
        const size_t n = TESS_MIN(bytes - at, PIECE);
        TESS_TRY(pack(w, m, data + at, n, at + n == bytes));
        at += n;
        w->sink->done += (int64_t)n;
        if (at % TESS_WRITE_STEP == 0 || at == bytes)
            TESS_TRY(tess__sink_progress(w->sink, 0));
    }
    m->packed = w->at - start;
    return write_local(w, m, tensor->name, 1);
}

static tess_status write_central(writer *w, const member *m, const char *name)
{
    unsigned char head[CENTRAL], extra[4 + 3 * 8], *p = extra;
    const size_t length = strlen(name);
    member shown = *m;
    shown.wide |= m->local >= limit32;
    if (shown.wide)
        p = write64(write64(write64(write16(write16(p, 1), 24), m->bytes), m->packed), m->local);
    memset(head, 0, sizeof head);
    memcpy(head, "PK\1\2", 4);
    write16(head + 4, 3 << 8 | 45); /* made on Unix, by version 4.5 */
    write16(write_common(head + 6, w, &shown, length), (uint64_t)(p - extra));
    write32(head + 38, (uint64_t)0100644 << 16); /* the mode when unpacked */
    write32(head + 42, shown.wide ? limit32 : m->local);
    TESS_TRY(emit(w, head, CENTRAL));
    TESS_TRY(emit(w, name, length));
    TESS_TRY(emit(w, ".npy", 4));
    return emit(w, extra, (size_t)(p - extra));
}

static tess_status write_end(writer *w, uint64_t directory, uint64_t n)
{
    unsigned char end[END64 + LOCATOR + END] = {0}, *p = end;
    const uint64_t bytes = w->at - directory, end64 = w->at;
    if (n >= 0xffff || bytes >= limit32 || directory >= limit32) {
        memcpy(p, "PK\6\6", 4);
        p = write16(write16(write64(p + 4, END64 - 12), 45), 45);
        p = write64(write64(p + 8, n), n); /* over the two disk numbers, which are 0 */
        p = write64(write64(p, bytes), directory);
        memcpy(p, "PK\6\7", 4);
        p = write32(write64(p + 8, end64), 1);
    }
    memcpy(p, "PK\5\6", 4);
    p = write16(write16(p + 8, TESS_MIN(n, 0xffff)), TESS_MIN(n, 0xffff));
    p = write32(write32(p, at_most_32(bytes)), at_most_32(directory)) + 2;
    return emit(w, end, (size_t)(p - end));
}

static tess_status write_all(writer *w, const tess_tensor *tensors, int n, member *members)
{
    for (int i = 0; i < n; i++)
        TESS_TRY(write_member(w, &tensors[i], &members[i]));
    const uint64_t directory = w->at;
    for (int i = 0; i < n; i++)
        TESS_TRY(write_central(w, &members[i], tensors[i].name));
    return write_end(w, directory, (uint64_t)n);
}

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    return tess__alloc(ctx, (size_t)items * size);
}

static void z_free(void *ctx, void *memory)
{
    tess__free(ctx, memory);
}

tess_status tess__npz_write(tess__sink *sink, const tess_tensor *tensors, int n, int compress)
{
    tess_ctx *ctx = sink->ctx;
    tess__arena arena = {.ctx = ctx};
    writer w = {.sink = sink, .z = {.zalloc = z_alloc, .zfree = z_free, .opaque = ctx}};
    member *members = tess__arena_take(&arena, sizeof *members * (size_t)n);
    tess_status status = members ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK && compress) {
        w.method = TESS_ZIP_DEFLATED;
        w.piece = tess__arena_take(&arena, PIECE);
        if (!w.piece || deflateInit2(&w.z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                                     Z_DEFAULT_STRATEGY) != Z_OK)
            status = TESS_ENOMEM;
    }
    if (status == TESS_OK)
        status = write_all(&w, tensors, n, members);
    if (w.z.state)
        deflateEnd(&w.z);
    tess__arena_free(&arena);
    return status;
}
