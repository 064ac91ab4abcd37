/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.h - the page of a training run that goes on: written again and again.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_RUN_REPORT_H
#define TESSERA_RUN_REPORT_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int64_t step;  /* the last that is recorded */
    int64_t steps; /* of the whole run; 0: not known */
} tess_run_report_info;

/* tess_report_run, whose page a browser loads again every `refresh` seconds; 0: never. The file is
 * replaced at once, so that a reader sees the old page or the new one. info may be NULL. */
TESS_API tess_status tess_run_report_write(tess_ctx *ctx, const char *run, const char *path,
                                           int refresh, tess_run_report_info *info);

#ifdef __cplusplus
}
#endif

#endif
