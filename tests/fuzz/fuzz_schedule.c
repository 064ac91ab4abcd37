/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_schedule.c - any bytes as a pipeline schedule: refused with a sentence, or passes that all
 * come to run. */
#include "timeline/timeline_internal.h"

#include <stdlib.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_schedule *s)
{
    int64_t *ns = calloc((size_t)s->stages, sizeof *ns);
    tess_schedule_result r;
    MUST(ns);
    for (int i = 0; i < s->stages; i++)
        ns[i] = i + 1;
    const tess_schedule_times times = {ns, ns, ns, 3};
    MUST(tess_schedule_replay(s, &times, &r, NULL, NULL) == TESS_OK && r.ns > 0);
    free(ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_schedule *s = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    if (tess__schedule_parse(ctx, "fuzz.csv", (const char *)data, size, &s) == TESS_OK)
        use(s);
    else
        MUST(tess_last_error()[0]);
    tess_schedule_destroy(s);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
