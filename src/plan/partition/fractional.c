/* SPDX-License-Identifier: Apache-2.0 */
/* fractional.c - fractional heads: a head's query blocks may be split over several ranks.
 *
 * Heads are laid end to end on the line of ranks (fraction.h), so that every rank has the mean load
 * within a query block and at most ranks - 1 copies of keys and values are needed beyond one per
 * head. How many depends on the order: wherever a set of heads fills a number of ranks, a run ends
 * and a copy is saved. The time limit is the mean and a slack, or where query blocks are too coarse
 * for that, the least that heads in descending order keep. Of several orders (fraction_order.c) the
 * one with the fewest copies within the limit is taken; each run is then cut as evenly as it can
 * be.
 *
 * Where ranks are equal, runs are moved along the line so that few of them, and so few heads, lie
 * in two nodes. Heads without work go, whole, to ranks with the fewest shares.
 *
 * Cost: layings of heads on the line, O(ranks + heads) each: some thousands for 40 heads.
 */
#include "fraction.h"

#include <string.h>

enum { MILLION = 1000000, DEFAULT_SLACK = 4000 };

/* What the line is about; returns the load of all heads. */
static int64_t begin(struct tess__fraction *line, const tess__fraction_job *job)
{
    line->work = job->work;
    line->layer = job->layer;
    line->ranks = job->ranks;
    line->speeds = job->speeds;
    line->total_speed = job->ranks;
    line->n = 0;
    int64_t load = 0;
    for (int h = 0; h < job->work->info.heads; h++) {
        line->loads[h] = tess__work_head(job->work, job->layer, h);
        load += line->loads[h];
        line->n += line->loads[h] > 0;
    }
    if (job->speeds) {
        line->total_speed = 0;
        for (int p = 0; p < job->ranks; p++) {
            line->total_speed += job->speeds[p];
            line->all_speeds[p] = job->speeds[p];
        }
    }
    line->wide_speeds = job->speeds ? line->all_speeds : NULL;
    return load;
}

/* Keeps line->order and its runs if they have fewer copies. */
static void consider(struct tess__fraction *line, int64_t *fewest)
{
    const int64_t copies = tess__line_runs(line);
    if (copies < 0 || (*fewest >= 0 && copies >= *fewest))
        return;
    *fewest = copies;
    memcpy(line->best_order, line->order, (size_t)line->n * sizeof *line->order);
    memcpy(line->best_runs, line->runs, (size_t)line->n_runs * sizeof *line->runs);
    line->best_n = line->n_runs;
}

/* The order with the fewest copies within the time limit; returns them, or -1. */
static int64_t choose(tess__partition_scratch *space, int64_t time)
{
    struct tess__fraction *const line = space->fraction;
    int64_t fewest = -1;
    tess__line_limit(line, time);
    tess__order_descending(space);
    consider(line, &fewest);
    if (line->n > TESS__LINE_RUNS)
        return fewest;
    if (line->n >= line->ranks && fewest != 0) {
        tess__order_groups(space, time);
        consider(line, &fewest);
    }
    if (line->n <= TESS__LINE_SMALL && line->ranks <= TESS__LINE_BEST_RANKS) {
        tess__order_descending(space);
        tess__order_best(line, line->order, line->n);
        consider(line, &fewest);
    } else if (!line->speeds && fewest != 0) {
        tess__order_sums(space, time);
        consider(line, &fewest);
    }
    return fewest;
}

/* Whether the heads in line->order fit within a time limit. */
static int fits(struct tess__fraction *line, int64_t time)
{
    tess__line_limit(line, time);
    tess__place at = {0, 0};
    for (int32_t i = 0; i < line->n; i++)
        at = tess__line_lay(line, line->order[i], at);
    return tess__place_closed(at).rank <= line->ranks;
}

/* The least time limit within a 4096th that heads in descending order keep (few: in their best
 * order); `low` is one that they do not. */
static int64_t least_limit(tess__partition_scratch *space, int64_t low)
{
    struct tess__fraction *const line = space->fraction;
    const int64_t near = low / 4096 + 1;
    const int few = line->n <= TESS__LINE_SMALL && line->ranks <= TESS__LINE_BEST_RANKS;
    int64_t high = low, from = low;
    tess__order_descending(space);
    for (int64_t step = near; !fits(line, high); step *= 2)
        high += step;
    for (int pass = 0; pass <= few; pass++, from = low)
        while (high - from > near) {
            const int64_t middle = from + (high - from) / 2;
            if (pass == 0 ? fits(line, middle) : choose(space, middle) >= 0)
                high = middle;
            else
                from = middle;
        }
    return high;
}

/* Orders runs along the line, largest first into each node what it still has room for. */
static void keep_nodes(struct tess__fraction *line, int nodes)
{
    if (nodes < 2 || line->ranks % nodes != 0 || line->speeds)
        return;
    const int32_t size = line->ranks / nodes;
    int32_t at = 0;
    for (int32_t i = 0; i < line->best_n; i++) {
        const int32_t room = size - at % size;
        int32_t best = i;
        for (int32_t j = i; j < line->best_n; j++) {
            const int32_t now = line->best_runs[best].ranks, then = line->best_runs[j].ranks;
            /* A run that no node holds begins with a node; any other is the largest that fits. */
            const int now_fits = now <= room || room == size,
                      then_fits = then <= room || room == size;
            if (then_fits > now_fits || (then_fits == now_fits && then > now))
                best = j;
        }
        const tess__fraction_run run = line->best_runs[best];
        memmove(line->best_runs + i + 1, line->best_runs + i, (size_t)(best - i) * sizeof run);
        line->best_runs[i] = run;
        line->best_runs[i].rank = at;
        at += run.ranks;
    }
}

/* Sorts shares by (rank, head); within a rank there are few, or they are nearly sorted. */
static void sort(tess_share *shares, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const tess_share share = shares[i];
        int64_t at = i;
        for (; at > 0 && (shares[at - 1].rank > share.rank ||
                          (shares[at - 1].rank == share.rank && shares[at - 1].head > share.head));
             at--)
            shares[at] = shares[at - 1];
        shares[at] = share;
    }
}

/* Heads without work, each whole to the rank with the fewest shares; returns all shares. */
static int64_t add_idle(tess__partition_scratch *space, tess_share *shares, int64_t n)
{
    struct tess__fraction *const line = space->fraction;
    int32_t *const counts = space->counts;
    memset(counts, 0, (size_t)line->ranks * sizeof *counts);
    for (int64_t i = 0; i < n; i++)
        counts[shares[i].rank]++;
    for (int32_t h = 0; h < line->work->info.heads; h++) {
        if (line->loads[h] > 0)
            continue;
        int rank = 0;
        for (int p = 1; p < line->ranks; p++)
            rank = counts[p] < counts[rank] ? p : rank;
        counts[rank]++;
        shares[n++] = (tess_share){rank, h, 0, line->work->info.q_blocks};
    }
    return n;
}

static int64_t measure(tess__partition_scratch *space, const tess_share *shares, int64_t n)
{
    const struct tess__fraction *const line = space->fraction;
    int64_t *const sums = space->sums, most = 0;
    memset(sums, 0, (size_t)line->ranks * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        const tess_share *const s = &shares[i];
        sums[s->rank] += tess__work_prefix(line->work, line->layer, s->head, s->q_end) -
                         tess__work_prefix(line->work, line->layer, s->head, s->q_begin);
    }
    for (int p = 0; p < line->ranks; p++) {
        const int64_t time =
            tess__time(sums[p], tess__speed(line->wide_speeds, p), line->total_speed, line->ranks);
        most = TESS_MAX(time, most);
    }
    return most;
}

void tess__fractional(tess__partition_scratch *space, const tess__fraction_job *job,
                      tess_share *shares, tess__fraction_result *result)
{
    struct tess__fraction *const line = space->fraction;
    const int64_t load = begin(line, job);
    const int slack = job->slack > 0 ? job->slack : job->slack < 0 ? 0 : DEFAULT_SLACK;
    const int64_t mean = load / job->ranks + (load % job->ranks != 0);
    int64_t time = mean + (int64_t)((tess__int128)mean * slack / MILLION);
    if (choose(space, time) < 0) {
        time = least_limit(space, time);
        choose(space, time);
    }
    keep_nodes(line, job->nodes);
    memcpy(line->order, line->best_order, (size_t)line->n * sizeof *line->order);
    tess__line_limit(line, time);
    int64_t n = 0;
    for (int32_t i = 0; i < line->best_n; i++)
        n += tess__line_share(line, &line->best_runs[i], time, shares + n);
    n = add_idle(space, shares, n);
    sort(shares, n);
    *result = (tess__fraction_result){
        .n = n, .copies = n - job->work->info.heads, .time = measure(space, shares, n)};
}
