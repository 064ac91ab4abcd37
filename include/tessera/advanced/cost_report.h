/* SPDX-License-Identifier: Apache-2.0 */
/* cost_report.h - pages of numbers that were predicted: a step by its parts, and predicted against
 * measured.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_COST_REPORT_H
#define TESSERA_COST_REPORT_H

#include "../base.h"

TESS_BEGIN_DECLS

/* ---- a step ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double value;
} tess_cost_part;

/* The change of a step in %, with an input 10 % less and 10 % more. */
typedef struct {
    const char *name;
    double less, more;
} tess_cost_input;

typedef struct {
    const char *title, *subtitle; /* NULL: a plain one; none */
    const char *command;          /* that makes the page; NULL: not said */
    const tess_cost_part *tiles;  /* numbers that matter */
    int n_tiles;
    int clip;                   /* 1: of a sampled clip, in seconds, instead of a step */
    const tess_cost_part *time; /* ms of a step */
    int n_time;
    double time_low, time_high;   /* 80 % of what is measured lies between; both 0: not known */
    const tess_cost_part *memory; /* GiB of a GPU */
    int n_memory;
    double memory_low, memory_high; /* as of time */
    double capacity;                /* GiB; 0: not known */
    const tess_cost_part *money;    /* of a step, or of the run; none: no price */
    int n_money;
    const tess_cost_input *inputs;
    int n_inputs;
} tess_cost_report_opts;

TESS_API tess_status tess_cost_report_write(tess_ctx *ctx, const tess_cost_report_opts *opts,
                                            const char *path);

/* ---- predicted against measured -------------------------------------------------------------- */

typedef struct {
    const char *quantity, *group, *label, *unit;
    double measured, predicted;
    double low, high; /* an interval of the prediction; both 0: none */
} tess_measured_point;

typedef struct {
    const char *title, *subtitle, *command; /* as above */
    const tess_measured_point *points;      /* those of a quantity one after the other */
    int n_points;
} tess_measured_report_opts;

TESS_API tess_status tess_measured_report_write(tess_ctx *ctx,
                                                const tess_measured_report_opts *opts,
                                                const char *path);

TESS_END_DECLS

#endif
