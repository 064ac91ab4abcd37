/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl.h - files of one JSON object per line, as training runs write them. */
#ifndef TESS_JSONL_H
#define TESS_JSONL_H

#include "file/file_internal.h"

#include <jansson.h>

typedef struct {
    tess__source source;
    const char *what, *at;
    int64_t lines, line; /* whole ones; given out so far */
} tess__jsonl;

/* what: what errors call an object that a line should be, "the metrics of a step". Name and what
 * must outlive the file. */
tess_status tess__jsonl_open(const char *path, const char *what, tess__jsonl *file);

/* The next line's object, which has an integer "step"; the caller's reference. NULL: the end. */
tess_status tess__jsonl_next(tess__jsonl *file, json_t **object);
void tess__jsonl_close(tess__jsonl *file); /* one that was opened */

/* A member's number, or NaN where it is absent, null or something else. */
double tess__jsonl_number(const json_t *object, const char *key);

#endif
