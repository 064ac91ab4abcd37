/* SPDX-License-Identifier: Apache-2.0 */
/* fraction_order.c - orders in which heads are laid on the line, so that many runs come out.
 *
 * A run ends where a set of heads fills a number of ranks. A set of load x leaves
 *
 *   waste(x) = (-x) mod limit
 *
 * of its last rank unused, and all runs together may waste what the ranks have more than the heads
 * need. Three ways to find such sets:
 *
 *   best    every order of a few heads, by dynamic programming over subsets: with place(S, k) the
 *           first place where the line can be after the heads of S in some order with k runs ended,
 *           place(S, k) = min over h in S of what laying h after S - h gives. Exact.
 *   sums    one, two or three heads at a time whose sum wastes no more than these heads' share of
 *           the waste allowed, the smallest sets first; what remains is ordered by `best` if few.
 *   groups  whole heads balanced by `refined`: each group is a run of one rank if it keeps the
 *           limit; each group above it is laid beside the emptiest ones.
 */
#include "fraction.h"

#include <string.h>

enum { RUNS = TESS__LINE_SMALL + 1 }; /* numbers of runs, 0 included */

void tess__order_descending(tess__partition_scratch *space)
{
    struct tess__fraction *const line = space->fraction;
    const int32_t heads = line->work->info.heads;
    tess__sort_loads(line->loads, heads, space->order, space->order_swap);
    memcpy(line->order, space->order, (size_t)line->n * sizeof *line->order);
}

/* ---- best ------------------------------------------------------------------------------------ */

/* A choice is the head laid last, and whether a run ended with it. */
static void keep_first(struct tess__fraction *line, size_t state, tess__place at, int choice)
{
    if (tess__place_before(at, line->places[state])) {
        line->places[state] = at;
        line->choice[state] = (uint8_t)choice;
    }
}

static void lay_last(struct tess__fraction *line, const int32_t *heads, unsigned set, int i)
{
    const size_t from = (size_t)(set & ~(1u << i)) * RUNS, to = (size_t)set * RUNS;
    for (size_t k = 0; k + 1 < RUNS; k++) {
        if (line->places[from + k].rank > line->ranks)
            break; /* so are those with more runs */
        const tess__place laid = tess__line_lay(line, heads[i], line->places[from + k]);
        keep_first(line, to + k, laid, 2 * i);
        keep_first(line, to + k + 1, tess__place_closed(laid), 2 * i + 1);
    }
}

void tess__order_best(struct tess__fraction *line, int32_t *heads, int n)
{
    const unsigned all = (1u << n) - 1;
    for (size_t state = 0; state < ((size_t)all + 1) * RUNS; state++)
        line->places[state] = (tess__place){line->ranks + 2, 0};
    line->places[0] = (tess__place){0, 0};
    for (unsigned set = 1; set <= all; set++)
        for (int i = 0; i < n; i++)
            if (set >> i & 1)
                lay_last(line, heads, set, i);
    int64_t fewest = INT64_MAX;
    size_t k = 0;
    for (size_t runs = 0; runs < RUNS; runs++) {
        const tess__place end = line->places[(size_t)all * RUNS + runs];
        const int64_t copies = tess__place_closed(end).rank - (int64_t)runs - (end.load > 0);
        if (tess__place_closed(end).rank <= line->ranks && copies < fewest) {
            fewest = copies;
            k = runs;
        }
    }
    if (fewest == INT64_MAX)
        return;
    int32_t last[TESS__LINE_SMALL];
    unsigned set = all;
    for (int at = n - 1; at >= 0; at--) {
        const int choice = line->choice[(size_t)set * RUNS + k];
        last[at] = heads[choice / 2];
        k -= (size_t)(choice % 2);
        set &= ~(1u << choice / 2);
    }
    memcpy(heads, last, (size_t)n * sizeof *heads);
}

/* ---- sums ------------------------------------------------------------------------------------ */

typedef struct {
    const struct tess__fraction *line;
    int64_t limit;
    int32_t *heads;   /* (n): not taken yet, by residue ascending */
    int64_t *residue; /* (n): load mod limit of these */
    int n;
    int64_t waste; /* of the best set found */
    int set[3];    /* places in heads; -1: none */
} sums;

/* The best head to go with heads i and j (-1: none), whose residues add up to base mod limit: the
 * one with the largest residue that still fits below the next multiple. */
static void seek(sums *s, int64_t base, int i, int j)
{
    const int64_t room = s->limit - base;
    int low = 0, high = s->n; /* residue[low - 1] <= room < residue[high] */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->residue[middle] <= room)
            low = middle + 1;
        else
            high = middle;
    }
    for (low--; low >= 0 && (low == i || low == j); low--)
        ;
    if (low < 0)
        return;
    const int64_t left = room - s->residue[low];
    if (left < s->waste) {
        s->waste = left;
        s->set[0] = low;
        s->set[1] = i;
        s->set[2] = j;
    }
}

/* The set of `size` heads that wastes least. */
static void find(sums *s, int size)
{
    s->waste = INT64_MAX;
    if (size == 1)
        seek(s, 0, -1, -1);
    for (int i = 0; i < s->n && size == 2; i++)
        seek(s, s->residue[i], i, -1);
    for (int i = 0; i < s->n && size == 3; i++)
        for (int j = i + 1; j < s->n; j++) {
            const int64_t base = s->residue[i] + s->residue[j];
            seek(s, base < s->limit ? base : base - s->limit, i, j);
        }
}

/* Takes the set found out of the list and writes its heads. */
static int take(sums *s, int32_t *to)
{
    int n = 0, kept = 0;
    for (int i = 0; i < s->n; i++) {
        if (i == s->set[0] || i == s->set[1] || i == s->set[2]) {
            to[n++] = s->heads[i];
            continue;
        }
        s->heads[kept] = s->heads[i];
        s->residue[kept++] = s->residue[i];
    }
    s->n = kept;
    return n;
}

/* Lists the heads with work by residue; returns their load. */
static int64_t list(sums *s)
{
    const struct tess__fraction *const line = s->line;
    int64_t load = 0;
    for (int32_t h = 0; h < line->work->info.heads; h++) {
        if (line->loads[h] == 0)
            continue;
        const int64_t residue = line->loads[h] % s->limit;
        load += line->loads[h];
        int at = s->n++;
        for (; at > 0 && s->residue[at - 1] > residue; at--) {
            s->residue[at] = s->residue[at - 1];
            s->heads[at] = s->heads[at - 1];
        }
        s->residue[at] = residue;
        s->heads[at] = h;
    }
    return load;
}

void tess__order_sums(tess__partition_scratch *space, int64_t time)
{
    struct tess__fraction *const line = space->fraction;
    sums s = {.line = line, .limit = time, .heads = line->spare, .residue = line->residue};
    const tess__int128 more = (tess__int128)line->ranks * time - list(&s);
    int64_t left = more < INT64_MAX ? (int64_t)more : INT64_MAX;
    int32_t n = 0;
    for (int size = 1; size <= 3 && s.n > TESS__LINE_SMALL;) {
        find(&s, size);
        /* The share of these heads in what may be wasted, without a product that overflows. */
        if (s.waste == INT64_MAX || s.waste > left / s.n * size) {
            size++;
            continue;
        }
        left -= s.waste;
        n += take(&s, line->order + n);
    }
    int32_t *const rest = line->order + n;
    for (int i = 0; i < s.n; i++)
        rest[i] = s.heads[s.n - 1 - i];
    if (s.n <= TESS__LINE_SMALL && line->ranks <= TESS__LINE_BEST_RANKS)
        tess__order_best(line, rest, s.n);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int32_t emit(struct tess__fraction *line, const int32_t *group_of, int32_t group, int32_t n)
{
    for (int32_t h = 0; h < line->work->info.heads; h++)
        if (line->loads[h] > 0 && group_of[h] == group)
            line->order[n++] = h;
    return n;
}

void tess__order_groups(tess__partition_scratch *space, int64_t time)
{
    struct tess__fraction *const line = space->fraction;
    const tess__heads heads = {.heads = line->work->info.heads,
                               .groups = line->ranks,
                               .loads = line->loads,
                               .speeds = line->wide_speeds};
    int32_t *const group_of = line->spare, n = 0;
    tess__heads_split(space, &heads, TESS_PLAN_REFINED, group_of);
    if (line->speeds) {
        for (int p = 0; p < line->ranks; p++)
            n = emit(line, group_of, p, n);
        return;
    }
    tess__heads_time(space, &heads, group_of); /* leaves the sums */
    tess__sort_loads(space->sums, line->ranks, space->order, space->order_swap);
    int full = 0, empty = line->ranks - 1;
    while (full <= empty) {
        const int32_t group = space->order[full++];
        int64_t room = time - space->sums[group];
        n = emit(line, group_of, group, n);
        for (; room < 0 && full <= empty; empty--) {
            room += time - space->sums[space->order[empty]];
            n = emit(line, group_of, space->order[empty], n);
        }
    }
}
