/* SPDX-License-Identifier: Apache-2.0 */
/* script_number.c - the arithmetic of $(( )): recursive descent over whole numbers. */
#include "script.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32 };

typedef struct {
    const tess__script *script;
    const char *at, *end;
    int depth;
} numbers;

static int sum(numbers *n, int64_t *value);

static void skip(numbers *n)
{
    while (n->at < n->end && (*n->at == ' ' || *n->at == '\t' || *n->at == '\n'))
        n->at++;
}

static int is_name(char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* The text of a variable as a number; not an expression again. */
static int variable(numbers *n, int64_t *value)
{
    const int brace = n->at < n->end && *n->at == '{';
    const char *name = n->at += brace;
    char *end;
    while (n->at < n->end && is_name(*n->at, n->at == name))
        n->at++;
    const size_t length = (size_t)(n->at - name);
    if (brace && (n->at == n->end || *n->at++ != '}'))
        return 0;
    const char *text = length ? tess__script_value(n->script, name, length) : NULL;
    if (!text || !*text || strlen(text) > 15)
        return 0;
    *value = strtoll(text, &end, 10);
    return *end == '\0';
}

static int atom(numbers *n, int64_t *value)
{
    skip(n);
    if (n->at == n->end || n->depth > DEPTH_MAX)
        return 0;
    if (*n->at == '(') {
        n->at++;
        n->depth++;
        if (!sum(n, value))
            return 0;
        n->depth--;
        skip(n);
        return n->at < n->end && *n->at++ == ')';
    }
    if (*n->at == '-') {
        n->at++;
        n->depth++;
        const int known = atom(n, value);
        n->depth--;
        *value = -*value;
        return known;
    }
    if (*n->at == '$')
        return n->at++, variable(n, value);
    if (is_name(*n->at, 1))
        return variable(n, value);
    *value = 0;
    const char *begin = n->at;
    for (; n->at < n->end && *n->at >= '0' && *n->at <= '9'; n->at++)
        if (n->at - begin > 14)
            return 0;
        else
            *value = 10 * *value + (*n->at - '0');
    return n->at > begin;
}

static int product(numbers *n, int64_t *value)
{
    int64_t right;
    if (!atom(n, value))
        return 0;
    for (skip(n); n->at < n->end && strchr("*/%", *n->at); skip(n)) {
        const char op = *n->at++;
        if (!atom(n, &right) || (op != '*' && right == 0))
            return 0;
        if (op == '*' && __builtin_mul_overflow(*value, right, value))
            return 0;
        if (op != '*')
            *value = op == '/' ? *value / right : *value % right;
    }
    return 1;
}

static int sum(numbers *n, int64_t *value)
{
    int64_t right;
    if (!product(n, value))
        return 0;
    for (skip(n); n->at < n->end && (*n->at == '+' || *n->at == '-'); skip(n)) {
        const char op = *n->at++;
        if (!product(n, &right) || (op == '+' ? __builtin_add_overflow(*value, right, value)
                                              : __builtin_sub_overflow(*value, right, value)))
            return 0;
    }
    return 1;
}

int tess__script_number(const tess__script *s, const char *text, size_t length, int64_t *value)
{
    numbers n = {.script = s, .at = text, .end = text + length};
    int64_t found;
    if (!sum(&n, &found))
        return 0;
    skip(&n);
    if (n.at != n.end || found == INT64_MIN)
        return 0;
    *value = found;
    return 1;
}
