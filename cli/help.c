/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - the help texts, at most 79 columns wide, from the tables. */
#include "cli.h"

#include <string.h>

enum { INDENT = 2, COLUMN = 24 }; /* the texts of options begin at COLUMN */

void help_option(const opt *o, char *text, size_t bytes)
{
    const char *no = opt_negative(o) ? "no-" : "";
    if (o->short_name)
        snprintf(text, bytes, "-%c, --%s%s%s%s", o->short_name, no, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
    else
        snprintf(text, bytes, "--%s%s%s%s", no, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
}

void help_default(const opt *o, char *text, size_t bytes)
{
    char rule[128];
    text[0] = 0;
    if (o->type == OPT_CHOICE) {
        opt_rule(o, rule, sizeof rule);
        snprintf(text, bytes, " (%s)", rule);
    }
    if (o->initial && !opt_negative(o))
        snprintf(text + strlen(text), bytes - strlen(text), "; default: %s", o->initial);
}

void help_key(const opt *o, char *term, size_t term_bytes, char *more, size_t more_bytes)
{
    size_t used = 0;
    snprintf(term, term_bytes, "%s=%s", o->name, o->value);
    if (o->type != OPT_CHOICE && o->max > o->min && o->max < INT32_MAX)
        used = (size_t)snprintf(more, more_bytes, " (%.15g..%.15g)", o->min, o->max);
    help_default(o, more + used, more_bytes - used);
}

void help_synopsis(FILE *f, const command *cmd)
{
    fprintf(f, "tessera %s [OPTION...]", cmd->name);
    for (int i = 0; i < cmd->n_arguments; i++) {
        const opt *o = &cmd->arguments[i];
        fprintf(f, " %s%s%s%s", o->required ? "" : "[", o->name, opt_repeats(o) ? "..." : "",
                o->required ? "" : "]");
    }
}

/* One entry of a list: the term, then its text from COLUMN on, on a line of its own if needed. */
static void entry(FILE *f, const char *term, const char *text, const char *more)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", text, more);
    const int at = fprintf(f, "%*s%s", INDENT, "", term);
    if (at + 2 > COLUMN)
        fprintf(f, "\n%*s", COLUMN, "");
    else
        fprintf(f, "%*s", COLUMN - at, "");
    out_wrap(f, whole, COLUMN, COLUMN);
    fputc('\n', f);
}

static void option_list(FILE *f, const char *title, const opt *options, int n, int arguments)
{
    char term[64], more[256];
    if (n == 0)
        return;
    fprintf(f, "\n%s:\n", title);
    for (int i = 0; i < n; i++) {
        const opt *o = &options[i];
        help_option(o, term, sizeof term);
        help_default(o, more, sizeof more);
        entry(f, arguments ? o->name : term, o->help, more);
    }
}

static void key_list(FILE *f, const key_table *table)
{
    char term[64], more[256];
    fprintf(f, "\n%s:", table->name);
    out_wrap(f, table->summary, (int)strlen(table->name) + 1, 0);
    fputc('\n', f);
    for (int i = 0; i < table->n; i++) {
        help_key(&table->keys[i], term, sizeof term, more, sizeof more);
        entry(f, term, table->keys[i].help, more);
    }
}

void help_short(FILE *f)
{
    fprintf(f,
            "tessera %s: sparse attention for video diffusion transformers\n\n"
            "Usage: tessera COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n",
            tess_version());
    for (int i = 0; i < n_commands; i++) {
        const int at = fprintf(f, "  %s", commands[i]->name);
        fprintf(f, "%*s%s\n", 14 - at, "", commands[i]->summary);
    }
    fputs("\n'tessera COMMAND --help' explains a command.\n"
          "'tessera --version' prints the version.\n",
          f);
}

void help_command(FILE *f, const command *cmd)
{
    int n = 0;
    const opt *shared = opt_common(cmd, &n);
    fputs("Usage: ", f);
    help_synopsis(f, cmd);
    fprintf(f, "\n\ntessera %s: %s\n\n", cmd->name, cmd->summary);
    out_wrap(f, cmd->description, 0, 0);
    option_list(f, "Arguments", cmd->arguments, cmd->n_arguments, 1);
    for (int i = 0; i < cmd->n_tables; i++)
        key_list(f, &cmd->tables[i]);
    for (int i = 0, count; i < cmd->n_options; i += count) {
        const char *title;
        count = opt_group_of(cmd, i, &title);
        option_list(f, title, cmd->options + i, count, 0);
    }
    option_list(f, cmd->n_options ? "Common options" : "Options", shared, n, 0);
    if (cmd->n_examples)
        fputs("\nExamples:\n", f);
    for (int i = 0; i < cmd->n_examples; i++)
        fprintf(f, "  %s\n      %s\n", cmd->examples[i].line, cmd->examples[i].what);
}
