/* SPDX-License-Identifier: Apache-2.0 */
/* rates.c - what attention of one head takes on this machine: the one micro-benchmark by which
 * sparse heads are dispatched (break_even.c), plans are priced at run time (src/cp) and machines
 * are described (`tessera cluster measure`).
 *
 *   dense                 queries * keys * dense
 *   lists of density d    queries * (d * keys * sparse + per_row)   two densities give both rates
 *   a further key part    queries * per_part                        a list of one unit, and a merge
 *
 * Forward and backward passes are timed apart, in rounds over all kinds of call on random numbers;
 * the best time of each kind counts. One thread does it by its own CPU clock, so that processes
 * that share cores do not disturb each other. Long sequences are measured on some of their queries
 * and on at most KEYS_MAX keys: a second call of fewer queries separates the time of a call from
 * that of a query, and per_row is taken to grow with the keys beyond KEYS_MAX. With a predictor
 * per_row includes its projections of q and k and its selection.
 */
#include "break_even.h"

#include "tessera/select.h"

#include <math.h>
#include <string.h>

enum { DENSE, SPARSER, DENSER, PROJECTION, KINDS };
static const double densities[KINDS] = {[SPARSER] = 0.05, [DENSER] = 0.4};

enum {
    KEYS_MAX = 32768,
    ROWS_MIN = 192, /* two tiles of dense attention */
    PERIOD = 65521, /* of the numbers: a prime, so that no two rows are equal */
    ROUNDS_MIN = 5,
    ROUNDS_MAX = 50,
    COLD_ROUNDS = 15,
    COLD_BYTES = 4 << 20, /* more than a core's own caches */
};
static const double flop_rate = 4e9; /* of dense attention in a round of one second, about */

/* Calls on some of the queries. */
typedef struct {
    int64_t rows;
    tess_attn *attn;
    tess_selection *sel;
    double best[2][KINDS]; /* ns: forward, backward */
    double density[KINDS]; /* of the lists */
} sample;

typedef struct {
    tess_ctx *ctx;
    const tess_attn_rates_shape *shape;
    tess__arena arena;
    int64_t keys, rows; /* measured */
    tess_view q, k, v, o, dout, dq, dk, dv, q_proj, k_proj;
    float *lse, *lse_part, *map;
    char *evict; /* COLD_BYTES */
    tess_predict *predict;
    tess_selector *selector;
    sample samples[2]; /* all rows; fewer, where those are not all queries */
    int n_samples;
    double row_cold, part_cold; /* ns of all rows */
} bench;

/* ---- what is timed --------------------------------------------------------------------------- */

static tess_status make_view(bench *b, int64_t rows, int64_t dim, const float *numbers,
                             int64_t shift, tess_view *view)
{
    float *x = TESS_TAKE(&b->arena, (size_t)(rows * dim) * sizeof *x);
    for (int64_t i = 0; i < rows * dim; i++)
        x[i] = numbers[(i + shift * 1009) % PERIOD];
    *view = (tess_view){x, TESS_DTYPE_F32, rows * dim, rows * dim, dim};
    return TESS_OK;
}

static tess_status make_tensors(bench *b)
{
    const int64_t dim = b->shape->head_dim, proj = b->shape->proj_dim;
    const struct {
        tess_view *view;
        int64_t rows, dim;
    } all[] = {{&b->k, b->keys, dim},      {&b->v, b->keys, dim},    {&b->dk, b->keys, dim},
               {&b->dv, b->keys, dim},     {&b->q, b->rows, dim},    {&b->o, b->rows, dim},
               {&b->dq, b->rows, dim},     {&b->dout, b->rows, dim}, {&b->q_proj, b->keys, proj},
               {&b->k_proj, b->keys, proj}};
    float *numbers = TESS_TAKE(&b->arena, PERIOD * sizeof *numbers);
    b->lse = TESS_TAKE(&b->arena, (size_t)b->rows * sizeof *b->lse);
    b->lse_part = TESS_TAKE(&b->arena, (size_t)b->rows * sizeof *b->lse_part);
    b->evict = TESS_TAKE(&b->arena, COLD_BYTES);
    TESS_TRY(tess_random_normal(1, 0, 0, numbers, PERIOD));
    for (int i = 0; i < 10; i++)
        TESS_TRY(make_view(b, all[i].rows, all[i].dim, numbers, i, all[i].view));
    b->map = numbers; /* the first proj_dim * head_dim of them */
    return TESS_OK;
}

static tess_status make_sample(bench *b, int64_t rows, sample *s)
{
    const tess_attn_rates_shape *shape = b->shape;
    const tess_attn_shape attn = {.batch = 1,
                                  .heads = 1,
                                  .head_dim = shape->head_dim,
                                  .tokens_q = rows,
                                  .tokens_k = b->keys,
                                  .compensate = shape->compensate,
                                  .precision = shape->precision};
    const tess_sel_shape lists = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = rows,
                                  .tokens_k = b->keys,
                                  .group = shape->group,
                                  .unit = shape->unit};
    const tess_select_in in = {.q = &b->q_proj,
                               .k = &b->k_proj,
                               .head_dim = shape->proj_dim,
                               .budget.density = densities[DENSER]};
    int64_t capacity;
    s->rows = rows;
    for (int kind = 0; kind < KINDS; kind++)
        s->best[0][kind] = s->best[1][kind] = INFINITY;
    TESS_TRY(tess_attn_create(b->ctx, &attn, &s->attn));
    TESS_TRY(tess_selector_capacity(b->selector, &lists, &in, &capacity));
    return tess_selection_create(b->ctx, &lists, capacity, &s->sel);
}

/* Queries to measure, in whole groups: as many as a round has time for, or all. */
static int64_t choose_rows(const bench *b)
{
    const tess_attn_rates_shape *s = b->shape;
    const double flop =
        (TESS_FLOP_FORWARD + s->backward * TESS_FLOP_BACKWARD) * (double)b->keys * s->head_dim;
    const double affordable = s->seconds * flop_rate / flop;
    int64_t rows = affordable < ROWS_MIN ? ROWS_MIN : (int64_t)affordable;
    rows = (rows + s->group - 1) / s->group * s->group;
    return rows < s->queries / 2 ? rows : s->queries;
}

static tess_status make(bench *b)
{
    const tess_attn_rates_shape *s = b->shape;
    b->keys = s->keys < KEYS_MAX ? s->keys : KEYS_MAX;
    const tess_selector_opts rule = {.kind =
                                         s->proj_dim ? TESS_SELECT_PREDICTOR : TESS_SELECT_RANDOM};
    const tess_predict_shape predict = {.batch = 1,
                                        .heads = 1,
                                        .head_dim = s->head_dim,
                                        .rank = s->proj_dim,
                                        .tokens = b->keys,
                                        .rows = 1};
    b->rows = choose_rows(b);
    TESS_TRY(make_tensors(b));
    TESS_TRY(tess_selector_create(b->ctx, &rule, &b->selector));
    if (s->proj_dim)
        TESS_TRY(tess_predict_create(b->ctx, &predict, &b->predict));
    b->n_samples = 1;
    TESS_TRY(make_sample(b, b->rows, &b->samples[0]));
    if (b->rows == s->queries)
        return TESS_OK;
    b->n_samples = 2;
    return make_sample(b, s->group < b->rows ? s->group : 1, &b->samples[1]);
}

static void drop(bench *b)
{
    for (int i = 0; i < b->n_samples; i++) {
        tess_attn_destroy(b->samples[i].attn);
        tess_selection_destroy(b->samples[i].sel);
    }
    tess_selector_destroy(b->selector);
    tess_predict_destroy(b->predict);
    tess__arena_free(&b->arena);
}

/* ---- timing ---------------------------------------------------------------------------------- */

static void keep_best(double *best, int64_t start)
{
    const double ns = fmax((double)(tess__cpu_ns() - start), 1.0);
    *best = ns < *best ? ns : *best;
}

static tess_status time_projection(bench *b)
{
    const int64_t start = tess__cpu_ns();
    TESS_TRY(tess_predict_map(b->predict, &b->k, b->map, &b->k_proj));
    TESS_TRY(tess_predict_map(b->predict, &b->v, b->map, &b->q_proj));
    keep_best(&b->samples[0].best[0][PROJECTION], start);
    return TESS_OK;
}

/* One forward call and one backward call. A selection is part of the forward pass where a predictor
 * makes it. */
static tess_status time_kind(const bench *b, sample *s, int kind)
{
    const tess_attn_saved saved = {&b->q, &b->k, &b->v, &b->o, b->lse};
    const tess_select_in in = {.q = b->predict ? &b->q_proj : NULL,
                               .k = b->predict ? &b->k_proj : NULL,
                               .head_dim = b->shape->proj_dim,
                               .seed = 1,
                               .budget.density = densities[kind]};
    const tess_selection *sel = kind == DENSE ? NULL : s->sel;
    if (sel && !b->predict)
        TESS_TRY(tess_selector_run(b->selector, &in, s->sel));
    int64_t start = tess__cpu_ns();
    if (sel && b->predict)
        TESS_TRY(tess_selector_run(b->selector, &in, s->sel));
    TESS_TRY(tess_attn_forward(s->attn, sel, &b->q, &b->k, &b->v, &b->o, b->lse));
    keep_best(&s->best[0][kind], start);
    if (b->shape->backward) {
        start = tess__cpu_ns();
        TESS_TRY(tess_attn_backward(s->attn, sel, &saved, &b->dout, NULL, &b->dq, &b->dk, &b->dv));
        keep_best(&s->best[1][kind], start);
    }
    if (sel) {
        tess_selection_lists lists;
        TESS_TRY(tess_selection_view(sel, &lists));
        s->density[kind] = lists.density;
    }
    return TESS_OK;
}

static tess_status time_rounds(bench *b)
{
    const int64_t start = tess__cpu_ns();
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (round >= ROUNDS_MIN && (double)(tess__cpu_ns() - start) > b->shape->seconds * 1e9)
            break;
        if (b->predict)
            TESS_TRY(time_projection(b));
        for (int i = 0; i < b->n_samples; i++)
            for (int kind = DENSE; kind <= DENSER; kind++)
                TESS_TRY(time_kind(b, &b->samples[i], kind));
    }
    return TESS_OK;
}

static double median(double ns[COLD_ROUNDS])
{
    tess__sort(ns, COLD_ROUNDS);
    return ns[COLD_ROUNDS / 2];
}

/* A list of one unit, then its merge with the result of earlier key parts. Queries come from other
 * ranks, and a ring returns to a head after all others, so that none of it is in a cache. */
static tess_status time_cold(bench *b)
{
    const sample *s = &b->samples[0];
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = b->shape->head_dim, .tokens_q = b->rows};
    const tess_select_in one = {.q = b->predict ? &b->q_proj : NULL,
                                .k = b->predict ? &b->k_proj : NULL,
                                .head_dim = b->shape->proj_dim,
                                .seed = 1,
                                .budget.keys = 1};
    double row[COLD_ROUNDS], part[COLD_ROUNDS];
    TESS_TRY(tess_selector_run(b->selector, &one, s->sel));
    TESS_TRY(tess_attn_forward(s->attn, NULL, &b->q, &b->k, &b->v, &b->o, b->lse));
    for (int i = 0; i < COLD_ROUNDS; i++) {
        memset(b->evict, i, COLD_BYTES);
        const int64_t start = tess__cpu_ns();
        TESS_TRY(tess_attn_forward(s->attn, s->sel, &b->q, &b->k, &b->v, &b->dq, b->lse_part));
        row[i] = (double)(tess__cpu_ns() - start);
        TESS_TRY(tess_attn_merge(&shape, &b->dq, b->lse_part, &b->o, b->lse));
        part[i] = (double)(tess__cpu_ns() - start);
    }
    b->row_cold = median(row);
    b->part_cold = median(part);
    return TESS_OK;
}

/* ---- from times to rates --------------------------------------------------------------------- */

/* ns for all queries against the measured keys. */
static double whole(const bench *b, int backward, int kind)
{
    const sample *all = &b->samples[0], *few = &b->samples[1];
    const double most = all->best[backward][kind], least = few->best[backward][kind];
    if (kind == PROJECTION)
        return most * (double)b->shape->queries / (double)b->keys;
    if (b->n_samples == 1)
        return most;
    const double slope = (most - least) / (double)(all->rows - few->rows);
    return least + fmax(slope, 0.0) * (double)(b->shape->queries - few->rows);
}

/* ns of a pair of a list, from the line through two densities. Where lists alone are timed a slope
 * outside 0.5..1 of the mean is noise, and the mean of the longer lists is the better estimate. */
static double pair_ns(const bench *b, const double times[KINDS], double cells)
{
    const double *d = b->samples[0].density, apart = d[DENSER] - d[SPARSER];
    const double slope = apart > 0.0 ? (times[DENSER] - times[SPARSER]) / (apart * cells) : 0.0;
    const double mean = times[DENSER] / (d[DENSER] * cells);
    if (b->predict || b->shape->compensate)
        return fmax(slope, 0.0);
    return slope > 0.5 * mean && slope <= mean ? slope : mean;
}

static void conclude(const bench *b, int backward, tess_attn_rates *rates)
{
    const double queries = (double)b->shape->queries, cells = queries * (double)b->keys;
    const double longer = (double)b->shape->keys / (double)b->keys;
    double times[KINDS];
    for (int kind = DENSE; kind <= DENSER; kind++)
        times[kind] = whole(b, backward, kind);
    const double sparse = pair_ns(b, times, cells);
    double fixed = fmax(times[DENSER] - b->samples[0].density[DENSER] * cells * sparse, 0.0);
    if (b->predict && !backward)
        fixed += whole(b, 0, PROJECTION);
    *rates = (tess_attn_rates){
        .dense = times[DENSE] / cells, .sparse = sparse, .per_row = fixed * longer / queries};
    if (!backward) {
        rates->per_row_cold = b->row_cold / (double)b->rows;
        rates->per_part = b->part_cold / (double)b->rows;
    }
}

/* ---- the call -------------------------------------------------------------------------------- */

tess_status tess__attn_rates_check(const char *who, const tess_ctx *ctx,
                                   const tess_attn_rates_shape *s, const void *result)
{
    if (!ctx || !s || !result)
        return tess__invalid(who, "%s is NULL", !ctx ? "ctx" : !s ? "shape" : "result");
    TESS_TRY(tess__check_eights(who, "head_dim", s->head_dim, TESS_DIM_MAX));
    TESS_TRY(tess__check_range(who, "queries", s->queries, 1, INT32_MAX));
    TESS_TRY(tess__check_range(who, "keys", s->keys, 1, INT32_MAX));
    TESS_TRY(tess__check_least(who, "group", s->group, 1));
    TESS_TRY(tess__check_least(who, "unit", s->unit, 1));
    if (s->proj_dim < 0 || s->proj_dim > 64 || s->proj_dim % 8 != 0)
        return tess__invalid(who, "proj_dim is %d, must be 0 or a multiple of 8 up to 64",
                             s->proj_dim);
    TESS_TRY(tess__check_range(who, "compensate", s->compensate, 0, TESS_CLUSTERS_MAX));
    TESS_TRY(tess__check_range(who, "backward", s->backward, 0, 1));
    TESS_TRY(tess__check_number(who, "seconds", s->seconds, 0, 3600));
    return TESS_OK;
}

/* A context of its own, of one thread, leaves the caller's to other threads that use it. */
tess_status tess_attn_measure(const tess_ctx *ctx, const tess_attn_rates_shape *shape,
                              tess_attn_rates rates[2])
{
    TESS_TRY(tess__attn_rates_check("tess_attn_measure", ctx, shape, rates));
    const tess_ctx_opts opts = {.isa = ctx->isa,
                                .threads = 1,
                                .allocator = ctx->allocator,
                                .log = ctx->log,
                                .log_user = ctx->log_user,
                                .log_level = ctx->log_level,
                                .progress = ctx->progress,
                                .progress_user = ctx->progress_user};
    tess_ctx *alone = NULL;
    TESS_TRY(tess_ctx_create(&opts, &alone));
    tess_attn_rates_shape s = *shape;
    s.seconds = s.seconds > 0.0 ? s.seconds : 1.0;
    bench b = {.ctx = alone, .shape = &s, .arena = {.ctx = alone}};
    tess_status status = make(&b);
    if (status == TESS_OK)
        status = time_rounds(&b);
    if (status == TESS_OK)
        status = time_cold(&b);
    for (int pass = 0; status == TESS_OK && pass <= s.backward; pass++)
        conclude(&b, pass, &rates[pass]);
    drop(&b);
    tess_ctx_destroy(alone);
    return status;
}
