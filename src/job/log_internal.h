/* SPDX-License-Identifier: Apache-2.0 */
/* log_internal.h - a log on its way from lines to medians. */
#ifndef TESS_LOG_INTERNAL_H
#define TESS_LOG_INTERNAL_H

#include "job_internal.h"
#include "tessera/advanced/run_log.h"

enum { TESS__LOG_LINE = 8192, TESS__LOG_STEPS = 1 << 20 };

typedef enum {
    TESS__LOG_NONE,
    TESS__LOG_TORCHTITAN,
    TESS__LOG_MEGATRON,
    TESS__LOG_NEMO
} tess__log_framework;

typedef struct {
    int64_t step;
    double seconds, tokens, tflops; /* 0: not printed */
} tess__log_step;

struct tess_run_log {
    tess_ctx *ctx;
    const char *name; /* the job has the copy */
    tess_job *job;    /* pairs that the log prints, then their entries */
    int has_job;      /* 1: enough of it for a scenario */
    int arguments;    /* 1: between the first and last line of Megatron-LM's arguments */
    tess__log_framework framework;
    tess__log_step *steps;
    int n;
    int64_t room;
    tess_run_log_info info;
};

/* ---- log_lines.c ----------------------------------------------------------------------------- */

/* What one line says, without colours: a step, memory, or a part of the job. */
tess_status tess__log_line(tess_run_log *log, const char *line, int number);

/* The number behind a text: "tps: 7,127"; 0: there is none. */
int tess__log_number(const char *line, const char *after, double *value);

/* ---- log_job.c ------------------------------------------------------------------------------- */

/* Pairs of the job that a line of this framework prints. */
tess_status tess__log_torchtitan(tess_run_log *log, const char *line, int number);
tess_status tess__log_megatron(tess_run_log *log, const char *line, int number);

/* text NULL: that of the file `name`. */
tess_status tess__run_log_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                int64_t warmup, tess_run_log **log);

#endif
