/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_nccl_log.c - any bytes as a log of nccl-tests: refused with a sentence that names the file,
 * or rows that a cluster large enough can price. */
#include "cost/cost_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_nccl_log *log)
{
    const tess_collective_row *rows;
    int64_t n, line = 0;
    MUST(tess_nccl_log_rows(log, &rows, &n) == TESS_OK && n > 0);
    for (int64_t i = 0; i < n; i++) {
        const tess_collective *w = &rows[i].work;
        MUST(rows[i].line > line && rows[i].us > 0.0);
        MUST(w->bytes > 0 && w->bytes <= (int64_t)1 << 53 && w->gpus >= 2);
        MUST(w->per_node >= 1 && w->gpus % w->per_node == 0 && tess_collective_name(w->op));
        line = rows[i].line;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_nccl_log *log = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    if (tess__nccl_log_parse(ctx, "fuzz.log", (const char *)data, size, TESS_ALL_REDUCE, &log) ==
        TESS_OK)
        use(log);
    else
        MUST(!log && strncmp(tess_last_error(), "fuzz.log: ", 10) == 0);
    tess_nccl_log_close(log);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
