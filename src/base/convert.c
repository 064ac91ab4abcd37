/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - elements of one type as elements of another: every pair of types.
 *
 * The pairs people wait for, between F32 and BF16 or F16, are kernels. The others meet in one of
 * three common types, in pieces that stay in the first cache:
 *
 *   to F32          directly
 *   to BF16, F16    through F32, rounded to odd, then the kernel
 *   to F64          directly
 *   to integers     integers through I64, floats through F64 (which holds all of them exactly)
 *   to BOOL         the same two, compared with zero
 *
 * Rounding twice, to F32 and then to 16 bits, would go wrong where the first rounding makes a tie.
 * Rounding to odd cannot: what is not exact gets an odd last bit, which is no tie in the narrower
 * type, and keeps its side (Boldo and Melquiond, 2008). A NaN stays one with its sign and leading
 * payload bits, and becomes quiet where its width changes, but for BF16 to F32.
 *
 * Threads share chunks of fixed size; each element depends on its source alone.
 */
#include "base_internal.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1024, CHUNK = 64 * PIECE };

/* ---- into the common types, at most PIECE elements ------------------------------------------- */

/* x rounded to odd: toward zero, and the last bit set if that changed it. */
static inline float odd_float(double x)
{
    const float nearest = (float)x;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if ((double)nearest != x && nearest == nearest) {
        bits -= fabs((double)nearest) > fabs(x);
        bits |= 1;
    }
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* The same from an integer that a double may not hold: its last eleven bits become one. */
static inline double odd_double(int64_t x)
{
    const uint64_t m = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    if (m < 1ull << 53)
        return (double)x;
    const double y = (double)(int64_t)(m >> 11 | ((m & 0x7ff) != 0)) * 2048.0;
    return x < 0 ? -y : y;
}

/* Every type to F64, rounded to nearest. F32, BF16 and F16 come in as F32. */
static void to_f64(tess_dtype from, const void *src, double *restrict dst, size_t n)
{
    const float *f32 = src;
    const double *f64 = src;
    const int32_t *i32 = src;
    const int64_t *i64 = src;
    const uint8_t *u8 = src;
    switch (from) {
    case TESS_DTYPE_F64: memcpy(dst, f64, n * sizeof *dst); break;
    case TESS_DTYPE_I32:
        for (size_t i = 0; i < n; i++)
            dst[i] = i32[i];
        break;
    case TESS_DTYPE_I64:
        for (size_t i = 0; i < n; i++)
            dst[i] = (double)i64[i];
        break;
    case TESS_DTYPE_U8:
        for (size_t i = 0; i < n; i++)
            dst[i] = u8[i];
        break;
    case TESS_DTYPE_BOOL:
        for (size_t i = 0; i < n; i++)
            dst[i] = u8[i] != 0;
        break;
    default:
        for (size_t i = 0; i < n; i++)
            dst[i] = f32[i];
    }
}

/* F64 and integers to F32, rounded to nearest. */
static void to_f32(tess_dtype from, const void *src, float *restrict dst, size_t n)
{
    const double *f64 = src;
    const int32_t *i32 = src;
    const int64_t *i64 = src;
    const uint8_t *u8 = src;
    switch (from) {
    case TESS_DTYPE_F64:
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)f64[i];
        break;
    case TESS_DTYPE_I32:
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)i32[i];
        break;
    case TESS_DTYPE_I64:
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)i64[i];
        break;
    case TESS_DTYPE_U8:
        for (size_t i = 0; i < n; i++)
            dst[i] = u8[i];
        break;
    default:
        for (size_t i = 0; i < n; i++)
            dst[i] = u8[i] != 0;
    }
}

/* F64 and integers to F32, rounded to odd. */
static void to_odd_f32(tess_dtype from, const void *src, float *restrict dst, size_t n)
{
    if (from == TESS_DTYPE_I64) {
        const int64_t *i64 = src;
        for (size_t i = 0; i < n; i++)
            dst[i] = odd_float(odd_double(i64[i]));
        return;
    }
    double wide[PIECE];
    to_f64(from, src, wide, n);
    for (size_t i = 0; i < n; i++)
        dst[i] = odd_float(wide[i]);
}

/* Integers to I64. */
static void to_i64(tess_dtype from, const void *src, int64_t *restrict dst, size_t n)
{
    const int32_t *i32 = src;
    const uint8_t *u8 = src;
    if (from == TESS_DTYPE_I64) {
        memcpy(dst, src, n * sizeof *dst);
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = from == TESS_DTYPE_I32 ? i32[i] : from == TESS_DTYPE_U8 ? u8[i] : u8[i] != 0;
}

/* ---- out of them ----------------------------------------------------------------------------- */

/* Both limits are doubles or round to one beyond the range, where only >= decides. */
static inline int64_t truncate_to(double x, int64_t min, int64_t max)
{
    if (x != x)
        return 0;
    return x <= (double)min ? min : x >= (double)max ? max : (int64_t)x;
}

static void from_f64(const double *src, tess_dtype to, void *dst, size_t n)
{
    int32_t *i32 = dst;
    int64_t *i64 = dst;
    uint8_t *u8 = dst;
    for (size_t i = 0; i < n; i++) {
        switch (to) {
        case TESS_DTYPE_I32: i32[i] = (int32_t)truncate_to(src[i], INT32_MIN, INT32_MAX); break;
        case TESS_DTYPE_I64: i64[i] = truncate_to(src[i], INT64_MIN, INT64_MAX); break;
        case TESS_DTYPE_U8: u8[i] = (uint8_t)truncate_to(src[i], 0, UINT8_MAX); break;
        default: u8[i] = src[i] != 0.0;
        }
    }
}

static inline int64_t clamp(int64_t x, int64_t min, int64_t max)
{
    return x < min ? min : x > max ? max : x;
}

static void from_i64(const int64_t *src, tess_dtype to, void *dst, size_t n)
{
    int32_t *i32 = dst;
    uint8_t *u8 = dst;
    if (to == TESS_DTYPE_I64)
        memcpy(dst, src, n * sizeof *src);
    for (size_t i = 0; i < n; i++) {
        switch (to) {
        case TESS_DTYPE_I64: break;
        case TESS_DTYPE_I32: i32[i] = (int32_t)clamp(src[i], INT32_MIN, INT32_MAX); break;
        case TESS_DTYPE_U8: u8[i] = (uint8_t)clamp(src[i], 0, UINT8_MAX); break;
        default: u8[i] = src[i] != 0;
        }
    }
}

/* ---- pieces and chunks ----------------------------------------------------------------------- */

static int is_small_float(tess_dtype dtype)
{
    return dtype == TESS_DTYPE_BF16 || dtype == TESS_DTYPE_F16;
}

static int is_integer(tess_dtype dtype)
{
    return dtype >= TESS_DTYPE_I32;
}

static void widen(const tess__kernels *kernels, tess_dtype from, const void *src, float *dst,
                  size_t n)
{
    (from == TESS_DTYPE_BF16 ? kernels->f32_from_bf16 : kernels->f32_from_f16)(dst, src, n);
}

static void narrow(const tess__kernels *kernels, const float *src, tess_dtype to, void *dst,
                   size_t n)
{
    (to == TESS_DTYPE_BF16 ? kernels->bf16_from_f32 : kernels->f16_from_f32)(dst, src, n);
}

/* At most PIECE elements of different types. */
static void convert_piece(const tess__kernels *kernels, tess_dtype from, const void *src,
                          tess_dtype to, void *dst, size_t n)
{
    float f32[PIECE];
    if (is_small_float(from)) {
        widen(kernels, from, src, f32, n);
        from = TESS_DTYPE_F32;
        src = f32;
    }
    if (is_small_float(to)) {
        if (from != TESS_DTYPE_F32) {
            to_odd_f32(from, src, f32, n);
            src = f32;
        }
        narrow(kernels, src, to, dst, n);
    } else if (to == TESS_DTYPE_F32) {
        to_f32(from, src, dst, n);
    } else if (to == TESS_DTYPE_F64) {
        to_f64(from, src, dst, n);
    } else if (is_integer(from)) {
        int64_t i64[PIECE];
        to_i64(from, src, i64, n);
        from_i64(i64, to, dst, n);
    } else {
        double f64[PIECE];
        to_f64(from, src, f64, n);
        from_f64(f64, to, dst, n);
    }
}

void tess__convert_chunk(const tess__kernels *kernels, tess_dtype from, const void *src,
                         tess_dtype to, void *dst, size_t n)
{
    const size_t size_from = tess_dtype_size(from), size_to = tess_dtype_size(to);
    if (from == to && from != TESS_DTYPE_BOOL) {
        memcpy(dst, src, n * size_to);
    } else if (is_small_float(from) && to == TESS_DTYPE_F32) {
        widen(kernels, from, src, dst, n);
    } else if (from == TESS_DTYPE_F32 && is_small_float(to)) {
        narrow(kernels, src, to, dst, n);
    } else {
        for (size_t i = 0; i < n; i += PIECE)
            convert_piece(kernels, from, (const char *)src + i * size_from, to,
                          (char *)dst + i * size_to, TESS_MIN(n - i, PIECE));
    }
}

/* One side of tess_convert: its type, its pointer. */
static tess_status check_side(const char *name, const char *type, tess_dtype dtype,
                              const void *data, int64_t n)
{
    const size_t size = tess_dtype_size(dtype);
    if (size == 0)
        return tess__fail(TESS_EINVAL, "tess_convert: %s is %d, must be a tess_dtype", type,
                          (int)dtype);
    if (!data && n > 0)
        return tess__fail(TESS_EINVAL, "tess_convert: %s is NULL", name);
    if ((uintptr_t)data % size != 0)
        return tess__fail(TESS_EINVAL, "tess_convert: %s is not aligned to %zu bytes, an element",
                          name, size);
    return TESS_OK;
}

tess_status tess_convert(const tess_ctx *ctx, tess_dtype from, const void *src, tess_dtype to,
                         void *dst, int64_t n)
{
    TESS_REQUIRE(ctx);
    if (n < 0 || n > PTRDIFF_MAX / 8)
        return tess__invalid(__func__, "n is %lld, must be 0..%lld", (long long)n,
                             (long long)(PTRDIFF_MAX / 8));
    TESS_TRY(check_side("src", "from", from, src, n));
    TESS_TRY(check_side("dst", "to", to, dst, n));
    const size_t size_from = tess_dtype_size(from), size_to = tess_dtype_size(to);
    const uintptr_t a = (uintptr_t)src, b = (uintptr_t)dst;
    if (n > 0 && a < b + (size_t)n * size_to && b < a + (size_t)n * size_from)
        return tess__invalid(__func__, "src and dst overlap");

    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (chunks > 4)
    for (int64_t c = 0; c < chunks; c++) {
        const size_t start = (size_t)c * CHUNK, left = (size_t)n - start;
        tess__convert_chunk(ctx->kernels, from, (const char *)src + start * size_from, to,
                            (char *)dst + start * size_to, TESS_MIN(left, CHUNK));
    }
    return TESS_OK;
}
