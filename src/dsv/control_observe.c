/* SPDX-License-Identifier: Apache-2.0 */
/* control_observe.c - the end of a training step: from its observations to the next decision.
 *
 *   sums over ranks -> the predictors' update -> running means of the state -> decide
 *
 * Products of attention, for each pair of a query and a key that was attended to: 4 head_dim
 * forward (scores and output), 10 head_dim backward (scores again, and four gradients).
 */
#include "control.h"

#include <math.h>

enum { FORWARD = 4, BACKWARD = 10, QUARTILES = TESS_NOISE_BUCKETS };

double tess__attention_gflop(int head_dim, int forwards, double pairs)
{
    return 1e-9 * head_dim * (double)(FORWARD * forwards + BACKWARD) * pairs;
}

/* ---- learning -------------------------------------------------------------------------------- */

static tess_status learn(tess__control *c, int64_t passes)
{
    const tess_attention_opts *o = &c->attention;
    const tess__observations *sums = &c->observer.sums;
    /* Gradients are means over a pass's samples; exact ones are of each sample. */
    const double scale = 1.0 / ((double)passes * (c->opts.exact ? c->opts.batch : 1));
    const double loss = sums->loss / (double)sums->losses;
    for (int layer = 0; layer < c->config.layers; layer++)
        c->rates[layer] = c->state.sparse[layer] ? o->lr_sparse * o->lr : o->lr;
    if (isfinite(loss) &&
        tess__learner_update(&c->learner, c->rates, scale, c->state.updates + 1)) {
        tess__fold_loss(&c->state, loss);
        return TESS_OK;
    }
    return tess__control_write(c, &(tess__event){.kind = TESS__EVENT_SKIPPED,
                                                 .step = c->step,
                                                 .layer = -1,
                                                 .head = -1,
                                                 .rule = "a loss or gradient that is not finite"});
}

/* The sums over all ranks and the predictors' update, with their time. */
static tess_status sum_and_learn(tess__control *c, int64_t passes, tess_step *step)
{
    const tess__process_group *pg = c->opts.pg;
    tess_comm_counts waits = {.wait_ns = 0};
    const int64_t begin = tess__pg_clock(pg);
    tess_status status = TESS_OK;
    tess__counts_add(pg ? pg->world : NULL, -1, &waits);
    TESS_TRY(tess__control_sum(c));
    if (c->observer.sums.losses > 0)
        status = learn(c, passes);
    tess__counts_add(pg ? pg->world : NULL, 1, &waits);
    const double took = 1e-6 * (double)(tess__pg_clock(pg) - begin);
    const double waited = 1e-6 * (double)waits.wait_ns;
    step->learn_ms += took - waited;
    step->exchange_ms += waited;
    step->step_ms += took;
    return status;
}

/* ---- running means --------------------------------------------------------------------------- */

/* A density for comparing groups: all keys where nothing is known. */
static double known(double density)
{
    return isnan(density) ? 1.0 : density;
}

/* density (heads) of one quartile, by the limit of error: of the groups that were decided, or while
 * they are compared of the better ones; both kinds are added to shared (2, layers, heads). */
static void densities_by_error(tess__control *c, int cube, int layer, int q, double *density)
{
    const int heads = c->config.heads;
    tess__cube_sums *s = &c->observer.sums.cubes[cube];
    tess__change_densities(&c->observer, cube, layer, q, 0, density);
    if (!s->shared || s->compared[layer] == 0.0)
        return;
    double *cubes = s->shared + (int64_t)layer * heads;
    double *content = cubes + (int64_t)c->config.layers * heads;
    const double weight = s->profiles[(int64_t)layer * QUARTILES + q];
    for (int h = 0; h < heads; h++)
        cubes[h] += weight * known(density[h]);
    tess__change_densities(&c->observer, cube, layer, q, 1, c->by_content);
    for (int h = 0; h < heads; h++) {
        content[h] += weight * known(c->by_content[h]);
        density[h] = fmin(density[h], c->by_content[h]);
    }
}

/* Groups that were compared, means over the samples. */
static void fold_groups(tess__control *c, int cube, int layer)
{
    tess__cube_sums *s = &c->observer.sums.cubes[cube];
    const int heads = c->config.heads;
    if (!s->shared || s->compared[layer] == 0.0)
        return;
    double *cubes = s->shared + (int64_t)layer * heads;
    double *content = cubes + (int64_t)c->config.layers * heads;
    for (int h = 0; h < heads; h++) {
        cubes[h] /= s->compared[layer];
        content[h] /= s->compared[layer];
    }
    tess__fold_shared(&c->state, cube, layer, cubes, content);
}

/* Means of what the step measured of a layer. */
static void fold_layer(tess__control *c, int cube, int layer)
{
    tess__cube_sums *s = &c->observer.sums.cubes[cube];
    const int heads = c->config.heads;
    for (int q = 0; q < QUARTILES; q++) {
        const int64_t at = (int64_t)layer * QUARTILES + q;
        double *density = s->density + at * heads;
        if (s->profiles[at] == 0.0)
            continue;
        if (c->attention.error > 0.0)
            densities_by_error(c, cube, layer, q, density);
        for (int h = 0; h < heads && c->attention.error == 0.0; h++)
            density[h] /= s->profiles[at];
        tess__fold_density(&c->state, cube, layer, q, density);
    }
    fold_groups(c, cube, layer);
    double *recall = s->recall + (int64_t)layer * heads;
    if (s->checks[layer] == 0.0)
        return;
    for (int h = 0; h < heads; h++)
        recall[h] /= s->checks[layer];
    tess__fold_recall(&c->state, &c->rules, cube, layer, recall);
}

/* 1 if a layer was profiled. */
static int fold(tess__control *c)
{
    int profiled = 0;
    for (int cube = 0; cube < c->state.n_cubes; cube++) {
        const tess__cube_sums *s = &c->observer.sums.cubes[cube];
        for (int i = 0; i < c->config.layers * QUARTILES; i++)
            profiled |= s->profiles[i] > 0.0;
        for (int layer = 0; layer < c->config.layers; layer++)
            fold_layer(c, cube, layer);
        if (s->overlap[1] > 0.0)
            tess__fold_overlap(&c->state, cube, s->overlap[0] / s->overlap[1]);
    }
    return profiled;
}

/* ---- the step -------------------------------------------------------------------------------- */

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

static void describe(const tess__control *c, int forwards, tess_step *step)
{
    const tess__observations *sums = &c->observer.sums;
    step->density = sums->density / (double)sums->layers;
    step->sparse_layers = 0.0;
    for (int layer = 0; layer < c->config.layers; layer++)
        step->sparse_layers += c->state.sparse[layer];
    step->recall = last_recall(c);
    step->predictor_loss = sums->losses > 0 ? sums->loss / (double)sums->losses : (double)NAN;
    step->attention_gflop = tess__attention_gflop(c->config.head_dim, forwards, sums->pairs);
}

/* The next decision; after the last step of the run, which layers stayed dense. */
static tess_status decide(tess__control *c, tess_step *step)
{
    const int64_t begin = tess__pg_clock(c->opts.pg);
    tess_status status;
    if (c->step < c->opts.steps) {
        status = tess__control_decide(c, c->step + 1);
    } else {
        c->decision.events.n = 0;
        tess__decide_end(&c->state, &c->rules, c->step, &c->decision.events);
        status = tess__control_write_all(c, &c->decision.events);
    }
    const double took = 1e-6 * (double)(tess__pg_clock(c->opts.pg) - begin);
    step->other_ms += took;
    step->step_ms += took;
    return status;
}

tess_status tess__control_observe(tess__control *c, int64_t passes, int forwards, tess_step *step)
{
    TESS_TRY(tess__control_resize(c, c->reference));
    TESS_TRY(sum_and_learn(c, passes, step));
    TESS_TRY(tess__clusters_renewed(c));
    c->profiled = fold(c);
    describe(c, forwards, step);
    tess__attend_table_fill(c);
    return decide(c, step);
}
