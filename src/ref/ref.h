/* SPDX-License-Identifier: Apache-2.0 */
/* ref.h - the same computations once more in double precision, as plain as their formulas.
 *
 * What lives here: what the kernels are compared with, by the tests and by `tessera check`; never
 * part of a library. What comes in: the arguments of the calls they stand for, trusted to be valid.
 * What goes out: double arrays, contiguous in the order (batch, heads, tokens, head_dim).
 *
 * Views may be F32, BF16 or F64. Heads are shared out to the context's threads; the bits do not
 * depend on them. The only failure is ENOMEM.
 */
#ifndef TESS_REF_H
#define TESS_REF_H

#include "tessera/attn.h"
#include "tessera/model.h"
#include "tessera/select.h"

/* o and lse of tess_attn_forward; sel NULL is dense. lse may be NULL. */
tess_status ref_attn_forward(tess_ctx *ctx, const tess_attn_shape *shape,
                             const tess_selection_lists *sel, const tess_view *q,
                             const tess_view *k, const tess_view *v, double *o, double *lse);

/* dq, dk and dv of tess_attn_backward, from the inputs of the forward pass alone. */
tess_status ref_attn_backward(tess_ctx *ctx, const tess_attn_shape *shape,
                              const tess_selection_lists *sel, const tess_view *q,
                              const tess_view *k, const tess_view *v, const tess_view *dout,
                              const float *dlse, double *dq, double *dk, double *dv);

/* The same two with shape.compensate clusters of keys: labels (batch, heads, tokens_k) are theirs,
 * as tess_attn_labels gives them; NULL: one. */
tess_status ref_cluster_forward(tess_ctx *ctx, const tess_attn_shape *shape,
                                const tess_selection_lists *sel, const uint8_t *labels,
                                const tess_view *q, const tess_view *k, const tess_view *v,
                                double *o, double *lse);
tess_status ref_cluster_backward(tess_ctx *ctx, const tess_attn_shape *shape,
                                 const tess_selection_lists *sel, const uint8_t *labels,
                                 const tess_view *q, const tess_view *k, const tess_view *v,
                                 const tess_view *dout, const float *dlse, double *dq, double *dk,
                                 double *dv);

/* o, lse = merge((o, lse), (o_part, lse_part)). */
void ref_attn_merge(const tess_attn_shape *shape, const double *o_part, const double *lse_part,
                    double *o, double *lse);

/* y = x w^T + bias: (rows, out); bias may be NULL. */
void ref_linear_forward(int64_t rows, int64_t in, int64_t out, const float *x, const float *w,
                        const float *bias, double *y);

/* dx = dy w: (rows, in); dw = dy^T x: (out, in); dbias: (out). Any of the three may be NULL. */
void ref_linear_backward(int64_t rows, int64_t in, int64_t out, const float *x, const float *w,
                         const float *dy, double *dx, double *dw, double *dbias);

/* What a selector's rule makes of one group: scores (n_k) of the key units, of which the highest
 * are chosen. Softmax masses for ORACLE, SEARCH and the softmax proxy; in->lse is not read. Kinds
 * that read no tensor have no scores. The shape is one with bounds, as tess_selection_view gives
 * it. */
tess_status ref_select_scores(tess_ctx *ctx, const tess_selector_opts *opts,
                              const tess_select_in *in, const tess_sel_shape *shape, int64_t b,
                              int64_t h, int32_t group, double *scores);

/* Softmax mass (n_k) of the key units, summed over queries begin .. end - 1, and the lse (end -
 * begin) of these; lse may be NULL. */
tess_status ref_select_mass(tess_ctx *ctx, const tess_select_in *in, const tess_sel_shape *shape,
                            int64_t b, int64_t h, int64_t begin, int64_t end, double *mass,
                            double *lse);

/* By how much a list of k units misses the k highest of n scores: the highest score left out less
 * the lowest one taken. Not above 0 for an exact list. */
double ref_select_miss(const double *scores, int32_t n, const int32_t *list, int64_t k);

/* A model's forward pass, with parameters found by their names in diffusers. text_len and the
 * latent's sides are those of a tess_pass_shape; x, timestep, text and out as in tess_model_in and
 * tess_pass_forward. */
typedef struct {
    const tess_model_config *config;
    const double *(*param)(void *user, const char *name);
    void *user;
    int batch, frames, height, width, text_len;
    const double *x, *timestep, *text;
    /* Whether a query attends to a key in a layer's self attention, both by their raster index;
     * NULL: always. */
    int (*attends)(void *user, int layer, int sample, int head, int64_t query, int64_t key);
    int compensate; /* more keys that stand for those a query does not attend to: 0, 1, or one for
                       each of so many clusters, up to 64: */
    /* The cluster of a key by its raster index; NULL: there is one. */
    int (*cluster)(void *user, int layer, int sample, int head, int64_t key);
} ref_model;

tess_status ref_model_forward(const ref_model *model, double *out);

#endif
