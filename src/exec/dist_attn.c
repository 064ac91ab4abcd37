/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn.c - attention over many ranks: the steps common to all kinds of layers.
 *
 *   forward    rows to the computing ranks, keys selected, attention: the kind of the layer
 *              all ranks agree that they succeeded, and all-reduce the pairs of each head
 *              o to the owner ranks, and lse if requested
 *   backward   dout to the computing ranks; gradients, and those to the owner ranks: the kind
 *
 * The agreement is an all-reduce of batch x heads + 1 numbers for a call with lists, a status for
 * one without: control traffic, not payload.
 */
#include "dist_attn_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls: checks --------------------------------------------------------------------------- */

static tess_status check_view(const char *who, const char *name, const tess_view *view,
                              int64_t rows, int width)
{
    TESS_TRY(tess__view_check(who, name, view, TESS_DTYPE_F32, TESS_DTYPE_F32, rows));
    if (rows > 1 && llabs((long long)view->stride_s) < width)
        return tess__invalid(who, "%s has token stride %lld, its rows of %d overlap", name,
                             (long long)view->stride_s, width);
    return TESS_OK;
}

static tess_status check_call(const char *who, const tess_dist_attn *d, const tess_dist_call *call)
{
    if (!d || !call)
        return tess__invalid(who, "%s is NULL", d ? "call" : "dist_attn");
    if (!d->layers)
        return tess__invalid(who, "no plan (tess_dist_attn_plan comes first)");
    TESS_TRY(tess__check_range(who, "layer", call->layer, 0, d->n_layers - 1));
    TESS_TRY(tess__check_range(who, "save", call->save, -1, d->opts.saves - 1));
    return TESS_OK;
}

/* Clusters of keys are given with lists. */
static tess_status check_centroids(const char *who, const tess_dist_attn *d,
                                   const tess_dist_call *call)
{
    if (d->opts.compensate > 1 && !call->centroids)
        return tess__invalid(who, "centroids is NULL, must be given: compensate is %d",
                             d->opts.compensate);
    return TESS_OK;
}

static tess_status check_forward(const tess_dist_attn *d, const tess_dist_call *call,
                                 const tess_view *q, const tess_view *k, const tess_view *v,
                                 const tess_view *o)
{
    static const char who[] = "tess_dist_attn_forward";
    TESS_TRY(check_call(who, d, call));
    if (call->choose && !d->opts.groups)
        return tess__invalid(who, "choose is given, but n_groups is 0");
    if (call->choose)
        TESS_TRY(check_centroids(who, d, call));
    if ((call->q_low || call->k_low) && d->opts.proj_dim == 0)
        return tess__invalid(who, "%s is given, but proj_dim is 0",
                             call->q_low ? "q_low" : "k_low");
    const int dim = d->opts.head_dim;
    TESS_TRY(check_view(who, "q", q, d->local_rows, dim));
    TESS_TRY(check_view(who, "k", k, d->local_rows, dim));
    TESS_TRY(check_view(who, "v", v, d->local_rows, dim));
    if (call->q_low)
        TESS_TRY(check_view(who, "q_low", call->q_low, d->local_rows, d->opts.proj_dim));
    if (call->k_low)
        TESS_TRY(check_view(who, "k_low", call->k_low, d->local_rows, d->opts.proj_dim));
    return check_view(who, "o", o, d->local_rows, dim);
}

static tess_status check_backward(const tess_dist_attn *d, const tess_dist_call *call,
                                  const tess_view *dout, const tess_view *dq, const tess_view *dk,
                                  const tess_view *dv)
{
    static const char who[] = "tess_dist_attn_backward";
    TESS_TRY(check_call(who, d, call));
    if (call->save < 0)
        return tess__invalid(who, "save is -1, must be the set of a forward call");
    if (d->activations[call->save].layer != call->layer)
        return tess__invalid(who, "set %d has no forward call of layer %d", call->save,
                             call->layer);
    for (int64_t i = 0; i < d->opts.batch * d->layers[call->layer].n_shares; i++)
        if (!d->activations[call->save].dense[i])
            TESS_TRY(check_centroids(who, d, call));
    const int dim = d->opts.head_dim;
    TESS_TRY(check_view(who, "dout", dout, d->local_rows, dim));
    TESS_TRY(check_view(who, "dq", dq, d->local_rows, dim));
    TESS_TRY(check_view(who, "dk", dk, d->local_rows, dim));
    return check_view(who, "dv", dv, d->local_rows, dim);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Adds the bytes that this rank has sent since the counts were `before`. */
static tess_status count_bytes(tess_dist_attn *d, const tess_comm_counts *before,
                               tess_dist_stats *stats)
{
    tess_comm_counts now;
    TESS_TRY(tess_comm_counts_read(d->comm, &now));
    for (int i = 0; i < TESS_TRAFFIC_COUNT; i++)
        stats->bytes[i] += now.bytes[i] - before->bytes[i];
    return TESS_OK;
}

tess_status tess__run_agree(tess_dist_attn *d, const tess__dist_run *run)
{
    const int64_t begin = tess_comm_clock(d->comm);
    const tess_status status = tess_comm_agree(d->comm, run->status);
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return status;
}

/* All-reduce of the pairs, and of the number of ranks that failed. */
static tess_status sum_pairs(tess_dist_attn *d, const tess__dist_run *run, int64_t heads)
{
    const int64_t begin = tess_comm_clock(d->comm);
    d->pairs[heads] = run->status != TESS_OK;
    TESS_TRY(tess_comm_allreduce(d->comm, TESS_TRAFFIC_CONTROL, d->pairs, heads + 1, TESS_DTYPE_F64,
                                 TESS_REDUCE_SUM));
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

/* Densities of all heads from the pairs of all ranks, or the failure of any rank. */
static tess_status agree_pairs(tess_dist_attn *d, const tess__dist_run *run)
{
    const int64_t heads = (int64_t)d->opts.batch * d->opts.heads;
    if (run->call->choose)
        TESS_TRY(sum_pairs(d, run, heads));
    if (!run->call->choose || d->pairs[heads] > 0.0)
        TESS_TRY(tess__run_agree(d, run));
    const double all = (double)d->opts.tokens * (double)d->opts.tokens;
    for (int64_t i = 0; i < heads; i++)
        run->layer->density[i] = run->call->choose ? d->pairs[i] / all : 1.0;
    return TESS_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tess_status return_to_owners(tess_dist_attn *d, const tess__dist_run *run,
                                    const tess_view *o, float *lse)
{
    tess__dist_layer *layer = run->layer;
    const tess_view rows = {lse, TESS_DTYPE_F32, d->opts.heads * d->local_rows, d->local_rows, 1};
    const tess__transfer transfers[] = {{&layer->q, d->opts.head_dim, *o, run->acts->o, 0},
                                        {&layer->q, 1, rows, run->acts->lse, 0}};
    if (lse)
        layer->stats.lse_bytes = d->opts.batch *
                                 tess__segment_list_rows(&layer->q.packed, d->rank, d->ranks) *
                                 (int64_t)sizeof *lse;
    return tess__rows_to_owners(d, &layer->stats, transfers, lse ? 2 : 1);
}

tess_status tess_dist_attn_forward(tess_dist_attn *d, const tess_dist_call *call,
                                   const tess_view *q, const tess_view *k, const tess_view *v,
                                   const tess_view *o, float *lse)
{
    TESS_TRY(check_forward(d, call, q, k, v, o));
    tess__dist_layer *layer = &d->layers[call->layer];
    const int last = d->opts.saves > 0 ? d->opts.saves - 1 : 0;
    tess__dist_run run = {.call = call,
                          .layer = layer,
                          .acts = &d->activations[call->save < 0 ? last : call->save],
                          .q = q,
                          .k = k,
                          .v = v};
    tess_comm_counts before;
    TESS_TRY(tess_comm_counts_read(d->comm, &before));
    layer->stats = (tess_dist_stats){.density = layer->density};
    memset(d->pairs, 0, (size_t)d->opts.batch * (size_t)d->opts.heads * sizeof *d->pairs);
    tess__activation_layout(d, layer, run.acts);
    TESS_TRY(layer->kind->forward(d, &run));
    TESS_TRY(agree_pairs(d, &run));
    tess__to_tokens(d, &run, d->opts.head_dim, run.acts->o);
    tess__to_tokens(d, &run, 1, run.acts->lse);
    TESS_TRY(return_to_owners(d, &run, o, lse));
    if (call->save >= 0) {
        tess__to_groups(d, &run, d->opts.head_dim, run.acts->o);
        tess__to_groups(d, &run, 1, run.acts->lse);
        run.acts->layer = call->layer;
    }
    return count_bytes(d, &before, &layer->stats);
}

/* ---- backward -------------------------------------------------------------------------------- */

tess_status tess_dist_attn_backward(tess_dist_attn *d, const tess_dist_call *call,
                                    const tess_view *dout, const tess_view *dq, const tess_view *dk,
                                    const tess_view *dv)
{
    TESS_TRY(check_backward(d, call, dout, dq, dk, dv));
    tess__dist_layer *layer = &d->layers[call->layer];
    const int64_t q = d->opts.batch * layer->q.packed_rows * d->opts.head_dim;
    const int64_t k = d->opts.batch * layer->kv.packed_rows * d->opts.head_dim * tess__sum_words(d);
    float *at = d->gradients.data;
    tess__dist_run run = {.call = call,
                          .layer = layer,
                          .acts = &d->activations[call->save],
                          .dout = at,
                          .dq = at + q,
                          .dk = at + 2 * q,
                          .dv = at + 2 * q + k,
                          .local_dq = dq,
                          .local_dk = dk,
                          .local_dv = dv};
    tess_comm_counts before;
    TESS_TRY(tess_comm_counts_read(d->comm, &before));
    const tess__transfer transfers = {&layer->q, d->opts.head_dim, *dout, run.dout, 0};
    layer->stats.backward = 1;
    TESS_TRY(tess__rows_to_compute(d, &layer->stats, &transfers, 1));
    tess__to_groups(d, &run, d->opts.head_dim, run.dout);
    TESS_TRY(layer->kind->backward(d, &run));
    return count_bytes(d, &before, &layer->stats);
}
