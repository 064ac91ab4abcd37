/* SPDX-License-Identifier: Apache-2.0 */
/* test_topk.c - exact top-K and the score kernels, on every instruction set of this machine. */
#include "base/base_internal.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { N_MAX = 20000 };

static float x[N_MAX];
static int32_t want[N_MAX], got[N_MAX + TESS_TOPK_PAD], scratch[2 * (N_MAX + TESS_TOPK_PAD)];

/* By rank: NaN last, larger first, then the lower index. */
static int by_rank(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const int nan_i = x[i] != x[i], nan_j = x[j] != x[j];
    if (nan_i != nan_j)
        return nan_i - nan_j;
    if (!nan_i && x[i] != x[j])
        return x[i] > x[j] ? -1 : 1;
    return (i > j) - (i < j);
}

static int by_value(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return (i > j) - (i < j);
}

static void check(const tess__kernels *kernels, int32_t n, int32_t k)
{
    for (int32_t i = 0; i < n; i++)
        want[i] = i;
    qsort(want, (size_t)n, sizeof want[0], by_rank);
    qsort(want, (size_t)k, sizeof want[0], by_value);
    memset(got, 0xff, sizeof got);
    kernels->topk(got, x, n, k, scratch);
    for (int32_t i = 0; i < k; i++)
        if (got[i] != want[i])
            fail_msg("n %d, k %d: index %d is %d, must be %d", n, k, i, got[i], want[i]);
}

static void check_counts(const tess__kernels *kernels, int32_t n)
{
    const int32_t k[] = {1, 2, n / 50, n / 10, n / 3, n / 2, n - n / 10, n - 1, n};
    for (size_t i = 0; i < sizeof k / sizeof k[0]; i++)
        if (k[i] >= 1 && k[i] <= n)
            check(kernels, n, k[i]);
}

static const int32_t sizes[] = {1, 2, 7, 16, 63, 64, 65, 1000, 2047, 2048, 2049, 4099, 16384};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void random_scores(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    for (int s = 0; s < SIZES; s++) {
        CHECK_OK(tess_random_normal(7, (uint64_t)s, 0, x, N_MAX));
        check_counts(kernels, sizes[s]);
    }
}

static void topk_of_random_scores_is_exact(void **state)
{
    (void)state;
    on_every_isa(random_scores);
}

/* Few distinct values, then one alone; also both zeros, which are equal. */
static void equal_scores(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    for (int s = 0; s < SIZES; s++) {
        for (int values = 1; values <= 5; values += 2) {
            for (int32_t i = 0; i < N_MAX; i++)
                x[i] = (float)((i * 7919 >> 3) % values) - 2.0f;
            check_counts(kernels, sizes[s]);
        }
        for (int32_t i = 0; i < N_MAX; i++)
            x[i] = i % 3 ? 0.0f : -0.0f;
        check_counts(kernels, sizes[s]);
    }
}

static void topk_gives_ties_to_the_lowest_index(void **state)
{
    (void)state;
    on_every_isa(equal_scores);
}

static void odd_scores(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 1e-42f, -1e-42f, 3.4e38f, -3.4e38f};
    for (int s = 0; s < SIZES; s++) {
        for (int many = 0; many < 3; many++) {
            CHECK_OK(tess_random_normal(8, (uint64_t)s, 0, x, N_MAX));
            for (int32_t i = 0; i < N_MAX; i++)
                if (many == 2 || i % (many ? 2 : 11) == 0)
                    x[i] = odd[(i / 11) % 8];
            check_counts(kernels, sizes[s]);
        }
        for (int32_t i = 0; i < N_MAX; i++)
            x[i] = NAN;
        check_counts(kernels, sizes[s]);
    }
}

static void topk_ranks_nan_last_and_infinities_in_order(void **state)
{
    (void)state;
    on_every_isa(odd_scores);
}

/* What the sample sees is not what the rest looks like: the sample's places hold the largest. */
static void misleading_scores(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    const int32_t n = 16384, step = n / 512;
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)(i % 97);
    for (int32_t i = 0; i < 512; i++)
        x[i * step + i * 7 % step] = 1000.0f + (float)i;
    check_counts(kernels, n);
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)i;
    check_counts(kernels, n);
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)-i;
    check_counts(kernels, n);
}

static void topk_is_exact_when_its_sample_misleads(void **state)
{
    (void)state;
    on_every_isa(misleading_scores);
}

/* ---- scores ---------------------------------------------------------------------------------- */

enum { KEYS = 75, ROWS = 29, DIM = 72, FULL = 80, LD = FULL + 3 };

/* A chain of dim multiply-adds errs by at most dim * 2^-24 times the sum of the terms' sizes. */
static void scores(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    static float q[ROWS * (DIM + 5)], k[KEYS * (DIM + 1)], panels[FULL * DIM], s[ROWS * LD];
    CHECK_OK(tess_random_normal(9, 0, 0, q, ROWS * (DIM + 5)));
    CHECK_OK(tess_random_normal(9, 1, 0, k, KEYS * (DIM + 1)));
    kernels->panel_pack(panels, k, DIM + 1, KEYS, DIM);
    for (int rows = 1; rows <= ROWS; rows++) {
        for (int i = 0; i < ROWS * LD; i++)
            s[i] = -77.0f;
        kernels->score(s, LD, q, DIM + 5, rows, panels, FULL / TESS_PANEL, DIM);
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < LD; j++) {
                double sum = 0.0, size = 0.0;
                for (int d = 0; d < DIM && j < KEYS; d++) {
                    const double term = (double)q[i * (DIM + 5) + d] * k[j * (DIM + 1) + d];
                    sum += term;
                    size += fabs(term);
                }
                if (i >= rows || j >= FULL)
                    assert_true(s[i * LD + j] == -77.0f);
                else
                    assert_true(fabs(s[i * LD + j] - sum) <= DIM * 0x1p-24 * size);
            }
        }
    }
}

static void scores_match_double_precision(void **state)
{
    (void)state;
    on_every_isa(scores);
}

/* Exponents near 0 err by their own rounding, 20 * 2^-24, and 2^x by 1.9e-7; sums of 75 terms add
 * 75 * 2^-24 at most: 1e-5 covers them all. */
static void masses(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    static float s[ROWS * LD], m[ROWS], l[ROWS], lse2[ROWS], mass[KEYS];
    const float scale2 = 1.7f;
    CHECK_OK(tess_random_normal(10, 0, 0, s, ROWS * LD));
    double want_mass[KEYS] = {0};
    for (int i = 0; i < ROWS; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
    }
    /* Two steps of unequal length, as tiles of keys are. */
    kernels->lse_step(m, l, s, LD, ROWS, 50, scale2);
    kernels->lse_step(m, l, s + 50, LD, ROWS, KEYS - 50, scale2);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0.0;
        for (int j = 0; j < KEYS; j++)
            sum += exp2((double)scale2 * s[i * LD + j]);
        lse2[i] = m[i] + log2f(l[i]);
        assert_true(fabs(lse2[i] - log2(sum)) < 1e-5);
        for (int j = 0; j < KEYS; j++)
            want_mass[j] += exp2((double)scale2 * s[i * LD + j]) / sum;
    }
    memset(mass, 0, sizeof mass);
    kernels->mass_step(mass, s, LD, ROWS, KEYS, scale2, lse2);
    for (int j = 0; j < KEYS; j++)
        assert_true(fabs(mass[j] - want_mass[j]) < 1e-5 * want_mass[j]);
}

static void softmax_masses_match_double_precision(void **state)
{
    (void)state;
    on_every_isa(masses);
}

static void odd_masses(const tess_ctx *ctx)
{
    const tess__kernels *kernels = ctx->kernels;
    float s[3 * LD], m[3] = {-INFINITY, -INFINITY, -INFINITY}, l[3] = {0}, mass[KEYS] = {0};
    for (int j = 0; j < KEYS; j++) {
        s[j] = -INFINITY;
        s[LD + j] = j == 3 ? INFINITY : 0.0f;
        s[2 * LD + j] = 500.0f;
    }
    kernels->lse_step(m, l, s, LD, 3, KEYS, 1.0f);
    assert_true(m[0] == -INFINITY && l[0] == 0.0f);
    assert_false(isfinite(m[1] + log2f(l[1])));
    assert_true(m[2] == 500.0f && fabsf(l[2] - KEYS) < 1e-3f);
    /* A row set apart by an infinite lse adds nothing; one whose lse is far off stays finite. */
    kernels->mass_step(mass, s, LD, 3, KEYS, 1.0f, (float[]){INFINITY, INFINITY, 0.0f});
    for (int j = 0; j < KEYS; j++)
        assert_true(mass[j] == 0x1p64f);
}

static void rows_without_a_softmax_add_no_mass(void **state)
{
    (void)state;
    on_every_isa(odd_masses);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(topk_of_random_scores_is_exact),
    cmocka_unit_test(topk_gives_ties_to_the_lowest_index),
    cmocka_unit_test(topk_ranks_nan_last_and_infinities_in_order),
    cmocka_unit_test(topk_is_exact_when_its_sample_misleads),
    cmocka_unit_test(scores_match_double_precision),
    cmocka_unit_test(softmax_masses_match_double_precision),
    cmocka_unit_test(rows_without_a_softmax_add_no_mass),
};

RUN_TESTS(tests)
