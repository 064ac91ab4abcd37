/* SPDX-License-Identifier: Apache-2.0 */
/* pass_attend.c - how the layers of a pass attend: checked, stored; and what they attended to. */
#include "ranks.h"

#include <math.h>
#include <string.h>

static const char who[] = "tess_pass_attend";

/* ---- checks ---------------------------------------------------------------------------------- */

static tess_status check_predictor(const tess_pass *p, const tess_predictor *predictor)
{
    const tess_model_config *a = &predictor->config, *b = &p->model->config;
    const struct {
        const char *name;
        int have, want;
    } sizes[] = {{"layers", a->layers, b->layers},
                 {"heads", a->heads, b->heads},
                 {"head_dim", a->head_dim, b->head_dim},
                 {"proj_dim", predictor->opts.proj_dim, p->room.proj_dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].have != sizes[i].want)
            return tess__invalid(who, "the predictor's %s is %d, must be the pass's, %d",
                                 sizes[i].name, sizes[i].have, sizes[i].want);
    return TESS_OK;
}

static tess_status check_window(const tess_pass *p, const tess_attend *a, int layer)
{
    const tess__sizes *z = &p->z;
    int64_t units = 1;
    TESS_TRY(tess__check_each(who, "window", a->window, 3, 1));
    for (int i = 0; i < 3; i++) {
        const int64_t size = p->room.unit_cubes ? 1 : z->cube[i];
        const int64_t side =
            p->room.unit_cubes ? (z->grid[i] + z->cube[i] - 1) / z->cube[i] : z->grid[i];
        units *= a->window[i] * size < side ? a->window[i] * size : side;
    }
    if (units > z->units_most)
        return tess__invalid(who,
                             "layer %d: the window has %lld key units, the pass has room for %d",
                             layer, (long long)units, z->units_most);
    return TESS_OK;
}

static tess_status check_keys(const tess_pass *p, const tess_attend_layer *l, int layer)
{
    for (int i = 0; i < p->z.batch * p->z.heads; i++) {
        const int most = l->kind == TESS_SELECT_WINDOW ? INT32_MAX : p->z.units_most;
        if (l->keys[i] < 0 || l->keys[i] > most)
            return tess__invalid(who,
                                 "layer %d: keys[%d] is %d, must be 0..%d: the pass has room for "
                                 "no more",
                                 layer, i, l->keys[i], most);
    }
    return TESS_OK;
}

static tess_status check_layer(const tess_pass *p, const tess_attend *a, int layer)
{
    const tess_attend_layer *l = &a->layers[layer];
    if (l->hook != 0 && l->hook != 1)
        return tess__invalid(who, "layer %d: hook is %d, must be 0 or 1", layer, l->hook);
    if (l->learn != 0 && l->learn != 1)
        return tess__invalid(who, "layer %d: learn is %d, must be 0 or 1", layer, l->learn);
    if (l->learn && !(a->predictor && p->room.learn_rows && p->shape.train))
        return tess__invalid(who, "layer %d: learn is 1, but %s", layer,
                             !a->predictor         ? "there is no predictor"
                             : !p->room.learn_rows ? "the pass was made with learn_rows 0"
                                                   : "the pass was made with train 0");
    if (l->renew != 0 && l->renew != 1)
        return tess__invalid(who, "layer %d: renew is %d, must be 0 or 1", layer, l->renew);
    if (l->renew && !a->centroids)
        return tess__invalid(who, "layer %d: renew is 1, but centroids is NULL", layer);
    if (l->hook && !a->hook)
        return tess__invalid(who, "layer %d: hook is 1, but there is no callback", layer);
    if (!l->keys)
        return TESS_OK;
    if (!p->z.sparse)
        return tess__invalid(who, "layer %d: keys are given, but the pass was made without sparse",
                             layer);
    if (p->room.dense)
        return tess__invalid(
            who, "layer %d: keys are given, but the pass was made with sparse.dense", layer);
    if ((unsigned)l->kind >= TESS_SELECT_COUNT || l->kind == TESS_SELECT_EDGES)
        return tess__invalid(who, "layer %d: kind is %d, must be a kind of selector but EDGES",
                             layer, (int)l->kind);
    if (l->kind == TESS_SELECT_PREDICTOR && !a->predictor)
        return tess__invalid(who, "layer %d: kind is PREDICTOR, but there is none", layer);
    if (p->room.group != TESS_GROUP_CUBE && (l->kind == TESS_SELECT_WINDOW || a->plugin))
        return tess__invalid(who, "layer %d: %s chooses keys for cubes, sparse.group is %d", layer,
                             a->plugin ? "a plugin" : "WINDOW", (int)p->room.group);
    if (l->kind == TESS_SELECT_WINDOW)
        TESS_TRY(check_window(p, a, layer));
    return check_keys(p, l, layer);
}

static tess_status check(const tess_pass *p, const tess_attend *a)
{
    if (!a->layers)
        return tess__invalid(who, "layers is NULL");
    TESS_TRY(tess__check_range(who, "proxy", (int)a->proxy, 0, TESS_PROXY_SOFTMAX));
    if (a->loss != TESS_PREDICT_KL && a->loss != TESS_PREDICT_COSINE)
        return tess__invalid(who, "loss is %d, must be KL (0) or COSINE (1)", (int)a->loss);
    TESS_TRY(tess__check_least(who, "reuse", a->reuse, 0));
    if (a->reuse > 0 && p->room.searches == 0)
        return tess__invalid(who, "reuse is %d, but the pass was made without searches", a->reuse);
    if (a->reuse > 0 && (a->search < 0 || a->search >= p->room.searches))
        return tess__invalid(who, "search is %d, must be 0..%d", a->search, p->room.searches - 1);
    if (a->centroids && p->room.compensate <= 1)
        return tess__invalid(who, "centroids are given, but the pass was made with compensate %d",
                             p->room.compensate);
    TESS_TRY(tess__check_flag(who, "by_error", a->by_error));
    if (a->by_error && p->room.compensate <= 1)
        return tess__invalid(who, "by_error is 1, but the pass was made with compensate %d",
                             p->room.compensate);
    if (a->predictor)
        TESS_TRY(check_predictor(p, a->predictor));
    for (int layer = 0; layer < p->z.layers; layer++)
        TESS_TRY(check_layer(p, a, layer));
    return TESS_OK;
}

/* ---- storing --------------------------------------------------------------------------------- */

static int uses(const tess_pass *p, const tess_attend *a, int kind)
{
    for (int layer = 0; layer < p->z.layers; layer++)
        if (a->layers[layer].keys && (int)a->layers[layer].kind == kind)
            return 1;
    return 0;
}

/* A selector is made where there is none that does the same. */
static int has_selector(const tess_pass *p, const tess_attend *a, int kind)
{
    return p->sparse.selectors[kind] &&
           (kind != TESS_SELECT_PREDICTOR || a->proxy == p->sparse.proxy) &&
           (kind != TESS_SELECT_WINDOW ||
            memcmp(a->window, p->sparse.window, sizeof a->window) == 0);
}

static tess_status make_selectors(tess_pass *p, const tess_attend *a,
                                  tess_selector *made[TESS_SELECT_COUNT])
{
    for (int kind = 0; kind < TESS_SELECT_COUNT; kind++) {
        tess_selector_opts opts = {
            .kind = (tess_select_kind)kind, .proxy = a->proxy, .in_place = 1};
        for (int i = 0; i < 3; i++) {
            opts.grid[i] = p->z.grid[i];
            opts.cube[i] = p->z.cube[i];
            opts.window[i] = a->window[i];
        }
        if (uses(p, a, kind) && !has_selector(p, a, kind))
            TESS_TRY(tess_selector_create(p->ctx, &opts, &made[kind]));
    }
    return TESS_OK;
}

static int has_hook(const tess_pass *p, const tess_attend *a)
{
    int any = 0;
    for (int layer = 0; layer < p->z.layers; layer++)
        any |= a->layers[layer].hook;
    return any;
}

static void take_groups(tess_pass *p, int layer, const uint8_t *by_cube)
{
    uint8_t *own = p->sparse.by_cube + (int64_t)layer * p->z.heads;
    for (int h = 0; h < p->z.heads; h++)
        own[h] = by_cube && by_cube[h];
    p->sparse.layers[layer].by_cube = own;
}

/* Nothing fails from here on. */
static void take(tess_pass *p, const tess_attend *a, tess_selector *const made[TESS_SELECT_COUNT])
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    for (int kind = 0; kind < TESS_SELECT_COUNT; kind++)
        if (made[kind]) {
            tess_selector_destroy(p->sparse.selectors[kind]);
            p->sparse.selectors[kind] = made[kind];
        }
    if (made[TESS_SELECT_PREDICTOR])
        p->sparse.proxy = a->proxy;
    if (made[TESS_SELECT_WINDOW])
        memcpy(p->sparse.window, a->window, sizeof p->sparse.window);
    p->sparse.attend = *a;
    for (int layer = 0; layer < p->z.layers; layer++) {
        p->sparse.layers[layer] = a->layers[layer];
        if (a->layers[layer].keys) {
            memcpy(p->sparse.keys + layer * heads, a->layers[layer].keys,
                   (size_t)heads * sizeof *p->sparse.keys);
            p->sparse.layers[layer].keys = p->sparse.keys + layer * heads;
        }
        if (p->z.sparse)
            take_groups(p, layer, a->layers[layer].by_cube);
    }
    p->sparse.attend.layers = p->sparse.layers;
}

static void forget(tess_pass *p)
{
    p->sparse.attend = (tess_attend){.layers = p->sparse.layers};
    p->observer = NULL;
    memset(p->sparse.layers, 0, (size_t)p->z.layers * sizeof *p->sparse.layers);
    for (int64_t i = 0; i < (int64_t)p->z.layers * p->z.batch * p->z.heads; i++)
        p->sparse.density[i] = 1.0, p->sparse.losses[i] = NAN;
}

tess_status tess_pass_attend(tess_pass *pass, const tess_attend *attend)
{
    if (!pass)
        return tess__invalid(who, "pass is NULL");
    tess_selector *made[TESS_SELECT_COUNT] = {0};
    if (attend) {
        TESS_TRY(check(pass, attend));
        tess_status status = make_selectors(pass, attend, made);
        if (status == TESS_OK && pass->z.exact && pass->shape.train && attend->predictor)
            status = tess__predictor_sums((tess_predictor *)(uintptr_t)attend->predictor);
        if (status == TESS_OK && pass->ranks.comm && has_hook(pass, attend))
            status = tess__whole_heads_make(pass);
        for (int kind = 0; status != TESS_OK && kind < TESS_SELECT_COUNT; kind++)
            tess_selector_destroy(made[kind]);
        TESS_TRY(status);
    }
    forget(pass);
    if (attend)
        take(pass, attend, made);
    else
        tess__lists_forget(pass);
    pass->ready = 0;
    return TESS_OK;
}

tess_status tess_pass_attend_result(const tess_pass *pass, int layer, tess_attend_result *result)
{
    TESS_REQUIRE(pass, result);
    TESS_TRY(tess__check_range(__func__, "layer", layer, 0, pass->z.layers - 1));
    const int64_t heads = (int64_t)pass->z.batch * pass->z.heads;
    double loss = 0.0;
    for (int64_t i = 0; i < heads; i++)
        loss += pass->sparse.losses[layer * heads + i] / (double)heads;
    const int saved =
        pass->ranks.comm ? pass->shape.keep == TESS_KEEP_ALL : layer < pass->sparse.saved_lists;
    *result = (tess_attend_result){
        .density = pass->sparse.density + layer * heads,
        .loss = loss,
        .loss_heads = pass->sparse.losses + layer * heads,
        .reselected = pass->shape.train && pass->sparse.layers[layer].keys && !saved,
    };
    return TESS_OK;
}
