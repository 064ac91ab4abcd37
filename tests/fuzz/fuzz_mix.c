/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_mix.c - any bytes as a CSV file of clips and as short codes; clips that are read are in
 * range. */
#include "plan/mix/mix_internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(tess_status status, tess_mix *mix)
{
    int64_t n;
    if (status != TESS_OK) {
        if (mix || !tess_last_error()[0])
            abort();
        return;
    }
    const tess_mix_clip *clips = tess_mix_clips(mix, &n);
    if (!clips || n < 1 || n > TESS_MIX_CLIPS_MAX)
        abort();
    for (int64_t i = 0; i < n; i++)
        if (clips[i].tokens < 1 || clips[i].tokens > INT32_MAX ||
            !(clips[i].density >= 0.0 && clips[i].density <= 1.0))
            abort();
    tess_mix_destroy(mix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) != TESS_OK)
        abort();
    tess_mix *mix = NULL;
    tess_status status = tess__mix_read(ctx, "fuzz.csv", (const char *)data, size, &mix);
    read_all(status, mix);
    char *code = malloc(size + 1);
    if (!code)
        abort();
    memcpy(code, data, size);
    code[size] = '\0';
    mix = NULL;
    status = tess_mix_parse(ctx, code, 24, 2, &mix);
    read_all(status, mix);
    free(code);
    tess_ctx_info left;
    if (tess_ctx_query(ctx, &left) != TESS_OK || left.bytes_now != 0)
        abort();
    tess_ctx_destroy(ctx);
    return 0;
}
