/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_scenario.c - any bytes as a scenario and as a published model: refused with a sentence that
 * names the file, or settings that can be written and read back. */
#include "sim/fields.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_scenario *s)
{
    tess_scenario back = {0};
    for (int i = 0; i < tess__n_fields; i++) {
        char text[256];
        if (!tess__field_unset(s, &tess__fields[i]))
            MUST(tess__field_set(&back, &tess__fields[i],
                                 tess__field_text(s, &tess__fields[i], text, sizeof text)) ==
                 TESS_OK);
    }
    tess_scenario full;
    (void)tess_scenario_fill(s, &full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    for (int i = 0; i < 2; i++) {
        tess_scenario s = {0};
        const tess_status status =
            i == 0 ? tess__scenario_parse(ctx, "fuzz.json", (const char *)data, size, &s)
                   : tess__model_import(ctx, "fuzz.json", (const char *)data, size, &s);
        if (status == TESS_OK)
            use(&s);
        else
            MUST(tess_last_error()[0]);
    }
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
