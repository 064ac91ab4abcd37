/* SPDX-License-Identifier: Apache-2.0 */
/* toml_read.c - TOML as configuration files use it: tables, keys, strings, numbers, booleans,
 * arrays and inline tables, flattened into pairs.
 *
 *   [parallelism]                          parallelism.tensor_parallel_degree = 8
 *   tensor_parallel_degree = 8  # all
 *   [quantize.linear.float8]               quantize.linear.float8.filter_fqns = output,lm_head
 *   filter_fqns = ["output", "lm_head"]
 *
 * Strict: anything else is refused with its line, also what TOML has beyond this (strings over
 * several lines, dates, arrays of tables). A key may be given once. Linear in the text, but for the
 * search of duplicates among at most TESS__JOB_PAIRS keys.
 */
#include "job_internal.h"

#include <stdarg.h>
#include <string.h>

enum { KEY_MAX = 256, DEPTH_MAX = 8 };

typedef struct {
    tess_job *job;
    const char *at, *end;
    int line;
    char table[KEY_MAX]; /* with its final point; "": none */
    char value[TESS__JOB_VALUE];
    size_t used; /* of value */
} toml;

__attribute__((format(printf, 2, 3))) static tess_status fail(const toml *t, const char *format,
                                                              ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tess__fail(TESS_EFORMAT, "%s: line %d: %s", t->job->name, t->line, text);
}

static int peek(const toml *t)
{
    return t->at < t->end ? (unsigned char)*t->at : -1;
}

static int accept(toml *t, char c)
{
    if (peek(t) != c)
        return 0;
    t->at++;
    return 1;
}

static void skip_blanks(toml *t)
{
    while (peek(t) == ' ' || peek(t) == '\t')
        t->at++;
}

/* Blanks and a comment, up to the end of the line. */
static void skip_comment(toml *t)
{
    skip_blanks(t);
    if (peek(t) == '#')
        while (t->at < t->end && *t->at != '\n')
            t->at++;
    if (peek(t) == '\r' && t->at + 1 < t->end && t->at[1] == '\n')
        t->at++;
}

/* The same over any number of lines: inside arrays. */
static void skip_lines(toml *t)
{
    for (;;) {
        skip_comment(t);
        if (!accept(t, '\n'))
            return;
        t->line++;
    }
}

static tess_status end_of_line(toml *t)
{
    skip_comment(t);
    if (t->at == t->end)
        return TESS_OK;
    if (!accept(t, '\n'))
        return fail(t, "text behind a value, must be the end of the line");
    t->line++;
    return TESS_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static tess_status key_add(const toml *t, char key[KEY_MAX], int c)
{
    const size_t n = strlen(key);
    if (n + 1 >= KEY_MAX)
        return fail(t, "the key is longer than %d bytes", KEY_MAX - 1);
    key[n] = (char)c;
    key[n + 1] = '\0';
    return TESS_OK;
}

/* a.b."c" behind what key holds. */
static tess_status read_key(toml *t, char key[KEY_MAX])
{
    do {
        skip_blanks(t);
        const int quote = peek(t) == '"' || peek(t) == '\'' ? peek(t) : 0;
        const char *begin = t->at += quote != 0;
        while (quote ? peek(t) >= ' ' && peek(t) != quote && peek(t) != '\\' : is_bare(peek(t)))
            TESS_TRY(key_add(t, key, *t->at++));
        if (t->at == begin)
            return fail(t, "a key is missing");
        if (quote && !accept(t, (char)quote))
            return fail(t, "a key without its end quote");
        skip_blanks(t);
        if (peek(t) == '.')
            TESS_TRY(key_add(t, key, '.'));
    } while (accept(t, '.'));
    return TESS_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static tess_status value_add(toml *t, int c)
{
    if (t->used + 1 >= sizeof t->value)
        return fail(t, "the value is longer than %d bytes", TESS__JOB_VALUE - 1);
    t->value[t->used++] = (char)c;
    t->value[t->used] = '\0';
    return TESS_OK;
}

static tess_status read_escape(toml *t)
{
    static const char from[] = "\"\\bfnrt", to[] = "\"\\\b\f\n\r\t";
    const char *known = peek(t) > 0 ? strchr(from, peek(t)) : NULL;
    if (!known)
        return fail(t, "an escape that is not known, must be \\\" \\\\ \\b \\f \\n \\r or \\t");
    t->at++;
    return value_add(t, to[known - from]);
}

static tess_status read_string(toml *t, char quote)
{
    if (t->end - t->at > 2 && t->at[0] == quote && t->at[1] == quote && t->at[2] == quote)
        return fail(t, "a string over several lines, which is not read here");
    t->at++;
    while (peek(t) >= ' ' && peek(t) != quote)
        if (quote == '"' && accept(t, '\\'))
            TESS_TRY(read_escape(t));
        else
            TESS_TRY(value_add(t, *t->at++));
    return accept(t, quote) ? TESS_OK : fail(t, "a string without its end quote");
}

/* true, false, 42, 1_000, 3e-4, inf: letters and digits, checked for their form. */
static tess_status read_word(toml *t)
{
    char word[64];
    size_t n = 0;
    for (; is_bare(peek(t)) || peek(t) == '+' || peek(t) == '.'; t->at++) {
        if (n + 1 >= sizeof word)
            return fail(t, "a value longer than %zu bytes, must be a number, true or false",
                        sizeof word - 1);
        if (*t->at != '_')
            word[n++] = *t->at;
    }
    word[n] = '\0';
    const int sign = word[0] == '+' || word[0] == '-';
    const int digits = word[sign] >= '0' && word[sign] <= '9';
    const int name = strcmp(word, "true") == 0 || strcmp(word, "false") == 0 ||
                     strcmp(word + sign, "inf") == 0 || strcmp(word + sign, "nan") == 0;
    if (!name && (!digits || strspn(word, "+-0123456789.eE") != n))
        return fail(t,
                    "\"%.40s\", must be a string in quotes, a number, true, false, an array or "
                    "an inline table",
                    word);
    for (size_t i = 0; i < n; i++)
        TESS_TRY(value_add(t, word[i]));
    return TESS_OK;
}

static tess_status read_value(toml *t, int depth);

/* Elements with commas between them, those of arrays inside it too. */
static tess_status read_array(toml *t, int depth)
{
    t->at++;
    for (skip_lines(t); !accept(t, ']'); skip_lines(t)) {
        const size_t before = t->used;
        TESS_TRY(read_value(t, depth + 1));
        skip_lines(t);
        const int more = accept(t, ',');
        if (!more && peek(t) != ']')
            return fail(t, "an array without its ], or a comma is missing");
        skip_lines(t);
        if (more && peek(t) != ']' && t->used > before)
            TESS_TRY(value_add(t, ','));
    }
    return TESS_OK;
}

static tess_status read_value(toml *t, int depth)
{
    if (depth > DEPTH_MAX)
        return fail(t, "values inside each other more than %d deep", DEPTH_MAX);
    if (peek(t) == '"' || peek(t) == '\'')
        return read_string(t, *t->at);
    if (peek(t) == '[')
        return read_array(t, depth);
    return read_word(t);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static tess_status read_pair(toml *t, const char *prefix, int depth);

/* { a = 1, b = 2 }: pairs with the key in front. */
static tess_status read_inline(toml *t, const char *key, int depth)
{
    char prefix[KEY_MAX];
    if (depth > DEPTH_MAX)
        return fail(t, "tables inside each other more than %d deep", DEPTH_MAX);
    if (snprintf(prefix, sizeof prefix, "%s.", key) >= (int)sizeof prefix)
        return fail(t, "the key is longer than %d bytes", KEY_MAX - 1);
    t->at++;
    skip_blanks(t);
    if (accept(t, '}'))
        return TESS_OK;
    do {
        TESS_TRY(read_pair(t, prefix, depth));
        skip_blanks(t);
    } while (accept(t, ','));
    return accept(t, '}') ? TESS_OK : fail(t, "an inline table without its }");
}

static tess_status read_pair(toml *t, const char *prefix, int depth)
{
    char key[KEY_MAX];
    const int line = t->line;
    snprintf(key, sizeof key, "%s", prefix);
    TESS_TRY(read_key(t, key));
    if (!accept(t, '='))
        return fail(t, "\"%.60s\" without a value, must be KEY = VALUE", key);
    skip_blanks(t);
    if (peek(t) == '{')
        return read_inline(t, key, depth + 1);
    t->used = 0;
    t->value[0] = '\0';
    TESS_TRY(read_value(t, 0));
    for (int i = 0; i < t->job->n_pairs; i++)
        if (strcmp(t->job->pairs[i].key, key) == 0)
            return fail(t, "\"%.60s\" is given twice, first in line %d", key,
                        t->job->pairs[i].line);
    return tess__job_pair_add(t->job, key, t->value, line);
}

static tess_status read_table(toml *t)
{
    t->at++;
    if (peek(t) == '[')
        return fail(t, "an array of tables, which is not read here");
    t->table[0] = '\0';
    TESS_TRY(read_key(t, t->table));
    if (!accept(t, ']'))
        return fail(t, "a table's name without its ]");
    return key_add(t, t->table, '.');
}

tess_status tess__toml_read(tess_job *job, const char *text, size_t bytes)
{
    toml t = {.job = job, .at = text, .end = text + bytes, .line = 1};
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        t.at += 3;
    while (t.at < t.end) {
        skip_comment(&t);
        if (t.at == t.end)
            break;
        if (peek(&t) == '[')
            TESS_TRY(read_table(&t));
        else if (peek(&t) != '\n')
            TESS_TRY(read_pair(&t, t.table, 0));
        TESS_TRY(end_of_line(&t));
    }
    return TESS_OK;
}
