/* SPDX-License-Identifier: Apache-2.0 */
/* sort_loads.c - indices by load.
 *
 * Few are sorted by insertion, many by a radix sort of eight bits at a time that leaves out the
 * digits all loads share. Both are stable, so equal loads stay in the order of their indices.
 *
 * Cost: O(n^2) moves up to 64 indices, O(n * digits) above; no memory but the caller's.
 */
#include "partition_scratch.h"

#include <string.h>

enum { FEW = 64, DIGITS = 256 };

static void insert(const int64_t *loads, int32_t n, int32_t *order)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i;
        for (; at > 0 && loads[order[at - 1]] < loads[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* One stable pass by the digit at `shift`, the largest first. */
static void pass(const int64_t *loads, int32_t n, int shift, const int32_t *from, int32_t *to)
{
    int32_t place[DIGITS] = {0};
    for (int32_t i = 0; i < n; i++)
        place[(uint64_t)loads[i] >> shift & (DIGITS - 1)]++;
    int32_t before = 0;
    for (int d = DIGITS - 1; d >= 0; d--) {
        const int32_t count = place[d];
        place[d] = before;
        before += count;
    }
    for (int32_t i = 0; i < n; i++)
        to[place[(uint64_t)loads[from[i]] >> shift & (DIGITS - 1)]++] = from[i];
}

void tess__sort_loads(const int64_t *loads, int32_t n, int32_t *order, int32_t *swap)
{
    if (n <= FEW) {
        insert(loads, n, order);
        return;
    }
    uint64_t differ = 0;
    for (int32_t i = 0; i < n; i++) {
        differ |= (uint64_t)(loads[i] ^ loads[0]);
        order[i] = i;
    }
    int32_t *from = order, *to = swap;
    for (int shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & (DIGITS - 1)))
            continue;
        pass(loads, n, shift, from, to);
        int32_t *const sorted = to;
        to = from;
        from = sorted;
    }
    if (from != order)
        memcpy(order, from, (size_t)n * sizeof *order);
}
