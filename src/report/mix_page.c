/* SPDX-License-Identifier: Apache-2.0 */
/* mix_page.c - the page of a mixture plan: imbalance by step, and what each rank of a step has.
 *
 *   {"timed":1,"sizes":[[tokens,clips,cut clips],..],"before":[..],"after":[..],"ms":[..] by step,
 *    "steps":[{"step":..,"ranks":[[compute,exchange,memory,[size,whole clips,tokens,..]],..]},..]}
 *
 * A size is a number of tokens; sizes descend. A rank's list has its tokens by size, three numbers
 * each: whole clips, and the tokens of these and of parts. Cost: O(parts log sizes).
 */
#include "assets.h"
#include "report_internal.h"
#include "tessera/advanced/mix_report.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_SHOWN = 1024, ROWS_SHOWN = 1 << 14, POINTS_SHOWN = 1024 };

typedef struct {
    int64_t tokens, clips, cut;
} size_row;

typedef struct {
    tess_ctx *ctx;
    const tess_mix_clip *clips;
    int64_t n;
    tess_mix_view v;
    size_row *sizes; /* (n_sizes), descending */
    int64_t n_sizes;
    int64_t *whole, *tokens; /* (n_sizes): of one rank */
    int each_rank, each_step;
} mix_page;

/* ---- sizes ----------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    const size_row *x = a, *y = b;
    return (x->tokens < y->tokens) - (x->tokens > y->tokens);
}

static int64_t size_of(const mix_page *p, int64_t clip)
{
    int64_t low = 0, high = p->n_sizes;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (p->sizes[middle].tokens >= p->clips[clip].tokens)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int is_whole(const mix_page *p, const tess_mix_part *part)
{
    return part->token_begin == 0 && part->token_end == p->clips[part->clip].tokens;
}

static tess_status list_sizes(mix_page *p, tess__arena *arena)
{
    p->sizes = TESS_TAKE(arena, (size_t)p->n * sizeof *p->sizes);
    for (int64_t i = 0; i < p->n; i++)
        p->sizes[i] = (size_row){.tokens = p->clips[i].tokens};
    qsort(p->sizes, (size_t)p->n, sizeof *p->sizes, descending);
    for (int64_t i = 0; i < p->n; i++)
        if (i == 0 || p->sizes[i].tokens != p->sizes[p->n_sizes - 1].tokens)
            p->sizes[p->n_sizes++] = p->sizes[i];
    for (int64_t i = 0; i < p->n; i++)
        p->sizes[size_of(p, i)].clips++;
    for (int64_t i = 0; i < p->v.n_parts; i++) { /* once a clip: at its first token */
        const tess_mix_part *part = &p->v.parts[i];
        const int begins = part->token_begin == 0 && part->token_end > 0;
        p->sizes[size_of(p, part->clip)].cut += begins && !is_whole(p, part);
    }
    p->whole = TESS_TAKE(arena, (size_t)p->n_sizes * sizeof *p->whole);
    p->tokens = TESS_TAKE(arena, (size_t)p->n_sizes * sizeof *p->tokens);
    return TESS_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

static void add_rank(const mix_page *p, int step, int rank, tess__jw *w)
{
    const int64_t at = (int64_t)step * p->v.ranks + rank;
    const tess_mix_rank *r = &p->v.rank[at];
    memset(p->whole, 0, (size_t)p->n_sizes * sizeof *p->whole);
    memset(p->tokens, 0, (size_t)p->n_sizes * sizeof *p->tokens);
    for (int64_t i = p->v.first[at]; i < p->v.first[at + 1]; i++) {
        const tess_mix_part *part = &p->v.parts[i];
        const int64_t size = size_of(p, part->clip);
        p->whole[size] += is_whole(p, part);
        p->tokens[size] += part->token_end - part->token_begin;
    }
    tess__jw_begin(w, NULL, '[');
    tess__jw_real(w, NULL, r->compute);
    tess__jw_int(w, NULL, r->exchange);
    tess__jw_int(w, NULL, r->memory);
    tess__jw_begin(w, NULL, '[');
    for (int64_t i = 0; i < p->n_sizes; i++)
        if (p->tokens[i]) {
            tess__jw_int(w, NULL, i);
            tess__jw_int(w, NULL, p->whole[i]);
            tess__jw_int(w, NULL, p->tokens[i]);
        }
    tess__jw_end(w, ']');
    tess__jw_end(w, ']');
}

typedef enum { BEFORE, AFTER, TIME } column;

static void add_column(const mix_page *p, const char *key, column which, tess__jw *w)
{
    const int each = (p->v.steps + POINTS_SHOWN - 1) / POINTS_SHOWN;
    tess__jw_begin(w, key, '[');
    for (int i = 0; i < p->v.steps; i += each) {
        const tess_mix_step *s = &p->v.step[i];
        tess__jw_begin(w, NULL, '[');
        tess__jw_int(w, NULL, i);
        tess__jw_real(w, NULL,
                      which == BEFORE  ? s->rho_before
                      : which == AFTER ? s->rho
                                       : s->time / 1e6);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

static tess_status add_data(const mix_page *p, int timed, tess__markup *text)
{
    tess__jw w = tess__markup_json(text, 5);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "timed", timed);
    tess__jw_begin(&w, "sizes", '[');
    for (int64_t i = 0; i < p->n_sizes; i++)
        tess__jw_row_i64(&w, NULL,
                         (int64_t[]){p->sizes[i].tokens, p->sizes[i].clips, p->sizes[i].cut}, 3);
    tess__jw_end(&w, ']');
    add_column(p, "before", BEFORE, &w);
    add_column(p, "after", AFTER, &w);
    if (timed)
        add_column(p, "ms", TIME, &w);
    tess__jw_int(&w, "each_rank", p->each_rank);
    tess__jw_begin(&w, "steps", '[');
    for (int step = 0; step < p->v.steps; step += p->each_step) {
        tess__jw_begin(&w, NULL, '{');
        tess__jw_int(&w, "step", step);
        tess__jw_begin(&w, "ranks", '[');
        for (int rank = 0; rank < p->v.ranks; rank += p->each_rank)
            add_rank(p, step, rank, &w);
        tess__jw_end(&w, ']');
        tess__jw_end(&w, '}');
    }
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    return tess__jw_finish(&w);
}

/* ---- page ------------------------------------------------------------------------------------ */

static void add_tiles(const mix_page *p, int timed, tess__markup *page)
{
    const tess_mix_view *v = &p->v;
    tess__markup_print(page, "<div class=\"tiles\">\n");
    tess__page_tile(page, "ranks", "%d", v->ranks);
    tess__page_tile(page, "steps", "%d", v->steps);
    tess__page_tile(page, "clips", "%lld", (long long)v->clips);
    tess__page_tile(page, "clips cut", "%lld", (long long)v->cut_clips);
    tess__page_tile(page, "imbalance before", "%.3f", v->rho_before_mean);
    if (v->steps > 1)
        tess__page_tile(page, "before, worst step", "%.3f", v->rho_before_max);
    tess__page_tile(page, "imbalance planned", "%.3f", v->rho_mean);
    if (v->steps > 1)
        tess__page_tile(page, "planned, worst step", "%.3f", v->rho_max);
    if (timed)
        tess__page_tile(page, "ms a step, predicted", "%.4g", v->predicted_ms);
    tess__page_tile(page, "GiB at most on a rank", "%.3g", (double)v->memory / 1073741824.0);
    tess__markup_print(page, "</div>\n");
}

static void add_figures(const mix_page *p, int timed, tess__markup *page)
{
    static const tess__figure steps = {
        "imbalance",
        "The slowest rank's time over the mean: 1 means that no rank waits. Before: the clips as "
        "ranks drew them, or in equal numbers.",
        NULL};
    static const tess__figure sizes = {"sizes",
                                       "Clips of all steps; those that are cut have parts "
                                       "on several ranks.",
                                       "<table class=\"plain\"></table>"};
    static const tess__figure times = {"times", "", NULL};
    static const tess__figure tokens = {
        "tokens", "Tokens of each rank; a colour is a size of clips, the longest at the bottom.",
        NULL};
    static const tess__figure memory = {"memory", "What a rank holds of its clips.", NULL};
    if (p->v.steps > 1) {
        tess__markup_print(page, "<h2>Imbalance by step</h2>\n");
        tess__page_figure(page, &steps);
    }
    tess__markup_print(page, "<h2>Sizes</h2>\n");
    tess__page_figure(page, &sizes);
    tess__markup_print(page, "<h2>Ranks of %s</h2>\n", p->v.steps > 1 ? "a step" : "the step");
    if (p->each_step > 1)
        tess__markup_print(page, "<p>One step in %d is drawn.</p>\n", p->each_step);
    if (p->each_rank > 1)
        tess__markup_print(page, "<p>One rank in %d is drawn.</p>\n", p->each_rank);
    tess__markup_print(page, "<div class=\"controls\" id=\"controls\"></div>\n");
    tess__figure of = times;
    of.caption = timed ? "Predicted time of each rank: its own work, and exchanges of cut clips."
                       : "Work of each rank over its speed, in FLOP of the fastest one.";
    tess__page_figure(page, &of);
    tess__page_figure(page, &tokens);
    tess__page_figure(page, &memory);
}

static tess_status write_page(mix_page *p, const tess_mix_report_opts *o, const char *path)
{
    const int timed = o->cluster != NULL;
    tess__markup page = {.ctx = p->ctx}, data = {.ctx = p->ctx};
    char title[64], date[64];
    snprintf(title, sizeof title, "Clips of several sizes on %d rank%s", p->v.ranks,
             p->v.ranks == 1 ? "" : "s");
    tess__page_begin(&page, title, 0);
    tess__page_now(date);
    const tess__fact facts[] = {{"input", o->input, 0},
                                {"cluster", o->cluster, 0},
                                {"date", date, 0},
                                {"command", o->command, 1}};
    tess__page_facts(&page, facts, (int)(sizeof facts / sizeof *facts));
    add_tiles(p, timed, &page);
    add_figures(p, timed, &page);
    tess_status status = add_data(p, timed, &data);
    if (status == TESS_OK)
        status = tess__page_write(&page, &data, tess__asset_mix_js, path);
    tess__markup_free(&page);
    tess__markup_free(&data);
    return status;
}

tess_status tess_mix_report_write(tess_ctx *ctx, const tess_mix_plan *plan,
                                  const tess_mix_clip *clips, int64_t n,
                                  const tess_mix_report_opts *opts, const char *path)
{
    TESS_REQUIRE(ctx, plan, clips, path);
    static const tess_mix_report_opts none;
    mix_page p = {.ctx = ctx, .clips = clips, .n = n};
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess_mix_plan_query(plan, &p.v));
    if (n != p.v.clips)
        return tess__invalid(__func__, "n is %lld, must be %lld, the clips of the plan",
                             (long long)n, (long long)p.v.clips);
    p.each_rank = (p.v.ranks + RANKS_SHOWN - 1) / RANKS_SHOWN;
    const int shown = TESS_MAX(ROWS_SHOWN / TESS_MIN(p.v.ranks, RANKS_SHOWN), 1);
    p.each_step = (p.v.steps + shown - 1) / shown;
    tess_status status = list_sizes(&p, &arena);
    if (status == TESS_OK)
        status = write_page(&p, opts ? opts : &none, path);
    tess__arena_free(&arena);
    return status;
}
