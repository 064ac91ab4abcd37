/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_search.c - exchanges of blocks between the parts of a ring group.
 *
 * Blocks i of part a and j of part b change places if the pass of the ring becomes shorter by
 *
 *   gain > 0   and   gain * ring * 8 > reward * (weight that leaves its own part - that returns)
 *
 * so that a reward of 0 takes whatever helps and a large one moves nothing. Whole parts may change
 * places by the same rule. Each diagonal keeps its three longest tiles: an exchange between two
 * parts touches two ranks of a diagonal, so one of the three is the longest of the others, and an
 * exchange is judged in O(ring) (a lens, below).
 *
 * Few blocks: every exchange is tried until none helps. Where none shortens the pass, one that
 * makes the tiles of diagonals more alike may still lead on, so such steps are taken too, and all
 * is undone if the pass has not become shorter enough for what was moved. Many blocks: exchanges
 * are drawn at random, one block from a part whose tile is the longest of its diagonal; the drawing
 * is a fixed sequence.
 *
 * Work is in double here: sums of integers, exact below 2^53, and the same everywhere above.
 */
#include "ring.h"

#include <math.h>
#include <string.h>

enum {
    FEW = 32,           /* blocks of which every exchange is tried */
    FEW_PARTS = 16,     /* parts that change places as a whole */
    TRIES = 16,         /* exchanges drawn per block, */
    DRAWS = 8,          /* so many of them between the same two parts, */
    MOST_WORK = 1 << 21 /* and so many tiles read in all */
};

typedef tess__lens lens;

/* ---- exchanges ------------------------------------------------------------------------------- */

static double *tile(const tess__ring_search *ring, const tess__ring_side *side, int p, int o)
{
    return ring->tiles + (side->keys ? o * ring->ring + p : p * ring->ring + o);
}

/* Prepares parts a and b: of each diagonal, where their tiles are, and the longest of the others.
 */
static void focus(const tess__ring_search *ring, const tess__ring_side *side, int a, int b)
{
    const int n = ring->ring;
    for (int s = 0; s < n; s++) {
        lens *const l = &ring->lenses[s];
        l->oa = side->keys ? tess__wrap(a + s, n) : tess__wrap(a - s, n);
        l->ob = side->keys ? tess__wrap(b + s, n) : tess__wrap(b - s, n);
        const int ra = side->keys ? l->oa : a, rb = side->keys ? l->ob : b;
        l->a = *tile(ring, side, a, l->oa);
        l->b = *tile(ring, side, b, l->ob);
        l->slow_a = ring->slowness[ra];
        l->slow_b = ring->slowness[rb];
        int i = 0;
        while (i < 3 && (ring->place[3 * s + i] == ra || ring->place[3 * s + i] == rb))
            i++;
        l->others = i < 3 ? ring->longest[3 * s + i] : 0.0;
    }
}

/* The time of a pass when part a gives `out` to part b and gets `in`, both by part of the other
 * side. */
static double time_after(const tess__ring_search *ring, const double *out, const double *in)
{
    double sum = 0.0;
    for (int s = 0; s < ring->ring; s++) {
        const lens *const l = &ring->lenses[s];
        const double ta = (l->a + (in[l->oa] - out[l->oa])) * l->slow_a;
        const double tb = (l->b - (in[l->ob] - out[l->ob])) * l->slow_b;
        const double longer = TESS_MAX(ta, tb);
        sum += longer > l->others ? longer : l->others;
    }
    return sum;
}

static const double *work_of(const tess__ring_search *ring, const tess__ring_side *side,
                             int32_t place)
{
    return side->x + (size_t)side->order[place] * (size_t)ring->ring;
}

/* The weight that leaves its own part less the weight that returns to it when the block at a place
 * goes from one part to another. */
static double moved(const tess__ring_side *side, int32_t place, int from, int to)
{
    const int32_t block = side->order[place], own_part = side->own_part[block];
    return side->weights[block] * ((to != own_part) - (from != own_part));
}

/* A block has about 1 / ring of its weight in the longest tiles that its part can have, so a gain
 * is measured against that. */
static int is_worth(const tess__ring_search *ring, const tess__ring_side *side, double gain,
                    double weight)
{
    return tess__is_worth(side->reward, gain * ring->ring, weight);
}

/* Exchanges the blocks at two places, of parts a and b. */
static void make(tess__ring_search *ring, tess__ring_side *side, int a, int b, int32_t at,
                 int32_t bt)
{
    const double *const out = work_of(ring, side, at), *const in = work_of(ring, side, bt);
    for (int o = 0; o < ring->ring; o++) {
        *tile(ring, side, a, o) += in[o] - out[o];
        *tile(ring, side, b, o) -= in[o] - out[o];
    }
    const int32_t block = side->order[at];
    side->order[at] = side->order[bt];
    side->order[bt] = block;
}

/* Brings the longest tiles up to date after parts a and b changed: diagonals on which their tiles
 * neither were nor are among the three stay as they are. */
static void update_parts(tess__ring_search *ring, const tess__ring_side *side, int a, int b)
{
    const int n = ring->ring;
    for (int s = 0; s < n; s++) {
        const int ra = side->keys ? tess__wrap(a + s, n) : a,
                  rb = side->keys ? tess__wrap(b + s, n) : b;
        const int32_t *const place = ring->place + 3 * s;
        const double third = ring->longest[3 * s + 2];
        int touched = tess__tile_time(ring, ra, tess__wrap(ra - s, n)) > third ||
                      tess__tile_time(ring, rb, tess__wrap(rb - s, n)) > third;
        for (int i = 0; i < 3; i++)
            touched |= place[i] == ra || place[i] == rb;
        if (touched)
            tess__ring_rank(ring, s);
    }
    tess__ring_add(ring);
}

static int part_size(const tess__ring_side *side, int p)
{
    return side->cuts[p + 1] - side->cuts[p];
}

/* ---- many blocks ----------------------------------------------------------------------------- */

/* Exchanges two parts of equal size as a whole if that is worth it. */
static void try_parts(tess__ring_search *ring, tess__ring_side *side, int a, int b)
{
    double *const out = ring->whole, *const in = ring->whole + ring->ring, weight = 0.0;
    for (int o = 0; o < ring->ring; o++) {
        out[o] = *tile(ring, side, a, o);
        in[o] = *tile(ring, side, b, o);
    }
    focus(ring, side, a, b);
    const double gain = ring->time - time_after(ring, out, in);
    const int size = part_size(side, a), to_b = side->cuts[b] - side->cuts[a];
    if (size != part_size(side, b) || !(gain > 0.0))
        return;
    for (int32_t at = side->cuts[a]; at < side->cuts[a + 1]; at++)
        weight += moved(side, at, a, b) + moved(side, at + to_b, b, a);
    if (!is_worth(ring, side, gain, weight))
        return;
    for (int32_t at = side->cuts[a]; at < side->cuts[a + 1]; at++)
        make(ring, side, a, b, at, at + to_b);
    update_parts(ring, side, a, b);
}

static void try_all_parts(tess__ring_search *ring, tess__ring_side *side)
{
    for (int a = 0; a < ring->ring; a++)
        for (int b = a + 1; b < ring->ring; b++)
            try_parts(ring, side, a, b);
}

/* 0..n-1 by xorshift64 star. */
static int32_t draw(uint64_t *state, int32_t n)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    const uint64_t high = *state * UINT64_C(0x2545f4914f6cdd1d) >> 32;
    return (int32_t)(high * (uint64_t)n >> 32);
}

/* Draws exchanges between parts a and b until one is made, at most DRAWS. */
static void try_blocks(tess__ring_search *ring, tess__ring_side *side, int a, int b,
                       uint64_t *random)
{
    focus(ring, side, a, b);
    for (int i = 0; i < DRAWS; i++) {
        const int32_t at = side->cuts[a] + draw(random, part_size(side, a));
        const int32_t bt = side->cuts[b] + draw(random, part_size(side, b));
        const double gain =
            ring->time - time_after(ring, work_of(ring, side, at), work_of(ring, side, bt));
        if (gain > 0.0 &&
            is_worth(ring, side, gain, moved(side, at, a, b) + moved(side, bt, b, a))) {
            make(ring, side, a, b, at, bt);
            update_parts(ring, side, a, b);
            return;
        }
    }
}

/* Draws until the pass is short enough, or became shorter by less than a 1024th while a quarter of
 * the tries were spent, or all are spent. */
static void try_many(tess__ring_search *ring, tess__ring_side *side, double enough)
{
    uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
    const int64_t affordable = MOST_WORK / ring->ring, wanted = (int64_t)side->n * TRIES;
    const int64_t tries = TESS_MIN(wanted, affordable) / DRAWS;
    double watched = INFINITY;
    for (int64_t t = 0; t < tries && ring->time > enough; t++) {
        if (t % (tries / 4 + 1) == 0) {
            if (ring->time > watched * (1.0 - 1.0 / 1024))
                return;
            watched = ring->time;
        }
        const int s = draw(&random, ring->ring), r = ring->place[3 * s];
        const int a = side->keys ? tess__wrap(r - s, ring->ring) : r;
        const int b = tess__wrap(a + 1 + draw(&random, ring->ring - 1), ring->ring);
        if (part_size(side, a) > 0 && part_size(side, b) > 0)
            try_blocks(ring, side, a, b, &random);
    }
}

/* ---- few blocks ------------------------------------------------------------------------------ */

/* How unlike the tiles of diagonals are: the sum of their squared distances from the mean, times
 * the ring. */
static double unlikeness(const tess__ring_search *ring)
{
    double sum = 0.0;
    for (int s = 0; s < ring->ring; s++) {
        double first = 0.0, second = 0.0;
        for (int r = 0; r < ring->ring; r++) {
            const double time = tess__tile_time(ring, r, tess__wrap(r - s, ring->ring));
            first += time;
            second += time * time;
        }
        sum += ring->ring * second - first * first;
    }
    return sum;
}

/* Makes an exchange that shortens the pass, or leaves it and makes diagonals more alike; 1 if it
 * did. */
static int step(tess__ring_search *ring, tess__ring_side *side, int a, int b, int32_t at,
                int32_t bt)
{
    const double time = ring->time, unlike = unlikeness(ring);
    make(ring, side, a, b, at, bt);
    update_parts(ring, side, a, b);
    if (ring->time < time || (ring->time == time && unlikeness(ring) < unlike))
        return 1;
    make(ring, side, a, b, at, bt);
    update_parts(ring, side, a, b);
    return 0;
}

static int step_all(tess__ring_search *ring, tess__ring_side *side)
{
    int steps = 0;
    for (int a = 0; a < ring->ring; a++)
        for (int b = a + 1; b < ring->ring; b++)
            for (int32_t at = side->cuts[a]; at < side->cuts[a + 1]; at++)
                for (int32_t bt = side->cuts[b]; bt < side->cuts[b + 1]; bt++)
                    steps += step(ring, side, a, b, at, bt);
    return steps;
}

static double away(const tess__ring_side *side, int ring)
{
    double sum = 0.0;
    for (int p = 0; p < ring; p++)
        for (int32_t at = side->cuts[p]; at < side->cuts[p + 1]; at++)
            sum += side->own_part[side->order[at]] != p ? side->weights[side->order[at]] : 0.0;
    return sum;
}

/* Sets the tiles to what the order of the side says. */
static void add_up(tess__ring_search *ring, tess__ring_side *side)
{
    memset(ring->tiles, 0, (size_t)ring->ring * (size_t)ring->ring * sizeof *ring->tiles);
    for (int p = 0; p < ring->ring; p++)
        for (int32_t at = side->cuts[p]; at < side->cuts[p + 1]; at++)
            for (int o = 0; o < ring->ring; o++)
                *tile(ring, side, p, o) += work_of(ring, side, at)[o];
    tess__ring_update(ring);
}

static void try_few(tess__ring_search *ring, tess__ring_side *side)
{
    int32_t before[FEW];
    memcpy(before, side->order, (size_t)side->n * sizeof *before);
    const double time = ring->time, weight = away(side, ring->ring);
    for (int pass = 0; pass < FEW && step_all(ring, side) > 0; pass++)
        ;
    if (is_worth(ring, side, time - ring->time, away(side, ring->ring) - weight))
        return;
    memcpy(side->order, before, (size_t)side->n * sizeof *before);
    add_up(ring, side);
}

void tess__side_search(tess__ring_search *ring, tess__ring_side *side, double enough)
{
    add_up(ring, side);
    if (ring->ring < 2 || ring->time <= enough)
        return;
    if (ring->ring <= FEW_PARTS)
        try_all_parts(ring, side);
    if (side->n <= FEW && ring->ring <= FEW_PARTS)
        try_few(ring, side);
    else
        try_many(ring, side, enough);
}
