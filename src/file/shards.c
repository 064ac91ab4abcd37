/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - reading model.safetensors.index.json and the shards beside it.
 *
 *   {"metadata": {"total_size": 28},
 *    "weight_map": {"a.weight": "model-00001-of-00002.safetensors"}}
 *
 * Every shard is opened at once, since describing a tensor needs its shard's header; their data
 * stay untouched. A shard's name is that of a file in the index's own folder: no index leads
 * anywhere else. Tensors are listed in the order of the map. A tensor that the map names and the
 * shard lacks is an error; one that a shard holds and the map does not name is passed over, as
 * other readers do, with a warning in the log. The metadata are those of the first shard by name.
 */
#include "file_internal.h"
#include "json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tess_status check_shard_name(const tess__json_node *map, const char *key)
{
    const tess__json_node node = tess__json_member(map, key);
    const char *rule = tess__name_rule(key, strlen(key)), *name;
    if (rule)
        return tess__json_fail(node, "the name of a tensor %s", rule);
    TESS_TRY(tess__json_string(node, &name));
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        tess__name_rule(name, strlen(name)))
        return tess__json_fail(
            node, "\"%.200s\" is in \"%.200s\", must be a file in the index's folder", key, name);
    return TESS_OK;
}

/* The values of the map, sorted, each once. */
static tess_status list_shards(tess_file *file, const tess__json_node *map, const char ***names,
                               int *n)
{
    const char *key;
    json_t *value;
    const size_t count = json_object_size(map->value);
    if (count > INT_MAX)
        return tess__json_fail(*map, "%zu tensors are too many", count);
    const char **list = TESS_TAKE(&file->arena, sizeof *list * count);
    size_t at = 0;
    json_object_foreach(map->value, key, value)
    {
        TESS_TRY(check_shard_name(map, key));
        list[at++] = json_string_value(value);
    }
    qsort(list, count, sizeof *list, by_text);
    int unique = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(list[i], list[unique - 1]) != 0)
            list[unique++] = list[i];
    }
    *names = list;
    *n = unique;
    return TESS_OK;
}

static tess_status open_shards(tess_file *file, const char **names, int n)
{
    file->shards = TESS_TAKE(&file->arena, sizeof(tess_file *) * (size_t)n);
    const char *slash = strrchr(file->source.name, '/');
    const int folder = slash ? (int)(slash - file->source.name) + 1 : 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%.*s%s", folder, file->source.name, names[i]) >= PATH_MAX)
            return tess__fail(TESS_EIO, "%.300s: the path of shard \"%.300s\" is too long",
                              file->source.name, names[i]);
        TESS_TRY(tess__file_open_kind(file->ctx, path, TESS_FILE_SAFETENSORS, &file->shards[i]));
        file->n_shards++;
    }
    return TESS_OK;
}

static tess_status copy_entries(tess_file *file, const tess__json_node *map, const char **names)
{
    const char *key;
    json_t *value;
    const size_t count = json_object_size(map->value);
    file->entries = TESS_TAKE(&file->arena, sizeof *file->entries * count);
    json_object_foreach(map->value, key, value)
    {
        const char *name = json_string_value(value);
        const char **place = bsearch(&name, names, (size_t)file->n_shards, sizeof *names, by_text);
        const tess__entry *found = tess__names_find(file->shards[place - names], key);
        if (!found)
            return tess__json_fail(tess__json_member(map, key),
                                   "tensor \"%.300s\" is not in \"%.300s\"", key, name);
        file->entries[file->n_entries++] = *found;
    }
    return TESS_OK;
}

static void warn_of_unnamed(const tess_file *file)
{
    int64_t held = 0;
    for (int i = 0; i < file->n_shards; i++)
        held += file->shards[i]->n_entries;
    if (held > file->n_entries)
        tess__log(file->ctx, TESS_LOG_WARN,
                  "%s: the shards hold %lld tensors that \"weight_map\" does not name",
                  file->source.name, (long long)(held - file->n_entries));
}

tess_status tess__shards_parse(tess_file *file)
{
    tess__json doc = {0};
    tess__json_node root, map;
    const char **names = NULL;
    int n = 0;
    tess_status status = tess__json_open(file->ctx, file->source.name,
                                         file->source.bytes ? (const char *)file->source.data : "",
                                         file->source.bytes, &doc);
    if (status != TESS_OK)
        return status;
    root = tess__json_root(&doc);
    status = tess__json_object(root, NULL, 0, &root);
    if (status == TESS_OK)
        status = tess__json_object(tess__json_member(&root, "weight_map"), NULL, 0, &map);
    if (status == TESS_OK)
        status = list_shards(file, &map, &names, &n);
    if (status == TESS_OK)
        status = open_shards(file, names, n);
    if (status == TESS_OK)
        status = copy_entries(file, &map, names);
    tess__json_close(&doc);
    if (status == TESS_OK && file->n_shards > 0) {
        file->metas = file->shards[0]->metas;
        file->n_metas = file->shards[0]->n_metas;
        warn_of_unnamed(file);
    }
    return status;
}
