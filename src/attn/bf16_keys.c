/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_keys.c - memory of attention with products in bf16, and the keys packed for it.
 *
 * Forward, all threads pack the keys of some heads, and take tiles of these heads then: as many at
 * a time as give every thread tiles enough. Backward, the thread that takes a range of keys packs
 * it. Neither changes a bit. Rows of a list lie side by side; units of whole blocks, and all keys,
 * are packed as blocks once instead of for each tile.
 *
 * Memory: 4 D bytes for each key of the heads at a time; 2.2 KiB for each element of head_dim and
 * 0.5 MiB a thread; 6 D bytes for each key of a range and thread, from the first backward pass on.
 * D is head_dim, rounded up to 32.
 */
#include "bf16_attention.h"

#include <math.h>
#include <string.h>

enum { PIECES = 16, ITEMS_OF_A_THREAD = 8, PACK_ROWS = 512 };

typedef struct {
    void **piece;
    size_t bytes;
} piece;

static void list_pieces(tess__bf16_scratch *w, int dim, piece pieces[PIECES])
{
    const size_t wide = (size_t)tess__wide(dim), block = TESS_BF16_GROUP * TESS_BF16_GROUP;
    const size_t tile = TESS_BF16_TILE * wide, key = TESS_BF16_CHUNK * TESS_BF16_GROUP * wide;
    const size_t weights = TESS_BF16_CHUNK * TESS_BF16_GROUP * TESS_BF16_TILE;
    const piece all[PIECES] = {
        {(void **)&w->q, 2 * tile},
        {(void **)&w->g, 2 * tile},
        {(void **)&w->qn, 2 * tile},
        {(void **)&w->gn, 2 * tile},
        {(void **)&w->p, 2 * weights},
        {(void **)&w->ds, 2 * weights},
        {(void **)&w->pairs, 2 * weights},
        {(void **)&w->gathered, 3 * 2 * key},
        {(void **)&w->stage, 2 * TESS_BF16_GROUP * wide * 2},
        {(void **)&w->s, 4 * block * sizeof(float)},
        {(void **)&w->sum, tile * sizeof(float)},
        {(void **)&w->acc, tile * sizeof(float)},
        {(void **)&w->block, block * sizeof(float)},
        {(void **)&w->m, TESS_BF16_TILE * sizeof(float)},
        {(void **)&w->l, TESS_BF16_TILE * sizeof(float)},
        {(void **)&w->rows, TESS_BF16_CHUNK * TESS_BF16_GROUP * sizeof(int32_t)},
    };
    memcpy(pieces, all, sizeof all);
}

static size_t scratch_bytes(int dim)
{
    tess__bf16_scratch none;
    piece pieces[PIECES];
    size_t bytes = 0;
    list_pieces(&none, dim, pieces);
    for (int i = 0; i < PIECES; i++)
        bytes += tess__arena_round(pieces[i].bytes);
    return bytes;
}

/* Packed keys of a head, in elements: two rows of D for each key. */
static size_t head_size(const tess_attn_shape *s)
{
    const size_t rows = ((size_t)s->tokens_k + TESS_BF16_GROUP - 1) / TESS_BF16_GROUP;
    return rows * TESS_BF16_GROUP * 2 * (size_t)tess__wide(s->head_dim);
}

static int64_t parts_of(int64_t rows)
{
    return (rows + PACK_ROWS - 1) / PACK_ROWS;
}

static size_t norms_of(const tess_attn_shape *s)
{
    return (size_t)(parts_of(s->tokens_q) + parts_of(s->tokens_k));
}

/* Heads whose keys are packed at a time. */
static int64_t heads_at_once(const tess_attn_shape *s, int threads)
{
    const int64_t tiles = s->tokens_q / TESS_BF16_TILE + 1, heads = (int64_t)s->batch * s->heads;
    const int64_t wanted = (ITEMS_OF_A_THREAD * (int64_t)threads + tiles - 1) / tiles;
    return TESS_MIN(wanted, heads);
}

size_t tess__bf16_bytes(const tess_attn_shape *s, int threads)
{
    const size_t n = (size_t)threads, at_once = (size_t)heads_at_once(s, threads);
    return tess__arena_round(sizeof(tess__bf16_attn)) +
           tess__arena_round(n * sizeof(tess__bf16_scratch)) + n * scratch_bytes(s->head_dim) +
           tess__arena_round(at_once * head_size(s) * sizeof(uint16_t)) +
           tess__arena_round(at_once * norms_of(s) * sizeof(float)) +
           tess__arena_round(at_once * sizeof(int));
}

tess_status tess__bf16_create(tess_attn *attn)
{
    tess_ctx *ctx = attn->ctx;
    const tess_attn_shape *s = &attn->shape;
    const char *isa;
    const tess__products *products = tess__products_of(ctx, &isa);
    if (!products)
        return TESS_OK;
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, tess__bf16_bytes(s, ctx->threads)));
    tess__bf16_attn *made = tess__arena_take(&arena, sizeof *made);
    *made = (tess__bf16_attn){.products = products, .isa = isa, .threads = ctx->threads};
    made->at_once = heads_at_once(s, ctx->threads);
    made->scratch = tess__arena_take(&arena, (size_t)ctx->threads * sizeof *made->scratch);
    for (int i = 0; i < ctx->threads; i++) {
        piece pieces[PIECES];
        list_pieces(&made->scratch[i], s->head_dim, pieces);
        for (int p = 0; p < PIECES; p++) {
            *pieces[p].piece = tess__arena_take(&arena, pieces[p].bytes);
            memset(*pieces[p].piece, 0, pieces[p].bytes);
        }
    }
    made->keys = tess__arena_take(&arena, (size_t)made->at_once * head_size(s) * sizeof(uint16_t));
    made->norms = tess__arena_take(&arena, (size_t)made->at_once * norms_of(s) * sizeof(float));
    made->bounded = tess__arena_take(&arena, (size_t)made->at_once * sizeof(int));
    made->arena = arena;
    attn->bf16 = made;
    return TESS_OK;
}

void tess__bf16_destroy(tess_attn *attn)
{
    if (!attn->bf16)
        return;
    tess__free(attn->ctx, attn->bf16->ranges);
    tess__arena arena = attn->bf16->arena; /* the object itself lies in it */
    tess__arena_free(&arena);
}

int tess__bf16_by_rows(const tess_selection *sel)
{
    if (!sel)
        return 0;
    if (sel->unit > 0)
        return sel->unit % TESS_BF16_GROUP != 0;
    for (int32_t u = 0; u < sel->n_k; u++)
        if (sel->bounds_k[u] % TESS_BF16_GROUP != 0)
            return 1;
    return 0;
}

/* The rows of a head, as the packing kernel takes them. */
static tess__attn_tile keys_of(const tess_attn *attn, const tess_view *k, const tess_view *v,
                               int64_t head)
{
    const int64_t b = head / attn->shape.heads, h = head % attn->shape.heads;
    return (tess__attn_tile){.dim = attn->shape.head_dim,
                             .bf16 = k->dtype == TESS_DTYPE_BF16,
                             .k = {tess__view_row(k, b, h, 0), k->stride_s},
                             .v = {tess__view_row(v, b, h, 0), v->stride_s}};
}

/* ---- forward --------------------------------------------------------------------------------- */

static float *norms_at(const tess_attn *attn, int64_t at)
{
    return attn->bf16->norms + at * (int64_t)norms_of(&attn->shape);
}

/* No dot product of a row of q with one of k is above the product of their lengths. */
static int is_bounded(const tess_attn *attn, int64_t at)
{
    const int64_t parts_k = parts_of(attn->shape.tokens_k),
                  parts_q = parts_of(attn->shape.tokens_q);
    const float *norms = norms_at(attn, at);
    float most[2] = {0.0f, 0.0f};
    for (int64_t i = 0; i < parts_k + parts_q; i++)
        most[i >= parts_k] = TESS_MAX(most[i >= parts_k], norms[i]);
    return (double)attn->shape.scale * M_LOG2E * sqrt((double)most[0]) * sqrt((double)most[1]) <=
           TESS_BF16_BOUND;
}

void tess__bf16_pack(const tess_attn *attn, int by_rows, const tess_view *q, const tess_view *k,
                     const tess_view *v, int64_t head, int64_t n, tess__bf16_scratch *w)
{
    const tess_attn_shape *s = &attn->shape;
    const tess__bf16_attn *x = attn->bf16;
    const int64_t parts_k = parts_of(s->tokens_k), parts_q = parts_of(s->tokens_q);
    const int64_t wide = tess__wide(s->head_dim);
    const size_t half = head_size(s) / 2;
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < n * (parts_k + parts_q); item++) {
        const int64_t at = item / (parts_k + parts_q), part = item % (parts_k + parts_q);
        if (part >= parts_k) {
            const int64_t first = (part - parts_k) * PACK_ROWS, b = (head + at) / s->heads;
            norms_at(attn, at)[part] =
                x->products->norm(tess__view_row(q, b, (head + at) % s->heads, first), q->stride_s,
                                  TESS_MIN(s->tokens_q - first, PACK_ROWS), s->head_dim);
            continue;
        }
        const tess__attn_tile rows = keys_of(attn, k, v, head + at);
        const int64_t first = part * PACK_ROWS, count = TESS_MIN(s->tokens_k - first, PACK_ROWS);
        uint16_t *to = x->keys + (size_t)at * 2 * half;
        x->products->pack(&rows, first, count, by_rows ? NULL : to + first * wide, NULL, NULL,
                          by_rows ? NULL : to + half + first * wide,
                          by_rows ? to + first * 2 * wide : NULL, norms_at(attn, at) + part, w);
    }
#pragma omp for
    for (int64_t at = 0; at < n; at++)
        x->bounded[at] = is_bounded(attn, at);
}

tess__bf16_keys tess__bf16_packed(const tess_attn *attn, int by_rows, int64_t at)
{
    const tess__bf16_attn *x = attn->bf16;
    const size_t size = head_size(&attn->shape);
    const uint16_t *from = x->keys + (size_t)at * size;
    return (tess__bf16_keys){.k = by_rows ? NULL : from,
                             .vt = by_rows ? NULL : from + size / 2,
                             .rows = by_rows ? from : NULL,
                             .bounded = x->bounded[at]};
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Elements of a thread's keys, of one kind. */
static size_t range_size(const tess_attn_shape *s, int64_t rows)
{
    const size_t groups = ((size_t)rows + TESS_BF16_GROUP - 1) / TESS_BF16_GROUP;
    return groups * TESS_BF16_GROUP * (size_t)tess__wide(s->head_dim);
}

static int64_t longest(const tess_attn_shape *s, int lists)
{
    return lists ? s->tokens_k : tess__backward_rows(s);
}

size_t tess__attn_backward_bytes(const tess_attn_shape *s, int threads, int lists)
{
    const size_t each = range_size(s, longest(s, lists));
    return s->precision == TESS_PRECISION_BF16
               ? tess__arena_round((size_t)threads * each * 3 * sizeof(uint16_t)) +
                     TESS_ALLOC_OVERHEAD
               : 0;
}

tess_status tess__attn_backward_ready(tess_attn *attn, int lists)
{
    return attn->bf16 ? tess__bf16_reserve(attn, longest(&attn->shape, lists)) : TESS_OK;
}

tess_status tess__bf16_reserve(tess_attn *attn, int64_t rows)
{
    tess__bf16_attn *x = attn->bf16;
    const size_t each = range_size(&attn->shape, rows);
    const size_t bytes = tess__bytes((size_t)x->threads, each * 3 * sizeof *x->ranges);
    if (each > x->range_size) {
        uint16_t *ranges = TESS_ALLOC(attn->ctx, bytes);
        tess__free(attn->ctx, x->ranges);
        x->ranges = ranges;
        x->range_size = each;
    }
    return TESS_OK;
}

tess__bf16_keys tess__bf16_range(const tess_attn *attn, int by_rows, const tess_view *k,
                                 const tess_view *v, int64_t head, int64_t first, int64_t last,
                                 int thread)
{
    const tess__bf16_attn *x = attn->bf16;
    const tess__attn_tile rows = keys_of(attn, k, v, head);
    uint16_t *to = x->ranges + (size_t)thread * 3 * x->range_size;
    tess__bf16_keys keys = {.first = first};
    if (by_rows) {
        keys.rows = to;
        x->products->pack(&rows, first, last - first, NULL, NULL, NULL, NULL, to, NULL,
                          &x->scratch[thread]);
    } else {
        keys.k = to;
        keys.v = to + x->range_size;
        keys.kt = to + 2 * x->range_size;
        x->products->pack(&rows, first, last - first, to, to + x->range_size,
                          to + 2 * x->range_size, NULL, NULL, NULL, &x->scratch[thread]);
    }
    return keys;
}
