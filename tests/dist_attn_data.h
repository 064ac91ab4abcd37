/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn_data.h - problems for the executor of plan pieces, run by the ranks of any
 * communicator, and the answer of one rank. Public calls alone, so that MPI's ranks run the same.
 *
 * Ranks may be threads: what they call returns a status and counts what is wrong; the test itself
 * asserts when they are done.
 */
#ifndef TESS_DIST_ATTN_DATA_H
#define TESS_DIST_ATTN_DATA_H

#include "ctx_fixture.h"

#include "tessera/advanced/clusters.h"
#include "tessera/attn.h"
#include "tessera/dist_attn.h"
#include "tessera/strategy.h"

#include <stdlib.h>

enum { LAYERS = 2, LOW = 3, RANKS_MAX = 8, REPEATS = 2 };

typedef enum { DENSE, ROWS, BLOCKS, LIST_KINDS } list_kind;
typedef enum { EVEN, UNEVEN, EMPTY, SHARD_KINDS } shard_kind;

typedef struct {
    int ranks, heads, dim, batch;
    int64_t tokens;
    list_kind lists;
    shard_kind shards;
    int compensate;
    int band;  /* above 0: keys at most so many rows before a group's first, no later ones; no dense
                  heads */
    int alike; /* 1: of rows, lists of a tenth of the keys that are much alike, as queries'
                  are: near ones, some that all want, some that are a group's own */
    int tokens_first; /* 1: tensors are [batch, tokens, heads, dim], else [batch, heads, tokens,
                         dim] */
    int grouped;      /* 1: the groups of a share have rows in an order of their own */
    int with_lse;     /* 1: lse is returned, and projected q and k are sent */
    uint64_t seed;
} problem;

/* None, one, or one for each of some clusters: what problem i has. */
static inline int virtual_keys(int i)
{
    static const int counts[] = {0, 1, 5};
    return counts[i % 3];
}

/* What the ranks gave. Tensors as the inputs; lse (batch, heads, tokens). */
typedef struct {
    float *o, *lse, *dq, *dk, *dv; /* (LAYERS, ...) */
} answer;

typedef struct {
    int wrong;                      /* inputs of the callback that are not what they should be */
    int64_t allocations;            /* in forward and backward */
    int64_t bytes[LAYERS][2];       /* payload of forward, and of backward */
    double density[LAYERS][2 * 64]; /* (batch, heads) */
    int64_t union_rows[LAYERS];
    int64_t index[LAYERS]; /* bytes that say which keys, forward */
} rank_report;

typedef struct {
    problem p;
    int64_t bounds[RANKS_MAX + 1];
    int32_t n_groups, n_units; /* of lists; DENSE: groups of the plan, single rows */
    int64_t groups[256], units[256];
    tess_plan *plan;
    float *q, *k, *v, *dout, *q_low, *k_low; /* (LAYERS, ...) */
    float *centroids; /* numbers, the first ones of each layer: (batch, heads, compensate, dim) */
    double *rows; /* (LAYERS, batch, heads, tokens): the query at each place of the groups; of the
                     shares of all ranks */
    answer got[REPEATS], want;
    rank_report reports[RANKS_MAX];
} world;

/* ---- what is selected ------------------------------------------------------------------------ */

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Of all keys 3 of 100, in runs of four, two of five of an eighth around the group, and 2 of 100.
 */
static inline int selects_alike(const world *w, uint64_t head, int32_t g, int64_t row)
{
    const int64_t apart = row > w->groups[g] ? row - w->groups[g] : w->groups[g] - row;
    const uint64_t own = mix(w->p.seed ^ head << 40 ^ (uint64_t)g << 20 ^ (uint64_t)row) % 1000;
    return mix(w->p.seed ^ head << 40 ^ (uint64_t)(row / 4)) % 1000 < 30 ||
           own < (apart < w->p.tokens / 16 ? 400 : 20);
}

/* Of 1000: some heads have no keys, some all. */
static inline unsigned density_of(const world *w, int layer, int head)
{
    if (w->p.alike)
        return 100;
    if (w->p.lists == DENSE || (!w->p.band && (head + layer) % 5 == 3))
        return 1000;
    if (head % 7 == 5)
        return 0;
    return 30 + (unsigned)(mix(w->p.seed + (uint64_t)(layer * 64 + head)) % 10 == 0 ? 600 : 60);
}

static inline int selects(const world *w, int layer, int sample, int head, int32_t g, int32_t u)
{
    const uint64_t place = (((uint64_t)layer * 8 + (uint64_t)sample) * 64 + (uint64_t)head) << 40 |
                           (uint64_t)g << 20 | (uint64_t)u;
    const int64_t row = w->p.lists == BLOCKS ? w->units[u] : u;
    if (w->p.alike)
        return selects_alike(w, (uint64_t)(layer * 64 + head), g, row);
    if (w->p.band && (row > w->groups[g] || row < w->groups[g] - w->p.band))
        return 0;
    return mix(mix(w->p.seed) ^ place) % 1000 < density_of(w, layer, head);
}

/* The lists of some groups of a head; returns the indices used. */
static inline int64_t write_lists(const world *w, int layer, int sample, int head,
                                  const int32_t *groups, int32_t n, int64_t *offsets,
                                  int32_t *indices)
{
    int64_t used = offsets[0];
    for (int32_t i = 0; i < n; i++) {
        for (int32_t u = 0; u < w->n_units; u++)
            if (selects(w, layer, sample, head, groups ? groups[i] : i, u))
                indices[used++] = u;
        offsets[i + 1] = used;
    }
    return used;
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static inline size_t numbers(const problem *p, int width)
{
    return (size_t)p->batch * (size_t)p->heads * (size_t)p->tokens * (size_t)width;
}

static inline float *tensor(const problem *p, int width, uint64_t stream)
{
    const size_t n = LAYERS * numbers(p, width);
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    if (stream)
        CHECK_OK(tess_random_normal(p->seed, stream, 0, x, n));
    return x;
}

/* Rows from `first` on of a layer's tensor. */
static inline tess_view rows_from(const problem *p, float *x, int layer, int width, int64_t first)
{
    const int64_t heads = p->heads, tokens = p->tokens;
    tess_view view = {x + (size_t)layer * numbers(p, width), TESS_DTYPE_F32, heads * tokens * width,
                      tokens * width, width};
    if (p->tokens_first) {
        view.stride_h = width;
        view.stride_s = heads * width;
    }
    view.data = (float *)view.data + first * view.stride_s;
    return view;
}

static inline const float *row_of(const tess_view *v, int64_t b, int64_t h, int64_t s)
{
    return (const float *)v->data + b * v->stride_b + h * v->stride_h + s * v->stride_s;
}

/* n + 1 bounds whose sizes go round the given ones. */
static inline int32_t cycle(int64_t *bounds, int64_t tokens, const int *sizes, int n)
{
    int32_t i = 0;
    for (bounds[0] = 0; bounds[i] < tokens; i++) {
        const int64_t next = bounds[i] + sizes[i % n];
        bounds[i + 1] = next < tokens ? next : tokens;
    }
    return i;
}

static inline void cut(world *w)
{
    static const int even[] = {8}, queries[] = {5, 9, 16, 3}, keys[] = {4, 7, 16, 1};
    const problem *p = &w->p;
    if (p->lists == BLOCKS) {
        w->n_groups = cycle(w->groups, p->tokens, queries, 4);
        w->n_units = cycle(w->units, p->tokens, keys, 4);
    } else {
        w->n_groups = cycle(w->groups, p->tokens, even, 1);
        w->n_units = (int32_t)p->tokens;
    }
    const int64_t base = p->tokens / p->ranks, rest = p->tokens % p->ranks;
    for (int r = 0; r <= p->ranks; r++) {
        int64_t at = r * base + (r < rest ? r : rest);
        if (p->shards == UNEVEN)
            at = p->tokens * r * r / (p->ranks * p->ranks);
        if (p->shards == EMPTY && r < p->ranks) /* the odd ranks have none */
            at = p->tokens * ((r + 1) / 2) / ((p->ranks + 1) / 2);
        w->bounds[r] = at;
    }
}

static inline answer make_answer(const problem *p)
{
    return (answer){tensor(p, p->dim, 0), tensor(p, 1, 0), tensor(p, p->dim, 0),
                    tensor(p, p->dim, 0), tensor(p, p->dim, 0)};
}

/* Samples have clusters of their own, or all the same. */
static inline int64_t between(const problem *p)
{
    return p->seed % 2 ? (int64_t)p->heads * p->compensate * p->dim : 0;
}

static inline const float *centroids_of(const world *w, int layer)
{
    return w->centroids + (size_t)layer * numbers(&w->p, w->p.dim);
}

static inline void free_answer(answer *a)
{
    free(a->o);
    free(a->lse);
    free(a->dq);
    free(a->dk);
    free(a->dv);
}

static inline world *make_world(const problem *p)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->p = *p;
    cut(w);
    float **const tensors[] = {&w->q, &w->k, &w->v, &w->dout, &w->q_low, &w->k_low};
    for (int i = 0; i < 6; i++)
        *tensors[i] = tensor(p, i < 4 ? p->dim : LOW, (uint64_t)i + 1);
    w->centroids = tensor(p, p->dim, 7);
    for (int i = 0; i < REPEATS; i++)
        w->got[i] = make_answer(p);
    w->want = make_answer(p);
    w->rows = calloc(LAYERS * numbers(p, 1), sizeof *w->rows);
    assert_non_null(w->rows);
    return w;
}

static inline void free_world(world *w)
{
    tess_plan_destroy(w->plan);
    float *const tensors[] = {w->q, w->k, w->v, w->dout, w->q_low, w->k_low, w->centroids};
    for (int i = 0; i < 7; i++)
        free(tensors[i]);
    for (int i = 0; i < REPEATS; i++)
        free_answer(&w->got[i]);
    free_answer(&w->want);
    free(w->rows);
    free(w);
}

/* ---- lists and works of all heads ------------------------------------------------------------ */

/* The lists of a layer, of samples first .. first + batch - 1. */
static inline tess_selection *layer_lists(const world *w, int layer, int batch)
{
    const problem *p = &w->p;
    const tess_sel_shape shape = {.batch = batch,
                                  .heads = p->heads,
                                  .tokens_q = p->tokens,
                                  .tokens_k = p->tokens,
                                  .bounds_q = w->groups,
                                  .n_q = w->n_groups,
                                  .unit = 1,
                                  .bounds_k = p->lists == BLOCKS ? w->units : NULL,
                                  .n_k = w->n_units};
    const int64_t heads = (int64_t)batch * p->heads, room = heads * w->n_groups * w->n_units;
    int64_t *offsets = calloc((size_t)(heads * w->n_groups) + 1, sizeof *offsets);
    int32_t *indices = malloc((size_t)room * sizeof *indices);
    assert_true(offsets && indices);
    for (int64_t h = 0; h < heads; h++)
        write_lists(w, layer, (int)(h / p->heads), (int)(h % p->heads), NULL, w->n_groups,
                    offsets + h * w->n_groups, indices);
    tess_selection *lists = NULL;
    CHECK_OK(tess_selection_create(ctx, &shape, room, &lists));
    CHECK_OK(tess_selection_set_lists(lists, offsets, indices));
    free(offsets);
    free(indices);
    return lists;
}

/* Of densities in groups of 8, or of the blocks themselves. */
static inline tess_work *make_work(const world *w)
{
    tess_work *work = NULL;
    if (w->p.lists == BLOCKS) {
        tess_selection *lists[LAYERS];
        for (int l = 0; l < LAYERS; l++)
            lists[l] = layer_lists(w, l, 1);
        CHECK_OK(
            tess_work_from_selection(ctx, (const tess_selection *const *)lists, LAYERS, &work));
        for (int l = 0; l < LAYERS; l++)
            tess_selection_destroy(lists[l]);
        return work;
    }
    double density[LAYERS * 64];
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < w->p.heads; h++)
            density[l * w->p.heads + h] = w->p.lists == DENSE && h % 3 == 0
                                              ? 0.3 /* dense heads, cut as if they were not */
                                              : density_of(w, l, h) / 1000.0;
    CHECK_OK(tess_work_from_density(ctx, density, LAYERS, w->p.heads, w->p.tokens, 8, &work));
    return work;
}

typedef struct {
    int ulysses, ring, selective; /* 0: free */
} mesh;

/* The plan that the planner makes at these degrees, for forward alone or with backward. */
static inline tess_plan *plan_pass(const world *w, const mesh *m, tess_plan_method method,
                                   tess_plan_pass pass)
{
    tess_plan *plan = NULL;
    tess_work *work = make_work(w);
    const int parts = m->ring * m->selective; /* heads that are cut are cut inside of nodes */
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS,
                                 .ranks = w->p.ranks,
                                 .nodes = method == TESS_PLAN_FRACTIONAL && parts > 1 ? parts : 1,
                                 .strategy = {.method = method,
                                              .ulysses = m->ulysses,
                                              .ring = m->ring,
                                              .selective = m->selective},
                                 .pass = pass,
                                 .head_dim = w->p.dim,
                                 .element_bytes = 4,
                                 .proj_dim = w->p.with_lse ? LOW : 0,
                                 .lse = w->p.with_lse};
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    tess_work_destroy(work);
    return plan;
}

static inline void plan_mesh(world *w, const mesh *m, tess_plan_method method)
{
    w->plan = plan_pass(w, m, method, TESS_PLAN_TRAIN);
}

/* Whole keys: whole heads, or fractional ones. */
static inline void make_plan(world *w, tess_plan_method method)
{
    const mesh whole = {w->p.ranks, 1, 1}, cut_anywhere = {0, 0, 0};
    plan_mesh(w, method == TESS_PLAN_FRACTIONAL ? &cut_anywhere : &whole, method);
}

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct {
    world *w;
    int rank;
    int64_t *offsets;
    int32_t *indices;
} rank_state;

static inline int rows_differ(const world *w, float *full, int width, const tess_share_in *in,
                              const tess_view *view, int queries)
{
    const tess_view all = rows_from(&w->p, full, in->layer, width, 0);
    const size_t bytes = (size_t)width * sizeof(float);
    int64_t at = 0;
    int differ = 0;
    for (int32_t i = 0; queries && i < in->n_groups; i++)
        for (int64_t r = w->groups[in->groups[i]]; r < w->groups[in->groups[i] + 1]; r++, at++)
            differ |= memcmp(row_of(&all, in->sample, in->head, r), row_of(view, 0, 0, at), bytes);
    for (int64_t r = 0; !queries && r < w->p.tokens; r++)
        differ |= memcmp(row_of(&all, in->sample, in->head, r), row_of(view, 0, 0, r), bytes);
    return differ != 0;
}

/* Rows of a share in an order that is drawn: written to `in`, and as rows of the head to the world.
 * NULL rows: in their own order. */
static inline void draw_rows(world *w, const tess_share_in *in, int32_t *rows)
{
    const problem *p = &w->p;
    double *to =
        w->rows + (((size_t)in->layer * (size_t)p->batch + (size_t)in->sample) * (size_t)p->heads +
                   (size_t)in->head) *
                      (size_t)p->tokens;
    int64_t token[1024], place[1024], n = 0;
    for (int32_t i = 0; i < in->n_groups; i++)
        for (int64_t r = w->groups[in->groups[i]]; r < w->groups[in->groups[i] + 1]; r++)
            token[n] = place[n] = r, n++;
    for (int64_t i = n - 1; rows && i > 0; i--) {
        const int64_t j = (int64_t)(mix(p->seed ^ (uint64_t)(in->head * 4096 + i)) % (uint64_t)i);
        const int32_t kept = rows[i];
        rows[i] = rows[j];
        rows[j] = kept;
    }
    for (int64_t i = 0; i < n; i++)
        to[place[i]] = (double)token[rows ? rows[i] : i];
}

static inline tess_status choose(void *user, const tess_share_in *in, tess_selection *lists,
                                 int *dense)
{
    rank_state *s = user;
    world *w = s->w;
    const int dim = w->p.dim;
    int wrong = rows_differ(w, w->q, dim, in, in->q, 1);
    if (in->k)
        wrong += rows_differ(w, w->k, dim, in, in->k, 0);
    wrong += (in->q_low != NULL) != w->p.with_lse || (in->k_low != NULL) != w->p.with_lse;
    if (in->q_low)
        wrong += rows_differ(w, w->q_low, LOW, in, in->q_low, 1);
    if (in->k_low)
        wrong += rows_differ(w, w->k_low, LOW, in, in->k_low, 0);
    wrong += (in->rows != NULL) != w->p.grouped;
    w->reports[s->rank].wrong += wrong;
    if (density_of(w, in->layer, in->head) == 1000) {
        draw_rows(w, in, NULL);
        *dense = 1;
        return TESS_OK;
    }
    s->offsets[0] = 0;
    draw_rows(w, in, in->rows);
    write_lists(w, in->layer, in->sample, in->head, in->groups, in->n_groups, s->offsets,
                s->indices);
    return tess_selection_set_lists(lists, s->offsets, s->indices);
}

/* A rank's rows of lse to their place in the whole. */
static inline void put_lse(const world *w, int rank, int layer, const float *lse, float *whole)
{
    const int64_t first = w->bounds[rank], rows = w->bounds[rank + 1] - first;
    const size_t heads = (size_t)w->p.batch * (size_t)w->p.heads;
    for (size_t h = 0; h < heads; h++)
        memcpy(whole + ((size_t)layer * heads + h) * (size_t)w->p.tokens + first,
               lse + h * (size_t)rows, (size_t)rows * sizeof *lse);
}

typedef struct {
    rank_state *state;
    tess_ctx *ctx;
    tess_dist_attn *attn;
    float *lse;
} rank_run;

static inline tess_status run_layer(const rank_run *r, int layer, int backward, const answer *to)
{
    world *w = r->state->w;
    const problem *p = &w->p;
    const int64_t first = w->bounds[r->state->rank];
    rank_report *report = &w->reports[r->state->rank];
    const tess_view q_low = rows_from(p, w->q_low, layer, LOW, first);
    const tess_view k_low = rows_from(p, w->k_low, layer, LOW, first);
    const tess_dist_call call = {.layer = layer,
                                 .save = layer,
                                 .centroids = centroids_of(w, layer),
                                 .centroids_between = between(p),
                                 .choose = p->lists == DENSE ? NULL : choose,
                                 .user = r->state,
                                 .q_low = p->with_lse ? &q_low : NULL,
                                 .k_low = p->with_lse ? &k_low : NULL};
    const tess_view q = rows_from(p, w->q, layer, p->dim, first);
    const tess_view k = rows_from(p, w->k, layer, p->dim, first);
    const tess_view v = rows_from(p, w->v, layer, p->dim, first);
    const tess_view o = rows_from(p, to->o, layer, p->dim, first);
    const tess_view dout = rows_from(p, w->dout, layer, p->dim, first);
    const tess_view dq = rows_from(p, to->dq, layer, p->dim, first);
    const tess_view dk = rows_from(p, to->dk, layer, p->dim, first);
    const tess_view dv = rows_from(p, to->dv, layer, p->dim, first);
    const tess_status status =
        backward
            ? tess_dist_attn_backward(r->attn, &call, &dout, &dq, &dk, &dv)
            : tess_dist_attn_forward(r->attn, &call, &q, &k, &v, &o, p->with_lse ? r->lse : NULL);
    tess_dist_stats stats;
    if (status != TESS_OK || tess_dist_attn_stats(r->attn, layer, &stats) != TESS_OK)
        return status;
    if (!backward && p->with_lse)
        put_lse(w, r->state->rank, layer, r->lse, to->lse);
    report->bytes[layer][backward] =
        stats.bytes[TESS_TRAFFIC_PAYLOAD] - (backward ? report->bytes[layer][0] : 0);
    report->union_rows[layer] = stats.union_rows;
    report->index[layer] = stats.bytes[TESS_TRAFFIC_INDEX];
    memcpy(report->density[layer], stats.density,
           (size_t)p->batch * (size_t)p->heads * sizeof *stats.density);
    return TESS_OK;
}

static inline tess_status run_all(const rank_run *r)
{
    world *w = r->state->w;
    tess_ctx_info before, after;
    tess_status status = tess_ctx_query(r->ctx, &before);
    for (int again = 0; status == TESS_OK && again < REPEATS; again++) {
        for (int l = 0; status == TESS_OK && l < LAYERS; l++)
            status = run_layer(r, l, 0, &w->got[again]);
        for (int l = LAYERS - 1; status == TESS_OK && l >= 0; l--)
            status = run_layer(r, l, 1, &w->got[again]);
    }
    if (status == TESS_OK)
        status = tess_ctx_query(r->ctx, &after);
    if (status == TESS_OK)
        w->reports[r->state->rank].allocations = after.allocations - before.allocations;
    return status;
}

static inline tess_dist_attn_opts options_of(const world *w)
{
    const problem *p = &w->p;
    const int sparse = p->lists != DENSE;
    return (tess_dist_attn_opts){.batch = p->batch,
                                 .heads = p->heads,
                                 .head_dim = p->dim,
                                 .compensate = p->compensate,
                                 .tokens = p->tokens,
                                 .bounds = w->bounds,
                                 .n_groups = sparse ? w->n_groups : 0,
                                 .groups = sparse ? w->groups : NULL,
                                 .n_units = w->n_units,
                                 .units = p->lists == BLOCKS ? w->units : NULL,
                                 .proj_dim = p->with_lse ? LOW : 0,
                                 .saves = LAYERS,
                                 .group_rows = sparse && p->grouped};
}

/* An executor of the world's plan; the caller destroys it, whatever is returned. */
static inline tess_status open_attn(const world *w, tess_ctx *own, tess_comm *comm,
                                    tess_dist_attn **attn)
{
    const tess_dist_attn_opts opts = options_of(w);
    const tess_status status = tess_dist_attn_create(own, comm, &opts, attn);
    return status == TESS_OK ? tess_dist_attn_plan(*attn, w->plan) : status;
}

/* What each rank does: a tess_rank_fn. */
static inline tess_status run_rank(void *user, tess_ctx *own, tess_comm *comm)
{
    world *w = user;
    tess_comm_info info;
    tess_status status = tess_comm_query(comm, &info);
    if (status != TESS_OK)
        return status;
    const size_t room = (size_t)w->n_groups * (size_t)w->n_units;
    rank_state state = {.w = w, .rank = info.rank};
    state.offsets = malloc(((size_t)w->n_groups + 1) * sizeof *state.offsets);
    state.indices = malloc(room * sizeof *state.indices);
    rank_run run = {.state = &state, .ctx = own};
    run.lse = malloc((numbers(&w->p, 1) + 1) * sizeof *run.lse);
    status = state.offsets && state.indices && run.lse ? open_attn(w, own, comm, &run.attn)
                                                       : TESS_ENOMEM;
    if (status == TESS_OK)
        status = run_all(&run);
    tess_dist_attn_destroy(run.attn);
    free(state.offsets);
    free(state.indices);
    free(run.lse);
    return status;
}

/* ---- the answer of one rank ------------------------------------------------------------------ */

/* (batch, heads, compensate, dim) of a layer; the caller frees it. */
static inline float *centroids_alone(const world *w, int layer)
{
    const size_t set = (size_t)w->p.heads * (size_t)w->p.compensate * (size_t)w->p.dim;
    float *all = malloc((size_t)w->p.batch * set * sizeof *all + 1);
    assert_non_null(all);
    for (int b = 0; b < w->p.batch; b++)
        memcpy(all + (size_t)b * set, centroids_of(w, layer) + b * between(&w->p),
               set * sizeof *all);
    return all;
}

/* Rows of one layer's tensor in the order of the groups to `to`, or with back the other way. */
static inline void order_rows(const world *w, float *x, int layer, int width, int back, float *to)
{
    const problem *p = &w->p;
    const tess_view from = rows_from(p, x, layer, width, 0), into = rows_from(p, to, 0, width, 0);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t s = 0; s < p->tokens; s++) {
                const size_t at =
                    (((size_t)layer * (size_t)p->batch + (size_t)b) * (size_t)p->heads +
                     (size_t)h) *
                    (size_t)p->tokens;
                const int64_t row =
                    p->grouped && p->lists != DENSE ? (int64_t)w->rows[at + (size_t)s] : s;
                float *whole = (float *)row_of(&from, b, h, row);
                float *part = (float *)row_of(&into, b, h, s);
                memcpy(back ? whole : part, back ? part : whole, (size_t)width * sizeof *to);
            }
}

static inline void answer_alone(world *w)
{
    const problem *p = &w->p;
    const tess_attn_shape shape = {.batch = p->batch,
                                   .heads = p->heads,
                                   .head_dim = p->dim,
                                   .tokens_q = p->tokens,
                                   .tokens_k = p->tokens,
                                   .compensate = p->compensate};
    tess_attn *attn = NULL;
    float *grouped[4], *lse = malloc(numbers(p, 1) * sizeof *lse);
    for (int i = 0; i < 4; i++) { /* q, o, dout and dq of a layer, in the order of the groups */
        grouped[i] = malloc(numbers(p, p->dim) * sizeof *grouped[i]);
        assert_true(grouped[i] && lse);
    }
    CHECK_OK(tess_attn_create(ctx, &shape, &attn));
    for (int l = 0; l < LAYERS; l++) {
        tess_selection *lists = p->lists == DENSE ? NULL : layer_lists(w, l, p->batch);
        const tess_view q = rows_from(p, grouped[0], 0, p->dim, 0);
        const tess_view k = rows_from(p, w->k, l, p->dim, 0), v = rows_from(p, w->v, l, p->dim, 0);
        const tess_view o = rows_from(p, grouped[1], 0, p->dim, 0);
        const tess_view dout = rows_from(p, grouped[2], 0, p->dim, 0);
        const tess_view dq = rows_from(p, grouped[3], 0, p->dim, 0);
        const tess_view dk = rows_from(p, w->want.dk, l, p->dim, 0);
        const tess_view dv = rows_from(p, w->want.dv, l, p->dim, 0);
        const tess_attn_saved saved = {&q, &k, &v, &o, lse};
        float *centroids = centroids_alone(w, l);
        order_rows(w, w->q, l, p->dim, 0, grouped[0]);
        order_rows(w, w->dout, l, p->dim, 0, grouped[2]);
        if (p->compensate > 1)
            CHECK_OK(tess_attn_centroids(attn, centroids));
        CHECK_OK(tess_attn_forward(attn, lists, &q, &k, &v, &o, lse));
        CHECK_OK(tess_attn_backward(attn, lists, &saved, &dout, NULL, &dq, &dk, &dv));
        order_rows(w, w->want.o, l, p->dim, 1, grouped[1]);
        order_rows(w, w->want.dq, l, p->dim, 1, grouped[3]);
        const int layout = p->tokens_first;
        w->p.tokens_first = 0; /* lse is (batch, heads, tokens) for any layout of rows */
        order_rows(w, w->want.lse, l, 1, 1, lse);
        w->p.tokens_first = layout;
        free(centroids);
        tess_selection_destroy(lists);
    }
    for (int i = 0; i < 4; i++)
        free(grouped[i]);
    free(lse);
    tess_attn_destroy(attn);
}

/* Rows [first, last) of a tensor of both layers, one after the other. */
static inline size_t take_rows(const world *w, float *x, int width, int64_t first, int64_t last,
                               double *out)
{
    size_t n = 0;
    for (int l = 0; l < LAYERS; l++) {
        const tess_view all = rows_from(&w->p, x, l, width, 0);
        for (int64_t b = 0; b < w->p.batch; b++)
            for (int64_t h = 0; h < w->p.heads; h++)
                for (int64_t s = first; s < last; s++)
                    for (int d = 0; d < width; d++)
                        out[n++] = (double)row_of(&all, b, h, s)[d];
    }
    return n;
}

/* Rows [first, last) of what the ranks gave against what one rank gives, within 1e-5 of the
 * largest, and the two repeats bit for bit.
 *
 * Both sides are fp32 with the same products; they differ in the order of sums. dq is summed over
 * at most 16 ranges of keys, dk and dv over at most 8 ranks, each partial sum rounded: 16 times
 * 2^-24 is 1e-6 of the largest partial sum, and these are a few times the largest sum where terms
 * cancel. o and lse have one order of summation on any ranks; they are held to the same. */
static inline void check_tensor(const world *w, float *got, float *again, float *want, int width,
                                int64_t first, int64_t last)
{
    const size_t n = LAYERS * numbers(&w->p, width) + 1;
    double *x = malloc(3 * n * sizeof *x);
    assert_non_null(x);
    const size_t rows = take_rows(w, got, width, first, last, x);
    take_rows(w, want, width, first, last, x + n);
    take_rows(w, again, width, first, last, x + 2 * n);
    CHECK_CLOSE(x, x + n, rows, 1e-5);
    for (size_t i = 0; i < rows; i++) /* as numbers: no NaN has passed the check before */
        assert_true(x[i] == x[2 * n + i]);
    free(x);
}

static inline void check_answers(world *w, int64_t first, int64_t last)
{
    const answer *a = &w->got[0], *b = &w->got[1], *c = &w->want;
    const int dim = w->p.dim;
    check_tensor(w, a->o, b->o, c->o, dim, first, last);
    check_tensor(w, a->dq, b->dq, c->dq, dim, first, last);
    check_tensor(w, a->dk, b->dk, c->dk, dim, first, last);
    check_tensor(w, a->dv, b->dv, c->dv, dim, first, last);
    if (w->p.with_lse) {
        const int layout = w->p.tokens_first;
        w->p.tokens_first = 0; /* lse is (batch, heads, tokens) for any layout of rows */
        check_tensor(w, a->lse, b->lse, c->lse, 1, first, last);
        w->p.tokens_first = layout;
    }
}

/* The pairs of each head by all pairs, exactly, on one rank's report. */
static inline void check_densities(const world *w, const rank_report *report)
{
    const int heads = w->p.heads;
    for (int l = 0; l < LAYERS; l++) {
        tess_selection *lists = layer_lists(w, l, w->p.batch);
        tess_selection_lists x;
        CHECK_OK(tess_selection_view(lists, &x));
        for (int64_t h = 0; h < w->p.batch * heads; h++) {
            double pairs = 0.0;
            for (int64_t g = 0; g < w->n_groups; g++)
                for (int64_t i = x.offsets[h * w->n_groups + g];
                     i < x.offsets[h * w->n_groups + g + 1]; i++)
                    pairs += (double)(x.shape.bounds_q[g + 1] - x.shape.bounds_q[g]) *
                             (double)(x.shape.bounds_k[x.indices[i] + 1] -
                                      x.shape.bounds_k[x.indices[i]]);
            assert_true(report->density[l][h] ==
                        pairs / ((double)w->p.tokens * (double)w->p.tokens));
        }
        tess_selection_destroy(lists);
    }
}

#endif
