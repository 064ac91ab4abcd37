/* SPDX-License-Identifier: Apache-2.0 */
/* fixed.c - sums whose bits do not depend on their order: integers in units of 2^-46.
 *
 *   fixed_add    sum[i] += round(factor x[i] / 2^-46); 1 if an element is not below 32
 *   fixed_read   y[i] = sum[i] 2^-46
 *
 * The product is rounded to float first. An addend is below 2^51 units, so that adding 1.5 2^52 to
 * it rounds it to an integer in the low bits of a double, and 4096 addends fit in 64 bits. An
 * element that is too large or NaN adds anything: the caller drops the sums.
 */
#include "entries.h"

#include <math.h>
#include <string.h>

static const double units = 0x1p46, magic = 0x1.8p52;
static const float most = 32.0f;

int TESS_K(tess__fixed_add)(int64_t *restrict sum, const float *restrict x, float factor, int64_t n)
{
    int64_t base;
    int beyond = 0;
    memcpy(&base, &magic, sizeof base);
    for (int64_t i = 0; i < n; i++) {
        const float addend = factor * x[i];
        const double shifted = (double)addend * units + magic;
        int64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)bits - (uint64_t)base);
        beyond |= !(fabsf(addend) < most);
    }
    return beyond;
}

void TESS_K(tess__fixed_read)(float *restrict y, const int64_t *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)sum[i] * (1.0 / units));
}
