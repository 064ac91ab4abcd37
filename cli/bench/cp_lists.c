/* SPDX-License-Identifier: Apache-2.0 */
/* cp_lists.c - which keys each group of queries attends to, for all layers and heads.
 *
 * A head of density d has round(d * units) key units in each list, at least one: anywhere, or those
 * around the group. A head of density 1 has no lists.
 */
#include "cp_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* n + 1 bounds of ranges of `size` rows. */
static tess_status uniform(workload *w, int64_t tokens, int64_t size, int32_t *n, int64_t **bounds)
{
    void *data;
    *n = (int32_t)((tokens + size - 1) / size);
    TRY(workload_take(w, *n + 1, TESS_DTYPE_I64, &data));
    *bounds = data;
    for (int64_t i = 0; i <= *n; i++)
        (*bounds)[i] = i * size < tokens ? i * size : tokens;
    return TESS_OK;
}

static tess_status set_keys(workload *w, cp_lists *l)
{
    const int64_t n = (int64_t)l->layers * l->heads;
    void *keys, *density;
    TRY(workload_take(w, n, TESS_DTYPE_I32, &keys));
    TRY(workload_take(w, n, TESS_DTYPE_F64, &density));
    l->keys = keys;
    l->density = density;
    for (int64_t i = 0; i < n; i++) {
        const double d = w->sparse.densities[i], units = round(d * l->units);
        const int32_t some = units < 1 ? 1 : units > l->units ? l->units : (int32_t)units;
        l->keys[i] = d >= 1 ? 0 : some;
        l->density[i] = d >= 1 ? 1 : (double)some / l->units;
        l->keys_most = l->keys[i] > l->keys_most ? l->keys[i] : l->keys_most;
    }
    return TESS_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static tess_status choose_random(workload *w, const cp_lists *l, int layer)
{
    const tess_select_in in = {.seed = (uint64_t)w->p.seed + (uint64_t)layer,
                               .budget.keys_each = l->keys + (size_t)layer * (size_t)l->heads};
    tess_selector *selector = NULL;
    TRY(tess_selector_create(w->c->ctx, &(tess_selector_opts){.kind = TESS_SELECT_RANDOM},
                             &selector));
    const tess_status status = tess_selector_run(selector, &in, l->chosen[layer]);
    tess_selector_destroy(selector);
    return status;
}

/* The units around the middle of each group. */
static tess_status choose_local(workload *w, const cp_lists *l, int layer, int64_t capacity)
{
    const int32_t *keys = l->keys + (size_t)layer * (size_t)l->heads;
    int64_t *offsets = malloc(((size_t)l->heads * (size_t)l->groups + 1) * sizeof *offsets);
    int32_t *indices = malloc((size_t)(capacity ? capacity : 1) * sizeof *indices);
    int64_t n = 0, list = 0;
    if (!offsets || !indices) {
        free(offsets);
        free(indices);
        return out_fail(w->c, TESS_ENOMEM, "no memory for the lists of a layer");
    }
    for (int h = 0; h < l->heads; h++)
        for (int32_t g = 0; g < l->groups; g++) {
            const int64_t middle = (l->group_bounds[g] + l->group_bounds[g + 1]) / 2 / w->p.unit;
            int64_t first = middle - keys[h] / 2;
            first = first < 0 ? 0 : first > l->units - keys[h] ? l->units - keys[h] : first;
            offsets[list++] = n;
            for (int32_t i = 0; i < keys[h]; i++)
                indices[n++] = (int32_t)(first + i);
        }
    offsets[list] = n;
    const tess_status status = tess_selection_set_lists(l->chosen[layer], offsets, indices);
    free(offsets);
    free(indices);
    return status;
}

static tess_status choose(workload *w, cp_lists *l, int layer)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = l->heads,
                                  .tokens_q = l->tokens,
                                  .tokens_k = l->tokens,
                                  .group = (int32_t)w->p.group,
                                  .unit = (int32_t)w->p.unit};
    int64_t capacity = 0;
    for (int h = 0; h < l->heads; h++)
        capacity += (int64_t)l->keys[layer * l->heads + h] * l->groups;
    TRY(tess_selection_create(w->c->ctx, &shape, capacity, &l->chosen[layer]));
    return strcmp(w->p.lists, "local") == 0 ? choose_local(w, l, layer, capacity)
                                            : choose_random(w, l, layer);
}

/* ---- all layers ------------------------------------------------------------------------------ */

tess_status cp_lists_make(workload *w, cp_lists *l)
{
    const problem *p = &w->p;
    *l = (cp_lists){.layers = (int)p->layers,
                    .heads = (int)p->heads,
                    .ranks = (int)p->ranks,
                    .tokens = p->tokens};
    TRY(uniform(w, p->tokens, p->group, &l->groups, &l->group_bounds));
    TRY(uniform(w, p->tokens, p->unit, &l->units, &l->unit_bounds));
    TRY(set_keys(w, l));
    l->chosen = calloc((size_t)l->layers, sizeof(tess_selection *));
    if (!l->chosen)
        return out_fail(w->c, TESS_ENOMEM, "no memory for %d selections", l->layers);
    for (int layer = 0; layer < l->layers; layer++)
        TRY(choose(w, l, layer));
    return TESS_OK;
}

void cp_lists_free(cp_lists *l)
{
    for (int layer = 0; l->chosen && layer < l->layers; layer++)
        tess_selection_destroy(l->chosen[layer]);
    free(l->chosen);
}
