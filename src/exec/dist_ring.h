/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring.h - layers whose keys circulate in a ring: what planning, forward and backward share.
 *
 *   dist_ring_plan.c       key parts of a ring, their units, memory
 *   dist_ring.c            which position needs which key part; circulation; forward
 *   dist_ring_backward.c   backward: key parts circulate again, with the sums of their gradients
 *   dist_ring_virtual.c    virtual keys: sums over key parts that a position does not receive
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
    int position;           /* of this rank in its ring */
    int next, previous;     /* ranks to send keys to and receive keys from */
    int *ranks;             /* (steps): of each position, ascending */
    tess__ring_part *parts; /* (steps), by number */
    tess__row_exchange low; /* exchange of the projected keys */
    int64_t max_floats;     /* floats of K, or of V, of the largest part */
    int64_t q_floats;       /* of the largest share */
    uint8_t *message;       /* (2, steps, bytes of a message): which parts a position needs */
    int *first, *last;      /* (steps): first and last step in which a position needs the part */
    uint8_t *started;       /* (batch, shares): 1: o, or dq, has been written */
    int32_t *heads;         /* (n_heads): of the group, ascending */
    uint8_t *labels;        /* (rows of the own key part): where keys have clusters, scratch */
    int64_t virtual_offset; /* floats of scratch before those of virtual keys */
    int64_t sums;           /* floats of sums of rows: tess__dist_sums of each (batch, heads) */
} tess__ring_exec;

/* The key part on this rank at a step. */
static inline int tess__ring_at(const tess__ring_exec *x, int step)
{
    return (x->position + x->steps - step) % x->steps;
}

/* Floats of K, or of V, of a key part in a circulating buffer: (batch, heads, rows, head_dim), V
 * follows K. */
static inline int64_t tess__ring_floats(const tess_dist_attn *d, const tess__ring_exec *x, int p)
{
    return (int64_t)d->opts.batch * x->n_heads * x->parts[p].rows * d->opts.head_dim;
}

static inline int64_t tess__ring_bytes(const tess_dist_attn *d, const tess__ring_exec *x, int p)
{
    return 2 * tess__ring_floats(d, x, p) * (int64_t)sizeof(float);
}

/* ---- dist_ring.c ----------------------------------------------------------------------------- */

/* The rows of share i's head of a sample in a buffer of key part p; shares are those of the group's
 * heads, in their order. */
tess__key_subset tess__ring_rows(const tess_dist_attn *d, const tess__ring_exec *x, int p,
                                 float *kv, int sample, int64_t i);

/* Whether share i of a sample needs a key part. */
int tess__ring_needs(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_part *p,
                     int sample, int64_t i);

/* The lists of a share among the keys of a key part; NULL: all of them. */
const tess_selection *tess__ring_lists(tess_dist_attn *d, const tess__dist_run *run,
                                       const tess__ring_part *p, const tess__key_subset *keys,
                                       int sample, int64_t i);

/* first and last from needs (steps, steps): 1: position s needs key part p. */
void tess__ring_spans(const tess__ring_exec *x, const uint8_t *needs);

/* Start and finish of a send-receive, without a message for zero bytes; the time is added to
 * exchange_ns. */
tess_status tess__ring_start(tess_dist_attn *d, tess__dist_run *run, const float *send,
                             int64_t bytes, int to, float *recv, int64_t recv_bytes, int from,
                             tess_request **request);
tess_status tess__ring_finish(tess_dist_attn *d, tess__dist_run *run, tess_request **request);

/* The buffer of the keys of a step; sends them to the next position and receives those of the next
 * step, as far as a later position needs them. */
float *tess__ring_keys(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int step);
tess_status tess__ring_hop(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                           int step, tess_request **request);

/* ---- dist_ring_virtual.c --------------------------------------------------------------------- */

/* Floats of scratch for virtual keys. */
int64_t tess__ring_virtual_floats(const tess_dist_attn *d, const tess__dist_layer *layer,
                                  const tess__ring_exec *x);

/* Forward: fetches the sums of the key parts that no share of this position needs, as omitted rows.
 * */
tess_status tess__ring_fetch_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  const uint8_t *needs);

/* Backward: the gradient that each group contributes to each of its omitted rows, (batch, groups,
 * virtual keys, 2, head_dim) in the order of shares, and the sum over the groups of each share,
 * tess__dist_sums apart (batch, shares), of which (virtual keys, 2, head_dim) are in use. */
float *tess__ring_each(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int sample, int64_t i);
float *tess__ring_all(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                      int sample, int64_t i);

/* Fills these, and initialises dq. */
void tess__ring_virtual(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x);

/* Adds the contributions of the positions that have not received the own key part to run->dk, dv.
 * */
tess_status tess__ring_return_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                   const uint8_t *needs);

/* ---- operations of the kind---------------------------------------------------------------------
 * */

tess_status tess__ring_plan(const tess_dist_attn *d, const tess__dist_plan *in,
                            tess__dist_layer *layer, tess__dist_need *need);
tess_status tess__ring_backward(tess_dist_attn *d, tess__dist_run *run);

#endif
