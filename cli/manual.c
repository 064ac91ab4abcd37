/* SPDX-License-Identifier: Apache-2.0 */
/* manual.c - the manual as Markdown (docs/cli.md) and as a manual page, from the tables. */
#include "cli.h"

#include <string.h>

static const char about[] =
    "The result goes to standard output, everything else to standard error. With --json the result "
    "is exactly one JSON object with the members schema, command and version, also when the "
    "command fails: then its member error holds a status and a message. Under an MPI launcher "
    "rank 0 alone prints. Progress is shown on terminals as one line that is erased at the end, "
    "elsewhere as a line every 10 seconds.";

static const struct {
    const char *term, *text;
} codes[] =
    {
        {"0", "success"},
        {"1", "the operation failed, or the doctor found a problem"},
        {"2", "wrong usage"},
        {"3", "a check found a mismatch, or a benchmark a regression"},
        {"4", "not possible on this machine or in this build"},
        {"130",
         "interrupted (143: terminated); a signal that follows after more than a second ends "
         "the command at once"},
},
  variables[] = {
      {"TESS_ISA", "instruction set, if --isa is not given"},
      {"TESS_THREADS", "threads, if --threads is not given"},
      {"NO_COLOR", "if not empty, no colours are printed"},
};

enum { N_CODES = sizeof codes / sizeof *codes, N_VARIABLES = sizeof variables / sizeof *variables };

/* ---- Markdown ---------------------------------------------------------------------------- */

/* | would end a cell of a table. */
static void cell(FILE *f, const char *text)
{
    for (; *text; text++)
        fprintf(f, *text == '|' ? "\\%c" : "%c", *text);
}

static void markdown_options(FILE *f, const opt *options, int n, const char *title, int arguments)
{
    char term[64], more[256];
    if (n == 0)
        return;
    fprintf(f, "\n| %s | |\n|---|---|\n", title);
    for (int i = 0; i < n; i++) {
        help_option(&options[i], term, sizeof term);
        help_default(&options[i], more, sizeof more);
        fprintf(f, "| `%s` | ", arguments ? options[i].name : term);
        cell(f, options[i].help);
        cell(f, more);
        fputs(" |\n", f);
    }
}

static void markdown_keys(FILE *f, const key_table *table)
{
    char term[64], more[256];
    fprintf(f, "\n| `%s`: %s | |\n|---|---|\n", table->name, table->summary);
    for (int i = 0; i < table->n; i++) {
        help_key(&table->keys[i], term, sizeof term, more, sizeof more);
        fprintf(f, "| `%s` | ", term);
        cell(f, table->keys[i].help);
        cell(f, more);
        fputs(" |\n", f);
    }
}

static void markdown_command(FILE *f, const command *cmd)
{
    fprintf(f, "\n## tessera %s\n\n%c%s.\n\n```\n", cmd->name, cmd->summary[0] - 'a' + 'A',
            cmd->summary + 1);
    help_synopsis(f, cmd);
    fprintf(f, "\n```\n\n%s", cmd->description);
    markdown_options(f, cmd->arguments, cmd->n_arguments, "argument", 1);
    for (int i = 0; i < cmd->n_tables; i++)
        markdown_keys(f, &cmd->tables[i]);
    for (int i = 0, count; i < cmd->n_options; i += count) {
        const char *title;
        count = opt_group_of(cmd, i, &title);
        markdown_options(f, cmd->options + i, count, cmd->n_groups ? title : "option", 0);
    }
    if (cmd->n_examples)
        fputs("\n| example | |\n|---|---|\n", f);
    for (int i = 0; i < cmd->n_examples; i++) {
        fputs("| `", f);
        cell(f, cmd->examples[i].line);
        fprintf(f, "` | %s |\n", cmd->examples[i].what);
    }
}

void manual_markdown(FILE *f)
{
    int n = 0;
    const opt *shared = opt_common(&(command){.everywhere = 1}, &n);
    fprintf(f, "# The command `tessera`\n\nPrinted by `tessera help --markdown`.\n\n%s\n", about);
    fputs("\n| command | |\n|---|---|\n", f);
    for (int i = 0; i < n_commands; i++)
        fprintf(f, "| [`%s`](#tessera-%s) | %s |\n", commands[i]->name, commands[i]->name,
                commands[i]->summary);
    fputs("\nEvery command but `help` takes these options besides its own. `--name value` and "
          "`--name=value` are\nthe same, `--no-name` takes a flag back, `--` ends the options.\n",
          f);
    markdown_options(f, shared, n, "option", 0);
    fputs("\n| exit code | |\n|---|---|\n", f);
    for (int i = 0; i < N_CODES; i++)
        fprintf(f, "| %s | %s |\n", codes[i].term, codes[i].text);
    fputs("\n| environment | |\n|---|---|\n", f);
    for (int i = 0; i < N_VARIABLES; i++)
        fprintf(f, "| `%s` | %s |\n", variables[i].term, variables[i].text);
    for (int i = 0; i < n_commands; i++)
        markdown_command(f, commands[i]);
}

/* ---- manual page ------------------------------------------------------------------------- */

/* Text for roff: a hyphen is written \- to stay the ASCII one, a backslash \e; a line must not
 * begin with a dot or a quote, which \& prevents; each \n begins a paragraph. */
static void roff(FILE *f, const char *text)
{
    int begins = 1;
    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\''))
            fputs("\\&", f);
        begins = *text == '\n';
        if (*text == '-')
            fputs("\\-", f);
        else if (*text == '\\')
            fputs("\\e", f);
        else if (begins)
            fputs(text[1] ? "\n.PP\n" : "", f);
        else
            fputc(*text, f);
    }
}

static void roff_entry(FILE *f, const char *term, const char *text, const char *more)
{
    fputs(".TP\n.B ", f);
    roff(f, term);
    fputc('\n', f);
    roff(f, text);
    roff(f, more);
    fputc('\n', f);
}

static void roff_options(FILE *f, const opt *options, int n, int arguments)
{
    char term[64], more[256];
    for (int i = 0; i < n; i++) {
        help_option(&options[i], term, sizeof term);
        help_default(&options[i], more, sizeof more);
        roff_entry(f, arguments ? options[i].name : term, options[i].help, more);
    }
}

static void roff_keys(FILE *f, const key_table *table)
{
    char term[64], more[256];
    fputs(".PP\n", f);
    roff(f, table->name);
    fputs(": ", f);
    roff(f, table->summary);
    fputc('\n', f);
    for (int i = 0; i < table->n; i++) {
        help_key(&table->keys[i], term, sizeof term, more, sizeof more);
        roff_entry(f, term, table->keys[i].help, more);
    }
}

static void roff_command(FILE *f, const command *cmd)
{
    fprintf(f, ".SS tessera %s\n", cmd->name);
    fprintf(f, ".B tessera %s\n[OPTION...]", cmd->name);
    for (int i = 0; i < cmd->n_arguments; i++)
        fprintf(f, cmd->arguments[i].required ? " %s%s" : " [%s%s]", cmd->arguments[i].name,
                opt_repeats(&cmd->arguments[i]) ? "..." : "");
    fprintf(f, "\n.PP\n");
    roff(f, cmd->description);
    fputc('\n', f);
    roff_options(f, cmd->arguments, cmd->n_arguments, 1);
    for (int i = 0; i < cmd->n_tables; i++)
        roff_keys(f, &cmd->tables[i]);
    for (int i = 0, count; i < cmd->n_options; i += count) {
        const char *title;
        count = opt_group_of(cmd, i, &title);
        if (cmd->n_groups)
            fprintf(f, ".PP\n%s:\n", title);
        roff_options(f, cmd->options + i, count, 0);
    }
}

void manual_man(FILE *f)
{
    int n = 0;
    const opt *shared = opt_common(&(command){.everywhere = 1}, &n);
    fprintf(f, ".TH TESSERA 1 \"\" \"tessera %s\" \"User Commands\"\n", tess_version());
    fputs(".SH NAME\ntessera \\- sparse attention for video diffusion transformers\n"
          ".SH SYNOPSIS\n.B tessera\nCOMMAND [OPTION...] [ARGUMENT...]\n.SH DESCRIPTION\n",
          f);
    roff(f, about);
    fputs("\n.SH COMMANDS\n", f);
    for (int i = 0; i < n_commands; i++)
        roff_command(f, commands[i]);
    fputs(".SH COMMON OPTIONS\nEvery command but help takes these options besides its own.\n", f);
    roff_options(f, shared, n, 0);
    fputs(".SH EXIT STATUS\n", f);
    for (int i = 0; i < N_CODES; i++)
        roff_entry(f, codes[i].term, codes[i].text, "");
    fputs(".SH ENVIRONMENT\n", f);
    for (int i = 0; i < N_VARIABLES; i++)
        roff_entry(f, variables[i].term, variables[i].text, "");
    fputs(".SH EXAMPLES\n", f);
    for (int i = 0; i < n_commands; i++)
        for (int e = 0; e < commands[i]->n_examples; e++)
            roff_entry(f, commands[i]->examples[e].line, commands[i]->examples[e].what, "");
}
