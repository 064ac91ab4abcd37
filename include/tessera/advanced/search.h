/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - the best layout of a training job: every combination of some settings, simulated.
 *
 * A search takes a scenario, gives some of its settings all combinations of the values named, and
 * simulates (sim.h) what keeps the rules of tess_scenario_fill. What fits in the memory of a GPU is
 * ranked. The memory of every combination is counted; the time of one whose lower bound is above
 * all that could be reported is not, unless the search is exhaustive: the answer is the same.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_SEARCH_H
#define TESSERA_SEARCH_H

#include "interval.h"
#include "sim_detail.h"

TESS_BEGIN_DECLS

typedef enum { TESS_SEARCH_TIME, TESS_SEARCH_COST, TESS_SEARCH_GPU_HOURS } tess_search_by;

/* A setting and its values, as tess_scenario_set takes them: ("layout.tp", "1,2,4"). The name of a
 * group may be left out where that is clear: "tp". */
typedef struct {
    const char *key, *values;
} tess_search_axis;

/* {0}: tp, pp, vpp, cp, ep, zero, micro_batch, recompute and sequence, every value that the rules
 * allow on the scenario's GPUs (of vpp: that gives chunks of equally many layers), ranked by time.
 */
typedef struct {
    const tess_search_axis *over; /* n_over of them; 0: the settings above */
    int n_over;
    const int *gpus; /* n_gpus values of layout.gpus, an axis of its own; 0: the scenario's */
    int n_gpus;
    tess_search_by by;
    double memory_limit;    /* bytes a GPU may hold, where that is less than it has; 0: all */
    double deadline, steps; /* seconds in which that many steps must be done; 0: none */
    double price;           /* of one GPU for an hour; 0: cost is counted in GPU-hours */
    int exhaustive;         /* 1: no bound: every combination is simulated to its end */
    const char *checkpoint; /* a file: read if it is there, written now and then; NULL: none */
} tess_search_opts;

typedef struct {
    int64_t combinations; /* of the values named; without `over`, those that the rules allow */
    int64_t valid;        /* that keep the rules, and that the cluster can run */
    int64_t evaluated;    /* of these, simulated to their end */
    int64_t feasible;     /* that fit, and are done before the deadline */
    int64_t resumed;      /* valid ones that the checkpoint had done */
    int stopped;          /* 1: the progress callback asked to stop; the lists are of a part */
    int axes;
    double limit; /* bytes a GPU may hold, of the first combination */
} tess_search_info;

/* What is listed: the best (ten at most); the best of each number of GPUs that is faster than all
 * with fewer, GPUs ascending; that is cheaper than all faster ones, time ascending; and one each:
 * the one that lacks least memory, the fastest one that fits but is late. */
typedef enum {
    TESS_SEARCH_TOP,
    TESS_SEARCH_FRONT_GPUS,
    TESS_SEARCH_FRONT_COST,
    TESS_SEARCH_NEAREST,
    TESS_SEARCH_LATE,
    TESS_SEARCH_LISTS
} tess_search_list;

typedef struct {
    int64_t combination;        /* its number */
    double cost;                /* of a step: GPU-hours x price, or GPU-hours */
    double lacking;             /* bytes above the limit; 0: fits */
    double peak_low, peak_high; /* the interval of its memory ... */
    tess_fit fit;               /* ... and what that says of the limit: of those that fit yes or
                                   maybe, of others no or maybe */
    tess_sim_result result;
} tess_search_point;

typedef struct tess_search tess_search;

/* Runs the search on all threads of ctx; the answer does not depend on how many there are. measured
 * may be NULL. EINVAL: a setting that does not exist, with the nearest one, a value that breaks its
 * rule, a setting given twice, or no combination that keeps the rules (with the first one's
 * reason). A checkpoint of another search is EINVAL. Calls the progress callback; when that asks to
 * stop the result is of what was done; ESTOPPED: the stop came before the first was simulated. */
TESS_API tess_status tess_search_run(tess_ctx *ctx, const tess_sim_params *params,
                                     const tess_sim_measured *measured,
                                     const tess_scenario *scenario, const tess_search_opts *opts,
                                     tess_search **search);
TESS_API void tess_search_destroy(tess_search *search);

TESS_API tess_status tess_search_query(const tess_search *search, tess_search_info *info);
TESS_API int tess_search_count(const tess_search *search, tess_search_list list); /* 0 of NULL */
TESS_API tess_status tess_search_get(const tess_search *search, tess_search_list list, int index,
                                     tess_search_point *point);

/* Axis `axis`: its name ("layout.tp"), and its value in a combination. Both live as long as search;
 * NULL outside. */
TESS_API const char *tess_search_key(const tess_search *search, int axis);
TESS_API const char *tess_search_value(const tess_search *search, int axis, int64_t combination);

TESS_END_DECLS

#endif
