/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - opening, querying and closing tensor files of every kind.
 *
 * The kind follows from the content:
 *
 *   93 4e 55 4d 50 59              .npy
 *   50 4b 03 04, 50 4b 05 06       .npz (a zip archive; the second is an empty one)
 *   8-byte length, then {          .safetensors
 *   {                              .safetensors.index.json
 *
 * A length below 2^32 has zero bytes and JSON has none, so the last two cannot be taken for each
 * other.
 */
#include "file_internal.h"

#include <string.h>

static const char *const kind_names[] = {
    [TESS_FILE_NPY] = "npy",
    [TESS_FILE_NPZ] = "npz",
    [TESS_FILE_SAFETENSORS] = "safetensors",
    [TESS_FILE_SAFETENSORS_INDEX] = "safetensors index",
};

static tess_status (*const parsers[])(tess_file *) = {
    [TESS_FILE_NPY] = tess__npy_parse,
    [TESS_FILE_NPZ] = tess__npz_parse,
    [TESS_FILE_SAFETENSORS] = tess__safetensors_parse,
    [TESS_FILE_SAFETENSORS_INDEX] = tess__shards_parse,
};

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int is_index(const unsigned char *data, size_t n)
{
    size_t i = 0;
    while (i < n && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r'))
        i++;
    return i < n && data[i] == '{';
}

static tess_status recognise(const tess__source *source, tess_file_kind *kind)
{
    const unsigned char *d = source->data;
    const size_t n = source->bytes;
    static const unsigned char zeros[4];

    if (n == 0)
        return tess__fail(TESS_EFORMAT, "%s: is empty", source->name);
    if (n >= 6 && memcmp(d, "\x93NUMPY", 6) == 0)
        *kind = TESS_FILE_NPY;
    else if (n >= 4 && (memcmp(d, "PK\3\4", 4) == 0 || memcmp(d, "PK\5\6", 4) == 0))
        *kind = TESS_FILE_NPZ;
    else if (n > 8 && d[8] == '{' && memcmp(d + 4, zeros, 4) == 0)
        *kind = TESS_FILE_SAFETENSORS;
    else if (is_index(d, n))
        *kind = TESS_FILE_SAFETENSORS_INDEX;
    else if (ends_with(source->name, ".safetensors"))
        *kind = TESS_FILE_SAFETENSORS; /* so that the parser says what is wrong with it */
    else
        return tess__fail(TESS_EFORMAT,
                          "%s: is no .npy, .npz, .safetensors or .safetensors.index.json file",
                          source->name);
    return TESS_OK;
}

/* An empty file with a copy of its name. */
static tess_status file_create(tess_ctx *ctx, const char *name, tess_file **file)
{
    tess_file *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->arena.ctx = ctx;
    made->source.fd = -1;
    made->source.name = tess__arena_string(&made->arena, name, strlen(name));
    if (!made->source.name) {
        tess__free(ctx, made);
        return TESS_ENOMEM;
    }
    *file = made;
    return TESS_OK;
}

/* Parses made, unless an earlier step has failed: then, or if this does, frees it. */
static tess_status file_finish(tess_file *made, tess_status status, tess_file **file)
{
    if (status == TESS_OK)
        status = parsers[made->kind](made);
    if (status == TESS_OK)
        status = tess__names_index(made);
    if (status == TESS_OK)
        *file = made;
    else
        tess_file_close(made);
    return status;
}

/* The file that a path means: itself, or the weights in a model's or a pipeline's folder. */
static tess_status resolve(const char **path, char weights[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!tess__is_folder(*path))
        return TESS_OK;
    const int part = tess__model_part(*path, "config.json", folder) == TESS_OK;
    TESS_TRY(tess__model_folder(part ? folder : *path, weights));
    *path = weights;
    return TESS_OK;
}

tess_status tess_file_open(tess_ctx *ctx, const char *path, tess_file **file)
{
    TESS_REQUIRE(ctx, path, file);
    char weights[PATH_MAX];
    tess_file *made;
    TESS_TRY(resolve(&path, weights));
    TESS_TRY(file_create(ctx, path, &made));
    tess_status status = tess__source_open(made->source.name, &made->source);
    if (status == TESS_OK)
        status = recognise(&made->source, &made->kind);
    return file_finish(made, status, file);
}

tess_status tess__file_open_kind(tess_ctx *ctx, const char *path, tess_file_kind kind,
                                 tess_file **file)
{
    tess_file *made;
    TESS_TRY(file_create(ctx, path, &made));
    made->kind = kind;
    return file_finish(made, tess__source_open(made->source.name, &made->source), file);
}

tess_status tess_file_open_memory(tess_ctx *ctx, const char *name, const void *data, size_t bytes,
                                  tess_file **file)
{
    if (!ctx || !name || !file || (!data && bytes > 0))
        return tess__invalid(__func__, "%s is NULL",
                             !ctx    ? "ctx"
                             : !name ? "name"
                             : !file ? "file"
                                     : "data");
    tess_file *made;
    TESS_TRY(file_create(ctx, name, &made));
    made->source.data = data;
    made->source.bytes = bytes;
    return file_finish(made, recognise(&made->source, &made->kind), file);
}

void tess_file_close(tess_file *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->n_entries; i++)
        tess__free(file->ctx, file->entries[i].copy);
    for (int i = 0; i < file->n_shards; i++)
        tess_file_close(file->shards[i]);
    tess__source_close(&file->source);
    tess__arena_free(&file->arena);
    tess__free(file->ctx, file);
}

tess_status tess_file_query(const tess_file *file, tess_file_info *info)
{
    TESS_REQUIRE(file, info);
    int64_t bytes = (int64_t)file->source.bytes;
    for (int i = 0; i < file->n_shards; i++)
        bytes += (int64_t)file->shards[i]->source.bytes;
    *info = (tess_file_info){
        .kind = file->kind,
        .kind_name = kind_names[file->kind],
        .bytes = bytes,
        .shards = file->kind == TESS_FILE_SAFETENSORS_INDEX ? file->n_shards : 1,
        .tensors = file->n_entries,
        .metas = file->n_metas,
    };
    return TESS_OK;
}

tess_status tess_file_meta(const tess_file *file, int index, tess_meta *meta)
{
    TESS_REQUIRE(file, meta);
    if (index < 0 || index >= file->n_metas)
        return tess__invalid(__func__, "index is %d, but %s has %d metadata pairs", index,
                             file->source.name, file->n_metas);
    *meta = file->metas[index];
    return TESS_OK;
}

tess_status tess_file_describe(const tess_file *file, int index, tess_tensor *tensor)
{
    TESS_REQUIRE(file, tensor);
    if (index < 0 || index >= file->n_entries)
        return tess__invalid(__func__, "index is %d, but %s has %d tensors", index,
                             file->source.name, file->n_entries);
    const tess__entry *entry = &file->entries[index];
    if (entry->refused)
        return tess__fail(TESS_ENOTSUP, "%s: tensor \"%.300s\": %s", entry->source->name,
                          entry->name, entry->refused);
    *tensor = (tess_tensor){.name = entry->name, .dtype = entry->dtype, .rank = entry->rank};
    memcpy(tensor->shape, entry->shape, sizeof entry->shape);
    return TESS_OK;
}
