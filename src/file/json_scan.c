/* SPDX-License-Identifier: Apache-2.0 */
/* json_scan.c - the end of a JSON value in memory, with a check of its grammar.
 *
 * Recursive descent over bytes; strings are passed over 8 bytes at a time. The text is followed by
 * bytes of 0, which no value may hold, so that no loop asks for its end: a 0 at the end means that
 * the text is not complete, one before it is an error. About 1 GB/s; nothing is copied.
 */
#include "json_stream.h"

#include <string.h>
#include <strings.h>

static const char *fail(tess__json_scan *s, const char *p, const char *what)
{
    s->at = p;
    s->what = p < s->end ? what : NULL;
    return NULL;
}

static inline const char *skip_space(const char *p)
{
    if ((unsigned char)*p > ' ')
        return p;
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
        p++;
    return p;
}

const char *tess__json_scan_space(const char *p)
{
    return skip_space(p);
}

/* ---- strings --------------------------------------------------------------------------------- */

static const uint64_t ONES = 0x0101010101010101u, HIGH = 0x8080808080808080u;

/* Not 0 if one of the 8 bytes is a quote, a backslash or below 0x20. */
static inline uint64_t special(uint64_t w)
{
    const uint64_t quote = w ^ (ONES * '"'), slash = w ^ (ONES * '\\');
    return (((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((w - ONES * 0x20) & ~w)) &
           HIGH;
}

/* Which of the 8 bytes is the first special one: the lowest mark is exact, those above may be the
 * carry of a subtraction. */
static inline int first_byte(uint64_t found, const char *p)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    (void)p;
    return __builtin_ctzll(found) >> 3;
#else
    int i = 0;
    (void)found;
    while (p[i] != '"' && p[i] != '\\' && (unsigned char)p[i] >= 0x20)
        i++;
    return i;
#endif
}

static inline int hex(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* p: the backslash. */
static const char *scan_escape(tess__json_scan *s, const char *p)
{
    if (p[1] != 'u')
        return p[1] && strchr("\"\\/bfnrt", p[1]) ? p + 2
                                                  : fail(s, p + 1, "an escape that JSON has not");
    for (int i = 2; i < 6; i++)
        if (!hex(p[i]))
            return fail(s, p + i, "\\u without four hexadecimal digits");
    return p + 6;
}

/* p: behind the opening quote. The closing quote. */
static inline const char *scan_string(tess__json_scan *s, const char *p)
{
    for (;;) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        const uint64_t found = special(w);
        if (!found) {
            p += sizeof w;
            continue;
        }
        p += first_byte(found, p);
        if (*p == '"')
            return p;
        if (*p != '\\')
            return fail(s, p, "a control character in a string");
        if (!(p = scan_escape(s, p)))
            return NULL;
    }
}

/* ---- numbers and words ----------------------------------------------------------------------- */

/* The end of one of some words at p, case apart. */
static const char *scan_word(tess__json_scan *s, const char *p, const char *first,
                             const char *const *words, int n)
{
    const size_t left = (size_t)(s->end - p);
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(words[i]);
        if (left >= length && strncasecmp(p, words[i], length) == 0) {
            const char c = p[length];
            if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
                continue;
            return p + length == s->end ? fail(s, s->end, NULL) : p + length;
        }
        if (left < length && strncasecmp(p, words[i], left) == 0)
            return fail(s, s->end, NULL);
    }
    return fail(s, first, "no JSON value begins so");
}

static inline const char *skip_digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

static const char *scan_number(tess__json_scan *s, const char *first)
{
    static const char *const words[] = {"infinity", "inf", "nan"};
    const char *p = first + (*first == '-');
    if (*p < '0' || *p > '9')
        return scan_word(s, p, first, words, 3);
    p = *p == '0' ? p + 1 : skip_digits(p);
    if (*p == '.') {
        const char *digits = p + 1;
        if ((p = skip_digits(digits)) == digits)
            return fail(s, p, "a number ends with its point");
    }
    if (*p == 'e' || *p == 'E') {
        const char *digits = p + 1 + (p[1] == '+' || p[1] == '-');
        if ((p = skip_digits(digits)) == digits)
            return fail(s, p, "a number has no exponent after its e");
    }
    if ((*p >= '0' && *p <= '9') || *p == '.')
        return fail(s, p, "a number begins with 0, or has two points");
    return p == s->end ? fail(s, p, NULL) : p;
}

static const char *scan_literal(tess__json_scan *s, const char *p)
{
    static const char *const words[] = {"true", "false", "null"};
    const char *word = words[*p == 't' ? 0 : *p == 'f' ? 1 : 2];
    const size_t length = strlen(word), left = (size_t)(s->end - p);
    if (strncmp(p, word, TESS_MIN(left, length)) == 0)
        return left <= length ? fail(s, s->end, NULL) : p + length;
    return scan_number(s, p);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *scan(tess__json_scan *s, const char *p, int depth);

static inline void keep(tess__json_scan *s, int depth, const char *key, const char *key_end,
                        const char *value, const char *end)
{
    if (depth > 0 || !s->fields || s->n_fields == TESS__SCAN_FIELDS)
        return;
    s->fields[s->n_fields++] =
        (tess__json_field){{key, (size_t)(key_end - key)}, {value, (size_t)(end - value)}};
}

/* p: behind the brace. */
static const char *scan_object(tess__json_scan *s, const char *p, int depth)
{
    p = skip_space(p);
    if (*p == '}')
        return p + 1;
    for (;;) {
        if (*p != '"')
            return fail(s, p, "a member must begin with its key in quotes");
        const char *key = p + 1, *key_end = scan_string(s, key);
        if (!key_end)
            return NULL;
        p = skip_space(key_end + 1);
        if (*p != ':')
            return fail(s, p, "a key without its colon");
        const char *value = skip_space(p + 1);
        if (!(p = scan(s, value, depth + 1)))
            return NULL;
        keep(s, depth, key, key_end, value, p);
        p = skip_space(p);
        if (*p == '}')
            return p + 1;
        if (*p != ',')
            return fail(s, p, "members must have a comma between them");
        p = skip_space(p + 1);
    }
}

static const char *scan_array(tess__json_scan *s, const char *p, int depth)
{
    p = skip_space(p);
    if (*p == ']')
        return p + 1;
    for (;;) {
        if (!(p = scan(s, p, depth + 1)))
            return NULL;
        p = skip_space(p);
        if (*p == ']')
            return p + 1;
        if (*p != ',')
            return fail(s, p, "elements must have a comma between them");
        p = skip_space(p + 1);
    }
}

static const char *scan(tess__json_scan *s, const char *p, int depth)
{
    const char *end = p;
    if (*p > '0' && *p <= '9') { /* most numbers are integers in the middle of a list */
        do
            end++;
        while (*end >= '0' && *end <= '9');
        return *end == ',' ? end : scan_number(s, p);
    }
    switch (*p) {
    case '"': p = scan_string(s, p + 1); return p ? p + 1 : NULL;
    case '{':
    case '[':
        if (depth == TESS__SCAN_DEPTH)
            return fail(s, p, "values nest more than 256 deep");
        return *p == '{' ? scan_object(s, p + 1, depth) : scan_array(s, p + 1, depth);
    case 't':
    case 'f':
    case 'n': return scan_literal(s, p);
    default: return scan_number(s, p);
    }
}

const char *tess__json_scan_value(tess__json_scan *s, const char *p)
{
    s->n_fields = 0;
    return scan(s, p, 0);
}

/* ---- parts of checked values ----------------------------------------------------------------- */

int tess__json_fields(tess__json_slice object, tess__json_field *fields)
{
    if (object.length == 0 || object.text[0] != '{')
        return 0;
    tess__json_scan s = {.end = object.text + object.length, .fields = fields};
    return tess__json_scan_value(&s, object.text) ? s.n_fields : 0;
}

int64_t tess__json_elements(tess__json_slice array, tess__json_slice *elements, int64_t room)
{
    if (array.length == 0 || array.text[0] != '[')
        return -1;
    tess__json_scan s = {.end = array.text + array.length};
    int64_t n = 0;
    for (const char *p = skip_space(array.text + 1); *p != ']'; n++) {
        const char *end = scan(&s, p, 1);
        if (!end)
            return n;
        if (n < room)
            elements[n] = (tess__json_slice){p, (size_t)(end - p)};
        p = skip_space(end);
        if (*p == ',')
            p = skip_space(p + 1);
    }
    return n;
}
