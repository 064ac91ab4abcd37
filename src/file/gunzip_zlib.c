/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip_zlib.c - gzip unpacked by zlib. */
#include "gunzip.h"

#include <string.h>
#include <zlib.h>

enum { GZIP_WINDOW = MAX_WBITS + 16, STEP_MAX = 1 << 30 };

typedef struct {
    tess_ctx *ctx;
    z_stream z;
} zlib_state;

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    return tess__alloc(ctx, (size_t)items * size);
}

static void z_free(void *ctx, void *memory)
{
    tess__free(ctx, memory);
}

static tess_status zlib_open(tess_ctx *ctx, void **state)
{
    zlib_state *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->z.zalloc = z_alloc;
    made->z.zfree = z_free;
    made->z.opaque = ctx;
    if (inflateInit2(&made->z, GZIP_WINDOW) != Z_OK) {
        tess__free(ctx, made);
        return TESS_ENOMEM; /* z_alloc has said it */
    }
    *state = made;
    return TESS_OK;
}

/* What is damaged is known from the sentence alone. */
static tess__gunzip_state damage(const char *sentence)
{
    if (!sentence || strncmp(sentence, "invalid ", 8) == 0 ||
        strncmp(sentence, "too many ", 9) == 0)
        return TESS__GUNZIP_BLOCK;
    if (strcmp(sentence, "incorrect data check") == 0 ||
        strcmp(sentence, "incorrect length check") == 0)
        return TESS__GUNZIP_CHECK;
    return TESS__GUNZIP_HEADER;
}

static tess_status zlib_step(void *state, tess__gunzip_pieces *p, tess__gunzip_state *at)
{
    zlib_state *g = state;
    const unsigned in = (unsigned)TESS_MIN(p->in_left, (size_t)STEP_MAX);
    const unsigned out = (unsigned)TESS_MIN(p->out_left, (size_t)STEP_MAX);
    g->z.next_in = (unsigned char *)p->in;
    g->z.avail_in = in;
    g->z.next_out = p->out;
    g->z.avail_out = out;
    const int code = inflate(&g->z, Z_NO_FLUSH);
    p->in += in - g->z.avail_in;
    p->in_left -= in - g->z.avail_in;
    p->out += out - g->z.avail_out;
    p->out_left -= out - g->z.avail_out;
    if (code == Z_MEM_ERROR)
        return TESS_ENOMEM; /* z_alloc has said it */
    *at = code == Z_OK           ? TESS__GUNZIP_MORE
          : code == Z_STREAM_END ? TESS__GUNZIP_END
          : code == Z_BUF_ERROR  ? TESS__GUNZIP_HUNGRY
                                 : damage(g->z.msg);
    return TESS_OK;
}

static void zlib_reset(void *state)
{
    zlib_state *g = state;
    inflateReset(&g->z);
}

static void zlib_close(void *state)
{
    zlib_state *g = state;
    inflateEnd(&g->z);
    tess__free(g->ctx, g);
}

const tess__gunzip_library tess__gunzip_zlib = {zlib_open, zlib_step, zlib_reset, zlib_close};
