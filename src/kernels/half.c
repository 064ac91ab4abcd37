/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - between float and its 16-bit kinds, BF16 and F16.
 *
 *   BF16: 1 sign, 8 exponent, 7 mantissa bits: the upper half of a float
 *   F16:  1 sign, 5 exponent, 10 mantissa bits (IEEE 754 binary16)
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; what is too large becomes infinity,
 * what is small becomes denormal. A NaN stays a NaN with its sign and the leading bits of its
 * payload, and is quiet afterwards; BF16 to float keeps all its bits. The loops are integer
 * arithmetic without branches, which the compiler vectorises, and F16 goes by instruction where
 * there is one: all give the same bits. The two float operations are exact or round once, and never
 * to a denormal, so that a caller's flush-to-zero mode changes nothing.
 * Bytes: 6 n; operations: 5 (BF16) to 20 (F16) per element.
 */
#include "entries.h"
#include "vec.h"

#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void TESS_K(tess__f32_from_bf16)(float *restrict dst, const uint16_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = float_of((uint32_t)src[i] << 16);
}

void TESS_K(tess__bf16_from_f32)(uint16_t *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = bits_of(src[i]);
        const uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16, nan = x >> 16 | 0x40;
        dst[i] = (uint16_t)((int32_t)(x & 0x7fffffff) > 0x7f800000 ? nan : rounded);
    }
}

/* The exponent's bias is 15 in F16 and 127 in float. A denormal m 2^-24 is made by putting m behind
 * the leading bit of 2^-14 and subtracting 2^-14. */
static inline uint32_t widen(uint32_t h)
{
    const uint32_t bias = 112u << 23, smallest = 113u << 23; /* the latter is 2^-14 as a float */
    const int32_t infinity = 0x7c00 << 13;
    const uint32_t m = (h & 0x7fff) << 13;
    const uint32_t special = (int32_t)m >= infinity ? bias : 0;
    const uint32_t quiet = (int32_t)m > infinity ? 0x400000 : 0;
    const uint32_t normal = (m + bias + special) | quiet;
    const uint32_t tiny = bits_of(float_of(m + smallest) - float_of(smallest));
    return (h & 0x8000) << 16 | ((int32_t)m < 0x400 << 13 ? tiny : normal);
}

void TESS_K(tess__f32_from_f16)(float *restrict dst, const uint16_t *restrict src, size_t n)
{
    for (size_t i = vec_widen_f16(dst, src, n); i < n; i++)
        dst[i] = float_of(widen(src[i]));
}

/* Below 2^-14 the result is a multiple of 2^-24, the distance of floats in [0.5, 1): adding 1/2
 * rounds to it and leaves it in the low bits. A carry out of the mantissa raises the exponent, up
 * to infinity, as it should. */
static inline uint32_t narrow(uint32_t x)
{
    const int32_t magnitude = (int32_t)(x & 0x7fffffff), infinity = 0x7f800000;
    const uint32_t m = (uint32_t)magnitude;
    const uint32_t normal = (m - (112u << 23) + 0xfff + (m >> 13 & 1)) >> 13;
    const uint32_t tiny = bits_of(float_of(m) + 0.5f) - bits_of(0.5f);
    const uint32_t nan = magnitude > infinity ? 0x200 | (m >> 13 & 0x1ff) : 0;
    const uint32_t finite = magnitude < 113 << 23 ? tiny : normal;
    return (x >> 16 & 0x8000) | (magnitude >= 143 << 23 ? 0x7c00 | nan : finite); /* 2^16 and on */
}

void TESS_K(tess__f16_from_f32)(uint16_t *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = vec_narrow_f16(dst, src, n); i < n; i++)
        dst[i] = (uint16_t)narrow(bits_of(src[i]));
}
