/* SPDX-License-Identifier: Apache-2.0 */
/* file_read.c - the data of tensors: in the mapping, as a copy, or copied to the caller.
 *
 * Plain data is read in pieces, which the threads share dynamically; between pieces the caller may
 * stop. Without conversion a piece goes straight to its place; with it, through a scratch of the
 * thread's own that stays in its cache. Which thread reads a piece changes nothing in the result.
 *
 * Members of .npz are read in order, through zlib where they are deflated, and their crc is
 * compared when all has been read. A stored member that has passed once is plain data from then on.
 */
#include "file_internal.h"

#include <errno.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>
#include <zlib.h>

enum {
    PIECE = 1 << 18,        /* with conversion: source and result stay in the second-level cache */
    PIECE_COPY = 1 << 21,   /* without: long enough to hide the system call */
    REPORT = 1 << 25,       /* a few milliseconds of reading */
    THREADS_FROM = 1 << 23, /* bytes below which a second thread is not worth waking */
    WHERE = 400,
};

/* What is to be read where. */
typedef struct {
    tess_file *file;
    tess__entry *entry;
    tess_dtype to;
    char *dst;
    size_t size, size_to; /* of an element in the file and in dst */
} job;

static tess_status find(const tess_file *file, const char *function, const char *name,
                        tess__entry **entry)
{
    tess__entry *found = NULL;
    if (!name && file->n_entries != 1)
        return tess__invalid(function, "name is NULL, but %s has %d tensors", file->source.name,
                             file->n_entries);
    found = name ? tess__names_find(file, name) : &file->entries[0];
    if (!found)
        return tess__invalid(file->source.name, "has no tensor \"%.300s\"", name);
    if (found->refused)
        return tess__fail(TESS_ENOTSUP, "%s: tensor \"%.300s\": %s", found->source->name,
                          found->name, found->refused);
    *entry = found;
    return TESS_OK;
}

static tess_status report(const job *j, size_t done)
{
    return tess__progress(j->file->ctx, "reading bytes", (int64_t)done, (int64_t)j->entry->bytes);
}

/* Copies n bytes of the elements; 0, or 1 with errno as tess__source_copy leaves it. */
static int fetch(const tess__entry *e, size_t at, void *dst, size_t n)
{
    if (e->copy) {
        memcpy(dst, (const char *)e->copy + at, n);
        return 0;
    }
    return tess__source_copy(e->source, e->offset + at, dst, n);
}

/* n bytes of elements, converted to their place. The arguments are right by construction, so that
 * this cannot fail. */
static void convert(const job *j, const void *from, size_t at, size_t n)
{
    tess_convert(j->file->ctx, j->entry->dtype, from, j->to, j->dst + at / j->size * j->size_to,
                 (int64_t)(n / j->size));
}

/* ---- plain data ------------------------------------------------------------------------------ */

/* Reads one piece; scratch NULL: no conversion. */
static int read_piece(const job *j, size_t at, size_t n, char *scratch)
{
    if (!scratch)
        return fetch(j->entry, at, j->dst + at, n);
    if (fetch(j->entry, at, scratch, n))
        return 1;
    convert(j, scratch, at, n);
    return 0;
}

/* What the threads of one reading share. */
typedef struct {
    size_t piece;
    char *scratch;       /* a piece for each thread; NULL: no conversion */
    _Atomic size_t next; /* where the next piece starts */
    _Atomic size_t done; /* bytes in their place */
    _Atomic int error;   /* errno of a read that failed; -1: none */
    _Atomic int stop;    /* 1: no further piece is begun */
    tess_status status;  /* of progress; the calling thread's alone */
} team;

/* Takes pieces until none is left. Thread 0 is the caller's, and reports. */
static void read_pieces(const job *j, team *t, int thread)
{
    const size_t bytes = j->entry->bytes;
    char *scratch = t->scratch ? t->scratch + (size_t)thread * t->piece : NULL;
    size_t reported = 0;
    while (!atomic_load(&t->stop)) {
        const size_t at = atomic_fetch_add(&t->next, t->piece);
        if (at >= bytes)
            return;
        const size_t n = bytes - at < t->piece ? bytes - at : t->piece;
        if (read_piece(j, at, n, scratch)) {
            atomic_store(&t->error, errno);
            atomic_store(&t->stop, 1);
            return;
        }
        const size_t done = atomic_fetch_add(&t->done, n) + n;
        if (thread == 0 && done - reported >= REPORT && done < bytes) {
            reported = done;
            t->status = report(j, done);
            if (t->status != TESS_OK)
                atomic_store(&t->stop, 1);
        }
    }
}

static tess_status read_plain(const job *j)
{
    tess_ctx *ctx = j->file->ctx;
    const int threads = j->entry->bytes < THREADS_FROM ? 1 : ctx->threads;
    team t = {.piece = j->entry->dtype == j->to ? PIECE_COPY : PIECE, .error = -1};
    if (j->entry->dtype != j->to) {
        t.scratch = TESS_ALLOC(ctx, t.piece * (size_t)threads);
    }
#pragma omp parallel num_threads(threads)
    read_pieces(j, &t, omp_get_thread_num());
    tess__free(ctx, t.scratch);
    TESS_TRY(t.status);
    if (t.error >= 0)
        return tess__source_failed(j->entry->source, t.error);
    return report(j, j->entry->bytes);
}

/* ---- members of .npz ------------------------------------------------------------------------- */

/* A member from its first byte on. */
typedef struct {
    const tess__entry *entry;
    tess__inflate *inflate; /* NULL: stored */
    size_t offset;          /* of the next stored byte */
    uint32_t crc;
} stream;

static tess_status stream_read(stream *s, void *dst, size_t n)
{
    if (s->inflate) {
        TESS_TRY(tess__inflate_read(s->inflate, dst, n));
    } else if (tess__source_copy(s->entry->source, s->offset, dst, n)) {
        return tess__source_failed(s->entry->source, errno);
    }
    s->offset += n;
    s->crc = (uint32_t)crc32_z(s->crc, dst, n);
    return TESS_OK;
}

static tess_status check_crc(const tess__entry *e, uint32_t crc)
{
    if (crc == e->crc)
        return TESS_OK;
    return tess__fail(TESS_EFORMAT, "%s: tensor \"%.300s\": crc of its data is %08x, must be %08x",
                      e->source->name, e->name, (unsigned)crc, (unsigned)e->crc);
}

/* The header again, the elements, and what must be true at the end. */
static tess_status read_stream(const job *j, stream *s, char *scratch)
{
    const size_t head = j->entry->head, bytes = j->entry->bytes;
    const int same = j->entry->dtype == j->to;
    for (size_t at = 0, n; at < head; at += n) {
        n = TESS_MIN(head - at, PIECE);
        TESS_TRY(stream_read(s, scratch, n));
    }
    for (size_t at = 0, n; at < bytes; at += n) {
        n = TESS_MIN(bytes - at, PIECE);
        TESS_TRY(stream_read(s, same ? j->dst + at : scratch, n));
        if (!same)
            convert(j, scratch, at, n);
        if (at % (PIECE * 16) == 0)
            TESS_TRY(report(j, at + n));
    }
    if (s->inflate)
        TESS_TRY(tess__inflate_end(s->inflate));
    return check_crc(j->entry, s->crc);
}

static tess_status read_member(const job *j)
{
    tess__entry *e = j->entry;
    tess_ctx *ctx = j->file->ctx;
    stream s = {.entry = e, .offset = e->offset - (e->packed ? 0 : e->head)};
    char where[WHERE];
    snprintf(where, sizeof where, "%.150s: tensor \"%.200s\"", e->source->name, e->name);
    char *scratch = tess__alloc(ctx, PIECE);
    tess_status status = scratch ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK && e->packed)
        status = tess__inflate_open(ctx, where, e->source->data + e->offset, e->packed, &s.inflate);
    if (status == TESS_OK)
        status = read_stream(j, &s, scratch);
    if (status == TESS_OK)
        e->unchecked = 0;
    tess__inflate_close(s.inflate);
    tess__free(ctx, scratch);
    return status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static tess_status read_entry(tess_file *file, tess__entry *e, tess_dtype to, void *dst)
{
    const job j = {file, e, to, dst, tess_dtype_size(e->dtype), tess_dtype_size(to)};
    const int plain = e->copy || (!e->packed && !e->unchecked);
    return plain ? read_plain(&j) : read_member(&j);
}

/* Compares the crc of a stored member in the mapping. */
static tess_status check_mapped(const tess_file *file, tess__entry *e)
{
    const unsigned char *data = e->source->data + e->offset - e->head;
    const size_t bytes = e->head + e->bytes;
    uint32_t crc = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = TESS_MIN(bytes - at, REPORT);
        crc = (uint32_t)crc32_z(crc, data + at, n);
        TESS_TRY(tess__progress(file->ctx, "checking bytes", (int64_t)(at + n), (int64_t)bytes));
    }
    TESS_TRY(check_crc(e, crc));
    e->unchecked = 0;
    return TESS_OK;
}

static tess_status make_copy(tess_file *file, tess__entry *e)
{
    void *copy = TESS_ALLOC(file->ctx, e->bytes);
    const tess_status status = read_entry(file, e, e->dtype, copy);
    if (status != TESS_OK) {
        tess__free(file->ctx, copy);
        return status;
    }
    e->copy = copy;
    return TESS_OK;
}

tess_status tess_file_tensor(tess_file *file, const char *name, tess_tensor *tensor)
{
    tess__entry *e;
    TESS_REQUIRE(file, tensor);
    TESS_TRY(find(file, "tess_file_tensor", name, &e));
    const unsigned char *place = e->source->data + e->offset;
    const int mapped = !e->packed && (uintptr_t)place % tess_dtype_size(e->dtype) == 0;
    if (mapped && e->unchecked)
        TESS_TRY(check_mapped(file, e));
    if (!mapped && !e->copy)
        TESS_TRY(make_copy(file, e));
    *tensor = (tess_tensor){
        .name = e->name,
        .dtype = e->dtype,
        .rank = e->rank,
        .data = mapped ? place : e->copy,
    };
    memcpy(tensor->shape, e->shape, sizeof e->shape);
    return TESS_OK;
}

tess_status tess_file_read(tess_file *file, const char *name, tess_dtype dtype, void *dst,
                           size_t bytes)
{
    tess__entry *e;
    char text[TESS_SHAPE_TEXT];
    size_t needs;
    const size_t size = tess_dtype_size(dtype);
    if (!file || (!dst && bytes > 0))
        return tess__invalid(__func__, "%s is NULL", file ? "dst" : "file");
    if (size == 0)
        return tess__invalid(__func__, "dtype is %d, must be 0..%d", (int)dtype,
                             TESS_DTYPE_COUNT - 1);
    TESS_TRY(find(file, "tess_file_read", name, &e));
    if (tess__shape_bytes(size, e->rank, e->shape, &needs))
        needs = SIZE_MAX; /* more than any buffer has */
    if (needs != bytes)
        return tess__fail(
            TESS_EINVAL, "tess_file_read: bytes is %zu, but \"%.300s\" as %s %s needs %zu", bytes,
            e->name, tess_dtype_name(dtype), tess__shape_text(e->rank, e->shape, text), needs);
    if ((uintptr_t)dst % size != 0)
        return tess__invalid(__func__, "dst must be aligned to the %zu bytes of %s", size,
                             tess_dtype_name(dtype));
    return read_entry(file, e, dtype, dst);
}
