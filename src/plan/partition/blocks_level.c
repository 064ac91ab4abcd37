/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_level.c - parts of blocks made even by few exchanges.
 *
 * As long as the heaviest part is above a limit, one of its blocks changes places with one of the
 * lightest part: the two whose difference is nearest to half the gap between the parts. This moves
 * few blocks where parts are nearly even from the start, while a greedy distributes all of
 * them afresh. By the reward's rule an exchange must lighten the heavier part by more than
 * reward / 64 of the weight that leaves its own part.
 *
 * Blocks of a part are kept in ascending order of weight, so that the best pair is found by walking
 * both parts once. Cost: O(n / parts) per exchange, at most n exchanges.
 */
#include "ring.h"

typedef struct {
    const tess__level_job *job;
    int32_t *order;
    int64_t *sums; /* (parts) */
} state;

typedef struct {
    int32_t at, bt; /* places in the heavier and the lighter part; -1: none */
    int64_t d;      /* what goes from the one to the other, */
    int64_t gain;   /* and by how much the heavier of the two becomes lighter */
} pair;

static int64_t weight(const state *s, int32_t place)
{
    return s->job->weights[s->order[place]];
}

static void consider(const state *s, int64_t gap, int32_t at, int32_t bt, pair *best)
{
    const int64_t d = weight(s, at) - weight(s, bt), gain = TESS_MIN(d, gap - d);
    if (gain > best->gain)
        *best = (pair){at, bt, d, gain};
}

/* The best exchange between parts a and b. */
static pair find(const state *s, int a, int b)
{
    const int32_t *const cuts = s->job->cuts;
    const int64_t gap = s->sums[a] - s->sums[b];
    pair best = {-1, -1, 0, 0};
    int32_t bt = cuts[b];
    for (int32_t at = cuts[a]; at < cuts[a + 1]; at++) {
        const int64_t wanted = weight(s, at) - gap / 2;
        while (bt < cuts[b + 1] && weight(s, bt) < wanted)
            bt++;
        if (bt < cuts[b + 1])
            consider(s, gap, at, bt, &best);
        if (bt > cuts[b])
            consider(s, gap, at, bt - 1, &best);
    }
    return best;
}

/* Moves the block at a place of a part to where the part ascends again. */
static void settle(state *s, int part, int32_t at)
{
    const int32_t block = s->order[at], *const cuts = s->job->cuts;
    const int64_t w = s->job->weights[block];
    for (; at > cuts[part] && weight(s, at - 1) > w; at--)
        s->order[at] = s->order[at - 1];
    for (; at + 1 < cuts[part + 1] && weight(s, at + 1) < w; at++)
        s->order[at] = s->order[at + 1];
    s->order[at] = block;
}

/* The weight that leaves its own part less the weight that returns to it. */
static double moved(const state *s, int32_t place, int from, int to)
{
    const int32_t own_part = s->job->own_part[s->order[place]];
    return (double)weight(s, place) * ((to != own_part) - (from != own_part));
}

static void make(state *s, int a, int b, const pair *p)
{
    const int32_t out = s->order[p->at];
    s->order[p->at] = s->order[p->bt];
    s->order[p->bt] = out;
    settle(s, a, p->at);
    settle(s, b, p->bt);
    s->sums[a] -= p->d;
    s->sums[b] += p->d;
}

/* Sums of contiguous parts, and their blocks in ascending order of weight. */
static void begin(tess__partition_scratch *space, state *s)
{
    const tess__level_job *const job = s->job;
    for (int part = 0; part < job->parts; part++) {
        s->sums[part] = 0;
        space->counts[part] = 0;
    }
    tess__sort_loads(job->weights, job->n, space->order, space->order_swap);
    for (int32_t i = job->n - 1; i >= 0; i--) {
        const int32_t block = space->order[i], part = job->own_part[block];
        s->order[job->cuts[part] + space->counts[part]++] = block;
        s->sums[part] += job->weights[block];
    }
}

int tess__blocks_level(tess__partition_scratch *space, const tess__level_job *job, int32_t *order)
{
    state s = {job, order, space->sums};
    begin(space, &s);
    for (int32_t round = 0; round < job->n; round++) {
        int a = 0, b = 0;
        for (int part = 1; part < job->parts; part++) {
            a = s.sums[part] > s.sums[a] ? part : a;
            b = s.sums[part] < s.sums[b] ? part : b;
        }
        if ((double)s.sums[a] <= job->limit)
            return 1;
        const pair best = find(&s, a, b);
        if (best.at < 0 || !tess__is_worth(job->reward, 8.0 * (double)best.gain,
                                           moved(&s, best.at, a, b) + moved(&s, best.bt, b, a)))
            return 0;
        make(&s, a, b, &best);
    }
    return 0;
}
