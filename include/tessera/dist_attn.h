/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn.h - attention over many ranks: the executor of a plan's pieces, forward and backward.
 *
 * Every rank owns some rows of q, k, v of all heads, its rows at home. A plan says which rank
 * computes which query blocks of which heads. The executor brings rows to the ranks that compute
 * with them, attends there, densely or on lists that a callback chooses, and brings the outputs
 * home; backward the same with gradients. The result is that of one rank on the same lists, to
 * rounding: rings merge outputs part by part, and gradients of keys are sums over ranks.
 *
 *   tess_dist_attn *da;
 *   tess_dist_attn_create(ctx, comm, &opts, &da);
 *   tess_dist_attn_plan(da, plan);                          // the same plan on every rank
 *   tess_dist_call call = {.layer = l, .save = l, .choose = choose, .user = user};
 *   tess_dist_attn_forward(da, &call, &q, &k, &v, &o, NULL);
 *   tess_dist_attn_backward(da, &call, &dout, &dq, &dk, &dv);
 *
 * Forward and backward are collective: all ranks call them in the same order with the same layer,
 * and with lse and the low-rank views given on all ranks or on none. What fails on one rank fails
 * on all, with its sentence; wrong arguments on one rank alone are for tess_comm_fail.
 */
#ifndef TESSERA_DIST_ATTN_H
#define TESSERA_DIST_ATTN_H

#include "attn.h"
#include "base.h"
#include "comm.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_dist_attn tess_dist_attn;
typedef struct tess_union_counts tess_union_counts; /* of a context-parallel group: cp.h */

/* Arrays are copied. Ranges ascend from 0 to tokens and none is empty, those of bounds may be. */
typedef struct {
    int batch, heads;      /* 1..65536 */
    int head_dim;          /* a multiple of 8 up to 256 */
    float scale;           /* 0: 1 / sqrt(head_dim) */
    int compensate;        /* 1: a virtual key stands for the keys a list leaves out */
    int64_t tokens;        /* of a sample, over all ranks; 1..2^31-1 */
    const int64_t *bounds; /* (ranks + 1): rank p has rows bounds[p]..bounds[p + 1] - 1 at home */
    int32_t n_groups;      /* query groups of selections; 0: none, dense attention only */
    const int64_t *groups; /* (n_groups + 1) */
    int32_t n_units;       /* key units of selections; ignored where units is NULL */
    const int64_t *units;  /* (n_units + 1); NULL: single rows */
    int32_t units_most;    /* of a list; 0: all */
    int proj_dim; /* elements of the low-rank vectors that travel for the selector; 0: none */
    int saves;    /* sets kept between forward and backward; 0: forward only */
} tess_dist_attn_opts;

/* Of the communicator's ranks; it stays the caller's and is used until the executor is destroyed.
 * Not collective. */
TESS_API tess_status tess_dist_attn_create(tess_ctx *ctx, tess_comm *comm,
                                           const tess_dist_attn_opts *opts,
                                           tess_dist_attn **dist_attn);

/* The plan whose layer l serves calls with layer l; it is not kept. Its query blocks begin where
 * groups do, its key blocks where units do. Makes the lists of rows and reserves all memory:
 * nothing is allocated in forward and backward of a layer without selective keys. Saved sets and
 * what was seen are void afterwards. Not collective, and after a failure the plan before remains:
 * ranks agree on the status before they go on. */
TESS_API tess_status tess_dist_attn_plan(tess_dist_attn *dist_attn, const tess_plan *plan);

/* ---- choosing keys ------------------------------------------------------------------------- */

/* One share: query rows of one head that this rank computes. Views are of one sample and head. */
typedef struct {
    int layer, sample, head;
    int32_t n_groups;
    const int32_t *groups;  /* (n_groups): numbers of the groups of the share's rows, in order */
    const tess_view *q;     /* (rows of the share, head_dim) */
    const tess_view *k;     /* (tokens, head_dim), in token order; NULL where this rank has not all
                               keys: rings and selective layers */
    const tess_view *q_low; /* (rows of the share, proj_dim); NULL without */
    const tess_view *k_low; /* (tokens, proj_dim), in token order */
} tess_share_in;

/* Called on the rank that computes, once for each sample and share, before its attention. Fills
 * `lists`, a selection of batch 1 and heads 1 that has the share's groups and all key units in
 * token order, with room for units_most in each list; or sets *dense = 1 and leaves them alone. */
typedef tess_status (*tess_share_fn)(void *user, const tess_share_in *in, tess_selection *lists,
                                     int *dense);

/* ---- forward and backward ------------------------------------------------------------------ */

typedef struct {
    int layer;            /* of the plan */
    int save;             /* which set keeps what the backward pass needs, 0..saves-1; -1: none, and
                             the last set is void afterwards */
    tess_share_fn choose; /* NULL: dense. Forward only */
    void *user;
    const tess_view *q_low, *k_low; /* batch x heads x rows at home x proj_dim; NULL: none travel.
                                       Forward only */
    const tess_union_counts
        *unions; /* tess_cp_info.unions: selected keys are counted there while the
                                  group measures them; NULL: not counted. Forward only */
} tess_dist_call;

/* o = softmax(scale q k^T, restricted to the lists) v, over all ranks' rows.
 *
 *   q, k, v, o: batch x heads x rows at home x head_dim, F32, any strides
 *   lse:        (batch, heads, rows at home), may be NULL; 4 bytes more of each row travel for it
 */
TESS_API tess_status tess_dist_attn_forward(tess_dist_attn *dist_attn, const tess_dist_call *call,
                                            const tess_view *q, const tess_view *k,
                                            const tess_view *v, const tess_view *o, float *lse);

/* The gradients of the forward call with this layer and set, from what the set keeps: q, k, v, o
 * and lse where they were computed, and the lists as bits. All F32, overwritten. dk and dv are
 * summed over the ranks that computed with a key, in rank order: the same bits on every run. */
TESS_API tess_status tess_dist_attn_backward(tess_dist_attn *dist_attn, const tess_dist_call *call,
                                             const tess_view *dout, const tess_view *dq,
                                             const tess_view *dk, const tess_view *dv);

/* ---- what was seen ------------------------------------------------------------------------- */

/* Of the last forward call of a layer, and the backward calls since. Times are of the
 * communicator's clock, and of this rank. */
typedef struct {
    const double
        *density;        /* (batch, heads): pairs attended to by all pairs, the same on all ranks */
    int64_t attend_ns;   /* attention */
    int64_t exchange_ns; /* inside of exchanges and agreement: waiting for others, too */
    int64_t move_ns;     /* packing and unpacking rows */
    int64_t select_ns;   /* the callback; backward: lists from their bits */
    int64_t index_ns;    /* selective: finding and telling which keys are needed */
    int64_t cpu_ns;      /* CPU time of the calling thread in attention */
    int64_t bytes[TESS_TRAFFIC_COUNT]; /* sent to other ranks */
    int64_t lse_bytes;                 /* of the payload: lse on its way home */
    int64_t union_rows;                /* selective: rows of K that came from other ranks */
    int backward;                      /* 1: the backward call that followed is in it */
} tess_dist_stats;

TESS_API tess_status tess_dist_attn_stats(const tess_dist_attn *dist_attn, int layer,
                                          tess_dist_stats *seen);

TESS_API void tess_dist_attn_destroy(tess_dist_attn *dist_attn);

#ifdef __cplusplus
}
#endif

#endif
