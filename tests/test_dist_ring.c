/* SPDX-License-Identifier: Apache-2.0 */
/* test_dist_ring.c - rings, and heads x rings, over ranks that are threads, against one rank. */
#include "dist_mesh_data.h"

static const mesh meshes[] = {{1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {2, 2, 1}, {1, 5, 1}, {3, 2, 1},
                              {2, 3, 1}, {1, 7, 1}, {2, 4, 1}, {4, 2, 1}, {1, 8, 1}};
enum { MESHES = sizeof meshes / sizeof meshes[0] };

/* ---- payload --------------------------------------------------------------------------------- */

/* What place s of a ring does with part p: 1 if it has work with it. */
typedef struct {
    int needs[RANKS_MAX][RANKS_MAX];
    int64_t rows[RANKS_MAX]; /* of a part */
    int64_t heads;
} tiles;

static void mark_part(const world *w, int layer, int u, int part, uint8_t *inside)
{
    const tess_plan_info *info = &w->plan->info;
    const tess_plan_layer *l = &w->plan->layers[layer];
    const int32_t *cuts = l->k_cuts + u * (l->strategy.ring + 1);
    memset(inside, 0, (size_t)w->p.tokens);
    for (int32_t place = cuts[part]; place < cuts[part + 1]; place++) {
        const int32_t b = l->k_order ? l->k_order[u * info->k_blocks + place] : place;
        for (int64_t row = tess__plan_k_row(info, b); row < tess__plan_k_row(info, b + 1); row++)
            inside[row] = 1;
    }
}

static tiles tiles_of(const world *w, int layer, int u)
{
    const tess_plan_layer *l = &w->plan->layers[layer];
    static uint8_t needed[RANKS_MAX][1024], inside[1024];
    tiles t = {.heads = tess__group_heads(&w->plan->info, l, u)};
    memset(needed, 0, sizeof needed);
    for (int s = 0; s < l->strategy.ring; s++) {
        const int rank = tess__rank_at(l, u, s);
        for (int64_t i = l->first[rank]; i < l->first[rank + 1]; i++)
            for (int sample = 0; sample < w->p.batch; sample++)
                share_keys(w, layer, &l->shares[i], sample, needed[s]);
    }
    for (int p = 0; p < l->strategy.ring; p++) {
        mark_part(w, layer, u, p, inside);
        for (int64_t row = 0; row < w->p.tokens; row++) {
            t.rows[p] += inside[row];
            for (int s = 0; s < l->strategy.ring; s++)
                t.needs[s][p] |= inside[row] && needed[s][row];
        }
        for (int s = 0; s < l->strategy.ring && w->p.lists == DENSE; s++)
            t.needs[s][p] = 1; /* dense: all parts go all the way */
    }
    return t;
}

/* Rows that place s passes on: of keys, and of sums of gradients. */
static void hops_of(const tiles *t, int ring, int s, int64_t *keys, int64_t *sums)
{
    *keys = *sums = 0;
    for (int step = 0; step < ring; step++) {
        const int p = (s - step + ring) % ring;
        int before = 0, later = 0, elsewhere = 0;
        for (int i = 0; i < ring; i++) {
            const int work = t->needs[(p + i) % ring][p];
            before |= i <= step && work;
            later |= i > step && work;
            elsewhere |= i > 0 && work;
        }
        const int now = t->needs[s][p];
        *keys += later ? t->rows[p] : 0;
        *sums += elsewhere && ((before && later) || (now && !later)) ? t->rows[p] : 0;
    }
}

/* What every rank sent, row by row. */
static void check_payload(const world *w)
{
    const int64_t dim = w->p.dim;
    for (int l = 0; l < LAYERS; l++)
        for (int r = 0; r < w->p.ranks; r++) {
            const tess_plan_layer *layer = &w->plan->layers[l];
            const tiles t = tiles_of(w, l, tess__rank_group(layer, r));
            tess_exchange *x = NULL;
            tess_rows_view kv;
            int64_t keys = 0, sums = 0;
            CHECK_OK(tess_plan_exchange(w->plan, NULL, l, r, w->bounds, NULL, &x));
            CHECK_OK(tess_exchange_view(x, TESS_ROWS_KV, &kv));
            if (layer->strategy.ring > 1)
                hops_of(&t, layer->strategy.ring, tess__rank_part(layer, r), &keys, &sums);
            const int64_t out = kv.send_total - kv.send_rows[r];
            const int64_t back = kv.recv_total - kv.recv_rows[r];
            assert_int_equal(w->reports[r].bytes[l][0],
                             query_bytes(w, l, r, 0) +
                                 8 * w->p.batch * dim * (out + t.heads * keys));
            assert_int_equal(w->reports[r].bytes[l][1],
                             query_bytes(w, l, r, 1) +
                                 8 * w->p.batch * dim * (back + t.heads * (keys + sums)));
            tess_exchange_destroy(x);
        }
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void check_world(world *w)
{
    run_world(w);
    check_payload(w);
    for (int r = 0; r < w->p.ranks; r++)
        assert_int_equal(w->reports[r].allocations, 0);
}

static void planned(int heads)
{
    for (int m = 1; m < MESHES; m++)
        for (int lists = 0; lists < LIST_KINDS; lists++) {
            problem p = problem_of(5 * m + lists + heads, &meshes[m], heads);
            p.lists = (list_kind)lists;
            p.band = lists == DENSE ? 0 : p.band;
            world *w = make_world(&p);
            plan_mesh(w, &meshes[m], lists ? TESS_PLAN_REFINED : TESS_PLAN_CONTIGUOUS);
            check_world(w);
            free_world(w);
        }
}

/* One kind of lists for each mesh, in turn, and few tokens: what is many here is heads. */
static void many_heads(int heads)
{
    for (int m = 1; m < MESHES; m++) {
        const int lists = (m + heads) % LIST_KINDS;
        problem p = problem_of(5 * m + lists + heads, &meshes[m], heads);
        p.lists = (list_kind)lists;
        p.band = lists == DENSE ? 0 : p.band;
        p.dim = 8;
        p.tokens = 49 + 2 * m;
        world *w = make_world(&p);
        plan_mesh(w, &meshes[m], lists ? TESS_PLAN_REFINED : TESS_PLAN_DB_SP);
        check_world(w);
        free_world(w);
    }
}

static void rings_of_24_heads_equal_one_rank(void **state)
{
    (void)state;
    many_heads(24);
}

static void rings_of_40_heads_equal_one_rank(void **state)
{
    (void)state;
    many_heads(40);
}

static void rings_of_12_heads_equal_one_rank(void **state)
{
    (void)state;
    planned(12);
}

static void rings_of_7_heads_equal_one_rank(void **state)
{
    (void)state;
    planned(7);
}

/* Heads cut between the ranks of a node, whose keys go round with both of them. */
static void rings_of_heads_that_are_cut_equal_one_rank(void **state)
{
    (void)state;
    static const mesh inside[] = {{2, 2, 1}, {2, 3, 1}, {3, 2, 1}};
    int cut = 0;
    for (int m = 0; m < 3; m++)
        for (int heads = 1; heads <= 5; heads += 2)
            for (int lists = 0; lists < LIST_KINDS; lists++) {
                problem p = problem_of(5 * m + lists + heads, &inside[m], heads);
                p.lists = (list_kind)lists;
                p.band = lists == DENSE ? 0 : p.band;
                world *w = make_world(&p);
                plan_mesh(w, &inside[m], TESS_PLAN_FRACTIONAL);
                for (int l = 0; l < LAYERS; l++)
                    cut += w->plan->layers[l].n_shares > (int64_t)heads * inside[m].ring;
                check_world(w);
                if (p.batch == 1 && p.shards == EVEN &&
                    (lists == BLOCKS || (lists == DENSE && !p.with_lse)))
                    check_planned_bytes(w, &inside[m], TESS_PLAN_FRACTIONAL);
                free_world(w);
            }
    assert_true(cut > 20);
}

/* Orders and cuts that no planner makes: parts without queries or keys, groups without heads. */
static void blocks_in_any_order_equal_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < (SANITIZED ? 2 : 5) * MESHES; i++) {
        const mesh *m = &meshes[i % MESHES];
        problem p = problem_of(i, m, 1 + i % 5);
        p.seed += 100;
        world *w = make_world(&p);
        begin_plan(w);
        draw_layer(w, 0, m, 1);
        draw_layer(w, 1, m, i % 2);
        if (m->ring > 1)
            check_world(w);
        else
            run_world(w); /* one rank */
        free_world(w);
    }
}

/* Queries see the keys shortly before them: places of a ring of 8 have work with their own part and
 * that of the place before, and a part goes one hop. */
static void keys_that_no_later_rank_needs_are_not_sent(void **state)
{
    (void)state;
    const mesh m = {1, 8, 1};
    for (int lists = ROWS; lists <= BLOCKS; lists++) {
        problem p = {.ranks = 8,
                     .heads = 3,
                     .dim = 8,
                     .batch = 1,
                     .tokens = 203,
                     .lists = (list_kind)lists,
                     .band = 20,
                     .seed = 5};
        int64_t sent[2] = {0};
        for (int all = 0; all < 2; all++) {
            p.band = all ? 0 : 20;
            world *w = make_world(&p);
            draw_plan(w, &m, &m, 0);
            check_world(w);
            for (int r = 0; r < p.ranks; r++)
                sent[all] += w->reports[r].bytes[0][0];
            free_world(w);
        }
        assert_true(2 * sent[0] < sent[1]);
    }
}

/* ---- the cost model -------------------------------------------------------------------------- */

/* By the masks themselves, with projected q and k and without, and by densities of dense heads, of
 * which nothing is known. */
static void the_busiest_sender_sends_what_the_plan_says(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * (MESHES - 1); i++) {
        const mesh *m = &meshes[1 + i % (MESHES - 1)];
        problem p = problem_of(i, m, 6);
        p.lists = i < 2 * (MESHES - 1) ? BLOCKS : DENSE;
        p.band = p.lists == DENSE ? 0 : i % 2 * 20;
        p.batch = 1;
        p.shards = EVEN;
        p.with_lse = i < MESHES - 1;
        world *w = make_world(&p);
        plan_mesh(w, m, TESS_PLAN_REFINED);
        check_world(w);
        check_planned_bytes(w, m, TESS_PLAN_REFINED);
        free_world(w);
    }
}

/* ---- overlap --------------------------------------------------------------------------------- */

enum { PLACES = 4 };

typedef struct {
    world *w;
    int64_t attend[PLACES], exchange[PLACES]; /* of the last call */
} timed;

/* A forward call of the second layer, when all is warm. */
static tess_status time_rank(void *user, tess_ctx *own, tess_comm *comm)
{
    timed *t = user;
    const world *w = t->w;
    tess_comm_info info;
    tess_dist_stats stats;
    tess_dist_attn *attn = NULL;
    TESS_TRY(tess_comm_query(comm, &info));
    const tess_view q = rows_from(&w->p, w->q, 0, w->p.dim, w->bounds[info.rank]);
    const tess_view o = rows_from(&w->p, w->got[0].o, 0, w->p.dim, w->bounds[info.rank]);
    tess_status status = open_attn(w, own, comm, &attn);
    for (int i = 0; status == TESS_OK && i < 3; i++)
        status = tess_dist_attn_forward(attn, &(tess_dist_call){.layer = 1, .save = -1}, &q, &q, &q,
                                        &o, NULL);
    if (status == TESS_OK)
        status = tess_dist_attn_stats(attn, 1, &stats);
    if (status == TESS_OK) {
        t->attend[info.rank] = stats.attend_ns;
        t->exchange[info.rank] = stats.exchange_ns;
    }
    tess_dist_attn_destroy(attn);
    return status;
}

static timed time_ring(world *w, const tess_link *link)
{
    timed t = {.w = w};
    CHECK_OK(tess_comm_threads(NULL, PLACES, link, time_rank, &t));
    return t;
}

/* Of the time that hops take, the share that could be hidden behind computing and was: hops are
 * (R - 1) hop, of which (R - 1) min(compute, hop) can be; what a rank waited for was not. With
 * hops that keep ranks waiting until they have arrived it is 0, and a phase of a ring takes
 * (R - 1) hop + R compute; with the share 1 it takes (R - 1) max(compute, hop) + compute. */
static double hidden_share(const timed *t, double hop)
{
    double hidden = 0.0, most = 0.0;
    for (int r = 0; r < PLACES; r++) {
        const double compute = (double)t->attend[r] / PLACES;
        hidden += (PLACES - 1) * hop - (double)t->exchange[r];
        most += (PLACES - 1) * (compute < hop ? compute : hop);
    }
    return hidden / most;
}

/* On virtual clocks; ranks that others disturb wait for each other too, and are measured again. */
static void hops_are_hidden_behind_tiles(void **state)
{
    (void)state;
    static const double ratios[] = {0.5, 1.0, 3.0}; /* of a hop to a tile */
    const mesh m = {1, PLACES, 1};
    const problem p = {.ranks = PLACES, .heads = 2, .dim = 64, .batch = 1, .tokens = 1024};
    world *w = make_world(&p);
    plan_mesh(w, &m, TESS_PLAN_CONTIGUOUS);
    const double bytes = 2.0 * p.heads * p.dim * (double)p.tokens / PLACES * sizeof(float);
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        double best = 0.0, longest = 0.0;
        for (int again = 0; again < 10 && best < 0.7; again++) {
            const timed alone = time_ring(w, &(tess_link){.latency = 1});
            const double hop = ratios[i] * (double)alone.attend[0] / PLACES;
            const timed t =
                time_ring(w, &(tess_link){.latency = 1, .bandwidth = 1e9 * bytes / hop});
            const double share = hidden_share(&t, hop);
            best = share > best ? share : best;
            longest = (double)t.exchange[0] / hop;
        }
        if (!(best >= 0.7))
            fail_msg("hops of %g tiles: %.2f of what can be hidden is", ratios[i], best);
        /* Hops do take time: two more of three tiles cannot be hidden. */
        assert_true(ratios[i] < 2.0 || longest > 1.0);
    }
    free_world(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rings_of_12_heads_equal_one_rank),
    cmocka_unit_test(rings_of_24_heads_equal_one_rank),
    cmocka_unit_test(rings_of_40_heads_equal_one_rank),
    cmocka_unit_test(rings_of_7_heads_equal_one_rank),
    cmocka_unit_test(rings_of_heads_that_are_cut_equal_one_rank),
    cmocka_unit_test(blocks_in_any_order_equal_one_rank),
    cmocka_unit_test(keys_that_no_later_rank_needs_are_not_sent),
    cmocka_unit_test(the_busiest_sender_sends_what_the_plan_says),
    cmocka_unit_test(hops_are_hidden_behind_tiles),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
