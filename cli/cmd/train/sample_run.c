/* SPDX-License-Identifier: Apache-2.0 */
/* sample_run.c - samples clips from a checkpoint. */
#include "clip_side.h"
#include "cmd_sample.h"

#include "tessera/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int sample_ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* A model without a checkpoint's state: pixels if its channels are those of packed pixels. */
static void guess(sample_job *j)
{
    tess_data_info *d = &j->trained.data;
    *d = (tess_data_info){.channels = j->config.in_channels,
                          .pack = 1,
                          .text_len = j->config.text_len,
                          .text_dim = j->config.text_dim,
                          .fps = 8};
    for (int p = 1; p <= 16; p++)
        if (3 * p * p == d->channels)
            d->pack = p;
    j->trained.shift = j->v->opts.shift;
    j->trained.guidance = j->v->opts.guidance;
    j->trained.attention = (tess_attention_opts)TESS_ATTENTION_OPTS_INIT;
}

static tess_status find(sample_job *j)
{
    tess_ctx *ctx = j->c->ctx;
    const char *given = j->v->checkpoint;
    const int known = tess_checkpoint_find(ctx, given, j->folder, SAMPLE_PATH) == TESS_OK;
    if (!known)
        snprintf(j->folder, SAMPLE_PATH, "%s", given);
    else
        TRY(tess_checkpoint_read(ctx, j->folder, &j->trained));
    memcpy(j->checkpoint, j->folder, sizeof j->checkpoint);
    j->known = known;
    if (known && j->v->ema && j->trained.ema && strlen(j->folder) + 5 < SAMPLE_PATH)
        strcat(j->folder, "/ema");
    TRY(tess_model_config_read(ctx, j->folder, &j->config));
    if (!known)
        guess(j);
    return TESS_OK;
}

/* A side in pixels to that of the latent. */
static tess_status side(const sample_job *j, const char *name, int64_t given, int patch,
                        int *latent)
{
    const int pack = j->trained.data.pack;
    if (given == 0 && *latent == 0)
        return out_usage(j->c, "--%s is missing, %s does not say it", name, j->v->checkpoint);
    TRY(clip_side_check(j->c, name, given, pack, patch));
    if (given)
        *latent = (int)(given / pack);
    return TESS_OK;
}

static tess_status choose_shape(sample_job *j)
{
    tess_data_info *d = &j->trained.data;
    if (j->v->frames)
        d->frames = (int)j->v->frames;
    if (d->frames == 0)
        return out_usage(j->c, "--frames is missing, %s does not say it", j->v->checkpoint);
    if (j->v->frames)
        TRY(clip_side_check(j->c, "frames", j->v->frames, 0, j->config.patch[0]));
    TRY(side(j, "height", j->v->height, j->config.patch[1], &d->height));
    TRY(side(j, "width", j->v->width, j->config.patch[2], &d->width));
    if (!isnan(j->v->fps))
        d->fps = j->v->fps;
    if (!sample_ends_with(j->v->output, ".npy") && d->channels != 3 * d->pack * d->pack)
        return out_fail(j->c, TESS_ENOTSUP,
                        "the model makes latents of %d channels, which only a .npy can hold",
                        d->channels);
    return TESS_OK;
}

tess_status sample_no_memory(const sample_job *j)
{
    return out_fail(j->c, TESS_ENOMEM, "no memory for %lld clips", (long long)j->clips);
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* (rows, text_dim), or one of a batch of 1, into text, whose other rows are zeros already. */
static tess_status read_rows(const sample_job *j, tess_file *file, float *text)
{
    const tess_data_info *d = &j->trained.data;
    tess_tensor t;
    TRY(tess_file_tensor(file, NULL, &t));
    const int64_t *shape = t.shape + (t.rank == 3 && t.shape[0] == 1);
    const int rank = t.rank - (shape != t.shape);
    if (rank != 2 || shape[0] < 1 || shape[1] != d->text_dim)
        return out_fail(
            j->c, TESS_EFORMAT,
            "%s: the embedding of a prompt must be (rows, %d), as the model was trained",
            j->v->text, d->text_dim);
    if (shape[0] > d->text_len)
        return out_fail(j->c, TESS_EFORMAT,
                        "%s: the embedding has %lld rows, must have at most %d, as the model was "
                        "trained; fewer are padded with zeros",
                        j->v->text, (long long)shape[0], d->text_len);
    return tess_file_read(file, NULL, TESS_DTYPE_F32, text,
                          (size_t)(shape[0] * shape[1]) * sizeof *text);
}

static tess_status read_text(const sample_job *j, float *text)
{
    tess_file *file = NULL;
    TRY(tess_file_open(j->c->ctx, j->v->text, &file));
    const tess_status status = read_rows(j, file, text);
    tess_file_close(file);
    return status;
}

static tess_status make_text(sample_job *j)
{
    const sample_values *v = j->v;
    const tess_data_info *d = &j->trained.data;
    if (j->prompts.n > 0 && (v->text || j->trained.external))
        return out_usage(j->c, "a prompt is given, but %s",
                         v->text ? "--text is the prompt"
                                 : "the model knows embeddings made elsewhere: give --text");
    j->text = calloc((size_t)(j->clips * j->text_size), sizeof *j->text);
    if (!j->text)
        return sample_no_memory(j);
    for (int64_t i = 0; i < j->clips; i++) {
        float *text = j->text + i * j->text_size;
        if (v->text)
            TRY(read_text(j, text));
        else
            TRY(tess_text_vectors(sample_prompt_of(j, i), d->text_len, d->text_dim, text));
    }
    return TESS_OK;
}

static tess_status run_job(sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    TRY(find(j));
    TRY(choose_shape(j));
    TRY(sample_prompts(j));
    j->clips = j->v->count * (j->prompts.n ? j->prompts.n : 1);
    j->size = (int64_t)d->channels * d->frames * d->height * d->width;
    j->text_size = (int64_t)d->text_len * d->text_dim;
    TRY(make_text(j));
    TRY(tess_model_load(j->c->ctx, j->folder, NULL, &j->model));
    if (j->c->rank == 0)
        TRY(sample_folder(j));
    TRY(sample_all(j));
    if (j->c->rank == 0)
        TRY(sample_write(j));
    progress_clear(j->c);
    return sample_report(j);
}

static tess_status check_usage(cli *c, const sample_values *v)
{
    static const char *const ends[] = {".mp4", ".gif", ".y4m", ".png", ".npy", "/"};
    if (!v->output)
        return out_usage(c, "--output is missing, must be a file");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sample_ends_with(v->output, ends[i]))
            return TESS_OK;
    return out_usage(c, "--output is \"%.80s\", must end in .mp4, .gif, .y4m, .png, .npy or /",
                     v->output);
}

tess_status sample_run(cli *c, const sample_values *v)
{
    sample_job j = {.c = c, .v = v};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK)
        status = run_job(&j);
    tess_model_destroy(j.model);
    sample_prompts_free(&j);
    free(j.text);
    free(j.latents);
    free(j.dense);
    free(j.densities.sum);
    free(j.densities.last);
    free(j.pixels);
    free(j.list);
    return status;
}
