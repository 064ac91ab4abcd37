/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.c - the page of a plan, gathered step by step.
 *
 * Numbers of all layers in all steps are kept: imbalance of the contiguous assignment and of the
 * plan, copies, times. The page has them as mean, least and most over the steps. What is drawn of a
 * single layer (plan_detail.c) is thinned to a size that a browser opens at once (page_pieces.c).
 */
#include "plan_page.h"

#include "assets.h"
#include "tessera/advanced/explain.h"

#include <math.h>
#include <string.h>

enum { DETAIL_BYTES_MAX = 7 << 18, MASK_BYTES = 5 << 18, CELLS_LEAST = 16 };

typedef char strategy_text[TESS_STRATEGY_TEXT];

/* A layer in one step. */
typedef struct {
    double before, after; /* imbalance; before: NaN where heads do not divide */
    double copies;        /* of K and V, mean over heads */
    double ms;            /* predicted; NaN: not predicted */
    int strategy;         /* its place among the names */
} layer_numbers;

struct tess_plan_report {
    tess_ctx *ctx;
    tess_plan_info info; /* of the first plan */
    int64_t first_layer;
    int masks; /* 1: some detail shows masks */
    int64_t steps, layers;
    int64_t *step;          /* (steps) */
    layer_numbers *numbers; /* (steps x layers of a step) */
    strategy_text *names;   /* (n_names): of the strategies, as they come */
    int64_t n_names;
    int64_t step_room, number_room, name_room;
    tess__page_pieces details;
    tess__markup input, command, cluster;
};

tess_status tess_plan_report_create(tess_ctx *ctx, const tess_plan_report_opts *opts,
                                    tess_plan_report **report)
{
    TESS_REQUIRE(ctx, report);
    tess_plan_report *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    r->ctx = r->input.ctx = r->command.ctx = r->cluster.ctx = ctx;
    r->details = (tess__page_pieces){.ctx = ctx, .each_step = 1, .each_layer = 1};
    r->first_layer = opts ? opts->first_layer : 0;
    tess__markup_print(&r->input, "%s", opts && opts->input ? opts->input : "");
    tess__markup_print(&r->command, "%s", opts && opts->command ? opts->command : "");
    tess__markup_print(&r->cluster, "%s", opts && opts->cluster ? opts->cluster : "");
    if (r->input.status || r->command.status || r->cluster.status) {
        tess_plan_report_destroy(r);
        return TESS_ENOMEM;
    }
    *report = r;
    return TESS_OK;
}

void tess_plan_report_destroy(tess_plan_report *report)
{
    if (!report)
        return;
    tess__free(report->ctx, report->step);
    tess__free(report->ctx, report->numbers);
    tess__free(report->ctx, report->names);
    tess__pieces_free(&report->details);
    tess__markup_free(&report->input);
    tess__markup_free(&report->command);
    tess__markup_free(&report->cluster);
    tess__free(report->ctx, report);
}

/* Cells of a side of a mask's picture, so that the masks of all layers of a step fit in the page: a
 * cell is a byte, 4 / 3 in base64. */
static int cells_of(const tess_plan_report *r)
{
    const int64_t room = (int64_t)MASK_BYTES * 3 / 4 / ((int64_t)r->info.layers * r->info.heads);
    int cells = CELLS_LEAST;
    while (cells < TESS_DETAIL_CELLS && (int64_t)(cells + 1) * (cells + 1) <= room)
        cells++;
    return cells;
}

/* The place of a strategy among the names, where it is added if it is new. */
static tess_status place_of(tess_plan_report *r, const tess_strategy *strategy, int *place)
{
    strategy_text text;
    tess_strategy_format(strategy, text);
    for (*place = 0; *place < r->n_names; ++*place)
        if (strcmp(r->names[*place], text) == 0)
            return TESS_OK;
    TESS_GROW(r->ctx, r->names, r->n_names, r->n_names + 1, r->name_room);
    memcpy(r->names[r->n_names++], text, sizeof text);
    return TESS_OK;
}

static tess_status add_numbers(tess_plan_report *r, const tess_plan *plan, const tess_work *work,
                               int index)
{
    layer_numbers n;
    tess_plan_layer layer;
    TESS_TRY(tess_plan_layer_view(plan, index, &layer));
    TESS_TRY(tess_plan_imbalance_before(plan, index, work, &n.before));
    TESS_TRY(tess_plan_imbalance(plan, index, work, TESS_RHO_RING, &n.after));
    TESS_TRY(place_of(r, &layer.strategy, &n.strategy));
    n.before = n.before < 0 ? NAN : n.before;
    n.copies = layer.kv_copies;
    n.ms = layer.predicted_ns < 0 ? (double)NAN : (double)layer.predicted_ns / 1e6;
    r->numbers[r->layers++] = n;
    return TESS_OK;
}

static tess_status add_layer(tess_plan_report *r, int64_t step, const tess_plan *plan,
                             const tess_work *work, const tess_work_info *shape, int index)
{
    tess_plan_layer layer;
    if (!tess__pieces_wants(&r->details, r->steps, index))
        return TESS_OK;
    TESS_TRY(tess_plan_layer_view(plan, index, &layer));
    const tess__detail detail = {
        .number = r->first_layer + index,
        .ctx = r->ctx,
        .step = step,
        .index = index,
        .ranks = r->info.ranks,
        .heads = r->info.heads,
        .q_blocks = shape->q_blocks,
        .k_blocks = shape->k_blocks,
        .cells = cells_of(r),
        .plan = plan,
        .layer = &layer,
        .work = work,
    };
    tess__markup text = {.ctx = r->ctx};
    r->masks |= shape->masks;
    tess_status status = tess__detail_add(&detail, shape->masks ? r->info.heads : 0, &text);
    if (status == TESS_OK)
        status = tess__pieces_add(&r->details, r->steps, index, &text);
    tess__markup_free(&text);
    return status;
}

/* The strategies and times of the layers of a step, which were added before. */
static tess_status add_step(tess_plan_report *r, int64_t step)
{
    const layer_numbers *n = r->numbers + r->layers - r->info.layers;
    tess__markup text = {.ctx = r->ctx};
    tess__jw w = tess__markup_json(&text, 4);
    if (!tess__pieces_wants(&r->details, r->steps, -1))
        return TESS_OK;
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "step", step);
    tess__jw_begin(&w, "strategy", '[');
    for (int i = 0; i < r->info.layers; i++)
        tess__jw_int(&w, NULL, n[i].strategy);
    tess__jw_end(&w, ']');
    tess__jw_begin(&w, "ms", '[');
    for (int i = 0; i < r->info.layers; i++)
        tess__jw_real(&w, NULL, n[i].ms);
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    tess_status status = tess__jw_finish(&w);
    if (status == TESS_OK)
        status = tess__pieces_add(&r->details, r->steps, -1, &text);
    tess__markup_free(&text);
    return status;
}

/* The plan belongs beside the others, and the work to the plan. */
static tess_status check_fit(const tess_plan_report *r, const tess_plan_info *info,
                             const tess_work_info *shape)
{
    if (shape->layers != info->layers || shape->heads != info->heads ||
        shape->q_blocks != info->q_blocks || shape->k_blocks != info->k_blocks)
        return tess__fail(TESS_EINVAL,
                          "tess_plan_report_add: the work has %d layers of %d heads of %d x %d "
                          "blocks, the plan %d of %d of %d x %d",
                          shape->layers, shape->heads, shape->q_blocks, shape->k_blocks,
                          info->layers, info->heads, info->q_blocks, info->k_blocks);
    if (r->steps && (info->ranks != r->info.ranks || info->layers != r->info.layers ||
                     info->heads != r->info.heads))
        return tess__fail(TESS_EINVAL,
                          "tess_plan_report_add: a plan for %d ranks, %d layers and %d heads "
                          "after one for %d, %d and %d",
                          info->ranks, info->layers, info->heads, r->info.ranks, r->info.layers,
                          r->info.heads);
    return TESS_OK;
}

tess_status tess_plan_report_add(tess_plan_report *report, int64_t step, const tess_plan *plan,
                                 const tess_work *work)
{
    TESS_REQUIRE(report, plan, work);
    tess_plan_info info;
    tess_work_info shape;
    TESS_TRY(tess_plan_query(plan, &info));
    TESS_TRY(tess_work_query(work, &shape));
    TESS_TRY(check_fit(report, &info, &shape));
    TESS_GROW(report->ctx, report->step, report->steps, report->steps + 1, report->step_room);
    TESS_GROW(report->ctx, report->numbers, report->layers, report->layers + info.layers,
              report->number_room);
    if (!report->steps)
        report->info = info;
    const int64_t numbers = report->layers, pieces = report->details.n, names = report->n_names;
    const int masks = report->masks;
    tess_status status = TESS_OK;
    for (int layer = 0; layer < info.layers && !status; layer++)
        status = add_numbers(report, plan, work, layer);
    if (!status)
        status = add_step(report, step);
    for (int layer = 0; layer < info.layers && !status; layer++)
        status = add_layer(report, step, plan, work, &shape, layer);
    if (status) { /* without a trace of this step */
        report->layers = numbers;
        report->n_names = names;
        report->masks = masks;
        tess__pieces_cut(&report->details, pieces);
        return status;
    }
    tess__pieces_thin(&report->details, DETAIL_BYTES_MAX);
    report->step[report->steps++] = step;
    return TESS_OK;
}

static void add_tiles(const tess_plan_report *r, tess__markup *page)
{
    double before = 0, before_max = 0, after = 0, after_max = 0, copies = 0, ms = 0;
    int64_t divided = 0;
    for (int64_t i = 0; i < r->layers; i++) {
        const layer_numbers *n = &r->numbers[i];
        after += n->after;
        after_max = TESS_MAX(n->after, after_max);
        copies += n->copies;
        ms += n->ms;
        if (isnan(n->before))
            continue;
        divided++;
        before += n->before;
        before_max = TESS_MAX(n->before, before_max);
    }
    tess__markup_print(page, "<div class=\"tiles\">\n");
    tess__page_tile(page, "ranks", "%d", r->info.ranks);
    tess__page_tile(page, "layers x steps", "%d x %lld", r->info.layers, (long long)r->steps);
    tess__page_tile(page, "heads", "%d", r->info.heads);
    tess__page_tile(page, "tokens", "%lld", (long long)r->info.tokens_q);
    if (!isnan(ms))
        tess__page_tile(page, "ms a step, predicted", "%.4g", ms / (double)r->steps);
    if (divided == r->layers) { /* means over the same layers */
        tess__page_tile(page, "imbalance before, mean", "%.3f", before / (double)r->layers);
        tess__page_tile(page, "before, worst layer", "%.3f", before_max);
    }
    tess__page_tile(page, "imbalance planned, mean", "%.3f", after / (double)r->layers);
    tess__page_tile(page, "planned, worst layer", "%.3f", after_max);
    tess__page_tile(page, "K/V copies per head", "%.2f", copies / (double)r->layers);
    tess__markup_print(page, "</div>\n");
}

static void add_figures(const tess_plan_report *r, tess__markup *page)
{
    static const tess__figure imbalance = {
        "imbalance", "The slowest rank's work over the mean: 1 means that no rank waits.", NULL};
    static const tess__figure imbalances = {
        "imbalance",
        "The slowest rank's work over the mean: 1 means that no rank waits. A line is the mean "
        "over steps, its band reaches from the least to the most.",
        NULL};
    static const tess__figure times = {"times", "Predicted time of each layer, mean over steps.",
                                       NULL};
    static const tess__figure strategies = {
        "strategies", "Layers by strategy, as planned in the step shown below.",
        "<table class=\"plain\"></table>"};
    static const tess__figure before = {
        "before", "Contiguous heads and blocks at the same degrees, for comparison.", NULL};
    static const tess__figure after = {
        "after", "What each rank computes under the plan; a colour is a rank, a segment a head.",
        NULL};
    static const tess__figure heads = {
        "heads", "The same work by head; a colour is a rank. A head of several colours is shared.",
        NULL};
    static const tess__figure masks = {
        "masks",
        "Query blocks from top to bottom, key blocks from left to right, in the order of the plan. "
        "The strip at the left is the rank that computes the rows; lines are cuts.",
        "<div class=\"maps\"></div>"};
    tess__markup_print(page, "<h2>Imbalance by layer</h2>\n");
    tess__page_figure(page, r->steps > 1 ? &imbalances : &imbalance);
    if (!isnan(r->numbers[0].ms)) {
        tess__markup_print(page, "<h2>Time by layer</h2>\n");
        tess__page_figure(page, &times);
    }
    tess__markup_print(page, "<h2>Strategy by layer</h2>\n");
    tess__page_figure(page, &strategies);
    tess__markup_print(page, "<h2>One layer: <span id=\"strategy\"></span></h2>\n");
    if (r->details.each_layer > 1)
        tess__markup_print(page, "<p>One layer in %d is drawn.</p>\n", r->details.each_layer);
    else if (r->details.each_step > 1)
        tess__markup_print(page, "<p>One step in %lld is drawn.</p>\n",
                           (long long)r->details.each_step);
    tess__markup_print(page, "<div class=\"controls\" id=\"controls\"></div>\n");
    tess__page_figure(page, &before);
    tess__page_figure(page, &after);
    tess__page_figure(page, &heads);
    if (r->masks) {
        tess__markup_print(page, "<h2>Masks</h2>\n");
        tess__page_figure(page, &masks);
    }
}

typedef enum { BEFORE, AFTER, TIME } column;

/* [[mean, least, most] of each layer over the steps] */
static void add_column(tess__jw *w, const char *key, const tess_plan_report *r, column which)
{
    tess__jw_begin(w, key, '[');
    for (int64_t layer = 0; layer < r->info.layers; layer++) {
        double sum = 0.0, least = (double)NAN, most = (double)NAN;
        int64_t n = 0;
        for (int64_t i = layer; i < r->layers; i += r->info.layers) {
            const layer_numbers *of = &r->numbers[i];
            const double value = which == AFTER ? of->after : which == BEFORE ? of->before : of->ms;
            if (isnan(value))
                continue;
            n++;
            sum += value;
            least = fmin(least, value);
            most = fmax(most, value);
        }
        tess__jw_begin(w, NULL, '[');
        tess__jw_real(w, NULL, n ? sum / (double)n : (double)NAN);
        tess__jw_real(w, NULL, least);
        tess__jw_real(w, NULL, most);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

static void add_data(const tess_plan_report *r, tess__markup *data)
{
    tess__jw w = tess__markup_json(data, 6);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "ranks", r->info.ranks);
    tess__jw_int(&w, "heads", r->info.heads);
    tess__jw_int(&w, "q_blocks", r->info.q_blocks);
    tess__jw_int(&w, "k_blocks", r->info.k_blocks);
    tess__jw_begin(&w, "layers", '[');
    for (int layer = 0; layer < r->info.layers; layer++)
        tess__jw_int(&w, NULL, r->first_layer + layer);
    tess__jw_end(&w, ']');
    tess__jw_int(&w, "steps", r->steps);
    tess__jw_begin(&w, "strategies", '[');
    for (int64_t i = 0; i < r->n_names; i++)
        tess__jw_text(&w, NULL, r->names[i]);
    tess__jw_end(&w, ']');
    add_column(&w, "before", r, BEFORE);
    add_column(&w, "after", r, AFTER);
    add_column(&w, "ms", r, TIME);
    tess__pieces_write(&r->details, &w);
    tess__jw_end(&w, '}');
}

tess_status tess_plan_report_write(tess_plan_report *report, const char *path)
{
    TESS_REQUIRE(report, path);
    if (!report->steps)
        return tess__invalid(__func__, "no step was added");
    const tess_plan_report *r = report;
    tess__markup page = {.ctx = r->ctx}, data = {.ctx = r->ctx};
    char title[256];
    snprintf(title, sizeof title, "Sparse attention%s%.150s on %d ranks",
             r->input.size ? " of " : "", r->input.data ? r->input.data : "", r->info.ranks);
    tess__page_begin(&page, title, 0);
    tess__page_subtitle(&page,
                        r->n_names == 1 ? r->names[0] : "each layer by the strategy that suits it");
    char date[64];
    tess__page_now(date);
    const tess__fact facts[] = {{"input", r->input.data, 0},
                                {"cluster", r->cluster.data, 0},
                                {"date", date, 0},
                                {"command", r->command.data, 1}};
    tess__page_facts(&page, facts, (int)(sizeof facts / sizeof *facts));
    add_tiles(r, &page);
    add_figures(r, &page);
    add_data(r, &data);
    const tess_status status = tess__page_write(&page, &data, tess__asset_plan_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
