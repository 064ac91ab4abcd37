/* SPDX-License-Identifier: Apache-2.0 */
/* run_log.c - tess_run_log: a log from its lines to medians, and to the job that it prints. */
#include "log_internal.h"

#include "file/file_internal.h"

#include <math.h>
#include <string.h>

/* ---- lines ----------------------------------------------------------------------------------- */

/* A line without colours ("\033[31m") and other control characters; what is longer is cut. */
static void clean(const char *text, size_t bytes, char line[TESS__LOG_LINE])
{
    size_t n = 0;
    for (size_t i = 0; i < bytes && n + 1 < TESS__LOG_LINE; i++) {
        if (text[i] == '\033' && i + 1 < bytes && text[i + 1] == '[') {
            i += 2;
            while (i < bytes && (text[i] < '@' || text[i] > '~'))
                i++;
        } else if ((unsigned char)text[i] >= ' ') {
            line[n++] = text[i];
        } else if (text[i] == '\t') {
            line[n++] = ' ';
        }
    }
    line[n] = '\0';
}

static tess_status read_lines(tess_run_log *log, const char *text, size_t bytes)
{
    char line[TESS__LOG_LINE];
    int number = 1;
    for (size_t at = 0; at < bytes; number++) {
        const char *next = memchr(text + at, '\n', bytes - at);
        const size_t n = next ? (size_t)(next - text) - at : bytes - at;
        clean(text + at, n, line);
        TESS_TRY(tess__log_line(log, line, number));
        at += n + 1;
        if (number % 65536 == 0)
            TESS_TRY(tess__progress(log->ctx, "reading the log", (int64_t)at, (int64_t)bytes));
    }
    return TESS_OK;
}

/* ---- medians --------------------------------------------------------------------------------- */

/* The first step that counts. */
static int first_used(const tess_run_log *log, int64_t warmup)
{
    int first = 0;
    while (first < log->n && log->steps[first].step - log->steps[0].step < warmup)
        first++;
    if (log->n - first >= 3)
        return first;
    return log->n > 1 ? 1 : 0;
}

static double quantile(const double *sorted, int n, double at)
{
    const double place = at * (n - 1);
    const int low = (int)floor(place), high = (int)ceil(place);
    return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

/* The values of one member that were printed, ascending in `room`; returns how many. */
static int collect(const tess_run_log *log, int first, size_t member, double *room)
{
    int n = 0;
    for (int i = first; i < log->n; i++) {
        double value;
        memcpy(&value, (const char *)&log->steps[i] + member, sizeof value);
        if (value > 0)
            room[n++] = value;
    }
    tess__sort(room, (size_t)n);
    return n;
}

static tess_status summarise(tess_run_log *log, int64_t warmup)
{
    static const char *const names[] = {"", "torchtitan", "Megatron-LM", "NeMo"};
    tess_run_log_info *info = &log->info;
    if (log->n == 0)
        return tess__fail(TESS_EFORMAT,
                          "%s: no line has the time of a step as torchtitan, Megatron-LM or NeMo "
                          "print it",
                          log->name);
    const int first = first_used(log, warmup);
    double *room = TESS_ALLOC(log->ctx, tess__bytes((size_t)log->n, sizeof *room));
    int n = collect(log, first, offsetof(tess__log_step, seconds), room);
    if (n > 0) {
        info->step_s = quantile(room, n, 0.5);
        info->step_low_s = quantile(room, n, 0.25);
        info->step_high_s = quantile(room, n, 0.75);
    }
    n = collect(log, first, offsetof(tess__log_step, tokens), room);
    info->tokens_per_s = n > 0 ? quantile(room, n, 0.5) : 0;
    n = collect(log, first, offsetof(tess__log_step, tflops), room);
    info->tflops = n > 0 ? quantile(room, n, 0.5) : 0;
    tess__free(log->ctx, room);
    info->framework = names[log->framework];
    info->lines = log->n;
    info->used = log->n - first;
    info->first = log->steps[first].step;
    info->last = log->steps[log->n - 1].step;
    return TESS_OK;
}

/* The entries of the job, where the log prints enough of it. */
static tess_status map_job(tess_run_log *log)
{
    const tess_job *job = log->job;
    int shape = 0;
    for (int i = 0; i < job->n_pairs; i++)
        shape |=
            strcmp(job->pairs[i].key,
                   log->framework == TESS__LOG_TORCHTITAN ? "model.flavor" : "--num-layers") == 0;
    log->has_job = shape && log->framework != TESS__LOG_NEMO;
    if (!log->has_job)
        return TESS_OK;
    return log->framework == TESS__LOG_TORCHTITAN ? tess__torchtitan_map(log->job)
                                                  : tess__megatron_map(log->job);
}

/* ---- public ---------------------------------------------------------------------------------- */

static tess_status read_all(tess_run_log *log, const char *name, const char *text, size_t bytes,
                            int64_t warmup)
{
    log->job = TESS_ALLOC_ZERO(log->ctx, sizeof *log->job);
    log->job->ctx = log->job->arena.ctx = log->ctx;
    log->job->name = TESS_TAKE_STRING(&log->job->arena, name, strlen(name));
    log->name = log->job->name;
    TESS_TRY(read_lines(log, text, bytes));
    TESS_TRY(summarise(log, warmup));
    return map_job(log);
}

tess_status tess__run_log_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                int64_t warmup, tess_run_log **log)
{
    tess__source source = {0};
    tess_run_log *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    tess_status status = text ? TESS_OK : tess__source_open(name, &source);
    if (status == TESS_OK)
        status = read_all(made, name, text ? text : (const char *)source.data,
                          text ? bytes : source.bytes, warmup);
    if (!text)
        tess__source_close(&source);
    if (status == TESS_OK)
        *log = made;
    else
        tess_run_log_destroy(made);
    return status;
}

tess_status tess_run_log_load(tess_ctx *ctx, const char *path, int64_t warmup, tess_run_log **log)
{
    TESS_REQUIRE(ctx, path, log);
    TESS_TRY(tess__check_least(__func__, "warmup", warmup, 0));
    return tess__run_log_parse(ctx, path, NULL, 0, warmup, log);
}

void tess_run_log_destroy(tess_run_log *log)
{
    if (!log)
        return;
    tess_ctx *ctx = log->ctx;
    tess_job_destroy(log->job);
    tess__free(ctx, log->steps);
    tess__free(ctx, log);
}

tess_status tess_run_log_query(const tess_run_log *log, tess_run_log_info *info)
{
    TESS_REQUIRE(log, info);
    *info = log->info;
    return TESS_OK;
}

const tess_job *tess_run_log_job(const tess_run_log *log)
{
    return log && log->has_job ? log->job : NULL;
}

tess_status tess_run_log_step(const tess_run_log *log, const tess_scenario *scenario,
                              double *seconds)
{
    TESS_REQUIRE(log, scenario, seconds);
    tess_scenario full;
    if (log->info.step_s > 0) {
        *seconds = log->info.step_s;
        return TESS_OK;
    }
    TESS_TRY(tess_scenario_fill(scenario, &full));
    *seconds = (double)full.training.global_batch * (double)full.model.seq /
               (log->info.tokens_per_s * full.layout.gpus);
    return TESS_OK;
}
