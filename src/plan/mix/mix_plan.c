/* SPDX-License-Identifier: Apache-2.0 */
/* mix_plan.c - tess_mix_plan_create: the clips of each step, laid on the ranks.
 *
 * Cost: some layings of O(clips log ranks) a step: 512 clips on 64 ranks take 0.1 to 0.2 ms.
 */
#include "mix_plan.h"

#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tess_mix_part *parts;
    int64_t n, room;
    int64_t *first;
    tess_mix_rank *rank;
    tess_mix_step *step;
} gathered;

/* Adds the best laying of a step, its parts by rank and clip. */
static tess_status gather(tess_ctx *ctx, const tess__mix_scratch *s, int step, gathered *g,
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
    tess__mix_scratch s = {.lay = {.rules = r, .work = plan->work}};
    TESS_TRY(tess__mix_scratch_make(temporary, r, most, &s));
    for (int step = 0; step < steps; step++) {
        s.lay.order = order + begin[step];
        s.lay.n = begin[step + 1] - begin[step];
        TESS_TRY(tess__mix_step_plan(who, plan->ctx, &s, step));
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
