/* SPDX-License-Identifier: Apache-2.0 */
/* activity_report.h - the page of traces.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_ACTIVITY_REPORT_H
#define TESSERA_ACTIVITY_REPORT_H

#include "activity.h"

TESS_BEGIN_DECLS

/* One HTML file that loads nothing from elsewhere: parts of the span by rank, activity over time,
 * classes of kernels, collectives, waiting, the longest kernels. ranks: of the same files; command:
 * what made it. */
TESS_API tess_status tess_activity_report(tess_ctx *ctx, const tess_activity *const *files, int n,
                                          const tess_activity_ranks *ranks, const char *command,
                                          const char *path);

TESS_END_DECLS

#endif
