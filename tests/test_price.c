/* SPDX-License-Identifier: Apache-2.0 */
/* test_price.c - what layers move, take and need: by hand, against counting token by token, and
 * against their bounds. */
#include "test.h"

#include "plan/strategy_internal.h"
#include "strategy_data.h"
#include "tessera/advanced/exchange.h"

#include <stdlib.h>

/* ---- traffic --------------------------------------------------------------------------------- */

typedef struct {
    tess_traffic q[MAX_RANKS], kv[MAX_RANKS];
    int64_t q_held[MAX_RANKS], kv_held[MAX_RANKS];
} counted;

/* One token of one head comes to rank p. */
static void count_token(const tess_plan_info *info, int64_t tokens, int p, int64_t token,
                        tess_traffic *t, int64_t *held)
{
    const int per_node = (info->ranks + info->nodes - 1) / info->nodes;
    int owner = 0;
    while (token >= tess__shard(tokens, info->ranks, owner + 1))
        owner++;
    held[p]++;
    if (owner == p)
        return;
    if (owner / per_node == p / per_node) {
        t[p].near_in++;
        t[owner].near_out++;
    } else {
        t[p].far_in++;
        t[owner].far_out++;
    }
}

/* Counts a layer the slow way: piece by piece, block by block, token by token. */
static void count_layer(const tess_plan *plan, const tess_work *work, int at, counted *c)
{
    const tess_plan_info *info = &plan->info;
    const tess_plan_layer *layer = &plan->layers[at];
    memset(c, 0, sizeof *c);
    for (int p = 0; p < info->ranks; p++) {
        uint8_t *has = calloc((size_t)info->heads * (size_t)info->k_blocks, 1);
        const int u = tess__rank_group(layer, p), s = tess__rank_part(layer, p);
        for (int64_t i = layer->first[p]; i < layer->first[p + 1]; i++) {
            const tess_share *share = &layer->shares[i];
            for (int32_t place = share->q_begin; place < share->q_end; place++) {
                const int32_t q =
                    layer->q_order ? layer->q_order[u * info->q_blocks + place] : place;
                for (int64_t t = tess__plan_q_row(info, q); t < tess__plan_q_row(info, q + 1); t++)
                    count_token(info, info->tokens_q, p, t, c->q, c->q_held);
                for (int32_t k = 0; k < info->k_blocks; k++) {
                    const uint64_t *bits = tess__work_bits(work, at, share->head, q);
                    if (layer->strategy.ring == 1 &&
                        (layer->strategy.selective == 1 || !bits || bits[k / 64] >> (k % 64) & 1))
                        has[share->head * info->k_blocks + k] = 1;
                }
            }
        }
        for (int h = 0; h < info->heads && layer->strategy.ring > 1; h++)
            for (int32_t i = layer->k_cuts[u * (layer->strategy.ring + 1) + s];
                 layer->head_group[h] == u &&
                 i < layer->k_cuts[u * (layer->strategy.ring + 1) + s + 1];
                 i++)
                has[h * info->k_blocks +
                    (layer->k_order ? layer->k_order[u * info->k_blocks + i] : i)] = 1;
        for (int h = 0; h < info->heads; h++)
            for (int32_t k = 0; k < info->k_blocks; k++)
                for (int64_t t = tess__plan_k_row(info, k);
                     has[h * info->k_blocks + k] && t < tess__plan_k_row(info, k + 1); t++)
                    count_token(info, info->tokens_k, p, t, c->kv, c->kv_held);
        free(has);
    }
}

static void check_flow(const tess__flow *flow, const tess_traffic *rows, const int64_t *held, int n)
{
    for (int p = 0; p < n; p++) {
        assert_int_equal(flow->held[p], held[p]);
        assert_int_equal(flow->rows[p].near_in, rows[p].near_in);
        assert_int_equal(flow->rows[p].near_out, rows[p].near_out);
        assert_int_equal(flow->rows[p].far_in, rows[p].far_in);
        assert_int_equal(flow->rows[p].far_out, rows[p].far_out);
    }
}

static void traffic_is_what_counting_tokens_gives(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        tess_work *work = random_work(seed);
        tess_plan_opts opts = random_opts(seed, work);
        tess_plan *plan = NULL;
        const tess_status status = tess_plan_create(ctx, work, NULL, &opts, &plan);
        if (status != TESS_OK) { /* degrees that no head count allows */
            assert_int_equal(status, TESS_EINVAL);
            tess_work_destroy(work);
            continue;
        }
        CHECK_OK(tess_plan_check(plan, work));
        tess__arena arena = {.ctx = ctx};
        tess__layer_flow flow;
        counted c;
        CHECK_OK(tess__layer_traffic(&arena, &plan->info, &plan->layers[0], work, 0, &flow));
        count_layer(plan, work, 0, &c);
        check_flow(&flow.q, c.q, c.q_held, opts.ranks);
        check_flow(&flow.kv, c.kv, c.kv_held, opts.ranks);
        tess__arena_free(&arena);
        tess_plan_destroy(plan);
        tess_work_destroy(work);
    }
}

/* Rows of a view by whether the peer is in the same node. */
static tess_traffic rows_of_view(const tess_exchange *x, tess_rows kind, int rank, int ranks,
                                 int per_node)
{
    tess_rows_view view;
    tess_traffic t = {0};
    CHECK_OK(tess_exchange_view(x, kind, &view));
    for (int peer = 0; peer < ranks; peer++) {
        if (peer == rank)
            continue;
        const int near = peer / per_node == rank / per_node;
        *(near ? &t.near_out : &t.far_out) += view.send_rows[peer];
        *(near ? &t.near_in : &t.far_in) += view.recv_rows[peer];
    }
    return t;
}

/* Bytes that a rank sends by its exchange lists: q, k, v, projected vectors; o, lse; a ring's keys,
 * and who needs them. The bits of a selective layer, which no list has, come from the flow. */
static int64_t bytes_of_lists(const tess_exchange *x, const tess_plan *plan,
                              const tess_plan_opts *opts, int rank)
{
    const tess_plan_info *info = &plan->info;
    const int64_t row = (int64_t)info->head_dim * info->element_bytes;
    const int64_t low = (int64_t)opts->proj_dim * info->element_bytes;
    const int degree = plan->layers[0].strategy.ring,
              bits = low ? (degree - 1) * ((degree + 7) / 8) : 0;
    tess_ring_view ring;
    const tess_traffic q = rows_of_view(x, TESS_ROWS_Q, rank, info->ranks, info->ranks);
    const tess_traffic kv = rows_of_view(x, TESS_ROWS_KV, rank, info->ranks, info->ranks);
    const tess_traffic o = rows_of_view(x, TESS_ROWS_O, rank, info->ranks, info->ranks);
    const tess_traffic keys = rows_of_view(x, TESS_ROWS_LOW, rank, info->ranks, info->ranks);
    int64_t rows = q.near_out + 2 * kv.near_out + o.near_out;
    CHECK_OK(tess_exchange_ring(x, &ring));
    for (int i = 0; i < ring.steps; i++)
        rows += ring.step[i].passes ? 2 * ring.n_heads * ring.step[i].rows : 0;
    return rows * row + (q.near_out + keys.near_out) * low + 4 * opts->lse * o.near_out + bits;
}

static void check_traffic(tess_traffic a, tess_traffic b)
{
    assert_int_equal(a.near_in, b.near_in);
    assert_int_equal(a.near_out, b.near_out);
    assert_int_equal(a.far_in, b.far_in);
    assert_int_equal(a.far_out, b.far_out);
}

/* What is priced is what an executor with even shards sends, list by list and in all. */
static void bytes_are_those_of_the_exchange_lists(void **state)
{
    (void)state;
    int rings = 0, selects = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        tess_work *work = random_work(seed);
        tess_plan_opts opts = random_opts(seed, work);
        opts.proj_dim = seed % 3 ? 0 : draw(seed, 40, 1, 64);
        opts.lse = draw(seed, 41, 0, 1);
        tess_plan *plan = NULL;
        found f = {0};
        if (tess_plan_create(ctx, work, NULL, &opts, &plan) != TESS_OK ||
            (plan->layers[0].strategy.selective > 1 &&
             !work->info.masks)) { /* lists need the masks */
            tess_plan_destroy(plan);
            tess_work_destroy(work);
            continue;
        }
        CHECK_OK(tess_plan_explain(plan, find_all, &f));
        const int per_node = (opts.ranks + opts.nodes - 1) / opts.nodes;
        int64_t q[MAX_RANKS + 1], k[MAX_RANKS + 1], most = 0;
        for (int p = 0; p <= opts.ranks; p++) {
            q[p] = tess__shard(plan->info.tokens_q, opts.ranks, p);
            k[p] = tess__shard(plan->info.tokens_k, opts.ranks, p);
        }
        tess__arena arena = {.ctx = ctx};
        tess__layer_flow flow;
        CHECK_OK(tess__layer_traffic(&arena, &plan->info, &plan->layers[0], work, 0, &flow));
        for (int p = 0; p < opts.ranks; p++) {
            tess_exchange *x = NULL;
            CHECK_OK(tess_plan_exchange(plan, work, 0, p, q, k, &x));
            check_traffic(flow.q.rows[p], rows_of_view(x, TESS_ROWS_Q, p, opts.ranks, per_node));
            check_traffic(flow.kv.rows[p], rows_of_view(x, TESS_ROWS_KV, p, opts.ranks, per_node));
            check_traffic(flow.low.rows[p],
                          rows_of_view(x, TESS_ROWS_LOW, p, opts.ranks, per_node));
            const int64_t sent = bytes_of_lists(x, plan, &opts, p);
            most = sent > most ? sent : most;
            tess_exchange_destroy(x);
        }
        if (plan->layers[0].strategy.selective == 1)
            for (int i = 0; i < f.n; i++)
                if (f.c[i].chosen)
                    assert_int_equal(f.c[i].bytes, most);
        rings += plan->layers[0].strategy.ring > 1;
        selects += plan->layers[0].strategy.selective > 1;
        tess__arena_free(&arena);
        tess_plan_destroy(plan);
        tess_work_destroy(work);
    }
    assert_true(rings > 100 && selects > 100);
}

/* ---- prices by hand -------------------------------------------------------------------------- */

/* 8 heads of 6400 tokens on 4 ranks: a rank computes 2 heads and owns 1600 tokens of each. It
 * receives 2 x 4800 rows of q, k and v, and sends 1600 x 6 of each; o the other way. A row is 128
 * elements of 2 bytes. At 100 GB/s, 1 us of latency and 3 us of launch. */
static void heads_alone_move_and_take_what_one_computes_by_hand(void **state)
{
    (void)state;
    tess_work *work = even_work(8, 6400, 64, 0.25);
    tess_candidate c;
    one_candidate(
        work,
        &(tess_plan_opts){
            TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
            .strategy = {.ulysses = 4, .ring = 1, .selective = 1, .method = TESS_PLAN_CONTIGUOUS}},
        &c);
    const int64_t rows = 2 * 4800, row = 128 * 2;
    assert_int_equal(c.bytes, 4 * rows * row);
    const int64_t in = 4000 + 3 * rows * row / 100, out = 4000 + rows * row / 100;
    /* Two heads of 6400 rows with 1600 keys each, and 100 more for opening a row, at 10 TFLOP/s. */
    const int64_t attend = (int64_t)2 * 6400 * (1600 + 100) * 4 * 128 / 10000;
    assert_int_equal(c.compute_ns, attend);
    assert_int_equal(c.ns, in + attend + out);
    assert_int_equal(c.comm_ns, in + out);
    assert_true(c.rho == 1.0 && c.kv_copies == 1.0 && c.chosen);
    /* q, k, v, o of 8 heads on their owner and of 2 heads where they are computed, and lse. */
    assert_int_equal(c.memory, 4 * (8 * 1600 + 2 * 6400) * row + 4 * 2 * 6400);

    /* Training receives dO, returns dQ, dK and dV, and computes 2.5 times as much at 5 TFLOP/s. */
    tess_candidate t;
    one_candidate(
        work,
        &(tess_plan_opts){
            TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
            .strategy = {.ulysses = 4, .ring = 1, .selective = 1, .method = TESS_PLAN_CONTIGUOUS},
            .pass = TESS_PLAN_TRAIN},
        &t);
    assert_int_equal(t.bytes, 8 * rows * row);
    assert_int_equal(t.compute_ns, attend + 5 * attend);
    assert_int_equal(t.ns, 2 * (in + out) + 6 * attend);
    assert_true(t.memory > c.memory);
    tess_work_destroy(work);
}

/* The same heads with projected vectors of 16 elements: those of q come with q, those of all keys
 * of a rank's heads with k and v, forward alone; lse, 4 bytes, goes back with o. In layers that are
 * said to have none nothing changes. */
static void low_rank_vectors_and_lse_are_bytes_too(void **state)
{
    (void)state;
    tess_work *work = even_work(8, 6400, 64, 0.25);
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                           .strategy = {.ulysses = 4, .method = TESS_PLAN_CONTIGUOUS}};
    tess_candidate plain, c;
    const int64_t rows = 2 * 4800, row = 128 * 2, low = 16 * 2;
    for (int pass = TESS_PLAN_FORWARD; pass <= TESS_PLAN_TRAIN; pass++) {
        opts.pass = (tess_plan_pass)pass;
        one_candidate(work, &opts, &plain);
        opts.proj_dim = 16;
        one_candidate(work, &opts, &c);
        assert_int_equal(c.bytes - plain.bytes, 2 * rows * low);
        assert_int_equal(c.ns - plain.ns, 2 * rows * low / 100);
        assert_int_equal(c.compute_ns, plain.compute_ns);
        /* Of 8 heads on their owner and of 2 where they are computed, of q and of k. */
        assert_int_equal(c.memory - plain.memory, 2 * (8 * 1600 + 2 * 6400) * low);
        opts.lse = 1;
        one_candidate(work, &opts, &c);
        assert_int_equal(c.bytes - plain.bytes, 2 * rows * low + 4 * rows);
        assert_int_equal(c.ns - plain.ns, 2 * rows * low / 100 + 4 * rows / 100);
        opts.proj_layers = (const uint8_t[1]){0};
        one_candidate(work, &opts, &c);
        assert_int_equal(c.bytes - plain.bytes, 4 * rows);
        opts.proj_layers = (const uint8_t[1]){1};
        opts.lse = 0;
        one_candidate(work, &opts, &c);
        assert_int_equal(c.bytes - plain.bytes, 2 * rows * low);
        opts.proj_layers = NULL;
        opts.proj_dim = 0;
    }
    assert_int_equal(plain.bytes, 8 * rows * row);
    tess_work_destroy(work);
}

/* In a ring of 4, and selective, queries stay, and the projected vectors of all keys of all heads
 * come: 3 shards of 8 heads. A ring's ranks then announce what they need: a byte each, and
 * 4 us. */
static void low_rank_keys_come_whole_where_keys_do_not(void **state)
{
    (void)state;
    tess_work *work = even_work(8, 6400, 64, 0.25);
    const int64_t low = (int64_t)3 * 8 * 1600 * 16 * 2;
    for (int ring = 0; ring < 2; ring++) {
        tess_plan_opts opts = {
            TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
            .strategy = {.ulysses = 1, .ring = ring ? 4 : 1, .selective = ring ? 1 : 4},
            .union_share = 0.5, .strategy.method = TESS_PLAN_CONTIGUOUS};
        tess_candidate plain, c;
        one_candidate(work, &opts, &plain);
        opts.proj_dim = 16;
        one_candidate(work, &opts, &c);
        assert_int_equal(c.bytes - plain.bytes, low + (ring ? 3 : 0));
        /* A ring has no exchange of q, k and v without them. */
        assert_int_equal(c.ns - plain.ns, low / 100 + (ring ? 4000 + 4000 : 0));
    }
    tess_work_destroy(work);
}

/* The same heads in a ring of 4: nothing is exchanged before, each rank keeps its queries; the
 * keys, 1600 tokens of 8 heads, travel 3 hops. */
static void a_ring_overlaps_its_hops_with_its_tiles(void **state)
{
    (void)state;
    tess_work *work = even_work(8, 6400, 64, 0.25);
    const tess_plan_opts opts = {
        TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
        .strategy = {.ulysses = 1, .ring = 4, .selective = 1, .method = TESS_PLAN_CONTIGUOUS}};
    tess_candidate c;
    one_candidate(work, &opts, &c);
    const int64_t part = (int64_t)8 * 1600 * 128 * 2 * 2;
    assert_int_equal(c.bytes, 3 * part);
    const int64_t hop = 4000 + part / 100;
    /* A tile: 8 heads, 1600 rows, 400 keys of the part, and the row opened again. */
    const int64_t tile = (int64_t)8 * 1600 * (400 + 100) * 4 * 128 / 10000;
    assert_true(tile > hop);
    assert_int_equal(c.ns, 4 * tile);
    assert_int_equal(c.comm_ns, 0);
    /* With ten times the rate the hops are longer than the tiles. */
    tess_plan_opts fast = opts;
    tess_cluster *faster = round_with(offsetof(tess_cluster_info, attn_flops), 100e12);
    one_candidate_on(faster, work, &fast, &c);
    assert_true(tile / 10 < hop);
    assert_int_equal(c.ns, 3 * hop + tile / 10);
    /* Backward, gradients in fp32 travel with the keys and need one more hop to the owner. */
    fast.pass = TESS_PLAN_TRAIN;
    const int64_t forward = c.ns, both = 4000 + 3 * part / 100, last = 4000 + 2 * part / 100;
    const int64_t back = tile / 4; /* 2.5 times the FLOP at ten times the rate */
    one_candidate_on(faster, work, &fast, &c);
    assert_true(back < both);
    assert_int_equal(c.ns, forward + 3 * both + back + last);
    assert_int_equal(c.bytes, 3 * part + 3 * part + 4 * 2 * part);
    tess_cluster_destroy(faster);
    tess_work_destroy(work);
}

/* Masks whose tiles differ: the recursion, not a mean times rho. 2 ranks, 2 query and key blocks of
 * 100 tokens, one head: tiles (0,0) and (1,0) have work, so rank 0 works at once and rank 1 only
 * when part 0 arrives. */
static void a_ring_waits_for_the_keys_it_needs(void **state)
{
    (void)state;
    const uint8_t mask[4] = {1, 0, 1, 0};
    const tess_mask_set set = {.layers = 1,
                               .heads = 1,
                               .q_blocks = 2,
                               .k_blocks = 2,
                               .data = mask,
                               .kind = TESS_MASK_BYTES,
                               .tokens_q = 200,
                               .tokens_k = 200,
                               .group = 100,
                               .unit = 100};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_masks(ctx, &set, &work));
    tess_candidate c;
    one_candidate(work,
                  &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2,
                                    .strategy = {.ring = 2, .method = TESS_PLAN_CONTIGUOUS}},
                  &c);
    const int64_t hop = 4000 + 100 * 128 * 2 * 2 / 100;
    const int64_t tile = (100 * 100 + 100 * 100) * 4 * 128 / 10000;
    assert_int_equal(c.ns, hop + tile);
    assert_int_equal(c.bytes, 100 * 128 * 2 * 2); /* part 1, which no rank needs, stays */
    assert_true(c.rho == 2.0);                    /* each iteration has one rank at work */
    tess_work_destroy(work);
}

/* 3 heads on 2 ranks: the rank with two of them receives twice as much, and all wait for it. */
static void uneven_heads_are_charged_to_the_rank_that_has_them(void **state)
{
    (void)state;
    tess_work *work = even_work(3, 6400, 64, 0.25);
    tess_candidate c;
    one_candidate(work,
                  &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2,
                                    .strategy = {.ulysses = 2, .method = TESS_PLAN_LPT}},
                  &c);
    const int64_t row = 128 * 2;
    const int64_t in = 4000 + 3 * 2 * 3200 * row / 100, out = 4000 + 2 * 3200 * row / 100;
    assert_int_equal(c.comm_ns, in + out);
    /* It sends one head's q, k, v and two heads' o; the other two heads' q, k, v and one's o. */
    assert_int_equal(c.bytes, (3 * 2 + 1) * 3200 * row);
    tess_work_destroy(work);
}

/* 2 nodes of 2 ranks, U = 2, ring 2, 4 heads, 4000 tokens. Heads inside: ranks 0 and 1 share a
 * sequence half, whose owners are in their node, so heads never leave it and keys cross. Sequence
 * inside: a ring stays in its node, and half of what heads exchange crosses. */
static void placements_differ_in_what_crosses_between_nodes(void **state)
{
    (void)state;
    tess_work *work = even_work(4, 4000, 100, 0.5);
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .nodes = 2,
                           .strategy = {.ulysses = 2, .ring = 2, .method = TESS_PLAN_CONTIGUOUS}};
    tess_plan *plan = NULL;
    found f = {0};
    CHECK_OK(tess_plan_create(ctx, work, round_cluster, &opts, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    assert_int_equal(f.n, 2);
    const int64_t row = 128 * 2, half = 2 * 1000; /* two heads, a quarter of the tokens */
    const int64_t tile = (int64_t)2 * 2000 * (1000 + 100) * 4 * 128 / 10000;
    /* Near at 100 GB/s; a hop of 2 heads x 2000 tokens of k and v far, at 10 GB/s after 2 us. */
    const int64_t near_in = 4000 + 3 * half * row / 100, near_out = 4000 + half * row / 100;
    const int64_t far_hop = 5000 + 2 * 2 * 2000 * row / 10;
    assert_int_equal(f.c[0].strategy.placement, TESS_PLACE_HEADS_INSIDE);
    assert_int_equal(f.c[0].ns, near_in + (tile > far_hop ? tile : far_hop) + tile + near_out);
    /* Sequence inside: rank 0 computes heads of group 0 on tokens 0..1999, owned by ranks 0 and
     * 1, so it needs nothing from afar; rank 1 computes tokens 2000..3999, all owned in node 1.
     */
    const int64_t far_in = 5000 + 3 * 2 * half * row / 10, far_out = 5000 + 2 * half * row / 10;
    const int64_t near_hop = 4000 + 2 * 2 * 2000 * row / 100;
    assert_int_equal(f.c[1].strategy.placement, TESS_PLACE_SEQUENCE_INSIDE);
    assert_int_equal(f.c[1].ns, far_in + (tile > near_hop ? tile : near_hop) + tile + far_out);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

/* 520,000 tokens x 256 x 24 heads overflow 32 bits in elements already. */
static void volumes_beyond_32_bits_are_right(void **state)
{
    (void)state;
    tess_work *work = even_work(24, 520000, 64, 0.05);
    tess_candidate c;
    one_candidate(work,
                  &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8, .strategy.ulysses = 8,
                                    .head_dim = 256, .strategy.method = TESS_PLAN_CONTIGUOUS,
                                    .memory = (int64_t)1 << 40},
                  &c);
    assert_int_equal(c.bytes, (int64_t)4 * 3 * (520000 - 65000) * 256 * 2);
    assert_int_equal(c.memory, ((int64_t)4 * (24 * 65000 + 3 * 520000)) * 512 + 4 * 3 * 520000);
    tess_work_destroy(work);
}

/* ---- the formula ----------------------------------------------------------------------------- */

/* Without a ring the time is the exchanges and compute * rho: the busiest of 4 heads on 4 ranks. */
static void without_a_ring_time_is_exchanges_and_compute_times_rho(void **state)
{
    (void)state;
    const double density[4] = {0.1, 0.2, 0.3, 0.6};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_density(ctx, density, 1, 4, 6400, 64, &work));
    tess_candidate c, even;
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                                 .strategy = {.ulysses = 4, .method = TESS_PLAN_CONTIGUOUS}};
    one_candidate(work, &opts, &c);
    assert_true(fabs(c.rho - 2.0) < 1e-9);
    tess_work *mean = even_work(4, 6400, 64, 0.3);
    one_candidate(mean, &opts, &even);
    assert_int_equal(c.comm_ns, even.comm_ns);
    const int64_t opening = (int64_t)6400 * 100 * 4 * 128 / 10000; /* rows, which are not work */
    /* Each is rounded to a ns once. */
    assert_true(llabs(c.compute_ns - opening - 2 * (even.compute_ns - opening)) <= 2);
    tess_work_destroy(work);
    tess_work_destroy(mean);
}

static void more_imbalance_never_takes_less_time(void **state)
{
    (void)state;
    static const int degrees[3][2] = {{4, 1}, {2, 2}, {1, 4}};
    for (int d = 0; d < 3; d++) {
        int64_t last = 0;
        for (int step = 0; step <= 10; step++) {
            /* The same total, more and more of it in the first head. */
            const double density[4] = {0.2 + 0.06 * step, 0.2 - 0.02 * step, 0.2 - 0.02 * step,
                                       0.2 - 0.02 * step};
            tess_work *work = NULL;
            tess_candidate c;
            CHECK_OK(tess_work_from_density(ctx, density, 1, 4, 6400, 64, &work));
            one_candidate(work,
                          &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                                            .strategy = {.ulysses = degrees[d][0],
                                                         .ring = degrees[d][1],
                                                         .selective = 1,
                                                         .method = TESS_PLAN_CONTIGUOUS}},
                          &c);
            /* A ring of all heads has the same load on every rank: equal but for rounding. */
            assert_true(c.ns + 8 >= last);
            last = c.ns;
            tess_work_destroy(work);
        }
    }
}

/* Time of U x R as published: exchanges + (max(tile, hop) * (R - 1) + tile) * rho, with rho 1. Here
 * the exchange of heads and the hops of a ring cost enough that the middle wins, then the ring,
 * then heads alone: the order of the published figure. */
static void the_middle_wins_where_both_ends_cost_more(void **state)
{
    (void)state;
    const double density[4] = {0.35, 0.2, 0.15, 0.1};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_density(ctx, density, 1, 4, 64000, 64, &work));
    int64_t ns[3];
    tess_cluster *fast = round_with(offsetof(tess_cluster_info, attn_flops), 1e15);
    for (int d = 0; d < 3; d++) {
        tess_candidate c;
        one_candidate_on(
            fast, work,
            &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                              .strategy = {.ulysses = 4 >> d, .ring = 1 << d, .selective = 1},
                              .memory = (int64_t)1 << 40},
            &c);
        ns[d] = c.ns;
    }
    assert_true(ns[1] < ns[2] && ns[2] < ns[0]);
    tess_cluster_destroy(fast);
    tess_work_destroy(work);
}

/* ---- selective ------------------------------------------------------------------------------- */

/* Each query block selects its own key block: a rank's union is its own queries' keys, nothing
 * travels but the indices. A mask of all keys makes every key travel. */
static void the_union_of_a_rank_is_measured(void **state)
{
    (void)state;
    enum { N = 16 };
    uint8_t mask[2 * N * N] = {0};
    for (int i = 0; i < N; i++)
        mask[i * N + i] = mask[N * N + i * N + i] = 1;
    tess_mask_set set = {.layers = 1,
                         .heads = 2,
                         .q_blocks = N,
                         .k_blocks = N,
                         .data = mask,
                         .kind = TESS_MASK_BYTES,
                         .tokens_q = N * 64,
                         .tokens_k = N * 64,
                         .group = 64,
                         .unit = 64};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_masks(ctx, &set, &work));
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .strategy.selective = 4};
    tess_candidate c;
    one_candidate(work, &opts, &c);
    assert_int_equal(c.bytes, 3); /* 12 of 16 blocks of 2 heads are others': 24 bits */
    assert_true(c.kv_copies == 1.0);
    memset(mask, 1, sizeof mask);
    CHECK_OK(tess_work_set_masks(work, &set));
    one_candidate(work, &opts, &c);
    assert_int_equal(c.bytes, 3 + (int64_t)2 * 2 * 3 * 256 * 128 * 2);
    assert_true(c.kv_copies == 4.0);
    tess_work_destroy(work);
}

static void a_union_share_stands_for_masks(void **state)
{
    (void)state;
    tess_work *work = even_work(2, 6400, 64, 0.1);
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .strategy.selective = 4,
                           .union_share = 0.5};
    tess_candidate c;
    one_candidate(work, &opts, &c);
    /* Half of the remote keys, and one bit per 64 tokens of all of them. */
    assert_int_equal(c.bytes, (int64_t)2 * 2 * 2400 * 128 * 2 + 2 * 4800 / 64 / 8 + 1);
    assert_true(c.ns > 0);
    const int64_t half = c.bytes, ns = c.ns;
    /* Each byte of 2,400 rows of 2 heads, and of 1,600 local ones, K and V. */
    tess_cluster *cluster = round_with(offsetof(tess_cluster_info, select_ns), 2.0);
    one_candidate_on(cluster, work, &opts, &c);
    tess_cluster_destroy(cluster);
    assert_int_equal(c.ns - ns, 2 * 2 * (2400 + 1600) * 2 * 128 * 2);
    assert_int_equal(c.bytes, half);
    /* There are 1,600 query rows in 2 heads, and so many more keys. */
    cluster = round_with(offsetof(tess_cluster_info, load_ns), 3.0);
    one_candidate_on(cluster, work, &opts, &c);
    tess_cluster_destroy(cluster);
    assert_int_equal(c.ns - ns, 3 * 2 * (2400 + 1600 - 1600) * 2 * 128 * 2);
    const double by_degree[5] = {0.0, 0.0, 1.0, 0.0, 0.5};
    opts.union_share = 1.0;
    opts.union_shares = by_degree; /* goes before */
    one_candidate(work, &opts, &c);
    assert_int_equal(c.bytes, half);
    opts.union_share = 0.0;
    opts.union_shares = NULL;
    one_candidate(work, &opts, &c);
    assert_int_equal(c.ns, -1);
    assert_string_equal(c.reason, "chosen: the only one, not predictable");
    tess_work_destroy(work);
}

static void copies_of_rows_are_priced(void **state)
{
    (void)state;
    tess_work *work = even_work(2, 6400, 64, 0.1);
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .strategy.ulysses = 2};
    tess_candidate plain, c;
    one_candidate(work, &opts, &plain);
    /* q, k, v and o: 3,200 rows leave a rank, and it computes with 6,400. */
    tess_cluster *cluster = round_with(offsetof(tess_cluster_info, pack_ns), 2.0);
    one_candidate_on(cluster, work, &opts, &c);
    tess_cluster_destroy(cluster);
    assert_int_equal(c.ns - plain.ns, 2 * 4 * (3200 + 6400) * 128 * 2);
    assert_int_equal(c.bytes, plain.bytes);
    tess_work_destroy(work);
}

/* Where the work includes the fixed cost of rows, a cluster has that of further key parts alone. */
static void rows_of_further_key_parts_have_a_cost_of_their_own(void **state)
{
    (void)state;
    tess_work *work = even_work(2, 6400, 64, 0.9);
    int64_t less[2];
    for (int ring = 1; ring <= 2; ring++) {
        tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 2,
                               .strategy = {.ulysses = 2 / ring, .ring = ring}};
        tess_candidate plain, c;
        one_candidate(work, &opts, &plain);
        tess_cluster *cluster = round_with(offsetof(tess_cluster_info, attn_row_keys), 0.0);
        one_candidate_on(cluster, work, &opts, &c);
        tess_cluster_destroy(cluster);
        less[ring - 1] = plain.ns - c.ns;
    }
    assert_true(less[0] > 0); /* 6,400 rows once; of a ring's two parts one */
    assert_in_range(less[1], less[0] - 2, less[0] + 2);
    tess_work_destroy(work);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* A candidate that was given up by its bound is no better when it is planned to the end. */
static void bounds_are_bounds(void **state)
{
    (void)state;
    int bounded[2] = {0};
    for (uint64_t seed = 0; seed < 120; seed++) {
        double density[9];
        const int heads = draw(seed, 0, 2, 9);
        for (int h = 0; h < heads; h++)
            density[h] = draw(seed, 1 + (uint64_t)h, 1, 100) / 100.0;
        tess_work *work = NULL;
        if (seed % 3)
            CHECK_OK(tess_work_from_density(ctx, density, 1, heads, 20000, 64, &work));
        else
            work = large_masks(seed);
        tess_plan_opts opts = {
            TESS_PLAN_OPTS_DEFAULTS,           .ranks = 8,
            .nodes = 1 + draw(seed, 20, 0, 1), .pass = (tess_plan_pass)draw(seed, 21, 0, 1),
            .memory = (int64_t)1 << 40,        .union_share = 0.7};
        tess_plan *plan = NULL;
        found f = {0};
        CHECK_OK(tess_plan_create(ctx, work, round_cluster, &opts, &plan));
        CHECK_OK(tess_plan_explain(plan, find_all, &f));
        for (int i = 0; i < f.n; i++) {
            tess_candidate c;
            opts.strategy = f.c[i].strategy;
            if (!strstr(f.c[i].reason, "whatever its blocks are"))
                continue;
            one_candidate(work, &opts, &c);
            assert_true(c.ns > plan->layers[0].predicted_ns);
            bounded[seed % 3 == 0]++;
        }
        tess_plan_destroy(plan);
        tess_work_destroy(work);
    }
    assert_true(bounded[0] > 20 && bounded[1] > 20);
}

/* Bounds against prices directly, for every degree and many masks. */
static void no_price_is_below_its_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        tess_work *work =
            seed % 2 ? large_masks(seed / 2)
                     : random_masks(seed, 1 + (int)(seed % 9), 24, 20, 5 + (int)(seed % 60));
        for (int d = 0; d < 6; d++) {
            const int parts = 2 << d % 3, ring = d < 3;
            const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS,
                                         .ranks = 8,
                                         .nodes = 1 + (int)(seed / 4 % 2),
                                         .strategy = {.ulysses = 8 / parts,
                                                      .ring = ring ? parts : 1,
                                                      .selective = ring ? 1 : parts},
                                         .pass = (tess_plan_pass)(seed / 8 % 2),
                                         .memory = (int64_t)1 << 40};
            tess_plan *plan = NULL;
            found f = {0};
            if (opts.strategy.ulysses > work->info.heads)
                continue;
            CHECK_OK(tess_plan_create(ctx, work, round_cluster, &opts, &plan));
            CHECK_OK(tess_plan_explain(plan, find_all, &f));
            tess__task task;
            CHECK_OK(tess__task_make("test", ctx, work, round_cluster, &opts, &task));
            tess__arena arena = {.ctx = ctx};
            CHECK_OK(tess__bound_scratch_make(&arena, &task.info, work, &task.bound));
            const tess_plan_layer *layer = &plan->layers[0];
            for (int i = 0; i < f.n; i++) {
                tess_candidate bound = f.c[i];
                if (f.c[i].ns < 0 || bound.strategy.method != layer->strategy.method)
                    continue;
                const int planned = !ring && bound.strategy.placement == layer->strategy.placement;
                tess__price_bound(&task.pricing, &task.info, work, 0, layer->head_group,
                                  planned ? layer : NULL, INT64_MAX, &task.bound, &bound);
                assert_true(bound.ns <= f.c[i].ns);
                assert_true(bound.bytes <= f.c[i].bytes);
                assert_true(bound.rho <= f.c[i].rho + 1e-9);
            }
            tess__arena_free(&arena);
            tess_plan_destroy(plan);
        }
        tess_work_destroy(work);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(traffic_is_what_counting_tokens_gives),
    cmocka_unit_test(bytes_are_those_of_the_exchange_lists),
    cmocka_unit_test(heads_alone_move_and_take_what_one_computes_by_hand),
    cmocka_unit_test(low_rank_vectors_and_lse_are_bytes_too),
    cmocka_unit_test(low_rank_keys_come_whole_where_keys_do_not),
    cmocka_unit_test(a_ring_overlaps_its_hops_with_its_tiles),
    cmocka_unit_test(a_ring_waits_for_the_keys_it_needs),
    cmocka_unit_test(uneven_heads_are_charged_to_the_rank_that_has_them),
    cmocka_unit_test(placements_differ_in_what_crosses_between_nodes),
    cmocka_unit_test(volumes_beyond_32_bits_are_right),
    cmocka_unit_test(without_a_ring_time_is_exchanges_and_compute_times_rho),
    cmocka_unit_test(more_imbalance_never_takes_less_time),
    cmocka_unit_test(the_middle_wins_where_both_ends_cost_more),
    cmocka_unit_test(the_union_of_a_rank_is_measured),
    cmocka_unit_test(a_union_share_stands_for_masks),
    cmocka_unit_test(copies_of_rows_are_priced),
    cmocka_unit_test(rows_of_further_key_parts_have_a_cost_of_their_own),
    cmocka_unit_test(bounds_are_bounds),
    cmocka_unit_test(no_price_is_below_its_bound),
};

RUN_TESTS_WITH(tests, make_world, drop_world)
