/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.c - Adam with decoupled weight decay, and the running average in the same pass.
 *
 *   m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
 *   p = p - lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay p)
 *
 * (Kingma and Ba, 2015; Loshchilov and Hutter: Decoupled Weight Decay Regularization, 2019.) Decay
 * is of matrices alone: a bias, a norm or a table has no reason to be small. Pieces are
 * independent, so that threads may process them in any order.
 */
#include "optim.h"

#include <math.h>

void tess__adamw_update(tess__optim *optim, const tess__optim_step *step, float *value,
                        const float *gradient)
{
    const double t = (double)step->step;
    tess__param_update d = {
        .g_scale = (float)step->scale,
        .beta1 = (float)step->beta1,
        .beta2 = (float)step->beta2,
        .step_size = (float)(step->lr / (1.0 - pow(step->beta1, t))),
        .inv_sqrt_bias2 = (float)(1.0 / sqrt(1.0 - pow(step->beta2, t))),
        .eps = (float)step->eps,
        .decay = 1.0f,
        .ema_rate = tess__ema_rate(step->ema, step->step),
    };
    tess__param_update shrinking = d;
    shrinking.decay = (float)(1.0 - step->lr * step->weight_decay);
#pragma omp parallel for num_threads(optim->ctx->threads) schedule(static)
    for (int64_t i = 0; i < optim->n_adamw; i++) {
        const tess__optim_piece *p = &optim->pieces[i];
        const tess__optim_slot *slot = &optim->slots[p->slot];
        const int64_t at = slot->at + p->at, own = slot->first + p->at;
        optim->ctx->kernels->adamw(slot->decay ? &shrinking : &d, gradient + at, optim->first + own,
                                   optim->second + slot->second + p->at, value + at,
                                   optim->ema ? optim->ema + own : NULL, p->count);
    }
}
