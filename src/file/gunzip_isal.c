/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip_isal.c - gzip unpacked by ISA-L, with half of zlib's CPU time or less. */
#include "gunzip.h"
#include "tess_config.h"

#ifndef TESS_HAVE_ISAL

const tess__gunzip_library *const tess__gunzip_isal = NULL;

#else

#include <isa-l/igzip_lib.h>
#include <string.h>

enum { STEP_MAX = 1 << 30, FLAGS_AT = 3, FLAGS_RESERVED = 0xe0 };

typedef struct {
    tess_ctx *ctx;
    tess__gunzip_state state; /* MORE, END, or damaged: then only what is unpacked is given */
    size_t head;              /* bytes of the header so far, to its flags */
    struct inflate_state s;
} isal_state;

static void isal_reset(void *state)
{
    isal_state *g = state;
    isal_inflate_reset(&g->s);
    g->s.wrapper_flag = 0; /* a header follows */
    g->s.crc_flag = ISAL_GZIP;
    g->state = TESS__GUNZIP_MORE;
    g->head = 0;
}

static tess_status isal_open(tess_ctx *ctx, void **state)
{
    isal_state *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    isal_inflate_init(&made->s);
    isal_reset(made);
    *state = made;
    return TESS_OK;
}

static tess__gunzip_state state_of(const struct inflate_state *s, int code)
{
    if (code == ISAL_DECOMP_OK)
        return s->block_state == ISAL_BLOCK_FINISH ? TESS__GUNZIP_END : TESS__GUNZIP_MORE;
    if (code == ISAL_INVALID_WRAPPER || code == ISAL_UNSUPPORTED_METHOD || !s->wrapper_flag)
        return TESS__GUNZIP_HEADER;
    return code == ISAL_INCORRECT_CHECKSUM ? TESS__GUNZIP_CHECK : TESS__GUNZIP_BLOCK;
}

/* Where codes are damaged, ISA-L returns with unpacked bytes still in its own buffer. */
static void take_rest(struct inflate_state *s)
{
    const size_t rest = (size_t)(s->tmp_out_valid - s->tmp_out_processed);
    const uint32_t n = (uint32_t)TESS_MIN(rest, (size_t)s->avail_out);
    memcpy(s->next_out, s->tmp_out_buffer + s->tmp_out_processed, n);
    s->tmp_out_processed += (int32_t)n;
    s->next_out += n;
    s->avail_out -= n;
}

/* RFC 1952: reserved flags must be 0. ISA-L does not check them. */
static int has_reserved_flags(isal_state *g, const tess__gunzip_pieces *p)
{
    int reserved = 0;
    for (size_t i = 0; i < p->in_left && g->head <= FLAGS_AT; i++, g->head++)
        reserved = g->head == FLAGS_AT && p->in[i] & FLAGS_RESERVED;
    return reserved;
}

static tess_status isal_step(void *state, tess__gunzip_pieces *p, tess__gunzip_state *at)
{
    isal_state *g = state;
    struct inflate_state *s = &g->s;
    const uint32_t in = (uint32_t)TESS_MIN(p->in_left, (size_t)STEP_MAX);
    const uint32_t out = (uint32_t)TESS_MIN(p->out_left, (size_t)STEP_MAX);
    s->next_in = (uint8_t *)p->in;
    s->avail_in = in;
    s->next_out = p->out;
    s->avail_out = out;
    if (has_reserved_flags(g, p))
        g->state = TESS__GUNZIP_HEADER;
    if (g->state <= TESS__GUNZIP_END)
        g->state = state_of(s, isal_inflate(s));
    if (g->state > TESS__GUNZIP_END)
        take_rest(s);
    const uint32_t taken = in - s->avail_in, given = out - s->avail_out;
    p->in += taken;
    p->in_left -= taken;
    p->out += given;
    p->out_left -= given;
    const int full = g->state > TESS__GUNZIP_END && s->tmp_out_processed < s->tmp_out_valid;
    const int still = g->state == TESS__GUNZIP_MORE && taken == 0 && given == 0;
    *at = full ? TESS__GUNZIP_MORE : still ? TESS__GUNZIP_HUNGRY : g->state;
    return TESS_OK;
}

static void isal_close(void *state)
{
    isal_state *g = state;
    tess__free(g->ctx, g);
}

static const tess__gunzip_library library = {isal_open, isal_step, isal_reset, isal_close};
const tess__gunzip_library *const tess__gunzip_isal = &library;

#endif
