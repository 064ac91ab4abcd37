/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring.h - layers whose keys go round a ring: what planning, forward and backward share.
 *
 *   dist_ring_plan.c   the parts of a ring, their units, the memory they take
 *   dist_ring.c        who needs which part; parts on their way; forward
 *   dist_ring_backward.c   backward: parts on their way once more, and the sums of their gradients
 *   dist_ring_virtual.c   virtual keys: sums over parts that a place does not see
 */
#ifndef TESS_DIST_RING_H
#define TESS_DIST_RING_H

#include "dist_partial.h"

/* A key part: rows of each head, and its units in the order of its rows. */
typedef struct {
    int64_t rows;
    tess__unit_run *runs;
    int64_t n_runs;
    int64_t *bounds; /* (n_units + 1); NULL: single rows */
    int32_t n_units;
} tess__ring_part;

typedef struct {
    int steps, n_heads;
    int position;           /* the rank's place in its ring */
    int next, previous;     /* ranks that keys go to and come from */
    int *ranks;             /* (steps): of each place, ascending */
    tess__ring_part *parts; /* (steps), by number */
    tess__row_exchange low; /* of the low-rank keys */
    int64_t max_floats;     /* floats of K, or of V, of the largest part */
    int64_t q_floats;       /* of the largest share */
    uint8_t *message;       /* (2, steps, bytes of a message): who needs which part */
    int *first, *last;      /* (steps): steps in which a part has its first and its last work */
    uint8_t *started;       /* (batch, shares): 1: some tile has written o, or dq */
    int64_t virtual_offset; /* floats of scratch before what virtual keys take */
    int64_t sums;           /* floats of sums of rows: (batch, heads, 2, head_dim) */
} tess__ring_exec;

/* The part in hand at a step. */
static inline int tess__ring_at(const tess__ring_exec *x, int step)
{
    return (x->position + x->steps - step) % x->steps;
}

/* Floats of K, or of V, of a part in a buffer that goes round: (batch, heads, rows, head_dim), V
 * virtual_offset K. */
static inline int64_t tess__ring_floats(const tess_dist_attn *d, const tess__ring_exec *x, int p)
{
    return (int64_t)d->opts.batch * x->n_heads * x->parts[p].rows * d->opts.head_dim;
}

static inline int64_t tess__ring_bytes(const tess_dist_attn *d, const tess__ring_exec *x, int p)
{
    return 2 * tess__ring_floats(d, x, p) * (int64_t)sizeof(float);
}

/* ---- dist_ring.c ----------------------------------------------------------------------------- */

/* The rows of share i's head of a sample in a buffer of part p; shares are those of the group's
 * heads, in their order. */
tess__key_subset tess__ring_rows(const tess_dist_attn *d, const tess__ring_exec *x, int p,
                                 float *kv, int sample, int64_t i);

/* Whether share i of a sample has work with a part. */
int tess__ring_needs(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_part *p,
                     int sample, int64_t i);

/* The lists of a share among the keys of a part; NULL: all of them. */
const tess_selection *tess__ring_lists(tess_dist_attn *d, const tess__dist_run *run,
                                       const tess__ring_part *p, const tess__key_subset *keys,
                                       int sample, int64_t i);

/* first and last from needs (steps, steps): 1: place s has work with part p. */
void tess__ring_spans(const tess__ring_exec *x, const uint8_t *needs);

/* A message each way, or none where there are no bytes, started and finished; their time is
 * counted. */
tess_status tess__ring_start(tess_dist_attn *d, tess__dist_run *run, const float *send,
                             int64_t bytes, int to, float *recv, int64_t recv_bytes, int from,
                             tess_request **request);
tess_status tess__ring_finish(tess_dist_attn *d, tess__dist_run *run, tess_request **request);

/* Where the keys of a step are, and sending them on while those of the next step come, as far as
 * somebody needs them. */
float *tess__ring_keys(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int step);
tess_status tess__ring_hop(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                           int step, tess_request **request);

/* ---- dist_ring_virtual.c --------------------------------------------------------------------- */

/* Floats of scratch that virtual keys take virtual_offset the others. */
int64_t tess__ring_virtual_floats(const tess_dist_attn *d, const tess__dist_layer *layer,
                                  const tess__ring_exec *x);

/* Forward: what lists leave out of the parts that come to this place for no share of it. */
tess_status tess__ring_fetch_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  const uint8_t *needs);

/* Backward: what each group gives to a row that it leaves out, (batch, groups, 2, head_dim) in the
 * order of shares, and the sum over the groups of each share, (batch, shares, 2, head_dim). */
float *tess__ring_each(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int sample, int64_t i);
float *tess__ring_all(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                      int sample, int64_t i);

/* Fills these, and begins dq. */
void tess__ring_virtual(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x);

/* Adds to run->dk and run->dv what places give that have not seen the part that began here. */
tess_status tess__ring_return_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                   const uint8_t *needs);

/* ---- the kind's steps ------------------------------------------------------------------------ */

tess_status tess__ring_plan(const tess_dist_attn *d, const tess__dist_plan *in,
                            tess__dist_layer *layer, tess__dist_need *need);
tess_status tess__ring_backward(tess_dist_attn *d, tess__dist_run *run);

#endif
