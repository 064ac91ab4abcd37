/* SPDX-License-Identifier: Apache-2.0 */
/* interval.h - how far a predicted step may be from the real one: intervals of time and memory.
 *
 * A prediction is the middle of an interval that is meant to hold 80 % of what is measured. Its
 * width has two parts: what every prediction misses, found on sources that the parameters were not
 * fitted on, and what an input of this scenario may be besides its value, times what the step
 * changes with it. docs/simulator.md describes both, docs/accuracy.md says how many of the measured
 * steps lie inside.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_INTERVAL_H
#define TESSERA_INTERVAL_H

#include "../sim.h"

TESS_BEGIN_DECLS

enum { TESS_INTERVAL_PCT = 80, TESS_INTERVAL_INPUTS = 24 };

/* Whether the memory of a GPU is enough: all of the interval below it, none, or part of it. */
typedef enum { TESS_FIT_NO, TESS_FIT_YES, TESS_FIT_MAYBE } tess_fit;
TESS_API const char *tess_fit_name(tess_fit fit); /* "no", "yes", "maybe"; NULL outside */

/* An input, and half of the width that the interval would have with this input alone. */
typedef struct {
    const char *name;   /* "products" */
    const char *about;  /* "rate of matrix products" */
    const char *origin; /* of its spread */
    double pct;
} tess_interval_input;

typedef struct {
    int known; /* 1: parameters have spreads; 0: low and high are the prediction itself */
    double step_low_s, step_high_s;
    double allocated_low, allocated_high; /* bytes, as tess_sim_memory */
    double peak_low, peak_high;
    tess_fit fits;
    const char *software;            /* the profile that was taken */
    int software_known;              /* 1: it is named, and its runs were measured */
    tess_interval_input residual[2]; /* of step and memory: what no input explains */
    int n_step, n_memory;            /* inputs, the widest first */
    tess_interval_input step[TESS_INTERVAL_INPUTS], memory[TESS_INTERVAL_INPUTS];
} tess_interval;

/* The interval of a scenario on a cluster, whose result is *result. Runs the scenario twice for
 * each input, and once more at the end, so that operations are those of the scenario itself.
 * Allocates nothing. Errors: those of tess_sim_run. */
TESS_API tess_status tess_sim_interval(tess_sim *sim, const tess_cluster *cluster,
                                       const tess_scenario *scenario, tess_sim_result *result,
                                       tess_interval *interval);

TESS_END_DECLS

#endif
