/* SPDX-License-Identifier: Apache-2.0 */
/* ascending.c - numbers in ascending order, for lists, medians and quartiles. */
#include "base_internal.h"

#include <stdlib.h>

int tess__by_int32(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int tess__by_int64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void tess__sort(double *x, size_t n)
{
    qsort(x, n, sizeof *x, ascending);
}

double tess__median(double *x, size_t n)
{
    tess__sort(x, n);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}
