/* SPDX-License-Identifier: Apache-2.0 */
/* vec_compress.h - lanes of a comparison as bits, and the chosen lanes of a vector side by side.
 *
 * AVX-512 has an instruction for it. AVX2 permutes by a table of 256 rows of eight lane numbers,
 * one byte each (2 KiB). Elsewhere every lane is stored and the place advances by its bit, without
 * a branch.
 */
#ifndef TESS_VEC_COMPRESS_H
#define TESS_VEC_COMPRESS_H

#include "vec.h"

/* Bit i is set where lane i of a comparison holds. */
VINLINE uint32_t vi_bits(vi holds)
{
#if TESS_VEC == 64 && defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)holds);
#elif TESS_VEC == 32 && defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps((__m256)holds);
#elif TESS_VEC == 16 && defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)holds);
#else
    uint32_t bits = 0;
    for (int i = 0; i < VL; i++)
        bits |= (uint32_t)(holds[i] & 1) << i;
    return bits;
#endif
}

/* Eight bytes as eight bits, 1 where a byte is not 0, the lowest first. Each byte becomes 0 or 1;
 * the product moves the ones side by side into the top byte. Byte i is taken as digit i, as
 * little-endian machines load it. */
VINLINE uint64_t bits_of_eight(const uint8_t *bytes)
{
    uint64_t x;
    memcpy(&x, bytes, sizeof x);
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    x &= 0x0101010101010101u;
    return (x * 0x0102040810204080u) >> 56;
}

/* Bit i is set where byte i of 64 is not 0. */
VINLINE uint64_t bits_of_bytes(const uint8_t *bytes)
{
#if TESS_VEC == 64 && defined(__AVX512BW__)
    const __m512i v = _mm512_loadu_si512(bytes);
    return _mm512_test_epi8_mask(v, v);
#elif TESS_VEC == 32 && defined(__AVX2__)
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_loadu_si256((const __m256i *)bytes);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(bytes + 32));
    const uint32_t l = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, zero));
    const uint32_t h = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, zero));
    return ~((uint64_t)h << 32 | l);
#elif TESS_VEC == 16 && defined(__SSE2__)
    uint64_t zeros = 0;
    for (int i = 0; i < 64; i += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(bytes + i));
        const int bits = _mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128()));
        zeros |= (uint64_t)(uint32_t)bits << i;
    }
    return ~zeros;
#else
    uint64_t word = 0;
    for (int i = 0; i < 64; i += 8)
        word |= bits_of_eight(bytes + i) << i;
    return word;
#endif
}

#if TESS_VEC == 32 && defined(__AVX2__)
/* Row b lists the set bits of b, lowest first. Place of bit i: how many bits below it are set. */
#define BIT_(b, i) ((uint64_t)(((b) >> (i)) & 1))
#define LANE_(b, i, place) (BIT_(b, i) * (i) << 8 * (place))
#define PLACE2_(b) (BIT_(b, 0) + BIT_(b, 1))
#define PLACE4_(b) (PLACE2_(b) + BIT_(b, 2) + BIT_(b, 3))
#define PLACE6_(b) (PLACE4_(b) + BIT_(b, 4) + BIT_(b, 5))
#define ROW_(b)                                                                                    \
    (LANE_(b, 1, BIT_(b, 0)) | LANE_(b, 2, PLACE2_(b)) | LANE_(b, 3, PLACE2_(b) + BIT_(b, 2)) |    \
     LANE_(b, 4, PLACE4_(b)) | LANE_(b, 5, PLACE4_(b) + BIT_(b, 4)) | LANE_(b, 6, PLACE6_(b)) |    \
     LANE_(b, 7, PLACE6_(b) + BIT_(b, 6)))
#define ROWS4_(b) ROW_(b), ROW_((b) + 1), ROW_((b) + 2), ROW_((b) + 3)
#define ROWS16_(b) ROWS4_(b), ROWS4_((b) + 4), ROWS4_((b) + 8), ROWS4_((b) + 12)
#define ROWS64_(b) ROWS16_(b), ROWS16_((b) + 16), ROWS16_((b) + 32), ROWS16_((b) + 48)
static const uint64_t compress_rows[256] = {ROWS64_(0), ROWS64_(64), ROWS64_(128), ROWS64_(192)};
#endif

/* Stores the lanes whose bits are set at to[0], to[1], ... and returns how many. All VL elements
 * of to are written: the caller keeps that much room. */
VINLINE int vi_compress(int32_t *to, vi v, uint32_t bits)
{
#if TESS_VEC == 64 && defined(__AVX512F__)
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)v));
    return __builtin_popcount(bits);
#elif TESS_VEC == 32 && defined(__AVX2__)
    const __m256i lanes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&compress_rows[bits]));
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32((__m256i)v, lanes));
    return __builtin_popcount(bits);
#else
    int n = 0;
    for (int i = 0; i < VL; i++) {
        to[n] = v[i];
        n += bits >> i & 1;
    }
    return n;
#endif
}

#endif
