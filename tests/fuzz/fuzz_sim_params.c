/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_sim_params.c - any bytes as the simulator's parameters: refused with a sentence that names
 * the file, or a list whose values are within their limits. */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_sim_params *params)
{
    const int n = tess_sim_params_count(params);
    MUST(n >= TESS__HW_COUNT + TESS__ERA_COUNT);
    for (int i = 0; i < n; i++) {
        tess_sim_param p;
        MUST(tess_sim_params_query(params, i, &p) == TESS_OK);
        MUST(p.value >= p.low && p.value <= p.high && p.name && p.owner && p.origin && p.unit);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_sim_params *params = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__params_parse(ctx, "fuzz.json", (const char *)data, size, &params);
    if (status == TESS_OK)
        use(params);
    else
        MUST(status == TESS_EFORMAT && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    tess_sim_params_destroy(params);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
