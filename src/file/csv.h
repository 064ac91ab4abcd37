/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h - comma-separated values in memory, read field by field.
 *
 *   tess__csv csv = tess__csv_start("p.csv", text, bytes);
 *   tess__csv_field field;
 *   while (tess__csv_record(&csv))                       // skips empty lines
 *       do
 *           TESS_TRY(tess__csv_next(&csv, &field));
 *       while (!csv.end_of_record);
 */
#ifndef TESS_CSV_H
#define TESS_CSV_H

#include "base/base_internal.h"

typedef struct {
    const char *name; /* what errors call it */
    const char *text;
    size_t bytes, at;
    int64_t line;      /* that the record began in, from 1 */
    int64_t here;      /* that `at` is in */
    int end_of_record; /* 1: the field was the last of its record */
} tess__csv;

/* A field without the spaces and quotes around it. A quote inside quotes is still written twice. */
typedef struct {
    const char *text; /* not ended by a NUL */
    size_t length;
} tess__csv_field;

/* Passes over a byte order mark. */
tess__csv tess__csv_start(const char *name, const char *text, size_t bytes);

/* Moves to the next record; 0 if there is none. */
int tess__csv_record(tess__csv *csv);

/* The next field of the record; EFORMAT: quotes without an end, or text after them. */
tess_status tess__csv_next(tess__csv *csv, tess__csv_field *field);

/* Whether the field is this word, ASCII case apart. */
int tess__csv_is(const tess__csv_field *field, const char *word);

/* Whether the whole field is a decimal integer of 0 or more, or a decimal number; *value is it. */
int tess__csv_integer(const tess__csv_field *field, int64_t *value);
int tess__csv_number(const tess__csv_field *field, double *value);

/* The field as a sentence can hold it: cut, and without control characters. */
enum { TESS_CSV_QUOTE = 48 };
const char *tess__csv_quote(const tess__csv_field *field, char text[TESS_CSV_QUOTE]);

#endif
