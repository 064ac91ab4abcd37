/* SPDX-License-Identifier: Apache-2.0 */
/* strategy.c - tess_plan_create: every way to split a layer, priced, and the best of them.
 *
 * Candidates of P ranks: each P = U x S with S = 1, a ring or selective, in both placements where
 * there are nodes, by every method for whole heads; and fractional heads. Each layer chooses for
 * itself (strategy_layer.c). Heads are split once per U and method, blocks once per (U, S) and
 * method, and placed twice.
 */
#include "strategy_internal.h"

#include <string.h>

/* Candidates of one U follow each other, so that those of its methods are near. */
static void number_splits(tess__layer_search *k)
{
    k->n_splits = 0;
    for (int i = 0; i < k->n; i++) {
        const tess_strategy *a = &k->list[i].strategy;
        k->split[i] = -1;
        for (int j = i - 1; j >= 0 && k->list[j].strategy.ulysses == a->ulysses; j--)
            if (k->list[j].strategy.method == a->method)
                k->split[i] = k->split[j];
        if (k->split[i] < 0)
            k->split[i] = k->n_splits++;
    }
}

/* Scratch of the task and of the search. */
static tess_status make_scratch(tess__task *task, tess__arena *arena, tess__layer_search *k)
{
    const size_t heads = (size_t)task->info.heads, ranks = (size_t)task->info.ranks;
    const size_t n = (size_t)k->n;
    task->heads = TESS_TAKE(arena, heads * sizeof *task->heads);
    task->part_speeds = TESS_TAKE(arena, ranks * sizeof *task->part_speeds);
    task->group_speeds = TESS_TAKE(arena, ranks * sizeof *task->group_speeds);
    k->split = TESS_TAKE(arena, n * sizeof *k->split);
    k->why = TESS_TAKE(arena, n * sizeof *k->why);
    k->bounded = TESS_TAKE(arena, n);
    k->settled = TESS_TAKE(arena, n);
    k->closer = TESS_TAKE(arena, n);
    TESS_TRY(tess__bound_scratch_make(arena, &task->info, task->work, &task->bound));
    number_splits(k);
    const size_t splits = (size_t)k->n_splits;
    k->is_split = TESS_TAKE(arena, splits);
    k->group_of = TESS_TAKE(arena, splits * heads * sizeof *k->group_of);
    int ring = 0;
    for (int i = 0; i < k->n; i++)
        if (k->list[i].strategy.ring > ring && task->work->info.masks)
            ring = k->list[i].strategy.ring;
    const tess__partition_scratch_shape shape = {.heads = task->info.heads,
                                                 .ranks = task->info.ranks,
                                                 .q_blocks = task->info.q_blocks,
                                                 .k_blocks = task->info.k_blocks,
                                                 .ring = ring > 1 ? ring : 0};
    return tess__partition_scratch_create(task->ctx, &shape, &task->space);
}

static tess_status run_layers(tess__task *task, const char *who, int n, tess_plan *plan)
{
    tess__arena arena = {.ctx = task->ctx};
    tess__layer_search k = {
        .task = task, .n = n, .arena = {.ctx = task->ctx}, .rings.arena = {.ctx = task->ctx}};
    const size_t layers = (size_t)task->info.layers;
    tess_candidate *all = tess__arena_take(&plan->arena, layers * (size_t)n * sizeof *all);
    tess_status status = all ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK) {
        tess__candidate_list(task, all);
        k.list = all;
        status = make_scratch(task, &arena, &k);
    }
    for (int at = 0; status == TESS_OK && at < task->info.layers; at++) {
        k.at = at;
        k.list = all + (size_t)at * (size_t)n;
        tess__candidate_list(task, k.list);
        memset(k.why, 0, (size_t)n * sizeof *k.why);
        memset(k.bounded, 0, (size_t)n);
        status = tess__strategy_layer(&k, who, plan);
        tess__arena_free(&k.arena);
        tess__arena_free(&k.rings.arena);
    }
    tess__arena_free(&k.arena);
    tess__partition_scratch_destroy(task->space);
    tess__arena_free(&arena);
    plan->candidates = all;
    plan->n_candidates = n;
    return status;
}

tess_status tess_plan_create(tess_ctx *ctx, const tess_work *work, const tess_cluster *cluster,
                             const tess_plan_opts *opts, tess_plan **plan)
{
    tess__task task;
    TESS_REQUIRE(ctx, work, opts, plan);
    TESS_TRY(tess__task_make(__func__, ctx, work, cluster, opts, &task));
    const int n = tess__candidate_list(&task, NULL);
    if (n == 0)
        return tess__invalid(
            __func__, "ulysses %d, ring %d, selective %d: no such degrees make %d ranks",
            opts->strategy.ulysses, opts->strategy.ring, opts->strategy.selective, opts->ranks);
    tess_plan *made = NULL;
    TESS_TRY(tess__plan_new(ctx, __func__, &task.info, &made));
    const tess_status status = run_layers(&task, __func__, n, made);
    if (status == TESS_OK)
        *plan = made;
    else
        tess_plan_destroy(made);
    return status;
}

tess_status tess_plan_explain(const tess_plan *plan, tess_candidate_fn fn, void *user)
{
    TESS_REQUIRE(plan, fn);
    for (int at = 0; at < plan->info.layers; at++)
        for (int i = 0; i < plan->n_candidates; i++)
            fn(user, at, &plan->candidates[(size_t)at * (size_t)plan->n_candidates + (size_t)i]);
    return TESS_OK;
}

tess_status tess_plan_candidate(const tess_plan *plan, int layer, int index,
                                tess_candidate *candidate)
{
    TESS_REQUIRE(plan, candidate);
    TESS_TRY(tess__plan_layer_ok(__func__, plan, layer));
    if (index < 0 || index >= plan->n_candidates)
        return tess__invalid(__func__, "index is %d, must be below %d, the candidates of the plan",
                             index, plan->n_candidates);
    *candidate = plan->candidates[(size_t)layer * (size_t)plan->n_candidates + (size_t)index];
    return TESS_OK;
}
