/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - the controller: its life, its rules before a step, and how the next pass attends.
 *
 * The pass lies in the order of the first of the cubes that are compared until one is chosen;
 * probes find their queries in any order, so nothing that was measured is lost when it is made
 * anew. It has room for lists when the first layer becomes sparse.
 */
#include "control.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };

/* ---- cubes ----------------------------------------------------------------------------------- */

static tess_status make_order(tess__control *c, const int cube[3], tess__order *order)
{
    memcpy(order->cube, cube, sizeof order->cube);
    TESS_TRY(tess_order_cubes(c->opts.grid, cube, NULL, NULL, NULL, &order->groups));
    order->perm = tess__arena_take(&c->arena, (size_t)c->tokens * sizeof *order->perm);
    order->bounds =
        tess__arena_take(&c->arena, ((size_t)order->groups + 1) * sizeof *order->bounds);
    if (!order->perm || !order->bounds)
        return TESS_ENOMEM;
    return tess_order_cubes(c->opts.grid, cube, order->perm, NULL, order->bounds, NULL);
}

tess_status tess__control_orders(tess__control *c)
{
    for (int i = 0; i < c->state.n_cubes; i++)
        TESS_TRY(make_order(c, c->state.cubes[i].cube, &c->orders[i]));
    return tess_order_cubes(c->opts.grid, c->state.cubes[0].cube, NULL, c->inverse, NULL, NULL);
}

tess_status tess__control_chosen(tess__control *c)
{
    const int *cube = c->state.cubes[0].cube;
    for (int i = 1; i < TESS__CUBES; i++)
        if (memcmp(c->orders[i].cube, cube, sizeof c->orders[i].cube) == 0)
            c->orders[0] = c->orders[i];
    return tess_order_cubes(c->opts.grid, cube, NULL, c->inverse, NULL, NULL);
}

int32_t tess__control_units(const tess__control *c, int cube)
{
    return c->unit_cubes ? c->orders[cube].groups : (int32_t)c->tokens;
}

/* ---- life ------------------------------------------------------------------------------------ */

static tess_status take_tables(tess__control *c)
{
    const size_t l = (size_t)c->config.layers, b = (size_t)c->opts.batch,
                 h = (size_t)c->config.heads;
    const struct {
        void **place;
        size_t bytes;
    } parts[] = {
        {(void **)&c->layers, l * sizeof *c->layers},
        {(void **)&c->keys, l * b * h * sizeof *c->keys},
        {(void **)&c->buckets, b * sizeof *c->buckets},
        {(void **)&c->rates, l * sizeof *c->rates},
        {(void **)&c->inverse, (size_t)c->tokens * sizeof *c->inverse},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].place = tess__arena_take(&c->arena, parts[i].bytes);
        if (!*parts[i].place)
            return TESS_ENOMEM;
    }
    memset(c->layers, 0, l * sizeof *c->layers);
    return TESS_OK;
}

static tess_status make_predictor(tess__control *c)
{
    const tess_predictor_opts opts = {.input = c->attention.predictor == TESS_PREDICTOR_QK
                                                   ? TESS_PREDICT_QK
                                                   : TESS_PREDICT_HIDDEN,
                                      .rank = c->attention.proj_dim,
                                      .rotary = c->attention.predictor == TESS_PREDICTOR_HIDDEN,
                                      .seed = c->opts.seed};
    if (!c->rules.learns)
        return TESS_OK;
    TESS_TRY(tess_predictor_create(c->ctx, &c->config, &opts, &c->predictor));
    if (!c->opts.train)
        return TESS_OK;
    return tess__learner_create(c->ctx, c->predictor, c->config.layers, &c->learner);
}

tess_status tess__control_impose(tess__control *c, const uint8_t *choices)
{
    c->rules.imposed = c->state.imposed = NULL;
    if (c->rules.choosing != TESS__CHOOSE_IMPOSED || !choices)
        return TESS_OK;
    const size_t all = (size_t)c->config.layers * QUARTILES * (size_t)c->config.heads;
    c->state.imposed = tess__arena_take(&c->state.arena, all);
    if (!c->state.imposed)
        return TESS_ENOMEM;
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
    TESS_TRY(tess__dsv_state_read(c->ctx, path, &c->imposed));
    if (c->imposed.layers != c->config.layers || c->imposed.heads != c->config.heads)
        return tess__fail(TESS_EINVAL,
                          "%s: is of %d layers of %d heads, must be of the model's %d of %d", path,
                          c->imposed.layers, c->imposed.heads, c->config.layers, c->config.heads);
    return tess__control_impose(c, c->imposed.choice);
}

tess_status tess__control_ready(tess__control *c)
{
    return c->rules.imposed ? TESS_OK : read_imposed(c);
}

static tess_status copy_texts(tess__control *c)
{
    const char **texts[] = {&c->attention.dispatch, &c->attention.cache, &c->opts.folder};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) {
            *texts[i] = tess__arena_string(&c->arena, *texts[i], strlen(*texts[i]));
            if (!*texts[i])
                return TESS_ENOMEM;
        }
    return TESS_OK;
}

static tess_status build(tess__control *c)
{
    int cubes[TESS__CUBES][3];
    const int n = tess__attention_cubes(&c->attention, c->opts.grid, cubes);
    TESS_TRY(copy_texts(c));
    TESS_TRY(take_tables(c));
    TESS_TRY(tess__dsv_state_create(c->ctx, c->config.layers, c->config.heads,
                                    (const int(*)[3])cubes, n, &c->state));
    c->state.cube_chosen = n == 1;
    if (c->attention.dispatch && access(c->attention.dispatch, F_OK) == 0)
        TESS_TRY(read_imposed(c)); /* else a checkpoint may have them */
    TESS_TRY(tess__control_orders(c));
    TESS_TRY(make_predictor(c));
    return c->opts.train ? tess__probes_create(c) : TESS_OK;
}

tess_status tess__control_create(tess_ctx *ctx, const tess__control_opts *opts,
                                 tess__control **control)
{
    tess__arena arena = {.ctx = ctx};
    tess__control *c = tess__arena_take(&arena, sizeof *c);
    if (!c)
        return TESS_ENOMEM;
    *c = (tess__control){.ctx = ctx,
                         .arena = arena,
                         .opts = *opts,
                         .attention = *opts->attention,
                         .config = *opts->config,
                         .tokens = (int64_t)opts->grid[0] * opts->grid[1] * opts->grid[2],
                         .unit_cubes = tess__attention_by_cubes(opts->attention->kind)};
    c->opts.attention = NULL;
    c->opts.config = NULL;
    tess__attention_rules(&c->attention, &c->rules);
    const tess_status status = build(c);
    if (status != TESS_OK) {
        tess__control_destroy(c);
        return status;
    }
    *control = c;
    return TESS_OK;
}

void tess__control_destroy(tess__control *control)
{
    if (!control)
        return;
    tess__learner_destroy(control->ctx, &control->learner);
    tess_predictor_destroy(control->predictor);
    tess_selector_destroy(control->selector);
    tess__dsv_state_destroy(&control->state);
    tess__dsv_state_destroy(&control->imposed);
    tess__arena arena = control->arena; /* the controller lies in it */
    tess__arena_free(&arena);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static tess__attention_at attention_at(const tess__control *c)
{
    tess__attention_at at = {.grid = c->opts.grid,
                             .cube = c->state.cubes[0].cube,
                             .train = c->opts.train,
                             .break_even = c->state.break_even,
                             .memory = c->opts.memory};
    for (int layer = 0; layer < c->config.layers; layer++)
        at.sparse |= c->state.sparse[layer];
    return at;
}

void tess__control_shape(const tess__control *c, tess_pass_shape *shape, tess_sparse_opts *sparse)
{
    const tess__attention_at at = attention_at(c);
    tess__attention_room(&c->attention, &at, sparse);
    shape->cube = c->state.cubes[0].cube;
    shape->sparse = sparse;
}

/* Units of a list that the pass has room for. */
static int32_t units_most(const tess__control *c)
{
    const tess__attention_at at = attention_at(c);
    return tess__attention_units(&c->attention, &at);
}

/* ---- before a step --------------------------------------------------------------------------- */

static tess_status know_break_even(tess__control *c, tess__listener told)
{
    if (c->rules.choosing != TESS__CHOOSE_TABLE || !isnan(c->state.break_even))
        return TESS_OK;
    tess__event event = {
        .kind = TESS__EVENT_BREAK_EVEN, .step = c->step, .layer = -1, .head = -1, .rule = "given"};
    c->state.break_even = c->attention.break_even;
    if (c->state.break_even == 0.0)
        TESS_TRY(tess__control_break_even(c, &c->state.break_even, &event.rule));
    event.why[0].name = "density";
    event.why[0].value = c->state.break_even;
    event.n_why = 1;
    told.fn(told.user, &event);
    return TESS_OK;
}

/* One window serves all layers and heads: of the given density, or of the mean of the budgets. */
static void know_window(tess__control *c, tess__listener told)
{
    if (c->attention.kind != TESS_ATTENTION_WINDOW || c->state.window[0])
        return;
    const int *cube = c->state.cubes[0].cube;
    const int32_t n = tess__control_units(c, 0);
    const int64_t all = (int64_t)c->config.layers * QUARTILES * c->config.heads;
    int cubes[3];
    double density = 0.0;
    for (int a = 0; a < 3; a++)
        cubes[a] = (c->opts.grid[a] + cube[a] - 1) / cube[a];
    for (int64_t i = 0; i < all; i++) {
        const int head = (int)(i % c->config.heads), b = (int)(i / c->config.heads % QUARTILES);
        const int layer = (int)(i / c->config.heads / QUARTILES);
        density +=
            (double)tess__budget(&c->state, &c->rules, 0, layer, b, head, n) / n / (double)all;
    }
    const double share = tess__window(cubes, density, c->state.window);
    tess__event event = {.kind = TESS__EVENT_WINDOW,
                         .step = c->step,
                         .layer = -1,
                         .head = -1,
                         .why = {{"density", density}, {"share", share}},
                         .n_why = 2};
    memcpy(event.sizes, c->state.window, sizeof event.sizes);
    told.fn(told.user, &event);
}

tess_status tess__control_decide(tess__control *c, int64_t step, int *remake)
{
    const tess__listener told = {tess__control_tell, c};
    tess_pass_shape shape = {.batch = 0};
    tess_sparse_opts before, after;
    int cube[3];
    tess__control_shape(c, &shape, &before);
    memcpy(cube, shape.cube, sizeof cube);
    const int chosen = c->state.cube_chosen;
    c->step = step;
    c->told = TESS_OK;
    tess__control_clear(c);
    c->step_density = c->step_pairs = c->step_loss = 0.0;
    c->step_layers = c->step_losses = 0;
    if (c->predictor)
        TESS_TRY(tess_predictor_zero_gradients(c->predictor));
    const int any = tess__decide(&c->state, &c->rules, step, told);
    if (!chosen && c->state.cube_chosen)
        TESS_TRY(tess__control_chosen(c));
    if (any) {
        TESS_TRY(know_break_even(c, told));
        know_window(c, told);
        c->rules.units_most = units_most(c);
        tess__dispatch(&c->state, &c->rules, step, tess__control_units(c, 0), told);
    }
    tess__control_shape(c, &shape, &after);
    *remake = memcmp(cube, shape.cube, sizeof cube) != 0 || before.dense != after.dense ||
              before.max_density != after.max_density;
    return c->told;
}

tess_status tess__control_remade(tess__control *c, const tess_pass *pass)
{
    const int kept = tess__pass_kept_lists(pass);
    c->told = TESS_OK;
    if (kept >= 0)
        tess__control_tell(c, &(tess__event){.kind = TESS__EVENT_LISTS,
                                             .step = c->step,
                                             .layer = -1,
                                             .head = -1,
                                             .why = {{"layers", kept},
                                                     {"selected_again", c->config.layers - kept}},
                                             .n_why = 2});
    return c->told;
}

tess_status tess__control_end(tess__control *c, int64_t step)
{
    c->told = TESS_OK;
    tess__decide_end(&c->state, &c->rules, step, (tess__listener){tess__control_tell, c});
    return c->told;
}

/* ---- before a pass --------------------------------------------------------------------------- */

static const tess_select_kind kinds[] = {
    [TESS_ATTENTION_DSV] = TESS_SELECT_PREDICTOR, [TESS_ATTENTION_ORACLE] = TESS_SELECT_ORACLE,
    [TESS_ATTENTION_POOLED] = TESS_SELECT_POOLED, [TESS_ATTENTION_SEARCH] = TESS_SELECT_SEARCH,
    [TESS_ATTENTION_WINDOW] = TESS_SELECT_WINDOW, [TESS_ATTENTION_RANDOM] = TESS_SELECT_RANDOM,
};

/* Whether a layer has sparse heads, for clips of any noise: one without needs no selector, and no
 * low-rank vectors on their way. The densities that plans are made for say the same. */
static int has_sparse_heads(const tess__control *c, int layer)
{
    const size_t all = QUARTILES * (size_t)c->config.heads;
    return c->state.sparse[layer] && memchr(c->state.choice + (size_t)layer * all, 1, all) != NULL;
}

/* The budgets of a sparse layer, of each clip by its noise. One may have outgrown its room since
 * the heads were chosen; then it is dense until they are chosen again. */
static void fill_keys(const tess__control *c, int layer, int32_t *keys)
{
    const int32_t n = tess__control_units(c, 0), most = units_most(c);
    const int heads = c->config.heads;
    for (int b = 0; b < c->opts.batch; b++)
        for (int h = 0; h < heads; h++) {
            const int bucket = c->buckets[b];
            const int64_t place = ((int64_t)layer * QUARTILES + bucket) * heads + h;
            const int32_t units = c->state.choice[place]
                                      ? tess__budget(&c->state, &c->rules, 0, layer, bucket, h, n)
                                      : 0;
            keys[b * heads + h] = units <= most ? units : 0;
        }
}

tess_status tess__control_attend(tess__control *c, tess_pass *pass, const double *u, int64_t turn,
                                 int64_t sample, int train)
{
    const int64_t each = (int64_t)c->opts.batch * c->config.heads;
    for (int b = 0; b < c->opts.batch; b++)
        c->buckets[b] = tess__quartile(u[b]);
    for (int layer = 0; layer < c->config.layers; layer++) {
        int32_t *keys = c->keys + layer * each;
        const int sparse = has_sparse_heads(c, layer);
        if (sparse)
            fill_keys(c, layer, keys);
        c->layers[layer] = (tess_attend_layer){
            .kind = kinds[c->attention.kind],
            .keys = sparse ? keys : NULL,
            .learn = train && c->rules.learns,
            .hook = train && (tess__profile_due(c, layer) || tess__check_due(c, layer)),
        };
    }
    const tess_attend attend = {
        .layers = c->layers,
        .predictor = c->predictor,
        .proxy = c->attention.proxy,
        .window = {c->state.window[0], c->state.window[1], c->state.window[2]},
        .loss = c->attention.loss,
        .seed = c->opts.seed,
        .step = (uint64_t)turn,
        .sample = sample,
        .reuse = c->reuse,
        .search = c->search,
        .hook = tess__control_look,
        .user = c,
    };
    return tess_pass_attend(pass, &attend);
}
