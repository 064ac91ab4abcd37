/* SPDX-License-Identifier: Apache-2.0 */
/* profile_source.c - what is profiled, and on which data: a checkpoint of a run, or any folder of a
 * Wan model.
 *
 * A run remembers its data: settings.json beside its checkpoints has the paths. A model alone does
 * not say what it was trained on: --data is needed, and the sides of the clips unless latents have
 * them.
 */
#include "cmd_profile.h"

#include <math.h>
#include <string.h>

/* A model without a checkpoint's state: pixels if its channels are those of packed pixels. */
static void guess(profile_point *p, const tess_model_config *config)
{
    static const tess_train_opts defaults = TESS_TRAIN_OPTS_INIT;
    p->model_alone = 1;
    p->trained = (tess_checkpoint){.shift = defaults.shift, .guidance = defaults.guidance};
    p->trained.attention = (tess_attention_opts)TESS_ATTENTION_OPTS_INIT;
    p->trained.data =
        (tess_data_info){.pack = 1, .text_len = config->text_len, .text_dim = config->text_dim};
    for (int pack = 1; pack <= 16; pack++)
        if (3 * pack * pack == config->in_channels)
            p->trained.data.pack = pack;
}

tess_status profile_find(profile_job *j, const char *path, profile_point *p,
                         tess_model_config *config)
{
    tess_ctx *ctx = j->c->ctx;
    p->path = path;
    if (tess_checkpoint_find(ctx, path, p->folder, sizeof p->folder) == TESS_OK) {
        TRY(tess_checkpoint_read(ctx, p->folder, &p->trained));
        const int ema = j->v->ema && p->trained.ema;
        snprintf(p->weights, sizeof p->weights, "%.4090s%s", p->folder, ema ? "/ema" : "");
        return tess_model_config_read(ctx, p->weights, config);
    }
    char why[CLI_SENTENCE_MAX];
    snprintf(why, sizeof why, "%s", tess_last_error());
    snprintf(p->folder, sizeof p->folder, "%.4090s", path);
    snprintf(p->weights, sizeof p->weights, "%.4090s", path);
    if (tess_model_config_read(ctx, path, config) != TESS_OK)
        return out_fail(j->c, TESS_EIO, "%.900s, nor a config.json of a model", why);
    guess(p, config);
    return TESS_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* The settings of the run that a checkpoint belongs to: its folder's folder; NULL: none. */
static json_t *read_settings(const profile_point *p)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/../../settings.json", p->folder);
    return json_load_file(path, 0, NULL);
}

static const char *text_of(const json_t *settings, const char *key)
{
    return json_string_value(json_object_get(settings, key));
}

static tess_status fill(profile_job *j, const profile_point *p, const json_t *settings,
                        tess_data_opts *o)
{
    const tess_data_info *d = &p->trained.data;
    const char *kind = p->trained.kind;
    const int files = strcmp(kind, "clips") == 0 || strcmp(kind, "latents") == 0;
    o->source = j->v->data                  ? j->v->data
                : text_of(settings, "data") ? text_of(settings, "data")
                : files || p->model_alone   ? NULL
                                            : kind;
    if (!o->source)
        return out_usage(j->c, "--data is missing, %s",
                         p->model_alone
                             ? "a model alone does not say what it was trained on"
                             : "the run of this checkpoint has no settings.json that names it");
    o->text = j->v->text ? j->v->text : text_of(settings, "text");
    o->fps = json_number_value(json_object_get(settings, "fps"));
    if (strcmp(kind, "latents") != 0) { /* which have a shape of their own */
        o->frames = j->v->frames ? (int)j->v->frames : d->frames;
        o->height = j->v->height ? (int)j->v->height : d->height * d->pack;
        o->width = j->v->width ? (int)j->v->width : d->width * d->pack;
    }
    o->pack = d->pack;
    o->text_len = p->trained.external || o->text ? 0 : d->text_len;
    o->text_dim = p->trained.external || o->text ? 0 : d->text_dim;
    o->seed = (uint64_t)j->c->common->seed;
    return TESS_OK;
}

tess_status profile_data(profile_job *j)
{
    const profile_point *p = &j->points[j->n_points - 1];
    json_t *settings = p->model_alone ? NULL : read_settings(p);
    tess_data_opts opts = TESS_DATA_OPTS_INIT;
    tess_status status = fill(j, p, settings, &opts);
    if (status == TESS_OK)
        status = tess_data_open(j->c->ctx, &opts, &j->data);
    json_decref(settings);
    TRY(status);
    TRY(tess_data_query(j->data, &j->info));
    if (j->info.channels != j->config.in_channels || j->info.text_dim != j->config.text_dim)
        return out_fail(j->c, TESS_EINVAL,
                        "the data have %d channels and prompts of %d numbers, the model takes %d "
                        "and %d",
                        j->info.channels, j->info.text_dim, j->config.in_channels,
                        j->config.text_dim);
    return TESS_OK;
}
