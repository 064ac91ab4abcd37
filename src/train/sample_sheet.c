/* SPDX-License-Identifier: Apache-2.0 */
/* sample_sheet.c - preview samples of a run: a contact sheet every so many steps.
 *
 * Each sheet shows the prompts of the first validation clips, one row each, from the same noise:
 * what differs from sheet to sheet is the model. samples/prompts.txt has the prompt of each row.
 * The averaged weights are sampled with the pass and the buffers of training. Each group of ranks
 * samples its clips of a batch; rank 0 gathers and writes them.
 */
#include "mixture.h"

#include "file/out.h"
#include "tessera/media.h"

#include <string.h>

/* The vectors of this rank's prompts in t->text. */
static tess_status choose_prompts(tess_train *t, int64_t first)
{
    for (int b = 0; b < t->batch; b++)
        TESS_TRY(tess_data_sample(t->data, TESS_SPLIT_VALIDATION, first + b, NULL,
                                  t->text + b * t->text_size, NULL, 0));
    return TESS_OK;
}

/* The words of all prompts in samples/prompts.txt. */
static tess_status write_prompts(tess_train *t)
{
    char path[PATH_MAX], prompt[256];
    tess__out *out = NULL;
    TESS_TRY(tess__path(path, t->opts.folder, "samples/prompts.txt"));
    TESS_TRY(tess__out_open(t->ctx, path, &out));
    tess_status status = TESS_OK;
    for (int b = 0; b < t->opts.batch && status == TESS_OK; b++) {
        status = tess_data_sample(t->data, TESS_SPLIT_VALIDATION, b, NULL, NULL, prompt,
                                  sizeof prompt - 1);
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

static tess_status sample(tess_train *t, const float *none, int64_t first)
{
    const int guided = t->opts.guidance != 1.0;
    const tess__sampling s = {.batch = t->batch,
                              .size = t->size,
                              .table = t->control ? &t->control->table : NULL,
                              .u = t->u,
                              .steps = t->opts.sample_steps,
                              .shift = t->opts.shift,
                              .guidance = t->opts.guidance,
                              .seed = t->opts.seed,
                              .first = first,
                              .text = t->text,
                              .none = none,
                              .timestep = t->timestep,
                              .v = t->out,
                              .v_none = guided ? t->target : NULL};
    TESS_TRY(tess__train_swap(t));
    const tess_status status = tess__sample(t->ctx, t->pass, &s, t->x);
    if (status != TESS_OK) {
        tess__optim_swap(&t->optim, t->model->values);
        return status;
    }
    return tess__train_swap(t);
}

/* The clips of all groups on rank 0, from the first rank of each. all: (batch, size) there. */
static tess_status gather(tess_train *t, float *all)
{
    const int64_t n = (int64_t)t->batch * t->size, bytes = n * (int64_t)sizeof *all;
    const tess__process_group *pg = &t->pg;
    if (pg->rank == 0)
        memcpy(all, t->x, (size_t)bytes);
    for (int group = 1; group < pg->dp_size; group++) {
        tess_request *request = NULL;
        const int from = group * pg->cp_size;
        const int sends = pg->rank == from, takes = pg->rank == 0;
        if (!sends && !takes)
            continue;
        TESS_TRY(tess_comm_start_sendrecv(pg->world, TESS_TRAFFIC_PAYLOAD, t->x, sends ? bytes : 0,
                                          sends ? 0 : -1, takes ? all + group * n : NULL,
                                          takes ? bytes : 0, takes ? from : -1, &request));
        TESS_TRY(tess_comm_wait(pg->world, request));
    }
    return TESS_OK;
}

static tess_status write_sheet(tess_train *t, const float *all, uint8_t *pixels, tess_clip *clips)
{
    char name[64], path[PATH_MAX];
    const int height = t->info.height * t->info.pack, width = t->info.width * t->info.pack;
    const int64_t bytes = (int64_t)t->info.frames * height * width * 3;
    for (int b = 0; b < t->opts.batch; b++) {
        clips[b] = (tess_clip){t->info.frames, height, width, t->info.fps, pixels + b * bytes};
        TESS_TRY(tess_data_pixels(&t->info, all + b * t->size, pixels + b * bytes));
    }
    snprintf(name, sizeof name, "samples/step-%06lld.png", (long long)t->step);
    TESS_TRY(tess__path(path, t->opts.folder, name));
    return tess_clip_write(t->ctx, path, clips, t->opts.batch);
}

/* Passes of as many clips as the ranks take at a time, until all rows are there. */
static tess_status sample_rows(tess_train *t, const float *none, float *all)
{
    const int together = t->batch * t->pg.dp_size;
    if (t->mixture)
        TESS_TRY(tess__mixture_pass(t, t->mixture->largest, tess__mixture_alone(t->mixture)));
    for (int row = 0; row < t->opts.batch; row += together) {
        const int64_t first = row + (int64_t)t->pg.dp_rank * t->batch;
        TESS_TRY(choose_prompts(t, first));
        TESS_TRY(sample(t, none, first));
        TESS_TRY(gather(t, all + row * t->size));
    }
    return TESS_OK;
}

tess_status tess__sheet_write(tess_train *t)
{
    if (t->info.channels != 3 * t->info.pack * t->info.pack)
        return TESS_OK; /* latents: no picture without their decoder */
    const int writes = t->pg.rank == 0;
    const int together = t->batch * t->pg.dp_size;
    const int passes = (t->opts.batch + together - 1) / together;
    const size_t rows = (size_t)passes * (size_t)together;
    const size_t numbers = (size_t)t->size * rows; /* one byte each as pixels */
    float *none = tess__alloc_zero(t->ctx, (size_t)t->text_size * (size_t)t->batch * sizeof *none);
    float *all = none ? tess__alloc(t->ctx, writes ? numbers * sizeof *all : 0) : NULL;
    uint8_t *pixels = all ? tess__alloc(t->ctx, writes ? numbers : 0) : NULL;
    tess_clip *clips = pixels ? tess__alloc(t->ctx, (size_t)t->opts.batch * sizeof *clips) : NULL;
    tess_status status = !clips ? TESS_ENOMEM : writes ? write_prompts(t) : TESS_OK;
    if (status == TESS_OK)
        status = sample_rows(t, none, all);
    if (status == TESS_OK && writes)
        status = write_sheet(t, all, pixels, clips);
    tess__free(t->ctx, clips);
    tess__free(t->ctx, pixels);
    tess__free(t->ctx, all);
    tess__free(t->ctx, none);
    return status;
}
