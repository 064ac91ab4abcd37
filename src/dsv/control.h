/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - the controller of sparse attention: between a pass and the decisions about it.
 *
 * What lives here: predictors and their optimiser, the profile and the checks, and the tables that
 * tell a pass how to attend. What comes in: options, the noise levels of a batch, and what a pass
 * shows of its layers. What goes out: tess_pass_attend before each forward pass, events, and the
 * controller's part of a checkpoint:
 *
 *   decisions.json            measurements and decisions (decide_file.c)
 *   predictor.safetensors     the predictors (sparse.h); their moments are in optimiser.safetensors
 *
 * A step of training calls, in this order:
 *
 *   tess__control_decide      rules; the pass may have to be made anew, in other cubes
 *   for each batch of the step
 *       tess__control_attend  what the forward pass does, from the noise levels of its clips
 *       tess_pass_forward     looks at layers that are due
 *       tess__control_seen    adds up what the pass did
 *   tess__control_learn       the predictors' update; measurements are folded in
 *
 * Sampling and validation call tess__control_attend alone, with `train` 0. A step that measures
 * allocates for the time of the measurement; any other allocates nothing.
 */
#ifndef TESS_CONTROL_H
#define TESS_CONTROL_H

#include "decide.h"
#include "model/model_internal.h"
#include "optim/optim.h"
#include "optim/process_group.h"
#include "tessera/train.h"

/* ---- attention_options.c --------------------------------------------------------------------- */

/* Fills in the defaults; EINVAL names the field that breaks its rule. */
tess_status tess__attention_options(const char *who, tess_attention_opts *opts);

/* Of everything that must be the same on all ranks. */
uint64_t tess__attention_hash(const tess_attention_opts *opts);

/* ---- attention_shape.c: what the options ask of a pass --------------------------------------- */

/* The given cube, or those to compare, small ones first; how many. grid: tokens. */
int tess__attention_cubes(const tess_attention_opts *opts, const int grid[3],
                          int cubes[TESS__CUBES][3]);
int tess__attention_by_cubes(tess_attention kind); /* 1: keys are selected by whole cubes */

/* Where and when a pass attends: what its room for lists follows from. */
typedef struct {
    const int *grid, *cube; /* tokens */
    int train;              /* 0: sampling, which takes choices as they are */
    int sparse;             /* 0: no layer has sparse heads yet */
    double break_even;      /* NaN: not known */
    int64_t memory;         /* that the pass takes without lists; 0: lists may take any */
} tess__attention_at;

/* The most units that a list may have, 0 where none is; and what the pass makes room for. */
int32_t tess__attention_units(const tess_attention_opts *opts, const tess__attention_at *at);
void tess__attention_room(const tess_attention_opts *opts, const tess__attention_at *at,
                          tess_sparse_opts *room);

/* Bytes that a controller takes, predictors and their moments included. */
int64_t tess__attention_bytes(const tess_attention_opts *opts, const tess_model_config *config,
                              int batch, const int grid[3], int threads);

/* ---- predictor_optim.c: the predictors' optimiser -------------------------------------------- */

/* AdamW, one state for each layer, for a layer's rate depends on its stage. */
typedef struct {
    tess_predictor *predictor; /* not owned */
    tess_predictor_info info;
    int layers, params; /* params: of a layer */
    int64_t count;      /* numbers of a layer */
    tess__optim *optims;
} tess__learner;

tess_status tess__learner_create(tess_ctx *ctx, tess_predictor *predictor, int layers,
                                 tess__learner *learner);
void tess__learner_destroy(tess_ctx *ctx, tess__learner *learner);

/* One update of each layer at rates[layer], from gradients times scale; number is that of the
 * update, from 1. 0: nothing was touched, for a gradient is not finite. */
int tess__learner_update(tess__learner *learner, const double *rates, double scale, int64_t number);

/* The moments as tensors, 2 for each parameter, names in the arena; *count is added to. */
tess_status tess__learner_tensors(const tess__learner *learner, tess__arena *arena,
                                  tess_tensor *tensors, int *count);

/* ---- control_probe.c: groups of queries of one cube size, sampled from any order of tokens ------
 */

typedef struct {
    int cube[3];
    int32_t groups;
    int64_t *perm;   /* (tokens): raster index of the token at each place in the cubes' order */
    int64_t *bounds; /* (groups + 1) */
} tess__order;

/* What a probe gathers: the queries of some groups, side by side. Checks take so many at a time, as
 * a list may hold every key. */
enum { TESS__CHECK_GROUPS = 32 };
typedef struct {
    int64_t rows;    /* queries gathered */
    int32_t groups;  /* they are of */
    int64_t *place;  /* (rows): in the pass's order */
    int64_t *bounds; /* (groups + 1) */
    int64_t *part;   /* (TESS__CHECK_GROUPS + 1): of those checked together */
    float *q, *low;  /* (batch, heads, rows, head_dim), (batch, heads, rows, rank) */
    float *lse;      /* (batch, heads, rows) */
    int64_t room;    /* rows there is room for */
} tess__gathered;

/* ---- the controller -------------------------------------------------------------------------- */

typedef struct {
    const tess_model_config *config;
    const tess_attention_opts *attention; /* defaults filled in; not DENSE */
    tess__process_group *pg;              /* that decide together; NULL: this one alone */
    int batch;                            /* clips of a pass on this rank */
    int grid[3];                          /* tokens: frames, rows, columns */
    uint64_t seed;
    int train;          /* 1: learns and measures; 0: for sampling, from a checkpoint */
    int64_t memory;     /* that the pass takes without lists, when training */
    const char *folder; /* of the run, for events.jsonl and density.csv; NULL: none */
    tess_event_fn event;
    void *event_user;
} tess__control_opts;

/* One array, so that ranks add theirs by one message; whole numbers are exact in it. */
typedef struct {
    double *all; /* (n): what follows, one behind the other */
    int64_t n;
    double *density;  /* (layers, buckets, heads) of what a step measured */
    double *profiles; /* (layers, buckets): how many it is the sum of */
    double *recall;   /* (layers, heads) */
    double *checks;   /* (layers) */
    double *overlap;  /* 2: the sum, and how many */
} tess__sums;

typedef struct tess__control {
    tess_ctx *ctx;
    tess__arena arena; /* the object itself first, then buffers */
    tess__control_opts opts;
    tess_attention_opts attention;
    tess_model_config config;
    int64_t tokens;
    int unit_cubes;
    tess__rules rules;
    tess__dsv_state state;
    tess__dsv_state imposed;         /* {0}, or read from attention.dispatch */
    tess__order orders[TESS__CUBES]; /* of d.cubes, with their indices */
    int64_t *inverse;                /* (tokens): place in the pass's order of each raster index */
    tess_predictor *predictor;       /* NULL without predictors */
    tess__learner learner;
    int loaded;              /* 1: the predictors are those of the checkpoint read last */
    tess_selector *selector; /* of checks */

    tess_attend_layer *layers; /* (layers) */
    int32_t *keys;             /* (layers, batch, heads) */
    int *buckets;              /* (batch) */
    double *rates;             /* (layers) */
    int64_t step;              /* from 1, of the last decide */
    int reuse, search;         /* of sampling, as of tess_attend */
    tess__sums sums[TESS__CUBES];
    tess__gathered gathered;
    double *measured;                           /* (batch, heads) */
    int32_t *check_keys;                        /* (batch, heads) */
    double step_density, step_loss, step_pairs; /* sums over layers and batches of a step */
    int64_t step_layers, step_losses;
    tess_status told; /* of writing events */
} tess__control;

tess_status tess__control_create(tess_ctx *ctx, const tess__control_opts *opts,
                                 tess__control **control);
void tess__control_destroy(tess__control *control); /* after the passes; NULL accepted */

/* Before the first step: fails where imposed choices are neither in the checkpoint that was read
 * nor in their file. */
tess_status tess__control_ready(tess__control *control);

/* What a pass needs now: cube and sparse of shape are set; sparse must live as long as shape. */
void tess__control_shape(const tess__control *control, tess_pass_shape *shape,
                         tess_sparse_opts *sparse);

/* Everything that is due before step number `step`, from 1. *remake: 1: the cubes are others now,
 * or there shall be room for lists: the pass must be made anew. */
tess_status tess__control_decide(tess__control *control, int64_t step, int *remake);

/* After a pass was made anew: tells how many layers' lists it keeps. */
tess_status tess__control_remade(tess__control *control, const tess_pass *pass);

/* How the next forward pass attends. u: (batch), the noise of each clip as a share of the schedule;
 * turn and sample, the number of its first clip: what random choices are keyed by; train: 1:
 * learns, and looks where it is due. */
tess_status tess__control_attend(tess__control *control, tess_pass *pass, const double *u,
                                 int64_t turn, int64_t sample, int train);

/* After a forward pass of training. */
tess_status tess__control_seen(tess__control *control, const tess_pass *pass);

/* After the last batch of a step, of `batches`: fills in what tess_step tells of sparse attention.
 * forward: forward passes for each backward one, 2 where blocks are run again. */
tess_status tess__control_learn(tess__control *control, int batches, int forwards, tess_step *step);

/* Of one backward pass and as many forward ones, over so many pairs of a query and a key. */
double tess__attention_gflop(int head_dim, int forwards, double pairs);

/* After the last step of a run. */
tess_status tess__control_end(tess__control *control, int64_t step);

/* ---- the controller's own parts
 * ------------------------------------------------------------------
 */

/* control.c: orders of the cubes that the decisions know, and the pass's; units of a cube's lists.
 */
tess_status tess__control_orders(tess__control *control);
tess_status tess__control_chosen(tess__control *control);
tess_status tess__control_impose(tess__control *control, const uint8_t *choices); /* or NULL */
int32_t tess__control_units(const tess__control *control, int cube);

/* control_break_even.c: the density at which sparse attention costs what dense does, on this
 * machine; control_ranks.c: for all ranks, and whence. */
tess_status tess__control_measure_break_even(tess__control *control, double *density, int *cached);
tess_status tess__control_break_even(tess__control *control, double *density, const char **rule);

/* control_ranks.c. Collective: what this rank has measured in a step becomes that of all ranks. */
tess_status tess__control_sum(tess__control *control);

/* What heads are expected to attend to in the next step, mean over the noise: (layers, heads). */
void tess__control_densities(const tess__control *control, double *densities);

/* Of everything that all ranks must have alike. */
uint64_t tess__control_hash(const tess__control *control);

/* control_probe.c */
tess_status tess__probe_create(tess__control *control, tess__gathered *gathered);
int64_t tess__probe_rows(int64_t tokens); /* queries gathered at most */
void tess__probe_choose(const tess__control *control, const tess__order *order,
                        tess__gathered *gathered);
void tess__probe_gather(const tess__control *control, const tess_hook_in *hook,
                        tess__gathered *gathered);
tess_view tess__probe_view(const tess_hook_in *hook, const tess__gathered *gathered, float *data,
                           int64_t dim);

/* control_look.c: profile and check of one layer; which ones are due in this step. */
tess_status tess__probes_create(tess__control *control);
tess_status tess__control_look(void *control, const tess_hook_in *hook);
int tess__profile_due(const tess__control *control, int layer);
int tess__check_due(const tess__control *control, int layer);
int tess__control_fold(tess__control *control); /* 1 if a layer was profiled */
void tess__control_clear(tess__control *control);

/* control_log.c: events.jsonl and density.csv of the run's folder. */
void tess__control_tell(void *control, const tess__event *event);
tess_status tess__control_density(const tess__control *control);

/* The files end with `step`, or begin. */
tess_status tess__control_open(tess__control *control, int64_t step);

/* ---- control_file.c: the controller's part of a checkpoint
 * ---------------------------------------
 */

/* A checkpoint without it leaves the controller as it was. */
tess_status tess__control_save(const tess__control *control, const char *dir);
tess_status tess__control_resume(tess__control *control, const char *dir);
tess_status tess__control_branch(tess__control *control, const char *dir);

/* How a checkpoint was trained to attend, with its cubes if they were chosen; DENSE without
 * decisions. */
tess_status tess__control_attention(tess_ctx *ctx, const char *dir, tess_attention_opts *attention);

#endif
