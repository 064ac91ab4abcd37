/* SPDX-License-Identifier: Apache-2.0 */
/* search_report.c - settings of a combination as text, and the parts by which two steps differ. */
#include "search_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *search_settings(const tess_search *s, int64_t combination, int short_names,
                            char text[SEARCH_SETTINGS_BYTES])
{
    size_t n = 0;
    for (int i = 0; tess_search_key(s, i); i++) {
        const char *key = tess_search_key(s, i), *dot = strchr(key, '.');
        n += (size_t)snprintf(text + n, n < SEARCH_SETTINGS_BYTES ? SEARCH_SETTINGS_BYTES - n : 0,
                              "%s%s=%s", i ? " " : "", short_names && dot ? dot + 1 : key,
                              tess_search_value(s, i, combination));
        if (n >= SEARCH_SETTINGS_BYTES)
            break;
    }
    return text;
}

static int by_size(const void *a, const void *b)
{
    const double x = fabs(((const search_difference *)a)->ms),
                 y = fabs(((const search_difference *)b)->ms);
    return (x < y) - (x > y);
}

int search_differences(const tess_sim_result *a, const tess_sim_result *b,
                       search_difference list[SIMULATE_PARTS])
{
    simulate_part of_a[SIMULATE_PARTS], of_b[SIMULATE_PARTS];
    int n = 0;
    simulate_parts(a, of_a);
    simulate_parts(b, of_b);
    for (int i = 0; i < SIMULATE_PARTS; i++)
        if (of_a[i].seconds != of_b[i].seconds)
            list[n++] =
                (search_difference){of_a[i].name, 1e3 * (of_b[i].seconds - of_a[i].seconds)};
    qsort(list, (size_t)n, sizeof *list, by_size);
    return n;
}
