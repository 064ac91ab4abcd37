/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_report.h - a timeline as one HTML page that loads nothing: tracks, breakdown, memory.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_TIMELINE_REPORT_H
#define TESSERA_TIMELINE_REPORT_H

#include "timeline.h"

TESS_BEGIN_DECLS

/* A part of the step, in ms. */
typedef struct {
    const char *name;
    double ms;
} tess_timeline_part;

typedef struct {
    const char *title, *subtitle; /* NULL: a plain one; none */
    const char *command;          /* that makes the page, for the header; NULL: not said */
    const int *ranks;             /* that are shown; NULL: one of each class */
    int n_ranks;
    const tess_timeline_part *parts; /* what the step is made of by closed forms; NULL: none */
    int n_parts;
    double capacity; /* bytes of a GPU; 0: not known */
} tess_timeline_report_opts;

/* The page shows operations of the first ranks up to 400,000, and says how many it leaves out. */
TESS_API tess_status tess_timeline_report_write(tess_ctx *ctx, const tess_timeline *timeline,
                                                const tess_timeline_report_opts *opts,
                                                const char *path);

TESS_END_DECLS

#endif
