/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - completion scripts for bash, zsh and fish, from the tables.
 *
 * Each completes the commands, then the options of the command, then the value of an option: its
 * choices, files for a path, nothing for a number. An argument is a file or, for help, a command.
 */
#include "cli.h"

#include <string.h>

static int is_path(const opt *o)
{
    return o->type == OPT_PATH || o->type == OPT_PATHS;
}

static int is_command(const opt *o)
{
    return strcmp(o->name, "COMMAND") == 0;
}

/* Calls fn for each option of cmd, its own first. */
static void each_option(FILE *f, const command *cmd,
                        void (*fn)(FILE *, const command *, const opt *))
{
    int n = 0;
    const opt *shared = opt_common(cmd, &n);
    for (int i = 0; i < cmd->n_options; i++)
        fn(f, cmd, &cmd->options[i]);
    for (int i = 0; i < n; i++)
        fn(f, cmd, &shared[i]);
}

static void command_names(FILE *f)
{
    for (int i = 0; i < n_commands; i++)
        fprintf(f, "%s%s", i ? " " : "", commands[i]->name);
}

static void choice_names(FILE *f, const opt *o)
{
    const char *const *words = opt_choices(o);
    for (int i = 0; words[i]; i++)
        fprintf(f, "%s%s", i ? " " : "", words[i]);
}

/* Text inside single quotes, without the characters that are special in `special`. */
static void quoted(FILE *f, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", f);
        else
            fprintf(f, strchr(special, *text) ? "\\%c" : "%c", *text);
    }
}

/* ---- bash -------------------------------------------------------------------------------- */

static void bash_word(FILE *f, const command *cmd, const opt *o)
{
    (void)cmd;
    fprintf(f, " --%s%s", opt_negative(o) ? "no-" : "", o->name);
}

static void bash_value(FILE *f, const command *cmd, const opt *o)
{
    (void)cmd;
    if (!opt_takes_value(o))
        return;
    fprintf(f, "        --%s", o->name);
    if (o->short_name)
        fprintf(f, " | -%c", o->short_name);
    fputs(") ", f);
    if (o->type == OPT_CHOICE) {
        fputs("words='", f);
        choice_names(f, o);
        fputs("' ;;\n", f);
    } else {
        fputs(is_path(o) ? "files=1 ;;\n" : ";;\n", f);
    }
}

static void bash_command(FILE *f, const command *cmd)
{
    const opt *argument = cmd->n_arguments ? &cmd->arguments[cmd->n_arguments - 1] : NULL;
    fprintf(f, "    1:%s)\n        case $prev in\n", cmd->name);
    each_option(f, cmd, bash_value);
    fputs("        *)\n            words='", f);
    each_option(f, cmd, bash_word);
    fputs("'\n", f);
    if (argument && is_path(argument))
        fputs("            [[ $cur == -* ]] || files=1\n", f);
    if (argument && is_command(argument)) {
        fputs("            words+=' ", f);
        command_names(f);
        fputs("'\n", f);
    }
    fputs("            ;;\n        esac\n        ;;\n", f);
}

static void complete_bash(FILE *f)
{
    fputs("# bash completion for tessera\n"
          "_tessera()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local words='' files=''\n"
          "    # --isa=avx2 arrives as three words.\n"
          "    [[ $cur == = ]] && cur=''\n"
          "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    case $((COMP_CWORD > 1)):${COMP_WORDS[1]} in\n"
          "    0:*) words='",
          f);
    command_names(f);
    fputs(" --help --version' ;;\n", f);
    for (int i = 0; i < n_commands; i++)
        bash_command(f, commands[i]);
    fputs("    esac\n"
          "    COMPREPLY=()\n"
          "    if [[ $files ]]; then\n"
          "        compopt -o default 2>/dev/null\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "    fi\n"
          "}\n"
          "complete -F _tessera tessera\n",
          f);
}

/* ---- zsh --------------------------------------------------------------------------------- */

static void zsh_value(FILE *f, const opt *o)
{
    if (is_path(o)) {
        fputs("_files", f);
    } else if (o->type == OPT_CHOICE) {
        fputc('(', f);
        choice_names(f, o);
        fputc(')', f);
    } else if (is_command(o)) {
        fputc('(', f);
        command_names(f);
        fputc(')', f);
    }
}

static void zsh_option(FILE *f, const command *cmd, const opt *o)
{
    (void)cmd;
    const char *star = opt_repeats(o) || o->type == OPT_COUNT ? "*" : "";
    fputs(" \\\n            ", f);
    if (o->short_name && *star)
        fprintf(f, "\\*{-%c,--%s}'[", o->short_name, o->name);
    else if (o->short_name)
        fprintf(f, "'(-%c --%s)'{-%c,--%s}'[", o->short_name, o->name, o->short_name, o->name);
    else
        fprintf(f, "'%s--%s%s[", star, opt_negative(o) ? "no-" : "", o->name);
    quoted(f, o->help, "[]:");
    fputc(']', f);
    if (opt_takes_value(o)) {
        fprintf(f, ":%s:", o->value);
        zsh_value(f, o);
    }
    fputc('\'', f);
}

static void complete_zsh(FILE *f)
{
    fputs("#compdef tessera\n"
          "_tessera()\n{\n    local -a commands\n    commands=(\n",
          f);
    for (int i = 0; i < n_commands; i++) {
        fprintf(f, "        '%s:", commands[i]->name);
        quoted(f, commands[i]->summary, ":");
        fputs("'\n", f);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n",
          f);
    for (int i = 0; i < n_commands; i++) {
        const command *cmd = commands[i];
        fprintf(f, "    %s)\n        _arguments -s", cmd->name);
        each_option(f, cmd, zsh_option);
        for (int a = 0; a < cmd->n_arguments; a++) {
            fprintf(f, " \\\n            '%s:%s:", opt_repeats(&cmd->arguments[a]) ? "*" : "",
                    cmd->arguments[a].name);
            zsh_value(f, &cmd->arguments[a]);
            fputc('\'', f);
        }
        fputs("\n        ;;\n", f);
    }
    fputs("    esac\n}\n_tessera \"$@\"\n", f);
}

/* ---- fish -------------------------------------------------------------------------------- */

static void fish_begin(FILE *f, const command *cmd)
{
    fprintf(f, "complete -c tessera -n '__fish_seen_subcommand_from %s'", cmd->name);
}

static void fish_option(FILE *f, const command *cmd, const opt *o)
{
    fish_begin(f, cmd);
    if (o->short_name)
        fprintf(f, " -s %c", o->short_name);
    fprintf(f, " -l %s%s", opt_negative(o) ? "no-" : "", o->name);
    if (o->type == OPT_CHOICE) {
        fputs(" -x -a '", f);
        choice_names(f, o);
        fputc('\'', f);
    } else if (opt_takes_value(o)) {
        fputs(is_path(o) ? " -r -F" : " -x", f);
    }
    fputs(" -d '", f);
    quoted(f, o->help, "");
    fputs("'\n", f);
}

static void complete_fish(FILE *f)
{
    fputs("# fish completion for tessera\ncomplete -c tessera -f\n", f);
    for (int i = 0; i < n_commands; i++) {
        fprintf(f, "complete -c tessera -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        quoted(f, commands[i]->summary, "");
        fputs("'\n", f);
    }
    for (int i = 0; i < n_commands; i++) {
        const command *cmd = commands[i];
        each_option(f, cmd, fish_option);
        for (int a = 0; a < cmd->n_arguments; a++) {
            fish_begin(f, cmd);
            if (is_command(&cmd->arguments[a])) {
                fputs(" -a '", f);
                command_names(f);
                fputs("'\n", f);
            } else {
                fputs(is_path(&cmd->arguments[a]) ? " -F\n" : "\n", f);
            }
        }
    }
}

void complete_shell(FILE *f, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        complete_bash(f);
    else if (strcmp(shell, "zsh") == 0)
        complete_zsh(f);
    else
        complete_fish(f);
}
