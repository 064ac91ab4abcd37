/* SPDX-License-Identifier: Apache-2.0 */
/* sample_control.c - sparse attention of sampling: as the checkpoint was trained, or as the options
 * say.
 *
 *   trained    stages, choices and budgets are those of the checkpoint's decisions
 *   uniform    every head of every layer has the given density
 *   measured   the first step of each noise-level quartile is dense, and measures with its prompts
 *              the fraction of the keys that holds `mass`; until the next quartile that is the
 *              budget of every head of every layer, mean over the clips of the batch
 *
 * SEARCH searches its keys every few steps, and reuses them in the steps between; evaluations with
 * and without prompts have keys of their own.
 *
 * A sixteenth of the groups is measured, at most: 4 tokens head_dim flop for each query. Each of
 * many ranks measures the heads that it computes, and an all-reduce distributes the densities.
 */
#include "sample_ranks.h"

#include "tessera/advanced/predict.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS, EVERY = 16, GROUPS = 8 };

typedef enum { TRAINED, UNIFORM, MEASURED } mode;

struct tess__sampler {
    tess_ctx *ctx;
    mode mode;
    tess__control *control; /* NULL: dense */
    tess_sparse_opts room;
    int batch, layers, heads, steps, passes; /* passes: of a step */
    int reuse;                               /* SEARCH: steps between two that search */
    int bucket;                              /* MEASURED: the last one measured; -1: none */
    double *u;                               /* (batch) */
    double *measured;                        /* (batch, heads), (layers, heads) */
    double *density;                         /* (steps, layers, heads), the caller's; may be NULL */
};

/* ---- options --------------------------------------------------------------------------------- */

/* Budgets that are not the checkpoint's may have any cubes: those of the options, else the
 * checkpoint's, so that its predictors and other kinds choose for the same queries; else 32
 * queries, clipped to the grid. */
static void choose_cube(const tess_attention_opts *trained, const int grid[3], int cube[3])
{
    static const int otherwise[3] = {2, 4, 4};
    if (cube[0] || cube[1] || cube[2])
        return;
    for (int a = 0; a < 3; a++)
        cube[a] = trained->cube[0]         ? trained->cube[a]
                  : otherwise[a] < grid[a] ? otherwise[a]
                                           : grid[a];
}

/* The attention options of sampling, from those of training and those of the caller. */
static tess_status choose(const char *who, const tess_attention_opts *trained,
                          const tess_attention_opts *asked, const int grid[3],
                          tess_attention_opts *attention, mode *how)
{
    *attention = asked ? *asked : *trained;
    *how = TRAINED;
    if (attention->kind == TESS_ATTENTION_DENSE)
        return TESS_OK;
    const int same = attention->kind == trained->kind;
    const int other_mass = attention->mass != trained->mass;
    if (attention->density != 0.0 && !(same && attention->density == trained->density))
        *how = UNIFORM;
    else if (attention->density == 0.0 && (!same || other_mass || trained->density != 0.0))
        *how = MEASURED;
    if (*how != TRAINED)
        choose_cube(trained, grid, attention->cube);
    attention->dispatch = attention->cache = NULL;
    TESS_TRY(tess__attention_options(who, attention));
    if (attention->kind == TESS_ATTENTION_WINDOW && *how == MEASURED)
        return tess__invalid(who, "attention.density is 0, a window needs one");
    return TESS_OK;
}

/* Every head of every layer attends sparsely. */
static void make_sparse(tess__control *c)
{
    const int64_t heads = c->config.heads, all = (int64_t)c->config.layers * QUARTILES * heads;
    const int *cube = c->state.cubes[0].cube;
    int cubes[3];
    for (int layer = 0; layer < c->config.layers; layer++)
        c->state.sparse[layer] = 1;
    memset(c->state.choice, 1, (size_t)all * sizeof *c->state.choice);
    for (int a = 0; a < 3; a++)
        cubes[a] = (c->opts.grid[a] + cube[a] - 1) / cube[a];
    if (c->attention.kind == TESS_ATTENTION_WINDOW)
        tess__window(cubes, c->attention.density, c->state.window);
}

/* Clusters of the checkpoint serve where all sparse layers have them; else each clip has its own.
 */
static tess_status take_clusters(tess__control *c, const char *checkpoint)
{
    int missing = 0;
    if (!c->clusters.centroids)
        return TESS_OK;
    if (checkpoint)
        TESS_TRY(tess__clusters_load(c, checkpoint));
    for (int layer = 0; layer < c->config.layers; layer++)
        missing |= c->state.sparse[layer] && c->clusters.found[layer] == 0;
    if (missing)
        c->clusters.centroids = NULL;
    return TESS_OK;
}

static tess_status make_control(tess__sampler *s, const tess_model *model,
                                const tess_sample_opts *o, const int grid[3])
{
    static const char who[] = "tess_sample_run";
    tess_attention_opts trained = TESS_ATTENTION_OPTS_INIT, attention;
    if (o->checkpoint)
        TESS_TRY(tess__control_attention(s->ctx, o->checkpoint, &trained));
    TESS_TRY(choose(who, &trained, o->attention, grid, &attention, &s->mode));
    if (attention.kind == TESS_ATTENTION_DENSE)
        return TESS_OK;
    const tess__control_opts opts = {.config = &model->config,
                                     .attention = &attention,
                                     .batch = o->batch,
                                     .grid = {grid[0], grid[1], grid[2]},
                                     .seed = o->seed,
                                     .precision = o->precision};
    TESS_TRY(tess__control_create(s->ctx, &opts, &s->control));
    /* Budgets of decisions hold for their cubes alone; predictors for any. */
    const int other =
        s->mode != TRAINED && memcmp(attention.cube, trained.cube, sizeof attention.cube) != 0;
    if (attention.kind == trained.kind)
        TESS_TRY(other ? tess__control_branch(s->control, o->checkpoint)
                       : tess__control_resume(s->control, o->checkpoint));
    if (s->control->predictor && !s->control->loaded)
        return tess__invalid(who, "attention is DSV, but %s has no predictors",
                             o->checkpoint ? o->checkpoint : "the model");
    if (s->mode != TRAINED)
        make_sparse(s->control);
    TESS_TRY(take_clusters(s->control, o->checkpoint));
    tess__control_changed(s->control);
    return TESS_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

tess_status tess__sampler_create(tess_model *model, const tess_sample_opts *o, const int grid[3],
                                 tess__sampler **sampler)
{
    tess_ctx *ctx = model->ctx;
    const size_t batch = (size_t)o->batch, heads = (size_t)model->config.heads;
    const size_t layers = (size_t)model->config.layers, most = batch > layers ? batch : layers;
    const size_t bytes =
        tess__arena_round(sizeof **sampler) + (batch + most * heads) * sizeof(double);
    *sampler = NULL;
    if (!o->checkpoint && !o->attention && !o->density)
        return TESS_OK;
    tess__sampler *s = TESS_ALLOC_ZERO(ctx, bytes);
    s->ctx = ctx;
    s->batch = o->batch;
    s->layers = model->config.layers;
    s->heads = model->config.heads;
    s->steps = o->steps;
    s->passes = o->guidance != 1.0 ? 2 : 1;
    s->reuse = (int)o->search_every - 1;
    s->bucket = -1;
    s->u = (double *)((char *)s + tess__arena_round(sizeof *s));
    s->measured = s->u + batch;
    s->density = o->density;
    const size_t densities = (size_t)o->steps * (size_t)s->layers * heads;
    if (s->density)
        memset(s->density, 0, densities * sizeof *s->density);
    const tess_status status = make_control(s, model, o, grid);
    if (status == TESS_OK)
        *sampler = s;
    else
        tess__sampler_destroy(s);
    return status;
}

void tess__sampler_destroy(tess__sampler *sampler)
{
    if (!sampler)
        return;
    tess__control_destroy(sampler->control);
    tess__free(sampler->ctx, sampler);
}

void tess__sampler_shape(tess__sampler *s, const tess__sample_ranks *ranks, tess_pass_shape *shape)
{
    if (!s->control)
        return;
    tess__control_shape(s->control, shape, &s->room);
    if (s->control->attention.kind != TESS_ATTENTION_SEARCH || s->reuse == 0)
        return;
    s->room.searches = ranks->halves ? 1 : s->passes;
}

const tess_attention_opts *tess__sampler_attention(const tess__sampler *s)
{
    return s && s->control ? &s->control->attention : NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* A layer's densities of the quarter at hand: (heads). */
static double *densities(const tess__sampler *s, int layer)
{
    return s->control->state.cubes[0].density + ((int64_t)layer * QUARTILES + s->bucket) * s->heads;
}

/* Those of the heads that are shown, mean over the clips. */
static tess_status measure_density(void *user, const tess_hook_in *hook)
{
    tess__sampler *s = user;
    tess__control *c = s->control;
    const tess__order *order = &c->orders[0];
    const int by_cubes = tess__attention_by_cubes(c->attention.kind);
    const tess_sel_shape groups = {.batch = s->batch,
                                   .heads = hook->heads,
                                   .tokens_q = c->tokens,
                                   .tokens_k = c->tokens,
                                   .bounds_q = order->bounds,
                                   .n_q = order->groups,
                                   .bounds_k = by_cubes ? order->bounds : NULL,
                                   .n_k = by_cubes ? order->groups : 0,
                                   .unit = 1};
    const int32_t every = order->groups / GROUPS < EVERY ? order->groups / GROUPS : EVERY;
    const tess_density_in in = {.q = hook->q,
                                .k = hook->k,
                                .head_dim = c->config.head_dim,
                                .groups = &groups,
                                .mass = c->attention.mass,
                                .every = every,
                                .first = hook->layer};
    TESS_TRY(tess_density_measure(s->ctx, &in, s->measured));
    double *to = densities(s, hook->layer) + hook->head;
    for (int h = 0; h < hook->heads; h++)
        for (int b = 0; b < s->batch; b++)
            to[h] += s->measured[b * hook->heads + h] / s->batch;
    return TESS_OK;
}

/* The quarter of step k begins: nothing is known of it. */
static void begin_bucket(tess__sampler *s, int k)
{
    s->bucket = tess__quartile(1.0 - (double)k / s->steps);
    for (int layer = 0; layer < s->layers; layer++)
        memset(densities(s, layer), 0, (size_t)s->heads * sizeof(double));
}

static tess_status attend_dense(tess__sampler *s, tess_pass *pass)
{
    tess_attend_layer *layers = s->control->table.layers;
    for (int layer = 0; layer < s->layers; layer++)
        layers[layer] = (tess_attend_layer){.hook = 1};
    return tess_pass_attend(pass,
                            &(tess_attend){.layers = layers, .hook = measure_density, .user = s});
}

int tess__sampler_measures(const tess__sampler *s, int k)
{
    return s->mode == MEASURED && tess__quartile(1.0 - (double)k / s->steps) != s->bucket;
}

/* Each head was shown to one rank, and is 0 on the others. */
tess_status tess__sampler_share(tess__sampler *s, tess__sample_ranks *ranks, int k)
{
    const size_t bytes = (size_t)s->heads * sizeof *s->measured;
    if (tess__sampler_measures(s, k))
        begin_bucket(s, k); /* the other half measures */
    for (int layer = 0; layer < s->layers; layer++)
        memcpy(s->measured + (int64_t)layer * s->heads, densities(s, layer), bytes);
    TESS_TRY(tess__pg_allreduce(&ranks->pg, s->measured, (int64_t)s->layers * s->heads));
    for (int layer = 0; layer < s->layers; layer++)
        memcpy(densities(s, layer), s->measured + (int64_t)layer * s->heads, bytes);
    return TESS_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

tess_status tess__sampler_attend(tess__sampler *s, tess_pass *pass, int k, int evaluation)
{
    const double u = 1.0 - (double)k / s->steps;
    if (!s->control)
        return TESS_OK;
    if (evaluation == 0 && tess__sampler_measures(s, k)) {
        begin_bucket(s, k);
        return attend_dense(s, pass);
    }
    for (int b = 0; b < s->batch; b++)
        s->u[b] = u;
    tess__control_changed(s->control);
    return tess__attend_table_set(
        &s->control->table, pass, s->u,
        &(tess__attend_pass){.number = k,
                             .reuse = s->room.searches ? s->reuse : 0,
                             .search = s->room.searches > 1 ? evaluation : 0});
}

tess_status tess__sampler_observe(tess__sampler *s, const tess_pass *pass, int k)
{
    const double share = 1.0 / ((double)s->batch * s->passes);
    if (!s->density)
        return TESS_OK;
    for (int layer = 0; layer < s->layers; layer++) {
        double *to = s->density + ((int64_t)k * s->layers + layer) * s->heads;
        tess_attend_result result;
        TESS_TRY(tess_pass_attend_result(pass, layer, &result));
        for (int i = 0; i < s->batch * s->heads; i++)
            to[i % s->heads] += share * result.density[i];
    }
    return TESS_OK;
}

tess_status tess__sampler_end(tess__sampler *s, tess__sample_ranks *ranks)
{
    const int64_t n = (int64_t)s->steps * s->layers * s->heads;
    return s->density ? tess__sample_ranks_allreduce_pair(ranks, s->density, n) : TESS_OK;
}
