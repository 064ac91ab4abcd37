/* SPDX-License-Identifier: Apache-2.0 */
/* dist_partial.c - partial attention of one share over some of the keys, and selection of its
 * lists.
 *
 * Rings and selective layers select keys before they have them: by the projected q and k of all
 * tokens, which have a row exchange of their own, or by the queries alone. Lists are stored as
 * bitmasks over all key units, and converted to lists among the keys at hand.
 *
 *   d->low   q_low (batch, packed queries, proj_dim) | k_low (batch, heads of shares, tokens,
 *            proj_dim)
 */
#include "dist_partial.h"

#include <string.h>

/* Time spent in attention. */
typedef struct {
    int64_t clock, cpu;
} timer;

static timer begin(const tess_dist_attn *d)
{
    return (timer){tess_comm_clock(d->comm), tess__cpu_ns()};
}

static void end(const tess_dist_attn *d, const tess__dist_run *run, timer t)
{
    run->layer->stats.attend_ns += tess_comm_clock(d->comm) - t.clock;
    run->layer->stats.cpu_ns += tess__cpu_ns() - t.cpu;
}

static tess_view rows_of(const tess_dist_attn *d, float *data)
{
    return (tess_view){.data = data, .dtype = TESS_DTYPE_F32, .stride_s = d->opts.head_dim};
}

/* ---- attention ------------------------------------------------------------------------------- */

tess__bit_lists tess__partial_bits(const tess_dist_attn *d, const tess__dist_run *run, int sample,
                                   const tess__dist_share *share)
{
    return (tess__bit_lists){run->acts->bits + (size_t)sample * run->layer->bits + share->bits,
                             tess__group_bytes(d), share->n_groups, d->opts.n_units};
}

tess_selection *tess__partial_lists(tess_dist_attn *d, const tess__dist_share *share,
                                    const tess__key_subset *keys)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = share->q_rows,
                                  .tokens_k = keys->rows,
                                  .bounds_q = share->bounds,
                                  .n_q = share->n_groups,
                                  .bounds_k = keys->bounds,
                                  .n_k = keys->n_units,
                                  .unit = 1};
    tess__selection_reshape(d->lists, &shape);
    return d->lists;
}

tess_status tess__partial_forward(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                                  const tess__key_subset *keys, const tess_selection *lists,
                                  float *o, float *lse)
{
    const tess__dist_share *share = &run->layer->shares[i];
    const tess_view q = tess__share_q(run->layer, sample, share, run->acts->q, d->opts.head_dim);
    const tess_view k = rows_of(d, keys->k), v = rows_of(d, keys->v), to = rows_of(d, o);
    const timer t = begin(d);
    tess__attn_compensate(d->attn, 0);
    tess__attn_resize(d->attn, share->q_rows, keys->rows);
    const tess_status status = tess_attn_forward(d->attn, lists, &q, &k, &v, &to, lse);
    tess__attn_compensate(d->attn, d->opts.compensate);
    end(d, run, t);
    return status;
}

tess_status tess__partial_backward(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                                   const tess__key_subset *keys, const tess_selection *lists,
                                   float *dq, float *dk, float *dv)
{
    tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int dim = d->opts.head_dim;
    const tess_view q = tess__share_q(layer, sample, share, run->acts->q, dim);
    const tess_view o = tess__share_q(layer, sample, share, run->acts->o, dim);
    const tess_view dout = tess__share_q(layer, sample, share, run->dout, dim);
    const tess_view k = rows_of(d, keys->k), v = rows_of(d, keys->v);
    const tess_view to_q = rows_of(d, dq), to_k = rows_of(d, dk), to_v = rows_of(d, dv);
    const tess_attn_saved saved = {&q, &k, &v, &o,
                                   run->acts->lse + sample * layer->q.packed_rows + share->q_place};
    const timer t = begin(d);
    tess__attn_compensate(d->attn, 0);
    tess__attn_resize(d->attn, share->q_rows, keys->rows);
    const tess_status status =
        tess_attn_backward(d->attn, lists, &saved, &dout, NULL, &to_q, &to_k, &to_v);
    tess__attn_compensate(d->attn, d->opts.compensate);
    end(d, run, t);
    return status;
}

void tess__add_floats(const tess_dist_attn *d, float *restrict to, const float *restrict from,
                      int64_t n)
{
#pragma omp parallel for num_threads(d->ctx->threads) if (n > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* ---- virtual keys ---------------------------------------------------------------------------- */

int64_t tess__layer_groups(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    return (int64_t)(layer->bits / tess__group_bytes(d));
}

static size_t left_bytes(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    const size_t groups = (size_t)d->opts.batch * (size_t)tess__layer_groups(d, layer);
    return groups * (size_t)d->opts.compensate *
           (sizeof(int64_t) + 2 * (size_t)d->opts.head_dim * sizeof(float));
}

void tess__left_plan(const tess_dist_attn *d, tess__dist_layer *layer)
{
    layer->kind_bytes = tess__arena_round(layer->kind_bytes) + left_bytes(d, layer);
}

void tess__left_clear(const tess_dist_attn *d, const tess__dist_run *run)
{
    const size_t bytes = left_bytes(d, run->layer);
    memset(run->acts->kind_data + run->layer->kind_bytes - bytes, 0, bytes);
}

int tess__has_virtual(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i)
{
    return d->opts.compensate && !run->acts->dense[sample * run->layer->n_shares + i];
}

tess__left tess__left_of(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int64_t groups = tess__layer_groups(d, layer), keys = tess__virtual_keys(d);
    const int64_t at = keys * (sample * groups + (int64_t)(share->bits / tess__group_bytes(d)));
    int64_t *rows =
        (int64_t *)(void *)(run->acts->kind_data + layer->kind_bytes - left_bytes(d, layer));
    float *sums = (float *)(rows + d->opts.batch * groups * keys);
    return (tess__left){share->n_groups, (int)keys, share->bounds, rows + at,
                        sums + at * 2 * d->opts.head_dim};
}

void tess__partial_left(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                        const tess__key_subset *keys, const tess_selection *lists)
{
    const tess__left left = tess__left_of(d, run, sample, i);
    const tess_view k = rows_of(d, keys->k), v = rows_of(d, keys->v);
    const timer t = begin(d);
    tess__use_clusters(d, run->call, sample, run->layer->shares[i].head);
    tess__left_out(d->attn, lists, &k, &v, &left);
    end(d, run, t);
}

void tess__partial_join(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const tess__left left = tess__left_of(d, run, sample, i);
    const tess_view q = tess__share_q(layer, sample, share, run->acts->q, d->opts.head_dim);
    const tess_view o = tess__share_q(layer, sample, share, run->acts->o, d->opts.head_dim);
    const timer t = begin(d);
    tess__virtual_join(d->attn, &left, &q, &o,
                       run->acts->lse + sample * layer->q.packed_rows + share->q_place);
    end(d, run, t);
}

void tess__partial_virtual(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                           float *each, float *all)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int dim = d->opts.head_dim;
    const tess__left left = tess__left_of(d, run, sample, i);
    const tess_view q = tess__share_q(layer, sample, share, run->acts->q, dim);
    const tess_view o = tess__share_q(layer, sample, share, run->acts->o, dim);
    const tess_view dout = tess__share_q(layer, sample, share, run->dout, dim);
    const tess_view dq = tess__share_q(layer, sample, share, run->dq, dim);
    const tess_attn_saved saved = {
        .q = &q, .o = &o, .lse = run->acts->lse + sample * layer->q.packed_rows + share->q_place};
    const timer t = begin(d);
    tess__virtual_gradients(d->attn, &left, &saved, &dout, &dq, each, all);
    end(d, run, t);
}

void tess__partial_return(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                          const tess__key_subset *keys, const tess_selection *lists,
                          const float *each, const float *all, float *dk, float *dv)
{
    const tess_view k = rows_of(d, keys->k), to_k = rows_of(d, dk), to_v = rows_of(d, dv);
    const timer t = begin(d);
    tess__use_clusters(d, run->call, sample, run->layer->shares[i].head);
    tess__virtual_return(d->attn, lists, &k, tess__virtual_keys(d), each, all, &to_k, &to_v);
    end(d, run, t);
}

/* ---- selection ------------------------------------------------------------------------------- */

tess_status tess__partial_plan(const tess_dist_attn *d, const tess__dist_plan *in, int kv_floats,
                               tess__dist_layer *layer, tess__row_exchange *low,
                               tess__dist_need *need)
{
    const int64_t width = d->opts.proj_dim, batch = d->opts.batch, q = d->opts.head_dim + width;
    const int rank = d->rank, ranks = d->ranks;
    tess__need_move(d, layer, d->opts.head_dim, kv_floats, need);
    if (width == 0)
        return TESS_OK;
    tess_exchange_info info;
    TESS_TRY(tess_exchange_query(in->exchange, &info));
    TESS_TRY(tess__row_exchange_create(d, in, TESS_ROWS_LOW, info.packed_low, low));
    tess__raise_to(&need->low, batch * (layer->q.packed_rows + low->packed_rows) * width);
    tess__raise_to(&need->send,
                   batch * (tess__segment_list_rows(&layer->q.local, rank, ranks) * q +
                            tess__segment_list_rows(&layer->kv.local, rank, ranks) * kv_floats +
                            tess__segment_list_rows(&low->local, rank, ranks) * width));
    tess__raise_to(&need->recv,
                   batch * (tess__segment_list_rows(&layer->q.packed, rank, ranks) * q +
                            tess__segment_list_rows(&layer->kv.packed, rank, ranks) * kv_floats +
                            tess__segment_list_rows(&low->packed, rank, ranks) * width));
    return TESS_OK;
}

int tess__query_transfers(const tess_dist_attn *d, const tess__dist_run *run,
                          const tess__row_exchange *low, tess__transfer *transfers)
{
    const tess__row_exchange *q = &run->layer->q;
    const int width = d->opts.proj_dim;
    float *q_low = d->low.data,
          *k_low = q_low ? q_low + d->opts.batch * q->packed_rows * width : NULL;
    int n = 0;
    transfers[n++] = (tess__transfer){q, d->opts.head_dim, *run->q, run->acts->q, 0};
    if (run->call->q_low)
        transfers[n++] = (tess__transfer){q, width, *run->call->q_low, q_low, 0};
    if (run->call->k_low)
        transfers[n++] = (tess__transfer){low, width, *run->call->k_low, k_low, 0};
    return n;
}

void tess__select_all(tess_dist_attn *d, tess__dist_run *run, const tess__row_exchange *low)
{
    const tess__dist_layer *layer = run->layer;
    const tess_dist_call *call = run->call;
    const int64_t width = d->opts.proj_dim, tokens = d->opts.tokens;
    float *q_low = d->low.data;
    float *k_low = q_low ? q_low + d->opts.batch * layer->q.packed_rows * width : NULL;
    for (int sample = 0; sample < d->opts.batch; sample++) {
        int64_t head = -1; /* index among the heads with shares on this rank */
        for (int64_t i = 0; run->status == TESS_OK && i < layer->n_shares; i++) {
            const tess__dist_share *share = &layer->shares[i];
            head += !share->same_head;
            tess_view ql = {0}, kl = {0};
            if (call->q_low)
                ql = tess__share_q(layer, sample, share, q_low, (int)width);
            if (call->k_low)
                kl =
                    (tess_view){.data = k_low + (sample * low->packed_rows + head * tokens) * width,
                                .dtype = TESS_DTYPE_F32,
                                .stride_s = width};
            run->status = tess__share_select(d, run, sample, i, NULL, call->q_low ? &ql : NULL,
                                             call->k_low ? &kl : NULL, 1);
        }
    }
}
