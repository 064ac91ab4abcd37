/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h - who computes what: heads to groups, blocks to ring places, fractions of
 * heads to ranks, ranges of queries to parts.
 *
 * What lives here: the partitions, as functions of integers that cannot fail. What comes in: loads
 * of heads, prefix sums of their query blocks, masks. What goes out: arrays of the caller's.
 *
 * Rules that hold everywhere:
 * - loads are int64 and not negative, their sum below 2^62; comparisons between ranks of unequal
 *   speed are exact, in 128 bits;
 * - ties are decided by (load descending, index ascending) and by the lowest group: the same input
 *   gives the same output everywhere;
 * - "time" of a load is load * (mean speed / speed), rounded up: the load itself where speeds are
 *   equal. Bounds are of times too, so that time / bound is the gap;
 * - all scratch comes from a space that is made once for a shape.
 */
#ifndef TESS_PARTITION_H
#define TESS_PARTITION_H

#include "plan/work.h"

/* ---- partition_scratch.c: scratch ------------------------------------------------------------ */

/* The largest numbers that later calls may come with. ring 0: no blocks_plan. */
typedef struct {
    int heads, ranks;
    int32_t q_blocks, k_blocks;
    int ring;
} tess__partition_scratch_shape;
typedef struct tess__partition_scratch tess__partition_scratch;
tess_status tess__partition_scratch_create(tess_ctx *ctx,
                                           const tess__partition_scratch_shape *shape,
                                           tess__partition_scratch **space);
void tess__partition_scratch_destroy(tess__partition_scratch *space); /* NULL accepted */

/* ---- heads.c, refine.c: whole heads to groups ------------------------------------------------ */

typedef struct {
    int heads, groups;     /* 1 <= groups; groups may outnumber heads */
    const int64_t *loads;  /* (heads) */
    const int64_t *speeds; /* (groups), 1..2^40, or NULL: equal */
    int equal_heads;       /* 1: numbers of heads differ by at most one between groups */
} tess__heads;

/* group_of[heads] by one of the methods contiguous, snake, lpt, db-sp, refined. contiguous, snake
 * and db-sp give equal numbers of heads (within one) by themselves; with equal_heads lpt is db-sp
 * and refined swaps only. refined is never worse than contiguous.
 * 40 heads in 8 groups: some ten microseconds, refined some tens. */
void tess__heads_split(tess__partition_scratch *space, const tess__heads *heads,
                       tess_plan_method method, int32_t *group_of);

/* Time of the busiest group. */
int64_t tess__heads_time(tess__partition_scratch *space, const tess__heads *heads,
                         const int32_t *group_of);

/* ---- bounds.c -------------------------------------------------------------------------------- */

/* No partition of the method's kind has a smaller time: the largest of LB0 (mean), LB1 (largest
 * head), LB2 (two of the groups + 1 largest share one) and, where numbers of heads are equal, LB3
 * (the largest head among the smallest). */
int64_t tess__heads_bound(tess__partition_scratch *space, const tess__heads *heads,
                          tess_plan_method method);

/* The bound where heads may be cut between query blocks. */
int64_t tess__fractional_bound(const tess_work *work, int layer, int ranks, const int32_t *speeds);

/* ---- blocks*.c, ring.h: query and key blocks of one ring group ------------------------------- */

typedef struct {
    const tess_work *work;
    int layer;
    const int32_t *heads;  /* (n): the heads of this ring group */
    int n, ring;           /* ring >= 1 */
    int reward;            /* R_b: 0 moves freely, 2 is db-SP's, a huge one moves nothing */
    const int32_t *speeds; /* (ring) by ring place, or NULL: equal */
} tess__ring_job;

typedef struct {
    double before, after;     /* sum over iterations of the longest tile: contiguous, and here */
    double bound;             /* nothing is below it: all the work, spread evenly */
    int64_t moved_q, moved_k; /* blocks not in the part they are in when contiguous */
} tess__ring_result;

/* q_order[q_blocks], k_order[k_blocks]: the block at each place; q_cuts, k_cuts[ring + 1]: places
 * where the parts begin. Blocks ascend inside a part; part sizes differ by at most one (with
 * speeds those of queries follow the work). Rank r computes its queries against key part
 * (r - s) mod ring in iteration s. after <= before always, and nothing moves where it is not less,
 * as without masks. Fails only with ENOMEM. 40 heads of 1184 x 1184 blocks, ring 8: 0.6 to 7 ms. */
tess_status tess__blocks_plan(tess__partition_scratch *space, const tess__ring_job *job,
                              int32_t *q_order, int32_t *k_order, int32_t *q_cuts, int32_t *k_cuts,
                              tess__ring_result *result);

/* One side alone: db-SP's biased greedy of n blocks to parts. part_of[n]. reward 0 is the capped
 * greedy of heads. */
void tess__blocks_greedy(tess__partition_scratch *space, const int64_t *weights, int32_t n,
                         int parts, int reward, int32_t *part_of);

/* ---- fractional.c ---------------------------------------------------------------------------- */

typedef struct {
    const tess_work *work;
    int layer, ranks, nodes;
    const int32_t *speeds; /* (ranks) or NULL: equal */
    int slack; /* parts per million of the mean load by which the busiest rank may exceed
                  it where that saves copies of K/V; 0: 4000; -1: none */
} tess__fraction_job;

typedef struct {
    int64_t n;      /* shares */
    int64_t copies; /* of K/V beyond one per head: shares - heads */
    int64_t time;   /* of the busiest rank */
} tess__fraction_result;

/* shares[heads + ranks], ascending by (rank, head): every head exactly once, any number of ranks.
 * A rank without work has no share. */
void tess__fractional(tess__partition_scratch *space, const tess__fraction_job *job,
                      tess_share *shares, tess__fraction_result *result);

/* ---- query_cuts.c: selective ----------------------------------------------------------------- */

/* q_cuts[parts + 1]: contiguous ranges of query blocks such that the busiest part, over these
 * heads together, is as short as contiguous ranges allow. parts may outnumber the blocks: then some
 * are empty. Cutting evenly is tess__even_cut. */
void tess__cuts_by_work(tess__partition_scratch *space, const tess_work *work, int layer,
                        const int32_t *heads, int n, int parts, const int32_t *speeds,
                        int32_t *q_cuts);

#endif
