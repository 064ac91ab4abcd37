/* SPDX-License-Identifier: Apache-2.0 */
/* refine.c - a partition of heads made better by exchanges until none helps.
 *
 * Of the busiest group a, some heads X go to another group b, and some heads Y come back. With
 * d = load(X) - load(Y), this helps if a and b both take less time afterwards than a does:
 *
 *   d > 0   and   (load(b) + d) / speed(b) < load(a) / speed(a)
 *
 * Of all exchanges that help, the one whose slower group is the soonest done is made, the first of
 * equals. X and Y have at most `most` heads; most 1 gives moves and swaps. With equal numbers of
 * heads only exchanges that keep them within one are compared.
 *
 * The times of all groups, sorted, become smaller lexicographically with every exchange, so the
 * search ends; a budget of exchanges to compare ends it sooner where there are many heads.
 *
 * Cost: a round compares the sets of a with those of all other groups. Memory: lists of at most
 * TESS__HEAD_SETS_MAX sets of a group; sets that do not fit are left out.
 */
#include "partition_scratch.h"

enum { NONE = -1 };

typedef struct {
    tess__partition_scratch *space;
    const tess__heads *heads;
    int32_t *group_of;
    int most;
    int64_t budget;
} search;

/* What takes a given time. */
typedef struct {
    int64_t load, speed;
} timed;

typedef struct {
    timed slower;        /* of the two groups, after the exchange */
    tess__head_set x, y; /* y has no heads for a move */
    int b;               /* NONE: no exchange helps */
} exchange;

static int sooner(timed a, timed b)
{
    return tess__sooner(a.load, a.speed, b.load, b.speed);
}

static timed time_of(const search *s, int g)
{
    return (timed){s->space->sums[g], tess__speed(s->heads->speeds, g)};
}

static void begin(search *s)
{
    tess__partition_scratch *const space = s->space;
    for (int g = 0; g < s->heads->groups; g++) {
        space->sums[g] = 0;
        space->counts[g] = 0;
        space->first[g] = NONE;
    }
    for (int h = s->heads->heads - 1; h >= 0; h--) {
        const int g = s->group_of[h];
        space->sums[g] += s->heads->loads[h];
        space->counts[g]++;
        space->next[h] = space->first[g];
        space->first[g] = h;
    }
}

static int busiest(const search *s)
{
    int a = 0;
    for (int g = 1; g < s->heads->groups; g++)
        if (sooner(time_of(s, a), time_of(s, g)))
            a = g;
    return a;
}

/* Lists the sets of at most `most` heads of a group, nothing first; returns how many. */
static int list(const search *s, int g, tess__head_set *some)
{
    const int32_t *const next = s->space->next;
    const int64_t *const loads = s->heads->loads;
    int n = 0;
    some[n++] = (tess__head_set){0, 0, {NONE, NONE}};
    for (int32_t i = s->space->first[g]; i != NONE && n < TESS__HEAD_SETS_MAX; i = next[i])
        some[n++] = (tess__head_set){loads[i], 1, {i, NONE}};
    if (s->most < 2)
        return n;
    for (int32_t i = s->space->first[g]; i != NONE; i = next[i])
        for (int32_t j = next[i]; j != NONE && n < TESS__HEAD_SETS_MAX; j = next[j])
            some[n++] = (tess__head_set){loads[i] + loads[j], 2, {i, j}};
    return n;
}

/* Whether `less` heads fewer in a and more in b keep equal numbers of heads. */
static int keeps_counts(const search *s, int a, int b, int less)
{
    if (!s->heads->equal_heads)
        return 1;
    const int floor = s->heads->heads / s->heads->groups;
    const int ceil = floor + (s->heads->heads % s->heads->groups != 0);
    const int at_a = s->space->counts[a] - less, at_b = s->space->counts[b] + less;
    return at_a >= floor && at_a <= ceil && at_b >= floor && at_b <= ceil;
}

/* Compares the exchanges of x for each of y[0..n_y) between groups a and b. */
static void compare_all(const search *s, int a, const tess__head_set *x, int b,
                        const tess__head_set *y, int n_y, exchange *best)
{
    const timed at_a = time_of(s, a), at_b = time_of(s, b);
    for (int j = 0; j < n_y; j++) {
        const int64_t d = x->load - y[j].load;
        if (d <= 0 || !keeps_counts(s, a, b, x->n - y[j].n))
            continue;
        const timed then_a = {at_a.load - d, at_a.speed}, then_b = {at_b.load + d, at_b.speed};
        const timed slower = sooner(then_a, then_b) ? then_b : then_a;
        if (sooner(slower, best->slower))
            *best = (exchange){slower, *x, y[j], b};
    }
}

/* The same where speeds and numbers of heads are of no concern. The slower of the two groups then
 * has half of load(a) + load(b) + |load(a) - load(b) - 2 d|. */
static void compare_equal_speed(const search *s, int a, const tess__head_set *x, int b,
                                const tess__head_set *y, int n_y, exchange *best)
{
    const int64_t gap = s->space->sums[a] - s->space->sums[b];
    const int64_t from = gap - 2 * x->load;
    int64_t least = 2 * best->slower.load - s->space->sums[a] - s->space->sums[b];
    int found = NONE;
    for (int j = 0; j < n_y; j++) {
        const int64_t off = from + 2 * y[j].load;
        const int64_t size = off < 0 ? -off : off;
        found = size < least ? j : found;
        least = TESS_MIN(size, least);
    }
    if (found == NONE)
        return;
    const int64_t d = x->load - y[found].load;
    const int64_t then_a = s->space->sums[a] - d, then_b = s->space->sums[b] + d;
    *best = (exchange){{then_a > then_b ? then_a : then_b, 1}, *x, y[found], b};
}

/* Compares every exchange between a, whose sets are x[0..n_x), and b. */
static void compare_sets(search *s, int a, const tess__head_set *x, int n_x, int b, exchange *best)
{
    tess__head_set *const y = s->space->some[1];
    if (!sooner(time_of(s, b), time_of(s, a)))
        return;
    const int n_y = list(s, b, y);
    s->budget -= (int64_t)n_x * n_y;
    for (int i = 1; i < n_x; i++)
        if (s->heads->speeds || s->heads->equal_heads)
            compare_all(s, a, x + i, b, y, n_y, best);
        else
            compare_equal_speed(s, a, x + i, b, y, n_y, best);
}

static void move(search *s, const tess__head_set *some, int from, int to)
{
    tess__partition_scratch *const space = s->space;
    for (int i = 0; i < some->n; i++) {
        int32_t *link = &space->first[from];
        while (*link != some->head[i])
            link = &space->next[*link];
        *link = space->next[some->head[i]];
        space->next[some->head[i]] = space->first[to];
        space->first[to] = some->head[i];
        s->group_of[some->head[i]] = to;
    }
    space->sums[from] -= some->load;
    space->sums[to] += some->load;
    space->counts[from] -= some->n;
    space->counts[to] += some->n;
}

/* Whether group a has no more than the mean, rounded up: then nothing can help. */
static int is_even(const search *s, int a, int64_t sum, int64_t total)
{
    const timed at_a = time_of(s, a);
    return (tess__int128)(at_a.load - 1) * total < (tess__int128)sum * at_a.speed;
}

void tess__refine(tess__partition_scratch *space, const tess__heads *heads, int most,
                  int64_t budget, int32_t *group_of)
{
    search s = {space, heads, group_of, most, budget};
    int64_t sum = 0, total = 0;
    begin(&s);
    for (int g = 0; g < heads->groups; g++) {
        sum += space->sums[g];
        total += tess__speed(heads->speeds, g);
    }
    while (s.budget > 0) {
        const int a = busiest(&s);
        if (is_even(&s, a, sum, total))
            return;
        exchange best = {.slower = time_of(&s, a), .b = NONE};
        const int n_x = list(&s, a, space->some[0]);
        for (int b = 0; b < heads->groups; b++)
            compare_sets(&s, a, space->some[0], n_x, b, &best);
        if (best.b == NONE)
            return;
        move(&s, &best.x, a, best.b);
        move(&s, &best.y, best.b, a);
    }
}
