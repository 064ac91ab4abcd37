/* SPDX-License-Identifier: Apache-2.0 */
/* 08_train.c - a tiny video model, trained for some steps with dynamic sparse attention.
 *
 * What it shows: a model from a preset, clips that are drawn on the spot, and a run that begins
 * dense, trains predictors beside the model, and becomes sparse; every decision is one sentence.
 * With .folder it would write checkpoints and metrics; with .comm it would run on many ranks.
 *
 *   cc 08_train.c $(pkg-config --cflags --libs tessera-train) && ./a.out
 */
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>
#include <tessera/train.h>

enum { STEPS = 24, SWITCH = 12 };

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

static void show_event(void *user, const char *sentence)
{
    (void)user;
    printf("  %s\n", sentence);
}

static int show_step(void *user, const tess_step *step)
{
    *(tess_step *)user = *step;
    if (step->step % 4 == 0)
        printf("step %2lld: loss %.3f, density %.2f, %.0f layers sparse\n", (long long)step->step,
               step->loss, step->density, step->sparse_layers);
    return 0; /* go on */
}

int main(void)
{
    tess_ctx *ctx;
    tess_model_config config;
    tess_model *model;
    tess_data *data;
    tess_train *train;
    tess_step last = {0};
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_model_preset("tiny", &config));
    TRY(tess_model_create(ctx, &config, &(tess_model_opts){.gradients = 1}, &model));
    tess_data_opts clips = TESS_DATA_OPTS_INIT;
    clips.pack = 2;
    clips.text_len = 8;
    clips.text_dim = config.text_dim;
    TRY(tess_data_open(ctx, &clips, &data));

    static const int cube[3] = {2, 4, 4}; /* tokens that share a list */
    tess_train_opts opts = TESS_TRAIN_OPTS_INIT;
    opts.steps = STEPS;
    opts.batch = 1;
    opts.validate_clips = 1;
    opts.event = show_event;
    opts.attention.kind = TESS_ATTENTION_DSV; /* predictors choose the keys */
    opts.attention.density = 0.1;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = SWITCH;
    opts.attention.break_even = 0.5; /* sparse pays below it; 0: measured */
    memcpy(opts.attention.cube, cube, sizeof cube);
    TRY(tess_train_create(model, data, &opts, &train));
    TRY(tess_train_run(train, 0, show_step, &last));
    printf("%lld steps, the last with %.0f of %d layers sparse\n", (long long)last.step,
           last.sparse_layers, config.layers);
    tess_train_destroy(train);
    tess_data_close(data);
    tess_model_destroy(model);
    tess_ctx_destroy(ctx);
    return last.step == STEPS && last.sparse_layers > 0.0 && last.density < 1.0 ? 0 : 1;
}
