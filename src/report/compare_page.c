/* SPDX-License-Identifier: Apache-2.0 */
/* compare_page.c - the page of a comparison: changes with their intervals, curves with bands,
 * tables.
 *
 *   {"baseline":0,"margin":..,"confidence":..,"step":..,"wall":..,"gflop":..,
 *    "arms":[{"label":"..","runs":..,"at":{"step":{..},"wall":{..},"gflop":{..}},
 *    "numbers":{"density":[n,mean,low,high],..},
 *    "changes":[[step,mean,low,high],..],
 *    "validation":[[step,wall,gflop,mean,low,high,bucket..],..],
 *    "training":[[step,wall,gflop,mean,low,high,density,recall],..],
 *    "switch_steps":[[step,sparse],..]}]}
 *
 * A point of a curve is the mean over the runs of an arm at one step; of training each run's loss
 * is first averaged over its neighbouring steps, so that a curve has at most POINTS_MAX points.
 */
#include "compare_internal.h"

#include "assets.h"

#include <math.h>
#include <string.h>

enum { POINTS_MAX = 200, SWITCHES_MAX = 400 };

static void add_estimate(tess__jw *w, const char *key, const tess_estimate *e)
{
    tess__jw_begin(w, key, '[');
    tess__jw_int(w, NULL, e->n);
    tess__jw_real(w, NULL, e->mean);
    tess__jw_real(w, NULL, e->low);
    tess__jw_real(w, NULL, e->high);
    tess__jw_end(w, ']');
}

/* The estimate over all noise levels, then that of each quartile. */
static void add_estimates(tess__jw *w, const char *key, const tess_estimate *all,
                          const tess_estimate *buckets)
{
    tess__jw_begin(w, key, '[');
    add_estimate(w, NULL, all);
    for (int b = 0; b < TESS_COMPARE_BUCKETS; b++)
        add_estimate(w, NULL, &buckets[b]);
    tess__jw_end(w, ']');
}

static void add_at(tess__jw *w, const char *key, const tess_compare_at *at)
{
    tess__jw_begin(w, key, '{');
    tess__jw_text(w, "verdict", tess_verdict_name(at->verdict));
    add_estimates(w, "loss", &at->loss, at->buckets);
    add_estimates(w, "change", &at->change, at->bucket_changes);
    tess__jw_end(w, '}');
}

/* ---- curves ------------------------------------------------------------------------------- */

typedef struct {
    const tess_compare *c;
    int arm;
    double *values; /* (runs) */
    tess__jw *w;
} curve;

/* The estimate over the arm's runs of means over lines [begin, end). */
static tess_estimate over_runs(const curve *v, int column, int64_t begin, int64_t end)
{
    int n = 0;
    for (int i = 0; i < v->c->info.runs; i++)
        if (v->c->runs[i].arm == v->arm)
            v->values[n++] = tess__recorded_mean(&v->c->runs[i], column, begin, end);
    return tess__estimate(v->values, n, v->c->info.confidence);
}

/* Adds [step, wall, gflop, mean, low, high, the means of further columns]: of `column` over lines
 * [begin, end), the axes at the last of them. */
static void add_point(curve *v, int column, int64_t begin, int64_t end, const int *more, int n)
{
    const tess_estimate e = over_runs(v, column, begin, end);
    const double head[] = {over_runs(v, TESS_METRIC_WALL, end - 1, end).mean,
                           over_runs(v, TESS_METRIC_GFLOP, end - 1, end).mean, e.mean, e.low,
                           e.high};
    tess__jw_begin(v->w, NULL, '[');
    tess__jw_int(v->w, NULL, v->c->runs[v->c->arms[v->arm].first].steps[end - 1]);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        tess__jw_real(v->w, NULL, head[i]);
    for (int i = 0; i < n; i++)
        tess__jw_real(v->w, NULL, over_runs(v, more[i], begin, end).mean);
    tess__jw_end(v->w, ']');
}

/* Lines on which all runs of the arm have the same steps; curves show these lines alone. */
static int64_t common_lines(const curve *v)
{
    const tess__recorded *first = &v->c->runs[v->c->arms[v->arm].first];
    int64_t n = first->lines;
    for (int i = 0; i < v->c->info.runs; i++) {
        const tess__recorded *run = &v->c->runs[i];
        if (run->arm != v->arm)
            continue;
        n = TESS_MIN(run->lines, n);
        while (n > 0 && memcmp(run->steps, first->steps, (size_t)n * sizeof *run->steps) != 0)
            n--;
    }
    return n;
}

static int validated(const curve *v, int64_t line)
{
    for (int i = 0; i < v->c->info.runs; i++)
        if (v->c->runs[i].arm == v->arm && isnan(v->c->runs[i].values[TESS_METRIC_VAL][line]))
            return 0;
    return 1;
}

/* [[step, mean, low, high], ...]: the change against the baseline where both were validated. */
static void add_changes(const curve *v)
{
    const tess__recorded *first = &v->c->runs[v->c->arms[v->arm].first];
    tess__jw_begin(v->w, "changes", '[');
    for (int64_t i = 0; i < first->lines; i++) {
        const tess_estimate e =
            isnan(first->values[TESS_METRIC_VAL][i])
                ? (tess_estimate){0}
                : tess__compare_change(v->c, v->arm, first->steps[i], v->values);
        if (e.n == 0)
            continue;
        tess__jw_begin(v->w, NULL, '[');
        tess__jw_int(v->w, NULL, first->steps[i]);
        tess__jw_real(v->w, NULL, e.mean);
        tess__jw_real(v->w, NULL, e.low);
        tess__jw_real(v->w, NULL, e.high);
        tess__jw_end(v->w, ']');
    }
    tess__jw_end(v->w, ']');
}

static void add_curves(curve *v)
{
    static const int buckets[] = {TESS_METRIC_BUCKET, TESS_METRIC_BUCKET + 1,
                                  TESS_METRIC_BUCKET + 2, TESS_METRIC_BUCKET + 3};
    static const int sparsity[] = {TESS_METRIC_DENSITY, TESS_METRIC_RECALL};
    const int64_t lines = common_lines(v), every = (lines + POINTS_MAX - 1) / POINTS_MAX;
    add_changes(v);
    tess__jw_begin(v->w, "validation", '[');
    for (int64_t i = 0; i < lines; i++)
        if (validated(v, i))
            add_point(v, TESS_METRIC_VAL, i, i + 1, buckets, TESS_COMPARE_BUCKETS);
    tess__jw_end(v->w, ']');
    tess__jw_begin(v->w, "training", '[');
    for (int64_t i = 0; i < lines; i += every)
        add_point(v, TESS_METRIC_LOSS, i, TESS_MIN(i + every, lines), sparsity, 2);
    tess__jw_end(v->w, ']');
}

static void add_switches(const tess_compare *c, int arm, tess__jw *w)
{
    int n = 0;
    tess__jw_begin(w, "switch_steps", '[');
    for (int i = 0; i < c->info.runs; i++)
        for (int64_t t = 0; c->runs[i].arm == arm && t < c->runs[i].n_switches && n < SWITCHES_MAX;
             t++, n++)
            tess__jw_row_i64(
                w, NULL, (int64_t[]){c->runs[i].switches[t].step, c->runs[i].switches[t].sparse},
                2);
    tess__jw_end(w, ']');
}

static tess_status add_arm(const tess_compare *c, int index, double *values, tess__jw *w)
{
    tess_compare_arm arm;
    TESS_TRY(tess_compare_arm_view(c, index, &arm));
    const struct {
        const char *name;
        const tess_estimate *value;
    } numbers[] = {{"train_loss", &arm.train_loss},
                   {"step_ms", &arm.step_ms},
                   {"attention_ms", &arm.attention_ms},
                   {"wall_s", &arm.wall_s},
                   {"gflop", &arm.gflop},
                   {"density", &arm.density},
                   {"recall", &arm.recall}};
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "label", arm.label);
    tess__jw_int(w, "runs", arm.runs);
    tess__jw_int(w, "steps", arm.steps);
    tess__jw_int(w, "switches", arm.switches);
    tess__jw_int(w, "returns", arm.returns);
    tess__jw_int(w, "first_switch", arm.first_switch);
    tess__jw_int(w, "last_switch", arm.last_switch);
    tess__jw_begin(w, "at", '{');
    add_at(w, "step", &arm.at_step);
    add_at(w, "wall", &arm.at_wall);
    add_at(w, "gflop", &arm.at_gflop);
    tess__jw_end(w, '}');
    tess__jw_begin(w, "numbers", '{');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add_estimate(w, numbers[i].name, numbers[i].value);
    tess__jw_end(w, '}');
    add_curves(&(curve){.c = c, .arm = index, .values = values, .w = w});
    add_switches(c, index, w);
    tess__jw_end(w, '}');
    return TESS_OK;
}

/* ---- the page ----------------------------------------------------------------------------- */

static int recorded(const tess_compare *c, int column)
{
    for (int i = 0; i < c->info.runs; i++)
        if (!isnan(tess__recorded_mean(&c->runs[i], column, 0, c->runs[i].lines)))
            return 1;
    return 0;
}

/* Model, data, date and command; model and data are those of the first run, and notes have the
 * differences. */
static void add_facts(const tess_compare *c, tess__markup *page)
{
    const json_t *settings = c->runs[0].settings;
    const json_t *config = json_object_get(settings, "config");
    char date[64];
    tess__page_now(date);
    const tess__fact facts[] = {
        {"model", json_string_value(config ? config : json_object_get(settings, "preset")), 0},
        {"data", json_string_value(json_object_get(settings, "data")), 0},
        {"date", date, 0},
        {"command", c->command, 1}};
    tess__page_facts(page, facts, (int)(sizeof facts / sizeof *facts));
}

static void add_head(const tess_compare *c, tess__markup *page)
{
    char text[160], title[256];
    const tess__recorded *first = &c->runs[0];
    const json_t *preset = json_object_get(first->settings, "preset");
    const json_t *data_set = json_object_get(first->settings, "data");
    const int named = json_is_string(preset) && json_is_string(data_set);
    snprintf(title, sizeof title, "%d runs in %d arms%s%.80s%s%.80s", c->info.runs, c->info.arms,
             named ? ": " : "", named ? json_string_value(preset) : "", named ? " on " : "",
             named ? json_string_value(data_set) : "");
    snprintf(text, sizeof text,
             "Arms are runs that differ in the seed alone. Bands and intervals: %g %% over seeds "
             "(Student's t).",
             100 * c->info.confidence);
    tess__page_begin(page, title, 0);
    tess__page_subtitle(page, text);
    add_facts(c, page);
    tess__markup_print(page, "<div class=\"tiles\">\n");
    tess__page_tile(page, "runs", "%d", c->info.runs);
    tess__page_tile(page, "arms", "%d", c->info.arms);
    if (c->info.step)
        tess__page_tile(page, "step compared", "%lld", (long long)c->info.step);
    if (!isnan(c->info.wall_s))
        tess__page_tile(page, "equal time of steps", "%.0f s", c->info.wall_s);
    tess__page_tile(page, "margin", "%g %%", 100 * c->info.margin);
    tess__markup_print(page, "</div>\n");
    for (int i = 0; i < c->info.notes; i++) {
        tess__markup_print(page, "<p class=\"note\">");
        tess__markup_html(page, c->notes[i]);
        tess__markup_print(page, "</p>\n");
    }
}

static void add_figures(const tess_compare *c, tess__markup *page)
{
    static const struct {
        const char *heading;
        tess__figure figure;
        int column; /* -1: always there */
    } figures[] = {
        {"Is the loss the same?",
         {"changes",
          "Validation loss against the baseline, by pairs of runs with the same seed: the dot is "
          "the mean, the bar its interval, the shaded strip the margin. A bar inside the strip: "
          "the same for all that matters. Left of it: better; right of it: worse; across an end of "
          "it: open, and more seeds are needed. Each place has a scale of its own.",
          NULL},
         -1},
        {NULL,
         {"change_step",
          "The same change at every validation; bands are its interval, the shaded strip the "
          "margin.",
          NULL},
         -1},
        {"Validation loss",
         {"val_step", "Against steps: what a step is worth. Validated with the averaged weights.",
          NULL},
         -1},
        {NULL,
         {"val_wall", "Against the time of the steps, without validation and samples.", NULL},
         TESS_METRIC_WALL},
        {NULL, {"val_gflop", "Against the work that attention did.", NULL}, TESS_METRIC_GFLOP},
        {"By noise level",
         {"buckets",
          "Validation loss in each noise-level quartile; change against the "
          "baseline below it.",
          NULL},
         -1},
        {NULL,
         {"bucket_curves", "Validation loss against steps, in each noise-level quartile.",
          "<div class=\"four\"></div>"},
         -1},
        {"Training loss",
         {"train_step", "Against steps; neighbouring steps are averaged.", NULL},
         -1},
        {NULL, {"train_wall", "Against the time of the steps.", NULL}, TESS_METRIC_WALL},
        {NULL, {"train_gflop", "Against the work that attention did.", NULL}, TESS_METRIC_GFLOP},
        {"What attention did",
         {"density",
          "Fraction of (query, key) pairs that attention computed; 1 is dense. Marks on the "
          "axis: a layer or head became sparse.",
          NULL},
         TESS_METRIC_DENSITY},
        {NULL,
         {"recall",
          "Softmax mass of the selected keys / mass of as many best ones, as last "
          "measured.",
          NULL},
         TESS_METRIC_RECALL},
        {"The arms in numbers",
         {"numbers", "Means over runs; times are medians of a run's steps.", NULL},
         -1},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (figures[i].heading)
            tess__markup_print(page, "<h2>%s</h2>\n", figures[i].heading);
        if (figures[i].column < 0 || recorded(c, figures[i].column))
            tess__page_figure(page, &figures[i].figure);
        else if (figures[i].heading)
            tess__markup_print(page, "<p class=\"quiet\">No run recorded it.</p>\n");
    }
}

static tess_status add_data(const tess_compare *c, tess__markup *data)
{
    double *values = TESS_ALLOC(c->ctx, (size_t)c->info.runs * sizeof *values);
    tess__jw w = tess__markup_json(data, 9);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "baseline", c->info.baseline);
    tess__jw_real(&w, "margin", c->info.margin);
    tess__jw_real(&w, "confidence", c->info.confidence);
    tess__jw_int(&w, "step", c->info.step);
    w.digits = 7;
    tess__jw_real(&w, "wall", c->info.wall_s);
    tess__jw_real(&w, "gflop", c->info.gflop);
    tess__jw_begin(&w, "arms", '[');
    tess_status status = TESS_OK;
    for (int i = 0; i < c->info.arms && !status; i++)
        status = add_arm(c, i, values, &w);
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    tess__free(c->ctx, values);
    return status;
}

tess_status tess_compare_write(tess_compare *compare, const char *path)
{
    TESS_REQUIRE(compare, path);
    tess__markup page = {.ctx = compare->ctx}, data = {.ctx = compare->ctx};
    add_head(compare, &page);
    add_figures(compare, &page);
    tess_status status = add_data(compare, &data);
    if (!status)
        status = tess__page_write(&page, &data, tess__asset_compare_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
