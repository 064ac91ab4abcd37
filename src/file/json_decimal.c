/* SPDX-License-Identifier: Apache-2.0 */
/* json_decimal.c - what a slice of JSON text says: decimal numbers as integers, strings.
 *
 * A double holds 1.7e15 microseconds only to 0.25; so stamps become nanoseconds from their digits:
 * "4458676522690.655" with 3 places is 4458676522690655.
 */
#include "json.h"
#include "json_stream.h"

#include <string.h>

/* The number as digits (19 at most count, then one to round by) and the exponent behind them. */
typedef struct {
    uint64_t digits;
    int64_t exponent;
    int negative, rest; /* rest: the first digit left out is 5 or more */
} decimal;

static void add_digit(decimal *d, int digit, int after_point, int *dropped)
{
    if (d->digits <= (UINT64_MAX - 9) / 10) {
        d->digits = d->digits * 10 + (uint64_t)digit;
        d->exponent -= after_point;
        return;
    }
    if ((*dropped)++ == 0)
        d->rest = digit >= 5;
    d->exponent += !after_point;
}

static int read_exponent(const char *p, const char *end, int64_t *exponent)
{
    const int minus = p < end && *p == '-';
    int64_t e = 0;
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end)
        return 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        e = TESS_MIN(e * 10 + (*p - '0'), (int64_t)100000);
    }
    *exponent += minus ? -e : e;
    return 1;
}

static int read_decimal(const char *p, const char *end, decimal *d)
{
    int digits = 0, point = 0, dropped = 0;
    *d = (decimal){0};
    if (p < end && (*p == '-' || *p == '+'))
        d->negative = *p++ == '-';
    for (; p < end; p++) {
        if (*p >= '0' && *p <= '9') {
            add_digit(d, *p - '0', point, &dropped);
            digits++;
        } else if (*p == '.' && !point) {
            point = 1;
        } else if ((*p == 'e' || *p == 'E') && digits) {
            return read_exponent(p + 1, end, &d->exponent);
        } else {
            return 0;
        }
    }
    return digits > 0;
}

/* Digits times 10^exponent as an integer; what is left out rounds half away from 0. */
static int scale(decimal *d)
{
    uint64_t x = d->digits;
    int64_t e = d->exponent;
    int up = d->rest && e == 0;
    for (; e < 0 && x > 0; e++) {
        up = x % 10 >= 5;
        x /= 10;
    }
    if (e < 0)
        up = 0;
    for (; e > 0 && x > 0; e--)
        if (__builtin_mul_overflow(x, (uint64_t)10, &x))
            return 0;
    x += (uint64_t)up;
    d->digits = x;
    return x <= (uint64_t)INT64_MAX;
}

int tess__json_decimal(tess__json_slice value, int places, int64_t *out)
{
    const char *p = value.text, *end = p + value.length;
    decimal d;
    if (value.length >= 2 && *p == '"') {
        p++;
        end--;
    }
    if (!read_decimal(p, end, &d))
        return 0;
    d.exponent += places;
    if (!scale(&d))
        return 0;
    *out = d.negative ? -(int64_t)d.digits : (int64_t)d.digits;
    return 1;
}

size_t tess__json_slice_text(tess__json_slice value, char *text, size_t room)
{
    const char *p = value.text, *end = p + value.length;
    size_t n = 0;
    const int quoted = value.length >= 2 && *p == '"';
    if (quoted) {
        p++;
        end--;
    }
    while (p < end && n + 1 < room) {
        char utf8[4];
        size_t used, bytes = quoted && *p == '\\'
                                 ? tess__json_unescape(p, (size_t)(end - p), utf8, &used)
                                 : 0;
        if (bytes == 0) { /* no escape, or one that stands for no character */
            text[n++] = *p++;
            continue;
        }
        if (n + bytes >= room)
            break;
        memcpy(text + n, utf8, bytes);
        n += bytes;
        p += used;
    }
    text[n] = '\0';
    return n;
}

int tess__json_slice_is(tess__json_slice slice, const char *text)
{
    return strlen(text) == slice.length && memcmp(slice.text, text, slice.length) == 0;
}
