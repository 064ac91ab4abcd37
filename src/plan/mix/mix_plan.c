/* SPDX-License-Identifier: Apache-2.0 */
/* mix_plan.c - tess_mix_plan_create: the clips of each step, laid on the ranks.
 *
 * A step is laid within several time limits a little above the mean, each raised until every clip
 * has its place. A wider limit needs fewer cuts: with a cluster the least predicted time wins, and
 * exchanges of cut clips are part of it; without one the fewest cuts. The cuts of each laying are
 * then settled: time moves between the ranks of a cut clip until they come out alike. Where memory
 * is short, clips with many tokens for their time are laid first as well, so that they spread over
 * all ranks.
 *
 * Cost: some layings of O(clips log ranks): 512 clips on 64 ranks take 0.1 to 0.2 ms.
 */
#include "mix_plan.h"

#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

enum { LIMITS = 3, RAISES = 40, SETTLES = 3 };
static const double EVEN = 1.001; /* an imbalance that is good enough */
static const double SLACK[LIMITS] = {0.0005, 0.003, 0.006};

/* ---- one step -------------------------------------------------------------------------------- */

typedef struct {
    tess__mix_lay lay;
    tess_traffic *traffic; /* (3 * ranks) */
    int64_t *ns;           /* (ranks) */
    int64_t *by_tokens;    /* (n) */
    double *times;         /* (ranks) */
    tess__mix_price tried, best;
    int64_t n_best; /* parts of the best; 0: none yet */
} scratch;

static tess_status make_scratch(tess__arena *arena, const tess__mix_rules *r, int64_t most,
                                scratch *s)
{
    const size_t ranks = (size_t)r->ranks, n = (size_t)most, parts = n + ranks;
    tess__mix_lay *lay = &s->lay;
    lay->tree.key = TESS_TAKE(arena, tess__mix_tree_bytes(r->ranks));
    lay->room = TESS_TAKE(arena, ranks * sizeof *lay->room);
    lay->node_room = TESS_TAKE(arena, (size_t)r->nodes * sizeof *lay->node_room);
    lay->node_done = TESS_TAKE(arena, (size_t)r->nodes * sizeof *lay->node_done);
    lay->memory = TESS_TAKE(arena, ranks * sizeof *lay->memory);
    lay->pieces = TESS_TAKE(arena, parts * sizeof *lay->pieces);
    s->traffic = TESS_TAKE(arena, 3 * ranks * sizeof *s->traffic);
    s->ns = TESS_TAKE(arena, ranks * sizeof *s->ns);
    s->times = TESS_TAKE(arena, ranks * sizeof *s->times);
    s->by_tokens = TESS_TAKE(arena, n * sizeof *s->by_tokens);
    s->tried.parts = TESS_TAKE(arena, parts * sizeof *s->tried.parts);
    s->best.parts = TESS_TAKE(arena, parts * sizeof *s->best.parts);
    s->tried.rank = TESS_TAKE(arena, ranks * sizeof *s->tried.rank);
    s->best.rank = TESS_TAKE(arena, ranks * sizeof *s->best.rank);
    return TESS_OK;
}

/* Lays the clips within the least limit that does, from `limit` on; 0: none does. */
static int lay_all(tess__mix_lay *lay, double limit)
{
    const double total_speed = lay->rules->total_speed;
    double growth = 0.0002;
    for (int i = 0; i < RAISES; i++) {
        const double left = tess__mix_lay_run(lay, limit);
        if (left <= 0.0)
            return 1;
        if (lay->rules->whole_clips)
            return 0;
        /* Time was short: by what is left. Memory was: by ever more. */
        const double more = left / total_speed;
        limit += TESS_MAX(more * 1.01, limit * growth);
        growth = i < 3 ? growth : i == 3 ? 0.002 : TESS_MIN(growth * (i < 8 ? 1.0 : 2.0), 1.0);
    }
    return 0;
}

/* Whether the price that was tried beats the best. */
static int is_better(const scratch *s, const tess__mix_rules *r)
{
    const tess__mix_price *a = &s->tried, *b = &s->best;
    if (!s->n_best)
        return 1;
    if (!r->cluster && a->cuts != b->cuts && a->time < b->time * 1.01 && b->time < a->time * 1.01)
        return a->cuts < b->cuts;
    return a->time != b->time ? a->time < b->time : a->cuts < b->cuts;
}

static int fits_memory(const tess__mix_rules *r, const tess__mix_price *price)
{
    for (int p = 0; r->memory && p < r->ranks; p++)
        if (price->rank[p].memory > r->memory)
            return 0;
    return 1;
}

/* Moves time between the parts of each cut clip, so that its ranks come out alike; times (ranks)
 * are those that ranks take now, exchanges among them. */
static void settle(tess__mix_lay *lay, double *times)
{
    const double *speed = lay->rules->speed;
    for (int64_t i = 0, end; i < lay->n_pieces; i = end) {
        tess__mix_piece *const pieces = lay->pieces;
        double time = 0.0, speeds = 0.0;
        for (end = i; end < lay->n_pieces && pieces[end].clip == pieces[i].clip; end++) {
            time += times[pieces[end].rank] * speed[pieces[end].rank];
            speeds += speed[pieces[end].rank];
        }
        if (end == i + 1)
            continue;
        double sum = 0.0;
        for (int64_t k = i; k < end; k++) {
            const double more = (time / speeds - times[pieces[k].rank]) * speed[pieces[k].rank];
            pieces[k].time = TESS_MAX(pieces[k].time + more, pieces[k].time * 0.1);
            sum += pieces[k].time;
        }
        for (int64_t k = i; k < end; k++) {
            pieces[k].time *= lay->work[pieces[k].clip].total / sum;
            times[pieces[k].rank] = time / speeds;
        }
    }
}

/* Prices the laying, and keeps it if it is the best so far; then the same with settled cuts. */
static void consider(scratch *s, int step)
{
    const tess__mix_rules *r = s->lay.rules;
    for (int round = 0; round < SETTLES; round++) {
        tess__mix_price_of(&s->lay, step, s->traffic, s->ns, &s->tried);
        for (int p = 0; p < r->ranks; p++)
            s->times[p] = s->tried.rank[p].compute + (double)s->tried.rank[p].exchange;
        const int even = !s->tried.cuts || s->tried.time <= s->tried.mean * EVEN;
        if (fits_memory(r, &s->tried) && is_better(s, r)) {
            const tess__mix_price kept = s->best;
            s->best = s->tried;
            s->tried = kept;
            s->n_best = s->lay.n_pieces;
        }
        if (even)
            return;
        settle(&s->lay, s->times);
    }
}

static tess_status does_not_fit(const char *who, const tess__mix_rules *r, double bytes)
{
    const double gib = 1073741824.0, has = (double)r->memory * r->ranks;
    if (bytes > has)
        return tess__invalid(who,
                             "the clips of a step need %.4g GiB, and %d ranks of %.4g GiB have "
                             "%.4g: %.4g GiB too little",
                             bytes / gib, r->ranks, (double)r->memory / gib, has / gib,
                             (bytes - has) / gib);
    return tess__invalid(who,
                         "the clips of a step need %.4g GiB of the %.4g GiB of %d ranks, but %s "
                         "within %.4g GiB a rank",
                         bytes / gib, has / gib, r->ranks,
                         r->whole_clips ? "whole clips do not go" : "keys of cut clips do not go",
                         (double)r->memory / gib);
}

/* EINVAL where a clip, or all clips of the step together, are larger than the memory there is. */
static tess_status check_memory(const char *who, const tess__mix_lay *lay)
{
    const tess__mix_rules *r = lay->rules;
    double bytes = 0.0;
    if (!r->memory)
        return TESS_OK;
    for (int64_t i = 0; i < lay->n; i++) {
        const double clip = (double)lay->work[lay->order[i]].tokens * (double)r->token_bytes;
        if (r->whole_clips && clip > (double)r->memory)
            return tess__invalid(who,
                                 "clip %lld of %lld tokens needs %.4g GiB in one piece, a rank "
                                 "has %.4g",
                                 (long long)lay->order[i],
                                 (long long)lay->work[lay->order[i]].tokens, clip / 1073741824.0,
                                 (double)r->memory / 1073741824.0);
        bytes += clip;
    }
    return bytes > (double)r->memory * r->ranks ? does_not_fit(who, r, bytes) : TESS_OK;
}

static tess_status plan_step(const char *who, tess_ctx *ctx, scratch *s, int step)
{
    tess__mix_lay *lay = &s->lay;
    const tess__mix_rules *r = lay->rules;
    const int64_t *order = lay->order;
    double total = 0.0, bytes = 0.0;
    int short_of_memory = 0;
    TESS_TRY(check_memory(who, lay));
    for (int64_t i = 0; i < lay->n; i++) {
        total += lay->work[order[i]].total;
        bytes += (double)lay->work[order[i]].tokens * (double)r->token_bytes;
    }
    s->n_best = 0;
    for (int i = 0; i < (r->whole_clips ? 1 : LIMITS); i++) {
        if (lay_all(lay, total / r->total_speed * (1.0 + SLACK[i])))
            consider(s, step);
        short_of_memory |= lay->short_of_memory;
        if (s->n_best && s->best.cuts == 0 && s->best.time <= s->best.mean * EVEN)
            break;
    }
    if (short_of_memory) {
        TESS_TRY(tess__mix_by_tokens(ctx, lay->work, order, lay->n, s->by_tokens));
        lay->order = s->by_tokens;
        if (lay_all(lay, total / r->total_speed * (1.0 + SLACK[1])))
            consider(s, step);
        lay->order = order;
    }
    return s->n_best || !lay->n ? TESS_OK : does_not_fit(who, r, bytes);
}

/* ---- the plan -------------------------------------------------------------------------------- */

typedef struct {
    tess_mix_part *parts;
    int64_t n, room;
    int64_t *first;
    tess_mix_rank *rank;
    tess_mix_step *step;
} gathered;

/* Adds the best laying of a step, its parts by rank and clip. */
static tess_status gather(tess_ctx *ctx, const scratch *s, int step, gathered *g,
                          tess_mix_view *view)
{
    const int ranks = s->lay.rules->ranks;
    const size_t at = (size_t)step * (size_t)ranks;
    int64_t *first = g->first + at;
    TESS_GROW(ctx, g->parts, g->n, g->n + s->n_best, g->room);
    for (int p = 0; p <= ranks; p++)
        first[p] = 0;
    for (int64_t i = 0; i < s->n_best; i++)
        first[s->best.parts[i].rank + 1]++;
    first[0] = g->n;
    for (int p = 0; p < ranks; p++)
        first[p + 1] += first[p];
    for (int64_t i = 0; i < s->n_best; i++)
        g->parts[first[s->best.parts[i].rank]++] = s->best.parts[i];
    for (int p = ranks; p > 0; p--)
        first[p] = first[p - 1];
    first[0] = g->n;
    g->n += s->n_best;
    memcpy(g->rank + at, s->best.rank, (size_t)ranks * sizeof *g->rank);
    tess_mix_step *t = &g->step[step];
    t->time = s->best.time;
    t->rho = s->best.mean > 0.0 ? s->best.time / s->best.mean : 1.0;
    view->cuts += s->best.cuts;
    view->cut_clips += s->best.cut_clips;
    view->far_clips += s->best.far_clips;
    for (int p = 0; p < ranks; p++)
        view->memory = TESS_MAX(view->memory, s->best.rank[p].memory);
    return TESS_OK;
}

/* Parts of a rank ascend by clip. */
static int by_clip(const void *a, const void *b)
{
    const tess_mix_part *x = a, *y = b;
    return (x->clip > y->clip) - (x->clip < y->clip);
}

static void summarise(tess_mix_view *v, int predicted)
{
    const double n = v->steps;
    double time = 0.0;
    for (int s = 0; s < v->steps; s++) {
        const tess_mix_step *t = &v->step[s];
        v->rho_mean += t->rho / n;
        v->rho_max = TESS_MAX(v->rho_max, t->rho);
        v->rho_before_mean += t->rho_before / n;
        v->rho_before_max = TESS_MAX(v->rho_before_max, t->rho_before);
        time += t->time / n;
    }
    v->predicted_ms = predicted ? time / 1e6 : -1.0;
}

static tess_status plan_steps(const char *who, tess_mix_plan *plan, const tess_mix_clip *clips,
                              int64_t n, tess__arena *temporary, gathered *g)
{
    const tess__mix_rules *r = &plan->rules;
    const int steps = plan->view.steps;
    int64_t *order = TESS_TAKE(temporary, (size_t)n * sizeof *order);
    int64_t *begin = TESS_TAKE(temporary, ((size_t)steps + 1) * sizeof *begin);
    TESS_TRY(tess__mix_steps(plan->ctx, plan->work, n, steps, order, begin));
    int64_t most = 1;
    for (int s = 0; s < steps; s++)
        most = TESS_MAX(most, begin[s + 1] - begin[s]);
    scratch s = {.lay = {.rules = r, .work = plan->work}};
    TESS_TRY(make_scratch(temporary, r, most, &s));
    for (int step = 0; step < steps; step++) {
        s.lay.order = order + begin[step];
        s.lay.n = begin[step + 1] - begin[step];
        TESS_TRY(plan_step(who, plan->ctx, &s, step));
        TESS_TRY(gather(plan->ctx, &s, step, g, &plan->view));
        g->step[step].rho_before = tess__mix_rho_before(r, clips, plan->work, step * n / steps,
                                                        (step + 1) * n / steps, s.times);
    }
    for (int64_t i = 0; i < (int64_t)steps * r->ranks; i++)
        qsort(g->parts + g->first[i], (size_t)(g->first[i + 1] - g->first[i]), sizeof *g->parts,
              by_clip);
    return TESS_OK;
}

static tess_status check_clips(const char *who, const tess__mix_rules *r,
                               const tess_mix_clip *clips, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const tess_mix_clip *c = &clips[i];
        if (c->tokens < 1 || c->tokens > INT32_MAX)
            return tess__invalid(who, "clip %lld has %lld tokens, must be 1..2147483647",
                                 (long long)i, (long long)c->tokens);
        if (!(c->density >= 0.0 && c->density <= 1.0))
            return tess__invalid(who, "clip %lld has density %g, must be 0..1", (long long)i,
                                 c->density);
        if (c->drawn_by < -1 || c->drawn_by >= r->ranks)
            return tess__invalid(who, "clip %lld has drawn_by %d, must be -1..%d", (long long)i,
                                 c->drawn_by, r->ranks - 1);
        if (c->heads && c->n_heads != r->heads)
            return tess__invalid(who, "clip %lld has densities of %d heads, the model has %d",
                                 (long long)i, c->n_heads, r->heads);
        for (int h = 0; c->heads && h < r->heads; h++)
            if (!(c->heads[h] >= 0.0 && c->heads[h] <= 1.0))
                return tess__invalid(who, "clip %lld has density %g in head %d, must be 0..1",
                                     (long long)i, c->heads[h], h);
    }
    return TESS_OK;
}

/* Work of every clip. */
static tess_status weigh(tess_mix_plan *plan, const tess_mix_clip *clips, int64_t n)
{
    tess__mix_work *work = TESS_TAKE(&plan->arena, (size_t)n * sizeof *work);
    const size_t heads = (size_t)plan->rules.heads + 1;
    for (int64_t i = 0; i < n; i++) {
        const int again = i > 0 && clips[i].heads && clips[i].heads == clips[i - 1].heads &&
                          clips[i].tokens == clips[i - 1].tokens;
        double *own = NULL;
        if (clips[i].heads && !again)
            own = TESS_TAKE(&plan->arena, heads * sizeof *own);
        work[i] = again ? work[i - 1] : tess__mix_work_of(&plan->rules, &clips[i], own);
    }
    plan->work = work;
    return TESS_OK;
}

static tess_status build(const char *who, tess_mix_plan *plan, const tess_mix_clip *clips,
                         int64_t n)
{
    const size_t cells = (size_t)plan->view.steps * (size_t)plan->view.ranks;
    tess__arena temporary = {.ctx = plan->ctx};
    gathered g = {.first = tess__arena_take(&plan->arena, (cells + 1) * sizeof *g.first),
                  .rank = tess__arena_take(&plan->arena, cells * sizeof *g.rank),
                  .step =
                      tess__arena_take(&plan->arena, (size_t)plan->view.steps * sizeof *g.step)};
    tess_status status = g.first && g.rank && g.step ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = plan_steps(who, plan, clips, n, &temporary, &g);
    tess__arena_free(&temporary);
    tess_mix_part *parts = NULL;
    if (status == TESS_OK) {
        parts = tess__arena_take(&plan->arena, (size_t)g.n * sizeof *parts);
        status = parts ? TESS_OK : TESS_ENOMEM;
    }
    if (status == TESS_OK)
        memcpy(parts, g.parts, (size_t)g.n * sizeof *parts);
    tess__free(plan->ctx, g.parts);
    plan->view.parts = parts;
    plan->view.n_parts = g.n;
    plan->view.first = g.first;
    plan->view.rank = g.rank;
    plan->view.step = g.step;
    return status;
}

tess_status tess_mix_plan_create(tess_ctx *ctx, const tess_mix_clip *clips, int64_t n,
                                 const tess_cluster *cluster, const tess_mix_opts *opts,
                                 tess_mix_plan **plan)
{
    TESS_REQUIRE(ctx, clips, opts, plan);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, TESS_MIX_CLIPS_MAX));
    tess__arena arena = {.ctx = ctx};
    tess_mix_plan *made = tess__arena_take(&arena, sizeof *made);
    tess_status status = made ? TESS_OK : TESS_ENOMEM;
    tess__mix_rules rules;
    if (status == TESS_OK)
        status = tess__mix_rules_make(__func__, &arena, cluster, opts, &rules);
    if (status == TESS_OK)
        status = check_clips(__func__, &rules, clips, n);
    if (status == TESS_OK) {
        *made = (tess_mix_plan){.ctx = ctx, .arena = arena, .rules = rules};
        made->view = (tess_mix_view){
            .clips = n, .ranks = rules.ranks, .nodes = rules.nodes, .steps = opts->steps};
        status = weigh(made, clips, n);
        if (status == TESS_OK)
            status = build(__func__, made, clips, n);
        arena = made->arena;
    }
    if (status != TESS_OK) {
        tess__arena_free(&arena);
        return status;
    }
    made->rules.cluster = NULL; /* the caller's, who may destroy it */
    summarise(&made->view, cluster != NULL);
    *plan = made;
    return TESS_OK;
}

tess_status tess_mix_plan_query(const tess_mix_plan *plan, tess_mix_view *view)
{
    TESS_REQUIRE(plan, view);
    *view = plan->view;
    return TESS_OK;
}

void tess_mix_plan_destroy(tess_mix_plan *plan)
{
    if (!plan)
        return;
    tess__arena arena = plan->arena;
    tess__arena_free(&arena);
}
