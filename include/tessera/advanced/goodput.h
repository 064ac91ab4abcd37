/* SPDX-License-Identifier: Apache-2.0 */
/* goodput.h - what failures and checkpoints make of a training job's time.
 *
 * GPUs fail independently, at a constant rate: a job of n of them is interrupted every mtbf / n on
 * average. A checkpoint takes write_s, in which nothing is trained; after an interruption the job
 * takes restart_s until it trains again, and repeats what it did since the last checkpoint. With
 * M = mtbf / n, checkpoints every t seconds of training (J. T. Daly, Future Generation Computer
 * Systems 22, 2006):
 *
 *   goodput = t / (M exp(restart / M) (exp((t + write) / M) - 1))
 *
 * and is largest at t near sqrt(2 write M) (1 + x / 3 + x^2 / 9) - write, x = sqrt(write / (2 M)).
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_GOODPUT_H
#define TESSERA_GOODPUT_H

#include "../base.h"

TESS_BEGIN_DECLS

/* Of one GPU, in hours: Llama 3's 419 unexpected interruptions in 54 days on 16,384 H100
 * (arXiv:2407.21783, table 5). */
#define TESS_GOODPUT_MTBF_HOURS 50677.0
/* Detection and diagnosis take less than ten minutes on average (MegaScale, arXiv:2402.15627). */
#define TESS_GOODPUT_RESTART_S 600.0
/* Bytes per second of one GPU to storage: 2 TB/s for 16,384 (arXiv:2407.21783). */
#define TESS_GOODPUT_WRITE_RATE 122e6
/* Bytes of a parameter in a checkpoint: bf16 weights, fp32 weights and both moments. */
#define TESS_GOODPUT_STATE_BYTES 14.0

typedef struct {
    int gpus;
    double mtbf_hours; /* of one GPU; 0: TESS_GOODPUT_MTBF_HOURS */
    double parameters; /* of the model, where write_s is 0 */
    double write_s;    /* of a checkpoint; 0: the state over all GPUs' rate to storage */
    double restart_s;  /* 0: TESS_GOODPUT_RESTART_S */
    double interval_s; /* of training between two checkpoints; 0: the best */
} tess_goodput_opts;

typedef struct {
    double goodput;    /* fraction of time in which steps are trained that stay */
    double interval_s; /* between two checkpoints */
    double best_s;     /* the best interval */
    double write_s, restart_s, mtbf_hours;
    double failure_hours; /* between two interruptions of the job */
    /* Fractions of time that are lost, which with goodput add up to 1. */
    double written, restarted, repeated;
} tess_goodput_result;

/* EINVAL names what is out of range. */
TESS_API tess_status tess_goodput(const tess_goodput_opts *opts, tess_goodput_result *result);

TESS_END_DECLS

#endif
