/* SPDX-License-Identifier: Apache-2.0 */
/* profile_output.c - a sparsity profile as text, JSON, CSV and page. */
#include "cmd_profile.h"
#include "tessera/advanced/profile_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double level_low(const profile_job *j, int level)
{
    return profile_level(j, (double)level / PROFILE_LEVELS);
}

static double level_high(const profile_job *j, int level)
{
    return profile_level(j, (double)(level + 1) / PROFILE_LEVELS);
}

static size_t heads_of(const profile_job *j)
{
    return (size_t)j->config.layers * (size_t)j->config.heads;
}

static const char *proxy_name(tess_proxy proxy)
{
    return tess_option_find(TESS_OPTIONS_ATTENTION, "proxy")->words[proxy];
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct {
    double mean, least, most;
} summary;

static summary sum_up(const double *x, size_t n)
{
    summary s = {0, INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++) {
        s.mean += x[i] / (double)n;
        s.least = fmin(s.least, x[i]);
        s.most = fmax(s.most, x[i]);
    }
    return s;
}

static const profile_point *last_point(const profile_job *j)
{
    return &j->points[j->n_points - 1];
}

static int has_recall(const profile_job *j)
{
    return !isnan(last_point(j)->recall[0]);
}

/* A layer's mean over heads and noise levels, and that of its worst head over noise levels. */
static void sum_recall(const profile_job *j, int layer, double *mean, double *worst)
{
    const int heads = j->config.heads;
    *mean = 0;
    *worst = INFINITY;
    for (int h = 0; h < heads; h++) {
        double sum = 0;
        for (int level = 0; level < PROFILE_LEVELS; level++)
            sum += last_point(j)->recall[(size_t)level * heads_of(j) + (size_t)(layer * heads + h)];
        *mean += sum / PROFILE_LEVELS / heads;
        *worst = fmin(*worst, sum / PROFILE_LEVELS);
    }
}

/* A layer's overlap in groups of the given cube. */
static double layer_overlap(const profile_job *j, int layer)
{
    return j->overlap[layer] * j->config.layers / (double)j->probe.orders[0].measured;
}

/* The last checkpoint, a line for each layer. */
static void show_layers(const profile_job *j)
{
    FILE *f = j->c->out;
    const size_t heads = (size_t)j->config.heads;
    fprintf(f, "\n%10s  %-27s", "layer", "density, quartiles of noise");
    fprintf(f, "%s%s\n", has_recall(j) ? "  recall (worst head)" : "",
            j->v->cubes ? "  overlap" : "");
    for (int l = 0; l < j->config.layers; l++) {
        fprintf(f, "%10d ", l);
        for (int level = 0; level < PROFILE_LEVELS; level++) {
            const size_t at = (size_t)level * heads_of(j) + (size_t)l * heads;
            fprintf(f, " %.3f", sum_up(last_point(j)->density + at, heads).mean);
        }
        double mean, worst;
        sum_recall(j, l, &mean, &worst);
        if (has_recall(j))
            fprintf(f, "    %12.3f (%.3f)", mean, worst);
        if (j->v->cubes)
            fprintf(f, "  %*.3f", has_recall(j) ? 7 : 11, layer_overlap(j, l));
        fprintf(f, "\n");
    }
}

static void show_text(const profile_job *j)
{
    FILE *f = j->c->out;
    const profile_probe *p = &j->probe;
    fprintf(f,
            "%d layers of %d heads, %lld tokens (%d x %d x %d), %lld clips of %s; groups of %d x "
            "%d x %d queries, mass %g\n",
            j->config.layers, j->config.heads, (long long)p->tokens, p->grid[0], p->grid[1],
            p->grid[2], (long long)j->v->clips, j->info.kind, j->cube[0], j->cube[1], j->cube[2],
            p->mass);
    if (has_recall(j) && p->plugin)
        fprintf(f, "recall of keys chosen by %s, at ", j->v->selector);
    else if (has_recall(j))
        fprintf(f, "recall of keys chosen by the predictor, proxy %s, at ", proxy_name(p->proxy));
    if (has_recall(j) && isnan(p->keys_share))
        fprintf(f, "each head's own density\n");
    else if (has_recall(j))
        fprintf(f, "density %g\n", p->keys_share);
    fprintf(f, "\n");
    fprintf(f, "%10s  %-14s %22s %28s\n", "step", "noise", "density (least..most)",
            "recall (least..most)");
    for (int i = 0; i < j->n_points; i++)
        for (int level = 0; level < PROFILE_LEVELS; level++) {
            const size_t n = heads_of(j), at = (size_t)level * n;
            const summary d = sum_up(j->points[i].density + at, n);
            const summary r = sum_up(j->points[i].recall + at, n);
            fprintf(f, "%10lld  %.3f..%.3f   %8.3f (%.3f..%.3f)",
                    (long long)j->points[i].trained.step, level_low(j, level), level_high(j, level),
                    d.mean, d.least, d.most);
            if (isnan(r.mean))
                fprintf(f, "  %26s\n", "no predictor");
            else
                fprintf(f, "  %10.3f (%.3f..%.3f)\n", r.mean, r.least, r.most);
        }
    show_layers(j);
    if (!j->v->cubes)
        return;
    fprintf(f, "\n%-16s %8s %8s\n", "cube", "overlap", "density");
    for (int i = 0; i < p->n_orders; i++) {
        const profile_order *o = &p->orders[i];
        char cube[40];
        snprintf(cube, sizeof cube, "%d x %d x %d", o->cube[0], o->cube[1], o->cube[2]);
        fprintf(f, "%-16s %8.3f %8.3f\n", cube, o->overlap / (double)o->measured,
                o->density / (double)o->measured);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* (layers, heads) as an array for each layer. */
static json_t *json_heads(const profile_job *j, const double *x)
{
    json_t *layers = json_array();
    for (int l = 0; l < j->config.layers; l++) {
        json_t *heads = json_array();
        for (int h = 0; h < j->config.heads; h++)
            out_append(j->c, heads, out_number(x[l * j->config.heads + h]));
        out_append(j->c, layers, heads);
    }
    return layers;
}

static json_t *json_cube(cli *c, const int cube[3])
{
    json_t *array = json_array();
    for (int i = 0; i < 3; i++)
        out_append(c, array, json_integer(cube[i]));
    return array;
}

static json_t *json_point(const profile_job *j, const profile_point *p)
{
    cli *c = j->c;
    json_t *o = json_object(), *levels = json_array();
    out_set(c, o, "checkpoint", out_text(p->folder));
    out_set(c, o, "step", json_integer(p->trained.step));
    for (int level = 0; level < PROFILE_LEVELS; level++) {
        const size_t at = (size_t)level * heads_of(j);
        json_t *l = json_object();
        out_set(c, l, "noise_low", out_number(level_low(j, level)));
        out_set(c, l, "noise_high", out_number(level_high(j, level)));
        out_set(c, l, "density", json_heads(j, p->density + at));
        out_set(c, l, "recall", isnan(p->recall[at]) ? json_null() : json_heads(j, p->recall + at));
        out_append(c, levels, l);
    }
    out_set(c, o, "levels", levels);
    return o;
}

static void show_json(const profile_job *j)
{
    cli *c = j->c;
    json_t *points = json_array(), *cubes = json_array(), *overlap = json_array();
    out_set(c, c->json, "mass", out_number(j->probe.mass));
    out_set(c, c->json, "cube", json_cube(c, j->cube));
    out_set(c, c->json, "proxy",
            has_recall(j) ? json_string(proxy_name(j->probe.proxy)) : json_null());
    out_set(c, c->json, "recall_density", out_number(j->probe.keys_share));
    out_set(c, c->json, "data", out_text(j->info.kind));
    out_set(c, c->json, "clips", json_integer(j->v->clips));
    out_set(c, c->json, "tokens", json_integer(j->probe.tokens));
    for (int i = 0; i < j->n_points; i++)
        out_append(c, points, json_point(j, &j->points[i]));
    out_set(c, c->json, "checkpoints", points);
    for (int l = 0; l < j->config.layers && j->v->cubes; l++)
        out_append(c, overlap, out_number(layer_overlap(j, l)));
    out_set(c, c->json, "overlap", overlap);
    for (int i = 0; i < j->probe.n_orders && j->v->cubes; i++) {
        const profile_order *order = &j->probe.orders[i];
        json_t *o = json_object();
        out_set(c, o, "cube", json_cube(c, order->cube));
        out_set(c, o, "overlap", out_number(order->overlap / (double)order->measured));
        out_set(c, o, "density", out_number(order->density / (double)order->measured));
        out_append(c, cubes, o);
    }
    out_set(c, c->json, "cubes", cubes);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static int by_training(const profile_job *j)
{
    return j->v->by ? strcmp(j->v->by, "training") == 0 : j->n_points > 1;
}

/* (steps, layers, heads) of the file: means over noise levels, or the last checkpoint's levels. */
static void fill_csv(const profile_job *j, int steps, int64_t *step, double *density)
{
    const size_t n = heads_of(j);
    const profile_point *last = last_point(j);
    for (int s = 0; s < steps; s++) {
        step[s] = by_training(j) ? j->points[s].trained.step : s;
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (int level = 0; level < PROFILE_LEVELS; level++)
                sum += j->points[by_training(j) ? s : 0].density[(size_t)level * n + i];
            density[(size_t)s * n + i] =
                by_training(j) ? sum / PROFILE_LEVELS : last->density[(size_t)s * n + i];
        }
    }
}

static tess_status write_csv(const profile_job *j)
{
    const int steps = by_training(j) ? j->n_points : PROFILE_LEVELS;
    const size_t n = heads_of(j);
    int64_t *step = malloc((size_t)steps * sizeof *step);
    int64_t *layer = malloc((size_t)j->config.layers * sizeof *layer);
    double *density = malloc((size_t)steps * n * sizeof *density);
    tess_status status;
    if (!step || !layer || !density) {
        status = out_fail(j->c, TESS_ENOMEM, "no memory for the profile");
    } else {
        fill_csv(j, steps, step, density);
        for (int l = 0; l < j->config.layers; l++)
            layer[l] = l;
        status = tess_profile_write(
            j->c->ctx, j->v->csv,
            &(tess_profile_view){steps, j->config.layers, j->config.heads, step, layer, density});
    }
    free(step);
    free(layer);
    free(density);
    return status;
}

/* ---- the page -------------------------------------------------------------------------------- */

static tess_status add_maps(const profile_job *j, tess_profile_report *report)
{
    for (int i = 0; i < j->n_points; i++)
        for (int level = 0; level < PROFILE_LEVELS; level++) {
            const profile_point *p = &j->points[i];
            const size_t at = (size_t)level * heads_of(j);
            TRY(tess_profile_report_add(
                report,
                &(tess_profile_map){.step = p->trained.step,
                                    .noise_low = level_low(j, level),
                                    .noise_high = level_high(j, level),
                                    .density = p->density + at,
                                    .recall = isnan(p->recall[at]) ? NULL : p->recall + at}));
        }
    for (int i = 0; i < j->probe.n_orders && j->v->cubes; i++) {
        const profile_order *o = &j->probe.orders[i];
        TRY(tess_profile_report_cube(report,
                                     &(tess_profile_cube){{o->cube[0], o->cube[1], o->cube[2]},
                                                          o->overlap / (double)o->measured,
                                                          o->density / (double)o->measured}));
    }
    return TESS_OK;
}

static tess_status add_masks(const profile_job *j, tess_profile_report *report)
{
    const tess_data_info *d = &j->info;
    const int *grid = j->probe.grid;
    for (int i = 0; i < j->n_heads; i++) {
        const profile_head *h = &j->heads[i];
        TRY(tess_profile_report_mask(
            report, &(tess_profile_mask){.layer = h->layer,
                                         .head = h->head,
                                         .why = h->why,
                                         .step = j->points[j->n_points - 1].trained.step,
                                         .noise = j->mask_noise,
                                         .grid = {grid[0], grid[1], grid[2]},
                                         .frames = d->frames,
                                         .height = d->height * d->pack,
                                         .width = d->width * d->pack,
                                         .pixels = j->pixels,
                                         .query = h->query,
                                         .mass = h->mass,
                                         .oracle = h->oracle,
                                         .predicted = h->has_predicted ? h->predicted : NULL}));
    }
    return TESS_OK;
}

static tess_status write_page(const profile_job *j)
{
    char subtitle[512];
    tess_profile_report *report = NULL;
    char *line = out_command(j->c);
    snprintf(subtitle, sizeof subtitle, "%.300s, %lld clips of %s, %lld tokens each",
             j->points[j->n_points - 1].path, (long long)j->v->clips, j->info.kind,
             (long long)j->probe.tokens);
    const tess_profile_report_opts opts = {.layers = j->config.layers,
                                           .heads = j->config.heads,
                                           .mass = j->probe.mass,
                                           .cube = {j->cube[0], j->cube[1], j->cube[2]},
                                           .subtitle = subtitle,
                                           .input = j->points[j->n_points - 1].path,
                                           .command = line};
    tess_status status = tess_profile_report_create(j->c->ctx, &opts, &report);
    free(line);
    if (status == TESS_OK)
        status = add_maps(j, report);
    if (status == TESS_OK)
        status = add_masks(j, report);
    if (status == TESS_OK)
        status = tess_profile_report_write(report, j->v->out);
    tess_profile_report_destroy(report);
    return status;
}

static void show_file(const profile_job *j, const char *key, const char *what, const char *path)
{
    if (path && j->c->json)
        out_set(j->c, j->c->json, key, out_text(path));
    else if (path)
        fprintf(j->c->out, "%s: %s\n", what, path);
}

tess_status profile_show(profile_job *j)
{
    if (j->v->csv)
        TRY(write_csv(j));
    if (j->v->out)
        TRY(write_page(j));
    if (j->c->json)
        show_json(j);
    else
        show_text(j);
    if ((j->v->csv || j->v->out) && !j->c->json)
        fprintf(j->c->out, "\n");
    show_file(j, "csv", by_training(j) ? "densities by training step" : "densities by noise level",
              j->v->csv);
    show_file(j, "page", "the page", j->v->out);
    return TESS_OK;
}
