/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h - rows of bf16 as the blocks of products.h, and back to rows of floats.
 *
 *   rows      A[r][c] = x[r][c]              keys whose products with queries are wanted
 *   columns   A[c][r] = x[r][c]              v for the output, k for dq
 *   pairs     B[c][r] = x[r][c]              queries, a column each
 *   beside    B[r][c] = x[r'][c]             queries, a row each, of which r' = r / 2 + 16 (r % 2)
 *
 * x is 32 rows by 32 columns, given by pointers. In `beside` rows j and j + 16 are a pair, because
 * that is how weights of two tiles side by side become pairs (backward.c).
 *
 * Arrays of vectors begin with zeros, which never reach the machine code, for gcc's -fanalyzer: it
 * does not follow which elements a loop has written.
 */
#ifndef TESS_BLOCKS_H
#define TESS_BLOCKS_H

#include "products.h"

#if defined(__AVX512F__)
/* 16 x 16 elements of 32 bits. */
VINLINE void transpose16(__m512i *r)
{
    __m512i t[16] = {0}, s[16] = {0};
    VUNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    VUNROLL
    for (int i = 0; i < 4; i++) {
        s[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        s[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        s[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        s[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    VUNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(s[i], s[i + 4], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(s[i], s[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0xdd);
        r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}
typedef __m512i words16;
#else
typedef vi words16;

PRODUCTS void transpose16(words16 *r)
{
    int32_t x[16][16];
    memcpy(x, r, sizeof x);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            r[j][i] = x[i][j];
}
#endif

VINLINE vi words_load(const void *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

VINLINE void words_store(void *p, vi v)
{
    memcpy(p, &v, sizeof v);
}

/* The low halves of a below those of b, and the high ones. */
VINLINE vi low_pairs(vi a, vi b)
{
    return (a & vi_set1(0xffff)) | b << 16;
}

VINLINE vi high_pairs(vi a, vi b)
{
    typedef uint32_t vu __attribute__((vector_size(TESS_VEC)));
    return (vi)((vu)a >> 16) | (b & vi_set1(-65536));
}

VINLINE void block_rows(uint16_t *out, const uint16_t *const *rows, int column)
{
    for (int r = 0; r < BLOCK; r++)
        words_store(out + r * 32, words_load(rows[r] + column));
}

PRODUCTS void block_columns(uint16_t *out, const uint16_t *const *rows, int column)
{
    /* One half of the words at a time: both would not fit into the registers. */
    words16 x[16] = {0};
    VUNROLL
    for (int i = 0; i < 16; i++)
        x[i] = (words16)low_pairs(words_load(rows[2 * i] + column),
                                  words_load(rows[2 * i + 1] + column));
    transpose16(x);
    VUNROLL
    for (int j = 0; j < 16; j++)
        words_store(out + (ptrdiff_t)(2 * j) * 32, (vi)x[j]);
    VUNROLL
    for (int i = 0; i < 16; i++)
        x[i] = (words16)high_pairs(words_load(rows[2 * i] + column),
                                   words_load(rows[2 * i + 1] + column));
    transpose16(x);
    VUNROLL
    for (int j = 0; j < 16; j++)
        words_store(out + (ptrdiff_t)(2 * j + 1) * 32, (vi)x[j]);
}

PRODUCTS void block_pairs(uint16_t *out, const uint16_t *const *rows, int column)
{
    for (int h = 0; h < 2; h++) {
        words16 x[16] = {0};
        VUNROLL
        for (int i = 0; i < 16; i++)
            x[i] = (words16)words_load(rows[16 * h + i] + column);
        transpose16(x);
        VUNROLL
        for (int i = 0; i < 16; i++)
            words_store(out + (ptrdiff_t)HALF_SIZE * h + (ptrdiff_t)i * 32, (vi)x[i]);
    }
}

/* 16 elements, each the low half of a word. */
VINLINE vi words_widen(const uint16_t *p)
{
    typedef uint16_t halves __attribute__((vector_size(TESS_VEC / 2)));
    typedef uint32_t words __attribute__((vector_size(TESS_VEC)));
    halves x;
    memcpy(&x, p, sizeof x);
    return (vi) __builtin_convertvector(x, words);
}

PRODUCTS void block_beside(uint16_t *out, const uint16_t *const *rows, int column)
{
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 16; j++) {
            const vi a = words_widen(rows[j] + column + 16 * h);
            const vi b = words_widen(rows[j + 16] + column + 16 * h);
            words_store(out + (ptrdiff_t)HALF_SIZE * h + (ptrdiff_t)j * 32, a | b << 16);
        }
}

/* out[c][r] = factor[c] * x[r][c] for columns 0..n - 1 of a block of floats, which become rows
 * `stride` apart of which `left` elements exist. */
PRODUCTS void block_transposed(float *out, int64_t stride, const float *x, const float *factor,
                               int n, int left)
{
    for (int c0 = 0; c0 < n; c0 += 16)
        for (int r0 = 0; r0 < BLOCK && r0 < left; r0 += 16) {
            words16 w[16] = {0};
            VUNROLL
            for (int i = 0; i < 16; i++)
                w[i] = (words16)words_load(x + (ptrdiff_t)(r0 + i) * BLOCK + c0);
            transpose16(w);
            for (int i = 0; i < 16 && c0 + i < n; i++) {
                const vf row = vf_set1(factor[c0 + i]) * (vf)w[i];
                float *to = out + (int64_t)(c0 + i) * stride + r0;
                if (left - r0 >= 16)
                    vf_store(to, row);
                else
                    vf_store_first(to, row, left - r0);
            }
        }
}

#endif
