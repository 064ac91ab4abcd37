/* SPDX-License-Identifier: Apache-2.0 */
/* candidate.c - the candidates, and the layer of one: heads to groups, then blocks or cuts inside a
 * group.
 *
 * Heads are split by the method. A ring with masks gets its blocks planned for each group by
 * itself where the method has a block level (db-sp, refined, refined-equal); a selective layer cuts
 * the queries of a group by their work. contiguous, snake and lpt leave the blocks of a ring as
 * they are, in even parts. Heads that are cut inside of nodes are cut alike in all of them.
 */
#include "plan/partition/partition_scratch.h"
#include "strategy_internal.h"

/* ---- the list -------------------------------------------------------------------------------- */

static int fits(int asked, int degree)
{
    return asked == 0 || asked == degree;
}

/* Adds U x R x C in its placements; list NULL only counts. */
static int list_degrees(const tess__task *task, tess_plan_method method, int u, int ring,
                        int selective, tess_candidate *list, int n)
{
    const tess_plan_opts *o = &task->opts;
    if (!fits(o->strategy.ulysses, u) || !fits(o->strategy.ring, ring) ||
        !fits(o->strategy.selective, selective))
        return n;
    const int both = task->info.nodes > 1 && u > 1 && ring * selective > 1;
    for (int place = 0; place <= both; place++, n++)
        if (list)
            list[n] = (tess_candidate){.strategy = {.method = method,
                                                    .ulysses = u,
                                                    .ring = ring,
                                                    .selective = selective,
                                                    .placement = (tess_placement)place},
                                       .ns = -1,
                                       .compute_ns = -1,
                                       .comm_ns = -1};
    return n;
}

/* Of two equal layers the first is taken. Without a cluster plans are compared by imbalance, which
 * is least with the first. */
static const tess_plan_method whole_heads[] = {TESS_PLAN_REFINED, TESS_PLAN_REFINED_EQUAL,
                                               TESS_PLAN_DB_SP,   TESS_PLAN_LPT,
                                               TESS_PLAN_SNAKE,   TESS_PLAN_CONTIGUOUS};

static int list_cut(int u, int ring, int selective, tess_candidate *list, int n)
{
    if (list)
        list[n] = (tess_candidate){.strategy = {.method = TESS_PLAN_FRACTIONAL,
                                                .ulysses = u,
                                                .ring = ring,
                                                .selective = selective},
                                   .ns = -1,
                                   .compute_ns = -1,
                                   .comm_ns = -1};
    return n + 1;
}

/* Heads cut over all ranks; and inside of nodes, with a ring or selected keys between these. */
static int list_fractional(const tess__task *task, tess_candidate *list, int n)
{
    const tess_strategy *s = &task->opts.strategy;
    const int asked = s->ulysses || s->ring || s->selective, first = n;
    const int nodes = task->info.nodes, ranks = task->info.ranks, u = ranks / nodes;
    if (s->method != TESS_PLAN_FRACTIONAL && (s->method != TESS_PLAN_AUTO || asked))
        return n;
    if (fits(s->ulysses, 1) && fits(s->ring, 1) && fits(s->selective, 1))
        n = list_cut(1, 1, 1, list, n);
    const int inside = nodes > 1 && u > 1 && u * nodes == ranks && fits(s->ulysses, u);
    if (inside && fits(s->ring, nodes) && fits(s->selective, 1))
        n = list_cut(u, nodes, 1, list, n);
    if (inside && fits(s->ring, 1) && fits(s->selective, nodes))
        n = list_cut(u, 1, nodes, list, n);
    if (n > first)
        return n;
    const int ring = TESS_MAX(s->ring, 1), selective = TESS_MAX(s->selective, 1); /* is barred */
    return list_cut(s->ulysses ? s->ulysses : TESS_MAX(ranks / (ring * selective), 1), ring,
                    selective, list, n);
}

int tess__candidate_list(const tess__task *task, tess_candidate *list)
{
    const tess_plan_opts *o = &task->opts;
    const int ranks = task->info.ranks, given = o->strategy.method != TESS_PLAN_AUTO;
    const tess_plan_method *methods = given ? &o->strategy.method : whole_heads;
    const int n_methods =
        given || !task->pricing.cluster ? 1 : (int)(sizeof whole_heads / sizeof *whole_heads);
    int n = 0;
    for (int u = ranks; u >= 1 && o->strategy.method != TESS_PLAN_FRACTIONAL; u--) {
        const int parts = ranks / u;
        if (u * parts != ranks)
            continue;
        for (int m = 0; m < n_methods; m++)
            n = list_degrees(task, methods[m], u, parts, 1, list, n);
        for (int m = 0; m < n_methods && parts > 1; m++)
            n = list_degrees(task, methods[m], u, 1, parts, list, n);
    }
    return list_fractional(task, list, n);
}

/* ---- one layer ------------------------------------------------------------------------------- */

tess__block_rule tess__candidate_blocks(const tess__task *task, const tess_candidate *c)
{
    const tess_plan_method m = c->strategy.method;
    const int levels =
        m == TESS_PLAN_DB_SP || m == TESS_PLAN_REFINED || m == TESS_PLAN_REFINED_EQUAL;
    if (levels && c->strategy.ring > 1 && task->work->info.masks)
        return TESS__BLOCKS_ORDERED;
    return m != TESS_PLAN_CONTIGUOUS && (c->strategy.selective > 1 || task->info.speeds)
               ? TESS__BLOCKS_CUT
               : TESS__BLOCKS_EVEN;
}

/* A layer with no arrays: enough to ask for the place of a rank. */
static tess_plan_layer mesh(const tess_candidate *c)
{
    return (tess_plan_layer){.strategy = c->strategy, .groups = c->strategy.ulysses};
}

void tess__candidate_heads(tess__task *task, int at, const tess_candidate *c, int32_t *group_of)
{
    const tess_plan_layer place = mesh(c);
    tess__heads heads = {.heads = task->info.heads,
                         .groups = c->strategy.ulysses,
                         .loads = task->work->loads + tess__work_place(task->work, at, 0),
                         .equal_heads = task->opts.equal_heads};
    if (task->info.speeds) {
        for (int u = 0; u < c->strategy.ulysses; u++)
            task->group_speeds[u] = 0;
        for (int p = 0; p < task->info.ranks; p++)
            task->group_speeds[tess__rank_group(&place, p)] += task->info.speeds[p];
        heads.speeds = task->group_speeds;
    }
    tess__heads_split(task->space, &heads, c->strategy.method, group_of);
}

/* Speeds of a group's ranks by their sequence part; NULL: equal. */
static const int32_t *part_speeds(tess__task *task, const tess_candidate *c, int u)
{
    const tess_plan_layer place = mesh(c);
    if (!task->info.speeds)
        return NULL;
    for (int s = 0; s < task->info.ranks / c->strategy.ulysses; s++)
        task->part_speeds[s] = task->info.speeds[tess__rank_at(&place, u, s)];
    return task->part_speeds;
}

static int heads_of_group(const tess__task *task, const int32_t *group_of, int u, int32_t *heads)
{
    int n = 0;
    for (int h = 0; h < task->info.heads; h++)
        if (group_of[h] == u)
            heads[n++] = h;
    return n;
}

/* Orders and cuts of a ring's groups. */
static tess_status plan_ring(tess__task *task, tess__arena *arena, int at, const tess_candidate *c,
                             tess__layer_heads *in)
{
    const size_t groups = (size_t)c->strategy.ulysses, q = (size_t)task->info.q_blocks,
                 k = (size_t)task->info.k_blocks, cuts = (size_t)c->strategy.ring + 1;
    int32_t *q_order = TESS_TAKE(arena, groups * q * sizeof *q_order);
    int32_t *k_order = TESS_TAKE(arena, groups * k * sizeof *k_order);
    int32_t *q_cuts = TESS_TAKE(arena, groups * cuts * sizeof *q_cuts);
    int32_t *k_cuts = TESS_TAKE(arena, groups * cuts * sizeof *k_cuts);
    for (int u = 0; u < c->strategy.ulysses; u++) {
        const size_t g = (size_t)u;
        const int n = heads_of_group(task, in->head_group, u, task->heads);
        const tess__ring_job job = {.work = task->work,
                                    .layer = at,
                                    .heads = task->heads,
                                    .n = n,
                                    .ring = c->strategy.ring,
                                    .reward = task->opts.reward,
                                    .speeds = part_speeds(task, c, u)};
        tess__ring_result result;
        TESS_TRY(tess__blocks_plan(task->space, &job, q_order + g * q, k_order + g * k,
                                   q_cuts + g * cuts, k_cuts + g * cuts, &result));
    }
    in->q_order = q_order;
    in->k_order = k_order;
    in->q_cuts = q_cuts;
    in->k_cuts = k_cuts;
    return TESS_OK;
}

/* Queries of each group cut by their work. */
static tess_status cut_queries(tess__task *task, tess__arena *arena, int at,
                               const tess_candidate *c, int parts, tess__layer_heads *in)
{
    const size_t cuts = (size_t)parts + 1;
    int32_t *q_cuts = TESS_TAKE(arena, (size_t)c->strategy.ulysses * cuts * sizeof *q_cuts);
    for (int u = 0; u < c->strategy.ulysses; u++) {
        const int n = heads_of_group(task, in->head_group, u, task->heads);
        tess__cuts_by_work(task->space, task->work, at, task->heads, n, parts,
                           part_speeds(task, c, u), q_cuts + (size_t)u * cuts);
    }
    in->q_cuts = q_cuts;
    return TESS_OK;
}

static tess_status plan_fractional(tess__task *task, tess__arena *arena, int at,
                                   tess_plan_layer *layer)
{
    const size_t n = (size_t)task->info.heads + (size_t)task->info.ranks;
    tess_share *shares = TESS_TAKE(arena, n * sizeof *shares);
    const tess__fraction_job job = {.work = task->work,
                                    .layer = at,
                                    .ranks = task->info.ranks,
                                    .nodes = task->info.nodes,
                                    .speeds = task->info.speeds};
    tess__fraction_result result;
    tess__fractional(task->space, &job, shares, &result);
    const tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_FRACTIONAL, .ulysses = 1, .ring = 1, .selective = 1}};
    return tess__layer_from_shares(arena, &task->info, &in, shares, result.n, layer);
}

/* The place in the part of a head that begins at `begin` at which `done` of all the head's work, as
 * a fraction, lies before it in that part. */
static int32_t place_at(const tess__task *task, int at, int head, int32_t begin, int32_t end,
                        int64_t done, int64_t all)
{
    const int64_t before = tess__work_prefix(task->work, at, head, begin);
    const int64_t part = tess__work_prefix(task->work, at, head, end) - before;
    const int64_t goal = before + (all > 0 ? (int64_t)((tess__int128)part * done / all) : 0);
    int32_t low = begin, high = end;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (tess__work_prefix(task->work, at, head, middle) <= goal)
            low = middle;
        else
            high = middle;
    }
    const int64_t under = goal - tess__work_prefix(task->work, at, head, low);
    return tess__work_prefix(task->work, at, head, high) - goal < under ? high : low;
}

/* The shares of one node, in the proportions of `line` (n) on the ranks of a node. begins, left
 * (heads): where the next share of a head begins, and how many there are still. */
static void fill_node(tess__task *task, int at, const tess_share *line, int64_t n, int first,
                      const int32_t cut[2], int32_t *begins, int32_t *left, tess_share *shares)
{
    const int heads = task->info.heads;
    for (int h = 0; h < heads; h++) {
        begins[h] = cut[0];
        left[h] = 0;
    }
    for (int64_t i = 0; i < n; i++)
        left[line[i].head]++;
    for (int64_t i = 0; i < n; i++) {
        const int h = line[i].head;
        const int64_t all = tess__work_head(task->work, at, h);
        int32_t end = cut[1];
        if (--left[h] > 0) {
            end = place_at(task, at, h, cut[0], cut[1],
                           tess__work_prefix(task->work, at, h, line[i].q_end), all);
            end = TESS_MAX(end, begins[h] + 1);
            end = TESS_MIN(end, cut[1] - left[h]);
        }
        shares[i] = (tess_share){first + line[i].rank, h, begins[h], end};
        begins[h] = end;
    }
}

/* Heads are cut on the line of a node's ranks, alike in all nodes, so that the ranks of a ring have
 * the same heads; the sequence is cut between nodes by its work. A part has a block for every rank
 * of a node. */
static tess_status plan_inside(tess__task *task, tess__arena *arena, int at,
                               const tess_candidate *c, tess_plan_layer *layer)
{
    const int u = c->strategy.ulysses, parts = c->strategy.ring * c->strategy.selective;
    const size_t heads = (size_t)task->info.heads, most = heads + (size_t)u;
    tess_share *line = TESS_TAKE(arena, most * sizeof *line);
    tess_share *shares = TESS_TAKE(arena, most * (size_t)parts * sizeof *shares);
    int32_t *begins = TESS_TAKE(arena, 2 * heads * sizeof *begins);
    int32_t *cuts = TESS_TAKE(arena, ((size_t)parts + 1) * sizeof *cuts);
    const tess__fraction_job job = {.work = task->work, .layer = at, .ranks = u, .nodes = 1};
    tess__fraction_result result;
    tess__fractional(task->space, &job, line, &result);
    for (int h = 0; h < task->info.heads; h++)
        task->heads[h] = h;
    tess__cuts_by_work(task->space, task->work, at, task->heads, task->info.heads, parts, NULL,
                       cuts);
    for (int s = 1; s < parts; s++) {
        cuts[s] = TESS_MAX(cuts[s], cuts[s - 1] + u);
        cuts[s] = TESS_MIN(cuts[s], task->info.q_blocks - (parts - s) * u);
    }
    for (int s = 0; s < parts; s++)
        fill_node(task, at, line, result.n, s * u, cuts + s, begins, begins + heads,
                  shares + (int64_t)s * result.n);
    const tess__layer_heads in = {.strategy = c->strategy};
    return tess__layer_from_shares(arena, &task->info, &in, shares, result.n * parts, layer);
}

tess_status tess__candidate_layer(tess__task *task, tess__arena *arena, int at,
                                  const tess_candidate *c, const int32_t *group_of,
                                  tess_plan_layer *layer)
{
    if (tess__cuts_inside(&c->strategy))
        return plan_inside(task, arena, at, c, layer);
    if (c->strategy.method == TESS_PLAN_FRACTIONAL)
        return plan_fractional(task, arena, at, layer);
    tess__layer_heads in = {.strategy = c->strategy, .head_group = group_of};
    const tess__block_rule blocks = tess__candidate_blocks(task, c);
    if (blocks == TESS__BLOCKS_ORDERED)
        TESS_TRY(plan_ring(task, arena, at, c, &in));
    else if (blocks == TESS__BLOCKS_CUT)
        TESS_TRY(cut_queries(task, arena, at, c, c->strategy.ring * c->strategy.selective, &in));
    return tess__layer_from_heads(arena, &task->info, &in, layer);
}

tess_status tess__candidate_place(tess__task *task, tess__arena *arena,
                                  const tess_plan_layer *layer, tess_placement placement,
                                  tess_plan_layer *placed)
{
    tess__layer_heads in = {.strategy = layer->strategy,
                            .head_group = layer->head_group,
                            .q_cuts = layer->q_cuts,
                            .k_cuts = layer->k_cuts,
                            .q_order = layer->q_order,
                            .k_order = layer->k_order};
    in.strategy.placement = placement;
    if (!layer->head_group)
        return tess__layer_from_shares(arena, &task->info, &in, layer->shares, layer->n_shares,
                                       placed);
    return tess__layer_from_heads(arena, &task->info, &in, placed);
}
