/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - the small vector layer: vf is VL floats, and the few operations the kernels need.
 *
 * GNU vector extensions, so that one source serves every width: TESS_VEC bytes, set by the build.
 * A product followed by a sum becomes a fused multiply-add where the instruction set has one
 * (-ffp-contract=fast). Everything is static inline: no copy made for one instruction set can be
 * picked by the linker for another.
 */
#ifndef TESS_VEC_H
#define TESS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { VL = TESS_VEC / (int)sizeof(float), VD = TESS_VEC / (int)sizeof(double) };

typedef float vf __attribute__((vector_size(TESS_VEC)));
typedef int32_t vi __attribute__((vector_size(TESS_VEC)));
typedef double vd __attribute__((vector_size(TESS_VEC)));

static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf vf_set1(float x)
{
    return x - (vf){0};
}

static inline float vf_sum(vf v)
{
    float s = 0.0f;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

/* The smaller and the larger of each pair; where one is NaN, or both are zeros, b. Compilers make
 * a choice by masks out of the portable form, so the instruction is named where there is one. */
static inline vf vf_choose(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

static inline vf vf_min(vf a, vf b)
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

static inline vf vf_max(vf a, vf b)
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

/* VD floats as doubles; gcc converts whole vectors in halves unless told how. */
static inline vd vd_load_f32(const float *p)
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
static inline size_t vec_widen_f16(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    return i;
}

static inline size_t vec_narrow_f16(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#else
static inline size_t vec_widen_f16(float *dst, const uint16_t *src, size_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}

static inline size_t vec_narrow_f16(uint16_t *dst, const float *src, size_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
#endif

#endif
