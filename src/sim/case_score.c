/* SPDX-License-Identifier: Apache-2.0 */
/* case_score.c - the errors of predicted cases: of a quantity, and of each of its groups.
 *
 * Groups are found by sorting the cases by (quantity, group, row): n log n for n cases,
 * whatever the number of groups.
 */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double error_of(const tess__case *c, int plain)
{
    return 100 * fabs(c->predicted[plain] / c->measured - 1);
}

static tess_score score_of(double *errors, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += errors[i];
    if (!n)
        return (tess_score){0};
    const double median = tess__median(errors, (size_t)n); /* sorts */
    return (tess_score){.scored = n, .mean = sum / n, .median = median, .max = errors[n - 1]};
}

/* Half of the interval of a prediction, in % of it. */
static double width_of(const tess__case *c)
{
    return 50 * (c->high - c->low) / c->predicted[0];
}

/* Adds a case to the sums behind bias and coverage. */
static void count(const tess__case *c, tess_score *score)
{
    score->scored++;
    score->bias += 100 * (c->predicted[0] / c->measured - 1);
    score->coverage += 100.0 * (c->measured >= c->low && c->measured <= c->high);
}

/* Sums become means; room has the absolute errors, which are sorted. */
static void finish(double *room, tess_score *score)
{
    const tess_score errors = score_of(room, score->scored);
    score->mean = errors.mean;
    score->median = errors.median;
    score->max = errors.max;
    score->bias /= score->scored ? score->scored : 1;
    score->coverage /= score->scored ? score->scored : 1;
}

static tess_quantity quantity_of(const tess__case *c)
{
    return tess__measured_defs[c->what].quantity;
}

tess_score tess__cases_score(const tess__cases *cases, tess_quantity quantity, const char *group,
                             int plain, double *room)
{
    tess_score score = {0};
    for (int widths = 0; widths < 2; widths++) {
        int n = 0;
        for (int i = 0; i < cases->n; i++) {
            const tess__case *c = &cases->cases[i];
            if (quantity_of(c) != quantity || (group && strcmp(group, c->group) != 0))
                continue;
            if (!widths)
                count(c, &score);
            room[n++] = widths ? width_of(c) : error_of(c, plain);
        }
        if (widths)
            score.half_width = score_of(room, n).median;
        else
            finish(room, &score);
    }
    return score;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int same_group(const tess__case *a, const tess__case *b)
{
    return quantity_of(a) == quantity_of(b) && strcmp(a->group, b->group) == 0;
}

static int by_group(const void *a, const void *b)
{
    const tess__case *x = *(const tess__case *const *)a, *y = *(const tess__case *const *)b;
    if (quantity_of(x) != quantity_of(y))
        return quantity_of(x) < quantity_of(y) ? -1 : 1;
    const int order = strcmp(x->group, y->group);
    return order ? order : (x > y) - (x < y);
}

/* A group as a range of the sorted cases. */
typedef struct {
    const tess__case **cases;
    int n;
} range;

static int by_first(const void *a, const void *b)
{
    const tess__case *x = ((const range *)a)->cases[0], *y = ((const range *)b)->cases[0];
    if (quantity_of(x) != quantity_of(y))
        return quantity_of(x) < quantity_of(y) ? -1 : 1;
    return (x > y) - (x < y);
}

/* The ranges of equal groups, in the order of the result. */
static int make_ranges(const tess__case **sorted, int n, range *ranges)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || !same_group(sorted[i - 1], sorted[i]))
            ranges[count++] = (range){sorted + i, 0};
        ranges[count - 1].n++;
    }
    qsort(ranges, (size_t)count, sizeof *ranges, by_first);
    return count;
}

static tess_score score_range(const range *r, int plain, double *room)
{
    tess_score score = {0};
    for (int i = 0; i < r->n; i++) {
        count(r->cases[i], &score);
        room[i] = error_of(r->cases[i], plain);
    }
    finish(room, &score);
    for (int i = 0; i < r->n; i++)
        room[i] = width_of(r->cases[i]);
    score.half_width = score_of(room, r->n).median;
    return score;
}

tess_status tess__cases_groups(const tess__cases *cases, double *room,
                               tess_validation_group **groups, int *n)
{
    tess__arena arena = {.ctx = cases->ctx};
    const size_t most = (size_t)cases->n;
    const tess__case **sorted = tess__arena_take(&arena, most * sizeof *sorted);
    range *ranges = tess__arena_take(&arena, most * sizeof *ranges);
    *groups = sorted && ranges ? tess__alloc(cases->ctx, most * sizeof **groups) : NULL;
    if (!*groups) {
        tess__arena_free(&arena);
        return TESS_ENOMEM;
    }
    int grouped = 0;
    for (int i = 0; i < cases->n; i++)
        if (*cases->cases[i].group)
            sorted[grouped++] = &cases->cases[i];
    qsort(sorted, (size_t)grouped, sizeof *sorted, by_group);
    *n = make_ranges(sorted, grouped, ranges);
    for (int i = 0; i < *n; i++) {
        const tess__case *first = ranges[i].cases[0];
        (*groups)[i] = (tess_validation_group){quantity_of(first), first->group,
                                               score_range(&ranges[i], 0, room),
                                               score_range(&ranges[i], 1, room)};
    }
    tess__arena_free(&arena);
    return TESS_OK;
}
