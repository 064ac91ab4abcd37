/* SPDX-License-Identifier: Apache-2.0 */
/* option_check.c - range checks and hashes of option structs, by their tables. */
#include "option_check.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *const *tess__option_words(tess_options which, const char *name)
{
    const tess_option *option = tess_option_find(which, name);
    assert(option);
    return option->words;
}

const tess_option *tess_option_find(tess_options which, const char *name)
{
    const tess_option_table *t = tess_option_table_of(which);
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->options[i].name, name) == 0)
            return &t->options[i];
    return NULL;
}

/* The value of a number, flag or word. */
static double value_of(const tess_option *o, const void *at)
{
    return o->type == TESS_OPTION_REAL    ? *(const double *)at
           : o->type == TESS_OPTION_INT64 ? (double)*(const int64_t *)at
                                          : (double)*(const int *)at;
}

static int is_word(const tess_option *o, int value)
{
    int i = 0;
    while (o->words[i] && (o->values ? o->values[i] : i) != value)
        i++;
    return o->words[i] != NULL;
}

static tess_status check_cube(const char *who, const char *prefix, const tess_option *o,
                              const int cube[3])
{
    const int given = cube[0] || cube[1] || cube[2];
    for (int i = 0; i < 3 && given; i++)
        if (cube[i] < 1)
            return tess__invalid(who, "%s%s[%d] is %d, must be 1 or more", prefix, o->name, i,
                                 cube[i]);
    return TESS_OK;
}

static tess_status check_one(const char *who, const char *prefix, const tess_option *o,
                             const void *at)
{
    if (o->type == TESS_OPTION_TEXT)
        return TESS_OK;
    if (o->type == TESS_OPTION_CUBE)
        return check_cube(who, prefix, o, at);
    const double value = value_of(o, at);
    if (o->type == TESS_OPTION_WORD) {
        char words[128] = "";
        if (is_word(o, *(const int *)at))
            return TESS_OK;
        for (int i = 0; o->words[i]; i++)
            snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? ", " : "",
                     o->words[i]);
        return tess__invalid(who, "%s%s is %d, must be one of %s", prefix, o->name,
                             *(const int *)at, words);
    }
    if (value >= o->low && value <= o->high)
        return TESS_OK;
    if (o->type == TESS_OPTION_FLAG)
        return tess__invalid(who, "%s%s is %.15g, must be 0 or 1", prefix, o->name, value);
    return tess__invalid(who, "%s%s is %.15g, must be %.15g..%.15g%s%s", prefix, o->name, value,
                         o->low, o->high, o->unit ? " " : "", o->unit ? o->unit : "");
}

tess_status tess__options_check(const char *who, tess_options which, const void *opts)
{
    const tess_option_table *t = tess_option_table_of(which);
    for (int i = 0; i < t->n; i++)
        TESS_TRY(
            check_one(who, t->prefix, &t->options[i], (const char *)opts + t->options[i].offset));
    return TESS_OK;
}

uint64_t tess__options_hash(uint64_t hash, tess_options which, const void *opts)
{
    static const size_t sizes[] = {
        [TESS_OPTION_INT] = sizeof(int),     [TESS_OPTION_INT64] = sizeof(int64_t),
        [TESS_OPTION_REAL] = sizeof(double), [TESS_OPTION_FLAG] = sizeof(int),
        [TESS_OPTION_WORD] = sizeof(int),    [TESS_OPTION_CUBE] = 3 * sizeof(int),
    };
    const tess_option_table *t = tess_option_table_of(which);
    for (int i = 0; i < t->n; i++) {
        const tess_option *o = &t->options[i];
        const void *at = (const char *)opts + o->offset;
        const char *text = o->type == TESS_OPTION_TEXT ? *(const char *const *)at : NULL;
        if (o->type != TESS_OPTION_TEXT)
            hash = tess__hash(hash, at, sizes[o->type]);
        else if (text)
            hash = tess__hash(hash, text, strlen(text));
    }
    return hash;
}
