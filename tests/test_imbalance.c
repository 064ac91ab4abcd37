/* SPDX-License-Identifier: Apache-2.0 */
/* test_imbalance.c - the sparse imbalance ratio: cases solved by hand, a second computation that
 * knows nothing but single pairs of blocks, and what must hold whatever the masks are. */
#include "work_model.h"

enum { CASES = 10000, SIDE = 14, RANKS = 5, FORMS = 3 };

/* Ratios are quotients of integers below 2^53, rounded twice. */
static const double EXACT = 0x1p-51;

static void check_ratio(double got, double want)
{
    if (!(fabs(got - want) <= EXACT * want))
        fail_msg("the ratio is %.17g, must be %.17g", got, want);
}

/* ---- the second computation ------------------------------------------------------------------ */

/* Which of `runs` runs thing i of n is in: the first n % runs have one more. */
static int run_of(int n, int runs, int i)
{
    int run = 0, end = 0;
    for (;; run++) {
        end += n / runs + (run < n % runs);
        if (i < end)
            return run;
    }
}

/* b[i][u][r], with the ring turning one way or the other. */
typedef struct {
    int64_t b[RANKS][RANKS][RANKS];
} iterations;

static iterations count_iterations(const model *m, int layer, int U, int R, int backward)
{
    iterations it = {0};
    for (int h = 0; h < m->heads; h++)
        for (int q = 0; q < m->q; q++)
            for (int k = 0; k < m->k; k++) {
                const int u = run_of(m->heads, U, h), r = run_of(m->q, R, q);
                const int part = run_of(m->k, R, k);
                const int i = backward ? (r - part + R) % R : (part - r + R) % R;
                it.b[i][u][r] += model_pair(m, layer, h, q, k);
            }
    return it;
}

static double ratio(const iterations *it, int U, int R, tess_rho_form form)
{
    int64_t total = 0, global = 0, ring = 0, alone = 0;
    for (int i = 0; i < R; i++) {
        int64_t most = 0;
        for (int u = 0; u < U; u++)
            for (int r = 0; r < R; r++) {
                total += it->b[i][u][r];
                most = it->b[i][u][r] > most ? it->b[i][u][r] : most;
            }
        global += most;
    }
    for (int u = 0; u < U; u++) {
        int64_t sum = 0;
        for (int i = 0; i < R; i++) {
            int64_t most = 0;
            for (int r = 0; r < R; r++)
                most = it->b[i][u][r] > most ? it->b[i][u][r] : most;
            sum += most;
        }
        ring = sum > ring ? sum : ring;
        for (int r = 0; r < R; r++) {
            int64_t rank = 0;
            for (int i = 0; i < R; i++)
                rank += it->b[i][u][r];
            alone = rank > alone ? rank : alone;
        }
    }
    const int64_t time = form == TESS_RHO_GLOBAL ? global : form == TESS_RHO_RING ? ring : alone;
    return total > 0 ? (double)time * (U * R) / (double)total : 1.0;
}

static double imbalance(const tess_work *work, int layer, int U, int R, tess_rho_form form)
{
    double rho = -1.0;
    CHECK_OK(tess_work_imbalance(work, layer, U, R, form, &rho));
    return rho;
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* The same blocks, with heads, query blocks and key blocks moved round by so many. */
static model turned(const model *m, int heads, int q, int k)
{
    model t = *m;
    t.mask = malloc(model_size(m));
    assert_non_null(t.mask);
    size_t at = 0;
    for (int l = 0; l < m->layers; l++)
        for (int h = 0; h < m->heads; h++)
            for (int i = 0; i < m->q; i++)
                for (int j = 0; j < m->k; j++)
                    t.mask[at++] = model_pair(m, l, (h + heads) % m->heads, (i + q) % m->q,
                                              (j + k) % m->k) > 0;
    return t;
}

/* Where all runs are as long, which one is the first does not matter, for heads and for parts. */
static void check_labels(const model *m, int layer, int U, int R, const double rho[FORMS])
{
    if (m->heads % U || m->q % R || m->k % R)
        return;
    model t = turned(m, m->heads / U, m->q / R, m->k / R);
    tess_work *work = work_of(&t);
    for (int f = 0; f < FORMS; f++)
        check_ratio(imbalance(work, layer, U, R, (tess_rho_form)f), rho[f]);
    tess_work_destroy(work);
    free(t.mask);
}

/* Blocks of other sizes, all alike, count the same multiple of units. */
static void check_scale(const model *m, int layer, int U, int R, const double rho[FORMS])
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = m->heads,
                                  .tokens_q = 3 * m->q,
                                  .tokens_k = 5 * m->k,
                                  .group = 3,
                                  .unit = 5};
    const size_t size = model_size(m) / (size_t)m->layers;
    tess_selection *sel = NULL;
    tess_work *work = NULL;
    CHECK_OK(tess_selection_create(context(), &shape, (int64_t)size, &sel));
    CHECK_OK(tess_selection_set_mask(sel, m->mask + (size_t)layer * size, TESS_MASK_BYTES));
    const tess_selection *one = sel;
    CHECK_OK(tess_work_from_selection(context(), &one, 1, &work));
    for (int f = 0; f < FORMS; f++)
        check_ratio(imbalance(work, 0, U, R, (tess_rho_form)f), rho[f]);
    tess_work_destroy(work);
    tess_selection_destroy(sel);
}

static void the_ratio_is_what_single_pairs_make_it(void **state)
{
    (void)state;
    int uneven = 0, even = 0;
    for (int c = 0; c < CASES; c++) {
        model m = draw_model(SIDE);
        const int U = between(1, RANKS), R = between(1, RANKS), layer = between(0, m.layers - 1);
        tess_work *work = work_of(&m);
        const iterations forward = count_iterations(&m, layer, U, R, 0);
        const iterations backward = count_iterations(&m, layer, U, R, 1);
        double rho[FORMS];
        for (int f = 0; f < FORMS; f++) {
            const tess_rho_form form = (tess_rho_form)f;
            rho[f] = imbalance(work, layer, U, R, form);
            check_ratio(rho[f], ratio(&forward, U, R, form));
            check_ratio(rho[f], ratio(&backward, U, R, form));
        }
        assert_true(rho[TESS_RHO_GLOBAL] >= rho[TESS_RHO_RING]);
        assert_true(rho[TESS_RHO_RING] >= rho[TESS_RHO_FREE]);
        assert_true(rho[TESS_RHO_FREE] >= 1.0 - EXACT);
        if (R == 1 || U == 1)
            assert_true(rho[TESS_RHO_GLOBAL] == rho[TESS_RHO_RING]);
        if (R == 1)
            assert_true(rho[TESS_RHO_RING] == rho[TESS_RHO_FREE]);
        check_labels(&m, layer, U, R, rho);
        if (c % 10 == 0)
            check_scale(&m, layer, U, R, rho);
        const int divides = m.heads % U == 0 && m.q % R == 0 && m.k % R == 0;
        even += divides;
        uneven += !divides;
        tess_work_destroy(work);
        free(m.mask);
    }
    assert_true(even > CASES / 20 && uneven > CASES / 20);
}

static void dense_masks_that_divide_are_balanced(void **state)
{
    (void)state;
    for (int U = 1; U <= 4; U++)
        for (int R = 1; R <= 4; R++) {
            model m = {.layers = 1, .heads = 2 * U, .q = 3 * R, .k = 2 * R};
            m.mask = malloc(model_size(&m));
            assert_non_null(m.mask);
            memset(m.mask, 1, model_size(&m));
            tess_work *work = work_of(&m);
            for (int f = 0; f < FORMS; f++)
                assert_true(imbalance(work, 0, U, R, (tess_rho_form)f) == 1.0);
            tess_work_destroy(work);
            free(m.mask);
        }
}

/* ---- cases solved by hand -------------------------------------------------------------------- */

/* Three ratios of one layer of bytes, heads x side x side. */
static void check_case(const char *rows, int heads, int side, int U, int R, double global,
                       double ring, double alone)
{
    model m = {.layers = 1, .heads = heads, .q = side, .k = side};
    m.mask = malloc(model_size(&m));
    assert_non_null(m.mask);
    for (size_t i = 0; i < model_size(&m); i++)
        m.mask[i] = rows[i] == '#';
    tess_work *work = work_of(&m);
    assert_true(imbalance(work, 0, U, R, TESS_RHO_GLOBAL) == global);
    assert_true(imbalance(work, 0, U, R, TESS_RHO_RING) == ring);
    assert_true(imbalance(work, 0, U, R, TESS_RHO_FREE) == alone);
    tess_work_destroy(work);
    free(m.mask);
}

static void even_sums_hide_uneven_iterations(void **state)
{
    (void)state;
    check_case(".#."
               "#.."
               "..#",
               1, 3, 1, 3, 3.0, 3.0, 1.0);
}

static void two_rings_can_be_uneven_where_their_sum_is_not(void **state)
{
    (void)state;
    check_case("##"
               ".."
               ".."
               "##",
               2, 2, 2, 2, 2.0, 2.0, 2.0);
    /* A barrier over all ranks costs more than one in each ring: the rings work in turns. */
    check_case("#."
               ".#"
               ".#"
               "#.",
               2, 2, 2, 2, 2.0, 1.0, 1.0);
}

static void two_ranks_with_even_rows_and_columns_are_even(void **state)
{
    (void)state;
    check_case("#..#"
               ".##."
               "##.."
               "..##",
               1, 4, 1, 2, 1.0, 1.0, 1.0);
}

static void shifted_diagonals_and_chessboards_are_even(void **state)
{
    (void)state;
    check_case(".#."
               "..#"
               "#..",
               1, 3, 1, 3, 1.0, 1.0, 1.0);
    check_case(".#.#"
               "#.#."
               ".#.#"
               "#.#.",
               1, 4, 1, 4, 1.0, 1.0, 1.0);
}

static void heads_alone(void **state)
{
    (void)state;
    const struct {
        int64_t heads[8];
        int n, U;
        double rho;
    } cases[] = {
        {{4, 8, 0, 4}, 4, 2, 1.5}, {{5, 5, 5, 5, 5, 5, 5, 5}, 8, 4, 1.0},
        {{0, 0, 0, 0}, 4, 4, 1.0}, {{0, 9, 0, 0}, 4, 4, 4.0},     /* one dense head */
        {{1, 2, 3, 2}, 4, 4, 1.5},                                /* as many heads as ranks */
        {{1, 2, 3, 2}, 4, 1, 1.0}, {{6, 6, 6}, 3, 2, 12.0 / 9.0}, /* two heads and one */
        {{6, 6}, 2, 3, 1.5},                                      /* a rank without a head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_work *work = NULL;
        CHECK_OK(tess_work_from_weights(context(), cases[i].heads, 1, cases[i].n, 8, &work));
        for (int f = 0; f < FORMS; f++)
            check_ratio(imbalance(work, 0, cases[i].U, 1, (tess_rho_form)f), cases[i].rho);
        tess_work_destroy(work);
    }
}

/* Loads of heads are even over their blocks: a ring adds no imbalance where blocks divide. */
static void loads_of_heads_are_even_in_a_ring(void **state)
{
    (void)state;
    const int64_t heads[4] = {640, 1280, 0, 640};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_weights(context(), heads, 1, 4, 8, &work));
    for (int f = 0; f < FORMS; f++) {
        check_ratio(imbalance(work, 0, 2, 4, (tess_rho_form)f), 1.5);
        check_ratio(imbalance(work, 0, 1, 8, (tess_rho_form)f), 1.0);
    }
    /* 8 blocks in 3 runs: 3, 3 and 2. The first ranks have 3 / 8 of the work, and in each iteration
     * one of them has a tile of 3 x 3. */
    check_ratio(imbalance(work, 0, 1, 3, TESS_RHO_FREE), 9.0 / 8.0);
    check_ratio(imbalance(work, 0, 1, 3, TESS_RHO_RING), 3.0 * (360 + 360 + 360) / 2560.0);
    tess_work_destroy(work);
}

static void more_ranks_than_blocks(void **state)
{
    (void)state;
    /* Six of eight ranks have no rows; the tiles of the other two fall into three iterations. */
    check_case("##"
               "##",
               1, 2, 1, 8, 6.0, 6.0, 4.0);
}

static void bad_questions_are_reported(void **state)
{
    (void)state;
    const int64_t weight = 1;
    double rho = -1.0;
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_weights(context(), &weight, 1, 1, 1, &work));
#define ASK(layer, U, R, form, sentence)                                                           \
    CHECK_FAILS(tess_work_imbalance(work, layer, U, R, form, &rho), TESS_EINVAL, sentence)
    ASK(1, 1, 1, TESS_RHO_FREE, "tess_work_imbalance: layer is 1, must be 0..0");
    ASK(0, 0, 1, TESS_RHO_FREE, "tess_work_imbalance: ulysses is 0, must be 1..65536");
    ASK(0, 1, 4097, TESS_RHO_FREE, "tess_work_imbalance: ring is 4097, must be 1..4096");
    ASK(0, 1, 1, (tess_rho_form)3, "tess_work_imbalance: form is 3, must be 0..2");
#undef ASK
    CHECK_FAILS(tess_work_imbalance(NULL, 0, 1, 1, TESS_RHO_FREE, &rho), TESS_EINVAL,
                "tess_work_imbalance: work is NULL");
    assert_true(rho == -1.0);
    tess_work_destroy(work);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_ratio_is_what_single_pairs_make_it),
    cmocka_unit_test(dense_masks_that_divide_are_balanced),
    cmocka_unit_test(even_sums_hide_uneven_iterations),
    cmocka_unit_test(two_rings_can_be_uneven_where_their_sum_is_not),
    cmocka_unit_test(two_ranks_with_even_rows_and_columns_are_even),
    cmocka_unit_test(shifted_diagonals_and_chessboards_are_even),
    cmocka_unit_test(heads_alone),
    cmocka_unit_test(loads_of_heads_are_even_in_a_ring),
    cmocka_unit_test(more_ranks_than_blocks),
    cmocka_unit_test(bad_questions_are_reported),
};
RUN_TESTS_WITH(tests, NULL, drop_context)
