/* SPDX-License-Identifier: Apache-2.0 */
/* control_decide.c - the two entries of a training step into the controller, as far as they decide.
 *
 *   decide   decision = decide(state, rules), at the end of a step: the state of the next step and
 *            the events that lead to it. It changes nothing, so that a checkpoint in between holds
 *            the state that the rules read, and a resumed run decides the same again
 *   apply    before the next step: its state becomes the one in force, its events are written, the
 *            tables of the passes and of the observer follow
 *
 * Only the first sparse layer of a run makes decide do more than arithmetic: the break-even density
 * is measured then (control_break_even.c). The pass must be made again where its tokens shall lie
 * in other cubes, or where lists of keys shall have room, as when the first layer becomes sparse.
 */
#include "control.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };

/* ---- decide ---------------------------------------------------------------------------------- */

/* Density of the heads: given, or the least that was measured of a layer. */
static double wanted_density(const tess__control *c, const tess__dsv_state *s)
{
    double least = c->rules.density > 0.0 ? c->rules.density : 1.0;
    for (int layer = 0; layer < s->layers && c->rules.density == 0.0; layer++)
        least = fmin(least, tess__layer_density(s, 0, layer));
    return least;
}

static tess_status know_break_even(tess__control *c, int64_t step, tess__decision *d)
{
    if (c->rules.choosing != TESS__CHOOSE_TABLE || !isnan(d->next.break_even))
        return TESS_OK;
    tess__event event = {
        .kind = TESS__EVENT_BREAK_EVEN, .step = step, .layer = -1, .head = -1, .rule = "given"};
    const double wanted = wanted_density(c, &d->next);
    double density = c->attention.break_even, tokens = (double)NAN;
    if (density == 0.0)
        TESS_TRY(tess__control_break_even(c, d->next.cubes[0].cube, wanted, &density, &tokens,
                                          &event.rule));
    event.why[0].name = "density";
    event.why[0].value = d->next.break_even = density;
    event.n_why = 1;
    if (wanted >= density && !isnan(tokens)) { /* one line says that it does not pay */
        event.why[1].name = "wanted";
        event.why[1].value = wanted;
        event.why[2].name = "tokens";
        event.why[2].value = (double)c->tokens;
        event.why[3].name = "pays_from_tokens";
        event.why[3].value = tokens;
        event.n_why = 4;
    }
    tess__event_add(&d->events, &event);
    return TESS_OK;
}

/* One window serves all layers and heads: of the given density, or of the mean of the budgets. */
static void know_window(const tess__control *c, int64_t step, tess__decision *d)
{
    if (c->attention.kind != TESS_ATTENTION_WINDOW || d->next.window[0])
        return;
    const int *cube = d->next.cubes[0].cube;
    const int32_t n = tess__control_units(c, cube);
    const int64_t all = (int64_t)c->config.layers * QUARTILES * c->config.heads;
    int cubes[3];
    double density = 0.0;
    for (int a = 0; a < 3; a++)
        cubes[a] = (c->opts.grid[a] + cube[a] - 1) / cube[a];
    for (int64_t i = 0; i < all; i++) {
        const int head = (int)(i % c->config.heads), q = (int)(i / c->config.heads % QUARTILES);
        const int layer = (int)(i / c->config.heads / QUARTILES);
        density +=
            (double)tess__budget(&d->next, &c->rules, 0, layer, q, head, n) / n / (double)all;
    }
    const double share = tess__window(cubes, density, d->next.window);
    tess__event event = {.kind = TESS__EVENT_WINDOW,
                         .step = step,
                         .layer = -1,
                         .head = -1,
                         .why = {{"density", density}, {"share", share}},
                         .n_why = 2};
    memcpy(event.sizes, d->next.window, sizeof event.sizes);
    tess__event_add(&d->events, &event);
}

tess_status tess__control_decide(tess__control *c, int64_t step)
{
    tess__decision *d = &c->decision;
    tess__rules rules = c->rules;
    d->step = 0;
    d->events.n = 0;
    tess__dsv_state_copy(&c->state, &d->next);
    if (tess__decide_stages(&d->next, &rules, step, &d->events)) {
        TESS_TRY(know_break_even(c, step, d));
        know_window(c, step, d);
        rules.units_most = tess__control_units_most(c, &d->next);
        tess__decide_heads(&d->next, &rules, step, tess__control_units(c, d->next.cubes[0].cube),
                           &d->events);
    }
    d->step = step;
    return TESS_OK;
}

/* ---- apply ----------------------------------------------------------------------------------- */

tess_status tess__control_write(const tess__control *c, const tess__event *event)
{
    return c->opts.listener.fn ? c->opts.listener.fn(c->opts.listener.user, event) : TESS_OK;
}

tess_status tess__control_write_all(const tess__control *c, const tess__event_list *events)
{
    tess_status first = TESS_OK;
    for (int i = 0; i < events->n; i++) {
        const tess_status status = tess__control_write(c, &events->at[i]);
        first = first == TESS_OK ? status : first;
    }
    return first;
}

static int due(int64_t every, int64_t step)
{
    return (step - 1) % every == 0;
}

/* The budgets of a layer's check, in all cubes that are compared. */
static void fill_budgets(const tess__control *c, int layer)
{
    const int heads = c->config.heads;
    for (int i = 0; i < c->state.n_cubes * QUARTILES * heads; i++) {
        const int head = i % heads, q = i / heads % QUARTILES, cube = i / heads / QUARTILES;
        tess__observer_budgets(&c->observer, cube, layer, q)[head] =
            tess__budget(&c->state, &c->rules, cube, layer, q, head, (int32_t)c->tokens);
    }
}

void tess__control_budgets(const tess__control *c)
{
    for (int layer = 0; layer < c->config.layers; layer++)
        if (c->observer.layers[layer].check)
            fill_budgets(c, layer);
}

/* What the passes of the step measure. The first step has no budgets to check yet. */
static void fill_observer(tess__control *c)
{
    tess__observer *o = &c->observer;
    const tess__dsv_state *s = &c->state;
    const int check = c->rules.learns && c->step > 1 && due(c->attention.check_every, c->step);
    o->step = c->step;
    o->orders = c->orders;
    o->n_orders = s->n_cubes;
    o->inverse = c->inverse;
    o->overlap = !s->cube_chosen;
    o->content = s->content;
    o->calibration = s->calibration;
    for (int layer = 0; layer < c->config.layers; layer++) {
        const int64_t every = tess__profile_interval(&c->attention, s->sparse[layer]);
        o->layers[layer] = (tess__observe_layer){.profile = (uint8_t)due(every, c->step),
                                                 .check = (uint8_t)check,
                                                 .dense = !s->sparse[layer]};
    }
    tess__control_budgets(c);
    tess__observer_clear(o);
}

tess_status tess__control_apply(tess__control *c, int64_t step, int *remake)
{
    tess_pass_shape shape;
    tess_sparse_opts before, after;
    int cube[3];
    TESS_TRY(tess__control_resize(c, c->reference));
    if (c->decision.step != step) /* the first step of a run */
        TESS_TRY(tess__control_decide(c, step));
    tess__control_shape(c, &shape, &before);
    memcpy(cube, shape.cube, sizeof cube);
    const tess__dsv_state last = c->state;
    c->state = c->decision.next;
    c->decision.next = last;
    c->decision.step = 0;
    c->step = step;
    if (!last.cube_chosen && c->state.cube_chosen)
        TESS_TRY(tess__control_chosen(c));
    tess__control_shape(c, &shape, &after);
    *remake = memcmp(cube, shape.cube, sizeof cube) != 0 || before.dense != after.dense ||
              before.max_density != after.max_density;
    tess__attend_table_fill(c);
    fill_observer(c);
    if (c->predictor)
        TESS_TRY(tess_predictor_zero_gradients(c->predictor));
    return tess__control_write_all(c, &c->decision.events);
}
