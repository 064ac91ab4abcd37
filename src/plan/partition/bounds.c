/* SPDX-License-Identifier: Apache-2.0 */
/* bounds.c - times that no partition can go below.
 *
 * For heads w[1] >= w[2] >= ... in m groups:
 *
 *   LB0   the mean load
 *   LB1   w[1]: somebody has the largest
 *   LB2   w[m] + w[m+1]: two of the m + 1 largest are together
 *   LB3   w[1] + the c - 1 smallest, where every group has at least c = floor(heads / m) heads
 *
 * With unequal speeds LB1 to LB3 are taken on the fastest group. Where heads may be cut between
 * query blocks, what remains is the mean and the largest block.
 */
#include "partition_scratch.h"

int64_t tess__heads_bound(tess__partition_scratch *space, const tess__heads *heads,
                          tess_plan_method method)
{
    const int n = heads->heads, m = heads->groups;
    const int64_t *const w = heads->loads;
    int64_t sum = 0, total = 0, fastest = 1;
    for (int h = 0; h < n; h++)
        sum += w[h];
    for (int g = 0; g < m; g++) {
        total += tess__speed(heads->speeds, g);
        fastest = TESS_MAX(fastest, tess__speed(heads->speeds, g));
    }
    const int32_t *const order = space->order;
    tess__sort_loads(w, n, space->order, space->order_swap);
    int64_t least = n > 0 ? w[order[0]] : 0;
    if (n > m)
        least = TESS_MAX(least, w[order[m - 1]] + w[order[m]]);
    const int equal = heads->equal_heads || method == TESS_PLAN_DB_SP ||
                      method == TESS_PLAN_REFINED_EQUAL || method == TESS_PLAN_SNAKE ||
                      method == TESS_PLAN_CONTIGUOUS;
    if (equal && n >= m) {
        int64_t together = w[order[0]];
        for (int i = 0; i < n / m - 1; i++)
            together += w[order[n - 1 - i]];
        least = TESS_MAX(least, together);
    }
    return TESS_MAX(sum / m + (sum % m != 0), tess__time(least, fastest, total, m));
}

int64_t tess__fractional_bound(const tess_work *work, int layer, int ranks, const int32_t *speeds)
{
    int64_t sum = 0, block = 0, total = 0, fastest = 1;
    for (int h = 0; h < work->info.heads; h++) {
        sum += tess__work_head(work, layer, h);
        /* Without masks blocks of a head differ by one unit, and only the last is shorter. */
        const int32_t blocks = work->info.masks ? work->info.q_blocks : 1;
        int64_t before = 0;
        for (int32_t g = 0; g < blocks; g++) {
            const int64_t after = tess__work_prefix(work, layer, h, g + 1);
            block = TESS_MAX(block, after - before);
            before = after;
        }
    }
    for (int p = 0; p < ranks; p++) {
        total += speeds ? speeds[p] : 1;
        fastest = speeds ? TESS_MAX(fastest, speeds[p]) : 1;
    }
    return TESS_MAX(sum / ranks + (sum % ranks != 0), tess__time(block, fastest, total, ranks));
}
