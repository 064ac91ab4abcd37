/* SPDX-License-Identifier: Apache-2.0 */
/* control_break_even.c - the density below which sparse attention pays, on this machine.
 *
 * Measured when the first layer switches, for by then the cubes are known; a folder of tables saves
 * later runs the second or two. Selection is counted where a predictor does it: the other kinds are
 * for comparison, and what their selection costs is not what is compared. It comes from a clock, so
 * that all ranks take rank 0's.
 */
#include "control.h"

#include "tessera/advanced/predict.h"

#include <math.h>

typedef struct {
    double density;
    double dense, sparse, per_row; /* ns: of a pair, of a pair of a list, of a query's selection */
    int64_t cached;
} found;

static tess_status measure(const tess__control *c, const int cube[3], found *f)
{
    const int32_t group = (int32_t)((int64_t)cube[0] * cube[1] * cube[2]);
    const tess_attn_rates_shape shape = {.head_dim = c->config.head_dim,
                                         .queries = c->tokens,
                                         .keys = c->tokens,
                                         .group = group,
                                         .unit = tess__attention_by_cubes(c->attention.kind) ? group
                                                                                             : 1,
                                         .compensate = c->attention.compensate,
                                         .proj_dim = c->rules.learns ? c->attention.proj_dim : 0,
                                         .backward = c->opts.train,
                                         .precision = c->opts.precision};
    tess_break_even_result result;
    TESS_TRY(tess_break_even(c->ctx, &shape, c->attention.cache, &result));
    const double rows = (double)c->tokens, pairs = rows * rows;
    *f = (found){.density = result.density,
                 .dense = result.ns_dense / pairs,
                 .sparse = result.ns_sparse_per_density / pairs,
                 .per_row = result.ns_sparse_fixed / rows,
                 .cached = result.cached};
    return TESS_OK;
}

/* dense n > per_row + wanted sparse n: tokens from which on a density pays; infinite: none. */
static double pays_from(const found *f, double wanted)
{
    const double gain = f->dense - wanted * f->sparse;
    return gain > 0.0 ? ceil(f->per_row / gain) : (double)INFINITY;
}

tess_status tess__control_break_even(tess__control *c, const int cube[3], double wanted,
                                     double *density, double *tokens, const char **rule)
{
    static const char *const rules[] = {"measured", "cached"};
    tess__process_group *pg = c->opts.pg;
    found f = {.density = 0.0};
    tess_status status = TESS_OK;
    if (!pg || pg->rank == 0)
        status = measure(c, cube, &f);
    if (pg && pg->world) {
        TESS_TRY(tess__pg_agree(pg, status));
        TESS_TRY(tess_comm_broadcast(pg->world, TESS_TRAFFIC_CONTROL, 0, &f, sizeof f));
    }
    TESS_TRY(status);
    *density = f.density;
    *tokens = pays_from(&f, wanted);
    *rule = rules[f.cached != 0];
    return TESS_OK;
}
