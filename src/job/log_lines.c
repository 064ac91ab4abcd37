/* SPDX-License-Identifier: Apache-2.0 */
/* log_lines.c - the lines of a log that hold a step or memory.
 *
 *   torchtitan   step: 10  loss: ...  memory: 33.53GiB(42.35%)  tps: 7,127  tflops: 54.25  mfu: ...
 *   Megatron-LM  iteration 10/ 100 | ... | elapsed time per iteration (ms): 5630.1 | throughput per
 *                GPU (TFLOP/s/GPU): 231.9 | ... | global batch size: 128 | ...
 *                memory (MB) | allocated: 1 | max allocated: 2 | reserved: 3 | max reserved: 4
 *   NeMo         Training epoch 0, iteration 8/29 | ... | global_batch_size: 512 | global_step: 8 |
 *                max_memory_reserved: BYTES | ... | train_step_timing in s: 27.01 | ...
 *                or a progress bar: ... global_step=9.0, ... train_step_timing in s=4.32]
 */
#include "log_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1.0 / 1024, GIB = 1.0 / 1073741824;

int tess__log_number(const char *line, const char *after, double *value)
{
    const char *at = strstr(line, after);
    char digits[48], *end;
    size_t n = 0;
    if (!at)
        return 0;
    at += strlen(after);
    at += strspn(at, " :=\t");
    for (; n + 1 < sizeof digits && *at && (strchr("0123456789.eE+-", *at) || *at == ','); at++)
        if (*at != ',')
            digits[n++] = *at;
        else if (at[1] < '0' || at[1] > '9')
            break;
    digits[n] = '\0';
    const double number = strtod(digits, &end);
    if (end == digits || !isfinite(number))
        return 0;
    *value = number;
    return 1;
}

static double number_or_0(const char *line, const char *after)
{
    double value;
    return tess__log_number(line, after, &value) && value > 0 ? value : 0;
}

/* Ranks print the same step: the first counts. */
static tess_status add_step(tess_run_log *log, tess__log_framework framework,
                            const tess__log_step *step)
{
    if (log->framework != TESS__LOG_NONE && log->framework != framework)
        return TESS_OK;
    if (!(step->seconds > 0) && !(step->tokens > 0))
        return TESS_OK;
    if (log->n > 0 && log->steps[log->n - 1].step == step->step)
        return TESS_OK;
    if (log->n == TESS__LOG_STEPS)
        return tess__fail(TESS_EFORMAT, "%s: more than %d steps", log->name, TESS__LOG_STEPS);
    log->framework = framework;
    TESS_GROW(log->ctx, log->steps, log->n, log->n + 1, log->room);
    log->steps[log->n++] = *step;
    return TESS_OK;
}

static void keep_largest(double *value, double other)
{
    *value = fmax(*value, other);
}

static int64_t whole(double value)
{
    return value >= 0 && value < 9e15 ? (int64_t)value : 0;
}

static tess_status read_torchtitan(tess_run_log *log, const char *line)
{
    double step;
    if (strstr(line, "validate step:") || !tess__log_number(line, "step:", &step))
        return TESS_OK;
    keep_largest(&log->info.reserved_gib, number_or_0(line, " memory:"));
    return add_step(log, TESS__LOG_TORCHTITAN,
                    &(tess__log_step){.step = whole(step),
                                      .tokens = number_or_0(line, " tps:"),
                                      .tflops = number_or_0(line, " tflops:")});
}

static tess_status read_megatron(tess_run_log *log, const char *line)
{
    double step;
    if (!tess__log_number(line, " iteration ", &step))
        return TESS_OK;
    const double batch = number_or_0(line, "global batch size");
    if (batch > 0)
        log->info.global_batch = whole(batch);
    return add_step(
        log, TESS__LOG_MEGATRON,
        &(tess__log_step){.step = whole(step),
                          .seconds = number_or_0(line, "elapsed time per iteration (ms)") / 1e3,
                          .tflops = number_or_0(line, "(TFLOP/s/GPU)")});
}

static tess_status read_nemo(tess_run_log *log, const char *line)
{
    double step;
    if (!tess__log_number(line, "global_step", &step))
        return TESS_OK;
    const double batch = number_or_0(line, "global_batch_size");
    if (batch > 0)
        log->info.global_batch = whole(batch);
    keep_largest(&log->info.reserved_gib, number_or_0(line, "max_memory_reserved") * GIB);
    keep_largest(&log->info.allocated_gib, number_or_0(line, "max_memory_allocated") * GIB);
    return add_step(log, TESS__LOG_NEMO,
                    &(tess__log_step){.step = whole(step),
                                      .seconds = number_or_0(line, "train_step_timing in s"),
                                      .tflops = number_or_0(line, "TFLOPS_per_GPU")});
}

tess_status tess__log_line(tess_run_log *log, const char *line, int number)
{
    if (strstr(line, "train_step_timing in s"))
        return read_nemo(log, line);
    if (strstr(line, "elapsed time per iteration"))
        return read_megatron(log, line);
    if (strstr(line, " tps:"))
        return read_torchtitan(log, line);
    if (strstr(line, "memory (MB)")) {
        keep_largest(&log->info.allocated_gib, number_or_0(line, "max allocated") * MIB);
        keep_largest(&log->info.reserved_gib, number_or_0(line, "max reserved") * MIB);
        return TESS_OK;
    }
    TESS_TRY(tess__log_megatron(log, line, number));
    return tess__log_torchtitan(log, line, number);
}
