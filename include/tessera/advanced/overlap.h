/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.h - scores of predicted slowdowns: kernels beside communication.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_OVERLAP_H
#define TESSERA_OVERLAP_H

#include "activity.h"

TESS_BEGIN_DECLS

/* Who predicts. */
typedef enum {
    TESS_OVERLAP_PREDICTED,  /* the parameters: by kernel, else by class, else one constant */
    TESS_OVERLAP_NONE,       /* no slowdown */
    TESS_OVERLAP_CLASS_MEAN, /* the mean ratio of the rows of its class */
    TESS_OVERLAP_MODELS
} tess_overlap_model;

TESS_API const char *tess_overlap_model_name(tess_overlap_model model); /* "no slowdown"; or NULL */

/* Of the rows that communication ran beside. */
typedef struct {
    int rows;
    double total_pct; /* sum of predicted over sum of measured times - 1, in % */
    double log_rmse;  /* root of the mean square of log(predicted / measured) */
    double mean_us;   /* mean of |predicted - measured| */
} tess_overlap_score;

TESS_END_DECLS

#endif
