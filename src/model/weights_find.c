/* SPDX-License-Identifier: Apache-2.0 */
/* weights_find.c - which files a path to a model means.
 *
 *   a folder      its config.json, and its weights as file/model_folder.c finds them
 *   a pipeline    a folder without config.json whose folder transformer/ has one: that folder
 *   a file        these weights, or the shards of this index, and the config.json beside it
 */
#include "config.h"
#include "file/file_internal.h"
#include "weights.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* name in the folder of a file, or in the folder itself. */
static tess_status join(const char *path, int is_folder, const char *name, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    const size_t folder = is_folder ? strlen(path) : slash ? (size_t)(slash - path) + 1 : 0;
    if (snprintf(out, PATH_MAX, "%.*s%s%s", (int)folder, path, is_folder ? "/" : "", name) <
        PATH_MAX)
        return TESS_OK;
    errno = ENAMETOOLONG;
    return tess__fail(TESS_EIO, "%.200s: cannot open: %m", path);
}

static tess_status find_beside(const char *path, char config[PATH_MAX])
{
    struct stat st;
    TESS_TRY(join(path, 0, TESS_CONFIG_FILE, config));
    if (stat(config, &st) != 0)
        return tess__fail(TESS_EIO, "%s: there is no %s beside it", path, TESS_CONFIG_FILE);
    return TESS_OK;
}

tess_status tess__model_find(const char *path, tess__model_files *files)
{
    char folder[PATH_MAX];
    struct stat st;
    if (stat(path, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    if (!S_ISDIR(st.st_mode)) {
        if (snprintf(files->weights, PATH_MAX, "%s", path) >= PATH_MAX)
            return join(path, 1, "", files->weights);
        return find_beside(path, files->config);
    }
    TESS_TRY(tess__model_part(path, TESS_CONFIG_FILE, folder));
    TESS_TRY(join(folder, 1, TESS_CONFIG_FILE, files->config));
    return tess__model_folder(folder, files->weights);
}

/* Files of weights and indices have the word in their name; config.json under any name has not. */
static int is_weights(const char *path)
{
    static const char end[] = ".safetensors";
    const char *slash = strrchr(path, '/'), *at = strstr(slash ? slash : path, end);
    return at && (at[sizeof end - 1] == 0 || at[sizeof end - 1] == '.');
}

tess_status tess__config_find(const char *path, char config[PATH_MAX])
{
    char folder[PATH_MAX];
    if (tess__is_folder(path)) {
        if (tess__model_part(path, TESS_CONFIG_FILE, folder) == TESS_OK)
            return join(folder, 1, TESS_CONFIG_FILE, config);
        return join(path, 1, TESS_CONFIG_FILE, config); /* its reader says that there is none */
    }
    if (is_weights(path))
        return find_beside(path, config);
    return tess__config_path(path, config);
}
