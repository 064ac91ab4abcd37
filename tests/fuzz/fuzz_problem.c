/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_problem.c - problem texts, as `tessera check` and `tessera bench` read them.
 *
 * Whatever the text is, it becomes a problem or a sentence; the canonical text of a problem is
 * short enough, is read again, and is its own canonical text.
 */
#include "bench/problem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[OPT_ERROR_MAX], once[PROBLEM_TEXT_MAX], twice[PROBLEM_TEXT_MAX];
    problem p;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (problem_parse(text, 0, &p, error) != 0) {
        if (!error[0] || strlen(error) >= OPT_ERROR_MAX)
            abort();
    } else {
        problem_text(&p, once);
        if (strlen(once) + 1 >= PROBLEM_TEXT_MAX || problem_parse(once, 1, &p, error) != 0)
            abort();
        problem_text(&p, twice);
        if (strcmp(once, twice) != 0)
            abort();
    }
    free(text);
    return 0;
}
