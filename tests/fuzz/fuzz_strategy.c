/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_strategy.c - how ranks attend, as `--strategy` says it.
 *
 * The first byte is the number of ranks less one, the rest the text. What is accepted must have
 * degrees that make these ranks, or be auto or fractional, and its text must be read back; what is
 * refused must be named by its value.
 */
#include "plan/strategy_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_strategy *s, int ranks)
{
    const int64_t product = (int64_t)s->ulysses * s->ring * s->selective;
    MUST((int)s->method >= 0 && s->method < TESS_PLAN_METHOD_COUNT);
    if (s->method == TESS_PLAN_AUTO)
        MUST(s->ulysses == 0 && s->ring == 0 && s->selective == 0);
    else
        MUST(product == ranks || (s->method == TESS_PLAN_FRACTIONAL && product == 1));
    MUST(s->ring <= 1 || s->selective == 1);
    char text[TESS_STRATEGY_TEXT];
    tess_strategy again;
    tess_strategy_format(s, text);
    MUST(tess_strategy_parse(text, ranks, &again) == TESS_OK);
    MUST(again.method == s->method && again.ulysses == s->ulysses && again.ring == s->ring);
    MUST(again.selective == s->selective && again.placement == s->placement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char start[] = "fuzz: strategy is \"";
    tess_strategy strategy;
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
