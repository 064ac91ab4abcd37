/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_page.c - a timeline as a page: tracks of ranks, what the step is made of, memory.
 *
 * Operations are stored once for each class of equal ranks, as arrays in base64: begin and end as
 * doubles in ns, and two words: name and category, pass. 24 bytes of an operation; the script draws
 * what is in view, and of what is narrower than a pixel one.
 */
#include "assets.h"
#include "report_internal.h"
#include "tessera/advanced/timeline_report.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MAX = 400000, CAT_WAIT = 4, CAT_BITS = 4, CRITICAL = 8 };

typedef struct {
    tess_ctx *ctx;
    const tess_timeline *t;
    const tess_timeline_report_opts *opts;
    tess_timeline_info info;
    tess__arena arena;
    const char **names; /* an open hash table by address: texts of a timeline are stored once */
    int32_t *numbers;
    int64_t slots, n_names;
    const char **list; /* (n_names) */
    int *shown;        /* lowest ranks of the classes that are shown, ascending */
    int n_shown;
    int64_t *first; /* (shown x streams + 1): into order */
    int64_t *order; /* operations */
    int64_t left_out;
} page_data;

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t slot_of(const page_data *d, const char *name)
{
    uint64_t at = tess__hash(0, &name, sizeof name) & (uint64_t)(d->slots - 1);
    while (d->names[at] && d->names[at] != name)
        at = (at + 1) & (uint64_t)(d->slots - 1);
    return (int64_t)at;
}

static uint32_t name_number(page_data *d, const char *name)
{
    const int64_t at = slot_of(d, name);
    if (!d->names[at]) {
        d->names[at] = name;
        d->numbers[at] = (int32_t)d->n_names;
        d->list[d->n_names++] = name;
    }
    return (uint32_t)d->numbers[at];
}

static tess_status reserve_names(page_data *d)
{
    d->slots = 1024;
    while (d->slots < 4 * TESS_MIN(d->info.operations, (int64_t)OPERATIONS_MAX))
        d->slots *= 2;
    d->names = TESS_TAKE_ZERO(&d->arena, (size_t)d->slots * sizeof *d->names);
    d->list = TESS_TAKE(&d->arena, (size_t)d->slots * sizeof *d->list);
    d->numbers = TESS_TAKE(&d->arena, (size_t)d->slots * sizeof *d->numbers);
    return TESS_OK;
}

/* ---- which operations ------------------------------------------------------------------------ */

static int shown_index(const page_data *d, int rank)
{
    int low = 0, high = d->n_shown;
    while (low < high) {
        const int at = (low + high) / 2;
        if (d->shown[at] < rank)
            low = at + 1;
        else
            high = at;
    }
    return low < d->n_shown && d->shown[low] == rank ? low : -1;
}

/* Classes of the ranks that are wanted, as many as the page holds. */
static tess_status choose_classes(page_data *d)
{
    const int n = d->opts->ranks ? d->opts->n_ranks : d->info.classes;
    d->shown = TESS_TAKE(&d->arena, (size_t)TESS_MAX(n, 1) * sizeof *d->shown);
    if (d->opts->ranks) {
        for (int i = 0; i < n; i++)
            TESS_TRY(tess_timeline_class_of(d->t, d->opts->ranks[i], &d->shown[d->n_shown++]));
    } else {
        for (int64_t i = 0, last = -1; i < d->info.ranks && d->n_shown < n; i++) {
            int first;
            TESS_TRY(tess_timeline_class_of(d->t, (int)i, &first));
            if (first == i && first > last)
                d->shown[d->n_shown++] = first;
        }
    }
    qsort(d->shown, (size_t)d->n_shown, sizeof *d->shown, tess__by_int32);
    int unique = 0;
    for (int i = 0; i < d->n_shown; i++)
        if (i == 0 || d->shown[i] != d->shown[i - 1])
            d->shown[unique++] = d->shown[i];
    d->n_shown = unique;
    return TESS_OK;
}

/* Sorts operations by class and stream; those of a stream are in the order of time already. */
static tess_status sort_operations(page_data *d)
{
    const int64_t places = (int64_t)d->n_shown * d->info.streams;
    d->first = TESS_TAKE_ZERO(&d->arena, ((size_t)places + 2) * sizeof *d->first);
    d->order = TESS_TAKE(&d->arena, (size_t)d->info.operations * sizeof *d->order);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < d->info.operations; i++) {
            tess_timeline_op op;
            TESS_TRY(tess_timeline_op_query(d->t, i, &op));
            const int at = shown_index(d, op.rank);
            if (at < 0 || (op.end == op.begin && op.ready == op.begin))
                continue;
            const int64_t place = (int64_t)at * d->info.streams + op.stream;
            if (pass == 0)
                d->first[place + 2]++;
            else
                d->order[d->first[place + 1]++] = i;
        }
        for (int64_t k = 1; pass == 0 && k < places; k++)
            d->first[k + 1] += d->first[k];
    }
    int kept = 0;
    while (kept < d->n_shown &&
           (kept == 0 || d->first[(int64_t)(kept + 1) * d->info.streams] <= OPERATIONS_MAX))
        kept++;
    d->left_out = d->n_shown - kept;
    d->n_shown = kept;
    return TESS_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct {
    double *times;   /* begin, end */
    uint32_t *words; /* name and category, pass */
    size_t n;
} track;

static void put_event(page_data *d, track *k, const tess_timeline_op *op, int wait)
{
    static const char *const cats[] = {"compute", "communication", "copy", "wait"};
    uint32_t cat = CAT_WAIT;
    for (uint32_t i = 0; i < 4 && !wait; i++)
        if (strcmp(cats[i], op->cat) == 0)
            cat = i;
    k->times[2 * k->n] = (double)(wait ? op->ready : op->begin);
    k->times[2 * k->n + 1] = (double)(wait ? op->begin : op->end);
    k->words[2 * k->n] = name_number(d, op->name) << CAT_BITS | cat |
                         (op->critical && !wait ? (uint32_t)CRITICAL : 0);
    k->words[2 * k->n + 1] = name_number(d, op->pass);
    k->n++;
}

static tess_status add_track(page_data *d, tess__jw *w, int64_t place, const char *name)
{
    const int64_t n = d->first[place + 1] - d->first[place];
    track k = {.times = tess__alloc(d->ctx, 4 * (size_t)n * sizeof *k.times),
               .words = tess__alloc(d->ctx, 4 * (size_t)n * sizeof *k.words)};
    tess_status status = k.times && k.words ? TESS_OK : TESS_ENOMEM;
    for (int64_t i = 0; i < n && status == TESS_OK; i++) {
        tess_timeline_op op;
        status = tess_timeline_op_query(d->t, d->order[d->first[place] + i], &op);
        if (status == TESS_OK && op.begin > op.ready && strcmp(op.cat, "communication") == 0)
            put_event(d, &k, &op, 1);
        if (status == TESS_OK && op.end > op.begin)
            put_event(d, &k, &op, 0);
    }
    if (status == TESS_OK) {
        tess__jw_begin(w, NULL, '{');
        tess__jw_text(w, "name", name);
        tess__markup_bytes(w, "times", k.times, 2 * k.n * sizeof *k.times);
        tess__markup_bytes(w, "words", k.words, 2 * k.n * sizeof *k.words);
        tess__jw_end(w, '}');
    }
    tess__free(d->ctx, k.times);
    tess__free(d->ctx, k.words);
    return status;
}

/* Bytes over time of the class whose lowest rank is `rank`, from the counter *at on. */
static tess_status add_memory(page_data *d, tess__jw *w, int rank, int64_t *at)
{
    tess_timeline_memory m;
    int64_t n = 0;
    while (*at < d->info.counters && tess_timeline_memory_query(d->t, *at, &m) == TESS_OK &&
           m.rank < rank)
        ++*at;
    while (*at + n < d->info.counters && tess_timeline_memory_query(d->t, *at + n, &m) == TESS_OK &&
           m.rank == rank)
        n++;
    double *values = TESS_ALLOC(d->ctx, 4 * (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        if (tess_timeline_memory_query(d->t, *at + i, &m) != TESS_OK)
            break;
        values[4 * i] = (double)m.ns;
        values[4 * i + 1] = (double)m.state;
        values[4 * i + 2] = (double)m.activations;
        values[4 * i + 3] = (double)m.working;
    }
    tess__markup_bytes(w, "memory", values, 4 * (size_t)n * sizeof *values);
    tess__free(d->ctx, values);
    return TESS_OK;
}

static tess_status add_classes(page_data *d, tess__jw *w)
{
    int64_t counter = 0;
    tess__jw_begin(w, "classes", '[');
    for (int i = 0; i < d->n_shown; i++) {
        tess__jw_begin(w, NULL, '{');
        tess__jw_int(w, "rank", d->shown[i]);
        tess__jw_begin(w, "tracks", '[');
        for (int s = 0; s < d->info.streams; s++) {
            const int64_t place = (int64_t)i * d->info.streams + s;
            char name[64];
            TESS_TRY(tess_timeline_stream(d->t, d->shown[i], s, name));
            if (d->first[place + 1] > d->first[place])
                TESS_TRY(add_track(d, w, place, name));
        }
        tess__jw_end(w, ']');
        TESS_TRY(add_memory(d, w, d->shown[i], &counter));
        tess__jw_end(w, '}');
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

/* The ranks that are shown, each with the number of its class. */
static tess_status add_ranks(const page_data *d, tess__jw *w)
{
    const int n = d->opts->ranks ? d->opts->n_ranks : d->n_shown;
    tess__jw_begin(w, "ranks", '[');
    for (int i = 0; i < n; i++) {
        const int rank = d->opts->ranks ? d->opts->ranks[i] : d->shown[i];
        int first;
        TESS_TRY(tess_timeline_class_of(d->t, rank, &first));
        const int at = shown_index(d, first);
        if (at < 0)
            continue;
        tess__jw_begin(w, NULL, '[');
        tess__jw_int(w, NULL, rank);
        tess__jw_int(w, NULL, at);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

static void add_bars(tess__jw *w, const char *key, const tess_timeline_part *parts, int n)
{
    tess__jw_begin(w, key, '[');
    for (int i = 0; i < n; i++) {
        if (parts[i].ms == 0.0)
            continue;
        tess__jw_begin(w, NULL, '[');
        tess__jw_text(w, NULL, parts[i].name);
        tess__jw_real(w, NULL, parts[i].ms);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

static tess_status add_data(page_data *d, tess__markup *text)
{
    tess_timeline_part critical[64];
    int n = 0;
    const char *name;
    int64_t ns;
    while (n < 64 && tess_timeline_critical(d->t, n, &name, &ns) == TESS_OK)
        critical[n++] = (tess_timeline_part){name, 1e-6 * (double)ns};
    tess__jw w = tess__markup_json(text, 9);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "ns", d->info.ns);
    tess__jw_real(&w, "capacity", d->opts->capacity);
    add_bars(&w, "critical", critical, n);
    add_bars(&w, "parts", d->opts->parts, d->opts->n_parts);
    TESS_TRY(add_ranks(d, &w));
    TESS_TRY(add_classes(d, &w));
    tess__jw_begin(&w, "names", '[');
    for (int64_t i = 0; i < d->n_names; i++)
        tess__jw_text(&w, NULL, d->list[i]);
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    return tess__jw_finish(&w);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void add_figures(const page_data *d, tess__markup *page)
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
                           d->n_shown, (long long)(d->n_shown + d->left_out));
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

static tess_status write_page(page_data *d, const char *path)
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
    tess_status status = add_data(d, &data);
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
    page_data d = {.ctx = ctx, .t = timeline, .opts = given ? given : &none, .arena = {.ctx = ctx}};
    TESS_TRY(tess_timeline_query(timeline, &d.info));
    tess_status status = reserve_names(&d);
    if (status == TESS_OK)
        status = choose_classes(&d);
    if (status == TESS_OK)
        status = sort_operations(&d);
    if (status == TESS_OK)
        status = write_page(&d, path);
    tess__arena_free(&d.arena);
    return status;
}
