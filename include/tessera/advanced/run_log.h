/* SPDX-License-Identifier: Apache-2.0 */
/* run_log.h - the logs that frameworks print while they train: times of steps, memory, layout.
 *
 * Lines of torchtitan, Megatron-LM and NeMo are known by what they hold; all others are passed
 * over, and so are colours and what a launcher puts in front. Where the log prints the job
 * (torchtitan's device mesh and batch, Megatron-LM's arguments), it is read as a job file is.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_RUN_LOG_H
#define TESSERA_RUN_LOG_H

#include "job.h"

TESS_BEGIN_DECLS

/* Medians over the steps that count; 0: not printed. */
typedef struct {
    const char *framework; /* "torchtitan", "Megatron-LM", "NeMo" */
    int lines;             /* with a step, each step once */
    int used;              /* of them, after the steps of warm-up */
    int64_t first, last;   /* steps that were used */
    double step_s;
    double step_low_s, step_high_s;     /* quartiles */
    double tokens_per_s;                /* of a GPU */
    double tflops;                      /* of a GPU, as the framework counts */
    double reserved_gib, allocated_gib; /* largest peaks */
    int64_t global_batch;               /* samples of a step */
} tess_run_log_info;

typedef struct tess_run_log tess_run_log;

/* warmup: steps from the first one of the log that do not count; where fewer than three lines are
 * left, the first line alone does not. EFORMAT: no line with the time of a step. */
TESS_API tess_status tess_run_log_load(tess_ctx *ctx, const char *path, int64_t warmup,
                                       tess_run_log **log);
TESS_API void tess_run_log_destroy(tess_run_log *log);
TESS_API tess_status tess_run_log_query(const tess_run_log *log, tess_run_log_info *info);

/* The job that the log prints; NULL: it prints none. It belongs to the log. */
TESS_API const tess_job *tess_run_log_job(const tess_run_log *log);

/* Seconds of a step of this scenario: those of the log, or what its tokens per second make. EINVAL:
 * the scenario breaks a rule. */
TESS_API tess_status tess_run_log_step(const tess_run_log *log, const tess_scenario *scenario,
                                       double *seconds);

/* ---- one scalar from logs -------------------------------------------------------------------- */

/* The parameters `from` (NULL: the shipped ones) with the scalar of (system, software) set to a
 * value 0.2..5, in a file at path. */
TESS_API tess_status tess_sim_scalar_write(tess_ctx *ctx, const char *from, const char *system,
                                           const char *software, double value, const char *origin,
                                           const char *path);

TESS_END_DECLS

#endif
