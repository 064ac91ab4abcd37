/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writing .safetensors.
 *
 * Tensors are laid out by the size of their elements, largest first, and otherwise in the caller's
 * order; the header is padded with spaces to a multiple of 64 bytes. So every tensor is aligned to
 * its element in a mapping, though the format allows no gaps. The header is made twice, once to
 * count its bytes and once to write them, and takes no memory.
 */
#include "file_internal.h"
#include "json.h"

enum { PREFIX = 8, ALIGN_DATA = 64, HEADER_MAX = 100 * 1000 * 1000 };

static void add_tensor(tess__jw *w, const tess_tensor *tensor, size_t *offset)
{
    const size_t end = *offset + tess__tensor_bytes(tensor);
    tess__jw_begin(w, tensor->name, '{');
    tess__jw_text(w, "dtype", tess_dtype_name(tensor->dtype));
    tess__jw_row_i64(w, "shape", tensor->shape, (size_t)tensor->rank);
    tess__jw_row_i64(w, "data_offsets", (int64_t[]){(int64_t)*offset, (int64_t)end}, 2);
    tess__jw_end(w, '}');
    *offset = end;
}

static void add_header(tess__jw *w, const tess_tensor *tensors, int n, const tess_meta *metas,
                       int n_metas)
{
    size_t offset = 0;
    tess__jw_begin(w, NULL, '{');
    if (n_metas > 0) {
        tess__jw_begin(w, "__metadata__", '{');
        for (int i = 0; i < n_metas; i++)
            tess__jw_text(w, metas[i].key, metas[i].value);
        tess__jw_end(w, '}');
    }
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < n; i++)
            if (tess_dtype_size(tensors[i].dtype) == size)
                add_tensor(w, &tensors[i], &offset);
    tess__jw_end(w, '}');
}

tess_status tess__safetensors_write(tess__sink *sink, const tess_tensor *tensors, int n,
                                    const tess_meta *metas, int n_metas)
{
    static const char spaces[] = {[0 ... ALIGN_DATA - 1] = ' '};
    tess__jw count = {.compact = 1};
    tess__jw header = {.write = tess__jw_to_file, .to = sink->out, .compact = 1};
    add_header(&count, tensors, n, metas, n_metas);
    const size_t whole = (PREFIX + count.bytes + ALIGN_DATA - 1) / ALIGN_DATA * ALIGN_DATA;
    const size_t length = whole - PREFIX;
    if (length > HEADER_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: the header takes %zu bytes, must be at most %d", length,
                          HEADER_MAX);
    unsigned char prefix[PREFIX];
    for (int i = 0; i < PREFIX; i++)
        prefix[i] = (unsigned char)(length >> 8 * i);
    TESS_TRY(tess__out_write(sink->out, prefix, PREFIX));
    add_header(&header, tensors, n, metas, n_metas);
    TESS_TRY(tess__jw_finish(&header));
    TESS_TRY(tess__out_write(sink->out, spaces, length - header.bytes));
    for (size_t size = 8; size > 0; size /= 2) {
        for (int i = 0; i < n; i++) {
            if (tess_dtype_size(tensors[i].dtype) == size)
                TESS_TRY(tess__sink_tensor(sink, &tensors[i]));
        }
    }
    return TESS_OK;
}
