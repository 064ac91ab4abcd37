/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - training runs side by side: what is common to all, the numbers of an arm, notes.
 *
 * Arms are compared at one place that every run has reached: the last step at which all were
 * validated, and the time and the work of attention at the last validation of the run that had
 * least of it. A change is the mean over pairs of runs with the same seed of loss / baseline's loss
 * - 1. Cost: O(lines of all runs), for an arm's view too.
 */
#include "compare_internal.h"

#include "tessera/advanced/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what all runs have ------------------------------------------------------------------- */

static int all_validated(const tess_compare *c, int64_t step)
{
    for (int i = 0; i < c->info.runs; i++)
        if (isnan(tess__recorded_at_step(&c->runs[i], step, TESS_METRIC_VAL)))
            return 0;
    return 1;
}

static int64_t common_step(const tess_compare *c)
{
    const tess__recorded *run = &c->runs[0];
    for (int64_t i = tess__recorded_last(run); i >= 0; i--)
        if (!isnan(run->values[TESS_METRIC_VAL][i]) && all_validated(c, run->steps[i]))
            return run->steps[i];
    return 0;
}

/* The least that a run has of an axis at its last validation; NaN if one has nothing. */
static double common_place(const tess_compare *c, int axis)
{
    double least = INFINITY;
    for (int i = 0; i < c->info.runs; i++) {
        const int64_t last = tess__recorded_last(&c->runs[i]);
        if (last < 0 || isnan(c->runs[i].values[axis][last]))
            return NAN;
        least = fmin(least, c->runs[i].values[axis][last]);
    }
    return least;
}

/* Runs that branched off another begin later: time and work are counted from where all are there.
 */
static tess_status align(tess_compare *c)
{
    static const int axes[] = {TESS_METRIC_WALL, TESS_METRIC_GFLOP};
    int64_t first = INT64_MAX, start = 0;
    for (int i = 0; i < c->info.runs; i++) {
        const int64_t step = c->runs[i].steps[0];
        first = TESS_MIN(step, first);
        start = TESS_MAX(step, start);
    }
    if (start == first)
        return TESS_OK;
    for (int i = 0; i < c->info.runs; i++) {
        const tess__recorded *run = &c->runs[i];
        int64_t before = 0;
        while (before < run->lines && run->steps[before] < start)
            before++;
        for (size_t a = 0; a < sizeof axes / sizeof *axes && before > 0; a++) {
            const double zero = run->values[axes[a]][before - 1];
            for (int64_t line = 0; line < run->lines; line++)
                run->values[axes[a]][line] -= zero;
        }
    }
    return TESS_NOTE(c, "time and work are counted from step %lld on, at which the last run begins",
                     (long long)start);
}

static tess_status note_lengths(tess_compare *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->info.runs; i++) {
        const int64_t last = c->runs[i].steps[c->runs[i].lines - 1];
        most = TESS_MAX(last, most);
    }
    for (int i = 0; i < c->info.runs; i++) {
        const tess__recorded *run = &c->runs[i];
        const int64_t end = run->steps[run->lines - 1];
        if (tess__recorded_last(run) < 0)
            TESS_TRY(
                TESS_NOTE(c, "%s was never validated: there is nothing to compare", run->path));
        else if (end < most)
            TESS_TRY(TESS_NOTE(c, "%s ends at step %lld, others go on to step %lld", run->path,
                               (long long)end, (long long)most));
    }
    if (c->info.step == 0)
        return TESS_NOTE(c, "there is no step at which every run was validated");
    if (c->info.step < most)
        return TESS_NOTE(c, "the last step at which every run was validated is %lld of %lld",
                         (long long)c->info.step, (long long)most);
    return TESS_OK;
}

/* Losses on other clips, or of other noise, are not of the same thing. */
static tess_status note_data(tess_compare *c)
{
    static const char *const keys[] = {"data", "frames", "height",        "width",
                                       "pack", "shift",  "validate-clips"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int i = 1; i < c->info.runs; i++) {
            const json_t *first = json_object_get(c->runs[0].settings, keys[k]);
            const json_t *other = json_object_get(c->runs[i].settings, keys[k]);
            if (first && other && !json_equal(first, other)) {
                TESS_TRY(TESS_NOTE(c,
                                   "runs differ in \"%s\": their losses are not of the "
                                   "same thing",
                                   keys[k]));
                break;
            }
        }
    return TESS_OK;
}

static tess_status note_pairs(tess_compare *c)
{
    for (int i = 0; i < c->info.arms; i++) {
        if (i != c->info.baseline && c->info.step) {
            tess_compare_arm arm;
            TESS_TRY(tess_compare_arm_view(c, i, &arm));
            if (arm.at_step.change.n == 0)
                TESS_TRY(TESS_NOTE(c, "%s has no seed in common with %s: no change is reported",
                                   arm.label, c->arms[c->info.baseline].label));
            else if (arm.at_step.change.n == 1)
                TESS_TRY(TESS_NOTE(c, "%s has one seed in common with %s: no interval", arm.label,
                                   c->arms[c->info.baseline].label));
        }
    }
    return TESS_OK;
}

/* ---- the object --------------------------------------------------------------------------- */

/* The arm of that label, else the only one whose label begins with it and a comma; -1: none, -2:
 * several. */
static int find_arm(const tess_compare *c, const char *label)
{
    const size_t n = strlen(label);
    int found = -1;
    for (int i = 0; i < c->info.arms; i++) {
        const char *own = c->arms[i].label;
        if (strcmp(own, label) == 0)
            return i;
        if (strncmp(own, label, n) == 0 && own[n] == ',')
            found = found == -1 ? i : -2;
    }
    return found;
}

static tess_status find_baseline(tess_compare *c, const char *label)
{
    const int found = label ? find_arm(c, label) : 0;
    const char *near = NULL;
    if (found >= 0) {
        c->info.baseline = found;
        return TESS_OK;
    }
    for (int i = 0; i < c->info.arms; i++)
        near = tess_nearest(label, &c->arms[i].label, 1) ? c->arms[i].label : near;
    if (found == -2)
        return tess__fail(
            TESS_EINVAL,
            "tess_compare_create: several arms begin with \"%.80s\", must be all of a "
            "label such as \"%.200s\"",
            label, near ? near : c->arms[0].label);
    return tess__fail(TESS_EINVAL, "tess_compare_create: no arm is called \"%.80s\", %s \"%.200s\"",
                      label, near ? "did you mean" : "the first is",
                      near ? near : c->arms[0].label);
}

static tess_status fill(tess_compare *c, const tess_compare_run *runs, const char *baseline)
{
    c->runs = TESS_TAKE_ZERO(&c->arena, (size_t)c->info.runs * sizeof *c->runs);
    for (int i = 0; i < c->info.runs; i++) {
        tess__recorded *run = &c->runs[i];
        run->path = TESS_TAKE_STRING(&c->arena, runs[i].path, strlen(runs[i].path));
        run->label = runs[i].label; /* until the arms have names of their own */
        TESS_TRY(tess__recorded_read(&c->arena, run));
        TESS_TRY(tess__progress(c->ctx, "reading runs", i + 1, c->info.runs));
    }
    TESS_TRY(tess__arms_find(c));
    TESS_TRY(find_baseline(c, baseline));
    TESS_TRY(align(c));
    c->info.step = common_step(c);
    c->info.wall_s = common_place(c, TESS_METRIC_WALL);
    c->info.gflop = common_place(c, TESS_METRIC_GFLOP);
    TESS_TRY(note_lengths(c));
    TESS_TRY(note_data(c));
    return note_pairs(c);
}

static tess_status check(const tess_compare_run *runs, int n, const tess_compare_opts *o)
{
    TESS_TRY(tess__check_range("tess_compare_create", "n", n, 1, 65536));
    for (int i = 0; i < n; i++)
        if (!runs[i].path)
            return tess__fail(TESS_EINVAL, "tess_compare_create: runs[%d].path is NULL", i);
    if (!(o->margin >= 0 && isfinite(o->margin)))
        return tess__fail(TESS_EINVAL, "tess_compare_create: margin is %g, must be 0 or more",
                          o->margin);
    if (!(o->confidence >= 0 && o->confidence < 1))
        return tess__fail(TESS_EINVAL,
                          "tess_compare_create: confidence is %g, must be 0 or more, below 1",
                          o->confidence);
    return TESS_OK;
}

tess_status tess_compare_create(tess_ctx *ctx, const tess_compare_run *runs, int n,
                                const tess_compare_opts *opts, tess_compare **compare)
{
    static const tess_compare_opts none;
    const tess_compare_opts *o = opts ? opts : &none;
    TESS_REQUIRE(ctx, runs, compare);
    TESS_TRY(check(runs, n, o));
    tess_compare *c = TESS_ALLOC_ZERO(ctx, sizeof *c);
    c->ctx = ctx;
    c->arena.ctx = ctx;
    c->info = (tess_compare_info){.runs = n,
                                  .margin = o->margin > 0 ? o->margin : 0.01,
                                  .confidence = o->confidence > 0 ? o->confidence : 0.95};
    tess_status status = TESS_OK;
    if (o->command) {
        c->command = tess__arena_string(&c->arena, o->command, strlen(o->command));
        status = c->command ? TESS_OK : TESS_ENOMEM;
    }
    if (!status)
        status = fill(c, runs, o->baseline);
    if (status) {
        tess_compare_destroy(c);
        return status;
    }
    *compare = c;
    return TESS_OK;
}

void tess_compare_destroy(tess_compare *compare)
{
    if (!compare)
        return;
    for (int i = 0; compare->runs && i < compare->info.runs; i++)
        json_decref(compare->runs[i].settings);
    tess__free(compare->ctx, compare->notes);
    tess__arena_free(&compare->arena);
    tess__free(compare->ctx, compare);
}

tess_status tess_compare_query(const tess_compare *compare, tess_compare_info *info)
{
    TESS_REQUIRE(compare, info);
    *info = compare->info;
    return TESS_OK;
}

const char *tess_compare_note(const tess_compare *compare, int index)
{
    return compare && index >= 0 && index < compare->info.notes ? compare->notes[index] : NULL;
}
