/* SPDX-License-Identifier: Apache-2.0 */
/* csv.c - comma-separated values in memory, read field by field.
 *
 * RFC 4180 and what spreadsheets and scripts make of it: lines end in LF, CRLF or CR; spaces and
 * tabs around a field or its quotes do not count; a quote inside an unquoted field is a character
 * like any other; lines of spaces alone are no records. Quoted fields may hold commas and lines.
 * The text is read once, in place.
 */
#include "csv.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static int is_space(char c)
{
    return c == ' ' || c == '\t';
}

static int at_end_of_line(const tess__csv *csv)
{
    return csv->at == csv->bytes || csv->text[csv->at] == '\n' || csv->text[csv->at] == '\r';
}

/* Passes over an end of line, if there is one. */
static void skip_end_of_line(tess__csv *csv)
{
    if (csv->at == csv->bytes)
        return;
    if (csv->text[csv->at] == '\r' && csv->at + 1 < csv->bytes && csv->text[csv->at + 1] == '\n')
        csv->at++;
    csv->at++;
    csv->here++;
}

static void skip_spaces(tess__csv *csv)
{
    while (csv->at < csv->bytes && is_space(csv->text[csv->at]))
        csv->at++;
}

tess__csv tess__csv_start(const char *name, const char *text, size_t bytes)
{
    const int marked = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
    return (tess__csv){
        .name = name, .text = text, .bytes = bytes, .at = marked ? 3 : 0, .line = 1, .here = 1};
}

int tess__csv_record(tess__csv *csv)
{
    for (;;) {
        const size_t begin = csv->at;
        skip_spaces(csv);
        if (csv->at == csv->bytes)
            return 0;
        if (!at_end_of_line(csv)) {
            csv->at = begin;
            csv->line = csv->here;
            csv->end_of_record = 0;
            return 1;
        }
        skip_end_of_line(csv);
    }
}

/* From behind the opening quote to behind the closing one. */
static tess_status read_quoted(tess__csv *csv, tess__csv_field *field)
{
    const size_t begin = csv->at;
    for (; csv->at < csv->bytes; csv->at++) {
        const char c = csv->text[csv->at];
        const char next = csv->at + 1 < csv->bytes ? csv->text[csv->at + 1] : '\0';
        if (c == '"' && next != '"') {
            *field = (tess__csv_field){csv->text + begin, csv->at - begin};
            csv->at++;
            return TESS_OK;
        }
        if (c == '"')
            csv->at++;
        else if (c == '\n' || (c == '\r' && next != '\n'))
            csv->here++;
    }
    return tess__fail(TESS_EFORMAT, "%s: line %lld: a quote has no end", csv->name,
                      (long long)csv->line);
}

static void read_plain(tess__csv *csv, tess__csv_field *field)
{
    const size_t begin = csv->at;
    while (!at_end_of_line(csv) && csv->text[csv->at] != ',')
        csv->at++;
    size_t end = csv->at;
    while (end > begin && is_space(csv->text[end - 1]))
        end--;
    *field = (tess__csv_field){csv->text + begin, end - begin};
}

tess_status tess__csv_next(tess__csv *csv, tess__csv_field *field)
{
    skip_spaces(csv);
    if (csv->at < csv->bytes && csv->text[csv->at] == '"') {
        csv->at++;
        TESS_TRY(read_quoted(csv, field));
        skip_spaces(csv);
    } else {
        read_plain(csv, field);
    }
    if (at_end_of_line(csv)) {
        skip_end_of_line(csv);
        csv->end_of_record = 1;
        return TESS_OK;
    }
    if (csv->text[csv->at] != ',')
        return tess__fail(TESS_EFORMAT, "%s: line %lld: text follows a closing quote", csv->name,
                          (long long)csv->here);
    csv->at++;
    return TESS_OK;
}

/* ---- what a field says ---------------------------------------------------------------------- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int tess__csv_is(const tess__csv_field *field, const char *word)
{
    if (strlen(word) != field->length)
        return 0;
    for (size_t i = 0; i < field->length; i++)
        if (lower(field->text[i]) != lower(word[i]))
            return 0;
    return 1;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int tess__csv_integer(const tess__csv_field *field, int64_t *value)
{
    int64_t sum = 0;
    for (size_t i = 0; i < field->length; i++)
        if (!is_digit(field->text[i]) || __builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, field->text[i] - '0', &sum))
            return 0;
    if (field->length == 0)
        return 0;
    *value = sum;
    return 1;
}

/* Digits from *s on: how many. */
static int skip_digits(const char **s)
{
    int n = 0;
    for (; is_digit(**s); (*s)++)
        n++;
    return n;
}

/* Whether the text is [+-] digits [. digits] [e [+-] digits], with digits before or after the
 * point. */
static int is_decimal(const char *s)
{
    s += *s == '+' || *s == '-';
    int digits = skip_digits(&s);
    if (*s == '.') {
        s++;
        digits += skip_digits(&s);
    }
    if (digits == 0)
        return 0;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        if (skip_digits(&s) == 0)
            return 0;
    }
    return *s == '\0';
}

int tess__csv_number(const tess__csv_field *field, double *value)
{
    char text[128];
    if (field->length >= sizeof text || memchr(field->text, '\0', field->length))
        return 0;
    memcpy(text, field->text, field->length);
    text[field->length] = '\0';
    if (!is_decimal(text))
        return 0;
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(c);
    *value = strtod(text, NULL); /* with a point, whatever the locale of the host program */
    uselocale(before);
    freelocale(c);
    return 1;
}

const char *tess__csv_quote(const tess__csv_field *field, char text[TESS_CSV_QUOTE])
{
    static const char more[] = "...";
    const size_t most = TESS_CSV_QUOTE - sizeof more;
    const int cut = field->length > most;
    const size_t n = cut ? most : field->length;
    for (size_t i = 0; i < n; i++)
        text[i] = field->text[i] >= ' ' && field->text[i] <= '~' ? field->text[i] : '?';
    strcpy(text + n, cut ? more : "");
    return text;
}
