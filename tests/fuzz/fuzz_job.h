/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_job.h - any bytes as the job file JOB_NAME, whose ending names its format: refused with a
 * sentence that names the file, or entries that are whole, and settings that a scenario takes or
 * refuses by name. */
#ifndef TESS_FUZZ_JOB_H
#define TESS_FUZZ_JOB_H

#include "job/job_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(tess_ctx *ctx, const tess_job *job)
{
    tess_job_info info;
    MUST(tess_job_query(job, &info) == TESS_OK && info.framework && info.steps >= 0);
    for (int i = 0; i < info.entries; i++) {
        tess_job_entry e;
        MUST(tess_job_entry_query(job, i, &e) == TESS_OK);
        MUST(e.key && e.given && e.setting && e.value && e.why && tess_job_kind_name(e.kind));
        MUST((e.line > 0) == (e.kind != TESS_JOB_ASSUMED));
        MUST((*e.setting != 0) == (e.kind == TESS_JOB_READ || e.kind == TESS_JOB_ASSUMED));
    }
    tess_scenario s = {0};
    if (tess_job_apply(ctx, job, 0, &s) != TESS_OK)
        MUST(strncmp(tess_last_error(), JOB_NAME ": ", sizeof JOB_NAME + 1) == 0);
    (void)tess_job_complete(job, &s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_job *job = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    if (tess__job_parse(ctx, JOB_NAME, (const char *)data, size, &job) == TESS_OK)
        use(ctx, job);
    else
        MUST(!job && strncmp(tess_last_error(), JOB_NAME ": ", sizeof JOB_NAME + 1) == 0);
    tess_job_destroy(job);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}

#endif
