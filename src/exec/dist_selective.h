/* SPDX-License-Identifier: Apache-2.0 */
/* dist_selective.h - layers in which only selected keys are sent: what their files share.
 *
 *   dist_selective.c           planning, forward and backward
 *   dist_selective_request.c   requests for key rows
 *   dist_selective_rows.c      the requested rows, and their gradients back
 */
#ifndef TESS_DIST_SELECTIVE_H
#define TESS_DIST_SELECTIVE_H

#include "dist_partial.h"

/* An item is a (rank, head) pair of which the rank has shares: number first[rank] + index of the
 * head. */
typedef struct {
    int64_t *first;        /* (ranks + 1) */
    int32_t *heads;        /* (first[ranks]): ascending for each rank */
    int64_t n_local_heads; /* heads of this rank */
    /* Units with rows on each owner rank. */
    int64_t *unit_begin, *unit_end; /* (ranks) */
    int64_t words, local_words;     /* of a set of all units; of the units with local rows */
    tess__row_exchange low;
    int64_t request_bytes_out,
        request_bytes_in; /* maximal bytes of the requests of this rank, and of those to it */
} tess__selective;

/* The requests of a call, in acts->kind_data. A set of units for each sample and head. */
typedef struct {
    uint64_t *needed;     /* (batch, n_local_heads, words): what this rank needs */
    uint64_t *requested;  /* (batch, first[ranks], local_words): local units that other ranks need,
                            counted from unit_begin */
    int64_t *row_offsets; /* (batch * n_local_heads + 1): first row of a sample and head */
    uint8_t *labels;      /* (batch, heads, local rows): clusters, where keys have any */
} tess__key_requests;

size_t tess__key_requests_bytes(const tess_dist_attn *d, const tess__selective *x);
tess__key_requests tess__key_requests_of(const tess_dist_attn *d, const tess__selective *x,
                                         uint8_t *own);

/* ---- dist_selective_request.c ---------------------------------------------------------------- */

/* The set of units that an item requests of this rank. */
uint64_t *tess__requested_at(const tess_dist_attn *d, const tess__selective *x,
                             const tess__key_requests *a, int sample, int64_t item);

/* Whether rank c requests keys of owner p: the same answer on both. */
int tess__requests_keys(const tess__selective *x, int c, int p);

typedef struct {
    int64_t begin, end;
} tess__row_span;

/* The next rows in [low, high) of units at..n-1 that are in a set, or not in it (value 0), whose
 * unit 0 is `base`; advances *at. Empty: there are no more. */
tess__row_span tess__next_rows(const tess_dist_attn *d, const uint64_t *set, int value,
                               int64_t base, int64_t n, int64_t low, int64_t high, int64_t *at);

/* Rows in [low, high) of units begin..end-1 that are in a set, whose unit 0 is `base`. */
int64_t tess__count_rows(const tess_dist_attn *d, const uint64_t *set, int64_t base, int64_t begin,
                         int64_t end, int64_t low, int64_t high);

/* Rows that this rank needs from owner p, of a sample and head; local rows that an item needs, of a
 * sample. */
int64_t tess__rows_from(const tess_dist_attn *d, const tess__selective *x,
                        const tess__key_requests *a, int p, int sample, int64_t head);
int64_t tess__rows_for(const tess_dist_attn *d, const tess__selective *x,
                       const tess__key_requests *a, int sample, int64_t item);

/* Bytes of scratch of tess__request_keys. */
int64_t tess__request_scratch(const tess_dist_attn *d, const tess__selective *x);

/* Requests the units of a->needed from their owners, and receives the requests to this rank; all
 * ranks agree on failures, run->status included. Afterwards row_offsets are set, acts->keys has
 * space for the rows, and d->send and d->recv for the messages in both directions. */
tess_status tess__request_keys(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                               const tess__key_requests *a);

/* ---- dist_selective_rows.c ------------------------------------------------------------------- */

/* Fetches K and V of the requested units, from run->k and run->v to acts->keys: (2, rows,
 * head_dim). */
tess_status tess__keys_fetch(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                             const tess__key_requests *a);

/* Returns their gradients, (2, rows, head_dim), to run->local_dk and run->local_dv. With virtual
 * keys also `rest`, tess__dist_sums of each (batch, n_local_heads): the gradient of every row that
 * this rank has not requested, by its cluster; NULL without. */
tess_status tess__key_gradients_return(tess_dist_attn *d, tess__dist_run *run,
                                       const tess__selective *x, const tess__key_requests *a,
                                       float *gradients, const float *rest);

/* rest, tess__dist_sums of each (batch, n_local_heads) = the sums of K and of V over the rows that
 * this rank has not requested, by cluster. Sets a->labels. */
tess_status tess__rest_sums_fetch(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                                  const tess__key_requests *a, float *rest);

#endif
