/* SPDX-License-Identifier: Apache-2.0 */
/* ascending.c - numbers in ascending order, for medians and quartiles. */
#include "base_internal.h"

#include <stdlib.h>

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
