/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_file.h - what the fuzz targets of tensor files do with a file: everything a caller can. */
#ifndef TESS_FUZZ_FILE_H
#define TESS_FUZZ_FILE_H

#include "tessera/base.h"
#include "tessera/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_BYTES_MAX = 1 << 20, FUZZ_TENSORS_MAX = 200 };

static inline size_t fuzz_bytes(const tess_tensor *t)
{
    size_t bytes = tess_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] != 0 && bytes > FUZZ_BYTES_MAX / (size_t)t->shape[i])
            bytes = FUZZ_BYTES_MAX + 1;
        else
            bytes *= (size_t)t->shape[i];
    }
    return bytes;
}

/* A tensor mapped, read as it is and read as F32. The first and last bytes are read, so that a
 * sanitizer sees data that lie outside the input. */
static inline void fuzz_tensor(tess_file *file, const tess_tensor *described)
{
    tess_tensor t;
    const size_t bytes = fuzz_bytes(described);
    if (bytes > FUZZ_BYTES_MAX)
        return;
    const size_t floats = bytes / tess_dtype_size(described->dtype) * sizeof(float);
    void *buffer = malloc(floats + bytes + 1);
    if (buffer && tess_file_read(file, described->name, described->dtype, buffer, bytes) == TESS_OK)
        tess_file_read(file, described->name, TESS_DTYPE_F32, buffer, floats);
    free(buffer);
    if (tess_file_tensor(file, described->name, &t) == TESS_OK && bytes > 0) {
        const volatile unsigned char *p = t.data;
        (void)(p[0] + p[bytes - 1]);
    }
}

static inline void fuzz_file(const char *name, const uint8_t *data, size_t size)
{
    tess_ctx *ctx;
    tess_file *file;
    tess_file_info info;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) != TESS_OK)
        abort();
    if (tess_file_open_memory(ctx, name, data, size, &file) == TESS_OK) {
        if (tess_file_query(file, &info) != TESS_OK)
            abort();
        for (int i = 0; i < info.metas; i++) {
            tess_meta meta;
            if (tess_file_meta(file, i, &meta) != TESS_OK || !meta.key || !meta.value)
                abort();
        }
        for (int i = 0; i < info.tensors && i < FUZZ_TENSORS_MAX; i++) {
            tess_tensor t;
            if (tess_file_describe(file, i, &t) == TESS_OK)
                fuzz_tensor(file, &t);
        }
        tess_file_close(file);
    }
    tess_ctx_info left;
    if (tess_ctx_query(ctx, &left) != TESS_OK || left.bytes_now != 0)
        abort();
    tess_ctx_destroy(ctx);
}

#endif
