/* SPDX-License-Identifier: Apache-2.0 */
/* json_stream.h - JSON documents of any size, one element of a long array at a time.
 *
 * json.h parses whole documents: 50 MB/s, and 8 to 10 bytes of memory for each byte. This reader
 * walks a document {"a": ..., "traceEvents": [element, element, ...], "b": ...}, or an array at the
 * top, and holds one piece of it in memory: about 1 MiB, or the longest element.
 *
 *   tess__json_stream *s;
 *   TESS_TRY(tess__json_stream_open(ctx, bytes, "trace.json", "traceEvents", &s));
 *   tess__json_item item;
 *   do
 *       status = tess__json_stream_next(s, &item);     // TESS__ITEM_MEMBER, _ELEMENT or _END
 *   while (status == TESS_OK && item.kind != TESS__ITEM_END);
 *
 * Values are slices of the text as they stand in the file: a string has its quotes and escapes. The
 * text is checked against the grammar of RFC 8259, except that nan, inf and Infinity are numbers,
 * which profilers write, and that strings may hold bytes that are not UTF-8. A key may come twice.
 */
#ifndef TESS_JSON_STREAM_H
#define TESS_JSON_STREAM_H

#include "byte_stream.h"

/* A value of the text: not ended by a NUL, without spaces around it. Its first byte is its kind:
 * { [ " t f n, or a number. */
typedef struct {
    const char *text;
    size_t length;
} tess__json_slice;

typedef struct {
    tess__json_slice key; /* without quotes; its escapes stand */
    tess__json_slice value;
} tess__json_field;

/* ---- json_scan.c: values in memory ----------------------------------------------------------- */

enum { TESS__SCAN_DEPTH = 256, TESS__SCAN_PAD = 16, TESS__SCAN_FIELDS = 128 };

typedef struct {
    const char *end;  /* TESS__SCAN_PAD bytes of 0 follow */
    const char *what; /* after a failure: the rule that was broken; NULL: the text ends too early */
    const char *at;   /* where */
    tess__json_field *fields; /* members of the outermost object, TESS__SCAN_FIELDS at most */
    int n_fields;
} tess__json_scan;

/* The end of the value that begins at p, or NULL with what and at. fields: NULL, or filled. */
const char *tess__json_scan_value(tess__json_scan *scan, const char *p);

const char *tess__json_scan_space(const char *p); /* the first byte at p that is no white space */

/* Members of an object that a stream gave: how many, the first TESS__SCAN_FIELDS; 0 of others. */
int tess__json_fields(tess__json_slice object, tess__json_field *fields);

/* Elements of an array that a stream gave: how many in all, the first `room` in elements; -1 of a
 * value that is no array. */
int64_t tess__json_elements(tess__json_slice array, tess__json_slice *elements, int64_t room);

/* ---- json_decimal.c: what a slice says ------------------------------------------------------- */

/* The number times 10^places, rounded to the nearest integer from all of its digits; a string that
 * holds a number is one too. 0: no number, or outside of int64. */
int tess__json_decimal(tess__json_slice value, int places, int64_t *out);

/* A string without its quotes and escapes, cut to room - 1 bytes, ended by a NUL; the text of other
 * values. Returns its bytes. */
size_t tess__json_slice_text(tess__json_slice value, char *text, size_t room);

int tess__json_slice_is(tess__json_slice slice, const char *text);

/* ---- json_stream.c --------------------------------------------------------------------------- */

typedef enum { TESS__ITEM_MEMBER, TESS__ITEM_ELEMENT, TESS__ITEM_END } tess__json_item_kind;

typedef struct {
    tess__json_item_kind kind;
    tess__json_slice key; /* of a member of the document */
    tess__json_slice value;
    const tess__json_field *fields; /* of an element that is an object */
    int n_fields;
    int64_t offset; /* of the value in the document */
} tess__json_item;

typedef struct tess__json_stream tess__json_stream;

enum { TESS__JSON_VALUE_MAX = 16 * 1024 * 1024 };

/* Takes bytes over, also when it fails. array: the member that is given element by element; its
 * text and the name must outlive the stream. */
tess_status tess__json_stream_open(tess_ctx *ctx, tess__byte_stream *bytes, const char *name,
                                   const char *array, tess__json_stream **stream);

/* Slices live until the next call. EFORMAT: the text breaks a rule, or a value has more than
 * TESS__JSON_VALUE_MAX bytes; the sentence has the byte. A document that ends too early gives its
 * complete values, then the end. */
tess_status tess__json_stream_next(tess__json_stream *stream, tess__json_item *item);

/* After the end: why it came early, NULL if it did not; and the bytes of the document. */
const char *tess__json_stream_broken(const tess__json_stream *stream, int64_t *bytes);

void tess__json_stream_close(tess__json_stream *stream); /* NULL accepted */

#endif
