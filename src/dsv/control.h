/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - the controller of sparse attention, a state machine beside the training loop.
 *
 * What lives here: the controller, its predictors with their optimiser, and the table that says how
 * passes attend. What comes in: options, and the observations of a step. What goes out: the table,
 * events, and the controller's files of a checkpoint:
 *
 *   decisions.json            measurements and decisions (decide_file.c)
 *   predictor.safetensors     the predictors (sparse.h); their moments are in optimiser.safetensors
 *   clusters.safetensors      clusters of keys that all clips share (control_clusters.c)
 *
 * State, observations and decision have a type each:
 *
 *   tess__dsv_state      running means and what is in force; what a checkpoint saves (decide.h)
 *   tess__observations   sums over the passes of one step (model/observe.h)
 *   tess__decision       the state of the next step, with the events that lead to it
 *
 * A training step enters the controller twice:
 *
 *   tess__control_apply        the decision becomes the state in force
 *     for each batch of the step
 *       tess__attend_table_set   the budgets of the batch's noise levels; no controller needed
 *       tess_pass_forward        adds to the observations
 *   tess__control_observe      sums over ranks, the predictors' update, running means, decide
 *
 * Validation and sampling read the table alone. A step that measures allocates for the time of the
 * measurement; any other allocates nothing.
 */
#ifndef TESS_CONTROL_H
#define TESS_CONTROL_H

#include "decide.h"
#include "model/observe.h"
#include "optim/optim.h"
#include "optim/process_group.h"
#include "tessera/advanced/sparse.h"
#include "tessera/train.h"

/* ---- attention_options.c --------------------------------------------------------------------- */

/* Fills in the defaults; EINVAL names the field that breaks its rule. */
tess_status tess__attention_options(const char *who, tess_attention_opts *opts);

/* Of everything that must be the same on all ranks. */
uint64_t tess__attention_hash(const tess_attention_opts *opts);

/* Steps between two profiles of a layer; sparse: 1 in stage 2. */
int64_t tess__profile_interval(const tess_attention_opts *opts, int sparse);

/* ---- attention_shape.c: what the options ask of a pass --------------------------------------- */

/* The given cube, or those to compare, small ones first; how many. grid: tokens. */
int tess__attention_cubes(const tess_attention_opts *opts, const int grid[3],
                          int cubes[TESS_CUBES][3]);
int tess__attention_by_cubes(tess_attention kind); /* 1: keys are selected by whole cubes */

/* What the room of a pass for lists of keys follows from. */
typedef struct {
    const int *grid, *cube; /* tokens */
    int train;              /* 0: sampling, which takes choices as they are */
    int sparse;             /* 0: no layer has sparse heads yet */
    double break_even;      /* NaN: not known */
    int64_t memory;         /* bytes of the pass without lists; 0: lists may take any */
} tess__attention_at;

int64_t tess__attention_groups(const int grid[3], const int cube[3]); /* query groups */

/* The most units that a list may have, 0 where none is; and the pass's options of sparse attention.
 */
int32_t tess__attention_units(const tess_attention_opts *opts, const tess__attention_at *at);
void tess__attention_room(const tess_attention_opts *opts, const tess__attention_at *at,
                          tess_sparse_opts *room);

/* Bytes that a controller takes, predictors and their moments included. */
int64_t tess__attention_bytes(const tess_attention_opts *opts, const tess_model_config *config,
                              int batch, const int grid[3], int threads);

/* ---- predictor_optim.c: the predictors' optimiser -------------------------------------------- */

/* AdamW, one state for each layer, for a layer's learning rate depends on its stage. */
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

/* One update of each layer at learning rate rates[layer], from gradients times scale; number is
 * that of the update, from 1. 0: nothing was touched, for a gradient is not finite. */
int tess__learner_update(tess__learner *learner, const double *rates, double scale, int64_t number);

/* The moments as tensors, 2 for each parameter, names in the arena; *count is added to. */
tess_status tess__learner_tensors(const tess__learner *learner, tess__arena *arena,
                                  tess_tensor *tensors, int *count);

/* ---- attend_table.c: how passes attend ------------------------------------------------------- */

typedef struct {
    int n_layers, heads, batch;
    tess_attend attend;        /* without what differs from pass to pass */
    tess_attend_layer *layers; /* (layers) */
    int learns;                /* 1: training passes learn */
    int32_t *budgets;          /* (layers, quartiles, heads): key units; 0: dense */
    double *densities;         /* (layers, heads): expected, mean over the quartiles; for plans */
    int32_t *keys;             /* (layers, batch, heads): budgets of the pass at hand */
    uint8_t *renew;            /* (layers): 1: clusters are renewed in this step */
    uint8_t *by_cube;          /* (layers, heads), where groups are decided: 1: in cubes */
} tess__attend_table;

/* What differs from pass to pass. */
typedef struct {
    int64_t number, sample;   /* keys of random choices: the pass's, and its first sample's */
    int reuse, search;        /* of SEARCH in sampling, as in tess_attend */
    int renews;               /* 1: clusters that are due are renewed */
    tess__observer *observer; /* NULL: the pass neither learns nor measures */
} tess__attend_pass;

tess_status tess__attend_table_create(tess__arena *arena, int layers, int heads, int batch,
                                      tess__attend_table *table);

/* u: (batch), the noise level of each sample as a fraction of the schedule. */
tess_status tess__attend_table_set(tess__attend_table *table, tess_pass *pass, const double *u,
                                   const tess__attend_pass *how);

/* ---- the controller -------------------------------------------------------------------------- */

typedef struct {
    const tess_model_config *config;
    const tess_attention_opts *attention; /* defaults filled in; not DENSE */
    tess__process_group *pg;              /* ranks that decide together; NULL: this one alone */
    int batch;                            /* clips of a pass on this rank */
    int grid[3];                          /* tokens: frames, rows, columns; of clips of several
                                             sizes the largest one's */
    const int (*grids)[3]; /* (n_grids): of all sizes; lives as long as the controller */
    int n_grids;           /* 0: grid alone */
    uint64_t seed;
    int train;                /* 1: learns and measures; 0: for sampling, from a checkpoint */
    int64_t steps;            /* of the run, when training */
    int64_t memory;           /* bytes of the pass without lists, when training */
    tess__listener listener;  /* gets the events; fn NULL: none */
    int exact;                /* 1: passes are exact, and predictors' gradients in fixed point */
    tess_precision precision; /* of attention */
} tess__control_opts;

/* What decide leaves for apply. */
typedef struct {
    int64_t step;         /* that it is for; 0: nothing is decided */
    tess__dsv_state next; /* the state of that step */
    tess__event_list events;
} tess__decision;

/* Clusters of keys that all clips share; all NULL where there are none. */
typedef struct {
    float *centroids; /* (layers, heads, clusters, head_dim) */
    int64_t *found;   /* (layers): the step that renewed them last; 0: none yet */
} tess__shared_clusters;

typedef struct tess__control {
    tess_ctx *ctx;
    tess__arena arena; /* the object itself first, then buffers */
    tess__control_opts opts;
    tess_attention_opts attention;
    tess_model_config config;
    int reference[3]; /* the grid that is decided for; opts.grid is that of the pass at hand */
    int64_t tokens;
    tess__rules rules;

    int64_t step; /* of the state in force, from 1 */
    tess__dsv_state state;
    tess__decision decision;
    tess__dsv_state imposed; /* {0}, or read from attention.dispatch */

    tess__order orders[TESS_CUBES]; /* of state.cubes, with their indices */
    int64_t *inverse; /* (tokens): position in the pass's order of each raster index */
    tess__attend_table table;
    tess__observer observer; /* when training */
    int profiled;            /* 1: a layer was profiled in the last step */

    tess_predictor *predictor; /* NULL without predictors */
    tess_plugin *plugin;       /* of OWN */
    int loaded;                /* 1: the predictors are those of the checkpoint read last */
    tess__learner learner;
    double *rates;      /* (layers): learning rates of the predictors */
    double *by_content; /* (heads): densities of one quartile */
    tess__shared_clusters clusters;
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

/* The next passes have another grid, one of opts.grids: budgets, token orders and what is measured
 * follow. Densities are of all sizes together. */
tess_status tess__control_resize(tess__control *control, const int grid[3]);

/* After the state was changed from outside: the table follows, and nothing is decided yet. */
void tess__control_changed(tess__control *control);

/* Before step number `step`, from 1: what was decided is in force. *remake: 1: the cubes are others
 * now, or there shall be room for lists: the pass must be made again. */
tess_status tess__control_apply(tess__control *control, int64_t step, int *remake);

/* control_calibrate.c: whether a validation measures the change of the output by sparse attention;
 * and what follows from it, in % of the loss (NaN: nothing). */
int tess__control_calibrates(const tess__control *control); /* NULL accepted */
tess_status tess__control_calibrate(tess__control *control, double measured);

/* After the step, which had so many passes over all groups of ranks; forwards: forward passes for
 * each backward one, 2 where blocks are run again. Fills in what tess_step says of sparse
 * attention. Collective. */
tess_status tess__control_observe(tess__control *control, int64_t passes, int forwards,
                                  tess_step *step);

/* Of one backward pass and as many forward ones, over so many pairs of a query and a key. */
double tess__attention_gflop(int head_dim, int forwards, double pairs);

/* Of everything that all ranks must have alike. */
uint64_t tess__control_hash(const tess__control *control);

/* ---- between the controller's files ---------------------------------------------------------- */

/* control.c: after a cube was chosen; choices of another run, or NULL; units of a list in such
 * cubes, and the most that there is room for. */
tess_status tess__control_chosen(tess__control *control);
tess_status tess__control_impose(tess__control *control, const uint8_t *choices);
int32_t tess__control_units(const tess__control *control, const int cube[3]);
int32_t tess__control_units_most(const tess__control *control, const tess__dsv_state *state);

/* Takes over a state that was read. */
tess_status tess__control_adopt(tess__control *control, tess__dsv_state *state);

/* attend_table.c: after the state has changed. */
void tess__attend_table_fill(tess__control *control);

/* control_decide.c: the decision for step number `step`; events to the listener. */
tess_status tess__control_decide(tess__control *control, int64_t step);
tess_status tess__control_write(const tess__control *control, const tess__event *event);
tess_status tess__control_write_all(const tess__control *control, const tess__event_list *events);

/* control_break_even.c. Collective: the density at which sparse attention costs what dense does,
 * on this machine, in such cubes; how it is known; and the tokens from which on the wanted density
 * would pay, infinite where none. */
tess_status tess__control_break_even(tess__control *control, const int cube[3], double wanted,
                                     double *density, double *tokens, const char **rule);

/* control_clusters.c: numbers in the centroids of all layers, 0: none; their memory; whether those
 * of a sparse layer are renewed in this step; and after the step, collective: they were. */
int64_t tess__clusters_count(const tess_attention_opts *opts, const tess_model_config *config);
tess_status tess__control_clusters(tess__control *control);
int tess__clusters_due(const tess__control *control, int layer);
tess_status tess__clusters_renewed(tess__control *control);

void tess__control_budgets(const tess__control *control); /* of the checks of the step at hand */

/* control_ranks.c. Collective: what this rank has observed in a step becomes that of all ranks. */
tess_status tess__control_sum(tess__control *control);

/* ---- control_file.c: the controller's files of a checkpoint ---------------------------------- */

/* A checkpoint without them leaves the controller as it was. */
tess_status tess__control_save(const tess__control *control, const char *dir);
tess_status tess__control_resume(tess__control *control, const char *dir);
tess_status tess__control_branch(tess__control *control, const char *dir);

/* clusters_file.c. */
tess_status tess__clusters_save(const tess__control *control, const char *dir);
tess_status tess__clusters_load(tess__control *control, const char *dir);

/* How a checkpoint was trained to attend, with its cubes if they were chosen; DENSE without
 * decisions. */
tess_status tess__control_attention(tess_ctx *ctx, const char *dir, tess_attention_opts *attention);

#endif
