/* SPDX-License-Identifier: Apache-2.0 */
/* compare_view.c - the numbers of one arm of a comparison: means over its runs, changes by pairs.
 */
#include "compare_internal.h"

#include <math.h>
#include <string.h>

/* ---- losses at one place ------------------------------------------------------------------ */

enum { AXIS_STEP = -1 };

typedef struct {
    const tess_compare *c;
    int arm, axis;  /* AXIS_STEP, or a column */
    int64_t step;   /* of AXIS_STEP; 0: none */
    double *values; /* scratch of as many as there are runs */
} place;

static double loss_at(const place *p, const tess__recorded *run, int column)
{
    const tess_compare_info *info = &p->c->info;
    if (p->axis == AXIS_STEP)
        return p->step ? tess__recorded_at_step(run, p->step, column) : NAN;
    const double x = p->axis == TESS_METRIC_WALL ? info->wall_s : info->gflop;
    return isnan(x) ? NAN : tess__recorded_at(run, p->axis, x, column);
}

static tess_estimate mean_of(const place *p, int column)
{
    int n = 0;
    for (int i = 0; i < p->c->info.runs; i++)
        if (p->c->runs[i].arm == p->arm)
            p->values[n++] = loss_at(p, &p->c->runs[i], column);
    return tess__estimate(p->values, n, p->c->info.confidence);
}

/* The first run of an arm with this seed, or NULL. */
static const tess__recorded *run_of(const tess_compare *c, int arm, int64_t seed)
{
    for (int i = 0; i < c->info.runs; i++)
        if (c->runs[i].arm == arm && c->runs[i].seed == seed)
            return &c->runs[i];
    return NULL;
}

static tess_estimate change_of(const place *p, int column)
{
    const tess_compare *c = p->c;
    int n = 0;
    for (int i = 0; i < c->info.runs && p->arm != c->info.baseline; i++) {
        const tess__recorded *run = &c->runs[i];
        if (run->arm != p->arm || run->seed < 0 || run_of(c, p->arm, run->seed) != run)
            continue;
        const tess__recorded *base = run_of(c, c->info.baseline, run->seed);
        if (base)
            p->values[n++] = loss_at(p, run, column) / loss_at(p, base, column) - 1;
    }
    return tess__estimate(p->values, n, c->info.confidence);
}

tess_estimate tess__compare_change(const tess_compare *c, int arm, int64_t step, double *values)
{
    return change_of(
        &(place){.c = c, .arm = arm, .axis = AXIS_STEP, .step = step, .values = values},
        TESS_METRIC_VAL);
}

static tess_compare_at compare_at(const place *p)
{
    tess_compare_at at = {.loss = mean_of(p, TESS_METRIC_VAL),
                          .change = change_of(p, TESS_METRIC_VAL)};
    for (int b = 0; b < TESS_COMPARE_BUCKETS; b++) {
        at.buckets[b] = mean_of(p, TESS_METRIC_BUCKET + b);
        at.bucket_changes[b] = change_of(p, TESS_METRIC_BUCKET + b);
    }
    at.verdict = tess_estimate_judge(&at.change, p->c->info.margin);
    return at;
}

/* ---- whole runs --------------------------------------------------------------------------- */

/* A median: a machine that others use makes some steps slow, never fast. */
static double median(const tess__recorded *run, int column, double *scratch)
{
    int64_t n = 0;
    for (int64_t i = 0; i < run->lines; i++)
        if (!isnan(run->values[column][i]))
            scratch[n++] = run->values[column][i];
    if (n == 0)
        return NAN;
    return tess__median(scratch, (size_t)n);
}

typedef enum { OF_TAIL, OF_MEDIAN, OF_END } summary;

/* A column of each run, summed up, over the runs of an arm. values and scratch: as place.values,
 * and as many as the longest run has lines. */
static tess_estimate summed(const place *p, int column, summary how, double *scratch)
{
    int n = 0;
    for (int i = 0; i < p->c->info.runs; i++) {
        const tess__recorded *run = &p->c->runs[i];
        if (run->arm != p->arm)
            continue;
        const int64_t tail = run->lines - (run->lines + 9) / 10;
        p->values[n++] = how == OF_TAIL     ? tess__recorded_mean(run, column, tail, run->lines)
                         : how == OF_MEDIAN ? median(run, column, scratch)
                                            : run->values[column][run->lines - 1];
    }
    return tess__estimate(p->values, n, p->c->info.confidence);
}

static void count_switches(const tess_compare *c, int index, tess_compare_arm *arm)
{
    for (int i = 0; i < c->info.runs; i++) {
        const tess__recorded *run = &c->runs[i];
        for (int64_t t = 0; run->arm == index && t < run->n_switches; t++) {
            const int64_t step = run->switches[t].step;
            arm->returns += !run->switches[t].sparse;
            if (!run->switches[t].sparse)
                continue;
            arm->first_switch =
                arm->switches == 0 || step < arm->first_switch ? step : arm->first_switch;
            arm->last_switch = step > arm->last_switch ? step : arm->last_switch;
            arm->switches++;
        }
    }
}

static void view(const tess_compare *c, int index, double *values, double *scratch,
                 tess_compare_arm *arm)
{
    place p = {.c = c, .arm = index, .axis = AXIS_STEP, .step = c->info.step, .values = values};
    *arm =
        (tess_compare_arm){.label = c->arms[index].label,
                           .runs = c->arms[index].runs,
                           .steps = INT64_MAX,
                           .train_loss = summed(&p, TESS_METRIC_LOSS, OF_TAIL, scratch),
                           .step_ms = summed(&p, TESS_METRIC_STEP_MS, OF_MEDIAN, scratch),
                           .attention_ms = summed(&p, TESS_METRIC_ATTENTION_MS, OF_MEDIAN, scratch),
                           .wall_s = summed(&p, TESS_METRIC_WALL, OF_END, scratch),
                           .gflop = summed(&p, TESS_METRIC_GFLOP, OF_END, scratch),
                           .density = summed(&p, TESS_METRIC_DENSITY, OF_TAIL, scratch),
                           .recall = summed(&p, TESS_METRIC_RECALL, OF_TAIL, scratch)};
    for (int i = 0; i < c->info.runs; i++) {
        const tess__recorded *run = &c->runs[i];
        if (run->arm == index && run->steps[run->lines - 1] < arm->steps)
            arm->steps = run->steps[run->lines - 1];
    }
    arm->at_step = compare_at(&p);
    p.axis = TESS_METRIC_WALL;
    arm->at_wall = compare_at(&p);
    p.axis = TESS_METRIC_GFLOP;
    arm->at_gflop = compare_at(&p);
    count_switches(c, index, arm);
}

tess_status tess_compare_arm_view(const tess_compare *compare, int index, tess_compare_arm *arm)
{
    TESS_REQUIRE(compare, arm);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, compare->info.arms - 1));
    int64_t lines = 0;
    for (int i = 0; i < compare->info.runs; i++)
        lines = TESS_MAX(compare->runs[i].lines, lines);
    const size_t n = (size_t)compare->info.runs + (size_t)lines;
    double *values = TESS_ALLOC(compare->ctx, n * sizeof *values);
    view(compare, index, values, values + compare->info.runs, arm);
    tess__free(compare->ctx, values);
    return TESS_OK;
}
