/* SPDX-License-Identifier: Apache-2.0 */
/* test_select.c - what each selector selects, against brute force in double precision. */
#include "select_data.h"

#include "tessera/advanced/selection.h"

/* A score is a sum of dim = 16 products after a mean of at most 100 rows: its error is at most
 * 116 * 2^-24 times the sum of the terms' sizes, which is below 60 here, half of it each way. */
static const double TOL_SCORE = 116 * 0x1p-24 * 60;

/* Mass errs by the error of its exponent, 16 * 2^-24 * 60 / 4, and by sums of at most 2100 terms,
 * 16 at a time: 131 * 2^-24; relative, doubled for the lse that it is taken from. */
static const double TOL_MASS = 2 * (240 + 131) * 0x1p-24;

static const double densities[] = {1e-9, 0.1, 0.5, 1.0};
enum { DENSITIES = sizeof densities / sizeof densities[0] };

static int64_t units_of(double density, int32_t n)
{
    const int64_t k = (int64_t)ceil(density * n - 1e-6);
    return k < 1 ? 1 : k;
}

static double largest(const double *x, int32_t n)
{
    double max = x[0];
    for (int32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* ---- predictor ------------------------------------------------------------------------------ */

/* Both proxies on one shape; integers demand the exact list. */
static void check_predictor(tess_ctx *ctx, const problem *p, double density, int integers)
{
    double scores[4096];
    for (int proxy = 0; proxy < 2; proxy++) {
        const tess_selector_opts opts = {.kind = TESS_SELECT_PREDICTOR, .proxy = (tess_proxy)proxy};
        /* Means of group sizes other than powers of two are not exact. */
        if (integers && opts.proxy == TESS_PROXY_MEAN)
            continue;
        const tess_select_in in = {
            .q = &p->q, .k = &p->k, .head_dim = p->dim, .budget = {.density = density}};
        tess_selection *sel = select_by(ctx, p, &opts, &in);
        for (int64_t list = 0; list < sel->lists; list++) {
            ref_group(ctx, p, &opts, 0.0f, list, scores);
            assert_int_equal(check_top(sel, list, scores, integers ? 0.0 : TOL_SCORE),
                             units_of(density, p->n_k));
        }
        tess_selection_destroy(sel);
    }
}

static void predictor(tess_ctx *ctx)
{
    for (int s = 0; s < SHAPES; s++)
        for (int integers = 0; integers < 2; integers++) {
            problem p = problem_make(&shapes[s], 16, integers);
            for (int d = 0; d < DENSITIES; d++)
                check_predictor(ctx, &p, densities[d], integers);
            problem_free(&p);
        }
}

static void predictor_takes_the_keys_of_the_highest_score(void **state)
{
    (void)state;
    with_every_isa(predictor);
}

static void predictor_softmax(tess_ctx *ctx)
{
    double mass[4096];
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], 16, 0);
        /* An lse given by mistake belongs to other vectors. */
        const tess_select_in in = {
            .q = &p.q, .k = &p.k, .head_dim = 16, .lse = p.q_data, .budget = {.density = 0.2}};
        const tess_selector_opts opts = {.kind = TESS_SELECT_PREDICTOR,
                                         .proxy = TESS_PROXY_SOFTMAX};
        tess_selection *sel = select_by(ctx, &p, &opts, &in);
        for (int64_t list = 0; list < sel->lists; list++) {
            ref_group(ctx, &p, &opts, 0.0f, list, mass);
            assert_int_equal(check_top(sel, list, mass, TOL_MASS * largest(mass, p.n_k)),
                             units_of(0.2, p.n_k));
        }
        tess_selection_destroy(sel);
        problem_free(&p);
    }
}

static void predictor_sums_the_softmaxes_of_a_group(void **state)
{
    (void)state;
    with_every_isa(predictor_softmax);
}

/* ---- oracle and search ---------------------------------------------------------------------- */

/* The list reaches the share, and no smaller set does. */
static void check_smallest(const tess_selection *sel, int64_t list, const double *mass,
                           double share, double tol)
{
    double total = 0.0, top = 0.0;
    ranked *r = rank_units(mass, sel->n_k);
    const int64_t k = check_top(sel, list, mass, tol * r[0].score);
    for (int32_t u = 0; u < sel->n_k; u++)
        total += mass[u];
    for (int64_t i = 0; i < k - 1; i++)
        top += r[i].score;
    assert_true(k >= 1);
    assert_true(k == 1 || top < (share + tol) * total);
    assert_true(top + r[k - 1].score > (share - tol) * total);
    free(r);
}

/* masses (lists, n_k) at this scale. */
static void check_oracle(tess_ctx *ctx, const problem *p, const tess_selector_opts *opts,
                         float scale, const float *lse, const double *masses)
{
    static const double shares[] = {1e-9, 0.3, 0.9};
    tess_select_in in = {.q = &p->q, .k = &p->k, .head_dim = p->dim, .scale = scale, .lse = lse};
    for (int i = 0; i < DENSITIES + 3; i++) {
        in.budget = i < DENSITIES ? (tess_budget){.density = densities[i]}
                                  : (tess_budget){.mass = shares[i - DENSITIES]};
        tess_selection *sel = select_by(ctx, p, opts, &in);
        for (int64_t list = 0; list < sel->lists; list++) {
            const double *mass = masses + list * p->n_k;
            if (i < DENSITIES)
                assert_int_equal(check_top(sel, list, mass, TOL_MASS * largest(mass, p->n_k)),
                                 units_of(densities[i], p->n_k));
            else
                check_smallest(sel, list, mass, in.budget.mass, TOL_MASS);
        }
        tess_selection_destroy(sel);
    }
}

/* Masses (lists, n_k) and lse (heads, tokens_q) of a problem; the caller frees both. */
static double *make_masses(tess_ctx *ctx, const problem *p, float scale, float **lse)
{
    const int64_t heads = (int64_t)p->shape.batch * p->shape.heads, n = p->shape.tokens_q;
    double *masses = malloc(sizeof *masses * (size_t)(heads * p->n_q * p->n_k));
    double *row = malloc(sizeof *row * (size_t)n);
    *lse = malloc(sizeof **lse * (size_t)(heads * n));
    assert_true(masses && row && *lse);
    for (int64_t list = 0; list < heads * p->n_q; list++) {
        const int64_t head = list / p->n_q, g = list % p->n_q, begin = bound_q(p, g);
        const int64_t end = bound_q(p, g + 1);
        ref_mass(ctx, p, head, begin, end, scale, masses + list * p->n_k, row);
        for (int64_t i = begin; i < end; i++)
            (*lse)[head * n + i] = (float)row[i - begin];
    }
    free(row);
    return masses;
}

static void oracle(tess_ctx *ctx)
{
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], s % 2 ? 16 : 24, 0);
        const tess_selector_opts truth = {.kind = TESS_SELECT_ORACLE},
                                 search = {.kind = TESS_SELECT_SEARCH};
        float *lse;
        double *masses = make_masses(ctx, &p, 0.3f, &lse);
        check_oracle(ctx, &p, &truth, 0.3f, NULL, masses);
        check_oracle(ctx, &p, &search, 0.3f, lse, masses);
        free(masses);
        free(lse);
        problem_free(&p);
    }
}

static void oracle_and_search_take_the_most_mass(void **state)
{
    (void)state;
    with_every_isa(oracle);
}

static void search_repeats_its_lists_as_often_as_asked(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem first = problem_make(&shapes[3], 16, 0), second = first;
    second.q_data = fill(9, 2 * 64 * (16 + GAP), 0);
    second.q.data = second.q_data;
    tess_selector *selector = NULL;
    CHECK_OK(tess_selector_create(
        ctx, &(tess_selector_opts){.kind = TESS_SELECT_SEARCH, .reuse = 2}, &selector));
    tess_selection *a = selection_make(ctx, &first), *b = selection_make(ctx, &first);
    tess_select_in in = {.q = &first.q, .k = &first.k, .head_dim = 16, .budget = {.mass = 0.7}};
    CHECK_OK(tess_selector_run(selector, &in, a));
    in.q = &second.q;
    for (int call = 0; call < 4; call++) {
        tess_selector_info info;
        CHECK_OK(tess_selector_run(selector, &in, b));
        CHECK_OK(tess_selector_query(selector, &info));
        assert_int_equal(info.kind, TESS_SELECT_SEARCH);
        assert_int_equal(info.reused, call != 2);
        assert_true(info.bytes > 0);
        const size_t bytes = sizeof *a->offsets * ((size_t)a->lists + 1);
        const int same =
            memcmp(a->offsets, b->offsets, bytes) == 0 &&
            memcmp(a->indices, b->indices, sizeof *a->indices * (size_t)a->offsets[a->lists]) == 0;
        assert_int_equal(same, call < 2);
        check_valid(b);
    }
    /* Another budget or shape is another search. */
    tess_selector_info info;
    in.budget = (tess_budget){.keys = 3};
    CHECK_OK(tess_selector_run(selector, &in, b));
    CHECK_OK(tess_selector_query(selector, &info));
    assert_int_equal(info.reused, 0);
    CHECK_OK(tess_selector_run(selector, &in, b));
    CHECK_OK(tess_selector_query(selector, &info));
    assert_int_equal(info.reused, 1);
    in.budget = (tess_budget){.keys = 4};
    CHECK_OK(tess_selector_run(selector, &in, b));
    assert_int_equal(b->offsets[1], 4);
    /* Lists that are repeated need their room as well. */
    tess_selection *tiny = NULL;
    CHECK_OK(tess_selection_create(ctx, &first.shape, 5, &tiny));
    CHECK_FAILS(tess_selector_run(selector, &in, tiny), TESS_EINVAL,
                "tess_selector_run: sel has room for 5 indices, needs 32");
    tess_selection_destroy(tiny);
    tess_selection_destroy(a);
    tess_selection_destroy(b);
    tess_selector_destroy(selector);
    problem_free(&first);
    free(second.q_data);
    tess_ctx_destroy(ctx);
}

/* ---- pooled --------------------------------------------------------------------------------- */

static void pooled(tess_ctx *ctx)
{
    double scores[4096], p_unit[4096];
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], 16, 0);
        const tess_selector_opts opts = {.kind = TESS_SELECT_POOLED};
        tess_select_in in = {.q = &p.q, .k = &p.k, .head_dim = 16, .scale = 2.0f};
        for (int by_mass = 0; by_mass < 2; by_mass++) {
            in.budget = by_mass ? (tess_budget){.mass = 0.6} : (tess_budget){.density = 0.3};
            tess_selection *sel = select_by(ctx, &p, &opts, &in);
            for (int64_t list = 0; list < sel->lists; list++) {
                ref_group(ctx, &p, &opts, 0.0f, list, scores);
                const double max = largest(scores, p.n_k);
                for (int32_t u = 0; u < p.n_k; u++)
                    p_unit[u] = exp(2.0 * (scores[u] - max));
                if (by_mass)
                    check_smallest(sel, list, p_unit, 0.6, 4 * TOL_SCORE);
                else
                    assert_int_equal(check_top(sel, list, scores, TOL_SCORE), units_of(0.3, p.n_k));
            }
            tess_selection_destroy(sel);
        }
        problem_free(&p);
    }
}

static void pooled_takes_the_blocks_of_the_highest_mean_score(void **state)
{
    (void)state;
    with_every_isa(pooled);
}

/* ---- window, edges, random ------------------------------------------------------------------- */

/* Cube of every row of a grid in cube order, by walking it. */
static void walk_cubes(const int32_t grid[3], const int32_t cube[3], int32_t (*cube_of)[3])
{
    int64_t row = 0;
    for (int32_t f = 0; f < grid[0]; f += cube[0])
        for (int32_t y = 0; y < grid[1]; y += cube[1])
            for (int32_t x = 0; x < grid[2]; x += cube[2])
                for (int32_t a = f; a < f + cube[0] && a < grid[0]; a++)
                    for (int32_t b = y; b < y + cube[1] && b < grid[1]; b++)
                        for (int32_t c = x; c < x + cube[2] && c < grid[2]; c++, row++) {
                            cube_of[row][0] = a / cube[0];
                            cube_of[row][1] = b / cube[1];
                            cube_of[row][2] = c / cube[2];
                        }
}

/* Along one axis of n cubes, does cube q see cube k through a window of w? */
static int sees(int32_t q, int32_t k, int32_t n, int32_t w)
{
    if (w >= n)
        return 1;
    int32_t begin = q - (w - 1) / 2;
    begin = begin < 0 ? 0 : begin + w > n ? n - w : begin;
    return k >= begin && k < begin + w;
}

static void check_window(tess_ctx *ctx, const tess_selector_opts *o, int32_t group, int32_t unit)
{
    static int32_t cube_of[4096][3];
    const int64_t tokens = (int64_t)o->grid[0] * o->grid[1] * o->grid[2];
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 2,
                                  .tokens_q = tokens,
                                  .tokens_k = tokens,
                                  .group = group,
                                  .unit = unit};
    problem p = problem_make(&shape, 8, 0);
    walk_cubes(o->grid, o->cube, cube_of);
    tess_selection *sel = select_by(ctx, &p, o, &(tess_select_in){0});
    for (int64_t list = 0; list < sel->lists; list++) {
        int64_t at = sel->offsets[list];
        for (int32_t u = 0; u < p.n_k; u++) {
            int want = 0;
            for (int64_t i = bound_q(&p, list % p.n_q); i < bound_q(&p, list % p.n_q + 1); i++)
                for (int64_t j = bound_k(&p, u); j < bound_k(&p, u + 1); j++) {
                    int visible = 1;
                    for (int a = 0; a < 3; a++)
                        visible &= sees(cube_of[i][a], cube_of[j][a],
                                        (o->grid[a] + o->cube[a] - 1) / o->cube[a], o->window[a]);
                    want |= visible;
                }
            const int got = at < sel->offsets[list + 1] && sel->indices[at] == u;
            assert_int_equal(got, want);
            at += got;
        }
    }
    /* The capacity that is asked for is the one that is used. */
    tess_selector *selector = NULL;
    int64_t capacity = -1;
    CHECK_OK(tess_selector_create(ctx, o, &selector));
    CHECK_OK(tess_selector_capacity(selector, &shape, &(tess_select_in){0}, &capacity));
    assert_int_equal(capacity, sel->offsets[sel->lists]);
    tess_selector_destroy(selector);
    tess_selection_destroy(sel);
    problem_free(&p);
}

static void window_sees_the_cubes_around_its_own(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const tess_selector_opts even = {
        .kind = TESS_SELECT_WINDOW, .grid = {4, 8, 8}, .cube = {2, 4, 4}, .window = {1, 3, 1}};
    check_window(ctx, &even, 32, 32);
    check_window(ctx, &even, 32, 1);
    check_window(ctx, &even, 20, 7);
    const tess_selector_opts odd = {
        .kind = TESS_SELECT_WINDOW, .grid = {5, 7, 9}, .cube = {2, 3, 2}, .window = {2, 3, 3}};
    check_window(ctx, &odd, 12, 1);
    check_window(ctx, &odd, 16, 16);
    const tess_selector_opts all = {
        .kind = TESS_SELECT_WINDOW, .grid = {3, 1, 5}, .cube = {9, 1, 1}, .window = {1, 4, 9}};
    check_window(ctx, &all, 4, 2);
    tess_ctx_destroy(ctx);
}

static int holds(const tess_selection *sel, int64_t list, int32_t unit)
{
    for (int64_t i = sel->offsets[list]; i < sel->offsets[list + 1]; i++)
        if (sel->indices[i] == unit)
            return 1;
    return 0;
}

static void edges_are_local_random_and_global(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const tess_sel_shape shape = {
        .batch = 1, .heads = 3, .tokens_q = 640, .tokens_k = 320, .group = 32, .unit = 8};
    problem p = problem_make(&shape, 8, 0);
    const tess_selector_opts opts = {
        .kind = TESS_SELECT_EDGES, .local = 1, .random = 3, .global_k = 2, .global_q = 1};
    tess_selection *sel = select_by(ctx, &p, &opts, &(tess_select_in){.seed = 5});
    for (int64_t list = 0; list < sel->lists; list++) {
        const int32_t g = (int32_t)(list % p.n_q);
        const int64_t length = sel->offsets[list + 1] - sel->offsets[list];
        if (g == 0) {
            assert_int_equal(length, p.n_k);
            continue;
        }
        /* Rows 32 g .. of the queries are rows 16 g .. of the keys: units 2 g and 2 g + 1. */
        int64_t named = 0;
        for (int32_t u = 0; u < p.n_k; u++) {
            const int is_named = u < 2 || (u >= 2 * g - 1 && u <= 2 * g + 2);
            named += is_named;
            if (is_named)
                assert_true(holds(sel, list, u));
        }
        assert_int_equal(length, named + 3);
    }
    tess_selection *other = select_by(ctx, &p, &opts, &(tess_select_in){.seed = 6});
    assert_int_equal(other->offsets[other->lists], sel->offsets[sel->lists]);
    assert_memory_not_equal(other->indices, sel->indices,
                            sizeof *sel->indices * (size_t)sel->offsets[sel->lists]);
    tess_selection_destroy(other);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

/* 3 heads x 200 groups choose 25 of 100 units: a unit is chosen 150 times, with a deviation of
 * sqrt(600 * 0.25 * 0.75) = 10.6. The largest of 100 stays within 5 of them but for 6e-5 of all
 * seeds, and the seed is fixed. */
static void random_choice_is_even_and_depends_on_seed_head_and_group_alone(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const tess_sel_shape shape = {
        .batch = 1, .heads = 3, .tokens_q = 200, .tokens_k = 100, .group = 1, .unit = 1};
    problem p = problem_make(&shape, 8, 0), one = p;
    one.shape.heads = 1;
    const tess_selector_opts opts = {.kind = TESS_SELECT_RANDOM};
    const tess_select_in in = {.seed = 3, .budget = {.density = 0.25}};
    tess_selection *sel = select_by(ctx, &p, &opts, &in), *first = select_by(ctx, &one, &opts, &in);
    int32_t times[100] = {0};
    for (int64_t i = 0; i < sel->offsets[sel->lists]; i++)
        times[sel->indices[i]]++;
    for (int u = 0; u < 100; u++)
        assert_in_range(times[u], 150 - 53, 150 + 53);
    assert_int_equal(first->offsets[200], 25 * 200);
    assert_memory_equal(first->indices, sel->indices, sizeof *sel->indices * 25 * 200);
    assert_memory_not_equal(sel->indices, sel->indices + 25, sizeof *sel->indices * 25);
    tess_selection_destroy(first);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(predictor_takes_the_keys_of_the_highest_score),
    cmocka_unit_test(predictor_sums_the_softmaxes_of_a_group),
    cmocka_unit_test(oracle_and_search_take_the_most_mass),
    cmocka_unit_test(search_repeats_its_lists_as_often_as_asked),
    cmocka_unit_test(pooled_takes_the_blocks_of_the_highest_mean_score),
    cmocka_unit_test(window_sees_the_cubes_around_its_own),
    cmocka_unit_test(edges_are_local_random_and_global),
    cmocka_unit_test(random_choice_is_even_and_depends_on_seed_head_and_group_alone),
};

RUN_TESTS(tests)
