/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl.c - one JSON object per line; a last line without its end, which a killed process may have
 * left, is passed over. */
#define _GNU_SOURCE /* rawmemchr */
#include "jsonl.h"

#include "file/json.h"

#include <math.h>
#include <string.h>

static int64_t count_lines(const tess__source *source)
{
    int64_t n = 0;
    for (const unsigned char *at = source->data, *end = at + source->bytes; at < end; n++) {
        const unsigned char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            break;
        at = next + 1;
    }
    return n;
}

tess_status tess__jsonl_open(const char *path, const char *what, tess__jsonl *file)
{
    tess__jsonl f = {.what = what};
    TESS_TRY(tess__source_open(path, &f.source));
    f.at = (const char *)f.source.data;
    f.lines = count_lines(&f.source);
    *file = f;
    return TESS_OK;
}

tess_status tess__jsonl_next(tess__jsonl *file, json_t **object)
{
    *object = NULL;
    if (file->line == file->lines)
        return TESS_OK;
    const size_t n = (size_t)((const char *)rawmemchr(file->at, '\n') - file->at);
    tess__json doc = {0};
    const tess_status status = tess__json_open(NULL, file->source.name, file->at, n, &doc);
    file->line++;
    file->at += n + 1;
    if (status == TESS_ENOMEM)
        return status;
    json_t *read = json_incref(doc.root);
    tess__json_close(&doc);
    if (!json_is_object(read) || !json_is_integer(json_object_get(read, "step"))) {
        json_decref(read);
        return tess__fail(TESS_EFORMAT, "%s: line %lld: not %s", file->source.name,
                          (long long)file->line, file->what);
    }
    *object = read;
    return TESS_OK;
}

void tess__jsonl_close(tess__jsonl *file)
{
    tess__source_close(&file->source);
}

double tess__jsonl_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}
