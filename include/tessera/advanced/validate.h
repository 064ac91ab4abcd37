/* SPDX-License-Identifier: Apache-2.0 */
/* validate.h - predicted against measured: tables of runs, and parameters fitted to them.
 *
 * A table is a CSV file of measured steps, layers, memory or collectives; a map (docs/scenarios.md)
 * says what its columns mean. Every row is predicted from its settings alone and compared with what
 * was measured; rows that cannot be expressed are kept with the reason. Configurations that are
 * there several times are scored once, against the mean of their measurements.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_VALIDATE_H
#define TESSERA_VALIDATE_H

#include "../scenario.h"
#include "overlap.h"
#include "sim_detail.h"

TESS_BEGIN_DECLS

/* ---- validation ------------------------------------------------------------------------------ */

typedef enum {
    TESS_QUANTITY_STEP,       /* ms of a step; throughputs are turned into it */
    TESS_QUANTITY_LAYER,      /* ms of a layer's forward or backward pass */
    TESS_QUANTITY_COLLECTIVE, /* us */
    TESS_QUANTITY_MEMORY,     /* GiB, or % of a baseline */
    TESS_QUANTITY_PRODUCT,    /* fraction of the peak that a product reaches */
    TESS_QUANTITY_OVERLAP,    /* time of a kernel beside communication over its time alone */
    TESS_QUANTITY_CLIP,       /* s of a sampled clip */
    TESS_QUANTITIES
} tess_quantity;

TESS_API const char *tess_quantity_name(tess_quantity quantity); /* "step"; NULL outside */

/* Of absolute errors |predicted / measured - 1| in %. */
typedef struct {
    int scored;
    double mean, median, max; /* 0 of none */
    double bias;              /* mean of predicted / measured - 1, with its sign */
    double coverage;          /* % of what was measured that lies inside of its interval */
    double half_width;        /* of the intervals in % of the prediction, median */
} tess_score;

typedef struct {
    const char *map, *about; /* the map that was used */
    int rows;                /* of the table */
    int cases;               /* configurations that are scored, over all quantities */
    int skipped;             /* rows that are not */
    int groups;              /* (quantity, group) of the cases */
    tess_quantity quantity;  /* of score: the first that the table has */
    tess_score score, plain; /* with the scalars of (system, era), and with 1.0 for all */
} tess_validation_info;

typedef struct {
    int row; /* of the table, from 1, the header not counted; the first of repeated ones */
    int repeats;
    tess_quantity quantity;
    const char *label, *group, *unit;  /* "" where the map gives none */
    double measured, predicted, plain; /* plain: with 1.0 instead of the scalar */
    double error;                      /* predicted / measured - 1, in % */
    double low, high;                  /* 80 % of what is measured should lie between them */
    const char *software;              /* profile that was taken; "" of collectives and kernels */
    int software_known;                /* 1: it is named, and its runs were measured */
} tess_validation_case;

typedef struct {
    int row;
    const char *reason;
} tess_validation_skip;

typedef struct {
    const char *map;               /* path of a map; NULL: the shipped one that knows the columns */
    const tess_sim_params *params; /* NULL: the shipped ones */
    int events;                    /* 1: steps event by event, as tess_sim_timeline counts them */
} tess_validation_opts;

typedef struct tess_validation tess_validation;

TESS_API tess_status tess_validation_run(tess_ctx *ctx, const char *path,
                                         const tess_validation_opts *opts,
                                         tess_validation **validation);
TESS_API void tess_validation_destroy(tess_validation *validation);

TESS_API tess_status tess_validation_query(const tess_validation *validation,
                                           tess_validation_info *info);

/* Scores of the cases of one quantity and one group; group NULL: all of them. */
TESS_API tess_status tess_validation_score(const tess_validation *validation,
                                           tess_quantity quantity, const char *group,
                                           tess_score *score, tess_score *plain);

/* The rows of quantity overlap that communication ran beside, by the parameters or by something
 * simpler; rows 0: the table has none. */
TESS_API tess_status tess_validation_overlap(const tess_validation *validation,
                                             tess_overlap_model model, tess_overlap_score *score);

/* The cases of one quantity and one group, scored: groups in the order of quantities, within one in
 * that of the table. Cases without a group are in none. */
typedef struct {
    tess_quantity quantity;
    const char *name;
    tess_score score, plain;
} tess_validation_group;

TESS_API tess_status tess_validation_group_query(const tess_validation *validation, int index,
                                                 tess_validation_group *out);

/* Cases in the order of the table; skipped rows likewise. */
TESS_API tess_status tess_validation_case_query(const tess_validation *validation, int index,
                                                tess_validation_case *out);
TESS_API tess_status tess_validation_skip_query(const tess_validation *validation, int index,
                                                tess_validation_skip *out);

/* ---- calibration ----------------------------------------------------------------------------- */

typedef struct {
    const char *const *tables; /* paths, each read through the map that knows it */
    int n_tables;
    const char *const *names; /* "h100.gemm_share", "nemo-2024.tp_exposed", "scalar.SYSTEM ERA" */
    int n_names;
    /* Whose mean absolute error falls. Of overlap all parameters are fitted, so that totals are
     * right, and none is named. */
    tess_quantity quantity;
    const char *params; /* path of the parameters to start from; NULL: the shipped ones */
    int leave_one_out;  /* 1: also fit without each model (of overlap: kernel) in turn */
} tess_calibration_opts;

typedef struct {
    int cases, parameters, models;
    double before, after; /* mean absolute error in % */
    double left_out;      /* of models by parameters fitted without them; 0 unless asked for */
} tess_calibration_info;

typedef struct tess_calibration tess_calibration;

/* The same rows and names give the same values on every machine. */
TESS_API tess_status tess_calibration_run(tess_ctx *ctx, const tess_calibration_opts *opts,
                                          tess_calibration **calibration);
TESS_API void tess_calibration_destroy(tess_calibration *calibration);
TESS_API tess_status tess_calibration_query(const tess_calibration *calibration,
                                            tess_calibration_info *info);

/* Of quantity overlap: scores of the fitted parameters; left_out 1: of rows whose kernel the fit
 * did not have. rows 0: of another quantity, or not asked for. */
TESS_API tess_status tess_calibration_overlap(const tess_calibration *calibration, int left_out,
                                              tess_overlap_model model, tess_overlap_score *score);

/* A fitted parameter, in the order of the names, and its value before. */
TESS_API tess_status tess_calibration_value(const tess_calibration *calibration, int index,
                                            tess_sim_param *param, double *before);

/* The file the fit began from, with the fitted values in it. */
TESS_API tess_status tess_calibration_write(const tess_calibration *calibration, const char *path);

TESS_END_DECLS

#endif
