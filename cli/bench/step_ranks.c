/* SPDX-License-Identifier: Apache-2.0 */
/* step_ranks.c - speed-up of a training step by ranks that share the tokens.
 *
 * Ranks are threads of this process, each with a context of one thread, a model of its own with
 * the same weights, and its rows of the tokens. Rank 0 also runs the whole step, on another
 * model. A step alone is forward and backward; on ranks it is the plan, forward, backward with the
 * reduce-scatter of gradients, and the all-gather of updated weights, as in training.
 *
 *   rank 0    | whole step | its part |  whole step | its part |       so that a slow period of
 *   rank 1    |   waits    | its part |    waits    | its part |       the machine affects both;
 *                                                                     medians are compared
 */
#include "step_ranks.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"
#include "tessera/cp.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLI_TRAIN
/* Seconds of one step of a rank: what is not computing. */
enum { PART_PLAN, PART_INDEX, PART_MOVE, PART_GRADIENTS, PARTS };

typedef struct {
    cli *c;
    problem p;
    int samples;
    double break_even;  /* measured by rank 0, for all */
    double *one, *many; /* (samples) of rank 0 */
    step_ranks_report *report;
    int profile_heads;
} job;

/* What a rank holds. */
typedef struct {
    job *j;
    cli c; /* a copy with the rank's context */
    tess_comm *comm;
    tess_comm_info group;
    workload alone; /* of rank 0: the whole step */
    workload w;
    tess_reduce *reduce; /* NULL without gradients */
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

static tess_status compute(workload *w, int kind)
{
    if (w->p.backward)
        TRY(tess_model_zero_gradients(w->model));
    return kind == STEP_SPARSE ? workload_step_learned(w) : workload_step_dense(w);
}

static tess_status waited(const state *s, double *seconds)
{
    tess_reduce_info info = {.waited_ns = 0};
    if (s->reduce)
        TRY(tess_reduce_query(s->reduce, &info));
    *seconds = (double)info.waited_ns * 1e-9;
    return TESS_OK;
}

/* The time of attention in all layers for indices and for packing rows. */
static tess_status add_moves(const state *s, double parts[PARTS])
{
    tess_cp_info info;
    TRY(tess_cp_view(s->w.context, &info));
    for (int layer = 0; layer < (int)s->w.p.layers; layer++) {
        tess_dist_stats stats;
        TRY(tess_dist_attn_stats(info.attn, layer, &stats));
        parts[PART_INDEX] += (double)stats.index_ns * 1e-9;
        parts[PART_MOVE] += (double)stats.move_ns * 1e-9;
    }
    return TESS_OK;
}

static tess_status step(state *s, int kind, int64_t number, const double *density,
                        double parts[PARTS])
{
    double before, after;
    const int64_t start = tess_clock_ns();
    TRY(tess_cp_plan(s->w.context, number, density, NULL));
    parts[PART_PLAN] += (double)(tess_clock_ns() - start) * 1e-9;
    TRY(waited(s, &before));
    TRY(compute(&s->w, kind));
    TRY(waited(s, &after));
    const int64_t computed = tess_clock_ns();
    if (s->reduce)
        TRY(tess_reduce_values(s->reduce));
    parts[PART_GRADIENTS] += after - before + (double)(tess_clock_ns() - computed) * 1e-9;
    return add_moves(s, parts);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The whole step, while the other ranks wait for what comes next. */
static tess_status time_alone(state *s, int kind, double *seconds)
{
    const int64_t start = tess_clock_ns();
    tess_status status = signals_caught() ? TESS_ESTOPPED : TESS_OK;
    if (status == TESS_OK && s->group.rank == 0)
        status = compute(&s->alone, kind);
    *seconds = (double)(tess_clock_ns() - start) * 1e-9;
    return world_agree(&s->c, s->comm, status);
}

/* From when all have come to when all are done. */
static tess_status time_ranks(state *s, int kind, int64_t number, const double *density,
                              double parts[PARTS], double *seconds)
{
    const int64_t start = tess_clock_ns();
    TRY(step(s, kind, number, density, parts));
    TRY(tess_comm_agree(s->comm, TESS_OK));
    *seconds = (double)(tess_clock_ns() - start) * 1e-9;
    return TESS_OK;
}

static double median(double *seconds, int n, double *best)
{
    const double middle = out_median(seconds, n);
    *best = seconds[0];
    return middle;
}

static void conclude(state *s, const double parts[PARTS], step_ranks_row *row)
{
    job *j = s->j;
    double all = 0;
    for (int i = 0; i < j->samples; i++)
        all += j->many[i] * s->group.size;
    row->plan = parts[PART_PLAN] / all;
    row->index = parts[PART_INDEX] / all;
    row->move = parts[PART_MOVE] / all;
    row->gradients = parts[PART_GRADIENTS] / all;
    row->one = median(j->one, j->samples, &row->one_best);
    row->many = median(j->many, j->samples, &row->many_best);
}

static tess_status describe_strategy(const state *s, char words[STEP_WORDS])
{
    const int layers = (int)s->w.p.layers;
    tess_cp_layer_info first, layer;
    int same = 0;
    TRY(tess_cp_layer(s->w.context, 0, &first));
    for (int i = 0; i < layers; i++) {
        TRY(tess_cp_layer(s->w.context, i, &layer));
        same += strcmp(first.words, layer.words) == 0;
    }
    if (same == layers)
        snprintf(words, STEP_WORDS, "%s", first.words);
    else
        snprintf(words, STEP_WORDS, "%s in %d of %d layers", first.words, same, layers);
    return TESS_OK;
}

static tess_status time_steps(state *s, int kind, const double *density)
{
    job *j = s->j;
    step_ranks_row *row = &j->report->rows[kind];
    double parts[PARTS] = {0};
    for (int i = -1; i < j->samples; i++) { /* the first makes plans, lists and pages */
        double one, many;
        if (i == 0)
            memset(parts, 0, sizeof parts);
        TRY(time_alone(s, kind, &one));
        TRY(time_ranks(s, kind, i + 1, density, parts, &many));
        if (i >= 0 && s->group.rank == 0) {
            j->one[i] = one;
            j->many[i] = many;
        }
    }
    TRY(tess_comm_allreduce(s->comm, TESS_TRAFFIC_CONTROL, parts, PARTS, TESS_DTYPE_F64,
                            TESS_REDUCE_SUM));
    if (s->group.rank > 0)
        return TESS_OK;
    conclude(s, parts, row);
    return describe_strategy(s, row->words);
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Rank 0 first, for what it measures holds for all. */
static tess_status make(state *s)
{
    job *j = s->j;
    problem p = j->p;
    tess_status status = TESS_OK;
    if (s->group.rank == 0) {
        status = workload_make(&s->c, &p, 1, &s->alone);
        j->break_even = s->alone.sparse.break_even;
        j->profile_heads = s->alone.profile_heads;
    }
    TRY(world_agree(&s->c, s->comm, status));
    p.break_even = fmax(j->break_even, DBL_MIN); /* 0 would be any */
    s->w.comm = s->comm;
    status = workload_make(&s->c, &p, 0, &s->w);
    if (status == TESS_OK && p.backward)
        status = tess_reduce_create(s->w.model, s->comm, TESS_OPTIM_MUON, &s->reduce);
    if (status == TESS_OK && p.backward)
        status = tess_reduce_attach(s->reduce, s->w.pass);
    return world_agree(&s->c, s->comm, status);
}

static tess_status run(state *s)
{
    void *density = NULL;
    const problem *p = &s->j->p;
    TRY(make(s));
    TRY(time_steps(s, STEP_DENSE, NULL));
    if (!problem_is_sparse_step(p))
        return TESS_OK;
    TRY(world_agree(&s->c, s->comm,
                    workload_take(&s->w, p->layers * p->heads, TESS_DTYPE_F64, &density)));
    running_densities(s, density);
    return time_steps(s, STEP_SPARSE, density);
}

/* What the command says of a failure is agreed on: rank 0 has it for all. */
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
    tess_reduce_destroy(s.reduce);
    workload_free(&s.w);
    workload_free(&s.alone);
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
    j.one = malloc(2 * (size_t)samples * sizeof *j.one);
    if (!j.one)
        return out_fail(c, TESS_ENOMEM, "no memory for %d samples", samples);
    j.many = j.one + samples;
    const tess_ctx_opts opts = {.isa = info.isa, .threads = 1, .progress = signals_progress};
    const tess_status status = tess_comm_threads(&opts, r->ranks, NULL, rank_main, &j);
    *profile_heads = j.profile_heads;
    free(j.one);
    return status;
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
    fprintf(c->out,
            "  step    1 rank ms  %d ranks ms  speed-up  planning   index  packing  gradients  "
            "strategy\n",
            r->ranks);
    for (int i = 0; i < r->kinds; i++) {
        const step_ranks_row *row = &r->rows[i];
        fprintf(c->out, "  %-6s %10.1f %11.1f %8.2fx %7.2f %% %5.2f %% %6.2f %% %8.2f %%  %s\n",
                kinds[i], row->one * 1e3, row->many * 1e3, row->one / row->many, 100 * row->plan,
                100 * row->index, 100 * row->move, 100 * row->gradients, row->words);
    }
}

void step_ranks_json(cli *c, json_t *object, const step_ranks_report *r)
{
    json_t *steps = json_array();
    for (int i = 0; i < r->kinds; i++) {
        const step_ranks_row *row = &r->rows[i];
        json_t *o = json_object();
        out_set(c, o, "name", json_string(kinds[i]));
        out_set(c, o, "seconds_one", out_number(row->one));
        out_set(c, o, "seconds_ranks", out_number(row->many));
        out_set(c, o, "seconds_one_best", out_number(row->one_best));
        out_set(c, o, "seconds_ranks_best", out_number(row->many_best));
        out_set(c, o, "speedup", out_number(row->one / row->many));
        out_set(c, o, "plan_share", out_number(row->plan));
        out_set(c, o, "index_share", out_number(row->index));
        out_set(c, o, "move_share", out_number(row->move));
        out_set(c, o, "gradient_share", out_number(row->gradients));
        out_set(c, o, "strategy", json_string(row->words));
        out_append(c, steps, o);
    }
    out_set(c, object, "ranks", json_integer(r->ranks));
    out_set(c, object, "steps", steps);
}
