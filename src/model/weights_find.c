/* SPDX-License-Identifier: Apache-2.0 */
/* weights_find.c - which files a path to a model means.
 *
 *   a folder      its config.json, and its weights: the first of the names below that is there,
 *                 an index before a single file, as diffusers looks for them
 *   a pipeline    a folder without config.json whose folder transformer/ has one: that folder
 *   a file        these weights, or the shards of this index, and the config.json beside it
 */
#include "weights.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *const weight_files[] = {
    TESS_WEIGHTS_INDEX,
    TESS_WEIGHTS_FILE,
    "model.safetensors.index.json",
    "model.safetensors",
};
enum { WEIGHT_FILES = sizeof weight_files / sizeof weight_files[0] };

static int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The first `folder` bytes of path, name and more, one behind the other. */
static tess_status join(const char *path, size_t folder, const char *name, const char *more,
                        char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%.*s%s%s", (int)folder, path, name, more) < PATH_MAX)
        return TESS_OK;
    errno = ENAMETOOLONG;
    return tess__fail(TESS_EIO, "%.200s: cannot open: %m", path);
}

static tess_status find_in_folder(const char *path, tess__model_files *files)
{
    const size_t n = strlen(path);
    const char *inner = "/";
    TESS_TRY(join(path, n, inner, TESS_CONFIG_FILE, files->config));
    if (!exists(files->config)) {
        TESS_TRY(join(path, n, "/transformer/", TESS_CONFIG_FILE, files->config));
        if (!exists(files->config))
            return tess__fail(TESS_EIO, "%s: holds no %s", path, TESS_CONFIG_FILE);
        inner = "/transformer/";
    }
    for (int i = 0; i < WEIGHT_FILES; i++) {
        TESS_TRY(join(path, n, inner, weight_files[i], files->weights));
        if (exists(files->weights))
            return TESS_OK;
    }
    return tess__fail(TESS_EIO,
                      "%s%s: holds no " TESS_WEIGHTS_FILE " and no index of one; weights under "
                      "another name are opened by their path",
                      path, inner[1] ? "/transformer" : "");
}

tess_status tess__model_find(const char *path, tess__model_files *files)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    if (S_ISDIR(st.st_mode))
        return find_in_folder(path, files);
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    TESS_TRY(join(path, strlen(path), "", "", files->weights));
    TESS_TRY(join(path, folder, TESS_CONFIG_FILE, "", files->config));
    if (!exists(files->config))
        return tess__fail(TESS_EIO, "%s: there is no %s beside it", path, TESS_CONFIG_FILE);
    return TESS_OK;
}
