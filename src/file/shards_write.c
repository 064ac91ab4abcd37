/* SPDX-License-Identifier: Apache-2.0 */
/* shards_write.c - writing safetensors in shards with an index.
 *
 *   model.safetensors.index.json --> model-00001-of-00002.safetensors
 *                                    model-00002-of-00002.safetensors
 *
 * Shards are filled in the caller's order, and a tensor that does not fit starts the next. All
 * files are written and synced before the first gets its name, and the index gets its own last, so
 * that a disk that runs full leaves what was there before. The metadata go into every shard.
 */
#include "file_internal.h"
#include "json.h"

#include <limits.h>
#include <string.h>

static const int64_t shard_default = 5000000000;
static const char index_end[] = ".safetensors.index.json";

typedef struct {
    tess__out *out;
    int first, n; /* its tensors */
} shard;

/* Cuts the tensors into shards, and returns how many; list NULL only counts. */
static int cut(const tess_tensor *tensors, int n, int64_t limit, shard *list)
{
    int shards = 0, first = 0;
    int64_t held = 0;
    for (int i = 0; i <= n; i++) {
        const int64_t bytes = i < n ? (int64_t)tess__tensor_bytes(&tensors[i]) : 0;
        if ((i == n && n > 0) || (i > first && bytes > limit - held)) {
            if (list)
                list[shards] = (shard){.first = first, .n = i - first};
            shards++;
            first = i;
            held = 0;
        }
        held += bytes;
    }
    return shards;
}

static tess_status write_shard(tess__sink *sink, const char *path, const tess_tensor *tensors,
                               const tess_file_opts *opts, shard *s)
{
    TESS_TRY(tess__out_open(sink->ctx, path, &s->out));
    sink->out = s->out;
    TESS_TRY(tess__safetensors_write(sink, tensors + s->first, s->n, opts->metas, opts->n_metas));
    return tess__out_sync(s->out);
}

/* The name of shard number s of `shards`, from 0, given the index's path without its end. */
static tess_status shard_name(const char *stem, int length, int s, int shards, char name[PATH_MAX])
{
    const int n =
        snprintf(name, PATH_MAX, "%.*s-%05d-of-%05d.safetensors", length, stem, s + 1, shards);
    if (n >= PATH_MAX)
        return tess__fail(TESS_EINVAL, "tess_file_write: path has %zu bytes, too many for a path",
                          strlen(stem));
    return TESS_OK;
}

static tess_status add_map(tess__jw *w, const char *stem, int length, const tess_tensor *tensors,
                           const shard *list, int shards)
{
    char name[PATH_MAX];
    tess__jw_begin(w, "weight_map", '{');
    for (int s = 0; s < shards; s++) {
        TESS_TRY(shard_name(stem, length, s, shards, name));
        for (int i = list[s].first; i < list[s].first + list[s].n; i++)
            tess__jw_text(w, tensors[i].name, name);
    }
    tess__jw_end(w, '}');
    return TESS_OK;
}

static tess_status write_index(tess__sink *sink, const char *path, const tess_tensor *tensors,
                               const shard *list, int shards, tess__out **out)
{
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    const int length = (int)(strlen(stem) - strlen(index_end));
    TESS_TRY(tess__out_open(sink->ctx, path, out));
    tess__jw w = {.write = tess__jw_to_file, .to = *out, .indent = 2};
    tess__jw_begin(&w, NULL, '{');
    tess__jw_begin(&w, "metadata", '{');
    tess__jw_int(&w, "total_size", sink->total);
    tess__jw_end(&w, '}');
    TESS_TRY(add_map(&w, stem, length, tensors, list, shards));
    tess__jw_end(&w, '}');
    TESS_TRY(tess__jw_finish(&w));
    return tess__out_sync(*out);
}

/* Gives every file its name, the index last; stops at the first that fails. */
static tess_status commit_all(shard *list, int shards, tess__out **index)
{
    for (int s = 0; s < shards; s++) {
        tess__out *out = list[s].out;
        list[s].out = NULL; /* a commit frees it, also when it fails */
        TESS_TRY(tess__out_commit(out));
    }
    tess__out *out = *index;
    *index = NULL;
    return tess__out_commit(out);
}

tess_status tess__shards_write(tess__sink *sink, const char *path, const tess_tensor *tensors,
                               int n, const tess_file_opts *opts)
{
    const int64_t limit = opts->shard_bytes ? opts->shard_bytes : shard_default;
    const int shards = cut(tensors, n, limit, NULL);
    const int length = (int)(strlen(path) - strlen(index_end));
    if (!tess__is_utf8(path, strlen(path)))
        return tess__fail(TESS_EINVAL, "tess_file_write: path must be UTF-8 for an index");
    shard *list = TESS_ALLOC(sink->ctx, sizeof *list * (size_t)shards);
    cut(tensors, n, limit, list);

    tess_status status = TESS_OK;
    tess__out *index = NULL;
    for (int s = 0; s < shards && status == TESS_OK; s++) {
        char name[PATH_MAX];
        status = shard_name(path, length, s, shards, name);
        if (status == TESS_OK)
            status = write_shard(sink, name, tensors, opts, &list[s]);
    }
    if (status == TESS_OK)
        status = write_index(sink, path, tensors, list, shards, &index);
    if (status == TESS_OK)
        status = commit_all(list, shards, &index);
    for (int s = 0; s < shards; s++)
        tess__out_abort(list[s].out);
    tess__out_abort(index);
    tess__free(sink->ctx, list);
    return status;
}
