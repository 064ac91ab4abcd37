/* SPDX-License-Identifier: Apache-2.0 */
/* opt_unknown.c - the sentence about a word that is no option of a command: which one was meant, or
 * which commands have it. */
#include "cli.h"

#include "tessera/advanced/nearest.h"

#include <string.h>

enum { OPTIONS_MAX = 128, NAME_MAX_BYTES = 40, OWNERS_MAX = 3 };

/* "--name", or "--no-name" where the help lists it so. */
static void spell(const opt *o, char text[NAME_MAX_BYTES])
{
    snprintf(text, NAME_MAX_BYTES, "%s%s", opt_negative(o) ? "--no-" : "--", o->name);
}

static const char *nearest_of(const command *cmd, const char *word, char text[NAME_MAX_BYTES])
{
    char names[OPTIONS_MAX][NAME_MAX_BYTES];
    const char *candidates[OPTIONS_MAX];
    int n = 0;
    for (const opt *o; n < OPTIONS_MAX && (o = opt_at(cmd, n)); n++) {
        spell(o, names[n]);
        candidates[n] = names[n];
    }
    const char *near = tess_nearest(word, candidates, n);
    return near ? strcpy(text, near) : NULL;
}

static int has_option(const command *cmd, const char *word)
{
    char name[NAME_MAX_BYTES];
    for (int i = 0; i < cmd->n_options; i++) {
        spell(&cmd->options[i], name);
        if (strcmp(name, word) == 0)
            return 1;
    }
    return 0;
}

/* "plan, bench and others", or "". */
static void list_owners(const char *word, char *text, size_t bytes)
{
    size_t used = 0;
    int found = 0;
    text[0] = '\0';
    for (int i = 0; i < n_commands && used < bytes; i++) {
        if (!has_option(commands[i], word) || ++found > OWNERS_MAX)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", found > 1 ? ", " : "",
                                 commands[i]->name);
    }
    if (found > OWNERS_MAX && used < bytes)
        snprintf(text + used, bytes - used, " and others");
}

void opt_unknown(const command *cmd, const char *word, char error[OPT_ERROR_MAX])
{
    char near[NAME_MAX_BYTES], owners[160];
    list_owners(word, owners, sizeof owners);
    if (nearest_of(cmd, word, near))
        snprintf(error, OPT_ERROR_MAX, "%s is no option, did you mean %s?", word, near);
    else if (owners[0])
        snprintf(error, OPT_ERROR_MAX, "%s is no option of %s, but of %s", word, cmd->name, owners);
    else
        snprintf(error, OPT_ERROR_MAX, "%s is no option", word);
}
