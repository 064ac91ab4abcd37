/* SPDX-License-Identifier: Apache-2.0 */
/* attn_internal.h - attention calls, selections, selectors, token order.
 *
 * What lives here: which keys each query sees, and the loops that hand tiles of queries and lists
 * of keys to the kernels on all threads. What comes in: views of the caller's tensors. What goes
 * out: selections, outputs and gradients in the caller's buffers.
 */
#ifndef TESS_ATTN_INTERNAL_H
#define TESS_ATTN_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/attn.h"

/* ---- selection.c, selection_set.c, coarsen.c --------------------------------------------- */

/* Memory: one arena, in which the selection itself lies; see selection.c. */
struct tess_selection {
    tess_ctx *ctx;
    tess__arena arena;
    int batch, heads;
    int64_t tokens_q, tokens_k;
    int32_t n_q, n_k;
    int64_t *bounds_q, *bounds_k;
    int64_t *tiles; /* (n_q + 1): tiles of queries before each group */
    int64_t lists, capacity;
    int64_t *offsets; /* valid at all times: offsets[lists] indices are in use */
    int32_t *indices;
    const int32_t *rows;    /* (batch, heads, tokens_q): the query row at each place of the groups;
                               NULL: in order. The caller's: tess__selection_rows */
    int32_t group, unit;    /* uniform sizes; 0 where bounds were given */
    int32_t room_q, room_k; /* ranges there is memory for, */
    int64_t room_lists;     /* and lists */
};

/* For writers of lists, after sel->offsets and sel->indices: asserts that the lists are valid. */
void tess__selection_changed(const tess_selection *sel);

/* Checks everything about a shape; *n_q and *n_k = its ranges, also of uniform sizes. */
tess_status tess__sel_shape_check(const char *who, const tess_sel_shape *shape, int32_t *n_q,
                                  int32_t *n_k);

/* Another shape of the same memory: batch, heads and ranges at most those that the selection was
 * made for, which the caller has checked. The lists are empty. */
void tess__selection_reshape(tess_selection *sel, const tess_sel_shape *shape);

/* The groups of a selection are ranges of places, and place p of a head is query row rows[p]: a
 * permutation for each (batch, heads), which outlives the calls on it. NULL: groups are ranges of
 * rows. Lists stay as they are. */
void tess__selection_rows(tess_selection *sel, const int32_t *rows);

/* Bytes to reserve for an arena of n arrays; SIZE_MAX where a size_t does not hold them. */
size_t tess__sel_bytes(int n, const int64_t counts[], const size_t sizes[]);

/* Bytes that tess_selection_create takes from the context. */
size_t tess__selection_bytes(int32_t n_q, int32_t n_k, int64_t lists, int64_t capacity);

/* selection_bits.c: the lists as a bitmask, rows of (n_k + 7) / 8 bytes as tess_selection_set_mask
 * reads them; rows: which row each list is written to, NULL: that of its number. */
void tess__selection_encode(const tess_selection *sel, const int32_t *rows, uint8_t *bits);

/* Threads for `work` indices: 1 where a team costs more than it saves. */
int tess__selection_team(const tess_selection *sel, int64_t work);

/* The range among n, with n + 1 ascending bounds, that holds the row. */
int32_t tess__range_of(const int64_t *bounds, int32_t n, int64_t row);

/* EINVAL if the selection's batch, heads or tokens are not these; `who` starts the sentence. */
tess_status tess__selection_fits(const char *who, const tess_selection *sel, int batch, int heads,
                                 int64_t tokens_q, int64_t tokens_k);

/* ---- attention.c -------------------------------------------------------------------------- */

/* Attention of another shape with the workspace of an object of the same head_dim, which outlives
 * it: one call at a time on both. */
tess_status tess__attn_create_like(const tess_attn *like, const tess_attn_shape *shape,
                                   tess_attn **attn);

/* Bytes that tess_attn_create takes from the context, and with own 0 tess__attn_create_like. */
size_t tess__attn_bytes(const tess_attn_shape *shape, int threads, int own);

/* Memory that the first backward pass with products in bf16 takes, dense or with lists of keys: its
 * bytes at most; and taking it now. */
size_t tess__attn_backward_bytes(const tess_attn_shape *shape, int threads, int lists);
tess_status tess__attn_backward_ready(tess_attn *attn, int lists);

/* Bytes that the first backward pass takes for virtual keys, as tess__attn_reserve. */
size_t tess__attn_virtual_bytes(const tess_attn_shape *shape, int64_t tiles, int threads);

/* tess_attn_merge on several threads, of arguments that are known to be right. */
void tess__merge(int threads, const tess_attn_shape *shape, const tess_view *o_part,
                 const float *lse_part, const tess_view *o, float *lse);

/* Other tokens in the same workspace, whose shape asked for no fewer keys. */
void tess__attn_resize(tess_attn *attn, int64_t tokens_q, int64_t tokens_k);

/* Called now and then while attention runs, a tile or so apart, by the thread that called it: what
 * is on its way meanwhile may move on. NULL: nothing is. */
typedef void (*tess__meanwhile_fn)(void *user);
void tess__attn_meanwhile(tess_attn *attn, tess__meanwhile_fn meanwhile, void *user);

/* Makes the memory beforehand that backward passes of a shape that compensates take for lists whose
 * groups have `tiles` tiles of TESS_TILE queries together. */
tess_status tess__attn_reserve(tess_attn *attn, int64_t tiles);

/* The centroids (batch * heads, clusters, head_dim) that the next calls find the labels by; NULL:
 * they find their own. Only where shape.compensate is above 1. */
void tess__attn_use_centroids(tess_attn *attn, const float *centroids);

/* Where the next calls leave the labels (batch * heads, tokens_k) that they find, or with known,
 * which they use; NULL: in the object. Only where shape.compensate is above 1. */
void tess__attn_use_labels(tess_attn *attn, uint8_t *labels, int known);

/* ---- centroids.c: k-means on keys of which each rank has some rows --------------------------- */

enum { TESS__KMEANS_ROUNDS = 4 };

typedef struct {
    int batch, heads, head_dim;
    int clusters;                 /* 2 or more */
    int sets;                     /* batch: one for each sample; 1: one for all */
    int64_t tokens, first, local; /* of a sample; of them this rank's: the first, and how many */
} tess__centroid_shape;

/* Numbers in sums. */
int64_t tess__centroid_sums(const tess__centroid_shape *shape);

/* k: (batch, heads, local) rows in F32. attn: for its context and scratch, of the same head_dim.
 * Sums are this rank's. */
void tess__centroids_start(const tess__centroid_shape *shape, const tess_view *k, double *sums);
void tess__centroids_round(tess_attn *attn, const tess__centroid_shape *shape, const tess_view *k,
                           const float *centroids, double *sums);
void tess__centroids_move(const tess__centroid_shape *shape, const double *sums, float *centroids);

/* distances (n) = that of each row of k from the nearest centroid. */
void tess__centroid_distances(tess_attn *attn, const tess_view *k, int64_t n, int clusters, int dim,
                              const float *centroids, float *distances);

/* half (clusters): half of the centroids' squared lengths. */
void tess__centroid_halves(const float *centroids, int clusters, int dim, float *half);

/* ---- content_groups.c: queries grouped by what they look for --------------------------------- */

/* rows (tokens) = the rows of q, of one head, at each place: group g has places bounds[g] ..
 * bounds[g + 1] - 1. room: tess__content_bytes. */
size_t tess__content_bytes(int64_t tokens);
void tess__content_groups(const tess_ctx *ctx, const tess_view *q, int dim, int32_t n_q,
                          const int64_t *bounds, void *room, int32_t *rows);
tess_status tess__random_groups(uint64_t seed, int32_t n_q, const int64_t *bounds, int32_t *rows);

/* ---- workspace.c --------------------------------------------------------------------------- */

/* Bytes that a selector of any kind comes to hold at most for lists of one head, `staged` indices
 * of which go through its staging area. The shape has n_q and n_k; its bounds are not read. */
size_t tess__selector_bytes(const tess_sel_shape *shape, int head_dim, int64_t staged, int threads);

/* ---- view.c ------------------------------------------------------------------------------- */

/* EINVAL unless the view has data, aligned to its elements, and one of the two types; `who` and
 * `name` start the sentence. A NULL pointer is accepted when there is nothing in it (tokens 0). */
tess_status tess__view_check(const char *who, const char *name, const tess_view *view,
                             tess_dtype first, tess_dtype second, int64_t tokens);

/* The row of head_dim elements at (b, h, s). By number, for a view without data has rows no kernel
 * reads. */
static inline void *tess__view_row(const tess_view *view, int64_t b, int64_t h, int64_t s)
{
    const int64_t element = b * view->stride_b + h * view->stride_h + s * view->stride_s;
    return (void *)((uintptr_t)view->data + tess_dtype_size(view->dtype) * (uintptr_t)element);
}

#endif
