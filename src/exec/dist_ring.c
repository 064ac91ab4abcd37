/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring.c - ring attention: U x R, the ranks of each head group are a ring of R.
 *
 * A rank has the query rows of its shares, and starts with one key part of all heads of its group.
 * At step t position s of the ring has key part (s - t) mod R. For 4 positions:
 *
 *   step   position 0   1   2   3     During a step the key part is sent to the next position while
 *   0             k0   k1  k2  k3     the rank computes attention over it; the result is merged
 *   1             k3   k0  k1  k2     with those of the previous steps, by lse. A key part that no
 *   2             k2   k3  k0  k1     later position needs is not sent on.
 *   3             k1   k2  k3  k0
 *
 * Which positions need which key parts is known when keys are selected: every position then sends
 * the others of its ring a bit per part. Dense layers need all parts everywhere.
 *
 * Cost of a rank, with n heads in its group, B samples and P rows of a key part: 2 n B P D floats
 * per hop, overlapped with attention. Memory: two key parts in flight, o and lse of one share.
 */
#include "dist_ring.h"

#include <math.h>
#include <string.h>

tess__key_subset tess__ring_rows(const tess_dist_attn *d, const tess__ring_exec *x, int p,
                                 float *kv, int sample, int64_t i)
{
    const tess__ring_part *part = &x->parts[p];
    float *k = kv + ((int64_t)sample * x->n_heads + i) * part->rows * d->opts.head_dim;
    return (tess__key_subset){k, k + tess__ring_floats(d, x, p), part->rows, part->n_units,
                              part->bounds};
}

/* ---- needed key parts ------------------------------------------------------------------------ */

static int has_lists(const tess__dist_run *run, int sample, int64_t i)
{
    return !run->acts->dense[sample * run->layer->n_shares + i];
}

int tess__ring_needs(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_part *p,
                     int sample, int64_t i)
{
    if (p->rows == 0)
        return 0;
    if (!has_lists(run, sample, i))
        return 1;
    const tess__bit_lists lists = tess__partial_bits(d, run, sample, &run->layer->shares[i]);
    return tess__lists_meet(&lists, p->runs, p->n_runs);
}

static int rank_needs(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_part *p)
{
    for (int sample = 0; run->status == TESS_OK && sample < d->opts.batch; sample++)
        for (int64_t i = 0; i < run->layer->n_shares; i++)
            if (tess__ring_needs(d, run, p, sample, i))
                return 1;
    return 0;
}

/* Fills needs (steps, steps): position s needs key part p. Collective in the ring where keys were
 * selected. */
static tess_status exchange_needs(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  uint8_t *needs)
{
    const int steps = x->steps, bytes = (steps + 7) / 8;
    if (!run->call->choose) {
        memset(needs, 1, (size_t)steps * (size_t)steps);
        return TESS_OK;
    }
    const int64_t begin = tess_comm_clock(d->comm);
    uint8_t *const out = x->message, *const in = out + (size_t)steps * (size_t)bytes;
    memset(out, 0, (size_t)bytes);
    for (int p = 0; p < steps; p++)
        out[p / 8] |= (uint8_t)(rank_needs(d, run, &x->parts[p]) << p % 8);
    for (int s = 1; s < steps; s++)
        memcpy(out + s * bytes, out, (size_t)bytes);
    memset(d->send_bytes, 0, (size_t)d->ranks * sizeof *d->send_bytes);
    for (int s = 0; s < steps; s++)
        d->send_bytes[x->ranks[s]] = bytes;
    TESS_TRY(
        tess_comm_alltoallv(d->comm, TESS_TRAFFIC_INDEX, out, d->send_bytes, in, d->send_bytes));
    /* Messages are in rank order, and positions ascend with ranks. */
    for (int s = 0; s < steps; s++)
        for (int p = 0; p < steps; p++)
            needs[s * steps + p] = in[s * bytes + p / 8] >> p % 8 & 1;
    run->layer->stats.index_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

void tess__ring_spans(const tess__ring_exec *x, const uint8_t *needs)
{
    const int steps = x->steps;
    for (int p = 0; p < steps; p++) {
        int first = 0, last = steps - 1;
        while (last > 0 && !needs[(p + last) % steps * steps + p])
            last--;
        while (first < last && !needs[(p + first) % steps * steps + p])
            first++;
        x->first[p] = first;
        x->last[p] = last;
    }
}

/* ---- circulation ----------------------------------------------------------------------------- */

tess_status tess__ring_start(tess_dist_attn *d, tess__dist_run *run, const float *send,
                             int64_t bytes, int to, float *recv, int64_t recv_bytes, int from,
                             tess_request **request)
{
    to = bytes > 0 ? to : -1;
    from = recv_bytes > 0 ? from : -1;
    *request = NULL;
    if (to < 0 && from < 0)
        return TESS_OK;
    const int64_t begin = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_start_sendrecv(d->comm, TESS_TRAFFIC_PAYLOAD, send, to < 0 ? 0 : bytes, to,
                                      recv, from < 0 ? 0 : recv_bytes, from, request));
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

tess_status tess__ring_finish(tess_dist_attn *d, tess__dist_run *run, tess_request **request)
{
    tess_request *const open = *request;
    const int64_t begin = tess_comm_clock(d->comm);
    *request = NULL;
    const tess_status status = tess_comm_wait(d->comm, open);
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return status;
}

/* In acts, or in two buffers alternately. */
float *tess__ring_keys(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int step)
{
    return step == 0 ? run->acts->k : (float *)d->scratch.data + (step - 1) % 2 * 2 * x->max_floats;
}

tess_status tess__ring_hop(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                           int step, tess_request **request)
{
    const int p = tess__ring_at(x, step), q = tess__ring_at(x, step + 1);
    return tess__ring_start(d, run, tess__ring_keys(d, run, x, step), tess__ring_bytes(d, x, p),
                            x->last[p] > step ? x->next : -1, tess__ring_keys(d, run, x, step + 1),
                            tess__ring_bytes(d, x, q),
                            step + 1 < x->steps && x->last[q] > step ? x->previous : -1, request);
}

const tess_selection *tess__ring_lists(tess_dist_attn *d, const tess__dist_run *run,
                                       const tess__ring_part *p, const tess__key_subset *keys,
                                       int sample, int64_t i)
{
    if (!has_lists(run, sample, i))
        return NULL;
    const tess__dist_share *share = &run->layer->shares[i];
    const tess__bit_lists lists = tess__partial_bits(d, run, sample, share);
    tess_selection *sel = tess__partial_lists(d, share, keys);
    tess__lists_in_runs(&lists, p->runs, p->n_runs, sel->offsets, sel->indices);
    tess__selection_changed(sel);
    return sel;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Attention over the key part at hand, merged with the result of the previous parts. */
static tess_status forward_share(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 int step, int sample, int64_t i)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int p = tess__ring_at(x, step), dim = d->opts.head_dim;
    const int works = tess__ring_needs(d, run, &x->parts[p], sample, i);
    const int virtual = tess__has_virtual(d, run, sample, i);
    if (!works && !virtual)
        return TESS_OK;
    const tess__key_subset keys =
        tess__ring_rows(d, x, p, tess__ring_keys(d, run, x, step), sample, i);
    const tess_selection *lists = tess__ring_lists(d, run, &x->parts[p], &keys, sample, i);
    if (virtual)
        tess__partial_left(d, run, sample, i, &keys, lists);
    if (!works)
        return TESS_OK;
    const int64_t row = sample * layer->q.packed_rows + share->q_place;
    float *const o = run->acts->o + row * dim, *const lse = run->acts->lse + row;
    uint8_t *started = &x->started[sample * layer->n_shares + i];
    if (!*started) {
        *started = 1;
        return tess__partial_forward(d, run, sample, i, &keys, lists, o, lse);
    }
    float *const o_part = (float *)d->scratch.data + 4 * x->max_floats,
                 *lse_part = o_part + x->q_floats;
    TESS_TRY(tess__partial_forward(d, run, sample, i, &keys, lists, o_part, lse_part));
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = dim, .tokens_q = share->q_rows};
    const tess_view from = {.data = o_part, .dtype = TESS_DTYPE_F32, .stride_s = dim};
    const tess_view to = {.data = o, .dtype = TESS_DTYPE_F32, .stride_s = dim};
    tess__merge(d->ctx->threads, &shape, &from, lse_part, &to, lse);
    return TESS_OK;
}

/* Shares that need no key part: o = 0, lse = -inf. */
static void finish_shares(const tess_dist_attn *d, const tess__dist_run *run,
                          const tess__ring_exec *x)
{
    const tess__dist_layer *layer = run->layer;
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t i = 0; i < layer->n_shares; i++) {
            const tess__dist_share *share = &layer->shares[i];
            const int64_t row = sample * layer->q.packed_rows + share->q_place;
            if (x->started[sample * layer->n_shares + i])
                continue;
            memset(run->acts->o + row * d->opts.head_dim, 0,
                   (size_t)(share->q_rows * d->opts.head_dim) * sizeof(float));
            for (int64_t r = 0; r < share->q_rows; r++)
                run->acts->lse[row + r] = -INFINITY;
        }
}

static tess_status ring_forward(tess_dist_attn *d, tess__dist_run *run)
{
    tess__dist_layer *layer = run->layer;
    const tess__ring_exec *x = layer->kind_state;
    uint8_t *const needs = run->acts->kind_data;
    const int dim = d->opts.head_dim;
    tess__transfer transfers[TESS__TRANSFERS_MAX];
    int n = tess__query_transfers(d, run, &x->low, transfers);
    transfers[n++] = (tess__transfer){&layer->kv, dim, *run->k, run->acts->k, 0};
    transfers[n++] = (tess__transfer){&layer->kv, dim, *run->v, run->acts->v, 0};
    TESS_TRY(tess__rows_to_compute(d, &layer->stats, transfers, n));
    tess__select_all(d, run, &x->low);
    TESS_TRY(exchange_needs(d, run, x, needs));
    tess__ring_spans(x, needs);
    if (d->opts.compensate && run->call->choose)
        TESS_TRY(tess__ring_fetch_sums(d, run, x, needs));
    memset(x->started, 0, (size_t)d->opts.batch * (size_t)layer->n_shares);
    for (int step = 0; step < x->steps; step++) {
        tess_request *hop;
        TESS_TRY(tess__ring_hop(d, run, x, step, &hop));
        for (int64_t item = 0; item < d->opts.batch * layer->n_shares; item++) {
            if (run->status == TESS_OK && needs[x->position * x->steps + tess__ring_at(x, step)])
                run->status = forward_share(d, run, x, step, (int)(item / layer->n_shares),
                                            item % layer->n_shares);
            TESS_TRY(tess_comm_progress(d->comm));
        }
        TESS_TRY(tess__ring_finish(d, run, &hop));
    }
    finish_shares(d, run, x);
    for (int64_t item = 0; run->status == TESS_OK && item < d->opts.batch * layer->n_shares; item++)
        if (tess__has_virtual(d, run, (int)(item / layer->n_shares), item % layer->n_shares))
            tess__partial_join(d, run, (int)(item / layer->n_shares), item % layer->n_shares);
    return TESS_OK;
}

const tess__dist_kind tess__dist_ring = {"ring", tess__ring_plan, ring_forward,
                                         tess__ring_backward};
