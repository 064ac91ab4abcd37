/* SPDX-License-Identifier: Apache-2.0 */
/* workspace.c - memory of selectors: buffers that grow, and the scratch of each thread.
 *
 * The scratch of a thread is one run of 64-byte aligned pieces in the order of tess__scratch:
 *
 *   | rows | proxies | scores | tile | mass | sort | index | topk |
 *
 * with its length a multiple of 64 bytes, so that no two threads share a cache line.
 */
#include "select_internal.h"

tess_status tess__buffer_grow(tess_ctx *ctx, tess__buffer *buffer, int64_t n, size_t size)
{
    const size_t bytes = tess__bytes((size_t)n, size);
    if (buffer->data && bytes <= buffer->bytes)
        return TESS_OK;
    void *data = TESS_ALLOC(ctx, bytes);
    tess__free(ctx, buffer->data);
    *buffer = (tess__buffer){data, bytes};
    return TESS_OK;
}

void tess__buffer_free(tess_ctx *ctx, tess__buffer *buffer)
{
    tess__free(ctx, buffer->data);
    *buffer = (tess__buffer){0};
}

/* The next piece of n 4-byte elements; base NULL only counts. */
static void *piece(char *base, size_t *at, int64_t n)
{
    void *p = base && n > 0 ? base + *at : NULL;
    *at += tess__arena_round((size_t)n * 4);
    return p;
}

/* Lays a scratch out at base, and returns its bytes. Sizes are bounded: row_keys and n_k are below
 * 2^31, so that the sum stays below 2^40. */
static size_t lay_out(tess__scratch *w, char *base, const tess__scratch_shape *s)
{
    size_t at = 0;
    const int64_t list = (int64_t)s->n_k + TESS_TOPK_PAD;
    /* Whole panels, and one more, which keeps the rows off a common power of two. */
    w->ld = (s->row_keys + TESS_PANEL - 1) / TESS_PANEL * TESS_PANEL + TESS_PANEL;
    w->rows = piece(base, &at, s->row_keys > 0 ? TESS__ROWS * w->ld : 0);
    w->proxies = piece(base, &at, (int64_t)TESS_PANEL * s->dim);
    w->scores = piece(base, &at, list);
    w->tile = piece(base, &at, s->tile ? TESS__TILE_Q * TESS__TILE_LD : 0);
    w->mass = piece(base, &at, s->tile ? TESS__TILE_K : 0);
    w->sort = piece(base, &at, s->sort ? 2 * (int64_t)s->n_k : 0);
    w->index = piece(base, &at, 2 * list);
    w->topk = piece(base, &at, 2 * list);
    w->next = list;
    return at;
}

tess_status tess__scratch_grow(tess_ctx *ctx, tess__buffer *buffer,
                               const tess__scratch_shape *shape, int threads)
{
    tess__scratch w;
    return tess__buffer_grow(ctx, buffer, threads, lay_out(&w, NULL, shape));
}

size_t tess__selector_bytes(const tess_sel_shape *shape, int head_dim, int64_t staged, int threads)
{
    const tess__scratch_shape most = {
        .row_keys = shape->tokens_k, .n_k = shape->n_k, .dim = head_dim, .tile = 1};
    const size_t panels =
        (size_t)((shape->tokens_k + TESS_PANEL - 1) / TESS_PANEL) * TESS_PANEL * (size_t)head_dim;
    tess__scratch w;
    const size_t pieces[] = {sizeof(tess_selector),
                             panels * sizeof(float),
                             2 * (size_t)staged * sizeof(int32_t), /* old and larger lists */
                             (size_t)shape->n_q * sizeof(int64_t),
                             (size_t)shape->n_q * sizeof(int32_t),
                             ((size_t)shape->n_q + 1) * sizeof(int64_t),
                             2 * sizeof(int32_t),
                             (size_t)threads * lay_out(&w, NULL, &most)};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        bytes += tess__arena_round(pieces[i]) + TESS_ALLOC_OVERHEAD;
    return bytes;
}

tess__scratch tess__scratch_of(const tess__buffer *buffer, const tess__scratch_shape *shape,
                               int thread)
{
    tess__scratch w;
    const size_t bytes = lay_out(&w, NULL, shape);
    lay_out(&w, (char *)buffer->data + bytes * (size_t)thread, shape);
    return w;
}
