/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_search.c - any bytes as the checkpoint of a search: refused with a sentence that names the
 * file, or a state whose counts are within each other and whose numbers ascend. */
#include "search/search_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess__search_state *s)
{
    MUST(strlen(s->search) < sizeof s->search && s->next >= 0);
    MUST(s->evaluated >= 0 && s->evaluated <= s->next && s->feasible >= 0);
    MUST(s->feasible <= s->next && s->refused >= 0 && s->refused <= s->next);
    MUST(s->nearest >= -1 && s->late >= -1 && s->n_kept >= 0);
    for (int64_t i = 0; i < s->n_kept; i++)
        MUST(s->kept[i] >= 0 && (i == 0 || s->kept[i] > s->kept[i - 1]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess__search_state state = {0};
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__search_parse(ctx, "fuzz.json", (const char *)data, size, &state);
    if (status == TESS_OK)
        use(&state);
    else
        MUST(status == TESS_EFORMAT && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    tess__search_state_free(ctx, &state);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
