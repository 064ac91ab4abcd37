/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_log.h - `tessera calibrate --log`: what cmd_calibrate.c gives to calibrate_log.c. */
#ifndef CLI_CALIBRATE_LOG_H
#define CLI_CALIBRATE_LOG_H

#include "cli.h"

typedef struct {
    strings logs, set;
    const char *software, *system, *scenario;
    const char *from, *out;
    int64_t warmup;
} calibrate_log_values;

/* Fits the scalar of (system, software) to logs of runs. */
tess_status calibrate_log(cli *c, const calibrate_log_values *v);

#endif
