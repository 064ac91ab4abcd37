/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn.h - attention over many ranks: the executor of a plan's pieces, forward and backward.
 *
 * Every rank owns some rows of q, k, v of all heads, its local rows. A plan assigns the query
 * blocks of each head to computing ranks. The executor sends rows to the computing ranks, computes
 * attention there, dense or on lists that a callback selects, and returns the outputs to the owner
 * ranks; backward does the same with gradients. The result is that of one rank on the same lists,
 * up to rounding: rings merge partial outputs, and gradients of keys are sums over ranks.
 *
 *   tess_dist_attn *da;
 *   tess_dist_attn_create(ctx, comm, &opts, &da);
 *   tess_dist_attn_plan(da, plan);                          // the same plan on every rank
 *   tess_dist_call call = {.layer = l, .save = l, .choose = choose, .user = user};
 *   tess_dist_attn_forward(da, &call, &q, &k, &v, &o, NULL);
 *   tess_dist_attn_backward(da, &call, &dout, &dq, &dk, &dv);
 *
 * Forward and backward are collective: all ranks call them in the same order with the same layer,
 * and pass lse and the projected views on all ranks or on none. A failure on one rank is returned
 * on all, with its sentence; after wrong arguments on one rank alone the caller calls
 * tess_comm_fail.
 */
#ifndef TESSERA_DIST_ATTN_H
#define TESSERA_DIST_ATTN_H

#include "attn.h"
#include "base.h"
#include "comm.h"
#include "plan.h"

TESS_BEGIN_DECLS

typedef struct tess_dist_attn tess_dist_attn;
typedef struct tess_union_counts tess_union_counts; /* of a context-parallel group: cp.h */

/* Arrays are copied. Ranges ascend from 0 to tokens and none is empty, those of bounds may be. */
typedef struct {
    int batch, heads;      /* 1..65536 */
    int head_dim;          /* a multiple of 8 up to 256 */
    float scale;           /* 0: 1 / sqrt(head_dim) */
    int compensate;        /* virtual keys that represent the keys that a list omits, as in
                              tess_attn_shape */
    int64_t tokens;        /* of a sample, over all ranks; 1..2^31-1 */
    const int64_t *bounds; /* (ranks + 1): rank p owns rows bounds[p]..bounds[p + 1] - 1 */
    int32_t n_groups;      /* query groups of selections; 0: none, dense attention only */
    const int64_t *groups; /* (n_groups + 1) */
    int32_t n_units;       /* key units of selections; ignored where units is NULL */
    const int64_t *units;  /* (n_units + 1); NULL: single rows */
    int32_t units_most;    /* longest list; 0: all units */
    int proj_dim;   /* elements of the projected q and k that are sent for the selector; 0: none */
    int saves;      /* sets of saved activations; 0: forward only */
    int group_rows; /* 1: the callback may say which query rows each group of a share has */
    tess_precision precision; /* of attention's products; FP32 with exact */
    int exact; /* 1: every query block of a plan is a share of its own, and the gradients of
                       keys are added in fixed point (units of 2^-46, parts below 32: else dq is
                       NaN), so that the bits do not depend on which rank computes what. Plans
                       with rings or selective layers are refused */
} tess_dist_attn_opts;

/* comm stays the caller's and must outlive the executor. Not collective. */
TESS_API tess_status tess_dist_attn_create(tess_ctx *ctx, tess_comm *comm,
                                           const tess_dist_attn_opts *opts,
                                           tess_dist_attn **dist_attn);

/* Calls with layer l use layer l of this plan, which is not referenced afterwards. Its query blocks
 * begin where groups do, its key blocks where units do. Builds the exchange lists and allocates all
 * memory: forward and backward of a layer without selective keys allocate nothing. Saved
 * activations and statistics are discarded. Not collective; after a failure the previous plan
 * remains: ranks agree on the status before they continue. */
TESS_API tess_status tess_dist_attn_plan(tess_dist_attn *dist_attn, const tess_plan *plan);

/* ---- selecting keys ------------------------------------------------------------------------ */

/* One share: the query rows of one head that this rank computes. Views are of one sample and head.
 * */
typedef struct {
    int layer, sample, head;
    int32_t n_groups;
    const int32_t *groups;  /* (n_groups): numbers of the query groups of the share, in order */
    const tess_view *q;     /* (rows of the share, head_dim) */
    const tess_view *k;     /* (tokens, head_dim), in token order; NULL in rings and selective
                               layers, where no rank has all keys */
    const tess_view *q_low; /* (rows of the share, proj_dim); NULL without */
    const tess_view *k_low; /* (tokens, proj_dim), in token order */
    int32_t *rows; /* (rows of the share), with group_rows: the row of the share at each place of
                      its groups, a permutation; 0, 1, .. unless the callback writes another. NULL
                      without */
} tess_share_in;

/* Called on the computing rank, once for each sample and share, before its attention. Fills
 * `lists`, a selection of batch 1 and heads 1 with the share's groups and all key units in token
 * order, with room for units_most in each list; or sets *dense = 1 and does not change the lists.
 * */
typedef tess_status (*tess_share_fn)(void *user, const tess_share_in *in, tess_selection *lists,
                                     int *dense);

/* ---- forward and backward ------------------------------------------------------------------ */

typedef struct {
    int layer;            /* of the plan */
    int save;             /* set in which activations are saved, 0..saves-1; -1: none, and the last
                             set is overwritten */
    tess_share_fn choose; /* NULL: dense. Forward only */
    void *user;
    const tess_view *q_low, *k_low; /* projected q, k: batch x heads x local rows x proj_dim; NULL:
                                       none. Forward only */
    const float
        *centroids; /* (heads, compensate, head_dim) of the first sample, where compensate is
                               above 1: a key belongs to the nearest of its head. The same on all
                               ranks; backward: those of the forward call, unless all was dense */
    int64_t
        centroids_between; /* floats to those of the next sample; 0: all samples have the same */
    const tess_union_counts
        *unions; /* tess_cp_info.unions: selected keys are counted there while the
                                  group measures them; NULL: not counted. Forward only */
} tess_dist_call;

/* o = softmax(scale q k^T, restricted to the lists) v, over all ranks' rows.
 *
 *   q, k, v, o: batch x heads x local rows x head_dim, F32, any strides
 *   lse:        (batch, heads, local rows), may be NULL; adds 4 bytes to each row that is returned
 */
TESS_API tess_status tess_dist_attn_forward(tess_dist_attn *dist_attn, const tess_dist_call *call,
                                            const tess_view *q, const tess_view *k,
                                            const tess_view *v, const tess_view *o, float *lse);

/* The gradients of the forward call with this layer and set, from the saved activations: q, k, v, o
 * and lse on the computing ranks, and the lists as bitmasks. All F32, overwritten. dk and dv are
 * summed over the ranks that computed with a key, in rank order: the same bits on every run. */
TESS_API tess_status tess_dist_attn_backward(tess_dist_attn *dist_attn, const tess_dist_call *call,
                                             const tess_view *dout, const tess_view *dq,
                                             const tess_view *dk, const tess_view *dv);

/* ---- statistics ---------------------------------------------------------------------------- */

/* Statistics of the last forward call of a layer, and the backward calls since, on this rank. Times
 * are of the communicator's clock. */
typedef struct {
    const double *density; /* (batch, heads): computed pairs / all pairs, the same on all ranks */
    int64_t attend_ns;     /* attention */
    int64_t exchange_ns;   /* communication and agreement, waiting included */
    int64_t move_ns;       /* packing and unpacking rows */
    int64_t select_ns;     /* the callback; backward: decoding of lists */
    int64_t index_ns;      /* selective: requests for keys */
    int64_t cpu_ns;        /* CPU time of the calling thread in attention */
    int64_t bytes[TESS_TRAFFIC_COUNT]; /* sent to other ranks */
    int64_t lse_bytes;                 /* of the payload: returned lse */
    int64_t union_rows;                /* selective: rows of K received from other ranks */
    int backward;                      /* 1: the following backward call is included */
} tess_dist_stats;

TESS_API tess_status tess_dist_attn_stats(const tess_dist_attn *dist_attn, int layer,
                                          tess_dist_stats *stats);

TESS_API void tess_dist_attn_destroy(tess_dist_attn *dist_attn);

TESS_END_DECLS

#endif
