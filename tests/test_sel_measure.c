/* SPDX-License-Identifier: Apache-2.0 */
/* test_sel_measure.c - density, mass, recall and overlap of a selection, against brute force. */
#include "select_data.h"

/* Masses err by 5e-5 (see test_select.c), and so do the ratios of their sums. */
static const double TOL = 5e-5;

/* The K units with the most mass for one query, as flags. */
static void top_flags(tess_ctx *ctx, const problem *p, int64_t head, int64_t row, float scale,
                      int64_t k, char *flags)
{
    double mass[4096];
    ref_mass(ctx, p, head, row, row + 1, scale, mass, NULL);
    ranked *r = rank_units(mass, p->n_k);
    memset(flags, 0, (size_t)p->n_k);
    for (int64_t i = 0; i < k; i++)
        flags[r[i].unit] = 1;
    free(r);
}

static double ref_overlap(tess_ctx *ctx, const problem *p, int64_t head, int64_t g, float scale,
                          int64_t k)
{
    char before[4096], now[4096];
    double sum = 0.0;
    for (int64_t i = bound_q(p, g); i < bound_q(p, g + 1); i++) {
        top_flags(ctx, p, head, i, scale, k, now);
        int64_t same = 0;
        for (int32_t u = 0; u < p->n_k && i > bound_q(p, g); u++)
            same += now[u] && before[u];
        sum += i > bound_q(p, g) ? (double)same / (double)k : 0.0;
        memcpy(before, now, sizeof before);
    }
    return sum;
}

static tess_sel_stats ref_measure(tess_ctx *ctx, const problem *p, const tess_selection *sel,
                                  int64_t first, int64_t heads, float scale, int32_t every)
{
    tess_sel_stats s = {0};
    double chosen = 0.0, all = 0.0, queries = 0.0, pairs = 0.0, mass[4096];
    for (int64_t list = first * p->n_q; list < (first + heads) * p->n_q; list++) {
        const int64_t head = list / p->n_q, g = list % p->n_q;
        const int64_t rows = bound_q(p, g + 1) - bound_q(p, g);
        const int64_t begin = sel->offsets[list], k = sel->offsets[list + 1] - begin;
        for (int64_t i = 0; i < k; i++)
            pairs += (double)(rows * (bound_k(p, sel->indices[begin + i] + 1) -
                                      bound_k(p, sel->indices[begin + i])));
        if (g % every != 0)
            continue;
        ref_mass(ctx, p, head, bound_q(p, g), bound_q(p, g + 1), scale, mass, NULL);
        ranked *r = rank_units(mass, p->n_k);
        double mine = 0.0, best = 0.0;
        for (int64_t i = 0; i < k; i++) {
            mine += mass[sel->indices[begin + i]];
            best += r[i].score;
        }
        free(r);
        chosen += mine;
        all += (double)rows;
        s.groups++;
        if (k == 0)
            continue;
        queries += (double)rows;
        s.recall += (double)rows * mine / best;
        s.overlap += ref_overlap(ctx, p, head, g, scale, k);
        s.pairs += rows - 1;
    }
    s.density = pairs / ((double)heads * (double)p->shape.tokens_q * (double)p->shape.tokens_k);
    s.mass = chosen / all;
    s.recall = queries > 0.0 ? s.recall / queries : 0.0;
    s.overlap = s.pairs > 0 ? s.overlap / (double)s.pairs : 0.0;
    return s;
}

/* A rounding may trade one unit for another of nearly the same mass: for one pair in a hundred. */
static void check_stats(const tess_sel_stats *got, const tess_sel_stats *want)
{
    assert_true(fabs(got->density - want->density) < 1e-12);
    assert_true(fabs(got->mass - want->mass) < TOL);
    assert_true(fabs(got->recall - want->recall) < TOL);
    assert_true(fabs(got->overlap - want->overlap) < 1e-2);
    assert_int_equal(got->groups, want->groups);
    assert_int_equal(got->pairs, want->pairs);
}

static void measures(tess_ctx *ctx)
{
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], 16, 0);
        const tess_select_in in = {.seed = 4, .budget = {.density = 0.2}};
        tess_selection *sel =
            select_by(ctx, &p, &(tess_selector_opts){.kind = TESS_SELECT_RANDOM}, &in);
        /* The last list of each selection of several is empty. */
        if (sel->lists > 1)
            sel->offsets[sel->lists] = sel->offsets[sel->lists - 1];
        for (int32_t every = 1; every <= 3; every += 2) {
            tess_sel_stats got, want, heads[6];
            const tess_sel_measure_in m = {.q = &p.q,
                                           .k = &p.k,
                                           .head_dim = 16,
                                           .scale = 0.4f,
                                           .every = every == 1 ? 0 : every,
                                           .heads = heads};
            CHECK_OK(tess_selection_measure(ctx, sel, &m, &got));
            const int64_t n = (int64_t)p.shape.batch * p.shape.heads;
            want = ref_measure(ctx, &p, sel, 0, n, 0.4f, every);
            check_stats(&got, &want);
            for (int64_t h = 0; h < n; h++) {
                want = ref_measure(ctx, &p, sel, h, 1, 0.4f, every);
                check_stats(&heads[h], &want);
            }
        }
        tess_selection_destroy(sel);
        problem_free(&p);
    }
}

static void measures_match_brute_force(void **state)
{
    (void)state;
    with_every_isa(measures);
}

static void the_oracle_has_all_recall_and_a_full_list_all_mass(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&shapes[2], 16, 0);
    tess_select_in in = {.q = &p.q, .k = &p.k, .head_dim = 16, .budget = {.density = 0.1}};
    const tess_sel_measure_in m = {.q = &p.q, .k = &p.k, .head_dim = 16};
    const tess_selector_opts opts = {.kind = TESS_SELECT_ORACLE};
    tess_sel_stats s;
    tess_selection *sel = select_by(ctx, &p, &opts, &in);
    CHECK_OK(tess_selection_measure(ctx, sel, &m, &s));
    assert_true(s.recall == 1.0 && s.mass > 0.1 && s.mass < 1.0);
    tess_selection_destroy(sel);
    in.budget.density = 1.0;
    sel = select_by(ctx, &p, &opts, &in);
    CHECK_OK(tess_selection_measure(ctx, sel, &m, &s));
    assert_true(s.density == 1.0 && s.mass == 1.0 && s.recall == 1.0 && s.overlap == 1.0);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(measures_match_brute_force),
    cmocka_unit_test(the_oracle_has_all_recall_and_a_full_list_all_mass),
};

RUN_TESTS(tests)
