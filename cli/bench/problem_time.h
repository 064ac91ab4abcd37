/* SPDX-License-Identifier: Apache-2.0 */
/* problem_time.h - the times of a problem, beside dense attention and the machine's peak. */
#ifndef CLI_PROBLEM_TIME_H
#define CLI_PROBLEM_TIME_H

#include "cp_bench.h"
#include "step_ranks.h"
#include "tessera/advanced/machine.h"
#include "workload.h"

enum { MEASURE_ROWS = 3 };

/* One measured call. Ratios that do not apply are NaN. */
typedef struct {
    const char *name; /* "dense", "sparse", "select", "linear", "step" */
    const char *pass; /* "fwd", "bwd", "both" */
    double density;   /* achieved: of (query, key) pairs */
    double gflops, share_of_peak;
    double over_ideal;          /* time / (density x dense time) */
    double speedup_over_dense;  /* dense time / time: the selection is given */
    double speedup_with_select; /* dense time / (time + selection time) */
    tess_timing time;           /* rates and ratios are of the best */
} measured;

/* A sparse step compared with the dense one. Fractions are of the time of the sparse step with its
 * part of profile and check. */
typedef struct {
    int measured;        /* 1: the problem is a sparse step */
    double speedup;      /* with selection, predictor, profile and check */
    double attention;    /* a: fraction of self-attention in the dense step */
    double density, ran; /* rho: asked for; of what ran, dense heads counted as 1 */
    double bound;        /* 1 / (1 - a + a rho) */
    /* Fractions: selecting keys; the predictor's loss and update; profiles and checks of recall,
     * which run every profile_every and check_every steps. */
    double select, learn, update, profile, check;
    int64_t profile_every, check_every;
    double recall;     /* of the check, on random numbers: without meaning */
    double break_even; /* density from which on heads ran dense */
    break_even_source break_even_from;
    int heads, dense_heads; /* of all layers and samples */
    int cube[3];
} sparse_report;

typedef struct {
    problem p;
    char text[PROBLEM_TEXT_MAX]; /* canonical */
    measured rows[MEASURE_ROWS];
    int n;
    int threads;
    workload_products products;
    double peak_one, peak_all; /* FLOP/s: one thread alone; all threads at once */
    double peak;               /* peak_one x threads: fractions refer to it; of what multiplies */
    double break_even;         /* density at which sparse with selection takes as long as dense */
    double shares[3];          /* of a step: attention, linear layers, the rest */
    int64_t step_bytes;        /* of a step: memory of model and pass */
    int profile_heads;         /* of the problem's profile; 0: it has none */
    sparse_report sparse;
    cp_report *context;           /* of a context problem; NULL otherwise */
    step_ranks_report step_ranks; /* of a step on several ranks; ranks 0 otherwise */
    int break_even_measured; /* 1: between two measured densities; 0: estimated from this one */
} report;

/* Call measure_free in any case. */
tess_status measure(cli *c, const problem *p, int samples, report *r);

void measure_free(report *r);

/* Sets break_even of all reports: problems that differ in density alone are measured points. */
void measure_break_even(report *reports, int n);

const measured *measured_find(const report *r, const char *name); /* NULL: not measured */

#endif
