/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - numbers of the words that options allow. */
#include "choices.h"

#include <stdio.h>
#include <string.h>

int choices_find(const char *const *choices, const char *word)
{
    int i = 0;
    while (strcmp(choices[i], word) != 0)
        i++;
    return i;
}

int choices_value(tess_options table, const char *option, const char *word)
{
    const tess_option *o = tess_option_find(table, option);
    const int i = choices_find(o->words, word);
    return o->values ? o->values[i] : i;
}

int choices_cube(const char *text, int cube[3])
{
    int used = 0;
    const int n = sscanf(text, "%5dx%5dx%5d%n", &cube[0], &cube[1], &cube[2], &used);
    return n == 3 && text[used] == 0 && cube[0] > 0 && cube[1] > 0 && cube[2] > 0;
}
