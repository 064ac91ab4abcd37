/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_part.h - virtual keys of one head whose keys are never all in one place.
 *
 * Attention over the parts of the keys runs without virtual keys (tess__attn_compensate), and each
 * group's virtual key joins at the end:
 *
 *   forward    tess__left_out for each part of the keys, lists restricted to it; tess__virtual_join
 *   backward   gradients over the parts, with the joined o and lse; tess__virtual_gradients once;
 *              tess__virtual_return for each part. Rows of parts that were not visited get `all`.
 */
#ifndef TESS_VIRTUAL_PART_H
#define TESS_VIRTUAL_PART_H

#include "attn_internal.h"

/* What the lists of n_q groups leave out, over all parts of the keys of one sample and head. */
typedef struct {
    int32_t n_q;
    int clusters;            /* virtual keys of a group: 1, or one for each cluster of keys */
    const int64_t *bounds_q; /* (n_q + 1): rows of the groups */
    int64_t *rows;           /* (n_q, clusters): keys left out */
    float *sums;             /* (n_q, clusters, 2, head_dim): of their k, and of their v */
} tess__left;

/* Floats of the sums of some rows: (clusters, 2, head_dim), and with several clusters how many rows
 * each has (clusters). */
static inline int64_t tess__sum_floats(int clusters, int head_dim)
{
    return (int64_t)clusters * 2 * head_dim + (clusters > 1 ? clusters : 0);
}

/* Whether attention of this workspace has virtual keys of its own, and how many. */
void tess__attn_compensate(tess_attn *attn, int virtual_keys);

/* Clusters are those of the centroids in use (tess__attn_use_centroids).
 *
 * labels (rows) = the cluster of each row of k, where there are several. */
void tess__row_labels(tess_attn *attn, int64_t rows, const tess_view *k, uint8_t *labels);

/* Adds the rows of k and v that each list leaves out; sel: batch 1, heads 1. */
void tess__left_out(tess_attn *attn, const tess_selection *sel, const tess_view *k,
                    const tess_view *v, const tess__left *left);

/* The same for lists that are empty, of which the sums of all rows are known. rows: their number,
 * for one cluster. */
void tess__left_all(const tess_attn *attn, int64_t rows, const float *sums, const tess__left *left);

/* sums = those of all rows of k and v, tess__sum_floats of them. */
void tess__row_sums(tess_attn *attn, int64_t rows, const tess_view *k, const tess_view *v,
                    int clusters, float *sums);

/* o and lse of the groups' rows, which cover the listed keys, cover the virtual keys too. */
void tess__virtual_join(const tess_attn *attn, const tess__left *left, const tess_view *q,
                        const tess_view *o, float *lse);

/* Adds to dq what the virtual keys give. each (n_q, clusters, 2, head_dim): what every row of k and
 * of v gets that a group leaves out; all (clusters, 2, head_dim) grows by their sum. */
void tess__virtual_gradients(const tess_attn *attn, const tess__left *left,
                             const tess_attn_saved *saved, const tess_view *dout,
                             const tess_view *dq, float *each, float *all);

/* Adds to dk and dv what the rows k of a part get from the groups that leave them out. all: the sum
 * of each. */
void tess__virtual_return(tess_attn *attn, const tess_selection *sel, const tess_view *k,
                          int clusters, const float *each, const float *all, const tess_view *dk,
                          const tess_view *dv);

#endif
