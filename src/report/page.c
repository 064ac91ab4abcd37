/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - what every page has: head, styles, figures, data, scripts.
 *
 * Figures are empty until the script draws them. It notes a failure as data-error and the number of
 * figures drawn as data-figures on the body, where a test finds them.
 */
#include "report_internal.h"

#include "assets.h"
#include "file/out.h"

#include <string.h>
#include <time.h>

static void add(tess__markup *page, const char *s)
{
    tess__markup_add(page, s, strlen(s));
}

void tess__page_begin(tess__markup *page, const char *title, int refresh)
{
    add(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    if (refresh > 0)
        tess__markup_print(page, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh);
    add(page, "<title>");
    tess__markup_html(page, title);
    add(page, "</title>\n<style>\n");
    add(page, tess__asset_page_css);
    add(page, "</style>\n</head>\n<body>\n<h1>");
    tess__markup_html(page, title);
    add(page, "</h1>\n");
}

void tess__page_subtitle(tess__markup *page, const char *text)
{
    add(page, "<p class=\"quiet\">");
    tess__markup_html(page, text);
    add(page, "</p>\n");
}

void tess__page_facts(tess__markup *page, const tess__fact *facts, int n)
{
    add(page, "<dl class=\"facts\">\n");
    for (int i = 0; i < n; i++) {
        if (!facts[i].value || !facts[i].value[0])
            continue;
        tess__markup_print(page, "<dt>%s</dt><dd>%s", facts[i].name, facts[i].code ? "<code>" : "");
        tess__markup_html(page, facts[i].value);
        add(page, facts[i].code ? "</code></dd>\n" : "</dd>\n");
    }
    add(page, "</dl>\n");
}

void tess__page_now(char date[64])
{
    const time_t now = time(NULL);
    struct tm tm;
    date[0] = 0;
    if (gmtime_r(&now, &tm))
        strftime(date, 64, "%Y-%m-%d %H:%M UTC", &tm);
}

void tess__page_made(tess__markup *page, const char *input, const char *command)
{
    char date[64];
    tess__page_now(date);
    const tess__fact facts[] = {{"input", input, 0}, {"date", date, 0}, {"command", command, 1}};
    tess__page_facts(page, facts, (int)(sizeof facts / sizeof *facts));
}

void tess__page_figure(tess__markup *page, const tess__figure *figure)
{
    tess__markup_print(page, "<figure id=\"%s\">%s<figcaption>", figure->id,
                       figure->inside ? figure->inside : "");
    tess__markup_html(page, figure->caption);
    add(page, "</figcaption></figure>\n");
}

void tess__page_tile(tess__markup *page, const char *word, const char *format, ...)
{
    char value[64];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    add(page, "<div class=\"tile\"><b>");
    tess__markup_html(page, value);
    add(page, "</b><span>");
    tess__markup_html(page, word);
    add(page, "</span></div>\n");
}

tess_status tess__page_write(tess__markup *page, const tess__markup *data, const char *script,
                             const char *path)
{
    tess__markup_print(page, "<footer>tessera %s</footer>\n", tess_version());
    add(page, "<script type=\"application/json\" id=\"data\">");
    if (data->data)
        tess__markup_add(page, data->data, data->size);
    add(page, "</script>\n<script>\n");
    add(page, tess__asset_charts_js);
    add(page, script);
    add(page, "</script>\n</body>\n</html>\n");
    if (data->status || page->status)
        return data->status ? data->status : page->status;
    tess__out *out;
    TESS_TRY(tess__out_open(page->ctx, path, &out));
    const tess_status status = tess__out_write(out, page->data, page->size);
    if (status) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}
