/* SPDX-License-Identifier: Apache-2.0 */
/* test_stats.c - statistics of tensors against plain long double, and the same bits everywhere. */
#include "base/base_internal.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { MANY = 3 * TESS_SCAN_CHUNK * 9 + 777 }; /* enough chunks for threads to share, odd end */

static tess_tensor vector(tess_dtype dtype, const void *data, int64_t n)
{
    return (tess_tensor){.name = "x", .dtype = dtype, .rank = 1, .shape = {n}, .data = data};
}

static tess_stats reference(const tess_ctx *ctx, const tess_tensor *t)
{
    static double elements[MANY]; /* exact: the integers here are small */
    const int64_t n = t->shape[0];
    CHECK_OK(tess_convert(ctx, t->dtype, t->data, TESS_DTYPE_F64, elements, n));
    tess_stats r = {.count = n, .min = NAN, .max = NAN, .mean = NAN, .deviation = NAN};
    long double sum = 0.0L, squares = 0.0L;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const long double x = elements[i];
        r.nan += isnan(x), r.inf += isinf(x) != 0, r.zero += x == 0.0L;
        if (isnan(x))
            continue;
        r.min = isnan(r.min) || x < r.min ? (double)x : r.min;
        r.max = isnan(r.max) || x > r.max ? (double)x : r.max;
        finite += isfinite(x) != 0;
        sum += isfinite(x) ? x : 0.0L;
    }
    if (finite == 0)
        return r;
    const long double mean = sum / (long double)finite;
    for (int64_t i = 0; i < n; i++) {
        const long double x = elements[i];
        squares += isfinite(x) ? (x - mean) * (x - mean) : 0.0L;
    }
    r.mean = (double)mean;
    r.deviation = (double)sqrtl(squares / (long double)finite);
    return r;
}

static int same_or_nan(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Counts and range are exact. A lane adds up to 8192/16 = 512 terms, and merging adds a few
 * roundings per chunk, so the mean errs by less than 600 * 2^-53 = 7e-14 of the largest distance
 * from the pivot, itself below the range, and of the mean. The subtraction in m2 can magnify the
 * same error by the 8192 elements of a chunk: 6e-10 at worst, half of it for the root. */
static void check(const tess_ctx *ctx, const tess_tensor *t)
{
    tess_stats got, want = reference(ctx, t);
    CHECK_OK(tess_tensor_stats(ctx, t, &got));
    assert_int_equal(got.count, want.count);
    assert_int_equal(got.nan, want.nan);
    assert_int_equal(got.inf, want.inf);
    assert_int_equal(got.zero, want.zero);
    assert_true(same_or_nan(got.min, want.min) && same_or_nan(got.max, want.max));
    assert_false(got.min == 0.0 && signbit(got.min));
    if (isnan(want.mean)) {
        assert_true(isnan(got.mean) && isnan(got.deviation));
        return;
    }
    const double spread = want.deviation * sqrt((double)(want.count));
    assert_true(fabs(got.mean - want.mean) <= 7e-14 * (spread + fabs(want.mean)));
    assert_true(fabs(got.deviation - want.deviation) <=
                3e-10 * want.deviation + 1e-15 * fabs(want.mean));
}

static void fill_shifted(float *x, int64_t n, float scale, float shift)
{
    CHECK_OK(tess_random_normal(11, 0, 0, x, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * scale + shift;
}

static void all_types(const tess_ctx *ctx)
{
    static const int64_t lengths[] = {0, 1, 2, 15, 16, 17, 1023, 8192, 8193, 20000};
    static float x[20000];
    static _Alignas(64) char data[20000 * 8];
    fill_shifted(x, 20000, 40.0f, 3.0f);
    for (int dtype = 0; dtype < TESS_DTYPE_COUNT; dtype++) {
        CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, x, (tess_dtype)dtype, data, 20000));
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            const tess_tensor t = vector((tess_dtype)dtype, data, lengths[l]);
            check(ctx, &t);
        }
    }
}

static void every_type_and_length_agrees_with_the_reference(void **state)
{
    (void)state;
    on_every_isa(all_types);
}

/* Special values in every lane, at the ends of vectors, pieces and chunks; then nothing else. */
static void special_values(const tess_ctx *ctx)
{
    enum { N = 2 * TESS_SCAN_CHUNK + 5 };
    static const tess_dtype floats[] = {TESS_DTYPE_F32, TESS_DTYPE_BF16, TESS_DTYPE_F16,
                                        TESS_DTYPE_F64};
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    static float x[N];
    static _Alignas(64) char data[N * 8];
    for (int round = 0; round < 8; round++) {
        fill_shifted(x, N, 2.0f, -1.0f);
        for (int i = 0; i < N; i++)
            if (round >= 5 || i % 97 < round || i >= N - round || i < round)
                x[i] = specials[round < 5    ? (i + round) % 5
                                : round == 5 ? 0
                                : round == 6 ? 4
                                             : i % 2];
        for (size_t d = 0; d < 4; d++) {
            CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, x, floats[d], data, N));
            const tess_tensor t = vector(floats[d], data, N);
            check(ctx, &t);
        }
    }
}

static void nan_infinity_and_both_zeros_are_counted(void **state)
{
    (void)state;
    on_every_isa(special_values);
}

static void every_bit_pattern(const tess_ctx *ctx)
{
    static uint16_t all[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    const tess_tensor bf16 = vector(TESS_DTYPE_BF16, all, 65536),
                      f16 = vector(TESS_DTYPE_F16, all, 65536);
    tess_stats s;
    CHECK_OK(tess_tensor_stats(ctx, &bf16, &s));
    assert_true(s.nan == 2 * 127 && s.inf == 2 && s.zero == 2);
    assert_true(s.min == -(double)INFINITY && s.max == (double)INFINITY);
    CHECK_OK(tess_tensor_stats(ctx, &f16, &s));
    assert_true(s.nan == 2 * 1023 && s.inf == 2 && s.zero == 2);
    check(ctx, &f16);
}

static void all_16_bit_patterns_are_distinguished(void **state)
{
    (void)state;
    on_every_isa(every_bit_pattern);
}

/* A mean of 2^24 - 8 with a deviation near 1: squares without a pivot would leave no digit. */
static void hard_means(const tess_ctx *ctx)
{
    static float x[MANY];
    static double y[MANY];
    fill_shifted(x, MANY, 1.0f, 16777208.0f);
    x[0] = 0.0f; /* the first chunk's pivot lies far off */
    const tess_tensor t = vector(TESS_DTYPE_F32, x, MANY);
    check(ctx, &t);
    fill_shifted(x, MANY, 1.0f, 0.0f);
    static const double scales[] = {1e307, 1e-310, 1e-200, 1e160};
    for (size_t k = 0; k < 4; k++) {
        for (int i = 0; i < MANY; i++)
            y[i] = scales[k] * (double)x[i];
        const tess_tensor u = vector(TESS_DTYPE_F64, y, MANY);
        tess_stats s;
        CHECK_OK(tess_tensor_stats(ctx, &u, &s));
        /* Five deviations of a normal sample's own: 1/sqrt(n) and 1/sqrt(2 n). */
        assert_true(fabs(s.mean / scales[k]) < 5.0 / sqrt(MANY));
        assert_true(fabs(s.deviation / scales[k] - 1.0) < 5.0 / sqrt(2.0 * MANY));
    }
}

static void far_means_and_extreme_scales_keep_their_deviation(void **state)
{
    (void)state;
    on_every_isa(hard_means);
}

static tess_stats first_stats[TESS_DTYPE_COUNT];
static int have_first;

static void compare_bits(const tess_ctx *ctx)
{
    static float x[MANY];
    static _Alignas(64) char data[MANY * 8];
    fill_shifted(x, MANY, 100.0f, 10.0f);
    x[5000] = NAN, x[20000] = INFINITY, x[MANY - 1] = -0.0f;
    for (int dtype = 0; dtype < TESS_DTYPE_COUNT; dtype++) {
        CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, x, (tess_dtype)dtype, data, MANY));
        const tess_tensor t = vector((tess_dtype)dtype, data, MANY);
        tess_stats s;
        memset(&s, 0, sizeof s);
        CHECK_OK(tess_tensor_stats(ctx, &t, &s));
        if (have_first)
            assert_memory_equal(&s, &first_stats[dtype], sizeof s);
        first_stats[dtype] = s;
    }
    have_first = 1;
}

static void every_isa_and_thread_count_gives_the_same_bits(void **state)
{
    (void)state;
    have_first = 0;
    on_every_isa(compare_bits);
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads[i]}, &ctx));
        compare_bits(ctx);
        tess_ctx_destroy(ctx);
    }
}

static int stop_after(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what;
    int64_t *left = user;
    assert_true(done > 0 && done < total);
    return --*left < 0;
}

static void a_long_scan_can_be_stopped(void **state)
{
    (void)state;
    const int64_t n = 3 * 512 * TESS_SCAN_CHUNK; /* three slices */
    uint8_t *x = calloc((size_t)n, 1);
    assert_non_null(x);
    int64_t calls = 1;
    tess_ctx *ctx = NULL;
    CHECK_OK(
        tess_ctx_create(&(tess_ctx_opts){.progress = stop_after, .progress_user = &calls}, &ctx));
    const tess_tensor t = vector(TESS_DTYPE_U8, x, n);
    tess_stats s = {.count = -1};
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_ESTOPPED,
                "stopped by the caller while scanning elements");
    assert_int_equal(s.count, -1);
    calls = 2;
    CHECK_OK(tess_tensor_stats(ctx, &t, &s));
    assert_true(calls == 0 && s.count == n && s.zero == n && s.mean == 0.0 && s.deviation == 0.0);
    tess_ctx_destroy(ctx);
    free(x);
}

static void shapes_are_counted(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const float x[24] = {-2.0f, 4.0f};
    tess_stats s;
    tess_tensor t = {.dtype = TESS_DTYPE_F32, .rank = 3, .shape = {2, 3, 4}, .data = x};
    CHECK_OK(tess_tensor_stats(ctx, &t, &s));
    assert_true(s.count == 24 && s.zero == 22 && s.min == -2.0 && s.max == 4.0);
    t.rank = 0;
    CHECK_OK(tess_tensor_stats(ctx, &t, &s));
    assert_true(s.count == 1 && s.mean == -2.0 && s.deviation == 0.0);
    t = (tess_tensor){.rank = 8, .shape = {1, INT64_MAX, INT64_MAX, 0, 1, 1, 1, 1}};
    CHECK_OK(tess_tensor_stats(ctx, &t, &s));
    assert_true(s.count == 0 && isnan(s.min) && isnan(s.max) && isnan(s.mean));
    assert_true(isnan(s.deviation));
    tess_ctx_destroy(ctx);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    _Alignas(8) const char x[16] = {0};
    tess_tensor t = vector(TESS_DTYPE_F32, x, 1);
    tess_stats s = {.count = -1};
    CHECK_FAILS(tess_tensor_stats(NULL, &t, &s), TESS_EINVAL, "tess_tensor_stats: ctx is NULL");
    CHECK_FAILS(tess_tensor_stats(ctx, NULL, &s), TESS_EINVAL, "tess_tensor_stats: tensor is NULL");
    CHECK_FAILS(tess_tensor_stats(ctx, &t, NULL), TESS_EINVAL, "tess_tensor_stats: stats is NULL");
    t.dtype = TESS_DTYPE_COUNT;
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: dtype is 8, must be a tess_dtype");
    t = vector(TESS_DTYPE_F32, x, -3);
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: shape[0] is -3, must be 0 or more");
    t.rank = 9;
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: rank is 9, must be 0..8");
    t.rank = -1;
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: rank is -1, must be 0..8");
    t = (tess_tensor){.rank = 3, .shape = {1ll << 31, 1ll << 31, 4}, .data = x};
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: the shape has more than 2305843009213693951 elements, all that "
                "memory can hold");
    t = vector(TESS_DTYPE_F32, NULL, 1);
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL, "tess_tensor_stats: data is NULL");
    t = vector(TESS_DTYPE_F32, x + 2, 1);
    CHECK_FAILS(tess_tensor_stats(ctx, &t, &s), TESS_EINVAL,
                "tess_tensor_stats: data is not aligned to 4 bytes, an element");
    assert_int_equal(s.count, -1);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_type_and_length_agrees_with_the_reference),
    cmocka_unit_test(nan_infinity_and_both_zeros_are_counted),
    cmocka_unit_test(all_16_bit_patterns_are_distinguished),
    cmocka_unit_test(far_means_and_extreme_scales_keep_their_deviation),
    cmocka_unit_test(every_isa_and_thread_count_gives_the_same_bits),
    cmocka_unit_test(a_long_scan_can_be_stopped),
    cmocka_unit_test(shapes_are_counted),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};
RUN_TESTS(tests)
