/* SPDX-License-Identifier: Apache-2.0 */
/* report_internal.h - HTML pages: one file each, which loads no other.
 *
 * What comes in: plans, work, and the files of a training run. What goes out: a page with its data
 * as JSON, the styles and the scripts that draw it. A page is text that grows in memory and is
 * written at the end, whole or not at all.
 */
#ifndef TESS_REPORT_INTERNAL_H
#define TESS_REPORT_INTERNAL_H

#include "base/base_internal.h"
#include "file/json_write.h"
#include "tessera/report.h"

/* ---- markup.c: text that grows. A failure is remembered, and further calls do nothing -------- */

typedef struct {
    tess_ctx *ctx;
    char *data; /* NUL-terminated; NULL while empty */
    size_t size;
    int64_t room;
    tess_status status;
} tess__markup; /* {.ctx = ctx} is a valid empty one */

void tess__markup_add(tess__markup *text, const char *bytes, size_t n);
void tess__markup_print(tess__markup *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tess__markup_html(tess__markup *text, const char *s); /* with & < > " escaped */
void tess__markup_base64(tess__markup *text, const void *bytes, size_t n);

/* A JSON writer that appends to the text, safe inside a script element; behind a value that the
 * text ends with it writes a comma first. `digits` as in tess__jw. */
tess__jw tess__markup_json(tess__markup *text, int digits);

/* A member of JSON: the bytes in base64. */
void tess__markup_bytes(tess__jw *w, const char *key, const void *bytes, size_t n);
void tess__markup_free(tess__markup *text);

/* ---- page.c ---------------------------------------------------------------------------------- */

/* A figure that the page's script draws. */
typedef struct {
    const char *id, *caption;
    const char *inside; /* markup the script needs in it; NULL: none */
} tess__figure;

/* Head and title; a browser loads the page again every `refresh` seconds, 0: never. */
void tess__page_begin(tess__markup *page, const char *title, int refresh);
void tess__page_subtitle(tess__markup *page, const char *text);

/* What the page is of: a list of names with their values. */
typedef struct {
    const char *name, *value; /* value NULL or "": left out */
    int code;                 /* 1: a command */
} tess__fact;
void tess__page_facts(tess__markup *page, const tess__fact *facts, int n);
void tess__page_now(char date[64]); /* "2026-05-04 13:20 UTC" */

/* The facts of a page that is made from a command's input: the file or folder, the date, the
 * command. */
void tess__page_made(tess__markup *page, const char *input, const char *command);

void tess__page_figure(tess__markup *page, const tess__figure *figure);

/* A number that matters, large, with a word under it. */
void tess__page_tile(tess__markup *page, const char *word, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The data (a JSON text), the scripts and the end; then the file. */
tess_status tess__page_write(tess__markup *page, const tess__markup *data, const char *script,
                             const char *path);

#endif
