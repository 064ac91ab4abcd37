/* SPDX-License-Identifier: Apache-2.0 */
/* layer_loads.c - loads and imbalance of a layer of a plan under some work.
 *
 * With load(g, i) of rank g in iteration i, speed v and P ranks, a rank needs load / v, and all
 * together total / sum(v) at perfect balance:
 *
 *   global   rho = sum_i max_g load(g,i) / v_g            / (total / sum v)
 *   ring     rho = max_u sum_i max_(g of group u) load(g,i) / v_g   / ...
 *   free     rho = max_g sum_i load(g,i) / v_g            / ...
 *
 * 1 where there is no work. In iteration i the rank of part s has tile (s, (s - i) mod ring). Times
 * of equal ranks are sums of integers, divided once.
 */
#include "plan_internal.h"

#include <string.h>

/* ---- loads ----------------------------------------------------------------------------------- */

static int64_t share_load(const tess_plan_info *info, const tess_plan_layer *layer,
                          const tess_work *work, int at, const tess_share *s)
{
    if (!layer->q_order)
        return tess__work_prefix(work, at, s->head, s->q_end) -
               tess__work_prefix(work, at, s->head, s->q_begin);
    const int u = tess__rank_group(layer, s->rank);
    const int32_t *order = layer->q_order + (size_t)u * (size_t)info->q_blocks;
    int64_t load = 0;
    for (int32_t p = s->q_begin; p < s->q_end; p++)
        load += tess__work_prefix(work, at, s->head, order[p] + 1) -
                tess__work_prefix(work, at, s->head, order[p]);
    return load;
}

void tess__layer_loads(const tess_plan_info *info, const tess_plan_layer *layer,
                       const tess_work *work, int at, int64_t *loads)
{
    for (int r = 0; r < info->ranks; r++) {
        loads[r] = 0;
        for (int64_t i = layer->first[r]; i < layer->first[r + 1]; i++)
            loads[r] += share_load(info, layer, work, at, &layer->shares[i]);
    }
}

/* ---- imbalance ------------------------------------------------------------------------------- */

/* A rank's time: its load over its speed, the load itself where all are equal. */
static double time_of(const tess_plan_info *info, int rank, int64_t load)
{
    return info->speeds ? (double)load / info->speeds[rank] : (double)load;
}

/* Times of the busiest, over those of perfect balance. */
static double ratio(const tess_plan_info *info, double busiest, int64_t total)
{
    double speed = info->ranks;
    if (info->speeds) {
        int64_t sum = 0;
        for (int r = 0; r < info->ranks; r++)
            sum += info->speeds[r];
        speed = (double)sum;
    }
    return total > 0 ? busiest * speed / (double)total : 1.0;
}

tess_status tess__group_tiles(const tess_plan_info *info, const tess_plan_layer *layer,
                              const tess_work *work, int at, int u, const int32_t *heads, int n,
                              int64_t *tiles)
{
    const int ring = layer->strategy.ring;
    const int32_t *k_cuts = layer->k_cuts + (size_t)u * ((size_t)ring + 1);
    const int32_t *q_order = layer->q_order, *k_order = layer->k_order;
    if (layer->head_group)
        return tess__work_tiles(
            work, at, heads, n, q_order ? q_order + (size_t)u * (size_t)info->q_blocks : NULL,
            layer->q_cuts + (size_t)u * ((size_t)ring + 1),
            k_order ? k_order + (size_t)u * (size_t)info->k_blocks : NULL, k_cuts, ring, tiles);
    tess__key_parts parts = {0};
    int64_t *row = TESS_ALLOC(work->ctx, (size_t)ring * sizeof *row);
    const tess_status status = tess__key_parts_make(work, NULL, k_cuts, ring, &parts);
    memset(tiles, 0, (size_t)ring * (size_t)ring * sizeof *tiles);
    for (int s = 0; status == TESS_OK && s < ring; s++) {
        const int rank = tess__rank_at(layer, u, s);
        for (int64_t i = layer->first[rank]; i < layer->first[rank + 1]; i++) {
            const tess_share *share = &layer->shares[i];
            tess__key_parts_sum(&parts, at, &share->head, 1, NULL, share->q_begin, share->q_end,
                                row);
            for (int j = 0; j < ring; j++)
                tiles[s * ring + j] += row[j];
        }
    }
    tess__key_parts_free(&parts);
    tess__free(work->ctx, row);
    return status;
}

tess_status tess__layer_tiles(tess__arena *arena, const tess_plan_info *info,
                              const tess_plan_layer *layer, const tess_work *work, int at,
                              int64_t **tiles)
{
    *tiles = NULL;
    if (layer->strategy.ring == 1 || tess__work_words(work) == 0)
        return TESS_OK;
    const size_t ring = (size_t)layer->strategy.ring;
    int64_t *made = TESS_TAKE(arena, (size_t)layer->groups * ring * ring * sizeof *made);
    int32_t *heads = TESS_TAKE(arena, (size_t)info->heads * sizeof *heads);
    for (int u = 0; u < layer->groups; u++) {
        int n = 0;
        for (int h = 0; h < info->heads && layer->head_group; h++)
            if (layer->head_group[h] == u)
                heads[n++] = h;
        TESS_TRY(
            tess__group_tiles(info, layer, work, at, u, heads, n, made + (size_t)u * ring * ring));
    }
    *tiles = made;
    return TESS_OK;
}

/* The longest time of a group's tiles in one iteration. */
static double slowest_tile(const tess_plan_info *info, const tess_plan_layer *layer,
                           const int64_t *tiles, int u, int step)
{
    double slowest = 0.0;
    for (int s = 0; s < layer->strategy.ring; s++) {
        const int rank = tess__rank_at(layer, u, s);
        const double time = time_of(info, rank, tess__tile(layer, tiles, rank, step));
        slowest = TESS_MAX(time, slowest);
    }
    return slowest;
}

void tess__layer_rho_of(const tess_plan_info *info, const tess_plan_layer *layer,
                        const int64_t *loads, const int64_t *tiles, double rho[3])
{
    double free = 0.0, global = 0.0, grouped = 0.0;
    int64_t total = 0;
    for (int r = 0; r < info->ranks; r++) {
        const double time = time_of(info, r, loads[r]);
        free = TESS_MAX(time, free);
        total += loads[r];
    }
    for (int u = 0; tiles && u < layer->groups; u++) {
        double sum = 0.0;
        for (int step = 0; step < layer->strategy.ring; step++)
            sum += slowest_tile(info, layer, tiles, u, step);
        grouped = TESS_MAX(sum, grouped);
    }
    for (int step = 0; tiles && step < layer->strategy.ring; step++) {
        double slowest = 0.0;
        for (int u = 0; u < layer->groups; u++) {
            const double time = slowest_tile(info, layer, tiles, u, step);
            slowest = TESS_MAX(time, slowest);
        }
        global += slowest;
    }
    rho[TESS_RHO_GLOBAL] = ratio(info, tiles ? global : free, total);
    rho[TESS_RHO_RING] = ratio(info, tiles ? grouped : free, total);
    rho[TESS_RHO_FREE] = ratio(info, free, total);
}

/* loads (ranks) and rho of a layer. */
static tess_status measure_loads(tess_ctx *ctx, const tess_plan_info *info,
                                 const tess_plan_layer *layer, const tess_work *work, int at,
                                 int64_t *loads, double rho[3])
{
    tess__arena arena = {.ctx = ctx};
    int64_t *tiles;
    const tess_status status = tess__layer_tiles(&arena, info, layer, work, at, &tiles);
    tess__layer_loads(info, layer, work, at, loads);
    if (status == TESS_OK)
        tess__layer_rho_of(info, layer, loads, tiles, rho);
    tess__arena_free(&arena);
    return status;
}

/* rho[3] by tess_rho_form. */
static tess_status layer_rho(tess_ctx *ctx, const tess_plan_info *info,
                             const tess_plan_layer *layer, const tess_work *work, int at,
                             double rho[3])
{
    int64_t *loads = TESS_ALLOC(ctx, (size_t)info->ranks * sizeof *loads);
    const tess_status status = measure_loads(ctx, info, layer, work, at, loads, rho);
    tess__free(ctx, loads);
    return status;
}

static tess_status check(const char *who, const tess_plan *plan, int layer, const tess_work *work)
{
    TESS_TRY(tess__plan_layer_ok(who, plan, layer));
    if (!work)
        return tess__invalid(who, "work is NULL");
    TESS_TRY(tess__plan_fits(who, &plan->info, work));
    if (layer >= work->info.layers)
        return tess__invalid(who, "layer is %d, the work has %d", layer, work->info.layers);
    return TESS_OK;
}

tess_status tess_plan_imbalance(const tess_plan *plan, int layer, const tess_work *work,
                                tess_rho_form form, double *rho)
{
    TESS_TRY(check(__func__, plan, layer, work));
    TESS_REQUIRE(rho);
    TESS_TRY(tess__check_range(__func__, "form", form, 0, TESS_RHO_FREE));
    double all[3];
    TESS_TRY(layer_rho(plan->ctx, &plan->info, &plan->layers[layer], work, layer, all));
    *rho = all[form];
    return TESS_OK;
}

/* Head groups without a plan: fractional heads are compared with Ulysses over all ranks. */
static int groups_before(const tess_plan_info *info, const tess_plan_layer *layer)
{
    return layer->strategy.method == TESS_PLAN_FRACTIONAL && !tess__cuts_inside(&layer->strategy)
               ? info->ranks
               : layer->strategy.ulysses;
}

static tess_status contiguous_rho(const tess_plan_info *info, const tess_plan_layer *layer,
                                  const tess_work *work, int at, double *rho)
{
    const int groups = groups_before(info, layer);
    *rho = -1.0;
    if (info->heads % groups != 0)
        return TESS_OK;
    return tess_work_imbalance(work, at, groups, info->ranks / groups,
                               layer->strategy.ring > 1 ? TESS_RHO_RING : TESS_RHO_FREE, rho);
}

tess_status tess_plan_imbalance_before(const tess_plan *plan, int layer, const tess_work *work,
                                       double *rho)
{
    TESS_TRY(check(__func__, plan, layer, work));
    TESS_REQUIRE(rho);
    return contiguous_rho(&plan->info, &plan->layers[layer], work, layer, rho);
}

tess_status tess_plan_loads_before(const tess_plan *plan, int layer, const tess_work *work,
                                   int64_t *loads)
{
    TESS_TRY(check(__func__, plan, layer, work));
    TESS_REQUIRE(loads);
    const tess_plan_info *info = &plan->info;
    const int groups = groups_before(info, &plan->layers[layer]), parts = info->ranks / groups;
    const int divides = info->heads % groups == 0;
    for (int r = 0; r < info->ranks; r++)
        loads[r] = divides ? 0 : -1;
    for (int head = 0; head < info->heads && divides; head++)
        for (int p = 0; p < parts; p++) {
            const int32_t begin = tess__even_cut(info->q_blocks, parts, p);
            const int32_t end = tess__even_cut(info->q_blocks, parts, p + 1);
            loads[head / (info->heads / groups) * parts + p] +=
                tess__work_prefix(work, layer, head, end) -
                tess__work_prefix(work, layer, head, begin);
        }
    return TESS_OK;
}

/* ---- everything at once ---------------------------------------------------------------------- */

/* Blocks that an order brings to another part than the one an even cut of all blocks puts them in.
 */
static int64_t moved_blocks(const int32_t *order, const int32_t *cuts, int groups, int parts,
                            int32_t blocks)
{
    int64_t moved = 0;
    for (int u = 0; order && u < groups; u++) {
        const int32_t *mine = order + (size_t)u * (size_t)blocks;
        const int32_t *cut = cuts + (size_t)u * ((size_t)parts + 1);
        for (int p = 0; p < parts; p++) {
            const int32_t begin = tess__even_cut(blocks, parts, p);
            const int32_t end = tess__even_cut(blocks, parts, p + 1);
            for (int32_t i = cut[p]; i < cut[p + 1]; i++)
                moved += mine[i] < begin || mine[i] >= end;
        }
    }
    return moved;
}

/* Copies of K and V per head, mean over heads, in whole copies. Key parts of a ring are one copy.
 */
static tess_status count_copies(tess_ctx *ctx, const tess_plan_info *info,
                                const tess_plan_layer *layer, const tess_work *work, int at,
                                double *copies)
{
    const int selects = layer->strategy.selective > 1 && tess__work_words(work) > 0;
    uint64_t *bits = NULL;
    if (selects) {
        bits = TESS_ALLOC(ctx, (size_t)tess__work_words(work) * sizeof *bits);
    }
    int64_t blocks = 0;
    for (int64_t i = 0; i < layer->n_shares;) {
        const int64_t end = tess__shares_run(layer, i);
        blocks +=
            selects ? tess__shares_union(info, layer, work, at, i, end, 0, bits) : info->k_blocks;
        i = end;
    }
    tess__free(ctx, bits);
    const double one = (double)info->k_blocks * info->heads * layer->strategy.ring;
    *copies = layer->strategy.ring > 1 && layer->head_group ? 1.0 : (double)blocks / one;
    return TESS_OK;
}

tess_status tess__layer_measure(tess_ctx *ctx, const tess_plan_info *info, const tess_work *work,
                                int at, tess_plan_layer *layer)
{
    tess_plan_layer made = *layer;
    int64_t *loads = TESS_ALLOC(ctx, (size_t)info->ranks * sizeof *loads);
    const tess_status status = measure_loads(ctx, info, &made, work, at, loads, made.rho);
    made.load_max = made.load_total = 0;
    for (int r = 0; status == TESS_OK && r < info->ranks; r++) {
        made.load_max = TESS_MAX(loads[r], made.load_max);
        made.load_total += loads[r];
    }
    tess__free(ctx, loads);
    TESS_TRY(status);
    TESS_TRY(count_copies(ctx, info, &made, work, at, &made.kv_copies));

    TESS_TRY(contiguous_rho(info, &made, work, at, &made.rho_before));
    const int parts = tess__layer_parts(&made);
    made.moved_q = made.moved_k = 0;
    if (made.strategy.ring > 1 && made.head_group) {
        made.moved_q = moved_blocks(made.q_order, made.q_cuts, made.groups, parts, info->q_blocks);
        made.moved_k = moved_blocks(made.k_order, made.k_cuts, made.groups, parts, info->k_blocks);
    }
    *layer = made;
    return TESS_OK;
}
