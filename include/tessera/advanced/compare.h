/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - training runs side by side: is one way of training as good as another, and faster?
 *
 *   const tess_compare_run runs[] = {{"runs/dense-0"}, {"runs/dense-1"}, {"runs/dsv-0"}, ...};
 *   tess_compare *compare;
 *   tess_compare_create(ctx, runs, n, NULL, &compare);
 *   tess_compare_arm_view(compare, 1, &arm);              // arm.at_step.change: against arm 0
 *   tess_compare_write(compare, "compare.html");
 *
 * Runs that differ in their seed alone are one arm. An arm's number is the mean over its runs with
 * the interval of Student's t. Arms are compared in pairs of runs with the same seed: these had the
 * same clips and the same noise, so that most of what is random cancels. docs/compare.md explains
 * how to read the numbers.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_COMPARE_H
#define TESSERA_COMPARE_H

#include "../base.h"

TESS_BEGIN_DECLS

/* A mean over n runs, and the interval that holds what was estimated with the confidence asked for.
 * n 0: mean is NaN; below 2 runs there is no interval: low and high are NaN. */
typedef struct {
    int n;
    double mean, low, high;
} tess_estimate;

/* Where the interval of a change lies against a margin m, changes below 0 being better. */
typedef enum {
    TESS_VERDICT_NONE,   /* no interval: fewer than two pairs */
    TESS_VERDICT_INSIDE, /* all of it in -m..m: the same for all that matters */
    TESS_VERDICT_BETTER, /* all of it below -m */
    TESS_VERDICT_WORSE,  /* all of it above m */
    TESS_VERDICT_OPEN,   /* it crosses -m or m: more seeds are needed */
} tess_verdict;

TESS_API const char *tess_verdict_name(tess_verdict verdict); /* "inside", ...; NULL: none such */
TESS_API tess_verdict tess_estimate_judge(const tess_estimate *change, double margin);

/* ---- comparisons --------------------------------------------------------------------------- */

typedef struct {
    const char *path;  /* the folder of a run, as docs/training.md describes it */
    const char *label; /* of its arm; NULL: the settings decide, and name it */
} tess_compare_run;

typedef struct {
    const char
        *baseline;       /* label of the arm that others are compared with; NULL: the first run's */
    double margin;       /* within which losses count as the same, a share; 0: 0.01 */
    double confidence;   /* of the intervals; 0: 0.95 */
    const char *command; /* shown in the page's header; NULL: none */
} tess_compare_opts;

typedef struct tess_compare tess_compare;

/* Reads metrics.jsonl of every run and settings.json and events.jsonl where they are. Arms are
 * in the order of their first runs. EINVAL: no arm has the baseline's label. */
TESS_API tess_status tess_compare_create(tess_ctx *ctx, const tess_compare_run *runs, int n,
                                         const tess_compare_opts *opts, tess_compare **compare);

typedef struct {
    int runs, arms, baseline;
    double margin, confidence;
    int64_t step;  /* the last at which every run was validated; 0: there is none */
    double wall_s; /* the longest time of steps that every run has, up to a validation; NaN: none */
    double gflop;  /* the same of attention's work; NaN: not every run recorded it */
    int notes;     /* what is to be known before the numbers are believed */
} tess_compare_info;

TESS_API tess_status tess_compare_query(const tess_compare *compare, tess_compare_info *info);
TESS_API const char *tess_compare_note(const tess_compare *compare,
                                       int index); /* NULL: none such */

enum { TESS_COMPARE_BUCKETS = 4 }; /* noise-level quartiles, from little noise to much */

/* Validation losses at one place, and their changes against the baseline as fractions of its loss
 * (0.01: 1 % more), by pairs of runs. Of the baseline itself changes have n 0. */
typedef struct {
    tess_estimate loss, buckets[TESS_COMPARE_BUCKETS];
    tess_estimate change, bucket_changes[TESS_COMPARE_BUCKETS];
    tess_verdict verdict;
} tess_compare_at;

typedef struct {
    const char *label; /* the comparison's */
    int runs;
    int64_t steps;           /* done by the shortest of its runs */
    tess_compare_at at_step; /* the info's step, the same for all */
    tess_compare_at at_wall; /* the info's wall_s: between validations on a straight line */
    tess_compare_at at_gflop;
    tess_estimate train_loss;            /* of the last tenth of the steps */
    tess_estimate step_ms, attention_ms; /* medians of a run's steps, over the runs */
    tess_estimate wall_s, gflop;         /* of whole runs */
    tess_estimate density;               /* of attention, of the last tenth; n 0: not recorded */
    tess_estimate recall;
    int switches, returns; /* layers or heads that became sparse, and dense again, in all runs */
    int64_t first_switch, last_switch; /* steps; 0: none */
} tess_compare_arm;

TESS_API tess_status tess_compare_arm_view(const tess_compare *compare, int index,
                                           tess_compare_arm *arm);

/* One HTML file that loads nothing from elsewhere: curves with their bands against steps, time and
 * attention's work, tables by noise level, densities. */
TESS_API tess_status tess_compare_write(tess_compare *compare, const char *path);
TESS_API void tess_compare_destroy(tess_compare *compare);

TESS_END_DECLS

#endif
