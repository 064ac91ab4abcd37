/* SPDX-License-Identifier: Apache-2.0 */
/* cp_internal.h - plans at run time: rates, reuse, measured unions of selected keys, events.
 *
 *   cp.c         the object: options, local rows, blocks of plans, queries
 *   cp_rates.c   rates and links, agreed between ranks, as a cluster
 *   cp_unions.c  unions of selected keys: given, or measured
 *   cp_plan.c    densities to work, reused plans and new ones, measured times
 *
 * A plan is for a single sample. A pass has `batch` samples, which take batch times as long except
 * for latencies: plans are priced on a copy of the cluster whose rates are divided by the batch.
 */
#ifndef TESS_CP_INTERNAL_H
#define TESS_CP_INTERNAL_H

#include "base/base_internal.h"
#include "exec/dist_attn_internal.h"
#include "tessera/cp.h"

enum { TESS_EVENT_MAX = 512 }; /* bytes of the sentence of an event */

/* ---- cp_rates.c ------------------------------------------------------------------------------ */

/* What a rank does, on all of its threads. Times in ns. */
typedef struct {
    double forward, backward; /* of a (query, key) pair in a list */
    double row_keys;          /* fixed cost of a query row, in pairs */
    double part_keys;         /* the same of each further part of the keys, merged */
    double dense;             /* a pair of dense attention in pairs of lists: 1 or less */
    double copied;            /* of a byte that is packed or unpacked */
} tess__rates;

/* ---- the object ------------------------------------------------------------------------------ */

/* Data of a layer besides its plan. Measured values are running means; -1: none yet. */
typedef struct {
    char words[TESS_STRATEGY_TEXT];
    int64_t bytes; /* predicted: maximum over ranks */
    double measured_ns, measured_bytes;
} tess__cp_layer;

struct tess_cp {
    tess_ctx *ctx;
    tess_comm *comm;
    tess__arena arena; /* which holds the object and its arrays */
    tess_cp_opts opts; /* arrays in the arena; without strategy and cluster */
    int rank, ranks;
    int64_t *bounds;              /* (ranks + 1): local rows of each rank */
    int64_t *blocks_q, *blocks_k; /* (n + 1): bounds of the blocks of plans */
    int64_t *groups;              /* (n_groups + 1) */
    int32_t n_q, n_k;
    double *
        priced_unions; /* (layers, ranks + 1): fractions that plans are priced with; 0: not known */
    double *measured_unions;     /* the same, as measured so far */
    int measures_unions;         /* 1: fractions are measured, 0: given, or not needed */
    int restart_means;           /* 1: the next measurement restarts the means */
    int64_t steps_since_measure; /* steps since the last measurement */
    tess_union_counts counts;
    tess_dist_attn *attn;
    int measured;          /* 1: rates are the ranks' own, 0: a named cluster's */
    tess__rates rates;     /* agreed */
    tess_cluster *cluster; /* as measured or named */
    tess_cluster *priced;  /* the same for a pass of all samples */
    tess_plan_opts how;
    tess_plan *plan; /* NULL before the first */
    int64_t plans, reused, carried_ns;
    double planned_work; /* work that the plan was made for: mean of head_work */
    uint8_t *projects;   /* (2, layers): 1: projected q and k are sent; now, and in the plan */
    double select_keys;  /* time of selecting the list of a row, in pairs of a list */
    double *density;     /* (layers, heads), the sum of select_ns, and counts.rows: all-reduced */
    double *head_work;   /* (layers, heads): time of a head, in units of a head of complete lists */
    double *step_stats;  /* (layers, 2): ns and bytes of the last step, maxima over ranks */
    tess__cp_layer *layers;
};

/* Calls opts.on_event. */
void tess__cp_report(const tess_cp *c, tess_cp_event_kind kind, int64_t step, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));

/* Sums over layers; -1: not known. */
int64_t tess__cp_predicted(const tess_cp *c);
int64_t tess__cp_measured(const tess_cp *c);

/* cp_rates.c: fills rates, cluster, priced, how. Collective. */
tess_status tess__cp_rates(tess_cp *c, const tess_cp_opts *opts);

/* ---- cp_unions.c ----------------------------------------------------------------------------- */

/* Selective degrees of so many ranks: the divisors above 1; degrees NULL: only their number.
 * *parts: their sum. */
int tess__degrees(int ranks, int *degrees, int64_t *parts);

/* Fills priced_unions and measured_unions, and allocates the counts. */
tess_status tess__cp_unions(tess_cp *c, const tess_cp_opts *opts);

/* Number of counts that are all-reduced with the densities: 0 where none were counted. */
int64_t tess__cp_count_values(const tess_cp *c);

/* Updates measured_unions from the all-reduced counts; 1: plans should be priced again. */
int tess__cp_update_unions(tess_cp *c, int64_t step);

/* Prices the next plan with measured_unions. */
void tess__cp_price_unions(tess_cp *c);

/* Before a step: decides whether the executor counts. made: with a new plan. */
void tess__cp_schedule_measure(tess_cp *c, int made);

#endif
