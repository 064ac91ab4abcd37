/* SPDX-License-Identifier: Apache-2.0 */
/* judge_points.c - what a search keeps: the best, the best of each number of GPUs, the fronts.
 *
 * One order decides everything: what is ranked by, then the step's time, then memory, then the
 * number of the combination. Among combinations of equally many GPUs the faster one is also the
 * cheaper one, so that both fronts are made of the fastest of each number of GPUs.
 */
#include "search_internal.h"

#include <stdlib.h>

static double key_of(tess_search_by by, double gpus, double step)
{
    return by == TESS_SEARCH_TIME ? step : gpus * step;
}

/* Below 0: a comes first. by TIME: also the order within a number of GPUs. */
static int order(tess_search_by by, const tess_search_point *a, const tess_search_point *b)
{
    const tess_sim_result *x = &a->result, *y = &b->result;
    const double of_a[] = {key_of(by, x->scenario.layout.gpus, x->step_s), x->step_s,
                           x->memory.peak, (double)a->combination};
    const double of_b[] = {key_of(by, y->scenario.layout.gpus, y->step_s), y->step_s,
                           y->memory.peak, (double)b->combination};
    for (int i = 0; i < 4; i++)
        if (of_a[i] != of_b[i])
            return of_a[i] < of_b[i] ? -1 : 1;
    return 0;
}

/* The first group with at least so many GPUs. */
static int64_t find_group(const tess__ranking *r, int gpus)
{
    int64_t i = 0;
    while (i < r->n_groups && r->groups[i].result.scenario.layout.gpus < gpus)
        i++;
    return i;
}

int tess__ranking_open(const tess__ranking *r, int gpus, double bound)
{
    if (r->n_top < TESS__TOP)
        return 1;
    const tess_sim_result *last = &r->top[TESS__TOP - 1].result;
    if (key_of(r->by, gpus, bound) <= key_of(r->by, last->scenario.layout.gpus, last->step_s))
        return 1;
    const int64_t i = find_group(r, gpus);
    return i == r->n_groups || r->groups[i].result.scenario.layout.gpus != gpus ||
           bound <= r->groups[i].result.step_s;
}

static void add_top(tess__ranking *r, const tess_search_point *point)
{
    int at = r->n_top;
    while (at > 0 && order(r->by, point, &r->top[at - 1]) < 0)
        at--;
    if (at == TESS__TOP)
        return;
    if (r->n_top < TESS__TOP)
        r->n_top++;
    for (int i = r->n_top - 1; i > at; i--)
        r->top[i] = r->top[i - 1];
    r->top[at] = *point;
}

tess_status tess__ranking_add(tess_ctx *ctx, tess__ranking *r, const tess_search_point *point)
{
    const int gpus = point->result.scenario.layout.gpus;
    const int64_t at = find_group(r, gpus);
    if (at == r->n_groups || r->groups[at].result.scenario.layout.gpus != gpus) {
        TESS_GROW(ctx, r->groups, r->n_groups, r->n_groups + 1, r->room);
        for (int64_t i = r->n_groups++; i > at; i--)
            r->groups[i] = r->groups[i - 1];
        r->groups[at] = *point;
    } else if (order(TESS_SEARCH_TIME, point, &r->groups[at]) < 0) {
        r->groups[at] = *point;
    }
    add_top(r, point);
    return TESS_OK;
}

void tess__ranking_add_late(tess__ranking *r, const tess_search_point *point)
{
    if (r->late.combination < 0 || order(TESS_SEARCH_TIME, point, &r->late) < 0)
        r->late = *point;
}

/* ---- fronts ---------------------------------------------------------------------------------- */

/* Groups by time, then by GPUs. */
static void sort_by_time(const tess__ranking *r, int *places)
{
    for (int i = 0; i < (int)r->n_groups; i++) {
        int at = i;
        for (; at > 0 && order(TESS_SEARCH_TIME, &r->groups[i], &r->groups[places[at - 1]]) < 0;
             at--)
            places[at] = places[at - 1];
        places[at] = i;
    }
}

tess_status tess__ranking_fronts(tess_ctx *ctx, tess__ranking *r)
{
    const size_t n = (size_t)r->n_groups;
    r->front_gpus = TESS_ALLOC(ctx, n * sizeof *r->front_gpus);
    r->front_cost = TESS_ALLOC(ctx, n * sizeof *r->front_cost);
    for (int i = 0; i < (int)n; i++)
        if (r->n_front_gpus == 0 || r->groups[i].result.step_s <
                                        r->groups[r->front_gpus[r->n_front_gpus - 1]].result.step_s)
            r->front_gpus[r->n_front_gpus++] = i;
    sort_by_time(r, r->front_cost);
    for (int i = 0; i < (int)n; i++) {
        const int at = r->front_cost[i];
        if (r->n_front_cost == 0 ||
            r->groups[at].cost < r->groups[r->front_cost[r->n_front_cost - 1]].cost)
            r->front_cost[r->n_front_cost++] = at;
    }
    return TESS_OK;
}

void tess__ranking_free(tess_ctx *ctx, tess__ranking *r)
{
    tess__free(ctx, r->groups);
    tess__free(ctx, r->front_gpus);
    tess__free(ctx, r->front_cost);
}
