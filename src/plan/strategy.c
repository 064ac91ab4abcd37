/* SPDX-License-Identifier: Apache-2.0 */
/* strategy.c - tess_plan_create: every way to split a layer, priced, and the best of them.
 *
 * Candidates of P ranks: each P = U x S with S = 1, a ring or selective, in both placements where
 * there are nodes, by every method for whole heads; and fractional heads. Heads alone and
 * fractional heads are quickly planned and come first. The others follow in the order of their
 * lower bounds (branch and bound, the best bound first), until the least bound is beaten. One whose
 * heads are where another method put them is not planned twice. Heads are split once per U and
 * method, blocks once per (U, S) and method, and placed twice. Each layer chooses for itself.
 * Scratch of the best layer so far is kept, that of losers freed.
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
    uint8_t *bounded;               /* (n): ns, rho and bytes are lower bounds */
    uint8_t *settled;               /* (n): planned, or never will be */
    uint8_t *closer;                /* (n): its bound is as close as it gets */
    tess__even_rings rings;
    int *split;        /* (n): which of the splits of heads it has */
    int n_splits;      /* one for each U and method */
    uint8_t *is_split; /* (n_splits): group_of is valid for this layer */
    int32_t *group_of; /* (n_splits, heads) */
    int best;          /* -1: none */
    tess__arena arena; /* holds the best layer */
    tess_plan_layer layer;
} search;

static int32_t *group_of(const search *k, int i)
{
    return k->group_of + (size_t)k->split[i] * (size_t)k->task->info.heads;
}

static int same_degrees(const tess_strategy *a, const tess_strategy *b)
{
    return a->ulysses == b->ulysses && a->ring == b->ring && a->selective == b->selective;
}

/* Whether a candidate is quickly planned: heads alone, or fractional. */
static int is_quick(const tess_candidate *c)
{
    return c->strategy.ring * c->strategy.selective == 1;
}

/* Whether it is known which keys travel. */
static int is_known(const tess__task *task, int at, const tess_candidate *c)
{
    return c->strategy.selective == 1 || task->work->info.masks ||
           tess__union_share(&task->pricing, at, c->strategy.selective) > 0.0;
}

/* Splits the heads of candidate i by its method. Ranks of unequal speed make the split depend on
 * the placement, so that no other candidate can use it. */
static void split_heads(search *k, int i)
{
    uint8_t *const done = &k->is_split[k->split[i]];
    if (!*done || k->task->info.speeds)
        tess__candidate_heads(k->task, k->at, &k->list[i], group_of(k, i));
    *done = 1;
}

/* The first candidate before i that is the same layer by another method; -1: none. */
static int find_twin(const search *k, int i)
{
    const tess_candidate *c = &k->list[i];
    const size_t bytes = (size_t)k->task->info.heads * sizeof(int32_t);
    const tess__block_rule rule = tess__candidate_blocks(k->task, c);
    int first = -1;
    for (int j = i - 1; j >= 0 && same_degrees(&k->list[j].strategy, &c->strategy); j--)
        if (k->list[j].strategy.placement == c->strategy.placement &&
            tess__candidate_blocks(k->task, &k->list[j]) == rule &&
            memcmp(group_of(k, i), group_of(k, j), bytes) == 0)
            first = j;
    return k->task->info.speeds ? -1 : first;
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

/* Candidate i gets a lower bound of its price in place of it. */
static void set_bound(search *k, int i, const tess_plan_layer *layer)
{
    tess__task *task = k->task;
    tess__price_bound(&task->pricing, &task->info, task->work, k->at, group_of(k, i), layer,
                      k->best < 0 ? INT64_MAX : k->list[k->best].ns, &task->bound, &k->list[i]);
    k->bounded[i] = 1;
}

static int is_dominated(const search *k, int i)
{
    return k->best >= 0 && tess__candidate_order(k->task, &k->list[i], &k->list[k->best]) > 0;
}

/* The tiles of a layer in a ring: from those of the heads where its blocks are as they are. */
static tess_status count_tiles(search *k, tess__arena *arena, const tess_plan_layer *layer,
                               int64_t **tiles)
{
    tess__task *task = k->task;
    if (layer->head_group && !layer->q_order && !layer->k_order &&
        tess__even_ring_ok(task, layer->strategy.ring))
        return tess__even_ring_tiles(task, k->at, layer, &k->rings, arena, tiles);
    return tess__layer_tiles(arena, &task->info, layer, task->work, k->at, tiles);
}

static tess_status price(search *k, const tess_plan_layer *layer, const int64_t *tiles,
                         tess__price *price)
{
    const tess__task *task = k->task;
    return tess__layer_price(task->ctx, &task->pricing, &task->info, layer, task->work, k->at,
                             tiles, price);
}

/* Plans and prices candidate i and, where ranks are alike, its twin in the other placement, in the
 * arena; *kept = 1 if the best layer lies in it then. */
static tess_status run(search *k, tess__arena *arena, int i, int twins, int *kept)
{
    tess__task *task = k->task;
    const tess_strategy *c = &k->list[i].strategy;
    tess_plan_layer layer, placed;
    int64_t *tiles;
    tess__price cost;
    TESS_TRY(tess__candidate_layer(task, arena, k->at, &k->list[i],
                                   c->method == TESS_PLAN_FRACTIONAL ? NULL : group_of(k, i),
                                   &layer));
    TESS_TRY(count_tiles(k, arena, &layer, &tiles));
    for (int t = i; t < i + twins; t++) {
        placed = layer;
        if (t > i)
            TESS_TRY(
                tess__candidate_place(task, arena, &layer, k->list[t].strategy.placement, &placed));
        TESS_TRY(price(k, &placed, tiles, &cost));
        k->bounded[t] = 0;
        *kept |= enter(k, t, &cost, &placed);
    }
    return TESS_OK;
}

/* A closer bound of candidate i, which is dear to plan or to price: a selective layer by the keys
 * that some of its rows select; a ring by the exchanges and hops of its blocks as they are, and the
 * least time of its attention. Blocks are ordered for even tiles alone, so that an order saves
 * neither exchanges nor hops but by chance. */
static tess_status bound_closer(search *k, int i)
{
    tess__task *task = k->task;
    tess_candidate *c = &k->list[i];
    tess__arena arena = {.ctx = task->ctx};
    tess_plan_layer layer = {0};
    int64_t *tiles = NULL;
    tess__price cost;
    tess_status status;
    k->closer[i] = 1;
    if (c->strategy.selective > 1) {
        status = tess__candidate_layer(task, &arena, k->at, c, group_of(k, i), &layer);
        if (status == TESS_OK)
            set_bound(k, i, &layer);
    } else {
        const tess__layer_heads in = {.strategy = c->strategy, .head_group = group_of(k, i)};
        status = tess__layer_from_heads(&arena, &task->info, &in, &layer);
        if (status == TESS_OK)
            status = count_tiles(k, &arena, &layer, &tiles);
        if (status == TESS_OK) {
            tess__even_ring_hops(&layer, tiles);
            status = price(k, &layer, tiles, &cost);
        }
        const int64_t more = status == TESS_OK ? c->compute_ns - cost.phase_ns : 0;
        if (status == TESS_OK)
            c->ns = TESS_MAX(c->ns, more > 0 ? cost.ns + more : cost.ns);
    }
    tess__arena_free(&arena);
    return status;
}

/* Whether a closer bound of candidate i is to be had, and worth it. */
static int can_be_closer(const search *k, int i)
{
    const tess_candidate *c = &k->list[i];
    if (k->closer[i] || !k->bounded[i] || !k->task->pricing.cluster || !k->task->work->info.masks)
        return 0;
    return c->strategy.selective > 1 ||
           (tess__candidate_blocks(k->task, c) == TESS__BLOCKS_ORDERED &&
            tess__even_ring_ok(k->task, c->strategy.ring));
}

/* The candidate of the other placement, which has the same layer: 1 if it follows i. */
static int has_placed_twin(const search *k, int i)
{
    const tess_strategy *c = &k->list[i].strategy;
    return i + 1 < k->n && k->list[i + 1].strategy.method == c->method &&
           same_degrees(&k->list[i + 1].strategy, c) &&
           k->list[i + 1].strategy.placement != c->placement && !k->task->info.speeds;
}

/* Plans candidate i, and its twin of the other placement. */
static tess_status try_candidate(search *k, int i)
{
    int kept = 0;
    TESS_TRY(tess__progress(k->task->ctx, "planning layers", k->at, k->task->info.layers));
    tess__arena arena = {.ctx = k->task->ctx};
    const int first = i > 0 && has_placed_twin(k, i - 1) ? i - 1 : i;
    const int twins = 1 + has_placed_twin(k, first);
    memset(k->settled + first, 1, (size_t)twins);
    const tess_status status = run(k, &arena, first, twins, &kept);
    if (status == TESS_OK && kept) {
        tess__arena_free(&k->arena);
        k->arena = arena;
    } else {
        tess__arena_free(&arena);
    }
    return status;
}

/* Whether candidate i is to be planned: it is possible, and no other one of the same layer was
 * listed before it. Its heads are split then. */
static int is_open(search *k, int i)
{
    tess_candidate *c = &k->list[i];
    tess__candidate_bar(k->task, c, k->why[i]);
    if (k->why[i][0])
        return 0;
    if (c->strategy.method == TESS_PLAN_FRACTIONAL)
        return 1;
    split_heads(k, i);
    const int twin = find_twin(k, i);
    if (twin >= 0)
        snprintf(k->why[i], TESS_REASON_BYTES, "the same as %s",
                 tess_plan_method_name(k->list[twin].strategy.method));
    return twin < 0;
}

/* Of the candidates that are not settled and not dominated the one with the least bound; -1: none.
 */
static int most_promising(const search *k)
{
    int least = -1;
    for (int i = 0; i < k->n; i++)
        if (!k->settled[i] && !is_dominated(k, i) &&
            (least < 0 || tess__candidate_order(k->task, &k->list[i], &k->list[least]) < 0))
            least = i;
    return least;
}

/* Plans all candidates that can be the best: those that are quickly planned, then the others by
 * their bounds. Those whose keys are not known are planned if nothing else is possible. */
static tess_status try_all(search *k)
{
    for (int i = 0; i < k->n; i++) {
        k->settled[i] = !is_open(k, i);
        if (!k->settled[i] && is_quick(&k->list[i]))
            TESS_TRY(try_candidate(k, i));
    }
    for (int i = 0; i < k->n; i++)
        if (!k->settled[i] && is_known(k->task, k->at, &k->list[i]))
            set_bound(k, i, NULL);
        else
            k->settled[i] = 1;
    for (int i = most_promising(k); i >= 0; i = most_promising(k))
        TESS_TRY(can_be_closer(k, i) ? bound_closer(k, i) : try_candidate(k, i));
    for (int i = 0; i < k->n && k->best < 0; i++)
        if (!k->why[i][0] && !is_known(k->task, k->at, &k->list[i]))
            TESS_TRY(try_candidate(k, i));
    return TESS_OK;
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
    return tess__invalid(who, "layer %d: no candidate can be planned: %s", k->at, k->why[0]);
}

/* Tries all, stores the best layer in the plan, and gives every candidate its reason. */
static tess_status run_layer(search *k, const char *who, tess_plan *plan)
{
    tess__task *task = k->task;
    k->best = -1;
    memset(k->is_split, 0, (size_t)k->n_splits);
    memset(k->closer, 0, (size_t)k->n);
    memset(k->rings.tiles, 0, sizeof k->rings.tiles);
    TESS_TRY(try_all(k));
    if (k->best < 0)
        return fail_none(k, who);
    tess_plan_layer *layer = &plan->layers[k->at];
    TESS_TRY(tess__candidate_place(task, &plan->arena, &k->layer,
                                   k->list[k->best].strategy.placement, layer));
    TESS_TRY(tess__layer_measure(task->ctx, &task->info, task->work, k->at, layer));
    layer->predicted_ns = k->list[k->best].ns;
    layer->bytes = k->list[k->best].bytes;
    layer->kv_copies = k->list[k->best].kv_copies; /* with the union share, where that is known */
    layer->load_bound = bound_of(task, k->at, layer);
    k->list[k->best].chosen = 1;
    for (int i = 0; i < k->n; i++) {
        tess_candidate *c = &k->list[i];
        if (!k->why[i][0])
            tess__candidate_reason(task, c, &k->list[k->best], k->bounded[i], k->why[i]);
        if (k->bounded[i]) { /* bounds are no predictions */
            c->ns = c->compute_ns = -1;
            c->rho = 0.0;
            c->bytes = 0;
        }
        c->reason = TESS_TAKE_STRING(&plan->arena, k->why[i], strlen(k->why[i]));
    }
    return TESS_OK;
}

/* ---- all layers ------------------------------------------------------------------------------ */

/* Candidates of one U follow each other, so that those of its methods are near. */
static void number_splits(search *k)
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
static tess_status make_scratch(tess__task *task, tess__arena *arena, search *k)
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
    search k = {
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
        status = run_layer(&k, who, plan);
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
