/* SPDX-License-Identifier: Apache-2.0 */
/* heads.c - whole heads to groups: contiguous, snake, LPT, db-SP's capped greedy.
 *
 *   contiguous   heads as they are numbered, the remainder one by one to the first groups
 *   snake        sorted, distributed to groups 0 1 .. m-1, m-1 .. 1 0, 0 1 ..
 *   lpt          sorted, each to the group with the least load (DSV's sparse head parallelism)
 *   db-sp        the same among groups with fewer than heads / groups heads; where that does not
 *                divide, heads mod groups of them have one more
 *   refined      see refine.c
 *   refined-equal  the same with equal numbers of heads, within one
 *
 * Sorted is by load, the largest first. Cost: O(heads log groups) beside the sort.
 */
#include "partition_scratch.h"
#include "plan/plan_internal.h"

#include <string.h>

/* Exchanges to compare: of single heads per start, and of up to two heads in the end. */
enum { SINGLE_BUDGET = 400000, DOUBLE_BUDGET = 20000 };

static void contiguous(int heads, int groups, int32_t *group_of)
{
    for (int g = 0; g < groups; g++)
        for (int32_t h = tess__even_cut(heads, groups, g); h < tess__even_cut(heads, groups, g + 1);
             h++)
            group_of[h] = g;
}

static void snake(const int32_t *order, int heads, int groups, int32_t *group_of)
{
    for (int i = 0; i < heads; i++) {
        const int round = i / groups, at = i % groups;
        group_of[order[i]] = round % 2 ? groups - 1 - at : at;
    }
}

static void greedy(tess__partition_scratch *space, const tess__heads *heads, int capped,
                   int32_t *group_of)
{
    const tess__greedy_job job = {.n = heads->heads,
                                  .groups = heads->groups,
                                  .loads = heads->loads,
                                  .order = space->order,
                                  .speeds = heads->speeds,
                                  .capped = capped};
    tess__greedy(space, &job, group_of);
}

/* The best of three starts, each refined by single heads; then refined by up to two. */
static void refined(tess__partition_scratch *space, const tess__heads *heads, int32_t *group_of)
{
    contiguous(heads->heads, heads->groups, group_of);
    tess__refine(space, heads, 1, SINGLE_BUDGET, group_of);
    for (int capped = heads->equal_heads; capped <= 1; capped++) {
        greedy(space, heads, capped, space->start);
        tess__refine(space, heads, 1, SINGLE_BUDGET, space->start);
        if (tess__heads_time(space, heads, space->start) < tess__heads_time(space, heads, group_of))
            memcpy(group_of, space->start, (size_t)heads->heads * sizeof *group_of);
    }
    tess__refine(space, heads, 2, DOUBLE_BUDGET, group_of);
}

void tess__heads_split(tess__partition_scratch *space, const tess__heads *heads,
                       tess_plan_method method, int32_t *group_of)
{
    tess__sort_loads(heads->loads, heads->heads, space->order, space->order_swap);
    switch (method) {
    case TESS_PLAN_SNAKE: snake(space->order, heads->heads, heads->groups, group_of); break;
    case TESS_PLAN_LPT: greedy(space, heads, heads->equal_heads, group_of); break;
    case TESS_PLAN_DB_SP: greedy(space, heads, 1, group_of); break;
    case TESS_PLAN_REFINED: refined(space, heads, group_of); break;
    case TESS_PLAN_REFINED_EQUAL: {
        tess__heads equal = *heads;
        equal.equal_heads = 1;
        refined(space, &equal, group_of);
        break;
    }
    default: contiguous(heads->heads, heads->groups, group_of); break;
    }
}

int64_t tess__heads_time(tess__partition_scratch *space, const tess__heads *heads,
                         const int32_t *group_of)
{
    int64_t total = 0, most = 0;
    for (int g = 0; g < heads->groups; g++) {
        space->sums[g] = 0;
        total += tess__speed(heads->speeds, g);
    }
    for (int h = 0; h < heads->heads; h++)
        space->sums[group_of[h]] += heads->loads[h];
    for (int g = 0; g < heads->groups; g++) {
        const int64_t time =
            tess__time(space->sums[g], tess__speed(heads->speeds, g), total, heads->groups);
        most = TESS_MAX(time, most);
    }
    return most;
}
