/* SPDX-License-Identifier: Apache-2.0 */
/* file_write.c - tess_file_write: checks of its arguments, and dispatch to the formats. */
#include "file_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *end;
    tess_file_kind kind;
} kinds[] = {
    {".npy", TESS_FILE_NPY},
    {".npz", TESS_FILE_NPZ},
    {".safetensors", TESS_FILE_SAFETENSORS},
    {".safetensors.index.json", TESS_FILE_SAFETENSORS_INDEX},
};

static int has_names(tess_file_kind kind)
{
    return kind != TESS_FILE_NPY;
}

static int is_safetensors(tess_file_kind kind)
{
    return kind == TESS_FILE_SAFETENSORS || kind == TESS_FILE_SAFETENSORS_INDEX;
}

static tess_status find_kind(const char *path, tess_file_kind *kind)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t m = strlen(kinds[i].end);
        if (n >= m && strcmp(path + n - m, kinds[i].end) == 0) {
            *kind = kinds[i].kind;
            return TESS_OK;
        }
    }
    return tess__fail(
        TESS_EINVAL,
        "tess_file_write: path is \"%.300s\", must end in .npy, .npz, .safetensors or "
        ".safetensors.index.json",
        path);
}

size_t tess__tensor_bytes(const tess_tensor *tensor)
{
    size_t bytes;
    tess__shape_bytes(tess_dtype_size(tensor->dtype), tensor->rank, tensor->shape, &bytes);
    return bytes;
}

/* Whether a program that unpacks an archive would write a member of this name elsewhere: it begins
 * at the root, or goes up by "..". Backslashes separate folders on Windows. */
static int leaves_folder(const char *name)
{
    static const char separators[] = "/\\";
    if (*name && strchr(separators, *name))
        return 1;
    for (const char *part = name; *part;) {
        const size_t length = strcspn(part, separators);
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return 1;
        part += length + (part[length] != '\0');
    }
    return 0;
}

static tess_status check_name(const tess_tensor *t, int i, tess_file_kind kind)
{
    if (!has_names(kind))
        return TESS_OK;
    if (!t->name)
        return tess__fail(TESS_EINVAL, "tess_file_write: name of tensor %d is NULL", i);
    const size_t length = strlen(t->name);
    const char *rule = tess__name_rule(t->name, length);
    if (rule)
        return tess__fail(TESS_EINVAL, "tess_file_write: the name of tensor %d %s", i, rule);
    if (kind == TESS_FILE_NPZ && length + 4 > UINT16_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: the name of tensor %d has %zu bytes, must have at most "
                          "%d in .npz",
                          i, length, UINT16_MAX - 4);
    if (kind == TESS_FILE_NPZ && leaves_folder(t->name))
        return tess__fail(
            TESS_EINVAL,
            "tess_file_write: the name of tensor %d is \"%.300s\", must in .npz neither "
            "begin with a slash nor hold \"..\" as a folder: programs that unpack the "
            "archive would write outside of their folder; .safetensors takes it",
            i, t->name);
    if (is_safetensors(kind) && strcmp(t->name, "__metadata__") == 0)
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: a tensor of .safetensors must not be called "
                          "\"__metadata__\"");
    return TESS_OK;
}

static tess_status check_tensor(const tess_tensor *t, int i, tess_file_kind kind, int64_t *total)
{
    size_t bytes;
    TESS_TRY(check_name(t, i, kind));
    if (tess_dtype_size(t->dtype) == 0)
        return tess__fail(TESS_EINVAL, "tess_file_write: dtype of tensor %d is %d, must be 0..%d",
                          i, (int)t->dtype, TESS_DTYPE_COUNT - 1);
    if (!is_safetensors(kind) && !tess__npy_descr(t->dtype))
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: tensor %d is %s, which .npy and .npz do not know", i,
                          tess_dtype_name(t->dtype));
    if (t->rank < 0 || t->rank > TESS_RANK_MAX)
        return tess__fail(TESS_EINVAL, "tess_file_write: rank of tensor %d is %d, must be 0..%d", i,
                          t->rank, TESS_RANK_MAX);
    for (int d = 0; d < t->rank; d++) {
        if (t->shape[d] < 0)
            return tess__fail(TESS_EINVAL,
                              "tess_file_write: shape[%d] of tensor %d is %lld, must be 0 or more",
                              d, i, (long long)t->shape[d]);
    }
    if (tess__shape_bytes(tess_dtype_size(t->dtype), t->rank, t->shape, &bytes) ||
        __builtin_add_overflow(*total, (int64_t)bytes, total))
        return tess__fail(TESS_EINVAL, "tess_file_write: tensor %d has more than 2^63 bytes", i);
    if (bytes > 0 && !t->data)
        return tess__fail(TESS_EINVAL, "tess_file_write: data of tensor %d is NULL", i);
    return TESS_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tess_status check_unique(tess_ctx *ctx, const tess_tensor *tensors, int n)
{
    tess_status status = TESS_OK;
    const char **names = TESS_ALLOC(ctx, sizeof *names * (size_t)n);
    for (int i = 0; i < n; i++)
        names[i] = tensors[i].name;
    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 1; i < n && status == TESS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = tess__fail(TESS_EINVAL, "tess_file_write: two tensors are called \"%.300s\"",
                                names[i]);
    }
    tess__free(ctx, names);
    return status;
}

static tess_status check_opts(const tess_file_opts *opts, tess_file_kind kind)
{
    if (opts->n_metas < 0 || (opts->n_metas > 0 && !opts->metas))
        return tess__fail(TESS_EINVAL, "tess_file_write: n_metas is %d, but metas is %s",
                          opts->n_metas, opts->metas ? "given" : "NULL");
    if (opts->n_metas > 0 && !is_safetensors(kind))
        return tess__fail(TESS_EINVAL,
                          "tess_file_write: n_metas is %d, must be 0 for .npy and .npz",
                          opts->n_metas);
    TESS_TRY(tess__check_least("tess_file_write", "shard_bytes", opts->shard_bytes, 0));
    TESS_TRY(tess__check_flag("tess_file_write", "compress", opts->compress));
    for (int i = 0; i < opts->n_metas; i++) {
        const tess_meta *m = &opts->metas[i];
        if (!m->key || !m->value)
            return tess__fail(TESS_EINVAL, "tess_file_write: %s of metadata pair %d is NULL",
                              m->key ? "value" : "key", i);
        if (!tess__is_utf8(m->key, strlen(m->key)) || !tess__is_utf8(m->value, strlen(m->value)))
            return tess__fail(TESS_EINVAL, "tess_file_write: metadata pair %d must be UTF-8", i);
        for (int j = 0; j < i; j++) {
            if (strcmp(m->key, opts->metas[j].key) == 0)
                return tess__fail(TESS_EINVAL,
                                  "tess_file_write: two metadata pairs have the key \"%.300s\"",
                                  m->key);
        }
    }
    return TESS_OK;
}

/* Everything a caller can get wrong; *total is what all tensors' elements take. */
static tess_status check(tess_ctx *ctx, const tess_tensor *tensors, int n,
                         const tess_file_opts *opts, tess_file_kind kind, int64_t *total)
{
    if (n < 0 || (n > 0 && !tensors))
        return tess__fail(TESS_EINVAL, "tess_file_write: n is %d, but tensors is %s", n,
                          tensors ? "given" : "NULL");
    if (kind == TESS_FILE_NPY && n != 1)
        return tess__fail(TESS_EINVAL, "tess_file_write: n is %d, must be 1 for .npy", n);
    TESS_TRY(check_opts(opts, kind));
    *total = 0;
    for (int i = 0; i < n; i++)
        TESS_TRY(check_tensor(&tensors[i], i, kind, total));
    return has_names(kind) ? check_unique(ctx, tensors, n) : TESS_OK;
}

tess_status tess__sink_progress(tess__sink *sink, size_t n)
{
    sink->done += (int64_t)n;
    return tess__progress(sink->ctx, "writing bytes", sink->done, sink->total);
}

tess_status tess__sink_tensor(tess__sink *sink, const tess_tensor *tensor)
{
    const size_t bytes = tess__tensor_bytes(tensor);
    const char *data = tensor->data;
    for (size_t at = 0; at < bytes;) {
        const size_t n = TESS_MIN(bytes - at, TESS_WRITE_STEP);
        TESS_TRY(tess__out_write(sink->out, data + at, n));
        TESS_TRY(tess__sink_progress(sink, n));
        at += n;
    }
    return TESS_OK;
}

tess_status tess_file_write(tess_ctx *ctx, const char *path, const tess_tensor *tensors, int n,
                            const tess_file_opts *opts)
{
    static const tess_file_opts defaults;
    tess_file_kind kind = TESS_FILE_NPY;
    TESS_REQUIRE(ctx, path);
    if (!opts)
        opts = &defaults;
    tess__sink sink = {.ctx = ctx};
    TESS_TRY(find_kind(path, &kind));
    TESS_TRY(check(ctx, tensors, n, opts, kind, &sink.total));
    if (kind == TESS_FILE_SAFETENSORS_INDEX)
        return tess__shards_write(&sink, path, tensors, n, opts);

    TESS_TRY(tess__out_open(ctx, path, &sink.out));
    tess_status status;
    if (kind == TESS_FILE_NPY)
        status = tess__npy_write(&sink, tensors);
    else if (kind == TESS_FILE_NPZ)
        status = tess__npz_write(&sink, tensors, n, opts->compress);
    else
        status = tess__safetensors_write(&sink, tensors, n, opts->metas, opts->n_metas);
    if (status != TESS_OK) {
        tess__out_abort(sink.out);
        return status;
    }
    return tess__out_commit(sink.out);
}
