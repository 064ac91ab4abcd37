/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_config.c - any bytes as a model's config.json: refused with a sentence that names a line, or
 * read as sizes that keep every rule. */
#include "model/config.h"
#include "tessera/advanced/pass.h"

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
    tess_model_config config;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__config_parse(ctx, "fuzz.json", (const char *)data, size, &config);
    if (status == TESS_OK) {
        MUST(tess_model_config_check(&config) == TESS_OK);
    } else {
        MUST(status == TESS_EFORMAT);
        MUST(strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    }
    tess_ctx_info info;
    MUST(tess_ctx_query(ctx, &info) == TESS_OK && info.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
