/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - a pass whose tokens are shared by the ranks of a context.
 *
 * Every rank has the same input, computes its own rows of tokens, and gets the whole output. Rows
 * meet in three places: in self attention, which the context's executor runs by its plan; in a
 * predictor's learning, whose sampled queries come to all ranks; and in looks, for which whole
 * heads come to a rank. Gradients of parameters stay partial: their sums over the ranks are those
 * of one rank. A rank that fails tells the others, so that nobody waits for it.
 */
#ifndef TESS_RANKS_H
#define TESS_RANKS_H

#include "sparse_internal.h"

/* ---- ranks.c --------------------------------------------------------------------------------- */

/* EINVAL unless the context of the shape fits the sizes; sets first and home. */
tess_status tess__ranks_fit(const char *who, const tess_pass_shape *shape, tess__sizes *z);
tess__ranks tess__ranks_of(const tess_cp *context); /* NULL: alone */

/* Tells the other ranks of a failure, which is returned. */
tess_status tess__ranks_end(const tess_pass *p, tess_status status);

/* Gives p->message the bytes of each rank's rows of all samples, of `width` floats each. */
int64_t *tess__ranks_bytes(const tess_pass *p, int64_t width);

/* ---- ranks_attention.c: attention through the executor --------------------------------------- */

/* As tess__attend_forward; lse: of the rows at home, or NULL. */
tess_status tess__ranks_forward(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                                const tess_view *v, const tess_view *o, float *lse);
tess_status tess__ranks_backward(tess_pass *p, int layer, const tess_view *dout,
                                 const tess_view *dq, const tess_view *dk, const tess_view *dv);

/* ---- ranks_learn.c --------------------------------------------------------------------------- */

/* As tess_predict_loss_run, on every rank's keys: losses and dq of all, dk of the keys at home. */
tess_status tess__ranks_loss(tess_pass *p, const tess_predict_in *in, double *losses,
                             const tess_view *dq, const tess_view *dk);

/* ---- ranks_heads.c --------------------------------------------------------------------------- */

/* Whole heads on their way to a look, in one piece of memory. */
struct tess__whole_heads {
    float *send, *recv;
    float *q, *k, *q_low, *k_low; /* (batch, heads shown, tokens, head_dim or rank) */
    float *lse, *lse_local;       /* (batch, heads shown, tokens); (batch, heads, home) */
};

size_t tess__whole_heads_bytes(const tess_pass *p); /* with what the allocator adds */
tess_status tess__whole_heads_make(tess_pass *p);   /* p->whole, unless it is there */

/* Brings this rank's heads together and calls the callback, unless it has none. */
tess_status tess__ranks_show(tess_pass *p, int layer, const tess_view *q, const tess_view *k);

#endif
