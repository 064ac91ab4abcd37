/* SPDX-License-Identifier: Apache-2.0 */
/* test_random.c - Philox against its published vectors; uniform and normal numbers: bits, accuracy,
 * moments, tails. Seeds are fixed, so a test that passes once passes always. */
#include "base/base_internal.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

/* From Random123 (D. E. Shaw Research), tests/kat_vectors, lines "philox4x32 10". */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        tess__philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

static void a_number_is_a_word_of_its_block(void **state)
{
    (void)state;
    const uint64_t seed = 0x299f31d0a4093822, stream = 0x0370734413198a2e;
    const uint64_t block = 0x05a308d3243f6a88;
    uint32_t want[4], got[4];
    tess__philox((uint32_t[]){0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344},
                 (uint32_t[]){0xa4093822, 0x299f31d0}, want);
    CHECK_OK(tess_random_bits(seed, stream, 4 * block, got, 4));
    assert_memory_equal(got, want, sizeof got);
}

static void uniform_numbers_are_the_top_bits(void **state)
{
    (void)state;
    enum { N = 4096 };
    static uint32_t bits[N];
    static float x[N];
    CHECK_OK(tess_random_bits(1, 2, 3, bits, N));
    CHECK_OK(tess_random_uniform(1, 2, 3, x, N));
    for (int i = 0; i < N; i++) {
        assert_true(x[i] == (float)(bits[i] >> 8) / 16777216.0f);
        assert_true(x[i] >= 0.0f && x[i] < 1.0f);
    }
}

/* In double precision the terms of a number are rounded about ten times at 2^-53 each, the series
 * add 1.1e-15 (see random.c), and all is multiplied by r <= 6.77: 6.77 * (1.1e-15 + 10 * 1.1e-16)
 * is 1.5e-14. */
static void check_pair(uint32_t w, uint32_t v)
{
    const long double pi = 3.141592653589793238462643383279502884L;
    const long double r = sqrtl(-2.0L * logl(((long double)w + 0.5L) / 4294967296.0L));
    const long double angle = 2.0L * pi * (long double)v / 4294967296.0L;
    double pair[2];
    tess__normal_pair(w, v, pair);
    assert_true(fabsl(pair[0] - r * cosl(angle)) < 1.5e-14L);
    assert_true(fabsl(pair[1] - r * sinl(angle)) < 1.5e-14L);
}

static void normal_numbers_agree_with_the_c_library(void **state)
{
    (void)state;
    /* All edges of the reductions with each other: powers of two and their neighbours. */
    for (int i = 0; i <= 32; i++)
        for (int j = 0; j <= 32; j++)
            for (int d = -2; d <= 2; d++)
                check_pair((uint32_t)((1ull << i) + (uint64_t)d),
                           (uint32_t)((1ull << j) - (uint64_t)d));
    /* The square root of two, where the logarithm changes its exponent; multiples of an eighth of a
     * turn, where sine and cosine change places. */
    for (uint32_t d = 0; d < 64; d++)
        for (uint32_t eighth = 0; eighth < 8; eighth++)
            check_pair(3037000499u - 32 + d, (eighth << 29) - 32 + d);
    enum { N = 200000 };
    static uint32_t bits[2 * N];
    CHECK_OK(tess_random_bits(5, 0, 0, bits, 2 * N));
    for (int i = 0; i < N; i++)
        check_pair(bits[2 * i], bits[2 * i + 1]);
}

static void the_extreme_words_give_finite_numbers(void **state)
{
    (void)state;
    double pair[2];
    tess__normal_pair(0, 0, pair);
    assert_true(fabs(pair[0] - sqrt(66.0 * log(2.0))) < 1.5e-14 && pair[1] == 0.0);
    tess__normal_pair(UINT32_MAX, 0, pair);
    assert_true(pair[0] > 1.5e-5 && pair[0] < 1.6e-5); /* sqrt(2^-32) */
}

static void normal_numbers_have_these_bits_everywhere(void **state)
{
    (void)state;
    static const uint32_t golden[8] = {0xbe85bdfc, 0x3f089de2, 0x3fea7ca4, 0x3e33f33e,
                                       0xbe228725, 0x402f2663, 0xbe93fbd3, 0xbfff0f0c};
    float x[8];
    uint32_t bits[8];
    CHECK_OK(tess_random_normal(42, 7, 1000, x, 8));
    memcpy(bits, x, sizeof bits);
    assert_memory_equal(bits, golden, sizeof bits);
    /* A long run, as one number that every bit and its place enter. */
    enum { N = 100000 };
    static float many[N];
    CHECK_OK(tess_random_normal(1, 1, 0, many, N));
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
        uint32_t word;
        memcpy(&word, &many[i], sizeof word);
        sum = sum * 31 + word;
    }
    assert_int_equal(sum, 0x2a43222bb0490ba3);
}

/* With n independent numbers, the mean has deviation 1/sqrt(n), the variance sqrt(2/n), the third
 * and fourth standardised moments sqrt(15/n) and sqrt(96/n) (of E x^6 = 15 and E x^8 - 9 = 96), and
 * a count of probability p sqrt(p (1 - p) / n). Five deviations are allowed. */
static void normal_numbers_have_the_moments_and_tails(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    CHECK_OK(tess_random_normal(3, 4, 5, x, N));
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, pairs = 0;
    int64_t beyond[6] = {0};
    for (int i = 0; i < N; i++) {
        const double v = x[i];
        m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
        pairs += i % 2 ? v * x[i - 1] : 0.0;
        for (int k = 0; k < 6; k++)
            beyond[k] += fabs(v) > k;
    }
    assert_true(fabs(m1 / N) < 5.0 * sqrt(1.0 / N));
    assert_true(fabs(m2 / N - 1.0) < 5.0 * sqrt(2.0 / N));
    assert_true(fabs(m3 / N) < 5.0 * sqrt(15.0 / N));
    assert_true(fabs(m4 / N - 3.0) < 5.0 * sqrt(96.0 / N));
    assert_true(fabs(pairs / (N / 2)) < 5.0 * sqrt(2.0 / N)); /* the two of a pair */
    for (int k = 1; k < 6; k++) {
        const double p = erfc(k / sqrt(2.0));
        assert_true(fabs((double)beyond[k] / N - p) < 5.0 * sqrt(p * (1.0 - p) / N));
    }
    free(x);
}

static void any_split_into_calls_gives_the_same_bits(void **state)
{
    (void)state;
    enum { N = 3000 };
    const uint64_t start = 0xfffffffdull * 4 + 1; /* the block's low word overflows on the way */
    static float whole[N], parts[N];
    static uint32_t bits_whole[N], bits_parts[N];
    CHECK_OK(tess_random_normal(9, 8, start, whole, N));
    CHECK_OK(tess_random_bits(9, 8, start, bits_whole, N));
    for (size_t step = 1; step < 600; step += step < 20 ? 1 : 97) {
        for (size_t i = 0; i < N; i += step) {
            const size_t n = N - i < step ? N - i : step;
            CHECK_OK(tess_random_normal(9, 8, start + i, parts + i, n));
            CHECK_OK(tess_random_bits(9, 8, start + i, bits_parts + i, n));
        }
        assert_memory_equal(parts, whole, sizeof whole);
        assert_memory_equal(bits_parts, bits_whole, sizeof bits_whole);
    }
}

static void seeds_and_streams_differ(void **state)
{
    (void)state;
    uint32_t a, b, c, d;
    CHECK_OK(tess_random_bits(0, 0, 0, &a, 1));
    CHECK_OK(tess_random_bits(1, 0, 0, &b, 1));
    CHECK_OK(tess_random_bits(0, 1, 0, &c, 1));
    CHECK_OK(tess_random_bits(0, 1ull << 32, 0, &d, 1));
    assert_true(a != b && a != c && a != d && b != c && b != d && c != d);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    uint32_t word = 5;
    CHECK_FAILS(tess_random_bits(0, 0, 0, NULL, 1), TESS_EINVAL, "tess_random_bits: out is NULL");
    CHECK_FAILS(tess_random_uniform(0, 0, 0, NULL, 1), TESS_EINVAL,
                "tess_random_uniform: out is NULL");
    CHECK_FAILS(tess_random_normal(0, 0, 0, NULL, 1), TESS_EINVAL,
                "tess_random_normal: out is NULL");
    CHECK_FAILS(tess_random_bits(0, 0, UINT64_MAX, &word, 2), TESS_EINVAL,
                "tess_random_bits: index is 18446744073709551615 with n 2, must end within the "
                "stream's 2^64 numbers");
    assert_int_equal(word, 5);
    CHECK_OK(tess_random_bits(0, 0, UINT64_MAX, &word, 1)); /* the last one */
    CHECK_OK(tess_random_normal(0, 0, 0, NULL, 0));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(philox_gives_the_published_vectors),
    cmocka_unit_test(a_number_is_a_word_of_its_block),
    cmocka_unit_test(uniform_numbers_are_the_top_bits),
    cmocka_unit_test(normal_numbers_agree_with_the_c_library),
    cmocka_unit_test(the_extreme_words_give_finite_numbers),
    cmocka_unit_test(normal_numbers_have_these_bits_everywhere),
    cmocka_unit_test(normal_numbers_have_the_moments_and_tails),
    cmocka_unit_test(any_split_into_calls_gives_the_same_bits),
    cmocka_unit_test(seeds_and_streams_differ),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};
RUN_TESTS(tests)
