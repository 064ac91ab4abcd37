/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_run_log.c - any bytes as the log of a run: refused with a sentence that names the file, or
 * medians that are positive, and a job whose settings a scenario takes or refuses. */
#include "job/log_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(tess_ctx *ctx, const tess_run_log *log)
{
    tess_run_log_info info;
    tess_scenario s = {0};
    double seconds;
    MUST(tess_run_log_query(log, &info) == TESS_OK && info.used >= 1 && info.used <= info.lines);
    MUST(info.step_s > 0 || info.tokens_per_s > 0);
    MUST(info.step_low_s <= info.step_s && info.step_s <= info.step_high_s);
    if (tess_run_log_job(log) && tess_job_apply(ctx, tess_run_log_job(log), 0, &s) != TESS_OK)
        MUST(strncmp(tess_last_error(), "fuzz.log: ", 10) == 0);
    (void)tess_run_log_step(log, &s, &seconds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_run_log *log = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    if (tess__run_log_parse(ctx, "fuzz.log", (const char *)data, size, 2, &log) == TESS_OK)
        use(ctx, log);
    else
        MUST(!log && strncmp(tess_last_error(), "fuzz.log: ", 10) == 0);
    tess_run_log_destroy(log);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
