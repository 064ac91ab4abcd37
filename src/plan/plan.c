/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - plans: the object, its facts, and layers built from head groups or from shares.
 *
 * Memory of a layer: 16 bytes per share, 8 per rank, and 4 per block, group and side where blocks
 * are permuted. Building costs O(heads + ranks + shares), and a sort for shares in any order.
 */
#include "plan_internal.h"

#include "options/option_check.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- names: those of options stand in their table ------------------------------------------- */

const char *tess_plan_method_name(tess_plan_method method)
{
    return (unsigned)method < TESS_PLAN_METHOD_COUNT
               ? tess__option_words(TESS_OPTIONS_PLAN, "method")[method]
               : NULL;
}

const char *tess_placement_name(tess_placement placement)
{
    static const char *const names[TESS_PLACEMENT_COUNT] = {"heads-inside", "sequence-inside"};
    return (unsigned)placement < TESS_PLACEMENT_COUNT ? names[placement] : NULL;
}

const char *tess_plan_pass_name(tess_plan_pass pass)
{
    return (unsigned)pass < TESS_PLAN_PASS_COUNT
               ? tess__option_words(TESS_OPTIONS_PLAN, "pass")[pass]
               : NULL;
}

/* ---- the object ----------------------------------------------------------------------------- */

/* Copies n elements into the arena; *copy = NULL of NULL. */
static tess_status keep(tess__arena *arena, const void *data, size_t n, size_t size,
                        const void **copy)
{
    const size_t bytes = tess__bytes(n, size);
    *copy = NULL;
    if (!data)
        return TESS_OK;
    void *made = TESS_TAKE(arena, bytes);
    memcpy(made, data, bytes);
    *copy = made;
    return TESS_OK;
}

void tess__plan_info_of_work(const tess_work *work, tess_plan_info *info)
{
    *info = (tess_plan_info){
        .layers = work->info.layers,
        .heads = work->info.heads,
        .q_blocks = work->info.q_blocks,
        .k_blocks = work->info.k_blocks,
        .tokens_q = work->rows_q,
        .tokens_k = work->rows_k,
        .group = work->bounds_q ? 0 : work->info.group,
        .unit = work->bounds_k ? 0 : work->info.unit,
        .bounds_q = work->bounds_q,
        .bounds_k = work->bounds_k,
    };
}

tess_status tess__plan_new(tess_ctx *ctx, const char *who, const tess_plan_info *info,
                           tess_plan **plan)
{
    char why[TESS_PLAN_WHY];
    if (tess__plan_info_wrong(info, why))
        return tess__invalid(who, "%s", why);
    tess__arena arena = {.ctx = ctx};
    tess_plan *made = tess__arena_take(&arena, sizeof *made);
    const size_t bytes = (size_t)info->layers * sizeof *made->layers;
    tess_plan_layer *layers = made ? tess__arena_take(&arena, bytes) : NULL;
    tess_plan_info mine = *info;
    const void *q = NULL, *k = NULL, *speeds = NULL;
    tess_status status = layers ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = keep(&arena, info->bounds_q, (size_t)info->q_blocks + 1, sizeof(int64_t), &q);
    if (status == TESS_OK)
        status = keep(&arena, info->bounds_k, (size_t)info->k_blocks + 1, sizeof(int64_t), &k);
    if (status == TESS_OK)
        status = keep(&arena, info->speeds, (size_t)info->ranks, sizeof(int32_t), &speeds);
    if (status != TESS_OK) {
        tess__arena_free(&arena);
        return status;
    }
    memset(layers, 0, bytes);
    mine.bounds_q = q;
    mine.bounds_k = k;
    mine.speeds = speeds;
    *made = (tess_plan){.ctx = ctx, .arena = arena, .info = mine, .layers = layers};
    *plan = made;
    return TESS_OK;
}

void tess_plan_destroy(tess_plan *plan)
{
    if (!plan)
        return;
    tess__arena arena = plan->arena; /* the plan lies in it */
    tess__arena_free(&arena);
}

tess_status tess_plan_query(const tess_plan *plan, tess_plan_info *info)
{
    TESS_REQUIRE(plan, info);
    *info = plan->info;
    return TESS_OK;
}

tess_status tess__plan_layer_ok(const char *who, const tess_plan *plan, int layer)
{
    if (!plan)
        return tess__invalid(who, "plan is NULL");
    TESS_TRY(tess__check_range(who, "layer", layer, 0, plan->info.layers - 1));
    return TESS_OK;
}

tess_status tess_plan_layer_view(const tess_plan *plan, int layer, tess_plan_layer *view)
{
    TESS_TRY(tess__plan_layer_ok(__func__, plan, layer));
    TESS_REQUIRE(view);
    *view = plan->layers[layer];
    return TESS_OK;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* The cuts given, or even ones: `rows` times the same parts + 1 places. */
static tess_status make_cuts(tess__arena *arena, const int32_t *given, int rows, int parts,
                             int32_t blocks, const int32_t **cuts)
{
    const size_t n = (size_t)rows * ((size_t)parts + 1);
    int32_t *made = TESS_TAKE(arena, n * sizeof *made);
    for (size_t i = 0; i < n; i++)
        made[i] = given ? given[i] : tess__even_cut(blocks, parts, (int)(i % ((size_t)parts + 1)));
    *cuts = made;
    return TESS_OK;
}

static tess_plan_layer bare_layer(const tess__layer_heads *in)
{
    return (tess_plan_layer){
        .strategy = in->strategy,
        .groups = in->strategy.ulysses,
        .rho_before = -1.0,
        .predicted_ns = -1,
        .bytes = -1,
    };
}

void tess__bucket_heads(const int32_t *head_group, int heads, int groups, int32_t *start,
                        int32_t *list)
{
    memset(start, 0, ((size_t)groups + 1) * sizeof *start);
    for (int h = 0; h < heads; h++)
        start[head_group[h] + 1]++;
    for (int u = 0; u < groups; u++)
        start[u + 1] += start[u];
    for (int h = 0; h < heads; h++)
        list[start[head_group[h]]++] = h;
    for (int u = groups; u > 0; u--)
        start[u] = start[u - 1];
    start[0] = 0;
}

/* Counts the shares of the layer's ranks into first, and writes them where shares is not NULL. */
static void fill_shares(const tess_plan_layer *layer, int ranks, const int32_t *start,
                        const int32_t *list, int64_t *first, tess_share *shares)
{
    const int parts = tess__layer_parts(layer);
    int64_t n = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const int u = tess__rank_group(layer, rank),
                  s = parts > 1 ? tess__rank_part(layer, rank) : 0;
        const int32_t *cut = layer->q_cuts + (size_t)u * ((size_t)parts + 1) + s;
        first[rank] = n;
        if (cut[0] == cut[1])
            continue;
        for (int32_t i = start[u]; i < start[u + 1]; i++, n++)
            if (shares)
                shares[n] = (tess_share){rank, list[i], cut[0], cut[1]};
    }
    first[ranks] = n;
}

/* Counts, takes the memory and writes the shares of a layer that has its head groups and cuts. */
static tess_status make_shares(tess__arena *arena, const tess_plan_info *info,
                               tess_plan_layer *layer)
{
    const size_t groups = (size_t)layer->groups, heads = (size_t)info->heads;
    int32_t *start = TESS_ALLOC(arena->ctx, (groups + 1 + heads) * sizeof *start);
    int32_t *list = start + groups + 1;
    assert(layer->head_group);
    tess__bucket_heads(layer->head_group, info->heads, layer->groups, start, list);
    int64_t *first = tess__arena_take(arena, ((size_t)info->ranks + 1) * sizeof *first);
    tess_share *shares = NULL;
    if (first) {
        fill_shares(layer, info->ranks, start, list, first, NULL);
        shares = tess__arena_take(arena, (size_t)first[info->ranks] * sizeof *shares);
    }
    if (shares) {
        fill_shares(layer, info->ranks, start, list, first, shares);
        layer->first = first;
        layer->shares = shares;
        layer->n_shares = first[info->ranks];
    }
    tess__free(arena->ctx, start);
    return shares ? TESS_OK : TESS_ENOMEM;
}

tess_status tess__layer_from_heads(tess__arena *arena, const tess_plan_info *info,
                                   const tess__layer_heads *in, tess_plan_layer *layer)
{
    assert(in->strategy.ulysses * in->strategy.ring * in->strategy.selective == info->ranks);
    assert(in->strategy.ring == 1 || in->strategy.selective == 1);
    tess_plan_layer made = bare_layer(in);
    const size_t groups = (size_t)made.groups;
    const void *copy;
    TESS_TRY(keep(arena, in->head_group, (size_t)info->heads, sizeof(int32_t), &copy));
    made.head_group = copy;
    TESS_TRY(keep(arena, in->q_order, groups * (size_t)info->q_blocks, sizeof(int32_t), &copy));
    made.q_order = copy;
    TESS_TRY(keep(arena, in->k_order, groups * (size_t)info->k_blocks, sizeof(int32_t), &copy));
    made.k_order = copy;
    TESS_TRY(make_cuts(arena, in->q_cuts, made.groups, tess__layer_parts(&made), info->q_blocks,
                       &made.q_cuts));
    TESS_TRY(make_cuts(arena, in->k_cuts, made.groups, made.strategy.ring, info->k_blocks,
                       &made.k_cuts));
    TESS_TRY(make_shares(arena, info, &made));
    *layer = made;
    return TESS_OK;
}

static int by_rank(const void *a, const void *b)
{
    const tess_share *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    if (x->q_begin != y->q_begin)
        return x->q_begin < y->q_begin ? -1 : 1;
    return (x->q_end > y->q_end) - (x->q_end < y->q_end);
}

/* Makes one of neighbouring shares of one head and rank; returns how many remain. */
static int64_t join_shares(tess_share *shares, int64_t n)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        tess_share *last = kept ? &shares[kept - 1] : NULL;
        if (last && last->rank == shares[i].rank && last->head == shares[i].head &&
            last->q_end == shares[i].q_begin)
            last->q_end = shares[i].q_end;
        else
            shares[kept++] = shares[i];
    }
    return kept;
}

tess_status tess__layer_from_shares(tess__arena *arena, const tess_plan_info *info,
                                    const tess__layer_heads *in, const tess_share *shares,
                                    int64_t n, tess_plan_layer *layer)
{
    tess_plan_layer made = bare_layer(in);
    const size_t bytes = (size_t)n * sizeof *shares;
    tess_share *mine = TESS_TAKE(arena, bytes);
    int64_t *first = TESS_TAKE(arena, ((size_t)info->ranks + 1) * sizeof *first);
    TESS_TRY(make_cuts(arena, NULL, made.groups, made.strategy.ring, info->k_blocks, &made.k_cuts));
    if (n)
        memcpy(mine, shares, bytes);
    qsort(mine, (size_t)n, sizeof *mine, by_rank);
    made.n_shares = join_shares(mine, n);
    made.shares = mine;
    made.first = first;
    int64_t at = 0;
    for (int rank = 0; rank <= info->ranks; rank++) {
        while (at < made.n_shares && mine[at].rank < rank)
            at++;
        first[rank] = at;
    }
    *layer = made;
    return TESS_OK;
}
