/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_text.c - the JSON of a safetensors header, read token by token in the mapping.
 *
 * A header may have 100 MB and a million objects of one shape. A document tree of it would take
 * eight times its size and most of the opening's time, so the parser walks the text and stores
 * nothing but strings. Errors name the byte in the file.
 */
#include "file_internal.h"
#include "json.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

tess_status tess__cursor_fail(const tess__cursor *s, const char *expected)
{
    return tess__fail(TESS_EFORMAT, "%s: header: byte %zu: expected %s", s->source->name, s->at,
                      expected);
}

void tess__cursor_space(tess__cursor *s)
{
    const unsigned char *d = s->source->data;
    while (s->at < s->end &&
           (d[s->at] == ' ' || d[s->at] == '\n' || d[s->at] == '\r' || d[s->at] == '\t'))
        s->at++;
}

int tess__cursor_accept(tess__cursor *s, char c)
{
    tess__cursor_space(s);
    if (s->at == s->end || s->source->data[s->at] != (unsigned char)c)
        return 0;
    s->at++;
    return 1;
}

int tess__cursor_word(tess__cursor *s, const char *word)
{
    const size_t n = strlen(word);
    tess__cursor_space(s);
    if (s->end - s->at < n || memcmp(s->source->data + s->at, word, n) != 0)
        return 0;
    s->at += n;
    return 1;
}

tess_status tess__cursor_next(tess__cursor *s, char close, int *first, int *more)
{
    *more = !tess__cursor_accept(s, close);
    if (*more && !*first && !tess__cursor_accept(s, ','))
        return tess__cursor_fail(s, close == '}' ? "',' or '}'" : "',' or ']'");
    *first = 0;
    return TESS_OK;
}

tess_status tess__cursor_length(tess__cursor *s, int64_t *value)
{
    const unsigned char *d = s->source->data;
    tess__cursor_space(s);
    const size_t start = s->at;
    int64_t v = 0;
    int overflow = 0;
    for (; s->at < s->end && d[s->at] >= '0' && d[s->at] <= '9'; s->at++)
        overflow |= __builtin_mul_overflow(v, (int64_t)10, &v) ||
                    __builtin_add_overflow(v, (int64_t)(d[s->at] - '0'), &v);
    const size_t digits = s->at - start;
    const unsigned char after = s->at < s->end ? d[s->at] : 0;
    if (digits == 0 || overflow || (digits > 1 && d[start] == '0') || after == '.' ||
        after == 'e' || after == 'E') {
        s->at = start;
        return tess__cursor_fail(s, "an integer from 0 to 2^63 - 1");
    }
    *value = v;
    return TESS_OK;
}

/* The n bytes between two quotes, escapes decoded, to `to`, which has room for n. */
static tess_status unescape(tess__cursor *s, size_t start, size_t n, char *to, size_t *length)
{
    const char *p = (const char *)s->source->data + start;
    size_t at = 0, out = 0;
    while (at < n) {
        char utf8[4] = {p[at]};
        size_t used = 1;
        const size_t bytes = p[at] == '\\' ? tess__json_unescape(p + at, n - at, utf8, &used) : 1;
        if (bytes == 0) {
            s->at = start + at;
            return tess__cursor_fail(s, "a valid escape, of a character that is not 0");
        }
        memcpy(to + out, utf8, bytes);
        out += bytes;
        at += used;
    }
    *length = out;
    return TESS_OK;
}

/* Moves behind a string; its bytes are [*start, *start + *n). */
static tess_status find_string(tess__cursor *s, size_t *start, size_t *n, int *escapes)
{
    const unsigned char *d = s->source->data;
    if (!tess__cursor_accept(s, '"'))
        return tess__cursor_fail(s, "a string");
    *start = s->at;
    *escapes = 0;
    for (; s->at < s->end && d[s->at] != '"'; s->at++) {
        if (d[s->at] < 0x20)
            return tess__cursor_fail(s, "no control character in a string");
        if (d[s->at] == '\\') {
            *escapes = 1;
            s->at++;
        }
    }
    if (s->at >= s->end) {
        s->at = s->end;
        return tess__cursor_fail(s, "the end of a string");
    }
    *n = s->at - *start;
    s->at++;
    return TESS_OK;
}

tess_status tess__cursor_string(tess__cursor *s, tess__arena *arena, const char **string)
{
    size_t start = 0, n = 0;
    int escapes = 0;
    TESS_TRY(find_string(s, &start, &n, &escapes));
    char *made = TESS_TAKE_STRING(arena, (const char *)s->source->data + start, n);
    if (!tess__is_utf8(made, n)) {
        s->at = start;
        return tess__cursor_fail(s, "UTF-8 in a string");
    }
    if (escapes) {
        size_t length = 0;
        TESS_TRY(unescape(s, start, n, made, &length));
        made[length] = '\0';
    }
    *string = made;
    return TESS_OK;
}

/* A number, true, false or null: as loosely as its characters. */
static tess_status skip_word(tess__cursor *s)
{
    const unsigned char *d = s->source->data;
    const size_t start = s->at;
    while (s->at < s->end && (d[s->at] == '-' || d[s->at] == '+' || d[s->at] == '.' ||
                              (d[s->at] >= '0' && d[s->at] <= '9') ||
                              ((d[s->at] | 0x20) >= 'a' && (d[s->at] | 0x20) <= 'z')))
        s->at++;
    return s->at > start ? TESS_OK : tess__cursor_fail(s, "a value");
}

tess_status tess__cursor_skip(tess__cursor *s, int depth)
{
    size_t start = 0, n = 0;
    int escapes, first = 1, more = 0;
    if (depth == DEPTH_MAX)
        return tess__cursor_fail(s, "at most 64 levels of nesting");
    const int object = tess__cursor_accept(s, '{');
    if (!object && !tess__cursor_accept(s, '['))
        return s->at < s->end && s->source->data[s->at] == '"'
                   ? find_string(s, &start, &n, &escapes)
                   : skip_word(s);
    for (;;) {
        TESS_TRY(tess__cursor_next(s, object ? '}' : ']', &first, &more));
        if (!more)
            return TESS_OK;
        if (object) {
            TESS_TRY(find_string(s, &start, &n, &escapes));
            if (!tess__cursor_accept(s, ':'))
                return tess__cursor_fail(s, "':'");
        }
        TESS_TRY(tess__cursor_skip(s, depth + 1));
    }
}
