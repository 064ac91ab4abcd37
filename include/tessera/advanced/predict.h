/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h - what predictors of attention learn from, and how sparse attention is.
 *
 * A predictor gives every query and key a vector of few dimensions, whose products show which
 * keys matter (TESS_SELECT_PREDICTOR). It learns from the true scores of sampled queries
 * against all keys. No matrix of queries by keys is stored: one call returns loss and gradients.
 *
 *   tess_predict *predict;                                   // owns the workspace
 *   tess_predict_create(ctx, &shape, &predict);
 *   tess_predict_map(predict, &q, w_q, &q_low);              // projected vectors, and so for k
 *   tess_predict_loss_run(predict, &in, loss_heads, &dq_low, &dk_low);
 *   tess_predict_map_backward(predict, &q, &dq_low, rows, n_rows, dw_q);
 *   tess_predict_map_backward(predict, &k, &dk_low, NULL, 0, dw_k);
 *
 * docs/predictor.md gives the formulas, and what they cost.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PREDICT_H
#define TESSERA_PREDICT_H

#include "../select.h"

TESS_BEGIN_DECLS

/* ---- learning ------------------------------------------------------------------------------ */

typedef struct {
    int batch, heads; /* 1..65536 each */
    int head_dim;     /* a multiple of 8 up to 256 */
    int rank;         /* of the projected vectors: a multiple of 8 up to 64 */
    int64_t tokens;   /* 1..2^31-1 */
    int rows;         /* sampled queries of each sample and head, at most; 1..512 */
} tess_predict_shape;

typedef struct tess_predict tess_predict;

/* Allocates the workspace for the context's threads; nothing is allocated afterwards. */
TESS_API tess_status tess_predict_create(tess_ctx *ctx, const tess_predict_shape *shape,
                                         tess_predict **predict);
TESS_API void tess_predict_destroy(tess_predict *predict);

typedef struct {
    const tess_view *q, *k;         /* F32, batch x heads x tokens x head_dim: the teacher */
    const tess_view *q_low, *k_low; /* F32, batch x heads x tokens x rank */
    float scale, scale_low;         /* 0: 1 / sqrt(head_dim), 1 / sqrt(rank) */
    const int64_t *rows;            /* (n_rows): ascending sampled queries, of every head; NULL: q
                                       and q_low hold the sampled ones alone, n_rows of them */
    int n_rows;                     /* 1..rows of the shape */
    tess_predict_loss loss;
} tess_predict_in;

/* loss_heads (batch, heads) = the mean loss over the rows; dq_low and dk_low = the gradients of the
 * mean over samples, heads and rows. All F32, overwritten.
 *
 *   dq_low: batch x heads x n_rows x rank, its row i for the query rows[i]
 *   dk_low: batch x heads x tokens x rank
 *
 * Both gradients NULL: the loss alone. Where scores are not finite, so are loss and gradients. The
 * same bits for every number of threads. */
TESS_API tess_status tess_predict_loss_run(tess_predict *predict, const tess_predict_in *in,
                                           double *loss_heads, const tess_view *dq_low,
                                           const tess_view *dk_low);

/* The same in two steps, where the keys are shared out, as over ranks. Each part has an object
 * whose tokens are its keys, k and k_low of these, and all sampled queries (rows NULL):
 *
 *   tess_predict_stats_run(predict, &in, stats);              // of the part's keys
 *   ...                                                       // merged over the parts
 *   tess_predict_loss_part(predict, &in, stats, keys, loss_heads, &dq_low, &dk_low);
 *
 * stats: (batch, heads, n_rows, TESS_PREDICT_STATS), the same on all parts for the second step. */
enum { TESS_PREDICT_STATS = 4 };

TESS_API tess_status tess_predict_stats_run(tess_predict *predict, const tess_predict_in *in,
                                            double *stats);

/* stats = those of both sets of keys, for `rows` rows of TESS_PREDICT_STATS numbers. The last bits
 * depend on the order of merging. */
TESS_API tess_status tess_predict_stats_merge(tess_predict_loss loss, int64_t rows,
                                              const double *part, double *stats);

/* keys: of all parts. loss_heads and dq_low are sums over the parts; dk_low is that of the part's
 * keys. One part alone gives the bits of tess_predict_loss_run. */
TESS_API tess_status tess_predict_loss_part(tess_predict *predict, const tess_predict_in *in,
                                            const double *stats, int64_t keys, double *loss_heads,
                                            const tess_view *dq_low, const tess_view *dk_low);

/* low = x w^T for each head: x batch x heads x tokens x head_dim, w (heads, rank, head_dim), low
 * batch x heads x tokens x rank, all F32. */
TESS_API tess_status tess_predict_map(tess_predict *predict, const tess_view *x, const float *w,
                                      const tess_view *low);

/* dw (heads, rank, head_dim) += sum over samples and rows of dlow_i x_rows[i], dlow being batch x
 * heads x n_rows x rank. rows ascend; NULL: all tokens, and n_rows is not read. The same bits for
 * every number of threads. */
TESS_API tess_status tess_predict_map_backward(tess_predict *predict, const tess_view *x,
                                               const tess_view *dlow, const int64_t *rows,
                                               int64_t n_rows, float *dw);

/* ---- how sparse attention is ----------------------------------------------------------------- */

typedef struct {
    const tess_view *q, *k; /* F32, batch x heads x tokens x head_dim */
    int head_dim;           /* a multiple of 8 up to 256 */
    float scale;            /* above 0; 0: 1 / sqrt(head_dim) */
    const float *lse;       /* (batch, heads, tokens_q) over all keys, as dense attention gives
                               it; saves one of two passes. NULL: computed */
    const tess_sel_shape *groups; /* batch, heads, tokens, groups of queries, units of keys */
    double mass;                  /* the share of softmax mass to reach; above 0, at most 1 */
    int32_t every, first; /* measures groups first, first + every, ...; 0 and more than there
                             are groups are 1 and all of them; first counts modulo every */
    double quantile;      /* 0: the mean over groups, weighted by their queries; above 0, at
                             most 1: what this share of the groups does not exceed */
} tess_density_in;

/* density (batch, heads) = units that a group of queries needs to reach `mass` of their softmax,
 * summed over the group, as a share of all units. Queries whose softmax is not finite are left
 * out; a head without others has density 1. The same bits for every number of threads. ESTOPPED if
 * the context's progress callback asks for it. */
TESS_API tess_status tess_density_measure(tess_ctx *ctx, const tess_density_in *in,
                                          double *density);

/* ratio (batch, heads) = what sharing one set costs the queries of a group: the mass of its K best
 * units / the mean mass of each query's own K best, mean over groups weighted by their queries; 1:
 * nothing. K is `keys`, or 0: what the group's queries need for `mass` on their own, their mean
 * rounded up. Heads without finite queries have ratio 0. lse and quantile are not read. */
TESS_API tess_status tess_overlap_measure(tess_ctx *ctx, const tess_density_in *in, int32_t keys,
                                          double *ratio);

/* ---- what attention takes ------------------------------------------------------------------- */

/* Attention of one head of one sample. */
typedef struct {
    int head_dim;          /* a multiple of 8 up to 256 */
    int64_t queries, keys; /* 1..2^31-1 */
    int32_t group, unit;   /* rows; 1 or more */
    int compensate;        /* virtual keys, as in tess_attn_shape */
    int proj_dim;          /* of the predictor that selects, a multiple of 8 up to 64; 0: lists are
                              given, and selecting them takes no time */
    int backward;          /* 1: the backward pass too */
    double seconds;        /* CPU time to spend, about, 0..3600; 0: 1 */
    tess_precision precision; /* of attention's products */
} tess_attn_rates_shape;

/* Rates of one thread, in ns. */
typedef struct {
    double dense;        /* of a (query, key) pair of dense attention */
    double sparse;       /* of a pair of a list */
    double per_row;      /* of a query row besides its pairs, its selection included */
    double per_row_cold; /* forward: the same on a list of one unit, its data in no cache */
    double per_part; /* forward: per_row_cold and tess_attn_merge: a further key part of a ring */
} tess_attn_rates;

/* Measures rates[0], of the forward pass, and with shape->backward rates[1], of the backward pass,
 * on this machine; long sequences on some of their queries and keys. Memory comes from the
 * context's allocator, without being counted in the context. */
TESS_API tess_status tess_attn_measure(const tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                       tess_attn_rates rates[2]);

/* ---- when sparse attention pays -------------------------------------------------------------- */

/* Sparse attention of density d takes ns_sparse_fixed + d ns_sparse_per_density, predictor and
 * selection included, forward and backward together. */
typedef struct {
    double density; /* at which it takes as long as dense attention; 0: never pays, 1: always */
    double ns_dense, ns_sparse_fixed, ns_sparse_per_density;
    int cached; /* 1: from the folder */
} tess_break_even_result;

/* When sparse attention pays, by tess_attn_measure. With an existing folder the result is stored in
 * a file of its own for this CPU, instruction set, version and shape, and found there the next
 * time. A file that does not fit or cannot be written costs a warning in the context's log, and
 * nothing else. folder NULL: always measured. */
TESS_API tess_status tess_break_even(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                     const char *folder, tess_break_even_result *result);

TESS_END_DECLS

#endif
