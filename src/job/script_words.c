/* SPDX-License-Identifier: Apache-2.0 */
/* script_words.c - words of a shell script: quotes, line continuations, comments, expansion.
 *
 *   $A ${A} ${A:-text}    the variable's text; outside quotes cut at blanks
 *   ${A[@]} ${A[*]}       the elements of an array
 *   $((A * 8))            a whole number
 *
 * What the script does not assign ($1, $HOME, $(hostname)) stays in the word as it is written, so
 * that whoever needs the word can say so.
 */
#include "script.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

tess_status tess__script_fail(const tess__script *s, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tess__fail(TESS_EFORMAT, "%s: line %d: %s", s->job->name, s->line, text);
}

/* ---- variables ------------------------------------------------------------------------------- */

static tess__script_variable *find(const tess__script *s, const char *name, size_t length)
{
    for (int i = 0; i < s->n_variables; i++)
        if (strlen(s->variables[i].name) == length &&
            memcmp(s->variables[i].name, name, length) == 0)
            return &s->variables[i];
    return NULL;
}

const char *tess__script_value(const tess__script *s, const char *name, size_t length)
{
    const tess__script_variable *v = find(s, name, length);
    return v ? v->text : NULL;
}

tess_status tess__script_assign(tess__script *s, const char *name, size_t length, const char *text)
{
    if (length >= TESS__SCRIPT_NAME)
        return tess__script_fail(s, "a name longer than %d bytes", TESS__SCRIPT_NAME - 1);
    s->stored += strlen(text) + 1;
    if (s->stored > TESS__SCRIPT_STORED)
        return tess__script_fail(s, "values of more than %d bytes", TESS__SCRIPT_STORED);
    const char *copy = tess__arena_string(&s->job->arena, text, strlen(text));
    if (!copy)
        return TESS_ENOMEM;
    tess__script_variable *v = find(s, name, length);
    if (!v && s->n_variables == TESS__SCRIPT_VARIABLES)
        return tess__script_fail(s, "more than %d variables", TESS__SCRIPT_VARIABLES);
    if (!v) {
        TESS_TRY(tess__grow(s->job->ctx, &s->variables, sizeof *s->variables, s->n_variables,
                            s->n_variables + 1, &s->variable_room));
        v = &s->variables[s->n_variables++];
        memset(v->name, 0, sizeof v->name);
        memcpy(v->name, name, length);
    }
    v->text = copy;
    return TESS_OK;
}

/* ---- expansion ------------------------------------------------------------------------------- */

tess_status tess__script_put(tess__script *s, int c)
{
    if (s->used + 1 >= TESS__SCRIPT_WORD)
        return tess__script_fail(s, "a word longer than %d bytes", TESS__SCRIPT_WORD - 1);
    s->word[s->used++] = (char)c;
    s->word[s->used] = '\0';
    return TESS_OK;
}

/* The text of a variable: outside quotes each run of blanks cuts it into words. */
static tess_status put_text(tess__script *s, const char *text, int quoted)
{
    for (; *text; text++) {
        const int blank = *text == ' ' || *text == '\t' || *text == '\n';
        TESS_TRY(tess__script_put(s, blank && !quoted ? TESS__SCRIPT_CUT : *text));
    }
    return TESS_OK;
}

static tess_status put_raw(tess__script *s, const char *from)
{
    for (; from < s->at; from++)
        TESS_TRY(tess__script_put(s, *from));
    return TESS_OK;
}

/* Behind the bracket that closes the one at s->at, which may hold others; 0: there is none. */
static int skip_bracket(tess__script *s, char open, char close)
{
    int depth = 0;
    for (; s->at < s->end; s->at++) {
        depth += (*s->at == open) - (*s->at == close);
        s->line += *s->at == '\n';
        if (depth == 0) {
            s->at++;
            return 1;
        }
    }
    return 0;
}

static int is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ${NAME}, ${NAME:-text}, ${NAME[@]}: begin..s->at is all of it, with its $. */
static tess_status put_braces(tess__script *s, const char *begin, int quoted)
{
    const char *name = begin + 2, *end = s->at - 1, *at = name;
    while (at < end && is_name(*at))
        at++;
    const char *text = tess__script_value(s, name, (size_t)(at - name));
    const size_t left = (size_t)(end - at);
    const int array = left == 3 && at[0] == '[' && (at[1] == '@' || at[1] == '*') && at[2] == ']';
    if (text && (left == 0 || array || *at == ':' || *at == '-'))
        return put_text(s, text, quoted);
    const char *otherwise = left > 1 && at[0] == ':' && (at[1] == '-' || at[1] == '=') ? at + 2
                            : left > 0 && at[0] == '-'                                 ? at + 1
                                                                                       : NULL;
    if (!otherwise || at == name)
        return put_raw(s, begin);
    for (; otherwise < end; otherwise++)
        TESS_TRY(tess__script_put(s, *otherwise));
    return TESS_OK;
}

/* From the $ on. */
static tess_status expand(tess__script *s, int quoted)
{
    const char *begin = s->at++;
    const size_t left = (size_t)(s->end - s->at);
    if (left > 0 && *s->at == '(') {
        const int sum = left > 1 && s->at[1] == '(';
        int64_t value;
        char text[32];
        if (!skip_bracket(s, '(', ')'))
            return tess__script_fail(s, "$( without its )");
        if (!sum || s->at - begin < 5 ||
            !tess__script_number(s, begin + 3, (size_t)(s->at - begin) - 5, &value))
            return put_raw(s, begin);
        snprintf(text, sizeof text, "%" PRId64, value);
        return put_text(s, text, quoted);
    }
    if (left > 0 && *s->at == '{') {
        if (!skip_bracket(s, '{', '}'))
            return tess__script_fail(s, "${ without its }");
        return put_braces(s, begin, quoted);
    }
    while (s->at < s->end && is_name(*s->at))
        s->at++;
    const size_t length = (size_t)(s->at - begin) - 1;
    const char *text = length ? tess__script_value(s, begin + 1, length) : NULL;
    return text ? put_text(s, text, quoted) : put_raw(s, begin);
}

/* ---- words ----------------------------------------------------------------------------------- */

static tess_status read_quoted(tess__script *s, char quote)
{
    const int line = s->line;
    s->at++;
    while (s->at < s->end && *s->at != quote) {
        s->line += *s->at == '\n';
        if (quote == '"' && *s->at == '\\' && s->at + 1 < s->end) {
            s->line += s->at[1] == '\n';
            s->at += 2;
            if (s->at[-1] != '\n')
                TESS_TRY(tess__script_put(s, s->at[-1]));
        } else if (quote == '"' && *s->at == '$') {
            TESS_TRY(expand(s, 1));
        } else {
            TESS_TRY(tess__script_put(s, *s->at++));
        }
    }
    if (s->at == s->end) {
        s->line = line;
        return tess__script_fail(s, "a quote without its end");
    }
    s->at++;
    return TESS_OK;
}

/* Blanks, continued lines and comments. */
static void skip(tess__script *s)
{
    for (; s->at < s->end; s->at++)
        if (*s->at == '\\' && s->at + 1 < s->end && s->at[1] == '\n') {
            s->at++;
            s->line++;
        } else if (*s->at == '#') {
            while (s->at + 1 < s->end && s->at[1] != '\n')
                s->at++;
        } else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') {
            return;
        }
}

static tess_status read_word(tess__script *s)
{
    while (s->at < s->end && !strchr(" \t\r\n;&|()<>", *s->at)) {
        if (*s->at == '"' || *s->at == '\'') {
            TESS_TRY(read_quoted(s, *s->at));
        } else if (*s->at == '$') {
            TESS_TRY(expand(s, 0));
        } else if (*s->at == '\\' && s->at + 1 < s->end) {
            s->at += 2;
            s->line += s->at[-1] == '\n';
            if (s->at[-1] != '\n')
                TESS_TRY(tess__script_put(s, s->at[-1]));
        } else {
            TESS_TRY(tess__script_put(s, *s->at++));
        }
    }
    return TESS_OK;
}

tess_status tess__script_next(tess__script *s, tess__script_part *part)
{
    s->used = 0;
    s->word[0] = '\0';
    skip(s);
    if (s->at == s->end || strchr("\n;&|", *s->at)) {
        if (s->at < s->end)
            s->line += *s->at++ == '\n';
        *part = TESS__SCRIPT_END;
        return TESS_OK;
    }
    if (*s->at == '(' || *s->at == ')') {
        *part = *s->at++ == '(' ? TESS__SCRIPT_OPEN : TESS__SCRIPT_CLOSE;
        return TESS_OK;
    }
    *part = TESS__SCRIPT_TEXT;
    if (*s->at == '<' || *s->at == '>') { /* a redirection is a word of its own */
        while (s->at < s->end && (*s->at == '<' || *s->at == '>'))
            TESS_TRY(tess__script_put(s, *s->at++));
        return TESS_OK;
    }
    return read_word(s);
}
