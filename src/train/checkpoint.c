/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - everything a run needs to go on, in a folder that appears when it is complete.
 *
 *   config.json  diffusion_pytorch_model.safetensors     the weights, as diffusers reads them
 *   ema/         the same with the averaged weights
 *   optimiser.safetensors     "first.NAME" of each parameter, "second.NAME" of AdamW's
 *   decisions.json, predictor.safetensors     of sparse attention (control_file.c)
 *   settings.json             the text of the options
 *   state.json                steps done, position in the data, what sampling needs; written last
 *
 * All of it is written to a hidden folder beside the destination, each file brought to disk, and
 * renamed at the end. Numbers are F32 as they are in memory, so that nothing is lost on the way.
 */
#include "train.h"

#include "model/weights.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char optimiser_file[] = "optimiser.safetensors";

/* ---- the optimiser's tensors ------------------------------------------------------------------
 */

/* One tensor for the first moment of each parameter, and one for each second there is; then those
 * of the predictors, if wanted. */
static tess_status list_moments(const tess_train *t, int predictors, tess__arena *arena,
                                tess_tensor **tensors, int *count)
{
    const int n = t->optim.n_slots;
    const int more = predictors ? t->control->learner.info.params : 0;
    tess_tensor *list = tess__arena_take(arena, (size_t)(n + more) * 2 * sizeof *list);
    if (!list)
        return TESS_ENOMEM;
    *count = 0;
    for (int i = 0; i < 2 * n; i++) {
        const tess__optim_slot *slot = &t->optim.slots[i % n];
        const int second = i >= n;
        if (second && slot->rows != 0)
            continue;
        tess_param p;
        char name[256];
        TESS_TRY(tess_model_param(t->model, i % n, &p));
        const int length =
            snprintf(name, sizeof name, "%s.%s", second ? "second" : "first", p.name);
        tess_tensor *tensor = &list[(*count)++];
        *tensor = (tess_tensor){.name = tess__arena_string(arena, name, (size_t)length),
                                .dtype = TESS_DTYPE_F32,
                                .rank = p.rank,
                                .data = second ? t->optim.second + slot->second
                                               : t->optim.first + slot->at};
        if (!tensor->name)
            return TESS_ENOMEM;
        memcpy(tensor->shape, p.shape, (size_t)p.rank * sizeof *p.shape);
    }
    *tensors = list;
    return more ? tess__learner_tensors(&t->control->learner, arena, list, count) : TESS_OK;
}

static size_t bytes_of(const tess_tensor *tensor)
{
    size_t n = sizeof(float);
    for (int d = 0; d < tensor->rank; d++)
        n *= (size_t)tensor->shape[d];
    return n;
}

static tess_status save_moments(const tess_train *t, const char *path)
{
    tess__arena arena = {.ctx = t->ctx};
    tess_tensor *tensors = NULL;
    int n = 0;
    const int predictors = t->control && t->control->predictor;
    tess_status status = list_moments(t, predictors, &arena, &tensors, &n);
    if (status == TESS_OK)
        status = tess_file_write(t->ctx, path, tensors, n, NULL);
    tess__arena_free(&arena);
    return status;
}

/* Every tensor of the list is read over the memory it describes. */
static tess_status read_moments(const tess_train *t, const char *path)
{
    tess__arena arena = {.ctx = t->ctx};
    tess_tensor *tensors = NULL;
    tess_file *file = NULL;
    int n = 0;
    const int predictors = t->control && t->control->loaded;
    tess_status status = list_moments(t, predictors, &arena, &tensors, &n);
    if (status == TESS_OK)
        status = tess_file_open(t->ctx, path, &file);
    for (int i = 0; i < n && status == TESS_OK; i++)
        status = tess_file_read(file, tensors[i].name, TESS_DTYPE_F32, (void *)tensors[i].data,
                                bytes_of(&tensors[i]));
    tess_file_close(file);
    tess__arena_free(&arena);
    return status;
}

/* ---- saving -----------------------------------------------------------------------------------
 */

static tess_status save_weights(const tess_train *t, const char *folder, const float *values)
{
    char path[PATH_MAX];
    TESS_TRY(tess__make_folder(folder));
    TESS_TRY(tess__path(path, folder, TESS_CONFIG_FILE));
    TESS_TRY(tess_model_config_write(t->ctx, path, &t->model->config));
    TESS_TRY(tess__path(path, folder, TESS_WEIGHTS_FILE));
    return tess__weights_write(t->model, values, path, TESS_WEIGHTS_DIFFUSERS);
}

static void fill_state(const tess_train *t, tess__state *state)
{
    *state = (tess__state){
        .told = {.step = t->step,
                 .data = t->info,
                 .shift = t->opts.shift,
                 .guidance = t->opts.guidance,
                 .ema = t->optim.ema != NULL,
                 .external = tess_data_prompt(t->data, "", t->text) == TESS_ENOTSUP},
        .batches = t->batches,
        .batch = t->opts.batch,
        .seed = (int64_t)t->opts.seed,
        .optim = t->opts.optim,
        .loss_mean = t->loss_mean,
        .val_loss = t->val_loss,
    };
    snprintf(state->told.kind, sizeof state->told.kind, "%s", t->info.kind);
    memcpy(state->val_buckets, t->val_buckets, sizeof state->val_buckets);
}

static tess_status fill_folder(const tess_train *t, const char *folder)
{
    char path[PATH_MAX];
    tess__state state;
    TESS_TRY(save_weights(t, folder, t->model->values));
    TESS_TRY(tess__path(path, folder, "ema"));
    if (t->optim.ema)
        TESS_TRY(save_weights(t, path, t->optim.ema));
    TESS_TRY(tess__path(path, folder, optimiser_file));
    TESS_TRY(save_moments(t, path));
    TESS_TRY(tess__settings_write(t, folder));
    if (t->control)
        TESS_TRY(tess__control_save(t->control, folder));
    fill_state(t, &state);
    TESS_TRY(tess__path(path, folder, "state.json"));
    TESS_TRY(tess__state_write(t->ctx, path, &state));
    return tess__sync_folder(folder);
}

/* parent = the folder that dir lies in; temp = a hidden name in it. */
static tess_status split(const char *dir, char parent[PATH_MAX], char temp[PATH_MAX])
{
    size_t length = strlen(dir), begin;
    while (length > 1 && dir[length - 1] == '/')
        length--;
    for (begin = length; begin > 0 && dir[begin - 1] != '/';)
        begin--;
    if (length == 0 || length + 16 >= PATH_MAX) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return tess__fail(TESS_EIO, "%.200s: cannot create: %m", dir);
    }
    snprintf(parent, PATH_MAX, "%.*s", begin ? (int)begin : 1, begin ? dir : ".");
    snprintf(temp, PATH_MAX, "%.*s.%.*s.tmp", (int)begin, dir, (int)(length - begin), dir + begin);
    return TESS_OK;
}

tess_status tess_train_save(tess_train *train, const char *dir)
{
    if (!train || !dir)
        return tess__fail(TESS_EINVAL, "tess_train_save: %s is NULL", !train ? "train" : "dir");
    char parent[PATH_MAX], temp[PATH_MAX];
    TESS_TRY(split(dir, parent, temp));
    if (access(dir, F_OK) == 0)
        return tess__fail(TESS_EINVAL, "tess_train_save: %s exists, must be a new folder", dir);
    tess__remove_folder(temp);
    tess_status status = fill_folder(train, temp);
    if (status == TESS_OK && rename(temp, dir) != 0)
        status = tess__fail(TESS_EIO, "%s: cannot create: %m", dir);
    if (status == TESS_OK)
        status = tess__sync_folder(parent);
    if (status != TESS_OK) {
        tess__remove_folder(temp);
        return status;
    }
    train->saved = train->step;
    snprintf(train->checkpoint, sizeof train->checkpoint, "%s", dir);
    return TESS_OK;
}

/* ---- resuming ---------------------------------------------------------------------------------
 */

static tess_status read_weights(const tess_train *t, const char *folder, float *values)
{
    tess__model_files files;
    TESS_TRY(tess__model_find(folder, &files));
    return tess__weights_read(t->model, files.weights, values);
}

static tess_status check_state(const tess_train *t, const char *path, const tess__state *state)
{
    static const char *const names[] = {"muon", "adamw"};
    if ((tess_optim)state->optim != t->opts.optim)
        return tess__fail(TESS_EINVAL, "%s: was trained with %s, must be resumed with it, not %s",
                          path, names[state->optim], names[t->opts.optim]);
    if (t->optim.ema && !state->told.ema)
        return tess__fail(TESS_EINVAL,
                          "%s: has no averaged weights, must be resumed without an average", path);
    return TESS_OK;
}

/* The pass lies in the cubes of the checkpoint afterwards. */
static tess_status read_control(tess_train *t, const char *dir, int branch)
{
    if (!t->control)
        return TESS_OK;
    TESS_TRY(branch ? tess__control_branch(t->control, dir)
                    : tess__control_resume(t->control, dir));
    tess_pass_destroy(t->pass);
    t->pass = NULL;
    return tess__train_pass(t);
}

static tess_status read_checkpoint(tess_train *train, const char *dir, int branch)
{
    char path[PATH_MAX];
    tess__state state;
    TESS_TRY(tess__path(path, dir, "state.json"));
    TESS_TRY(tess__state_read(train->ctx, path, &state));
    TESS_TRY(check_state(train, dir, &state));
    TESS_TRY(read_weights(train, dir, train->model->values));
    TESS_TRY(tess__path(path, dir, "ema"));
    if (train->optim.ema)
        TESS_TRY(read_weights(train, path, train->optim.ema));
    TESS_TRY(read_control(train, dir, branch));
    TESS_TRY(tess__path(path, dir, optimiser_file));
    TESS_TRY(read_moments(train, path));

    tess__loader_stop(train->loader);
    train->loader = NULL;
    train->step = state.told.step;
    /* Batches of another size begin behind the last clip that was seen. */
    train->batches = (state.batches * state.batch + train->opts.batch - 1) / train->opts.batch;
    train->loss_mean = state.loss_mean;
    train->val_loss = state.val_loss;
    memcpy(train->val_buckets, state.val_buckets, sizeof train->val_buckets);
    train->opened = 0;
    return TESS_OK;
}

tess_status tess_train_resume(tess_train *train, const char *dir)
{
    if (!train || !dir)
        return tess__fail(TESS_EINVAL, "tess_train_resume: %s is NULL", !train ? "train" : "dir");
    TESS_TRY(read_checkpoint(train, dir, 0));
    snprintf(train->checkpoint, sizeof train->checkpoint, "%s", dir);
    train->saved = train->step;
    train->resumed = 1;
    return TESS_OK;
}

tess_status tess_train_branch(tess_train *train, const char *dir)
{
    if (!train || !dir)
        return tess__fail(TESS_EINVAL, "tess_train_branch: %s is NULL", !train ? "train" : "dir");
    TESS_TRY(read_checkpoint(train, dir, 1));
    train->resumed = 0;
    return TESS_OK;
}
