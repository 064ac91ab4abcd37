/* SPDX-License-Identifier: Apache-2.0 */
/* run_page.h - what run_page.c and run_metrics.c share. */
#ifndef TESS_RUN_PAGE_H
#define TESS_RUN_PAGE_H

#include "report_internal.h"

#include <jansson.h>

enum {
    TESS_RUN_LOSS = 0,
    TESS_RUN_STEP_MS = 3,
    TESS_RUN_RATE = 9,
    TESS_RUN_DENSITY = 10, /* from here on: of runs with sparse attention alone */
    TESS_RUN_RECALL = 11,
    TESS_RUN_COLUMNS = 17
};

typedef struct {
    int64_t steps, validations;
    double val_loss;                /* the last; NaN: none */
    double last[TESS_RUN_COLUMNS];  /* the last point of the curves */
    int recorded[TESS_RUN_COLUMNS]; /* 1: some step has it; of density: one below 1 */
    tess__markup points;            /* [step, column...], comma-separated */
    tess__markup validation;        /* [step, loss, bucket...] */
    tess__markup events;            /* [step, event, layer, head, why] */
} tess__run_data;

/* Fills a run from its metrics.jsonl. */
tess_status tess__run_read(tess__run_data *run, const char *path);

/* Adds the events of a run's events.jsonl as [step, event, layer, head, why], comma-separated; a
 * file that is not there adds nothing. */
tess_status tess__run_events(tess__markup *events, const char *path);

/* run_head.c: the page's head, title and header; settings NULL: none. */
void tess__run_head(tess__markup *page, const char *run, const json_t *settings, int refresh);

#endif
