/* SPDX-License-Identifier: Apache-2.0 */
/* control_break_even.c - from which density on sparse attention pays, on this machine.
 *
 * Measured when the first layer switches, for by then the cubes are known; a folder of tables saves
 * later runs the second or two. Selection is counted where a predictor does it: the others are for
 * comparison, and what their selection costs is not what is compared.
 */
#include "control.h"

#include "tessera/predict.h"

tess_status tess__control_measure_break_even(tess__control *c, double *density, int *cached)
{
    const int *cube = c->state.cubes[0].cube;
    const int32_t group = (int32_t)((int64_t)cube[0] * cube[1] * cube[2]);
    const tess_break_even_shape shape = {.head_dim = c->config.head_dim,
                                         .tokens = c->tokens,
                                         .group = group,
                                         .unit = c->unit_cubes ? group : 1,
                                         .compensate = c->attention.compensate,
                                         .rank = c->rules.learns ? c->attention.proj_dim : 0,
                                         .backward = c->opts.train};
    tess_break_even_result result;
    TESS_TRY(tess_break_even(c->ctx, &shape, c->attention.cache, &result));
    *density = result.density;
    *cached = result.cached;
    return TESS_OK;
}
