/* SPDX-License-Identifier: Apache-2.0 */
/* dist_layer.c - a layer of the plan on this rank: shares, row exchanges, memory.
 *
 * Everything is derived from the exchange lists of the plan (plan/exchange/exchange.c), which each
 * rank computes alone: slots become shares, with the groups of their query rows; runs become the
 * segments of row exchanges. Memory: 48 bytes per segment, 12 per group of each share.
 */
#include "dist_attn_internal.h"

#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

/* EINVAL unless every block of the plan begins where a range does; ranges NULL: single rows. */
static tess_status check_blocks(const char *who, const char *block, const char *range,
                                const tess_plan_info *info, int keys, const int64_t *ranges)
{
    const int32_t n = keys ? info->k_blocks : info->q_blocks;
    int64_t at = 0;
    for (int32_t b = 0; ranges && b < n; b++) {
        const int64_t row = keys ? tess__plan_k_row(info, b) : tess__plan_q_row(info, b);
        while (ranges[at] < row)
            at++;
        if (ranges[at] != row)
            return tess__invalid(who, "%s block %d begins at row %lld, inside of a %s", block, b,
                                 (long long)row, range);
    }
    return TESS_OK;
}

static tess_status check_plan(const tess_dist_attn *d, const tess_plan_info *info)
{
    static const char who[] = "tess_dist_attn_plan";
    const struct {
        const char *name;
        int64_t have, want;
    } rules[] = {
        {"ranks", info->ranks, d->ranks},
        {"heads", info->heads, d->opts.heads},
        {"tokens_q", info->tokens_q, d->opts.tokens},
        {"tokens_k", info->tokens_k, d->opts.tokens},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].have != rules[i].want)
            return tess__invalid(who, "the plan's %s is %lld, must be %lld", rules[i].name,
                                 (long long)rules[i].have, (long long)rules[i].want);
    TESS_TRY(check_blocks(who, "query", "group", info, 0, d->opts.groups));
    return check_blocks(who, "key", "unit", info, 1, d->opts.units);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static tess_status segment_list_create(tess__arena *arena, const tess_run *runs, int64_t n,
                                       const int64_t *rows, int ranks, tess__segment_list *list)
{
    list->n = n;
    list->segments = TESS_TAKE(arena, tess__bytes((size_t)n, sizeof *list->segments));
    list->rows = TESS_TAKE(arena, (size_t)ranks * sizeof *list->rows);
    memcpy(list->rows, rows, (size_t)ranks * sizeof *rows);
    for (int64_t i = 0; i < n; i++)
        list->segments[i] = (tess__segment){.peer = runs[i].peer,
                                            .head = runs[i].head,
                                            .row = runs[i].row,
                                            .rows = runs[i].rows,
                                            .place = runs[i].place};
    return TESS_OK;
}

tess_status tess__row_exchange_create(const tess_dist_attn *d, const tess__dist_plan *in,
                                      tess_rows rows, int64_t packed_rows,
                                      tess__row_exchange *exchange)
{
    tess_rows_view view;
    const size_t heads = (size_t)d->opts.heads;
    TESS_TRY(tess_exchange_view(in->exchange, rows, &view));
    *exchange = (tess__row_exchange){.packed_rows = packed_rows};
    TESS_TRY(segment_list_create(in->arena, view.sends, view.n_sends, view.send_rows, d->ranks,
                                 &exchange->local));
    TESS_TRY(segment_list_create(in->arena, view.recvs, view.n_recvs, view.recv_rows, d->ranks,
                                 &exchange->packed));
    exchange->by_head = TESS_TAKE(in->arena, (size_t)view.n_sends * sizeof *exchange->by_head);
    exchange->first = TESS_TAKE(in->arena, (heads + 1) * sizeof *exchange->first);
    exchange->clear = TESS_TAKE(in->arena, heads);
    tess__row_exchange_complete(exchange, d->opts.heads, d->local_rows);
    return TESS_OK;
}

void tess__need_move(const tess_dist_attn *d, const tess__dist_layer *layer, int q_floats,
                     int kv_floats, tess__dist_need *need)
{
    const int rank = d->rank, ranks = d->ranks;
    const int64_t out = tess__segment_list_rows(&layer->q.local, rank, ranks) * q_floats +
                        tess__segment_list_rows(&layer->kv.local, rank, ranks) * kv_floats;
    const int64_t in = tess__segment_list_rows(&layer->q.packed, rank, ranks) * q_floats +
                       tess__segment_list_rows(&layer->kv.packed, rank, ranks) * kv_floats;
    const int64_t most = d->opts.batch * TESS_MAX(out, in);
    tess__raise_to(&need->send, most);
    tess__raise_to(&need->recv, most);
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* The groups [begin, end) of query block b. */
static void groups_of(const tess_dist_attn *d, const tess_plan_info *info, int32_t b,
                      int32_t *begin, int32_t *end)
{
    const int64_t last = tess__plan_q_row(info, b + 1) - 1;
    *begin = tess__range_of(d->opts.groups, d->opts.n_groups, tess__plan_q_row(info, b));
    *end = tess__range_of(d->opts.groups, d->opts.n_groups, last) + 1;
}

/* The groups of the share's rows, in the order of its blocks. */
static tess_status list_groups(const tess_dist_attn *d, const tess__dist_plan *in,
                               const int32_t *blocks, int32_t n_blocks, tess__dist_share *share)
{
    const tess_plan_info *info = &in->plan->info;
    int32_t begin, end, n = 0;
    for (int32_t i = 0; i < n_blocks; i++) {
        groups_of(d, info, blocks[i], &begin, &end);
        n += end - begin;
    }
    int32_t *groups = TESS_TAKE(in->arena, (size_t)n * sizeof *groups);
    int64_t *bounds = TESS_TAKE(in->arena, ((size_t)n + 1) * sizeof *bounds);
    n = 0;
    bounds[0] = 0;
    for (int32_t i = 0; i < n_blocks; i++) {
        groups_of(d, info, blocks[i], &begin, &end);
        for (int32_t g = begin; g < end; g++, n++) {
            groups[n] = g;
            bounds[n + 1] = bounds[n] + d->opts.groups[g + 1] - d->opts.groups[g];
        }
    }
    share->n_groups = n;
    share->groups = groups;
    share->bounds = bounds;
    return TESS_OK;
}

static int64_t tiles_of(const tess__dist_share *share)
{
    int64_t tiles = 0;
    for (int32_t g = 0; g < share->n_groups; g++)
        tiles += (share->bounds[g + 1] - share->bounds[g] + TESS_TILE - 1) / TESS_TILE;
    return tiles;
}

/* What the rank computes of a slot: all of it in one share, or one block. */
static tess_status make_share(const tess_dist_attn *d, const tess__dist_plan *in,
                              const tess_slot *slot, const int32_t *blocks, int32_t n_blocks,
                              tess__dist_layer *layer, tess__dist_need *need)
{
    const int64_t n = layer->n_shares++;
    tess__dist_share *share = &layer->shares[n];
    *share = (tess__dist_share){.head = slot->head,
                                .q_place = slot->q_place,
                                .q_rows = slot->q_rows,
                                .k_place = slot->k_place,
                                .k_rows = slot->k_rows,
                                .bits = layer->bits,
                                .same_head = n > 0 && slot->head == share[-1].head};
    if (d->opts.exact) {
        const tess_plan_info *info = &in->plan->info;
        const int continues = blocks != slot->q_ids;
        share->q_place = continues ? share[-1].q_place + share[-1].q_rows : slot->q_place;
        share->q_rows = tess__plan_q_row(info, *blocks + 1) - tess__plan_q_row(info, *blocks);
    }
    if (d->opts.groups)
        TESS_TRY(list_groups(d, in, blocks, n_blocks, share));
    layer->bits += (size_t)share->n_groups * tess__group_bytes(d);
    need->groups = TESS_MAX(share->n_groups, need->groups);
    if (d->opts.group_rows)
        tess__raise_to(&need->ordered, share->q_rows * d->opts.head_dim);
    tess__raise_to(&need->tiles, tiles_of(share));
    return TESS_OK;
}

static tess_status make_shares(const tess_dist_attn *d, const tess__dist_plan *in,
                               tess__dist_layer *layer, tess__dist_need *need)
{
    const tess_slot *slots;
    int64_t n_slots, n = 0;
    TESS_TRY(tess_exchange_slots(in->exchange, &slots, &n_slots));
    for (int64_t i = 0; i < n_slots; i++)
        n += d->opts.exact ? slots[i].n_q : 1;
    /* Slots are at most TESS_PLAN_SHARES_MAX, and blocks of a layer a number of the plan's. */
    layer->shares = TESS_TAKE(in->arena, tess__bytes((size_t)n, sizeof *layer->shares));
    for (int64_t i = 0; i < n_slots; i++) {
        const tess_slot *slot = &slots[i];
        const int32_t each = d->opts.exact ? 1 : slot->n_q;
        for (int32_t b = 0; b < slot->n_q || (b == 0 && !d->opts.exact); b += TESS_MAX(each, 1))
            TESS_TRY(make_share(d, in, slot, slot->q_ids + b, each, layer, need));
    }
    return TESS_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static const tess__dist_kind *kind_of(const tess_plan_layer *layer)
{
    if (layer->strategy.ring > 1)
        return &tess__dist_ring;
    return layer->strategy.selective > 1 ? &tess__dist_selective : &tess__dist_whole_keys;
}

static tess_status fill_layer(const tess_dist_attn *d, const tess__dist_plan *in,
                              tess__dist_layer *layer, tess__dist_need *need)
{
    const size_t heads = (size_t)d->opts.batch * (size_t)d->opts.heads;
    layer->density = TESS_TAKE_ZERO(in->arena, heads * sizeof *layer->density);
    layer->stats.density = layer->density;
    if (d->opts.exact && layer->kind != &tess__dist_whole_keys)
        return tess__fail(TESS_ENOTSUP,
                          "tess_dist_attn_plan: layer %d is %s, must leave keys whole with exact",
                          in->layer, layer->kind->name);
    TESS_TRY(make_shares(d, in, layer, need));
    tess_exchange_info info;
    TESS_TRY(tess_exchange_query(in->exchange, &info));
    TESS_TRY(tess__row_exchange_create(d, in, TESS_ROWS_Q, info.packed_q, &layer->q));
    TESS_TRY(layer->kind->plan(d, in, layer, need));
    tess__need_move(d, layer, d->opts.head_dim + 1, 0, need); /* o and lse */
    tess__raise_to(&need->activations, (int64_t)tess__activation_bytes(d, layer));
    const int64_t kv = layer->kv.packed_rows * tess__sum_words(d);
    if (d->opts.saves > 0)
        tess__raise_to(&need->gradients,
                       2 * (layer->q.packed_rows + kv) * d->opts.batch * d->opts.head_dim);
    return TESS_OK;
}

static tess_status make_layer(const tess_dist_attn *d, tess__dist_plan *in, tess__dist_layer *layer,
                              tess__dist_need *need)
{
    tess_plan_layer view;
    TESS_TRY(tess_plan_layer_view(in->plan, in->layer, &view));
    *layer = (tess__dist_layer){.kind = kind_of(&view)};
    tess_exchange *exchange = NULL;
    TESS_TRY(
        tess_plan_exchange(in->plan, NULL, in->layer, d->rank, d->opts.bounds, NULL, &exchange));
    in->exchange = exchange;
    const tess_status status = fill_layer(d, in, layer, need);
    tess_exchange_destroy(exchange);
    return status;
}

tess_status tess__dist_layers(const tess_dist_attn *d, const tess_plan *plan, tess__arena *arena,
                              tess__dist_layer **layers, tess__dist_need *need)
{
    TESS_TRY(check_plan(d, &plan->info));
    const size_t n = (size_t)plan->info.layers;
    tess__dist_layer *made = TESS_TAKE(arena, n * sizeof *made);
    for (int l = 0; l < plan->info.layers; l++) {
        tess__dist_plan in = {.plan = plan, .layer = l, .arena = arena};
        TESS_TRY(make_layer(d, &in, &made[l], need));
    }
    *layers = made;
    return TESS_OK;
}
