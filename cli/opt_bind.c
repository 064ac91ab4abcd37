/* SPDX-License-Identifier: Apache-2.0 */
/* opt_bind.c - options of the library: type, range, default and help from the library's tables. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static opt_type type_of(tess_option_type type)
{
    switch (type) {
    case TESS_OPTION_INT:
    case TESS_OPTION_INT64: return OPT_INT;
    case TESS_OPTION_REAL: return OPT_DOUBLE;
    case TESS_OPTION_FLAG: return OPT_FLAG;
    case TESS_OPTION_WORD: return OPT_CHOICE;
    case TESS_OPTION_CUBE: return OPT_CUBE;
    case TESS_OPTION_TEXT: break;
    }
    return OPT_STRING;
}

/* The default as a user writes it. */
static const char *initial_of(opt *o, const tess_option *from, const void *at)
{
    const int *cube = at;
    int i = 0;
    switch (from->type) {
    case TESS_OPTION_INT: snprintf(o->text, sizeof o->text, "%d", *(const int *)at); break;
    case TESS_OPTION_INT64:
        snprintf(o->text, sizeof o->text, "%lld", (long long)*(const int64_t *)at);
        break;
    case TESS_OPTION_REAL: snprintf(o->text, sizeof o->text, "%.15g", *(const double *)at); break;
    case TESS_OPTION_FLAG: return *(const int *)at ? "1" : NULL;
    case TESS_OPTION_WORD:
        while (from->values && from->values[i] != *(const int *)at)
            i++;
        return from->words[from->values ? i : *(const int *)at];
    case TESS_OPTION_CUBE:
        if (!cube[0])
            return "auto";
        snprintf(o->text, sizeof o->text, "%dx%dx%d", cube[0], cube[1], cube[2]);
        break;
    case TESS_OPTION_TEXT: return *(const char *const *)at;
    }
    return o->text;
}

void opt_bind(opt *options, int n, const void *defaults)
{
    for (int i = 0; i < n; i++) {
        opt *o = &options[i];
        const tess_option *from = o->member ? tess_option_find(o->table, o->member) : NULL;
        if (!from)
            continue;
        const char *library = tess_option_table_of(o->table)->defaults;
        o->type = o->type ? o->type : type_of(from->type);
        o->narrow = !o->own && (from->type == TESS_OPTION_INT || from->type == TESS_OPTION_WORD);
        o->offset += o->own ? 0 : from->offset;
        o->min = o->min != 0 || o->max != 0 ? o->min : from->low;
        o->max = o->max != 0 ? o->max : from->high;
        o->values = from->values;
        o->help = o->help ? o->help : from->help;
        o->unit = o->unit ? o->unit : from->unit;
        if (o->own != OPT_OWN)
            o->initial = initial_of(
                o, from, o->own ? library + from->offset : (const char *)defaults + o->offset);
    }
}

void commands_bind(void)
{
    static int bound;
    for (int i = 0; i < n_commands && !bound; i++)
        if (commands[i]->bind)
            commands[i]->bind();
    bound = 1;
}
