/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.c - a random order of n things as a function: no list, no memory, any place at once.
 *
 * Four Feistel rounds are a permutation of the numbers of 2 b bits: (l, r) -> (r, l ^ f(r)), with f
 * from the random stream (seed, epoch). b is the least for which 2^(2b) >= n; a result beyond n is
 * put in again until one is not, which is a permutation of 0..n-1 (Black and Rogaway, 2002) and
 * takes four times on average at most.
 */
#include "data_internal.h"

static uint64_t permute(uint64_t seed, uint64_t epoch, int bits, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = x >> bits, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
        uint32_t f[2];
        (void)tess_random_bits(seed, epoch, round << 40 | right << 1, f, 2);
        const uint64_t mixed = left ^ ((f[0] | (uint64_t)f[1] << 32) & mask);
        left = right;
        right = mixed;
    }
    return left << bits | right;
}

int64_t tess__shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    int bits = 1;
    while (bits < 32 && (uint64_t)1 << (2 * bits) < (uint64_t)n)
        bits++;
    uint64_t x = (uint64_t)i;
    do
        x = permute(seed, (uint64_t)epoch, bits, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
