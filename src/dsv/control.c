/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - the controller: its life, its token orders, and the shape of its passes.
 *
 * The tokens of a pass lie in the order of the first of the cubes that are compared until one is
 * chosen; an observer finds its queries in any order, so that nothing that was measured is lost
 * when the pass is made again. The pass has room for lists when the first layer becomes sparse.
 */
#include "control.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };

/* ---- cubes ----------------------------------------------------------------------------------- */

/* Of the grid at hand; the arrays have room for all grids. */
static tess_status fill_order(const tess__control *c, tess__order *order)
{
    return tess_order_cubes(c->opts.grid, order->cube, order->perm, NULL, order->bounds,
                            &order->groups);
}

static tess_status make_order(tess__control *c, const int cube[3], tess__order *order)
{
    const int64_t tokens = (int64_t)c->reference[0] * c->reference[1] * c->reference[2];
    int64_t groups = tess__attention_groups(c->reference, cube);
    for (int i = 0; i < c->opts.n_grids; i++)
        groups = TESS_MAX(groups, tess__attention_groups(c->opts.grids[i], cube));
    memcpy(order->cube, cube, sizeof order->cube);
    order->perm = TESS_TAKE(&c->arena, (size_t)tokens * sizeof *order->perm);
    order->bounds = TESS_TAKE(&c->arena, ((size_t)groups + 1) * sizeof *order->bounds);
    return fill_order(c, order);
}

/* Token orders of the state's cubes, after it was read and after a cube was chosen. */
static tess_status make_orders(tess__control *c)
{
    for (int i = 0; i < c->state.n_cubes; i++)
        TESS_TRY(make_order(c, c->state.cubes[i].cube, &c->orders[i]));
    return tess_order_cubes(c->opts.grid, c->state.cubes[0].cube, NULL, c->inverse, NULL, NULL);
}

tess_status tess__control_chosen(tess__control *c)
{
    const int *cube = c->state.cubes[0].cube;
    for (int i = 1; i < TESS_CUBES; i++)
        if (memcmp(c->orders[i].cube, cube, sizeof c->orders[i].cube) == 0)
            c->orders[0] = c->orders[i];
    return tess_order_cubes(c->opts.grid, cube, NULL, c->inverse, NULL, NULL);
}

tess_status tess__control_resize(tess__control *c, const int grid[3])
{
    if (memcmp(c->opts.grid, grid, sizeof c->opts.grid) == 0)
        return TESS_OK;
    memcpy(c->opts.grid, grid, sizeof c->opts.grid);
    c->tokens = (int64_t)grid[0] * grid[1] * grid[2];
    c->observer.opts.tokens = c->tokens;
    for (int i = 0; i < c->state.n_cubes; i++)
        TESS_TRY(fill_order(c, &c->orders[i]));
    TESS_TRY(tess_order_cubes(grid, c->state.cubes[0].cube, NULL, c->inverse, NULL, NULL));
    tess__attend_table_fill(c);
    if (c->opts.train)
        tess__control_budgets(c);
    return TESS_OK;
}

int32_t tess__control_units(const tess__control *c, const int cube[3])
{
    return tess__attention_by_cubes(c->attention.kind)
               ? (int32_t)tess__attention_groups(c->opts.grid, cube)
               : (int32_t)c->tokens;
}

/* ---- life ------------------------------------------------------------------------------------ */

static tess_status take_tables(tess__control *c)
{
    const size_t layers = (size_t)c->config.layers;
    const int most = tess__events_most(c->config.layers, c->config.heads);
    c->rates = TESS_TAKE(&c->arena, layers * sizeof *c->rates);
    c->by_content = TESS_TAKE(&c->arena, (size_t)c->config.heads * sizeof *c->by_content);
    c->inverse = TESS_TAKE(&c->arena, (size_t)c->tokens * sizeof *c->inverse);
    TESS_TRY(tess__attend_table_create(&c->arena, c->config.layers, c->config.heads, c->opts.batch,
                                       &c->table));
    if (!c->opts.train)
        return TESS_OK;
    c->decision.events = (tess__event_list){
        .at = tess__arena_take(&c->arena, (size_t)most * sizeof *c->decision.events.at),
        .capacity = most};
    return c->decision.events.at ? TESS_OK : TESS_ENOMEM;
}

/* Memory of the next state, for as many cubes as the state in force has. */
static tess_status make_next(tess__control *c)
{
    int cubes[TESS_CUBES][3];
    tess__dsv_state_destroy(&c->decision.next);
    c->decision.next = (tess__dsv_state){.layers = 0};
    for (int i = 0; i < c->state.n_cubes; i++)
        memcpy(cubes[i], c->state.cubes[i].cube, sizeof cubes[i]);
    return c->opts.train
               ? tess__dsv_state_create(c->ctx, c->config.layers, c->config.heads,
                                        (const int(*)[3])cubes, c->state.n_cubes, &c->decision.next)
               : TESS_OK;
}

static tess_status make_observer(tess__control *c)
{
    const tess__observer_opts opts = {.layers = c->config.layers,
                                      .heads = c->config.heads,
                                      .head_dim = c->config.head_dim,
                                      .batch = c->opts.batch,
                                      .proj_dim = c->rules.learns ? c->attention.proj_dim : 0,
                                      .tokens = c->tokens,
                                      .proxy = c->attention.proxy,
                                      .mass = c->attention.mass,
                                      .error = c->attention.error,
                                      .compensate = c->attention.compensate,
                                      .group = c->attention.group};
    return c->opts.train ? tess__observer_create(c->ctx, &c->arena, &opts, &c->observer) : TESS_OK;
}

static tess_status make_predictor(tess__control *c)
{
    const tess_predictor_opts opts = {.input = c->attention.predictor == TESS_PREDICTOR_QK
                                                   ? TESS_PREDICT_QK
                                                   : TESS_PREDICT_HIDDEN,
                                      .proj_dim = c->attention.proj_dim,
                                      .rotary = c->attention.predictor == TESS_PREDICTOR_HIDDEN,
                                      .seed = c->opts.seed};
    if (!c->rules.learns)
        return TESS_OK;
    TESS_TRY(tess_predictor_create(c->ctx, &c->config, &opts, &c->predictor));
    if (!c->opts.train)
        return TESS_OK;
    return tess__learner_create(c->ctx, c->predictor, c->config.layers, &c->learner);
}

/* A selector of one's own. Recorded masks say how many keys they need, unless a density is given:
 * those of their longest row. */
static tess_status open_plugin(tess__control *c)
{
    tess_plugin_info info;
    if (c->attention.kind != TESS_ATTENTION_OWN)
        return TESS_OK;
    TESS_TRY(tess_plugin_open(c->ctx, c->attention.selector, &c->plugin));
    TESS_TRY(tess_plugin_query(c->plugin, &info));
    if (!info.masks || c->attention.density > 0.0)
        return TESS_OK;
    double share = 1.0 / (double)info.units; /* of the tokens, in a column */
    if (info.units != c->tokens && c->attention.cube[0])
        share = (double)c->attention.cube[0] * c->attention.cube[1] * c->attention.cube[2] /
                (double)c->tokens;
    c->attention.density = fmin(fmax((double)info.longest, 1.0) * share, 1.0);
    tess__attention_rules(&c->attention, &c->rules);
    return TESS_OK;
}

tess_status tess__control_impose(tess__control *c, const uint8_t *choices)
{
    c->rules.imposed = c->state.imposed = NULL;
    if (c->rules.choosing != TESS__CHOOSE_IMPOSED || !choices)
        return TESS_OK;
    const size_t all = (size_t)c->config.layers * QUARTILES * (size_t)c->config.heads;
    c->state.imposed = TESS_TAKE(&c->arena, all);
    memcpy(c->state.imposed, choices, all);
    c->rules.imposed = c->state.imposed;
    return TESS_OK;
}

/* Choices of another run, which must be of a model with as many layers and heads. */
static tess_status read_imposed(tess__control *c)
{
    const char *path = c->attention.dispatch;
    if (c->rules.choosing != TESS__CHOOSE_IMPOSED)
        return TESS_OK;
    TESS_TRY(tess__dsv_state_read(c->ctx, path, NULL, 0, &c->imposed));
    if (c->imposed.layers != c->config.layers || c->imposed.heads != c->config.heads)
        return tess__invalid(path, "is of %d layers of %d heads, must be of the model's %d of %d",
                             c->imposed.layers, c->imposed.heads, c->config.layers,
                             c->config.heads);
    return tess__control_impose(c, c->imposed.choice);
}

tess_status tess__control_ready(tess__control *c)
{
    return c->rules.imposed ? TESS_OK : read_imposed(c);
}

static tess_status copy_texts(tess__control *c)
{
    const char **texts[] = {&c->attention.dispatch, &c->attention.cache, &c->attention.selector};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) {
            *texts[i] = TESS_TAKE_STRING(&c->arena, *texts[i], strlen(*texts[i]));
        }
    return TESS_OK;
}

static tess_status build(tess__control *c)
{
    int cubes[TESS_CUBES][3];
    const int n = tess__attention_cubes(&c->attention, c->opts.grid, cubes);
    TESS_TRY(copy_texts(c));
    TESS_TRY(open_plugin(c));
    TESS_TRY(take_tables(c));
    TESS_TRY(tess__dsv_state_create(c->ctx, c->config.layers, c->config.heads,
                                    (const int(*)[3])cubes, n, &c->state));
    c->state.cube_chosen = n == 1;
    if (c->attention.dispatch && access(c->attention.dispatch, F_OK) == 0)
        TESS_TRY(read_imposed(c)); /* else a checkpoint may have them */
    TESS_TRY(make_next(c));
    TESS_TRY(make_orders(c));
    TESS_TRY(make_predictor(c));
    TESS_TRY(make_observer(c));
    TESS_TRY(tess__control_clusters(c));
    tess__control_changed(c);
    return TESS_OK;
}

void tess__control_changed(tess__control *c)
{
    c->decision.step = 0;
    tess__attend_table_fill(c);
}

tess_status tess__control_adopt(tess__control *c, tess__dsv_state *state)
{
    tess__dsv_state_destroy(&c->state);
    c->state = *state;
    TESS_TRY(make_next(c));
    return make_orders(c);
}

tess_status tess__control_create(tess_ctx *ctx, const tess__control_opts *opts,
                                 tess__control **control)
{
    tess__arena arena = {.ctx = ctx};
    tess__control *c = TESS_TAKE(&arena, sizeof *c);
    *c = (tess__control){.ctx = ctx,
                         .arena = arena,
                         .opts = *opts,
                         .attention = *opts->attention,
                         .config = *opts->config,
                         .reference = {opts->grid[0], opts->grid[1], opts->grid[2]},
                         .tokens = (int64_t)opts->grid[0] * opts->grid[1] * opts->grid[2]};
    c->opts.attention = NULL;
    c->opts.config = NULL;
    tess__attention_rules(&c->attention, &c->rules);
    const tess_status status = build(c);
    if (status == TESS_OK)
        *control = c;
    else
        tess__control_destroy(c);
    return status;
}

void tess__control_destroy(tess__control *control)
{
    if (!control)
        return;
    tess__learner_destroy(control->ctx, &control->learner);
    tess_predictor_destroy(control->predictor);
    tess_plugin_close(control->plugin);
    tess__observer_destroy(&control->observer);
    tess__dsv_state_destroy(&control->state);
    tess__dsv_state_destroy(&control->decision.next);
    tess__dsv_state_destroy(&control->imposed);
    tess__arena arena = control->arena; /* the controller lies in it */
    tess__arena_free(&arena);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static tess__attention_at attention_at(const tess__control *c, const tess__dsv_state *state)
{
    tess__attention_at at = {.grid = c->opts.grid,
                             .cube = state->cubes[0].cube,
                             .train = c->opts.train,
                             .break_even = state->break_even,
                             .memory = c->opts.memory};
    for (int layer = 0; layer < c->config.layers; layer++)
        at.sparse |= state->sparse[layer];
    return at;
}

void tess__control_shape(const tess__control *c, tess_pass_shape *shape, tess_sparse_opts *sparse)
{
    const tess__attention_at at = attention_at(c, &c->state);
    tess__attention_room(&c->attention, &at, sparse);
    shape->cube = c->state.cubes[0].cube;
    shape->sparse = sparse;
}

int32_t tess__control_units_most(const tess__control *c, const tess__dsv_state *state)
{
    const tess__attention_at at = attention_at(c, state);
    return tess__attention_units(&c->attention, &at);
}
