/* SPDX-License-Identifier: Apache-2.0 */
/* test_optim.c - AdamW, Muon, clipping and the running average against double precision. */
#include "optim/optim.h"
#include "ref_optim.h"
#include "test.h"

#include <stdlib.h>

/* A vector of AdamW that decays, one that does not and is longer than a piece, and matrices of
 * Muon: wide, tall, square, a single row, and one too large for a thread alone. */
static const struct {
    int64_t rows, cols, count;
    int decay;
} layout[] = {
    {0, 0, 700, 1},     {0, 0, 2 * TESS_PIECE + 5, 0},
    {24, 100, 2400, 1}, {130, 40, 5200, 0},
    {33, 33, 1089, 1},  {1, 50, 50, 0},
    {0, 0, 1, 1},       {66, 4000, 264000, 1},
};
enum { SLOTS = sizeof layout / sizeof *layout, STEPS = 4 };

static const tess__optim_step rule = {
    .lr = 3e-3,
    .lr_muon = 0.02,
    .beta1 = 0.9,
    .beta2 = 0.99,
    .eps = 1e-8,
    .momentum = 0.95,
    .weight_decay = 0.1,
    .ema = 0.9,
    .scale = 0.5,
};

static int64_t make_slots(tess__optim_slot *slots)
{
    int64_t at = 0;
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = (tess__optim_slot){.at = at,
                                      .count = layout[i].count,
                                      .rows = layout[i].rows,
                                      .cols = layout[i].cols,
                                      .decay = layout[i].decay,
                                      .param = i};
        at += layout[i].count;
    }
    return at;
}

static float *buffer(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    fill_normal(x, (size_t)n, seed);
    return x;
}

static double *widen(const float *x, int64_t n)
{
    double *wide = calloc((size_t)n, sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; x && i < n; i++)
        wide[i] = x[i];
    return wide;
}

/* Some steps with gradients of their own; ends with the parameters and their average in value and
 * ema (n). */
static void run(const tess_ctx *shared, float *value, float *ema, int64_t n)
{
    tess_ctx *ctx = (tess_ctx *)shared; /* its counters change */
    tess__optim_slot slots[SLOTS];
    tess__optim optim;
    make_slots(slots);
    CHECK_OK(tess__optim_create(ctx, slots, SLOTS, 1, value, &optim));
    assert_int_equal(optim.total, n);
    tess_ctx_info before, after;
    CHECK_OK(tess_ctx_query(ctx, &before));
    for (int step = 1; step <= STEPS; step++) {
        float *gradient = buffer(n, 100 + (uint64_t)step);
        tess__optim_step now = rule;
        now.step = step;
        CHECK_OK(tess__optim_update(&optim, &now, value, gradient));
        free(gradient);
    }
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    memcpy(ema, optim.ema, (size_t)n * sizeof *ema);
    tess__optim_destroy(&optim);
}

static void run_reference(const float *start, double *value, double *ema, int64_t n)
{
    tess__optim_slot slots[SLOTS];
    double *m = widen(NULL, n), *v = widen(NULL, n);
    make_slots(slots);
    for (int64_t i = 0; i < n; i++)
        value[i] = ema[i] = start[i];
    for (int step = 1; step <= STEPS; step++) {
        float *gradient = buffer(n, 100 + (uint64_t)step);
        double *g = widen(gradient, n);
        for (int64_t i = 0; i < n; i++)
            g[i] *= rule.scale;
        for (int s = 0; s < SLOTS; s++) {
            const int64_t at = slots[s].at;
            const double decay = slots[s].decay ? rule.weight_decay : 0.0;
            ref_optim o = {step, rule.lr, rule.beta1, rule.beta2, rule.eps, rule.momentum};
            if (slots[s].rows == 0) {
                ref_adamw(slots[s].count, &o, decay, g + at, m + at, v + at, value + at);
                continue;
            }
            o.lr = rule.lr_muon;
            CHECK_OK(ref_muon(slots[s].rows, slots[s].cols, &o, decay, g + at, m + at, value + at));
        }
        const double start_decay = (1.0 + step) / (10.0 + step);
        for (int64_t i = 0; i < n; i++)
            ema[i] += (1.0 - fmin(rule.ema, start_decay)) * (value[i] - ema[i]);
        free(gradient);
        free(g);
    }
    free(m);
    free(v);
}

/* A parameter of magnitude 5 rounds by 5 * 2^-24 = 3e-7 in each of a few operations of 4 steps:
 * below 3e-6 of the largest. Muon's x is the end of 5 steps, each of which stretches a small
 * singular value, and its error, by up to 3.44: 3.44^5 = 480 roundings of 2^-24, times lr 0.02 and
 * 4 steps, is 2.3e-6, times sqrt(130 / 40). */
static void check_matches(const tess_ctx *ctx)
{
    tess__optim_slot slots[SLOTS];
    const int64_t n = make_slots(slots);
    float *value = buffer(n, 1), *ema = buffer(n, 2);
    double *want = widen(NULL, n), *want_ema = widen(NULL, n);
    run_reference(value, want, want_ema, n);
    run(ctx, value, ema, n);
    for (int s = 0; s < SLOTS; s++) {
        CHECK_CLOSE(value + slots[s].at, want + slots[s].at, (size_t)slots[s].count, 8e-6);
        CHECK_CLOSE(ema + slots[s].at, want_ema + slots[s].at, (size_t)slots[s].count, 8e-6);
    }
    free(value);
    free(ema);
    free(want);
    free(want_ema);
}

static void optimisers_match_double_precision_on_every_isa(void **state)
{
    (void)state;
    on_every_isa(check_matches);
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 5};
    tess__optim_slot slots[SLOTS];
    const int64_t n = make_slots(slots);
    const size_t bytes = (size_t)n * sizeof(float);
    float *value[3], *ema[3];
    for (int t = 0; t < 3; t++) {
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = counts[t]}, &ctx));
        value[t] = buffer(n, 1);
        ema[t] = buffer(n, 2);
        run(ctx, value[t], ema[t], n);
        assert_memory_equal(value[0], value[t], bytes);
        assert_memory_equal(ema[0], ema[t], bytes);
        tess_ctx_destroy(ctx);
    }
    for (int t = 0; t < 3; t++) {
        free(value[t]);
        free(ema[t]);
    }
}

/* The step of Muon has singular values near 1: its rows, where there are fewer of them than
 * columns, have a length within what five iterations reach (0.68..1.13, some more for rows of
 * nearly equal singular values). */
static void muons_step_is_nearly_orthogonal(void **state)
{
    tess_ctx *ctx = *state;
    enum { ROWS = 20, COLS = 60, N = ROWS * COLS };
    const tess__optim_slot slot = {.count = N, .rows = ROWS, .cols = COLS};
    float *value = buffer(N, 1), *gradient = buffer(N, 2);
    tess__optim optim;
    memset(value, 0, N * sizeof *value);
    CHECK_OK(tess__optim_create(ctx, &slot, 1, 0, value, &optim));
    tess__optim_step step = rule;
    step.step = 1;
    step.lr_muon = 1.0;
    CHECK_OK(tess__optim_update(&optim, &step, value, gradient));
    for (int i = 0; i < ROWS; i++) {
        double length = 0.0;
        for (int j = 0; j < COLS; j++)
            length += (double)value[i * COLS + j] * value[i * COLS + j];
        assert_true(sqrt(length) > 0.6 && sqrt(length) < 1.25);
    }
    tess__optim_destroy(&optim);
    free(value);
    free(gradient);
}

static void a_gradient_of_zero_moves_nothing_but_decay(void **state)
{
    tess_ctx *ctx = *state;
    tess__optim_slot slots[SLOTS];
    const int64_t n = make_slots(slots);
    float *value = buffer(n, 1), *start = buffer(n, 1), *gradient = buffer(n, 2);
    memset(gradient, 0, (size_t)n * sizeof *gradient);
    tess__optim optim;
    CHECK_OK(tess__optim_create(ctx, slots, SLOTS, 0, value, &optim));
    tess__optim_step step = rule;
    step.step = 1;
    CHECK_OK(tess__optim_update(&optim, &step, value, gradient));
    for (int s = 0; s < SLOTS; s++) {
        const double lr = slots[s].rows ? rule.lr_muon : rule.lr;
        const float keep = slots[s].decay ? (float)(1.0 - lr * rule.weight_decay) : 1.0f;
        for (int64_t i = slots[s].at; i < slots[s].at + slots[s].count; i++)
            assert_true(value[i] == keep * start[i]);
    }
    tess__optim_destroy(&optim);
    free(value);
    free(start);
    free(gradient);
}

static void the_norm_is_of_all_gradients_and_sees_what_is_not_finite(void **state)
{
    tess_ctx *ctx = *state;
    tess__optim_slot slots[SLOTS];
    const int64_t n = make_slots(slots);
    float *g = buffer(n, 3);
    tess__optim optim;
    CHECK_OK(tess__optim_create(ctx, slots, SLOTS, 0, g, &optim));
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * g[i];
    /* Sums of n = 4e5 doubles in another order: n * 2^-53 at worst. */
    assert_true(fabs(tess__optim_squares(&optim, g) / sum - 1.0) < 1e-10);
    g[n - 1] = INFINITY;
    assert_true(isinf(tess__optim_squares(&optim, g)));
    g[0] = NAN;
    assert_true(isnan(tess__optim_squares(&optim, g)));
    tess__optim_destroy(&optim);
    free(g);
}

static void swapping_twice_is_nothing(void **state)
{
    tess_ctx *ctx = *state;
    tess__optim_slot slots[SLOTS];
    const int64_t n = make_slots(slots);
    const size_t bytes = (size_t)n * sizeof(float);
    float *value = buffer(n, 1), *start = buffer(n, 1);
    tess__optim optim;
    CHECK_OK(tess__optim_create(ctx, slots, SLOTS, 1, value, &optim));
    fill_normal(optim.ema, (size_t)n, 7);
    float *average = buffer(n, 7);
    tess__optim_swap(&optim, value);
    assert_memory_equal(value, average, bytes);
    assert_memory_equal(optim.ema, start, bytes);
    tess__optim_swap(&optim, value);
    assert_memory_equal(value, start, bytes);
    assert_memory_equal(optim.ema, average, bytes);
    tess__optim_destroy(&optim);
    free(value);
    free(start);
    free(average);
}

static void the_need_is_what_is_allocated(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2)
        for (int ema = 0; ema <= 1; ema++) {
            tess_ctx *ctx = NULL;
            CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
            tess__optim_slot slots[SLOTS];
            const int64_t n = make_slots(slots);
            float *value = buffer(n, 1);
            tess__optim optim;
            tess__optim_need need;
            tess_ctx_info info;
            tess__optim_measure(slots, NULL, SLOTS, ema, threads, &need);
            CHECK_OK(tess__optim_create(ctx, slots, SLOTS, ema, value, &optim));
            CHECK_OK(tess_ctx_query(ctx, &info));
            const int64_t total = need.moments + need.ema + need.workspace;
            assert_true(total <= info.bytes_now && info.bytes_now < total + 2048);
            tess__optim_destroy(&optim);
            tess_ctx_destroy(ctx);
            free(value);
        }
}

static int open_context(void **state)
{
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2}, (tess_ctx **)state) != TESS_OK;
}

static int close_context(void **state)
{
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(optimisers_match_double_precision_on_every_isa),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test(muons_step_is_nearly_orthogonal),
    cmocka_unit_test(a_gradient_of_zero_moves_nothing_but_decay),
    cmocka_unit_test(the_norm_is_of_all_gradients_and_sees_what_is_not_finite),
    cmocka_unit_test(swapping_twice_is_nothing),
    cmocka_unit_test(the_need_is_what_is_allocated),
};
RUN_TESTS_WITH(tests, open_context, close_context)
