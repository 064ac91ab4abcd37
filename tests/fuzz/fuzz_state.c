/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_state.c - any bytes as state.json of a checkpoint: refused with a sentence, or within rules.
 */
#include "train/train_internal.h"

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
    tess__state state;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__state_read(ctx, "state.json", (const char *)data, size, &state);
    if (status == TESS_OK) {
        MUST(state.checkpoint.step >= 0 && state.batch >= 1 && state.batches >= 0);
        MUST(state.optim == TESS_OPTIM_MUON || state.optim == TESS_OPTIM_ADAMW);
        MUST(state.checkpoint.data.channels >= 1 && state.checkpoint.data.pack >= 1);
        MUST(strlen(state.checkpoint.kind) < sizeof state.checkpoint.kind);
    } else {
        MUST(status == TESS_EFORMAT);
        MUST(strncmp(tess_last_error(), "state.json: ", 12) == 0);
    }
    tess_ctx_info info;
    MUST(tess_ctx_query(ctx, &info) == TESS_OK && info.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
