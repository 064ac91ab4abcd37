/* SPDX-License-Identifier: Apache-2.0 */
/* step_ranks.c - how much faster ranks that share the tokens make a training step.
 *
 * Ranks are threads of this process, each with a context of one thread, a model of its own with
 * the same weights, and its rows of the tokens. A step is the plan, forward, backward and the sum
 * of all gradients; alone it is forward and backward. Both are timed by the wall clock in one run,
 * the best of some samples each.
 */
#include "step_ranks.h"

#include "tessera/context.h"

#include <math.h>
#include <string.h>

#ifdef CLI_TRAIN
typedef struct {
    cli *c;
    problem p;
    int samples;
    double break_even; /* measured alone, the same for all ranks */
    step_ranks_report *report;
    int profile_heads;
} job;

/* What a rank holds. */
typedef struct {
    job *j;
    cli c; /* a copy with the rank's context */
    tess_comm *comm;
    tess_comm_info group;
    workload w;
    tess_model_info model;
} state;

/* ---- one step -------------------------------------------------------------------------------- */

/* Densities that plans are made for: those that run. */
static void running_densities(state *s, double *density)
{
    const problem *p = &s->w.p;
    for (int64_t i = 0; i < p->layers * p->heads; i++) {
        const double asked = s->w.sparse.densities[i];
        density[i] = asked >= s->w.sparse.break_even ? 1 : asked;
    }
}

static tess_status step(state *s, int kind, int64_t number, const double *density, double *plan,
                        double *sum)
{
    workload *w = &s->w;
    const int64_t start = tess_clock_ns();
    if (w->context)
        TRY(tess_context_plan(w->context, number, kind == STEP_SPARSE ? density : NULL, NULL));
    const int64_t planned = tess_clock_ns();
    TRY(kind == STEP_SPARSE ? workload_step_learned(w) : workload_step_dense(w));
    const int64_t computed = tess_clock_ns();
    if (w->context && w->p.backward)
        TRY(tess_comm_sum_f32(s->comm, TESS_TRAFFIC_PAYLOAD, s->model.gradients, s->model.count));
    *plan = (double)(planned - start) * 1e-9;
    *sum = (double)(tess_clock_ns() - computed) * 1e-9;
    return TESS_OK;
}

/* From when all have come to when all are done; rank 0 keeps the best. */
static tess_status time_steps(state *s, int kind, const double *density)
{
    step_ranks_report *r = s->j->report;
    double best = INFINITY, plan, sum;
    for (int i = 0; i <= s->j->samples; i++) { /* the first makes plans, lists and pages */
        TRY(tess_comm_agree(s->comm, signals_caught() ? TESS_ESTOPPED : TESS_OK));
        const int64_t start = tess_clock_ns();
        TRY(step(s, kind, i, density, &plan, &sum));
        TRY(tess_comm_agree(s->comm, TESS_OK));
        const double seconds = (double)(tess_clock_ns() - start) * 1e-9;
        if (i == 0 || seconds >= best || s->group.rank > 0)
            continue;
        best = seconds;
        *(s->group.size > 1 ? &r->many[kind] : &r->one[kind]) = seconds;
        if (s->group.size > 1) {
            r->plan[kind] = plan;
            r->sum[kind] = sum;
        }
    }
    tess_context_layer_info layer;
    if (s->w.context && s->group.rank == 0) {
        TRY(tess_context_layer(s->w.context, 0, &layer));
        snprintf(r->words[kind], STEP_WORDS, "%s", layer.words);
    }
    return TESS_OK;
}

/* ---- one rank -------------------------------------------------------------------------------- */

static tess_status run(state *s)
{
    job *j = s->j;
    void *density = NULL;
    problem p = j->p;
    p.break_even = j->break_even > 0 ? j->break_even : p.break_even;
    s->w.comm = s->group.size > 1 ? s->comm : NULL;
    tess_status status = workload_make(&s->c, &p, s->group.size == 1, &s->w);
    TRY(tess_comm_agree(s->comm, status));
    TRY(tess_model_query(s->w.model, &s->model));
    TRY(time_steps(s, STEP_DENSE, NULL));
    if (!problem_is_sparse_step(&p))
        return TESS_OK;
    if (s->group.size == 1) {
        j->break_even = s->w.sparse.break_even;
        j->profile_heads = s->w.profile_heads;
    }
    TRY(workload_take(&s->w, p.layers * p.heads, TESS_DTYPE_F64, &density));
    running_densities(s, density);
    return time_steps(s, STEP_SPARSE, density);
}

/* The CLI's sentence becomes the thread's, so that it reaches the caller of the ranks. */
static tess_status rank_main(void *user, tess_ctx *ctx, tess_comm *comm)
{
    job *j = user;
    state s = {.j = j, .c = *j->c, .comm = comm};
    s.c.ctx = ctx;
    s.c.sentence[0] = 0;
    TRY(tess_comm_query(comm, &s.group));
    const tess_status status = run(&s);
    if (status != TESS_OK && s.c.sentence[0] && s.group.rank == 0)
        memcpy(j->c->sentence, s.c.sentence, sizeof s.c.sentence);
    workload_free(&s.w);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

tess_status step_ranks_measure(cli *c, const problem *p, int samples, step_ranks_report *r,
                               int *profile_heads)
{
    tess_ctx_info info;
    *r = (step_ranks_report){.ranks = (int)p->ranks,
                             .kinds = problem_is_sparse_step(p) ? STEP_KINDS : 1};
    job j = {.c = c, .p = *p, .samples = samples, .report = r};
    TRY(tess_ctx_query(c->ctx, &info));
    const tess_ctx_opts opts = {.isa = info.isa, .threads = 1};
    TRY(tess_comm_threads(&opts, 1, NULL, rank_main, &j));
    *profile_heads = j.profile_heads;
    return tess_comm_threads(&opts, r->ranks, NULL, rank_main, &j);
}
#else
tess_status step_ranks_measure(cli *c, const problem *p, int samples, step_ranks_report *r,
                               int *profile_heads)
{
    (void)profile_heads;
    (void)p;
    (void)samples;
    (void)r;
    return out_fail(c, TESS_ENOTSUP, "step: this build has no oneDNN");
}
#endif

/* ---- output ---------------------------------------------------------------------------------- */

static const char *const kinds[STEP_KINDS] = {"dense", "sparse"};

void step_ranks_print(const cli *c, const char *text, const step_ranks_report *r)
{
    fprintf(c->out, "%s%s%s\n", out_style(c, STYLE_BOLD), text, out_style(c, STYLE_PLAIN));
    fprintf(c->out, "  step    1 rank ms  %d ranks ms  speed-up  planning  gradients  strategy\n",
            r->ranks);
    for (int i = 0; i < r->kinds; i++)
        fprintf(c->out, "  %-6s %10.1f %11.1f %8.2fx %7.2f %% %8.2f %%  %s\n", kinds[i],
                r->one[i] * 1e3, r->many[i] * 1e3, r->one[i] / r->many[i],
                100 * r->plan[i] / r->many[i], 100 * r->sum[i] / r->many[i], r->words[i]);
}

void step_ranks_json(cli *c, json_t *object, const step_ranks_report *r)
{
    json_t *steps = json_array();
    for (int i = 0; i < r->kinds; i++) {
        json_t *o = json_object();
        out_set(c, o, "name", json_string(kinds[i]));
        out_set(c, o, "seconds_one", out_number(r->one[i]));
        out_set(c, o, "seconds_ranks", out_number(r->many[i]));
        out_set(c, o, "speedup", out_number(r->one[i] / r->many[i]));
        out_set(c, o, "plan_share", out_number(r->plan[i] / r->many[i]));
        out_set(c, o, "gradient_share", out_number(r->sum[i] / r->many[i]));
        out_set(c, o, "strategy", json_string(r->words[i]));
        out_append(c, steps, o);
    }
    out_set(c, object, "ranks", json_integer(r->ranks));
    out_set(c, object, "steps", steps);
}
