/* SPDX-License-Identifier: Apache-2.0 */
/* decide_state.c - measurements as running means, and the budgets that follow from them.
 *
 *   mean = (1 - w) mean + w value,  w = max(1 / n, 0.1) for the n-th value
 *
 * so that the first ten values weigh the same, and the first steps of a run are forgotten soon.
 * Densities are by noise-level quartile, for attention spreads where there is much noise. A head
 * that was not measured in a quartile yet has the mean of the quartiles it was measured in.
 *
 *   units = ceil(density n), at least min_density n, at most max_density n, rounded up
 */
#include "decide.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };
static const double least_weight = 0.1;

/* ---- life ------------------------------------------------------------------------------------ */

static tess_status make_measured(tess__arena *arena, int layers, int heads, const int cube[3],
                                 tess__cube_stats *m)
{
    const size_t l = (size_t)layers, h = (size_t)heads;
    *m = (tess__cube_stats){.overlap = (double)NAN};
    memcpy(m->cube, cube, sizeof m->cube);
    m->density = TESS_TAKE(arena, l * QUARTILES * h * sizeof *m->density);
    m->profiles = TESS_TAKE_ZERO(arena, l * QUARTILES * sizeof *m->profiles);
    m->recall = TESS_TAKE(arena, l * h * sizeof *m->recall);
    m->good = TESS_TAKE(arena, l * sizeof *m->good);
    m->good_heads = TESS_TAKE_ZERO(arena, l * h * sizeof *m->good_heads);
    m->history = TESS_TAKE(arena, l * TESS__HISTORY * sizeof *m->history);
    m->shared = TESS_TAKE(arena, 2 * l * h * sizeof *m->shared);
    m->compared = TESS_TAKE_ZERO(arena, l * sizeof *m->compared);
    for (size_t i = 0; i < 2 * l * h; i++)
        m->shared[i] = (double)NAN;
    for (size_t i = 0; i < l * QUARTILES * h; i++)
        m->density[i] = (double)NAN;
    for (size_t i = 0; i < l * h; i++)
        m->recall[i] = (double)NAN;
    for (size_t i = 0; i < l * TESS__HISTORY; i++)
        m->history[i] = (double)NAN;
    memset(m->good, 0, l * sizeof *m->good);
    return TESS_OK;
}

static tess_status make_tables(tess__dsv_state *d)
{
    const size_t l = (size_t)d->layers, h = (size_t)d->heads;
    d->sparse = TESS_TAKE(&d->arena, l * sizeof *d->sparse);
    d->since = TESS_TAKE(&d->arena, l * sizeof *d->since);
    d->back = TESS_TAKE(&d->arena, l * h);
    d->choice = TESS_TAKE(&d->arena, l * QUARTILES * h);
    d->content = TESS_TAKE(&d->arena, l * h);
    return TESS_OK;
}

tess_status tess__dsv_state_create(tess_ctx *ctx, int layers, int heads, const int (*cubes)[3],
                                   int n_cubes, tess__dsv_state *decisions)
{
    tess__dsv_state d = {.arena = {.ctx = ctx},
                         .layers = layers,
                         .heads = heads,
                         .n_cubes = n_cubes,
                         .break_even = (double)NAN,
                         .loss = (double)NAN,
                         .calibration = 1.0};
    tess_status status = make_tables(&d);
    for (int i = 0; i < n_cubes && status == TESS_OK; i++)
        status = make_measured(&d.arena, layers, heads, cubes[i], &d.cubes[i]);
    if (status != TESS_OK) {
        tess__arena_free(&d.arena);
        return status;
    }
    tess__dsv_state_forget(&d);
    *decisions = d;
    return TESS_OK;
}

void tess__dsv_state_destroy(tess__dsv_state *decisions)
{
    tess__arena_free(&decisions->arena);
}

void tess__cube_stats_copy(const tess__dsv_state *s, const tess__cube_stats *from,
                           tess__cube_stats *to)
{
    const size_t l = (size_t)s->layers, h = (size_t)s->heads;
    memcpy(to->cube, from->cube, sizeof to->cube);
    to->overlap = from->overlap;
    to->overlaps = from->overlaps;
    memcpy(to->density, from->density, l * QUARTILES * h * sizeof *to->density);
    memcpy(to->profiles, from->profiles, l * QUARTILES * sizeof *to->profiles);
    memcpy(to->recall, from->recall, l * h * sizeof *to->recall);
    memcpy(to->good, from->good, l * sizeof *to->good);
    memcpy(to->good_heads, from->good_heads, l * h * sizeof *to->good_heads);
    memcpy(to->history, from->history, l * TESS__HISTORY * sizeof *to->history);
    memcpy(to->shared, from->shared, 2 * l * h * sizeof *to->shared);
    memcpy(to->compared, from->compared, l * sizeof *to->compared);
}

void tess__dsv_state_copy(const tess__dsv_state *from, tess__dsv_state *to)
{
    const size_t l = (size_t)from->layers, h = (size_t)from->heads;
    for (int i = 0; i < from->n_cubes; i++)
        tess__cube_stats_copy(from, &from->cubes[i], &to->cubes[i]);
    memcpy(to->sparse, from->sparse, l * sizeof *to->sparse);
    memcpy(to->since, from->since, l * sizeof *to->since);
    memcpy(to->back, from->back, l * h);
    memcpy(to->choice, from->choice, l * QUARTILES * h);
    memcpy(to->content, from->content, l * h);
    memcpy(to->window, from->window, sizeof to->window);
    to->n_cubes = from->n_cubes;
    to->cube_chosen = from->cube_chosen;
    to->imposed = from->imposed;
    to->break_even = from->break_even;
    to->loss = from->loss;
    to->calibration = from->calibration;
    to->updates = from->updates;
    to->attention = from->attention;
}

void tess__dsv_state_forget(tess__dsv_state *d)
{
    const size_t l = (size_t)d->layers, h = (size_t)d->heads;
    memset(d->sparse, 0, l * sizeof *d->sparse);
    memset(d->since, 0, l * sizeof *d->since);
    memset(d->back, 0, l * h);
    memset(d->choice, 0, l * QUARTILES * h);
    memset(d->content, 0, l * h);
    memset(d->window, 0, sizeof d->window);
    d->break_even = (double)NAN;
}

/* ---- measurements ---------------------------------------------------------------------------- */

static void fold(double *mean, double value, int64_t number)
{
    const double even = 1.0 / (double)number;
    const double w = even > least_weight ? even : least_weight;
    *mean = isnan(*mean) ? value : (1.0 - w) * *mean + w * value;
}

void tess__fold_density(const tess__dsv_state *d, int cube, int layer, int bucket,
                        const double *density)
{
    const tess__cube_stats *m = &d->cubes[cube];
    const int64_t place = (int64_t)layer * QUARTILES + bucket;
    const int64_t number = ++m->profiles[place];
    for (int h = 0; h < d->heads; h++)
        if (!isnan(density[h]))
            fold(&m->density[place * d->heads + h], density[h], number);
}

static void count(int *good, double recall, double limit)
{
    if (!(recall >= limit))
        *good = 0;
    else if (*good < 2)
        ++*good;
}

void tess__fold_recall(const tess__dsv_state *d, const tess__rules *rules, int cube, int layer,
                       const double *recall)
{
    const tess__cube_stats *m = &d->cubes[cube];
    double *history = m->history + (int64_t)layer * TESS__HISTORY, sum = 0.0;
    for (int h = 0; h < d->heads; h++) {
        const int64_t place = (int64_t)layer * d->heads + h;
        m->recall[place] = recall[h];
        count(&m->good_heads[place], recall[h], rules->switch_recall);
        sum += recall[h];
    }
    count(&m->good[layer], sum / d->heads, rules->switch_recall);
    memmove(history + 1, history, (TESS__HISTORY - 1) * sizeof *history);
    history[0] = tess__layer_density(d, cube, layer);
}

void tess__fold_overlap(tess__dsv_state *d, int cube, double overlap)
{
    tess__cube_stats *m = &d->cubes[cube];
    if (!isnan(overlap))
        fold(&m->overlap, overlap, ++m->overlaps);
}

void tess__fold_shared(const tess__dsv_state *d, int cube, int layer, const double *cubes,
                       const double *content)
{
    const tess__cube_stats *m = &d->cubes[cube];
    const int64_t first = (int64_t)layer * d->heads, all = (int64_t)d->layers * d->heads;
    const int64_t number = ++m->compared[layer];
    for (int h = 0; h < d->heads; h++) {
        fold(&m->shared[first + h], cubes[h], number);
        fold(&m->shared[all + first + h], content[h], number);
    }
}

void tess__fold_loss(tess__dsv_state *d, double loss)
{
    d->updates++;
    fold(&d->loss, loss, d->updates);
}

/* ---- budgets --------------------------------------------------------------------------------- */

double tess__head_density(const tess__dsv_state *d, int cube, int layer, int head)
{
    double sum = 0.0;
    int n = 0;
    for (int b = 0; b < QUARTILES; b++) {
        const double density =
            d->cubes[cube].density[((int64_t)layer * QUARTILES + b) * d->heads + head];
        if (isnan(density))
            continue;
        sum += density;
        n++;
    }
    return n ? sum / n : (double)NAN;
}

double tess__layer_density(const tess__dsv_state *d, int cube, int layer)
{
    double sum = 0.0;
    for (int h = 0; h < d->heads; h++)
        sum += tess__head_density(d, cube, layer, h);
    return sum / d->heads;
}

int32_t tess__budget(const tess__dsv_state *d, const tess__rules *rules, int cube, int layer,
                     int bucket, int head, int32_t n)
{
    double density = rules->density;
    if (density == 0.0) {
        density = d->cubes[cube].density[((int64_t)layer * QUARTILES + bucket) * d->heads + head];
        if (isnan(density))
            density = tess__head_density(d, cube, layer, head);
        if (isnan(density))
            return 0;
        density = density > rules->min_density ? density : rules->min_density;
        density = density < rules->max_density ? density : rules->max_density;
    }
    /* A product that is a whole number but for its rounding shall stay that number. */
    int64_t units = (int64_t)ceil(density * n * (1.0 - 1e-12));
    units = (units + rules->round - 1) / rules->round * rules->round;
    units = units < 1 ? 1 : units;
    return (int32_t)(units < n ? units : n);
}
