/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_break_even.c - any bytes as a kept break-even measurement: refused with a sentence that
 * names the file, the result untouched, or times within their rules. */
#include "attn/break_even.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static int is_time(double ns)
{
    return ns >= 0 && ns <= 1e18; /* false for NaN */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_break_even_result r = {.ns_dense = -1, .cached = -1};
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status = tess__break_even_parse(ctx, "fuzz.json", (const char *)data, size,
                                                      "CPU, base: 64 tokens", &r);
    if (status == TESS_OK) {
        MUST(r.cached == 1 && is_time(r.ns_dense) && is_time(r.ns_sparse_fixed));
        MUST(is_time(r.ns_sparse_per_density));
    } else {
        MUST(status == TESS_EFORMAT && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
        MUST(r.ns_dense == -1 && r.cached == -1);
    }
    tess_ctx_info left;
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
