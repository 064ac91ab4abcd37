/* SPDX-License-Identifier: Apache-2.0 */
/* sample_run.c - clips from a checkpoint: what to sample, batches of it, and the file. */
#include "sample.h"

#include "tessera/media.h"
#include "tessera/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

typedef struct {
    cli *c;
    const sample_values *v;
    char folder[PATH_BYTES]; /* of the weights */
    tess_checkpoint told;
    tess_model *model;
    tess_model_config config;
    int64_t clips, size, text_size;
    float *text, *latents; /* of all clips */
    uint8_t *pixels;
    tess_clip *list;
} job;

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* ---- what is asked for -------------------------------------------------------------------------
 */

/* A model without a checkpoint's state: pixels if its channels are those of packed pixels. */
static void guess(job *j)
{
    tess_data_info *d = &j->told.data;
    *d = (tess_data_info){.channels = j->config.in_channels,
                          .pack = 1,
                          .text_len = j->config.text_len,
                          .text_dim = j->config.text_dim,
                          .fps = 8};
    for (int p = 1; p <= 16; p++)
        if (3 * p * p == d->channels)
            d->pack = p;
    j->told.shift = j->told.guidance = 2;
}

static tess_status find(job *j)
{
    tess_ctx *ctx = j->c->ctx;
    const char *given = j->v->checkpoint;
    const int known = tess_checkpoint_find(ctx, given, j->folder, PATH_BYTES) == TESS_OK;
    if (!known)
        snprintf(j->folder, PATH_BYTES, "%s", given);
    else
        TRY(tess_checkpoint_read(ctx, j->folder, &j->told));
    if (known && j->v->ema && j->told.ema && strlen(j->folder) + 5 < PATH_BYTES)
        strcat(j->folder, "/ema");
    TRY(tess_model_config_read(ctx, j->folder, &j->config));
    if (!known)
        guess(j);
    return TESS_OK;
}

/* A side in pixels to that of the latent. */
static tess_status side(const job *j, const char *name, int64_t given, int *latent)
{
    const int pack = j->told.data.pack;
    if (given == 0 && *latent == 0)
        return out_usage(j->c, "--%s is missing, %s does not say it", name, j->v->checkpoint);
    if (given % pack != 0)
        return out_usage(j->c, "--%s is %lld, must be a multiple of %d", name, (long long)given,
                         pack);
    if (given)
        *latent = (int)(given / pack);
    return TESS_OK;
}

static tess_status choose_shape(job *j)
{
    tess_data_info *d = &j->told.data;
    if (j->v->frames)
        d->frames = (int)j->v->frames;
    if (d->frames == 0)
        return out_usage(j->c, "--frames is missing, %s does not say it", j->v->checkpoint);
    TRY(side(j, "height", j->v->height, &d->height));
    TRY(side(j, "width", j->v->width, &d->width));
    if (!isnan(j->v->fps))
        d->fps = j->v->fps;
    if (!ends_with(j->v->output, ".npy") && d->channels != 3 * d->pack * d->pack)
        return out_fail(j->c, TESS_ENOTSUP,
                        "the model makes latents of %d channels, which only a .npy can hold",
                        d->channels);
    return TESS_OK;
}

static tess_status no_memory(const job *j)
{
    return out_fail(j->c, TESS_ENOMEM, "no memory for %lld clips", (long long)j->clips);
}

/* ---- prompts -----------------------------------------------------------------------------------
 */

static tess_status read_text(const job *j, float *text)
{
    tess_file *file = NULL;
    TRY(tess_file_open(j->c->ctx, j->v->text, &file));
    const tess_status status =
        tess_file_read(file, NULL, TESS_DTYPE_F32, text, (size_t)j->text_size * sizeof *text);
    tess_file_close(file);
    return status;
}

static tess_status make_text(job *j)
{
    const sample_values *v = j->v;
    const tess_data_info *d = &j->told.data;
    if (v->prompts.n > 0 && (v->text || j->told.external))
        return out_usage(j->c, "--prompt is given, but %s",
                         v->text ? "--text is the prompt"
                                 : "the model knows embeddings made elsewhere: give --text");
    j->text = calloc((size_t)(j->clips * j->text_size), sizeof *j->text);
    if (!j->text)
        return no_memory(j);
    for (int64_t i = 0; i < j->clips; i++) {
        float *text = j->text + i * j->text_size;
        if (v->text)
            TRY(read_text(j, text));
        else if (v->prompts.n > 0)
            TRY(tess_text_vectors(v->prompts.items[i / v->count], d->text_len, d->text_dim, text));
    }
    return TESS_OK;
}

/* ---- sampling and writing ----------------------------------------------------------------------
 */

static tess_status sample(job *j)
{
    const tess_data_info *d = &j->told.data;
    j->latents = malloc((size_t)(j->clips * j->size) * sizeof *j->latents);
    if (!j->latents)
        return no_memory(j);
    for (int64_t first = 0; first < j->clips; first += j->v->batch) {
        const int64_t left = j->clips - first;
        const tess_sample_opts opts = {
            .batch = (int)(left < j->v->batch ? left : j->v->batch),
            .steps = (int)j->v->steps,
            .frames = d->frames,
            .height = d->height,
            .width = d->width,
            .text_len = d->text_len,
            .shift = isnan(j->v->shift) ? j->told.shift : j->v->shift,
            .guidance = isnan(j->v->guidance) ? j->told.guidance : j->v->guidance,
            .seed = (uint64_t)j->c->common->seed,
            .first = first,
        };
        TRY(tess_sample_run(j->model, &opts, j->text + first * j->text_size,
                            j->latents + first * j->size));
    }
    return TESS_OK;
}

static tess_status write_latents(const job *j)
{
    const tess_data_info *d = &j->told.data;
    const tess_tensor tensor = {
        .name = "latents",
        .dtype = TESS_DTYPE_F32,
        .rank = 5,
        .shape = {j->clips, d->channels, d->frames, d->height, d->width},
        .data = j->latents,
    };
    return tess_file_write(j->c->ctx, j->v->output, &tensor, 1, NULL);
}

/* Each pixel of (rows, width, 3) becomes scale x scale of them. */
static void enlarge(const uint8_t *from, int64_t rows, int width, int scale, uint8_t *to)
{
    const size_t line = (size_t)width * (size_t)scale * 3;
    for (int64_t y = 0; y < rows; y++, from += 3 * width) {
        uint8_t *first = to;
        for (int x = 0; x < width * scale; x++)
            memcpy(first + 3 * x, from + 3 * (x / scale), 3);
        for (int i = 0; i < scale; i++, to += line)
            if (i > 0)
                memcpy(to, first, line);
    }
}

static tess_status write_clips(job *j)
{
    const tess_data_info *d = &j->told.data;
    const int scale = (int)j->v->scale, height = d->height * d->pack, width = d->width * d->pack;
    const int64_t large = j->size * scale * scale; /* bytes: as many as the latent has numbers */
    uint8_t *small = malloc((size_t)j->size);
    tess_status status = TESS_OK;
    j->pixels = malloc((size_t)(j->clips * large));
    j->list = calloc((size_t)j->clips, sizeof *j->list);
    if (!small || !j->pixels || !j->list)
        status = no_memory(j);
    for (int64_t i = 0; i < j->clips && status == TESS_OK; i++) {
        uint8_t *pixels = j->pixels + i * large;
        status = tess_data_pixels(d, j->latents + i * j->size, small);
        if (status == TESS_OK)
            enlarge(small, (int64_t)d->frames * height, width, scale, pixels);
        j->list[i] = (tess_clip){d->frames, height * scale, width * scale, d->fps, pixels};
    }
    free(small);
    TRY(status);
    return tess_clip_write(j->c->ctx, j->v->output, j->list, (int)j->clips);
}

static void report(job *j)
{
    cli *c = j->c;
    const tess_data_info *d = &j->told.data;
    if (c->json) {
        out_set(c, c->json, "weights", out_text(j->folder));
        out_set(c, c->json, "step", json_integer(j->told.step));
        out_set(c, c->json, "clips", json_integer(j->clips));
        out_set(c, c->json, "frames", json_integer(d->frames));
        out_set(c, c->json, "height", json_integer(d->height * d->pack));
        out_set(c, c->json, "width", json_integer(d->width * d->pack));
        out_set(c, c->json, "output", out_text(j->v->output));
        return;
    }
    fprintf(c->out, "%s: %lld clip%s of %d frames, %d x %d\n", j->v->output, (long long)j->clips,
            j->clips == 1 ? "" : "s", d->frames, d->height * d->pack, d->width * d->pack);
}

static tess_status run_job(job *j)
{
    const tess_data_info *d = &j->told.data;
    TRY(find(j));
    TRY(choose_shape(j));
    j->clips = j->v->count * (j->v->prompts.n ? j->v->prompts.n : 1);
    j->size = (int64_t)d->channels * d->frames * d->height * d->width;
    j->text_size = (int64_t)d->text_len * d->text_dim;
    TRY(make_text(j));
    TRY(tess_model_load(j->c->ctx, j->folder, NULL, &j->model));
    TRY(sample(j));
    TRY(ends_with(j->v->output, ".npy") ? write_latents(j) : write_clips(j));
    progress_clear(j->c);
    report(j);
    return TESS_OK;
}

static tess_status check_usage(cli *c, const sample_values *v)
{
    static const char *const ends[] = {".mp4", ".gif", ".y4m", ".png", ".npy"};
    if (!v->output)
        return out_usage(c, "--output is missing, must be a file");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(v->output, ends[i]))
            return TESS_OK;
    return out_usage(c, "--output is \"%.80s\", must end in .mp4, .gif, .y4m, .png or .npy",
                     v->output);
}

tess_status sample_run(cli *c, const sample_values *v)
{
    job j = {.c = c, .v = v};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK)
        status = run_job(&j);
    tess_model_destroy(j.model);
    free(j.text);
    free(j.latents);
    free(j.pixels);
    free(j.list);
    return status;
}
