/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_activity.c - any bytes, plain or gzip, as the trace of a profiler: refused with a sentence
 * that names the file, or activity whose parts add up. */
#include "trace/activity_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(tess_ctx *ctx, const tess_activity *f)
{
    const tess_activity_info *i = &f->info;
    tess_activity_ranks *ranks = NULL;
    double a[8], b[8], c[8];
    MUST(i->compute_ns + i->exposed_ns + i->copy_ns + i->idle_ns == i->span_ns);
    MUST(i->hidden_ns >= 0 && i->exposed_ns + i->hidden_ns == i->comm_ns && i->idle_ns >= 0);
    for (int64_t k = 0; k < i->calls; k++)
        MUST(tess_call_op_name(f->calls[k].op) && f->calls[k].ns >= 0 && f->calls[k].dtype);
    for (int64_t k = 1; k < f->n_acts; k++)
        MUST(f->acts[k - 1].begin <= f->acts[k].begin);
    MUST(tess_activity_busy(f, 8, a, b, c) == TESS_OK);
    MUST(tess_activity_compare(ctx, (const tess_activity *[]){f, f}, 2, &ranks) == TESS_OK);
    tess_activity_ranks_destroy(ranks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess__byte_stream *bytes = NULL;
    tess_activity *f = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    MUST(tess__byte_stream_memory(ctx, "fuzz.json", data, size, &bytes) == TESS_OK);
    if (tess__activity_parse(ctx, "fuzz.json", bytes, NULL, &f) == TESS_OK)
        use(ctx, f);
    else
        MUST(!f && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    tess_activity_destroy(f);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
