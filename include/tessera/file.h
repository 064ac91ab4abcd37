/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - tensor files: .npy, .npz, .safetensors and sharded safetensors.
 *
 *   tess_file *file;
 *   tess_file_open(ctx, "model.safetensors", &file);       // maps the file
 *   tess_file_tensor(file, "blocks.0.attn1.to_q.weight", &tensor);
 *   tess_file_close(file);
 */
#ifndef TESSERA_FILE_H
#define TESSERA_FILE_H

#include "base.h"

TESS_BEGIN_DECLS

typedef struct tess_file tess_file;

typedef enum {
    TESS_FILE_NPY,
    TESS_FILE_NPZ,
    TESS_FILE_SAFETENSORS,
    TESS_FILE_SAFETENSORS_INDEX, /* model.safetensors.index.json and the shards beside it */
} tess_file_kind;

typedef struct {
    tess_file_kind kind;
    const char *kind_name; /* "npy", "npz", "safetensors", "safetensors index" */
    int64_t bytes;         /* of all files together */
    int shards;            /* files that hold tensors */
    int tensors;
    int metas; /* pairs of safetensors metadata; of an index, those of its first shard */
} tess_file_info;

typedef struct {
    const char *key, *value;
} tess_meta;

typedef struct {
    const tess_meta *metas; /* safetensors only */
    int n_metas;
    int64_t shard_bytes; /* for *.safetensors.index.json: start a new shard beyond this; 0: 5e9 */
    int compress;        /* .npz: 1 deflates, 0 stores */
} tess_file_opts;

/* Recognises the kind by its content. A folder means the weights in it, as tess_model_load finds
 * them. Tensors are mapped, so that opening takes the time of the
 * header, not of the data. The file must not shrink while it is open. */
TESS_API tess_status tess_file_open(tess_ctx *ctx, const char *path, tess_file **file);

/* The same for a file already in memory, which must stay there until the close. `name` is what
 * errors call it. An index finds its shards in the current folder. */
TESS_API tess_status tess_file_open_memory(tess_ctx *ctx, const char *name, const void *data,
                                           size_t bytes, tess_file **file);

TESS_API tess_status tess_file_query(const tess_file *file, tess_file_info *info);
TESS_API tess_status tess_file_meta(const tess_file *file, int index, tess_meta *meta);

/* Tensor number index, in the order of the data, described without touching it (data is NULL).
 * ENOTSUP: a dtype or rank this library does not read; the file's other tensors can be had. */
TESS_API tess_status tess_file_describe(const tess_file *file, int index, tess_tensor *tensor);

/* The tensor with its data: in the mapping where its place is aligned, else a copy that the file
 * owns until it is closed. name NULL takes the only tensor of a file that has one. */
TESS_API tess_status tess_file_tensor(tess_file *file, const char *name, tess_tensor *tensor);

/* Copies a tensor's elements to dst as `dtype` (converted as by tess_convert). bytes must be
 * exactly the number of elements times the size of dtype, and dst aligned to it. After a failure
 * dst holds any part of them. */
TESS_API tess_status tess_file_read(tess_file *file, const char *name, tess_dtype dtype, void *dst,
                                    size_t bytes);
TESS_API void tess_file_close(tess_file *file);

/* Writes n tensors; the end of the path chooses the kind (.npy takes exactly one). The file appears
 * under its name only when it is complete and on disk; on failure what was there before remains.
 * .npy and .npz know no BF16: EINVAL. */
TESS_API tess_status tess_file_write(tess_ctx *ctx, const char *path, const tess_tensor *tensors,
                                     int n, const tess_file_opts *opts);

TESS_END_DECLS

#endif
