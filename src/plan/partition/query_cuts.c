/* SPDX-License-Identifier: Apache-2.0 */
/* query_cuts.c - contiguous ranges of query blocks by their work.
 *
 * With prefix sums of the work of blocks, the least time in which `parts` ranges do is found by
 * bisection: a time suffices if taking as many blocks as fit, part after part, reaches the end.
 * Among the cuts that keep this time, each is made as near as possible to where the work before it
 * is the share of the parts before it.
 *
 * Cost: O(parts * log(blocks) * log(work)).
 */
#include "partition_scratch.h"
#include "plan/plan_internal.h"

typedef struct {
    const int64_t *prefix; /* (blocks + 1) */
    int32_t blocks;
    int parts;
    const int32_t *speeds;
    int64_t total_speed;
} line;

/* The most load that part p computes within a time. */
static int64_t room(const line *l, int p, int64_t time)
{
    if (!l->speeds)
        return time;
    return (int64_t)((tess__int128)time * l->speeds[p] * l->parts / l->total_speed);
}

/* The last place with prefix <= load, at least `from`. */
static int32_t last_within(const line *l, int32_t from, int64_t load)
{
    int32_t low = from, high = l->blocks + 1; /* prefix(low) <= load < prefix(high) */
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (l->prefix[middle] <= load)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int fits(const line *l, int64_t time)
{
    int32_t at = 0;
    for (int p = 0; p < l->parts && at < l->blocks; p++)
        at = last_within(l, at, l->prefix[at] + room(l, p, time));
    return at == l->blocks;
}

static int64_t least_time(const line *l)
{
    const int64_t all = l->prefix[l->blocks];
    int64_t low = all / l->parts - 1, high = all; /* low does not suffice */
    if (l->speeds)
        for (high = low + 1; !fits(l, high);)
            high += high - low;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (fits(l, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* The place whose prefix is nearest to `load`, the earlier of equals. */
static int32_t nearest(const line *l, int64_t load)
{
    const int32_t at = last_within(l, 0, load);
    return at < l->blocks && l->prefix[at + 1] - load < load - l->prefix[at] ? at + 1 : at;
}

static void cut(const line *l, int32_t *cuts)
{
    const int64_t time = least_time(l), all = l->prefix[l->blocks];
    /* The first places that the parts behind can do without. */
    cuts[l->parts] = l->blocks;
    for (int p = l->parts - 1; p >= 1; p--) {
        const int64_t before = l->prefix[cuts[p + 1]] - room(l, p, time);
        cuts[p] = before <= 0 ? 0 : last_within(l, 0, before - 1) + 1;
    }
    cuts[0] = 0;
    int64_t speeds = 0;
    for (int p = 1; p < l->parts; p++) {
        speeds += l->speeds ? l->speeds[p - 1] : 1;
        const int32_t ideal = nearest(l, (int64_t)((tess__int128)all * speeds / l->total_speed));
        const int32_t last =
            last_within(l, cuts[p - 1], l->prefix[cuts[p - 1]] + room(l, p - 1, time));
        const int32_t near = TESS_MAX(ideal, cuts[p]);
        cuts[p] = TESS_MIN(near, last);
    }
}

/* Prefix sums of the work of these heads together. Without masks it is spread over their rows. */
static void add_up(const tess_work *work, int layer, const int32_t *heads, int n, int64_t *prefix)
{
    const int32_t blocks = work->info.q_blocks;
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += tess__work_head(work, layer, heads ? heads[i] : i);
    for (int32_t g = 0; g <= blocks; g++)
        prefix[g] =
            work->prefix ? 0 : tess__work_share(all, tess__work_q_row(work, g), work->rows_q);
    for (int i = 0; i < n && work->prefix; i++) {
        const size_t head = tess__work_place(work, layer, heads ? heads[i] : i);
        const int64_t *sums = work->prefix + head * ((size_t)blocks + 1);
        for (int32_t g = 0; g <= blocks; g++)
            prefix[g] += sums[g];
    }
}

void tess__cuts_by_work(tess__partition_scratch *space, const tess_work *work, int layer,
                        const int32_t *heads, int n, int parts, const int32_t *speeds,
                        int32_t *q_cuts)
{
    line l = {space->prefix, work->info.q_blocks, parts, speeds, parts};
    if (speeds) {
        l.total_speed = 0;
        for (int p = 0; p < parts; p++)
            l.total_speed += speeds[p];
    }
    add_up(work, layer, heads, n, space->prefix);
    if (space->prefix[l.blocks] > 0) {
        cut(&l, q_cuts);
        return;
    }
    for (int p = 0; p <= parts; p++)
        q_cuts[p] = tess__even_cut(l.blocks, parts, p);
}
