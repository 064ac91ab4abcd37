/* SPDX-License-Identifier: Apache-2.0 */
/* fraction.h - fractional heads inside: a line of ranks that heads are laid on.
 *
 * Ranks stand in a line, each with room for the load it can compute in the time limit. Heads are
 * laid on the line one after the other; where a rank is full, the rest of the head goes on at the
 * next rank. A cut is between query blocks, so a rank may keep some room that the next block is too
 * large for.
 *
 * A run is a stretch of the line that begins and ends with a whole head: heads i..j on m ranks, of
 * which each has a copy of its heads' keys and values. A run of m ranks has m - 1 copies beyond one
 * per head, whatever its heads, so fewest copies are most runs.
 */
#ifndef TESS_FRACTION_H
#define TESS_FRACTION_H

#include "partition_scratch.h"

enum {
    TESS__LINE_RUNS = 128,      /* heads of which runs are searched for */
    TESS__LINE_SMALL = 8,       /* heads of which every order is searched, */
    TESS__LINE_BEST_RANKS = 32, /* on so many ranks */
    TESS__LINE_STATES = (1 << TESS__LINE_SMALL) * (TESS__LINE_SMALL + 1)
};

/* Where the line is filled up to; places are ordered by rank, then load. */
typedef struct {
    int32_t rank;
    int64_t load; /* that the rank has; 0 where nothing is on it yet */
} tess__place;

/* A cut: before a block of head order[at]. The end of a run is block 0 of the head after it. */
typedef struct {
    int32_t at, block;
} tess__cut;

typedef struct {
    int32_t begin, end;  /* heads order[begin..end) */
    int32_t rank, ranks; /* on these */
} tess__fraction_run;

struct tess__fraction {
    const tess_work *work;
    int layer, ranks;
    const int32_t *speeds;
    const int64_t *wide_speeds; /* the same, or NULL */
    int64_t *all_speeds;        /* (ranks) */
    int64_t total_speed;
    int64_t *room;                        /* (ranks): the most load within the time limit */
    int32_t n;                            /* heads with work */
    int64_t *loads;                       /* (heads): of all heads */
    int64_t *residue;                     /* (heads): fraction_order.c */
    int32_t *order, *best_order, *spare;  /* (heads): what is on the line */
    tess__fraction_run *runs, *best_runs; /* (heads + 1) */
    int32_t n_runs, best_n;
    tess__cut *lowest; /* (ranks + 1): the first cut before each rank of a run */
    /* Search for runs: places after each head for each number of runs, and how they came about. */
    tess__place *places; /* (2, TESS__LINE_RUNS + 1), or TESS__LINE_STATES */
    uint8_t *choice;     /* (TESS__LINE_RUNS, TESS__LINE_RUNS + 1), or TESS__LINE_STATES */
};

static inline int tess__place_before(tess__place a, tess__place b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.load < b.load;
}

/* A rank that has something is closed: what follows begins on the next. */
static inline tess__place tess__place_closed(tess__place at)
{
    return at.load > 0 ? (tess__place){at.rank + 1, 0} : at;
}

/* ---- fraction_line.c ------------------------------------------------------------------------- */

/* The most load a rank computes within a time limit. */
static inline int64_t tess__line_room(const struct tess__fraction *line, int p, int64_t time)
{
    if (!line->speeds)
        return time;
    return (int64_t)((tess__int128)time * line->speeds[p] * line->ranks / line->total_speed);
}

/* Gives every rank the room of a time limit. */
void tess__line_limit(struct tess__fraction *line, int64_t time);

/* The most query blocks [0, result) of a head whose load is at most `load`, known to be `from` or
 * more. */
int32_t tess__line_reach(const struct tess__fraction *line, int32_t head, int32_t from,
                         int64_t load);

/* The place after a head is laid on the line from `at`; rank == ranks where the line is too short.
 */
tess__place tess__line_lay(const struct tess__fraction *line, int32_t head, tess__place at);

/* Cuts order[n] into the runs that make the fewest copies; returns the copies, or -1 where the line
 * is too short. */
int64_t tess__line_runs(struct tess__fraction *line);

/* ---- fraction_cut.c -------------------------------------------------------------------------- */

/* Writes the shares of one run, which fits within a time limit, as even as its order allows;
 * returns how many. */
int64_t tess__line_share(struct tess__fraction *line, const tess__fraction_run *run, int64_t time,
                         tess_share *shares);

/* ---- fraction_order.c ------------------------------------------------------------------------ */

/* Orders to lay the heads in, into line->order; the rooms are those of the time limit. */
void tess__order_descending(tess__partition_scratch *space);

/* First small sets of heads that fill ranks nearly, then the rest in its best order. Equal speeds
 * only. */
void tess__order_sums(tess__partition_scratch *space, int64_t time);

/* Groups of whole heads as `refined` makes them, those above the limit beside those below. */
void tess__order_groups(tess__partition_scratch *space, int64_t time);

/* Puts n heads, at most TESS__LINE_SMALL, into the order with the fewest copies, of all orders. */
void tess__order_best(struct tess__fraction *line, int32_t *heads, int n);

#endif
