/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - parts of a training step by themselves: for loops of one's own, and for measuring them.
 * Link with libtessera_train.
 *
 * They are the parts that tess_train_run is made of, with the same results.
 *
 *   tess_predictor_zero_gradients(predictor);
 *   tess_pass_forward(pass, &in, out);                    // its layers learn (sparse.h)
 *   tess_learner_update(learner, stage.lr, &updated);
 *
 *   tess_reduce_attach(reduce, pass);                     // of each rank
 *   tess_model_zero_gradients(model);
 *   tess_pass_forward(pass, &in, out);
 *   tess_pass_backward(pass, dout, NULL);                 // gradients are reduced meanwhile
 *   ...                                                   // every rank updates what it owns
 *   tess_reduce_values(reduce);
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_STEP_H
#define TESSERA_STEP_H

#include "../train.h"
#include "sparse.h"

TESS_BEGIN_DECLS

/* ---- predictors ---------------------------------------------------------------------------- */

/* Settings of a layer in one stage, with the defaults of the options filled in. */
typedef struct {
    double lr;             /* of the predictors */
    double mass;           /* of the softmax that a profile's density holds */
    int64_t profile_every; /* steps */
    int64_t check_every;   /* steps between checks of recall */
    int64_t rows;          /* most queries that a profile or check measures: whole groups */
} tess_stage;

/* sparse: 1 for stage 2, 0 for stage 1; tokens: of a sample. */
TESS_API tess_status tess_stage_query(const tess_attention_opts *opts, int sparse, int64_t tokens,
                                      tess_stage *stage);

/* The predictors' optimiser: AdamW without decay, with moments that begin as 0. */
typedef struct tess_learner tess_learner;

/* layers: of the model that the predictor was made for. */
TESS_API tess_status tess_learner_create(tess_ctx *ctx, tess_predictor *predictor, int layers,
                                         tess_learner **learner);

/* One update at learning rate lr from the predictor's gradients, which stay as they are. *updated =
 * 0: one of them is not finite, and nothing was touched. Allocates nothing. */
TESS_API tess_status tess_learner_update(tess_learner *learner, double lr, int *updated);
TESS_API void tess_learner_destroy(tess_learner *learner); /* before the predictor */

/* ---- cubes ----------------------------------------------------------------------------------- */

/* The cubes that are compared where none is given, clipped to a grid of tokens, small ones first;
 * how many, 0 for NULL. */
TESS_API int tess_attention_cubes(const int grid[3], int cubes[TESS_CUBES][3]);

/* ---- gradients of many ranks ----------------------------------------------------------------- */

/* Every parameter has one owner among the ranks. Gradients go to it while backward computes those
 * of the block before, two blocks at a time; values come back from it. */
typedef struct tess_reduce tess_reduce;

/* Not collective, but the same model sizes and optimiser on all ranks, which decide about owners.
 * model, with gradients, and comm are used until the destroy. */
TESS_API tess_status tess_reduce_create(tess_model *model, tess_comm *comm, tess_optim optim,
                                        tess_reduce **reduce);

/* From now on backward passes of `pass`, of the same model, are collective: after each the model's
 * gradients of a parameter are, on its owner, the sums over the ranks, added in their order, and
 * elsewhere this rank's own. pass NULL: those of the pass attached before are not any more,
 * as must be before that pass is destroyed. */
TESS_API tess_status tess_reduce_attach(tess_reduce *reduce, tess_pass *pass);

/* Collective: every value of the model as its owner has it. */
TESS_API tess_status tess_reduce_values(tess_reduce *reduce);

typedef struct {
    int64_t waited_ns; /* for gradients and values of other ranks, since it was made */
    int64_t bytes;     /* that its buffers take */
    const int *owner;  /* (params of the model): a rank; the reduce's own */
    int params;
} tess_reduce_info;

TESS_API tess_status tess_reduce_query(const tess_reduce *reduce, tess_reduce_info *info);
TESS_API void tess_reduce_destroy(tess_reduce *reduce); /* before the model and comm */

/* ---- learning rates -------------------------------------------------------------------------- */

/* The factor on the learning rates in step number step, from 0: warmup, constant, decay. */
TESS_API double tess_train_schedule(const tess_train_opts *opts, int64_t step);

TESS_END_DECLS

#endif
