/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - NumPy's .npy: one array, read and written.
 *
 * Written as version 1.0 with a header of a multiple of 64 bytes, so that the elements are aligned
 * in a mapping. A file whose size is not exactly what its header says is refused.
 */
#include "file_internal.h"

#include <string.h>

enum { PREFIX = 10, ALIGN_DATA = 64 };

/* The tensor's name is the file's, without its folder and ".npy". */
static const char *stem(tess_file *file)
{
    const char *name = strrchr(file->source.name, '/');
    name = name ? name + 1 : file->source.name;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".npy") == 0)
        n -= 4;
    return tess__arena_string(&file->arena, name, n);
}

tess_status tess__npy_parse(tess_file *file)
{
    const tess__source *source = &file->source;
    const size_t n = source->bytes;
    size_t head;
    tess__npy npy;
    TESS_TRY(tess__npy_head(source->name, source->data, TESS_MIN(n, TESS_NPY_PREFIX), &head));
    if (head > n)
        return tess__fail(TESS_EFORMAT, "%s: header: needs %zu bytes, but the file has %zu",
                          source->name, head, n);
    TESS_TRY(tess__npy_read(source->name, source->data, head, &npy));
    if (npy.refused[0])
        return tess__fail(TESS_ENOTSUP, "%s: header: %s", source->name, npy.refused);
    if (npy.bytes != n - head) {
        char text[TESS_SHAPE_TEXT];
        return tess__fail(TESS_EFORMAT, "%s: data: %zu bytes, but %s %s needs %zu", source->name,
                          n - head, tess_dtype_name(npy.dtype),
                          tess__shape_text(npy.rank, npy.shape, text), npy.bytes);
    }
    tess__entry *entry = TESS_TAKE(&file->arena, sizeof *entry);
    const char *name = TESS_MEMORY(stem(file));
    *entry = (tess__entry){.name = name,
                           .dtype = npy.dtype,
                           .rank = npy.rank,
                           .bytes = npy.bytes,
                           .source = source,
                           .offset = head};
    memcpy(entry->shape, npy.shape, sizeof npy.shape);
    file->entries = entry;
    file->n_entries = 1;
    return TESS_OK;
}

size_t tess__npy_format(const tess_tensor *tensor, char text[TESS_NPY_TEXT])
{
    memcpy(text, "\x93NUMPY\1\0", 8);
    size_t at = PREFIX;
    at += (size_t)snprintf(text + at, TESS_NPY_TEXT - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (",
                           tess__npy_descr(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        at += (size_t)snprintf(text + at, TESS_NPY_TEXT - at, "%s%lld", i ? ", " : "",
                               (long long)tensor->shape[i]);
    at += (size_t)snprintf(text + at, TESS_NPY_TEXT - at, "%s), }", tensor->rank == 1 ? "," : "");
    /* The newline that ends the text also ends a multiple of 64. */
    const size_t head = (at + ALIGN_DATA) / ALIGN_DATA * ALIGN_DATA;
    memset(text + at, ' ', head - at);
    text[head - 1] = '\n';
    text[8] = (char)((head - PREFIX) & 0xff);
    text[9] = (char)((head - PREFIX) >> 8);
    return head;
}

tess_status tess__npy_write(tess__sink *sink, const tess_tensor *tensor)
{
    char text[TESS_NPY_TEXT];
    const size_t head = tess__npy_format(tensor, text);
    TESS_TRY(tess__out_write(sink->out, text, head));
    return tess__sink_tensor(sink, tensor);
}
