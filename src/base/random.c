/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - counter-based random numbers: Philox4x32-10, uniform and normal.
 *
 * Number i of a stream is word i % 4 of block i / 4. A block is ten rounds over four words, with
 * the counter (block low, block high, stream low, stream high) and the key (seed low, seed high):
 *
 *   c0, c1, c2, c3 = high(M1 c2) ^ c1 ^ k0,  low(M1 c2),  high(M0 c0) ^ c3 ^ k1,  low(M0 c0)
 *   k0, k1         = k0 + W0, k1 + W1
 *
 * (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011.)
 *
 * Normal numbers come in pairs by Box and Muller from words (w, v) of one block:
 *
 *   r = sqrt(-2 log((w + 1/2) / 2^32)),   r cos(2 pi v / 2^32),   r sin(2 pi v / 2^32)
 *
 * in double precision, rounded to float at the end. The logarithm is never taken of 0 or 1; the
 * largest magnitude is sqrt(66 log 2) = 6.76. The C library's log and sin differ from one version
 * and processor to the next, so the functions here are power series over + - * / and sqrt alone,
 * which IEEE 754 rounds in one way only; the build forbids fused multiply-adds in this file.
 *
 * Work goes in batches of blocks held word by word, so that the compiler vectorises the rounds.
 */
#include "base_internal.h"

#include <math.h>
#include <string.h>

enum { BATCH = 64 }; /* blocks */

/* words[j][b] is word j of block first + b. */
static void philox(uint64_t seed, uint64_t stream, uint64_t first, int blocks,
                   uint32_t words[4][BATCH])
{
    const uint32_t mul0 = 0xd2511f53, mul1 = 0xcd9e8d57, weyl0 = 0x9e3779b9, weyl1 = 0xbb67ae85;
    for (int b = 0; b < blocks; b++) {
        words[0][b] = (uint32_t)(first + (uint64_t)b);
        words[1][b] = (uint32_t)((first + (uint64_t)b) >> 32);
        words[2][b] = (uint32_t)stream;
        words[3][b] = (uint32_t)(stream >> 32);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += weyl0, k1 += weyl1) {
        for (int b = 0; b < blocks; b++) {
            const uint64_t p0 = (uint64_t)mul0 * words[0][b], p1 = (uint64_t)mul1 * words[2][b];
            words[0][b] = (uint32_t)(p1 >> 32) ^ words[1][b] ^ k0;
            words[1][b] = (uint32_t)p1;
            words[2][b] = (uint32_t)(p0 >> 32) ^ words[3][b] ^ k1;
            words[3][b] = (uint32_t)p0;
        }
    }
}

void tess__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t words[4][BATCH];
    philox(key[0] | (uint64_t)key[1] << 32, counter[2] | (uint64_t)counter[3] << 32,
           counter[0] | (uint64_t)counter[1] << 32, 1, words);
    for (int j = 0; j < 4; j++)
        out[j] = words[j][0];
}

/* ---- normal numbers -------------------------------------------------------------------------- */

/* -2 log((w + 1/2) / 2^32). With w + 1/2 = 2^e m, m in [sqrt(1/2), sqrt(2)), and
 * s = (m - 1) / (m + 1), |s| < 0.1716:
 *
 *   log m = 2 (s + s^3/3 + ... + s^17/17),   the rest is below 2 s^19/19 / (1 - s^2) < 4e-16. */
static inline double minus_two_log(uint32_t w)
{
    const uint64_t half_root = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000; /* sqrt(1/2), 1 */
    const double log_2 = 0x1.62e42fefa39efp-1;
    const double x = (double)w + 0.5;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += one - half_root;
    const double e = (double)((int32_t)(bits >> 52) - 1023 - 32);
    bits = (bits & 0x000fffffffffffff) + half_root;
    double m;
    memcpy(&m, &bits, sizeof m);

    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    return -2.0 * (e * log_2 + 2.0 * s * p);
}

/* cos and sin of 2 pi v / 2^32. The nearest quarter turn is taken off in integers, exactly; what
 * remains is |x| <= pi/4, where the series alternate and err by less than their first term left
 * out: x^16/16! < 1.1e-15 for the cosine, x^17/17! < 5e-17 for the sine. */
static inline void cos_sin(uint32_t v, double *cosine, double *sine)
{
    const double step = 0x1.921fb54442d18p-30; /* 2 pi / 2^32 */
    const uint32_t turned = v + (1u << 29), quarter = turned >> 30;
    const double x = (double)((int32_t)(turned & 0x3fffffff) - (1 << 29)) * step, z = x * x;

    double s = -1.0 / 1307674368000; /* 15! */
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = x + x * z * s;

    double c = -1.0 / 87178291200; /* 14! */
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 1.0 / 2;
    c = c * z + 1.0;

    const double near = quarter & 1 ? s : c, far = quarter & 1 ? c : s;
    *cosine = quarter == 1 || quarter == 2 ? -near : near;
    *sine = quarter >= 2 ? -far : far;
}

void tess__normal_pair(uint32_t w, uint32_t v, double pair[2])
{
    const double r = sqrt(minus_two_log(w));
    double c, s;
    cos_sin(v, &c, &s);
    pair[0] = r * c;
    pair[1] = r * s;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* The numbers of a batch, four per block, from its words. */
typedef void (*batch_fn)(uint32_t words[4][BATCH], int blocks, void *out);

static void batch_bits(uint32_t words[4][BATCH], int blocks, void *out)
{
    uint32_t *x = out;
    for (int b = 0; b < blocks; b++)
        for (int j = 0; j < 4; j++)
            x[4 * b + j] = words[j][b];
}

static void batch_uniform(uint32_t words[4][BATCH], int blocks, void *out)
{
    float *x = out;
    for (int b = 0; b < blocks; b++)
        for (int j = 0; j < 4; j++)
            x[4 * b + j] = (float)(int32_t)(words[j][b] >> 8) * 0x1p-24f;
}

static void batch_normal(uint32_t words[4][BATCH], int blocks, void *out)
{
    float *x = out;
    for (int b = 0; b < blocks; b++) {
        for (int j = 0; j < 4; j += 2) {
            double pair[2];
            tess__normal_pair(words[j][b], words[j + 1][b], pair);
            x[4 * b + j] = (float)pair[0];
            x[4 * b + j + 1] = (float)pair[1];
        }
    }
}

/* Numbers index .. index + n - 1, each four bytes, through batches that cover them. */
static tess_status fill(const char *function, uint64_t seed, uint64_t stream, uint64_t index,
                        void *out, size_t n, batch_fn batch)
{
    if (!out && n > 0)
        return tess__invalid(function, "out is NULL");
    if (n > 0 && n - 1 > UINT64_MAX - index)
        return tess__invalid(function,
                             "index is %llu with n %zu, must end within the stream's 2^64 numbers",
                             (unsigned long long)index, n);
    uint32_t words[4][BATCH], numbers[4 * BATCH];
    char *to = out;
    while (n > 0) {
        const size_t skip = (size_t)(index % 4), room = 4 * BATCH - skip, take = TESS_MIN(n, room);
        const int blocks = (int)((skip + take + 3) / 4);
        philox(seed, stream, index / 4, blocks, words);
        batch(words, blocks, numbers);
        memcpy(to, numbers + skip, take * sizeof numbers[0]);
        to += take * sizeof numbers[0];
        index += take;
        n -= take;
    }
    return TESS_OK;
}

tess_status tess_random_bits(uint64_t seed, uint64_t stream, uint64_t index, uint32_t *out,
                             size_t n)
{
    return fill("tess_random_bits", seed, stream, index, out, n, batch_bits);
}

tess_status tess_random_uniform(uint64_t seed, uint64_t stream, uint64_t index, float *out,
                                size_t n)
{
    return fill("tess_random_uniform", seed, stream, index, out, n, batch_uniform);
}

tess_status tess_random_normal(uint64_t seed, uint64_t stream, uint64_t index, float *out, size_t n)
{
    return fill("tess_random_normal", seed, stream, index, out, n, batch_normal);
}
