/* SPDX-License-Identifier: Apache-2.0 */
/* profile_page.c - the page of a sparsity profile, gathered map by map and mask by mask.
 *
 *   {"layers":..,"heads":..,"mass":..,"cube":[f,y,x],
 *    "maps":[{"step":..,"noise":[low,high],"density":[..],"recall":[..] or null},..],
 *    "cubes":[{"cube":[f,y,x],"overlap":..,"density":..},..],"masks":[{..},..]}
 *
 * The masks are profile_mask.c's.
 */
#include "profile_page.h"

#include "assets.h"

#include <math.h>
#include <string.h>

enum { SIDES_MAX = 65536 };

static tess_status check_opts(const tess_profile_report_opts *o)
{
    if (o->layers < 1 || o->layers > SIDES_MAX || o->heads < 1 || o->heads > SIDES_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_profile_report_create: %d layers of %d heads, must be 1..%d each",
                          o->layers, o->heads, SIDES_MAX);
    TESS_TRY(tess__check_number("tess_profile_report_create", "mass", o->mass, 0, 1));
    for (int i = 0; i < 3; i++)
        if (o->cube[i] < 0)
            return tess__fail(TESS_EINVAL,
                              "tess_profile_report_create: cube[%d] is %d, must be 0 or more", i,
                              o->cube[i]);
    return TESS_OK;
}

tess_status tess_profile_report_create(tess_ctx *ctx, const tess_profile_report_opts *opts,
                                       tess_profile_report **report)
{
    TESS_REQUIRE(ctx, opts, report);
    TESS_TRY(check_opts(opts));
    tess_profile_report *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    *r = (tess_profile_report){.ctx = ctx,
                               .opts = *opts,
                               .subtitle = {.ctx = ctx},
                               .input = {.ctx = ctx},
                               .command = {.ctx = ctx},
                               .maps = {.ctx = ctx},
                               .cubes = {.ctx = ctx},
                               .masks = {.ctx = ctx}};
    r->opts.mass = opts->mass > 0 ? opts->mass : 0.9;
    for (int i = 0; i < 3; i++)
        r->opts.cube[i] = opts->cube[i] ? opts->cube[i] : 1;
    tess__markup_print(&r->subtitle, "%s", opts->subtitle ? opts->subtitle : "");
    tess__markup_print(&r->input, "%s", opts->input ? opts->input : "");
    tess__markup_print(&r->command, "%s", opts->command ? opts->command : "");
    if (r->subtitle.status || r->input.status || r->command.status) {
        tess_profile_report_destroy(r);
        return TESS_ENOMEM;
    }
    *report = r;
    return TESS_OK;
}

void tess_profile_report_destroy(tess_profile_report *report)
{
    if (!report)
        return;
    tess__markup_free(&report->subtitle);
    tess__markup_free(&report->input);
    tess__markup_free(&report->command);
    tess__markup_free(&report->maps);
    tess__markup_free(&report->cubes);
    tess__markup_free(&report->masks);
    tess__free(report->ctx, report);
}

/* ---- maps --------------------------------------------------------------------------------- */

static tess_status check_fractions(const char *name, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] <= 1 + 1e-9))
            return tess__fail(TESS_EINVAL, "tess_profile_report_add: %s[%zu] is %g, must be 0..1",
                              name, i, x[i]);
    return TESS_OK;
}

/* Returns their mean. */
static double add_fractions(tess__jw *w, const char *key, const double *x, size_t n)
{
    double sum = 0;
    tess__jw_begin(w, key, '[');
    for (size_t i = 0; i < n; i++) {
        tess__jw_real(w, NULL, x[i]);
        sum += x[i];
    }
    tess__jw_end(w, ']');
    return sum / (double)n;
}

tess_status tess_profile_report_add(tess_profile_report *report, const tess_profile_map *map)
{
    if (!report || !map || !map->density)
        return tess__invalid(__func__, "%s is NULL", !report ? "report" : !map ? "map" : "density");
    if (!(map->noise_low >= 0 && map->noise_low <= map->noise_high && map->noise_high <= 1))
        return tess__invalid(__func__, "noise is %g..%g, must ascend in 0..1", map->noise_low,
                             map->noise_high);
    const size_t n = (size_t)report->opts.layers * (size_t)report->opts.heads;
    TESS_TRY(check_fractions("density", map->density, n));
    if (map->recall)
        TESS_TRY(check_fractions("recall", map->recall, n));
    double recall = NAN;
    tess__jw w = tess__markup_json(&report->maps, 5);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "step", map->step);
    tess__jw_begin(&w, "noise", '[');
    tess__jw_real(&w, NULL, map->noise_low);
    tess__jw_real(&w, NULL, map->noise_high);
    tess__jw_end(&w, ']');
    const double density = add_fractions(&w, "density", map->density, n);
    if (map->recall)
        recall = add_fractions(&w, "recall", map->recall, n);
    else
        tess__jw_null(&w, "recall");
    tess__jw_end(&w, '}');
    TESS_TRY(tess__jw_finish(&w));
    /* The tiles are of the last step. */
    if (report->n_maps == 0 || map->step != report->step)
        report->of_step = 0, report->density = 0, report->recall = 0;
    report->step = map->step;
    report->density += density;
    report->recall += recall;
    report->of_step++;
    report->n_maps++;
    return TESS_OK;
}

tess_status tess_profile_report_cube(tess_profile_report *report, const tess_profile_cube *cube)
{
    TESS_REQUIRE(report, cube);
    tess__jw w = tess__markup_json(&report->cubes, 5);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_row_i32(&w, "cube", cube->cube, 3);
    tess__jw_real(&w, "overlap", cube->overlap);
    tess__jw_real(&w, "density", cube->density);
    tess__jw_end(&w, '}');
    TESS_TRY(tess__jw_finish(&w));
    report->n_cubes++;
    return TESS_OK;
}

/* ---- the page ----------------------------------------------------------------------------- */

static void add_head(const tess_profile_report *r, tess__markup *page)
{
    char title[256];
    snprintf(title, sizeof title, "How sparse attention is%s%.200s", r->input.size ? ": " : "",
             r->input.data ? r->input.data : "");
    tess__page_begin(page, title, 0);
    tess__page_subtitle(page, r->subtitle.data ? r->subtitle.data : "");
    tess__page_made(page, r->input.data, r->command.data);
    const int *c = r->opts.cube;
    tess__markup_print(
        page,
        "<p>In an attention head each token of the clip attends to all others. Here queries "
        "come in groups of %d x %d x %d neighbouring tokens (frames, rows, columns), and a "
        "group's <b>density</b> is the fraction of all keys it needs to collect %g %% of its "
        "attention. Few keys: the rest need not be computed.</p>\n<div class=\"tiles\">\n",
        c[0], c[1], c[2], 100 * r->opts.mass);
    tess__page_tile(page, "layers x heads", "%d x %d", r->opts.layers, r->opts.heads);
    tess__page_tile(page, "training step", "%lld", (long long)r->step);
    tess__page_tile(page, "mean density", "%.1f %%", 100 * r->density / r->of_step);
    if (!isnan(r->recall))
        tess__page_tile(page, "mean recall of the predictor", "%.3f", r->recall / r->of_step);
    tess__markup_print(page, "</div>\n");
}

static void add_figures(const tess_profile_report *r, tess__markup *page)
{
    static const tess__figure density = {
        "density",
        "Density by layer (rows) and head (columns), one map for each noise level, from little "
        "noise to much. Dark: few keys are enough.",
        "<div class=\"heats\"></div>"};
    static const tess__figure training = {
        "training", "Mean density of all heads over training, by noise level.", NULL};
    static const tess__figure recall = {
        "recall",
        "Recall of the predictor: attention that its keys hold / attention of as many best keys. "
        "1: it finds them all. Dark: it misses some.",
        "<div class=\"heats\"></div>"};
    static const tess__figure cubes = {
        "cubes",
        "Queries of a cube share their keys. Overlap: attention that the shared keys hold / what "
        "each query's own choice of as many would. 0.9 is enough.",
        NULL};
    static const tess__figure masks = {
        "masks",
        "Outlined in blue: the group of queries. First row: the clip. Attention: orange where "
        "it is strong. Oracle: the keys that hold the attention named above; the rest is "
        "greyed out. Predictor: as many keys, chosen by the predictor.",
        "<div class=\"masks\"></div>"};
    tess__markup_print(page, "<h2>Which heads are sparse</h2>\n");
    tess__page_figure(page, &density);
    tess__page_figure(page, &training);
    if (!isnan(r->recall)) {
        tess__markup_print(page, "<h2>Does the predictor find the keys?</h2>\n");
        tess__page_figure(page, &recall);
    }
    if (r->n_masks) {
        tess__markup_print(page, "<h2>What heads attend to</h2>\n");
        tess__page_figure(page, &masks);
    }
    if (r->n_cubes) {
        tess__markup_print(page, "<h2>How many queries may share their keys</h2>\n");
        tess__page_figure(page, &cubes);
    }
}

tess_status tess_profile_report_write(tess_profile_report *report, const char *path)
{
    TESS_REQUIRE(report, path);
    if (report->n_maps == 0)
        return tess__invalid(__func__, "no map was added");
    tess__markup page = {.ctx = report->ctx}, data = {.ctx = report->ctx};
    add_head(report, &page);
    add_figures(report, &page);
    tess__jw w = tess__markup_json(&data, 5);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "layers", report->opts.layers);
    tess__jw_int(&w, "heads", report->opts.heads);
    tess__jw_real(&w, "mass", report->opts.mass);
    tess__jw_row_i32(&w, "cube", report->opts.cube, 3);
    tess__jw_elements(&w, "maps", report->maps.data, report->maps.size);
    tess__jw_elements(&w, "cubes", report->cubes.data, report->cubes.size);
    tess__jw_elements(&w, "masks", report->masks.data, report->masks.size);
    tess__jw_end(&w, '}');
    const tess_status status = tess__page_write(&page, &data, tess__asset_profile_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
