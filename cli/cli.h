/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - the command `tessera`: tables of commands and options, output, the ranks of a launcher.
 *
 * main.c finds the command in the table, opt.c fills the command's values from the arguments, the
 * command's run makes a result, output.c prints it. Everything a user can read about a command
 * (help, docs/cli.md, manual page, shell completion) is made from the same tables by help.c,
 * manual.c and complete.c. A command is a file cmd_<name>.c and a line in commands.c.
 */
#ifndef TESS_CLI_H
#define TESS_CLI_H

#include "tessera/advanced/options.h"
#include "tessera/comm.h"

#include <jansson.h>
#include <stdio.h>

/* ---- opt.c: option tables ---------------------------------------------------------------- */

typedef enum {
    OPT_FLAG,    /* int: 1, or 0 after --no-NAME */
    OPT_COUNT,   /* int: how often it was given; 0 after --no-NAME */
    OPT_INT,     /* int64_t */
    OPT_DOUBLE,  /* double, finite; NaN if not given */
    OPT_AMOUNT,  /* the same: 250000, 1.5M, 14.8T; K M B (or G) T: powers of 1000 */
    OPT_SIZE,    /* int64_t, bytes: 4096, 64K = 64KiB = 65536, 64KB = 64000, also M G T */
    OPT_STRING,  /* const char *; NULL if not given */
    OPT_PATH,    /* the same, completed by the shell as a file */
    OPT_CHOICE,  /* the same: one of choices */
    OPT_CUBE,    /* int[3]: "2x4x4", or zeros: "auto" */
    OPT_STRINGS, /* strings: may be given several times */
    OPT_PATHS,   /* the same, completed by the shell as files */
} opt_type;

typedef struct {
    const char **items;
    int n;
} strings;

/* An option, or a positional argument (then name is what help calls it, and short_name, value and
 * initial are unused). An OPT_FLAG whose initial is "1" is shown as --no-NAME. */
typedef struct {
    const char *name;           /* without dashes */
    char short_name;            /* 0: none */
    opt_type type;              /* and with it what lies at offset */
    size_t offset;              /* into the command's values */
    const char *value;          /* what help calls the value: "N" */
    const char *initial;        /* the default, as a user writes it; NULL: zero or not given */
    double min, max;            /* of numbers and sizes; both 0: any */
    const char *const *choices; /* of OPT_CHOICE, ended by NULL; or those of the library: */
    const char *choices_of;     /* this member of `table` has them; NULL: `member` has */
    int required;               /* argument only */
    const char *help;           /* a phrase: no capital, no full stop */
    const char *unit;           /* of a number: "frames"; NULL: none */
    /* An option of the library: opt_bind fills in type, range, choices, help and default from the
     * library's table, where they are not given here. offset is that of the library's struct. */
    const char *member; /* of that struct; NULL: an option of the command alone */
    tess_options table;
    int own;           /* OPT_OWN, OPT_OWN_SHOWN: offset is that of the value itself */
    int narrow;        /* 1: an int lies there, of a choice its value */
    const int *values; /* of the choices; NULL: 0, 1, 2, ... */
    char text[24];     /* of a default that is a number */
} opt;

/* An option of the library that the command stores as one of its own, to see whether it was given;
 * SHOWN: the help names the library's default. */
enum { OPT_OWN = 1, OPT_OWN_SHOWN };

/* Option `name` for the member `of` of a library struct that lies at offset `at` of the values.
 * kind: an opt_type, 0: the table's. */
#define OPT_OF(TABLE, at, name, kind, metavar, of)                                                 \
    {                                                                                              \
        (name), .type = (kind), .offset = (at), .value = (metavar), .member = #of,                 \
                .table = TESS_OPTIONS_##TABLE                                                      \
    }

/* The first member of every command's values, filled by the options all commands share. */
typedef struct {
    int help, json, quiet, verbose;
    int64_t threads, seed;
    const char *isa;
    int64_t rank_timeout; /* seconds; 0: none */
} common;

typedef struct cli cli;

typedef struct {
    const char *line, *what; /* "tessera info --measure", "also measure the peaks" */
} example;

/* Keys that an argument's text may hold, "heads=8,dim=128": like options, without dashes. */
typedef struct {
    const char *name, *summary; /* "attn", "attention, dense or on a random selection" */
    const opt *keys;
    int n;
} key_table;

/* A group of a long list of options: from the one called `first` to that of the next group. */
typedef struct {
    const char *title, *first; /* "Data options", "data" */
} opt_group;

typedef struct command {
    const char *name, *summary, *description; /* paragraphs of the description end with \n */
    const opt *arguments, *options;
    int n_arguments, n_options;
    const struct command *of; /* command whose options are accepted too; its values come first */
    const opt_group *groups;  /* none: one list of options */
    int n_groups;
    const key_table *tables;
    int n_tables;
    const example *examples;
    int n_examples;
    int plain;            /* 1: no context, no ranks, and --help is the only common option */
    size_t size;          /* of the values */
    const void *defaults; /* of the values, where zeros and the options' own do not do; or NULL */
    int everywhere;       /* 1: every rank runs it, and c->comm joins them */
    void (*bind)(void);   /* calls opt_bind for its tables; NULL: they are complete */
    tess_status (*run)(cli *c, const void *values);   /* on rank 0, or everywhere */
    tess_status (*serve)(cli *c, const void *values); /* on the others meanwhile; NULL: they wait */
} command;

/* A member of a command that is an array of its file, and how long that is: TABLE(options). */
#define TABLE(name) .name = (name), .n_##name = sizeof(name) / sizeof *(name)

extern const command *const commands[];
extern const int n_commands;

const command *command_find(const char *name); /* NULL: there is none */

enum { OPT_ERROR_MAX = 512 };

/* Fills values (cmd->size bytes) with the defaults and then from argv[0..argc), which they may
 * point into. After --help it stops without asking for the rest. Returns 0, or -1 with a sentence
 * that names the option, its value and the rule. Call opt_free in both cases. */
int opt_parse(const command *cmd, int argc, char *const *argv, void *values,
              char error[OPT_ERROR_MAX]);
void opt_free(const command *cmd, void *values);

/* Words of argv, which opt_parse has accepted, that are options of cmd->of, in words with room for
 * all; returns how many. */
int opt_passed(const command *cmd, int argc, char *const *argv, char **words);

/* Option i of a command: its own, those of the command it passes some on to, the common ones; NULL
 * beyond the last. */
const opt *opt_at(const command *cmd, int i);

/* The options every command shares: all of them, or --help alone for a plain one. */
const opt *opt_common(const command *cmd, int *n);

/* Completes options of the library from its tables; their defaults are those of the values. */
void opt_bind(opt *options, int n, const void *defaults);
void commands_bind(void); /* of all commands; before any other use of them */

/* Stores a text at the place of an option that does not repeat. Returns -1 if it breaks the rule.
 */
int opt_store(const opt *o, const char *text, void *values);

/* opt_unknown.c: the sentence about a word such as "--rank" that is no option of the command. */
void opt_unknown(const command *cmd, const char *word, char error[OPT_ERROR_MAX]);

/* "an integer 1..1024": what a value must be. */
void opt_rule(const opt *o, char *text, size_t bytes);
int opt_takes_value(const opt *o);
int opt_repeats(const opt *o);
int opt_negative(const opt *o); /* 1: on unless --no-NAME is given */

/* The options from number `at` on that are listed together: how many, and their title. */
int opt_group_of(const command *cmd, int at, const char **title);

const char *opt_word(const opt *o, const void *values); /* the choice that was made */
const char *const *opt_choices(const opt *o);           /* NULL: not an OPT_CHOICE */

/* ---- help.c, manual.c, complete.c: everything to read, from the tables ------------------- */

void help_short(FILE *f);
void help_command(FILE *f, const command *cmd);
void help_synopsis(FILE *f, const command *cmd);          /* "tessera tensor [OPTION...] FILE..." */
void help_option(const opt *o, char *text, size_t bytes); /* "-j, --threads N" */
void help_default(const opt *o, char *text, size_t bytes); /* "; default: 1G", " (a, b or c)" */
void help_key(const opt *o, char *term, size_t term_bytes, char *more,
              size_t more_bytes); /* "heads=N", " (1..64); default: 1" */
void manual_markdown(FILE *f);
void manual_man(FILE *f);
void complete_shell(FILE *f, const char *shell); /* "bash", "zsh" or "fish" */

/* ---- output.c, input.c, progress.c, signals.c: what is printed and read ---------------- */

enum { CLI_SENTENCE_MAX = 1024 }; /* bytes of an error's sentence */
enum { CLI_CACHE_MAX = 1024 };    /* bytes of a folder's path */

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_MISMATCH = 3, EXIT_MACHINE = 4, EXIT_SIGNAL = 128 };

/* Calls of the library while a command owns the line: what is done, and how much of it. */
typedef void (*progress_fn)(void *user, const char *what, int64_t done, int64_t total);

/* One line about a long call, on stderr: rewritten on a terminal, else repeated now and then. */
typedef struct {
    int on, terminal, shown;  /* shown: characters of it are on the terminal */
    int hold;                 /* 1: a signal stops nothing; the command polls for it itself */
    int64_t started, printed; /* nanoseconds */
    /* A command that makes many calls frames them as one job over span_total bytes; the running
     * call is the part_size bytes from part_begin on. span NULL: no frame. */
    const char *span;
    int64_t span_total, part_begin, part_size;
    char what[64];
    int64_t done;
    progress_fn inner; /* not NULL: the command owns the line, and inner calls do not show on it */
    void *inner_user;
} progress;

struct cli {
    const command *cmd;
    int argc; /* what stands behind the command's name */
    char *const *argv;
    const common *common;
    tess_ctx *ctx;   /* NULL for a plain command */
    tess_comm *comm; /* NULL unless a launcher started several ranks */
    int rank, ranks;
    FILE *out;       /* the result as text; goes nowhere on ranks other than 0 */
    json_t *json;    /* the result's members with --json on rank 0, else NULL */
    int lost;        /* the errno of a result that could not be written */
    int json_failed; /* 1: memory ran out while the result was made */
    int code;        /* exit code of a command that worked: a doctor that found a problem sets 1 */
    int usage;       /* 1: the command line is wrong, and the help is worth a hint */
    int colour;      /* 1: escapes may be printed on stdout */
    char sentence[CLI_SENTENCE_MAX]; /* why the command failed, if not the library's sentence */
    char cache[CLI_CACHE_MAX];       /* cache_choose's folder; "": none */
    progress progress;
};

typedef enum { STYLE_PLAIN, STYLE_BOLD, STYLE_GOOD, STYLE_WARN, STYLE_BAD } style;
const char *out_style(const cli *c, style s); /* an escape, or "" where there are no colours */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const tess_status try_status_ = (call);                                                    \
        if (try_status_ != TESS_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

/* A failure the command itself decides: stores the sentence. Wrong usage exits with 2. */
tess_status out_fail(cli *c, tess_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tess_status out_usage(cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the status. What is wrong with a command's input is the caller's to mend, as what is
 * wrong with an option: EINVAL and EFORMAT exit with 2 as well. */
tess_status out_input(cli *c, tess_status status);

/* Returns the status. A failure of the library gets the option that led to it in front of its
 * sentence: "--cluster: no cluster "h1000"". */
tess_status out_option(cli *c, const char *option, tess_status status);

/* Removes the names of the library's functions, in place: "tess_plan_create: ring is 3" becomes
 * "ring is 3". Returns the sentence. */
char *out_plain(char *sentence);

/* Prints "tessera COMMAND: sentence" on stderr, without control characters and C names. */
void out_error(const cli *c, const char *sentence);
void out_log(void *user, tess_log_level level, const char *message); /* a tess_log_fn, of rank 0 */

/* Flushes the text so far. -1 if it cannot be written: the rest need not be computed. */
int out_flush(cli *c);

/* Prints what is left of the result and closes stdout. Returns the exit code. */
int out_finish(cli *c, tess_status status);

/* Members of JSON objects. A value that is NULL for lack of memory sets json_failed. */
void out_set(cli *c, json_t *object, const char *key, json_t *value);
void out_append(cli *c, json_t *array, json_t *value);
json_t *out_text(const char *text);         /* any bytes: those that are not UTF-8 become ? */
json_t *out_sentence(const char *sentence); /* the same, without C names */
json_t *out_number(double value);           /* NaN: null; infinities: "Infinity", "-Infinity" */
char *out_json(const json_t *value);        /* as text, to be freed; NULL: no memory */

/* Text in the caller's buffer, which is also returned. */
char *out_bytes(int64_t bytes, char text[32]);            /* "1.50 GiB" */
char *out_clean(const char *s, char *text, size_t bytes); /* control characters become ? */

char *out_command(const cli *c); /* the command line, to be freed; NULL: no memory */

const char *out_plural(int64_t n); /* "s", or "" for 1 */

double out_median(double *x, int64_t n); /* sorts x; NaN of nothing */

/* Prints text wrapped at 79 columns, further lines indented; \n ends a paragraph. column is where
 * the cursor stands. */
void out_wrap(FILE *f, const char *text, int column, int indent);

/* input.c: opens a text file, or a pipe that a process writes to. */
tess_status input_open(cli *c, const char *path, FILE **f);

int progress_call(void *user, const char *what, int64_t done, int64_t total); /* user: the cli */
void progress_span(cli *c, const char *what, int64_t total); /* what NULL: ends the span */
void progress_part(cli *c, int64_t begin, int64_t size);
void progress_clear(cli *c); /* before anything else is printed */

/* The line belongs to the command until progress_own(c, NULL, NULL): calls of the library go to fn,
 * which may show a line about them. */
void progress_own(cli *c, progress_fn fn, void *user);
void progress_step(cli *c, const char *text); /* on a terminal always, else every 10 seconds */
void progress_line(cli *c, const char *text); /* the same, at most 6 times a second */
int progress_width(void); /* columns of a line: those of the terminal, less one; else 79 */
char *progress_rate(double rate, char text[32]);    /* "9160", "82.1k", "1.2M" */
char *progress_time(double seconds, char text[32]); /* "1:02", "3:05:10" */

void signals_catch(void);
int signals_caught(void); /* SIGINT, SIGTERM, SIGUSR1 or SIGHUP, or 0 */
/* The progress function of contexts that show none: a signal stops their calls. */
int signals_progress(void *unused, const char *what, int64_t done, int64_t total);

/* ---- world.c: the ranks a launcher started ----------------------------------------------- */

int world_rank(void); /* as the launcher's environment says: 0 without one */

void world_mpi(char *text, size_t bytes); /* "Open MPI v4.1.4", or "none" */

/* Collective. so_far: what failed on this rank before; then no communicator is made anywhere. A
 * command that runs on every rank fails if there are fewer ranks than the launcher meant, or if
 * they are of different builds. */
tess_status world_open(cli *c, tess_status so_far);

/* Not collective. Notifies all ranks that this one failed, wherever they wait; world_failed
 * returns 1 if one did, and stores its sentence. */
void world_fail(cli *c, tess_status status);
int world_failed(cli *c);

/* Collective over comm, whose ranks may be threads, each with a cli of its own: all ranks fail if
 * one has failed. A failed rank returns its own status and sentence, the command's or the
 * library's; the others get those of the lowest failed rank, as "rank 2: ...". comm NULL: alone. */
tess_status world_agree(cli *c, tess_comm *comm, tess_status status);

/* Collective: bytes and messages that all ranks sent, by kind, on a line that begins with the
 * label, or as the member "sent". One rank alone prints nothing. */
tess_status world_sent(cli *c, const char *label, const tess_comm_counts *mine);

/* Collective: one status, exit code and sentence for all ranks, also where a failed rank left
 * others waiting, or where one does not respond. */
tess_status world_end(cli *c, tess_status status);
void world_close(cli *c, tess_status status, int code);

/* ---- cache.c: the folder that stores measurements of this machine ------------------------- */

/* Sets c->cache to the folder given, to none for "none", or for NULL to tessera's own below
 * XDG_CACHE_HOME or HOME; without either there is none, and the log says so. */
tess_status cache_choose(cli *c, const char *given);
const char *cache_folder(const cli *c); /* as an argument of the library: NULL for none */

#endif
