/* SPDX-License-Identifier: Apache-2.0 */
/* pass_cp.c - the context-parallel group of a pass, made for its shape.
 *
 * Lists are of the pass's cubes: groups of queries, and units of keys where these are selected by
 * whole cubes. The oracle, pooled keys, the search, selectors of one's own and all that choose keys
 * by error read all keys of a head: such layers have whole heads on a rank. A pass without lists is
 * dense here.
 */
#include "train_internal.h"

#include <math.h>

static int wants_whole_keys(const tess_attention_opts *a)
{
    return a->kind == TESS_ATTENTION_ORACLE || a->kind == TESS_ATTENTION_POOLED ||
           a->kind == TESS_ATTENTION_SEARCH || a->kind == TESS_ATTENTION_OWN ||
           a->choose == TESS_CHOOSE_ERROR;
}

/* The options of the group that follow from the lists of the pass; bounds are allocated. */
static tess_status fill_lists(tess_ctx *ctx, const tess__sharing *s, const int grid[3],
                              tess_cp_opts *o, int64_t **bounds)
{
    const tess_sparse_opts *room = s->shape->sparse;
    int32_t n = 0;
    TESS_TRY(tess_order_cubes(grid, s->shape->cube, NULL, NULL, NULL, &n));
    const size_t bytes = ((size_t)n + 1) * sizeof **bounds;
    *bounds = TESS_ALLOC(ctx, bytes);
    TESS_TRY(tess_order_cubes(grid, s->shape->cube, NULL, NULL, *bounds, NULL));
    const double share = room->max_density > 0.0 ? room->max_density : 1.0;
    o->n_groups = n;
    o->groups = *bounds;
    o->n_units = room->unit_cubes ? n : 0;
    o->units = room->unit_cubes ? *bounds : NULL;
    o->units_most = (int32_t)ceil(share * (double)(room->unit_cubes ? n : o->tokens));
    o->proj_dim = room->proj_dim;
    o->compensate = room->compensate;
    o->group_rows = room->group != TESS_GROUP_CUBE;
    o->whole_keys = s->attention && wants_whole_keys(s->attention);
    return TESS_OK;
}

tess_status tess__pass_cp(tess_ctx *ctx, tess_comm *comm, const tess__sharing *s, tess_cp **cp)
{
    const tess_model_config *config = s->config;
    const tess_pass_shape *shape = s->shape;
    const int grid[3] = {shape->frames / config->patch[0], shape->height / config->patch[1],
                         shape->width / config->patch[2]};
    tess_cp_opts o = {
        .layers = config->layers,
        .heads = config->heads,
        .head_dim = config->head_dim,
        .batch = shape->batch,
        .tokens = (int64_t)grid[0] * grid[1] * grid[2],
        .saves = !shape->train                  ? 0
                 : shape->keep == TESS_KEEP_ALL ? config->layers
                                                : 1,
        .train = shape->train,
        .exact = shape->exact,
        .precision = shape->precision,
        .strategy = s->strategy,
        .cluster = s->cluster,
        .rates_from = s->like,
        .on_event = s->event,
        .user = s->user,
    };
    int64_t *bounds = NULL;
    const int lists = shape->sparse && !shape->sparse->dense;
    tess_status status = lists ? fill_lists(ctx, s, grid, &o, &bounds) : TESS_OK;
    status = tess_comm_agree(comm, status);
    if (status == TESS_OK)
        status = tess_cp_create(ctx, comm, &o, cp);
    tess__free(ctx, bounds);
    return status;
}
