/* SPDX-License-Identifier: Apache-2.0 */
/* sample_attend.c - attention of a checkpoint during sampling, and the batches. */
#include "choices.h"
#include "cmd_sample.h"
#include "tessera/advanced/machine.h"
#include "tessera/cp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How to attend, where something is asked that is not the checkpoint's. */
static tess_status choose_attention(const sample_job *j, tess_attention_opts *a)
{
    const sample_values *v = j->v;
    *a = j->trained.attention;
    if (v->attention || v->selector) {
        const tess_attention kind =
            v->attention
                ? (tess_attention)choices_value(TESS_OPTIONS_ATTENTION, "kind", v->attention)
                : TESS_ATTENTION_OWN;
        if (a->kind != kind)
            *a = (tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS, .kind = kind};
        a->compensate = j->trained.attention.compensate;
        a->cluster_every = j->trained.attention.cluster_every;
    }
    a->selector = v->selector;
    if (!isnan(v->mass)) {
        a->mass = v->mass;
        a->density = 0.0;
    }
    if (!isnan(v->density))
        a->density = v->density;
    if (!isnan(v->max_density)) {
        a->max_density = v->max_density;
        if (a->min_density > a->max_density)
            a->min_density = a->max_density;
    }
    if (v->compensate >= 0) {
        /* Clusters of a checkpoint are for its own number of them. */
        a->cluster_every = v->compensate == a->compensate ? a->cluster_every : 0;
        a->compensate = (int)v->compensate;
        a->choose = v->compensate > 1 ? a->choose : TESS_CHOOSE_MASS;
    }
    if (v->proxy)
        a->proxy = (tess_proxy)choices_value(TESS_OPTIONS_ATTENTION, "proxy", v->proxy);
    if (v->cube && !choices_cube(v->cube, a->cube))
        return out_usage(j->c, "--cube is \"%.40s\", must be sizes such as 2x4x4", v->cube);
    return TESS_OK;
}

const char *sample_kind_name(tess_attention kind)
{
    return tess_option_find(TESS_OPTIONS_ATTENTION, "kind")->words[kind];
}

static int same_cube(const int a[3], const int b[3])
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* Options that the chosen attention does not read. */
static tess_status check_attention(const sample_job *j)
{
    const sample_values *v = j->v;
    const tess_attention_opts *a = &j->attention;
    const char *name = !isnan(v->density)       ? "density"
                       : !isnan(v->mass)        ? "mass"
                       : !isnan(v->max_density) ? "max-density"
                       : v->compensate >= 0     ? "compensate"
                       : v->cube                ? "cube"
                       : v->proxy               ? "proxy"
                                                : NULL;
    if (v->selector && a->kind != TESS_ATTENTION_OWN)
        return out_usage(j->c,
                         "--selector is given, but attention is %s, which chooses keys itself",
                         sample_kind_name(a->kind));
    if (!v->selector && a->kind == TESS_ATTENTION_OWN)
        return out_usage(j->c, "--selector is missing, %s",
                         v->attention ? "--attention own chooses keys by it"
                                      : "the model was trained with a selector of its own");
    if (v->search_every && a->kind != TESS_ATTENTION_SEARCH)
        return out_usage(j->c, "--search-every is given, but attention is %s",
                         sample_kind_name(a->kind));
    if (a->kind == TESS_ATTENTION_DENSE && name)
        return out_usage(j->c, "--%s is given, but attention is dense%s", name,
                         v->attention ? "" : ": choose one by --attention");
    if (v->proxy && a->kind != TESS_ATTENTION_DSV)
        return out_usage(j->c, "--proxy is given, but attention is %s, which has no predictors",
                         sample_kind_name(a->kind));
    if (v->cube && a->kind == j->trained.attention.kind && isnan(v->density) && isnan(v->mass) &&
        !same_cube(a->cube, j->trained.attention.cube))
        return out_usage(j->c,
                         "--cube is %s, but budgets are those of other cubes: give --density "
                         "or --mass",
                         v->cube);
    if (a->kind == TESS_ATTENTION_DSV && j->trained.attention.kind != a->kind)
        return out_fail(j->c, TESS_EINVAL, "%s was not trained with dsv, and has no predictors",
                        v->checkpoint);
    if (!isnan(v->density) && !isnan(v->mass))
        return out_usage(j->c, "--mass is given, but --density says how many keys");
    if (a->kind == TESS_ATTENTION_WINDOW && a->density == 0.0 &&
        (j->trained.attention.kind != a->kind || !isnan(v->mass)))
        return out_usage(j->c, "--density is missing, a window needs one");
    return TESS_OK;
}

static tess_status make_densities(sample_job *j)
{
    sample_densities *d = &j->densities;
    const int64_t n = j->v->opts.steps * j->config.layers * j->config.heads;
    *d = (sample_densities){.steps = (int)j->v->opts.steps,
                            .layers = j->config.layers,
                            .heads = j->config.heads,
                            .sum = calloc((size_t)n, sizeof *d->sum),
                            .last = calloc((size_t)n, sizeof *d->last)};
    return d->sum && d->last ? TESS_OK : sample_no_memory(j);
}

static void add_densities(sample_densities *d, int clips)
{
    const int64_t n = (int64_t)d->steps * d->layers * d->heads;
    for (int64_t i = 0; i < n; i++)
        d->sum[i] += clips * d->last[i];
    d->clips += clips;
}

/* Each plan as a line, on rank 0. */
static void print_plan(void *user, const tess_cp_event *event)
{
    const sample_job *j = user;
    const int wanted =
        j->v->plan_log || (j->c->common->verbose && event->kind != TESS_CP_PLAN_REUSED);
    if (wanted)
        out_log(j->c, TESS_LOG_INFO, event->sentence);
}

/* All clips; with dense attention, or as chosen. */
static tess_status sample(sample_job *j, const tess_attention_opts *attention, int record,
                          float *latents, double *seconds)
{
    const tess_data_info *d = &j->trained.data;
    const int64_t start = tess_clock_ns();
    for (int64_t first = 0; first < j->clips; first += j->v->batch) {
        const int64_t left = j->clips - first;
        tess_sample_opts opts = j->v->opts;
        opts.batch = (int)(left < j->v->batch ? left : j->v->batch);
        opts.frames = d->frames;
        opts.height = d->height;
        opts.width = d->width;
        opts.text_len = d->text_len;
        opts.shift = isnan(j->v->shift) ? j->trained.shift : j->v->shift;
        opts.guidance = isnan(j->v->guidance) ? j->trained.guidance : j->v->guidance;
        opts.seed = (uint64_t)j->c->common->seed;
        opts.first = first;
        opts.checkpoint = j->known ? j->checkpoint : NULL;
        opts.attention = attention;
        if (j->v->search_every)
            opts.search_every = j->v->search_every;
        opts.density = record ? j->densities.last : NULL;
        opts.comm = j->c->ranks > 1 ? j->c->comm : NULL;
        opts.plan_event = print_plan;
        opts.plan_user = j;
        opts.sent = &j->sent;
        sample_progress(j, first, opts.batch, record && attention->kind != TESS_ATTENTION_DENSE);
        const tess_status status = tess_sample_run(j->model, &opts, j->text + first * j->text_size,
                                                   latents + first * j->size);
        sample_progress(j, 0, 0, 0);
        TRY(status);
        if (record)
            add_densities(&j->densities, opts.batch);
    }
    *seconds = 1e-9 * (double)(tess_clock_ns() - start);
    return TESS_OK;
}

tess_status sample_all(sample_job *j)
{
    static const tess_attention_opts dense = TESS_ATTENTION_OPTS_INIT;
    const size_t bytes = (size_t)(j->clips * j->size) * sizeof *j->latents;
    TRY(choose_attention(j, &j->attention));
    TRY(check_attention(j));
    j->latents = malloc(bytes);
    if (j->v->compare)
        j->dense = malloc(bytes);
    if (!j->latents || (j->v->compare && !j->dense))
        return sample_no_memory(j);
    TRY(make_densities(j));
    TRY(sample(j, &j->attention, 1, j->latents, &j->seconds));
    if (j->v->compare) {
        TRY(sample(j, &dense, 0, j->dense, &j->dense_seconds));
        TRY(sample_psnr(j));
    }
    return j->v->density_out && j->c->rank == 0 ? sample_density_write(j) : TESS_OK;
}
