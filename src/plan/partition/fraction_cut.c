/* SPDX-License-Identifier: Apache-2.0 */
/* fraction_cut.c - where the ranks of a run begin and end.
 *
 * The heads of a run lie end to end on its m ranks. The least time limit that m ranks suffice for
 * is found by bisection. A cut may not be later than what the rank before it can take, nor earlier
 * than what the ranks after it can take; in between the cut nearest to the ideal one is made, which
 * gives every rank the run's mean load within a query block:
 *
 *     head 2                    head 5              head 1
 *   |-----------------------|-----------------|--------------------|
 *             ^       x                 x   ^                 the ideal cut x lies between the
 *           lowest   cut                                      lowest and the highest
 */
#include "fraction.h"

typedef tess__cut cut;

static int before(cut a, cut b)
{
    return a.at != b.at ? a.at < b.at : a.block < b.block;
}

static cut normal(const struct tess__fraction *line, cut c)
{
    return c.block == line->work->info.q_blocks ? (cut){c.at + 1, 0} : c;
}

static int64_t prefix(const struct tess__fraction *line, cut c)
{
    return tess__work_prefix(line->work, line->layer, line->order[c.at], c.block);
}

/* The last cut at most `load` after c. */
static cut forward(const struct tess__fraction *line, const tess__fraction_run *run, cut c,
                   int64_t load)
{
    if (c.at < run->end)
        load += prefix(line, c);
    for (; c.at < run->end; c.at++, c.block = 0) {
        const int32_t head = line->order[c.at];
        if (load < line->loads[head])
            return (cut){c.at, tess__line_reach(line, head, c.block, load)};
        load -= line->loads[head];
    }
    return (cut){run->end, 0};
}

/* The first cut at most `load` before c. */
static cut backward(const struct tess__fraction *line, const tess__fraction_run *run, cut c,
                    int64_t load)
{
    int64_t here = c.at < run->end ? prefix(line, c) : 0;
    while (load >= here) {
        if (c.at == run->begin)
            return (cut){c.at, 0};
        load -= here;
        c = (cut){c.at - 1, line->work->info.q_blocks};
        here = line->loads[line->order[c.at]];
    }
    /* The first block whose prefix is at least here - load follows the last below that. */
    const int32_t block = tess__line_reach(line, line->order[c.at], 0, here - load - 1) + 1;
    return normal(line, (cut){c.at, block});
}

/* The cut nearest to `load` after the begin of the run, the earlier of equals. */
static cut nearest(const struct tess__fraction *line, const tess__fraction_run *run, int64_t load)
{
    int32_t at = run->begin;
    while (at < run->end && load >= line->loads[line->order[at]])
        load -= line->loads[line->order[at++]];
    if (at == run->end)
        return (cut){at, 0};
    const cut low = {at, tess__line_reach(line, line->order[at], 0, load)};
    const cut high = {at, low.block + 1};
    const int up = prefix(line, high) - load < load - prefix(line, low);
    return normal(line, up ? high : low);
}

static int64_t speed(const struct tess__fraction *line, int p)
{
    return line->speeds ? line->speeds[p] : 1;
}

/* Whether the heads of a run fit on its ranks, whose rooms are set. */
static int fits(const struct tess__fraction *line, const tess__fraction_run *run)
{
    tess__place at = {run->rank, 0};
    for (int32_t i = run->begin; i < run->end; i++)
        at = tess__line_lay(line, line->order[i], at);
    return tess__place_closed(at).rank <= run->rank + run->ranks;
}

static void limit(struct tess__fraction *line, const tess__fraction_run *run, int64_t time)
{
    for (int p = run->rank; p < run->rank + run->ranks; p++)
        line->room[p] = tess__line_room(line, p, time);
}

/* Sets the rooms of the run's ranks to the least time limit that they suffice for, within a
 * 4096th; `time` is one that does. */
static void tighten(struct tess__fraction *line, const tess__fraction_run *run, int64_t sum,
                    int64_t speeds, int64_t time)
{
    const tess__int128 part = (tess__int128)speeds * line->ranks;
    int64_t low =
        (int64_t)((tess__int128)sum * line->total_speed / part) - 1; /* does not suffice */
    const int64_t near = low / 4096 + 1;
    while (time - low > near) {
        const int64_t middle = low + (time - low) / 2;
        limit(line, run, middle);
        if (fits(line, run))
            time = middle;
        else
            low = middle;
    }
    limit(line, run, time);
}

/* Adds the shares of one rank: the blocks between two cuts. */
static int64_t add(const struct tess__fraction *line, int32_t rank, cut from, cut to,
                   tess_share *shares)
{
    const int32_t blocks = line->work->info.q_blocks;
    int64_t n = 0;
    for (int32_t i = from.at; i <= to.at && before(from, to); i++) {
        const int32_t begin = i == from.at ? from.block : 0, end = i == to.at ? to.block : blocks;
        if (begin < end)
            shares[n++] = (tess_share){rank, line->order[i], begin, end};
    }
    return n;
}

int64_t tess__line_share(struct tess__fraction *line, const tess__fraction_run *run, int64_t time,
                         tess_share *shares)
{
    int64_t sum = 0, speeds = 0, before_speeds = 0, n = 0;
    for (int32_t i = run->begin; i < run->end; i++)
        sum += line->loads[line->order[i]];
    for (int p = run->rank; p < run->rank + run->ranks; p++)
        speeds += speed(line, p);
    if (run->ranks > 1)
        tighten(line, run, sum, speeds, time);
    cut *const lowest = line->lowest;
    lowest[run->ranks] = (cut){run->end, 0};
    for (int p = run->ranks - 1; p >= 1; p--)
        lowest[p] = backward(line, run, lowest[p + 1], line->room[run->rank + p]);
    cut from = {run->begin, 0};
    for (int p = 0; p < run->ranks; p++) {
        cut to = lowest[run->ranks];
        if (p < run->ranks - 1) {
            before_speeds += speed(line, run->rank + p);
            to = nearest(line, run, (int64_t)((tess__int128)sum * before_speeds / speeds));
            to = before(to, lowest[p + 1]) ? lowest[p + 1] : to;
            const cut highest = forward(line, run, from, line->room[run->rank + p]);
            to = before(highest, to) ? highest : to;
        }
        n += add(line, run->rank + p, from, to, shares + n);
        from = to;
    }
    return n;
}
