/* SPDX-License-Identifier: Apache-2.0 */
/* rank_classes.c - equal ranks once: partition refinement over the process groups of a layout.
 *
 * At first two ranks are of one class if they have the same stage and the same factor. Then classes
 * are split until the members of a class see the same classes in their groups of every kind, and at
 * every stage of their pipeline: what one does at a time, all do. A class of ranks is compared by a
 * hash of what it was and of what its groups have; sums of hashes do not depend on the order of
 * members. O(ranks x kinds) for each round, and as many rounds as a difference needs to travel.
 */
#include "events_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tess__classes *c;
    uint64_t *colour, *next, *sums; /* (ranks) */
    uint64_t *sorted;               /* (ranks): colours, to count them */
} refinement;

static uint64_t mix(uint64_t a, uint64_t b)
{
    const uint64_t both[2] = {a, b};
    return tess__hash(0x74657373u, both, sizeof both);
}

static int ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int64_t count_colours(const refinement *r)
{
    const int n = r->c->ranks;
    int64_t colours = n > 0;
    memcpy(r->sorted, r->colour, (size_t)n * sizeof *r->sorted);
    qsort(r->sorted, (size_t)n, sizeof *r->sorted, ascending);
    for (int i = 1; i < n; i++)
        colours += r->sorted[i] != r->sorted[i - 1];
    return colours;
}

/* The first rank of a rank's group. */
static int group_first(const tess__classes *c, const tess__group_kind *kind, int rank)
{
    const int in_stage = rank % c->size, span = kind->n * kind->stride;
    return rank - in_stage + in_stage / span * span + in_stage % kind->stride;
}

/* Adds what the groups of one kind have to the next colours. */
static void add_groups(refinement *r, const tess__group_kind *kind)
{
    const tess__classes *c = r->c;
    memset(r->sums, 0, (size_t)c->ranks * sizeof *r->sums);
    for (int i = 0; i < c->ranks; i++)
        r->sums[group_first(c, kind, i)] += mix(r->colour[i], 1);
    for (int i = 0; i < c->ranks; i++)
        r->next[i] = mix(r->next[i], r->sums[group_first(c, kind, i)]);
}

static void refine(refinement *r)
{
    const tess__classes *c = r->c;
    int64_t before, after = count_colours(r);
    do {
        before = after;
        memcpy(r->next, r->colour, (size_t)c->ranks * sizeof *r->next);
        for (int k = 0; k < c->n_kinds; k++)
            add_groups(r, &c->kinds[k]);
        for (int i = 0; i < c->size; i++) {
            uint64_t all = 0;
            for (int stage = 0; stage < c->stages; stage++)
                all = mix(all, r->colour[stage * c->size + i]);
            for (int stage = 0; stage < c->stages; stage++)
                r->next[stage * c->size + i] = mix(r->next[stage * c->size + i], all);
        }
        uint64_t *const swap = r->colour;
        r->colour = r->next;
        r->next = swap;
        after = count_colours(r);
    } while (after != before);
}

/* Rows in the order of their lowest ranks; sorted is then a list of (colour), first_of its rank. */
static tess_status number_rows(refinement *r, tess__arena *arena)
{
    tess__classes *c = r->c;
    const int64_t colours = count_colours(r);
    int64_t unique = 0;
    for (int i = 0; i < c->ranks; i++)
        if (i == 0 || r->sorted[i] != r->sorted[i - 1])
            r->sorted[unique++] = r->sorted[i];
    int32_t *number = TESS_TAKE(arena, (size_t)colours * sizeof *number);
    c->row_of = TESS_TAKE(arena, (size_t)c->ranks * sizeof *c->row_of);
    c->first_rank = TESS_TAKE(arena, (size_t)colours * sizeof *c->first_rank);
    memset(number, 0xff, (size_t)colours * sizeof *number);
    c->rows = 0;
    for (int i = 0; i < c->ranks; i++) {
        const uint64_t *found =
            bsearch(&r->colour[i], r->sorted, (size_t)unique, sizeof *r->sorted, ascending);
        int32_t *row = &number[found - r->sorted];
        if (*row < 0) {
            *row = c->rows;
            c->first_rank[c->rows++] = i;
        }
        c->row_of[i] = *row;
    }
    return TESS_OK;
}

/* Rows that share groups, and rows of the same pipelines. */
static tess_status link_rows(tess__classes *c, tess__arena *arena)
{
    c->set = TESS_TAKE(arena, (size_t)c->n_kinds * (size_t)c->rows * sizeof *c->set);
    c->peer = TESS_TAKE(arena, (size_t)c->rows * (size_t)c->stages * sizeof *c->peer);
    for (int row = 0; row < c->rows; row++)
        for (int stage = 0; stage < c->stages; stage++)
            c->peer[row * c->stages + stage] =
                c->row_of[stage * c->size + c->first_rank[row] % c->size];
    for (int k = 0; k < c->n_kinds; k++)
        for (int row = 0; row < c->rows; row++) {
            const tess__group_kind *kind = &c->kinds[k];
            const int first = group_first(c, kind, c->first_rank[row]);
            int32_t least = row; /* the lowest row of the group stands for all of them */
            /* A group that does not divide the stage ends with it. */
            for (int i = 0; i < kind->n && first % c->size + i * kind->stride < c->size; i++)
                least = TESS_MIN(least, c->row_of[first + i * kind->stride]);
            c->set[k * c->rows + row] = least;
        }
    return TESS_OK;
}

tess_status tess__classes_find(tess__arena *arena, const tess_slow_rank *slow, int n_slow,
                               int every_rank, tess__classes *c)
{
    refinement r = {.c = c};
    tess__arena scratch = {.ctx = arena->ctx};
    const size_t bytes = (size_t)c->ranks * sizeof *r.colour;
    double *factors = tess__arena_take(&scratch, (size_t)c->ranks * sizeof *factors);
    r.colour = tess__arena_take(&scratch, bytes);
    r.next = tess__arena_take(&scratch, bytes);
    r.sums = tess__arena_take(&scratch, bytes);
    r.sorted = tess__arena_take(&scratch, bytes);
    tess_status status =
        factors && r.colour && r.next && r.sums && r.sorted ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK) {
        for (int i = 0; i < c->ranks; i++)
            factors[i] = 1.0;
        for (int i = 0; i < n_slow; i++)
            factors[slow[i].rank] = slow[i].factor;
        for (int i = 0; i < c->ranks; i++) {
            uint64_t bits;
            memcpy(&bits, &factors[i], sizeof bits);
            r.colour[i] = mix(bits, every_rank ? (uint64_t)i : (uint64_t)(i / c->size));
        }
        if (!every_rank)
            refine(&r);
        status = number_rows(&r, arena);
    }
    if (status == TESS_OK)
        status = link_rows(c, arena);
    if (status == TESS_OK) {
        c->factor = tess__arena_take(arena, (size_t)c->rows * sizeof *c->factor);
        status = c->factor ? TESS_OK : TESS_ENOMEM;
        for (int row = 0; status == TESS_OK && row < c->rows; row++)
            c->factor[row] = factors[c->first_rank[row]];
    }
    tess__arena_free(&scratch);
    return status;
}
