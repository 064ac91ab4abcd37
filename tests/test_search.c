/* SPDX-License-Identifier: Apache-2.0 */
/* test_search.c - the best of all combinations: the same as every combination by itself, for any
 * number of threads, with and without bounds, stopped and resumed. */
#include "sim_data.h"

#include "search/search_internal.h"
#include "tessera/scenario.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tess_scenario shipped(const char *name)
{
    tess_scenario s;
    CHECK_OK(tess_scenario_load(ctx, name, &s));
    return s;
}

static tess_search *searched(tess_ctx *with, const tess_scenario *s, const tess_search_opts *opts)
{
    tess_search *search = NULL;
    CHECK_OK(tess_search_run(with, params, NULL, s, opts, &search));
    return search;
}

static int same_point(const tess_search_point *a, const tess_search_point *b)
{
    return a->combination == b->combination && a->cost == b->cost && a->lacking == b->lacking &&
           a->result.step_s == b->result.step_s && a->result.memory.peak == b->result.memory.peak &&
           a->result.bubble_s == b->result.bubble_s && a->result.dp_s == b->result.dp_s;
}

/* Everything that is reported but the number of those simulated to their end. */
static void check_same(const tess_search *a, const tess_search *b)
{
    tess_search_info x, y;
    CHECK_OK(tess_search_query(a, &x));
    CHECK_OK(tess_search_query(b, &y));
    assert_int_equal(x.combinations, y.combinations);
    assert_int_equal(x.valid, y.valid);
    assert_int_equal(x.feasible, y.feasible);
    for (int list = 0; list < TESS_SEARCH_LISTS; list++) {
        const int n = tess_search_count(a, list);
        assert_int_equal(n, tess_search_count(b, list));
        for (int i = 0; i < n; i++) {
            tess_search_point p, q;
            CHECK_OK(tess_search_get(a, list, i, &p));
            CHECK_OK(tess_search_get(b, list, i, &q));
            assert_true(same_point(&p, &q));
        }
    }
}

/* ---- against every combination by itself ----------------------------------------------------- */

static const tess_search_axis wide[] = {{"layout.tp", "1,2,4,8"},
                                        {"layout.pp", "1,2,3,4,6,8,12"},
                                        {"layout.vpp", "1,2,3"},
                                        {"training.micro_batch", "1,2,4"},
                                        {"training.recompute", "none,selective,full"},
                                        {"layout.zero", "0,1,2,3"},
                                        {"layout.sequence", "false,true"}};
enum { WIDE = sizeof wide / sizeof *wide };

/* The smallest step of all combinations by tess_scenario_set and tess_sim_run alone. */
static double brute_force(const char *name, int64_t *feasible)
{
    tess_cluster *cluster = NULL;
    char values[WIDE][64], *items[WIDE][16];
    int counts[WIDE];
    double best = INFINITY;
    int64_t total = 1;
    const tess_scenario base = shipped(name);
    CHECK_OK(tess_cluster_load(ctx, base.system.cluster, &cluster));
    for (int i = 0; i < WIDE; i++) {
        char *save = NULL;
        snprintf(values[i], sizeof values[i], "%s", wide[i].values);
        counts[i] = 0;
        for (char *v = strtok_r(values[i], ",", &save); v; v = strtok_r(NULL, ",", &save))
            items[i][counts[i]++] = v;
        total *= counts[i];
    }
    *feasible = 0;
    for (int64_t number = 0; number < total; number++) {
        tess_scenario s = base;
        tess_sim_result r;
        int64_t rest = number;
        for (int i = 0; i < WIDE; i++) {
            CHECK_OK(tess_scenario_set(ctx, &s, wide[i].key, items[i][rest % counts[i]]));
            rest /= counts[i];
        }
        if (tess_sim_run(sim, cluster, &s, &r) != TESS_OK || !r.memory.fits)
            continue;
        ++*feasible;
        best = fmin(best, r.step_s);
    }
    tess_cluster_destroy(cluster);
    return best;
}

static void the_best_is_that_of_brute_force(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-175b-96", "llama3-405b", "wan2.1-14b-dsv-128",
                                        "deepseek-v3"};
    for (int i = 0; i < 4; i++) {
        int64_t feasible;
        tess_search_info info;
        tess_search_point best;
        const tess_scenario s = shipped(names[i]);
        const double expected = brute_force(names[i], &feasible);
        tess_search *search = searched(ctx, &s, &(tess_search_opts){.over = wide, .n_over = WIDE});
        CHECK_OK(tess_search_query(search, &info));
        CHECK_OK(tess_search_get(search, TESS_SEARCH_TOP, 0, &best));
        assert_int_equal(info.combinations, 4 * 7 * 3 * 3 * 3 * 4 * 2);
        assert_int_equal(info.feasible, feasible);
        assert_true(best.result.step_s == expected);
        assert_true(info.evaluated <= info.feasible);
        tess_search_destroy(search);
    }
}

/* ---- bounds, threads ------------------------------------------------------------------------- */

/* Returns how many combinations the bounds spared. */
static int64_t check_bounds(const char *name, tess_search_opts opts)
{
    const tess_scenario s = shipped(name);
    tess_search_info quick_info, slow_info;
    tess_search *quick = searched(ctx, &s, &opts);
    opts.exhaustive = 1;
    tess_search *slow = searched(ctx, &s, &opts);
    check_same(quick, slow);
    CHECK_OK(tess_search_query(quick, &quick_info));
    CHECK_OK(tess_search_query(slow, &slow_info));
    if (opts.deadline == 0.0)
        assert_int_equal(slow_info.evaluated, slow_info.feasible);
    tess_search_destroy(quick);
    tess_search_destroy(slow);
    return slow_info.evaluated - quick_info.evaluated;
}

static void bounds_change_nothing(void **state)
{
    (void)state;
    static const tess_search_axis orders[] = {
        {"layout.schedule", "1f1b,gpipe,interleaved,gpipe-looped,zero-bubble,interleaved-zb,zb-v"},
        {"layout.vpp", "1,2,4"},
        {"layout.pp", "4,8,12"},
        {"layout.tp", "4,8"}};
    check_bounds("gpt-175b-96", (tess_search_opts){.over = orders, .n_over = 4});
    static const char *const names[] = {"gpt-175b-96", "llama3-405b", "wan2.1-14b-dsv-128"};
    const int gpus[] = {48, 96, 192};
    for (int i = 0; i < 3; i++)
        assert_true(check_bounds(names[i], (tess_search_opts){.over = wide, .n_over = WIDE}) >= 0);
    const int64_t spared = check_bounds(
        "gpt-175b-96",
        (tess_search_opts){
            .over = wide, .n_over = WIDE, .gpus = gpus, .n_gpus = 3, .by = TESS_SEARCH_GPU_HOURS});
    assert_true(spared > 0);
    check_bounds(
        "gpt-175b-96",
        (tess_search_opts){.over = wide, .n_over = WIDE, .deadline = 14.0 * 1000, .steps = 1000});
    check_bounds("gpt-175b-96", (tess_search_opts){.over = wide,
                                                   .n_over = WIDE,
                                                   .memory_limit = 40e9,
                                                   .by = TESS_SEARCH_COST,
                                                   .price = 2.5});
}

/* All axes by the rules, on a model that is small enough. */
static tess_scenario small(void)
{
    tess_scenario s = gpt(8, 1024, 16, 1);
    s.layout = (tess_sim_layout){.gpus = 32};
    s.training.global_batch = 32;
    snprintf(s.system.cluster, sizeof s.system.cluster, "a100-80");
    return s;
}

static void settings_by_the_rules_are_all_there_are(void **state)
{
    (void)state;
    const tess_scenario s = small();
    tess_search_info info;
    int64_t expected = 0;
    for (int tp = 1; tp <= 32; tp++)
        for (int pp = 1; pp <= 32; pp++)
            for (int vpp = 1; vpp <= 8; vpp++)
                for (int cp = 1; cp <= 32; cp++)
                    for (int mb = 1; mb <= 32; mb++) {
                        tess_scenario one = s, full;
                        one.layout.tp = tp;
                        one.layout.pp = pp;
                        one.layout.vpp = vpp;
                        one.layout.cp = cp;
                        one.training.micro_batch = mb;
                        if (tess_scenario_fill(&one, &full) == TESS_OK &&
                            (vpp == 1 || 8 % (pp * vpp) == 0))
                            expected += 3 * 4 * (tp > 1 ? 2 : 1);
                    }
    tess_search *quick = searched(ctx, &s, NULL);
    CHECK_OK(tess_search_query(quick, &info));
    assert_int_equal(info.combinations, expected);
    tess_search *slow = searched(ctx, &s, &(tess_search_opts){.exhaustive = 1});
    check_same(quick, slow);
    tess_search_destroy(quick);
    tess_search_destroy(slow);
}

static void any_number_of_threads_gives_the_same(void **state)
{
    (void)state;
    const tess_scenario s = shipped("llama3-405b");
    const tess_search_opts opts = {.over = wide, .n_over = WIDE};
    tess_search *first = searched(ctx, &s, &opts);
    tess_search_info x, y;
    CHECK_OK(tess_search_query(first, &x));
    for (int threads = 1; threads <= 5; threads += 2) {
        tess_ctx *other = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &other));
        tess_search *search = searched(other, &s, &opts);
        check_same(first, search);
        CHECK_OK(tess_search_query(search, &y));
        assert_int_equal(x.evaluated, y.evaluated);
        tess_search_destroy(search);
        tess_ctx_destroy(other);
    }
    tess_search_destroy(first);
}

/* ---- stopped and resumed --------------------------------------------------------------------- */

static int stop_after, stop_listing;

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    if (strcmp(what, "listing combinations") == 0)
        return stop_listing;
    return stop_after-- <= 0;
}

static void a_stopped_search_resumes_from_its_checkpoint(void **state)
{
    (void)state;
    char path[] = "/tmp/tessera_search_XXXXXX";
    const tess_scenario s = small();
    tess_ctx *stopping = NULL;
    tess_search_info info;
    const tess_search_opts plain = {.memory_limit = 12e9};
    tess_search_opts opts = plain;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    remove(path);
    opts.checkpoint = path;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop}, &stopping));
    tess_search *none = NULL;
    stop_listing = 1;
    CHECK_FAILS(tess_search_run(stopping, params, NULL, &s, &opts, &none), TESS_ESTOPPED,
                "stopped by the caller while listing combinations");
    assert_null(none);
    stop_listing = 0;
    tess_search *whole = searched(ctx, &s, &plain);
    int64_t resumed = 0;
    for (int round = 0; round < 3; round++) {
        stop_after = 0;
        tess_search *part = searched(stopping, &s, &opts);
        CHECK_OK(tess_search_query(part, &info));
        assert_true(info.stopped);
        assert_int_equal(info.resumed, resumed);
        resumed += 2048;
        tess_search_destroy(part);
    }
    tess_search *rest = searched(ctx, &s, &opts);
    CHECK_OK(tess_search_query(rest, &info));
    assert_int_equal(info.resumed, resumed);
    assert_false(info.stopped);
    check_same(whole, rest);
    tess_search_destroy(rest);
    rest = searched(ctx, &s, &opts); /* nothing is left to do */
    CHECK_OK(tess_search_query(rest, &info));
    assert_int_equal(info.resumed, info.valid);
    check_same(whole, rest);
    tess_search_destroy(rest);
    tess_search_destroy(whole);
    tess_search *other = NULL;
    opts.memory_limit = 11e9;
    assert_int_equal(tess_search_run(ctx, params, NULL, &s, &opts, &other), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "a checkpoint of another search"));
    tess_ctx_destroy(stopping);
    remove(path);
}

/* ---- what is listed -------------------------------------------------------------------------- */

static void fronts_hold_what_nothing_dominates(void **state)
{
    (void)state;
    const tess_scenario s = shipped("gpt-175b-96");
    const int gpus[] = {96, 24, 192, 48, 384};
    tess_search *search = searched(
        ctx, &s,
        &(tess_search_opts){.over = wide, .n_over = WIDE, .gpus = gpus, .n_gpus = 5, .price = 2.0});
    const int n = tess_search_count(search, TESS_SEARCH_FRONT_GPUS);
    const int m = tess_search_count(search, TESS_SEARCH_FRONT_COST);
    tess_search_point a, b;
    assert_true(n > 1 && m > 1);
    for (int i = 1; i < n; i++) {
        CHECK_OK(tess_search_get(search, TESS_SEARCH_FRONT_GPUS, i - 1, &a));
        CHECK_OK(tess_search_get(search, TESS_SEARCH_FRONT_GPUS, i, &b));
        assert_true(a.result.scenario.layout.gpus < b.result.scenario.layout.gpus);
        assert_true(a.result.step_s > b.result.step_s);
    }
    for (int i = 1; i < m; i++) {
        CHECK_OK(tess_search_get(search, TESS_SEARCH_FRONT_COST, i - 1, &a));
        CHECK_OK(tess_search_get(search, TESS_SEARCH_FRONT_COST, i, &b));
        assert_true(a.result.step_s < b.result.step_s && a.cost > b.cost);
        assert_true(b.cost == b.result.gpu_hours * 2.0);
    }
    CHECK_OK(tess_search_get(search, TESS_SEARCH_NEAREST, 0, &a));
    assert_true(a.lacking > 0.0 && !a.result.memory.fits);
    assert_true(a.fit != TESS_FIT_YES && a.peak_high > a.result.memory.capacity);
    assert_string_equal(tess_search_key(search, 0), "layout.gpus");
    assert_null(tess_search_key(search, 1 + WIDE));
    assert_null(tess_search_value(search, 0, -1));
    tess_search_destroy(search);
}

static void what_does_not_fit_or_is_late_is_named(void **state)
{
    (void)state;
    const tess_scenario s = shipped("gpt-175b-96");
    tess_search_info info;
    tess_search_point p;
    tess_search *search =
        searched(ctx, &s, &(tess_search_opts){.over = wide, .n_over = WIDE, .memory_limit = 8e9});
    CHECK_OK(tess_search_query(search, &info));
    assert_int_equal(info.feasible, 0);
    assert_int_equal(tess_search_count(search, TESS_SEARCH_TOP), 0);
    CHECK_OK(tess_search_get(search, TESS_SEARCH_NEAREST, 0, &p));
    assert_true(p.lacking == p.result.memory.peak - 8e9);
    tess_search_destroy(search);
    search = searched(
        ctx, &s, &(tess_search_opts){.over = wide, .n_over = WIDE, .deadline = 1.0, .steps = 1.0});
    CHECK_OK(tess_search_query(search, &info));
    assert_int_equal(info.feasible, 0);
    CHECK_OK(tess_search_get(search, TESS_SEARCH_LATE, 0, &p));
    int64_t feasible;
    assert_true(p.result.step_s == brute_force("gpt-175b-96", &feasible));
    tess_search_destroy(search);
}

static void check_refused(const tess_scenario *s, const char *key, const char *values,
                          const char *sentence)
{
    tess_search *search = NULL;
    const tess_search_axis over = {key, values};
    const tess_search_opts opts = {.over = &over, .n_over = 1};
    assert_int_equal(tess_search_run(ctx, params, NULL, s, &opts, &search), TESS_EINVAL);
    if (!strstr(tess_last_error(), sentence))
        fail_msg("%s lacks: %s", tess_last_error(), sentence);
    assert_null(search);
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    const tess_scenario s = shipped("gpt-175b-96");
    tess_scenario nowhere = s;
    nowhere.system.cluster[0] = 0;
    check_refused(&s, "layout.tq", "1,2", "no setting \"layout.tq\"; did you mean \"layout.tp\"?");
    check_refused(&s, "micro_bach", "1", "did you mean \"micro_batch\"?");
    check_refused(&s, "layout.tp", "1,x", "layout.tp is \"x\", must be an integer 0..65536");
    check_refused(&s, "layout.tp", "1,,2", "layout.tp has an empty value");
    check_refused(&s, "layout.tp", "", "layout.tp has an empty value");
    check_refused(&s, "tp", "2,4,2", "layout.tp has the value 2 twice");
    check_refused(&s, "tp", "32,64", "layout.gpus is 96, must be a multiple of tp x cp x pp, 384");
    check_refused(&s, "system.cluster", "h100,h1000", "h1000");
    check_refused(&nowhere, "tp", "8", "names no cluster");
    const tess_search_axis twice[] = {{"layout.tp", "1"}, {"tp", "2"}};
    tess_search *search = NULL;
    assert_int_equal(tess_search_run(ctx, params, NULL, &s,
                                     &(tess_search_opts){.over = twice, .n_over = 2}, &search),
                     TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "layout.tp is given twice"));
    assert_int_equal(
        tess_search_run(ctx, params, NULL, &s, &(tess_search_opts){.deadline = 5.0}, &search),
        TESS_EINVAL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_best_is_that_of_brute_force),
    cmocka_unit_test(bounds_change_nothing),
    cmocka_unit_test(settings_by_the_rules_are_all_there_are),
    cmocka_unit_test(any_number_of_threads_gives_the_same),
    cmocka_unit_test(a_stopped_search_resumes_from_its_checkpoint),
    cmocka_unit_test(fronts_hold_what_nothing_dominates),
    cmocka_unit_test(what_does_not_fit_or_is_late_is_named),
    cmocka_unit_test(wrong_settings_are_refused),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
