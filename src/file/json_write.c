/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c - JSON text: layout, escapes, and numbers with the fewest digits.
 *
 * A double is printed with 15 significant digits, and with 16 or 17 where fewer do not read back as
 * the same double (a number below the normal range may need fewer than 15: there all are tried).
 * Only digits and exponent are read from what printf made, so that the locale's point is skipped.
 */
#include "json_write.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

enum { DIGITS_MAX = 17, REPR_EXPONENT = 16 };

/* The digits of value, without trailing zeros, and the exponent of the first; returns how many. */
static int decimal(double value, int precision, char digits[DIGITS_MAX + 1], int *exponent)
{
    char text[64];
    int n = 0;
    snprintf(text, sizeof text, "%.*e", precision - 1, value);
    const char *e = strchr(text, 'e');
    for (const char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    *exponent = (int)strtol(e + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return n;
}

/* The smallest precision that reads back as value. */
static int precision_of(double value)
{
    char text[64];
    int precision = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    for (; precision < DIGITS_MAX; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return precision;
}

char *tess__real_text(double value, int digits, char text[TESS_REAL_TEXT])
{
    char d[DIGITS_MAX + 1];
    int exponent;
    if (!isfinite(value)) {
        snprintf(text, TESS_REAL_TEXT, "%g", value);
        return text;
    }
    const int precision = digits ? digits : precision_of(value);
    const int n = decimal(value, precision, d, &exponent);
    const int limit = digits ? digits : REPR_EXPONENT;
    const char *sign = signbit(value) ? "-" : "";
    if (exponent < -4 || exponent >= limit)
        snprintf(text, TESS_REAL_TEXT, "%s%c%s%se%c%02d", sign, d[0], n > 1 ? "." : "", d + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(text, TESS_REAL_TEXT, "%s0.%.*s%s", sign, -exponent - 1, "000", d);
    else if (n > exponent + 1)
        snprintf(text, TESS_REAL_TEXT, "%s%.*s.%s", sign, exponent + 1, d, d + exponent + 1);
    else
        snprintf(text, TESS_REAL_TEXT, "%s%s%.*s", sign, d, exponent + 1 - n, "0000000000000000");
    return text;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void emit(tess__jw *w, const char *bytes, size_t n)
{
    if (w->status == TESS_OK && w->write && n > 0)
        w->status = w->write(w->to, bytes, n);
    w->bytes += n;
}

static void emit_text(tess__jw *w, const char *text)
{
    emit(w, text, strlen(text));
}

tess_status tess__jw_to_buffer(void *buffer, const char *bytes, size_t n)
{
    tess__jw_buffer *b = buffer;
    if (n >= b->room - b->used)
        return TESS_EINVAL;
    memcpy(b->text + b->used, bytes, n);
    b->used += n;
    b->text[b->used] = '\0';
    return TESS_OK;
}

static void emit_string(tess__jw *w, const char *s)
{
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    emit(w, "\"", 1);
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= ' ' && s[plain] != '"' && s[plain] != '\\' &&
               !(w->html && s[plain] == '<'))
            plain++;
        emit(w, s, plain);
        s += plain;
        if (!*s)
            break;
        char escape[8];
        const char *meaning = strchr(meanings, *s);
        if (meaning)
            snprintf(escape, sizeof escape, "\\%c", names[meaning - meanings]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*s);
        emit_text(w, escape);
        s++;
    }
    emit(w, "\"", 1);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void new_line(tess__jw *w)
{
    static const char spaces[] = "                                ";
    emit(w, "\n", 1);
    for (size_t left = (size_t)w->indent * (size_t)w->depth; left > 0;) {
        const size_t n = left < sizeof spaces - 1 ? left : sizeof spaces - 1;
        emit(w, spaces, n);
        left -= n;
    }
}

/* What stands before a value: the comma behind the one before it, its line and its key. */
static void start_value(tess__jw *w, const char *key)
{
    const int lines = w->indent && !w->row;
    if (w->members)
        emit_text(w, lines || w->compact ? "," : ", ");
    if (lines && w->depth)
        new_line(w);
    w->members++;
    if (key) {
        emit_string(w, key);
        emit_text(w, w->compact ? ":" : ": ");
    }
}

void tess__jw_begin(tess__jw *w, const char *key, char bracket)
{
    start_value(w, key);
    emit(w, &bracket, 1);
    w->depth++;
    w->members = 0;
}

void tess__jw_row(tess__jw *w, const char *key, char bracket)
{
    tess__jw_begin(w, key, bracket);
    if (!w->row)
        w->row = w->depth;
}

void tess__jw_end(tess__jw *w, char bracket)
{
    const int lines = w->indent && !w->row;
    if (w->row == w->depth)
        w->row = 0;
    w->depth--;
    if (lines && w->members)
        new_line(w);
    emit(w, &bracket, 1);
    w->members = 1;
}

tess_status tess__jw_finish(tess__jw *w)
{
    if (w->indent)
        emit(w, "\n", 1);
    return w->status;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void add_word(tess__jw *w, const char *key, const char *word)
{
    start_value(w, key);
    emit_text(w, word);
}

void tess__jw_null(tess__jw *w, const char *key)
{
    add_word(w, key, "null");
}

void tess__jw_bool(tess__jw *w, const char *key, int value)
{
    add_word(w, key, value ? "true" : "false");
}

void tess__jw_int(tess__jw *w, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add_word(w, key, text);
}

void tess__jw_real(tess__jw *w, const char *key, double value)
{
    char text[TESS_REAL_TEXT];
    if (!isfinite(value)) {
        tess__jw_null(w, key);
        return;
    }
    add_word(w, key, tess__real_text(value, w->digits, text));
    if (!w->digits && !strpbrk(text, ".e"))
        emit(w, ".0", 2); /* a real to every reader */
}

void tess__jw_text(tess__jw *w, const char *key, const char *utf8)
{
    if (!utf8) {
        tess__jw_null(w, key);
        return;
    }
    start_value(w, key);
    emit_string(w, utf8);
}

void tess__jw_row_i32(tess__jw *w, const char *key, const int32_t *values, size_t n)
{
    tess__jw_row(w, key, '[');
    for (size_t i = 0; i < n; i++)
        tess__jw_int(w, NULL, values[i]);
    tess__jw_end(w, ']');
}

void tess__jw_row_i64(tess__jw *w, const char *key, const int64_t *values, size_t n)
{
    tess__jw_row(w, key, '[');
    for (size_t i = 0; i < n; i++)
        tess__jw_int(w, NULL, values[i]);
    tess__jw_end(w, ']');
}

void tess__jw_elements(tess__jw *w, const char *key, const char *text, size_t n)
{
    tess__jw_begin(w, key, '[');
    emit(w, text, n);
    tess__jw_end(w, ']');
}

static void add_object(tess__jw *w, const char *key, const json_t *value)
{
    const char *name;
    json_t *member;
    tess__jw_begin(w, key, '{');
    json_object_foreach((json_t *)value, name, member) tess__jw_value(w, name, member);
    tess__jw_end(w, '}');
}

void tess__jw_value(tess__jw *w, const char *key, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: add_object(w, key, value); break;
    case JSON_ARRAY:
        tess__jw_begin(w, key, '[');
        for (size_t i = 0; i < json_array_size(value); i++)
            tess__jw_value(w, NULL, json_array_get(value, i));
        tess__jw_end(w, ']');
        break;
    case JSON_STRING: tess__jw_text(w, key, json_string_value(value)); break;
    case JSON_INTEGER: tess__jw_int(w, key, json_integer_value(value)); break;
    case JSON_REAL: tess__jw_real(w, key, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: tess__jw_bool(w, key, json_is_true(value)); break;
    case JSON_NULL: tess__jw_null(w, key); break;
    }
}
