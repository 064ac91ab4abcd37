/* SPDX-License-Identifier: Apache-2.0 */
/* byte_stream.c - the bytes of a file from front to back, unpacked where the file is gzip.
 *
 * A plain file is read straight into the caller's buffer; it is not mapped, because mapped pages
 * count as resident. Gzip goes through a piece of PIECE bytes and ISA-L or zlib (gunzip.h).
 * Members of a gzip file follow each other as gzip(1) allows. A stream that ends too early or is
 * damaged gives what could be unpacked, then ends, and says why.
 */
#include "byte_stream.h"
#include "gunzip.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 17 };

struct tess__byte_stream {
    tess_ctx *ctx;
    const char *name;
    int fd;                      /* -1: memory */
    const unsigned char *memory; /* what is left of it */
    size_t memory_left;
    unsigned char *piece; /* (PIECE); the first `head` bytes of a plain file, then packed bytes */
    size_t head_at, head;
    const tess__gunzip_library *library;
    void *gunzip; /* its state; NULL: a plain file */
    int ended;    /* nothing more is to be unpacked */
    tess__gunzip_pieces pieces;
    int64_t done, total;
    const char *broken; /* NULL: not */
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

static tess_status fill_piece(tess__byte_stream *s)
{
    TESS_TRY(take(s, s->piece, PIECE, &s->pieces.in_left));
    s->pieces.in = s->piece;
    return TESS_OK;
}

/* The member has ended: another follows, or nothing, or padding, which gzip(1) ignores too. */
static tess_status next_member(tess__byte_stream *s)
{
    if (s->pieces.in_left == 0)
        TESS_TRY(fill_piece(s));
    s->ended = s->pieces.in_left == 0 || s->pieces.in[0] != 0x1f;
    if (!s->ended)
        s->library->reset(s->gunzip);
    return TESS_OK;
}

static void break_off(tess__byte_stream *s, tess__gunzip_state state)
{
    static const char *const sentences[] = {
        [TESS__GUNZIP_HUNGRY] = "its gzip stream ends too early",
        [TESS__GUNZIP_HEADER] = "its gzip stream is damaged (incorrect header check)",
        [TESS__GUNZIP_BLOCK] = "its gzip stream is damaged (invalid block)",
        [TESS__GUNZIP_CHECK] = "its gzip stream is damaged (incorrect data check)",
    };
    s->broken = sentences[state];
    s->ended = 1;
}

static tess_status unpack(tess__byte_stream *s, void *dst, size_t n, size_t *got)
{
    s->pieces.out = dst;
    s->pieces.out_left = n;
    while (!s->ended && s->pieces.out_left == n) {
        tess__gunzip_state state = TESS__GUNZIP_MORE;
        if (s->pieces.in_left == 0)
            TESS_TRY(fill_piece(s));
        TESS_TRY(s->library->step(s->gunzip, &s->pieces, &state));
        if (state == TESS__GUNZIP_END)
            TESS_TRY(next_member(s));
        else if (state != TESS__GUNZIP_MORE)
            break_off(s, state);
    }
    *got = n - s->pieces.out_left;
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
    s->pieces.in = s->piece;
    s->pieces.in_left = n;
    s->library = tess__gunzip_isal ? tess__gunzip_isal : &tess__gunzip_zlib;
    return s->library->open(s->ctx, &s->gunzip);
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
    if (s->gunzip)
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
    return s->broken;
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
    if (s->gunzip)
        s->library->close(s->gunzip);
    if (s->fd >= 0)
        close(s->fd);
    tess__free(s->ctx, s->piece);
    tess__free(s->ctx, s);
}
