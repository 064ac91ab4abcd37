/* SPDX-License-Identifier: Apache-2.0 */
/* measured_page.c - predicted against measured as a page: a drawing of each quantity. */
#include "assets.h"
#include "report_internal.h"
#include "tessera/advanced/cost_report.h"

#include <math.h>
#include <string.h>

/* Points of the quantity that begins at `first`. */
static int count_of(const tess_measured_report_opts *o, int first)
{
    int n = 0;
    while (first + n < o->n_points &&
           strcmp(o->points[first + n].quantity, o->points[first].quantity) == 0)
        n++;
    return n;
}

static tess_status add_data(const tess_measured_report_opts *o, tess__markup *text)
{
    tess__jw w = tess__markup_json(text, 6);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_begin(&w, "quantities", '[');
    for (int first = 0, n; first < o->n_points; first += n) {
        n = count_of(o, first);
        tess__jw_begin(&w, NULL, '{');
        tess__jw_text(&w, "name", o->points[first].quantity);
        tess__jw_text(&w, "unit", o->points[first].unit);
        tess__jw_begin(&w, "points", '[');
        for (int i = first; i < first + n; i++) {
            const tess_measured_point *p = &o->points[i];
            tess__jw_begin(&w, NULL, '[');
            tess__jw_text(&w, NULL, p->group);
            tess__jw_text(&w, NULL, p->label);
            tess__jw_real(&w, NULL, p->measured);
            tess__jw_real(&w, NULL, p->predicted);
            tess__jw_real(&w, NULL, p->low);
            tess__jw_real(&w, NULL, p->high);
            tess__jw_end(&w, ']');
        }
        tess__jw_end(&w, ']');
        tess__jw_end(&w, '}');
    }
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    return tess__jw_finish(&w);
}

static void add_quantity(tess__markup *page, const tess_measured_report_opts *o, int first, int n)
{
    const tess_measured_point *p = &o->points[first];
    char id[64];
    double sum = 0, bias = 0;
    int inside = 0, ranges = 0;
    for (int i = 0; i < n; i++) {
        const double error = 100 * (p[i].predicted / p[i].measured - 1);
        sum += fabs(error);
        bias += error;
        ranges += p[i].high > 0;
        inside += p[i].measured >= p[i].low && p[i].measured <= p[i].high;
    }
    tess__markup_print(page, "<h2>");
    tess__markup_html(page, p->quantity);
    tess__markup_print(page,
                       "</h2>\n<p>%d configurations: mean absolute error %.2f %%, bias %+.2f %%", n,
                       sum / n, bias / n);
    if (ranges)
        tess__markup_print(page, "; %.0f %% inside of their 80 %% intervals", 100.0 * inside / n);
    tess__markup_print(page, ".</p>\n");
    snprintf(id, sizeof id, "points-%d", first);
    tess__page_figure(page, &(tess__figure){id,
                                            "Each configuration with its interval; on the line the "
                                            "prediction is what was measured.",
                                            NULL});
}

tess_status tess_measured_report_write(tess_ctx *ctx, const tess_measured_report_opts *opts,
                                       const char *path)
{
    TESS_REQUIRE(ctx, opts, path);
    const tess_measured_report_opts *o = opts;
    if (o->n_points < 1)
        return tess__invalid(__func__, "n_points is %d, must be 1 or more", o->n_points);
    tess__markup page = {.ctx = ctx}, data = {.ctx = ctx};
    tess__page_begin(&page, o->title ? o->title : "Predicted against measured", 0);
    if (o->subtitle)
        tess__page_subtitle(&page, o->subtitle);
    tess__page_made(&page, NULL, o->command);
    for (int first = 0, n; first < o->n_points; first += n) {
        n = count_of(o, first);
        add_quantity(&page, o, first, n);
    }
    tess_status status = add_data(o, &data);
    if (status == TESS_OK)
        status = tess__page_write(&page, &data, tess__asset_measured_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
