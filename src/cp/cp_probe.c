/* SPDX-License-Identifier: Apache-2.0 */
/* cp_probe.c - what attention takes on this rank: dense, and on lists of two densities.
 *
 *   lists of density d:  rows * (d keys + row_keys) * pair      two densities give pair, row_keys
 *   one key:             rows * row_keys * pair                 with queries that are in no cache:
 *                                                               the larger of the two
 *   one key, and merged: rows * part_keys * pair                what a further part of keys adds
 *   a key's K and V:     their bytes, copied                    in no cache either, once for each
 *                                                               head or part of one: as many as
 *                                                               rows, so added to both
 *   dense:               rows * keys * pair * dense             forward and backward together
 *
 * Some queries of one head, with the groups and units that plans will have, in as many rounds as
 * make the best of each kind quiet. One thread does it by its own clock, so that ranks that share
 * cores do not see each other; a rank's rate is that of its threads together.
 */
#include "cp_internal.h"

#include "cost/cost_internal.h"
#include "tessera/attn.h"
#include "tessera/select.h"

#include <math.h>
#include <string.h>

enum { DENSE, SPARSER, DENSER, KINDS };
static const double densities[KINDS] = {[SPARSER] = 0.05, [DENSER] = 0.4};

enum {
    KEYS_MOST = 2048,
    ROWS_MOST = 384,
    ROUNDS = 12,
    PARTS = 15,
    OTHER_BYTES = 4 << 20, /* more than a core's own caches */
    PERIOD = 65521,        /* of the numbers: a prime, so that no two rows are the same */
    COPY_ROWS = 32768,
};

typedef struct {
    const tess__probe_shape *shape;
    tess_ctx *ctx;
    tess__arena arena;
    int64_t rows, keys;
    tess_view q, k, v, o, dout, dq, dk, dv;
    float *lse;
    float *part_lse;
    tess_attn *attn;
    tess_selector *selector;
    tess_selection *sel;
    double best[2][KINDS]; /* forward, backward */
    double density[KINDS];
    char *other;      /* OTHER_BYTES */
    double row, part; /* ns of all rows: one unit of keys; one more part of them */
    double copied;    /* ns of a byte */
} probe;

/* ---- what is timed --------------------------------------------------------------------------- */

static tess_status take(probe *p, int64_t rows, const float *numbers, int turn, tess_view *view)
{
    const int64_t dim = p->shape->head_dim;
    float *x = tess__arena_take(&p->arena, (size_t)(rows * dim) * sizeof *x);
    if (!x)
        return TESS_ENOMEM;
    for (int64_t i = 0; i < rows * dim; i++)
        x[i] = numbers[(i + turn * 1009) % PERIOD];
    *view = (tess_view){x, TESS_DTYPE_F32, rows * dim, rows * dim, dim};
    return TESS_OK;
}

static tess_status make_tensors(probe *p)
{
    tess_view *const of_rows[] = {&p->q, &p->o, &p->dout, &p->dq};
    tess_view *const of_keys[] = {&p->k, &p->v, &p->dk, &p->dv};
    float *numbers = tess__arena_take(&p->arena, PERIOD * sizeof *numbers);
    p->lse = tess__arena_take(&p->arena, (size_t)p->rows * sizeof *p->lse);
    p->other = tess__arena_take(&p->arena, OTHER_BYTES);
    p->part_lse = tess__arena_take(&p->arena, (size_t)p->rows * sizeof *p->part_lse);
    if (!numbers || !p->lse || !p->part_lse || !p->other)
        return TESS_ENOMEM;
    TESS_TRY(tess_random_normal(1, 0, 0, numbers, PERIOD));
    for (int i = 0; i < 4; i++) {
        TESS_TRY(take(p, p->rows, numbers, i, of_rows[i]));
        TESS_TRY(take(p, p->keys, numbers, i + 4, of_keys[i]));
    }
    return TESS_OK;
}

static tess_status make(probe *p)
{
    const tess__probe_shape *s = p->shape;
    p->keys = TESS_MIN(s->tokens, KEYS_MOST);
    p->rows = TESS_MIN(p->keys, ROWS_MOST);
    const tess_attn_shape attn = {
        .batch = 1, .heads = 1, .head_dim = s->head_dim, .tokens_q = p->rows, .tokens_k = p->keys};
    const tess_sel_shape lists = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = p->rows,
                                  .tokens_k = p->keys,
                                  .group = (int32_t)(s->group < p->rows ? s->group : p->rows),
                                  .unit = (int32_t)(s->unit < p->keys ? s->unit : p->keys)};
    const tess_select_in in = {.seed = 1, .budget.density = densities[DENSER]};
    int64_t capacity;
    for (int kind = 0; kind < KINDS; kind++)
        p->best[0][kind] = p->best[1][kind] = INFINITY;
    TESS_TRY(make_tensors(p));
    TESS_TRY(tess_attn_create(p->ctx, &attn, &p->attn));
    TESS_TRY(tess_selector_create(p->ctx, &(tess_selector_opts){.kind = TESS_SELECT_RANDOM},
                                  &p->selector));
    TESS_TRY(tess_selector_capacity(p->selector, &lists, &in, &capacity));
    return tess_selection_create(p->ctx, &lists, capacity, &p->sel);
}

static void drop(probe *p)
{
    tess_selection_destroy(p->sel);
    tess_selector_destroy(p->selector);
    tess_attn_destroy(p->attn);
    tess__arena_free(&p->arena);
}

/* ---- timing ---------------------------------------------------------------------------------- */

static void keep_best(double *best, int64_t start)
{
    const double ns = fmax((double)(tess__cpu_ns() - start), 1.0);
    *best = TESS_MIN(ns, *best);
}

static tess_status time_kind(probe *p, int kind)
{
    const tess_attn_saved saved = {&p->q, &p->k, &p->v, &p->o, p->lse};
    const tess_selection *sel = kind == DENSE ? NULL : p->sel;
    if (sel) { /* its lists are not part of the time */
        const tess_select_in in = {.seed = 1, .budget.density = densities[kind]};
        tess_selection_lists lists;
        TESS_TRY(tess_selector_run(p->selector, &in, p->sel));
        TESS_TRY(tess_selection_view(p->sel, &lists));
        p->density[kind] = lists.density;
    }
    int64_t start = tess__cpu_ns();
    TESS_TRY(tess_attn_forward(p->attn, sel, &p->q, &p->k, &p->v, &p->o, p->lse));
    keep_best(&p->best[0][kind], start);
    if (!p->shape->backward)
        return TESS_OK;
    start = tess__cpu_ns();
    TESS_TRY(tess_attn_backward(p->attn, sel, &saved, &p->dout, NULL, &p->dq, &p->dk, &p->dv));
    keep_best(&p->best[1][kind], start);
    return TESS_OK;
}

static double median(double ns[PARTS])
{
    tess__sort(ns, PARTS);
    return ns[PARTS / 2];
}

/* Rows opened and closed for a list of one unit, and merged with what earlier parts of the keys
 * gave. Queries come from other ranks, and a ring comes back to a head when it has done all others,
 * so that nothing of it is in the caches. Forward alone; the median of many. */
static tess_status time_part(probe *p)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = p->shape->head_dim, .tokens_q = p->rows};
    const tess_select_in one = {.seed = 1, .budget.keys = 1};
    double row[PARTS], part[PARTS];
    TESS_TRY(tess_selector_run(p->selector, &one, p->sel));
    TESS_TRY(tess_attn_forward(p->attn, NULL, &p->q, &p->k, &p->v, &p->o, p->lse));
    for (int i = 0; i < PARTS; i++) {
        memset(p->other, i, OTHER_BYTES);
        const int64_t start = tess__cpu_ns();
        TESS_TRY(tess_attn_forward(p->attn, p->sel, &p->q, &p->k, &p->v, &p->dq, p->part_lse));
        row[i] = (double)(tess__cpu_ns() - start);
        TESS_TRY(tess_attn_merge(&shape, &p->dq, p->part_lse, &p->o, p->lse));
        part[i] = (double)(tess__cpu_ns() - start);
    }
    p->row = median(row);
    p->part = median(part);
    return TESS_OK;
}

/* Rows of a head from one place to another, as messages are packed. */
static tess_status time_copies(probe *p)
{
    const size_t row = (size_t)p->shape->head_dim * sizeof(float);
    char *from = tess__arena_take(&p->arena, COPY_ROWS * row);
    char *to = tess__arena_take(&p->arena, COPY_ROWS * row);
    if (!from || !to)
        return TESS_ENOMEM;
    memset(from, 1, COPY_ROWS * row);
    memset(to, 0, COPY_ROWS * row);
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t start = tess__cpu_ns();
        for (size_t i = 0; i < COPY_ROWS; i++) /* the rows of 16 heads lie between neighbours */
            memcpy(to + i * row, from + (i % 16 * (COPY_ROWS / 16) + i / 16) * row, row);
        keep_best(&best, start);
    }
    p->copied = best / (double)(COPY_ROWS * row);
    return TESS_OK;
}

/* ---- what it means --------------------------------------------------------------------------- */

/* ns of a pair through two densities, or of all of the longer lists where noise hides the slope. */
static double pair_of(const probe *p, const double best[KINDS])
{
    const double cells = (double)p->rows * (double)p->keys;
    const double apart = p->density[DENSER] - p->density[SPARSER];
    const double slope = apart > 0.0 ? (best[DENSER] - best[SPARSER]) / (apart * cells) : 0.0;
    const double mean = best[DENSER] / (p->density[DENSER] * cells);
    return slope > 0.5 * mean && slope <= mean ? slope : mean;
}

static void conclude(const probe *p, int threads, tess__rates *rates)
{
    const double cells = (double)p->rows * (double)p->keys;
    const double forward = pair_of(p, p->best[0]), backward = pair_of(p, p->best[1]);
    const double lists_rows =
        p->best[0][DENSER] / ((double)p->rows * forward) - p->density[DENSER] * (double)p->keys;
    const double rows = fmax(lists_rows, p->row / ((double)p->rows * forward) - 1.0);
    const double keys = 2.0 * p->shape->head_dim * sizeof(float) * p->copied / forward;
    const double more = (double)TESS__FLOP_BACKWARD / TESS__FLOP_FORWARD;
    double dense = p->best[0][DENSE] / cells, lists = forward;
    if (p->shape->backward) {
        dense += p->best[1][DENSE] / cells;
        lists += backward;
    }
    *rates = (tess__rates){.forward = forward / threads,
                           .backward = (p->shape->backward ? backward : more * forward) / threads,
                           .row_keys = fmax(rows, 0.0) + keys,
                           .part_keys = p->part / ((double)p->rows * forward) + keys,
                           .dense = fmin(dense / lists, 1.0),
                           .copied = p->copied / threads};
}

static tess_status run(probe *p)
{
    TESS_TRY(make(p));
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            TESS_TRY(time_kind(p, kind));
    TESS_TRY(time_part(p));
    return time_copies(p);
}

/* A context of its own, of one thread: other threads may be using the caller's. */
tess_status tess__probe(const tess_ctx *ctx, const tess__probe_shape *shape, tess__rates *rates)
{
    const tess_ctx_opts opts = {.isa = ctx->isa, .threads = 1, .allocator = ctx->allocator};
    tess_ctx *alone = NULL;
    TESS_TRY(tess_ctx_create(&opts, &alone));
    probe p = {.shape = shape, .ctx = alone, .arena = {.ctx = alone}};
    const tess_status status = run(&p);
    if (status == TESS_OK)
        conclude(&p, ctx->threads, rates);
    drop(&p);
    tess_ctx_destroy(alone);
    return status;
}
