/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c - what one core can do at best: fused multiply-adds on registers, reads from memory.
 *
 *   fma:  a_j = a_j * m + c, j < CHAINS, `rounds` times
 *
 * CHAINS independent chains hide the latency of an FMA (4 cycles on two ports need 8); with m < 1
 * the values stay near c / (1 - m), so that no denormal or infinity slows the loop down.
 * Flop: rounds * CHAINS * VL * 2; without an FMA instruction a multiplication and an addition.
 *
 *   read: the sum of n floats, four vectors at a time: one load per addition, 4 n bytes.
 */
#include "entries.h"
#include "vec.h"

enum { CHAINS = 12 };

int64_t TESS_K(tess__fma)(int64_t rounds, float *sink)
{
    const vf m = vf_set1(0.5f + *sink), c = vf_set1(1.0f + *sink);
    vf a[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        a[j] = vf_set1((float)j);
    for (int64_t r = 0; r < rounds; r++)
        for (int j = 0; j < CHAINS; j++)
            a[j] = a[j] * m + c;
    vf s = a[0];
    for (int j = 1; j < CHAINS; j++)
        s += a[j];
    *sink += 0.0f * vf_sum(s);
    return rounds * CHAINS * VL * 2;
}

float TESS_K(tess__read)(const float *x, size_t n)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    size_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        s0 += vf_load(x + i);
        s1 += vf_load(x + i + VL);
        s2 += vf_load(x + i + 2 * VL);
        s3 += vf_load(x + i + 3 * VL);
    }
    float s = vf_sum((s0 + s1) + (s2 + s3));
    for (; i < n; i++)
        s += x[i];
    return s;
}
