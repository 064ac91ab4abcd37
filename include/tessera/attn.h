/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h - attention on the keys that matter: selections, token order, attention.
 *
 * A selection says which keys each query attends to. Queries are taken in groups of neighbouring
 * rows and keys in units of neighbouring rows; each group has an ascending list of units. Units of
 * one row are DSV's token lists, units of 64 or 128 rows are block masks, and no selection at all
 * is dense attention. One kernel runs all three.
 *
 *   tess_selection *sel;                                  // 8 heads, groups of 64, single keys
 *   tess_selection_create(ctx, &sel_shape, capacity, &sel);
 *   tess_selection_set_lists(sel, offsets, indices);      // or set_mask, or a selector
 *   tess_attn *attn;
 *   tess_attn_create(ctx, &shape, &attn);                 // owns the workspace
 *   tess_attn_forward(attn, sel, &q, &k, &v, &o, lse);
 *   tess_attn_backward(attn, sel, &saved, &dout, NULL, &dq, &dk, &dv);
 */
#ifndef TESSERA_ATTN_H
#define TESSERA_ATTN_H

#include "base.h"

TESS_BEGIN_DECLS

/* ---- selections --------------------------------------------------------------------------- */

typedef struct tess_selection tess_selection;

/* Groups of queries and units of keys are row ranges: uniform (group, unit; the last one may be
 * shorter), or given by bounds, ascending arrays of n + 1 rows from 0 to tokens: no range is
 * empty. A bounds array goes before the uniform size. The arrays are copied. All pairs of rows,
 * batch * heads * tokens_q * tokens_k, must be below 2^63. */
typedef struct {
    int batch, heads;                   /* 1..65536 each */
    int64_t tokens_q, tokens_k;         /* 0..2^31-1 */
    int32_t group, unit;                /* rows; 1 or more, or bounds instead */
    const int64_t *bounds_q, *bounds_k; /* NULL: uniform */
    int32_t n_q, n_k;                   /* ranges in the bounds arrays; ignored when uniform */
} tess_sel_shape;

/* What a selection holds. Lists are stored by (batch, head, group): list number
 * (b * heads + h) * n_q + g is indices[offsets[i] .. offsets[i + 1]). Everything belongs to the
 * selection and changes with it. */
typedef struct {
    tess_sel_shape shape;   /* with bounds_q, bounds_k, n_q and n_k always set; group and unit are
                                 0 where bounds were given */
    int64_t lists;          /* batch * heads * n_q */
    const int64_t *offsets; /* (lists + 1) */
    const int32_t *indices; /* (offsets[lists]): ascending key units of each list */
    int64_t capacity;       /* indices there is room for */
    int64_t pairs;          /* (query, key) pairs selected, over batch and heads */
    double density;         /* pairs / all pairs; 0 when there are none */
} tess_selection_lists;

typedef enum {
    TESS_MASK_BYTES, /* uint8_t or bool (batch, heads, n_q, n_k): not 0 selects */
    TESS_MASK_BITS,  /* the same, 8 to a byte, lowest bit first; each row starts a byte */
} tess_mask_kind;

/* An empty selection with room for `capacity` indices over all lists together. */
TESS_API tess_status tess_selection_create(tess_ctx *ctx, const tess_sel_shape *shape,
                                           int64_t capacity, tess_selection **sel);

/* Copies lists. EINVAL: offsets that do not begin at 0 or that fall, an index out of 0..n_k-1, a
 * list that does not ascend, or more than the capacity; the selection then stays as it was. */
TESS_API tess_status tess_selection_set_lists(tess_selection *sel, const int64_t *offsets,
                                              const int32_t *indices);

/* Selects what the mask does. EINVAL: more than the capacity; the selection stays as it was. */
TESS_API tess_status tess_selection_set_mask(tess_selection *sel, const void *mask,
                                             tess_mask_kind kind);

/* What the selection holds. Counting pairs costs O(lists), O(indices) where units have bounds. */
TESS_API tess_status tess_selection_view(const tess_selection *sel, tess_selection_lists *lists);

TESS_API void tess_selection_destroy(tess_selection *sel);

/* ---- token order -------------------------------------------------------------------------- */

/* Brings the tokens of a video, a grid of frames x rows x columns in raster order, into cubes, so
 * that groups of neighbouring rows of q, k and v are neighbours in space and time. Cubes follow
 * each other in raster order, and so do the tokens in each; cubes at the far edges are smaller
 * where the sizes do not divide.
 *
 *   perm[i]     the raster index of the token at place i           (tokens)
 *   inverse[r]  the place of the token with raster index r         (tokens)
 *   bounds      where each cube begins, and tokens at the end      (n_groups + 1)
 *
 * bounds and n_groups serve as bounds_q, n_q or bounds_k, n_k of a tess_sel_shape. Any output may
 * be NULL; a call with n_groups alone returns the length of bounds. Sizes are 1 or more, with fewer
 * than 2^31 tokens in the grid. */
TESS_API tess_status tess_order_cubes(const int grid[3], const int cube[3], int64_t *perm,
                                      int64_t *inverse, int64_t *bounds, int32_t *n_groups);

/* ---- attention ---------------------------------------------------------------------------- */

/* Floating-point operations for each (query, key) pair and element of a head: two products forward,
 * five backward, of a multiplication and an addition each. */
enum { TESS_FLOP_FORWARD = 4, TESS_FLOP_BACKWARD = 10 };

typedef struct tess_attn tess_attn;

typedef struct {
    int batch, heads;           /* query, key and value heads; 1..65536 */
    int head_dim;               /* a multiple of 8 up to 256 */
    int64_t tokens_q, tokens_k; /* 0..2^31-1 */
    float scale;                /* 0: 1 / sqrt(head_dim) */
    int compensate;             /* virtual keys that stand for the keys a list leaves out: 1 for
                                   all, 2..64: one for each of so many clusters of keys */
    tess_precision precision;   /* of the products; sums and the softmax are in fp32 */
} tess_attn_shape;

/* What the forward pass took and gave, as the backward pass needs it. */
typedef struct {
    const tess_view *q, *k, *v, *o;
    const float *lse;
} tess_attn_saved;

/* Allocates the workspace for the context's threads. Nothing is allocated afterwards, except by the
 * first backward pass of a shape that compensates on a selection with more groups than before: 16
 * head_dim bytes for each group (or 128 queries of it) and head; with C clusters, 8 C bytes for
 * each query and head, and 8 C head_dim for each part of the groups that is summed apart. */
TESS_API tess_status tess_attn_create(tess_ctx *ctx, const tess_attn_shape *shape,
                                      tess_attn **attn);

/* o = softmax(scale q k^T, restricted to sel) v, and lse = the log of the softmax's sum.
 *
 *   q, o: batch x heads x tokens_q x head_dim      lse: (batch, heads, tokens_q), may be NULL
 *   k, v: batch x heads x tokens_k x head_dim      views: any strides, head_dim contiguous
 *
 * q and o are F32; k and v are both F32 or both BF16. sel NULL is dense attention. A query that
 * selects nothing gets o = 0 and lse = -inf. o and lse must not overlap the inputs.
 * The result is the same bit for bit for every number of threads, and a row's does not depend on
 * the group it is in: a full list gives the bits of dense attention.
 *
 * With TESS_PRECISION_BF16, q, k, v and dout are rounded to bf16 before they are multiplied, and so
 * are the softmax's weights and their gradients: errors of 2e-3 of the largest element. Where no
 * instruction of this machine is faster at it, products are in fp32 instead, on what the caller
 * stores: tess_attn_precision_query (advanced/precision.h) says so. A row's bits then depend on its
 * list of keys and on the head.
 *
 * With shape.compensate, each group has one key more, which stands for the n keys that its list
 * leaves out: their mean key, their mean value, and log n added to its score. o and lse include it,
 * and the gradients go through it to every key left out. An empty list then attends to the mean of
 * all keys; a full one, and sel NULL, give the bits they give without it.
 *
 * With shape.compensate C above 1, each group has such a key for each of C clusters of which its
 * list leaves out keys. Clusters are found in every call from k, head by head, by four rounds of
 * k-means from evenly spaced keys: nothing is random, and the backward pass finds those of the
 * forward pass. For the gradients they are constants. */
TESS_API tess_status tess_attn_forward(tess_attn *attn, const tess_selection *sel,
                                       const tess_view *q, const tess_view *k, const tess_view *v,
                                       const tess_view *o, float *lse);

/* dq, dk, dv = the gradients of a loss whose gradients by o and lse are dout and dlse (NULL: lse is
 * not used by the loss). All F32, overwritten; a key that no list has gets 0, unless the shape
 * compensates. Deterministic: the same bits on every run and for every number of threads. */
TESS_API tess_status tess_attn_backward(tess_attn *attn, const tess_selection *sel,
                                        const tess_attn_saved *saved, const tess_view *dout,
                                        const float *dlse, const tess_view *dq, const tess_view *dk,
                                        const tess_view *dv);

/* Merges attention over one set of keys into attention over another, as if the softmax were over
 * both: o, lse = merge((o, lse), (o_part, lse_part)). All F32; an lse of -inf stands for no key. */
TESS_API tess_status tess_attn_merge(const tess_attn_shape *shape, const tess_view *o_part,
                                     const float *lse_part, const tess_view *o, float *lse);

TESS_API void tess_attn_destroy(tess_attn *attn);

TESS_END_DECLS

#endif
