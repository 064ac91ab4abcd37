/* SPDX-License-Identifier: Apache-2.0 */
/* attend_table.c - how forward passes attend: the state of the controller as a table.
 *
 * Budgets are by layer, noise-level quartile and head; a pass gets those of its samples' quartiles.
 * The table is filled when the state changes and read by every pass until then: training,
 * validation and sampling attend alike.
 */
#include "control.h"

#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };

static const tess_select_kind kinds[] = {
    [TESS_ATTENTION_DSV] = TESS_SELECT_PREDICTOR, [TESS_ATTENTION_ORACLE] = TESS_SELECT_ORACLE,
    [TESS_ATTENTION_POOLED] = TESS_SELECT_POOLED, [TESS_ATTENTION_SEARCH] = TESS_SELECT_SEARCH,
    [TESS_ATTENTION_WINDOW] = TESS_SELECT_WINDOW, [TESS_ATTENTION_RANDOM] = TESS_SELECT_RANDOM,
    [TESS_ATTENTION_OWN] = TESS_SELECT_ORACLE, /* the plugin chooses, and reads q and k as it */
};

tess_status tess__attend_table_create(tess__arena *arena, int layers, int heads, int batch,
                                      tess__attend_table *t)
{
    const size_t all = (size_t)layers * (size_t)heads, each = (size_t)batch;
    *t = (tess__attend_table){.n_layers = layers, .heads = heads, .batch = batch};
    t->layers = TESS_TAKE(arena, (size_t)layers * sizeof *t->layers);
    t->budgets = TESS_TAKE(arena, all * QUARTILES * sizeof *t->budgets);
    t->densities = TESS_TAKE(arena, all * sizeof *t->densities);
    t->keys = TESS_TAKE(arena, all * each * sizeof *t->keys);
    t->renew = TESS_TAKE(arena, (size_t)layers);
    t->by_cube = TESS_TAKE(arena, all);
    return TESS_OK;
}

/* The budgets of a head, 0 where it is dense, and the density that plans expect of it, mean over
 * the quartiles. A budget may have outgrown the room of its lists since the heads were chosen; then
 * the head is dense until they are chosen again. */
static int fill_head(const tess__control *c, int layer, int head, int32_t most)
{
    const tess__dsv_state *s = &c->state;
    const int32_t n = tess__control_units(c, s->cubes[0].cube);
    int any = 0;
    double sum = 0.0;
    for (int q = 0; q < QUARTILES; q++) {
        const int64_t at = ((int64_t)layer * QUARTILES + q) * s->heads + head;
        const int sparse = s->sparse[layer] && s->choice[at];
        const int32_t units = sparse ? tess__budget(s, &c->rules, 0, layer, q, head, n) : 0;
        c->table.budgets[at] = units <= most ? units : 0;
        sum += sparse ? (double)units / n : 1.0;
        any |= sparse;
    }
    c->table.densities[(int64_t)layer * s->heads + head] = sum / QUARTILES;
    return any;
}

/* The window in force, or of another grid than the one it was chosen for the window of the same
 * share. */
static void find_window(const tess__control *c, int window[3])
{
    int cubes[3];
    double share = 1.0;
    memcpy(window, c->state.window, sizeof c->state.window);
    if (!window[0] || memcmp(c->opts.grid, c->reference, sizeof c->reference) == 0)
        return;
    for (int a = 0; a < 3; a++) {
        const int cube = c->state.cubes[0].cube[a];
        const int before = (c->reference[a] + cube - 1) / cube;
        cubes[a] = (c->opts.grid[a] + cube - 1) / cube;
        share *= (double)window[a] / before;
    }
    tess__window(cubes, share, window);
}

/* A layer without sparse heads at any noise level needs no selector and no exchange of projected
 * keys. */
void tess__attend_table_fill(tess__control *c)
{
    tess__attend_table *t = &c->table;
    const int32_t most = tess__control_units_most(c, &c->state);
    for (int layer = 0; layer < t->n_layers; layer++) {
        int sparse = 0;
        for (int head = 0; head < t->heads; head++)
            sparse |= fill_head(c, layer, head, most);
        int32_t *keys = t->keys + (int64_t)layer * t->batch * t->heads;
        uint8_t *by_cube = t->by_cube + (int64_t)layer * t->heads;
        for (int head = 0; head < t->heads; head++)
            by_cube[head] = !c->state.content[(int64_t)layer * t->heads + head];
        t->layers[layer] = (tess_attend_layer){.kind = kinds[c->attention.kind],
                                               .keys = sparse ? keys : NULL,
                                               .by_cube = c->rules.groups ? by_cube : NULL};
        t->renew[layer] = (uint8_t)(sparse && tess__clusters_due(c, layer));
    }
    t->attend = (tess_attend){
        .layers = t->layers,
        .predictor = c->predictor,
        .plugin = c->plugin,
        .proxy = c->attention.proxy,
        .loss = c->attention.loss,
        .seed = c->opts.seed,
        .centroids = c->clusters.centroids,
        .by_error = c->attention.choose == TESS_CHOOSE_ERROR,
    };
    find_window(c, t->attend.window);
    t->learns = c->rules.learns;
}

tess_status tess__attend_table_set(tess__attend_table *t, tess_pass *pass, const double *u,
                                   const tess__attend_pass *how)
{
    tess_attend attend = t->attend;
    for (int layer = 0; layer < t->n_layers; layer++) {
        const int32_t *budgets = t->budgets + (int64_t)layer * QUARTILES * t->heads;
        int32_t *keys = t->keys + (int64_t)layer * t->batch * t->heads;
        for (int b = 0; b < t->batch; b++)
            memcpy(keys + (int64_t)b * t->heads, budgets + tess__quartile(u[b]) * t->heads,
                   (size_t)t->heads * sizeof *keys);
        t->layers[layer].learn = how->observer && t->learns;
        t->layers[layer].renew = how->renews && t->renew[layer];
    }
    attend.step = (uint64_t)how->number;
    attend.sample = how->sample;
    attend.reuse = how->reuse;
    attend.search = how->search;
    TESS_TRY(tess_pass_attend(pass, &attend));
    for (int b = 0; how->observer && b < t->batch; b++)
        how->observer->quartiles[b] = tess__quartile(u[b]);
    return tess__pass_observe(pass, how->observer);
}
