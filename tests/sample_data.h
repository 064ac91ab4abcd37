/* SPDX-License-Identifier: Apache-2.0 */
/* sample_data.h - a small trained run, and what is sampled from it. */
#ifndef TESS_TEST_SAMPLE_DATA_H
#define TESS_TEST_SAMPLE_DATA_H

#include "test.h"
#include "train/train_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* 4 x 4 x 4 tokens of a tiny model. */
enum { FRAMES = 4, SIDE = 8, STEPS = 8, LATENT = 12 * FRAMES * SIDE * SIDE, TOKENS = 64 };

static char root[] = "/tmp/tess-sample-XXXXXX";
static char checkpoint[64];
static tess_model_config config;
static float text[2 * 8 * 16]; /* of two clips */

/* A run whose layers all become sparse, and its checkpoint. */
static inline void train(const char *folder)
{
    const tess_train_opts opts = {TESS_TRAIN_OPTS_DEFAULTS,
                                  .batch = 1,
                                  .steps = 4,
                                  .warmup = 1,
                                  .validate_every = 0,
                                  .checkpoint_every = 0,
                                  .attention = {TESS_ATTENTION_OPTS_DEFAULTS,
                                                .kind = TESS_ATTENTION_DSV, .max_density = 0.5,
                                                .switch_by = TESS_SWITCH_STEP, .switch_step = 2,
                                                .cube = {2, 2, 2}, .dispatch = "sparse"}};
    tess_ctx *ctx = NULL;
    tess_model *model = NULL;
    tess_data *data = NULL;
    tess_train *run = NULL;
    const tess_data_opts clips = {
        TESS_DATA_OPTS_DEFAULTS,    .frames = FRAMES, .height = 2 * SIDE,
        .width = 2 * SIDE,          .pack = 2,        .text_len = config.text_len,
        .text_dim = config.text_dim};
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_model_create(ctx, &config, &(tess_model_opts){1, 9}, &model));
    CHECK_OK(tess_data_open(ctx, &clips, &data));
    CHECK_OK(tess_train_create(model, data, &opts, &run));
    CHECK_OK(tess_train_run(run, 0, NULL, NULL));
    CHECK_OK(tess_train_save(run, folder));
    tess_train_destroy(run);
    tess_data_close(data);
    tess_model_destroy(model);
    tess_ctx_destroy(ctx);
}

static inline int make_run(void **state)
{
    (void)state;
    if (!mkdtemp(root) || tess_model_preset("tiny", &config) != TESS_OK)
        return 1;
    snprintf(checkpoint, sizeof checkpoint, "%s/run", root);
    fill_normal(text, sizeof text / sizeof *text, 4);
    train(checkpoint);
    return 0;
}

static inline int drop_run(void **state)
{
    (void)state;
    tess__remove_folder(root);
    return access(root, F_OK) == 0;
}

/* ---- one call ------------------------------------------------------------------------------- */

typedef struct {
    float latents[2 * LATENT];
    double density[STEPS * 2 * 2]; /* the tiny model has 2 layers of 2 heads */
} result;

static inline tess_sample_opts opts_of(const char *from, const tess_attention_opts *attention)
{
    return (tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .batch = 2,     .steps = STEPS,
                              .frames = FRAMES,          .height = SIDE, .width = SIDE,
                              .guidance = 1.0,           .seed = 5,      .checkpoint = from,
                              .attention = attention};
}

static inline result *sample(int threads, tess_sample_opts opts)
{
    tess_ctx *ctx = NULL;
    tess_model *model = NULL;
    result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
    CHECK_OK(tess_model_load(ctx, checkpoint, NULL, &model));
    opts.density = r->density;
    CHECK_OK(tess_sample_run(model, &opts, text, r->latents));
    tess_model_destroy(model);
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
    return r;
}

#endif
