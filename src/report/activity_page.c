/* SPDX-License-Identifier: Apache-2.0 */
/* activity_page.c - the page of traces: parts of the span by rank, activity over time, tables.
 *
 *   {"parts":["compute",..],"classes":["gemm",..],"ops":["all_reduce",..],
 *    "files":[{"name":"rank 0","span":660.5,"parts":[..],"hidden":7.3,"classes":[[kernels,ms],..],
 *              "busy":{"compute":[..],"comm":[..],"copy":[..]},"waits":[ms,..],
 *              "kernels":[[name,class,kernels,ms],..]}],
 *    "calls":[[op,ranks,bytes,calls,total,shortest,median,longest],..],"call_kinds":3}
 *
 * Times are milliseconds; busy has fractions of PARTS equal parts of the span, in percent.
 */
#include "activity_page.h"

#include "assets.h"

#include <math.h>
#include <string.h>

enum { PARTS = 400, KERNELS = 25, FILES_MAX = 256 };

typedef struct {
    tess_ctx *ctx;
    const tess_activity *const *files;
    const tess_activity_ranks *ranks;
    int n;
} pages;

static void add_ms(tess__jw *w, const char *key, int64_t ns)
{
    tess__jw_real(w, key, (double)ns / 1e6);
}

static void add_percents(tess__jw *w, const char *key, const double *x)
{
    int32_t percents[PARTS];
    for (int i = 0; i < PARTS; i++)
        percents[i] = (int32_t)lround(100.0 * x[i]);
    tess__jw_row_i32(w, key, percents, PARTS);
}

static tess_status add_busy(tess__jw *w, const tess_activity *file)
{
    double compute[PARTS], comm[PARTS], copy[PARTS];
    TESS_TRY(tess_activity_busy(file, PARTS, compute, comm, copy));
    tess__jw_begin(w, "busy", '{');
    add_percents(w, "compute", compute);
    add_percents(w, "comm", comm);
    add_percents(w, "copy", copy);
    tess__jw_end(w, '}');
    return TESS_OK;
}

static tess_status add_kernels(tess__jw *w, const tess_activity *file)
{
    tess_activity_kernel list[KERNELS];
    int64_t n;
    TESS_TRY(tess_activity_kernels(file, list, KERNELS, &n));
    tess__jw_begin(w, "kernels", '[');
    for (int64_t i = 0; i < n && i < KERNELS; i++) {
        tess__jw_begin(w, NULL, '[');
        tess__jw_text(w, NULL, list[i].name);
        tess__jw_text(w, NULL, tess_kernel_class_name(list[i].kernel_class));
        tess__jw_int(w, NULL, list[i].kernels);
        add_ms(w, NULL, list[i].ns);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

static tess_status add_waits(tess__jw *w, const pages *p, int file)
{
    tess__jw_begin(w, "waits", '[');
    for (int op = 0; op < TESS_CALL_UNKNOWN; op++) {
        int64_t ns, calls;
        TESS_TRY(tess_activity_wait(p->ranks, file, (tess_call_op)op, &ns, &calls));
        add_ms(w, NULL, calls ? ns : -1000000);
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

static tess_status add_file(tess__jw *w, const pages *p, int i)
{
    tess_activity_info info;
    char name[32];
    TESS_TRY(tess_activity_query(p->files[i], &info));
    snprintf(name, sizeof name, info.rank >= 0 ? "rank %d" : "file %d",
             info.rank >= 0 ? info.rank : i);
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "name", name);
    add_ms(w, "span", info.span_ns);
    add_ms(w, "hidden", info.hidden_ns);
    tess__jw_begin(w, "parts", '[');
    add_ms(w, NULL, info.compute_ns);
    add_ms(w, NULL, info.exposed_ns);
    add_ms(w, NULL, info.copy_ns);
    add_ms(w, NULL, info.idle_ns);
    tess__jw_end(w, ']');
    tess__jw_begin(w, "classes", '[');
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++) {
        tess__jw_begin(w, NULL, '[');
        tess__jw_int(w, NULL, info.classes[k].kernels);
        add_ms(w, NULL, info.classes[k].ns);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
    TESS_TRY(add_busy(w, p->files[i]));
    TESS_TRY(add_waits(w, p, i));
    TESS_TRY(add_kernels(w, p->files[i]));
    tess__jw_end(w, '}');
    return TESS_OK;
}

static tess_status add_data(const pages *p, tess__markup *data)
{
    static const char *const parts[] = {"compute", "exposed communication", "copies", "idle"};
    tess__jw w = tess__markup_json(data, 9);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_begin(&w, "parts", '[');
    for (int i = 0; i < 4; i++)
        tess__jw_text(&w, NULL, parts[i]);
    tess__jw_end(&w, ']');
    tess__jw_begin(&w, "classes", '[');
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++)
        tess__jw_text(&w, NULL, tess_kernel_class_name((tess_kernel_class)k));
    tess__jw_end(&w, ']');
    tess__jw_begin(&w, "ops", '[');
    for (int op = 0; op < TESS_CALL_UNKNOWN; op++)
        tess__jw_text(&w, NULL, tess_call_op_name((tess_call_op)op));
    tess__jw_end(&w, ']');
    tess__jw_begin(&w, "files", '[');
    for (int i = 0; i < p->n && i < FILES_MAX; i++)
        TESS_TRY(add_file(&w, p, i));
    tess__jw_end(&w, ']');
    TESS_TRY(tess__page_calls(p->ctx, p->files, p->n, &w));
    tess__jw_end(&w, '}');
    return w.status;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void add_note(tess__markup *page, const char *before, const char *note)
{
    tess__markup_print(page, "<p class=\"note\">");
    tess__markup_html(page, before);
    tess__markup_html(page, note);
    tess__markup_print(page, "</p>\n");
}

static tess_status add_notes(const pages *p, tess__markup *page)
{
    const char *note;
    if (p->n > FILES_MAX)
        add_note(page, "", "Only the first 256 files are drawn.");
    for (int k = 0; (note = tess_activity_ranks_note(p->ranks, k)); k++)
        add_note(page, "", note);
    for (int i = 0; i < p->n && i < FILES_MAX; i++) {
        tess_activity_info info;
        char before[64] = "";
        TESS_TRY(tess_activity_query(p->files[i], &info));
        if (p->n > 1)
            snprintf(before, sizeof before, "rank %d: ", info.rank);
        for (int k = 0; (note = tess_activity_note(p->files[i], k)); k++)
            add_note(page, before, note);
    }
    return TESS_OK;
}

static tess_status add_head(const pages *p, const char *command, tess__markup *page)
{
    tess_activity_ranks_info ranks;
    tess_activity_info first, slowest;
    char title[96], files[32];
    TESS_TRY(tess_activity_ranks_query(p->ranks, &ranks));
    TESS_TRY(tess_activity_query(p->files[0], &first));
    TESS_TRY(tess_activity_query(p->files[ranks.slowest], &slowest));
    snprintf(title, sizeof title, p->n == 1 ? "Trace of one rank" : "Traces of %d ranks", p->n);
    tess__page_begin(page, title, 0);
    tess__page_subtitle(page, "The span from the first begin to the last end of activity is "
                              "compute, exposed communication, copies that nothing hides, and "
                              "idle time.");
    snprintf(files, sizeof files, p->n == 1 ? "file" : "first of %d files", p->n);
    const tess__fact facts[] = {{files, first.path, 0}, {"command", command, 1}};
    tess__page_facts(page, facts, 2);
    tess__markup_print(page, "<div class=\"tiles\">\n");
    if (p->n > 1) {
        tess__page_tile(page, "imbalance", "%.3f", ranks.imbalance);
        tess__page_tile(page, "slowest rank", "%d", slowest.rank);
    }
    tess__page_tile(page, p->n == 1 ? "span" : "its span", "%.1f ms",
                    (double)slowest.span_ns / 1e6);
    if (slowest.span_ns > 0) {
        tess__page_tile(page, p->n == 1 ? "compute" : "its compute", "%.1f %%",
                        100.0 * (double)slowest.compute_ns / (double)slowest.span_ns);
        tess__page_tile(page, p->n == 1 ? "idle" : "its idle time", "%.1f %%",
                        100.0 * (double)slowest.idle_ns / (double)slowest.span_ns);
    }
    tess__markup_print(page, "</div>\n");
    return add_notes(p, page);
}

static void add_figures(const pages *p, tess__markup *page)
{
    static const struct {
        const char *heading;
        tess__figure figure;
        int least; /* files */
    } figures[] = {
        {"Where the time goes",
         {"parts", "Parts of the span, in milliseconds; they add up to it.", NULL},
         1},
        {NULL,
         {"busy",
          "Over time, in 400 equal parts of each span: how much of a part communication (above) "
          "and "
          "compute (below) run; in grey, where nothing but copies runs.",
          NULL},
         1},
        {"Waiting",
         {"waits",
          "Milliseconds that a rank's calls take longer than on the member where they are "
          "shortest: waiting for the last member.",
          NULL},
         2},
        {"Kernels by class",
         {"classes", "Sum of durations in milliseconds, and number of kernels.", NULL},
         1},
        {"Collectives",
         {"calls",
          "By operation, ranks of the process group and bytes in; those with most time first, 40 "
          "at most. GB/s: bytes in over the shortest time.",
          NULL},
         1},
        {"Longest kernels",
         {"kernels", "Of the first file: names with the largest sum of durations.", NULL},
         1},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (p->n < figures[i].least)
            continue;
        if (figures[i].heading)
            tess__markup_print(page, "<h2>%s</h2>\n", figures[i].heading);
        tess__page_figure(page, &figures[i].figure);
    }
}

tess_status tess_activity_report(tess_ctx *ctx, const tess_activity *const *files, int n,
                                 const tess_activity_ranks *ranks, const char *command,
                                 const char *path)
{
    TESS_REQUIRE(ctx, files, ranks, command, path);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 16));
    const pages p = {ctx, files, ranks, n};
    tess__markup page = {.ctx = ctx}, data = {.ctx = ctx};
    tess_status status = add_head(&p, command, &page);
    if (!status) {
        add_figures(&p, &page);
        status = add_data(&p, &data);
    }
    if (!status)
        status = tess__page_write(&page, &data, tess__asset_activity_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
