/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.c - the page of a plan, gathered step by step.
 *
 * Three JSON arrays grow with each step: the imbalance of the contiguous assignment and of the plan
 * (steps x layers), and the details of a layer (plan_detail.c). Details stop at a size that a
 * browser opens at once; how many are there of how many is in the page.
 */
#include "plan_page.h"

#include "assets.h"

#include <string.h>

enum { DETAIL_BYTES_MAX = 8 << 20 };

struct tess_plan_report {
    tess_ctx *ctx;
    tess_plan_info info; /* of the first plan */
    int64_t first_layer;
    int masks; /* 1: some detail shows masks */
    int64_t steps, details, layers;
    double before_sum, after_sum, before_max, after_max, copies_sum;
    int64_t before_count;
    tess__markup step, before, after, detail;
    char strategy[TESS_STRATEGY_TEXT]; /* of all layers, if they agree */
};

tess_status tess_plan_report_create(tess_ctx *ctx, const tess_plan_report_opts *opts,
                                    tess_plan_report **report)
{
    TESS_REQUIRE(ctx, report);
    tess_plan_report *r = tess__alloc_zero(ctx, sizeof *r);
    if (!r)
        return tess__nomem(sizeof *r);
    r->ctx = ctx;
    r->first_layer = opts ? opts->first_layer : 0;
    r->step.ctx = r->before.ctx = r->after.ctx = r->detail.ctx = ctx;
    *report = r;
    return TESS_OK;
}

void tess_plan_report_destroy(tess_plan_report *report)
{
    if (!report)
        return;
    tess__markup_free(&report->step);
    tess__markup_free(&report->before);
    tess__markup_free(&report->after);
    tess__markup_free(&report->detail);
    tess__free(report->ctx, report);
}

static tess_status add_layer(tess_plan_report *r, int64_t step, const tess_plan *plan,
                             const tess_work *work, const tess_work_info *shape, int index)
{
    tess_plan_layer layer;
    double before, after;
    TESS_TRY(tess_plan_layer_view(plan, index, &layer));
    TESS_TRY(tess_plan_imbalance_before(plan, index, work, &before));
    TESS_TRY(tess_plan_imbalance(plan, index, work, TESS_RHO_RING, &after));
    const char *comma = index ? "," : "";
    if (before < 0)
        tess__markup_print(&r->before, "%snull", comma);
    else
        tess__markup_print(&r->before, "%s%.6g", comma, before);
    tess__markup_print(&r->after, "%s%.6g", comma, after);
    r->layers++;
    r->after_sum += after;
    r->after_max = after > r->after_max ? after : r->after_max;
    r->copies_sum += layer.kv_copies;
    if (before >= 0) {
        r->before_count++;
        r->before_sum += before;
        r->before_max = before > r->before_max ? before : r->before_max;
    }
    char strategy[TESS_STRATEGY_TEXT];
    tess_strategy_format(&layer.strategy, strategy);
    if (r->layers > 1 && strcmp(strategy, r->strategy) != 0)
        snprintf(strategy, sizeof strategy, "each layer by the strategy that suits it");
    memcpy(r->strategy, strategy, sizeof strategy);
    if (r->detail.size >= DETAIL_BYTES_MAX)
        return TESS_OK;
    const tess__detail detail = {
        .number = r->first_layer + index,
        .ctx = r->ctx,
        .step = step,
        .layer = index,
        .ranks = r->info.ranks,
        .heads = r->info.heads,
        .q_blocks = shape->q_blocks,
        .plan = &layer,
        .k_blocks = shape->k_blocks,
        .work = work,
    };
    if (r->details)
        tess__markup_add(&r->detail, ",\n", 2);
    r->details++;
    r->masks |= shape->masks;
    return tess__detail_add(&detail, shape->masks ? r->info.heads : 0, &r->detail);
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

static void cut_back(tess__markup *text, const tess__markup *then)
{
    text->size = then->size;
    text->status = TESS_OK;
    if (text->data)
        text->data[text->size] = '\0';
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
    const tess_plan_report then = *report;
    if (!report->steps)
        report->info = info;
    const char *comma = report->steps ? "," : "";
    tess__markup_print(&report->step, "%s%lld", comma, (long long)step);
    tess__markup_print(&report->before, "%s[", comma);
    tess__markup_print(&report->after, "%s[", comma);
    tess_status status = TESS_OK;
    for (int layer = 0; layer < info.layers && !status; layer++)
        status = add_layer(report, step, plan, work, &shape, layer);
    tess__markup_print(&report->before, "]");
    tess__markup_print(&report->after, "]");
    report->steps++;
    if (!status)
        status = report->step.status     ? report->step.status
                 : report->before.status ? report->before.status
                                         : report->after.status;
    if (status) {
        tess__markup step_text = report->step, before = report->before, after = report->after,
                     detail = report->detail;
        *report = then;
        report->step = step_text, report->before = before, report->after = after;
        report->detail = detail;
        cut_back(&report->step, &then.step);
        cut_back(&report->before, &then.before);
        cut_back(&report->after, &then.after);
        cut_back(&report->detail, &then.detail);
    }
    return status;
}

static void add_tiles(const tess_plan_report *r, tess__markup *page)
{
    tess__markup_print(page, "<div class=\"tiles\">\n");
    tess__page_tile(page, "ranks", "%d", r->info.ranks);
    tess__page_tile(page, "layers x steps", "%d x %lld", r->info.layers, (long long)r->steps);
    tess__page_tile(page, "heads", "%d", r->info.heads);
    if (r->before_count == r->layers) { /* means over the same layers */
        tess__page_tile(page, "imbalance before, mean", "%.3f", r->before_sum / (double)r->layers);
        tess__page_tile(page, "before, worst layer", "%.3f", r->before_max);
    }
    tess__page_tile(page, "imbalance planned, mean", "%.3f", r->after_sum / (double)r->layers);
    tess__page_tile(page, "planned, worst layer", "%.3f", r->after_max);
    tess__page_tile(page, "K/V copies per head", "%.2f", r->copies_sum / (double)r->layers);
    tess__markup_print(page, "</div>\n");
}

static void add_figures(const tess_plan_report *r, tess__markup *page)
{
    static const tess__figure imbalance = {
        "imbalance",
        "The slowest rank's work over the mean: 1 means that no rank waits. Several steps lie over "
        "each other, later ones darker.",
        NULL};
    static const tess__figure before = {
        "before", "Contiguous heads and blocks at the same degrees, for comparison.", NULL};
    static const tess__figure after = {
        "after", "What each rank computes under the plan; a colour is a head.", NULL};
    static const tess__figure heads = {
        "heads", "The same work by head; a colour is a rank. A head of several colours is shared.",
        NULL};
    static const tess__figure masks = {
        "masks",
        "Query blocks from top to bottom, key blocks from left to right, in the order of the plan. "
        "The strip at the left is the rank that computes the rows; lines are cuts.",
        "<div class=\"maps\"></div>"};
    tess__markup_print(page, "<h2>Imbalance by layer</h2>\n");
    tess__page_figure(page, &imbalance);
    tess__markup_print(page, "<h2>One layer: <span id=\"strategy\"></span></h2>\n");
    if (r->details < r->layers)
        tess__markup_print(page, "<p>Details of the first %lld of %lld layers.</p>\n",
                           (long long)r->details, (long long)r->layers);
    tess__markup_print(page, "<div class=\"controls\" id=\"controls\"></div>\n");
    tess__page_figure(page, &before);
    tess__page_figure(page, &after);
    tess__page_figure(page, &heads);
    if (r->masks) {
        tess__markup_print(page, "<h2>Masks</h2>\n");
        tess__page_figure(page, &masks);
    }
}

tess_status tess_plan_report_write(tess_plan_report *report, const char *path)
{
    TESS_REQUIRE(report, path);
    if (!report->steps)
        return tess__fail(TESS_EINVAL, "tess_plan_report_write: no step was added");
    const tess_plan_report *r = report;
    tess__markup page = {.ctx = r->ctx}, data = {.ctx = r->ctx};
    char title[128];
    snprintf(title, sizeof title, "Sparse attention on %d ranks", r->info.ranks);
    tess__page_begin(&page, title, r->strategy);
    add_tiles(r, &page);
    add_figures(r, &page);
    tess__markup_print(&data,
                       "{\"ranks\":%d,\"heads\":%d,\"q_blocks\":%d,\"k_blocks\":%d,\"layers\":[",
                       r->info.ranks, r->info.heads, r->info.q_blocks, r->info.k_blocks);
    for (int layer = 0; layer < r->info.layers; layer++)
        tess__markup_print(&data, "%s%lld", layer ? "," : "", (long long)r->first_layer + layer);
    tess__markup_print(&data,
                       "],\n\"steps\":[%s],\n\"before\":[%s],\n\"after\":[%s],\n\"details\":[",
                       r->step.data, r->before.data, r->after.data);
    tess__markup_add(&data, r->detail.data, r->detail.size);
    tess__markup_print(&data, "]}");
    const tess_status status = tess__page_write(&page, &data, tess__asset_plan_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}
