/* SPDX-License-Identifier: Apache-2.0 */
/* choices.c - names of options' choices that several files use, and their numbers. */
#include "choices.h"

#include <stdio.h>
#include <string.h>

const char *const choices_proxy[] = {"mean", "centre", "softmax", NULL};
const char *const choices_method[] = {"auto",    "contiguous", "snake",         "lpt", "db-sp",
                                      "refined", "fractional", "refined-equal", NULL};

int choices_find(const char *const *choices, const char *word)
{
    int i = 0;
    while (strcmp(choices[i], word) != 0)
        i++;
    return i;
}

int choices_cube(const char *text, int cube[3])
{
    int used = 0;
    const int n = sscanf(text, "%5dx%5dx%5d%n", &cube[0], &cube[1], &cube[2], &used);
    return n == 3 && text[used] == 0 && cube[0] > 0 && cube[1] > 0 && cube[2] > 0;
}
