/* SPDX-License-Identifier: Apache-2.0 */
/* command_text.c - the command line as one text that a shell reads back: for headers of pages and
 * the record of a run. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=,:+@%-";
    return *word && strspn(word, plain) == strlen(word);
}

/* Single quotes around the word, and '\'' for one in it. */
static void print_word(FILE *f, const char *word)
{
    if (is_plain(word)) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (const char *at = word; *at; at++)
        if (*at == '\'')
            fputs("'\\''", f);
        else
            fputc(*at == '\n' ? ' ' : *at, f);
    fputc('\'', f);
}

char *out_command(const cli *c)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return NULL;
    fprintf(f, "tessera %s", c->cmd->name);
    for (int i = 0; i < c->argc; i++) {
        fputc(' ', f);
        print_word(f, c->argv[i]);
    }
    const int failed = ferror(f);
    if (fclose(f) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}
