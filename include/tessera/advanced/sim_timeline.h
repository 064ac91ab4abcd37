/* SPDX-License-Identifier: Apache-2.0 */
/* sim_timeline.h - the step of a simulated job as a timeline of all its ranks.
 *
 * The operations of tess_sim_run, run event by event: every rank has a stream for computing and one
 * for each class of communication; a collective begins when its last member has come. Ranks that
 * do the same at the same times are simulated once.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_SIM_TIMELINE_H
#define TESSERA_SIM_TIMELINE_H

#include "../sim.h"
#include "timeline.h"

TESS_BEGIN_DECLS

/* Names of the classes of operations: gemm, attention, elementwise, optimiser, host, tp, cp, ep,
 * pp, dp; NULL beyond the last. */
TESS_API const char *tess_sim_timeline_class(int index);

typedef struct {
    int rank;
    double factor; /* by which its computing takes longer, 0.001..1000 */
} tess_slow_rank;

typedef struct {
    const tess_slow_rank *slow;
    int n_slow;
    const double *scale; /* of each class, its time over the predicted one; NULL: 1 */
    int every_rank;      /* 1: simulates equal ranks too, each for itself */
} tess_sim_timeline_opts;

/* The step of the last run of sim. opts NULL: all 0. EINVAL: a slow rank outside of the job, or a
 * schedule that the layout's sizes do not have. */
TESS_API tess_status tess_sim_timeline(const tess_sim *sim, const tess_sim_timeline_opts *opts,
                                       tess_timeline **timeline);

/* The order of passes of the last run. */
TESS_API tess_status tess_sim_schedule_of(const tess_sim *sim, tess_schedule **schedule);

TESS_END_DECLS

#endif
