/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - a pass whose tokens are shared by the ranks of a context.
 *
 * Every rank has the same input, computes its own rows of tokens, and gets the whole output. Rows
 * meet in three places: in self attention, which the context's executor runs by its plan; in a
 * predictor's learning, whose sampled queries come to all ranks; and in measuring, for which whole
 * heads come to a rank. Gradients of parameters stay partial: their sums over the ranks are those
 * of one rank. A rank that fails fails the communicator, so that no other rank waits for it.
 */
#ifndef TESS_RANKS_H
#define TESS_RANKS_H

#include "sparse_internal.h"

/* ---- ranks.c --------------------------------------------------------------------------------- */

/* EINVAL unless the context of the shape fits the sizes; sets first and local. */
tess_status tess__ranks_fit(const char *who, const tess_pass_shape *shape, tess__sizes *z);
tess__ranks tess__ranks_of(const tess_cp *context); /* NULL: alone */

/* Passes a failure on to the other ranks, and returns it. */
tess_status tess__ranks_end(const tess_pass *p, tess_status status);

/* ---- ranks_attention.c: attention through the executor --------------------------------------- */

/* As tess__attend_forward; lse: of the local rows, or NULL. */
tess_status tess__ranks_forward(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                                const tess_view *v, const tess_view *o, float *lse);
tess_status tess__ranks_backward(tess_pass *p, int layer, const tess_view *dout,
                                 const tess_view *dq, const tess_view *dk, const tess_view *dv);

/* ---- ranks_learn.c --------------------------------------------------------------------------- */

/* As tess_predict_loss_run, on every rank's keys: losses and dq of all, dk of the local keys. */
tess_status tess__ranks_loss(tess_pass *p, const tess_predict_in *in, double *losses,
                             const tess_view *dq, const tess_view *dk);

/* ---- ranks_heads.c --------------------------------------------------------------------------- */

/* Whole heads that are measured on this rank, in one piece of memory. */
struct tess__whole_heads {
    float *send, *recv;
    float *q, *k, *q_low, *k_low; /* (batch, heads of this rank, tokens, head_dim or proj_dim) */
    float *v;                     /* the same, where it is measured too */
    float *lse, *lse_local;       /* (batch, heads of this rank, tokens); (batch, heads, local) */
};

size_t tess__whole_heads_bytes(const tess_pass *p); /* with what the allocator adds */
tess_status tess__whole_heads_make(tess_pass *p);   /* p->ranks.whole, unless it is there */

/* Collective: whole heads to their ranks, which measure them. */
tess_status tess__ranks_show(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                             const tess_view *v);

#endif
