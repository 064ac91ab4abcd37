/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_page.c - a timeline as a page: tracks of ranks, what the step is made of, memory. */
#include "assets.h"
#include "timeline_data.h"

static void add_figures(const tess__timeline_data *d, tess__markup *page)
{
    static const tess__figure tracks = {
        "tracks",
        "Wheel or pinch: zoom; drag: move; double click: all. Under the pointer: name, time, rank "
        "and pass of what is there. Dark edges: on the critical path.",
        NULL};
    static const tess__figure critical = {
        "critical", "The chain of operations that the step is the sum of, by class, in ms.", NULL};
    static const tess__figure parts = {
        "parts",
        "The same step by closed forms, which know no --slow-rank and no --scale: what the slowest "
        "stage does and waits for, in ms.",
        NULL};
    static const tess__figure memory = {
        "memory", "State, activations and working memory of the chosen rank, in GiB.", NULL};
    tess__markup_print(page, "<h2>Timeline</h2>\n");
    if (d->left_out)
        tess__markup_print(page, "<p>The first %d of %lld classes of equal ranks.</p>\n",
                           d->n_shown, (long long)d->n_shown + d->left_out);
    tess__markup_print(page, "<div class=\"controls\" id=\"controls\"></div>\n");
    tess__page_figure(page, &tracks);
    tess__markup_print(page, "<h2>Critical path</h2>\n");
    tess__page_figure(page, &critical);
    if (d->opts->n_parts) {
        tess__markup_print(page, "<h2>Breakdown</h2>\n");
        tess__page_figure(page, &parts);
    }
    if (d->info.counters) {
        tess__markup_print(page, "<h2>Memory</h2>\n");
        tess__page_figure(page, &memory);
    }
}

static tess_status write_page(tess__timeline_data *d, const char *path)
{
    tess__markup page = {.ctx = d->ctx}, data = {.ctx = d->ctx};
    tess__page_begin(&page, d->opts->title ? d->opts->title : "Timeline", 0);
    if (d->opts->subtitle)
        tess__page_subtitle(&page, d->opts->subtitle);
    tess__page_made(&page, NULL, d->opts->command);
    tess__markup_print(&page, "<div class=\"tiles\">\n");
    tess__page_tile(&page, "step, ms", "%.1f", 1e-6 * (double)d->info.ns);
    tess__page_tile(&page, "ranks", "%d", d->info.ranks);
    tess__page_tile(&page, "classes of equal ranks", "%d", d->info.classes);
    tess__page_tile(&page, "operations of all classes", "%lld", (long long)d->info.operations);
    tess__markup_print(&page, "</div>\n");
    add_figures(d, &page);
    tess_status status = tess__timeline_json(d, &data);
    if (status == TESS_OK)
        status = tess__page_write(&page, &data, tess__asset_timeline_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}

tess_status tess_timeline_report_write(tess_ctx *ctx, const tess_timeline *timeline,
                                       const tess_timeline_report_opts *given, const char *path)
{
    TESS_REQUIRE(ctx, timeline, path);
    static const tess_timeline_report_opts none;
    tess__timeline_data d = {
        .ctx = ctx, .t = timeline, .opts = given ? given : &none, .arena = {.ctx = ctx}};
    TESS_TRY(tess_timeline_query(timeline, &d.info));
    tess_status status = tess__timeline_choose(&d);
    if (status == TESS_OK)
        status = write_page(&d, path);
    tess__arena_free(&d.arena);
    return status;
}
