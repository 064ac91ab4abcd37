/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_trace.h - what the files of `tessera trace` share. */
#ifndef TESS_CMD_TRACE_H
#define TESS_CMD_TRACE_H

#include "commands.h"
#include "tessera/advanced/activity.h"

typedef struct {
    tess_activity **files;
    int n;
    tess_activity_ranks *ranks;
} trace_result;

/* trace_output.c: as text or as members of the JSON object. */
tess_status trace_print(cli *c, const trace_result *r);

#endif
