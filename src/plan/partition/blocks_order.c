/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_order.c - parts of blocks as orders and cuts, and db-SP's biased greedy that fills them.
 */
#include "plan/plan_internal.h"
#include "ring.h"

#include <string.h>

void tess__blocks_greedy(tess__partition_scratch *space, const int64_t *weights, int32_t n,
                         int parts, int reward, int32_t *part_of)
{
    tess__sort_loads(weights, n, space->order, space->order_swap);
    const tess__greedy_job job = {.n = n,
                                  .groups = parts,
                                  .loads = weights,
                                  .order = space->order,
                                  .capped = 1,
                                  .reward = reward};
    tess__greedy(space, &job, part_of);
}

void tess__parts_order(const int32_t *part_of, int32_t n, int parts, int32_t *order, int32_t *cuts)
{
    memset(cuts, 0, ((size_t)parts + 1) * sizeof *cuts);
    for (int32_t i = 0; i < n; i++)
        cuts[part_of[i] + 1]++;
    for (int p = 0; p < parts; p++)
        cuts[p + 1] += cuts[p];
    for (int32_t i = 0; i < n; i++)
        order[cuts[part_of[i]]++] = i;
    for (int p = parts; p > 0; p--)
        cuts[p] = cuts[p - 1];
    cuts[0] = 0;
}

void tess__parts_sort(tess__partition_scratch *space, int32_t n, int parts, int32_t *order,
                      int32_t *cuts)
{
    for (int p = 0; p < parts; p++)
        for (int32_t at = cuts[p]; at < cuts[p + 1]; at++)
            space->part_of[order[at]] = p;
    tess__parts_order(space->part_of, n, parts, order, cuts);
}

void tess__parts_contiguous(int32_t n, int parts, int32_t *order, int32_t *cuts, int32_t *own_part)
{
    for (int p = 0; p <= parts; p++)
        cuts[p] = tess__even_cut(n, parts, p);
    for (int p = 0; p < parts; p++)
        for (int32_t i = cuts[p]; i < cuts[p + 1]; i++) {
            order[i] = i;
            own_part[i] = p;
        }
}

int64_t tess__parts_moved(const int32_t *order, const int32_t *cuts, int parts,
                          const int32_t *own_part)
{
    int64_t moved = 0;
    for (int p = 0; p < parts; p++)
        for (int32_t at = cuts[p]; at < cuts[p + 1]; at++)
            moved += own_part[order[at]] != p;
    return moved;
}
