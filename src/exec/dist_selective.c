/* SPDX-License-Identifier: Apache-2.0 */
/* dist_selective.c - layers in which only selected keys are sent: U x C, DSV's hybrid of head and
 * sequence parallelism.
 *
 * Heads are split over U groups of ranks, the queries of a group's heads over its C ranks. A rank
 * has the query rows of its shares; of each head it needs the union of the keys that its queries
 * select, which is known once keys are selected.
 *
 *   forward    q (and the projected q, k) to the computing ranks; keys selected; units requested;
 *              K, V of the union received; attention of each share over its union; o back
 *   backward   dout to the computing ranks; gradients; dq back; dK, dV of the union back, summed by
 *              their owner ranks
 *
 * Cost of a rank beside that of q: 2 D floats for each remote row of the union, forward and
 * backward, and at most a bit for each key unit, head and sample; with virtual keys two rows of
 * sums for each owner rank, head and sample, forward and backward, with clusters of keys two for
 * each cluster. Memory: the rows of the union,
 * and as much for gradients. The union is not known in advance, so these buffers grow during calls.
 */
#include "dist_selective.h"

#include <string.h>

/* ---- planning -------------------------------------------------------------------------------- */

/* Lists the heads that each rank has shares of. */
static tess_status list_heads(const tess_dist_attn *d, const tess__dist_plan *in,
                              tess__selective *x)
{
    tess_plan_layer plan;
    TESS_TRY(tess_plan_layer_view(in->plan, in->layer, &plan));
    x->first = TESS_TAKE(in->arena, ((size_t)d->ranks + 1) * sizeof *x->first);
    x->heads = TESS_TAKE(in->arena, (size_t)plan.n_shares * sizeof *x->heads);
    int64_t n = 0;
    for (int r = 0; r < d->ranks; r++) {
        x->first[r] = n;
        for (int64_t i = plan.first[r]; i < plan.first[r + 1]; i++)
            if (i == plan.first[r] || plan.shares[i].head != plan.shares[i - 1].head)
                x->heads[n++] = plan.shares[i].head;
    }
    x->first[d->ranks] = n;
    x->n_local_heads = x->first[d->rank + 1] - x->first[d->rank];
    return TESS_OK;
}

/* Lists the units with rows on each owner rank; a unit may be on two. */
static tess_status list_units(const tess_dist_attn *d, const tess__dist_plan *in,
                              tess__selective *x)
{
    const size_t bytes = (size_t)d->ranks * sizeof *x->unit_begin;
    x->unit_begin = TESS_TAKE(in->arena, bytes);
    x->unit_end = TESS_TAKE(in->arena, bytes);
    for (int r = 0; r < d->ranks; r++) {
        const int64_t begin = d->opts.bounds[r], end = d->opts.bounds[r + 1];
        x->unit_begin[r] = begin;
        x->unit_end[r] = end;
        if (d->opts.units && begin < end) {
            x->unit_begin[r] = tess__range_of(d->opts.units, d->opts.n_units, begin);
            x->unit_end[r] = tess__range_of(d->opts.units, d->opts.n_units, end - 1) + 1;
        } else if (begin == end) {
            x->unit_begin[r] = x->unit_end[r] = 0;
        }
    }
    return TESS_OK;
}

/* Bytes of the index of a union: number of units before each word, first row of each unit. */
static size_t index_bytes(const tess_dist_attn *d, const tess__selective *x)
{
    return (size_t)x->words * sizeof(int64_t) + ((size_t)d->opts.n_units + 1) * sizeof(int64_t);
}

/* With virtual keys, after the index: rest, sums of each (batch, n_local_heads); each (groups of a
 * share, virtual keys, 2, head_dim), and all (virtual keys, 2, head_dim). */
static int64_t virtual_floats(const tess_dist_attn *d, const tess__dist_layer *layer,
                              const tess__selective *x)
{
    int64_t groups = 0;
    for (int64_t i = 0; i < layer->n_shares; i++)
        tess__raise_to(&groups, layer->shares[i].n_groups);
    return d->opts.compensate ? d->opts.batch * x->n_local_heads * tess__dist_sums(d) +
                                    (groups + 1) * tess__virtual_keys(d) * 2 * d->opts.head_dim
                              : 0;
}

static float *rest_of(const tess_dist_attn *d, const tess__selective *x)
{
    return (float *)d->scratch.data + index_bytes(d, x) / sizeof(float);
}

static void raise_need(const tess_dist_attn *d, tess__dist_layer *layer, tess__selective *x,
                       tess__dist_need *need)
{
    const int64_t batch = d->opts.batch;
    x->words = tess__set_words(d->opts.n_units);
    x->local_words = tess__set_words(x->unit_end[d->rank] - x->unit_begin[d->rank]);
    for (int r = 0; r < d->ranks; r++) {
        x->request_bytes_out +=
            batch * x->n_local_heads * tess__set_message_most(x->unit_end[r] - x->unit_begin[r]);
        x->request_bytes_in +=
            batch * (x->first[r + 1] - x->first[r]) *
            tess__set_message_most(x->unit_end[d->rank] - x->unit_begin[d->rank]);
    }
    tess__raise_to(&need->scratch, (tess__request_scratch(d, x) + 3) / 4);
    tess__raise_to(&need->scratch, (int64_t)index_bytes(d, x) / 4 + virtual_floats(d, layer, x));
    layer->kind_bytes = tess__key_requests_bytes(d, x);
    tess__left_plan(d, layer);
}

static tess_status selective_plan(const tess_dist_attn *d, const tess__dist_plan *in,
                                  tess__dist_layer *layer, tess__dist_need *need)
{
    tess__selective *x = TESS_TAKE(in->arena, sizeof *x);
    *x = (tess__selective){0};
    layer->kind_state = x;
    TESS_TRY(list_heads(d, in, x));
    TESS_TRY(list_units(d, in, x));
    TESS_TRY(tess__row_exchange_create(d, in, TESS_ROWS_KV, 0, &layer->kv)); /* empty */
    TESS_TRY(tess__partial_plan(d, in, 0, layer, &x->low, need));
    raise_need(d, layer, x, need);
    return TESS_OK;
}

/* ---- unions ---------------------------------------------------------------------------------- */

/* a->needed: of each sample and head the union of the units that its shares select. */
static void join_shares(const tess_dist_attn *d, const tess__dist_run *run,
                        const tess__selective *x, const tess__key_requests *a)
{
    const tess__dist_layer *layer = run->layer;
    memset(a->needed, 0, (size_t)(d->opts.batch * x->n_local_heads * x->words) * sizeof *a->needed);
    for (int sample = 0; run->status == TESS_OK && sample < d->opts.batch; sample++) {
        uint64_t *set = a->needed + (sample * x->n_local_heads - 1) * x->words;
        for (int64_t i = 0; i < layer->n_shares; i++) {
            set += layer->shares[i].same_head ? 0 : x->words;
            const tess__bit_lists lists = tess__partial_bits(d, run, sample, &layer->shares[i]);
            if (run->acts->dense[sample * layer->n_shares + i])
                tess__set_fill(set, 0, d->opts.n_units);
            else
                tess__set_join(set, &lists);
        }
    }
}

/* The keys of sample and head i, with the index of their units in d->scratch. */
static tess__key_subset union_keys(const tess_dist_attn *d, const tess__dist_run *run,
                                   const tess__selective *x, const tess__key_requests *a, int64_t i)
{
    const int64_t items = d->opts.batch * x->n_local_heads, dim = d->opts.head_dim;
    const uint64_t *set = a->needed + i * x->words;
    int64_t *const bounds = d->scratch.data;
    int32_t *const before = (int32_t *)(bounds + d->opts.n_units + 1);
    int64_t n = 0, row = 0;
    for (int64_t w = 0; w < x->words; w++) {
        before[w] = (int32_t)n;
        n += __builtin_popcountll(set[w]);
    }
    int64_t at = 0;
    for (int64_t u = 0;
         d->opts.units && (u = tess__set_next(set, u, d->opts.n_units, 1)) < d->opts.n_units; u++) {
        bounds[at++] = row;
        row += tess__unit_row(d, u + 1) - tess__unit_row(d, u);
    }
    bounds[at] = row;
    float *k = (float *)run->acts->keys.data + a->row_offsets[i] * dim;
    return (tess__key_subset){k, k + a->row_offsets[items] * dim,
                              a->row_offsets[i + 1] - a->row_offsets[i], (int32_t)n,
                              d->opts.units ? bounds : NULL};
}

/* The lists of a share among its union; NULL: all of it. */
static const tess_selection *union_lists(tess_dist_attn *d, const tess__dist_run *run,
                                         const tess__key_requests *a, const tess__selective *x,
                                         const tess__key_subset *keys, int sample, int64_t i,
                                         int64_t item)
{
    const tess__dist_share *share = &run->layer->shares[i];
    if (run->acts->dense[sample * run->layer->n_shares + i])
        return NULL;
    const tess__bit_lists lists = tess__partial_bits(d, run, sample, share);
    const int32_t *before = (int32_t *)((int64_t *)d->scratch.data + d->opts.n_units + 1);
    tess_selection *sel = tess__partial_lists(d, share, keys);
    tess__lists_in_set(&lists, a->needed + item * x->words, before, sel->offsets, sel->indices);
    tess__selection_changed(sel);
    return sel;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Virtual keys of a share: from the omitted rows of the union, and from all rows outside of it. */
static void join_virtual(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                         const tess__key_subset *keys, const tess_selection *lists, int sample,
                         int64_t i, int64_t item)
{
    const tess__left left = tess__left_of(d, run, sample, i);
    tess__left_all(d->attn, d->opts.tokens - keys->rows, rest_of(d, x) + item * tess__dist_sums(d),
                   &left);
    tess__partial_left(d, run, sample, i, keys, lists);
    tess__partial_join(d, run, sample, i);
}

static tess_status attend(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                          const tess__key_requests *a)
{
    const tess__dist_layer *layer = run->layer;
    for (int sample = 0; sample < d->opts.batch; sample++) {
        int64_t item = sample * x->n_local_heads - 1;
        tess__key_subset keys = {0};
        for (int64_t i = 0; i < layer->n_shares; i++) {
            const tess__dist_share *share = &layer->shares[i];
            const int64_t row = sample * layer->q.packed_rows + share->q_place;
            if (!share->same_head)
                keys = union_keys(d, run, x, a, ++item);
            const tess_selection *lists = union_lists(d, run, a, x, &keys, sample, i, item);
            TESS_TRY(tess__partial_forward(d, run, sample, i, &keys, lists,
                                           run->acts->o + row * d->opts.head_dim,
                                           run->acts->lse + row));
            if (tess__has_virtual(d, run, sample, i))
                join_virtual(d, run, x, &keys, lists, sample, i, item);
        }
    }
    return TESS_OK;
}

static tess_status selective_forward(tess_dist_attn *d, tess__dist_run *run)
{
    tess__dist_layer *layer = run->layer;
    const tess__selective *x = layer->kind_state;
    const tess__key_requests a = tess__key_requests_of(d, x, run->acts->kind_data);
    tess__transfer transfers[TESS__TRANSFERS_MAX];
    const int n = tess__query_transfers(d, run, &x->low, transfers);
    TESS_TRY(tess__rows_to_compute(d, &layer->stats, transfers, n));
    tess__select_all(d, run, &x->low);
    const int64_t begin = tess_comm_clock(d->comm);
    join_shares(d, run, x, &a);
    TESS_TRY(tess__request_keys(d, run, x, &a));
    layer->stats.index_ns += tess_comm_clock(d->comm) - begin;
    TESS_TRY(tess__keys_fetch(d, run, x, &a));
    if (d->opts.compensate) {
        TESS_TRY(tess__rest_sums_fetch(d, run, x, &a, rest_of(d, x)));
        tess__left_clear(d, run);
    }
    run->status = attend(d, run, x, &a);
    return TESS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradients of the virtual keys of a share: to dq, to dk and dv of the union, and to the rest. */
static void return_virtual(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                           const tess__key_subset *keys, const tess_selection *lists, int sample,
                           int64_t i, int64_t item, float *dk, float *dv)
{
    const int64_t row = 2 * tess__virtual_keys(d) * d->opts.head_dim, sums = tess__dist_sums(d);
    float *const rest = rest_of(d, x), *const all = rest + d->opts.batch * x->n_local_heads * sums;
    float *const each = all + row;
    memset(all, 0, (size_t)row * sizeof *all);
    tess__partial_virtual(d, run, sample, i, each, all);
    tess__partial_return(d, run, sample, i, keys, lists, each, all, dk, dv);
    tess__add_floats(d, rest + item * sums, all, row);
}

/* Gradients of all shares: dq, and dk and dv of the unions, (2, rows of all unions, head_dim).
 * After them is space for those of one more share, which are added where a head has several. */
static tess_status differentiate(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                                 const tess__key_requests *a, float *sums)
{
    const tess__dist_layer *layer = run->layer;
    const int64_t dim = d->opts.head_dim,
                  all = a->row_offsets[d->opts.batch * x->n_local_heads] * dim;
    for (int sample = 0; sample < d->opts.batch; sample++) {
        int64_t item = sample * x->n_local_heads - 1;
        tess__key_subset keys = {0};
        for (int64_t i = 0; i < layer->n_shares; i++) {
            const tess__dist_share *share = &layer->shares[i];
            if (!share->same_head)
                keys = union_keys(d, run, x, a, ++item);
            float *const dk = sums + a->row_offsets[item] * dim, *const dv = dk + all;
            float *const part = sums + 2 * all;
            const int64_t n = keys.rows * dim;
            const tess_selection *lists = union_lists(d, run, a, x, &keys, sample, i, item);
            TESS_TRY(tess__partial_backward(
                d, run, sample, i, &keys, lists,
                run->dq + (sample * layer->q.packed_rows + share->q_place) * dim,
                share->same_head ? part : dk, share->same_head ? part + n : dv));
            if (tess__has_virtual(d, run, sample, i))
                return_virtual(d, run, x, &keys, lists, sample, i, item,
                               share->same_head ? part : dk, share->same_head ? part + n : dv);
            if (share->same_head) {
                tess__add_floats(d, dk, part, n);
                tess__add_floats(d, dv, part + n, n);
            }
        }
    }
    return TESS_OK;
}

/* Floats of the gradients of all unions, and of the largest one again. */
static int64_t sum_floats(const tess_dist_attn *d, const tess__selective *x,
                          const tess__key_requests *a)
{
    const int64_t items = d->opts.batch * x->n_local_heads;
    int64_t most = 0;
    for (int64_t i = 0; i < items; i++)
        tess__raise_to(&most, a->row_offsets[i + 1] - a->row_offsets[i]);
    return 2 * (a->row_offsets[items] + most) * d->opts.head_dim;
}

static tess_status selective_backward(tess_dist_attn *d, tess__dist_run *run)
{
    tess__dist_layer *layer = run->layer;
    const tess__selective *x = layer->kind_state;
    const tess__key_requests a = tess__key_requests_of(d, x, run->acts->kind_data);
    run->status = tess__buffer_grow(d->ctx, &d->sums, sum_floats(d, x, &a), sizeof(float));
    if (d->opts.compensate)
        memset(rest_of(d, x), 0,
               (size_t)(d->opts.batch * x->n_local_heads * tess__dist_sums(d)) * sizeof(float));
    if (run->status == TESS_OK)
        run->status = differentiate(d, run, x, &a, d->sums.data);
    TESS_TRY(tess__run_agree(d, run));
    tess__to_tokens(d, run, d->opts.head_dim, run->dq);
    const tess__transfer dq = {&layer->q, d->opts.head_dim, *run->local_dq, run->dq, 0};
    TESS_TRY(tess__rows_to_owners(d, &layer->stats, &dq, 1));
    return tess__key_gradients_return(d, run, x, &a, d->sums.data,
                                      d->opts.compensate ? rest_of(d, x) : NULL);
}

const tess__dist_kind tess__dist_selective = {"selective", selective_plan, selective_forward,
                                              selective_backward};
