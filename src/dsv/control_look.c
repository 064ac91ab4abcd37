/* SPDX-License-Identifier: Apache-2.0 */
/* control_look.c - profile and checks: what a layer's attention is like, measured while it runs.
 *
 *   profile   every profile_every steps, by quarter of the noise: the share of the keys that
 *             holds `mass` of a group's softmax, mean over the groups. While cubes are compared,
 *             also the overlap of the queries of a cube.
 *   check     every check_every steps: the predictor's keys for a group at its budget, their
 *             softmax mass over that of as many keys chosen by the oracle.
 *
 * In stage 1 each size of cubes that is compared is measured. Ranks that share tokens are shown
 * some heads each; the one that has the first head counts. What the batches of a step measured is
 * summed here, and folded into the decisions after the step: one value for each quarter.
 */
#include "control.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS, PROFILE_FIRST = 10, PROFILE_LATER = 25 };

/* ---- when ------------------------------------------------------------------------------------ */

static int due(int64_t every, int64_t step)
{
    return (step - 1) % every == 0;
}

int tess__profile_due(const tess__control *c, int layer)
{
    const int64_t every = c->attention.profile_every ? c->attention.profile_every
                          : c->state.sparse[layer]   ? PROFILE_LATER
                                                     : PROFILE_FIRST;
    return due(every, c->step);
}

/* Not in the first step: there is no budget to check yet. */
int tess__check_due(const tess__control *c, int layer)
{
    (void)layer;
    return c->rules.learns && c->step > 1 && due(c->attention.check_every, c->step);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static tess_status make_sums(tess__control *c, tess__sums *s)
{
    const int64_t l = c->config.layers, h = c->config.heads;
    s->n = l * QUARTILES * h + l * QUARTILES + l * h + l + 2;
    s->all = tess__arena_take(&c->arena, (size_t)s->n * sizeof *s->all);
    if (!s->all)
        return TESS_ENOMEM;
    s->density = s->all;
    s->profiles = s->density + l * QUARTILES * h;
    s->recall = s->profiles + l * QUARTILES;
    s->checks = s->recall + l * h;
    s->overlap = s->checks + l;
    return TESS_OK;
}

static void clear_sums(tess__sums *s)
{
    memset(s->all, 0, (size_t)s->n * sizeof *s->all);
}

tess_status tess__probes_create(tess__control *c)
{
    const size_t all = (size_t)c->opts.batch * (size_t)c->config.heads;
    for (int i = 0; i < TESS__CUBES; i++) {
        TESS_TRY(make_sums(c, &c->sums[i]));
        clear_sums(&c->sums[i]);
    }
    TESS_TRY(tess__probe_create(c, &c->gathered));
    c->measured = tess__arena_take(&c->arena, all * sizeof *c->measured);
    c->check_keys = tess__arena_take(&c->arena, all * sizeof *c->check_keys);
    if (!c->measured || !c->check_keys)
        return TESS_ENOMEM;
    const tess_selector_opts opts = {
        .kind = TESS_SELECT_PREDICTOR, .proxy = c->attention.proxy, .in_place = 1};
    return c->rules.learns ? tess_selector_create(c->ctx, &opts, &c->selector) : TESS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static tess_sel_shape shape_of(const tess__control *c, const tess_hook_in *hook)
{
    const tess__gathered *g = &c->gathered;
    return (tess_sel_shape){.batch = c->opts.batch,
                            .heads = hook->heads,
                            .tokens_q = g->rows,
                            .tokens_k = c->tokens,
                            .bounds_q = g->bounds,
                            .n_q = g->groups,
                            .unit = 1};
}

static tess_status profile(tess__control *c, int cube, const tess_hook_in *hook)
{
    tess__gathered *g = &c->gathered;
    tess__sums *sums = &c->sums[cube];
    const int heads = c->config.heads, shown = hook->heads;
    const tess_sel_shape shape = shape_of(c, hook);
    const tess_view q = tess__probe_view(hook, g, g->q, c->config.head_dim);
    const tess_density_in in = {
        .q = &q,
        .k = hook->k,
        .head_dim = c->config.head_dim,
        .groups = &shape,
        .mass = c->attention.mass,
        .lse = hook->lse && !c->state.sparse[hook->layer] ? g->lse : NULL, /* over all keys */
    };
    TESS_TRY(tess_density_measure(c->ctx, &in, c->measured));
    for (int b = 0; b < c->opts.batch; b++) {
        const int64_t place = (int64_t)hook->layer * QUARTILES + c->buckets[b];
        sums->profiles[place] += hook->head == 0;
        for (int h = 0; h < shown; h++)
            sums->density[place * heads + hook->head + h] += c->measured[b * shown + h];
    }
    if (c->state.cube_chosen)
        return TESS_OK;
    TESS_TRY(tess_overlap_measure(c->ctx, &in, 0, c->measured));
    for (int i = 0; i < c->opts.batch * shown; i++)
        sums->overlap[0] += c->measured[i];
    sums->overlap[1] += c->opts.batch * shown;
    return TESS_OK;
}

/* Fills in the budgets of a check; 0: they are not known yet. */
static int fill_budgets(const tess__control *c, int cube, const tess_hook_in *hook)
{
    for (int b = 0; b < c->opts.batch; b++)
        for (int h = 0; h < hook->heads; h++) {
            const int32_t keys = tess__budget(&c->state, &c->rules, cube, hook->layer,
                                              c->buckets[b], hook->head + h, (int32_t)c->tokens);
            if (keys == 0)
                return 0;
            c->check_keys[b * hook->heads + h] = keys;
        }
    return 1;
}

/* Groups first .. first + n - 1 of one head of one sample: the recall of the keys selected for
 * them, times their queries. */
static tess_status check_groups(tess__control *c, const tess_hook_in *hook, int64_t at,
                                int32_t first, int32_t n, double *recall)
{
    tess__gathered *g = &c->gathered;
    const int64_t sample = at / hook->heads, head = at % hook->heads, row = g->bounds[first];
    const tess_view all[] = {tess__probe_view(hook, g, g->q, c->config.head_dim), *hook->k,
                             tess__probe_view(hook, g, g->low, hook->rank), *hook->k_low};
    tess_view one[4];
    for (int i = 0; i < 4; i++) {
        const int64_t rows = i % 2 ? 0 : row * all[i].stride_s;
        one[i] = all[i];
        one[i].data =
            (float *)all[i].data + sample * all[i].stride_b + head * all[i].stride_h + rows;
    }
    for (int32_t i = 0; i <= n; i++)
        g->part[i] = g->bounds[first + i] - row;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = g->part[n],
                                  .tokens_k = c->tokens,
                                  .bounds_q = g->part,
                                  .n_q = n,
                                  .unit = 1};
    const tess_select_in in = {
        .q = &one[2], .k = &one[3], .head_dim = hook->rank, .budget = {.keys = c->check_keys[at]}};
    const tess_sel_measure_in measure = {
        .q = &one[0], .k = &one[1], .head_dim = c->config.head_dim};
    tess_sel_stats stats;
    tess_selection *sel = NULL;
    TESS_TRY(tess_selection_create(c->ctx, &shape, (int64_t)n * c->check_keys[at], &sel));
    tess_status status = tess_selector_run(c->selector, &in, sel);
    if (status == TESS_OK)
        status = tess_selection_measure(c->ctx, sel, &measure, &stats);
    tess_selection_destroy(sel);
    if (status == TESS_OK)
        *recall += stats.recall * (double)shape.tokens_q;
    return status;
}

static tess_status check(tess__control *c, int cube, const tess_hook_in *hook)
{
    const tess__gathered *g = &c->gathered;
    tess__sums *sums = &c->sums[cube];
    double *recall = sums->recall + (int64_t)hook->layer * c->config.heads + hook->head;
    if (!fill_budgets(c, cube, hook))
        return TESS_OK;
    for (int i = 0; i < c->opts.batch * hook->heads; i++) {
        double sum = 0.0;
        for (int32_t first = 0; first < g->groups; first += TESS__CHECK_GROUPS) {
            const int32_t left = g->groups - first;
            TESS_TRY(check_groups(c, hook, i, first,
                                  left < TESS__CHECK_GROUPS ? left : TESS__CHECK_GROUPS, &sum));
        }
        recall[i % hook->heads] += sum / (double)g->rows;
    }
    sums->checks[hook->layer] += hook->head == 0 ? c->opts.batch : 0;
    return TESS_OK;
}

tess_status tess__control_look(void *user, const tess_hook_in *hook)
{
    tess__control *c = user;
    for (int cube = 0; cube < c->state.n_cubes; cube++) {
        tess__probe_choose(c, &c->orders[cube], &c->gathered);
        tess__probe_gather(c, hook, &c->gathered);
        if (tess__profile_due(c, hook->layer))
            TESS_TRY(profile(c, cube, hook));
        if (tess__check_due(c, hook->layer))
            TESS_TRY(check(c, cube, hook));
    }
    return TESS_OK;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Means of what the step measured of a layer, as the decisions take them. */
static void fold_layer(tess__control *c, int cube, int layer)
{
    tess__sums *s = &c->sums[cube];
    const int heads = c->config.heads;
    for (int b = 0; b < QUARTILES; b++) {
        const int64_t place = (int64_t)layer * QUARTILES + b;
        double *density = s->density + place * heads;
        if (s->profiles[place] == 0.0)
            continue;
        for (int h = 0; h < heads; h++)
            density[h] /= s->profiles[place];
        tess__fold_density(&c->state, cube, layer, b, density);
    }
    double *recall = s->recall + (int64_t)layer * heads;
    if (s->checks[layer] == 0.0)
        return;
    for (int h = 0; h < heads; h++)
        recall[h] /= s->checks[layer];
    tess__fold_recall(&c->state, &c->rules, cube, layer, recall);
}

void tess__control_clear(tess__control *c)
{
    for (int cube = 0; cube < c->state.n_cubes; cube++)
        clear_sums(&c->sums[cube]);
}

int tess__control_fold(tess__control *c)
{
    int profiled = 0;
    for (int cube = 0; cube < c->state.n_cubes; cube++) {
        tess__sums *s = &c->sums[cube];
        for (int i = 0; i < c->config.layers * QUARTILES; i++)
            profiled |= s->profiles[i] > 0.0;
        for (int layer = 0; layer < c->config.layers; layer++)
            fold_layer(c, cube, layer);
        if (s->overlap[1] > 0.0)
            tess__fold_overlap(&c->state, cube, s->overlap[0] / s->overlap[1]);
    }
    tess__control_clear(c);
    return profiled;
}
