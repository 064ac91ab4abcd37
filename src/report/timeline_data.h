/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_data.h - the operations that the page of a timeline holds, and their JSON. */
#ifndef TESS_TIMELINE_DATA_H
#define TESS_TIMELINE_DATA_H

#include "report_internal.h"
#include "tessera/advanced/timeline_report.h"

typedef struct {
    tess_ctx *ctx;
    const tess_timeline *t;
    const tess_timeline_report_opts *opts;
    tess_timeline_info info;
    tess__arena arena;
    const char **names; /* an open hash table by address: texts of a timeline are stored once */
    int32_t *numbers;
    int64_t slots, n_names;
    const char **list; /* (n_names) */
    int *shown;        /* lowest ranks of the classes that are shown, ascending */
    int n_shown;
    int64_t *first; /* (shown x streams + 1): into order */
    int64_t *order; /* operations */
    int64_t left_out;
} tess__timeline_data;

/* Chooses the classes of ranks that are shown and sorts their operations. In the arena of data,
 * which has ctx, t, opts, info and the context of its arena. */
tess_status tess__timeline_choose(tess__timeline_data *data);

tess_status tess__timeline_json(tess__timeline_data *data, tess__markup *text);

#endif
