/* SPDX-License-Identifier: Apache-2.0 */
/* profile_probe.c - density, recall and overlap of a layer's attention, measured while the model
 * runs.
 *
 * The hook of the pass gets q and k in the order of its cubes. Density and recall are measured
 * there; for the overlap of other cubes q and k are copied into their order. Recall is that of the
 * predictor's keys, as many as the measured density or a given one allows, for each sample and
 * head.
 */
#include "cmd_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Groups measured of each head at most: on long clips neighbours add no information. */
enum { GROUPS_MEASURED = 64 };

static tess_status no_memory(cli *c)
{
    return out_fail(c, TESS_ENOMEM, "no memory for the measurements");
}

/* ---- orders of tokens ------------------------------------------------------------------------ */

static tess_status add_order(cli *c, const int cube[3], const int64_t *place, profile_probe *p)
{
    profile_order *o = &p->orders[p->n_orders++];
    memcpy(o->cube, cube, sizeof o->cube);
    TRY(tess_order_cubes(p->grid, cube, NULL, NULL, NULL, &o->groups));
    o->from = malloc((size_t)p->tokens * sizeof *o->from);
    o->bounds = malloc(((size_t)o->groups + 1) * sizeof *o->bounds);
    if (!o->from || !o->bounds)
        return no_memory(c);
    TRY(tess_order_cubes(p->grid, cube, o->from, NULL, o->bounds, &o->groups));
    for (int64_t i = 0; i < p->tokens && place; i++)
        o->from[i] = place[o->from[i]];
    return TESS_OK;
}

/* Those that training compares, without the first one's. */
static tess_status add_others(cli *c, const int64_t *place, profile_probe *p)
{
    int cubes[TESS_CUBES][3];
    const int n = tess_attention_cubes(p->grid, cubes);
    for (int i = 0; i < n; i++)
        if (memcmp(cubes[i], p->orders[0].cube, sizeof cubes[i]) != 0)
            TRY(add_order(c, cubes[i], place, p));
    return TESS_OK;
}

tess_status profile_probe_open(cli *c, const int cube[3], int others, profile_probe *p)
{
    const size_t pairs = (size_t)p->batch * (size_t)p->heads;
    const size_t numbers = pairs * (size_t)p->tokens * (size_t)p->head_dim;
    int64_t *place = malloc((size_t)p->tokens * sizeof *place);
    p->raster = malloc((size_t)p->tokens * sizeof *p->raster);
    p->values = malloc(pairs * sizeof *p->values);
    p->keys = malloc(pairs * sizeof *p->keys);
    p->stats = malloc(pairs * sizeof *p->stats);
    p->q = others ? malloc(numbers * sizeof *p->q) : NULL;
    p->k = others ? malloc(numbers * sizeof *p->k) : NULL;
    tess_status status = TESS_OK;
    if (!place || !p->raster || !p->values || !p->keys || !p->stats || (others && (!p->q || !p->k)))
        status = no_memory(c);
    if (status == TESS_OK)
        status = tess_order_cubes(p->grid, cube, p->raster, place, NULL, NULL);
    if (status == TESS_OK)
        status = add_order(c, cube, place, p);
    if (status == TESS_OK && others)
        status = add_others(c, place, p);
    free(place);
    return status;
}

void profile_probe_close(profile_probe *p)
{
    for (int i = 0; i < p->n_orders; i++) {
        free(p->orders[i].from);
        free(p->orders[i].bounds);
    }
    free(p->raster);
    free(p->q);
    free(p->k);
    free(p->values);
    free(p->keys);
    free(p->stats);
    tess_selector_destroy(p->predictor);
    tess_plugin_close(p->plugin);
}

tess_sel_shape profile_groups(const profile_probe *p, const profile_order *order, int batch,
                              int heads)
{
    return (tess_sel_shape){.batch = batch,
                            .heads = heads,
                            .tokens_q = p->tokens,
                            .tokens_k = p->tokens,
                            .bounds_q = order->bounds,
                            .n_q = order->groups,
                            .unit = 1};
}

/* ---- measuring ------------------------------------------------------------------------------- */

static tess_density_in question(const profile_probe *p, const profile_order *order,
                                const tess_view *q, const tess_view *k,
                                const tess_sel_shape *groups)
{
    return (tess_density_in){.q = q,
                             .k = k,
                             .head_dim = p->head_dim,
                             .groups = groups,
                             .mass = p->mass,
                             .every = (order->groups + GROUPS_MEASURED - 1) / GROUPS_MEASURED};
}

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* Recall of the predictor or plugin at as many keys as the densities in p->values say, or as are
 * asked for. */
static tess_status measure_recall(profile_probe *p, const tess_hook_in *hook,
                                  const tess_sel_shape *groups, int32_t every)
{
    const int pairs = p->batch * p->heads;
    for (int i = 0; i < pairs; i++) {
        const double share = isnan(p->keys_share) ? p->values[i] : p->keys_share;
        p->keys[i] = (int32_t)ceil(share * (double)p->tokens - 1e-9);
        p->keys[i] = p->keys[i] < 1 ? 1 : p->keys[i];
    }
    if (p->plugin)
        return profile_own_recall(p, hook, every);
    if (!p->predictor)
        TRY(tess_selector_create(
            p->ctx, &(tess_selector_opts){.kind = TESS_SELECT_PREDICTOR, .proxy = p->proxy},
            &p->predictor));
    const tess_select_in in = {.q = hook->q_low,
                               .k = hook->k_low,
                               .head_dim = hook->proj_dim,
                               .budget = {.keys_each = p->keys}};
    tess_selection *sel = NULL;
    int64_t capacity;
    TRY(tess_selector_capacity(p->predictor, groups, &in, &capacity));
    TRY(tess_selection_create(p->ctx, groups, capacity, &sel));
    tess_status status = tess_selector_run(p->predictor, &in, sel);
    const tess_sel_measure_in ask = {
        .q = hook->q, .k = hook->k, .head_dim = p->head_dim, .every = every, .heads = p->stats};
    tess_sel_stats all;
    if (status == TESS_OK)
        status = tess_selection_measure(p->ctx, sel, &ask, &all);
    tess_selection_destroy(sel);
    return status;
}

/* Rows of `from` in another order, contiguous. */
static void gather(const profile_probe *p, const profile_order *order, const tess_view *from,
                   float *to)
{
    const size_t row = (size_t)p->head_dim;
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++) {
            const float *rows = (const float *)from->data + b * from->stride_b + h * from->stride_h;
            for (int64_t i = 0; i < p->tokens; i++, to += row)
                memcpy(to, rows + order->from[i] * from->stride_s, row * sizeof *to);
        }
}

static tess_status measure_cube(profile_probe *p, profile_order *order, const tess_hook_in *hook)
{
    const int64_t head = p->tokens * p->head_dim;
    const tess_sel_shape groups = profile_groups(p, order, p->batch, p->heads);
    gather(p, order, hook->q, p->q);
    gather(p, order, hook->k, p->k);
    const tess_view q = {p->q, TESS_DTYPE_F32, p->heads * head, head, p->head_dim};
    const tess_view k = {p->k, TESS_DTYPE_F32, p->heads * head, head, p->head_dim};
    const tess_density_in in = question(p, order, &q, &k, &groups);
    TRY(tess_density_measure(p->ctx, &in, p->values));
    order->density += mean(p->values, p->batch * p->heads);
    TRY(tess_overlap_measure(p->ctx, &in, 0, p->values));
    order->overlap += mean(p->values, p->batch * p->heads);
    order->measured++;
    return TESS_OK;
}

tess_status profile_probe_hook(void *probe, const tess_hook_in *hook)
{
    profile_probe *p = probe;
    const tess_sel_shape groups = profile_groups(p, &p->orders[0], p->batch, p->heads);
    const tess_density_in in = question(p, &p->orders[0], hook->q, hook->k, &groups);
    TRY(tess_density_measure(p->ctx, &in, p->values));
    double *density = p->density + (size_t)hook->layer * (size_t)p->heads;
    for (int i = 0; i < p->batch * p->heads; i++)
        density[i % p->heads] += p->values[i];
    if ((hook->q_low || p->plugin) && p->recall) {
        TRY(measure_recall(p, hook, &groups, in.every));
        double *recall = p->recall + (size_t)hook->layer * (size_t)p->heads;
        for (int i = 0; i < p->batch * p->heads; i++)
            recall[i % p->heads] += p->stats[i].recall;
    }
    const double before = p->orders[0].overlap;
    for (int i = 0; i < p->n_orders && p->compare; i++)
        TRY(measure_cube(p, &p->orders[i], hook));
    p->overlap[hook->layer] += p->orders[0].overlap - before;
    return TESS_OK;
}
