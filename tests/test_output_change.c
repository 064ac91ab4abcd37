/* SPDX-License-Identifier: Apache-2.0 */
/* test_output_change.c - the change of a layer's output by sparse attention, against double
 * precision, and the density that a limit of the change needs. */
#include "model/observe.h"
#include "test.h"

#include <stdlib.h>

enum { HEADS = 2, DIM = 16, SIDE = 4, TOKENS = SIDE * SIDE * SIDE, GROUPS = 8, TRIALS = 5 };
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

/* spread: of q and k; scores have a standard deviation of spread^2. */
static layer *make(int threads, int compensate, tess_group group, float spread)
{
    layer *l = calloc(1, sizeof *l);
    int32_t n;
    assert_non_null(l);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &l->ctx));
    l->arena.ctx = l->ctx;
    CHECK_OK(tess_random_normal(5, 0, 0, &l->q[0][0][0], HEADS * TOKENS * DIM));
    CHECK_OK(tess_random_normal(5, 1, 0, &l->k[0][0][0], HEADS * TOKENS * DIM));
    CHECK_OK(tess_random_normal(5, 2, 0, &l->v[0][0][0], HEADS * TOKENS * DIM));
    for (int i = 0; i < HEADS * TOKENS * DIM; i++) {
        (&l->q[0][0][0])[i] *= spread;
        (&l->k[0][0][0])[i] *= spread;
    }
    CHECK_OK(tess_order_cubes(grid, cube, l->perm, l->inverse, l->bounds, &n));
    assert_int_equal(n, GROUPS);
    l->order = (tess__order){{2, 2, 2}, GROUPS, l->perm, l->bounds};
    const tess__observer_opts opts = {.layers = 1,
                                      .heads = HEADS,
                                      .head_dim = DIM,
                                      .batch = 1,
                                      .tokens = TOKENS,
                                      .mass = 0.9,
                                      .error = 5.0 * HEADS,
                                      .compensate = compensate,
                                      .group = group};
    CHECK_OK(tess__observer_create(l->ctx, &l->arena, &opts, &l->observer));
    l->observer.orders = &l->order;
    l->observer.n_orders = 1;
    l->observer.inverse = l->inverse;
    l->observer.quartiles[0] = 2;
    return l;
}

static void measure(layer *l)
{
    const int64_t head = (int64_t)TOKENS * DIM;
    const tess_view q = {l->q, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_view k = {l->k, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_view v = {l->v, TESS_DTYPE_F32, HEADS * head, head, DIM};
    const tess_hook_in in = {.heads = HEADS, .q = &q, .k = &k, .v = &v};
    tess__sample_groups(&l->observer, &l->order);
    tess__sample_queries(&l->observer, &in);
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

static const double *change_of(const layer *l, int head)
{
    return l->observer.sums.cubes[0].change + (2 * HEADS + head) * TRIALS;
}

static double output_of(const layer *l, int head)
{
    return l->observer.sums.cubes[0].output[2 * HEADS + head];
}

/* ---- in double precision, with one virtual key ----------------------------------------------- */

static void softmax_of(const layer *l, int h, int row, double p[TOKENS])
{
    double sum = 0.0;
    for (int j = 0; j < TOKENS; j++) {
        p[j] = 0.0;
        for (int d = 0; d < DIM; d++)
            p[j] += (double)l->q[h][row][d] * (double)l->k[h][j][d] / sqrt(DIM);
        p[j] = exp(p[j]);
        sum += p[j];
    }
    for (int j = 0; j < TOKENS; j++)
        p[j] /= sum;
}

/* The `keys` keys of most mass over the rows of a group, as flags. */
static void choose(const layer *l, int h, int g, int keys, int chosen[TOKENS])
{
    double mass[TOKENS] = {0}, p[TOKENS];
    for (int row = 8 * g; row < 8 * g + 8; row++) {
        softmax_of(l, h, row, p);
        for (int j = 0; j < TOKENS; j++)
            mass[j] += p[j];
    }
    memset(chosen, 0, TOKENS * sizeof *chosen);
    for (int n = 0; n < keys; n++) {
        int best = -1;
        for (int j = 0; j < TOKENS; j++)
            if (!chosen[j] && (best < 0 || mass[j] > mass[best]))
                best = j;
        chosen[best] = 1;
    }
}

/* o (DIM) of one row on the chosen keys and a virtual key for the others; all NULL: on all keys. */
static void attend(const layer *l, int h, int row, const int *chosen, double o[DIM])
{
    double mean_k[DIM] = {0}, mean_v[DIM] = {0}, sum = 0.0, score = 0.0;
    int dropped = 0;
    memset(o, 0, DIM * sizeof *o);
    for (int j = 0; j < TOKENS; j++)
        dropped += chosen && !chosen[j];
    for (int j = 0; j < TOKENS; j++) {
        double s = 0.0;
        for (int d = 0; d < DIM; d++) {
            s += (double)l->q[h][row][d] * (double)l->k[h][j][d] / sqrt(DIM);
            if (chosen && !chosen[j]) {
                mean_k[d] += (double)l->k[h][j][d] / dropped;
                mean_v[d] += (double)l->v[h][j][d] / dropped;
            }
        }
        if (chosen && !chosen[j])
            continue;
        sum += exp(s);
        for (int d = 0; d < DIM; d++)
            o[d] += exp(s) * (double)l->v[h][j][d];
    }
    for (int d = 0; d < DIM; d++)
        score += (double)l->q[h][row][d] * mean_k[d] / sqrt(DIM);
    const double weight = dropped * exp(score);
    for (int d = 0; d < DIM; d++)
        o[d] = (o[d] + weight * mean_v[d]) / (sum + weight);
}

static void changes_are_those_of_double_precision(void **state)
{
    (void)state;
    layer *l = make(2, 1, TESS_GROUP_CUBE, 1.3f);
    measure(l);
    for (int h = 0; h < HEADS; h++) {
        double output = 0.0, change[TRIALS] = {0};
        for (int row = 0; row < TOKENS; row++) {
            double dense[DIM], sparse[DIM];
            int chosen[TOKENS];
            attend(l, h, row, NULL, dense);
            for (int d = 0; d < DIM; d++)
                output += dense[d] * dense[d];
            for (int i = 0; i < TRIALS; i++) {
                choose(l, h, row / 8, TOKENS >> (TRIALS - i), chosen);
                attend(l, h, row, chosen, sparse);
                for (int d = 0; d < DIM; d++)
                    change[i] += (sparse[d] - dense[d]) * (sparse[d] - dense[d]);
            }
        }
        /* Differences of floats near 1, squared and summed: 1e-6 of the output. */
        assert_true(fabs(output_of(l, h) - output) < 1e-5 * output);
        for (int i = 0; i < TRIALS; i++)
            assert_true(fabs(change_of(l, h)[i] - change[i]) < 1e-5 * output);
        assert_true(change[0] > change[TRIALS - 1]);
    }
    end(l);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int group = TESS_GROUP_CUBE; group <= TESS_GROUP_RANDOM; group++) {
        layer *one = make(1, 8, (tess_group)group, 1.0f),
              *four = make(4, 8, (tess_group)group, 1.0f);
        measure(one);
        measure(four);
        assert_memory_equal(one->observer.sums.cubes[0].all, four->observer.sums.cubes[0].all,
                            (size_t)one->observer.sums.cubes[0].n * sizeof(double));
        end(one);
        end(four);
    }
}

static double all_changes(const layer *l)
{
    double sum = 0.0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < TRIALS; i++)
            sum += change_of(l, h)[i];
    return sum;
}

/* Queries in 8 directions, scattered over all cubes; each direction has keys of its own. */
static void place_by_content(layer *l)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < TOKENS; i++)
            for (int d = 0; d < DIM; d++) {
                const float far = d == 2 * (i % 8) ? 6.0f : 0.0f;
                l->q[h][i][d] = 0.1f * l->q[h][i][d] + far;
                l->k[h][i][d] = 0.1f * l->k[h][i][d] + far;
            }
}

static void clusters_and_groups_by_content_change_less(void **state)
{
    (void)state;
    const struct {
        int compensate;
        tess_group group;
    } cases[] = {{1, TESS_GROUP_CUBE}, {8, TESS_GROUP_CUBE}, {1, TESS_GROUP_CONTENT}};
    double change[3];
    for (int i = 0; i < 3; i++) {
        layer *l = make(2, cases[i].compensate, cases[i].group, 1.0f);
        place_by_content(l);
        measure(l);
        change[i] = all_changes(l);
        end(l);
    }
    assert_true(change[1] < 0.1 * change[0]);
    assert_true(change[2] < 0.5 * change[0]);
}

/* ---- densities ------------------------------------------------------------------------------- */

static void densities_are_interpolated(void **state)
{
    (void)state;
    layer *l = make(1, 1, TESS_GROUP_CUBE, 1.0f);
    static const struct {
        double change[TRIALS], want; /* in % of the loss; the limit is 5 % for each head */
    } cases[] = {
        {{80, 40, 20, 10, 5}, 0.5},
        {{40, 20, 10, 5, 2.5}, 0.25},
        {{40, 20, 10, 2.5, 1}, 0.17677669529663689}, /* half way between 1/8 and 1/4 in logs */
        {{4, 3, 2, 1, 0.5}, 1.0 / 32},
        {{80, 60, 50, 40, 30}, 1.0},
        {{80, 4, 20, 4, 1},
         0.22709268116512893}, /* the next smaller one that suffices is not trusted */
        {{80, NAN, 0, 0, 0}, 0.125},
        {{1, 1, 1, 1, NAN}, 1.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess__cube_sums *s = &l->observer.sums.cubes[0];
        double density[HEADS];
        s->profiles[0] = 2.0;
        s->queries[0] = 30.0;
        l->observer.calibration = 0.5;
        for (int h = 0; h < HEADS; h++) {
            s->gradient[h] = h ? 4.0 : 1.0;
            for (int t = 0; t < TRIALS; t++) /* 100 * 0.5 gradient change / (2 * 30 DIM) */
                s->change[h * TRIALS + t] =
                    cases[i].change[t] * 60.0 * DIM / (50.0 * s->gradient[h]);
        }
        tess__change_densities(&l->observer, 0, 0, 0, 0, density);
        for (int h = 0; h < HEADS; h++)
            assert_true(fabs(density[h] - cases[i].want) < 1e-12);
        s->gradient[1] = 0.0; /* nothing is known of it */
        tess__change_densities(&l->observer, 0, 0, 0, 0, density);
        assert_true(fabs(density[0] - cases[i].want) < 1e-12 && isnan(density[1]));
    }
    end(l);
}

/* A model that is linear in the attention output, y = J o with a random J: the change that follows
 * from one gradient is that of the model's output. Both are sums over 1024 and more products of
 * random numbers, of which 10 % is three standard deviations. */
static void gradients_give_the_change_of_a_linear_model(void **state)
{
    (void)state;
    enum { OUTPUTS = 1024, IN = HEADS * TOKENS * DIM };
    static const double slope = 0.03;
    layer *l = make(2, 1, TESS_GROUP_CUBE, 1.0f);
    float *jacobian = malloc(sizeof(float) * OUTPUTS * IN), *delta = malloc(sizeof(float) * IN);
    float *gradient = calloc(IN, sizeof *gradient), residual[OUTPUTS], out[OUTPUTS];
    double loss = 0.0, moved[HEADS] = {0};
    assert_true(jacobian && delta && gradient);
    CHECK_OK(tess_random_normal(7, 0, 0, jacobian, (size_t)OUTPUTS * IN));
    CHECK_OK(tess_random_normal(7, 1, 0, delta, IN));
    CHECK_OK(tess_random_normal(7, 2, 0, residual, OUTPUTS));
    for (int m = 0; m < OUTPUTS; m++) {
        loss += (double)residual[m] * (double)residual[m] / OUTPUTS;
        out[m] = (float)slope * residual[m];
        for (int i = 0; i < IN; i++)
            gradient[i] += out[m] * jacobian[(int64_t)m * IN + i];
        for (int h = 0; h < HEADS; h++) {
            double y = 0.0;
            for (int i = h * TOKENS * DIM; i < (h + 1) * TOKENS * DIM; i++)
                y += (double)jacobian[(int64_t)m * IN + i] * (double)delta[i];
            moved[h] += y * y / OUTPUTS;
        }
    }
    tess_pass pass = {.ctx = l->ctx, .observer = &l->observer};
    pass.z.batch = 1;
    pass.z.heads = HEADS;
    pass.z.head_dim = DIM;
    pass.z.local = TOKENS;
    l->observer.layers[0].profile = 1;
    tess__observe_weigh(&l->observer, out, 1, OUTPUTS, slope);
    tess__observe_gradient(&pass, 0,
                           &(tess_view){gradient, TESS_DTYPE_F32, IN, (int64_t)TOKENS * DIM, DIM});
    tess__cube_sums *s = &l->observer.sums.cubes[0];
    s->profiles[2] = 1.0;
    s->queries[2] = TOKENS;
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TRIALS; t++) {
            double *change = &s->change[(2 * HEADS + h) * TRIALS + t];
            *change = t < TRIALS - 1 ? 1e30 : 0.0;
            for (int i = h * TOKENS * DIM; t == TRIALS - 1 && i < (h + 1) * TOKENS * DIM; i++)
                *change += (double)delta[i] * (double)delta[i];
        }
    for (int h = 0; h < HEADS; h++) {
        double density[HEADS];
        const double percent = 100.0 * moved[h] / loss; /* of one of two heads */
        l->observer.opts.error = HEADS * percent * 1.1;
        tess__change_densities(&l->observer, 0, 0, 2, 0, density);
        assert_true(density[h] <= 0.5);
        l->observer.opts.error = HEADS * percent * 0.9;
        tess__change_densities(&l->observer, 0, 0, 2, 0, density);
        assert_true(density[h] == 1.0);
    }
    free(jacobian);
    free(delta);
    free(gradient);
    end(l);
}

static void memory_is_foreseen(void **state)
{
    (void)state;
    for (int group = TESS_GROUP_CUBE; group <= TESS_GROUP_CONTENT; group++) {
        layer *l = make(2, 8, (tess_group)group, 1.0f);
        tess_ctx_info before, after;
        CHECK_OK(tess_ctx_query(l->ctx, &before));
        measure(l);
        CHECK_OK(tess_ctx_query(l->ctx, &after));
        /* The selector's workspace is counted apart. */
        const int64_t took = after.bytes_peak - after.bytes_now;
        assert_true(took <= tess__change_bytes(&l->observer.opts, 8, 2));
        end(l);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(changes_are_those_of_double_precision),
    cmocka_unit_test(threads_do_not_change_a_bit),
    cmocka_unit_test(clusters_and_groups_by_content_change_less),
    cmocka_unit_test(densities_are_interpolated),
    cmocka_unit_test(gradients_give_the_change_of_a_linear_model),
    cmocka_unit_test(memory_is_foreseen),
};
RUN_TESTS(tests)
