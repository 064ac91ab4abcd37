/* SPDX-License-Identifier: Apache-2.0 */
/* dist_whole_keys.c - all keys of a head on its ranks: Ulysses, uneven heads, fractional heads.
 *
 * A rank has the query rows of its shares and, of each head that it has a share of, the keys of all
 * tokens in token order. With 4 heads on 3 ranks, head 0 cut in two:
 *
 *            queries                                   keys and values of all tokens
 *   rank 0   head 0, first half                        head 0
 *   rank 1   head 0, second half;  head 1              head 0;  head 1
 *   rank 2   head 2;  head 3                           head 2;  head 3
 *
 * Each share is one attention over all keys: its o and lse are final.
 *
 *   forward    q, k, v (and the projected q, k) in one all-to-all; attention; o back
 *   backward   dout in one all-to-all; gradients; dq, dk, dv back in one all-to-all
 *
 * Where several ranks have a head (here 0 and 1 have head 0), the owner ranks add their dk and dv.
 * With opts.exact every query block is a share, and the gradients of keys that blocks give are
 * added as integers (kernels/fixed.c), on the computing rank and on the owner rank: twice the bytes
 * of dk and dv, and an order of blocks and ranks that does not matter.
 *
 * Cost of a rank with Q query rows and K key rows (over heads) of width D, of which q and k are
 * local: forward receives (Q - q + 2 (K - k)) D floats and sends (Q - q) D of o, backward receives
 * (Q - q) D of dout and sends as many gradients as forward received. Memory: 2 (Q + K) D floats of
 * activations, as much for gradients, and the messages.
 */
#include "dist_attn_internal.h"

#include <math.h>
#include <string.h>

/* ---- planning -------------------------------------------------------------------------------- */

/* Packed keys are in token order, whatever their order in the plan: a segment is placed by its
 * tokens. Segments and shares ascend by head for each peer. */
static void place_segments(const tess_dist_attn *d, const tess__dist_layer *layer,
                           tess__segment *segments, int64_t n)
{
    const tess__dist_share *share = layer->shares;
    for (int64_t i = 0; i < n; i++) {
        tess__segment *segment = &segments[i];
        if (i > 0 && segment->peer != segment[-1].peer)
            share = layer->shares;
        while (share->head != segment->head)
            share++;
        segment->place = share->k_place + d->opts.bounds[segment->peer] + segment->row;
    }
}

static void place_keys(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    const tess__segment_list *local = &layer->kv.local;
    place_segments(d, layer, layer->kv.packed.segments, layer->kv.packed.n);
    /* Of the local rows only those that this rank computes with are in its packed buffer. */
    int64_t first = 0, last;
    while (first < local->n && local->segments[first].peer < d->rank)
        first++;
    for (last = first; last < local->n && local->segments[last].peer == d->rank;)
        last++;
    place_segments(d, layer, local->segments + first, last - first);
}

/* Floats of the sums of one gradient of the keys that this rank owns, with opts.exact. */
static int64_t local_sums(const tess_dist_attn *d)
{
    return d->opts.batch * d->opts.heads * d->local_rows * d->opts.head_dim * tess__sum_words(d);
}

static tess_status whole_plan(const tess_dist_attn *d, const tess__dist_plan *in,
                              tess__dist_layer *layer, tess__dist_need *need)
{
    tess_exchange_info info;
    TESS_TRY(tess_exchange_query(in->exchange, &info));
    TESS_TRY(tess__row_exchange_create(d, in, TESS_ROWS_KV, info.packed_k, &layer->kv));
    place_keys(d, layer);
    const int dim = d->opts.head_dim, low = d->opts.proj_dim;
    tess__need_move(d, layer, dim + low, 2 * dim * tess__sum_words(d) + low, need);
    tess__raise_to(&need->low,
                   d->opts.batch * (layer->q.packed_rows + layer->kv.packed_rows) * low);
    for (int64_t i = 0; d->opts.saves > 0 && i < layer->n_shares; i++)
        if (layer->shares[i].same_head)
            tess__raise_to(&need->scratch, 2 * d->opts.tokens * dim);
    if (d->opts.exact && d->opts.saves > 0)
        tess__raise_to(&need->scratch, 2 * d->opts.tokens * dim + 2 * local_sums(d));
    return TESS_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tess_status send_to_compute(tess_dist_attn *d, tess__dist_run *run, float *q_low,
                                   float *k_low)
{
    const tess__dist_layer *layer = run->layer;
    const int dim = d->opts.head_dim, low = d->opts.proj_dim;
    tess__transfer transfers[TESS__TRANSFERS_MAX] = {{&layer->q, dim, *run->q, run->acts->q, 0},
                                                     {&layer->kv, dim, *run->k, run->acts->k, 0},
                                                     {&layer->kv, dim, *run->v, run->acts->v, 0}};
    int n = 3;
    if (run->call->q_low)
        transfers[n++] = (tess__transfer){&layer->q, low, *run->call->q_low, q_low, 0};
    if (run->call->k_low)
        transfers[n++] = (tess__transfer){&layer->kv, low, *run->call->k_low, k_low, 0};
    return tess__rows_to_compute(d, &run->layer->stats, transfers, n);
}

static tess_status attend(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                          const tess_view *k)
{
    tess__dist_layer *layer = run->layer;
    const tess__activations *acts = run->acts;
    const tess__dist_share *share = &layer->shares[i];
    const int dim = d->opts.head_dim;
    const tess_view q = tess__share_q(layer, sample, share, acts->q, dim);
    const tess_view v = tess__share_k(layer, sample, share, acts->v, dim);
    const tess_view o = tess__share_q(layer, sample, share, acts->o, dim);
    const int dense = acts->dense[sample * layer->n_shares + i];
    tess__attn_resize(d->attn, share->q_rows, share->k_rows);
    tess__use_clusters(d, run->call, sample, share->head);
    const int64_t begin = tess_comm_clock(d->comm), cpu = tess__cpu_ns();
    const tess_status status =
        tess_attn_forward(d->attn, dense ? NULL : d->lists, &q, k, &v, &o,
                          acts->lse + sample * layer->q.packed_rows + share->q_place);
    layer->stats.attend_ns += tess_comm_clock(d->comm) - begin;
    layer->stats.cpu_ns += tess__cpu_ns() - cpu;
    return status;
}

static tess_status forward_share(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                                 float *q_low, float *k_low)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int low = d->opts.proj_dim;
    const tess_view k = tess__share_k(layer, sample, share, run->acts->k, d->opts.head_dim);
    const tess_view ql = tess__share_q(layer, sample, share, q_low, low);
    const tess_view kl = tess__share_k(layer, sample, share, k_low, low);
    TESS_TRY(tess__share_select(d, run, sample, i, &k, run->call->q_low ? &ql : NULL,
                                run->call->k_low ? &kl : NULL, run->call->save >= 0));
    return attend(d, run, sample, i, &k);
}

static tess_status whole_forward(tess_dist_attn *d, tess__dist_run *run)
{
    float *q_low = d->low.data;
    float *k_low = q_low + d->opts.batch * run->layer->q.packed_rows * d->opts.proj_dim;
    TESS_TRY(send_to_compute(d, run, q_low, k_low));
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t i = 0; run->status == TESS_OK && i < run->layer->n_shares; i++)
            run->status = forward_share(d, run, sample, i, q_low, k_low);
    return TESS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds the gradients of a head's keys from another share of the head. */
static void add(const tess_dist_attn *d, float *restrict to, const float *restrict from)
{
    const int64_t n = d->opts.tokens * d->opts.head_dim;
#pragma omp parallel for num_threads(d->ctx->threads)
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Adds the gradients of a block of queries to the sums of its head's keys. Elements that are too
 * large for these, or NaN, make the queries' gradient NaN. */
static void add_fixed(const tess_dist_attn *d, const tess_view *dk, const tess_view *dv,
                      const tess_view *dq)
{
    const int64_t n = d->opts.tokens, dim = d->opts.head_dim;
    const float *const from[2] = {d->scratch.data, (float *)d->scratch.data + n * dim};
    int64_t *const to[2] = {dk->data, dv->data};
    int beyond = 0;
#pragma omp parallel for num_threads(d->ctx->threads) reduction(| : beyond)
    for (int64_t i = 0; i < 2 * n; i++)
        beyond |= d->ctx->kernels->fixed_add(to[i / n] + i % n * dim, from[i / n] + i % n * dim,
                                             1.0f, dim);
    if (beyond)
        *(float *)dq->data = NAN;
}

static tess_status backward_share(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i)
{
    tess__dist_layer *layer = run->layer;
    const tess__activations *acts = run->acts;
    const tess__dist_share *share = &layer->shares[i];
    const int dim = d->opts.head_dim;
    const tess_view q = tess__share_q(layer, sample, share, acts->q, dim);
    const tess_view k = tess__share_k(layer, sample, share, acts->k, dim);
    const tess_view v = tess__share_k(layer, sample, share, acts->v, dim);
    const tess_view o = tess__share_q(layer, sample, share, acts->o, dim);
    const tess_attn_saved saved = {&q, &k, &v, &o,
                                   acts->lse + sample * layer->q.packed_rows + share->q_place};
    const tess_view dout = tess__share_q(layer, sample, share, run->dout, dim);
    const tess_view dq = tess__share_q(layer, sample, share, run->dq, dim);
    const int width = dim * tess__sum_words(d);
    const tess_view dk = tess__share_k(layer, sample, share, run->dk, width);
    const tess_view dv = tess__share_k(layer, sample, share, run->dv, width);
    tess_view dk_part = dk, dv_part = dv;
    if (share->same_head || d->opts.exact) {
        dk_part.stride_s = dv_part.stride_s = dim;
        dk_part.data = d->scratch.data;
        dv_part.data = (float *)d->scratch.data + d->opts.tokens * dim;
    }
    const tess_selection *lists;
    TESS_TRY(tess__share_decode(d, run, sample, i, &lists));
    tess__attn_resize(d->attn, share->q_rows, share->k_rows);
    tess__use_clusters(d, run->call, sample, share->head);
    const int64_t begin = tess_comm_clock(d->comm), cpu = tess__cpu_ns();
    const tess_status status =
        tess_attn_backward(d->attn, lists, &saved, &dout, NULL, &dq, &dk_part, &dv_part);
    if (status == TESS_OK && d->opts.exact) {
        add_fixed(d, &dk, &dv, &dq);
    } else if (status == TESS_OK && share->same_head) {
        add(d, dk.data, dk_part.data);
        add(d, dv.data, dv_part.data);
    }
    layer->stats.attend_ns += tess_comm_clock(d->comm) - begin;
    layer->stats.cpu_ns += tess__cpu_ns() - cpu;
    return status;
}

/* Sums of the local keys, from those of the computing ranks; as views of pairs of floats. */
static tess_view sums_view(const tess_dist_attn *d, int which)
{
    const int64_t width = (int64_t)d->opts.head_dim * tess__sum_words(d);
    float *sums = (float *)d->scratch.data + 2 * d->opts.tokens * d->opts.head_dim;
    return (tess_view){sums + which * local_sums(d), TESS_DTYPE_F32,
                       d->opts.heads * d->local_rows * width, d->local_rows * width, width};
}

static void read_sums(const tess_dist_attn *d, int which, const tess_view *to)
{
    const tess_view from = sums_view(d, which);
    const int64_t heads = d->opts.heads, rows = d->opts.batch * heads * d->local_rows;
#pragma omp parallel for num_threads(d->ctx->threads)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t head = i / d->local_rows, row = i % d->local_rows;
        d->ctx->kernels->fixed_read(
            tess__view_row(to, head / heads, head % heads, row),
            (const int64_t *)(const void *)tess__view_row(&from, head / heads, head % heads, row),
            d->opts.head_dim);
    }
}

static tess_status whole_backward(tess_dist_attn *d, tess__dist_run *run)
{
    tess__dist_layer *layer = run->layer;
    const int exact = d->opts.exact, dim = d->opts.head_dim, width = dim * tess__sum_words(d);
    const int64_t keys = d->opts.batch * layer->kv.packed_rows * width;
    if (exact) /* dv follows dk */
        memset(run->dk, 0, 2 * (size_t)keys * sizeof *run->dk);
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t i = 0; run->status == TESS_OK && i < layer->n_shares; i++)
            run->status = backward_share(d, run, sample, i);
    TESS_TRY(tess__run_agree(d, run));
    tess__to_tokens(d, run, dim, run->dq);
    const tess_view sums[2] = {sums_view(d, 0), sums_view(d, 1)};
    const tess__transfer transfers[] = {
        {&layer->q, dim, *run->local_dq, run->dq, 0},
        {&layer->kv, width, exact ? sums[0] : *run->local_dk, run->dk, exact},
        {&layer->kv, width, exact ? sums[1] : *run->local_dv, run->dv, exact}};
    TESS_TRY(tess__rows_to_owners(d, &layer->stats, transfers, 3));
    for (int i = 0; exact && i < 2; i++)
        read_sums(d, i, i ? run->local_dv : run->local_dk);
    return TESS_OK;
}

const tess__dist_kind tess__dist_whole_keys = {"whole keys", whole_plan, whole_forward,
                                               whole_backward};
