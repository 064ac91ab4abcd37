/* SPDX-License-Identifier: Apache-2.0 */
/* test_bench.c - what check and bench conclude from numbers: samples, errors, break-even. */
#include "bench/problem_time.h"
#include "bench/verify.h"
#include "test.h"

#include <stdlib.h>

/* ---- check -------------------------------------------------------------------------------- */

static void samples_are_ascending_rows_with_both_ends(void **state)
{
    (void)state;
    static const int64_t cases[][2] = {{1, 1}, {1, 100}, {2, 2}, {2, 100}, {7, 7}, {64, 1000}};
    const workload w = {.p.seed = 3};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t count = cases[i][0], total = cases[i][1];
        int64_t rows[64];
        CHECK_OK(verify_sample(&w, 1, count, total, rows));
        for (int64_t r = 0; r < count; r++) {
            assert_in_range(rows[r], r * total / count, (r + 1) * total / count - 1);
            assert_true(r == 0 || rows[r] > rows[r - 1]);
        }
        assert_true(count == 1 || (rows[0] == 0 && rows[count - 1] == total - 1));
    }
}

static void only_large_problems_are_sampled(void **state)
{
    (void)state;
    assert_int_equal(verify_count(1000, 1e3, 0), 1000);
    assert_int_equal(verify_count(1000, 1e7, 0), 100);
    assert_int_equal(verify_count(1000, 1e7, 1), 1000);
    assert_int_equal(verify_count(1000, 1e12, 0), 2);
    assert_int_equal(verify_count(1, 1e12, 0), 1);
}

static double error_of(const float *got, const double *want, const int64_t *rows, int64_t count)
{
    double difference = 0, largest = 0;
    verdict v = {0};
    verify_widen(&(verify_rows){got, 3, want, rows, count, 2}, &difference, &largest);
    verify_add(&v, "o", difference, largest, 1e-6);
    assert_int_equal(v.n, 1);
    return v.outputs[0].error;
}

static void errors_are_relative_to_the_largest_value(void **state)
{
    (void)state;
    /* Rows of two elements at a distance of three. */
    const float got[] = {1, 2, 99, 3, 4.5f, 99, 5, 6};
    const double want[] = {1, 2, 3, 4, 5, 6}, last[] = {5, 6}, zero[] = {0, 0};
    const float nan_row[] = {NAN, 6}, zeros[] = {0, 0};
    const int64_t third[] = {2};
    assert_float_equal(error_of(got, want, NULL, 3), 0.5 / 6, 1e-12);
    assert_float_equal(error_of(got, last, third, 1), 0, 0);
    assert_true(isinf(error_of(nan_row, last, NULL, 1)));
    assert_true(isinf(error_of(got, zero, NULL, 1)));
    assert_float_equal(error_of(zeros, zero, NULL, 1), 0, 0);
}

/* ---- bench -------------------------------------------------------------------------------- */

/* A report of sparse attention of this density that takes `time` and its selection `choosing`,
 * where dense attention takes 1. */
static report point(const char *text, double density, double time, double choosing)
{
    char error[OPT_ERROR_MAX];
    report r = {.n = 1, .break_even = NAN};
    assert_int_equal(problem_parse(text, 0, &r.p, error), 0);
    r.p.density = density;
    r.rows[0] = (measured){.name = "sparse",
                           .density = density,
                           .over_ideal = time / density,
                           .speedup_over_dense = 1 / time,
                           .speedup_with_select = 1 / (time + choosing)};
    return r;
}

static void break_even_of_one_density_is_estimated(void **state)
{
    (void)state;
    /* 1.25 times the ideal time, and a tenth of dense for the selection: 1.25 d + 0.1 = 1. */
    report r = point("attn", 0.2, 0.25, 0.1);
    measure_break_even(&r, 1);
    assert_false(r.break_even_measured);
    assert_float_equal(r.break_even, 0.72, 1e-12);
    /* Faster than ideal: never beyond 1. A selection slower than dense: never below 0. */
    r = point("attn", 0.2, 0.1, 0);
    measure_break_even(&r, 1);
    assert_float_equal(r.break_even, 1, 0);
    r = point("attn", 0.2, 0.25, 2);
    measure_break_even(&r, 1);
    assert_float_equal(r.break_even, 0, 0);
}

static void break_even_lies_between_measured_densities(void **state)
{
    (void)state;
    report r[] = {point("attn", 0.9, 1.2, 0), point("attn", 0.1, 0.2, 0),
                  point("attn,heads=2", 0.7, 3, 0), point("attn", 0.5, 0.7, 0.1)};
    measure_break_even(r, 4);
    /* From 0.8 at 0.5 to 1.2 at 0.9: 1 in the middle. */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r[i].break_even_measured, i != 2);
        if (i != 2)
            assert_float_equal(r[i].break_even, 0.7, 1e-12);
    }
}

static void dense_problems_have_no_break_even(void **state)
{
    (void)state;
    report r = {.n = 1, .break_even = NAN, .rows = {{.name = "dense"}}};
    measure_break_even(&r, 1);
    assert_true(isnan(r.break_even));
}

static void work_is_counted_by_pass(void **state)
{
    (void)state;
    const problem p = {.batch = 2, .heads = 3, .dim = 8, .tokens_q = 10, .tokens_k = 20};
    problem fwd = p, both = p;
    fwd.forward = both.forward = both.backward = 1;
    assert_float_equal(workload_attn_flop(&fwd, 0.5), 0.5 * 4 * 10 * 20 * 8 * 6, 0);
    assert_float_equal(workload_attn_flop(&both, 1), 14.0 * 10 * 20 * 8 * 6, 0);
    const problem linear = {.m = 3, .n = 5, .k = 7, .forward = 1, .backward = 1};
    assert_float_equal(workload_linear_flop(&linear), 6.0 * 3 * 5 * 7, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(samples_are_ascending_rows_with_both_ends),
    cmocka_unit_test(only_large_problems_are_sampled),
    cmocka_unit_test(errors_are_relative_to_the_largest_value),
    cmocka_unit_test(break_even_of_one_density_is_estimated),
    cmocka_unit_test(break_even_lies_between_measured_densities),
    cmocka_unit_test(dense_problems_have_no_break_even),
    cmocka_unit_test(work_is_counted_by_pass),
};
RUN_TESTS(tests)
