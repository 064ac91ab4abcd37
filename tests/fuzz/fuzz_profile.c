/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_profile.c - any bytes as a density profile; a profile that is read is complete and in range.
 */
#include "plan/work.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const tess_profile *profile)
{
    tess_profile_view v;
    if (tess_profile_query(profile, &v) != TESS_OK || v.steps < 1 || v.layers < 1 || v.heads < 1)
        abort();
    for (int i = 1; i < v.steps; i++)
        if (v.step[i] <= v.step[i - 1])
            abort();
    for (int i = 1; i < v.layers; i++)
        if (v.layer[i] <= v.layer[i - 1])
            abort();
    const size_t n = (size_t)v.steps * (size_t)v.layers * (size_t)v.heads;
    for (size_t i = 0; i < n; i++)
        if (!(v.density[i] >= 0.0 && v.density[i] <= 1.0))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const columns[] = {NULL, "Sparsity"};
    tess_ctx *ctx;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) != TESS_OK)
        abort();
    for (int i = 0; i < 2; i++) {
        const tess_profile_opts opts = {.column = columns[i]};
        tess_profile *profile = NULL;
        if (tess__profile_read(ctx, "fuzz.csv", data, size, &opts, &profile) == TESS_OK)
            read_all(profile);
        else if (profile || !tess_last_error()[0])
            abort();
        tess_profile_close(profile);
    }
    tess_ctx_info left;
    if (tess_ctx_query(ctx, &left) != TESS_OK || left.bytes_now != 0)
        abort();
    tess_ctx_destroy(ctx);
    return 0;
}
