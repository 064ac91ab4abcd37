/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_layer.c - the best candidate of one layer, by branch and bound.
 *
 * Heads alone and fractional heads are quickly planned and come first. The others follow in the
 * order of their lower bounds (the best bound first), until the least bound is beaten. One whose
 * heads are where another method put them is not planned twice. Scratch of the best layer so far is
 * kept, that of losers freed.
 */
#include "strategy_internal.h"

#include <string.h>

static int32_t *group_of(const tess__layer_search *k, int i)
{
    return k->group_of + (size_t)k->split[i] * (size_t)k->task->info.heads;
}

static int same_degrees(const tess_strategy *a, const tess_strategy *b)
{
    return a->ulysses == b->ulysses && a->ring == b->ring && a->selective == b->selective;
}

/* Whether it is known which keys travel. */
static int is_known(const tess__task *task, int at, const tess_candidate *c)
{
    return c->strategy.selective == 1 || task->work->info.masks ||
           tess__union_share(&task->pricing, at, c->strategy.selective) > 0.0;
}

/* Whether a candidate is quickly planned, heads alone, or has no bound, fractional. */
static int is_quick(const tess__layer_search *k, const tess_candidate *c)
{
    return c->strategy.ring * c->strategy.selective == 1 ||
           (c->strategy.method == TESS_PLAN_FRACTIONAL && is_known(k->task, k->at, c));
}

/* Splits the heads of candidate i by its method. Ranks of unequal speed make the split depend on
 * the placement, so that no other candidate can use it. */
static void split_heads(tess__layer_search *k, int i)
{
    uint8_t *const done = &k->is_split[k->split[i]];
    if (!*done || k->task->info.speeds)
        tess__candidate_heads(k->task, k->at, &k->list[i], group_of(k, i));
    *done = 1;
}

/* The first candidate before i that is the same layer by another method; -1: none. */
static int find_twin(const tess__layer_search *k, int i)
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
static int enter(tess__layer_search *k, int i, const tess__price *price,
                 const tess_plan_layer *layer)
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
static void set_bound(tess__layer_search *k, int i, const tess_plan_layer *layer)
{
    tess__task *task = k->task;
    tess__price_bound(&task->pricing, &task->info, task->work, k->at, group_of(k, i), layer,
                      k->best < 0 ? INT64_MAX : k->list[k->best].ns, &task->bound, &k->list[i]);
    k->bounded[i] = 1;
}

static int is_dominated(const tess__layer_search *k, int i)
{
    return k->best >= 0 && tess__candidate_order(k->task, &k->list[i], &k->list[k->best]) > 0;
}

/* The tiles of a layer in a ring: from those of the heads where its blocks are as they are. */
static tess_status count_tiles(tess__layer_search *k, tess__arena *arena,
                               const tess_plan_layer *layer, int64_t **tiles)
{
    tess__task *task = k->task;
    if (layer->head_group && !layer->q_order && !layer->k_order &&
        tess__even_ring_ok(task, layer->strategy.ring))
        return tess__even_ring_tiles(task, k->at, layer, &k->rings, arena, tiles);
    return tess__layer_tiles(arena, &task->info, layer, task->work, k->at, tiles);
}

static tess_status price(tess__layer_search *k, const tess_plan_layer *layer, const int64_t *tiles,
                         tess__price *price)
{
    const tess__task *task = k->task;
    return tess__layer_price(task->ctx, &task->pricing, &task->info, layer, task->work, k->at,
                             tiles, price);
}

/* Plans and prices candidate i and, where ranks are alike, its twin in the other placement, in the
 * arena; *kept = 1 if the best layer lies in it then. */
static tess_status run(tess__layer_search *k, tess__arena *arena, int i, int twins, int *kept)
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
static tess_status bound_closer(tess__layer_search *k, int i)
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
static int can_be_closer(const tess__layer_search *k, int i)
{
    const tess_candidate *c = &k->list[i];
    if (k->closer[i] || !k->bounded[i] || !k->task->pricing.cluster || !k->task->work->info.masks)
        return 0;
    return c->strategy.selective > 1 ||
           (tess__candidate_blocks(k->task, c) == TESS__BLOCKS_ORDERED &&
            tess__even_ring_ok(k->task, c->strategy.ring));
}

/* The candidate of the other placement, which has the same layer: 1 if it follows i. */
static int has_placed_twin(const tess__layer_search *k, int i)
{
    const tess_strategy *c = &k->list[i].strategy;
    return i + 1 < k->n && k->list[i + 1].strategy.method == c->method &&
           same_degrees(&k->list[i + 1].strategy, c) &&
           k->list[i + 1].strategy.placement != c->placement && !k->task->info.speeds;
}

/* Plans candidate i, and its twin of the other placement. */
static tess_status try_candidate(tess__layer_search *k, int i)
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
static int is_open(tess__layer_search *k, int i)
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
static int most_promising(const tess__layer_search *k)
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
static tess_status try_all(tess__layer_search *k)
{
    for (int i = 0; i < k->n; i++) {
        k->settled[i] = !is_open(k, i);
        if (!k->settled[i] && is_quick(k, &k->list[i]))
            TESS_TRY(try_candidate(k, i));
    }
    for (int i = 0; i < k->n; i++)
        if (!k->settled[i] && is_known(k->task, k->at, &k->list[i]) &&
            !tess__cuts_inside(&k->list[i].strategy))
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

static tess_status fail_none(const tess__layer_search *k, const char *who)
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

tess_status tess__strategy_layer(tess__layer_search *k, const char *who, tess_plan *plan)
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
