/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - exchange lists of one rank: the object and the questions it answers.
 *
 * Two lists on each side (queries, keys, all keys for selectors) hold everything: what the rank
 * sends as owner to each computing rank, and what it gets as computing rank from each owner. The
 * way back has the lists swapped, and gradients travel like what they are gradients of.
 *
 * Cost: for every computing rank the spans of its patterns (see exchange_rows.c), and the runs that
 * come out. Memory: 32 bytes per run.
 */
#include "exchange_internal.h"

#include <string.h>

/* ---- the object ------------------------------------------------------------------------------ */

void tess_exchange_destroy(tess_exchange *exchange)
{
    if (!exchange)
        return;
    tess_ctx *ctx = exchange->ctx;
    for (int side = 0; side < TESS__SIDES; side++) {
        tess__free(ctx, exchange->to_compute[side].runs);
        tess__free(ctx, exchange->computed[side].runs);
    }
    tess__arena arena = exchange->arena; /* the exchange lies in it */
    tess__arena_free(&arena);
}

static tess_status check_bounds(const char *who, char letter, const int64_t *bounds, int ranks,
                                int64_t tokens)
{
    if (bounds[0] != 0 || bounds[ranks] != tokens)
        return tess__invalid(who, "bounds_%c go from %lld to %lld, must go from 0 to %lld", letter,
                             (long long)bounds[0], (long long)bounds[ranks], (long long)tokens);
    for (int r = 0; r < ranks; r++)
        if (bounds[r] > bounds[r + 1])
            return tess__invalid(who, "bounds_%c: rank %d has %lld..%lld, must not fall", letter, r,
                                 (long long)bounds[r], (long long)bounds[r + 1]);
    return TESS_OK;
}

static tess_status check_work(const char *who, const tess_plan *plan, int layer,
                              const tess_work *work)
{
    const int selects = plan->layers[layer].strategy.selective > 1;
    if (!work)
        return TESS_OK;
    TESS_TRY(tess__plan_fits(who, &plan->info, work));
    if (layer >= work->info.layers)
        return tess__invalid(who, "layer is %d, the work has %d", layer, work->info.layers);
    if (selects && !work->info.masks)
        return tess__invalid(who, "layer %d is selective, and the work has no masks", layer);
    return TESS_OK;
}

static tess_status check(const char *who, const tess_plan *plan, const tess_work *work, int layer,
                         int rank, const int64_t *bounds_q, const int64_t *bounds_k)
{
    TESS_TRY(tess__plan_layer_ok(who, plan, layer));
    const tess_plan_info *info = &plan->info;
    TESS_TRY(tess__check_range(who, "rank", rank, 0, info->ranks - 1));
    TESS_TRY(check_bounds(who, 'q', bounds_q, info->ranks, info->tokens_q));
    TESS_TRY(check_bounds(who, 'k', bounds_k, info->ranks, info->tokens_k));
    return check_work(who, plan, layer, work);
}

/* The heads of each group of a ring, into the arena. */
static tess_status gather_heads(tess__arena *arena, tess__job *job)
{
    if (job->layer->strategy.ring == 1)
        return TESS_OK;
    const tess_plan_layer *layer = job->layer;
    const int groups = layer->groups, heads = job->info->heads;
    const size_t most = layer->head_group ? (size_t)heads : (size_t)layer->n_shares;
    int32_t *at = TESS_TAKE(arena, ((size_t)groups + 1) * sizeof *at);
    int32_t *list = TESS_TAKE(arena, most * sizeof *list);
    if (layer->head_group) {
        tess__bucket_heads(layer->head_group, heads, groups, at, list);
    } else { /* a head may be in several rings */
        at[0] = 0;
        for (int u = 0; u < groups; u++) {
            const int rank = tess__rank_at(layer, u, 0);
            at[u + 1] = at[u];
            for (int64_t i = layer->first[rank]; i < layer->first[rank + 1]; i++)
                list[at[u + 1]++] = layer->shares[i].head;
        }
    }
    job->heads = list;
    job->heads_at = at;
    return TESS_OK;
}

/* All messages of one side: to each computing rank, and from each owner; `mine` keeps the packed
 * buffer of the rank itself. */
static tess_status fill_side(const tess__job *job, tess__side side, tess__uses *others,
                             tess__uses *mine, tess_exchange *x)
{
    tess__run_list *in = &x->computed[side], *out = &x->to_compute[side];
    TESS_TRY(tess__uses_make(job, side, job->rank, mine));
    TESS_TRY(tess__run_room(job->ctx, in, tess__uses_runs(mine, job->info->ranks)));
    for (int peer = 0; peer < job->info->ranks; peer++)
        TESS_TRY(tess__uses_message(job, side, mine, peer, peer, in));
    /* Ranks do not differ much: about as many go out as come in. */
    TESS_TRY(tess__run_room(job->ctx, out, in->n + in->n / 8));
    for (int peer = 0; peer < job->info->ranks; peer++) {
        tess__uses *uses = peer == job->rank ? mine : others;
        if (uses == others)
            TESS_TRY(tess__uses_make(job, side, peer, others));
        TESS_TRY(tess__uses_message(job, side, uses, job->rank, peer, out));
    }
    return TESS_OK;
}

static tess_status fill(tess__job *job, tess_exchange *x)
{
    tess__uses others[TESS__SIDES] = {{0}}, mine[TESS__SIDES] = {{0}};
    tess_status status = gather_heads(&x->arena, job);
    for (int side = 0; status == TESS_OK && side < TESS__SIDES; side++)
        status = fill_side(job, (tess__side)side, &others[side], &mine[side], x);
    if (status == TESS_OK)
        status = tess__exchange_slots(job, mine, x);
    if (status == TESS_OK)
        status = tess__exchange_ring(job, x);
    if (status == TESS_OK)
        status = tess__exchange_blocks(job, x);
    x->info.packed_q = mine[TESS__SIDE_Q].rows;
    x->info.packed_k = mine[TESS__SIDE_K].rows;
    x->info.packed_low = mine[TESS__SIDE_LOW].rows;
    for (int side = 0; side < TESS__SIDES; side++) {
        tess__uses_free(&others[side]);
        tess__uses_free(&mine[side]);
    }
    return status;
}

tess_status tess_plan_exchange(const tess_plan *plan, const tess_work *work, int layer, int rank,
                               const int64_t *bounds_q, const int64_t *bounds_k,
                               tess_exchange **exchange)
{
    TESS_REQUIRE(plan, bounds_q, exchange);
    bounds_k = bounds_k ? bounds_k : bounds_q;
    TESS_TRY(check(__func__, plan, work, layer, rank, bounds_q, bounds_k));
    const tess_plan_info *info = &plan->info;
    tess__arena arena = {.ctx = plan->ctx};
    const size_t counts = 2 * TESS__SIDES * (size_t)info->ranks * sizeof(int64_t);
    tess_exchange *x = tess__arena_take(&arena, sizeof *x);
    int64_t *rows = x ? tess__arena_take(&arena, counts) : NULL;
    if (!rows) {
        tess__arena_free(&arena);
        return TESS_ENOMEM;
    }
    memset(rows, 0, counts);
    *x = (tess_exchange){
        .ctx = plan->ctx,
        .arena = arena,
        .info = {.rank = rank,
                 .ranks = info->ranks,
                 .heads = info->heads,
                 .shard_q = bounds_q[rank + 1] - bounds_q[rank],
                 .shard_k = bounds_k[rank + 1] - bounds_k[rank]},
    };
    for (int side = 0; side < TESS__SIDES; side++) {
        x->to_compute[side].rows = rows + (size_t)(2 * side) * (size_t)info->ranks;
        x->computed[side].rows = rows + (size_t)(2 * side + 1) * (size_t)info->ranks;
    }
    tess__job job = {.ctx = plan->ctx,
                     .info = info,
                     .layer = &plan->layers[layer],
                     .work = work,
                     .at = layer,
                     .rank = rank,
                     .bounds = {bounds_q, bounds_k, bounds_k}};
    const tess_status status = fill(&job, x);
    if (status == TESS_OK)
        *exchange = x;
    else
        tess_exchange_destroy(x);
    return status;
}

/* ---- questions ------------------------------------------------------------------------------- */

tess_status tess_exchange_query(const tess_exchange *exchange, tess_exchange_info *info)
{
    TESS_REQUIRE(exchange, info);
    *info = exchange->info;
    return TESS_OK;
}

/* Which side the rows are of, and whether they travel from the computing rank to the owner. */
static const struct {
    tess__side side;
    int back;
} ways[TESS_ROWS_COUNT] = {
    [TESS_ROWS_Q] = {TESS__SIDE_Q, 0},     [TESS_ROWS_KV] = {TESS__SIDE_K, 0},
    [TESS_ROWS_O] = {TESS__SIDE_Q, 1},     [TESS_ROWS_DO] = {TESS__SIDE_Q, 0},
    [TESS_ROWS_DQ] = {TESS__SIDE_Q, 1},    [TESS_ROWS_DKV] = {TESS__SIDE_K, 1},
    [TESS_ROWS_LOW] = {TESS__SIDE_LOW, 0},
};

static tess_status check_rows(const char *who, const tess_exchange *exchange, tess_rows rows)
{
    if (!exchange)
        return tess__invalid(who, "exchange is NULL");
    TESS_TRY(tess__check_range(who, "rows", rows, 0, TESS_ROWS_COUNT - 1));
    return TESS_OK;
}

tess_status tess_exchange_view(const tess_exchange *exchange, tess_rows rows, tess_rows_view *view)
{
    TESS_TRY(check_rows(__func__, exchange, rows));
    TESS_REQUIRE(view);
    const tess__run_list *out = &exchange->to_compute[ways[rows].side];
    const tess__run_list *in = &exchange->computed[ways[rows].side];
    const tess__run_list *sends = ways[rows].back ? in : out, *recvs = ways[rows].back ? out : in;
    *view = (tess_rows_view){
        .sends = sends->runs,
        .recvs = recvs->runs,
        .n_sends = sends->n,
        .n_recvs = recvs->n,
        .send_rows = sends->rows,
        .recv_rows = recvs->rows,
        .send_total = sends->total,
        .recv_total = recvs->total,
        .adds = rows == TESS_ROWS_DKV,
    };
    return TESS_OK;
}

/* Rows of the runs one by one: of the owner's shard, or of the packed buffer. */
static void expand(const tess__run_list *list, int packed, int64_t stride_head, int64_t stride_row,
                   int64_t *index)
{
    for (int64_t i = 0; i < list->n; i++) {
        const tess_run *run = &list->runs[i];
        const int64_t step = packed ? 1 : stride_row;
        int64_t at = packed ? run->place : run->head * stride_head + run->row * stride_row;
        for (int64_t r = 0; r < run->rows; r++, at += step)
            *index++ = at;
    }
}

tess_status tess_exchange_index(const tess_exchange *exchange, tess_rows rows, tess_layout layout,
                                int64_t *send_index, int64_t *recv_index)
{
    TESS_TRY(check_rows(__func__, exchange, rows));
    TESS_TRY(tess__check_range(__func__, "layout", layout, 0, TESS_LAYOUT_COUNT - 1));
    const tess__side side = ways[rows].side;
    const int back = ways[rows].back;
    const int64_t shard = side == TESS__SIDE_Q ? exchange->info.shard_q : exchange->info.shard_k;
    const int64_t stride_head = layout == TESS_LAYOUT_HEADS ? shard : 1;
    const int64_t stride_row = layout == TESS_LAYOUT_HEADS ? 1 : exchange->info.heads;
    int64_t *owner = back ? recv_index : send_index, *packed = back ? send_index : recv_index;
    if (owner)
        expand(&exchange->to_compute[side], 0, stride_head, stride_row, owner);
    if (packed)
        expand(&exchange->computed[side], 1, 0, 0, packed);
    return TESS_OK;
}

tess_status tess_exchange_slots(const tess_exchange *exchange, const tess_slot **slots, int64_t *n)
{
    TESS_REQUIRE(exchange, slots, n);
    *slots = exchange->slots;
    *n = exchange->n_slots;
    return TESS_OK;
}

tess_status tess_exchange_ring(const tess_exchange *exchange, tess_ring_view *view)
{
    TESS_REQUIRE(exchange, view);
    *view = exchange->ring;
    return TESS_OK;
}
