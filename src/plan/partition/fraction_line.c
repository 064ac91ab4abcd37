/* SPDX-License-Identifier: Apache-2.0 */
/* fraction_line.c - laying heads on a line of ranks, and cutting the line into runs.
 *
 * Most runs in a given order: let place(i, k) be the first place where the line can be after heads
 * 0..i-1 when k runs have ended. The earlier the place, the earlier everything after it, so
 *
 *   place(i, k) = min( lay(i, place(i-1, k)), closed(lay(i, place(i-1, k-1))) )
 *
 * is exact. With n heads this takes n^2 / 2 layings of O(ranks of a head) each. The line in use and
 * k runs have copies = ranks in use - k.
 */
#include "fraction.h"

int32_t tess__line_reach(const struct tess__fraction *line, int32_t head, int32_t from,
                         int64_t load)
{
    const tess_work *const work = line->work;
    const int32_t blocks = work->info.q_blocks;
    if (load >= line->loads[head])
        return blocks;
    int32_t low = from, high = blocks; /* prefix(low) <= load < prefix(high) */
    if (!work->prefix && !work->bounds_q) {
        /* floor(all * row / rows) <= load as long as all * row < (load + 1) * rows. */
        const tess__int128 most = (tess__int128)(load + 1) * work->rows_q - 1;
        const int64_t row =
            most >> 63 ? (int64_t)(most / line->loads[head]) : (int64_t)most / line->loads[head];
        return (int32_t)(row / work->info.group);
    }
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (tess__work_prefix(work, line->layer, head, middle) <= load)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void tess__line_limit(struct tess__fraction *line, int64_t time)
{
    for (int p = 0; p < line->ranks; p++)
        line->room[p] = tess__line_room(line, p, time);
}

tess__place tess__line_lay(const struct tess__fraction *line, int32_t head, tess__place at)
{
    const int64_t all = line->loads[head];
    const int32_t blocks = line->work->info.q_blocks;
    int64_t done = 0;
    int32_t block = 0;
    while (at.rank < line->ranks) {
        block = tess__line_reach(line, head, block, done + line->room[at.rank] - at.load);
        if (block == blocks) {
            at.load += all - done;
            return at;
        }
        done = tess__work_prefix(line->work, line->layer, head, block);
        at = (tess__place){at.rank + 1, 0};
    }
    return (tess__place){line->ranks + 1, 0};
}

/* place(i, k) for k = 0..runs + 1 from place(i-1, k) for k = 0..runs. */
static void next_places(const struct tess__fraction *line, int32_t head, int runs,
                        const tess__place *before, tess__place *after, uint8_t *closed)
{
    tess__place ended = {line->ranks + 1, 0};
    for (int k = 0; k <= runs; k++) {
        const tess__place laid = tess__line_lay(line, head, before[k]);
        closed[k] = (uint8_t)tess__place_before(ended, laid);
        after[k] = closed[k] ? ended : laid;
        ended = tess__place_closed(laid);
    }
    after[runs + 1] = ended;
    closed[runs + 1] = 1;
}

/* Copies of a line that ends at a place with k runs before it; -1 where it is too short. */
static int64_t copies_at(const struct tess__fraction *line, tess__place at, int k)
{
    const int open = at.load > 0;
    return at.rank + open > line->ranks ? -1 : at.rank + open - (k + open);
}

/* Writes line->runs from the choices; k runs end within the line. */
static void trace(struct tess__fraction *line, int k)
{
    int32_t ends = 0, *const end = line->spare;
    for (int32_t i = line->n; i >= 1; i--)
        if (i == line->n || line->choice[(size_t)(i - 1) * (TESS__LINE_RUNS + 1) + (size_t)k]) {
            k -= line->choice[(size_t)(i - 1) * (TESS__LINE_RUNS + 1) + (size_t)k];
            end[ends++] = i;
        }
    line->n_runs = 0;
    tess__place at = {0, 0};
    int32_t begin = 0;
    while (ends-- > 0) {
        tess__fraction_run run = {.begin = begin, .end = end[ends], .rank = at.rank};
        for (int32_t i = run.begin; i < run.end; i++)
            at = tess__line_lay(line, line->order[i], at);
        at = tess__place_closed(at);
        run.ranks = at.rank - run.rank;
        line->runs[line->n_runs++] = run;
        begin = run.end;
    }
}

/* More heads than runs are searched for: one run. */
static int64_t one_run(struct tess__fraction *line)
{
    tess__place at = {0, 0};
    for (int32_t i = 0; i < line->n; i++)
        at = tess__line_lay(line, line->order[i], at);
    at = tess__place_closed(at);
    line->runs[0] = (tess__fraction_run){0, line->n, 0, at.rank};
    line->n_runs = 1;
    return at.rank > line->ranks ? -1 : at.rank - 1;
}

int64_t tess__line_runs(struct tess__fraction *line)
{
    if (line->n == 0) {
        line->n_runs = 0;
        return 0;
    }
    if (line->n > TESS__LINE_RUNS)
        return one_run(line);
    tess__place *before = line->places, *after = before + TESS__LINE_RUNS + 1;
    before[0] = (tess__place){0, 0};
    const int most = line->n < line->ranks ? line->n : line->ranks;
    int runs = 0;
    for (int32_t i = 0; i < line->n; i++) {
        uint8_t *const closed = line->choice + (size_t)i * (TESS__LINE_RUNS + 1);
        next_places(line, line->order[i], runs < most ? runs : most - 1, before, after, closed);
        runs = runs < most ? runs + 1 : most;
        tess__place *const swap = before;
        before = after;
        after = swap;
    }
    int64_t fewest = -1;
    int best = 0;
    for (int k = 0; k <= runs; k++) {
        const int64_t copies = copies_at(line, before[k], k);
        if (copies >= 0 && (fewest < 0 || copies < fewest)) {
            fewest = copies;
            best = k;
        }
    }
    if (fewest >= 0)
        trace(line, best);
    return fewest;
}
