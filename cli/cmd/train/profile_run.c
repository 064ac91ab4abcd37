/* SPDX-License-Identifier: Apache-2.0 */
/* profile_run.c - measures the density of a model's attention over checkpoints, clips and noise
 * levels. */
#include "choices.h"
#include "cmd_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tess_status no_memory(cli *c)
{
    return out_fail(c, TESS_ENOMEM, "no memory for the clips");
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* The cube given, or that of the last checkpoint, where it has one. */
static tess_status choose_cube(profile_job *j)
{
    static const int otherwise[3] = {2, 2, 2};
    const int *cube = j->points[j->n_points - 1].trained.attention.cube;
    memcpy(j->cube, cube[0] ? cube : otherwise, sizeof j->cube);
    if (!j->v->cube || choices_cube(j->v->cube, j->cube))
        return TESS_OK;
    return out_usage(j->c, "--cube is \"%.40s\", must be sizes such as 2x4x4", j->v->cube);
}

static int same_model(const tess_model_config *a, const tess_model_config *b)
{
    return a->layers == b->layers && a->heads == b->heads && a->head_dim == b->head_dim &&
           a->in_channels == b->in_channels && a->text_dim == b->text_dim &&
           memcmp(a->patch, b->patch, sizeof a->patch) == 0;
}

static tess_status find_point(profile_job *j, const char *path, profile_point *p)
{
    tess_model_config config;
    TRY(profile_find(j, path, p, &config));
    if (p == j->points)
        j->config = config;
    else if (!same_model(&config, &j->config))
        return out_fail(j->c, TESS_EINVAL, "%s is not of the same model as %s", path,
                        j->points[0].path);
    const size_t n = (size_t)config.layers * (size_t)config.heads * PROFILE_LEVELS;
    p->density = calloc(n, sizeof *p->density);
    p->recall = calloc(n, sizeof *p->recall);
    return p->density && p->recall ? TESS_OK : no_memory(j->c);
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = ((const profile_point *)a)->trained.step;
    const int64_t y = ((const profile_point *)b)->trained.step;
    return (x > y) - (x < y);
}

static tess_status find_points(profile_job *j)
{
    const strings *given = &j->v->checkpoints;
    j->points = calloc((size_t)given->n, sizeof *j->points);
    if (!j->points)
        return no_memory(j->c);
    for (; j->n_points < given->n; j->n_points++)
        TRY(find_point(j, given->items[j->n_points], &j->points[j->n_points]));
    qsort(j->points, (size_t)j->n_points, sizeof *j->points, by_step);
    for (int i = 1; i < j->n_points; i++)
        if (j->points[i].trained.step == j->points[i - 1].trained.step)
            return out_usage(j->c, "%s and %s are both of step %lld", j->points[i - 1].path,
                             j->points[i].path, (long long)j->points[i].trained.step);
    return TESS_OK;
}

static tess_status reserve(profile_job *j)
{
    const size_t clip = (size_t)j->info.channels * (size_t)j->info.frames * (size_t)j->info.height *
                        (size_t)j->info.width;
    const size_t text = (size_t)j->info.text_len * (size_t)j->info.text_dim;
    const size_t n = (size_t)j->probe.batch;
    j->clip = malloc(n * clip * sizeof *j->clip);
    j->x = malloc(n * clip * sizeof *j->x);
    j->noise = malloc(clip * sizeof *j->noise);
    j->out = malloc(n * clip * sizeof *j->out);
    j->text = malloc(n * text * sizeof *j->text);
    j->timestep = malloc(n * sizeof *j->timestep);
    j->levels = malloc(n * sizeof *j->levels);
    return j->clip && j->x && j->noise && j->out && j->text && j->timestep && j->levels
               ? TESS_OK
               : no_memory(j->c);
}

static tess_status prepare(profile_job *j)
{
    TRY(find_points(j));
    TRY(choose_cube(j));
    TRY(profile_dump_check(j));
    TRY(profile_data(j));
    j->overlap = calloc((size_t)j->config.layers, sizeof *j->overlap);
    if (!j->overlap)
        return no_memory(j->c);
    profile_probe *p = &j->probe;
    const int *patch = j->config.patch;
    *p = (profile_probe){
        .ctx = j->c->ctx,
        .batch = (int)(j->v->batch < j->v->clips ? j->v->batch : j->v->clips),
        .heads = j->config.heads,
        .head_dim = j->config.head_dim,
        .grid = {j->info.frames / patch[0], j->info.height / patch[1], j->info.width / patch[2]},
        .mass = j->v->mass,
        .proxy = j->v->proxy
                     ? (tess_proxy)choices_value(TESS_OPTIONS_ATTENTION, "proxy", j->v->proxy)
                     : j->points[j->n_points - 1].trained.attention.proxy,
        .keys_share = j->v->density,
        .overlap = j->overlap};
    p->tokens = (int64_t)p->grid[0] * p->grid[1] * p->grid[2];
    TRY(profile_probe_open(j->c, j->cube, j->v->cubes, p));
    if (j->v->selector)
        TRY(tess_plugin_open(j->c->ctx, j->v->selector, &p->plugin));
    return reserve(j);
}

/* ---- running --------------------------------------------------------------------------------- */

double profile_level(const profile_job *j, double u)
{
    const double shift = j->points[j->n_points - 1].trained.shift;
    return shift * u / (1 + (shift - 1) * u);
}

tess_status profile_batch(profile_job *j, int64_t first, int batch, const double *s)
{
    const size_t clip = (size_t)j->info.channels * (size_t)j->info.frames * (size_t)j->info.height *
                        (size_t)j->info.width;
    const size_t text = (size_t)j->info.text_len * (size_t)j->info.text_dim;
    for (int i = 0; i < batch; i++) {
        float *from = j->clip + (size_t)i * clip, *to = j->x + (size_t)i * clip;
        TRY(tess_data_sample(j->data, TESS_SPLIT_VALIDATION, first + i, from,
                             j->text + (size_t)i * text, NULL, 0));
        TRY(tess_random_normal((uint64_t)j->c->common->seed, (uint64_t)(first + i), 0, j->noise,
                               clip));
        const float level = (float)s[i];
        for (size_t n = 0; n < clip; n++)
            to[n] = (1 - level) * from[n] + level * j->noise[n];
        j->timestep[i] = 1000 * level;
    }
    return TESS_OK;
}

static tess_status open_engine(profile_job *j, const profile_point *point, profile_engine *e)
{
    char path[4200];
    tess_ctx *ctx = j->c->ctx;
    tess_predictor_info info = {.opts = {.proj_dim = 0}};
    snprintf(path, sizeof path, "%s/predictor.safetensors", point->folder);
    TRY(tess_model_load(ctx, point->weights, NULL, &e->model));
    if (access(path, F_OK) == 0) {
        TRY(tess_predictor_load(ctx, &j->config, path, &e->predictor));
        TRY(tess_predictor_query(e->predictor, &info));
    }
    const tess_sparse_opts room = {.proj_dim = info.opts.proj_dim};
    const tess_pass_shape shape = {.batch = j->probe.batch,
                                   .frames = j->info.frames,
                                   .height = j->info.height,
                                   .width = j->info.width,
                                   .text_len = j->info.text_len,
                                   .cube = j->cube,
                                   .sparse = e->predictor ? &room : NULL};
    e->layers = calloc((size_t)j->config.layers, sizeof *e->layers);
    if (!e->layers)
        return no_memory(j->c);
    return tess_pass_create(e->model, &shape, &e->pass);
}

static void close_engine(profile_engine *e)
{
    tess_pass_destroy(e->pass);
    tess_predictor_destroy(e->predictor);
    tess_model_destroy(e->model);
    free(e->layers);
}

/* All clips at one noise level. A last batch that is short begins earlier: what is measured twice
 * is of the same kind. */
static tess_status run_level(profile_job *j, profile_engine *e, int level)
{
    const int64_t clips = j->v->clips, batch = j->probe.batch;
    double *s = j->levels;
    for (int64_t first = 0; first < clips; first += batch) {
        const int64_t begin = first + batch > clips ? clips - batch : first;
        for (int64_t i = 0; i < batch; i++)
            s[i] = profile_level(j, (level + ((double)(begin + i) + 0.5) / (double)clips) /
                                        PROFILE_LEVELS);
        j->probe.sample = begin;
        j->probe.level = level;
        j->probe.compare = first == 0 && j->v->cubes;
        TRY(profile_batch(j, begin, (int)batch, s));
        TRY(tess_pass_forward(e->pass, &(tess_model_in){j->x, j->timestep, j->text}, j->out));
    }
    return TESS_OK;
}

static tess_status run_point(profile_job *j, profile_engine *e, profile_point *p)
{
    const size_t heads = (size_t)j->config.layers * (size_t)j->config.heads;
    const int64_t batches = (j->v->clips + j->probe.batch - 1) / j->probe.batch;
    const double clips = (double)(batches * j->probe.batch); /* the last batch is full too */
    const int measured = e->predictor || j->probe.plugin;
    for (int i = 0; i < j->config.layers; i++)
        e->layers[i].hook = 1;
    TRY(tess_pass_attend(e->pass, &(tess_attend){.layers = e->layers,
                                                 .predictor = e->predictor,
                                                 .hook = profile_probe_hook,
                                                 .user = &j->probe}));
    for (int level = 0; level < PROFILE_LEVELS; level++) {
        j->probe.density = p->density + (size_t)level * heads;
        j->probe.recall = measured ? p->recall + (size_t)level * heads : NULL;
        TRY(run_level(j, e, level));
    }
    for (size_t i = 0; i < heads * PROFILE_LEVELS; i++) {
        p->density[i] /= clips;
        p->recall[i] = measured ? p->recall[i] / clips : NAN;
    }
    return TESS_OK;
}

static tess_status run_job(profile_job *j)
{
    TRY(prepare(j));
    tess_status status = TESS_OK;
    for (int i = 0; i < j->n_points && status == TESS_OK; i++) {
        profile_engine e = {0};
        memset(j->overlap, 0, (size_t)j->config.layers * sizeof *j->overlap);
        for (int k = 0; k < j->probe.n_orders; k++) /* of the last checkpoint alone */
            j->probe.orders[k].overlap = j->probe.orders[k].density = 0,
            j->probe.orders[k].measured = 0;
        status = open_engine(j, &j->points[i], &e);
        if (status == TESS_OK)
            status = run_point(j, &e, &j->points[i]);
        if (status == TESS_OK && i == j->n_points - 1 && j->v->out)
            status = profile_masks(j, &e);
        if (status == TESS_OK && i == j->n_points - 1 && j->v->dump)
            status = profile_dump(j, &e);
        close_engine(&e);
    }
    TRY(status);
    progress_clear(j->c);
    return profile_show(j);
}

tess_status profile_run(cli *c, const profile_values *v)
{
    profile_job j = {.c = c, .v = v};
    const tess_status status = run_job(&j);
    for (int i = 0; j.points && i < v->checkpoints.n; i++) {
        free(j.points[i].density);
        free(j.points[i].recall);
    }
    for (int i = 0; i < j.n_heads; i++) {
        free(j.heads[i].mass);
        free(j.heads[i].query);
        free(j.heads[i].oracle);
        free(j.heads[i].predicted);
    }
    free(j.points);
    free(j.overlap);
    profile_probe_close(&j.probe);
    tess_data_close(j.data);
    free(j.clip);
    free(j.x);
    free(j.noise);
    free(j.out);
    free(j.text);
    free(j.timestep);
    free(j.levels);
    free(j.pixels);
    return status;
}
