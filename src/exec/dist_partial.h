/* SPDX-License-Identifier: Apache-2.0 */
/* dist_partial.h - attention of one share against some of the keys: what rings and selective layers
 * have in common. */
#ifndef TESS_DIST_PARTIAL_H
#define TESS_DIST_PARTIAL_H

#include "attn/virtual_part.h"
#include "dist_attn_internal.h"
#include "unit_set.h"

/* Keys of one sample and head that are here, and the units they come in. */
typedef struct {
    float *k, *v; /* (rows, head_dim) */
    int64_t rows;
    int32_t n_units;
    const int64_t *bounds; /* (n_units + 1); NULL: single rows */
} tess__key_subset;

/* The first row of a key unit; n_units gives the tokens. */
static inline int64_t tess__unit_row(const tess_dist_attn *d, int64_t unit)
{
    return d->opts.units ? d->opts.units[unit] : unit;
}

/* The lists of a share that is not dense, as they are kept in the set. */
tess__bit_lists tess__partial_bits(const tess_dist_attn *d, const tess__dist_run *run, int sample,
                                   const tess__dist_share *share);

/* d->lists for the share's groups and these keys, empty: lists that were chosen are bits by then.
 */
tess_selection *tess__partial_lists(tess_dist_attn *d, const tess__dist_share *share,
                                    const tess__key_subset *keys);

/* o (q_rows, head_dim), lse (q_rows) of share i of a sample; lists NULL: all of the keys. */
tess_status tess__partial_forward(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                                  const tess__key_subset *keys, const tess_selection *lists,
                                  float *o, float *lse);

/* Gradients through these keys alone: dq (q_rows, head_dim), dk and dv (rows, head_dim). */
tess_status tess__partial_backward(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                                   const tess__key_subset *keys, const tess_selection *lists,
                                   float *dq, float *dk, float *dv);

/* ---- virtual keys: what lists leave out, kept at the end of acts->kind_data ------------------ */

/* Groups of all shares. */
int64_t tess__layer_groups(const tess_dist_attn *d, const tess__dist_layer *layer);

/* Adds what sets keep of virtual keys to layer->kind_bytes, which is then complete. */
void tess__left_plan(const tess_dist_attn *d, tess__dist_layer *layer);

/* Nothing is left out. */
void tess__left_clear(const tess_dist_attn *d, const tess__dist_run *run);

/* 1: share i of a sample has virtual keys; what its lists leave out so far. */
int tess__has_virtual(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i);
tess__left tess__left_of(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i);

/* What a share's lists leave out of some keys is counted; its o and lse in the set see its virtual
 * keys; their gradients go to run->dq, to each (groups, 2, head_dim) and to all (2, head_dim); dk
 * and dv of some keys get theirs. */
void tess__partial_left(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                        const tess__key_subset *keys, const tess_selection *lists);
void tess__partial_join(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i);
void tess__partial_virtual(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                           float *each, float *all);
void tess__partial_return(tess_dist_attn *d, tess__dist_run *run, const tess_selection *lists,
                          const float *each, const float *all, float *dk, float *dv);

/* Adds n floats to others. */
void tess__add_floats(const tess_dist_attn *d, float *restrict to, const float *restrict from,
                      int64_t n);

/* Makes the exchange of the low-rank keys, and raises the need to what moving q, the low-rank
 * vectors and kv_floats of each row of the keys' exchange takes, and gradients on the way back. */
tess_status tess__partial_plan(const tess_dist_attn *d, const tess__dist_plan *in, int kv_floats,
                               tess__dist_layer *layer, tess__row_exchange *low,
                               tess__dist_need *need);

/* Lets the caller choose the keys of every share, and keeps their lists as bits; a failure is the
 * rank's own. The low-rank vectors lie in d->low. */
void tess__select_all(tess_dist_attn *d, tess__dist_run *run, const tess__row_exchange *low);

/* The tensors that all such layers exchange_rows first: q, and the low-rank vectors of the call. */
int tess__query_transfers(const tess_dist_attn *d, const tess__dist_run *run,
                          const tess__row_exchange *low, tess__transfer *transfers);

#endif
