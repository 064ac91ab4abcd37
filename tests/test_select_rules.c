/* SPDX-License-Identifier: Apache-2.0 */
/* test_select_rules.c - what holds for every selector: counts, threads, memory, odd numbers, and
 * the sentences of mistakes. */
#include "select_data.h"

#include "tessera/advanced/selection.h"

/* One of each kind, and the predictor once per proxy; grid fits shapes of 96 tokens. */
static const tess_selector_opts kinds[] = {
    {.kind = TESS_SELECT_PREDICTOR},
    {.kind = TESS_SELECT_PREDICTOR, .proxy = TESS_PROXY_CENTRE},
    {.kind = TESS_SELECT_PREDICTOR, .proxy = TESS_PROXY_SOFTMAX},
    {.kind = TESS_SELECT_ORACLE},
    {.kind = TESS_SELECT_POOLED},
    {.kind = TESS_SELECT_SEARCH},
    {.kind = TESS_SELECT_RANDOM},
    {.kind = TESS_SELECT_WINDOW, .grid = {4, 4, 6}, .cube = {2, 2, 4}, .window = {1, 2, 1}},
    {.kind = TESS_SELECT_EDGES, .local = 1, .random = 2, .global_k = 1, .global_q = 1},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int has_budget(const tess_selector_opts *o)
{
    return o->kind != TESS_SELECT_WINDOW && o->kind != TESS_SELECT_EDGES;
}

static int takes_mass(const tess_selector_opts *o)
{
    return o->kind == TESS_SELECT_ORACLE || o->kind == TESS_SELECT_POOLED ||
           o->kind == TESS_SELECT_SEARCH;
}

static const tess_sel_shape square = {
    .batch = 2, .heads = 3, .tokens_q = 96, .tokens_k = 96, .group = 10, .unit = 1};
static const tess_sel_shape blocks = {
    .batch = 2, .heads = 3, .tokens_q = 96, .tokens_k = 96, .group = 10, .unit = 7};

static tess_select_in in_of(const problem *p, const tess_selector_opts *o, double density)
{
    return (tess_select_in){.q = &p->q,
                            .k = &p->k,
                            .head_dim = p->dim,
                            .seed = 11,
                            .budget = {.density = has_budget(o) ? density : 0.0}};
}

/* ---- counts --------------------------------------------------------------------------------- */

/* Random shapes, budgets and kinds: every list ascends and is exactly as long as its budget. */
static void random_runs(tess_ctx *ctx)
{
    uint32_t word[8];
    for (uint64_t round = 0; round < 60; round++) {
        CHECK_OK(tess_random_bits(99, round, 0, word, 8));
        const tess_sel_shape shape = {.batch = 1 + (int)(word[0] % 2),
                                      .heads = 1 + (int)(word[1] % 3),
                                      .tokens_q = 1 + word[2] % 150,
                                      .tokens_k = 1 + word[3] % 400,
                                      .group = 1 + (int32_t)(word[4] % 70),
                                      .unit = 1 + (int32_t)(word[5] % 9) * (int32_t)(round % 2)};
        const tess_selector_opts *o = &kinds[word[6] % 7];
        problem p = problem_make(&shape, 8 + 8 * (int)(word[7] % 3), (int)(round % 3 == 0));
        int32_t keys[3];
        for (int h = 0; h < 3; h++)
            keys[h] = 1 + (int32_t)(word[h] >> 8) % p.n_k;
        tess_select_in in = in_of(&p, o, 0.0);
        in.budget.keys_head = keys;
        tess_selection *sel = select_by(ctx, &p, o, &in);
        for (int64_t list = 0; list < sel->lists; list++)
            assert_int_equal(sel->offsets[list + 1] - sel->offsets[list],
                             keys[list / p.n_q % shape.heads]);
        tess_selection_destroy(sel);
        problem_free(&p);
    }
}

static void lists_ascend_and_have_exactly_the_units_of_their_head(void **state)
{
    (void)state;
    with_every_isa(random_runs);
}

/* One sample's lists are those of a run with that sample's budget for all, whatever the others
 * have; 0 gives empty lists. */
static void each_runs(tess_ctx *ctx)
{
    static const int32_t each[] = {5, 0, 96, 1, 40, 0};
    problem p = problem_make(&square, 16, 0);
    for (int i = 0; i < 7; i++) {
        const tess_selector_opts *o = &kinds[i];
        tess_select_in in = in_of(&p, o, 0.0);
        in.budget.keys_each = each;
        tess_selection *sel = select_by(ctx, &p, o, &in);
        for (int64_t head = 0; head < 6; head++) {
            in.budget = (tess_budget){.keys = each[head] ? each[head] : 1};
            tess_selection *one = select_by(ctx, &p, o, &in);
            for (int64_t list = head * p.n_q; list < (head + 1) * p.n_q; list++) {
                assert_int_equal(sel->offsets[list + 1] - sel->offsets[list], each[head]);
                assert_memory_equal(sel->indices + sel->offsets[list],
                                    one->indices + one->offsets[list],
                                    sizeof(int32_t) * (size_t)each[head]);
            }
            tess_selection_destroy(one);
        }
        tess_selection_destroy(sel);
    }
    problem_free(&p);
}

static void every_sample_and_head_may_have_a_budget_of_its_own(void **state)
{
    (void)state;
    with_every_isa(each_runs);
}

static void a_density_is_rounded_up_and_gives_at_least_one_unit(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    tess_sel_shape shape = {
        .batch = 1, .heads = 4, .tokens_q = 2, .tokens_k = 100, .group = 2, .unit = 1};
    problem p = problem_make(&shape, 8, 0);
    /* 0.07 * 100 is 7.000000000000001 in double precision, and means 7. */
    const double densities[] = {0.0, 0.07, 0.071, 1.0};
    const int64_t want[] = {1, 7, 8, 100};
    tess_select_in in = in_of(&p, &kinds[0], 0.0);
    in.budget.density_head = densities;
    tess_selection *sel = select_by(ctx, &p, &kinds[0], &in);
    for (int h = 0; h < 4; h++)
        assert_int_equal(sel->offsets[h + 1] - sel->offsets[h], want[h]);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void the_capacity_asked_for_is_enough(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 8, 0);
    for (int i = 0; i < KINDS; i++) {
        tess_selector *selector = NULL;
        tess_selection *sel = NULL;
        int64_t capacity = -1, most = -1;
        tess_select_in in = in_of(&p, &kinds[i], 0.3);
        CHECK_OK(tess_selector_create(ctx, &kinds[i], &selector));
        CHECK_OK(tess_selector_capacity(selector, &p.shape, &in, &capacity));
        CHECK_OK(tess_selection_create(ctx, &p.shape, capacity, &sel));
        CHECK_OK(tess_selector_run(selector, &in, sel));
        assert_int_equal(sel->offsets[sel->lists], capacity);
        if (takes_mass(&kinds[i])) {
            in.budget = (tess_budget){.mass = 0.9};
            CHECK_OK(tess_selector_capacity(selector, &p.shape, &in, &most));
            assert_int_equal(most, 2 * 3 * 10 * 96);
        }
        tess_selection_destroy(sel);
        tess_selector_destroy(selector);
    }
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void no_tokens_give_empty_lists(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int i = 0; i < KINDS; i++)
        for (int side = 0; side < 2; side++) {
            if (kinds[i].kind == TESS_SELECT_WINDOW) /* a grid has tokens */
                continue;
            const tess_sel_shape shape = {.batch = 1,
                                          .heads = 2,
                                          .tokens_q = side ? 5 : 0,
                                          .tokens_k = side ? 0 : 5,
                                          .group = 2,
                                          .unit = 1};
            problem p = problem_make(&shape, 8, 0);
            const tess_select_in in = in_of(&p, &kinds[i], 0.5);
            tess_selection *sel = select_by(ctx, &p, &kinds[i], &in);
            assert_int_equal(sel->offsets[sel->lists], 0);
            const tess_sel_measure_in measure = {.q = &p.q, .k = &p.k, .head_dim = 8};
            tess_sel_stats stats;
            CHECK_OK(tess_selection_measure(ctx, sel, &measure, &stats));
            assert_true(stats.density == 0.0 && stats.recall == 0.0 && stats.overlap == 0.0);
            tess_selection_destroy(sel);
            problem_free(&p);
        }
    tess_ctx_destroy(ctx);
}

/* ---- threads and memory ---------------------------------------------------------------------- */

static void every_thread_count_gives_the_same_bits(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < KINDS; i++)
        for (int by_mass = 0; by_mass <= takes_mass(&kinds[i]); by_mass++) {
            problem p = problem_make(i % 2 ? &square : &blocks, 16, 0);
            tess_selection *sel[3];
            tess_ctx *ctx[3];
            tess_sel_stats stats[3], heads[3][6];
            memset(stats, 0, sizeof stats);
            memset(heads, 0, sizeof heads);
            tess_select_in in = in_of(&p, &kinds[i], 0.2);
            if (by_mass)
                in.budget = (tess_budget){.mass = 0.5};
            for (int t = 0; t < 3; t++) {
                CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads[t]}, &ctx[t]));
                sel[t] = select_by(ctx[t], &p, &kinds[i], &in);
                const tess_sel_measure_in measure = {
                    .q = &p.q, .k = &p.k, .head_dim = 16, .heads = heads[t]};
                CHECK_OK(tess_selection_measure(ctx[t], sel[t], &measure, &stats[t]));
                const size_t lists = (size_t)sel[0]->lists;
                assert_memory_equal(sel[t]->offsets, sel[0]->offsets,
                                    sizeof(int64_t) * (lists + 1));
                assert_memory_equal(sel[t]->indices, sel[0]->indices,
                                    sizeof(int32_t) * (size_t)sel[0]->offsets[lists]);
                assert_memory_equal(&stats[t], &stats[0], sizeof stats[0]);
                assert_memory_equal(heads[t], heads[0], sizeof heads[0]);
            }
            for (int t = 0; t < 3; t++) {
                tess_selection_destroy(sel[t]);
                tess_ctx_destroy(ctx[t]);
            }
            problem_free(&p);
        }
}

static void the_steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(NULL, &ctx));
        problem large = problem_make(&square, 16, 0), small = problem_make(&blocks, 8, 0);
        tess_selection *a = selection_make(ctx, &large), *b = selection_make(ctx, &small);
        tess_selector *selector = NULL;
        tess_ctx_info before, after;
        const tess_select_in in_a = in_of(&large, &kinds[i], 0.4),
                             in_b = in_of(&small, &kinds[i], 0.3);
        CHECK_OK(tess_selector_create(ctx, &kinds[i], &selector));
        CHECK_OK(tess_selector_run(selector, &in_a, a));
        CHECK_OK(tess_ctx_query(ctx, &before));
        for (int call = 0; call < 3; call++) {
            CHECK_OK(tess_selector_run(selector, &in_b, b));
            CHECK_OK(tess_selector_run(selector, &in_a, a));
        }
        CHECK_OK(tess_ctx_query(ctx, &after));
        assert_int_equal(after.allocations, before.allocations);
        tess_selector_destroy(selector);
        tess_selection_destroy(a);
        tess_selection_destroy(b);
        problem_free(&large);
        problem_free(&small);
        tess_ctx_destroy(ctx);
    }
}

/* An allocator whose n-th call fails. */
typedef struct {
    int calls, fails_at;
} faulty;

static void *faulty_alloc(void *user, size_t bytes)
{
    faulty *f = user;
    if (++f->calls == f->fails_at)
        return NULL;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void faulty_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void out_of_memory_leaves_the_selection_and_the_selector_usable(void **state)
{
    (void)state;
    problem p = problem_make(&blocks, 16, 0);
    for (int i = 0; i < KINDS; i++) {
        faulty f = {0};
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(
            &(tess_ctx_opts){.allocator = {faulty_alloc, faulty_free, &f}, .threads = 2}, &ctx));
        tess_selection *sel = selection_make(ctx, &p);
        const tess_select_in in = in_of(&p, &kinds[i], 0.3);
        const tess_sel_measure_in measure = {.q = &p.q, .k = &p.k, .head_dim = 16};
        int64_t capacity = -1;
        tess_sel_stats stats;
        int failures = 0;
        for (int n = 1;; n++) {
            tess_selector *selector = NULL;
            CHECK_OK(tess_selection_set_lists(sel, (int64_t[61]){0}, (int32_t[1]){0})); /* empty */
            f.calls = 0;
            f.fails_at = n;
            tess_status status = tess_selector_create(ctx, &kinds[i], &selector);
            if (status == TESS_OK)
                status = tess_selector_capacity(selector, &p.shape, &in, &capacity);
            if (status == TESS_OK)
                status = tess_selector_run(selector, &in, sel);
            if (status != TESS_OK)
                assert_int_equal(sel->offsets[sel->lists], 0);
            if (status == TESS_OK)
                status = tess_selection_measure(ctx, sel, &measure, &stats);
            const int done = f.calls < n;
            f.fails_at = 0;
            assert_int_equal(status, done ? TESS_OK : TESS_ENOMEM);
            failures += !done;
            if (selector) {
                CHECK_OK(tess_selector_run(selector, &in, sel));
                check_valid(sel);
            }
            tess_selector_destroy(selector);
            if (done)
                break;
        }
        assert_true(failures >= 6);
        tess_selection_destroy(sel);
        tess_ctx_info info;
        CHECK_OK(tess_ctx_query(ctx, &info));
        assert_int_equal(info.bytes_now, 0);
        tess_ctx_destroy(ctx);
    }
    problem_free(&p);
}

static int stop_at_once(void *user, const char *what, int64_t done, int64_t total)
{
    assert_string_equal(what, user);
    assert_true(done >= 0 && done <= total);
    return 1;
}

static void a_caller_can_stop_a_search_and_keeps_the_selection(void **state)
{
    (void)state;
    static char selecting[] = "selecting keys", measuring[] = "measuring a selection";
    const tess_sel_shape shape = {
        .batch = 1, .heads = 1, .tokens_q = 1200, .tokens_k = 1200, .group = 100, .unit = 100};
    problem p = problem_make(&shape, 56, 0);
    const tess_select_in in = {.q = &p.q, .k = &p.k, .head_dim = 56, .budget = {.keys = 1}};
    const tess_sel_measure_in measure = {.q = &p.q, .k = &p.k, .head_dim = 56};
    for (int pass = 0; pass < 2; pass++) {
        tess_ctx *ctx = NULL;
        tess_selector *selector = NULL;
        tess_sel_stats stats = {.groups = -1};
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_at_once,
                                                  .progress_user = pass ? measuring : selecting},
                                 &ctx));
        tess_selection *sel = selection_make(ctx, &p);
        CHECK_OK(tess_selector_create(ctx, &(tess_selector_opts){.kind = TESS_SELECT_ORACLE},
                                      &selector));
        if (pass == 0)
            CHECK_FAILS(tess_selector_run(selector, &in, sel), TESS_ESTOPPED,
                        "stopped by the caller while selecting keys");
        else
            CHECK_FAILS(tess_selection_measure(ctx, sel, &measure, &stats), TESS_ESTOPPED,
                        "stopped by the caller while measuring a selection");
        assert_int_equal(sel->offsets[sel->lists], 0);
        assert_int_equal(stats.groups, -1);
        tess_selector_destroy(selector);
        tess_selection_destroy(sel);
        tess_ctx_destroy(ctx);
    }
    problem_free(&p);
}

static int stop_on_request(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what;
    (void)done;
    (void)total;
    return *(const int *)user;
}

static void lists_in_place_are_those_of_staging_and_gone_when_it_is_stopped(void **state)
{
    (void)state;
    static const tess_select_kind chosen[] = {TESS_SELECT_ORACLE, TESS_SELECT_POOLED,
                                              TESS_SELECT_RANDOM, TESS_SELECT_WINDOW};
    static const int32_t keys[4] = {3, 0, 12, 7};
    const tess_sel_shape shape = {
        .batch = 2, .heads = 2, .tokens_q = 1200, .tokens_k = 1200, .group = 100, .unit = 100};
    problem p = problem_make(&shape, 56, 0);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        int stop = 0;
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(
            &(tess_ctx_opts){.threads = 2, .progress = stop_on_request, .progress_user = &stop},
            &ctx));
        const int budget = chosen[i] != TESS_SELECT_WINDOW;
        tess_select_in in = {.q = &p.q, .k = &p.k, .head_dim = 56, .seed = 5};
        in.budget.keys_each = budget ? keys : NULL;
        tess_selector_opts opts = {
            .kind = chosen[i], .grid = {12, 10, 10}, .cube = {1, 10, 10}, .window = {3, 1, 1}};
        tess_selection *sel[2];
        tess_selector_info info[2];
        for (int in_place = 0; in_place < 2; in_place++) {
            tess_selector *selector = NULL;
            opts.in_place = in_place;
            sel[in_place] = selection_make(ctx, &p);
            CHECK_OK(tess_selector_create(ctx, &opts, &selector));
            CHECK_OK(tess_selector_run(selector, &in, sel[in_place]));
            CHECK_OK(tess_selector_query(selector, &info[in_place]));
            check_valid(sel[in_place]);
            if (in_place && budget) {
                stop = 1;
                assert_int_equal(tess_selector_run(selector, &in, sel[1]), TESS_ESTOPPED);
                assert_int_equal(sel[1]->offsets[sel[1]->lists], 0);
                stop = 0;
                CHECK_OK(tess_selector_run(selector, &in, sel[1]));
            }
            tess_selector_destroy(selector);
        }
        const int64_t n = sel[0]->offsets[sel[0]->lists];
        assert_true(n > 0);
        assert_memory_equal(sel[0]->offsets, sel[1]->offsets,
                            sizeof *sel[0]->offsets * ((size_t)sel[0]->lists + 1));
        assert_memory_equal(sel[0]->indices, sel[1]->indices, sizeof *sel[0]->indices * (size_t)n);
        assert_int_equal(info[0].bytes - info[1].bytes, budget ? n * (int64_t)sizeof(int32_t) : 0);
        tess_selection_destroy(sel[0]);
        tess_selection_destroy(sel[1]);
        tess_ctx_destroy(ctx);
    }
    problem_free(&p);
}

/* ---- odd numbers ---------------------------------------------------------------------------- */

static void odd_numbers(tess_ctx *ctx)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-42f};
    for (int i = 0; i < KINDS; i++)
        for (int step = 1; step <= 101; step += 50)
            for (int by_mass = 0; by_mass <= takes_mass(&kinds[i]); by_mass++) {
                problem p = problem_make(i % 2 ? &square : &blocks, 16, 0);
                const int64_t n = 2 * 3 * 96 * (16 + GAP);
                for (int64_t x = 0; x < n; x += step) {
                    p.q_data[x] = odd[x / step % 6];
                    p.k_data[n - 1 - x] = odd[x / step % 5];
                }
                tess_select_in in = in_of(&p, &kinds[i], 0.3);
                in.lse = kinds[i].kind == TESS_SELECT_SEARCH ? p.q_data : NULL;
                if (by_mass)
                    in.budget = (tess_budget){.mass = 0.5};
                tess_selection *sel = select_by(ctx, &p, &kinds[i], &in);
                for (int64_t list = 0; list < sel->lists; list++)
                    assert_true(sel->offsets[list + 1] > sel->offsets[list]);
                const tess_sel_measure_in measure = {.q = &p.q, .k = &p.k, .head_dim = 16};
                tess_sel_stats s;
                CHECK_OK(tess_selection_measure(ctx, sel, &measure, &s));
                assert_true(s.mass >= 0.0 && s.mass <= 1.0 + 1e-9);
                assert_true(s.recall >= 0.0 && s.recall <= 1.0 + 1e-9);
                assert_true(s.overlap >= 0.0 && s.overlap <= 1.0);
                tess_selection_destroy(sel);
                problem_free(&p);
            }
}

static void odd_numbers_give_valid_lists(void **state)
{
    (void)state;
    with_every_isa(odd_numbers);
}

/* A NaN key ranks last, and queries that are NaN do not hide what the others see. */
static void nan_ranks_last_and_does_not_spread(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const tess_sel_shape shape = {
        .batch = 1, .heads = 1, .tokens_q = 4, .tokens_k = 8, .group = 4, .unit = 1};
    problem p = problem_make(&shape, 8, 0);
    ((float *)tess__view_row(&p.k, 0, 0, 2))[3] = NAN;
    tess_select_in in = {.q = &p.q, .k = &p.k, .head_dim = 8, .budget = {.keys = 7}};
    tess_selection *sel = select_by(ctx, &p, &kinds[0], &in);
    for (int i = 0; i < 7; i++)
        assert_int_equal(sel->indices[i], i + (i >= 2));
    tess_selection_destroy(sel);

    problem_free(&p);
    p = problem_make(&shape, 8, 0);
    double mass[8];
    ref_mass(ctx, &p, 0, 1, 4, 0.0f, mass, NULL);
    ((float *)tess__view_row(&p.q, 0, 0, 0))[7] = NAN;
    in.budget.keys = 3;
    in.q = &p.q;
    in.k = &p.k;
    sel = select_by(ctx, &p, &(tess_selector_opts){.kind = TESS_SELECT_ORACLE}, &in);
    assert_int_equal(check_top(sel, 0, mass, 0.0), 3);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

/* ---- some of the groups ---------------------------------------------------------------------- */

/* Three cubes of eight, not in order: their lists are those of the whole. */
static void some_groups_get_the_lists_they_have_in_the_whole(void **state)
{
    (void)state;
    static const int grid[3] = {4, 4, 6}, cube[3] = {2, 2, 4};
    static const int32_t some[3] = {6, 1, 3};
    int64_t bounds[9], part[4] = {0};
    int32_t n;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_order_cubes(grid, cube, NULL, NULL, bounds, &n));
    assert_int_equal(n, 8);
    const tess_sel_shape whole = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = 96,
                                  .tokens_k = 96,
                                  .bounds_q = bounds,
                                  .n_q = n,
                                  .unit = 1};
    problem p = problem_make(&whole, 16, 0);
    float rows[96 * 16];
    for (int i = 0; i < 3; i++) {
        const int64_t begin = bounds[some[i]], length = bounds[some[i] + 1] - begin;
        for (int64_t r = 0; r < length; r++)
            memcpy(rows + (part[i] + r) * 16, tess__view_row(&p.q, 0, 0, begin + r),
                   16 * sizeof *rows);
        part[i + 1] = part[i] + length;
    }
    const tess_view q = {rows, TESS_DTYPE_F32, 0, 0, 16};
    tess_sel_shape share = whole;
    share.tokens_q = part[3];
    share.bounds_q = part;
    share.n_q = 3;
    for (int kind = 0; kind < KINDS - 1; kind++) {
        tess_select_in in = in_of(&p, &kinds[kind], 0.2);
        tess_selection *all = select_by(ctx, &p, &kinds[kind], &in), *sel = NULL;
        tess_selector *selector = NULL;
        int64_t room;
        in.q = &q;
        in.groups = some;
        CHECK_OK(tess_selector_create(ctx, &kinds[kind], &selector));
        CHECK_OK(tess_selector_capacity(selector, &share, &in, &room));
        CHECK_OK(tess_selection_create(ctx, &share, room, &sel));
        CHECK_OK(tess_selector_run(selector, &in, sel));
        for (int i = 0; i < 3; i++) {
            const int64_t length = sel->offsets[i + 1] - sel->offsets[i];
            assert_true(length > 0);
            assert_int_equal(length, all->offsets[some[i] + 1] - all->offsets[some[i]]);
            assert_memory_equal(sel->indices + sel->offsets[i],
                                all->indices + all->offsets[some[i]],
                                (size_t)length * sizeof *sel->indices);
        }
        tess_selector_destroy(selector);
        tess_selection_destroy(sel);
        tess_selection_destroy(all);
    }
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const struct {
        tess_selector_opts opts;
        const char *sentence;
    } cases[] = {
        {{.kind = TESS_SELECT_COUNT}, "tess_selector_create: kind is 7, must be 0..6"},
        {{.proxy = (tess_proxy)3}, "tess_selector_create: proxy is 3, must be 0..2"},
        {{.kind = TESS_SELECT_SEARCH, .reuse = -1},
         "tess_selector_create: reuse is -1, must be 0..1073741824"},
        {{.kind = TESS_SELECT_WINDOW}, "tess_selector_create: grid[0] is 0, must be 1..2147483647"},
        {{.kind = TESS_SELECT_WINDOW, .grid = {1, 1, 1}, .cube = {1, -1, 1}},
         "tess_selector_create: cube[1] is -1, must be 1..2147483647"},
        {{.kind = TESS_SELECT_WINDOW, .grid = {1, 1, 1}, .cube = {1, 1, 1}, .window = {1, 1}},
         "tess_selector_create: window[2] is 0, must be 1..2147483647"},
        {{.kind = TESS_SELECT_EDGES, .local = -2},
         "tess_selector_create: local is -2, must be 0..2147483647"},
        {{.kind = TESS_SELECT_EDGES, .global_q = -2},
         "tess_selector_create: global_q is -2, must be 0..2147483647"},
    };
    tess_ctx *ctx = NULL;
    tess_selector *selector = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_FAILS(tess_selector_create(ctx, &cases[i].opts, &selector), TESS_EINVAL,
                    cases[i].sentence);
    CHECK_FAILS(tess_selector_create(NULL, NULL, &selector), TESS_EINVAL,
                "tess_selector_create: ctx is NULL");
    CHECK_FAILS(tess_selector_create(ctx, NULL, NULL), TESS_EINVAL,
                "tess_selector_create: selector is NULL");
    assert_null(selector);
    assert_string_equal(tess_select_kind_name(TESS_SELECT_EDGES), "edges");
    assert_null(tess_select_kind_name(TESS_SELECT_COUNT));
    assert_null(tess_select_kind_name((tess_select_kind)-1));
    tess_selector_destroy(NULL);
    tess_ctx_destroy(ctx);
}

/* The call fails with the sentence after "tess_selector_run: ", and the selection stays. */
static void check_run_fails(tess_ctx *ctx, const tess_selector_opts *opts, const problem *p,
                            const tess_select_in *in, const char *sentence)
{
    char whole[200];
    tess_selector *selector = NULL;
    tess_selection *sel = selection_make(ctx, p);
    sel->offsets[sel->lists] = 1;
    sel->indices[0] = 0;
    snprintf(whole, sizeof whole, "tess_selector_run: %s", sentence);
    CHECK_OK(tess_selector_create(ctx, opts, &selector));
    CHECK_FAILS(tess_selector_run(selector, in, sel), TESS_EINVAL, whole);
    assert_int_equal(sel->offsets[sel->lists], 1);
    tess_selector_destroy(selector);
    tess_selection_destroy(sel);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    const tess_selector_opts *predictor = &kinds[0], *truth = &kinds[3], *window = &kinds[7];
    const tess_view bf16 = {p.q_data, TESS_DTYPE_BF16, 0, 0, 0}, empty = {.data = NULL};
    const int32_t keys[] = {1, 97, 1};
    const int32_t each[] = {1, 0, 1, 1, -1, 97};
    const double shares[] = {0.5, 0.5, 1.5};
    const tess_select_in good = in_of(&p, predictor, 0.1);
    tess_select_in in;
#define CASE(opts, change, sentence)                                                               \
    in = good;                                                                                     \
    change;                                                                                        \
    check_run_fails(ctx, opts, &p, &in, sentence)
    CASE(predictor, in.head_dim = 12, "head_dim is 12, must be a multiple of 8 up to 64");
    CASE(predictor, in.head_dim = 72, "head_dim is 72, must be a multiple of 8 up to 64");
    CASE(truth, in.head_dim = 264, "head_dim is 264, must be a multiple of 8 up to 256");
    CASE(truth, in.scale = -1.0f, "scale is -1, must be finite and not below 0");
    CASE(truth, in.scale = INFINITY, "scale is inf, must be finite and not below 0");
    CASE(truth, in.q = NULL, "q is NULL");
    CASE(truth, in.k = &empty, "k.data is NULL");
    CASE(truth, in.k = &bf16, "k.dtype is BF16, must be F32");
    CASE(truth, in.budget.keys = 2, "2 budgets are given, oracle takes exactly one");
    CASE(truth, in.budget.density = 0.0, "0 budgets are given, oracle takes exactly one");
    CASE(window, in.budget.mass = 0.5, "2 budgets are given, window takes none");
    CASE(truth, in.budget.density = 1.1, "budget.density is 1.1, must be above 0 and at most 1");
    CASE(truth, in.budget.density = NAN, "budget.density is nan, must be above 0 and at most 1");
    CASE(predictor, in.budget = (tess_budget){.mass = 0.5},
         "budget.mass is 0.5, predictor takes keys or a density");
    CASE(truth, in.budget = (tess_budget){.mass = -0.5},
         "budget.mass is -0.5, must be above 0 and at most 1");
    CASE(truth, in.budget = (tess_budget){.keys = 97}, "budget.keys is 97, must be 1..96");
    CASE(truth, in.budget = (tess_budget){.keys = -1}, "budget.keys is -1, must be 1..96");
    CASE(truth, in.budget = (tess_budget){.keys_head = keys},
         "budget.keys_head[1] is 97, must be 1..96");
    CASE(truth, in.budget = (tess_budget){.keys_each = each},
         "budget.keys_each[4] is -1, must be 0..96");
    CASE(window, in.budget = (tess_budget){.keys_each = each},
         "1 budgets are given, window takes none");
    CASE(truth, in.budget = (tess_budget){.density_head = shares},
         "budget.density_head[2] is 1.5, must be 0..1");
    const tess_selector_opts grid = {
        .kind = TESS_SELECT_WINDOW, .grid = {4, 4, 5}, .cube = {1, 1, 1}, .window = {1, 1, 1}};
    static const int32_t below[10] = {-1}, far[10] = {0, 8};
    CASE(truth, in.groups = below, "groups[0] is -1, must be 0..2147483647");
    CASE(window, (in.groups = far, in.budget.density = 0.0), "groups[1] is 8, must be 0..7");
    CASE(&kinds[8], (in.groups = far, in.budget.density = 0.0),
         "groups are given, edges takes whole selections");
    CASE(&grid, in.budget.density = 0.0, "tokens_q is 96, must be grid's 4 x 4 x 5");
#undef CASE
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void missing_arguments_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    tess_selection *sel = selection_make(ctx, &p);
    tess_selector *s = NULL;
    CHECK_OK(tess_selector_create(ctx, NULL, &s));
    tess_selector_info info;
    tess_sel_stats stats;
    int64_t capacity;
    const tess_select_in in = in_of(&p, &kinds[0], 0.1);
    const tess_sel_measure_in m = {.q = &p.q, .k = &p.k, .head_dim = 16};
    tess_sel_measure_in wrong = m;
    wrong.every = -3;
    CHECK_FAILS(tess_selector_run(NULL, &in, sel), TESS_EINVAL,
                "tess_selector_run: selector is NULL");
    CHECK_FAILS(tess_selector_run(s, NULL, sel), TESS_EINVAL, "tess_selector_run: in is NULL");
    CHECK_FAILS(tess_selector_run(s, &in, NULL), TESS_EINVAL, "tess_selector_run: sel is NULL");
    CHECK_FAILS(tess_selector_query(NULL, &info), TESS_EINVAL,
                "tess_selector_query: selector is NULL");
    CHECK_FAILS(tess_selector_query(s, NULL), TESS_EINVAL, "tess_selector_query: info is NULL");
    CHECK_FAILS(tess_selector_capacity(NULL, &p.shape, &in, &capacity), TESS_EINVAL,
                "tess_selector_capacity: selector is NULL");
    CHECK_FAILS(tess_selector_capacity(s, NULL, &in, &capacity), TESS_EINVAL,
                "tess_selector_capacity: shape is NULL");
    CHECK_FAILS(tess_selector_capacity(s, &p.shape, NULL, &capacity), TESS_EINVAL,
                "tess_selector_capacity: in is NULL");
    CHECK_FAILS(tess_selector_capacity(s, &p.shape, &in, NULL), TESS_EINVAL,
                "tess_selector_capacity: capacity is NULL");
    CHECK_FAILS(tess_selector_capacity(s, &(tess_sel_shape){.batch = 1}, &in, &capacity),
                TESS_EINVAL, "tess_selector_capacity: heads is 0, must be 1..65536");
    CHECK_FAILS(tess_selection_measure(NULL, sel, &m, &stats), TESS_EINVAL,
                "tess_selection_measure: ctx is NULL");
    CHECK_FAILS(tess_selection_measure(ctx, NULL, &m, &stats), TESS_EINVAL,
                "tess_selection_measure: sel is NULL");
    CHECK_FAILS(tess_selection_measure(ctx, sel, NULL, &stats), TESS_EINVAL,
                "tess_selection_measure: in is NULL");
    CHECK_FAILS(tess_selection_measure(ctx, sel, &m, NULL), TESS_EINVAL,
                "tess_selection_measure: stats is NULL");
    CHECK_FAILS(tess_selection_measure(ctx, sel, &wrong, &stats), TESS_EINVAL,
                "tess_selection_measure: every is -3, must be 0 or more");
    tess_selector_destroy(s);
    tess_selection_destroy(sel);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void too_little_room_is_reported_with_the_need(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    tess_selection *tiny = NULL;
    tess_selector *selector = NULL;
    CHECK_OK(tess_selection_create(ctx, &square, 59, &tiny));
    CHECK_OK(tess_selector_create(ctx, &kinds[3], &selector));
    tess_select_in in = in_of(&p, &kinds[3], 0.1); /* 10 of 96 units, 60 lists */
    CHECK_FAILS(tess_selector_run(selector, &in, tiny), TESS_EINVAL,
                "tess_selector_run: sel has room for 59 indices, needs 600");
    in.budget = (tess_budget){.mass = 1e-9}; /* one unit each */
    CHECK_FAILS(tess_selector_run(selector, &in, tiny), TESS_EINVAL,
                "tess_selector_run: sel has room for 59 indices, needs 60");
    assert_int_equal(tiny->offsets[tiny->lists], 0);
    tess_selection_destroy(tiny);
    CHECK_OK(tess_selection_create(ctx, &square, 60, &tiny));
    CHECK_OK(tess_selector_run(selector, &in, tiny));
    check_valid(tiny);
    assert_int_equal(tiny->offsets[tiny->lists], 60);
    tess_selection_destroy(tiny);
    tess_selector_destroy(selector);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lists_ascend_and_have_exactly_the_units_of_their_head),
    cmocka_unit_test(every_sample_and_head_may_have_a_budget_of_its_own),
    cmocka_unit_test(a_density_is_rounded_up_and_gives_at_least_one_unit),
    cmocka_unit_test(the_capacity_asked_for_is_enough),
    cmocka_unit_test(no_tokens_give_empty_lists),
    cmocka_unit_test(every_thread_count_gives_the_same_bits),
    cmocka_unit_test(the_steady_state_allocates_nothing),
    cmocka_unit_test(out_of_memory_leaves_the_selection_and_the_selector_usable),
    cmocka_unit_test(a_caller_can_stop_a_search_and_keeps_the_selection),
    cmocka_unit_test(lists_in_place_are_those_of_staging_and_gone_when_it_is_stopped),
    cmocka_unit_test(odd_numbers_give_valid_lists),
    cmocka_unit_test(nan_ranks_last_and_does_not_spread),
    cmocka_unit_test(some_groups_get_the_lists_they_have_in_the_whole),
    cmocka_unit_test(wrong_options_are_named),
    cmocka_unit_test(wrong_inputs_are_named),
    cmocka_unit_test(missing_arguments_are_named),
    cmocka_unit_test(too_little_room_is_reported_with_the_need),
};

RUN_TESTS(tests)
