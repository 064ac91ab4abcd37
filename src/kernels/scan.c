/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - what is in one chunk of a tensor: counts, range, mean and squared deviations.
 *
 * Two passes over a chunk that stays in the second cache. The census counts and orders bit
 * patterns in integers, which any width of vector sums to the same result. The sums are
 *
 *   s = sum (x - p),  q = sum (x - p)^2,  mean = p + s / n,  m2 = q - s^2 / n
 *
 * in double precision over the finite elements, with p the first of them. Because p belongs to the
 * chunk, (p - mean)^2 <= m2, so q <= (n + 1) m2: the subtraction loses at most log2(n) = 13 of the
 * 53 bits, whatever the mean is. Element i goes to lane i % LANES, and lanes are added in a fixed
 * tree, with fused multiply-adds forbidden by the build: the same bits on every instruction set.
 *
 * Bytes: the chunk, once from memory; scratch: PIECE floats.
 */
#include "kernels.h"
#include "vec.h"

#include <math.h>

void TESS_K(tess__scan_f32)(const float *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f64)(const double *x, size_t n, tess__scan *scan);
void TESS_K(tess__f32_from_bf16)(float *dst, const uint16_t *src, size_t n);
void TESS_K(tess__f32_from_f16)(float *dst, const uint16_t *src, size_t n);

enum { LANES = 16, PIECE = 1024, VD = TESS_VEC / (int)sizeof(double) };
_Static_assert(TESS_SCAN_CHUNK <= UINT16_MAX, "the census of 16-bit elements counts in 16 bits");

/* ---- the census -------------------------------------------------------------------------------
 *
 * Bit patterns of one sign order like integers; turning the negative ones over gives every pattern
 * a key that orders like its number, -0 before +0. The turn is its own inverse. NaN lie beyond the
 * infinities, so that vectors that count them find a wrong range; a chunk that has some is counted
 * again, one by one.
 */

typedef struct {
    uint32_t nan, special, zero; /* special: NaN or infinite */
    int64_t low, high;           /* keys; low > high: all are NaN */
} census;

static inline int16_t turn_16(int16_t bits)
{
    return (int16_t)(bits ^ ((bits >> 15) & INT16_MAX));
}

static inline int32_t turn_32(int32_t bits)
{
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static inline int64_t turn_64(int64_t bits)
{
    return bits ^ ((bits >> 63) & INT64_MAX);
}

typedef int16_t vs __attribute__((vector_size(TESS_VEC)));

/* Where mask is -1 the element of a, where it is 0 that of b. */
static inline vs select_16(vs mask, vs a, vs b)
{
    return (a & mask) | (b & ~mask);
}

static inline vi select_32(vi mask, vi a, vi b)
{
    return (a & mask) | (b & ~mask);
}

/* The counts and the range, NaN included, of the first elements: as many as fill vectors. */
static inline size_t count_16(census *c, const uint16_t *x, size_t n, int16_t infinity)
{
    enum { WIDTH = TESS_VEC / 2 };
    vs nan = {0}, special = {0}, zero = {0}, low = INT16_MAX - (vs){0}, high = INT16_MIN - (vs){0};
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        vs bits;
        memcpy(&bits, x + i, sizeof bits);
        const vs m = bits & INT16_MAX, key = bits ^ ((bits >> 15) & INT16_MAX);
        nan -= m > infinity; /* a mask of -1 where it holds */
        special -= m >= infinity;
        zero -= m == 0;
        low = select_16(key < low, key, low);
        high = select_16(key > high, key, high);
    }
    for (int l = 0; l < WIDTH; l++) {
        c->nan += (uint32_t)nan[l], c->special += (uint32_t)special[l];
        c->zero += (uint32_t)zero[l];
        c->low = low[l] < c->low ? low[l] : c->low;
        c->high = high[l] > c->high ? high[l] : c->high;
    }
    return i;
}

static inline size_t count_32(census *c, const float *x, size_t n, int32_t infinity)
{
    vi nan = {0}, special = {0}, zero = {0}, low = INT32_MAX - (vi){0}, high = INT32_MIN - (vi){0};
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        vi bits;
        memcpy(&bits, x + i, sizeof bits);
        const vi m = bits & INT32_MAX, key = bits ^ ((bits >> 31) & INT32_MAX);
        nan -= m > infinity;
        special -= m >= infinity;
        zero -= m == 0;
        low = select_32(key < low, key, low);
        high = select_32(key > high, key, high);
    }
    for (int l = 0; l < VL; l++) {
        c->nan += (uint32_t)nan[l], c->special += (uint32_t)special[l];
        c->zero += (uint32_t)zero[l];
        c->low = low[l] < c->low ? low[l] : c->low;
        c->high = high[l] > c->high ? high[l] : c->high;
    }
    return i;
}

/* Adds one element, given its magnitude and its key. */
static inline void count_one(census *c, int64_t m, int64_t key, int64_t infinity)
{
    c->nan += m > infinity;
    c->special += m >= infinity;
    c->zero += m == 0;
    if (m <= infinity) {
        c->low = key < c->low ? key : c->low;
        c->high = key > c->high ? key : c->high;
    }
}

static const census nothing = {0, 0, 0, INT64_MAX, INT64_MIN};

static census census_16(const uint16_t *x, size_t n, int16_t infinity)
{
    census c = nothing;
    size_t i = count_16(&c, x, n, infinity);
    if (c.nan > 0)
        c = nothing, i = 0;
    for (; i < n; i++)
        count_one(&c, x[i] & INT16_MAX, turn_16((int16_t)x[i]), infinity);
    return c;
}

static census census_32(const float *x, size_t n)
{
    const int32_t infinity = 0x7f800000;
    census c = nothing;
    size_t i = count_32(&c, x, n, infinity);
    if (c.nan > 0)
        c = nothing, i = 0;
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        count_one(&c, bits & INT32_MAX, turn_32(bits), infinity);
    }
    return c;
}

static census census_64(const double *x, size_t n)
{
    census c = nothing;
    for (size_t i = 0; i < n; i++) {
        int64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        count_one(&c, bits & INT64_MAX, turn_64(bits), 0x7ff0000000000000);
    }
    return c;
}

/* ---- the sums ---------------------------------------------------------------------------------
 */

typedef double vd __attribute__((vector_size(TESS_VEC)));
typedef float vh __attribute__((vector_size(TESS_VEC / 2))); /* VD floats */

enum { VECTORS = LANES / VD };

typedef struct {
    double pivot;
    double s[LANES], q[LANES];
} sums;

static inline void add_lane(sums *t, size_t i, double x)
{
    const double d = x - t->pivot;
    t->s[i % LANES] += d;
    t->q[i % LANES] += d * d;
}

/* Adds n elements; n is a multiple of LANES but for the last call of a chunk. */
static inline void add_f32(sums *t, const float *x, size_t n)
{
    vd s[VECTORS], q[VECTORS];
    memcpy(s, t->s, sizeof s);
    memcpy(q, t->q, sizeof q);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int v = 0; v < VECTORS; v++) {
            vh h;
            memcpy(&h, x + i + v * VD, sizeof h);
            const vd d = __builtin_convertvector(h, vd) - t->pivot;
            s[v] += d;
            q[v] += d * d;
        }
    }
    memcpy(t->s, s, sizeof s);
    memcpy(t->q, q, sizeof q);
    for (; i < n; i++)
        add_lane(t, i, x[i]);
}

static inline void add_f64(sums *t, const double *x, size_t n)
{
    vd s[VECTORS], q[VECTORS];
    memcpy(s, t->s, sizeof s);
    memcpy(q, t->q, sizeof q);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int v = 0; v < VECTORS; v++) {
            vd d;
            memcpy(&d, x + i + v * VD, sizeof d);
            d -= t->pivot;
            s[v] += d;
            q[v] += d * d;
        }
    }
    memcpy(t->s, s, sizeof s);
    memcpy(t->q, q, sizeof q);
    for (; i < n; i++)
        add_lane(t, i, x[i]);
}

static inline double sum_lanes(double lanes[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

static void finish(sums *t, size_t n, const census *c, double min, double max, tess__scan *scan)
{
    const int64_t finite = (int64_t)n - c->special;
    const double s = sum_lanes(t->s), q = sum_lanes(t->q);
    const double mean = finite ? t->pivot + s / (double)finite : 0.0;
    const double m2 = finite ? q - s * (s / (double)finite) : 0.0;
    const int any = n > c->nan;
    *scan = (tess__scan){
        .nan = c->nan,
        .inf = (int64_t)c->special - c->nan,
        .zero = c->zero,
        .finite = finite,
        .min = any ? min + 0.0 : (double)INFINITY, /* + 0.0 makes -0 a 0 */
        .max = any ? max + 0.0 : -(double)INFINITY,
        .mean = mean,
        .m2 = m2 > 0.0 ? m2 : 0.0,
    };
}

/* The same floats with the pivot in place of what is not finite: it adds nothing to the sums. */
static const float *cleaned(float *buffer, const float *x, size_t n, float pivot)
{
    for (size_t i = 0; i < n; i++)
        buffer[i] = fabsf(x[i]) < INFINITY ? x[i] : pivot;
    return buffer;
}

static float first_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) < INFINITY)
            return x[i];
    return 0.0f;
}

/* ---- the types --------------------------------------------------------------------------------
 */

void TESS_K(tess__scan_f32)(const float *x, size_t n, tess__scan *scan)
{
    const census c = census_32(x, n);
    const float pivot = first_finite(x, n);
    sums t = {.pivot = pivot};
    float buffer[PIECE];
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t take = n - i < PIECE ? n - i : PIECE;
        add_f32(&t, c.special ? cleaned(buffer, x + i, take, pivot) : x + i, take);
    }
    const int32_t keys[2] = {(int32_t)c.low, (int32_t)c.high};
    float range[2];
    for (int i = 0; i < 2; i++) {
        const int32_t bits = turn_32(keys[i]);
        memcpy(range + i, &bits, sizeof bits);
    }
    finish(&t, n, &c, range[0], range[1], scan);
}

typedef void (*widen_fn)(float *dst, const uint16_t *src, size_t n);

static inline void scan_16(const uint16_t *x, size_t n, int16_t infinity, widen_fn widen,
                           tess__scan *scan)
{
    const census c = census_16(x, n, infinity);
    size_t first = 0;
    while (first < n && (x[first] & 0x7fff) >= infinity)
        first++;
    float pivot = 0.0f, buffer[PIECE];
    if (first < n)
        widen(&pivot, x + first, 1);
    sums t = {.pivot = pivot};
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t take = n - i < PIECE ? n - i : PIECE;
        widen(buffer, x + i, take);
        add_f32(&t, c.special ? cleaned(buffer, buffer, take, pivot) : buffer, take);
    }
    const int16_t keys[2] = {(int16_t)c.low, (int16_t)c.high};
    uint16_t bits[2];
    float range[2];
    for (int i = 0; i < 2; i++)
        bits[i] = (uint16_t)turn_16(keys[i]);
    widen(range, bits, 2);
    finish(&t, n, &c, range[0], range[1], scan);
}

void TESS_K(tess__scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan)
{
    scan_16(x, n, 0x7f80, TESS_K(tess__f32_from_bf16), scan);
}

void TESS_K(tess__scan_f16)(const uint16_t *x, size_t n, tess__scan *scan)
{
    scan_16(x, n, 0x7c00, TESS_K(tess__f32_from_f16), scan);
}

void TESS_K(tess__scan_f64)(const double *x, size_t n, tess__scan *scan)
{
    const census c = census_64(x, n);
    sums t = {.pivot = 0.0};
    size_t first = 0;
    while (first < n && !(fabs(x[first]) < (double)INFINITY))
        first++;
    if (first < n)
        t.pivot = x[first];
    double buffer[PIECE];
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t take = n - i < PIECE ? n - i : PIECE;
        for (size_t j = 0; c.special && j < take; j++)
            buffer[j] = fabs(x[i + j]) < (double)INFINITY ? x[i + j] : t.pivot;
        add_f64(&t, c.special ? buffer : x + i, take);
    }
    const int64_t keys[2] = {c.low, c.high};
    double range[2];
    for (int i = 0; i < 2; i++) {
        const int64_t bits = turn_64(keys[i]);
        memcpy(range + i, &bits, sizeof bits);
    }
    finish(&t, n, &c, range[0], range[1], scan);
}
