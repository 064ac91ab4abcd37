/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_rows.c - packed buffers as patterns of token ranges, and the messages that fill them.
 *
 *   order of blocks   5 6 2 | 0 1 3 4 ...     part 0 of the group: blocks 5, 6, 2
 *   pattern           [320,448) [128,192)     blocks of 64: neighbours are one span
 *   uses              head 1 at row 0, head 4 at row 192, ...
 *   message of p      the spans within [bounds[p], bounds[p+1]), once per use
 *
 * Cost per (owner, computing rank): the patterns' spans, and the runs that come out.
 */
#include "exchange_internal.h"

#include <string.h>

void tess__uses_free(tess__uses *uses)
{
    tess_ctx *ctx = uses->ctx;
    if (!ctx)
        return;
    tess__free(ctx, uses->uses);
    tess__free(ctx, uses->patterns);
    tess__free(ctx, uses->spans);
    tess__free(ctx, uses->cut);
    tess__free(ctx, uses->ids);
    tess__free(ctx, uses->bits);
    *uses = (tess__uses){0};
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int64_t block_row(const tess__job *job, tess__side side, int32_t block)
{
    return side == TESS__SIDE_Q ? tess__plan_q_row(job->info, block)
                                : tess__plan_k_row(job->info, block);
}

/* Begins a pattern with room for this many spans. */
static tess_status begin_pattern(tess__uses *uses, int64_t spans)
{
    int64_t room = uses->room_spans;
    const int64_t need = uses->n_spans + spans;
    TESS_GROW(uses->ctx, uses->cut, 0, need, room);
    TESS_GROW(uses->ctx, uses->spans, uses->n_spans, need, uses->room_spans);
    uses->patterns[uses->n_patterns++] =
        (tess__pattern){.first = uses->n_spans, .last = uses->n_spans};
    return TESS_OK;
}

/* Appends a block range to the pattern that was begun last. */
static void add_blocks(const tess__job *job, tess__side side, tess__uses *uses, int32_t begin,
                       int32_t end)
{
    tess__pattern *p = &uses->patterns[uses->n_patterns - 1];
    const int64_t from = block_row(job, side, begin), to = block_row(job, side, end);
    tess__pattern_range *last = p->last > p->first ? &uses->spans[p->last - 1] : NULL;
    if (last && last->end == from)
        last->end = to;
    else
        uses->spans[p->last++] = (tess__pattern_range){from, to, p->rows};
    p->rows += to - from;
    uses->n_spans = p->last;
}

/* The pattern of places [begin, end) of an order; NULL: the blocks themselves. */
static tess_status place_pattern(const tess__job *job, tess__side side, tess__uses *uses,
                                 const int32_t *order, int32_t begin, int32_t end)
{
    TESS_TRY(begin_pattern(uses, order ? end - begin : 1));
    if (!order && begin < end)
        add_blocks(job, side, uses, begin, end);
    for (int32_t i = begin; order && i < end; i++)
        add_blocks(job, side, uses, order[i], order[i] + 1);
    return TESS_OK;
}

/* The first block from `block` on whose bit is `value`; n if there is none. */
static int32_t next_bit(const uint64_t *bits, int32_t block, int32_t n, int value)
{
    while (block < n) {
        const uint64_t word = (value ? bits[block / 64] : ~bits[block / 64]) >> (block % 64);
        if (word) {
            block += __builtin_ctzll(word);
            return TESS_MIN(block, n);
        }
        block += 64 - block % 64;
    }
    return n;
}

/* Keeps the ids of the blocks in uses->bits, in packed order. */
static tess_status keep_ids(const tess__job *job, tess__uses *uses, const int32_t *order,
                            int64_t count, tess__use *use)
{
    TESS_GROW(uses->ctx, uses->ids, uses->n_ids, uses->n_ids + count, uses->room_ids);
    use->ids = uses->n_ids;
    use->n_ids = (int32_t)count;
    for (int32_t p = 0; p < job->info->k_blocks; p++) {
        const int32_t b = order ? order[p] : p;
        if (uses->bits[b / 64] >> (b % 64) & 1)
            uses->ids[uses->n_ids++] = b;
    }
    return TESS_OK;
}

/* The pattern of the `count` key blocks in uses->bits. */
static tess_status union_pattern(const tess__job *job, tess__uses *uses, const int32_t *order,
                                 int64_t count)
{
    const int32_t n = job->info->k_blocks;
    TESS_TRY(begin_pattern(uses, count));
    for (int32_t p = 0; order && p < n; p++)
        if (uses->bits[order[p] / 64] >> (order[p] % 64) & 1)
            add_blocks(job, TESS__SIDE_K, uses, order[p], order[p] + 1);
    for (int32_t b = order ? n : next_bit(uses->bits, 0, n, 1); b < n;) {
        const int32_t end = next_bit(uses->bits, b, n, 0);
        add_blocks(job, TESS__SIDE_K, uses, b, end);
        b = next_bit(uses->bits, end, n, 1);
    }
    return TESS_OK;
}

/* ---- uses ------------------------------------------------------------------------------------ */

/* Takes the memory for the uses and patterns of a rank: one of each per share at most, or per head
 * of its group; with unions, for their bits too. */
static tess_status begin_uses(const tess__job *job, int unions, int64_t n, tess__uses *uses)
{
    uses->ctx = job->ctx;
    uses->n_uses = uses->n_patterns = uses->n_spans = uses->n_ids = uses->rows = 0;
    int64_t room = uses->room_uses;
    TESS_GROW(job->ctx, uses->patterns, 0, n, room);
    TESS_GROW(job->ctx, uses->uses, 0, n, uses->room_uses);
    if (unions && !uses->bits) {
        uses->bits = TESS_ALLOC(job->ctx, (size_t)tess__work_words(job->work) * sizeof(uint64_t));
    }
    return TESS_OK;
}

static void add_use(tess__uses *uses, tess__use use, int32_t head)
{
    use.head = head;
    use.pattern = (int32_t)uses->n_patterns - 1;
    use.place = uses->rows;
    uses->rows += uses->patterns[use.pattern].rows;
    uses->uses[uses->n_uses++] = use;
}

static tess_status query_uses(const tess__job *job, int rank, const int32_t *order,
                              tess__uses *uses)
{
    const tess_plan_layer *layer = job->layer;
    const int64_t begin = layer->first[rank], end = layer->first[rank + 1];
    TESS_TRY(begin_uses(job, 0, end - begin, uses));
    for (int64_t i = begin; i < end; i++) {
        const tess_share *s = &layer->shares[i];
        if (i == begin || s->q_begin != s[-1].q_begin || s->q_end != s[-1].q_end)
            TESS_TRY(place_pattern(job, TESS__SIDE_Q, uses, order, s->q_begin, s->q_end));
        add_use(uses, (tess__use){0}, s->head);
    }
    return TESS_OK;
}

/* A ring: the rank's key part of all heads of its group, also where it has no queries. */
static tess_status ring_uses(const tess__job *job, int rank, const int32_t *order, tess__uses *uses)
{
    const tess_plan_layer *layer = job->layer;
    const int u = tess__rank_group(layer, rank), part = tess__key_part(layer, rank, 0);
    const int32_t *cut = layer->k_cuts + (size_t)u * ((size_t)layer->strategy.ring + 1) + part;
    TESS_TRY(begin_uses(job, 0, job->heads_at[u + 1] - job->heads_at[u] + 1, uses));
    TESS_TRY(place_pattern(job, TESS__SIDE_K, uses, order, cut[0], cut[1]));
    for (int32_t i = job->heads_at[u]; i < job->heads_at[u + 1]; i++)
        add_use(uses, (tess__use){0}, job->heads[i]);
    return TESS_OK;
}

/* The keys of each head that the rank has shares of: all of them, or the union where unions says
 * so; none where it is not known. */
static tess_status key_uses(const tess__job *job, int rank, const int32_t *order, int unions,
                            tess__uses *uses)
{
    const tess_plan_layer *layer = job->layer;
    const int64_t begin = layer->first[rank], end = layer->first[rank + 1];
    TESS_TRY(begin_uses(job, unions && job->work, end - begin, uses));
    if (unions && !job->work)
        return TESS_OK;
    for (int64_t i = begin; i < end;) {
        const int64_t next = tess__shares_run(layer, i);
        tess__use use = {0};
        if (unions) {
            const int64_t count =
                tess__shares_union(job->info, layer, job->work, job->at, i, next, 0, uses->bits);
            TESS_TRY(union_pattern(job, uses, order, count));
            if (rank == job->rank)
                TESS_TRY(keep_ids(job, uses, order, count, &use));
        } else if (i == begin) {
            TESS_TRY(place_pattern(job, TESS__SIDE_K, uses, order, 0, job->info->k_blocks));
        }
        add_use(uses, use, layer->shares[i].head);
        i = next;
    }
    return TESS_OK;
}

tess_status tess__uses_make(const tess__job *job, tess__side side, int rank, tess__uses *uses)
{
    const tess_plan_layer *layer = job->layer;
    const size_t u = (size_t)tess__rank_group(layer, rank);
    const int32_t *q = layer->q_order ? layer->q_order + u * (size_t)job->info->q_blocks : NULL;
    const int32_t *k = layer->k_order ? layer->k_order + u * (size_t)job->info->k_blocks : NULL;
    if (side == TESS__SIDE_Q)
        return query_uses(job, rank, q, uses);
    if (side == TESS__SIDE_LOW)
        return key_uses(job, rank, NULL, 0, uses);
    return layer->strategy.ring > 1 ? ring_uses(job, rank, k, uses)
                                    : key_uses(job, rank, k, layer->strategy.selective > 1, uses);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* uses->cut = what of the pattern lies in [begin, end), as rows of the owner's shard. Spans of a
 * permuted order hit an owner at random: they are written in any case and counted if they do. */
static int64_t cut_pattern(tess__uses *uses, const tess__pattern *p, int64_t begin, int64_t end)
{
    int64_t rows = 0, n = 0;
    for (int64_t i = p->first; i < p->last; i++) {
        const tess__pattern_range *s = &uses->spans[i];
        const int64_t from = TESS_MAX(s->begin, begin);
        const int64_t to = TESS_MIN(s->end, end);
        const int hit = from < to;
        uses->cut[n] = (tess__pattern_range){from - begin, to - begin, s->place + from - s->begin};
        n += hit;
        rows += hit ? to - from : 0;
    }
    uses->n_cut = n;
    return rows;
}

/* One use of the pattern in uses->cut. */
static void add_runs(const tess__uses *uses, const tess__use *use, int peer, tess__run_list *list)
{
    tess_run *run = list->runs + list->n;
    for (int64_t i = 0; i < uses->n_cut; i++, run++) {
        const tess__pattern_range *s = &uses->cut[i];
        *run = (tess_run){peer, use->head, s->begin, s->end - s->begin, use->place + s->place};
    }
    list->n += uses->n_cut;
}

int64_t tess__uses_runs(const tess__uses *uses, int ranks)
{
    int64_t runs = 0;
    for (int64_t i = 0; i < uses->n_uses; i++) {
        const tess__pattern *p = &uses->patterns[uses->uses[i].pattern];
        runs += p->last - p->first + ranks - 1;
    }
    return runs < uses->rows ? runs : uses->rows;
}

tess_status tess__run_room(tess_ctx *ctx, tess__run_list *list, int64_t need)
{
    return tess__grow(ctx, &list->runs, sizeof *list->runs, list->n, need, &list->room);
}

tess_status tess__uses_message(const tess__job *job, tess__side side, tess__uses *uses, int owner,
                               int peer, tess__run_list *list)
{
    const int64_t begin = job->bounds[side][owner], end = job->bounds[side][owner + 1];
    int64_t total = 0, rows = 0;
    for (int64_t i = 0; i < uses->n_uses; i++) {
        const tess__use *use = &uses->uses[i];
        if (i == 0 || use->pattern != use[-1].pattern)
            rows = cut_pattern(uses, &uses->patterns[use->pattern], begin, end);
        if (rows == 0)
            continue;
        TESS_TRY(tess__run_room(job->ctx, list, list->n + uses->n_cut));
        add_runs(uses, use, peer, list);
        total += rows;
    }
    list->rows[peer] = total;
    list->total += total;
    return TESS_OK;
}
