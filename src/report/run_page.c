/* SPDX-License-Identifier: Apache-2.0 */
/* run_page.c - the page of a training run: curves, times, samples as they improved, settings. */
#include "run_page.h"

#include "assets.h"
#include "file/file_internal.h"
#include "file/json.h"
#include "tessera/advanced/run_report.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHEETS_MAX = 10, SHEETS_BYTES_MAX = 16 << 20 };

static tess_status join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return tess__fail(TESS_EINVAL, "tess_report_run: %.80s...: the path is too long", folder);
    return TESS_OK;
}

/* ---- samples --------------------------------------------------------------------------------- */

static int is_sheet(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 4 && strcmp(entry->d_name + n - 4, ".png") == 0;
}

static tess_status add_sheet(tess__markup *page, const char *folder, const char *name)
{
    char path[PATH_MAX];
    TESS_TRY(join(folder, name, path));
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    const int64_t step = strtoll(name + strcspn(name, "0123456789"), NULL, 10);
    tess__markup_print(page,
                       "<div><img alt=\"samples after step %lld\" data-step=\"%lld\" "
                       "src=\"data:image/png;base64,",
                       (long long)step, (long long)step);
    if (source.bytes <= SHEETS_BYTES_MAX)
        tess__markup_base64(page, source.data, source.bytes);
    tess__markup_print(page, "\"></div>\n");
    tess__source_close(&source);
    return TESS_OK;
}

/* Sheets spread evenly over the run, the first and the last among them. */
static tess_status add_samples(tess__markup *page, const char *run)
{
    char folder[PATH_MAX];
    TESS_TRY(join(run, "samples", folder));
    struct dirent **names = NULL;
    const int n = scandir(folder, &names, is_sheet, alphasort);
    if (n < 0 && errno == ENOMEM)
        return tess__nomem(0);
    tess_status status = TESS_OK;
    if (n > 0)
        tess__markup_print(page, "<h2>Samples as they improved</h2>\n"
                                 "<figure id=\"samples\"><div>\n");
    const int shown = TESS_MIN(n, SHEETS_MAX);
    for (int i = 0; i < shown && !status; i++)
        status = add_sheet(page, folder,
                           names[shown > 1 ? (int64_t)i * (n - 1) / (shown - 1) : 0]->d_name);
    if (n > 0)
        tess__markup_print(page,
                           "</div><figcaption>One row for each prompt: the clip, and its frames "
                           "from left to right. The noise is the same after every step."
                           "</figcaption></figure>\n");
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return status;
}

/* ---- settings -------------------------------------------------------------------------------- */

static void add_setting(tess__markup *page, const char *key, const json_t *value)
{
    tess__markup text = {.ctx = page->ctx};
    tess__jw w = tess__markup_json(&text, 9);
    w.html = 0; /* the text is escaped below */
    if (!json_is_string(value))
        tess__jw_value(&w, NULL, value);
    tess__markup_print(page, "<tr><td>");
    tess__markup_html(page, key);
    tess__markup_print(page, "</td><td>");
    tess__markup_html(page, json_is_string(value) ? json_string_value(value)
                            : text.data           ? text.data
                                                  : "");
    tess__markup_print(page, "</td></tr>\n");
    page->status = page->status ? page->status : text.status;
    tess__markup_free(&text);
}

static void add_settings(tess__markup *page, const json_t *settings)
{
    const char *key;
    json_t *value;
    tess__markup_print(page, "<h2>Settings</h2>\n<table>\n");
    json_object_foreach((json_t *)settings, key, value) add_setting(page, key, value);
    tess__markup_print(page, "</table>\n");
}

/* ---- the page -------------------------------------------------------------------------------- */

static void add_tiles(const tess__run_data *run, tess__markup *page)
{
    tess__markup_print(page, "<div class=\"tiles\">\n");
    tess__page_tile(page, "steps", "%lld", (long long)run->steps);
    tess__page_tile(page, "training loss", "%.4g", run->last[TESS_RUN_LOSS]);
    if (!isnan(run->val_loss))
        tess__page_tile(page, "validation loss", "%.4g", run->val_loss);
    tess__page_tile(page, "ms a step", "%.4g", run->last[TESS_RUN_STEP_MS]);
    tess__page_tile(page, "tokens a second", "%.0f", run->last[TESS_RUN_RATE]);
    if (run->recorded[TESS_RUN_DENSITY] || run->recorded[TESS_RUN_RECALL])
        tess__page_tile(page, "density of attention", "%.3g", run->last[TESS_RUN_DENSITY]);
    if (run->recorded[TESS_RUN_RECALL])
        tess__page_tile(page, "recall of the predictor", "%.3g", run->last[TESS_RUN_RECALL]);
    tess__markup_print(page, "</div>\n");
}

static void add_figures(const tess__run_data *run, tess__markup *page)
{
    static const tess__figure loss = {
        "loss", "Mean squared error of the velocity; validation with the averaged weights.", NULL};
    static const tess__figure buckets = {
        "buckets", "Validation loss by noise level, from little noise to much.", NULL};
    static const tess__figure times = {
        "times", "Where the time of a step goes; each bar is the mean of its steps.", NULL};
    static const tess__figure rates = {"rates", "Length of the gradient before clipping.", NULL};
    tess__markup_print(page, "<h2>Loss</h2>\n");
    tess__page_figure(page, &loss);
    if (run->validations)
        tess__page_figure(page, &buckets);
    static const tess__figure density = {
        "density",
        "Fraction of (query, key) pairs that attention computed, 1 is dense; and the fraction of "
        "layers "
        "that are sparse. Marks on the axis, violet: a layer or head became sparse; orange: dense "
        "again.",
        NULL};
    static const tess__figure recall = {
        "recall",
        "Softmax mass of the selected keys / mass of as many best ones, as last measured; "
        "and the loss of the predictors.",
        NULL};
    static const tess__figure events = {"events", "What was decided during the run, and why.",
                                        NULL};
    if (run->recorded[TESS_RUN_DENSITY] || run->recorded[TESS_RUN_RECALL]) {
        tess__markup_print(page, "<h2>Sparse attention</h2>\n");
        tess__page_figure(page, &density);
        if (run->recorded[TESS_RUN_RECALL])
            tess__page_figure(page, &recall);
        if (run->events.size)
            tess__page_figure(page, &events);
    }
    tess__markup_print(page, "<h2>Time of a step</h2>\n");
    tess__page_figure(page, &times);
    tess__markup_print(page, "<h2>Gradient</h2>\n");
    tess__page_figure(page, &rates);
}

/* The prompt of each row of a sheet. */
static tess_status add_prompts(tess__jw *w, const char *run)
{
    char path[PATH_MAX];
    tess__source source;
    TESS_TRY(join(run, "samples/prompts.txt", path));
    tess__jw_begin(w, "prompts", '[');
    if (tess__source_open(path, &source) == TESS_OK) {
        const char *at = (const char *)source.data, *end = at + source.bytes;
        for (const char *next; at < end && (next = memchr(at, '\n', (size_t)(end - at)));
             at = next + 1) {
            char prompt[256];
            snprintf(prompt, sizeof prompt, "%.*s", (int)(next - at), at);
            tess__jw_text(w, NULL, prompt);
        }
        tess__source_close(&source);
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

static tess_status add_data(tess__run_data *metrics, const char *run, tess__markup *data)
{
    tess__jw w = tess__markup_json(data, 0);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_elements(&w, "points", metrics->points.data, metrics->points.size);
    tess__jw_elements(&w, "validation", metrics->validation.data, metrics->validation.size);
    tess__jw_elements(&w, "events", metrics->events.data, metrics->events.size);
    TESS_TRY(add_prompts(&w, run));
    tess__jw_end(&w, '}');
    return metrics->points.status ? metrics->points.status : metrics->validation.status;
}

static tess_status write_page(const char *run, const json_t *settings, tess__run_data *metrics,
                              const char *path, int refresh)
{
    tess_ctx *ctx = metrics->points.ctx;
    tess__markup page = {.ctx = ctx}, data = {.ctx = ctx};
    tess__run_head(&page, run, settings, refresh);
    add_tiles(metrics, &page);
    add_figures(metrics, &page);
    tess_status status = add_samples(&page, run);
    if (settings)
        add_settings(&page, settings);
    if (!status)
        status = add_data(metrics, run, &data);
    if (!status)
        status = tess__page_write(&page, &data, tess__asset_run_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}

/* A run made through the library may have no settings. */
static tess_status open_settings(tess_ctx *ctx, const char *run, tess__json *doc)
{
    char path[PATH_MAX];
    TESS_TRY(join(run, "settings.json", path));
    const tess_status status = tess__json_open(ctx, path, NULL, 0, doc);
    return status == TESS_EIO ? TESS_OK : status;
}

tess_status tess_run_report_write(tess_ctx *ctx, const char *run, const char *path, int refresh,
                                  tess_run_report_info *info)
{
    TESS_REQUIRE(ctx, run, path);
    char metrics[PATH_MAX], events[PATH_MAX];
    TESS_TRY(join(run, "metrics.jsonl", metrics));
    TESS_TRY(join(run, "events.jsonl", events));
    tess__json settings = {0};
    tess__run_data numbers = {.val_loss = NAN,
                              .points = {.ctx = ctx},
                              .validation = {.ctx = ctx},
                              .events = {.ctx = ctx}};
    tess_status status = tess__run_read(&numbers, metrics);
    if (!status)
        status = tess__run_events(&numbers.events, events);
    if (!status)
        status = open_settings(ctx, run, &settings);
    if (!status)
        status = write_page(run, settings.root, &numbers, path, refresh);
    if (!status && info)
        *info = (tess_run_report_info){
            .step = numbers.steps,
            .steps = (int64_t)json_integer_value(json_object_get(settings.root, "steps"))};
    tess__json_close(&settings);
    tess__markup_free(&numbers.points);
    tess__markup_free(&numbers.validation);
    tess__markup_free(&numbers.events);
    return status;
}

tess_status tess_report_run(tess_ctx *ctx, const char *run, const char *path)
{
    TESS_REQUIRE(ctx, run, path);
    return tess_run_report_write(ctx, run, path, 0, NULL);
}
