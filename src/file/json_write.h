/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.h - the JSON writer: every JSON text of the library and the command comes from here.
 *
 *   tess__jw w = {.write = to_file, .to = out, .indent = 2};
 *   tess__jw_begin(&w, NULL, '{');
 *   tess__jw_int(&w, "ranks", 8);                  {
 *   tess__jw_real(&w, "rho", 0.824);                 "ranks": 8,
 *   tess__jw_row(&w, "cuts", '[');                   "rho": 0.824,
 *   tess__jw_int(&w, NULL, 0);                       "cuts": [0, 12]
 *   tess__jw_int(&w, NULL, 12);                    }
 *   tess__jw_end(&w, ']');
 *   tess__jw_end(&w, '}');
 *   TESS_TRY(tess__jw_finish(&w));
 *
 * Commas, colons and lines are the writer's. A member of an object has a key; an element of an
 * array has the key NULL. Nothing is allocated, and the locale does not matter. After the first
 * failure nothing more is written, so that only the last call's status must be checked. Needs
 * nothing but libc and jansson: the command compiles it too.
 */
#ifndef TESS_JSON_WRITE_H
#define TESS_JSON_WRITE_H

#include "base/base_internal.h"

#include <jansson.h>

typedef struct {
    tess_status (*write)(void *to, const char *bytes, size_t n); /* NULL: bytes are only counted */
    void *to;
    int indent;  /* spaces per level; 0: everything on one line */
    int compact; /* 1: no space after a comma or a colon */
    int digits;  /* significant digits of reals; 0: the fewest that read back as the same double */
    int html;    /* 1: "<" is escaped, so that no string ends the script element around the text */
    tess_status status; /* the first failure */
    size_t bytes;       /* written or counted */
    int depth, row,
        members; /* the writer's own; row: the depth of the value that stays on one line */
} tess__jw;

void tess__jw_begin(tess__jw *w, const char *key, char bracket); /* '{' or '[' */
void tess__jw_row(tess__jw *w, const char *key, char bracket);   /* the same, on one line */
void tess__jw_end(tess__jw *w, char bracket);                    /* '}' or ']' */

void tess__jw_int(tess__jw *w, const char *key, int64_t value);
void tess__jw_real(tess__jw *w, const char *key, double value); /* not finite: null */
void tess__jw_bool(tess__jw *w, const char *key, int value);
void tess__jw_text(tess__jw *w, const char *key, const char *utf8); /* NULL: null */
void tess__jw_null(tess__jw *w, const char *key);
void tess__jw_row_i32(tess__jw *w, const char *key, const int32_t *values, size_t n);
void tess__jw_row_i64(tess__jw *w, const char *key, const int64_t *values, size_t n);
void tess__jw_value(tess__jw *w, const char *key, const json_t *value);

/* An array of elements whose text exists already, with commas between them. */
void tess__jw_elements(tess__jw *w, const char *key, const char *text, size_t n);

/* The end of the text; with an indent, the end of its last line. */
tess_status tess__jw_finish(tess__jw *w);

/* A `write` for a text in memory, which is always ended by a NUL; EINVAL when it does not fit. */
typedef struct {
    char *text;
    size_t room, used;
} tess__jw_buffer;

tess_status tess__jw_to_buffer(void *buffer, const char *bytes, size_t n);

/* A number as text, with a point in every locale: digits significant digits at most, laid
 * out as by %g; digits 0: the fewest that read back as the same double, laid out as by Python's
 * repr, but without ".0". */
enum { TESS_REAL_TEXT = 40 };
char *tess__real_text(double value, int digits, char text[TESS_REAL_TEXT]);

#endif
