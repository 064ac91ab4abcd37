/* SPDX-License-Identifier: Apache-2.0 */
/* test_observe_groups.c - cubes and groups by content compared, on data where it is known which of
 * them share keys better. */
#include "model/observe.h"
#include "test.h"

#include <stdlib.h>

enum { HEADS = 2, DIM = 16, SIDE = 4, TOKENS = SIDE * SIDE * SIDE, GROUPS = 8, EACH = 8 };
static const int grid[3] = {SIDE, SIDE, SIDE}, cube[3] = {2, 2, 2};

/* One layer of one sample, tokens in the order of the cubes. */
typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    tess__order order;
    int64_t perm[TOKENS], inverse[TOKENS], bounds[GROUPS + 1];
    float q[HEADS][TOKENS][DIM], k[HEADS][TOKENS][DIM], v[HEADS][TOKENS][DIM];
    tess__observer observer;
} layer;

/* Tokens look for the keys of one of 8 subjects, whose vectors have signs of their own. In head
 * 0 the queries of a cube look for all of them, in head 1 for one. Keys of all subjects are
 * everywhere. */
static void fill(layer *l)
{
    static float noise[HEADS * TOKENS * DIM];
    CHECK_OK(tess_random_normal(3, 0, 0, noise, HEADS * TOKENS * DIM));
    CHECK_OK(tess_random_normal(3, 1, 0, &l->v[0][0][0], HEADS * TOKENS * DIM));
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TOKENS; t++) {
            const int wanted = h ? t / EACH : t % EACH;
            for (int d = 0; d < DIM; d++)
                l->q[h][t][d] = 0.05f * noise[(h * TOKENS + t) * DIM + d];
            for (int bit = 0; bit < 3; bit++) { /* spread most along the first bit */
                l->q[h][t][bit] += (wanted >> bit & 1 ? 1.0f : -1.0f) * (float)(6 - bit);
                l->k[h][t][bit] = t * 5 % EACH >> bit & 1 ? 4.0f : -4.0f;
            }
        }
}

static layer *make(int threads, double error)
{
    static const uint8_t decided[HEADS] = {1, 0};
    layer *l = calloc(1, sizeof *l);
    int32_t n;
    assert_non_null(l);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &l->ctx));
    l->arena.ctx = l->ctx;
    fill(l);
    CHECK_OK(tess_order_cubes(grid, cube, l->perm, l->inverse, l->bounds, &n));
    assert_int_equal(n, GROUPS);
    l->order = (tess__order){{2, 2, 2}, GROUPS, l->perm, l->bounds};
    const tess__observer_opts opts = {.layers = 1,
                                      .heads = HEADS,
                                      .head_dim = DIM,
                                      .batch = 1,
                                      .tokens = TOKENS,
                                      .mass = 0.9,
                                      .error = error,
                                      .group = TESS_GROUP_AUTO};
    CHECK_OK(tess__observer_create(l->ctx, &l->arena, &opts, &l->observer));
    l->observer.orders = &l->order;
    l->observer.n_orders = 1;
    l->observer.inverse = l->inverse;
    l->observer.quartiles[0] = 2;
    l->observer.layers[0].dense = 1;
    l->observer.content = decided;
    return l;
}

static void measure(layer *l)
{
    const int64_t head = (int64_t)TOKENS * DIM;
    const tess_view q = {l->q, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_view k = {l->k, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_view v = {l->v, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_hook_in in = {.heads = HEADS, .q = &q, .k = &k, .v = &v};
    tess__sampled *s = &l->observer.sampled;
    tess__sample_groups(&l->observer, &l->order);
    tess__sample_queries(&l->observer, &in);
    const tess_sel_shape groups = {.batch = 1,
                                   .heads = HEADS,
                                   .tokens_q = s->rows,
                                   .tokens_k = TOKENS,
                                   .bounds_q = s->bounds,
                                   .n_q = s->groups,
                                   .unit = 1};
    const tess_view rows = tess__sampled_view(s, HEADS, s->q, DIM);
    const tess_density_in density = {
        .q = &rows, .k = &k, .head_dim = DIM, .groups = &groups, .mass = 0.9};
    CHECK_OK(tess__observe_groups(&l->observer, 0, &in, &density));
    if (l->observer.opts.error > 0.0)
        CHECK_OK(tess__observe_change(&l->observer, 0, &in));
}

static void end(layer *l)
{
    tess_ctx_info info;
    tess__observer_destroy(&l->observer);
    tess__arena_free(&l->arena);
    CHECK_OK(tess_ctx_query(l->ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(l->ctx);
    free(l);
}

/* A query's 8 keys are shared by its group, or each of them by one of 8: K of a group is 8, and its
 * best 8 keys hold an eighth of a cube's mass in head 0. */
static void overlap_shows_which_groups_share_keys(void **state)
{
    (void)state;
    double first[2 * HEADS];
    for (int threads = 1; threads <= 3; threads += 2) {
        layer *l = make(threads, 0.0);
        measure(l);
        const double *shared = l->observer.sums.cubes[0].shared;
        assert_true(fabs(shared[0] - 0.125) < 0.01);   /* head 0 in cubes */
        assert_true(fabs(shared[1] - 1.0) < 0.01);     /* head 1 in cubes */
        assert_true(fabs(shared[HEADS] - 1.0) < 0.01); /* and by content */
        assert_true(fabs(shared[HEADS + 1] - 1.0) < 0.01);
        assert_true(l->observer.sums.cubes[0].compared[0] == 1.0);
        if (threads == 1)
            memcpy(first, shared, sizeof first);
        assert_memory_equal(shared, first, sizeof first);
        end(l);
    }
}

/* Gradients by which a relative change of the layer's output by 1 changes the model's by 1 %. */
static void set_gradients(const layer *l)
{
    const tess__cube_sums *s = &l->observer.sums.cubes[0];
    double whole = 0.0;
    for (int h = 0; h < HEADS; h++)
        whole += s->output[2 * HEADS + h] / HEADS;
    s->profiles[2] = 1.0;
    for (int h = 0; h < HEADS; h++)
        s->gradient[2 * HEADS + h] = s->queries[2] * DIM / (100.0 * whole);
}

static void densities(const layer *l, double both[2 * HEADS])
{
    set_gradients(l);
    for (int content = 0; content < 2; content++)
        tess__change_densities(&l->observer, 0, 0, 2, content, both + content * HEADS);
}

/* 8 keys of 64 suffice where a group looks for one subject, not where it looks for 8. */
static void a_limit_of_error_shows_which_groups_need_fewer_keys(void **state)
{
    (void)state;
    double both[2 * HEADS], first[2 * HEADS];
    for (int threads = 1; threads <= 3; threads += 2) {
        layer *l = make(threads, 0.05 * HEADS);
        measure(l);
        densities(l, both);
        assert_true(both[0] > 0.5);
        assert_true(both[1] < 0.2 && both[HEADS] < 0.2 && both[HEADS + 1] < 0.2);
        assert_true(l->observer.sums.cubes[0].compared[0] == 1.0);
        if (threads == 1)
            memcpy(first, both, sizeof first);
        assert_memory_equal(both, first, sizeof first);
        end(l);
    }
}

/* A sparse layer is measured in the groups that were decided: head 0 by content, 1 in cubes. */
static void a_sparse_layer_is_measured_in_its_own_groups(void **state)
{
    (void)state;
    double both[HEADS];
    layer *l = make(1, 0.05 * HEADS);
    l->observer.layers[0].dense = 0;
    measure(l);
    set_gradients(l);
    tess__change_densities(&l->observer, 0, 0, 2, 0, both);
    assert_true(both[0] < 0.2 && both[1] < 0.2);
    assert_true(l->observer.sums.cubes[0].output2[2 * HEADS] == 0.0);
    end(l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(overlap_shows_which_groups_share_keys),
    cmocka_unit_test(a_limit_of_error_shows_which_groups_need_fewer_keys),
    cmocka_unit_test(a_sparse_layer_is_measured_in_its_own_groups),
};
RUN_TESTS(tests)
