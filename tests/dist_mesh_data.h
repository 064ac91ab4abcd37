/* SPDX-License-Identifier: Apache-2.0 */
/* dist_mesh_data.h - plans that no planner makes for the problems of dist_attn_data.h,
 * and which keys each rank needs under them, counted one by one. */
#ifndef TESS_DIST_MESH_DATA_H
#define TESS_DIST_MESH_DATA_H

#include "dist_attn_data.h"

#include "plan/exchange/exchange_internal.h"
#include "plan/strategy_internal.h"

enum { BLOCKS_MAX = 256 };

/* Problem i for the ranks of a mesh: what else there is goes round. */
static inline problem problem_of(int i, const mesh *m, int heads)
{
    const list_kind lists = (list_kind)(i % LIST_KINDS);
    return (problem){.ranks = m->ulysses * m->ring * m->selective,
                     .heads = heads,
                     .dim = i % 4 == 3 ? 24 : 8,
                     .batch = 1 + i % 2,
                     .tokens = 97 + i % 3 * 22,
                     .lists = lists,
                     .shards = (shard_kind)(i / 2 % SHARD_KINDS),
                     .compensate = virtual_keys(i / 2),
                     .band = lists == DENSE ? 0 : i / 3 % 3 * 9,
                     .tokens_first = i / 5 % 2,
                     .grouped = i / 7 % 2,
                     .with_lse = i / 4 % 2,
                     .seed = (uint64_t)i};
}

static inline uint32_t drawn(const world *w, uint32_t i, uint32_t below)
{
    return (uint32_t)(mix(w->p.seed * 1000 + i) % below);
}

static inline void draw_order(const world *w, int32_t *order, int32_t n, uint32_t at)
{
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        const uint32_t j = drawn(w, at + (uint32_t)i, (uint32_t)i + 1);
        const int32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* parts + 1 cuts of n blocks; parts may be empty. */
static inline void draw_cuts(const world *w, int32_t *cuts, int parts, int32_t n, uint32_t at)
{
    cuts[0] = 0;
    cuts[parts] = n;
    for (int i = 1; i < parts; i++) {
        const int32_t cut = (int32_t)drawn(w, at + (uint32_t)i, (uint32_t)n + 1);
        int to = i;
        for (; to > 1 && cuts[to - 1] > cut; to--)
            cuts[to] = cuts[to - 1];
        cuts[to] = cut;
    }
}

/* Groups of heads, orders and cuts at random, each group its own; wild 0: blocks as they are, and
 * even cuts. */
static inline void draw_layer(world *w, int layer, const mesh *m, int wild)
{
    const tess_plan_info *info = &w->plan->info;
    const int parts = m->ring * m->selective;
    static int32_t group[64], q[RANKS_MAX * BLOCKS_MAX], k[RANKS_MAX * BLOCKS_MAX];
    static int32_t q_cuts[RANKS_MAX * (RANKS_MAX + 1)], k_cuts[RANKS_MAX * (RANKS_MAX + 1)];
    for (int h = 0; h < info->heads; h++)
        group[h] = (int32_t)drawn(w, (uint32_t)(layer * 64 + h), (uint32_t)m->ulysses);
    for (int u = 0; u < m->ulysses; u++) {
        const uint32_t at = (uint32_t)(1000 * (layer * RANKS_MAX + u));
        draw_order(w, q + u * info->q_blocks, info->q_blocks, at + 100);
        draw_order(w, k + u * info->k_blocks, info->k_blocks, at + 400);
        draw_cuts(w, q_cuts + u * (parts + 1), parts, info->q_blocks, at + 700);
        draw_cuts(w, k_cuts + u * (m->ring + 1), m->ring, info->k_blocks, at + 800);
    }
    const tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_REFINED,
                     .ulysses = m->ulysses,
                     .ring = m->ring,
                     .selective = m->selective,
                     .placement = (tess_placement)drawn(w, (uint32_t)layer, 2)},
        .head_group = group,
        .q_cuts = wild ? q_cuts : NULL,
        .k_cuts = wild ? k_cuts : NULL,
        .q_order = wild ? q : NULL,
        .k_order = wild ? k : NULL};
    CHECK_OK(tess__layer_from_heads(&w->plan->arena, info, &in, &w->plan->layers[layer]));
}

/* A plan of the problem's shape without layers. */
static inline void begin_plan(world *w)
{
    tess_work *work = make_work(w);
    tess_plan_info info;
    tess__plan_info_of_work(work, &info);
    info.ranks = w->p.ranks;
    info.nodes = 1;
    info.head_dim = w->p.dim;
    info.element_bytes = 4;
    CHECK_OK(tess__plan_new(ctx, "test", &info, &w->plan));
    tess_work_destroy(work);
}

/* Layers of two meshes. */
static inline void draw_plan(world *w, const mesh *first, const mesh *second, int wild)
{
    begin_plan(w);
    draw_layer(w, 0, first, wild);
    draw_layer(w, 1, second, wild);
}

/* Adds to needed (tokens) the key rows that the share's queries select of a sample. */
static inline void share_keys(const world *w, int layer, const tess_share *share, int sample,
                              uint8_t *needed)
{
    const tess_plan_info *info = &w->plan->info;
    const tess_plan_layer *l = &w->plan->layers[layer];
    const int32_t *order = l->q_order;
    if (order)
        order += (int64_t)tess__rank_group(l, share->rank) * info->q_blocks;
    for (int32_t place = share->q_begin; place < share->q_end; place++) {
        const int32_t block = order ? order[place] : place;
        for (int32_t g = 0; g < w->n_groups; g++) {
            if (w->groups[g] < tess__plan_q_row(info, block) ||
                w->groups[g] >= tess__plan_q_row(info, block + 1))
                continue;
            for (int64_t u = 0; u < w->n_units; u++) {
                const int64_t begin = w->p.lists == BLOCKS ? w->units[u] : u;
                const int64_t end = w->p.lists == BLOCKS ? w->units[u + 1] : u + 1;
                if (selects(w, layer, sample, share->head, g, (int32_t)u))
                    memset(needed + begin, 1, (size_t)(end - begin));
            }
        }
    }
}

/* Rows of q that a rank sends out as their owner, and sends back as the one who computes. */
static inline void query_rows(const world *w, int layer, int rank, int64_t *out, int64_t *back)
{
    tess_exchange *x = NULL;
    tess_rows_view view;
    CHECK_OK(tess_plan_exchange(w->plan, NULL, layer, rank, w->bounds, NULL, &x));
    CHECK_OK(tess_exchange_view(x, TESS_ROWS_Q, &view));
    *out = view.send_total - view.send_rows[rank];
    *back = view.recv_total - view.recv_rows[rank];
    tess_exchange_destroy(x);
}

/* Floats that a rank sends for the projected keys. */
static inline int64_t low_floats(const world *w, int layer, int rank)
{
    tess_exchange *x = NULL;
    tess_rows_view view;
    if (!w->p.with_lse)
        return 0;
    CHECK_OK(tess_plan_exchange(w->plan, NULL, layer, rank, w->bounds, NULL, &x));
    CHECK_OK(tess_exchange_view(x, TESS_ROWS_LOW, &view));
    const int64_t rows = view.send_total - view.send_rows[rank];
    tess_exchange_destroy(x);
    return rows * LOW;
}

/* Bytes of the queries' part of a layer: q (and projected q, k) out, o (and lse) back; backward
 * dout out, dq back. */
static inline int64_t query_bytes(const world *w, int layer, int rank, int backward)
{
    const int64_t dim = w->p.dim, lse = w->p.with_lse, low = lse ? LOW : 0;
    int64_t out, back;
    query_rows(w, layer, rank, &out, &back);
    if (backward)
        return 4 * w->p.batch * (out + back) * dim;
    return 4 * w->p.batch * (out * (dim + low) + back * (dim + lse) + low_floats(w, layer, rank));
}

/* ---- the cost model -------------------------------------------------------------------------- */

static inline void take_chosen(void *user, int layer, const tess_candidate *c)
{
    if (c->chosen)
        ((int64_t *)user)[layer] = c->bytes;
}

/* Bytes of the busiest sender of each layer, as the planner says at these degrees; the layers are
 * those of w->plan, which has run. */
static inline void planned_bytes(const world *w, const mesh *m, tess_plan_method method,
                                 tess_plan_pass pass, int64_t bytes[LAYERS])
{
    tess_plan *plan = plan_pass(w, m, method, pass);
    CHECK_OK(tess_plan_explain(plan, take_chosen, bytes));
    for (int l = 0; l < LAYERS; l++) {
        const tess_plan_layer *a = &plan->layers[l], *b = &w->plan->layers[l];
        assert_int_equal(a->n_shares, b->n_shares);
        assert_memory_equal(a->shares, b->shares, (size_t)a->n_shares * sizeof *a->shares);
    }
    tess_plan_destroy(plan);
}

/* Forward alone, and with the backward pass: what the busiest rank sent is what the planner says.
 * It counts the bits about needed key parts where projected q and k are sent. */
static inline void check_planned_bytes(const world *w, const mesh *m, tess_plan_method method)
{
    for (int pass = TESS_PLAN_FORWARD; pass <= TESS_PLAN_TRAIN; pass++) {
        int64_t bytes[LAYERS] = {0};
        planned_bytes(w, m, method, (tess_plan_pass)pass, bytes);
        for (int l = 0; l < LAYERS; l++) {
            int64_t most = 0;
            for (int r = 0; r < w->p.ranks; r++) {
                const rank_report *report = &w->reports[r];
                const int64_t sent = report->bytes[l][0] +
                                     (pass == TESS_PLAN_TRAIN ? report->bytes[l][1] : 0) +
                                     (w->p.with_lse ? report->index[l] : 0);
                most = sent > most ? sent : most;
            }
            assert_true(bytes[l] > 0);
            assert_int_equal(bytes[l], most);
        }
    }
}

static inline void check_same_bits(const world *x, const world *y)
{
    const answer *a = &x->got[0], *b = &y->got[0];
    const size_t bytes = LAYERS * numbers(&x->p, x->p.dim) * sizeof(float);
    assert_memory_equal(a->o, b->o, bytes);
    assert_memory_equal(a->lse, b->lse, LAYERS * numbers(&x->p, 1) * sizeof(float));
    assert_memory_equal(a->dq, b->dq, bytes);
    assert_memory_equal(a->dk, b->dk, bytes);
    assert_memory_equal(a->dv, b->dv, bytes);
}

/* Runs the ranks as threads and compares with one rank. */
static inline void run_world(world *w)
{
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, w->p.ranks, NULL, run_rank, w));
    answer_alone(w);
    check_answers(w, 0, w->p.tokens);
    for (int r = 0; r < w->p.ranks; r++) {
        assert_int_equal(w->reports[r].wrong, 0);
        check_densities(w, &w->reports[r]);
    }
}

/* The problem on ranks of one thread and on ranks of three, by the plan that `plan` gives a world:
 * the same bits. Enough rows for copies by a team of threads. The world of one thread. */
static inline world *check_threads_of_a_rank(int ranks, int heads, void (*plan)(world *w))
{
    const problem p = {.ranks = ranks,
                       .heads = heads,
                       .dim = 32,
                       .batch = 2,
                       .tokens = 401,
                       .lists = ROWS,
                       .compensate = 3,
                       .grouped = ranks % 2 == 0,
                       .with_lse = 1,
                       .seed = 3};
    world *w[2];
    for (int i = 0; i < 2; i++) {
        w[i] = make_world(&p);
        plan(w[i]);
        const tess_ctx_opts opts = {.threads = 1 + 2 * i};
        CHECK_OK(tess_comm_threads(&opts, ranks, NULL, run_rank, w[i]));
    }
    check_same_bits(w[0], w[1]);
    free_world(w[1]);
    return w[0];
}

#endif
