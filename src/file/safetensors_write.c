/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - writing .safetensors.
 *
 * Tensors are laid out by the size of their elements, largest first, and otherwise in the caller's
 * order; the header is padded with spaces to a multiple of 64 bytes. So every tensor is aligned to
 * its element in a mapping, though the format allows no gaps. The header is made twice, once to
 * count its bytes and once to write them, and takes no memory.
 */
#include "file.h"

enum { PREFIX = 8, ALIGN_DATA = 64, HEADER_MAX = 100 * 1000 * 1000 };

static tess_status put_metas(tess__text *t, const tess_meta *metas, int n)
{
    TESS_TRY(tess__text_put(t, "\"__metadata__\":{"));
    for (int i = 0; i < n; i++) {
        TESS_TRY(tess__text_put(t, "%s", i ? "," : ""));
        TESS_TRY(tess__text_string(t, metas[i].key));
        TESS_TRY(tess__text_put(t, ":"));
        TESS_TRY(tess__text_string(t, metas[i].value));
    }
    return tess__text_put(t, "}");
}

static tess_status put_tensor(tess__text *t, const tess_tensor *tensor, size_t *offset)
{
    char shape[TESS_SHAPE_TEXT];
    const size_t end = *offset + tess__tensor_bytes(tensor);
    TESS_TRY(tess__text_string(t, tensor->name));
    TESS_TRY(tess__text_put(t, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                            tess_dtype_name(tensor->dtype),
                            tess__shape_text(tensor->rank, tensor->shape, shape), *offset, end));
    *offset = end;
    return TESS_OK;
}

static tess_status put_header(tess__text *t, const tess_tensor *tensors, int n,
                              const tess_meta *metas, int n_metas)
{
    size_t offset = 0;
    int comma = n_metas > 0;
    TESS_TRY(tess__text_put(t, "{"));
    if (n_metas > 0)
        TESS_TRY(put_metas(t, metas, n_metas));
    for (size_t size = 8; size > 0; size /= 2) {
        for (int i = 0; i < n; i++) {
            if (tess_dtype_size(tensors[i].dtype) != size)
                continue;
            TESS_TRY(tess__text_put(t, "%s", comma ? "," : ""));
            TESS_TRY(put_tensor(t, &tensors[i], &offset));
            comma = 1;
        }
    }
    return tess__text_put(t, "}");
}

tess_status tess__safetensors_write(tess__sink *sink, const tess_tensor *tensors, int n,
                                    const tess_meta *metas, int n_metas)
{
    tess__text count = {0}, header = {.out = sink->out};
    TESS_TRY(put_header(&count, tensors, n, metas, n_metas));
    const size_t whole = (PREFIX + count.count + ALIGN_DATA - 1) / ALIGN_DATA * ALIGN_DATA;
    const size_t length = whole - PREFIX;
    if (length > HEADER_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: the header takes %zu bytes, must be at most %d", length,
                          HEADER_MAX);
    unsigned char prefix[PREFIX];
    for (int i = 0; i < PREFIX; i++)
        prefix[i] = (unsigned char)(length >> 8 * i);
    TESS_TRY(tess__out_write(sink->out, prefix, PREFIX));
    TESS_TRY(put_header(&header, tensors, n, metas, n_metas));
    while (header.count < length)
        TESS_TRY(tess__text_bytes(&header, " ", 1));
    for (size_t size = 8; size > 0; size /= 2) {
        for (int i = 0; i < n; i++) {
            if (tess_dtype_size(tensors[i].dtype) == size)
                TESS_TRY(tess__sink_tensor(sink, &tensors[i]));
        }
    }
    return TESS_OK;
}
