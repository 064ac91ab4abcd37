/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_strategy.c - how ranks attend, as `--strategy` says it.
 *
 * The first byte is the number of ranks less one, the rest the text. What is accepted must be
 * degrees that make these ranks, or a method with free ones; what is not must be named by its value.
 */
#include "cp/context_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess__strategy *s, int ranks)
{
    const int free_of = s->ulysses == 0 && s->ring == 0 && s->selective == 0;
    MUST((int)s->method >= 0 && s->method < TESS_PLAN_METHOD_COUNT);
    MUST(free_of || (int64_t)s->ulysses * s->ring * s->selective == ranks);
    MUST(free_of || s->ring == 1 || s->selective == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char start[] = "fuzz: strategy is \"";
    tess__strategy strategy;
    if (size == 0)
        return 0;
    const int ranks = data[0] + 1;
    char *text = calloc(size, 1);
    MUST(text);
    memcpy(text, data + 1, size - 1);
    if (tess__strategy_parse("fuzz", text, ranks, &strategy) == TESS_OK)
        use(&strategy, ranks);
    else
        MUST(strncmp(tess_last_error(), start, sizeof start - 1) == 0);
    free(text);
    return 0;
}
