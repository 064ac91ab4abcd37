/* SPDX-License-Identifier: Apache-2.0 */
/* case.h - what a row of a table asks for, and the list of all that tables ask for.
 *
 *   table, map -> (cases.c) -> tess__cases -> (case_predict.c) -> predicted against measured
 *
 * A case is one configuration and one measured quantity. Cases are made once and can be predicted
 * again and again with other parameters, which is what calibration does.
 */
#ifndef TESS_SIM_CASE_H
#define TESS_SIM_CASE_H

#include "sim/overlap/overlap_internal.h"
#include "table.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/validate.h"

/* What was measured. */
typedef enum {
    TESS__MEASURED_STEP_MS,
    TESS__MEASURED_TOKENS_PER_S,
    TESS__MEASURED_TOKENS_PER_S_PER_GPU,
    TESS__MEASURED_FORWARD_MS,
    TESS__MEASURED_BACKWARD_MS,
    TESS__MEASURED_COLLECTIVE_US,
    TESS__MEASURED_BUSBW,
    TESS__MEASURED_MEMORY,
    TESS__MEASURED_DEVICE_MEMORY, /* as the driver reports it, reserved memory included */
    TESS__MEASURED_STATE,
    TESS__MEASURED_ACTIVATIONS,
    TESS__MEASURED_ACTIVATIONS_PCT,
    TESS__MEASURED_GEMM_SHARE,
    TESS__MEASURED_OVERLAPPED_NS,
    TESS__MEASURED_CLIP_S,
    TESS__MEASURED_COUNT
} tess__measured_kind;

typedef struct {
    const char *key; /* "measured.step_ms" */
    tess_quantity quantity;
    const char *unit;
} tess__measured_def;

extern const tess__measured_def tess__measured_defs[TESS__MEASURED_COUNT];

typedef struct {
    double batch, m, n, k;
    int weight; /* 1: a weight gradient, which adds to what is there */
} tess__product;

typedef struct {
    int row, repeats;
    tess__measured_kind what;
    tess_scenario scenario; /* of collectives and products: the system alone */
    tess_collective collective;
    tess__product product;
    tess__overlap_row overlap; /* a row is never a repeat of another */
    int cluster;               /* in the list of clusters */
    double measured;           /* mean of the repeats, in the quantity's unit */
    double predicted[2];       /* with the scalar; with 1.0 */
    double low, high;          /* of tess__case_interval */
    const char *software;      /* that was taken; "": none is needed */
    int software_known;        /* 1: its runs were measured */
    const char *label, *group, *model;
} tess__case;

typedef struct {
    char name[128];
    tess_cluster *cluster;
} tess__case_cluster;

enum { TESS__CASE_CLUSTERS = 64 };

typedef struct {
    tess_ctx *ctx;
    const tess_sim_params *params; /* whose software rows that name none may take; NULL: none */
    tess__arena arena;             /* texts */
    tess__case *cases;
    tess_validation_skip *skips;
    int *first; /* (rows): of each row the one its cases are kept under; 0: skipped */
    int n, n_skips, n_clusters, rows;
    int events;    /* 1: steps are those of tess_sim_timeline */
    int intervals; /* 1: predictions get low and high */
    int64_t room, skip_room, row_room;
    tess__case_cluster clusters[TESS__CASE_CLUSTERS];
} tess__cases;

/* ---- cases.c --------------------------------------------------------------------------------- */

/* Adds the rows of a table; {.ctx, .arena.ctx} set is an empty list. */
tess_status tess__cases_add(tess__cases *cases, const tess__map *map, const tess__table *table);
void tess__cases_free(tess__cases *cases);

/* A copy that lives as long as the cases; NULL: no memory. */
const char *tess__cases_text(tess__cases *cases, const char *text);

/* Leaves rows and their repeats out for reasons that show only when they are predicted: (rows),
 * NULL of those that stay. */
tess_status tess__cases_skip(tess__cases *cases, const char *const *reasons);

/* ---- table_columns.c: names of canonical columns --------------------------------------------- */

int tess__column_measured(const char *key); /* 1: a measurement that is known */

/* EINVAL: a collective, product or kernel has no such column; with the nearest one of its kind. */
tess_status tess__column_check(const char *key);
tess_status tess__column_unknown(const char *key);

/* The same as a warning about a table whose rows can do without it. */
void tess__column_warn(tess_ctx *ctx, const char *table, const char *key);

/* ---- case_repeats.c -------------------------------------------------------------------------- */

/* The configurations of one table; {.cases, .begin} set has none. */
typedef struct {
    tess__cases *cases;
    int begin; /* the first case of the table */
    int *slots;
    int64_t n, used; /* n: a power of two */
} tess__repeats;

/* Room for one more; before find and put. */
tess_status tess__repeats_reserve(tess__repeats *repeats);
/* The case of the same configuration and quantity; NULL: none yet. */
tess__case *tess__repeats_find(const tess__repeats *repeats, const tess__case *c);
void tess__repeats_put(tess__repeats *repeats, int number);
void tess__repeats_free(tess__repeats *repeats);

/* ---- case_predict.c -------------------------------------------------------------------------- */

/* Predicts one case; EINVAL, ENOTSUP: its settings do not fit each other or the cluster. */
tess_status tess__case_predict(tess_sim *sim, const tess__cases *cases, tess__case *c);

/* interval/case_interval.c: low and high of a case that was predicted. */
tess_status tess__case_interval(tess_sim *sim, tess__cases *cases, tess__case *c);

/* Predicts all; those that cannot be become skipped rows. */
tess_status tess__cases_predict(tess_sim *sim, tess__cases *cases);

/* The rows of cases that measure an overlap, in memory of the context; the hardware of each, by its
 * number in the parameters of sim. *n: how many. */
tess_status tess__cases_overlap(const tess_sim *sim, const tess__cases *cases,
                                tess__overlap_row **rows, int **hardware, int *n);

/* ---- case_score.c ---------------------------------------------------------------------------- */

/* |predicted / measured - 1| in % of the cases that `quantity` and `group` choose (group NULL:
 * all); plain 1: without scalars. `room` has space for all cases. */
tess_score tess__cases_score(const tess__cases *cases, tess_quantity quantity, const char *group,
                             int plain, double *room);

/* The scores of every (quantity, group), in memory of the context; `room` as above. */
tess_status tess__cases_groups(const tess__cases *cases, double *room,
                               tess_validation_group **groups, int *n);

#endif
