/* SPDX-License-Identifier: Apache-2.0 */
/* byte_stream.c - the bytes of a file from front to back, unpacked where the file is gzip.
 *
 * A plain file is read straight into the caller's buffer; it is not mapped, because mapped pages
 * count as resident. Gzip goes through a piece of PIECE bytes and zlib (about 1.4 GB/s come out).
 * Members of a gzip file follow each other as gzip(1) allows. A stream that ends too early or is
 * damaged gives what could be unpacked, then ends, and says why.
 */
#include "byte_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 17, GZIP_WINDOW = MAX_WBITS + 16 };

struct tess__byte_stream {
    tess_ctx *ctx;
    const char *name;
    int fd;                      /* -1: memory */
    const unsigned char *memory; /* what is left of it */
    size_t memory_left;
    unsigned char *piece; /* (PIECE); the first `head` bytes of a plain file, then packed bytes */
    size_t head_at, head;
    int gzip, inflating; /* inflating: zlib holds a state */
    int members;         /* of the gzip file, whole ones */
    z_stream z;
    int64_t done, total;
    char broken[96];
};

/* ---- the file ------------------------------------------------------------------------------- */

static tess_status take_memory(tess__byte_stream *s, void *dst, size_t n, size_t *got)
{
    *got = TESS_MIN(n, s->memory_left);
    if (*got > 0)
        memcpy(dst, s->memory, *got);
    s->memory += *got;
    s->memory_left -= *got;
    s->done += (int64_t)*got;
    return TESS_OK;
}

/* The next bytes of the file as they are. */
static tess_status take(tess__byte_stream *s, void *dst, size_t n, size_t *got)
{
    if (s->fd < 0)
        return take_memory(s, dst, n, got);
    ssize_t count;
    do
        count = read(s->fd, dst, n);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return tess__fail(TESS_EIO, "%s: cannot read: %m", s->name);
    *got = (size_t)count;
    s->done += count;
    return TESS_OK;
}

/* ---- gzip ----------------------------------------------------------------------------------- */

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    return tess__alloc(ctx, (size_t)items * size);
}

static void z_free(void *ctx, void *memory)
{
    tess__free(ctx, memory);
}

static tess_status fill_piece(tess__byte_stream *s)
{
    size_t got = 0;
    TESS_TRY(take(s, s->piece, PIECE, &got));
    s->z.next_in = s->piece;
    s->z.avail_in = (unsigned)got;
    return TESS_OK;
}

/* The member has ended: another follows, or nothing, or padding, which gzip(1) ignores too. */
static tess_status next_member(tess__byte_stream *s, int *more)
{
    s->members++;
    if (s->z.avail_in == 0)
        TESS_TRY(fill_piece(s));
    *more = s->z.avail_in > 0 && s->z.next_in[0] == 0x1f;
    if (*more)
        inflateReset(&s->z);
    return TESS_OK;
}

/* Z_BUF_ERROR: there is room, and nothing to unpack. */
static void say_broken(tess__byte_stream *s, int code)
{
    if (code == Z_BUF_ERROR)
        snprintf(s->broken, sizeof s->broken, "its gzip stream ends too early");
    else
        snprintf(s->broken, sizeof s->broken, "its gzip stream is damaged (%.40s)",
                 s->z.msg ? s->z.msg : "no reason given");
}

static tess_status unpack(tess__byte_stream *s, void *dst, size_t n, size_t *got)
{
    s->z.next_out = dst;
    s->z.avail_out = (unsigned)TESS_MIN(n, (size_t)1 << 30);
    const unsigned room = s->z.avail_out;
    int more = s->inflating;
    while (more && s->z.avail_out == room) {
        if (s->z.avail_in == 0)
            TESS_TRY(fill_piece(s));
        const int code = inflate(&s->z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR)
            return TESS_ENOMEM; /* z_alloc has said it */
        if (code == Z_STREAM_END) {
            TESS_TRY(next_member(s, &more));
        } else if (code != Z_OK) {
            say_broken(s, code);
            more = 0;
        }
    }
    s->inflating = more;
    *got = room - s->z.avail_out;
    return TESS_OK;
}

/* ---- the stream ----------------------------------------------------------------------------- */

/* Reads the first bytes: gzip begins with 1f 8b. */
static tess_status begin(tess__byte_stream *s)
{
    size_t n = 0, got = 1;
    s->piece = TESS_ALLOC(s->ctx, PIECE);
    while (n < 2 && got > 0) {
        TESS_TRY(take(s, s->piece + n, PIECE - n, &got));
        n += got;
    }
    s->head = n;
    if (n < 2 || s->piece[0] != 0x1f || s->piece[1] != 0x8b)
        return TESS_OK;
    s->gzip = 1;
    s->z.zalloc = z_alloc;
    s->z.zfree = z_free;
    s->z.opaque = s->ctx;
    s->z.next_in = s->piece;
    s->z.avail_in = (unsigned)n;
    if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK)
        return TESS_ENOMEM;
    s->inflating = 1;
    return TESS_OK;
}

static tess_status make(tess_ctx *ctx, const char *name, tess__byte_stream **stream)
{
    tess__byte_stream *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->name = name;
    made->fd = -1;
    *stream = made;
    return TESS_OK;
}

static tess_status begin_or_close(tess__byte_stream *made, tess__byte_stream **stream)
{
    const tess_status status = begin(made);
    if (status == TESS_OK)
        *stream = made;
    else
        tess__byte_stream_close(made);
    return status;
}

static tess_status open_file(tess__byte_stream *s)
{
    struct stat st;
    do
        s->fd = open(s->name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (s->fd < 0 && errno == EINTR);
    if (s->fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", s->name);
    if (fstat(s->fd, &st) == 0 && S_ISDIR(st.st_mode))
        return tess__fail(TESS_EIO, "%s: cannot read: is a folder", s->name);
    s->total = S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
    return TESS_OK;
}

tess_status tess__byte_stream_open(tess_ctx *ctx, const char *name, tess__byte_stream **stream)
{
    tess__byte_stream *made = NULL;
    TESS_TRY(make(ctx, name, &made));
    const tess_status status = open_file(made);
    if (status == TESS_OK)
        return begin_or_close(made, stream);
    tess__byte_stream_close(made);
    return status;
}

tess_status tess__byte_stream_memory(tess_ctx *ctx, const char *name, const void *data, size_t n,
                                     tess__byte_stream **stream)
{
    tess__byte_stream *made = NULL;
    TESS_TRY(make(ctx, name, &made));
    made->memory = data;
    made->memory_left = n;
    made->total = (int64_t)n;
    return begin_or_close(made, stream);
}

tess_status tess__byte_stream_read(tess__byte_stream *s, void *dst, size_t n, size_t *got)
{
    if (s->gzip)
        return unpack(s, dst, n, got);
    if (s->head == 0)
        return take(s, dst, n, got);
    *got = TESS_MIN(n, s->head);
    memcpy(dst, s->piece + s->head_at, *got);
    s->head_at += *got;
    s->head -= *got;
    return TESS_OK;
}

const char *tess__byte_stream_broken(const tess__byte_stream *s)
{
    return s->broken[0] ? s->broken : NULL;
}

void tess__byte_stream_progress(const tess__byte_stream *s, int64_t *done, int64_t *total)
{
    *done = s->done;
    *total = s->total;
}

void tess__byte_stream_close(tess__byte_stream *s)
{
    if (!s)
        return;
    if (s->gzip)
        inflateEnd(&s->z);
    if (s->fd >= 0)
        close(s->fd);
    tess__free(s->ctx, s->piece);
    tess__free(s->ctx, s);
}
