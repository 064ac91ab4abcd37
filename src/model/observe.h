/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h (internal) - what a forward pass measures of the attention of its layers.
 *
 * What lives here: the observer, which says what is measured, and the observations, sums over the
 * forward passes of a step. What comes in: the layers, budgets and token orders of the caller, and
 * q and k of each layer while the pass has them. What goes out: numbers by layer, noise-level
 * quartile and head. Nothing is decided here, and no callback is needed.
 *
 *   profile   density: the fraction of the keys that holds `mass` of a group's softmax, mean over
 *             the sampled groups; or the one that changes the model's output by at most `error`,
 *             for which the backward pass adds squares of gradients (change_density.c); on request
 *             also the overlap of the queries of a cube
 *   check     recall: the softmax mass of the predictor's keys for a group at its budget over that
 *             of as many keys chosen by the oracle
 */
#ifndef TESS_OBSERVE_H
#define TESS_OBSERVE_H

#include "pass_internal.h"
#include "tessera/advanced/predict.h"
#include "tessera/advanced/sparse.h"

/* ---- query groups of one cube size, sampled from any order of tokens ------------------------- */

typedef struct {
    int cube[3];
    int32_t groups;
    int64_t *perm;   /* (tokens): raster index of the token at each position in the cubes' order */
    int64_t *bounds; /* (groups + 1) */
} tess__order;

/* The queries of the sampled groups, side by side. A check takes so many groups at a time, as a
 * list may hold every key. */
enum { TESS__CHECK_GROUPS = 32 };
typedef struct {
    int64_t rows;     /* queries */
    int32_t groups;   /* that they belong to */
    int32_t *group;   /* (groups): their numbers among all */
    int64_t *token;   /* (rows): in the pass's order */
    int64_t *bounds;  /* (groups + 1) */
    int64_t *checked; /* (TESS__CHECK_GROUPS + 1): bounds of the groups that are checked together */
    float *q, *low;   /* (batch, heads, rows, head_dim), (batch, heads, rows, proj_dim) */
    float *lse;       /* (batch, heads, rows) */
    int64_t capacity; /* rows that the buffers hold */
} tess__sampled;

/* ---- observations ---------------------------------------------------------------------------- */

/* In cubes of one size. One array, so that ranks add theirs by one all-reduce; counts are exact in
 * it. */
typedef struct {
    double *all; /* (n): the arrays below, one behind the other */
    int64_t n;
    double *density;  /* (layers, quartiles, heads): sums over samples */
    double *profiles; /* (layers, quartiles): samples in the sum */
    double *recall;   /* (layers, heads) */
    double *checks;   /* (layers) */
    double *overlap;  /* 2: the sum, and how many */
    /* Of a profile by error, else NULL: squares, summed over queries and elements. */
    double *output; /* (layers, quartiles, heads): of dense attention's output */
    double *change; /* (layers, quartiles, heads, TESS__TRIAL_DENSITIES): of what a density of the
                       trial changes in it */
    double
        *gradient;   /* (layers, quartiles, heads): of the loss's gradients with respect to it, over
                         all queries, times the samples' weights */
    double *queries; /* (layers, quartiles): in the sums of one head */
    /* Of groups that are compared (TESS_GROUP_AUTO), else NULL: */
    double *shared; /* (2, layers, heads): the overlap in cubes and by content, summed over samples;
                        not of a profile by error, where there are, as above, */
    double *output2; /* of groups by content */
    double *change2;
    double *compared; /* (layers): samples in the sums */
} tess__cube_sums;

/* Sums over the forward passes since tess__observer_clear. */
typedef struct {
    tess__cube_sums cubes[TESS_CUBES];
    double density; /* (query, key) pairs attended to / all: mean of a sample's heads, summed */
    double pairs;   /* attended to */
    double loss;    /* of the predictors */
    int64_t layers, losses; /* (layer, sample) in the sums of density and loss */
} tess__observations;

/* ---- the observer ---------------------------------------------------------------------------- */

typedef struct {
    uint8_t profile, check; /* 1: measured in this step */
    uint8_t dense;          /* 1: attended to all keys, so that the pass's log-sums are over all */
} tess__observe_layer;

typedef struct {
    int layers, heads, head_dim, batch;
    int proj_dim;     /* of the predictor; 0: none, and no checks */
    int64_t tokens;   /* of a sample */
    tess_proxy proxy; /* of checks */
    double mass;
    /* A profile by error: */
    double error;     /* largest change of the model's output that the densities of all heads may
                         cause together, in % of its loss; 0: by mass */
    int compensate;   /* virtual keys that stand for what a list leaves out */
    tess_group group; /* queries that share a list; AUTO: cubes and content are compared */
} tess__observer_opts;

typedef struct tess__observer {
    tess_ctx *ctx;
    tess__observer_opts opts;
    /* What is measured in a step; the caller's. */
    int64_t step;              /* which groups are sampled */
    const tess__order *orders; /* (n_orders): sizes of cubes that are compared */
    int n_orders;
    const int64_t *inverse;      /* (tokens): position in the pass's order of each raster index */
    int overlap;                 /* 1: measured with the profile */
    const uint8_t *content;      /* (layers, heads), with AUTO: 1: groups of a sparse layer are by
                               content; those of dense layers are compared */
    tess__observe_layer *layers; /* (layers) */
    int32_t *budgets;   /* (orders, layers, quartiles, heads): keys of a check; 0: not known yet */
    int *quartiles;     /* (batch): of the samples of the next forward pass */
    double *weights;    /* (batch): of their gradients (tess__observe_weigh) */
    double calibration; /* factor on estimated changes, from measured ones; begins as 1 */
    /* What was measured. */
    tess__observations sums;
    /* Workspace. */
    tess__sampled sampled;
    double *values;          /* (batch, heads) */
    int32_t *keys;           /* (batch, heads): budgets of a check */
    tess_selector *selector; /* of checks and of a profile by error */
} tess__observer;

/* Buffers lie in the arena. */
tess_status tess__observer_create(tess_ctx *ctx, tess__arena *arena,
                                  const tess__observer_opts *opts, tess__observer *observer);
void tess__observer_destroy(tess__observer *observer); /* what is not in the arena */
void tess__observer_clear(tess__observer *observer);   /* the sums are 0 */

/* The quartile of the noise level u, a fraction of the schedule. */
int tess__quartile(double u);

/* Where budgets of a check lie: (heads). */
int32_t *tess__observer_budgets(const tess__observer *observer, int order, int layer, int quartile);

/* 1: the layer is measured in this step; NULL accepted: 0. */
int tess__observes(const tess__observer *observer, int layer);

/* What the next forward passes measure, and add to the sums of the observer, which outlives them;
 * NULL: nothing. tess_pass_attend takes it back to nothing. Where ranks share the tokens each of
 * them measures an even share of the heads. */
tess_status tess__pass_observe(tess_pass *pass, tess__observer *observer);

/* Inside the forward pass: the tensors of a layer to the observer and the hook, and at its end what
 * all layers attended to. Measuring allocates for its time. */
tess_status tess__pass_show(tess_pass *pass, const tess_hook_in *in);
void tess__observe_attended(const tess_pass *pass);

/* observe_sample.c */
tess_status tess__sampled_create(tess__arena *arena, const tess__observer_opts *opts,
                                 tess__sampled *sampled);
int64_t tess__sampled_rows(int64_t tokens); /* queries at most */
void tess__sample_groups(tess__observer *observer, const tess__order *order);
void tess__sample_queries(tess__observer *observer, const tess_hook_in *in);
tess_view tess__sampled_view(const tess__sampled *sampled, int heads, float *data, int64_t dim);

/* ---- output_change.c, change_density.c: the density that changes the output by at most `error` */

enum { TESS__TRIAL_DENSITIES = 5 }; /* 1/32, 1/16, 1/8, 1/4, 1/2 */

/* Adds to `output` and `change` of the sampled groups; the hook has v. */
tess_status tess__observe_change(tess__observer *observer, int order, const tess_hook_in *in);

/* Weights of the samples, from the gradient of the loss with respect to the model's output: (batch,
 * n), that is `slope` times the residual. Then the backward pass adds to `gradient` of the layers
 * that were profiled; dout: of the attention output, local tokens. */
void tess__observe_weigh(tess__observer *observer, const float *gradient, int batch, int64_t n,
                         double slope);
void tess__observe_gradient(const tess_pass *pass, int layer, const tess_view *dout);

/* density (heads) of a layer's sums in one quartile, 1 where no density of the trial suffices, NaN
 * where there was no gradient; content 1: of groups by content, where these are compared with
 * cubes. */
void tess__change_densities(const tess__observer *observer, int order, int layer, int quartile,
                            int content, double *density);

/* Memory of a measurement at most, without the selector's. */
int64_t tess__change_bytes(const tess__observer_opts *opts, int64_t volume, int threads);

/* ---- observe_groups.c: cubes and groups by content compared ---------------------------------- */

/* Adds to `shared` of a layer; density: as of the profile, of the cubes. */
tess_status tess__observe_groups(tess__observer *observer, int order, const tess_hook_in *in,
                                 const tess_density_in *density);

/* Memory of that at most, without what tess_overlap_measure takes. */
int64_t tess__group_bytes_most(const tess__observer_opts *opts, int64_t rows);

/* ---- predictor.c ----------------------------------------------------------------------------- */

/* Collective: the gradients of a predictor from the sums of exact passes on all ranks of a world,
 * NULL: one rank; the sums are 0 then. Without sums nothing. */
tess_status tess__predictor_reduce(tess_predictor *predictor, tess_comm *world);

#endif
