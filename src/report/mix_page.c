/* SPDX-License-Identifier: Apache-2.0 */
/* mix_page.c - the page of a mixture plan: imbalance by step, and what each rank of a step has.
 *
 *   {"timed":1,"sizes":[[least tokens,most,clips,cut clips],..],"before":[[step,..],..],"after":..,
 *    "steps":[{"step":..,"ranks":[[compute,exchange,memory,[size,clips,tokens,cut,..]],..]},..]}
 *
 * A size is a number of tokens, or a run of them where there are more than SIZES; sizes descend. A
 * rank's list has four numbers for each size that it has: whole clips, their tokens, and those of
 * parts. Cost: O(parts log clips).
 */
#include "assets.h"
#include "report_internal.h"
#include "tessera/advanced/mix_report.h"

#include <stdlib.h>
#include <string.h>

enum {
    SIZES = 16,
    POINTS_SHOWN = 1024,   /* steps of a line */
    RANKS_SHOWN = 1024,    /* of a step */
    STEPS_BYTES = 3 << 19, /* of all steps that are drawn, at most */
    RANK_BYTES = 48,       /* of a rank without its sizes */
    SIZE_BYTES = 30
};

typedef struct {
    int64_t least, most; /* tokens */
    int64_t clips, cut;
} size_row;

typedef struct {
    int64_t clips, tokens, cut;
} of_size;

typedef struct {
    tess_ctx *ctx;
    const tess_mix_clip *clips;
    int64_t n;
    tess_mix_view v;
    size_row sizes[SIZES]; /* (n_sizes), descending */
    int n_sizes;
    of_size of[SIZES]; /* of one rank */
    int each_rank, each_step;
} mix_page;

/* ---- sizes ----------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static size_row *size_of(mix_page *p, int64_t clip)
{
    int low = 0, high = p->n_sizes;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (p->sizes[middle].most >= p->clips[clip].tokens)
            low = middle;
        else
            high = middle;
    }
    return &p->sizes[low];
}

static int is_whole(const mix_page *p, const tess_mix_part *part)
{
    return part->token_begin == 0 && part->token_end == p->clips[part->clip].tokens;
}

/* The sizes of all clips, in runs of equal length where there are too many. */
static tess_status list_sizes(mix_page *p)
{
    int64_t n = 0;
    int64_t *list = TESS_ALLOC(p->ctx, tess__bytes((size_t)p->n, sizeof *list));
    for (int64_t i = 0; i < p->n; i++)
        list[i] = p->clips[i].tokens;
    qsort(list, (size_t)p->n, sizeof *list, descending);
    for (int64_t i = 0; i < p->n; i++)
        if (i == 0 || list[i] != list[n - 1])
            list[n++] = list[i];
    p->n_sizes = (int)TESS_MIN(n, SIZES);
    for (int64_t i = 0; i < p->n_sizes; i++)
        p->sizes[i] = (size_row){.most = list[i * n / p->n_sizes],
                                 .least = list[(i + 1) * n / p->n_sizes - 1]};
    tess__free(p->ctx, list);
    for (int64_t i = 0; i < p->n; i++)
        size_of(p, i)->clips++;
    for (int64_t i = 0; i < p->v.n_parts; i++) { /* once a clip: at its first token */
        const tess_mix_part *part = &p->v.parts[i];
        const int begins = part->token_begin == 0 && part->token_end > 0;
        size_of(p, part->clip)->cut += begins && !is_whole(p, part);
    }
    return TESS_OK;
}

/* Which ranks and steps are drawn. */
static void choose(mix_page *p)
{
    const int ranks = p->v.ranks;
    int64_t parts = 0; /* of a step, at most */
    for (int step = 0; step < p->v.steps; step++) {
        const int64_t *first = p->v.first + (int64_t)step * ranks;
        parts = TESS_MAX(parts, first[ranks] - first[0]);
    }
    p->each_rank = (ranks + RANKS_SHOWN - 1) / RANKS_SHOWN;
    const int64_t bytes = RANK_BYTES * (int64_t)ranks + SIZE_BYTES * parts; /* of all ranks */
    while (bytes / p->each_rank > STEPS_BYTES && p->each_rank < ranks)
        p->each_rank *= 2;
    const int64_t shown = TESS_MAX(STEPS_BYTES * (int64_t)p->each_rank / bytes, 1);
    p->each_step = (int)((p->v.steps + shown - 1) / shown);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void add_rank(mix_page *p, int step, int rank, tess__jw *w)
{
    const int64_t at = (int64_t)step * p->v.ranks + rank;
    const tess_mix_rank *r = &p->v.rank[at];
    memset(p->of, 0, sizeof p->of);
    for (int64_t i = p->v.first[at]; i < p->v.first[at + 1]; i++) {
        const tess_mix_part *part = &p->v.parts[i];
        of_size *of = &p->of[size_of(p, part->clip) - p->sizes];
        const int64_t tokens = part->token_end - part->token_begin;
        const int whole = is_whole(p, part);
        of->clips += whole;
        of->tokens += whole ? tokens : 0;
        of->cut += whole ? 0 : tokens;
    }
    tess__jw_begin(w, NULL, '[');
    tess__jw_real(w, NULL, r->compute);
    tess__jw_int(w, NULL, r->exchange);
    tess__jw_int(w, NULL, r->memory);
    tess__jw_begin(w, NULL, '[');
    for (int i = 0; i < p->n_sizes; i++)
        if (p->of[i].tokens + p->of[i].cut > 0) {
            tess__jw_int(w, NULL, i);
            tess__jw_int(w, NULL, p->of[i].clips);
            tess__jw_int(w, NULL, p->of[i].tokens);
            tess__jw_int(w, NULL, p->of[i].cut);
        }
    tess__jw_end(w, ']');
    tess__jw_end(w, ']');
}

/* [[step, imbalance], ..] */
static void add_imbalance(const mix_page *p, const char *key, int before, tess__jw *w)
{
    const int each = (p->v.steps + POINTS_SHOWN - 1) / POINTS_SHOWN;
    tess__jw_begin(w, key, '[');
    for (int i = 0; i < p->v.steps; i += each) {
        tess__jw_begin(w, NULL, '[');
        tess__jw_int(w, NULL, i);
        tess__jw_real(w, NULL, before ? p->v.step[i].rho_before : p->v.step[i].rho);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

static tess_status add_data(mix_page *p, int timed, tess__markup *text)
{
    tess__jw w = tess__markup_json(text, 5);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "timed", timed);
    tess__jw_begin(&w, "sizes", '[');
    for (int i = 0; i < p->n_sizes; i++) {
        const size_row *s = &p->sizes[i];
        tess__jw_row_i64(&w, NULL, (int64_t[]){s->least, s->most, s->clips, s->cut}, 4);
    }
    tess__jw_end(&w, ']');
    add_imbalance(p, "before", 1, &w);
    add_imbalance(p, "after", 0, &w);
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
                       : "Work of each rank over its speed, in TFLOP of the fastest one.";
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
    TESS_TRY(tess_mix_plan_query(plan, &p.v));
    if (n != p.v.clips)
        return tess__invalid(__func__, "n is %lld, must be %lld, the clips of the plan",
                             (long long)n, (long long)p.v.clips);
    TESS_TRY(list_sizes(&p));
    choose(&p);
    return write_page(&p, opts ? opts : &none, path);
}
