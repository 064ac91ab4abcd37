/* SPDX-License-Identifier: Apache-2.0 */
/* topk.c - exactly the k largest of n scores, as ascending indices, ties to the lowest index.
 *
 * NaN ranks below everything, -0 equals +0. Four steps:
 *
 *   1. A sample of 512 scores gives a value that k of n exceed with near certainty: the sample's
 *      quantile, four standard deviations on the safe side.
 *   2. One pass over the scores keeps those not below it, with their indices, in order: about
 *      1.3 k candidates when k is a tenth of n. If fewer than k are kept (the sample was unlucky,
 *      or NaN are wanted), all n are candidates.
 *   3. The candidates' bits become integers of the same order, and bisection over the integers
 *      finds the k-th largest: at most 32 counting passes over the candidates.
 *   4. A last pass over the candidates emits what is above it, and of its equals the first ones.
 *
 * Cost: n loads and compares, and about 25 k counted candidates; the worst case counts 32 n.
 * Scratch: 2 (n + PAD) integers. The result depends on the scores alone, not on the vector width.
 */
#include "entries.h"
#include "vec_compress.h"

#include <limits.h>
#include <math.h>

enum {
    SAMPLE = 512,
    SAMPLE_FROM = 4 * SAMPLE, /* scores below which all are candidates */
    PAD = TESS_TOPK_PAD,
};
_Static_assert(PAD >= 4 * VL, "counting goes in steps of four vectors");

VINLINE vi vi_load(const int32_t *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Integers in the order of the floats; NaN becomes INT32_MIN, below -inf. Adding 0 turns -0 into
 * +0. */
VINLINE vi ordered(vf x)
{
    const vi number = x == x;
    const vi bits = (vi)(x + vf_set1(0.0f));
    const vi key = bits ^ ((bits >> 31) & vi_set1(INT32_MAX));
    return (key & number) | (vi_set1(INT32_MIN) & ~number);
}

/* The float that became key. */
static float unordered(int32_t key)
{
    const int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Turns n floats at x into ordered integers in place, followed by INT32_MIN up to a multiple of
 * four vectors, which is returned. */
static int32_t order(int32_t *x, int32_t n)
{
    int32_t full = (n + 4 * VL - 1) / (4 * VL) * (4 * VL);
    for (int32_t i = n; i < full; i++)
        x[i] = -1; /* a NaN */
    for (int32_t i = 0; i < full; i += VL) {
        const vi key = ordered((vf)vi_load(x + i));
        memcpy(x + i, &key, sizeof key);
    }
    return full;
}

/* How many of n keys are at least `least`; n is a multiple of four vectors. */
static int32_t count(const int32_t *x, int32_t n, int32_t least)
{
    const vi bound = vi_set1(least);
    vi c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};
    for (int32_t i = 0; i < n; i += 4 * VL) {
        c0 -= vi_load(x + i) >= bound;
        c1 -= vi_load(x + i + VL) >= bound;
        c2 -= vi_load(x + i + 2 * VL) >= bound;
        c3 -= vi_load(x + i + 3 * VL) >= bound;
    }
    const vi c = (c0 + c1) + (c2 + c3);
    int32_t sum = 0;
    for (int i = 0; i < VL; i++)
        sum += c[i];
    return sum;
}

/* The largest key in [low, high] that at least k of n keys reach, given that k reach low; any key
 * that exactly k reach will do as well, and ends the search. */
static int32_t bisect(const int32_t *x, int32_t n, int32_t k, int64_t low, int64_t high, int steps)
{
    for (; low < high && steps > 0; steps--) {
        const int64_t middle = low + (high - low) / 2 + 1;
        const int32_t c = count(x, n, (int32_t)middle);
        if (c == k)
            return (int32_t)middle;
        if (c > k)
            low = middle;
        else
            high = middle - 1;
    }
    return (int32_t)low;
}

/* A score that k of n exceed or reach with near certainty; NaN if a sample cannot decide. */
static float bracket(const float *x, int32_t n, int32_t k, int32_t *scratch)
{
    if (n < SAMPLE_FROM)
        return NAN;
    const double share = (double)k / n;
    const int32_t want = (int32_t)(SAMPLE * share + 4.0 * sqrt(SAMPLE * share * (1.0 - share))) + 3;
    if (want >= SAMPLE)
        return NAN;
    /* The wandering offset keeps the sample out of step with periods in the scores. */
    const int32_t step = n / SAMPLE;
    for (int32_t i = 0; i < SAMPLE; i++)
        memcpy(scratch + i, x + (int64_t)i * step + i * 7 % step, sizeof *x);
    order(scratch, SAMPLE);
    /* 20 halvings of 2^32 leave a relative width of 2^-11: finer than the sample. */
    const int32_t key = bisect(scratch, SAMPLE, want, INT32_MIN, INT32_MAX, 20);
    return unordered(key);
}

/* Scores not below `least`, and their indices, in order. Every store is a whole vector. */
static int32_t compact(int32_t *value, int32_t *index, const float *x, int32_t n, float least)
{
    const vf bound = vf_set1(least);
    vi at = {0};
    for (int i = 0; i < VL; i++)
        at[i] = i;
    int32_t m = 0, i = 0;
    for (; i + VL <= n; i += VL, at += vi_set1(VL)) {
        const vf v = vf_load(x + i);
        const uint32_t bits = vi_bits(v >= bound);
        vi_compress(value + m, (vi)v, bits);
        m += vi_compress(index + m, at, bits);
    }
    for (; i < n; i++) {
        memcpy(value + m, x + i, sizeof *x);
        index[m] = i;
        m += x[i] >= least;
    }
    return m;
}

static void take_all(int32_t *value, int32_t *index, const float *x, int32_t n)
{
    memcpy(value, x, sizeof *x * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        index[i] = i;
}

/* Emits the indices of keys above `limit`, and the first `equals` of those equal to it. */
static void emit(int32_t *to, const int32_t *key, const int32_t *index, int32_t n, int32_t limit,
                 int32_t equals)
{
    const vi bound = vi_set1(limit);
    int32_t m = 0;
    for (int32_t i = 0; i < n; i += VL) {
        const vi v = vi_load(key + i);
        uint32_t bits = vi_bits(v > bound), same = vi_bits(v == bound);
        for (; same && equals > 0; same &= same - 1, equals--)
            bits |= same & -same;
        m += vi_compress(to + m, vi_load(index + i), bits);
    }
}

void TESS_K(tess__topk)(int32_t *index, const float *x, int32_t n, int32_t k, int32_t *scratch)
{
    int32_t *value = scratch, *place = scratch + n + PAD;
    if (k == n) {
        for (int32_t i = 0; i < n; i++)
            index[i] = i;
        return;
    }
    const float least = bracket(x, n, k, scratch);
    int32_t m = least == least ? compact(value, place, x, n, least) : 0;
    if (m < k) {
        m = n;
        take_all(value, place, x, n);
    }
    const int32_t full = order(value, m);
    const int32_t limit = bisect(value, full, k, INT32_MIN, INT32_MAX, 32);
    const int32_t above = limit == INT32_MAX ? 0 : count(value, full, limit + 1);
    emit(index, value, place, full, limit, k - above);
}
