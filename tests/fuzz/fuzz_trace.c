/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_trace.c - any bytes as the trace of a rank: refused with a sentence that names the file, or
 * a trace whose step is finite and the sum of its parts. */
#include "replay/replay_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(tess_ctx *ctx, const tess_trace *trace)
{
    tess_cluster *cluster = NULL;
    tess_trace_info info;
    tess_trace_result r;
    MUST(tess_cluster_load(ctx, "h100", &cluster) == TESS_OK);
    MUST(tess_trace_query(trace, &info) == TESS_OK);
    MUST(info.rank >= 0 && info.rank < info.ranks && info.calls >= 0);
    MUST(tess_trace_replay(trace, cluster, NULL, &r) == TESS_OK);
    MUST(isfinite(r.step_s) && r.step_s >= 0.0 && r.hidden_s >= 0.0);
    MUST(fabs(r.compute_s - info.compute_s) <= 1e-9 * info.compute_s);
    tess_cluster_destroy(cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_trace *trace = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__trace_parse(ctx, "fuzz.json", (const char *)data, size, &trace);
    if (status == TESS_OK)
        use(ctx, trace);
    else
        MUST(status == TESS_EFORMAT && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    tess_trace_destroy(trace);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
