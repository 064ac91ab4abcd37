/* SPDX-License-Identifier: Apache-2.0 */
/* train_internal.h - the training loop: steps, validation, checkpoints, metrics, samples.
 *
 * Input: a model with gradients, data, options. Output: trained weights, and the folder of a run,
 * whose files docs/training.md describes.
 */
#ifndef TESS_TRAIN_INTERNAL_H
#define TESS_TRAIN_INTERNAL_H

#include "base/base_internal.h"
#include "data/loader.h"
#include "dsv/control.h"
#include "model/model_internal.h"
#include "optim/optim.h"
#include "optim/process_group.h"
#include "tessera/advanced/dataset.h"
#include "tessera/advanced/step.h"
#include "tessera/train.h"

#include <limits.h>

/* Which states of a run are good, and why the run ends where one is not: last_good.c. */
typedef struct {
    int64_t good;      /* newest step whose weights are good */
    int64_t validated; /* newest step whose validation did not diverge */
    const char *what;  /* that diverges: a loss, a validation; NULL: nothing */
    int64_t step;      /* at which it does */
    double loss;       /* its value */
    int again;         /* 1: steps are run again, and written to no file */
} tess__divergence;

typedef struct tess__mixture tess__mixture;

struct tess_train {
    tess_ctx *ctx;
    tess__arena arena; /* the object itself first, then buffers */
    tess_model *model;
    tess_data *data;
    tess_data_info info;
    tess_train_opts opts;         /* texts are copies */
    tess_pass *pass;              /* NULL: to be made before the next step */
    tess_cp *cp;                  /* the context-parallel group; NULL: one rank per clip */
    int64_t plan_ns;              /* spent on them */
    tess_comm_counts sent_before; /* less than 0: what the world had sent when this was made */
    tess__control *control;       /* NULL: attention is dense */
    tess__mixture *mixture;       /* of clips of several sizes; NULL: all have one */
    tess__process_group pg;
    tess__owners owners; /* with many ranks, as is reduce; else {0} */
    tess__reduce reduce;
    tess__optim optim;       /* of the parameters that this rank owns */
    tess__loader *loader;    /* NULL until the first step */
    int batch;               /* clips of a micro-batch on this rank; 1 of several sizes */
    int64_t size, text_size; /* numbers of a clip, the largest one, and of a prompt */
    int64_t tokens;          /* of a step, over all ranks; of several sizes of the last one */

    float *clip, *x, *target, *out; /* (batch, size) each */
    float *text;                    /* (batch, text_size) */
    float *timestep;                /* (batch) */
    double *u;                      /* (batch): noise levels before the shift */
    double *sums;                   /* of the pieces of a batch */
    double *squares;                /* of the gradients of each parameter, with exact_ranks */

    int64_t step;    /* done */
    int64_t batches; /* read from the data */
    double loss_mean, val_loss, val_buckets[TESS_NOISE_BUCKETS];
    int lock;          /* the open lock file of the folder, on rank 0; -1: none */
    int lock_made;     /* 1: the folder was made for it */
    double loss_level; /* lowest loss_mean of this process; NaN: none yet */
    tess__divergence divergence;
    int opened;    /* 1: the folder is ready for this run */
    int resumed;   /* 1: a checkpoint was read */
    int recorded;  /* 1: settings.json is that of this run */
    int64_t saved; /* step of the checkpoint below; -1: none */
    char checkpoint[PATH_MAX];
};

/* ---- options.c ------------------------------------------------------------------------------- */

/* The options, or the defaults for NULL; EINVAL names the option that is out of its range. */
tess_status tess__train_options(const char *who, const tess_train_opts *given,
                                tess_train_opts *opts);

/* EINVAL if attention is computed with sums that exact_ranks does not cover. */
tess_status tess__exact_options(const char *who, const tess_attention_opts *attention);
tess_status tess__exact_precision(const char *who, tess_precision precision);

/* Of all options that must be the same on all ranks. */
uint64_t tess__train_options_hash(const tess_train_opts *opts);

/* ---- flow.c: noise, and the loss ------------------------------------------------------------- */

/* Streams of random numbers are keyed by what they are for, and a number: a step, a clip. */
typedef enum {
    TESS__NOISE = 0x71,
    TESS__LEVEL,
    TESS__DROPOUT,
    TESS__VALIDATION,
    TESS__SAMPLE
} tess__purpose;
uint64_t tess__stream(tess__purpose purpose, int64_t number);

/* s of u, both 0..1. */
double tess__shifted(double shift, double u);

/* u of clip i of the n of a step: one in each n-th of 0..1. */
double tess__noise_level(uint64_t seed, int64_t step, int64_t i, int64_t n);

/* x = (1 - s) clip + s eps and target = eps - clip, with eps numbers `first` and on of a stream. */
typedef struct {
    uint64_t seed, stream, first;
    double s;
} tess__noising;
void tess__flow_noise(const tess_ctx *ctx, const tess__noising *noising, const float *clip,
                      int64_t n, float *x, float *target);

/* The mean of (out - target)^2 over n numbers; then out = 2 factor (out - target) / n, the gradient
 * of factor times that mean. sums has room for n / TESS_PIECE + 1. */
double tess__flow_loss(const tess_ctx *ctx, const float *target, int64_t n, double factor,
                       float *out, double *sums);

/* ---- memory_need.c --------------------------------------------------------------------------- */

enum { TESS__RING = 3 }; /* batches prefetched */

/* The pass of a run, for so many clips; and the slots of a model's parameters; slots has room for
 * all of them. */
void tess__train_pass_shape(const tess_train_opts *opts, const tess_data_info *info, int batch,
                            tess_pass_shape *shape);
void tess__train_slots(const tess__params *params, tess_optim optim, tess__optim_slot *slots);

/* EINVAL unless the data fit the model. */
tess_status tess__train_fits(const char *who, const tess_model_config *config,
                             const tess_data_info *info);

/* ---- loop.c, validate.c, sample.c, sample_sheet.c -------------------------------------------- */

tess_status tess__train_validate(tess_train *train, double *loss, double *buckets, double *change);

/* The pass of a run, made if there is none. */
tess_status tess__train_pass(tess_train *train);

/* Adds noise to a clip of a batch, number i of the step, and drops its prompt or not. */
void tess__train_noise(tess_train *train, const tess__batch *batch, int64_t i, int64_t size, int b);

/* mixture.c: clips of several sizes, where t->mixture is not NULL. Forward and backward over the
 * clips of a step: *loss of this rank's. */
tess_status tess__mixture_create(tess_train *train);
void tess__mixture_destroy(tess__mixture *mixture);                   /* NULL accepted */
void tess__mixture_describe(const tess_train *train, tess_step *now); /* its metrics, if any */
tess_status tess__mixture_gradients(tess_train *train, double *loss, int64_t *waited);
void tess__mixture_restart(tess_train *train, int remake); /* before a step; 1: passes are stale */
int tess__mixture_beyond(tess_train *train); /* exact sums of a step were beyond their range */

/* The group of the pass at hand, whose shape this is; NULL: one rank, without exact_ranks. */
tess_status tess__mixture_context(tess_train *train, const tess_pass_shape *shape, tess_cp **cp);
void tess__mixture_counts(const tess__mixture *mixture, tess_comm_counts *sum); /* adds; NULL too */
int64_t tess__mixture_size(const tess_data_info *info); /* numbers of a clip */
double tess__mixture_pairs(const tess_train *train);    /* of a head, over the clips */

/* The clips of the pass at hand; the times of all passes so far. */
const tess_data_info *tess__train_info(const tess_train *train);
tess_status tess__train_times(const tess_train *train, tess_pass_times *times);

/* Collective: swaps the weights and their average, on all ranks. */
tess_status tess__train_swap(tess_train *train);

/* compare_ranks.c. Collective: EINVAL unless all ranks have the same step, decisions and weights;
 * at the start also the same program, options and data. */
tess_status tess__train_same(tess_train *train);
tess_status tess__train_same_start(tess_train *train);

/* pass_cp.c: the context-parallel group of a pass. */
typedef struct {
    const tess_model_config *config;
    const tess_pass_shape *shape;         /* everything but its context, which is not read */
    const tess_attention_opts *attention; /* of a sparse pass: how it attends; NULL: dense */
    const char *strategy, *cluster;       /* as of tess_cp_opts */
    const tess_cp *like;
    tess_cp_event_fn event;
    void *user;
} tess__sharing;

/* Collective. */
tess_status tess__pass_cp(tess_ctx *ctx, tess_comm *comm, const tess__sharing *sharing,
                          tess_cp **cp);

/* sample_control.c: sparse attention of sampling, and its densities. */
typedef struct tess__sampler tess__sampler;
typedef struct tess__sample_ranks tess__sample_ranks; /* sample_ranks.h: the ranks of a sampling */

/* From options with their defaults filled in; grid: tokens. *sampler is NULL where attention is
 * dense and its density is not requested. */
tess_status tess__sampler_create(tess_model *model, const tess_sample_opts *opts, const int grid[3],
                                 tess__sampler **sampler);
void tess__sampler_destroy(tess__sampler *sampler); /* after the pass; NULL accepted */

/* Sets what the pass's shape needs. */
void tess__sampler_shape(tess__sampler *sampler, const tess__sample_ranks *ranks,
                         tess_pass_shape *shape);
const tess_attention_opts *tess__sampler_attention(const tess__sampler *sampler); /* NULL: dense */

/* Before a forward pass and after it: step k, of which this is pass number `evaluation` (0: with
 * text). */
tess_status tess__sampler_attend(tess__sampler *sampler, tess_pass *pass, int k, int evaluation);
tess_status tess__sampler_observe(tess__sampler *sampler, const tess_pass *pass, int k);

/* 1: budgets are measured in pass 0 of step k. Then, collective, before pass 1: all ranks receive
 * the measured budgets. And at the end: the densities of both halves. */
int tess__sampler_measures(const tess__sampler *sampler, int k);
tess_status tess__sampler_share(tess__sampler *sampler, tess__sample_ranks *ranks, int k);
tess_status tess__sampler_end(tess__sampler *sampler, tess__sample_ranks *ranks);

/* Euler's method on a pass of the shape of x. */
typedef struct {
    tess__attend_table *table; /* NULL: attention is dense */
    tess__sampler *sampler;    /* of sampling alone, instead; NULL: none */
    tess__sample_ranks *ranks; /* NULL: this rank evaluates all, on a pass that has its plan */
    double *u;                 /* (batch), with a controller */
    int64_t batch, size;       /* clips, and numbers in each */
    int steps;
    double shift, guidance;
    uint64_t seed;
    int64_t first;
    const float *text, *none; /* prompts, and no prompts */
    float *timestep;          /* (batch) */
    float *v, *v_none;        /* (batch, size); v_none NULL without guidance */
} tess__sampling;
tess_status tess__sample(const tess_ctx *ctx, tess_pass *pass, const tess__sampling *s, float *x);

/* samples/step-000100.png of the run's folder, one row per clip. */
tess_status tess__sheet_write(tess_train *train);

/* ---- cp_plans.c: context-parallel training --------------------------------------------------- */

/* Collective, as is make. The context-parallel group of a pass of that shape, with a first plan. */
tess_status tess__plans_create(tess_train *train, const tess_pass_shape *shape);
tess_status tess__plans_make(tess_train *train); /* before a step */
double tess__plans_imbalance(const tess_train *train);

/* plans.csv, by rank 0: starts it, or cuts it after the steps done; adds the plan in use. */
tess_status tess__plans_open(const tess_train *train);
tess_status tess__plans_add(const tess_train *train);

/* ---- control_log.c: events.jsonl and density.csv of the run's folder, by rank 0 -------------- */

tess_status tess__events_write(void *train, const tess__event *event); /* a listener */
tess_status tess__density_add(const tess_train *train);                /* if a layer was profiled */
tess_status tess__events_open(const tess_train *train); /* they begin, or end with the steps done */

/* ---- step_times.c ---------------------------------------------------------------------------- */

/* Bytes and messages that this rank has sent since the train was made, and its waiting time. */
tess_comm_counts tess__train_sent(const tess_train *train);

/* Times at the parts of a step, and the counts of the pass at these times. */
typedef struct {
    int64_t begin, middle, end, waited;
    tess_comm_counts begun, between, ended;
    tess_pass_times before, after;
} tess__step_times;

/* Bytes that this rank has sent since `before`, by kind. */
void tess__step_sent(const tess_train *train, const tess_comm_counts *before, tess_step *now);

/* Metrics of a step, without those of sparse attention and of communication. */
void tess__step_describe(const tess_train *train, const tess__step_times *at, double factor,
                         tess_step *now);

/* ---- metrics.c ------------------------------------------------------------------------------- */

/* step_log.c: appends a line, with its \n; cuts a file after the lines of step `last`. */
tess_status tess__lines_add(const char *path, const char *text, size_t bytes);
tess_status tess__lines_cut(tess_ctx *ctx, const char *path, const char *head, int64_t last);

/* Cuts the files of the run's folder after `step`, or starts them. */
tess_status tess__metrics_open(tess_ctx *ctx, const char *folder, int64_t step);
tess_status tess__metrics_add(const char *folder, const tess_step *step);

/* Metric number i of a step with its group and name; NaN: not measured. 0 behind the last one. */
int tess__metric(const tess_step *step, int i, const char **group, const char **name,
                 double *value);

/* tensorboard.c: the same two calls for TensorBoard's event file. */
tess_status tess__tensorboard_open(const char *folder, int64_t last);
tess_status tess__tensorboard_add(const char *folder, const tess_step *step);

/* ---- checkpoint.c, checkpoint_state.c, run_folder.c ------------------------------------------ */

/* moments.c: moments of this rank's slots, or of all slots. */
typedef struct {
    const tess__optim_slot *slots;
    int n;
    float *first, *second;
} tess__moments;

tess__moments tess__moments_own(const tess_train *train);
tess_status tess__moments_write(const tess_train *train, const tess__moments *moments,
                                const char *path);
tess_status tess__moments_read(const tess_train *train, const char *path); /* of owned parameters */

/* The content of state.json. */
typedef struct {
    tess_checkpoint checkpoint;
    int64_t batches, batch;
    int64_t seed;
    int optim;
    double loss_mean, val_loss, val_buckets[TESS_NOISE_BUCKETS]; /* NaN: none */
} tess__state;
tess_status tess__state_write(tess_ctx *ctx, const char *path, const tess__state *state);
tess_status tess__state_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                             tess__state *state); /* text NULL: that of the file `name` */

/* path = a/b; EIO with a sentence if it is too long. */
tess_status tess__path(char path[PATH_MAX], const char *a, const char *b);
tess_status tess__make_folder(const char *path); /* one that exists is fine */
tess_status tess__sync_folder(const char *path); /* what was renamed in it is on disk afterwards */
void tess__remove_folder(const char *path);      /* recursively; failures are ignored */

/* settings.json in a folder; nothing without the text. */
tess_status tess__settings_write(const tess_train *train, const char *folder);

/* tess_train_save, without sending a failure of this rank alone to the others. */
tess_status tess__train_save(tess_train *train, const char *dir);

/* run_lock.c: makes the folder of the run and locks it; EINVAL names the process that has it. The
 * end of the run unlocks it, and removes what is needed only while it goes on. */
tess_status tess__run_lock(tess_train *train);
void tess__run_unlock(tess_train *train);

/* Collective: writes a checkpoint folder, which must not exist; `saved` is not changed. */
tess_status tess__checkpoint_write(tess_train *train, const char *dir);

/* Collective: reads a checkpoint on all ranks; branch: of another run. */
tess_status tess__checkpoint_load(tess_train *train, const char *dir, int branch);

/* last_good.c. Notes the loss of the weights at t->step, before their update; and a validation of
 * them. Either sets divergence.what where the run diverges. */
void tess__good_loss(tess_train *train, double loss);
void tess__good_validation(tess_train *train);

/* Collective. The state at the start of a run in a hidden folder, for there is no checkpoint yet;
 * and back to the newest checkpoint up to a step: the start is one. *found 0: there is none. */
tess_status tess__good_begin(tess_train *train);
tess_status tess__good_return(tess_train *train, int64_t step, int *found);

/* Removes the state at the start: at the end of the run, or as soon as a checkpoint replaces it. */
void tess__good_end(const tess_train *train);

/* Removes what a killed process left in the folder of a run, which is locked. */
void tess__run_clean(const char *folder);

/* Makes checkpoints/ and samples/ in the folder of the run. */
tess_status tess__run_open(tess_train *train);

/* Writes checkpoints/step-000500, unless it exists; then deletes the oldest ones. */
tess_status tess__run_checkpoint(tess_train *train);

/* The newest step up to `last` of which the folder of the run has a checkpoint; -1: none. And the
 * path of the checkpoint of a step. */
int64_t tess__run_newest(const tess_train *train, int64_t last);
tess_status tess__run_drop(const tess_train *train, int64_t last); /* removes all later ones */
tess_status tess__run_path(const tess_train *train, int64_t step, char path[PATH_MAX]);

/* Removes the oldest checkpoints beyond checkpoint_limit, if the state is that of the newest: a run
 * that was killed after its last checkpoint has not done so. */
tess_status tess__run_rotate(const tess_train *train);

#endif
