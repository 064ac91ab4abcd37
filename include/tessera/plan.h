/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - the planner: sparse attention of one layer or step, balanced over any number of ranks.
 *
 * Work comes in as block masks, selections, head weights or densities, and is counted in units: a
 * selected block of a mask, a pair of tokens of a selection or a density, whatever a weight means.
 * Counts are integers, so that every rank, compiler and machine decides the same.
 *
 *   tess_work *work;
 *   tess_work_from_masks(ctx, &masks, &work);             // or _load, _from_selection, ...
 *   double rho;
 *   tess_work_imbalance(work, 0, 8, 1, TESS_RHO_RING, &rho);      // layer 0 on 8 ranks, as it is
 */
#ifndef TESSERA_PLAN_H
#define TESSERA_PLAN_H

#include "attn.h"
#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- work --------------------------------------------------------------------------------- */

typedef struct tess_work tess_work;

typedef struct {
    int layers, heads;
    int32_t q_blocks, k_blocks;
    int64_t tokens_q, tokens_k; /* 0: unknown, a block then counts as one row */
    int32_t group, unit;        /* rows of a query block and of a key block (the last may be
                                   shorter); 0 where blocks have sizes of their own */
    int masks;                  /* 1: the work of each (query block, key block) is known; 0: that of
                                   each head, taken as spread evenly over its rows */
    double unit_pairs;          /* (query, key) pairs of tokens a unit stands for; 0: unknown */
    int64_t total;              /* units, over layers and heads; below 2^63 */
} tess_work_info;

/* Block masks (layers, heads, q_blocks, k_blocks), 1..65536 layers and heads, at least one block on
 * each side. Tokens and the rows of a block are all given, so that blocks of `group` rows make
 * q_blocks of tokens_q and blocks of `unit` rows k_blocks of tokens_k, or all 0. */
typedef struct {
    int layers, heads;
    int32_t q_blocks, k_blocks;
    const void *data;
    tess_mask_kind kind;
    int64_t tokens_q, tokens_k;
    int32_t group, unit;
} tess_mask_set;

/* A unit is a selected block. */
TESS_API tess_status tess_work_from_masks(tess_ctx *ctx, const tess_mask_set *masks,
                                          tess_work **work);

/* Other masks of the same layers, heads and blocks; allocates nothing. */
TESS_API tess_status tess_work_set_masks(tess_work *work, const tess_mask_set *masks);

/* Masks from a file with one tensor: BOOL, or U8 of 0 and 1, ([layers,] heads, q_blocks, k_blocks).
 * blocks gives tokens_q, tokens_k, group and unit; its other fields are ignored. NULL: unknown. */
TESS_API tess_status tess_work_load(tess_ctx *ctx, const char *path, const tess_mask_set *blocks,
                                    tess_work **work);

/* One selection for each of n layers, all of the same shape and of batch 1. A unit is a pair of
 * tokens. */
TESS_API tess_status tess_work_from_selection(tess_ctx *ctx, const tess_selection *const *layers,
                                              int n, tess_work **work);

/* weights (layers, heads), 0 or more, of any unit; spread over q_blocks query blocks, as many key
 * blocks, and their tokens, of which nothing is known. */
TESS_API tess_status tess_work_from_weights(tess_ctx *ctx, const int64_t *weights, int layers,
                                            int heads, int32_t q_blocks, tess_work **work);

/* density (layers, heads), 0..1: the share of all tokens^2 pairs that a head computes, rounded to
 * the nearest number of pairs. A unit is a pair; blocks have `group` rows on both sides. */
TESS_API tess_status tess_work_from_density(tess_ctx *ctx, const double *density, int layers,
                                            int heads, int64_t tokens, int32_t group,
                                            tess_work **work);

TESS_API tess_status tess_work_query(const tess_work *work, tess_work_info *info);
TESS_API tess_status tess_work_loads(const tess_work *work, int layer,
                                     int64_t *loads); /* (heads): units */
TESS_API tess_status tess_work_rows(const tess_work *work, int layer, int head,
                                    int64_t *loads); /* (q_blocks) */
TESS_API void tess_work_destroy(tess_work *work);

/* ---- imbalance ---------------------------------------------------------------------------- */

/* Where ranks wait for each other in the `ring` iterations of a layer. */
typedef enum {
    TESS_RHO_GLOBAL, /* all of them, after each iteration */
    TESS_RHO_RING,   /* the ranks of a ring, after each iteration */
    TESS_RHO_FREE,   /* nobody before the end */
} tess_rho_form;

/* How many times longer a layer takes than with the work spread evenly, without any plan: heads cut
 * into `ulysses` runs (1..65536), blocks into `ring` runs (1..4096), uneven remainders to the
 * first. In iteration i rank r of a ring computes its queries against key run (r + i) mod ring. 1
 * where there is no work. Without masks the work of a head is even over its keys too. */
TESS_API tess_status tess_work_imbalance(const tess_work *work, int layer, int ulysses, int ring,
                                         tess_rho_form form, double *rho);

#ifdef __cplusplus
}
#endif

#endif
