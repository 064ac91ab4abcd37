/* SPDX-License-Identifier: Apache-2.0 */
/* train_data.h - runs of a tiny model for the tests, their comparison, and a folder to keep them
 * in. */
#ifndef TESS_TRAIN_DATA_H
#define TESS_TRAIN_DATA_H

#include "test.h"
#include "train/train_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- a folder for all tests of a file -------------------------------------------------------- */

static char root[] = "/tmp/tess-train-XXXXXX";

/* Good until 64 others were asked for. */
static inline const char *in_root(const char *name)
{
    static char path[64][PATH_MAX];
    static int slot;
    slot = (slot + 1) % 64;
    snprintf(path[slot], PATH_MAX, "%s/%s", root, name);
    return path[slot];
}

static inline int exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static inline int open_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL;
}

static inline int close_root(void **state)
{
    (void)state;
    tess__remove_folder(root);
    return exists(root);
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct {
    tess_ctx *ctx;
    tess_model *model;
    tess_data *data;
    tess_train *train;
    tess_model_info info;
} run;

/* Clips of 16 x 16 pixels. */
static inline run start_run(const tess_ctx_opts *ctx, int frames, const tess_train_opts *opts)
{
    run r = {0};
    tess_model_config config;
    CHECK_OK(tess_ctx_create(ctx, &r.ctx));
    CHECK_OK(tess_model_preset("tiny", &config));
    CHECK_OK(tess_model_create(r.ctx, &config, &(tess_model_opts){1, 9}, &r.model));
    CHECK_OK(tess_model_query(r.model, &r.info));
    CHECK_OK(tess_data_open(
        r.ctx,
        &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .frames = frames, .height = 16, .width = 16,
                          .pack = 2, .text_len = config.text_len, .text_dim = config.text_dim},
        &r.data));
    CHECK_OK(tess_train_create(r.model, r.data, opts, &r.train));
    return r;
}

static inline void end(run *r)
{
    tess_train_destroy(r->train);
    tess_data_close(r->data);
    tess_model_destroy(r->model);
    tess_ctx_destroy(r->ctx);
}

/* The first run takes some steps and ends; the second goes on from its checkpoint. */
static inline void hand_over(run *first, int steps, run *second)
{
    CHECK_OK(tess_train_run(first->train, steps, NULL, NULL));
    CHECK_OK(tess_train_save(first->train, in_root("half")));
    end(first);
    CHECK_OK(tess_train_resume(second->train, in_root("half")));
    CHECK_OK(tess_train_run(second->train, 0, NULL, NULL));
    tess__remove_folder(in_root("half"));
}

/* The same bits of weights, optimiser and losses, after as many steps. */
static inline void check_same_training(const run *a, const run *b)
{
    const size_t bytes = (size_t)a->info.count * sizeof(float);
    const tess__optim *x = &a->train->optim, *y = &b->train->optim;
    assert_memory_equal(a->info.values, b->info.values, bytes);
    assert_memory_equal(x->first, y->first, bytes);
    assert_memory_equal(x->ema, y->ema, bytes);
    assert_memory_equal(x->second, y->second, (size_t)x->total_second * sizeof(float));
    assert_true(a->train->loss_mean == b->train->loss_mean);
    assert_memory_equal(&a->train->val_loss, &b->train->val_loss, sizeof(double));
    assert_int_equal(a->train->step, b->train->step);
}

/* What a run of one thread was said to need is at most a share more than what these steps take. */
static inline void check_need(run *r, const tess_train_opts *opts, int steps, double share)
{
    tess_train_memory need;
    tess_data_info data;
    tess_ctx_info info;
    CHECK_OK(tess_data_query(r->data, &data));
    CHECK_OK(tess_train_need(&r->info.config, &data, opts, 1, &need));
    CHECK_OK(tess_train_run(r->train, steps, NULL, NULL));
    CHECK_OK(tess_ctx_query(r->ctx, &info));
    print_message("needs %lld bytes, took %lld\n", (long long)need.total,
                  (long long)info.bytes_peak);
    assert_in_range(info.bytes_peak, (int64_t)((1 - share) * (double)need.total), need.total);
}

#endif
