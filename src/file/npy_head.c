/* SPDX-License-Identifier: Apache-2.0 */
/* npy_head.c - the header of NumPy's .npy, read strictly.
 *
 *   93 'NUMPY' | major, minor | length of the text: 2 bytes (1.x) or 4 (2.x, 3.x) | text | elements
 *
 * The text is a Python dict literal, padded with spaces and ended by a newline:
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * The parser takes exactly these three keys, each once and in any order, and no other Python.
 */
#include "file_internal.h"

#include <string.h>

enum { MAGIC = 6, DESCR_MAX = 32 };

static const struct {
    char descr[4];
    tess_dtype dtype;
} dtypes[] = {
    {"<f4", TESS_DTYPE_F32},  {"<f2", TESS_DTYPE_F16}, {"<f8", TESS_DTYPE_F64},
    {"<i4", TESS_DTYPE_I32},  {"<i8", TESS_DTYPE_I64}, {"|u1", TESS_DTYPE_U8},
    {"|b1", TESS_DTYPE_BOOL},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct {
    const char *where;
    const unsigned char *data;
    size_t at, end;
} cursor;

static tess_status expected(const cursor *c, const char *what)
{
    return tess__fail(TESS_EFORMAT, "%s: header: byte %zu: expected %s", c->where, c->at, what);
}

static void skip_space(cursor *c)
{
    while (c->at < c->end && (c->data[c->at] == ' ' || c->data[c->at] == '\n'))
        c->at++;
}

/* Takes ch after spaces if it comes next. */
static int accept(cursor *c, char ch)
{
    skip_space(c);
    if (c->at == c->end || c->data[c->at] != (unsigned char)ch)
        return 0;
    c->at++;
    return 1;
}

static int accept_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    skip_space(c);
    if (c->end - c->at < n || memcmp(c->data + c->at, word, n) != 0)
        return 0;
    c->at += n;
    return 1;
}

/* A quoted string of printable ASCII without escapes. */
static tess_status read_string(cursor *c, char text[DESCR_MAX])
{
    skip_space(c);
    const unsigned char quote = c->at < c->end ? c->data[c->at] : 0;
    if (quote != '\'' && quote != '"')
        return expected(c, "a quoted string");
    c->at++;
    for (size_t n = 0; n < DESCR_MAX && c->at < c->end; n++, c->at++) {
        const unsigned char ch = c->data[c->at];
        if (ch == quote) {
            text[n] = '\0';
            c->at++;
            return TESS_OK;
        }
        if (ch < 0x20 || ch > 0x7e || ch == '\\')
            break;
        text[n] = (char)ch;
    }
    return expected(c, "a quoted string of up to 31 plain characters");
}

static tess_status read_length(cursor *c, int64_t *length)
{
    skip_space(c);
    const size_t start = c->at;
    int64_t value = 0;
    for (; c->at < c->end && c->data[c->at] >= '0' && c->data[c->at] <= '9'; c->at++) {
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(c->data[c->at] - '0'), &value)) {
            c->at = start;
            return expected(c, "a length below 2^63");
        }
    }
    if (c->at == start)
        return expected(c, "a length");
    accept(c, 'L'); /* as Python 2 writes it */
    *length = value;
    return TESS_OK;
}

static void refuse(tess__npy *npy, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(tess__npy *npy, const char *format, ...)
{
    if (npy->refused[0])
        return; /* the first reason will do */
    va_list args;
    va_start(args, format);
    vsnprintf(npy->refused, sizeof npy->refused, format, args);
    va_end(args);
}

/* (), (3,) or (2, 3) with or without a last comma. */
static tess_status read_shape(cursor *c, tess__npy *npy)
{
    int64_t length = 0;
    int n = 0, comma = 0;
    if (!accept(c, '('))
        return expected(c, "'('");
    while (!accept(c, ')')) {
        if (n > 0 && !comma)
            return expected(c, "',' or ')'");
        TESS_TRY(read_length(c, &length));
        if (n < TESS_RANK_MAX)
            npy->shape[n] = length;
        n++;
        comma = accept(c, ',');
    }
    if (n == 1 && !comma)
        return expected(c, "',' before the ')' of a tuple of one");
    if (n > TESS_RANK_MAX)
        refuse(npy, "rank is %d, must be 0..%d", n, TESS_RANK_MAX);
    npy->rank = n > TESS_RANK_MAX ? 0 : n;
    return TESS_OK;
}

static tess_status read_descr(cursor *c, tess__npy *npy)
{
    char descr[DESCR_MAX];
    TESS_TRY(read_string(c, descr));
    for (int i = 0; i < DTYPES; i++) {
        if (strcmp(descr, dtypes[i].descr) == 0) {
            npy->dtype = dtypes[i].dtype;
            return TESS_OK;
        }
    }
    if (descr[0] == '>')
        refuse(npy, "dtype '%s' is big-endian, must be little-endian", descr);
    else if (strcmp(descr, "|O") == 0)
        refuse(npy, "dtype '|O' holds pickled Python objects, must be numbers");
    else
        refuse(npy, "dtype '%s' is not one of <f2 <f4 <f8 <i4 <i8 |u1 |b1", descr);
    return TESS_OK;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

/* One of the three pairs. A structured dtype ends the reading: it is refused whatever follows. */
static tess_status read_pair(cursor *c, tess__npy *npy, int *has, int *fortran)
{
    char key[DESCR_MAX];
    const size_t start = c->at;
    TESS_TRY(read_string(c, key));
    const int bit = strcmp(key, "descr") == 0           ? HAS_DESCR
                    : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
                    : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                                        : 0;
    if (!bit || (*has & bit)) {
        c->at = start;
        return expected(c, "'descr', 'fortran_order' and 'shape', each once");
    }
    *has |= bit;
    if (!accept(c, ':'))
        return expected(c, "':'");
    if (bit == HAS_SHAPE)
        return read_shape(c, npy);
    if (bit == HAS_ORDER) {
        *fortran = accept_word(c, "True");
        return *fortran || accept_word(c, "False") ? TESS_OK : expected(c, "True or False");
    }
    skip_space(c);
    if (c->at < c->end && c->data[c->at] == '[') {
        refuse(npy, "has a structured dtype, must be plain numbers");
        *has = HAS_ALL;
        return TESS_OK;
    }
    return read_descr(c, npy);
}

/* Fortran order is another order only if two dimensions are longer than 1. */
static int order_matters(const tess__npy *npy)
{
    int longer = 0;
    for (int i = 0; i < npy->rank; i++) {
        if (npy->shape[i] == 0)
            return 0;
        longer += npy->shape[i] > 1;
    }
    return longer > 1;
}

tess_status tess__npy_head(const char *where, const unsigned char *data, size_t n, size_t *head)
{
    if (n < MAGIC + 2 || memcmp(data, "\x93NUMPY", MAGIC) != 0)
        return tess__fail(TESS_EFORMAT, "%s: header: byte 0: expected the magic of .npy", where);
    const int major = data[MAGIC], minor = data[MAGIC + 1];
    if (major < 1 || major > 3 || minor != 0)
        return tess__fail(TESS_ENOTSUP, "%s: header: version is %d.%d, must be 1.0, 2.0 or 3.0",
                          where, major, minor);
    const size_t prefix = major == 1 ? MAGIC + 4 : MAGIC + 6;
    if (n < prefix)
        return tess__fail(TESS_EFORMAT, "%s: header: ends at byte %zu, before its length", where,
                          n);
    const unsigned char *d = data + MAGIC + 2;
    size_t text = (size_t)d[0] | (size_t)d[1] << 8;
    if (major > 1)
        text |= (size_t)d[2] << 16 | (size_t)d[3] << 24;
    if (text > TESS_NPY_HEAD_MAX)
        return tess__fail(TESS_EFORMAT, "%s: header: length is %zu, must be at most %d", where,
                          text, TESS_NPY_HEAD_MAX);
    *head = prefix + text;
    return TESS_OK;
}

tess_status tess__npy_read(const char *where, const unsigned char *data, size_t head,
                           tess__npy *npy)
{
    cursor c = {where, data, data[MAGIC] == 1 ? MAGIC + 4 : MAGIC + 6, head};
    int has = 0, fortran = 0, comma = 1;
    *npy = (tess__npy){0};
    if (!accept(&c, '{'))
        return expected(&c, "'{'");
    while (!accept(&c, '}')) {
        if (!comma)
            return expected(&c, "',' or '}'");
        TESS_TRY(read_pair(&c, npy, &has, &fortran));
        if (npy->refused[0] && has == HAS_ALL)
            return TESS_OK;
        comma = accept(&c, ',');
    }
    if (has != HAS_ALL)
        return tess__fail(TESS_EFORMAT, "%s: header: lacks '%s'", where,
                          !(has & HAS_DESCR)   ? "descr"
                          : !(has & HAS_ORDER) ? "fortran_order"
                                               : "shape");
    skip_space(&c);
    if (c.at != c.end)
        return expected(&c, "nothing but spaces after '}'");
    if (fortran && order_matters(npy))
        refuse(npy, "is in Fortran order, must be in C order");
    if (npy->refused[0])
        return TESS_OK;
    char text[TESS_SHAPE_TEXT];
    if (tess__shape_bytes(tess_dtype_size(npy->dtype), npy->rank, npy->shape, &npy->bytes))
        return tess__fail(TESS_EFORMAT, "%s: header: shape %s has more than 2^63 bytes", where,
                          tess__shape_text(npy->rank, npy->shape, text));
    return TESS_OK;
}

const char *tess__npy_descr(tess_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++) {
        if (dtypes[i].dtype == dtype)
            return dtypes[i].descr;
    }
    return NULL;
}
