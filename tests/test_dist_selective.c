/* SPDX-License-Identifier: Apache-2.0 */
/* test_dist_selective.c - layers in which only selected keys travel, over ranks that are threads,
 * against one rank; and the messages that say which keys these are. */
#include "dist_mesh_data.h"

#include "exec/unit_set.h"
#include "tessera/advanced/collectives.h"

#include <stdatomic.h>

static const mesh meshes[] = {{1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {1, 1, 5}, {3, 1, 2},
                              {2, 1, 3}, {1, 1, 7}, {2, 1, 4}, {4, 1, 2}, {1, 1, 8}};
enum { MESHES = sizeof meshes / sizeof meshes[0], TOKENS_MAX = 1024 };

/* ---- payload --------------------------------------------------------------------------------- */

/* Rows of K that rank c needs from each owner rank, over samples and heads. */
static void union_of(const world *w, int layer, int c, int64_t *rows)
{
    const tess_plan_layer *l = &w->plan->layers[layer];
    static uint8_t needed[TOKENS_MAX];
    for (int64_t i = l->first[c]; i < l->first[c + 1];) {
        int64_t end = i;
        while (end < l->first[c + 1] && l->shares[end].head == l->shares[i].head)
            end++;
        for (int sample = 0; sample < w->p.batch; sample++) {
            memset(needed, 0, sizeof needed);
            for (int64_t s = i; s < end; s++)
                share_keys(w, layer, &l->shares[s], sample, needed);
            for (int p = 0; p < w->p.ranks; p++)
                for (int64_t row = w->bounds[p]; row < w->bounds[p + 1]; row++)
                    rows[p] += needed[row];
        }
        i = end;
    }
}

/* Every rank sends K and V of the rows that others select, and nothing else. */
static void check_payload(const world *w)
{
    const int ranks = w->p.ranks;
    for (int l = 0; l < LAYERS; l++) {
        int64_t rows[RANKS_MAX][RANKS_MAX] = {{0}};
        for (int c = 0; c < ranks; c++)
            union_of(w, l, c, rows[c]);
        for (int r = 0; r < ranks; r++) {
            int64_t in = 0, out = 0;
            for (int peer = 0; peer < ranks; peer++) {
                in += peer == r ? 0 : rows[r][peer];
                out += peer == r ? 0 : rows[peer][r];
            }
            assert_int_equal(w->reports[r].union_rows[l], in);
            assert_int_equal(w->reports[r].bytes[l][0],
                             query_bytes(w, l, r, 0) + 8 * w->p.dim * out);
            assert_int_equal(w->reports[r].bytes[l][1],
                             query_bytes(w, l, r, 1) + 8 * w->p.dim * in);
            /* At most a bit for each unit of another rank, and a byte for each head and owner. */
            const tess_plan_layer *layer = &w->plan->layers[l];
            const int64_t heads = layer->first[r + 1] - layer->first[r];
            assert_true(w->reports[r].index[l] <=
                        w->p.batch * heads * (w->n_units / 8 + 3 * ranks));
        }
    }
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void check_world(world *w)
{
    run_world(w);
    /* A row has its keys in one order wherever it is computed: the same bits. Virtual keys are sums
     * in another order. */
    if (!w->p.compensate)
        assert_memory_equal(w->got[0].o, w->want.o,
                            LAYERS * numbers(&w->p, w->p.dim) * sizeof(float));
    check_payload(w);
}

/* Each mesh so many times, with lists of another kind. */
static void cut_heads(int heads, int times)
{
    for (int i = 0; i < times * MESHES; i++) {
        const mesh *m = &meshes[i % MESHES];
        problem p = problem_of(i + heads, m, heads);
        if (times == 1) { /* what is many then is heads */
            p.dim = 8;
            p.tokens = 49 + 2 * i;
        }
        world *w = make_world(&p);
        if (p.lists == BLOCKS) { /* unions are known: the planner makes such plans */
            plan_mesh(w, m, TESS_PLAN_REFINED);
        } else {
            draw_plan(w, m, m, 0);
        }
        check_world(w);
        free_world(w);
    }
}

static void selected_keys_of_12_heads_equal_one_rank(void **state)
{
    (void)state;
    cut_heads(12, 3);
}

static void selected_keys_of_24_heads_equal_one_rank(void **state)
{
    (void)state;
    cut_heads(24, 1);
}

static void selected_keys_of_40_heads_equal_one_rank(void **state)
{
    (void)state;
    cut_heads(40, 1);
}

/* Heads cut between the ranks of a node, and selected keys between nodes. */
static void selected_keys_of_heads_that_are_cut_equal_one_rank(void **state)
{
    (void)state;
    static const mesh inside[] = {{2, 1, 2}, {2, 1, 3}, {3, 1, 2}};
    int cut = 0;
    for (int i = 0; i < 24; i++) {
        const mesh *m = &inside[i % 3];
        problem p = problem_of(i, m, 1 + i % 5);
        world *w = make_world(&p);
        plan_mesh(w, m, TESS_PLAN_FRACTIONAL);
        for (int l = 0; l < LAYERS; l++)
            cut += w->plan->layers[l].n_shares > (int64_t)p.heads * m->selective;
        check_world(w);
        free_world(w);
    }
    assert_true(cut > 20);
}

static void selected_keys_of_7_heads_equal_one_rank(void **state)
{
    (void)state;
    cut_heads(7, 3);
}

/* Heads each cut in its own way over the ranks of its group: several shares on one rank, too. */
static void draw_shares(world *w, int layer, const mesh *m)
{
    const tess_plan_info *info = &w->plan->info;
    static tess_share shares[64 * BLOCKS_MAX];
    const tess__layer_heads in = {.strategy = {.method = TESS_PLAN_REFINED,
                                               .ulysses = m->ulysses,
                                               .ring = 1,
                                               .selective = m->selective,
                                               .placement = (tess_placement)drawn(w, 3, 2)}};
    const tess_plan_layer grid = {.groups = m->ulysses,
                                  .strategy = {.ulysses = m->ulysses,
                                               .ring = 1,
                                               .selective = m->selective,
                                               .placement = in.strategy.placement}};
    int64_t n = 0;
    for (int h = 0; h < info->heads; h++) {
        const int u = (int)drawn(w, 900 + (uint32_t)h, (uint32_t)m->ulysses);
        for (int32_t q = 0; q < info->q_blocks; n++) {
            const uint32_t at = 5000 + (uint32_t)n;
            const int32_t left = info->q_blocks - q;
            const int32_t end = q + 1 + (int32_t)drawn(w, at, (uint32_t)left) / 2;
            const int s = (int)drawn(w, 2 * at, (uint32_t)m->selective);
            shares[n] = (tess_share){tess__rank_at(&grid, u, s), h, q, end};
            q = end;
        }
    }
    CHECK_OK(
        tess__layer_from_shares(&w->plan->arena, info, &in, shares, n, &w->plan->layers[layer]));
}

/* Orders, cuts and shares that no planner makes. */
static void blocks_in_any_order_and_shares_anywhere_equal_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < (SANITIZED ? 2 : 4) * MESHES; i++) {
        const mesh *m = &meshes[i % MESHES];
        problem p = problem_of(i, m, 1 + i % 5);
        p.seed += 100;
        world *w = make_world(&p);
        begin_plan(w);
        draw_layer(w, 0, m, 1);
        draw_shares(w, 1, m);
        check_world(w);
        free_world(w);
    }
}

/* What came of K and V is the union to the row, and what says so at most 5 % of that; of rows of 8
 * numbers, of which a list of indices of 32 bits would be 6 %. Returns the union by all keys that
 * there are for the ranks that compute with them. */
static double check_union(const mesh *m, const problem *p, double least, double most)
{
    world *w = make_world(p);
    draw_plan(w, m, m, 0);
    check_world(w);
    int64_t came = 0, index = 0;
    double density = 0.0;
    for (int r = 0; r < p->ranks; r++) {
        came += w->reports[r].union_rows[0];
        index += w->reports[r].index[0];
    }
    for (int h = 0; h < p->heads; h++)
        density += w->reports[0].density[0][h] / p->heads;
    assert_true(density > least && density < most);
    const int64_t rows = 8 * p->dim * came;
    assert_true(came > 0 && index > 0);
    assert_true((double)(rows + index) <= 1.05 * (double)rows);
    free_world(w);
    return (double)came / (double)(p->heads * p->tokens * (m->selective - 1));
}

static void few_keys_cost_their_union(void **state)
{
    (void)state;
    const mesh m = {2, 1, 4};
    const problem p = {.ranks = 8,
                       .heads = 4,
                       .dim = 8,
                       .batch = 1,
                       .tokens = 500,
                       .lists = ROWS,
                       .band = 100,
                       .seed = 11};
    assert_true(check_union(&m, &p, 0.0, 0.05) < 1.0);
}

static void a_tenth_of_the_keys_costs_its_union(void **state)
{
    (void)state;
    static const mesh cases[] = {{2, 1, 4}, {1, 1, 8}, {1, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const problem p = {.ranks = cases[i].ulysses * cases[i].selective,
                           .heads = 3,
                           .dim = 8,
                           .batch = 1,
                           .tokens = 501,
                           .lists = ROWS,
                           .alike = 1,
                           .seed = 12 + i};
        const double share = check_union(&cases[i], &p, 0.09, 0.11);
        assert_true(share > 0.1 && share < 0.7);
    }
}

/* What the cost model counts for a rank: rows exactly, for the planner has the masks, and a bit for
 * each key block that others have, of which the executor's messages may be shorter. */
static void model_of(const world *w, const tess__layer_flow *f, int rank, int64_t payload[2],
                     int64_t *bits)
{
    const tess_traffic q = f->q.rows[rank], kv = f->kv.rows[rank], low = f->low.rows[rank];
    const int64_t lse = w->p.with_lse, wide = lse ? LOW : 0, dim = w->p.dim;
    const int64_t block = w->p.tokens / w->n_units * 8;
    payload[0] = 4 * (q.near_out * (dim + wide) + q.near_in * (dim + lse) + 2 * kv.near_out * dim +
                      low.near_out * wide);
    payload[1] = 4 * dim * (q.near_in + q.near_out + 2 * kv.near_in);
    *bits = (low.near_in + block - 1) / block;
}

static void rows_are_those_of_the_cost_model(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MESHES; i++) {
        const mesh *m = &meshes[i % MESHES];
        problem p = problem_of(i, m, 6);
        p.lists = BLOCKS;
        p.batch = 1;
        p.shards = EVEN;
        p.with_lse = i / MESHES;
        world *w = make_world(&p);
        plan_mesh(w, m, TESS_PLAN_REFINED);
        tess_work *work = make_work(w);
        check_world(w);
        int64_t said[2][LAYERS] = {{0}};
        planned_bytes(w, m, TESS_PLAN_REFINED, TESS_PLAN_FORWARD, said[0]);
        planned_bytes(w, m, TESS_PLAN_REFINED, TESS_PLAN_TRAIN, said[1]);
        for (int l = 0; l < LAYERS; l++) {
            tess__arena arena = {.ctx = ctx};
            tess__layer_flow f;
            int64_t most[2] = {0};
            CHECK_OK(tess__layer_traffic(&arena, &w->plan->info, &w->plan->layers[l], work, l, &f));
            for (int r = 0; r < p.ranks; r++) {
                int64_t payload[2], bits;
                model_of(w, &f, r, payload, &bits);
                assert_int_equal(w->reports[r].bytes[l][0], payload[0]);
                assert_int_equal(w->reports[r].bytes[l][1], payload[1]);
                const int64_t sent[2] = {payload[0] + bits, payload[0] + payload[1] + bits};
                for (int pass = 0; pass < 2; pass++)
                    most[pass] = sent[pass] > most[pass] ? sent[pass] : most[pass];
            }
            assert_int_equal(said[0][l], most[0]);
            assert_int_equal(said[1][l], most[1]);
            tess__arena_free(&arena);
        }
        tess_work_destroy(work);
        free_world(w);
    }
}

static void plan_ring_and_selective(world *w)
{
    draw_plan(w, &(mesh){2, 2, 1}, &(mesh){1, 1, 4}, 1);
}

/* A ring and a selective layer, with virtual keys. */
static void threads_of_a_rank_change_no_bit(void **state)
{
    (void)state;
    world *w = check_threads_of_a_rank(4, 3, plan_ring_and_selective);
    answer_alone(w);
    check_answers(w, 0, w->p.tokens);
    free_world(w);
}

/* ---- failures -------------------------------------------------------------------------------- */

static tess_status choose_or_fail(void *user, const tess_share_in *in, tess_selection *lists,
                                  int *dense)
{
    (void)in;
    (void)lists;
    *dense = 1;
    return *(int *)user == 1 ? tess__fail(TESS_EIO, "no lists on rank 1") : TESS_OK;
}

static tess_status run_failing(void *user, tess_ctx *own, tess_comm *comm)
{
    world *w = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    tess_dist_attn *attn = NULL;
    const tess_view q = rows_from(&w->p, w->q, 0, w->p.dim, w->bounds[info.rank]);
    const tess_view o = rows_from(&w->p, w->got[0].o, 0, w->p.dim, w->bounds[info.rank]);
    tess_status status = open_attn(w, own, comm, &attn);
    for (int layer = 0; status == TESS_OK && layer < LAYERS; layer++) {
        tess_dist_call call = {
            .layer = layer, .save = 0, .choose = choose_or_fail, .user = &info.rank};
        w->reports[info.rank].wrong +=
            tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL) != TESS_EIO ||
            strcmp(tess_last_error(), "no lists on rank 1") != 0;
        call.choose = NULL;
        status = tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL);
    }
    tess_dist_attn_destroy(attn);
    return status;
}

/* A ring and a selective layer; then all go on. */
static void a_rank_that_cannot_choose_fails_all_with_its_sentence(void **state)
{
    (void)state;
    const problem p = {
        .ranks = 4, .heads = 4, .dim = 8, .batch = 1, .tokens = 80, .lists = ROWS, .seed = 1};
    world *w = make_world(&p);
    draw_plan(w, &(mesh){2, 2, 1}, &(mesh){2, 1, 2}, 0);
    CHECK_OK(tess_comm_threads(NULL, p.ranks, NULL, run_failing, w));
    for (int r = 0; r < p.ranks; r++)
        assert_int_equal(w->reports[r].wrong, 0);
    free_world(w);
}

/* ---- one rank of many, alone ----------------------------------------------------------------- */

/* What others would ask and send is not known; the rank still goes through all of it. */
static void a_rank_is_played_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MESHES; i++) {
        const mesh *m = &meshes[i % MESHES], ring = {m->ulysses, m->selective, 1};
        const problem p = problem_of(i, m, 1 + i % 5);
        world *w = make_world(&p);
        tess_comm *comm = NULL;
        draw_plan(w, &ring, m, 1);
        CHECK_OK(tess_comm_trace(ctx, i % p.ranks, p.ranks, &comm));
        CHECK_OK(run_rank(w, ctx, comm));
        tess_comm_destroy(comm);
        free_world(w);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* An allocator for all ranks, of which one allocation fails. */
typedef struct {
    _Atomic int64_t left, bytes;
} shortage;

static void *allocate(void *user, size_t bytes)
{
    shortage *s = user;
    if (atomic_fetch_sub(&s->left, 1) == 1)
        return NULL;
    size_t *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory)
        return NULL;
    *memory = bytes;
    atomic_fetch_add(&s->bytes, (int64_t)bytes);
    return memory + 64 / sizeof *memory;
}

static void release(void *user, void *memory)
{
    shortage *s = user;
    if (!memory)
        return;
    size_t *begin = (size_t *)memory - 64 / sizeof(size_t);
    atomic_fetch_sub(&s->bytes, (int64_t)*begin);
    free(begin);
}

/* A ring and a selective layer: whichever allocation fails on whichever rank, all ranks end with
 * the same status, and nothing is left. */
static void a_rank_without_memory_ends_all(void **state)
{
    (void)state;
    const problem p = {.ranks = 4,
                       .heads = 3,
                       .dim = 8,
                       .batch = 1,
                       .tokens = 60,
                       .lists = ROWS,
                       .compensate = 2,
                       .seed = 2};
    world *w = make_world(&p);
    draw_plan(w, &(mesh){2, 2, 1}, &(mesh){1, 1, 4}, 1);
    tess_status status = TESS_ENOMEM;
    int64_t n = 1;
    for (; status != TESS_OK; n++) {
        shortage s = {.left = n};
        const tess_ctx_opts opts = {.threads = 1, .allocator = {allocate, release, &s}};
        status = tess_comm_threads(&opts, p.ranks, NULL, run_rank, w);
        if (status != TESS_OK)
            assert_string_equal(tess_status_name(status), "ENOMEM");
        assert_int_equal(s.bytes, 0);
        assert_true(n < 5000);
    }
    assert_true(n > 10 * p.ranks);
    free_world(w);
}

/* ---- messages about units -------------------------------------------------------------------- */

enum { UNITS = 700 };

static void sets_come_through_messages(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t set[UNITS / 64 + 1] = {0}, got[UNITS / 64 + 1] = {0}, want[UNITS / 64 + 1] = {0};
        uint8_t message[1 + UNITS / 8 + 1];
        const int64_t begin = (int64_t)(mix(i) % UNITS);
        const int64_t end = begin + 1 + (int64_t)(mix(i + 7777) % (uint64_t)(UNITS - begin));
        static const unsigned shares[] = {0, 3, 10, 100, 500, 1000};
        int64_t count = 0;
        for (int64_t u = 0; u < UNITS; u++)
            if (mix(i * 1000 + (uint64_t)u) % 1000 < shares[i % 6]) {
                set[u / 64] |= UINT64_C(1) << u % 64;
                if (u >= begin && u < end) {
                    want[(u - begin) / 64] |= UINT64_C(1) << (u - begin) % 64;
                    count++;
                }
            }
        const int64_t n = end - begin;
        memset(message, 0xee, sizeof message);
        const int64_t bytes = tess__set_encode(set, begin, end, message);
        assert_true(bytes <= tess__set_message_most(n));
        assert_true(message[bytes] == 0xee || bytes == (int64_t)sizeof message);
        if (count == 0 || count == n)
            assert_int_equal(bytes, 1);
        if (n > 200 && count < 5)
            assert_true(bytes <= 2 + 2 * count);
        assert_int_equal(tess__set_count(set, begin, end), count);
        assert_int_equal(tess__set_decode(message, bytes, 0, n, got), bytes);
        assert_memory_equal(got, want, sizeof want);
        /* Cut short it is no message; and what follows is not read. */
        memset(got, 0, sizeof got);
        assert_int_equal(tess__set_decode(message, bytes - 1, 0, n, got), 0);
        memset(got, 0, sizeof got);
        assert_int_equal(tess__set_decode(message, sizeof message, 0, n, got), bytes);
    }
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    uint64_t set[2] = {0};
    const uint8_t unknown[] = {4}, far[] = {3, 1, 100}, many[] = {3, 2, 1}, endless[] = {3, 255};
    assert_int_equal(tess__set_decode(unknown, 1, 0, 100, set), 0);
    assert_int_equal(tess__set_decode(far, 3, 0, 100, set), 0);
    assert_int_equal(tess__set_decode(many, 3, 0, 100, set), 0);
    assert_int_equal(tess__set_decode(endless, 2, 0, 100, set), 0);
    assert_int_equal(tess__set_decode(NULL, 0, 0, 100, set), 0);
    /* The last unit that there is. */
    const uint8_t last[] = {3, 1, 99};
    assert_int_equal(tess__set_decode(last, 3, 0, 100, set), 3);
    assert_true(set[1] == UINT64_C(1) << 35);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(selected_keys_of_heads_that_are_cut_equal_one_rank),
    cmocka_unit_test(selected_keys_of_12_heads_equal_one_rank),
    cmocka_unit_test(selected_keys_of_24_heads_equal_one_rank),
    cmocka_unit_test(selected_keys_of_40_heads_equal_one_rank),
    cmocka_unit_test(selected_keys_of_7_heads_equal_one_rank),
    cmocka_unit_test(blocks_in_any_order_and_shares_anywhere_equal_one_rank),
    cmocka_unit_test(few_keys_cost_their_union),
    cmocka_unit_test(a_tenth_of_the_keys_costs_its_union),
    cmocka_unit_test(rows_are_those_of_the_cost_model),
    cmocka_unit_test(threads_of_a_rank_change_no_bit),
    cmocka_unit_test(a_rank_that_cannot_choose_fails_all_with_its_sentence),
    cmocka_unit_test(a_rank_is_played_alone),
    cmocka_unit_test(a_rank_without_memory_ends_all),
    cmocka_unit_test(sets_come_through_messages),
    cmocka_unit_test(what_is_no_message_is_refused),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
