/* SPDX-License-Identifier: Apache-2.0 */
/* file_names.c - the names and shapes of tensors: rules, lookup, text.
 *
 * Lookup is a binary search in an array of entries sorted by name: n log n comparisons once, log n
 * for each search, whatever the names are (a hash can be made to collide by a hostile file).
 */
#include "file_internal.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 sequence at s, of which n remain; 0 if it is none. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80)
        return 1;
    const size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < length)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Too long a form, a surrogate, or beyond U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

int tess__is_utf8(const char *s, size_t length)
{
    for (size_t i = 0; i < length;) {
        const size_t step = utf8_length((const unsigned char *)s + i, length - i);
        if (step == 0)
            return 0;
        i += step;
    }
    return 1;
}

const char *tess__name_rule(const char *name, size_t length)
{
    if (!tess__is_utf8(name, length))
        return "must be UTF-8";
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return "must not hold control characters";
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(tess__entry *const *)a)->name, (*(tess__entry *const *)b)->name);
}

tess_status tess__names_index(tess_file *file)
{
    const int n = file->n_entries;
    file->sorted = TESS_TAKE(&file->arena, sizeof *file->sorted * (size_t)n);
    int ascending = 1;
    for (int i = 0; i < n; i++) {
        file->sorted[i] = &file->entries[i];
        if (i > 0 && ascending)
            ascending = strcmp(file->entries[i - 1].name, file->entries[i].name) < 0;
    }
    if (ascending)
        return TESS_OK;
    qsort(file->sorted, (size_t)n, sizeof *file->sorted, by_name);
    for (int i = 1; i < n; i++) {
        if (strcmp(file->sorted[i - 1]->name, file->sorted[i]->name) == 0)
            return tess__fail(TESS_EFORMAT, "%s: tensor \"%.300s\" is there twice",
                              file->source.name, file->sorted[i]->name);
    }
    return TESS_OK;
}

tess__entry *tess__names_find(const tess_file *file, const char *name)
{
    int low = 0, high = file->n_entries;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(name, file->sorted[middle]->name);
        if (order == 0)
            return file->sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int tess__shape_bytes(size_t element, int rank, const int64_t *shape, size_t *bytes)
{
    size_t product = element;
    int overflow = 0, empty = 0;
    for (int i = 0; i < rank; i++) {
        empty |= shape[i] == 0;
        overflow |= tess__mul(product, (size_t)shape[i], &product);
    }
    *bytes = empty ? 0 : product;
    return !empty && (overflow || product > PTRDIFF_MAX);
}

const char *tess__shape_text(int rank, const int64_t *shape, char text[TESS_SHAPE_TEXT])
{
    size_t at = 0;
    text[at++] = '[';
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(text + at, TESS_SHAPE_TEXT - at, "%s%lld", i ? "," : "",
                               (long long)shape[i]);
    text[at++] = ']';
    text[at] = '\0';
    return text;
}
