/* SPDX-License-Identifier: Apache-2.0 */
/* predict_make.c - the workspace of predictors: its life, packing, and the product that both loss
 * and maps are made of.
 *
 * Memory: per thread 4 (head_dim + 2 rank) bytes per sampled row and two tiles of scores (128 x
 * rows); over all tasks, one for 2048 tokens of a head, 4 rank max(rows, head_dim) bytes each.
 */
#include "predict_internal.h"

#include <string.h>

static tess_status check_shape(const char *who, const tess_predict_shape *s)
{
    TESS_TRY(tess__check_range(who, "batch", s->batch, 1, 65536));
    TESS_TRY(tess__check_range(who, "heads", s->heads, 1, 65536));
    TESS_TRY(tess__check_range(who, "tokens", s->tokens, 1, INT32_MAX));
    TESS_TRY(tess__check_range(who, "rows", s->rows, 1, 512));
    TESS_TRY(tess__check_eights(who, "head_dim", s->head_dim, TESS_DIM_MAX));
    return tess__check_eights(who, "rank", s->rank, 64);
}

/* The sizes that follow from a shape. Tiles' rows are an odd number of cache lines apart, so that
 * they fall into different sets of the cache. */
static tess_predict sizes_of(const tess_predict_shape *s)
{
    tess_predict p = {.shape = *s,
                      .wide = tess__whole_panels(s->rows),
                      .low = tess__whole_panels(s->rank),
                      .heads = (int64_t)s->batch * s->heads,
                      .parts = (s->tokens + TESS__PART - 1) / TESS__PART};
    p.ld = p.wide / TESS_PANEL % 2 ? p.wide : p.wide + TESS_PANEL;
    p.tasks = p.heads * p.parts;
    return p;
}

/* The pieces of a thread's scratch: where each pointer is, and its floats. */
enum { PIECES = 7, SHARED = 6 };
typedef struct {
    float **piece;
    int64_t n;
} piece;

static void list_pieces(tess__predict_scratch *w, const tess_predict *p, piece pieces[PIECES])
{
    const tess_predict_shape *s = &p->shape;
    const int columns = p->wide > p->low ? p->wide : p->low;
    const piece all[PIECES] = {
        {&w->panels, (int64_t)columns * s->head_dim}, {&w->panels_low, (int64_t)p->wide * s->rank},
        {&w->rows_low, (int64_t)s->rows * p->low},    {&w->teacher, (int64_t)TESS__STEP * p->ld},
        {&w->student, (int64_t)TESS__STEP * p->ld},   {&w->out, (int64_t)TESS__STEP * p->low},
        {&w->x, (int64_t)TESS__STEP * s->head_dim},
    };
    memcpy(pieces, all, sizeof all);
}

/* What all threads share: elements of each array, the object and the threads' scratch first. */
static void list_shared(const tess_predict *p, int threads, int64_t counts[SHARED],
                        size_t sizes[SHARED])
{
    const tess_predict_shape *s = &p->shape;
    const int64_t of_rows = (int64_t)s->rows * p->low, of_map = (int64_t)s->rank * s->head_dim;
    const int64_t all[SHARED] = {
        1,        threads, p->tasks * TESS_PREDICT_STATS, p->heads * TESS_PREDICT_STATS,
        p->tasks, p->tasks};
    const size_t row = (size_t)p->wide * sizeof(float);
    const size_t partial = (size_t)TESS_MAX(of_rows, of_map) * sizeof(float);
    const size_t each[SHARED] = {
        sizeof(tess_predict), sizeof(tess__predict_scratch), row, row, partial, row};
    memcpy(counts, all, sizeof all);
    memcpy(sizes, each, sizeof each);
}

static size_t total_bytes(const tess_predict *p, int threads)
{
    tess__predict_scratch none;
    piece pieces[PIECES];
    int64_t counts[SHARED];
    size_t sizes[SHARED], one = 0, all, scratch;
    list_pieces(&none, p, pieces);
    for (int i = 0; i < PIECES; i++)
        one += tess__arena_round((size_t)pieces[i].n * sizeof(float));
    list_shared(p, threads, counts, sizes);
    all = tess__sel_bytes(SHARED, counts, sizes);
    if (tess__mul(one, (size_t)threads, &scratch) || all > SIZE_MAX - scratch)
        return SIZE_MAX;
    return all + scratch;
}

size_t tess__predict_bytes(const tess_predict_shape *shape, int threads)
{
    const tess_predict p = sizes_of(shape);
    return total_bytes(&p, threads) + TESS_CHUNK_OVERHEAD;
}

tess_status tess_predict_create(tess_ctx *ctx, const tess_predict_shape *shape,
                                tess_predict **predict)
{
    TESS_REQUIRE(ctx, shape, predict);
    TESS_TRY(check_shape(__func__, shape));
    tess_predict p = sizes_of(shape);
    int64_t counts[SHARED];
    size_t sizes[SHARED];
    void *shared[SHARED]; /* the reserve holds them all: no take can fail */
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, total_bytes(&p, ctx->threads)));
    list_shared(&p, ctx->threads, counts, sizes);
    for (int i = 0; i < SHARED; i++)
        shared[i] = tess__arena_take(&arena, (size_t)counts[i] * sizes[i]);
    p.ctx = ctx;
    p.scratch = shared[1];
    p.stats = shared[2];
    p.rows = shared[3];
    p.partial = shared[4];
    p.losses = shared[5];
    for (int t = 0; t < ctx->threads; t++) {
        piece pieces[PIECES];
        list_pieces(&p.scratch[t], &p, pieces);
        for (int i = 0; i < PIECES; i++)
            *pieces[i].piece = tess__arena_take(&arena, (size_t)pieces[i].n * sizeof(float));
    }
    p.arena = arena;
    tess_predict *made = shared[0];
    *made = p;
    *predict = made;
    return TESS_OK;
}

void tess__predict_resize(tess_predict *p, int batch, int64_t tokens)
{
    p->shape.batch = batch;
    p->shape.tokens = tokens;
    p->heads = (int64_t)batch * p->shape.heads;
    p->parts = (tokens + TESS__PART - 1) / TESS__PART;
    p->tasks = p->heads * p->parts;
}

void tess_predict_destroy(tess_predict *predict)
{
    if (!predict)
        return;
    tess__arena arena = predict->arena; /* the object lies in it */
    tess__arena_free(&arena);
}

/* ---- what loss and maps share -------------------------------------------------------------- */

void tess__predict_pack(const tess_predict *p, float *panels, const tess_view *view, int64_t head,
                        const int64_t *rows, int n, int dim)
{
    const int64_t b = head / p->shape.heads, h = head % p->shape.heads;
    for (int i = 0; i < tess__whole_panels(n); i++) {
        const float *row = i < n ? tess__view_row(view, b, h, rows ? rows[i] : i) : NULL;
        float *to = panels + (size_t)(i / TESS_PANEL) * TESS_PANEL * (size_t)dim + i % TESS_PANEL;
        for (int d = 0; d < dim; d++)
            to[d * TESS_PANEL] = row ? row[d] : 0.0f;
    }
}

void tess__predict_multiply(const tess_predict *p, float *y, int64_t stride_y, const float *x,
                            int64_t stride_x, int n, const float *panels, int dim, float *out)
{
    const int rank = p->shape.rank, whole = p->low == rank;
    p->ctx->kernels->score(whole ? y : out, whole ? stride_y : p->low, x, stride_x, n, panels,
                           p->low / TESS_PANEL, dim);
    for (int i = 0; i < n && !whole; i++)
        memcpy(y + i * stride_y, out + (size_t)i * (size_t)p->low, sizeof *y * (size_t)rank);
}

tess_status tess__predict_check_rows(const char *who, const int64_t *rows, int64_t n,
                                     int64_t tokens)
{
    for (int64_t i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= tokens)
            return tess__invalid(who, "rows[%lld] is %lld, must be 0..%lld", (long long)i,
                                 (long long)rows[i], (long long)tokens - 1);
        if (i > 0 && rows[i] <= rows[i - 1])
            return tess__fail(
                TESS_EINVAL, "%s: rows[%lld] is %lld, must be above rows[%lld]'s %lld", who,
                (long long)i, (long long)rows[i], (long long)i - 1, (long long)rows[i - 1]);
    }
    return TESS_OK;
}
