/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - what is in one chunk of a tensor: counts, range, mean and squared deviations.
 *
 *   s = sum (x - p),  q = sum (x - p)^2,  mean = p + s / n,  m2 = q - s^2 / n
 *
 * in double precision over the finite elements, with p the first of them. Because p belongs to the
 * chunk, (p - mean)^2 <= m2, so q <= (n + 1) m2: the subtraction loses at most log2(n) = 13 of the
 * 53 bits, whatever the mean is. Element i goes to lane i % LANES, and lanes are added in a fixed
 * tree, with fused multiply-adds forbidden by the build: the same bits on every instruction set.
 *
 * A chunk is taken for finite and scanned in one pass. An infinity or NaN anywhere in it makes s
 * infinite or NaN, for sums of floats do not overflow a double; such a chunk is scanned again, with
 * p in place of what is not finite, and a census of each element.
 *
 * Bytes: the chunk, once from memory. Work per element: 5 operations on doubles, 5 on floats.
 */
#include "entries.h"
#include "vec.h"

#include <math.h>

enum { LANES = 16, PIECE = 1024, VECTORS = LANES / VD };
_Static_assert(LANES % VL == 0 && PIECE % LANES == 0, "vectors fill lanes, lanes fill pieces");

typedef struct {
    double pivot;
    double s[LANES], q[LANES];
    tess__scan found; /* the counts and the range */
} scanner;

static scanner start(double pivot)
{
    return (scanner){.pivot = pivot, .found = {.min = (double)INFINITY, .max = -(double)INFINITY}};
}

static inline int is_finite(double x)
{
    return fabs(x) < (double)INFINITY;
}

/* ---- sums -------------------------------------------------------------------------------------
 *
 * The add functions take n elements, a multiple of LANES but for the last call of a chunk.
 */

static inline void add_one(scanner *t, size_t i, double x)
{
    const double d = x - t->pivot;
    t->s[i % LANES] += d;
    t->q[i % LANES] += d * d;
}

static void add_f64(scanner *t, const double *x, size_t n)
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
        add_one(t, i, x[i]);
}

/* Counts elements that may be anything. Counts and range do not depend on the order, so these loops
 * are the compiler's to vectorise; eight ranges at a time are for its sake. */
static void count_f64(tess__scan *c, const double *x, size_t n)
{
    enum { WAYS = 8 };
    int64_t nan = 0, inf = 0, zero = 0;
    for (size_t i = 0; i < n; i++) {
        nan += x[i] != x[i];
        inf += fabs(x[i]) == (double)INFINITY;
        zero += x[i] == 0.0;
    }
    c->nan += nan;
    c->inf += inf;
    c->zero += zero;
    c->finite += (int64_t)n - nan - inf;

    double low[WAYS], high[WAYS];
    for (int j = 0; j < WAYS; j++)
        low[j] = c->min, high[j] = c->max;
    size_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) {
            low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
            high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
        }
    }
    for (; i < n; i++) {
        low[0] = x[i] < low[0] ? x[i] : low[0];
        high[0] = x[i] > high[0] ? x[i] : high[0];
    }
    for (int j = 0; j < WAYS; j++) {
        c->min = low[j] < c->min ? low[j] : c->min;
        c->max = high[j] > c->max ? high[j] : c->max;
    }
}

/* Sums, counts and range of up to PIECE elements that may be anything; cleans x. */
static void add_any(scanner *t, double *x, size_t n)
{
    count_f64(&t->found, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = is_finite(x[i]) ? x[i] : t->pivot;
    add_f64(t, x, n);
}

/* Sums, zeros and range of floats that are taken for finite. */
static inline void add_f32(scanner *t, const float *x, size_t n)
{
    vd s[VECTORS], q[VECTORS];
    memcpy(s, t->s, sizeof s);
    memcpy(q, t->q, sizeof q);
    vf low = vf_set1(INFINITY), high = vf_set1(-INFINITY);
    vi zeros = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int v = 0; v < LANES; v += VL) {
            const vf f = vf_load(x + i + v);
            zeros -= ((vi)f & INT32_MAX) == 0; /* a mask of -1 where it holds */
            low = vf_min(f, low);
            high = vf_max(f, high);
        }
        for (int v = 0; v < VECTORS; v++) {
            const vd d = vd_load_f32(x + i + v * VD) - t->pivot;
            s[v] += d;
            q[v] += d * d;
        }
    }
    memcpy(t->s, s, sizeof s);
    memcpy(t->q, q, sizeof q);
    tess__scan *c = &t->found;
    for (int l = 0; l < VL; l++) {
        c->zero += zeros[l];
        c->min = low[l] < c->min ? low[l] : c->min;
        c->max = high[l] > c->max ? high[l] : c->max;
    }
    c->finite += (int64_t)n;
    for (; i < n; i++) {
        add_one(t, i, x[i]);
        c->zero += x[i] == 0.0f;
        c->min = x[i] < c->min ? x[i] : c->min;
        c->max = x[i] > c->max ? x[i] : c->max;
    }
}

static void add_any_f32(scanner *t, const float *x, size_t n)
{
    double wide[PIECE];
    for (size_t i = 0; i < n; i++)
        wide[i] = x[i];
    add_any(t, wide, n);
}

static inline double sum_lanes(const double lanes[LANES])
{
    double sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

static void finish(const scanner *t, tess__scan *scan)
{
    const double n = (double)t->found.finite, s = sum_lanes(t->s), q = sum_lanes(t->q);
    *scan = t->found;
    scan->min += 0.0; /* makes -0 a 0 */
    scan->max += 0.0;
    if (n > 0.0) {
        const double m2 = q - s * (s / n);
        scan->mean = t->pivot + s / n;
        scan->m2 = m2 < 0.0 ? 0.0 : m2;
    }
}

/* ---- types ----------------------------------------------------------------------------------- */

typedef void (*widen_fn)(float *dst, const uint16_t *src, size_t n);
typedef void (*add_fn)(scanner *t, const float *x, size_t n);

static inline void scan_pieces_16(scanner *t, const uint16_t *x, size_t n, widen_fn widen,
                                  add_fn add)
{
    float buffer[PIECE];
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t take = n - i < PIECE ? n - i : PIECE;
        widen(buffer, x + i, take);
        add(t, buffer, take);
    }
}

static inline void scan_16(const uint16_t *x, size_t n, widen_fn widen, tess__scan *scan)
{
    float pivot = 0.0f;
    if (n > 0)
        widen(&pivot, x, 1);
    scanner t = start(pivot);
    scan_pieces_16(&t, x, n, widen, add_f32);
    if (!is_finite(sum_lanes(t.s))) {
        for (size_t i = 1; i < n && !is_finite(pivot); i++)
            widen(&pivot, x + i, 1);
        t = start(is_finite(pivot) ? pivot : 0.0);
        scan_pieces_16(&t, x, n, widen, add_any_f32);
    }
    finish(&t, scan);
}

void TESS_K(tess__scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan)
{
    scan_16(x, n, TESS_K(tess__f32_from_bf16), scan);
}

void TESS_K(tess__scan_f16)(const uint16_t *x, size_t n, tess__scan *scan)
{
    scan_16(x, n, TESS_K(tess__f32_from_f16), scan);
}

void TESS_K(tess__scan_f32)(const float *x, size_t n, tess__scan *scan)
{
    scanner t = start(n > 0 ? x[0] : 0.0);
    add_f32(&t, x, n);
    if (!is_finite(sum_lanes(t.s))) {
        size_t first = 0;
        while (first < n && !is_finite(x[first]))
            first++;
        t = start(first < n ? x[first] : 0.0);
        for (size_t i = 0; i < n; i += PIECE)
            add_any_f32(&t, x + i, n - i < PIECE ? n - i : PIECE);
    }
    finish(&t, scan);
}

/* Doubles may overflow their sums while they are finite: the caller sees that in the mean. */
void TESS_K(tess__scan_f64)(const double *x, size_t n, tess__scan *scan)
{
    size_t first = 0;
    while (first < n && !is_finite(x[first]))
        first++;
    scanner t = start(first < n ? x[first] : 0.0);
    double piece[PIECE];
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t take = n - i < PIECE ? n - i : PIECE;
        memcpy(piece, x + i, take * sizeof *x);
        add_any(&t, piece, take);
    }
    finish(&t, scan);
}
