/* SPDX-License-Identifier: Apache-2.0 */
/* dist_lists.c - key lists of one share of one sample: selected, encoded as a bitmask, decoded.
 *
 * The lists of one share at a time are in memory, in a selection that is reshaped for each. A list
 * of K of n units takes 32 K bits as indices and n bits as a bitmask, whatever was selected, so the
 * memory for bitmasks is known when the plan is.
 */
#include "dist_attn_internal.h"

#include <string.h>

static void reshape_lists(tess_dist_attn *d, const tess__dist_share *share)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = share->q_rows,
                                  .tokens_k = d->opts.tokens,
                                  .bounds_q = share->bounds,
                                  .n_q = share->n_groups,
                                  .bounds_k = d->opts.units,
                                  .n_k = d->opts.n_units,
                                  .unit = 1};
    tess__selection_reshape(d->lists, &shape);
}

static uint8_t *bits_of(const tess__dist_run *run, int sample, const tess__dist_share *share)
{
    return run->acts->bits + (size_t)sample * run->layer->bits + share->bits;
}

static tess_status call_selector(tess_dist_attn *d, tess__dist_run *run, int sample,
                                 const tess__dist_share *share, const tess_view *k,
                                 const tess_view *q_low, const tess_view *k_low, int *dense)
{
    const tess_view q = tess__share_q(run->layer, sample, share, run->acts->q, d->opts.head_dim);
    const tess_share_in in = {.layer = run->call->layer,
                              .sample = sample,
                              .head = share->head,
                              .n_groups = share->n_groups,
                              .groups = share->groups,
                              .q = &q,
                              .k = k,
                              .q_low = q_low,
                              .k_low = k_low,
                              .rows = tess__rows_of(d, run, sample, share)};
    reshape_lists(d, share);
    tess__rows_begin(share, in.rows);
    const int64_t begin = tess_comm_clock(d->comm);
    const tess_status status = run->call->choose(run->call->user, &in, d->lists, dense);
    run->layer->stats.select_ns += tess_comm_clock(d->comm) - begin;
    return status;
}

tess_status tess__share_select(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                               const tess_view *k, const tess_view *q_low, const tess_view *k_low,
                               int encode)
{
    const tess__dist_share *share = &run->layer->shares[i];
    double *pairs = &d->pairs[(int64_t)sample * d->opts.heads + share->head];
    int dense = !run->call->choose;
    if (!dense)
        TESS_TRY(call_selector(d, run, sample, share, k, q_low, k_low, &dense));
    run->acts->dense[sample * run->layer->n_shares + i] = dense != 0;
    const tess_union_counts *unions = run->call->unions;
    if (unions && unions->active && run->call->choose)
        tess__count_unions(d, unions, run->call->layer, share, dense ? NULL : d->lists);
    if (dense) {
        *pairs += (double)share->q_rows * (double)d->opts.tokens;
        return TESS_OK;
    }
    tess_selection_lists lists;
    TESS_TRY(tess_selection_view(d->lists, &lists));
    *pairs += (double)lists.pairs;
    TESS_TRY(tess__rows_group(d, run, sample, share));
    if (encode)
        tess__selection_encode(d->lists, NULL, bits_of(run, sample, share));
    return TESS_OK;
}

tess_status tess__share_decode(tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i,
                               const tess_selection **lists)
{
    const tess__dist_share *share = &run->layer->shares[i];
    const int64_t begin = tess_comm_clock(d->comm);
    *lists = NULL;
    if (run->acts->dense[sample * run->layer->n_shares + i])
        return TESS_OK;
    reshape_lists(d, share);
    TESS_TRY(tess_selection_set_mask(d->lists, bits_of(run, sample, share), TESS_MASK_BITS));
    *lists = d->lists;
    run->layer->stats.select_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}
