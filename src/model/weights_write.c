/* SPDX-License-Identifier: Apache-2.0 */
/* weights_write.c - a model as the folder that diffusers opens.
 *
 * config.json and diffusion_pytorch_model.safetensors appear together (base/out_folder.c). All
 * numbers are F32; the metadata says "format": "pt", without which diffusers refuses the file.
 */
#include "config.h"
#include "tessera/file.h"
#include "weights.h"

#include "file/out.h"

#include <string.h>
#include <sys/stat.h>

static tess_status make_tensors(const tess_model *model, const float *values,
                                tess_weight_names names, tess__arena *arena, tess_tensor **out)
{
    const int n = model->params.params;
    tess_tensor *tensors = TESS_TAKE(arena, (size_t)n * sizeof *tensors);
    for (int i = 0; i < n; i++) {
        tess_param p;
        char name[TESS_WEIGHT_NAME_BYTES];
        TESS_TRY(tess_model_param(model, i, &p));
        tess__weight_name(names, p.name, name);
        tensors[i] = (tess_tensor){.name = TESS_TAKE_STRING(arena, name, strlen(name)),
                                   .dtype = TESS_DTYPE_F32,
                                   .rank = p.rank,
                                   .data = values + (p.value - model->values)};
        memcpy(tensors[i].shape, p.shape, sizeof p.shape);
    }
    *out = tensors;
    return TESS_OK;
}

tess_status tess__weights_write(const tess_model *model, const float *values, const char *path,
                                tess_weight_names names)
{
    static const tess_meta meta = {"format", "pt"};
    tess__arena arena = {.ctx = model->ctx};
    tess_tensor *tensors = NULL;
    tess_status status = make_tensors(model, values, names, &arena, &tensors);
    if (status == TESS_OK)
        status = tess_file_write(model->ctx, path, tensors, model->params.params,
                                 &(tess_file_opts){.metas = &meta, .n_metas = 1});
    tess__arena_free(&arena);
    return status;
}

/* An index that lies there already leads every reader to its own shards. */
static tess_status check_index(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", dir, TESS_WEIGHTS_INDEX) < PATH_MAX &&
        stat(path, &st) == 0)
        return tess__fail(TESS_EINVAL,
                          "tess_model_save: %s would be read in place of what is written; remove "
                          "it or choose another folder",
                          path);
    return TESS_OK;
}

static tess_status fill_folder(const tess_model *model, tess__folder *folder,
                               tess_weight_names names)
{
    const char *path;
    TESS_TRY(tess__folder_file(folder, TESS_CONFIG_FILE, &path));
    TESS_TRY(tess__config_write(model->ctx, path, &model->config, names));
    TESS_TRY(tess__folder_file(folder, TESS_WEIGHTS_FILE, &path));
    return tess__weights_write(model, model->values, path, names);
}

tess_status tess_model_save(const tess_model *model, const char *dir, tess_weight_names names)
{
    TESS_REQUIRE(model, dir);
    TESS_TRY(tess__check_flag(__func__, "names", (int)names));
    if (names == TESS_WEIGHTS_DIFFUSERS && !model->config.qk_norm)
        tess__log(model->ctx, TESS_LOG_WARN,
                  "%s: diffusers has no models without norms of q and k, and will not compute the "
                  "same",
                  dir);
    TESS_TRY(check_index(dir));
    tess__folder *folder;
    TESS_TRY(tess__folder_open(model->ctx, dir, &folder));
    const tess_status status = fill_folder(model, folder, names);
    if (status != TESS_OK) {
        tess__folder_abort(folder);
        return status;
    }
    return tess__folder_commit(folder);
}
