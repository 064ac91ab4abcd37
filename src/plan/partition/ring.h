/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - one ring group inside: its tiles, and one side of them, made of blocks.
 *
 * tiles[r][c] is the work of query part r, which ring place r has, with key part c. In iteration s
 * rank r holds key part (r - s) mod R, so iteration s is the cyclic diagonal of tiles with
 * r - c = s mod R, and a pass of the ring takes
 *
 *   sum over s of the longest of diagonal s,   each tile by the speed of its rank
 *
 * A side is the query blocks or the key blocks. Block i of a side has x[i][o] work with part o of
 * the other side; exchanging blocks between parts a and b changes the tiles of these two parts.
 */
#ifndef TESS_RING_H
#define TESS_RING_H

#include "partition_scratch.h"

/* One diagonal as exchanges between two parts a and b of a side see it. */
typedef struct {
    double a, b;           /* the tiles of the two parts, */
    double slow_a, slow_b; /* the slowness of their ranks, */
    int32_t oa, ob;        /* their parts of the other side, */
    double others;         /* and the longest of all other tiles */
} tess__lens;

typedef struct tess__ring_search {
    int ring;
    double time;        /* of a pass */
    double *tiles;      /* (ring, ring): query part, key part */
    double *slowness;   /* (ring): mean speed / speed of each place; 1 where speeds are equal */
    double *longest;    /* (3 * ring): the three longest of each diagonal, */
    int32_t *place;     /* (3 * ring): and whose they are; -1 where there are fewer */
    tess__lens *lenses; /* (ring) */
    double *whole;      /* (2 * ring): tiles of two parts */
} tess__ring_search;

typedef struct {
    int keys;                /* 1: key blocks; 0: query blocks */
    int32_t n;               /* blocks */
    const double *x;         /* (n, ring) */
    const double *weights;   /* (n): sums of x over the ring */
    const int32_t *cuts;     /* (ring + 1): places of each part */
    int32_t *order;          /* (n): block at each place; parts are sets, in any order */
    const int32_t *own_part; /* (n): part of a block where none is moved */
    double reward;
} tess__ring_side;

/* ---- blocks_order.c: parts of blocks --------------------------------------------------------- */

/* order[n] and cuts[parts + 1] of blocks whose parts are given, ascending inside each part. */
void tess__parts_order(const int32_t *part_of, int32_t n, int parts, int32_t *order, int32_t *cuts);

/* Sorts the blocks inside each part. */
void tess__parts_sort(tess__partition_scratch *space, int32_t n, int parts, int32_t *order,
                      int32_t *cuts);

/* Blocks as they are numbered, in parts as even as can be; own_part[n] is their part. */
void tess__parts_contiguous(int32_t n, int parts, int32_t *order, int32_t *cuts, int32_t *own_part);

/* How many blocks are not in their own part. */
int64_t tess__parts_moved(const int32_t *order, const int32_t *cuts, int parts,
                          const int32_t *own_part);

/* ---- exchanges ------------------------------------------------------------------------------- */

/* The rule of the reward: whether shortening something by `gain` is worth that blocks of `weight`
 * leave their part. A reward of 8 asks for the whole weight. */
static inline int tess__is_worth(double reward, double gain, double weight)
{
    return gain > 0.0 && gain * 8 > reward * weight;
}

/* blocks_level.c: exchanges blocks between contiguous parts until none is above the limit; 1 if
 * that is reached. order[n] is written, by parts. */
typedef struct {
    const int64_t *weights; /* (n) */
    int32_t n;
    int parts;
    const int32_t *cuts, *own_part; /* of contiguous parts */
    double reward, limit;
} tess__level_job;
int tess__blocks_level(tess__partition_scratch *space, const tess__level_job *job, int32_t *order);

/* ---- ring.c ---------------------------------------------------------------------------------- */

/* i mod ring, of -ring <= i < 2 * ring. */
static inline int tess__wrap(int i, int ring)
{
    return i < 0 ? i + ring : i >= ring ? i - ring : i;
}

static inline double tess__tile_time(const tess__ring_search *ring, int r, int c)
{
    return ring->tiles[r * ring->ring + c] * ring->slowness[r];
}

/* Sets longest and place of one diagonal by its tiles; time by longest; all of them. */
void tess__ring_rank(tess__ring_search *ring, int s);
void tess__ring_add(tess__ring_search *ring);
void tess__ring_update(tess__ring_search *ring);

/* ---- blocks_search.c ------------------------------------------------------------------------- */

/* Sets the tiles by the side's x and order, then exchanges blocks between parts as long as that
 * shortens the pass enough for the reward and it is longer than `enough`; keeps order and tiles up
 * to date. */
void tess__side_search(tess__ring_search *ring, tess__ring_side *side, double enough);

#endif
