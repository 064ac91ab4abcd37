/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse.c - passes that attend sparsely: against dense ones, against double precision on the
 * lists they chose, kept or selected again, and what they refuse. */
#include "sparse_reference.h"

static void every_kind_matches_double_precision_on_its_lists(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    static const tess_select_kind kinds[] = {TESS_SELECT_ORACLE, TESS_SELECT_SEARCH,
                                             TESS_SELECT_POOLED, TESS_SELECT_WINDOW};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_against_reference(kinds[i], NULL, TESS_PROXY_MEAN, &room);
}

static void every_predictor_matches_double_precision_on_its_lists(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    for (int proxy = 0; proxy <= TESS_PROXY_SOFTMAX; proxy++) {
        const tess_predictor_opts qk = {.proj_dim = 8}, plain = {TESS_PREDICT_HIDDEN, 8, 0, 3},
                                  rotated = {TESS_PREDICT_HIDDEN, 8, 1, 3};
        check_against_reference(TESS_SELECT_PREDICTOR, &qk, (tess_proxy)proxy, &room);
        check_against_reference(TESS_SELECT_PREDICTOR, &plain, (tess_proxy)proxy, &room);
        check_against_reference(TESS_SELECT_PREDICTOR, &rotated, (tess_proxy)proxy, &room);
    }
}

static void a_virtual_key_stands_for_what_is_dropped(void **state)
{
    (void)state;
    const tess_sparse_opts virtual = {.proj_dim = 8, .compensate = 1};
    const tess_predictor_opts qk = {.proj_dim = 8};
    check_against_reference(TESS_SELECT_PREDICTOR, &qk, TESS_PROXY_MEAN, &virtual);
    check_against_reference(TESS_SELECT_WINDOW, NULL, TESS_PROXY_MEAN, &virtual);
}

static void virtual_keys_stand_for_the_clusters_of_what_is_dropped(void **state)
{
    (void)state;
    static const int counts[] = {2, 7, 32};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const tess_sparse_opts room = {.proj_dim = 8, .compensate = counts[i]};
        const size_t n = (size_t)LAYERS * HEADS * (size_t)counts[i] * (size_t)config.head_dim;
        float *centroids = floats(n, 11);
        check_clusters(TESS_SELECT_ORACLE, NULL, TESS_PROXY_MEAN, &room, NULL, 0);
        check_clusters(TESS_SELECT_WINDOW, NULL, TESS_PROXY_MEAN, &room, centroids, 0);
        free(centroids);
    }
}

/* Keys far from their clusters' centroids come first. */
static void keys_may_be_chosen_by_the_error_of_their_virtual_key(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8, .compensate = 6};
    const tess_predictor_opts qk = {.proj_dim = 8};
    check_clusters(TESS_SELECT_ORACLE, NULL, TESS_PROXY_MEAN, &room, NULL, 1);
    check_clusters(TESS_SELECT_PREDICTOR, &qk, TESS_PROXY_MEAN, &room, NULL, 1);
    check_clusters(TESS_SELECT_PREDICTOR, &qk, TESS_PROXY_SOFTMAX, &room, NULL, 1);
}

static void groups_may_be_of_queries_of_one_content(void **state)
{
    (void)state;
    const tess_predictor_opts qk = {.proj_dim = 8};
    for (int group = TESS_GROUP_CONTENT; group <= TESS_GROUP_RANDOM; group++)
        for (int compensate = 0; compensate < 3; compensate++) {
            const tess_sparse_opts room = {
                .proj_dim = 8, .compensate = compensate * 2, .group = (tess_group)group};
            check_clusters(TESS_SELECT_ORACLE, NULL, TESS_PROXY_MEAN, &room, NULL, 0);
            check_clusters(TESS_SELECT_PREDICTOR, &qk, TESS_PROXY_MEAN, &room, NULL, 0);
        }
}

/* Those of all samples, found in a pass that renews them: kept by passes that do not. */
static void clusters_that_are_renewed_serve_later_passes(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.compensate = 5};
    const tess_pass_shape shape = shape_with(&room);
    const size_t n = (size_t)LAYERS * HEADS * 5 * (size_t)config.head_dim;
    float *first = floats(n, 1), *second = floats(n, 2);
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(TESS_SELECT_ORACLE, mixed[0], mixed[1], layers);
    world a = make_world(1, &config, &shape), b = make_world(2, &config, &shape);
    layers[0].renew = layers[1].renew = 1;
    attend.centroids = first;
    CHECK_OK(tess_pass_attend(a.pass, &attend));
    run_both(&a);
    attend.centroids = second;
    CHECK_OK(tess_pass_attend(b.pass, &attend));
    run_both(&b);
    assert_memory_equal(first, second, n * sizeof *first);
    check_same(&a, &b);
    layers[0].renew = layers[1].renew = 0;
    CHECK_OK(tess_model_zero_gradients(b.model));
    CHECK_OK(tess_pass_attend(b.pass, &attend));
    run_both(&b);
    assert_memory_equal(first, second, n * sizeof *first);
    check_same(&a, &b);
    attend.centroids = NULL;
    layers[0].renew = 1;
    CHECK_FAILS(tess_pass_attend(b.pass, &attend), TESS_EINVAL,
                "tess_pass_attend: layer 0: renew is 1, but centroids is NULL");
    drop_world(&a);
    drop_world(&b);
    free(first);
    free(second);
}

/* ---- keeping and selecting again ------------------------------------------------------------- */

static world run_kept(tess_keep keep, tess_dtype store, int64_t index_memory, int threads,
                      tess_select_kind kind, int reselected)
{
    const tess_sparse_opts room = {.proj_dim = 8,
                                   .index_memory = index_memory,
                                   .compensate = kind == TESS_SELECT_ORACLE   ? 1
                                                 : kind == TESS_SELECT_RANDOM ? 6
                                                                              : 0,
                                   .group = kind == TESS_SELECT_RANDOM      ? TESS_GROUP_RANDOM
                                            : kind == TESS_SELECT_PREDICTOR ? TESS_GROUP_CONTENT
                                                                            : TESS_GROUP_CUBE};
    tess_pass_shape shape = shape_with(&room);
    shape.keep = keep;
    shape.store = store;
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(kind, mixed[0], mixed[1], layers);
    tess_attend_result result;
    world w = make_world(threads, &config, &shape);
    if (kind == TESS_SELECT_PREDICTOR)
        CHECK_OK(tess_predictor_create(w.ctx, &config, &(tess_predictor_opts){.proj_dim = 8},
                                       &attend.predictor));
    CHECK_OK(tess_pass_attend(w.pass, &attend));
    run_both(&w);
    for (int layer = 0; layer < LAYERS; layer++) {
        CHECK_OK(tess_pass_attend_result(w.pass, layer, &result));
        assert_int_equal(result.reselected, reselected);
        for (int i = 0; i < BATCH * HEADS; i++) /* every list has exactly its budget */
            assert_true(fabs(result.density[i] - (mixed[layer][i] ? mixed[layer][i] / 75.0 : 1.0)) <
                        1e-12);
    }
    tess_predictor_destroy(attend.predictor);
    return w;
}

enum { PLENTY = 1 << 20, NONE = 1 };

static void lists_kept_selected_again_or_run_again_give_the_same_bits(void **state)
{
    (void)state;
    static const tess_select_kind kinds[] = {TESS_SELECT_PREDICTOR, TESS_SELECT_ORACLE,
                                             TESS_SELECT_RANDOM};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        world first = run_kept(TESS_KEEP_ALL, TESS_DTYPE_F32, PLENTY, 1, kinds[i], 0);
        for (int choice = 1; choice < 8; choice++) {
            const int none = choice & 2;
            world w = run_kept(choice & 1 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, TESS_DTYPE_F32,
                               none ? NONE : PLENTY, choice & 4 ? 2 : 1, kinds[i], none != 0);
            check_same(&first, &w);
            drop_world(&w);
        }
        drop_world(&first);
    }
}

/* As for dense passes, see test_pass.c; a list selected again from rounded numbers may have other
 * keys, but only where two had nearly the same score. */
static void halves_change_gradients_by_their_rounding_alone(void **state)
{
    (void)state;
    world exact = run_kept(TESS_KEEP_ALL, TESS_DTYPE_F32, PLENTY, 2, TESS_SELECT_PREDICTOR, 0);
    for (int choice = 0; choice < 4; choice++) {
        const int none = choice & 1;
        world w = run_kept(choice & 2 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, TESS_DTYPE_BF16,
                           none ? NONE : PLENTY, 2, TESS_SELECT_PREDICTOR, none);
        assert_memory_equal(exact.out, w.out, w.n_out * sizeof(float));
        const double off = apart(w.info.gradients, exact.info.gradients, w.info.count);
        assert_true(off > 1e-4 && off < (none ? 5e-2 : 1.1e-2));
        drop_world(&w);
    }
    drop_world(&exact);
}

static void a_pass_without_training_gives_the_same_output(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    tess_pass_shape train = shape_with(&room), forward = train;
    forward.train = 0;
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(TESS_SELECT_ORACLE, mixed[0], mixed[1], layers);
    world a = make_world(2, &config, &train), b = make_world(2, &config, &forward);
    CHECK_OK(tess_pass_attend(a.pass, &attend));
    CHECK_OK(tess_pass_attend(b.pass, &attend));
    run_forward(&a);
    run_forward(&b);
    assert_memory_equal(a.out, b.out, a.n_out * sizeof(float));
    drop_world(&a);
    drop_world(&b);
}

/* A selector made for another proxy or window must not serve. */
static void settings_of_before_leave_no_trace(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    const tess_pass_shape shape = shape_with(&room);
    tess_attend_layer layers[LAYERS];
    world a = make_world(2, &config, &shape), b = make_world(2, &config, &shape);
    tess_predictor *predictor = NULL;
    CHECK_OK(
        tess_predictor_create(a.ctx, &config, &(tess_predictor_opts){.proj_dim = 8}, &predictor));
    for (int i = 0; i < 2; i++) {
        tess_attend attend =
            attend_with(i ? TESS_SELECT_WINDOW : TESS_SELECT_PREDICTOR, mixed[0], mixed[1], layers);
        attend.predictor = predictor;
        attend.proxy = TESS_PROXY_CENTRE;
        attend.window[0] = 2;
        CHECK_OK(tess_pass_attend(a.pass, &attend));
        CHECK_OK(tess_pass_attend(a.pass, NULL));
        attend.proxy = TESS_PROXY_MEAN;
        attend.window[0] = 1;
        CHECK_OK(tess_pass_attend(a.pass, &attend));
        CHECK_OK(tess_pass_attend(b.pass, &attend));
        run_forward(&a);
        run_forward(&b);
        assert_memory_equal(a.out, b.out, a.n_out * sizeof(float));
    }
    tess_predictor_destroy(predictor);
    drop_world(&a);
    drop_world(&b);
}

static void random_lists_change_with_the_step_alone(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.max_density = 0.6};
    const tess_pass_shape shape = shape_with(&room);
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(TESS_SELECT_RANDOM, mixed[0], mixed[1], layers);
    world w = make_world(2, &config, &shape);
    float *first = malloc(w.n_out * sizeof *first);
    assert_non_null(first);
    for (int run = 0; run < 3; run++) {
        attend.step = run < 2 ? 7 : 8;
        CHECK_OK(tess_pass_attend(w.pass, &attend));
        run_forward(&w);
        if (run == 0)
            memcpy(first, w.out, w.n_out * sizeof *first);
        else
            assert_int_equal(memcmp(first, w.out, w.n_out * sizeof *first) != 0, run == 2);
    }
    free(first);
    drop_world(&w);
}

/* ---- searching now and then ------------------------------------------------------------------ */

/* The output of a forward pass of other clips for each draw, by SEARCH in a set, or by ORACLE. */
static void run_search(world *w, uint64_t at, int reuse, int set, uint64_t draw)
{
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(reuse < 0 ? TESS_SELECT_ORACLE : TESS_SELECT_SEARCH, mixed[0],
                                     mixed[1], layers);
    attend.step = at;
    attend.reuse = reuse < 0 ? 0 : reuse;
    attend.search = set;
    fill_normal(w->x, w->n_x, draw);
    CHECK_OK(tess_pass_attend(w->pass, &attend));
    run_forward(w);
}

static int as_oracle(const world *w, world *oracle, uint64_t draw)
{
    run_search(oracle, 0, -1, 0, draw);
    return memcmp(w->out, oracle->out, w->n_out * sizeof *w->out) == 0;
}

static void a_search_is_the_oracle_and_is_used_again(void **state)
{
    (void)state;
    const tess_sparse_opts keeps = {.searches = 2}, none = {0};
    tess_pass_shape searches = shape_with(&keeps), plain = shape_with(&none);
    searches.train = plain.train = 0;
    world w = make_world(2, &config, &searches), oracle = make_world(2, &config, &plain);
    for (int set = 0; set < 2; set++) {
        run_search(&w, 7, 2, set, 10 + (uint64_t)set);
        assert_true(as_oracle(&w, &oracle, 10 + (uint64_t)set));
    }
    for (int set = 0; set < 2; set++) { /* each set has the lists of its own clips and heads */
        run_search(&w, 8, 2, set, 10 + (uint64_t)set);
        assert_true(as_oracle(&w, &oracle, 10 + (uint64_t)set));
        run_search(&w, 9, 2, set, 12); /* other clips need others */
        assert_false(as_oracle(&w, &oracle, 12));
        run_search(&w, 9, 2, set, 10 + (uint64_t)set); /* and did not replace them */
        assert_true(as_oracle(&w, &oracle, 10 + (uint64_t)set));
    }
    run_search(&w, 10, 2, 0, 12); /* three steps behind */
    assert_true(as_oracle(&w, &oracle, 12));
    run_search(&w, 10, 2, 0, 13); /* the same step is another one's */
    assert_true(as_oracle(&w, &oracle, 13));
    run_search(&w, 3, 2, 0, 14); /* and so is an earlier one */
    assert_true(as_oracle(&w, &oracle, 14));
    CHECK_OK(tess_pass_attend(w.pass, NULL));
    run_search(&w, 4, 2, 0, 15);
    assert_true(as_oracle(&w, &oracle, 15));
    drop_world(&w);
    drop_world(&oracle);
}

/* A head of another budget is searched anew, the others are not. */
static void another_budget_is_searched_for(void **state)
{
    (void)state;
    static const int32_t before[BATCH * HEADS] = {9, 0, 20, 13, 5, 33},
                                        after[BATCH * HEADS] = {9, 0, 21, 13, 5, 33};
    const tess_sparse_opts room = {.searches = 1};
    tess_pass_shape shape = shape_with(&room);
    shape.train = 0;
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(TESS_SELECT_SEARCH, before, NULL, layers);
    tess_attend_result result;
    world w = make_world(2, &config, &shape);
    attend.reuse = 5;
    CHECK_OK(tess_pass_attend(w.pass, &attend));
    run_forward(&w);
    attend.step++;
    layers[0].keys = after;
    CHECK_OK(tess_pass_attend(w.pass, &attend));
    run_forward(&w);
    CHECK_OK(tess_pass_attend_result(w.pass, 0, &result));
    for (int i = 0; i < BATCH * HEADS; i++)
        assert_true(fabs(result.density[i] - (after[i] ? after[i] / 75.0 : 1.0)) < 1e-12);
    drop_world(&w);
}

static void stored_searches_are_in_the_predicted_memory(void **state)
{
    (void)state;
    const tess_sparse_opts none = {0}, two = {.searches = 2};
    tess_model_memory need[2];
    tess_pass_shape shape = shape_with(&none);
    shape.train = 0;
    CHECK_OK(tess_model_need(&config, NULL, &shape, 2, &need[0]));
    shape.sparse = &two;
    CHECK_OK(tess_model_need(&config, NULL, &shape, 2, &need[1]));
    assert_in_range(need[1].total - need[0].total, 2 * LISTS * GROUPS * 10,
                    2 * LISTS * (GROUPS * 10 + 32) + 128); /* 10 bytes hold 75 bits */
    tess_ctx_info info;
    world w = make_world(2, &config, &shape);
    run_search(&w, 1, 3, 1, 5);
    CHECK_OK(tess_ctx_query(w.ctx, &info));
    assert_in_range(info.bytes_peak, need[1].total * 4 / 5, need[1].total);
    drop_world(&w);
}

static void keys_may_be_selected_by_cubes(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.unit_cubes = 1};
    const tess_pass_shape shape = shape_with(&room);
    static const int32_t keys[BATCH * HEADS] = {1, 2, 12, 5, 4, 3};
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(TESS_SELECT_POOLED, keys, NULL, layers);
    tess_attend_result result;
    world w = make_world(1, &config, &shape);
    CHECK_OK(tess_pass_attend(w.pass, &attend));
    run_both(&w);
    CHECK_OK(tess_pass_attend_result(w.pass, 0, &result));
    assert_true(result.density[2] == 1.0 && result.density[0] < 0.25 && result.density[0] > 0.01);
    CHECK_OK(tess_pass_attend_result(w.pass, 1, &result));
    assert_true(result.density[0] == 1.0 && !result.reselected);
    drop_world(&w);
}

/* What is needed is predicted, at most: what selectors take depends on their kind, and is a
 * small part in passes that are not as small as these. */
static void the_memory_taken_is_what_is_needed_at_most(void **state)
{
    (void)state;
    for (int choice = 0; choice < 32; choice++) {
        const tess_sparse_opts room = {.proj_dim = choice & 1 ? 16 : 0,
                                       .unit_cubes = choice >> 1 & 1,
                                       .compensate = choice & 2 ? choice & 8 ? 9 : 1 : 0,
                                       .group = choice & 4 ? TESS_GROUP_CONTENT : TESS_GROUP_CUBE,
                                       .learn_rows = choice & 1 && choice & 4 ? 7 : 0,
                                       .index_memory = choice & 4 ? NONE : 0};
        static const int32_t few[2][BATCH * HEADS] = {{1, 2, 0, 1, 3, 2}, {5, 4, 3, 5, 7, 12}};
        tess_pass_shape shape = shape_with(&room);
        tess_attend_layer layers[LAYERS];
        shape.keep = choice & 8 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL;
        shape.train = choice & 16 ? 0 : 1;
        world w = make_world(2, &config, &shape);
        tess_ctx_info info;
        tess_model_memory need;
        CHECK_OK(tess_model_need(&config, &(tess_model_opts){.gradients = shape.train}, &shape, 2,
                                 &need));
        const tess_attend attend = attend_with(choice & 2   ? TESS_SELECT_POOLED
                                               : choice & 4 ? TESS_SELECT_ORACLE
                                                            : TESS_SELECT_RANDOM,
                                               few[0], few[1], layers);
        CHECK_OK(tess_pass_attend(w.pass, &attend));
        shape.train ? run_both(&w) : run_forward(&w);
        CHECK_OK(tess_ctx_query(w.ctx, &info));
        assert_in_range(info.bytes_peak, need.total * 4 / 5, need.total);
        const int64_t allocations = info.allocations;
        CHECK_OK(tess_pass_attend(w.pass, &attend));
        shape.train ? run_both(&w) : run_forward(&w);
        CHECK_OK(tess_ctx_query(w.ctx, &info));
        assert_int_equal(info.allocations, allocations); /* nothing grows any more */
        drop_world(&w);
    }
}

static tess_status count_hook(void *user, const tess_hook_in *hook)
{
    assert_non_null(hook->q_low);
    ++*(int *)user;
    return TESS_OK;
}

/* Learns and calls its hook as one with room for lists, to the bit, and takes no more than a dense
 * pass and the predictor do. */
static void a_pass_without_lists_learns_and_calls_its_hook(void **state)
{
    (void)state;
    world worlds[2];
    tess_predictor *predictors[2];
    tess_predictor_info info[2];
    tess_model_memory need[2];
    for (int i = 0; i < 2; i++) {
        const tess_sparse_opts room = {.proj_dim = 16, .learn_rows = 9, .dense = i};
        const tess_pass_shape shape = shape_with(&room);
        tess_attend_layer layers[LAYERS] = {{.learn = 1, .hook = 1}, {.learn = 1, .hook = 1}};
        int calls = 0;
        CHECK_OK(tess_model_need(&config, NULL, &shape, 1, &need[i]));
        worlds[i] = make_world(1, &config, &shape);
        CHECK_OK(tess_predictor_create(worlds[i].ctx, &config, NULL, &predictors[i]));
        const tess_attend attend = {
            .layers = layers, .predictor = predictors[i], .hook = count_hook, .user = &calls};
        CHECK_OK(tess_pass_attend(worlds[i].pass, &attend));
        run_both(&worlds[i]);
        assert_int_equal(calls, LAYERS);
        CHECK_OK(tess_predictor_query(predictors[i], &info[i]));
    }
    check_same(&worlds[0], &worlds[1]);
    assert_memory_equal(info[0].gradients, info[1].gradients,
                        (size_t)info[0].count * sizeof(float));
    assert_true(need[1].total < need[0].total && need[1].activations < need[0].activations);
    tess_attend_layer layers[LAYERS];
    const tess_attend attend = attend_with(TESS_SELECT_ORACLE, mixed[0], mixed[0], layers);
    CHECK_FAILS(tess_pass_attend(worlds[1].pass, &attend), TESS_EINVAL,
                "tess_pass_attend: layer 0: keys are given, but the pass was made with "
                "sparse.dense");
    for (int i = 0; i < 2; i++) {
        tess_predictor_destroy(predictors[i]);
        drop_world(&worlds[i]);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void a_pass_says_what_is_wrong_with_its_room(void **state)
{
    (void)state;
    const struct {
        tess_sparse_opts room;
        const char *sentence;
    } cases[] = {
        {{.unit_cubes = 2}, "tess_model_need: sparse.unit_cubes is 2, must be 0..1"},
        {{.compensate = -1}, "tess_model_need: sparse.compensate is -1, must be 0..64"},
        {{.dense = 2}, "tess_model_need: sparse.dense is 2, must be 0..1"},
        {{.proj_dim = 12},
         "tess_model_need: sparse.proj_dim is 12, must be 0 or a multiple of 8 up to 64"},
        {{.proj_dim = 8, .learn_rows = 76},
         "tess_model_need: sparse.learn_rows is 76, must be 0..75"},
        {{.learn_rows = 5}, "tess_model_need: sparse.proj_dim is 0, must be given with learn_rows"},
        {{.max_density = 1.5}, "tess_model_need: sparse.max_density is 1.5, must be 0..1"},
        {{.index_memory = -1},
         "tess_model_need: sparse.index_memory is -1, must be 0..4611686018427387903"},
        {{.searches = 1}, "tess_model_need: sparse.searches is 1, must be 0..0"},
    };
    tess_model_memory need;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tess_pass_shape shape = shape_with(&cases[i].room);
        CHECK_FAILS(tess_model_need(&config, NULL, &shape, 1, &need), TESS_EINVAL,
                    cases[i].sentence);
    }
    const tess_sparse_opts room = {0};
    tess_pass_shape shape = shape_with(&room);
    shape.cube = NULL;
    CHECK_FAILS(tess_model_need(&config, NULL, &shape, 1, &need), TESS_EINVAL,
                "tess_model_need: cube is NULL, must be given with sparse");
}

static void a_pass_says_how_it_cannot_attend(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8, .max_density = 0.5};
    const tess_pass_shape shape = shape_with(&room), dense_shape = shape_with(NULL);
    tess_attend_layer layers[LAYERS];
    tess_attend a = attend_with(TESS_SELECT_ORACLE, mixed[0], all_keys, layers);
    tess_attend_result result;
    world w = make_world(1, &config, &shape), dense = make_world(1, &config, &dense_shape);
    CHECK_FAILS(tess_pass_attend(NULL, &a), TESS_EINVAL, "tess_pass_attend: pass is NULL");
    CHECK_FAILS(tess_pass_attend(w.pass, &(tess_attend){0}), TESS_EINVAL,
                "tess_pass_attend: layers is NULL");
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 1: keys[0] is 75, must be 0..38: the pass has room for no "
                "more");
    CHECK_FAILS(tess_pass_attend(dense.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: keys are given, but the pass was made without sparse");
    layers[1].keys = NULL;
    layers[0].kind = TESS_SELECT_EDGES;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: kind is 5, must be a kind of selector but EDGES");
    layers[0].kind = TESS_SELECT_PREDICTOR;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: kind is PREDICTOR, but there is none");
    CHECK_OK(tess_predictor_create(w.ctx, &config, NULL, &a.predictor));
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: the predictor's proj_dim is 16, must be the pass's, 8");
    tess_predictor_destroy(a.predictor);
    a.predictor = NULL;
    layers[0].kind = TESS_SELECT_WINDOW;
    a.window[0] = 2, a.window[1] = 3;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: the window has 45 key units, the pass has room for 38");
    a.window[2] = 0;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: window[2] is 0, must be 1 or more");
    layers[0].keys = NULL;
    layers[0].hook = 1;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: hook is 1, but there is no callback");
    layers[0].hook = 2;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: hook is 2, must be 0 or 1");
    a.reuse = 1;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: reuse is 1, but the pass was made without searches");
    a.reuse = -1;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: reuse is -1, must be 0 or more");
    a.proxy = (tess_proxy)3;
    CHECK_FAILS(tess_pass_attend(w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: proxy is 3, must be 0..2");
    CHECK_FAILS(tess_pass_attend_result(w.pass, LAYERS, &result), TESS_EINVAL,
                "tess_pass_attend_result: layer is 2, must be 0..1");
    CHECK_FAILS(tess_pass_attend_result(w.pass, 0, NULL), TESS_EINVAL,
                "tess_pass_attend_result: result is NULL");
    drop_world(&w);
    drop_world(&dense);
}

static tess_status refuse(void *user, const tess_hook_in *l)
{
    (void)l;
    ++*(int *)user;
    return TESS_ESTOPPED;
}

static void a_hook_can_end_the_pass(void **state)
{
    (void)state;
    const tess_pass_shape shape = shape_with(NULL);
    int calls = 0;
    tess_attend_layer layers[LAYERS] = {{.hook = 1}, {.hook = 1}};
    const tess_attend a = {.layers = layers, .hook = refuse, .user = &calls};
    world w = make_world(1, &config, &shape);
    CHECK_OK(tess_pass_attend(w.pass, &a));
    assert_int_equal(tess_pass_forward(w.pass, &(tess_model_in){w.x, w.timestep, w.text}, w.out),
                     TESS_ESTOPPED);
    assert_int_equal(calls, 1);
    CHECK_FAILS(tess_pass_backward(w.pass, w.dout, NULL), TESS_EINVAL,
                "tess_pass_backward: there is no forward pass before it");
    CHECK_OK(tess_pass_attend(w.pass, NULL));
    run_both(&w);
    assert_int_equal(calls, 1);
    drop_world(&w);
}

static void new_settings_of_a_pass_end_what_a_forward_pass_left(void **state)
{
    (void)state;
    const tess_pass_shape shape = shape_with(NULL);
    world w = make_world(1, &config, &shape);
    run_forward(&w);
    CHECK_OK(tess_pass_attend(w.pass, NULL));
    CHECK_FAILS(tess_pass_backward(w.pass, w.dout, NULL), TESS_EINVAL,
                "tess_pass_backward: there is no forward pass before it");
    drop_world(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_hook_can_end_the_pass),
    cmocka_unit_test(new_settings_of_a_pass_end_what_a_forward_pass_left),
    cmocka_unit_test(a_sparse_pass_without_settings_is_dense),
    cmocka_unit_test(full_lists_are_dense),
    cmocka_unit_test(every_kind_matches_double_precision_on_its_lists),
    cmocka_unit_test(every_predictor_matches_double_precision_on_its_lists),
    cmocka_unit_test(a_virtual_key_stands_for_what_is_dropped),
    cmocka_unit_test(virtual_keys_stand_for_the_clusters_of_what_is_dropped),
    cmocka_unit_test(clusters_that_are_renewed_serve_later_passes),
    cmocka_unit_test(groups_may_be_of_queries_of_one_content),
    cmocka_unit_test(keys_may_be_chosen_by_the_error_of_their_virtual_key),
    cmocka_unit_test(lists_kept_selected_again_or_run_again_give_the_same_bits),
    cmocka_unit_test(halves_change_gradients_by_their_rounding_alone),
    cmocka_unit_test(a_pass_without_training_gives_the_same_output),
    cmocka_unit_test(settings_of_before_leave_no_trace),
    cmocka_unit_test(random_lists_change_with_the_step_alone),
    cmocka_unit_test(a_search_is_the_oracle_and_is_used_again),
    cmocka_unit_test(another_budget_is_searched_for),
    cmocka_unit_test(stored_searches_are_in_the_predicted_memory),
    cmocka_unit_test(keys_may_be_selected_by_cubes),
    cmocka_unit_test(the_memory_taken_is_what_is_needed_at_most),
    cmocka_unit_test(a_pass_without_lists_learns_and_calls_its_hook),
    cmocka_unit_test(a_pass_says_what_is_wrong_with_its_room),
    cmocka_unit_test(a_pass_says_how_it_cannot_attend),
};
RUN_TESTS(tests)
