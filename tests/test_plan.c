/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans: every block once, loads and imbalance against sums of single blocks, and
 * what tess_plan_check finds. */
#include "plan_data.h"

enum { CASES = 12000, RANKS = 9, HEADS = 5, BLOCKS = 7 };

/* ---- every block once, and the sums of single blocks ----------------------------------------- */

/* Counts of each (head, query block, key block), and loads of each (rank, step), from pieces. */
typedef struct {
    int count[HEADS][BLOCKS][BLOCKS];
    int64_t load[RANKS][RANKS];
} tally;

static void add_piece(const plan_case *c, const tess_plan_layer *layer, const tess_piece *p,
                      tally *t)
{
    const tess_plan_info *info = &c->plan->info;
    const int u = tess__rank_group(layer, p->rank);
    for (int i = p->q_begin; i < p->q_end; i++)
        for (int j = p->k_begin; j < p->k_end; j++) {
            const int q = layer->q_order ? layer->q_order[u * info->q_blocks + i] : i;
            const int k = layer->k_order ? layer->k_order[u * info->k_blocks + j] : j;
            t->count[p->head][q][k]++;
            t->load[p->rank][p->step] += case_mask(c, p->head, q, k);
        }
}

static void tally_pieces(const plan_case *c, tally *t)
{
    tess_plan_layer layer;
    CHECK_OK(tess_plan_layer_view(c->plan, 0, &layer));
    memset(t, 0, sizeof *t);
    for (int r = 0; r < c->plan->info.ranks; r++) {
        int64_t n = 0, room;
        CHECK_OK(tess_plan_pieces(c->plan, 0, r, NULL, &n));
        tess_piece *pieces = memory_of((size_t)n, sizeof *pieces);
        room = n;
        CHECK_OK(tess_plan_pieces(c->plan, 0, r, pieces, &room));
        assert_int_equal(room, n);
        for (int64_t i = 0; i < n; i++) {
            const tess_piece *p = &pieces[i];
            assert_int_equal(p->rank, r);
            assert_true(p->q_begin < p->q_end && p->k_begin < p->k_end);
            if (i > 0) /* by step, head, q_begin */
                assert_true(p->step > p[-1].step ||
                            (p->step == p[-1].step &&
                             (p->head > p[-1].head ||
                              (p->head == p[-1].head && p->q_begin > p[-1].q_begin))));
            add_piece(c, &layer, p, t);
        }
        free(pieces);
    }
}

/* The three forms from the loads, by their definition. */
static void rho_by_hand(const plan_case *c, const tally *t, double rho[3])
{
    const tess_plan_info *info = &c->plan->info;
    const tess_plan_layer *layer = &c->plan->layers[0];
    double global = 0.0, ring[RANKS] = {0}, rank[RANKS] = {0}, speeds = 0.0, total = 0.0;
    for (int i = 0; i < layer->strategy.ring; i++) {
        double all = 0.0, group[RANKS] = {0};
        for (int r = 0; r < info->ranks; r++) {
            const double time = (double)t->load[r][i] / (info->speeds ? info->speeds[r] : 1);
            const int u = layer->strategy.ring > 1 ? tess__rank_group(layer, r) : 0;
            all = fmax(all, time);
            group[u] = fmax(group[u], time);
            rank[r] += time;
            total += (double)t->load[r][i];
        }
        global += all;
        for (int u = 0; u < RANKS; u++)
            ring[u] += group[u];
    }
    double most_ring = 0.0, most = 0.0;
    for (int r = 0; r < RANKS; r++) {
        most_ring = fmax(most_ring, ring[r]);
        most = fmax(most, rank[r]);
        speeds += r < info->ranks ? (info->speeds ? info->speeds[r] : 1) : 0;
    }
    rho[TESS_RHO_GLOBAL] = total > 0 ? global * speeds / total : 1.0;
    rho[TESS_RHO_RING] = total > 0 ? most_ring * speeds / total : 1.0;
    rho[TESS_RHO_FREE] = total > 0 ? most * speeds / total : 1.0;
}

static void check_measures(const plan_case *c, const tally *t)
{
    tess_plan_layer *layer = &c->plan->layers[0];
    CHECK_OK(tess__layer_measure(context(), &c->plan->info, c->work, 0, layer));
    int64_t total = 0, most = 0;
    for (int r = 0; r < RANKS; r++) {
        int64_t load = 0;
        for (int i = 0; i < RANKS; i++)
            load += t->load[r][i];
        total += load;
        most = load > most ? load : most;
    }
    assert_int_equal(layer->load_total, total);
    assert_int_equal(layer->load_max, most);
    assert_int_equal(total, c->work->info.total);
    double want[3];
    rho_by_hand(c, t, want);
    for (int form = 0; form < 3; form++) {
        double rho = 0.0;
        CHECK_OK(tess_plan_imbalance(c->plan, 0, c->work, (tess_rho_form)form, &rho));
        assert_true(rho == layer->rho[form]);
        /* A dozen additions and divisions of small numbers apart. */
        assert_true(fabs(rho - want[form]) <= 1e-12 * want[form]);
    }
    assert_true(layer->rho[TESS_RHO_FREE] >= 1.0 - 1e-12);
    assert_true(layer->rho[TESS_RHO_FREE] <= layer->rho[TESS_RHO_RING] * (1.0 + 1e-12));
    assert_true(layer->rho[TESS_RHO_RING] <= layer->rho[TESS_RHO_GLOBAL] * (1.0 + 1e-12));
}

static void every_plan_computes_every_block_exactly_once(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        plan_case c = draw_case((kind)(i % KINDS), RANKS, HEADS, BLOCKS);
        CHECK_OK(tess_plan_check(c.plan, c.work));
        tally t;
        tally_pieces(&c, &t);
        for (int h = 0; h < c.plan->info.heads; h++)
            for (int q = 0; q < c.plan->info.q_blocks; q++)
                for (int k = 0; k < c.plan->info.k_blocks; k++)
                    assert_int_equal(t.count[h][q][k], 1);
        check_measures(&c, &t);
        drop_case(&c);
    }
}

/* ---- what is wrong, and where ---------------------------------------------------------------- */

/* 4 heads of 6 x 6 full blocks on 4 ranks: two groups, a ring of two, orders on both sides. */
static plan_case ring_of_two(void)
{
    plan_case c = {.kind = KIND_RING, .mask = memory_of(4 * 6 * 6, 1)};
    memset(c.mask, 1, 4 * 6 * 6);
    const tess_mask_set set = {1, 4, 6, 6, c.mask, TESS_MASK_BYTES, 11, 11, 2, 2};
    CHECK_OK(tess_work_from_masks(context(), &set, &c.work));
    tess_plan_info info;
    tess__plan_info_of_work(c.work, &info);
    info.ranks = 4;
    info.nodes = 2;
    info.head_dim = 64;
    info.element_bytes = 2;
    CHECK_OK(tess__plan_new(context(), "test", &info, &c.plan));
    const int32_t group[] = {0, 1, 1, 0};
    const int32_t order[] = {5, 4, 3, 2, 1, 0, 1, 0, 3, 2, 5, 4};
    const tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_DB_SP, .ulysses = 2, .ring = 2, .selective = 1},
        .head_group = group,
        .q_order = order,
        .k_order = order};
    CHECK_OK(tess__layer_from_heads(&c.plan->arena, &c.plan->info, &in, &c.plan->layers[0]));
    CHECK_OK(tess_plan_check(c.plan, c.work));
    return c;
}

static void the_check_names_what_is_wrong(void **state)
{
    (void)state;
    plan_case c = ring_of_two();
    tess_plan_layer *layer = &c.plan->layers[0], good = *layer;
    tess_share *shares = (tess_share *)layer->shares;
    int32_t *order = (int32_t *)layer->q_order, *k_cuts = (int32_t *)layer->k_cuts;
    int32_t *group = (int32_t *)layer->head_group;
    int64_t *first = (int64_t *)layer->first;
#define REFUSED(change, undo, sentence)                                                            \
    do {                                                                                           \
        change;                                                                                    \
        CHECK_FAILS(tess_plan_check(c.plan, c.work), TESS_EINVAL,                                  \
                    "tess_plan_check: layer 0: " sentence);                                        \
        undo;                                                                                      \
        CHECK_OK(tess_plan_check(c.plan, c.work));                                                 \
    } while (0)
    REFUSED(layer->strategy.method = TESS_PLAN_AUTO, *layer = good, "method is 0, must be 1..7");
    REFUSED(layer->strategy.placement = 2, *layer = good, "placement is 2, must be 0 or 1");
    REFUSED(layer->strategy.ring = 0, *layer = good, "ring is 0, must be 1..4");
    REFUSED(layer->strategy.selective = 2, *layer = good,
            "ring is 2 and selective 2, must not both be above 1");
    REFUSED(layer->strategy.ulysses = 1, *layer = good,
            "ulysses 1 x ring 2 x selective 1, must be 4 ranks");
    REFUSED(layer->groups = 3, *layer = good, "groups is 3, must be 2");
    REFUSED(order[7] = 1, order[7] = 0,
            "the query order of group 1: block 1 is there twice, again at place 1");
    REFUSED(order[7] = -1, order[7] = 0,
            "the query order of group 1: block -1 at place 1, must be 0..5");
    REFUSED(k_cuts[1] = 7, k_cuts[1] = 3,
            "the key cuts of group 0: part 1 goes from 7 to 6, must ascend");
    REFUSED(k_cuts[2] = 5, k_cuts[2] = 6,
            "the key cuts of group 0 go from 0 to 5, must go from 0 to 6");
    REFUSED(group[2] = 2, group[2] = 1, "head 2 is in group 2, must be 0..1");
    REFUSED(group[2] = 0, group[2] = 1,
            "head 2 is in group 0, but rank 1 of group 1 has a share of it");
    REFUSED(shares[0].q_end = 2, shares[0].q_end = 3,
            "head 0: rank 0 has query places 0..2, its part is 0..3");
    REFUSED(shares[3].head = 4, shares[3].head = 2, "share 3: head is 4, must be 0..3");
    REFUSED(shares[3].rank = 4, shares[3].rank = 1, "share 3: rank is 4, must be 0..3");
    REFUSED(shares[3].q_begin = 3, shares[3].q_begin = 0,
            "share 3: query places 3..3, must ascend within 0..6");
    REFUSED(shares[1].head = 0, shares[1].head = 3,
            "share 1: begins at place 0, must be behind place 3, where the one before ends");
    REFUSED(first[1] = 1, first[1] = 2, "share 1 is of rank 0, but listed with rank 1");
    REFUSED(layer->n_shares = 7, *layer = good,
            "shares of ranks go from 0 to 8, must go from 0 to 7");
    /* Cut each in its own way: the block is named by its number, not by its place. */
    static const int32_t whole[] = {0, 6, 0, 6};
    layer->head_group = NULL;
    layer->k_cuts = whole;
    layer->strategy.ring = 1;
    layer->strategy.selective = 2;
    REFUSED(shares[0].q_end = 2, shares[0].q_end = 3, "head 0: query block 3 is in no share");
    REFUSED(shares[4].q_begin = 2, shares[4].q_begin = 3,
            "head 0: query block 3 is in two shares, of ranks 0 and 2");
    REFUSED(shares[3].head = 3, shares[3].head = 2, "head 2: query block 1 is in no share");
    REFUSED(shares[6].head = 0, shares[6].head = 1,
            "head 0 is in group 0 on rank 0 and in group 1 on rank 3");
#undef REFUSED
    drop_case(&c);
}

static void a_plan_of_another_mask_is_refused_with_both_values(void **state)
{
    (void)state;
    plan_case c = ring_of_two();
    uint8_t mask[2 * 5 * 6 * 6] = {0};
    static const struct {
        tess_mask_set set;
        const char *sentence;
    } others[] = {
        {{1, 5, 6, 6, NULL, 0, 11, 11, 2, 2}, "the plan has 4 heads, the work 5"},
        {{1, 4, 5, 6, NULL, 0, 10, 11, 2, 2}, "the plan has 6 query blocks, the work 5"},
        {{1, 4, 6, 5, NULL, 0, 11, 10, 2, 2}, "the plan has 6 key blocks, the work 5"},
        {{1, 4, 6, 6, NULL, 0, 12, 11, 2, 2}, "the plan has 11 query tokens, the work 12"},
        {{1, 4, 6, 6, NULL, 0, 0, 0, 0, 0}, "the plan has 11 query tokens, the work 6"},
        {{2, 4, 6, 6, NULL, 0, 11, 11, 2, 2}, "the plan has 1 layers, the work 2"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        tess_mask_set set = others[i].set;
        tess_work *work;
        char sentence[256];
        set.data = mask;
        CHECK_OK(tess_work_from_masks(context(), &set, &work));
        snprintf(sentence, sizeof sentence, "tess_plan_check: %s", others[i].sentence);
        CHECK_FAILS(tess_plan_check(c.plan, work), TESS_EINVAL, sentence);
        tess_work_destroy(work);
    }
    drop_case(&c);
}

static void wrong_calls_say_what_is_wrong(void **state)
{
    (void)state;
    plan_case c = ring_of_two();
    tess_piece pieces[4];
    tess_plan_layer view;
    tess_plan_info info;
    int64_t n = 3;
    double rho = 0.0;
    CHECK_FAILS(tess_plan_pieces(c.plan, 0, 0, pieces, &n), TESS_EINVAL,
                "tess_plan_pieces: n is 3, rank 0 has 4 pieces");
    CHECK_FAILS(tess_plan_pieces(c.plan, 0, 4, NULL, &n), TESS_EINVAL,
                "tess_plan_pieces: rank is 4, must be 0..3");
    CHECK_FAILS(tess_plan_pieces(c.plan, 1, 0, NULL, &n), TESS_EINVAL,
                "tess_plan_pieces: layer is 1, must be 0..0");
    CHECK_FAILS(tess_plan_pieces(c.plan, 0, 0, NULL, NULL), TESS_EINVAL,
                "tess_plan_pieces: n is NULL");
    CHECK_FAILS(tess_plan_layer_view(NULL, 0, &view), TESS_EINVAL,
                "tess_plan_layer_view: plan is NULL");
    CHECK_FAILS(tess_plan_layer_view(c.plan, 0, NULL), TESS_EINVAL,
                "tess_plan_layer_view: view is NULL");
    CHECK_FAILS(tess_plan_query(c.plan, NULL), TESS_EINVAL, "tess_plan_query: info is NULL");
    CHECK_FAILS(tess_plan_query(NULL, &info), TESS_EINVAL, "tess_plan_query: plan is NULL");
    CHECK_FAILS(tess_plan_check(NULL, c.work), TESS_EINVAL, "tess_plan_check: plan is NULL");
    CHECK_FAILS(tess_plan_imbalance(c.plan, 0, NULL, TESS_RHO_RING, &rho), TESS_EINVAL,
                "tess_plan_imbalance: work is NULL");
    CHECK_FAILS(tess_plan_imbalance(c.plan, 0, c.work, (tess_rho_form)3, &rho), TESS_EINVAL,
                "tess_plan_imbalance: form is 3, must be 0..2");
    CHECK_FAILS(tess_plan_imbalance(c.plan, 0, c.work, TESS_RHO_RING, NULL), TESS_EINVAL,
                "tess_plan_imbalance: rho is NULL");
    CHECK_FAILS(tess_plan_imbalance_before(c.plan, 0, NULL, &rho), TESS_EINVAL,
                "tess_plan_imbalance_before: work is NULL");
    CHECK_FAILS(tess_plan_loads_before(c.plan, 0, c.work, NULL), TESS_EINVAL,
                "tess_plan_loads_before: loads is NULL");
    assert_null(tess_plan_method_name(TESS_PLAN_METHOD_COUNT));
    assert_string_equal(tess_plan_method_name(TESS_PLAN_DB_SP), "db-sp");
    assert_string_equal(tess_placement_name(TESS_PLACE_SEQUENCE_INSIDE), "sequence-inside");
    assert_string_equal(tess_plan_pass_name(TESS_PLAN_TRAIN), "train");
    drop_case(&c);
}

/* ---- cases solved by hand -------------------------------------------------------------------- */

/* B2: group 0 works only in the rows of part 0, group 1 only in those of part 1. As the blocks lie
 * every step waits for one rank of each group; with an order per group no rank waits. */
static void an_order_per_group_balances_what_a_shared_one_cannot(void **state)
{
    (void)state;
    uint8_t mask[2][4][4] = {{{0}}};
    for (int q = 0; q < 2; q++)
        for (int k = 0; k < 4; k++)
            mask[0][q][k] = mask[1][q + 2][k] = 1;
    const tess_mask_set set = {1, 2, 4, 4, mask, TESS_MASK_BYTES, 0, 0, 0, 0};
    const int32_t group[] = {0, 1}, order[] = {0, 2, 1, 3, 0, 2, 1, 3};
    tess_work *work;
    tess_plan *plan;
    tess_plan_info info;
    CHECK_OK(tess_work_from_masks(context(), &set, &work));
    tess__plan_info_of_work(work, &info);
    info.ranks = 4;
    info.nodes = info.head_dim = info.element_bytes = 1;
    CHECK_OK(tess__plan_new(context(), "test", &info, &plan));
    tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_DB_SP, .ulysses = 2, .ring = 2, .selective = 1},
        .head_group = group};
    for (int ordered = 0; ordered < 2; ordered++) {
        tess_plan_layer *layer = &plan->layers[0];
        in.q_order = ordered ? order : NULL;
        CHECK_OK(tess__layer_from_heads(&plan->arena, &plan->info, &in, layer));
        CHECK_OK(tess__layer_measure(context(), &plan->info, work, 0, layer));
        for (int form = 0; form < 3; form++)
            assert_true(layer->rho[form] == (ordered ? 1.0 : 2.0));
        assert_true(layer->rho_before == 2.0);
        double before = 0.0;
        CHECK_OK(tess_plan_imbalance_before(plan, 0, work, &before));
        assert_true(before == layer->rho_before);
        int64_t loads[4];
        const int64_t want[] = {8, 0, 0, 8};
        CHECK_OK(tess_plan_loads_before(plan, 0, work, loads));
        assert_memory_equal(loads, want, sizeof want);
        assert_int_equal(layer->moved_q, ordered ? 4 : 0); /* blocks 1 and 2 of both groups */
        assert_int_equal(layer->moved_k, 0);
        assert_true(layer->kv_copies == 1.0);
    }
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

/* 1 x 1024 on 40 heads: 40,960 shares, and what is derived from them, in a few megabytes. */
static void a_thousand_ranks_fit(void **state)
{
    (void)state;
    int64_t weights[40];
    int32_t group[40] = {0};
    for (int h = 0; h < 40; h++)
        weights[h] = 1024 * (h + 1);
    tess_work *work;
    tess_plan *plan;
    tess_plan_info info;
    tess_ctx_info memory;
    CHECK_OK(tess_work_from_weights(context(), weights, 1, 40, 2048, &work));
    tess__plan_info_of_work(work, &info);
    info.ranks = info.nodes = 1024;
    info.head_dim = info.element_bytes = 1;
    CHECK_OK(tess__plan_new(context(), "test", &info, &plan));
    const tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_LPT, .ulysses = 1, .ring = 1024, .selective = 1},
        .head_group = group};
    CHECK_OK(tess__layer_from_heads(&plan->arena, &plan->info, &in, &plan->layers[0]));
    CHECK_OK(tess_ctx_query(context(), &memory));
    assert_true(memory.bytes_now < 2 << 20);
    CHECK_OK(tess_plan_check(plan, work));
    assert_int_equal(plan->layers[0].n_shares, 40960);
    CHECK_OK(tess__layer_measure(context(), &plan->info, work, 0, &plan->layers[0]));
    assert_int_equal(plan->layers[0].load_max, 820); /* 1024 * 820 / 1024 */
    assert_true(plan->layers[0].rho[TESS_RHO_FREE] == 1.0);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_plan_computes_every_block_exactly_once),
    cmocka_unit_test(the_check_names_what_is_wrong),
    cmocka_unit_test(a_plan_of_another_mask_is_refused_with_both_values),
    cmocka_unit_test(wrong_calls_say_what_is_wrong),
    cmocka_unit_test(an_order_per_group_balances_what_a_shared_one_cannot),
    cmocka_unit_test(a_thousand_ranks_fit),
};
RUN_TESTS_WITH(tests, NULL, drop_context)
