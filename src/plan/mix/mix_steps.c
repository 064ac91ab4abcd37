/* SPDX-License-Identifier: Apache-2.0 */
/* mix_steps.c - the clips of a window to its steps, the orders clips are laid in, and the imbalance
 * without a plan. O(n log n). */
#include "mix_plan.h"

#include <stdlib.h>

typedef struct {
    double key;
    int64_t clip;
} ranked;

/* The largest key first; of equals the lowest clip. */
static int by_key(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return (x->clip > y->clip) - (x->clip < y->clip);
}

tess_status tess__mix_by_tokens(tess_ctx *ctx, const tess__mix_work *work, const int64_t *order,
                                int64_t n, int64_t *by_tokens)
{
    ranked *list = TESS_ALLOC(ctx, (size_t)n * sizeof *list);
    for (int64_t i = 0; i < n; i++)
        list[i] = (ranked){(double)work[order[i]].tokens / work[order[i]].total, order[i]};
    qsort(list, (size_t)n, sizeof *list, by_key);
    for (int64_t i = 0; i < n; i++)
        by_tokens[i] = list[i].clip;
    tess__free(ctx, list);
    return TESS_OK;
}

/* step_of[i] = the step of the i-th of the list; counts in begin. */
static void distribute(const ranked *list, int64_t n, int steps, tess__mix_tree *tree,
                       int32_t *step_of, int64_t *begin)
{
    tess__mix_tree_start(tree, steps);
    for (int s = 0; s < steps; s++)
        tess__mix_tree_set(tree, s, 0.0);
    for (int64_t i = 0; i < n; i++) {
        const int s = tess__mix_tree_largest(tree); /* keys are times below 0 */
        step_of[i] = s;
        begin[s + 1]++;
        tess__mix_tree_set(tree, s, tree->key[tree->size + s] - list[i].key);
    }
}

tess_status tess__mix_steps(tess_ctx *ctx, const tess__mix_work *work, int64_t n, int steps,
                            int64_t *order, int64_t *begin)
{
    tess__arena arena = {.ctx = ctx};
    ranked *list = tess__arena_take(&arena, (size_t)n * sizeof *list);
    int32_t *step_of = tess__arena_take(&arena, (size_t)n * sizeof *step_of);
    tess__mix_tree tree = {.key = tess__arena_take(&arena, tess__mix_tree_bytes(steps))};
    if (!list || !step_of || !tree.key) {
        tess__arena_free(&arena);
        return TESS_ENOMEM;
    }
    for (int64_t i = 0; i < n; i++)
        list[i] = (ranked){work[i].total, i};
    qsort(list, (size_t)n, sizeof *list, by_key);
    for (int s = 0; s <= steps; s++)
        begin[s] = 0;
    distribute(list, n, steps, &tree, step_of, begin);
    for (int s = 0; s < steps; s++)
        begin[s + 1] += begin[s];
    for (int64_t i = 0; i < n; i++)
        order[begin[step_of[i]]++] = list[i].clip;
    for (int s = steps; s > 0; s--)
        begin[s] = begin[s - 1];
    begin[0] = 0;
    tess__arena_free(&arena);
    return TESS_OK;
}

double tess__mix_rho_before(const tess__mix_rules *rules, const tess_mix_clip *clips,
                            const tess__mix_work *work, int64_t first, int64_t last, double *times)
{
    double slowest = 0.0, sum = 0.0;
    for (int p = 0; p < rules->ranks; p++)
        times[p] = 0.0;
    for (int64_t i = first; i < last; i++) {
        const int64_t p = clips[i].drawn_by >= 0 ? clips[i].drawn_by
                                                 : (i - first) * rules->ranks / (last - first);
        times[p] += work[i].total / rules->speed[p];
        sum += work[i].total;
    }
    for (int p = 0; p < rules->ranks; p++)
        slowest = TESS_MAX(slowest, times[p]);
    return sum > 0.0 ? slowest * rules->total_speed / sum : 1.0;
}
