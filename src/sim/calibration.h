/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h - parameters of the simulator on their way to measured rows. */
#ifndef TESS_SIM_CALIBRATION_H
#define TESS_SIM_CALIBRATION_H

#include "case.h"
#include "sim_internal.h"

enum { TESS__FITTED_MAX = 512 };

struct tess_calibration {
    tess_ctx *ctx;
    tess__cases cases;
    tess_sim_params *params;
    tess_sim *sim;
    tess_quantity quantity;
    int n;
    int index[TESS__FITTED_MAX];
    double start[TESS__FITTED_MAX];
    char *from;           /* path of the parameters; NULL: the shipped ones */
    const char *left_out; /* a model whose cases do not count; NULL: none */
    int round;            /* of the search */
    tess_status stopped;  /* TESS_OK, or why the search ends early */
    tess_calibration_info info;
    tess_overlap_score overlap[2][TESS_OVERLAP_MODELS]; /* fitted; kernel left out */
};

/* Fits the listed parameters to the cases; leave 1: after measuring the error of a model that is
 * left out. */
tess_status tess__calibration_fit(tess_calibration *k, int leave);

/* calibration_overlap.c: the same of quantity overlap, whose parameters follow from totals. */
tess_status tess__calibration_overlap(tess_calibration *k, int leave);

#endif
