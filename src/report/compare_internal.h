/* SPDX-License-Identifier: Apache-2.0 */
/* compare_internal.h - training runs side by side: what the files of a comparison share. */
#ifndef TESS_COMPARE_INTERNAL_H
#define TESS_COMPARE_INTERNAL_H

#include "report_internal.h"
#include "tessera/advanced/compare.h"

#include <jansson.h>

/* ---- student.c ------------------------------------------------------------------------------ */

/* The t that |T| of `freedom` (1 or more) degrees exceeds with probability 1 - confidence. */
double tess__student(double confidence, int freedom);
tess_estimate tess__estimate(const double *x, int n, double confidence);

/* ---- compare_run.c: the numbers of one run, by step ------------------------------------------ */

enum {
    TESS_METRIC_LOSS,
    TESS_METRIC_WALL,  /* seconds of all steps so far, from where every run is there */
    TESS_METRIC_GFLOP, /* of attention, of all steps so far; NaN from the first step without it */
    TESS_METRIC_STEP_MS,
    TESS_METRIC_ATTENTION_MS,
    TESS_METRIC_DENSITY,
    TESS_METRIC_RECALL,
    TESS_METRIC_VAL, /* and the buckets behind it */
    TESS_METRIC_BUCKET,
    TESS_METRIC_COUNT = TESS_METRIC_BUCKET + TESS_COMPARE_BUCKETS
};

typedef struct {
    int64_t step;
    int sparse; /* 1: became sparse; 0: became dense again */
} tess__switch;

typedef struct {
    const char *path, *label; /* label NULL: none was given */
    json_t *settings;         /* NULL: there are none */
    int64_t seed;             /* -1: not known */
    int arm;
    int64_t lines;
    int64_t *steps;                    /* (lines), ascending */
    double *values[TESS_METRIC_COUNT]; /* (lines) each; NaN where a step has none */
    tess__switch *switches;
    int64_t n_switches;
} tess__recorded;

/* Reads the files of run->path into the arena. run->settings is the caller's to release, also after
 * a failure. */
tess_status tess__recorded_read(tess__arena *arena, tess__recorded *run);

/* The line of the last validation of all, or -1. */
int64_t tess__recorded_last(const tess__recorded *run);

/* A validation loss (TESS_METRIC_VAL + n) at a step, or NaN if there was none at it. */
double tess__recorded_at_step(const tess__recorded *run, int64_t step, int column);

/* The same where the axis column has the value x, on the straight line between the validations
 * around it; NaN outside them. */
double tess__recorded_at(const tess__recorded *run, int axis, double x, int column);

/* Mean of a column over lines [begin, end), without those that are NaN. */
double tess__recorded_mean(const tess__recorded *run, int column, int64_t begin, int64_t end);

/* ---- compare_arms.c: which runs belong together ---------------------------------------------- */

typedef struct {
    const char *label;
    const json_t *settings; /* of its first run; NULL: none, or the label was given */
    int runs, first;        /* first: its first run */
} tess__arm;

struct tess_compare {
    tess_ctx *ctx;
    tess__arena arena;
    tess_compare_info info;
    tess__recorded *runs;
    tess__arm *arms;
    const char *command; /* for the page; NULL: none */
    const char **notes;
    int64_t room_notes;
};

/* Fills arms, and the arm of each run. */
tess_status tess__arms_find(tess_compare *compare);

/* ---- compare_view.c ------------------------------------------------------------------------- */

/* The change of an arm's validation loss against the baseline at a step. values: scratch, as many
 * as there are runs. */
tess_estimate tess__compare_change(const tess_compare *compare, int arm, int64_t step,
                                   double *values);

#endif
