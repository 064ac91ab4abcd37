/* SPDX-License-Identifier: Apache-2.0 */
/* opt_value.c - values of options: their rules as words, and texts that become numbers, sizes,
 * amounts, choices and cubes. */
#include "choices.h"
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
        for (int i = 0; words && words[i] && used < bytes; i++)
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
    for (int i = 0; words && words[i]; i++)
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
