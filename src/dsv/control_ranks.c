/* SPDX-License-Identifier: Apache-2.0 */
/* control_ranks.c - the controller on many ranks: what is measured becomes the same on all of them.
 *
 * Every rank measures its clips. Sums over all ranks, whose order does not matter, take the place
 * of a rank's own before anything is decided or learned from them, so that all ranks decide the
 * same: a step's densities and losses, the predictors' gradients, and in steps that measured,
 * profiles and checks. What comes from a clock, the break-even density, is rank 0's.
 */
#include "control.h"
#include "optim/process_group.h"

#include <string.h>

/* 1: a layer was measured in this step; the same on all ranks, for it follows from the state. */
static int measured(const tess__control *c)
{
    int any = 0;
    for (int layer = 0; layer < c->config.layers; layer++)
        any |= tess__observes(&c->observer, layer);
    return any;
}

tess_status tess__control_sum(tess__control *c)
{
    const tess__process_group *pg = c->opts.pg;
    tess__observations *sums = &c->observer.sums;
    if (c->opts.exact && c->predictor)
        TESS_TRY(tess__predictor_reduce(c->predictor, pg ? pg->world : NULL));
    if (!pg || !pg->world)
        return TESS_OK;
    double step[] = {sums->density, sums->pairs, sums->loss, (double)sums->layers,
                     (double)sums->losses};
    TESS_TRY(tess__pg_allreduce_groups(pg, step, sizeof step / sizeof *step));
    sums->density = step[0];
    sums->pairs = step[1];
    sums->loss = step[2];
    sums->layers = (int64_t)step[3];
    sums->losses = (int64_t)step[4];
    if (sums->losses > 0 && !c->opts.exact)
        TESS_TRY(tess_comm_allreduce(pg->world, TESS_TRAFFIC_PAYLOAD, c->learner.info.gradients,
                                     c->learner.info.count, TESS_DTYPE_F32, TESS_REDUCE_SUM));
    for (int cube = 0; measured(c) && cube < c->state.n_cubes; cube++)
        TESS_TRY(tess__pg_allreduce(pg, sums->cubes[cube].all, sums->cubes[cube].n));
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
    h = tess__hash(h, m->shared, 2 * n * sizeof *m->shared);
    h = tess__hash(h, m->compared, l * sizeof *m->compared);
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
    h = tess__hash(h, d->content, n);
    h = tess__hash(h, &d->break_even, sizeof d->break_even);
    h = tess__hash(h, d->window, sizeof d->window);
    h = tess__hash(h, &d->loss, sizeof d->loss);
    h = tess__hash(h, &d->calibration, sizeof d->calibration);
    h = tess__hash(h, &d->updates, sizeof d->updates);
    if (c->clusters.centroids) {
        h = tess__hash(h, c->clusters.found, l * sizeof *c->clusters.found);
        h = tess__hash(h, c->clusters.centroids,
                       (size_t)tess__clusters_count(&c->attention, &c->config) * sizeof(float));
    }
    if (!c->predictor || !c->opts.train)
        return h;
    return tess__hash(h, c->learner.info.values, (size_t)c->learner.info.count * sizeof(float));
}
