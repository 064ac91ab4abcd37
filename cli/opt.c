/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c - option tables: arguments in, a filled struct or one sentence out.
 *
 * --name value, --name=value, --no-name for flags, -j 4, -j4, -vq for short ones; -- ends the
 * options, and a lone - is an argument. Options and arguments mix freely. The last of an option
 * that does not repeat wins. Nothing is printed here.
 */
#include "cli.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const isas[] = {"avx512",     "avx2",       "neon",        "base",
                                   "wide",       "amx",        "avx512-bf16", "neon-bf16",
                                   "wide-tiles", "wide-pairs", NULL};

static const opt common_options[] = {
    {"help", 'h', OPT_FLAG, offsetof(common, help), .help = "print this help"},
    {"json", 0, OPT_FLAG, offsetof(common, json), .help = "print the result as one JSON object"},
    {"quiet", 'q', OPT_FLAG, offsetof(common, quiet), .help = "no progress and no warnings"},
    {"verbose", 'v', OPT_COUNT, offsetof(common, verbose),
     .help = "print what happens; twice: in detail"},
    {"threads", 'j', OPT_INT, offsetof(common, threads), "N", .min = 1, .max = 1024,
     .unit = "threads", .help = "threads to use; default: $TESS_THREADS, else every usable core"},
    {"seed", 0, OPT_INT, offsetof(common, seed), "N", "0", .max = INFINITY,
     .help = "seed of all random numbers"},
    {"isa", 0, OPT_CHOICE, offsetof(common, isa), "ISA", .choices = isas,
     .help = "instruction set; default: $TESS_ISA, else the best this machine runs"},
    /* The last one, of commands that run on several ranks. */
    {"rank-timeout", 0, OPT_INT, offsetof(common, rank_timeout), "SECONDS", .min = 1, .max = 1e6,
     .unit = "seconds",
     .help = "with several ranks: end when one has not answered for so long; never unless given"},
};

typedef struct {
    const command *cmd;
    char *values;
    int argc;
    char *error; /* OPT_ERROR_MAX bytes */
} parser;

const opt *opt_common(const command *cmd, int *n)
{
    const int all = sizeof common_options / sizeof *common_options;
    *n = cmd->plain ? 1 : cmd->everywhere || cmd->serve ? all : all - 1;
    return common_options;
}

int opt_takes_value(const opt *o)
{
    return o->type != OPT_FLAG && o->type != OPT_COUNT;
}

int opt_repeats(const opt *o)
{
    return o->type == OPT_STRINGS || o->type == OPT_PATHS;
}

int opt_negative(const opt *o)
{
    return o->type == OPT_FLAG && o->initial && strcmp(o->initial, "1") == 0;
}

static const char *group_title(const command *cmd, const char *first)
{
    for (int g = 0; g < cmd->n_groups; g++)
        if (strcmp(cmd->groups[g].first, first) == 0)
            return cmd->groups[g].title;
    return NULL;
}

int opt_group_of(const command *cmd, int at, const char **title)
{
    int n = 1;
    *title = group_title(cmd, cmd->options[at].name);
    *title = *title ? *title : "Options";
    while (at + n < cmd->n_options && !group_title(cmd, cmd->options[at + n].name))
        n++;
    return n;
}

/* Writes the sentence and returns -1. */
__attribute__((format(printf, 2, 3))) static int wrong(parser *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->error, OPT_ERROR_MAX, format, args);
    va_end(args);
    return -1;
}

/* ---- values ------------------------------------------------------------------------------ */

/* A list has room for every argument there is, so that it is allocated once. */
static int append(parser *p, strings *list, const char *text)
{
    const char **items = list->items;
    if (!items)
        items = calloc((size_t)p->argc + 1, sizeof *items);
    if (!items)
        return wrong(p, "no memory for %d arguments", p->argc);
    items[list->n++] = text;
    list->items = items;
    return 0;
}

/* Behind the rule of an integer that is given as "32k": ", written out: 32000 or 32768". */
static const char *written_out(const opt *o, const char *value, char text[64])
{
    static const char units[] = "kmg";
    const size_t digits = strspn(value, "0123456789");
    const char *unit = value[digits] ? strchr(units, value[digits] | 0x20) : NULL;
    if (o->type != OPT_INT || digits == 0 || digits > 9 || !unit || value[digits + 1])
        return "";
    long long thousand = atoll(value), binary = thousand;
    for (const char *u = units; u <= unit; u++) {
        thousand *= 1000;
        binary *= 1024;
    }
    snprintf(text, 64, ", written out: %lld or %lld", thousand, binary);
    return text;
}

/* Stores text at the option's place. dashes is "--" for an option and "" for an argument. */
static int store(parser *p, const opt *o, const char *dashes, const char *text)
{
    if (opt_repeats(o) && *text)
        return append(p, (strings *)(p->values + o->offset), text);
    if (!opt_repeats(o) && opt_store(o, text, p->values) == 0)
        return 0;
    char rule[256], more[64];
    opt_rule(o, rule, sizeof rule);
    return wrong(p, "%s%s is \"%.80s\", must be %s%s", dashes, o->name, text, rule,
                 written_out(o, text, more));
}

/* ---- options ----------------------------------------------------------------------------- */

const opt *opt_at(const command *cmd, int i)
{
    int n = 0;
    const opt *shared = opt_common(cmd, &n);
    if (i < cmd->n_options)
        return &cmd->options[i];
    i -= cmd->n_options;
    if (cmd->of && i < cmd->of->n_options)
        return &cmd->of->options[i];
    i -= cmd->of ? cmd->of->n_options : 0;
    return i < n ? &shared[i] : NULL;
}

static int unknown(parser *p, const char *arg, size_t length)
{
    char word[80];
    snprintf(word, sizeof word, "%.*s", (int)length, arg);
    opt_unknown(p->cmd, word, p->error);
    return -1;
}

/* The option called by `length` characters of name, or NULL. *no is 1 for --no- in front of a flag.
 */
static const opt *find_long(const command *cmd, const char *name, size_t length, int *no)
{
    const opt *o;
    for (int i = 0; (o = opt_at(cmd, i)); i++) {
        const size_t size = strlen(o->name);
        *no = 0;
        if (length == size && memcmp(name, o->name, size) == 0)
            return o;
        *no = 1;
        if (!opt_takes_value(o) && length == size + 3 && memcmp(name, "no-", 3) == 0 &&
            memcmp(name + 3, o->name, size) == 0)
            return o;
    }
    return NULL;
}

static const opt *find_short(const command *cmd, char letter)
{
    const opt *o = NULL;
    for (int i = 0; (o = opt_at(cmd, i)); i++)
        if (o->short_name == letter)
            break;
    return o;
}

static void set_flag(parser *p, const opt *o, int no)
{
    int *at = (int *)(p->values + o->offset);
    *at = no ? 0 : o->type == OPT_COUNT ? *at + 1 : 1;
}

/* text is the option's value, or NULL if there is none. */
static int set_value(parser *p, const opt *o, const char *text)
{
    char rule[256];
    if (text)
        return store(p, o, "--", text);
    opt_rule(o, rule, sizeof rule);
    return wrong(p, "--%s lacks its value, must be %s", o->name, rule);
}

/* arg is --name, --name=value or --no-name; next is the argument behind it or NULL. Returns the
 * number of arguments used, or -1. */
static int parse_long(parser *p, const char *arg, const char *next)
{
    const char *name = arg + 2;
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    int no;
    const opt *o = find_long(p->cmd, name, length, &no);
    if (!o)
        return unknown(p, arg, length + 2);
    if (opt_takes_value(o))
        return set_value(p, o, value ? value : next) ? -1 : value ? 1 : 2;
    if (value)
        return wrong(p, "%.*s is given \"%.80s\", takes no value", (int)length + 2, arg, value);
    set_flag(p, o, no);
    return 1;
}

/* arg is -x, -xyz (flags) or -x with its value attached; as above otherwise. */
static int parse_short(parser *p, const char *arg, const char *next)
{
    for (const char *letter = arg + 1; *letter; letter++) {
        const opt *o = find_short(p->cmd, *letter);
        if (!o)
            return wrong(p, "-%c is no option", *letter);
        if (opt_takes_value(o))
            return set_value(p, o, letter[1] ? letter + 1 : next) ? -1 : letter[1] ? 1 : 2;
        set_flag(p, o, 0);
    }
    return 1;
}

/* ---- arguments --------------------------------------------------------------------------- */

/* at counts the arguments so far; the last argument of the table may repeat. */
static int parse_argument(parser *p, const char *text, int at)
{
    const command *cmd = p->cmd;
    const opt *last = cmd->n_arguments ? &cmd->arguments[cmd->n_arguments - 1] : NULL;
    if (at < cmd->n_arguments)
        return store(p, &cmd->arguments[at], "", text);
    if (last && opt_repeats(last))
        return store(p, last, "", text);
    return wrong(p, "\"%.80s\" is one argument too many", text);
}

static int missing(parser *p, const opt *argument)
{
    char rule[256];
    if (argument->type != OPT_CHOICE)
        return wrong(p, "%s is missing: %s", argument->name, argument->help);
    opt_rule(argument, rule, sizeof rule);
    return wrong(p, "%s is missing, must be %s", argument->name, rule);
}

static void defaults(parser *p)
{
    const opt *o;
    if (p->cmd->defaults)
        memcpy(p->values, p->cmd->defaults, p->cmd->size);
    else
        memset(p->values, 0, p->cmd->size);
    for (int i = 0; (o = opt_at(p->cmd, i)); i++) {
        if (o->member && !o->own) /* has the default of its struct */
            continue;
        if (o->type == OPT_DOUBLE || o->type == OPT_AMOUNT)
            *(double *)(p->values + o->offset) = NAN;
        if (o->initial && !o->own)
            store(p, o, "--", o->initial);
    }
}

int opt_parse(const command *cmd, int argc, char *const *argv, void *values,
              char error[OPT_ERROR_MAX])
{
    parser p = {cmd, values, argc, error};
    int options_end = 0, arguments = 0;
    error[0] = 0;
    defaults(&p);
    for (int i = 0; i < argc;) {
        const char *arg = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int used = 1;
        if (options_end || arg[0] != '-' || !arg[1])
            used = parse_argument(&p, arg, arguments++) ? -1 : 1;
        else if (strcmp(arg, "--") == 0)
            options_end = 1;
        else
            used = arg[1] == '-' ? parse_long(&p, arg, next) : parse_short(&p, arg, next);
        if (used < 0)
            return -1;
        if (((const common *)values)->help)
            return 0;
        i += used;
    }
    for (int i = arguments; i < cmd->n_arguments; i++)
        if (cmd->arguments[i].required)
            return missing(&p, &cmd->arguments[i]);
    return 0;
}

static int is_of(const command *cmd, const opt *o)
{
    return o >= cmd->of->options && o < cmd->of->options + cmd->of->n_options;
}

int opt_passed(const command *cmd, int argc, char *const *argv, char **words)
{
    int n = 0, no;
    for (int i = 0; i < argc;) {
        const char *arg = argv[i];
        const int is_long = arg[0] == '-' && arg[1] == '-';
        const size_t length = is_long ? strcspn(arg + 2, "=") : 0;
        const opt *o = is_long ? find_long(cmd, arg + 2, length, &no) : NULL;
        int used = o && opt_takes_value(o) && !arg[2 + length] ? 2 : 1;
        for (const char *letter = arg + 1; !is_long && *letter; letter++) {
            const opt *s = find_short(cmd, *letter); /* none of those that are passed on */
            assert(s); /* opt_parse has accepted it, and cmd takes no arguments */
            used = opt_takes_value(s) && !letter[1] ? 2 : 1;
            if (opt_takes_value(s))
                break;
        }
        for (int k = 0; k < used; k++)
            if (o && is_of(cmd, o))
                words[n++] = argv[i + k];
        i += used;
    }
    return n;
}

void opt_free(const command *cmd, void *values)
{
    for (int i = 0; i < cmd->n_options; i++)
        if (opt_repeats(&cmd->options[i]))
            free(((strings *)((char *)values + cmd->options[i].offset))->items);
    for (int i = 0; i < cmd->n_arguments; i++)
        if (opt_repeats(&cmd->arguments[i]))
            free(((strings *)((char *)values + cmd->arguments[i].offset))->items);
}
