/* SPDX-License-Identifier: Apache-2.0 */
/* predictor_optim.c - the predictors' optimiser: AdamW without decay, a state for each layer.
 *
 * A layer's rate falls when it switches, and AdamW is blind to the scale of gradients, so each
 * layer has an optimiser of its own over its part of the predictors' buffer. Gradients that are not
 * finite leave everything as it was: the diffusion loss does not depend on them, so training goes
 * on.
 */
#include "control.h"

#include <math.h>
#include <string.h>

static const double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;

static tess_status make_layer(tess_ctx *ctx, const tess__learner *learner, int layer,
                              tess__optim *optim)
{
    tess__optim_slot slots[8];
    int64_t at = 0;
    for (int i = 0; i < learner->params; i++) {
        tess_param p;
        TESS_TRY(tess_predictor_param(learner->predictor, layer * learner->params + i, &p));
        slots[i] = (tess__optim_slot){.at = at, .count = p.count};
        at += p.count;
    }
    return tess__optim_create(ctx, slots, learner->params, 0, NULL, optim);
}

tess_status tess__learner_create(tess_ctx *ctx, tess_predictor *predictor, int layers,
                                 tess__learner *learner)
{
    tess__learner made = {.predictor = predictor, .layers = layers};
    TESS_TRY(tess_predictor_query(predictor, &made.info));
    made.params = made.info.params / layers;
    made.count = made.info.count / layers;
    made.optims = TESS_ALLOC_ZERO(ctx, (size_t)layers * sizeof *made.optims);
    for (int layer = 0; layer < layers; layer++) {
        const tess_status status = make_layer(ctx, &made, layer, &made.optims[layer]);
        if (status != TESS_OK) {
            tess__learner_destroy(ctx, &made);
            return status;
        }
    }
    *learner = made;
    return TESS_OK;
}

void tess__learner_destroy(tess_ctx *ctx, tess__learner *learner)
{
    for (int layer = 0; layer < learner->layers; layer++)
        tess__optim_destroy(&learner->optims[layer]);
    tess__free(ctx, learner->optims);
    *learner = (tess__learner){.layers = 0};
}

int tess__learner_update(tess__learner *learner, const double *rates, double scale, int64_t number)
{
    for (int layer = 0; layer < learner->layers; layer++)
        if (!isfinite(tess__optim_squares(&learner->optims[layer],
                                          learner->info.gradients + layer * learner->count)))
            return 0;
    for (int layer = 0; layer < learner->layers; layer++) {
        const int64_t at = layer * learner->count;
        const tess__optim_step step = {.step = number,
                                       .lr = rates[layer],
                                       .beta1 = beta1,
                                       .beta2 = beta2,
                                       .eps = eps,
                                       .scale = scale};
        tess__adamw_update(&learner->optims[layer], &step, learner->info.values + at,
                           learner->info.gradients + at);
    }
    return 1;
}

tess_status tess__learner_tensors(const tess__learner *learner, tess__arena *arena,
                                  tess_tensor *tensors, int *count)
{
    static const char *const names[] = {"first", "second"};
    for (int i = 0; i < 2 * learner->info.params; i++) {
        const int moment = i / learner->info.params, index = i % learner->info.params;
        const tess__optim *optim = &learner->optims[index / learner->params];
        const tess__optim_slot *slot = &optim->slots[index % learner->params];
        tess_param p;
        char name[256];
        TESS_TRY(tess_predictor_param(learner->predictor, index, &p));
        const int length = snprintf(name, sizeof name, "%s.%s", names[moment], p.name);
        tess_tensor *tensor = &tensors[(*count)++];
        *tensor = (tess_tensor){.name = TESS_TAKE_STRING(arena, name, (size_t)length),
                                .dtype = TESS_DTYPE_F32,
                                .rank = p.rank,
                                .data = moment ? optim->second + slot->second
                                               : optim->first + slot->first};
        memcpy(tensor->shape, p.shape, (size_t)p.rank * sizeof *p.shape);
    }
    return TESS_OK;
}
