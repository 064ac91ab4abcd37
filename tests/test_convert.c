/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert.c - every pair of element types against exact arithmetic, on every instruction set.
 */
#include "base/base_internal.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { ALL16 = 65536 };

/* ---- the reference: an element's value is exact in long double, and rounded once from there
 * ------
 */

static long double small_value(uint16_t h, int mantissa, int bias)
{
    const int fraction = h & ((1 << mantissa) - 1), exponent = (h & 0x7fff) >> mantissa;
    const long double sign = h & 0x8000 ? -1.0L : 1.0L;
    if (exponent == 2 * bias + 1)
        return fraction ? (long double)NAN : sign * (long double)INFINITY;
    if (exponent == 0)
        return sign * ldexpl(fraction, 1 - bias - mantissa);
    return sign * ldexpl(fraction + (1 << mantissa), exponent - bias - mantissa);
}

static long double value_of(tess_dtype dtype, const void *p)
{
    const uint8_t *u8 = p;
    switch (dtype) {
    case TESS_DTYPE_F32: return *(const float *)p;
    case TESS_DTYPE_BF16: return small_value(*(const uint16_t *)p, 7, 127);
    case TESS_DTYPE_F16: return small_value(*(const uint16_t *)p, 10, 15);
    case TESS_DTYPE_F64: return *(const double *)p;
    case TESS_DTYPE_I32: return *(const int32_t *)p;
    case TESS_DTYPE_I64: return *(const int64_t *)p;
    case TESS_DTYPE_U8: return *u8;
    default: return *u8 != 0;
    }
}

/* x rounded to nearest even in a format of that many mantissa bits and that bias. */
static long double rounded(long double x, int mantissa, int bias)
{
    if (!isfinite(x) || x == 0.0L)
        return x;
    int exponent;
    frexpl(x, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    const long double y = ldexpl(rintl(ldexpl(x, mantissa - exponent)), exponent - mantissa);
    return fabsl(y) >= ldexpl(1.0L, bias + 1) ? copysignl((long double)INFINITY, x) : y;
}

static long double truncated(long double x, long double min, long double max)
{
    return isnan(x) ? 0.0L : x < min ? min : x > max ? max : truncl(x);
}

/* What the element must be worth after conversion. */
static long double expected(tess_dtype to, long double x)
{
    switch (to) {
    case TESS_DTYPE_F32: return rounded(x, 23, 127);
    case TESS_DTYPE_BF16: return rounded(x, 7, 127);
    case TESS_DTYPE_F16: return rounded(x, 10, 15);
    case TESS_DTYPE_F64: return rounded(x, 52, 1023);
    case TESS_DTYPE_I32: return truncated(x, INT32_MIN, INT32_MAX);
    case TESS_DTYPE_I64: return truncated(x, INT64_MIN, INT64_MAX);
    case TESS_DTYPE_U8: return truncated(x, 0, 255);
    default: return isnan(x) || x != 0.0L;
    }
}

/* Equal as numbers and in the sign of zero; two NaN are equal. */
static int same(long double a, long double b)
{
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static void check_all(const tess_ctx *ctx, tess_dtype from, const void *src, tess_dtype to,
                      size_t n)
{
    const size_t size_from = tess_dtype_size(from), size_to = tess_dtype_size(to);
    char *dst = malloc(n * size_to);
    assert_non_null(dst);
    CHECK_OK(tess_convert(ctx, from, src, to, dst, (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        const long double x = value_of(from, (const char *)src + i * size_from);
        const long double got = value_of(to, dst + i * size_to), want = expected(to, x);
        /* Integers have one zero. */
        if (!same(got, want) && !(got == 0.0L && want == 0.0L && to >= TESS_DTYPE_I32))
            fail_msg("%s %.21Lg to %s on %s: %.21Lg, must be %.21Lg", tess_dtype_name(from), x,
                     tess_dtype_name(to), ctx->isa, got, want);
        if (to == TESS_DTYPE_BOOL)
            assert_true((uint8_t)dst[i] <= 1);
    }
    free(dst);
}

/* ---- the values ----------------------------------------------------------------------------- */

static void all_small_floats(const tess_ctx *ctx)
{
    static uint16_t all[ALL16];
    for (int i = 0; i < ALL16; i++)
        all[i] = (uint16_t)i;
    for (int to = 0; to < TESS_DTYPE_COUNT; to++) {
        check_all(ctx, TESS_DTYPE_BF16, all, (tess_dtype)to, ALL16);
        check_all(ctx, TESS_DTYPE_F16, all, (tess_dtype)to, ALL16);
    }
}

static void every_16_bit_float_converts_to_every_type(void **state)
{
    (void)state;
    on_every_isa(all_small_floats);
}

static void check_return(const tess_ctx *ctx, tess_dtype dtype, uint16_t infinity, uint16_t quiet)
{
    static uint16_t all[ALL16], back[ALL16];
    static float wide[ALL16];
    static double wider[ALL16];
    for (int i = 0; i < ALL16; i++)
        all[i] = (uint16_t)i;
    CHECK_OK(tess_convert(ctx, dtype, all, TESS_DTYPE_F32, wide, ALL16));
    CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, wide, dtype, back, ALL16));
    for (int i = 0; i < ALL16; i++)
        assert_int_equal(back[i], (i & 0x7fff) > infinity ? i | quiet : i);
    CHECK_OK(tess_convert(ctx, dtype, all, TESS_DTYPE_F64, wider, ALL16));
    CHECK_OK(tess_convert(ctx, TESS_DTYPE_F64, wider, dtype, back, ALL16));
    for (int i = 0; i < ALL16; i++)
        assert_int_equal(back[i], (i & 0x7fff) > infinity ? i | quiet : i);
}

static void small_floats_return(const tess_ctx *ctx)
{
    check_return(ctx, TESS_DTYPE_BF16, 0x7f80, 0x40);
    check_return(ctx, TESS_DTYPE_F16, 0x7c00, 0x200);
}

static void every_16_bit_float_comes_back_and_nan_quiet_with_its_payload(void **state)
{
    (void)state;
    on_every_isa(small_floats_return);
}

/* Around every tie: halfway between neighbours, and one float or double to either side. With the
 * values themselves, these decide every rounding. */
static void check_ties(const tess_ctx *ctx, tess_dtype to, int mantissa, int bias)
{
    enum { PER = 6 };
    static float f32[PER * ALL16 / 2];
    static double f64[PER * ALL16 / 2];
    size_t n = 0;
    const int infinity = (2 * bias + 1) << mantissa;
    for (int h = 0; h < infinity; h++) {
        const double low = (double)small_value((uint16_t)h, mantissa, bias);
        const double high = h + 1 == infinity
                                ? ldexp(1.0, bias + 1)
                                : (double)small_value((uint16_t)(h + 1), mantissa, bias);
        const double middle = (low + high) / 2.0;
        for (int sign = -1; sign <= 1; sign += 2) {
            f32[n] = (float)(sign * middle), f64[n++] = sign * middle;
            f32[n] = nextafterf((float)(sign * middle), 0.0f);
            f64[n++] = nextafter(sign * middle, 0.0);
            f32[n] = nextafterf((float)(sign * middle), sign * INFINITY);
            f64[n++] = nextafter(sign * middle, sign * (double)INFINITY);
        }
    }
    check_all(ctx, TESS_DTYPE_F32, f32, to, n);
    check_all(ctx, TESS_DTYPE_F64, f64, to, n);
}

static void ties(const tess_ctx *ctx)
{
    check_ties(ctx, TESS_DTYPE_BF16, 7, 127);
    check_ties(ctx, TESS_DTYPE_F16, 10, 15);
}

static void every_tie_rounds_to_even_and_its_neighbours_to_their_side(void **state)
{
    (void)state;
    on_every_isa(ties);
}

/* Each with both signs: the ends of every range, and where truncation and rounding change. */
static const double edge_reals[] = {0.0,
                                    0.5,
                                    0.999,
                                    1.0,
                                    1.5,
                                    254.9,
                                    255.0,
                                    255.1,
                                    256.0,
                                    65504.0,
                                    65519.999,
                                    65520.0,
                                    65536.0,
                                    2147483646.9,
                                    2147483647.0,
                                    2147483648.0,
                                    2147483649.0,
                                    4294967296.0,
                                    9.223372036854774784e18,
                                    0x1p63,
                                    9.3e18,
                                    3.4028234663852886e38,
                                    3.4028235677973366e38,
                                    3.4e38,
                                    1e300,
                                    5e-324,
                                    1e-300,
                                    0x1p-126,
                                    0x1p-149,
                                    0x1p-150,
                                    0x1.0000000000001p-150,
                                    0x1p-25,
                                    0x1.0000000000001p-25,
                                    1e-45,
                                    (double)INFINITY,
                                    (double)NAN,
                                    1.0 + 0x1p-8 + 0x1p-40,
                                    1.0 + 0x1p-11 + 0x1p-50,
                                    1.0 + 0x1p-24 + 0x1p-52};
enum { REALS = sizeof edge_reals / sizeof edge_reals[0] };

/* The last ones lie one beyond a tie of BF16, of F32 and of F64: rounding twice goes to even. */
static const int64_t edge_integers[] = {0,
                                        1,
                                        2,
                                        127,
                                        128,
                                        255,
                                        256,
                                        257,
                                        259,
                                        2049,
                                        2051,
                                        65504,
                                        65519,
                                        65520,
                                        16777217,
                                        16777219,
                                        INT32_MAX,
                                        INT32_MAX + 1ll,
                                        INT32_MAX + 2ll,
                                        INT64_MAX,
                                        INT64_MAX - 1,
                                        (1ll << 53) + 1,
                                        (1ll << 53) + 3,
                                        257ll << 54,
                                        (257ll << 54) - 1,
                                        (257ll << 54) + 1,
                                        ((1ll << 24) + 1) * (1ll << 38) + 1,
                                        ((1ll << 53) + 1) * (1ll << 9) + 1};
enum { INTEGERS = sizeof edge_integers / sizeof edge_integers[0] };

static void edge_values(const tess_ctx *ctx)
{
    double f64[2 * REALS];
    float f32[2 * REALS];
    for (int i = 0; i < 2 * REALS; i++) {
        f64[i] = copysign(edge_reals[i / 2], i % 2 ? -1.0 : 1.0);
        f32[i] = (float)f64[i];
    }
    int64_t i64[2 * INTEGERS + 1];
    int32_t i32[2 * INTEGERS + 1];
    for (int i = 0; i < 2 * INTEGERS; i++)
        i64[i] = i % 2 ? -edge_integers[i / 2] : edge_integers[i / 2];
    i64[2 * INTEGERS] = INT64_MIN;
    for (int i = 0; i <= 2 * INTEGERS; i++)
        i32[i] = (int32_t)(i64[i] ^ i64[i] >> 32);
    uint8_t u8[256];
    for (int i = 0; i < 256; i++)
        u8[i] = (uint8_t)i;
    for (int to = 0; to < TESS_DTYPE_COUNT; to++) {
        check_all(ctx, TESS_DTYPE_F64, f64, (tess_dtype)to, 2 * REALS);
        check_all(ctx, TESS_DTYPE_F32, f32, (tess_dtype)to, 2 * REALS);
        check_all(ctx, TESS_DTYPE_I64, i64, (tess_dtype)to, 2 * INTEGERS + 1);
        check_all(ctx, TESS_DTYPE_I32, i32, (tess_dtype)to, 2 * INTEGERS + 1);
        check_all(ctx, TESS_DTYPE_U8, u8, (tess_dtype)to, 256);
        check_all(ctx, TESS_DTYPE_BOOL, u8, (tess_dtype)to, 256);
    }
}

static void edges_of_every_type_convert_to_every_type(void **state)
{
    (void)state;
    on_every_isa(edge_values);
}

/* ---- the same bits everywhere -------------------------------------------------------------- */

enum { MANY = 300001 }; /* several chunks and an odd end */
static uint32_t random_words[2 * MANY];
static char want_bytes[TESS_DTYPE_COUNT][TESS_DTYPE_COUNT][8 * 2048];
static int have_want;

/* Random bit patterns, NaN of all payloads among them, to the bits the first set gave. */
static void random_bits(const tess_ctx *ctx)
{
    static char got[8 * 2048];
    for (int from = 0; from < TESS_DTYPE_COUNT; from++) {
        for (int to = 0; to < TESS_DTYPE_COUNT; to++) {
            const size_t bytes = 2048 * tess_dtype_size((tess_dtype)to);
            CHECK_OK(tess_convert(ctx, (tess_dtype)from, random_words, (tess_dtype)to, got, 2048));
            if (have_want)
                assert_memory_equal(got, want_bytes[from][to], bytes);
            memcpy(want_bytes[from][to], got, bytes);
        }
    }
    have_want = 1;
}

static void every_isa_gives_the_same_bits(void **state)
{
    (void)state;
    CHECK_OK(tess_random_bits(1, 1, 0, random_words, 2 * MANY));
    have_want = 0;
    on_every_isa(random_bits);
}

static void every_thread_count_gives_the_same_bits(void **state)
{
    (void)state;
    CHECK_OK(tess_random_bits(1, 1, 0, random_words, 2 * MANY));
    uint16_t *want = malloc(MANY * 2), *got = malloc(MANY * 2);
    assert_true(want && got);
    for (int threads = 1; threads <= 7; threads += 3) {
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
        CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, random_words, TESS_DTYPE_F16, got, MANY));
        if (threads == 1)
            memcpy(want, got, MANY * 2);
        assert_memory_equal(got, want, MANY * 2);
        tess_ctx_destroy(ctx);
    }
    free(want);
    free(got);
}

static void nothing_is_written_beyond_the_end(const tess_ctx *ctx)
{
    static const tess_dtype pairs[][2] = {{TESS_DTYPE_F32, TESS_DTYPE_BF16},
                                          {TESS_DTYPE_F32, TESS_DTYPE_F16},
                                          {TESS_DTYPE_BF16, TESS_DTYPE_F32},
                                          {TESS_DTYPE_F16, TESS_DTYPE_F32},
                                          {TESS_DTYPE_F16, TESS_DTYPE_F64}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        const size_t size_from = tess_dtype_size(pairs[p][0]),
                     size_to = tess_dtype_size(pairs[p][1]);
        for (size_t n = 0; n < 70; n++) {
            /* Exact blocks, so that the address sanitizer sees a read too far as well. */
            char *src = calloc(n + 1, size_from), *dst = malloc((n + 1) * size_to);
            assert_true(src && dst);
            memset(dst, 0x5a, (n + 1) * size_to);
            CHECK_OK(tess_convert(ctx, pairs[p][0], src + size_from, pairs[p][1], dst, (int64_t)n));
            for (size_t i = 0; i < (n + 1) * size_to; i++)
                assert_int_equal(dst[i], i < n * size_to ? 0 : 0x5a);
            free(src);
            free(dst);
        }
    }
}

static void every_length_stays_within_its_buffers(void **state)
{
    (void)state;
    on_every_isa(nothing_is_written_beyond_the_end);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    _Alignas(8) char a[64] = {0}, b[64] = {0};
    const tess_dtype f32 = TESS_DTYPE_F32, bf16 = TESS_DTYPE_BF16;
    CHECK_FAILS(tess_convert(NULL, f32, a, bf16, b, 1), TESS_EINVAL, "tess_convert: ctx is NULL");
    CHECK_FAILS(tess_convert(ctx, f32, NULL, bf16, b, 1), TESS_EINVAL, "tess_convert: src is NULL");
    CHECK_FAILS(tess_convert(ctx, f32, a, bf16, NULL, 1), TESS_EINVAL, "tess_convert: dst is NULL");
    CHECK_FAILS(tess_convert(ctx, (tess_dtype)8, a, bf16, b, 1), TESS_EINVAL,
                "tess_convert: from is 8, must be a tess_dtype");
    CHECK_FAILS(tess_convert(ctx, f32, a, (tess_dtype)-1, b, 1), TESS_EINVAL,
                "tess_convert: to is -1, must be a tess_dtype");
    CHECK_FAILS(tess_convert(ctx, f32, a, bf16, b, -1), TESS_EINVAL,
                "tess_convert: n is -1, must be 0..1152921504606846975");
    CHECK_FAILS(tess_convert(ctx, f32, a, bf16, b, INT64_MAX), TESS_EINVAL,
                "tess_convert: n is 9223372036854775807, must be 0..1152921504606846975");
    CHECK_FAILS(tess_convert(ctx, f32, a + 2, bf16, b, 1), TESS_EINVAL,
                "tess_convert: src is not aligned to 4 bytes, an element");
    CHECK_FAILS(tess_convert(ctx, f32, a, bf16, b + 1, 1), TESS_EINVAL,
                "tess_convert: dst is not aligned to 2 bytes, an element");
    CHECK_FAILS(tess_convert(ctx, f32, a, bf16, a + 12, 4), TESS_EINVAL,
                "tess_convert: src and dst overlap");
    CHECK_OK(tess_convert(ctx, f32, a, bf16, a + 16, 4));
    CHECK_OK(tess_convert(ctx, f32, NULL, bf16, NULL, 0));
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_16_bit_float_converts_to_every_type),
    cmocka_unit_test(every_16_bit_float_comes_back_and_nan_quiet_with_its_payload),
    cmocka_unit_test(every_tie_rounds_to_even_and_its_neighbours_to_their_side),
    cmocka_unit_test(edges_of_every_type_convert_to_every_type),
    cmocka_unit_test(every_isa_gives_the_same_bits),
    cmocka_unit_test(every_thread_count_gives_the_same_bits),
    cmocka_unit_test(every_length_stays_within_its_buffers),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};
RUN_TESTS(tests)
