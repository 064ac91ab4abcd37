/* SPDX-License-Identifier: Apache-2.0 */
/* control_ranks.c - the controller on many ranks: what is measured becomes the same on all of them.
 *
 * Every rank measures its clips. Sums over all ranks, added in rank order, take the place of a
 * rank's own before anything is decided or learned from them, so that all ranks decide the same: a
 * step's densities and losses, the predictors' gradients, and in steps that measured, profiles and
 * checks. What comes from a clock, the break-even density, is rank 0's.
 */
#include "control.h"
#include "optim/process_group.h"

#include <string.h>

/* 1: a layer was looked at in this step; the same on all ranks, for it follows from decisions. */
static int looked(const tess__control *c)
{
    for (int layer = 0; layer < c->config.layers; layer++)
        if (tess__profile_due(c, layer) || tess__check_due(c, layer))
            return 1;
    return 0;
}

tess_status tess__control_sum(tess__control *c)
{
    const tess__process_group *pg = c->opts.pg;
    if (!pg || !pg->world)
        return TESS_OK;
    double step[] = {c->step_density, c->step_pairs, c->step_loss, (double)c->step_layers,
                     (double)c->step_losses};
    TESS_TRY(tess__pg_allreduce_groups(pg, step, sizeof step / sizeof *step));
    c->step_density = step[0];
    c->step_pairs = step[1];
    c->step_loss = step[2];
    c->step_layers = (int64_t)step[3];
    c->step_losses = (int64_t)step[4];
    if (c->step_losses > 0)
        TESS_TRY(tess_comm_sum_f32(pg->world, TESS_TRAFFIC_PAYLOAD, c->learner.info.gradients,
                                   c->learner.info.count));
    for (int cube = 0; looked(c) && cube < c->state.n_cubes; cube++)
        TESS_TRY(tess__pg_allreduce(pg, c->sums[cube].all, c->sums[cube].n));
    return TESS_OK;
}

void tess__control_densities(const tess__control *c, double *densities)
{
    const int32_t n = tess__control_units(c, 0);
    const int heads = c->config.heads;
    for (int i = 0; i < c->config.layers * heads; i++) {
        const int layer = i / heads, head = i % heads;
        double sum = 0.0;
        for (int b = 0; b < TESS_NOISE_BUCKETS; b++) {
            const int64_t place = ((int64_t)layer * TESS_NOISE_BUCKETS + b) * heads + head;
            const int sparse = c->state.sparse[layer] && c->state.choice[place];
            sum +=
                sparse ? (double)tess__budget(&c->state, &c->rules, 0, layer, b, head, n) / n : 1.0;
        }
        densities[i] = sum / TESS_NOISE_BUCKETS;
    }
}

/* ---- what a clock decides -------------------------------------------------------------------- */

typedef struct {
    double density;
    int64_t cached;
} found;

tess_status tess__control_break_even(tess__control *c, double *density, const char **rule)
{
    static const char *const rules[] = {"measured", "cached"};
    tess__process_group *pg = c->opts.pg;
    found f = {.density = 0.0};
    int cached = 0;
    tess_status status = TESS_OK;
    if (!pg || pg->rank == 0)
        status = tess__control_measure_break_even(c, &f.density, &cached);
    f.cached = cached;
    if (pg && pg->world) {
        TESS_TRY(tess__pg_agree(pg, status));
        TESS_TRY(tess_comm_broadcast(pg->world, TESS_TRAFFIC_CONTROL, 0, &f, sizeof f));
    }
    TESS_TRY(status);
    *density = f.density;
    *rule = rules[f.cached != 0];
    return TESS_OK;
}

/* ---- the same on all ranks ------------------------------------------------------------------- */

static uint64_t hash_measured(uint64_t h, const tess__dsv_state *d, const tess__cube_stats *m)
{
    const size_t l = (size_t)d->layers, n = l * (size_t)d->heads;
    h = tess__hash(h, m->cube, sizeof m->cube);
    h = tess__hash(h, &m->overlap, sizeof m->overlap);
    h = tess__hash(h, m->density, n * TESS_NOISE_BUCKETS * sizeof *m->density);
    h = tess__hash(h, m->profiles, l * TESS_NOISE_BUCKETS * sizeof *m->profiles);
    h = tess__hash(h, m->recall, n * sizeof *m->recall);
    h = tess__hash(h, m->good, l * sizeof *m->good);
    h = tess__hash(h, m->good_heads, n * sizeof *m->good_heads);
    return tess__hash(h, m->history, l * TESS__HISTORY * sizeof *m->history);
}

uint64_t tess__control_hash(const tess__control *c)
{
    const tess__dsv_state *d = &c->state;
    const size_t l = (size_t)d->layers, n = l * (size_t)d->heads;
    uint64_t h = 0;
    for (int i = 0; i < d->n_cubes; i++)
        h = hash_measured(h, d, &d->cubes[i]);
    h = tess__hash(h, d->sparse, l * sizeof *d->sparse);
    h = tess__hash(h, d->since, l * sizeof *d->since);
    h = tess__hash(h, d->back, n);
    h = tess__hash(h, d->choice, n * TESS_NOISE_BUCKETS);
    h = tess__hash(h, &d->break_even, sizeof d->break_even);
    h = tess__hash(h, d->window, sizeof d->window);
    h = tess__hash(h, &d->loss, sizeof d->loss);
    h = tess__hash(h, &d->updates, sizeof d->updates);
    if (!c->predictor || !c->opts.train)
        return h;
    return tess__hash(h, c->learner.info.values, (size_t)c->learner.info.count * sizeof(float));
}
