/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_help.c - tessera help: the help of a command, and what is generated from the tables. */
#include "commands.h"

typedef struct {
    common common;
    const char *name;
    int markdown, man;
    const char *completion;
} values;

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const opt arguments[] = {
    {"COMMAND", 0, OPT_STRING, offsetof(values, name), .help = "the command to explain"},
};

static const opt options[] = {
    {"markdown", 0, OPT_FLAG, offsetof(values, markdown),
     .help = "print the whole manual as Markdown: docs/cli.md"},
    {"man", 0, OPT_FLAG, offsetof(values, man), .help = "print the manual page tessera(1)"},
    {"completion", 0, OPT_CHOICE, offsetof(values, completion), "SHELL", .choices = shells,
     .help = "print the completion for a shell"},
};

static const example examples[] = {
    {"tessera help doctor", "the same as tessera doctor --help"},
    {"tessera help --man | man -l -", "read the manual page without installing it"},
    {"source <(tessera help --completion bash)", "complete in the running shell"},
};

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    if ((v->name != NULL) + v->markdown + v->man + (v->completion != NULL) > 1)
        return out_usage(c, "COMMAND, --markdown, --man and --completion exclude each other");
    if (v->markdown)
        manual_markdown(c->out);
    else if (v->man)
        manual_man(c->out);
    else if (v->completion)
        complete_shell(c->out, v->completion);
    else if (!v->name)
        help_short(c->out);
    else if (command_find(v->name))
        help_command(c->out, command_find(v->name));
    else
        return out_usage(c, "COMMAND is \"%.80s\", must be a command that 'tessera' lists",
                         v->name);
    return TESS_OK;
}

const command command_help = {
    .name = "help",
    .summary = "explain a command, print the manual or a shell completion",
    .description = "Without an argument it lists the commands. The manual, the manual page and the "
                   "completions are made from the tables the command itself reads, so they are "
                   "always those of this version.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .plain = 1,
    .size = sizeof(values),
    .run = run,
};
