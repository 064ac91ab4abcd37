/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_call_csv.c - any bytes as the collectives of a trace: refused with a sentence that names the
 * file, or rows that a cluster large enough can price. */
#include "cost/cost_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_nccl_log *log = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    if (tess__call_csv_parse(ctx, "fuzz.csv", (const char *)data, size, 8, &log) == TESS_OK) {
        for (int64_t i = 0; i < log->n; i++) {
            const tess_collective *w = &log->rows[i].work;
            MUST(w->gpus >= 2 && w->per_node >= 1 && w->gpus % w->per_node == 0);
            MUST(w->bytes > 0 && w->bytes <= (int64_t)1 << 53 && log->rows[i].us > 0.0);
        }
    } else {
        MUST(!log && strncmp(tess_last_error(), "fuzz.csv: ", 10) == 0);
    }
    tess_nccl_log_close(log);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
