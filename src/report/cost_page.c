/* SPDX-License-Identifier: Apache-2.0 */
/* cost_page.c - a predicted step as a page: time, memory and money by part, and how the step
 * changes with each input. */
#include "assets.h"
#include "report_internal.h"
#include "tessera/advanced/cost_report.h"

static void add_parts(tess__jw *w, const char *key, const tess_cost_part *parts, int n)
{
    tess__jw_begin(w, key, '[');
    for (int i = 0; i < n; i++) {
        if (parts[i].value == 0.0)
            continue;
        tess__jw_begin(w, NULL, '[');
        tess__jw_text(w, NULL, parts[i].name);
        tess__jw_real(w, NULL, parts[i].value);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

static tess_status add_data(const tess_cost_report_opts *o, tess__markup *text)
{
    tess__jw w = tess__markup_json(text, 6);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_real(&w, "capacity", o->capacity);
    tess__jw_real(&w, "clip", o->clip);
    tess__jw_real(&w, "timeLow", o->time_low);
    tess__jw_real(&w, "timeHigh", o->time_high);
    tess__jw_real(&w, "memoryLow", o->memory_low);
    tess__jw_real(&w, "memoryHigh", o->memory_high);
    add_parts(&w, "time", o->time, o->n_time);
    add_parts(&w, "memory", o->memory, o->n_memory);
    add_parts(&w, "money", o->money, o->n_money);
    tess__jw_begin(&w, "inputs", '[');
    for (int i = 0; i < o->n_inputs; i++) {
        tess__jw_begin(&w, NULL, '[');
        tess__jw_text(&w, NULL, o->inputs[i].name);
        tess__jw_real(&w, NULL, o->inputs[i].less);
        tess__jw_real(&w, NULL, o->inputs[i].more);
        tess__jw_end(&w, ']');
    }
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    return tess__jw_finish(&w);
}

/* Four digits, and a letter behind large numbers: a tile is narrow. */
static void add_tile(tess__markup *page, const tess_cost_part *tile)
{
    static const char *const letters[] = {"", "k", "M", "G", "T"};
    double value = tile->value;
    int power = 0;
    for (; value >= 1e5 && power < 4; power++)
        value /= 1e3;
    if (power && value < 1e3)
        tess__page_tile(page, tile->name, "%.4g %s", value, letters[power]);
    else if (value >= 1e3)
        tess__page_tile(page, tile->name, "%.0f %s", value, letters[power]);
    else
        tess__page_tile(page, tile->name, "%.4g", value);
}

static void add_figure(tess__markup *page, const char *title, const char *id, const char *caption)
{
    tess__markup_print(page, "<h2>%s</h2>\n", title);
    tess__page_figure(page, &(tess__figure){id, caption, NULL});
}

tess_status tess_cost_report_write(tess_ctx *ctx, const tess_cost_report_opts *opts,
                                   const char *path)
{
    TESS_REQUIRE(ctx, opts, path);
    const tess_cost_report_opts *o = opts;
    tess__markup page = {.ctx = ctx}, data = {.ctx = ctx};
    tess__page_begin(&page, o->title ? o->title : "Cost of a step", 0);
    if (o->subtitle)
        tess__page_subtitle(&page, o->subtitle);
    tess__page_made(&page, NULL, o->command);
    tess__markup_print(&page, "<div class=\"tiles\">\n");
    for (int i = 0; i < o->n_tiles; i++)
        add_tile(&page, &o->tiles[i]);
    tess__markup_print(&page, "</div>\n");
    add_figure(&page, "Time", "time",
               o->clip ? "What a rank does for a clip and what it waits for, in s; 80 % of "
                         "measured clips should lie in the interval."
                       : "What the slowest stage does in a step and what it waits for, in ms; 80 % "
                         "of measured steps should lie in the interval.");
    add_figure(
        &page, "Memory", "memory",
        "Of one GPU of the stage that needs most, in GiB, with its 80 % interval, and what the "
        "GPU has.");
    if (o->n_money)
        add_figure(&page, "Money", "money", "The cost by what the time is spent on.");
    if (o->n_inputs)
        add_figure(&page, "Sensitivity", "inputs",
                   o->clip
                       ? "Change of the clip in %, each input by itself 10 % less and 10 % more."
                       : "Change of the step in %, each input by itself 10 % less and 10 % more.");
    tess_status status = add_data(o, &data);
    if (status == TESS_OK)
        status = tess__page_write(&page, &data, tess__asset_cost_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
