/* SPDX-License-Identifier: Apache-2.0 */
/* test_dist_attn.c - attention over ranks that are threads, against one rank: layers with whole
 * keys. */
#include "dist_mesh_data.h"

static const tess_plan_method methods[] = {TESS_PLAN_CONTIGUOUS, TESS_PLAN_LPT, TESS_PLAN_DB_SP,
                                           TESS_PLAN_REFINED, TESS_PLAN_FRACTIONAL};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* ---- payload --------------------------------------------------------------------------------- */

/* Rows that a rank sends as owner and as computing rank: by the lists of rows, and, where shards
 * are those of the cost model, by its count. */
typedef struct {
    int64_t q_out, kv_out, q_back, kv_back;
} flow;

static flow flow_of(const world *w, int layer, int rank)
{
    tess_exchange *x = NULL;
    tess_rows_view view[4];
    static const tess_rows kinds[] = {TESS_ROWS_Q, TESS_ROWS_KV, TESS_ROWS_O, TESS_ROWS_DKV};
    int64_t rows[4];
    CHECK_OK(tess_plan_exchange(w->plan, NULL, layer, rank, w->bounds, NULL, &x));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(tess_exchange_view(x, kinds[i], &view[i]));
        rows[i] = view[i].send_total - view[i].send_rows[rank];
    }
    tess_exchange_destroy(x);
    return (flow){rows[0], rows[1], rows[2], rows[3]};
}

static flow flow_of_model(const world *w, int layer, int rank)
{
    tess__arena arena = {.ctx = ctx};
    tess__layer_flow f;
    CHECK_OK(tess__layer_traffic(&arena, &w->plan->info, &w->plan->layers[layer], NULL, 0, &f));
    const tess_traffic q = f.q.rows[rank], kv = f.kv.rows[rank];
    tess__arena_free(&arena);
    return (flow){q.near_out + q.far_out, kv.near_out + kv.far_out, q.near_in + q.far_in,
                  kv.near_in + kv.far_in};
}

static void check_payload(const world *w)
{
    const problem *p = &w->p;
    const int64_t low = p->with_lse ? LOW : 0, lse = p->with_lse, dim = p->dim;
    for (int l = 0; l < LAYERS; l++)
        for (int r = 0; r < p->ranks; r++) {
            const flow f = p->shards == EVEN ? flow_of_model(w, l, r) : flow_of(w, l, r);
            assert_int_equal(
                w->reports[r].bytes[l][0],
                4 * p->batch *
                    (f.q_out * (dim + low) + f.kv_out * (2 * dim + low) + f.q_back * (dim + lse)));
            assert_int_equal(w->reports[r].bytes[l][1],
                             4 * p->batch * dim * (f.q_out + f.q_back + 2 * f.kv_back));
        }
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void check_world(world *w)
{
    run_world(w);
    /* A row has its keys in one order wherever it is computed: the same bits. */
    assert_memory_equal(w->got[0].o, w->want.o, LAYERS * numbers(&w->p, w->p.dim) * sizeof(float));
    if (w->p.with_lse)
        assert_memory_equal(w->got[0].lse, w->want.lse, LAYERS * numbers(&w->p, 1) * sizeof(float));
    check_payload(w);
    for (int r = 0; r < w->p.ranks; r++)
        assert_int_equal(w->reports[r].allocations, 0);
}

static void check_problem(const problem *p, tess_plan_method method)
{
    world *w = make_world(p);
    make_plan(w, method);
    check_world(w);
    free_world(w);
}

/* Each number of heads on each number of ranks by each method; what else there is goes round. */
static void check_heads(int heads)
{
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (int m = 0; m < METHODS; m++) {
            const int i = heads + 5 * ranks + m;
            const problem p = {.ranks = ranks,
                               .heads = heads,
                               .dim = i % 4 == 3 ? 24 : 8,
                               .batch = 1 + i % 2,
                               .tokens = 41 + i % 3 * 16,
                               .lists = (list_kind)((ranks + m) % LIST_KINDS),
                               .shards = (shard_kind)(i / 2 % SHARD_KINDS),
                               .compensate = virtual_keys(i / 3),
                               .tokens_first = i / 5 % 2,
                               .grouped = i / 6 % 2,
                               .with_lse = i / 4 % 2,
                               .seed = (uint64_t)i};
            if (heads < ranks && methods[m] != TESS_PLAN_FRACTIONAL)
                continue; /* no such plan */
            check_problem(&p, methods[m]);
        }
}

static void plans_of_12_heads_equal_one_rank(void **state)
{
    (void)state;
    check_heads(12);
}

static void plans_of_24_heads_equal_one_rank(void **state)
{
    (void)state;
    check_heads(24);
}

static void plans_of_40_heads_equal_one_rank(void **state)
{
    (void)state;
    check_heads(40);
}

static void plans_of_7_heads_equal_one_rank(void **state)
{
    (void)state;
    check_heads(7);
}

/* ---- plans that no planner makes ------------------------------------------------------------- */

/* Heads cut anywhere, their shares on any ranks: several of a head on one, too. */
static void draw_shares(world *w, int layer)
{
    const tess_plan_info *info = &w->plan->info;
    static tess_share shares[64 * 256];
    int64_t n = 0;
    for (int h = 0; h < info->heads; h++)
        for (int32_t q = 0; q < info->q_blocks; n++) {
            const uint32_t at = 5000 + (uint32_t)(n + 1000 * layer);
            const int32_t left = info->q_blocks - q;
            const int32_t end = q + 1 + (int32_t)drawn(w, at, (uint32_t)left) / 2;
            const int rank = (int)drawn(w, 2 * at, (uint32_t)info->ranks);
            shares[n] = (tess_share){rank, h, q, end};
            q = end;
        }
    const tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_FRACTIONAL, .ulysses = 1, .ring = 1, .selective = 1}};
    CHECK_OK(
        tess__layer_from_shares(&w->plan->arena, info, &in, shares, n, &w->plan->layers[layer]));
}

static void blocks_in_any_order_and_shares_anywhere_equal_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 18; i++) {
        const problem p = {.ranks = 1 + i % 6,
                           .heads = 5,
                           .dim = 8,
                           .batch = 1 + i % 2,
                           .tokens = 97,
                           .lists = (list_kind)(i % LIST_KINDS),
                           .shards = (shard_kind)(i / 3 % SHARD_KINDS),
                           .compensate = virtual_keys(i / 2),
                           .grouped = i / 9,
                           .with_lse = 1,
                           .seed = (uint64_t)i + 100};
        const mesh whole = {p.ranks, 1, 1};
        world *w = make_world(&p);
        begin_plan(w);
        draw_layer(w, 0, &whole, 1);
        draw_shares(w, 1);
        check_world(w);
        free_world(w);
    }
}

/* ---- bytes, threads -------------------------------------------------------------------------- */

static void the_busiest_sender_sends_what_the_plan_says(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * METHODS; i++) {
        const tess_plan_method method = methods[i % METHODS];
        const problem p = {.ranks = 3,
                           .heads = 12,
                           .dim = 16,
                           .batch = 1,
                           .tokens = 131,
                           .lists = i / METHODS / 2 ? DENSE : ROWS,
                           .with_lse = i / METHODS % 2,
                           .seed = 7};
        const mesh m = method == TESS_PLAN_FRACTIONAL ? (mesh){0, 0, 0} : (mesh){p.ranks, 1, 1};
        world *w = make_world(&p);
        plan_mesh(w, &m, method);
        CHECK_OK(tess_comm_threads(NULL, p.ranks, NULL, run_rank, w));
        check_planned_bytes(w, &m, method);
        free_world(w);
    }
}

static void plan_fractional(world *w)
{
    make_plan(w, TESS_PLAN_FRACTIONAL);
}

static void threads_of_a_rank_change_no_bit(void **state)
{
    (void)state;
    free_world(check_threads_of_a_rank(2, 6, plan_fractional));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(plans_of_12_heads_equal_one_rank),
    cmocka_unit_test(plans_of_24_heads_equal_one_rank),
    cmocka_unit_test(plans_of_40_heads_equal_one_rank),
    cmocka_unit_test(plans_of_7_heads_equal_one_rank),
    cmocka_unit_test(blocks_in_any_order_and_shares_anywhere_equal_one_rank),
    cmocka_unit_test(the_busiest_sender_sends_what_the_plan_says),
    cmocka_unit_test(threads_of_a_rank_change_no_bit),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
