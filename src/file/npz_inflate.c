/* SPDX-License-Identifier: Apache-2.0 */
/* npz_inflate.c - a deflated stream in memory, read piece by piece through zlib. */
#include "file_internal.h"

#include <limits.h>
#include <zlib.h>

struct tess__inflate {
    tess_ctx *ctx;
    const char *where;
    const unsigned char *packed; /* what zlib has not been given yet */
    size_t left;
    int ended;
    z_stream z;
};

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    return tess__alloc(ctx, (size_t)items * size);
}

static void z_free(void *ctx, void *memory)
{
    tess__free(ctx, memory);
}

tess_status tess__inflate_open(tess_ctx *ctx, const char *where, const unsigned char *packed,
                               size_t n, tess__inflate **inflate)
{
    tess__inflate *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->where = where;
    made->packed = packed;
    made->left = n;
    made->z.zalloc = z_alloc;
    made->z.zfree = z_free;
    made->z.opaque = ctx;
    if (inflateInit2(&made->z, -MAX_WBITS) != Z_OK) { /* negative: no zlib header around it */
        tess__free(ctx, made);
        return TESS_ENOMEM;
    }
    *inflate = made;
    return TESS_OK;
}

/* zlib counts in 32 bits: both sides are handed over in pieces. */
static tess_status step(tess__inflate *f)
{
    if (f->z.avail_in == 0 && f->left > 0) {
        const unsigned n = f->left > INT_MAX ? INT_MAX : (unsigned)f->left;
        f->z.next_in = (unsigned char *)f->packed;
        f->z.avail_in = n;
        f->packed += n;
        f->left -= n;
    }
    const int code = inflate(&f->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
        f->ended = 1;
        return TESS_OK;
    }
    if (code == Z_MEM_ERROR)
        return TESS_ENOMEM; /* z_alloc has said it */
    if (code == Z_OK)
        return TESS_OK;
    return tess__fail(TESS_EFORMAT, "%s: deflated data: %s", f->where,
                      f->z.msg                             ? f->z.msg
                      : f->z.avail_in == 0 && f->left == 0 ? "ends too early"
                                                           : "invalid stream");
}

tess_status tess__inflate_read(tess__inflate *f, void *dst, size_t n)
{
    unsigned char *to = dst;
    while (n > 0) {
        if (f->ended)
            return tess__fail(TESS_EFORMAT, "%s: deflated data: ends too early", f->where);
        const unsigned room = n > INT_MAX ? INT_MAX : (unsigned)n;
        f->z.next_out = to;
        f->z.avail_out = room;
        TESS_TRY(step(f));
        to += room - f->z.avail_out;
        n -= room - f->z.avail_out;
    }
    return TESS_OK;
}

tess_status tess__inflate_end(tess__inflate *f)
{
    unsigned char beyond;
    while (!f->ended) { /* the end mark itself may still be unread */
        f->z.next_out = &beyond;
        f->z.avail_out = 1;
        TESS_TRY(step(f));
        if (f->z.avail_out == 0)
            return tess__fail(TESS_EFORMAT, "%s: deflated data: is longer than the array",
                              f->where);
    }
    if (f->z.avail_in > 0 || f->left > 0)
        return tess__fail(TESS_EFORMAT, "%s: deflated data: %zu bytes follow its end", f->where,
                          f->z.avail_in + f->left);
    return TESS_OK;
}

void tess__inflate_close(tess__inflate *f)
{
    if (!f)
        return;
    inflateEnd(&f->z);
    tess__free(f->ctx, f);
}
