/* SPDX-License-Identifier: Apache-2.0 */
/* control_observe.c - after a forward pass, and after a step: what was done, learning, folding.
 *
 * Products of attention, for each pair of a query and a key that was attended to: 4 head_dim
 * forward (scores and output), 10 head_dim backward (scores again, and four gradients).
 */
#include "control.h"

#include <math.h>

enum { FORWARD = 4, BACKWARD = 10 };

double tess__attention_gflop(int head_dim, int forwards, double pairs)
{
    return 1e-9 * head_dim * (double)(FORWARD * forwards + BACKWARD) * pairs;
}

tess_status tess__control_seen(tess__control *c, const tess_pass *pass)
{
    const int64_t all = (int64_t)c->opts.batch * c->config.heads;
    for (int layer = 0; layer < c->config.layers; layer++) {
        tess_attend_result result;
        double sum = 0.0;
        TESS_TRY(tess_pass_attend_result(pass, layer, &result));
        for (int64_t i = 0; i < all; i++)
            sum += result.density[i];
        c->step_density += sum / (double)all;
        c->step_pairs += sum * (double)c->tokens * (double)c->tokens;
        c->step_layers++;
        if (isnan(result.loss))
            continue;
        c->step_loss += result.loss;
        c->step_losses++;
    }
    return TESS_OK;
}

/* Mean over the layers that were checked, in the cubes of now. */
static double last_recall(const tess__control *c)
{
    const int64_t all = (int64_t)c->config.layers * c->config.heads;
    const double *of = c->state.cubes[tess__best_cube(&c->state)].recall;
    double sum = 0.0;
    int64_t n = 0;
    for (int64_t i = 0; i < all; i++) {
        const double recall = of[i];
        sum += isnan(recall) ? 0.0 : recall;
        n += !isnan(recall);
    }
    return n ? sum / (double)n : (double)NAN;
}

static void learn(tess__control *c, int batches)
{
    const tess_attention_opts *o = &c->attention;
    const int groups = c->opts.pg ? c->opts.pg->dp_size : 1;
    const double scale = 1.0 / ((double)batches * groups);
    const double loss = c->step_loss / (double)c->step_losses;
    for (int layer = 0; layer < c->config.layers; layer++)
        c->rates[layer] = c->state.sparse[layer] ? o->lr_sparse * o->lr : o->lr;
    if (isfinite(loss) &&
        tess__learner_update(&c->learner, c->rates, scale, c->state.updates + 1)) {
        tess__fold_loss(&c->state, loss);
        return;
    }
    tess__control_tell(c, &(tess__event){.kind = TESS__EVENT_SKIPPED,
                                         .step = c->step,
                                         .layer = -1,
                                         .head = -1,
                                         .rule = "a loss or gradient that is not finite"});
}

tess_status tess__control_learn(tess__control *c, int batches, int forwards, tess_step *step)
{
    const tess__process_group *pg = c->opts.pg;
    tess_comm_counts waits = {.wait_ns = 0};
    const int64_t begin = tess__pg_clock(pg);
    tess__counts_add(pg ? pg->world : NULL, -1, &waits);
    c->told = TESS_OK;
    TESS_TRY(tess__control_sum(c));
    if (c->step_losses > 0)
        learn(c, batches);
    tess__counts_add(pg ? pg->world : NULL, 1, &waits);
    const double took = 1e-6 * (double)(tess__pg_clock(pg) - begin);
    const double waited = 1e-6 * (double)waits.wait_ns;
    step->learn_ms += took - waited;
    step->exchange_ms += waited;
    step->step_ms += took;
    if (tess__control_fold(c))
        TESS_TRY(tess__control_density(c));
    step->density = c->step_density / (double)c->step_layers;
    step->sparse_layers = 0.0;
    for (int layer = 0; layer < c->config.layers; layer++)
        step->sparse_layers += c->state.sparse[layer];
    step->recall = last_recall(c);
    step->predictor_loss = c->step_losses > 0 ? c->step_loss / (double)c->step_losses : (double)NAN;
    step->attention_gflop = tess__attention_gflop(c->config.head_dim, forwards, c->step_pairs);
    return c->told;
}
