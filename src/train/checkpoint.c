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
 * All of it is written to a hidden folder beside the destination, each file synced, and
 * renamed at the end. Values are F32 as in memory, so that nothing is lost.
 *
 * Of many ranks rank 0 writes, and the other ranks send it the state they own: the average and the
 * first moments into the model's gradients, which are unused between steps. So the files do not
 * depend on the number of ranks, and every rank reads the state it owns.
 */
#include "train_internal.h"

#include "model/weights.h"
#include "options/option_check.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char optimiser_file[] = "optimiser.safetensors";

/* ---- saving ---------------------------------------------------------------------------------- */

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
        .checkpoint = {.step = t->step,
                       .data = t->info,
                       .shift = t->opts.shift,
                       .guidance = t->opts.guidance,
                       .ema = t->opts.ema > 0,
                       .external = tess_data_prompt(t->data, "", t->text) == TESS_ENOTSUP},
        .batches = t->batches,
        .batch = t->opts.batch,
        .seed = (int64_t)t->opts.seed,
        .optim = t->opts.optim,
        .loss_mean = t->loss_mean,
        .val_loss = t->val_loss,
    };
    snprintf(state->checkpoint.kind, sizeof state->checkpoint.kind, "%s", t->info.kind);
    memcpy(state->val_buckets, t->val_buckets, sizeof state->val_buckets);
}

static tess_status fill_weights(const tess_train *t, const char *folder, const float *average)
{
    char path[PATH_MAX];
    TESS_TRY(save_weights(t, folder, t->model->values));
    TESS_TRY(tess__path(path, folder, "ema"));
    return average ? save_weights(t, path, average) : TESS_OK;
}

static tess_status fill_rest(const tess_train *t, const char *folder, const tess__moments *m)
{
    char path[PATH_MAX];
    tess__state state;
    TESS_TRY(tess__path(path, folder, optimiser_file));
    TESS_TRY(tess__moments_write(t, m, path));
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

/* A checkpoint that is being written, on the rank that writes it. */
typedef struct {
    const char *dir;
    char parent[PATH_MAX], temp[PATH_MAX];
    float *second; /* of all slots, with many ranks */
} saving;

static tess_status begin_saving(const tess_train *t, const char *dir, saving *s)
{
    s->dir = dir;
    TESS_TRY(split(dir, s->parent, s->temp));
    if (access(dir, F_OK) == 0)
        return tess__fail(TESS_EINVAL, "tess_train_save: %s exists, must be a new folder", dir);
    tess__remove_folder(s->temp);
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    s->second = TESS_ALLOC(t->ctx, (size_t)t->owners.total_second * sizeof *s->second);
    return TESS_OK;
}

/* The remaining files, and the name of the folder. */
static tess_status finish_saving(const tess_train *t, const saving *s)
{
    const tess__moments all =
        tess__pg_many(&t->pg)
            ? (tess__moments){t->owners.slots, t->owners.n_slots, t->model->gradients, s->second}
            : tess__moments_own(t);
    TESS_TRY(fill_rest(t, s->temp, &all));
    if (rename(s->temp, s->dir) != 0)
        return tess__fail(TESS_EIO, "%s: cannot create: %m", s->dir);
    return tess__sync_folder(s->parent);
}

/* Gathers one kind of state in `to` of rank 0; one rank alone has it in place. */
static tess_status gather(const tess_train *t, tess__state_kind kind, float *to)
{
    return tess__pg_many(&t->pg) ? tess__state_gather(&t->pg, &t->owners, &t->optim, kind, to)
                                 : TESS_OK;
}

/* Collective: rank 0 writes, and after each file all ranks agree on the status. */
static tess_status save(tess_train *t, const char *dir, saving *s)
{
    const int writes = t->pg.rank == 0, averages = t->opts.ema > 0;
    float *buffer = t->model->gradients;
    const float *average = tess__pg_many(&t->pg) ? buffer : t->optim.ema;
    tess_status status = writes ? begin_saving(t, dir, s) : TESS_OK;
    TESS_TRY(tess__pg_agree(&t->pg, status));
    TESS_TRY(tess__train_same(t));
    if (averages)
        TESS_TRY(gather(t, TESS__STATE_EMA, buffer));
    if (writes)
        status = fill_weights(t, s->temp, averages ? average : NULL);
    TESS_TRY(tess__pg_agree(&t->pg, status));
    TESS_TRY(gather(t, TESS__STATE_FIRST, buffer));
    TESS_TRY(gather(t, TESS__STATE_SECOND, s->second));
    if (writes)
        status = finish_saving(t, s);
    return tess__pg_agree(&t->pg, status);
}

tess_status tess__checkpoint_write(tess_train *train, const char *dir)
{
    saving s = {.dir = NULL};
    const tess_status status = save(train, dir, &s);
    tess__free(train->ctx, s.second);
    if (status != TESS_OK && s.temp[0])
        tess__remove_folder(s.temp);
    return status;
}

tess_status tess__train_save(tess_train *train, const char *dir)
{
    TESS_TRY(tess__checkpoint_write(train, dir));
    train->saved = train->step;
    snprintf(train->checkpoint, sizeof train->checkpoint, "%s", dir);
    return TESS_OK;
}

tess_status tess_train_save(tess_train *train, const char *dir)
{
    TESS_REQUIRE(train, dir);
    return tess__pg_propagate(&train->pg, tess__train_save(train, dir));
}

/* ---- resuming -------------------------------------------------------------------------------- */

static tess_status read_weights(const tess_train *t, const char *folder, float *values)
{
    tess__model_files files;
    TESS_TRY(tess__model_find(folder, &files));
    return tess__weights_read(t->model, files.weights, values);
}

static tess_status check_state(const tess_train *t, const char *path, const tess__state *state)
{
    const char *const *names = tess__option_words(TESS_OPTIONS_TRAIN, "optim");
    if ((tess_optim)state->optim != t->opts.optim)
        return tess__invalid(path, "was trained with %s, must be resumed with it, not %s",
                             names[state->optim], names[t->opts.optim]);
    if (t->opts.ema > 0 && !state->checkpoint.ema)
        return tess__invalid(path, "has no averaged weights, must be resumed without an average");
    return TESS_OK;
}

/* The averages of owned parameters, read through the gradient buffer. */
static tess_status read_average(const tess_train *t, const char *folder)
{
    const float *all = t->model->gradients;
    TESS_TRY(read_weights(t, folder, t->model->gradients));
    for (int i = 0; i < t->optim.n_slots; i++) {
        const tess__optim_slot *slot = &t->optim.slots[i];
        memcpy(t->optim.ema + slot->first, all + slot->at, (size_t)slot->count * sizeof *all);
    }
    return TESS_OK;
}

static tess_status read_control(const tess_train *t, const char *dir, int branch)
{
    if (!t->control)
        return TESS_OK;
    return branch ? tess__control_branch(t->control, dir) : tess__control_resume(t->control, dir);
}

static tess_status read_checkpoint(tess_train *train, const char *dir, int branch)
{
    char path[PATH_MAX];
    tess__state state;
    TESS_TRY(tess__path(path, dir, "state.json"));
    TESS_TRY(tess__state_read(train->ctx, path, NULL, 0, &state));
    TESS_TRY(check_state(train, dir, &state));
    TESS_TRY(read_weights(train, dir, train->model->values));
    TESS_TRY(tess__path(path, dir, "ema"));
    if (train->opts.ema > 0)
        TESS_TRY(read_average(train, path));
    TESS_TRY(read_control(train, dir, branch));
    TESS_TRY(tess__path(path, dir, optimiser_file));
    TESS_TRY(tess__moments_read(train, path));

    tess__loader_stop(train->loader);
    train->loader = NULL;
    train->step = state.checkpoint.step;
    /* Batches of another size begin after the last clip of the run. */
    train->batches = (state.batches * state.batch + train->opts.batch - 1) / train->opts.batch;
    train->loss_mean = train->loss_level = state.loss_mean;
    train->val_loss = state.val_loss;
    memcpy(train->val_buckets, state.val_buckets, sizeof train->val_buckets);
    train->divergence = (tess__divergence){.good = train->step, .validated = train->step};
    train->opened = 0;
    return TESS_OK;
}

/* Every rank reads, and all have read the same; the pass is made for the cubes of the checkpoint.
 */
tess_status tess__checkpoint_load(tess_train *t, const char *dir, int branch)
{
    TESS_TRY(tess__pg_agree(&t->pg, read_checkpoint(t, dir, branch)));
    TESS_TRY(tess__train_same(t));
    if (!t->control)
        return TESS_OK;
    if (t->mixture) { /* clips make their passes */
        tess__mixture_restart(t, 1);
        return TESS_OK;
    }
    tess_pass_destroy(t->pass);
    t->pass = NULL;
    return tess__pg_agree(&t->pg, tess__train_pass(t));
}

tess_status tess_train_resume(tess_train *train, const char *dir)
{
    TESS_REQUIRE(train, dir);
    TESS_TRY(tess__pg_propagate(&train->pg, tess__checkpoint_load(train, dir, 0)));
    snprintf(train->checkpoint, sizeof train->checkpoint, "%s", dir);
    train->saved = train->step;
    train->resumed = 1;
    return tess__pg_agree(&train->pg, train->pg.rank == 0 ? tess__run_rotate(train) : TESS_OK);
}

tess_status tess_train_branch(tess_train *train, const char *dir)
{
    TESS_REQUIRE(train, dir);
    TESS_TRY(tess__pg_propagate(&train->pg, tess__checkpoint_load(train, dir, 1)));
    train->resumed = 0;
    return TESS_OK;
}
