/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c - patterns that the cells of a table match: text, comparisons, numbers in text.
 *
 *   "LLAMA3*"  a text that begins so; "*" alone fits all, "" an empty cell only
 *   "!bf16"    any text but this
 *   ">=512"    a text whose first number is at least 512; one without a number does not fit
 */
#include "table.h"

#include "file/csv.h"

#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* One `*` is remembered at a time: what it stands for grows until the rest fits. */
static int fits_stars(const char *pattern, const char *text)
{
    const char *star = NULL, *mark = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            mark = text;
        } else if (lower(*pattern) == lower(*text)) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++mark;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* Copies a number that begins at text, without the commas between its digits. */
static size_t find_number(const char *text, char *out, size_t size)
{
    size_t n = 0;
    int exponent = 0;
    for (const char *p = text; *p && n + 1 < size; p++) {
        const int sign = (*p == '-' || *p == '+') && (p == text || lower(p[-1]) == 'e');
        const int power = lower(*p) == 'e' && !exponent && n > 0 &&
                          (is_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && is_digit(p[2])));
        if (*p == ',' && n > 0 && is_digit(p[1]) && is_digit(p[2]) && is_digit(p[3]))
            continue;
        if (!is_digit(*p) && *p != '.' && !sign && !power)
            break;
        exponent |= power;
        out[n++] = *p;
    }
    while (n > 0 && out[n - 1] == '.')
        n--;
    out[n] = '\0';
    return n;
}

int tess__first_number(const char *text, const char *after, double *value)
{
    if (after && *after) {
        text = strstr(text, after);
        if (!text)
            return 0;
        text += strlen(after);
    }
    for (; *text; text++) {
        const int point = *text == '.' && is_digit(text[1]);
        const int sign = (*text == '-' || *text == '+') &&
                         (is_digit(text[1]) || (text[1] == '.' && is_digit(text[2])));
        if (!is_digit(*text) && !point && !sign)
            continue;
        char number[64];
        const size_t n = find_number(text, number, sizeof number);
        return tess__csv_number(&(tess__csv_field){number, n}, value);
    }
    return 0;
}

/* -1: the pattern is no comparison. */
static int fits_comparison(const char *pattern, const char *text)
{
    const char op = pattern[0];
    double limit, number;
    if (op != '<' && op != '>')
        return -1;
    const int equal = pattern[1] == '=';
    const char *digits = pattern + 1 + equal;
    if (!tess__csv_number(&(tess__csv_field){digits, strlen(digits)}, &limit))
        return -1;
    if (!tess__first_number(text, NULL, &number))
        return 0;
    return (equal && number == limit) || (op == '<' ? number < limit : number > limit);
}

int tess__pattern_fits(const char *pattern, const char *text)
{
    int wanted = 1;
    for (; *pattern == '!'; pattern++)
        wanted = !wanted;
    const int compared = fits_comparison(pattern, text);
    return (compared >= 0 ? compared : fits_stars(pattern, text)) == wanted;
}
