/* SPDX-License-Identifier: Apache-2.0 */
/* run_page.h - what run_page.c and run_metrics.c share. */
#ifndef TESS_RUN_PAGE_H
#define TESS_RUN_PAGE_H

#include "report.h"

enum { TESS_RUN_COLUMNS = 10 };

typedef struct {
    int64_t steps, validations;
    double val_loss;               /* the last; NaN: none */
    double last[TESS_RUN_COLUMNS]; /* the last point of the curves */
    tess__markup points;           /* [step, column...], comma-separated */
    tess__markup validation;       /* [step, loss, bucket...] */
} tess__run;

/* Fills a run from its metrics.jsonl. */
tess_status tess__run_read(tess__run *run, const char *path);

#endif
