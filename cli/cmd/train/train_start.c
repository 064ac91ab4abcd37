/* SPDX-License-Identifier: Apache-2.0 */
/* train_start.c - start of a training run: its first weights, its data, its options. */
#include "clip_side.h"
#include "tessera/advanced/dataset.h"
#include "train_job.h"

#include <string.h>
#include <unistd.h>

/* ---- where it begins ------------------------------------------------------------------------- */

/* Whether a folder is that of a run, which may have ended before its first checkpoint. */
static int is_run(const char *folder)
{
    static const char *const parts[] = {"settings.json", "checkpoints"};
    char path[PATH_BYTES];
    for (int i = 0; i < 2; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, parts[i]) < sizeof path &&
            access(path, F_OK) == 0)
            return 1;
    return 0;
}

/* The newest checkpoint to resume from, if there is one. */
static tess_status find_resume(train_job *j)
{
    const tess_status status =
        tess_checkpoint_find(j->c->ctx, j->v->out, j->start, sizeof j->start);
    if (status == TESS_EIO) {
        char text[PATH_BYTES + 64];
        if (!is_run(j->v->out))
            return out_usage(
                j->c, "--out is %.200s, which holds no run: there is nothing to resume", j->v->out);
        snprintf(text, sizeof text, "%s, so the run begins at step 0", tess_last_error());
        if (!j->c->common->quiet)
            out_log(j->c, TESS_LOG_WARN, text);
        j->start[0] = 0;
        return TESS_OK;
    }
    j->resumed = status == TESS_OK;
    return status;
}

/* --init takes a run, a checkpoint, whose averaged weights are the better ones, or any model. */
static tess_status find_init(train_job *j)
{
    tess_checkpoint checkpoint;
    tess_ctx *ctx = j->c->ctx;
    if (tess_checkpoint_find(ctx, j->v->init, j->start, sizeof j->start) != TESS_OK) {
        snprintf(j->start, sizeof j->start, "%s", j->v->init);
        return TESS_OK;
    }
    TRY(tess_checkpoint_read(ctx, j->start, &checkpoint));
    if (checkpoint.ema && strlen(j->start) + 5 < sizeof j->start)
        strcat(j->start, "/ema");
    return TESS_OK;
}

static tess_status find_config(train_job *j)
{
    const train_values *v = j->v;
    if (v->resume)
        TRY(find_resume(j));
    if (!j->resumed && v->branch) {
        TRY(tess_checkpoint_find(j->c->ctx, v->branch, j->start, sizeof j->start));
        j->branched = 1;
    }
    if (!j->resumed && !j->branched && v->init)
        TRY(find_init(j));
    if (j->start[0])
        return tess_model_config_read(j->c->ctx, j->start, &j->config);
    if (v->config)
        return tess_model_config_read(j->c->ctx, v->config, &j->config);
    return tess_model_preset(v->preset, &j->config);
}

/* ---- data and options ------------------------------------------------------------------------ */

/* The pack that gives the model its channels; 1 if there is none, and for latents. */
static tess_status natural_pack(const train_job *j, int *pack)
{
    const char *kind;
    TRY(tess_data_kind(j->v->data.source, &kind));
    *pack = 1;
    for (int p = 1; p <= 16 && strcmp(kind, "latents") != 0; p++)
        if (3 * p * p == j->config.in_channels)
            *pack = p;
    return TESS_OK;
}

/* A model that was made before has its channels and the width of its text. */
static tess_status check_fit(const train_job *j)
{
    const tess_data_info *i = &j->info;
    const char *model = j->start[0] ? j->start : j->v->config;
    if (i->channels != j->config.in_channels)
        return out_fail(j->c, TESS_EINVAL,
                        "%.200s has %s of %d channels, the model of %.200s takes %d: %s, or a "
                        "--preset, which takes the channels of its data",
                        j->v->data.source,
                        strcmp(i->kind, "latents") == 0 ? "latents" : "packed pixels", i->channels,
                        model, j->config.in_channels,
                        strcmp(i->kind, "latents") == 0
                            ? "give --data of the model's own VAE"
                            : "give --data latents, which scripts/encode makes of clips");
    if (i->text_dim != j->config.text_dim)
        return out_fail(j->c, TESS_EINVAL,
                        "the embeddings of %.200s are %d wide, the model of %.200s takes %d: give "
                        "--text of the model's own text encoder, or a --preset",
                        j->v->data.text, i->text_dim, model, j->config.text_dim);
    return TESS_OK;
}

/* Latents have sides that no option changes. */
static tess_status check_patch(const train_job *j)
{
    const tess_data_info *i = &j->info;
    const int *patch = j->config.patch;
    if (strcmp(i->kind, "latents") != 0 ||
        (i->frames % patch[0] == 0 && i->height % patch[1] == 0 && i->width % patch[2] == 0))
        return TESS_OK;
    return out_fail(j->c, TESS_EINVAL,
                    "the latents of %.200s are %d x %d x %d (frames, height, width), must be "
                    "multiples of the patch, %d x %d x %d: encode clips of such a size, or give a "
                    "--config with another patch_size",
                    j->v->data.source, i->frames, i->height, i->width, patch[0], patch[1],
                    patch[2]);
}

/* Sides that were asked for; those of latents are not asked for. */
static tess_status check_sides(const train_job *j, int pack)
{
    const tess_data_opts *d = &j->v->data;
    const int *patch = j->config.patch;
    const struct {
        const char *name;
        int side, pack, patch;
    } sides[] = {{"frames", d->frames, 0, patch[0]},
                 {"height", d->height, pack, patch[1]},
                 {"width", d->width, pack, patch[2]}};
    for (int i = 0; i < 3; i++)
        if (train_settings_given(j->c, j->from, sides[i].name))
            TRY(clip_side_check(j->c, sides[i].name, sides[i].side, sides[i].pack, sides[i].patch));
    return TESS_OK;
}

/* The same of each of several sizes. */
static tess_status check_sizes(const train_job *j)
{
    const int *patch = j->config.patch;
    for (int i = 0; i < j->info.sizes && j->info.sizes > 1; i++) {
        tess_data_info b;
        TRY(tess_data_bucket(j->data, i, &b));
        if (b.frames % patch[0] || b.height % patch[1] || b.width % patch[2])
            return out_usage(j->c,
                             "--sizes has %dx%dx%d, must have multiples of %d frames and %d x %d "
                             "pixels (pack %d x patch)",
                             b.frames, b.height * b.pack, b.width * b.pack, patch[0],
                             patch[1] * b.pack, patch[2] * b.pack, b.pack);
    }
    return TESS_OK;
}

/* A preset is a size: its channels and text follow the data. */
static tess_status open_data(train_job *j)
{
    const train_values *v = j->v;
    const int adapts = !j->start[0] && !v->config;
    tess_data_opts opts = v->data;
    opts.pack = (int)v->pack;
    if (!v->pack)
        TRY(natural_pack(j, &opts.pack));
    opts.text_len = opts.text ? 0 : j->config.text_len;
    opts.text_dim = opts.text ? 0 : j->config.text_dim;
    opts.seed = (uint64_t)v->common.seed;
    TRY(check_sides(j, opts.pack));
    TRY(tess_data_open(j->c->ctx, &opts, &j->data));
    TRY(tess_data_query(j->data, &j->info));
    TRY(check_patch(j));
    TRY(check_sizes(j));
    if (!adapts)
        return check_fit(j);
    j->config.in_channels = j->config.out_channels = j->info.channels;
    j->config.text_dim = j->info.text_dim;
    j->config.text_len = j->info.text_len;
    return TESS_OK;
}

/* Each decision of the run as a line, above the one of progress. */
static void on_event(void *user, const char *sentence)
{
    const train_job *j = user;
    if (!j->c->common->quiet)
        out_log(j->c, TESS_LOG_INFO, sentence);
}

static void fill_options(train_job *j)
{
    const train_values *v = j->v;
    j->opts = v->opts;
    j->opts.seed = (uint64_t)v->common.seed;
    j->opts.folder = v->out;
    j->opts.settings = j->settings;
    j->opts.event = on_event;
    j->opts.event_user = j;
    j->opts.comm = j->trace ? j->trace : j->c->comm;
}

/* Everything that is read before the run is made. */
tess_status train_prepare(train_job *j)
{
    TRY(train_check_resume(j));
    TRY(find_config(j));
    train_switch_branched(j);
    j->latents = j->config.in_channels == WAN_CHANNELS;
    TRY(open_data(j));
    j->settings = train_record_text(j);
    if (!j->settings)
        return out_fail(j->c, TESS_ENOMEM, "no memory for the settings");
    TRY(train_trace_open(j->c, j->v, &j->trace));
    fill_options(j);
    TRY(train_attention(j->c, j->v, &j->opts.attention));
    train_foresee(j);
    if (j->opts.attention.kind == TESS_ATTENTION_SEARCH)
        on_event(j,
                 "every step has other clips, so that search finds its keys anew, as oracle does");
    return TESS_OK;
}
