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
    int cluster;         /* in the list of clusters */
    double measured;     /* mean of the repeats, in the quantity's unit */
    double predicted[2]; /* with the scalar; with 1.0 */
    const char *label, *group, *model;
} tess__case;

typedef struct {
    char name[128];
    tess_cluster *cluster;
} tess__case_cluster;

enum { TESS__CASE_CLUSTERS = 64 };

typedef struct {
    tess_ctx *ctx;
    tess__arena arena; /* texts */
    tess__case *cases;
    tess_validation_skip *skips;
    int *first; /* (rows): of each row the one its cases are kept under; 0: skipped */
    int n, n_skips, n_clusters, rows;
    int64_t room, skip_room, row_room;
    tess__case_cluster clusters[TESS__CASE_CLUSTERS];
} tess__cases;

/* ---- cases.c --------------------------------------------------------------------------------- */

/* Adds the rows of a table; {.ctx, .arena.ctx} set is an empty list. */
tess_status tess__cases_add(tess__cases *cases, const tess__map *map, const tess__table *table);
void tess__cases_free(tess__cases *cases);

/* Leaves a row and its repeats out for a reason that shows only when it is predicted. */
tess_status tess__cases_skip(tess__cases *cases, int row, const char *reason);

/* ---- case_predict.c -------------------------------------------------------------------------- */

/* Predicts one case; EINVAL, ENOTSUP: its settings do not fit each other or the cluster. */
tess_status tess__case_predict(tess_sim *sim, const tess__cases *cases, tess__case *c);

/* Predicts all; those that cannot be become skipped rows. */
tess_status tess__cases_predict(tess_sim *sim, tess__cases *cases);

/* |predicted / measured - 1| in % of the cases that `quantity` and `group` choose (group NULL:
 * all); plain 1: without scalars. `room` has space for all cases. */
tess_score tess__cases_score(const tess__cases *cases, tess_quantity quantity, const char *group,
                             int plain, double *room);

#endif
