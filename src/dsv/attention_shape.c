/* SPDX-License-Identifier: Apache-2.0 */
/* attention_shape.c - what the options of sparse attention ask of a pass, and of memory.
 *
 * Cubes that are compared in stage 1 come from a short list, clipped to the grid. While no layer is
 * sparse there is no room for lists, which would be the largest part of it: 4 bytes for each group
 * of queries and key of a budget.
 */
#include "control.h"

#include <math.h>
#include <string.h>

enum { LEARN_ROWS = 48, QUARTILES = TESS_NOISE_BUCKETS, LIST_SHARE = 40 };

/* Small ones first; the attention kernels are fast from 16 queries on. */
static const int candidates[TESS_CUBES][3] = {{1, 1, 1}, {1, 2, 2}, {2, 2, 2},
                                              {2, 2, 4}, {2, 4, 4}, {4, 4, 4}};

int tess_attention_cubes(const int grid[3], int cubes[TESS_CUBES][3])
{
    int n = 0;
    if (!grid || !cubes)
        return 0;
    for (int i = 0; i < TESS_CUBES; i++) {
        for (int a = 0; a < 3; a++)
            cubes[n][a] = candidates[i][a] < grid[a] ? candidates[i][a] : grid[a];
        n += n == 0 || memcmp(cubes[n], cubes[n - 1], sizeof cubes[0]) != 0;
    }
    return n;
}

int tess__attention_cubes(const tess_attention_opts *opts, const int grid[3],
                          int cubes[TESS_CUBES][3])
{
    if (!opts->cube[0])
        return tess_attention_cubes(grid, cubes);
    memcpy(cubes[0], opts->cube, sizeof cubes[0]);
    return 1;
}

int tess__attention_by_cubes(tess_attention kind)
{
    return kind == TESS_ATTENTION_POOLED || kind == TESS_ATTENTION_WINDOW;
}

int64_t tess__attention_groups(const int grid[3], const int cube[3])
{
    int64_t groups = 1;
    for (int i = 0; i < 3; i++)
        groups *= ((int64_t)grid[i] + cube[i] - 1) / cube[i];
    return groups;
}

/* Of n units: the largest budget, rounding included. Lists of one head are in memory at a time. By
 * tables a head is sparse only below the break-even density, and only if its lists take no more
 * than 1/LIST_SHARE of the rest. */
int32_t tess__attention_units(const tess_attention_opts *o, const tess__attention_at *at)
{
    const int64_t groups = tess__attention_groups(at->grid, at->cube),
                  tokens = (int64_t)at->grid[0] * at->grid[1] * at->grid[2];
    const double n = (double)(tess__attention_by_cubes(o->kind) ? groups : tokens);
    tess__rules rules;
    tess__attention_rules(o, &rules);
    if (!at->sparse)
        return 0;
    if (o->kind == TESS_ATTENTION_WINDOW)
        return (int32_t)n;
    double most = ceil((rules.density > 0.0 ? rules.density : rules.max_density) * n) + rules.round;
    if (at->train && rules.choosing == TESS__CHOOSE_TABLE) {
        const int64_t bytes = groups * (int64_t)sizeof(int32_t);
        if (!isnan(at->break_even))
            most = fmin(most, floor(TESS__SLACK * at->break_even * n));
        const int64_t lists = at->memory / LIST_SHARE / bytes;
        if (at->memory > 0 && most > 0.0)
            most = fmin(most, fmax((double)lists, 1.0));
    }
    return (int32_t)fmin(most, n);
}

void tess__attention_room(const tess_attention_opts *o, const tess__attention_at *at,
                          tess_sparse_opts *room)
{
    const int learns = o->kind == TESS_ATTENTION_DSV;
    const int64_t tokens = (int64_t)at->grid[0] * at->grid[1] * at->grid[2];
    const int rows = tokens < LEARN_ROWS ? (int)tokens : LEARN_ROWS;
    const int32_t units = tess__attention_units(o, at);
    const double n =
        (double)(tess__attention_by_cubes(o->kind) ? tess__attention_groups(at->grid, at->cube)
                                                   : tokens);
    *room = (tess_sparse_opts){.unit_cubes = tess__attention_by_cubes(o->kind),
                               .proj_dim = learns ? o->proj_dim : 0,
                               .learn_rows = learns && at->train ? rows : 0,
                               .compensate = o->compensate,
                               .group = o->group == TESS_GROUP_AUTO ? TESS_GROUP_CONTENT : o->group,
                               .max_density = units / n,
                               .index_memory = o->index_memory,
                               .values = o->error > 0.0,
                               .dense = units == 0};
}

/* Numbers in the predictors of all layers. */
static int64_t predictor_count(const tess_attention_opts *o, const tess_model_config *m)
{
    const int64_t out = 2 * (int64_t)m->layers * m->heads * o->proj_dim;
    if (o->kind != TESS_ATTENTION_DSV)
        return 0;
    return o->predictor == TESS_PREDICTOR_QK ? out * m->head_dim
                                             : out * ((int64_t)m->heads * m->head_dim + 1);
}

/* While it measures: keys of one head, and of each thread some rows of scores and a tile, once for
 * the profile and once for the selector of checks, which has its tile where it takes no proxies;
 * and the lists that are checked together. */
static int64_t measuring(const tess_attention_opts *o, const tess_model_config *m, int64_t tokens,
                         int threads)
{
    enum { ROWS = 40, TILE = 69 << 10 };
    const int64_t f = (int64_t)sizeof(float);
    const int learns = o->kind == TESS_ATTENTION_DSV;
    const int tiles = learns && o->proxy == TESS_PROXY_SOFTMAX ? 2 : 1;
    const double most = o->density > 0.0 ? o->density : o->max_density;
    return tokens * (m->head_dim + (learns ? o->proj_dim : 0)) * f +
           threads * (ROWS * tokens * f + tiles * TILE) +
           learns * (int64_t)(most * (double)(TESS__CHECK_GROUPS * tokens)) * f;
}

int64_t tess__attention_bytes(const tess_attention_opts *o, const tess_model_config *m, int batch,
                              const int grid[3], int threads)
{
    const int64_t f = (int64_t)sizeof(float), all = (int64_t)batch * m->heads;
    const int64_t tokens = (int64_t)grid[0] * grid[1] * grid[2], rows = tess__sampled_rows(tokens);
    const int64_t each = (int64_t)m->layers * m->heads;
    int cubes[TESS_CUBES][3];
    if (o->kind == TESS_ATTENTION_DENSE)
        return 0;
    const int n = tess__attention_cubes(o, grid, cubes);
    const int64_t doubles =
        (2 * n + TESS_CUBES) * each * (QUARTILES + 2) +
        (o->error > 0.0 ? TESS_CUBES * each * QUARTILES * (1 + TESS__TRIAL_DENSITIES) : 0) *
            (o->group == TESS_GROUP_AUTO ? 2 : 1) +
        (o->error > 0.0 ? TESS_CUBES * (each + m->layers) * QUARTILES : 0) + batch +
        (o->group == TESS_GROUP_AUTO ? (2 * n + TESS_CUBES) * 2 * each : 0);
    const int64_t budgets = (TESS_CUBES + 1) * each * QUARTILES;
    const int64_t volume = (int64_t)cubes[n - 1][0] * cubes[n - 1][1] * cubes[n - 1][2];
    const tess__observer_opts change = {.head_dim = m->head_dim,
                                        .proj_dim = o->kind == TESS_ATTENTION_DSV ? o->proj_dim : 0,
                                        .tokens = tokens,
                                        .error = o->error,
                                        .compensate = o->compensate,
                                        .group = o->group};
    /* Values, gradients, two moments; orders; sampled queries; sums and both states; budgets of
     * checks and of the table, events; keys of a pass. */
    const int64_t clusters =
        tess__clusters_count(o, m) * f + (tess__clusters_count(o, m) ? m->layers : 0) * (f + 4);
    return clusters + m->layers + 4 * each + 4 * predictor_count(o, m) * f +
           (2 * n + 1) * tokens * (int64_t)sizeof(int64_t) +
           all * rows * (m->head_dim + o->proj_dim + 1) * f + doubles * (int64_t)sizeof(double) +
           budgets * (int64_t)sizeof(int32_t) +
           tess__events_most(m->layers, m->heads) * (int64_t)sizeof(tess__event) +
           all * (m->layers * (int64_t)sizeof(int32_t) + (int64_t)sizeof(double)) +
           measuring(o, m, tokens, threads) + tess__change_bytes(&change, volume, threads) +
           tess__group_bytes_most(&change, rows);
}
