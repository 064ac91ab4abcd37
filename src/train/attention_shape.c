/* SPDX-License-Identifier: Apache-2.0 */
/* attention_shape.c - what the options of sparse attention ask of a pass, and of memory.
 *
 * Cubes that are compared in stage 1 come from a short list, clipped to the grid.
 */
#include "control.h"

#include <string.h>

enum { LEARN_ROWS = 48, BUCKETS = TESS_NOISE_BUCKETS };

/* Small ones first; the attention kernels are fast from 16 queries on. */
static const int candidates[TESS__CUBES][3] = {{1, 1, 1}, {1, 2, 2}, {2, 2, 2},
                                               {2, 2, 4}, {2, 4, 4}, {4, 4, 4}};

int tess_attention_cubes(const int grid[3], int cubes[TESS_CUBES][3])
{
    int n = 0;
    if (!grid || !cubes)
        return 0;
    for (int i = 0; i < TESS__CUBES; i++) {
        for (int a = 0; a < 3; a++)
            cubes[n][a] = candidates[i][a] < grid[a] ? candidates[i][a] : grid[a];
        n += n == 0 || memcmp(cubes[n], cubes[n - 1], sizeof cubes[0]) != 0;
    }
    return n;
}

int tess__attention_cubes(const tess_attention_opts *opts, const int grid[3],
                          int cubes[TESS__CUBES][3])
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

/* The largest share of n units that a budget may be, rounding included. */
static double most_density(const tess_attention_opts *o, int32_t n)
{
    tess__rules rules;
    tess__attention_rules(o, &rules);
    const double most = rules.density > 0.0 ? rules.density : rules.max_density;
    const double share = most + (double)rules.round / n;
    return o->kind != TESS_ATTENTION_WINDOW && share < 1.0 ? share : 1.0;
}

void tess__attention_room(const tess_attention_opts *o, int64_t tokens, int32_t n, int train,
                          tess_sparse_opts *room)
{
    const int learns = o->kind == TESS_ATTENTION_DSV;
    const int rows = tokens < LEARN_ROWS ? (int)tokens : LEARN_ROWS;
    *room = (tess_sparse_opts){.unit_cubes = tess__attention_by_cubes(o->kind),
                               .rank = learns ? o->rank : 0,
                               .learn_rows = learns && train ? rows : 0,
                               .compensate = o->compensate > 0,
                               .max_density = most_density(o, n),
                               .index_memory = o->index_memory};
}

/* Numbers in the predictors of all layers. */
static int64_t predictor_count(const tess_attention_opts *o, const tess_model_config *m)
{
    const int64_t out = 2 * (int64_t)m->layers * m->heads * o->rank;
    if (o->kind != TESS_ATTENTION_DSV)
        return 0;
    return o->input == TESS_PREDICT_QK ? out * m->head_dim
                                       : out * ((int64_t)m->heads * m->head_dim + 1);
}

/* While it measures: one head's keys, and some rows of scores and a tile of each thread. */
static int64_t measuring(const tess_model_config *m, int64_t tokens, int threads)
{
    enum { ROWS = 80, TILE = 1 << 16 };
    return tokens * m->head_dim * (int64_t)sizeof(float) +
           threads * (ROWS * tokens * (int64_t)sizeof(float) + TILE);
}

int64_t tess__attention_bytes(const tess_attention_opts *o, const tess_model_config *m, int batch,
                              const int grid[3], int threads)
{
    const int64_t f = (int64_t)sizeof(float), all = (int64_t)batch * m->heads;
    const int64_t tokens = (int64_t)grid[0] * grid[1] * grid[2], rows = tess__probe_rows(tokens);
    const int64_t each = (int64_t)m->layers * m->heads;
    int cubes[TESS__CUBES][3];
    if (o->kind == TESS_ATTENTION_DENSE)
        return 0;
    const int n = tess__attention_cubes(o, grid, cubes);
    /* Values, gradients, two moments; orders; gathered queries; tables of sums and decisions. */
    return 4 * predictor_count(o, m) * f + (2 * n + 1) * tokens * (int64_t)sizeof(int64_t) +
           all * rows * (m->head_dim + o->rank + 1) * f +
           (n + TESS__CUBES) * each * (BUCKETS + 2) * (int64_t)sizeof(double) +
           all * (m->layers * (int64_t)sizeof(int32_t) + (int64_t)sizeof(tess_sel_stats)) +
           measuring(m, tokens, threads);
}
