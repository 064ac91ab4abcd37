/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_internal.h - predictors, and layers that attend to chosen keys.
 *
 * A layer in which any head of any sample is sparse runs one (sample, head) after the other: its
 * keys are selected, attended to, and encoded as a bitmask, a row of n_k for each group. The lists
 * of one head exist at a time. For the gradients they are decoded from the bitmask, or selected
 * again where the bitmask has no room:
 *
 *   TESS_KEEP_ALL       from q and k, which are made again as well; in BF16 these are not quite
 *                       those of the forward pass, so attention runs again on the lists they give
 *   TESS_KEEP_BLOCKS    the recomputed block selects, and leaves its bits for its gradients,
 *                       or they select once more, from the same q and k
 */
#ifndef TESS_SPARSE_INTERNAL_H
#define TESS_SPARSE_INTERNAL_H

#include "pass_internal.h"

/* ---- predictor.c ----------------------------------------------------------------------------- */

struct tess_predictor {
    tess_ctx *ctx;
    tess_predictor_opts opts;
    tess_model_config config;
    int64_t layer_count; /* numbers of each layer */
    int layer_params;    /* tensors of each layer */
    char *names;
    float *values, *gradients; /* one allocation each */
    int64_t *sums;             /* gradients in fixed point; NULL until an exact pass learns */
    int beyond;                /* 1: one was too large for them, or NaN */
};

/* A layer's part of a buffer; q and k side by side: matrices, then biases. */
static inline float *tess__predictor_at(const tess_predictor *p, float *buffer, int layer)
{
    return buffer + layer * p->layer_count;
}

static inline int tess__of_hidden(const tess_pass *p)
{
    return p->sparse.attend.predictor->opts.input == TESS_PREDICT_HIDDEN;
}

/* Makes the sums of exact passes, once. */
tess_status tess__predictor_sums(tess_predictor *p);

/* Numbers of one of a layer's two matrices. */
int64_t tess__predictor_matrix(const tess_predictor *p);

/* A predictor whose values are not set yet; opts with proj_dim resolved. */
tess_status tess__predictor_make(tess_ctx *ctx, const tess_model_config *config,
                                 const tess_predictor_opts *opts, tess_predictor **predictor);

/* ---- key_lists.c: the keys of one (sample, head) of a layer, in sparse.lists ----------------- */

/* Selects keys as the layer attends, by q and k (or their projections) of that head: for all
 * groups, or for those given. keys: k itself, read where keys are chosen by error. */
tess_status tess__lists_select(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                               const tess_view *k, const tess_view *keys, const int32_t *groups,
                               tess_selection *lists);

/* What SEARCH found is forgotten; and, where ranks share groups, before and after the attention of
 * a layer: room for what is found, and what all of them found. */
void tess__lists_forget(tess_pass *p);
void tess__lists_begin(const tess_pass *p, int layer);
tess_status tess__lists_share(const tess_pass *p, int layer); /* collective */

/* q, k: of the whole layer. Of a forward pass, or of a block that is recomputed. */
tess_status tess__lists_forward(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                                const tess_view *k);

/* For the gradients. *again = 1: they are not those that o and lse belong to. */
tess_status tess__lists_backward(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                                 const tess_view *k, int *again);

/* The part of a view that belongs to one head of one sample. */
tess_view tess__one_head(const tess_view *view, int64_t sample, int64_t head);

/* ---- key_clusters.c: clusters of keys, where compensate is above 1 --------------------------- */

/* Finds the centroids of a layer, in a forward pass that needs new ones; k: of the whole layer,
 * this rank's rows. Collective. */
tess_status tess__clusters_find(tess_pass *p, int layer, const tess_view *k);

/* The centroids (heads, clusters, head_dim) of a layer's first sample; those of the next one begin
 * *between floats later. */
const float *tess__clusters_of(const tess_pass *p, int layer, int64_t *between);

/* p->sparse.weights = the distance of each key of a head from the nearest centroid; k: (tokens)
 * rows of that head. */
void tess__clusters_weigh(tess_pass *p, int layer, int sample, int head, const tess_view *k);

/* The labels (tokens) of a head's keys. */
uint8_t *tess__labels_of(const tess_pass *p, int layer, int sample, int head);

/* ---- query_groups.c: groups of queries by content -------------------------------------------- */

/* The query at each place of the groups, (batch, heads, tokens) of a layer, NULL: groups of all
 * heads are cubes; and of one head, NULL: those of this head are. */
int32_t *tess__groups_rows(const tess_pass *p, int layer);
int32_t *tess__groups_of(const tess_pass *p, int layer, int sample, int head);

/* Groups the queries of one head, unless known says that its rows are those of the forward pass;
 * *q (tokens rows of dim) becomes a view of them in the order of the groups. */
tess_status tess__groups_make(tess_pass *p, int layer, int sample, int head, int dim, int known,
                              tess_view *q);

/* The same for the queries that a rank has of a head, in groups of these sizes; rows: of the share,
 * saved by the executor. */
tess_status tess__groups_share(tess_pass *p, const tess_share_in *in, int dim,
                               const int64_t *bounds, tess_view *q);

/* ---- predictor_project.c --------------------------------------------------------------------- */

/* Projects q and k of a layer, from p->ws.n or from q and k. */
tess_status tess__proj_make(tess_pass *p, int layer, const tess_view *q, const tess_view *k);
void tess__proj_views(const tess_pass *p, tess_view *q_low, tess_view *k_low);

/* predictor_learn.c: the loss of a layer's projections; its gradients are added to the predictor's.
 */
tess_status tess__learn(tess_pass *p, int layer, const tess_view *q, const tess_view *k);

/* exact_learn.c: the same of an exact pass, cut by cut. */
tess_status tess__exact_learn(tess_pass *p, int layer, const tess_view *q, const tess_view *k);

/* predictor_learn.c: where the gradients of projected vectors are, of the chosen queries from the
 * first-th on and of all keys; and dproj of hidden: this rank's chosen queries, and keys. */
tess_view tess__learn_dq(const tess_pass *p, int64_t first);
tess_view tess__learn_dk(const tess_pass *p);
float *tess__learn_dproj(tess_pass *p, tess__token_range own);

/* ranks_learn.c, collective: p->learn.q = the sampled queries of all ranks, and views of them. */
tess_status tess__ranks_queries(tess_pass *p, const tess_view *q, const tess_view *q_low,
                                tess_view *all_q, tess_view *all_q_low);

/* Of the queries it learns from, those that are tokens first .. first + n - 1: the place of the
 * first of them, and how many. */
tess__token_range tess__learn_local(const tess_pass *p, int64_t first, int64_t n);

/* Random numbers of a layer in a step of the run: those of its lists, and of its queries. */
tess_status tess__attend_random(const tess_pass *p, int layer, uint64_t index, uint32_t *out,
                                size_t n);

#endif
