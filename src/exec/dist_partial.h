/* SPDX-License-Identifier: Apache-2.0 */
/* dist_partial.h - partial attention: one share over some of the keys, for rings and selective
 * layers. */
#ifndef TESS_DIST_PARTIAL_H
#define TESS_DIST_PARTIAL_H

#include "attn/virtual_part.h"
#include "dist_attn_internal.h"
#include "unit_set.h"

/* Keys of one sample and head that this rank has, and their units. */
typedef struct {
    float *k, *v; /* (rows, head_dim) */
    int64_t rows;
    int32_t n_units;
    const int64_t *bounds; /* (n_units + 1); NULL: single rows */
} tess__key_subset;

/* First row of a key unit; tokens for n_units. */
static inline int64_t tess__unit_row(const tess_dist_attn *d, int64_t unit)
{
    return d->opts.units ? d->opts.units[unit] : unit;
}

/* The stored lists of a share that is not dense. */
tess__bit_lists tess__partial_bits(const tess_dist_attn *d, const tess__dist_run *run, int sample,
                                   const tess__dist_share *share);

/* d->lists for the share's groups and these keys, empty: selected lists are stored as bitmasks. */
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

/* ---- virtual keys: omitted rows, at the end of acts->kind_data ------------------------------- */

/* Groups of all shares. */
int64_t tess__layer_groups(const tess_dist_attn *d, const tess__dist_layer *layer);

/* Adds the bytes of omitted rows to layer->kind_bytes, which is then complete. */
void tess__left_plan(const tess_dist_attn *d, tess__dist_layer *layer);

/* Sets the omitted rows of all groups to none. */
void tess__left_clear(const tess_dist_attn *d, const tess__dist_run *run);

/* Whether share i of a sample has virtual keys; its rows that the lists omit, so far. */
int tess__has_virtual(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i);
tess__left tess__left_of(const tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i);

/* Virtual keys of a share: partial_left adds the rows of some keys that its lists omit;
 * partial_join merges the virtual keys into acts->o and acts->lse; partial_virtual computes their
 * gradients: run->dq, each (groups, virtual keys, 2, head_dim) and all (virtual keys, 2,
 * head_dim); partial_return adds those to dk and dv of the omitted rows of some keys. */
void tess__partial_left(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                        const tess__key_subset *keys, const tess_selection *lists);
void tess__partial_join(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i);
void tess__partial_virtual(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                           float *each, float *all);
void tess__partial_return(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                          const tess__key_subset *keys, const tess_selection *lists,
                          const float *each, const float *all, float *dk, float *dv);

/* Floats of the sums of rows, of one sample and head. */
static inline int64_t tess__dist_sums(const tess_dist_attn *d)
{
    return tess__sum_floats(tess__virtual_keys(d), d->opts.head_dim);
}

/* to += from, n floats. */
void tess__add_floats(const tess_dist_attn *d, float *restrict to, const float *restrict from,
                      int64_t n);

/* Creates the exchange of the projected keys, and raises the need to moving q, the projected q and
 * k and kv_floats of each row of the keys' exchange, and to the gradients on the way back. */
tess_status tess__partial_plan(const tess_dist_attn *d, const tess__dist_plan *in, int kv_floats,
                               tess__dist_layer *layer, tess__row_exchange *low,
                               tess__dist_need *need);

/* Selects the keys of every share and stores the lists as bitmasks; a failure is stored in
 * run->status. The projected q and k are in d->low. */
void tess__select_all(tess_dist_attn *d, tess__dist_run *run, const tess__row_exchange *low);

/* The tensors that these layers move first: q, and the projected q and k of the call. */
int tess__query_transfers(const tess_dist_attn *d, const tess__dist_run *run,
                          const tess__row_exchange *low, tess__transfer *transfers);

#endif
