/* SPDX-License-Identifier: Apache-2.0 */
/* learner.c - what the stages of sparse training ask for, and the predictors' optimiser, as public
 * calls (step.h). Both are the controller's own. */
#include "control.h"
#include "tessera/advanced/step.h"

/* ---- stages ---------------------------------------------------------------------------------- */

tess_status tess_stage_query(const tess_attention_opts *opts, int sparse, int64_t tokens,
                             tess_stage *stage)
{
    TESS_REQUIRE(opts, stage);
    TESS_TRY(tess__check_flag(__func__, "sparse", sparse));
    TESS_TRY(tess__check_range(__func__, "tokens", tokens, 1, INT32_MAX));
    tess_attention_opts o = *opts;
    TESS_TRY(tess__attention_options(__func__, &o));
    *stage = (tess_stage){
        .lr = sparse ? o.lr_sparse * o.lr : o.lr,
        .mass = o.mass,
        .profile_every = tess__profile_interval(&o, sparse),
        .check_every = o.check_every,
        .rows = tess__sampled_rows(tokens),
    };
    return TESS_OK;
}

/* ---- learning -------------------------------------------------------------------------------- */

struct tess_learner {
    tess_ctx *ctx;
    tess__learner learner;
    int64_t updates;
    double *rates; /* (layers) */
};

tess_status tess_learner_create(tess_ctx *ctx, tess_predictor *predictor, int layers,
                                tess_learner **learner)
{
    tess_predictor_info info;
    TESS_REQUIRE(ctx, predictor, learner);
    TESS_TRY(tess_predictor_query(predictor, &info));
    if (layers < 1 || info.params % layers != 0)
        return tess__invalid(__func__, "layers is %d, must divide the predictor's %d parameters",
                             layers, info.params);
    tess_learner *made = TESS_ALLOC_ZERO(ctx, sizeof *made + (size_t)layers * sizeof(double));
    made->ctx = ctx;
    made->rates = (double *)(made + 1);
    const tess_status status = tess__learner_create(ctx, predictor, layers, &made->learner);
    if (status == TESS_OK)
        *learner = made;
    else
        tess__free(ctx, made);
    return status;
}

tess_status tess_learner_update(tess_learner *learner, double lr, int *updated)
{
    TESS_REQUIRE(learner, updated);
    TESS_TRY(tess__check_number(__func__, "lr", lr, 0, 1000));
    for (int layer = 0; layer < learner->learner.layers; layer++)
        learner->rates[layer] = lr;
    *updated = tess__learner_update(&learner->learner, learner->rates, 1.0, learner->updates + 1);
    learner->updates += *updated;
    return TESS_OK;
}

void tess_learner_destroy(tess_learner *learner)
{
    if (!learner)
        return;
    tess__learner_destroy(learner->ctx, &learner->learner);
    tess__free(learner->ctx, learner);
}
