/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - the small vector layer: vf is VL floats, and the few operations the kernels need.
 *
 * GNU vector extensions, so that one source serves every width: TESS_VEC bytes, set by the build.
 * A product followed by a sum becomes a fused multiply-add where the instruction set has one
 * (-ffp-contract=fast). Everything is static inline: no copy made for one instruction set can be
 * picked by the linker for another. Intrinsics stand only where the extensions have no word for an
 * instruction, or compilers do not find it.
 */
#ifndef TESS_VEC_H
#define TESS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define VINLINE static inline __attribute__((always_inline))

/* Before a loop over registers: unroll it whole, twice, or four times. */
#if defined(__clang__)
#define VUNROLL _Pragma("unroll")
#define VUNROLL2 _Pragma("unroll 2")
#define VUNROLL4 _Pragma("unroll 4")
#else
#define VUNROLL _Pragma("GCC unroll 16")
#define VUNROLL2 _Pragma("GCC unroll 2")
#define VUNROLL4 _Pragma("GCC unroll 4")
#endif

/* A loop over registers, unrolled whole, as one statement. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): i is the name that the loop declares */
#define VFOR(i, n) VUNROLL for (int i = 0; i < (n); i++)

enum {
    VL = TESS_VEC / (int)sizeof(float),
    VD = TESS_VEC / (int)sizeof(double),
#if defined(__AVX512F__) || defined(__aarch64__)
    VREGS = 32, /* vector registers to plan with */
#else
    VREGS = 16,
#endif
};

typedef float vf __attribute__((vector_size(TESS_VEC)));
typedef int32_t vi __attribute__((vector_size(TESS_VEC)));
typedef double vd __attribute__((vector_size(TESS_VEC)));

VINLINE vd vd_load(const double *p)
{
    vd v;
    memcpy(&v, p, sizeof v);
    return v;
}

VINLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

VINLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

VINLINE vf vf_set1(float x)
{
#if defined(__AVX512F__) && TESS_VEC == 64
    return (vf)_mm512_set1_ps(x);
#elif defined(__AVX__) && TESS_VEC == 32
    return (vf)_mm256_set1_ps(x);
#elif defined(__SSE__) && TESS_VEC == 16
    return (vf)_mm_set1_ps(x);
#else
    return x - (vf){0};
#endif
}

VINLINE vi vi_set1(int32_t x)
{
    return x - (vi){0};
}

/* The first n lanes, n below VL; those beyond are zero, or not written. */
VINLINE vf vf_load_first(const float *p, int64_t n)
{
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

VINLINE void vf_store_first(float *p, vf v, int64_t n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}

VINLINE vf vf_first(vf v, int64_t n)
{
    vf first = {0};
    memcpy(&first, &v, (size_t)n * sizeof(float));
    return first;
}

/* The elements of each pair exchanged. */
VINLINE vf vf_swap(vf v)
{
#if defined(__clang__)
    vf w;
    for (int i = 0; i < VL; i++)
        w[i] = v[i ^ 1];
    return w;
#else
    vi order = {0};
    for (int i = 0; i < VL; i++)
        order[i] = i ^ 1;
    return __builtin_shuffle(v, order);
#endif
}

VINLINE float vf_sum(vf v)
{
    float s = 0.0f;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

/* The smaller and the larger of each pair; where one is NaN, or both are zeros, b. Compilers make
 * a choice by masks out of the portable form, so the instruction is named where there is one. */
VINLINE vf vf_choose(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

VINLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__) && TESS_VEC == 64
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__) && TESS_VEC == 32
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE__) && TESS_VEC == 16
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vf_choose(a < b, a, b);
#endif
}

VINLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__) && TESS_VEC == 64
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__) && TESS_VEC == 32
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__) && TESS_VEC == 16
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_choose(a > b, a, b);
#endif
}

/* 2^x for x <= 127; below -126 it stays at 2^-126, which is nothing beside the 1 that every softmax
 * row contains. NaN stays NaN.
 *
 * x = n + f with n the nearest integer, found by adding 1.5 * 2^23, whose low bits then hold n;
 * with the exponent's bias of 127 added too, those bits shifted into place are 2^n. 2^f on [-0.5,
 * 0.5] is a minimax polynomial of degree 5 (relative error 1.9e-7). */
VINLINE vf vf_exp2(vf x)
{
    const vf magic = vf_set1(12582912.0f + 127.0f);
    x = vf_max(vf_set1(-126.0f), x);
    const vf n = x + magic;
    const vf f = x - (n - magic);
    vf p = vf_set1(1.327647187e-3f);
    p = p * f + vf_set1(9.675541334e-3f);
    p = p * f + vf_set1(5.550713274e-2f);
    p = p * f + vf_set1(2.402211972e-1f);
    p = p * f + vf_set1(6.931469671e-1f);
    p = p * f + vf_set1(1.0f);
    return p * (vf)((vi)n << 23);
}

/* out[d][j] = factor * in[j][d] for four rows of four floats; strides in floats. */
VINLINE void v_transpose4(float *out, int64_t stride_out, const float *in, int64_t stride_in,
                          float factor)
{
#if defined(__SSE__)
    const __m128 f = _mm_set1_ps(factor);
    __m128 r[4];
    for (int j = 0; j < 4; j++)
        r[j] = _mm_mul_ps(f, _mm_loadu_ps(in + j * stride_in));
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    for (int d = 0; d < 4; d++)
        _mm_storeu_ps(out + d * stride_out, r[d]);
#else
    for (int d = 0; d < 4; d++)
        for (int j = 0; j < 4; j++)
            out[d * stride_out + j] = factor * in[j * stride_in + d];
#endif
}

VINLINE void v_prefetch(const void *p)
{
    __builtin_prefetch(p, 0, 3);
}

VINLINE void v_prefetch_write(const void *p)
{
    __builtin_prefetch(p, 1, 3);
}

/* VD floats as doubles; gcc converts whole vectors in halves by itself. */
VINLINE vd vd_load_f32(const float *p)
{
#if defined(__AVX512F__) && TESS_VEC == 64
    return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif defined(__AVX__) && TESS_VEC == 32
    return (vd)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    typedef float half __attribute__((vector_size(TESS_VEC / 2)));
    half h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vd);
#endif
}

/* F16 by instruction: converts the first elements, as many as fit, and returns how many. A NaN
 * becomes quiet and keeps its leading bits; the caller's rounding and denormal modes play no part.
 */
#ifdef __F16C__
VINLINE size_t vec_widen_f16(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    return i;
}

VINLINE size_t vec_narrow_f16(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#else
VINLINE size_t vec_widen_f16(float *dst, const uint16_t *src, size_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}

VINLINE size_t vec_narrow_f16(uint16_t *dst, const float *src, size_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
#endif

#endif
