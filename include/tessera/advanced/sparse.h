/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.h - dynamic sparse attention inside a pass: predictors, and the key budget of each head.
 * Link with libtessera_train.
 *
 * A pass runs each (sample, head) of each layer either dense or on the keys that a selector
 * chooses for it, as tess_pass_attend says before the forward pass. The caller decides which heads
 * are sparse, and with how many keys.
 *
 *   const int cube[3] = {2, 4, 4};                          // queries that share their keys
 *   const tess_sparse_opts room = {.rank = 16, .max_density = 0.5};
 *   tess_pass_create(model, &(tess_pass_shape){..., .cube = cube, .sparse = &room}, &pass);
 *   tess_predictor_create(ctx, &config, NULL, &predictor);
 *   tess_attend_layer layers[N] = {{.kind = TESS_SELECT_PREDICTOR, .keys = keys}, ...};
 *   tess_pass_attend(pass, &(tess_attend){.layers = layers, .predictor = predictor});
 *   tess_pass_forward(pass, &in, out);                      // and backward, as ever
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_SPARSE_H
#define TESSERA_SPARSE_H

#include "../select.h"
#include "pass.h"
#include "plugin.h"
#include "predict.h"

TESS_BEGIN_DECLS

/* Noise levels are divided into quartiles, and at most so many sizes of cubes are compared. */
enum { TESS_CUBES = 6 };

/* ---- predictors ---------------------------------------------------------------------------- */

typedef struct {
    tess_predict_input input;
    int proj_dim;  /* length of a projected vector: a multiple of 8 up to 64; 0: 16 */
    int rotary;    /* HIDDEN: 1: rotated by the token's place in three dimensions */
    uint64_t seed; /* of the first values */
} tess_predictor_opts;

/* The predictors of all layers of a model: one buffer of values and one of gradients. */
typedef struct tess_predictor tess_predictor;

/* First values: QK begins with the same random matrix for q and k, whose products estimate those
 * of q and k; HIDDEN with variance 1 / dim and biases of 0. Gradients begin as 0. */
TESS_API tess_status tess_predictor_create(tess_ctx *ctx, const tess_model_config *config,
                                           const tess_predictor_opts *opts,
                                           tess_predictor **predictor);

typedef struct {
    tess_predictor_opts opts; /* with proj_dim resolved */
    int params;               /* tensors */
    int64_t count;            /* numbers in all of them */
    float *values;            /* (count): every parameter, one behind the other in their order */
    float *gradients;         /* (count) */
} tess_predictor_info;

TESS_API tess_status tess_predictor_query(const tess_predictor *predictor,
                                          tess_predictor_info *info);

/* Parameter number index, in the order of layers:
 *
 *   QK      blocks.N.attn1.predictor.q.weight, k.weight          (heads, proj_dim, head_dim)
 *   HIDDEN  blocks.N.attn1.predictor.q.weight, k.weight          (heads * proj_dim, dim)
 *           blocks.N.attn1.predictor.q.bias, k.bias              (heads * proj_dim) */
TESS_API tess_status tess_predictor_param(const tess_predictor *predictor, int index,
                                          tess_param *param);
TESS_API tess_status tess_predictor_zero_gradients(tess_predictor *predictor);

/* A safetensors file of F32 whose metadata hold format (1), input (qk, hidden), rank and rotary.
 * Loading asks for the sizes of the model it goes with; EFORMAT names what is missing or wrong. */
TESS_API tess_status tess_predictor_save(const tess_predictor *predictor, const char *path);
TESS_API tess_status tess_predictor_load(tess_ctx *ctx, const tess_model_config *config,
                                         const char *path, tess_predictor **predictor);
TESS_API void tess_predictor_destroy(tess_predictor *predictor); /* after the passes that use it */

/* ---- how a pass attends ---------------------------------------------------------------------- */

/* One layer. All zero is dense. */
typedef struct {
    tess_select_kind kind;  /* all but EDGES */
    const int32_t *keys;    /* (batch, heads): key units for each group of that sample's head; 0:
                              dense. WINDOW asks only whether it is 0. NULL: all dense */
    int learn;              /* 1: the forward pass adds the gradients of the predictor's loss to the
                              predictor's gradients; q and k get none from it */
    int hook;               /* 1: the hook is called in the forward pass */
    int renew;              /* 1: the layer's part of tess_attend.centroids is found anew in the
                              forward pass, from the keys of its samples; only if keys is given */
    const uint8_t *by_cube; /* (heads): 1: queries of a cube share keys, whatever the pass's
                               sparse.group says; NULL: of none */
} tess_attend_layer;

/* Input and result of a layer's attention, for the hook; valid during the call. Views are F32, of
 * batch x heads x tokens x head_dim (or proj_dim), for the heads passed, in the token order of the
 * pass. */
typedef struct {
    int layer;
    int head,
        heads; /* the first head passed, and how many: all, or with context parallelism an even
                        part for each rank; the hook of a rank without heads is not called */
    const tess_view *q, *k;
    const tess_view *v; /* NULL with context parallelism, unless the pass was made with values */
    const tess_view *q_low, *k_low; /* projections of the predictor; NULL without one */
    int proj_dim;
    const uint8_t *labels; /* (batch, heads, tokens): clusters of the keys of heads that are sparse;
                              NULL unless compensate is above 1, and with context parallelism */
    const int32_t
        *rows;        /* (batch, heads, tokens): the query at each place of the groups of heads that
                            are sparse; NULL: groups are cubes */
    const float *lse; /* (batch, heads, tokens) over the keys that were attended to; NULL in a pass
                         without training */
} tess_hook_in;

/* A failure ends the forward pass with that status. */
typedef tess_status (*tess_hook_fn)(void *user, const tess_hook_in *hook);

typedef struct {
    const tess_attend_layer *layers; /* (layers of the model) */
    tess_predictor *predictor;       /* for PREDICTOR; not the pass's, and must outlive its calls */
    tess_plugin *plugin;             /* chooses in place of the kinds; NULL: none. Likewise */
    tess_proxy proxy;                /* of a group before the predictor */
    int32_t window[3];               /* of WINDOW: cubes */
    tess_predict_loss loss; /* of learning, over the pass's learn_rows queries of each head */
    uint64_t seed, step;    /* of these queries, and of RANDOM */
    int64_t sample;         /* number of the pass's first sample in the step, for RANDOM */
    int reuse;              /* SEARCH: what was found for a sample's head in one of so many steps
                               before `step` is used again, if its budget is the same; 0: nothing */
    int search;             /* SEARCH: the set that is used and filled, below the pass's searches */
    float *centroids;       /* (layers, heads, compensate, head_dim) of a pass made with compensate
                               above 1: the clusters of keys, for all samples; the caller's, must
                               outlive its calls. NULL: each sample's, found in each forward pass */
    int by_error;           /* PREDICTOR, ORACLE, SEARCH: 1: a key's mass counts times its distance
                               from its cluster's centroid; the pass was made with compensate above
                               1, and every rank that selects has all keys of the head */
    tess_hook_fn hook;
    void *user;
} tess_attend;

/* What the next forward passes do, copied with its arrays; NULL: dense, and what SEARCH found is
 * forgotten. A block that is recomputed for its gradients attends to the same keys, and neither
 * learns nor calls the hook. EINVAL: more keys than the pass has room for, a predictor of another
 * model; the pass stays as it was. */
TESS_API tess_status tess_pass_attend(tess_pass *pass, const tess_attend *attend);

/* Of the last forward pass, of one layer. The arrays are the pass's. */
typedef struct {
    const double *density; /* (batch, heads): (query, key) pairs attended to / all; 1: dense */
    double loss;           /* of the predictor, mean over samples, heads and queries; NaN: none */
    const double *loss_heads; /* (batch, heads): the same, of each */
    int reselected;           /* 1: the lists are not saved, and selected again for the gradients */
} tess_attend_result;

TESS_API tess_status tess_pass_attend_result(const tess_pass *pass, int layer,
                                             tess_attend_result *result);

TESS_END_DECLS

#endif
