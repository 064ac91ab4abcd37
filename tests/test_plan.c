/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans: every block once, loads and imbalance against sums of single blocks, and
 * what tess_plan_check finds. */
#include "plan_data.h"

enum { CASES = 12000, RANKS = 9, HEADS = 5, BLOCKS = 7 };

/* ---- every block once, and the sums of single blocks ------------------------------------------
 */

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
    for (int i = 0; i < layer->ring; i++) {
        double all = 0.0, group[RANKS] = {0};
        for (int r = 0; r < info->ranks; r++) {
            const double time = (double)t->load[r][i] / (info->speeds ? info->speeds[r] : 1);
            const int u = layer->ring > 1 ? tess__rank_group(layer, r) : 0;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_plan_computes_every_block_exactly_once),
};
RUN_TESTS_WITH(tests, NULL, drop_context)
