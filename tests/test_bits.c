/* SPDX-License-Identifier: Apache-2.0 */
/* test_bits.c - rows of bits, on every instruction set, against single bits. */
#include "test.h"

#include "base/base_internal.h"

#include <stdlib.h>

enum { N_MAX = 700, WORDS_MAX = 40 };

static uint64_t noise(uint64_t index)
{
    uint32_t w[2];
    CHECK_OK(tess_random_bits(7, 0, 2 * index, w, 2));
    return (uint64_t)w[0] << 32 | w[1];
}

/* Exact buffers from malloc, so that a sanitizer sees any step beyond them. */
static void rows_on(const tess_ctx *ctx)
{
    for (int32_t n = 0; n <= N_MAX; n += n < 140 ? 1 : 37) {
        const size_t words = ((size_t)n + 63) / 64, packed = ((size_t)n + 7) / 8;
        uint64_t *got = malloc(words * 8 + 1);
        uint8_t *bytes = malloc((size_t)n + 1), *bits = malloc(packed + 1);
        assert_true(got && bytes && bits);
        int64_t want = 0;
        for (int32_t i = 0; i < n; i++) {
            const uint64_t x = noise((uint64_t)i + 1000 * (uint64_t)n);
            /* Any bit of a byte may be the one that is set. */
            bytes[1 + i] = x & 8 ? (uint8_t)(1 << (x % 8)) : 0;
            want += bytes[1 + i] != 0;
        }
        memset(bits, 0xff, packed + 1); /* ones past the end do not count */
        for (int32_t i = 0; i < n; i++)
            if (!bytes[1 + i])
                bits[1 + i / 8] &= (uint8_t) ~(1u << (i % 8));
        for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
            memset(got, 0xaa, words * 8);
            assert_int_equal(
                ctx->kernels->bits_row(got, as_bytes ? bytes + 1 : bits + 1, as_bytes, n), want);
            for (size_t i = 0; i < words * 64; i++)
                assert_int_equal((got[i / 64] >> (i % 64)) & 1, i < (size_t)n && bytes[1 + i] != 0);
        }
        free(got);
        free(bytes);
        free(bits);
    }
}

static void rows_of_bytes_and_bits_become_words(void **state)
{
    (void)state;
    on_every_isa(rows_on);
}

static void planes_on(const tess_ctx *ctx)
{
    for (int words = 1; words <= WORDS_MAX; words += words < 18 ? 1 : 11)
        for (int n = 1; n <= TESS_PLANE_ROWS; n += n < 35 ? 1 : 41) {
            const size_t w = (size_t)words;
            const uint64_t *rows[TESS_PLANE_ROWS];
            uint64_t *memory = malloc((size_t)n * w * 8), *planes = malloc(TESS_PLANES * w * 8);
            assert_true(memory && planes);
            for (size_t i = 0; i < (size_t)n * w; i++)
                memory[i] = noise(i) | (i % 3 == 0 ? ~UINT64_C(0) : 0);
            for (int i = 0; i < n; i++)
                rows[i] = memory + (size_t)(n - 1 - i) * w;
            ctx->kernels->bits_planes(planes, rows, n, words);
            for (size_t c = 0; c < w * 64; c++) {
                int want = 0, got = 0;
                for (int i = 0; i < n; i++)
                    want += (int)((rows[i][c / 64] >> (c % 64)) & 1);
                for (int b = 0; b < TESS_PLANES; b++)
                    got += (int)((planes[(size_t)b * w + c / 64] >> (c % 64)) & 1) << b;
                assert_int_equal(got, want);
            }
            free(memory);
            free(planes);
        }
}

static void columns_of_rows_add_up(void **state)
{
    (void)state;
    on_every_isa(planes_on);
}

static void counts_on(const tess_ctx *ctx)
{
    uint64_t a[67], b[67];
    for (size_t n = 0; n <= 67; n++) {
        int64_t want = 0;
        for (size_t i = 0; i < n; i++) {
            a[i] = i % 5 == 0 ? ~UINT64_C(0) : noise(i);
            b[i] = i % 7 == 0 ? ~UINT64_C(0) : noise(i + 100);
            for (int bit = 0; bit < 64; bit++)
                want += (int64_t)((a[i] & b[i]) >> bit & 1);
        }
        assert_int_equal(ctx->kernels->bits_and_count(a, b, n), want);
    }
}

static void common_bits_are_counted(void **state)
{
    (void)state;
    on_every_isa(counts_on);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_of_bytes_and_bits_become_words),
    cmocka_unit_test(columns_of_rows_add_up),
    cmocka_unit_test(common_bits_are_counted),
};
RUN_TESTS(tests)
