/* SPDX-License-Identifier: Apache-2.0 */
/* sheet.c - samples of a run as they improve: a contact sheet every so many steps.
 *
 * Each sheet shows the prompts of the first validation clips, one row each, from the same noise:
 * what differs from sheet to sheet is the model. samples/prompts.txt has the prompt of each row.
 * The averaged weights sample on the pass and in the buffers of training.
 */
#include "train.h"

#include "tessera/media.h"

#include <string.h>

/* The prompts' vectors in t->text, their words in samples/prompts.txt. */
static tess_status choose_prompts(tess_train *t)
{
    char path[PATH_MAX], prompt[256];
    tess__out *out = NULL;
    TESS_TRY(tess__path(path, t->opts.folder, "samples/prompts.txt"));
    TESS_TRY(tess__out_open(t->ctx, path, &out));
    tess_status status = TESS_OK;
    for (int b = 0; b < t->opts.batch && status == TESS_OK; b++) {
        status = tess_data_sample(t->data, TESS_SPLIT_VALIDATION, b, NULL,
                                  t->text + b * t->text_size, prompt, sizeof prompt - 1);
        if (status != TESS_OK)
            break;
        strcat(prompt, "\n");
        status = tess__out_write(out, prompt, strlen(prompt));
    }
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}

static tess_status sample(tess_train *t, const float *none)
{
    const int guided = t->opts.guidance != 1.0;
    const tess__sampling s = {.batch = t->opts.batch,
                              .size = t->size,
                              .control = t->control,
                              .u = t->u,
                              .steps = t->opts.sample_steps,
                              .shift = t->opts.shift,
                              .guidance = t->opts.guidance,
                              .seed = t->opts.seed,
                              .text = t->text,
                              .none = none,
                              .timestep = t->timestep,
                              .v = t->out,
                              .v_none = guided ? t->target : NULL};
    tess__optim_swap(&t->optim, t->model->values);
    const tess_status status = tess__sample(t->ctx, t->pass, &s, t->x);
    tess__optim_swap(&t->optim, t->model->values);
    return status;
}

static tess_status write_sheet(tess_train *t, uint8_t *pixels, tess_clip *clips)
{
    char name[64], path[PATH_MAX];
    const int height = t->info.height * t->info.pack, width = t->info.width * t->info.pack;
    const int64_t bytes = (int64_t)t->info.frames * height * width * 3;
    for (int b = 0; b < t->opts.batch; b++) {
        clips[b] = (tess_clip){t->info.frames, height, width, t->info.fps, pixels + b * bytes};
        TESS_TRY(tess_data_pixels(&t->info, t->x + b * t->size, pixels + b * bytes));
    }
    snprintf(name, sizeof name, "samples/step-%06lld.png", (long long)t->step);
    TESS_TRY(tess__path(path, t->opts.folder, name));
    return tess_clip_write(t->ctx, path, clips, t->opts.batch);
}

tess_status tess__sheet_write(tess_train *t)
{
    if (t->info.channels != 3 * t->info.pack * t->info.pack)
        return TESS_OK; /* latents: there is nothing to see without their decoder */
    const size_t numbers = (size_t)t->size * (size_t)t->opts.batch; /* one byte each */
    float *none =
        tess__alloc_zero(t->ctx, (size_t)t->text_size * (size_t)t->opts.batch * sizeof *none);
    uint8_t *pixels = none ? tess__alloc(t->ctx, numbers) : NULL;
    tess_clip *clips = pixels ? tess__alloc(t->ctx, (size_t)t->opts.batch * sizeof *clips) : NULL;
    tess_status status = clips ? choose_prompts(t) : TESS_ENOMEM;
    if (status == TESS_OK)
        status = sample(t, none);
    if (status == TESS_OK)
        status = write_sheet(t, pixels, clips);
    tess__free(t->ctx, clips);
    tess__free(t->ctx, pixels);
    tess__free(t->ctx, none);
    return status;
}
