/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention objects, and the forward pass over all threads.
 *
 * The work is cut into tiles of queries: a group of the selection, or part of one, or tile_dense
 * rows when there is none. A tile is computed whole by one thread, tiles are handed out one by one,
 * so uneven heads and rows load all threads evenly and the bits do not depend on who computed what.
 *
 * Memory: one tess__attn_scratch per thread, 4.6 KiB per element of head_dim and 200 KiB (0.8 MiB
 * at head_dim 128), and 512 bytes per head.
 */
#include "bf16_attention.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE_FEW = 96, /* divides by every register block */
    TILE_BF16 = TESS_BF16_TILE,
    TILES_LEAST = 8, /* of a head, before tiles are as large as the instruction set likes them */
};

/* ---- creation ------------------------------------------------------------------------------ */

static tess_status check_shape(const tess_attn_shape *s)
{
    const char *who = "tess_attn_create";
    TESS_TRY(tess__check_range(who, "batch", s->batch, 1, 65536));
    TESS_TRY(tess__check_range(who, "heads", s->heads, 1, 65536));
    TESS_TRY(tess__check_eights(who, "head_dim", s->head_dim, TESS_DIM_MAX));
    TESS_TRY(tess__check_range(who, "tokens_q", s->tokens_q, 0, INT32_MAX));
    TESS_TRY(tess__check_range(who, "tokens_k", s->tokens_k, 0, INT32_MAX));
    if (!isfinite(s->scale) || s->scale < 0.0f)
        return tess__invalid(who, "scale is %g, must be positive, or 0 for 1/sqrt(head_dim)",
                             (double)s->scale);
    TESS_TRY(tess__check_range(who, "compensate", s->compensate, 0, TESS_CLUSTERS_MAX));
    return tess__check_enum(who, "precision", (int)s->precision, 2, "tess_precision");
}

/* The pieces of one thread's scratch: where each pointer is, and its bytes. */
enum { PIECES = 22, CLUSTER_PIECES = 6 };
typedef struct {
    void **piece;
    size_t bytes;
} piece;

static void list_pieces(tess__attn_scratch *w, int dim, piece pieces[PIECES])
{
    const size_t wide = (size_t)tess__wide(dim) * sizeof(float), tile = TESS_TILE_DENSE_MOST * wide;
    const size_t chunk = TESS_CHUNK * wide, row = TESS_TILE_DENSE_MOST * sizeof(float);
    const size_t scores = (TESS_CHUNK + TESS_SPARE) * TESS_SCORE_LD * sizeof(float);
    const size_t pointers = (TESS_CHUNK + TESS_SPARE) * sizeof(float *);
    const piece all[PIECES] = {
        {(void **)&w->qt, tile},
        {(void **)&w->gt, tile},
        {(void **)&w->qn, tile},
        {(void **)&w->gn, tile},
        {(void **)&w->st, scores},
        {(void **)&w->dt, scores},
        {(void **)&w->panel, TESS_CHUNK * TESS_PANEL_MOST * sizeof(float)},
        {(void **)&w->acc, tile + TESS_SPARE * wide},
        {(void **)&w->kf, chunk},
        {(void **)&w->vf, chunk},
        {(void **)&w->m, row},
        {(void **)&w->l, row},
        {(void **)&w->top, row},
        {(void **)&w->spare, wide},
        {(void **)&w->kp, pointers},
        {(void **)&w->vp, pointers},
        {(void **)&w->dkp, pointers},
        {(void **)&w->dvp, pointers},
        {(void **)&w->rows, TESS_CHUNK * sizeof(int32_t)},
        {(void **)&w->sum, 2 * (size_t)dim * sizeof(double)},
        {(void **)&w->mean, 2 * wide},
        {(void **)&w->start, 2 * wide},
    };
    memcpy(pieces, all, sizeof all);
}

/* What virtual keys by cluster need besides. */
static int list_clusters(tess__attn_scratch *w, const tess_attn_shape *s, piece pieces[PIECES])
{
    const size_t keys = (size_t)s->compensate, wide = (size_t)tess__wide(s->head_dim);
    const piece all[CLUSTER_PIECES] = {
        {(void **)&w->sum, keys * 2 * (size_t)s->head_dim * sizeof(double)},
        {(void **)&w->mean, keys * 2 * wide * sizeof(float)},
        {(void **)&w->listed, TESS_SORT * sizeof(int32_t)},
        {(void **)&w->sorted, TESS_SORT * sizeof(int32_t)},
        {(void **)&w->count, keys * sizeof(int64_t)},
        {(void **)&w->bt, (TESS_CHUNK + TESS_SPARE) * TESS_SCORE_LD * sizeof(float)},
    };
    memcpy(pieces, all, sizeof all);
    return keys > 1 ? CLUSTER_PIECES : 0;
}

static size_t sum_pieces(const piece *pieces, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += tess__arena_round(pieces[i].bytes);
    return bytes;
}

/* Of one thread; own: not that of another object. */
static size_t scratch_bytes(const tess_attn_shape *s, int own)
{
    tess__attn_scratch none;
    piece pieces[PIECES], clusters[PIECES];
    list_pieces(&none, s->head_dim, pieces);
    return (own ? sum_pieces(pieces, PIECES) : 0) +
           sum_pieces(clusters, list_clusters(&none, s, clusters));
}

/* The arena has room for it. Cleared: register blocks read columns past the last query. */
static void cut_pieces(tess__arena *arena, const piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        *pieces[i].piece = tess__arena_take(arena, pieces[i].bytes);
        memset(*pieces[i].piece, 0, pieces[i].bytes);
    }
}

static void cut_scratch(tess__arena *arena, tess__attn_scratch *w, const tess_attn_shape *s,
                        int own)
{
    piece pieces[PIECES];
    if (own) {
        list_pieces(w, s->head_dim, pieces);
        cut_pieces(arena, pieces, PIECES);
    }
    cut_pieces(arena, pieces, list_clusters(w, s, pieces));
}

static size_t finished_bytes(const tess_attn_shape *s)
{
    return (size_t)s->batch * (size_t)s->heads * TESS_RANGES_MAX * sizeof(_Atomic int64_t);
}

static size_t totals_bytes(const tess_attn_shape *s)
{
    const size_t keys = s->compensate > 1 ? (size_t)s->compensate : 1;
    return (size_t)s->batch * (size_t)s->heads * 2 * (size_t)tess__virtual_slices(s) * keys *
           (size_t)s->head_dim * sizeof(double);
}

static size_t object_bytes(const tess_attn_shape *s, int threads, int own)
{
    /* Scratch of another object is used as it is where nothing is added to it. */
    const size_t n = own || s->compensate > 1 ? (size_t)threads : 0;
    return tess__arena_round(sizeof(tess_attn)) + tess__arena_round(finished_bytes(s)) +
           tess__arena_round(totals_bytes(s)) + tess__cluster_bytes(s) +
           tess__arena_round(n * sizeof(tess__attn_scratch)) + n * scratch_bytes(s, own);
}

size_t tess__attn_bytes(const tess_attn_shape *shape, int threads, int own)
{
    const size_t bf16 = shape->precision == TESS_PRECISION_BF16
                            ? tess__bf16_bytes(shape, threads) + TESS_CHUNK_OVERHEAD
                            : 0;
    return object_bytes(shape, threads, own) + TESS_CHUNK_OVERHEAD + bf16;
}

/* With scratch of its own for the context's threads, or that of another object. */
static tess_status create(tess_ctx *ctx, const tess_attn_shape *shape, const tess_attn *like,
                          tess_attn **attn)
{
    TESS_TRY(check_shape(shape));
    const size_t finished = finished_bytes(shape);
    const int n = !like || shape->compensate > 1 ? ctx->threads : 0;
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, object_bytes(shape, ctx->threads, !like)));
    tess_attn *made = tess__arena_take(&arena, sizeof *made);
    *made = (tess_attn){.ctx = ctx, .shape = *shape};
    made->finished = tess__arena_take(&arena, finished);
    made->slices = made->slices_most = tess__virtual_slices(shape);
    made->totals = tess__arena_take(&arena, totals_bytes(shape));
    made->scratch = tess__arena_take(&arena, (size_t)n * sizeof *made->scratch);
    for (int i = 0; i < n; i++) {
        if (like)
            made->scratch[i] = like->scratch[i];
        cut_scratch(&arena, &made->scratch[i], shape, !like);
    }
    if (like && n == 0)
        made->scratch = like->scratch;
    if (made->shape.scale == 0.0f)
        made->shape.scale = 1.0f / sqrtf((float)shape->head_dim);
    made->arena = arena;
    tess__cluster_take(made);
    const tess_status status =
        shape->precision == TESS_PRECISION_BF16 ? tess__bf16_create(made) : TESS_OK;
    if (status == TESS_OK)
        *attn = made;
    else
        tess_attn_destroy(made);
    return status;
}

tess_status tess_attn_create(tess_ctx *ctx, const tess_attn_shape *shape, tess_attn **attn)
{
    TESS_REQUIRE(ctx, shape, attn);
    return create(ctx, shape, NULL, attn);
}

tess_status tess__attn_create_like(const tess_attn *like, const tess_attn_shape *shape,
                                   tess_attn **attn)
{
    assert(like->shape.head_dim == shape->head_dim);
    return create(like->ctx, shape, like, attn);
}

void tess_attn_destroy(tess_attn *attn)
{
    if (attn) {
        tess__free(attn->ctx, attn->slots);
        tess__bf16_destroy(attn);
        tess__arena arena = attn->arena; /* the object itself lies in it */
        tess__arena_free(&arena);
    }
}

void tess__attn_resize(tess_attn *attn, int64_t tokens_q, int64_t tokens_k)
{
    attn->shape.tokens_q = tokens_q;
    attn->shape.tokens_k = tokens_k;
    assert(tess__virtual_slices(&attn->shape) <= attn->slices_most);
    attn->slices = tess__virtual_slices(&attn->shape);
}

void tess__attn_meanwhile(tess_attn *attn, tess__meanwhile_fn meanwhile, void *user)
{
    attn->meanwhile = meanwhile;
    attn->meanwhile_user = user;
}

/* ---- checks ---------------------------------------------------------------------------------- */

tess_status tess__attn_check_inputs(const char *who, const tess_attn *attn,
                                    const tess_selection *sel, const tess_view *q,
                                    const tess_view *k, const tess_view *v)
{
    const tess_attn_shape *s = &attn->shape;
    if (sel)
        TESS_TRY(tess__selection_fits(who, sel, s->batch, s->heads, s->tokens_q, s->tokens_k));
    TESS_TRY(tess__view_check(who, "q", q, TESS_DTYPE_F32, TESS_DTYPE_F32, s->tokens_q));
    TESS_TRY(tess__view_check(who, "k", k, TESS_DTYPE_F32, TESS_DTYPE_BF16, s->tokens_k));
    TESS_TRY(tess__view_check(who, "v", v, TESS_DTYPE_F32, TESS_DTYPE_BF16, s->tokens_k));
    if (k->dtype != v->dtype)
        return tess__invalid(who, "k is %s and v is %s, must be the same",
                             tess_dtype_name(k->dtype), tess_dtype_name(v->dtype));
    return TESS_OK;
}

tess_status tess__attn_check_output(const char *who, const char *name, const tess_attn *attn,
                                    const tess_view *view, int64_t tokens)
{
    TESS_TRY(tess__view_check(who, name, view, TESS_DTYPE_F32, TESS_DTYPE_F32, tokens));
    if (tokens > 1 && llabs((long long)view->stride_s) < attn->shape.head_dim)
        return tess__invalid(who, "%s has token stride %lld, its rows of %d overlap", name,
                             (long long)view->stride_s, attn->shape.head_dim);
    return TESS_OK;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Not by the number of heads: --exact-ranks computes any of them apart with the same bits. */
static int tile_dense(const tess_attn *attn)
{
    const int most = attn->ctx->kernels->tile_dense;
    if (attn->bf16)
        return TILE_BF16;
    return attn->shape.tokens_q >= (int64_t)TILES_LEAST * most ? most : TILE_FEW;
}

int64_t tess__tile_count(const tess_attn *attn, const tess_selection *sel)
{
    const int n = tile_dense(attn);
    return sel ? sel->tiles[sel->n_q] : (attn->shape.tokens_q + n - 1) / n;
}

tess__query_tile tess__tile_at(const tess_attn *attn, const tess_selection *sel, int64_t index)
{
    if (!sel) {
        const int n = tile_dense(attn);
        const int64_t begin = index * n, left = attn->shape.tokens_q - begin;
        return (tess__query_tile){.begin = begin, .n = (int)TESS_MIN(left, n)};
    }
    const int32_t group = tess__range_of(sel->tiles, sel->n_q, index);
    const int64_t parts = sel->tiles[group + 1] - sel->tiles[group],
                  part = index - sel->tiles[group];
    const int64_t first = sel->bounds_q[group], rows = sel->bounds_q[group + 1] - first;
    const int64_t begin = first + rows * part / parts, end = first + rows * (part + 1) / parts;
    return (tess__query_tile){.begin = begin, .n = (int)(end - begin), .group = group};
}

/* Rows of the head that the list leaves out. */
static int64_t dropped(const tess_selection *sel, const tess__key_list *list)
{
    int64_t rows = sel->tokens_k;
    if (!list->bounds)
        return rows - list->n;
    for (int64_t i = 0; i < list->n; i++)
        rows -= list->bounds[list->units[i] + 1] - list->bounds[list->units[i]];
    return rows;
}

tess__attn_tile tess__tile_job(const tess_attn *attn, const tess_selection *sel, const tess_view *q,
                               const tess_view *k, const tess_view *v, int64_t b, int64_t h,
                               const tess__query_tile *tile)
{
    tess__attn_tile job = {
        .dim = attn->shape.head_dim,
        .n = tile->n,
        .scale = attn->shape.scale,
        .bf16 = k->dtype == TESS_DTYPE_BF16,
        .q = {tess__view_row(q, b, h, tess__tile_first(sel, tile)), q->stride_s},
        .rows = tess__tile_rows(sel, b * attn->shape.heads + h, tile),
        .k = {tess__view_row(k, b, h, 0), k->stride_s},
        .v = {tess__view_row(v, b, h, 0), v->stride_s},
    };
    if (sel) {
        const int64_t list = (b * attn->shape.heads + h) * sel->n_q + tile->group;
        job.keys.units = sel->indices + sel->offsets[list];
        job.keys.n = sel->offsets[list + 1] - sel->offsets[list];
        job.keys.bounds = sel->unit == 1 ? NULL : sel->bounds_k;
        if (tess__compensates(attn, sel)) {
            job.dropped = dropped(sel, &job.keys);
            job.tokens = sel->tokens_k;
            job.total = tess__virtual_total(attn, b * attn->shape.heads + h);
            if (attn->clusters)
                tess__cluster_tile(attn, b * attn->shape.heads + h, &job);
        }
    } else {
        job.keys.end = attn->shape.tokens_k;
    }
    return job;
}

/* ---- forward --------------------------------------------------------------------------------- */

tess_status tess_attn_forward(tess_attn *attn, const tess_selection *sel, const tess_view *q,
                              const tess_view *k, const tess_view *v, const tess_view *o,
                              float *lse)
{
    TESS_REQUIRE(attn);
    TESS_TRY(tess__attn_check_inputs(__func__, attn, sel, q, k, v));
    TESS_TRY(tess__attn_check_output(__func__, "o", attn, o, attn->shape.tokens_q));

    if (attn->bf16)
        return tess__bf16_forward(attn, sel, q, k, v, o, lse);
    const tess_attn_shape *s = &attn->shape;
    const int64_t tiles = tess__tile_count(attn, sel), items = tiles * s->batch * s->heads;
    tess__work_queue run = {.ctx = attn->ctx,
                            .what = "attention",
                            .total = items,
                            .meanwhile = attn->meanwhile,
                            .meanwhile_user = attn->meanwhile_user};
#pragma omp parallel num_threads(attn->ctx->threads)
    {
        tess__attn_scratch *w = &attn->scratch[omp_get_thread_num()];
        int64_t item;
        if (tess__compensates(attn, sel))
            tess__virtual_totals(attn, k, v, w);
        while ((item = tess__work_queue_next(&run)) >= 0) {
            const int64_t head = item / tiles, b = head / s->heads, h = head % s->heads;
            const tess__query_tile tile = tess__tile_at(attn, sel, item % tiles);
            const tess__attn_fwd job = {
                .tile = tess__tile_job(attn, sel, q, k, v, b, h, &tile),
                .o = tess__view_row(o, b, h, tess__tile_first(sel, &tile)),
                .stride_o = o->stride_s,
                .lse = lse ? lse + head * s->tokens_q + tess__tile_first(sel, &tile) : NULL,
            };
            attn->ctx->kernels->attn_forward(&job, w);
        }
    }
    return tess__work_queue_end(&run);
}
