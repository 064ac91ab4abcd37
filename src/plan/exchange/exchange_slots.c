/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_slots.c - where each share's rows lie in the packed buffers, and what goes round a ring.
 *
 * Part k of the keys is held by part (k + t) mod R of the queries at step t. It is passed on after
 * step t as long as any later holder has work with it, which all ranks see alike in the tiles of
 * their group:
 *
 *   passes(s, t) = any t' > t: tile((k + t') mod R, k) > 0,    k = (s - t) mod R
 */
#include "exchange_internal.h"

#include <string.h>

/* The block at each place of the rank's group. */
static tess_status copy_order(tess__arena *arena, const int32_t *order, int32_t blocks,
                              int32_t **ids)
{
    int32_t *made = TESS_TAKE(arena, tess__bytes((size_t)blocks, sizeof *made));
    for (int32_t i = 0; i < blocks; i++)
        made[i] = order ? order[i] : i;
    *ids = made;
    return TESS_OK;
}

/* Fills the key side of slots: those of head use->head, from slot i on. Returns the slot behind. */
static int64_t fill_keys(tess_slot *slots, int64_t n, int64_t i, const tess__use *use, int64_t rows,
                         const int32_t *ids, int32_t n_ids)
{
    for (; i < n && slots[i].head == use->head; i++) {
        slots[i].k_place = use->place;
        slots[i].k_rows = rows;
        slots[i].k_ids = ids;
        slots[i].n_k = n_ids;
    }
    return i;
}

tess_status tess__exchange_slots(const tess__job *job, const tess__uses *uses, tess_exchange *x)
{
    const tess_plan_layer *layer = job->layer;
    const tess__uses *q = &uses[TESS__SIDE_Q], *k = &uses[TESS__SIDE_K];
    const size_t u = (size_t)tess__rank_group(layer, job->rank);
    const int32_t *order_q = layer->q_order, *order_k = layer->k_order;
    order_q = order_q ? order_q + u * (size_t)job->info->q_blocks : NULL;
    order_k = order_k ? order_k + u * (size_t)job->info->k_blocks : NULL;
    TESS_TRY(copy_order(&x->arena, order_q, job->info->q_blocks, &x->ids_q));
    TESS_TRY(copy_order(&x->arena, order_k, job->info->k_blocks, &x->ids_k));
    int32_t *ids = TESS_TAKE(&x->arena, (size_t)k->n_ids * sizeof *ids);
    x->slots = TESS_TAKE(&x->arena, (size_t)q->n_uses * sizeof *x->slots);
    if (k->n_ids)
        memcpy(ids, k->ids, (size_t)k->n_ids * sizeof *ids);
    x->n_slots = q->n_uses;
    for (int64_t i = 0; i < q->n_uses; i++) {
        const tess_share *s = &layer->shares[layer->first[job->rank] + i];
        x->slots[i] = (tess_slot){
            .head = s->head,
            .n_q = s->q_end - s->q_begin,
            .q_ids = x->ids_q + s->q_begin,
            .q_place = q->uses[i].place,
            .q_rows = q->patterns[q->uses[i].pattern].rows,
        };
    }
    for (int64_t i = 0, at = 0; i < uses[TESS__SIDE_LOW].n_uses; i++)
        for (; at < x->n_slots && x->slots[at].head == uses[TESS__SIDE_LOW].uses[i].head; at++)
            x->slots[at].low_place = uses[TESS__SIDE_LOW].uses[i].place;
    const int part = tess__key_part(layer, job->rank, 0);
    const int32_t *cut = layer->k_cuts + u * ((size_t)layer->strategy.ring + 1) + part;
    int64_t at = 0;
    for (int64_t i = 0; i < k->n_uses; i++) {
        const tess__use *use = &k->uses[i];
        const int64_t rows = k->patterns[use->pattern].rows;
        if (layer->strategy.selective > 1)
            at = fill_keys(x->slots, x->n_slots, at, use, rows, ids + use->ids, use->n_ids);
        else
            at = fill_keys(x->slots, x->n_slots, at, use, rows, x->ids_k + cut[0], cut[1] - cut[0]);
    }
    return TESS_OK;
}

tess_status tess__exchange_blocks(const tess__job *job, tess_exchange *x)
{
    const tess_plan_info *info = job->info;
    x->tokens_q = info->tokens_q;
    x->tokens_k = info->tokens_k;
    x->rows_q = TESS_TAKE(&x->arena, ((size_t)info->q_blocks + 1) * sizeof *x->rows_q);
    x->rows_k = TESS_TAKE(&x->arena, ((size_t)info->k_blocks + 1) * sizeof *x->rows_k);
    for (int32_t i = 0; i <= info->q_blocks; i++)
        x->rows_q[i] = tess__plan_q_row(info, i);
    for (int32_t i = 0; i <= info->k_blocks; i++)
        x->rows_k[i] = tess__plan_k_row(info, i);
    return TESS_OK;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* needed and passes of the steps, from the tiles of the rank's group. */
static tess_status find_last_use(const tess__job *job, int u, int s, const tess_ring_view *view,
                                 tess_ring_step *step)
{
    const tess_plan_layer *layer = job->layer;
    const size_t ring = (size_t)layer->strategy.ring;
    int64_t *tiles = TESS_ALLOC(job->ctx, tess__bytes(ring * ring, sizeof *tiles));
    const tess_status status = tess__group_tiles(job->info, layer, job->work, job->at, u,
                                                 view->heads, view->n_heads, tiles);
    for (size_t t = 0; status == TESS_OK && t < ring; t++) {
        const size_t part = (size_t)step[t].part;
        step[t].needed = tiles[(size_t)s * ring + part] > 0;
        step[t].passes = 0;
        for (size_t later = t + 1; later < ring; later++)
            step[t].passes |= tiles[(part + later) % ring * ring + part] > 0;
    }
    tess__free(job->ctx, tiles);
    return status;
}

tess_status tess__exchange_ring(const tess__job *job, tess_exchange *x)
{
    const tess_plan_layer *layer = job->layer;
    const int ring = layer->strategy.ring, u = tess__rank_group(layer, job->rank);
    tess_ring_step *step = TESS_TAKE(&x->arena, (size_t)ring * sizeof *step);
    x->ring =
        (tess_ring_view){.steps = ring, .next = job->rank, .previous = job->rank, .step = step};
    if (ring == 1) {
        step[0] = (tess_ring_step){.needed = x->n_slots > 0};
        return TESS_OK;
    }
    const int s = tess__rank_part(layer, job->rank);
    const int n = job->heads_at[u + 1] - job->heads_at[u];
    int32_t *heads = TESS_TAKE(&x->arena, (size_t)n * sizeof *heads);
    if (n)
        memcpy(heads, job->heads + job->heads_at[u], (size_t)n * sizeof *heads);
    x->ring.heads = heads;
    x->ring.n_heads = n;
    x->ring.next = tess__rank_at(layer, u, (s + 1) % ring);
    x->ring.previous = tess__rank_at(layer, u, (s + ring - 1) % ring);
    for (int t = 0; t < ring; t++) {
        const int part = tess__key_part(layer, job->rank, t);
        const int32_t *cut = layer->k_cuts + (size_t)u * ((size_t)ring + 1) + part;
        int64_t rows = 0;
        for (int32_t i = cut[0]; i < cut[1]; i++)
            rows += tess__plan_k_row(job->info, x->ids_k[i] + 1) -
                    tess__plan_k_row(job->info, x->ids_k[i]);
        step[t] = (tess_ring_step){.part = part,
                                   .n_k = cut[1] - cut[0],
                                   .k_ids = x->ids_k + cut[0],
                                   .rows = rows,
                                   .needed = x->n_slots > 0 && rows > 0,
                                   .passes = t + 1 < ring};
    }
    return job->work ? find_last_use(job, u, s, &x->ring, step) : TESS_OK;
}
