/* SPDX-License-Identifier: Apache-2.0 */
/* partition_scratch.h - scratch of the partitions, and the few things that all of them use.
 *
 * A space is one arena. Between two calls the arrays hold nothing of value, so a function may
 * use any array that no function it calls uses; the comments name the users.
 */
#ifndef TESS_SPACE_H
#define TESS_SPACE_H

#include "partition.h"

/* Products of loads and speeds. */
typedef __int128 tess__int128;

/* A set of at most two heads of a group. */
enum { TESS__HEAD_SETS_MAX = 1024 };
typedef struct {
    int64_t load;
    int32_t n, head[2];
} tess__head_set;

/* n: the most of heads, query blocks and key blocks; m: ranks. */
struct tess__partition_scratch {
    tess__arena arena; /* the space lies in it */
    tess__partition_scratch_shape shape;
    int32_t *order, *order_swap; /* (n): sort_loads.c; order also for who sorted */
    int64_t *sums;               /* (m): loads of groups */
    int32_t *counts;             /* (m): members of groups */
    int32_t *tree;               /* (2 * leaves): greedy.c */
    int32_t *next, *first;       /* (n), (m): refine.c, members of groups as lists */
    tess__head_set *some[2];     /* (TESS__HEAD_SETS_MAX): refine.c, sets of members */
    int32_t *start;              /* (n): heads.c, a partition to compare with */
    int64_t *prefix;             /* (q_blocks + 1): query_cuts.c */
    /* With shape.ring: blocks.c. b: the most of query and key blocks. */
    int64_t *weights;     /* (b) */
    double *x, *x_sums;   /* (b, ring), (b) */
    int64_t *tiles;       /* (ring, ring) */
    int32_t *part_of;     /* (b) */
    int32_t *own_part[2]; /* (q_blocks), (k_blocks): parts where no block moves */
    int32_t *kept;        /* (2 * b + 2 * ring + 2): orders and cuts put aside, */
    double *kept_tiles;   /* (ring, ring): and their tiles */
    struct tess__ring_search *ring;
    /* Fractional heads. */
    struct tess__fraction *fraction;
};

/* sort_loads.c: order[n] = indices by (load descending, index ascending); swap[n] is scratch. */
void tess__sort_loads(const int64_t *loads, int32_t n, int32_t *order, int32_t *swap);

/* greedy.c: items, in the order given, to the group that then has the least time, the lowest of
 * equals. */
typedef struct {
    int32_t n;
    int groups;
    const int64_t *loads;  /* (n) */
    const int32_t *order;  /* (n) */
    const int64_t *speeds; /* (groups), or NULL */
    int capped;            /* 1: numbers of items differ by at most one between groups */
    int reward; /* an item stays in its own group while that leads by reward times its load */
} tess__greedy_job;
void tess__greedy(tess__partition_scratch *space, const tess__greedy_job *job, int32_t *group_of);

/* refine.c: exchanges of at most `most` heads (1 or 2) for as many, until none helps or about
 * `budget` of them were compared. */
void tess__refine(tess__partition_scratch *space, const tess__heads *heads, int most,
                  int64_t budget, int32_t *group_of);

/* 1 if load a takes less time at speed va than load b at speed vb. */
static inline int tess__sooner(int64_t a, int64_t va, int64_t b, int64_t vb)
{
    return (tess__int128)a * vb < (tess__int128)b * va;
}

static inline int64_t tess__speed(const int64_t *speeds, int g)
{
    return speeds ? speeds[g] : 1;
}

/* load * total / (n * speed), rounded up: the time of a load at one of n speeds that add up to
 * total. */
static inline int64_t tess__time(int64_t load, int64_t speed, int64_t total, int n)
{
    const tess__int128 per = (tess__int128)speed * n;
    return (int64_t)(((tess__int128)load * total + per - 1) / per);
}

#endif
