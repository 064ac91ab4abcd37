/* SPDX-License-Identifier: Apache-2.0 */
/* greedy.c - items one after the other to the group that has the least so far.
 *
 * With items in descending order this is LPT; with a cap on the number of items it is db-SP's head
 * level; with a cap and a reward for staying in the own group it is db-SP's block level.
 *
 * The cap: n items in m groups give floor(n / m) to each and one more to n mod m of them. A group
 * is open while it has fewer than floor(n / m), or has just these and one of the n mod m larger
 * places is left. The own group of item i is the one that has it when all items are
 * distributed contiguously, the larger groups first: if every item goes there, the cap never
 * refuses one.
 *
 * The least open group is the winner of a tournament: a binary tree over the groups in which each
 * node holds the better of its two children, so that an item costs O(log m). */
#include "partition_scratch.h"

#include <string.h>

enum { CLOSED = -1 };

typedef struct {
    const tess__greedy_job *job;
    int64_t *sums;
    int32_t *counts, *tree;
    int leaves;
    int32_t least, larger; /* floor(n / m), and how many groups may still have one more */
} state;

/* The better of two groups; a is the lower one, which wins ties. */
static int32_t better(const state *s, int32_t a, int32_t b)
{
    if (a == CLOSED || b == CLOSED)
        return a == CLOSED ? b : a;
    const int64_t *const v = s->job->speeds;
    return tess__sooner(s->sums[b], tess__speed(v, b), s->sums[a], tess__speed(v, a)) ? b : a;
}

static void play(state *s, int node)
{
    s->tree[node] = better(s, s->tree[2 * node], s->tree[2 * node + 1]);
}

static void replay(state *s, int g)
{
    for (int node = (s->leaves + g) / 2; node >= 1; node /= 2)
        play(s, node);
}

static void begin(state *s)
{
    const int groups = s->job->groups;
    memset(s->sums, 0, (size_t)groups * sizeof *s->sums);
    memset(s->counts, 0, (size_t)groups * sizeof *s->counts);
    s->leaves = 1;
    while (s->leaves < groups)
        s->leaves *= 2;
    s->least = s->job->n / groups;
    s->larger = s->job->n % groups;
    const int open = !s->job->capped || s->least > 0 || s->larger > 0;
    for (int g = 0; g < s->leaves; g++)
        s->tree[s->leaves + g] = g < groups && open ? g : CLOSED;
    for (int node = s->leaves - 1; node >= 1; node--)
        play(s, node);
}

/* Whether the cap lets a group have one more. */
static int open_for_more(const state *s, int g)
{
    return !s->job->capped || s->counts[g] < s->least ||
           (s->counts[g] == s->least && s->larger > 0);
}

/* Closes every group that has its floor(n / m): the last larger place is taken. */
static void close_full(state *s)
{
    for (int g = 0; g < s->job->groups; g++)
        if (!open_for_more(s, g))
            s->tree[s->leaves + g] = CLOSED;
    for (int node = s->leaves - 1; node >= 1; node--)
        play(s, node);
}

static void put(state *s, int32_t item, int g)
{
    s->sums[g] += s->job->loads[item];
    s->counts[g]++;
    if (!s->job->capped) {
        replay(s, g);
        return;
    }
    if (s->counts[g] > s->least && --s->larger == 0) {
        close_full(s);
        return;
    }
    if (!open_for_more(s, g))
        s->tree[s->leaves + g] = CLOSED;
    replay(s, g);
}

/* The own group, if it is open and its sum less the reward is below the winner's; else the winner.
 * An item without load never gains by leaving. */
static int32_t rewarded(const state *s, int32_t winner, int32_t own, int64_t load)
{
    if (own == winner || s->tree[s->leaves + own] == CLOSED)
        return winner;
    const tess__int128 stay = s->sums[own] - (tess__int128)s->job->reward * load;
    if (load == 0 || stay < s->sums[winner])
        return own;
    return stay == s->sums[winner] && own < winner ? own : winner;
}

void tess__greedy(tess__partition_scratch *space, const tess__greedy_job *job, int32_t *group_of)
{
    state s = {.job = job, .sums = space->sums, .counts = space->counts, .tree = space->tree};
    begin(&s);
    const int32_t large = (s.least + 1) * s.larger; /* items that belong to the larger groups */
    for (int32_t i = 0; i < job->n; i++) {
        const int32_t item = job->order[i];
        int32_t g = s.tree[1];
        if (job->reward > 0) {
            const int32_t own = item < large ? item / (s.least + 1)
                                             : job->n % job->groups + (item - large) / s.least;
            g = rewarded(&s, g, own, job->loads[item]);
        }
        put(&s, item, g);
        group_of[item] = g;
    }
}
