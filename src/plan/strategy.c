/* SPDX-License-Identifier: Apache-2.0 */
/* strategy.c - tess_plan_create: every way to split a layer, priced, and the best of them.
 *
 * Candidates of P ranks: each P = U x S with S = 1, a ring or selective, in both placements where
 * there are nodes; and fractional heads. They are tried from the cheapest to plan to the dearest:
 * heads alone, fractional, selective, rings; one whose lower bound already loses is not planned
 * further. Heads are split once per U, blocks once per (U, S), and placed twice. Each layer chooses
 * for itself. Scratch of the best layer so far is kept, that of losers freed.
 */
#include "strategy_internal.h"

#include <string.h>

/* ---- one layer ------------------------------------------------------------------------------- */

typedef struct {
    tess__task *task;
    int at;
    tess_candidate *list; /* (n) of this layer */
    int n;
    char (*why)[TESS_REASON_BYTES]; /* (n): "" until a reason is known */
    uint8_t *bounded;               /* (n): ns is a lower bound */
    int32_t *group_of;              /* (heads) of the U that was split last */
    int split;                      /* that U; 0: none */
    tess_plan_method split_by;      /* its method */
    int best;                       /* -1: none */
    tess__arena arena;              /* holds the best layer */
    tess_plan_layer layer;
} search;

/* 0: heads alone, 1: fractional, 2: selective, 3: ring. */
static int class_of(const tess_candidate *c)
{
    if (c->strategy.method == TESS_PLAN_FRACTIONAL)
        return 1;
    return c->strategy.ring > 1 ? 3 : c->strategy.selective > 1 ? 2 : 0;
}

/* Whether it is known which keys travel. */
static int is_known(const tess__task *task, int at, const tess_candidate *c)
{
    return c->strategy.selective == 1 || task->work->info.masks ||
           tess__union_share(&task->pricing, at, c->strategy.selective) > 0.0;
}

/* Whether a candidate is beaten before its blocks are planned; then it gets its bound. */
static int is_dominated(search *k, int i)
{
    const tess__task *task = k->task;
    tess_candidate c = k->list[i];
    if (k->best < 0 || c.strategy.ring * c.strategy.selective == 1)
        return 0;
    tess__price_bound(&task->pricing, &task->info, task->work, k->at, k->group_of, &c);
    if (tess__candidate_order(task, &c, &k->list[k->best]) <= 0)
        return 0;
    k->list[i].ns = c.ns;
    k->list[i].rho = c.rho;
    k->list[i].bytes = c.bytes;
    k->bounded[i] = 1;
    return 1;
}

/* Enters a price, and takes the layer as the best where it is; returns 1 if it did. */
static int enter(search *k, int i, const tess__price *price, const tess_plan_layer *layer)
{
    tess__task *task = k->task;
    tess_candidate *c = &k->list[i];
    const int known = is_known(task, k->at, c);
    c->ns = known ? price->ns : -1;
    c->compute_ns = known ? price->compute_ns : -1;
    c->comm_ns = c->ns < 0 ? -1 : price->ns - price->compute_ns;
    c->rho = price->rho;
    c->kv_copies = price->kv_copies;
    c->bytes = price->bytes;
    c->memory = price->memory;
    if (task->opts.memory && c->memory > task->opts.memory) {
        const double gib = 1073741824.0;
        snprintf(k->why[i], TESS_REASON_BYTES, "needs %.1f GiB of %.4g", (double)c->memory / gib,
                 (double)task->opts.memory / gib);
        return 0;
    }
    if (k->best >= 0 && tess__candidate_order(task, c, &k->list[k->best]) >= 0)
        return 0;
    k->best = i;
    k->layer = *layer;
    return 1;
}

/* Plans and prices candidate i and, where ranks are alike, its twin in the other placement, in the
 * arena; *kept = 1 if the best layer lies in it then. */
static tess_status run(search *k, tess__arena *arena, int i, int twins, int *kept)
{
    tess__task *task = k->task;
    tess_plan_layer layer, placed;
    int64_t *tiles;
    tess__price price;
    TESS_TRY(tess__candidate_layer(task, arena, k->at, &k->list[i], k->group_of, &layer));
    TESS_TRY(tess__layer_tiles(arena, &task->info, &layer, task->work, k->at, &tiles));
    for (int t = 0; t < twins; t++) {
        placed = layer;
        if (t > 0)
            TESS_TRY(tess__candidate_place(task, arena, &layer, k->list[i + t].strategy.placement,
                                           &placed));
        TESS_TRY(tess__layer_price(task->ctx, &task->pricing, &task->info, &placed, task->work,
                                   k->at, tiles, &price));
        *kept |= enter(k, i + t, &price, &placed);
    }
    return TESS_OK;
}

/* Tries candidate i; returns through *used how many candidates that settled. */
static tess_status try_candidate(search *k, int i, int *used)
{
    tess__task *task = k->task;
    tess_candidate *c = &k->list[i];
    *used = 1;
    tess__candidate_bar(task, c, k->why[i]);
    if (k->why[i][0] || (k->best >= 0 && !is_known(task, k->at, c)))
        return TESS_OK;
    if (c->strategy.method != TESS_PLAN_FRACTIONAL) {
        if (k->split != c->strategy.ulysses || k->split_by != c->strategy.method ||
            task->info.speeds) {
            tess__candidate_heads(task, k->at, c, k->group_of);
            k->split = c->strategy.ulysses;
            k->split_by = c->strategy.method;
        }
        if (is_dominated(k, i))
            return TESS_OK;
    }
    const int next = i + 1 < k->n && c[1].strategy.ulysses == c->strategy.ulysses &&
                     c[1].strategy.ring == c->strategy.ring &&
                     c[1].strategy.selective == c->strategy.selective &&
                     c[1].strategy.placement != c->strategy.placement && !task->info.speeds;
    int kept = 0;
    tess__arena arena = {.ctx = task->ctx};
    const tess_status status = run(k, &arena, i, 1 + next, &kept);
    *used = 1 + next;
    if (status == TESS_OK && kept) {
        tess__arena_free(&k->arena);
        k->arena = arena;
    } else {
        tess__arena_free(&arena);
    }
    return status;
}

/* What the busiest rank must have at least. */
static int64_t bound_of(tess__task *task, int at, const tess_plan_layer *layer)
{
    const int parts = tess__layer_parts(layer);
    if (layer->strategy.method == TESS_PLAN_FRACTIONAL)
        return tess__fractional_bound(task->work, at, task->info.ranks, task->info.speeds);
    const tess__heads heads = {.heads = task->info.heads,
                               .groups = layer->groups,
                               .loads = task->work->loads + tess__work_place(task->work, at, 0),
                               .equal_heads = task->opts.equal_heads};
    const int64_t group = tess__heads_bound(task->space, &heads, layer->strategy.method);
    return task->info.speeds ? 0 : (group + parts - 1) / parts;
}

static tess_status fail_none(const search *k, const char *who)
{
    int64_t least = 0;
    for (int i = 0; i < k->n; i++)
        if (k->list[i].memory > 0 && (least == 0 || k->list[i].memory < least))
            least = k->list[i].memory;
    if (least)
        return tess__fail(
            TESS_EINVAL, "%s: layer %d: no candidate fits, the smallest needs %.1f GiB of %.4g",
            who, k->at, (double)least / 1073741824.0, (double)k->task->opts.memory / 1073741824.0);
    return tess__fail(TESS_EINVAL, "%s: layer %d: no candidate can be planned: %s", who, k->at,
                      k->why[0]);
}

/* Tries all, stores the best layer in the plan, and gives every candidate its reason. */
static tess_status run_layer(search *k, const char *who, tess_plan *plan)
{
    tess__task *task = k->task;
    k->best = -1;
    k->split = 0;
    for (int pass = 0; pass < 4; pass++)
        for (int i = 0, used = 1; i < k->n; i += used) {
            used = 1;
            if (class_of(&k->list[i]) != pass)
                continue;
            TESS_TRY(tess__progress(task->ctx, "planning layers", k->at, task->info.layers));
            TESS_TRY(try_candidate(k, i, &used));
        }
    if (k->best < 0)
        return fail_none(k, who);
    tess_plan_layer *layer = &plan->layers[k->at];
    TESS_TRY(tess__candidate_place(task, &plan->arena, &k->layer,
                                   k->list[k->best].strategy.placement, layer));
    TESS_TRY(tess__layer_measure(task->ctx, &task->info, task->work, k->at, layer));
    layer->predicted_ns = k->list[k->best].ns;
    layer->kv_copies = k->list[k->best].kv_copies; /* with the union share, where that is known */
    layer->load_bound = bound_of(task, k->at, layer);
    k->list[k->best].chosen = 1;
    for (int i = 0; i < k->n; i++) {
        tess_candidate *c = &k->list[i];
        if (!k->why[i][0])
            tess__candidate_reason(task, c, &k->list[k->best], k->bounded[i], k->why[i]);
        if (k->bounded[i]) { /* bounds are no predictions */
            c->ns = -1;
            c->rho = 0.0;
            c->bytes = 0;
        }
        c->reason = tess__arena_string(&plan->arena, k->why[i], strlen(k->why[i]));
        if (!c->reason)
            return TESS_ENOMEM;
    }
    return TESS_OK;
}

/* ---- all layers ------------------------------------------------------------------------------ */

/* Scratch of the task and of the search. */
static tess_status make_scratch(tess__task *task, tess__arena *arena, search *k)
{
    const size_t heads = (size_t)task->info.heads, ranks = (size_t)task->info.ranks;
    const size_t n = (size_t)k->n;
    task->heads = tess__arena_take(arena, heads * sizeof *task->heads);
    task->part_speeds = tess__arena_take(arena, ranks * sizeof *task->part_speeds);
    task->group_speeds = tess__arena_take(arena, ranks * sizeof *task->group_speeds);
    k->group_of = tess__arena_take(arena, heads * sizeof *k->group_of);
    k->why = tess__arena_take(arena, n * sizeof *k->why);
    k->bounded = tess__arena_take(arena, n);
    if (!task->heads || !task->part_speeds || !task->group_speeds || !k->group_of || !k->why ||
        !k->bounded)
        return TESS_ENOMEM;
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
    search k = {.task = task, .n = n, .arena = {.ctx = task->ctx}};
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
        status = run_layer(&k, who, plan);
        tess__arena_free(&k.arena);
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
    static const char who[] = "tess_plan_create";
    tess__task task;
    TESS_REQUIRE(ctx, work, opts, plan);
    TESS_TRY(tess__task_make(who, ctx, work, cluster, opts, &task));
    const int n = tess__candidate_list(&task, NULL);
    if (n == 0)
        return tess__fail(TESS_EINVAL,
                          "%s: ulysses %d, ring %d, selective %d: no such degrees make %d ranks",
                          who, opts->strategy.ulysses, opts->strategy.ring,
                          opts->strategy.selective, opts->ranks);
    tess_plan *made = NULL;
    TESS_TRY(tess__plan_new(ctx, who, &task.info, &made));
    const tess_status status = run_layers(&task, who, n, made);
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
