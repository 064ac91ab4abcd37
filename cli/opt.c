/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c - option tables: arguments in, a filled struct or one sentence out.
 *
 * --name value, --name=value, --no-name for flags, -j 4, -j4, -vq for short ones; -- ends the
 * options, and a lone - is an argument. Options and arguments mix freely. The last of an option
 * that does not repeat wins. Nothing is printed here.
 */
#include "choices.h"
#include "cli.h"

#include "tessera/advanced/nearest.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const isas[] = {"avx512", "avx2", "neon", "base", "wide", NULL};

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

/* A limit: of sizes and amounts with the largest unit that divides it, "8192T". */
static void limit_text(const opt *o, double limit, char text[32])
{
    const char *units = o->type == OPT_AMOUNT ? "KMBT" : "KMGT";
    const double base = o->type == OPT_AMOUNT ? 1000 : 1024;
    const int with_unit = o->type == OPT_SIZE || o->type == OPT_AMOUNT;
    int unit = -1;
    while (with_unit && unit < 3 && limit >= base && fmod(limit, base) == 0) {
        limit /= base;
        unit++;
    }
    snprintf(text, 32, "%.15g%.*s", limit, unit >= 0, &units[unit >= 0 ? unit : 0]);
}

static void rule_range(const opt *o, const char *kind, char *text, size_t bytes)
{
    const int list = o->type == OPT_SIZE || o->type == OPT_AMOUNT;
    const char *comma = list ? "," : "";             /* its kind is a list */
    const int unit = o->unit && o->type != OPT_SIZE; /* sizes are written with theirs */
    char low[32], high[32];
    limit_text(o, o->min, low);
    limit_text(o, o->max, high);
    if (o->min == 0 && o->max == 0)
        snprintf(text, bytes, "%s", kind);
    else if (isinf(o->max))
        snprintf(text, bytes, "%s%s of at least %s", kind, comma, low);
    else
        snprintf(text, bytes, "%s%s %s..%s", kind, comma, low, high);
    const size_t used = strlen(text);
    if (unit)
        snprintf(text + used, bytes - used, ", in %s", o->unit);
}

const char *const *opt_choices(const opt *o)
{
    const char *of = o->choices_of ? o->choices_of : o->member;
    return o->choices || !of ? o->choices : tess_option_find(o->table, of)->words;
}

/* Words that stand for numbers; NULL: none. */
static const char *const *number_words(const opt *o)
{
    const tess_option *from = o->member ? tess_option_find(o->table, o->member) : NULL;
    return o->type == OPT_INT && from && from->values ? from->words : NULL;
}

static void add_words(const opt *o, char *text, size_t bytes)
{
    const char *const *words = number_words(o);
    for (int i = 0; words && words[i]; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", words[i + 1] ? ", " : " or ", words[i]);
    }
}

void opt_rule(const opt *o, char *text, size_t bytes)
{
    const char *const *words = opt_choices(o);
    size_t used = 0;
    switch (o->type) {
    case OPT_INT:
        rule_range(o, "an integer", text, bytes);
        add_words(o, text, bytes);
        return;
    case OPT_DOUBLE: rule_range(o, "a number", text, bytes); return;
    case OPT_AMOUNT:
        rule_range(o, "a number such as 250000, 1.5M, 3B or 14.8T", text, bytes);
        return;
    case OPT_SIZE: rule_range(o, "a size such as 4096, 64K or 2GiB", text, bytes); return;
    case OPT_CHOICE:
        text[0] = 0;
        for (int i = 0; words[i] && used < bytes; i++)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     i == 0         ? ""
                                     : words[i + 1] ? ", "
                                                    : " or ",
                                     words[i]);
        return;
    case OPT_CUBE: snprintf(text, bytes, "auto or sizes such as 2x4x4"); return;
    default: snprintf(text, bytes, "a text that is not empty"); return;
    }
}

static int in_range(const opt *o, double value)
{
    return (o->min == 0 && o->max == 0) || (value >= o->min && value <= o->max);
}

static int starts_like_number(const char *s)
{
    if (*s == '-' || *s == '+')
        s++;
    return (*s >= '0' && *s <= '9') || *s == '.';
}

static int parse_int(const opt *o, const char *text, void *at)
{
    const char *const *words = number_words(o);
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int word = 0;
    while (words && words[word] && strcasecmp(words[word], text) != 0)
        word++;
    if (words && words[word])
        v = o->values[word];
    else if (!starts_like_number(text) || *end || errno || !in_range(o, (double)v))
        return -1;
    if (o->narrow)
        *(int *)at = (int)v;
    else
        *(int64_t *)at = v;
    return 0;
}

static int parse_double(const opt *o, const char *text, double *value)
{
    char *end;
    const double v = strtod(text, &end);
    if (!starts_like_number(text) || *end || !isfinite(v) || !in_range(o, v))
        return -1;
    *value = v;
    return 0;
}

/* The suffix becomes an exponent, so that 14.8T is the double nearest to 14.8e12. */
static int parse_amount(const opt *o, const char *text, double *value)
{
    static const char suffixes[] = "KMBTkmbt";
    char number[64];
    const size_t n = strlen(text);
    if (n == 0 || n > 48 || text[n - 1] < 'A')
        return parse_double(o, text, value);
    const char *at = strchr(suffixes, text[n - 1]);
    const int power = text[n - 1] == 'G' || text[n - 1] == 'g' ? 9
                      : at                                     ? 3 * ((int)(at - suffixes) % 4 + 1)
                                                               : 0;
    if (!power || strspn(text, "0123456789.") != n - 1)
        return -1;
    snprintf(number, sizeof number, "%.*se%d", (int)n - 1, text, power);
    return parse_double(o, number, value);
}

static int parse_size(const opt *o, const char *text, int64_t *value)
{
    static const char prefixes[] = "KMGT";
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || errno)
        return -1;
    const char *prefix = *end ? strchr(prefixes, *end) : NULL;
    if (prefix) {
        const int thousand = strcmp(end + 1, "B") == 0;
        if (end[1] && !thousand && strcmp(end + 1, "iB") != 0)
            return -1;
        for (const char *p = prefixes; p <= prefix; p++)
            if (__builtin_mul_overflow(v, thousand ? 1000 : 1024, &v))
                return -1;
    } else if (*end && strcmp(end, "B") != 0) {
        return -1;
    }
    if (!in_range(o, (double)v))
        return -1;
    *value = v;
    return 0;
}

static int parse_choice(const opt *o, const char *text, void *at)
{
    const char *const *words = opt_choices(o);
    for (int i = 0; words[i]; i++)
        if (strcasecmp(words[i], text) == 0) {
            if (o->narrow)
                *(int *)at = o->values ? o->values[i] : i;
            else
                *(const char **)at = words[i];
            return 0;
        }
    return -1;
}

static int parse_cube(const char *text, int cube[3])
{
    const int automatic = strcmp(text, "auto") == 0;
    if (automatic)
        memset(cube, 0, 3 * sizeof *cube);
    return automatic || choices_cube(text, cube) ? 0 : -1;
}

const char *opt_word(const opt *o, const void *values)
{
    const void *at = (const char *)values + o->offset;
    int i = 0;
    if (!o->narrow)
        return *(const char *const *)at;
    while ((o->values ? o->values[i] : i) != *(const int *)at)
        i++;
    return opt_choices(o)[i];
}

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

int opt_store(const opt *o, const char *text, void *values)
{
    void *at = (char *)values + o->offset;
    switch (o->type) {
    case OPT_FLAG:
    case OPT_COUNT: *(int *)at = atoi(text); return 0;
    case OPT_INT: return parse_int(o, text, at);
    case OPT_DOUBLE: return parse_double(o, text, at);
    case OPT_AMOUNT: return parse_amount(o, text, at);
    case OPT_SIZE: return parse_size(o, text, at);
    case OPT_CHOICE: return parse_choice(o, text, at);
    case OPT_CUBE: return parse_cube(text, at);
    default: *(const char **)at = text; return *text ? 0 : -1;
    }
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
