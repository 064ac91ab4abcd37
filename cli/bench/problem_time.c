/* SPDX-License-Identifier: Apache-2.0 */
/* problem_time.c - times a problem's calls in one run: dense, sparse, selection; or a linear
 * layer, or a training step.
 *
 * Each is timed by tess_timing_run, which probes the peak of all threads around every sample: that
 * of FMAs, or of products in bf16 where the problem has these.
 * Fractions of the peak refer to the peak of one thread alone times the number of threads: that of
 * cores which do not disturb each other.
 */
#include "problem_time.h"

#include <math.h>
#include <string.h>

enum { PEAK_SAMPLES = 5 };

typedef struct {
    workload *w;
    tess_status (*call)(workload *w, const tess_selection *sel);
    const tess_selection *sel;
} timed;

static tess_status run_timed(void *user)
{
    const timed *t = user;
    return t->call(t->w, t->sel);
}

static tess_status call_select(workload *w, const tess_selection *sel)
{
    (void)sel;
    return workload_select(w);
}

static tess_status call_linear(workload *w, const tess_selection *sel)
{
    (void)sel;
    return workload_linear(w);
}

static tess_status call_step(workload *w, const tess_selection *sel)
{
    (void)sel;
    return workload_step(w);
}

static tess_status call_nothing(void *user)
{
    (void)user;
    return TESS_OK;
}

/* The peak of one thread, measured while the others rest. */
static tess_status measure_peak_one(const workload_products *products, double *peak)
{
    tess_ctx *one = NULL;
    tess_timing t;
    const tess_timing_opts opts = {.samples = PEAK_SAMPLES, .probe = products->precision};
    TRY(tess_ctx_create(&(tess_ctx_opts){.isa = products->isa, .threads = 1}, &one));
    const tess_status status = tess_timing_run(one, &opts, call_nothing, NULL, &t);
    if (status == TESS_OK)
        *peak = fmax(*peak, t.flops);
    tess_ctx_destroy(one);
    return status;
}

static tess_status add_row(cli *c, report *r, timed call, const char *name, double density,
                           double flop, int samples)
{
    measured *row = &r->rows[r->n];
    *row = (measured){.name = name,
                      .pass = r->p.pass ? r->p.pass : "fwd",
                      .density = density,
                      .over_ideal = NAN,
                      .speedup_over_dense = NAN,
                      .speedup_with_select = NAN};
    const tess_timing_opts opts = {.samples = samples, .probe = r->products.precision};
    TRY(tess_timing_run(c->ctx, &opts, run_timed, &call, &row->time));
    row->gflops = flop / row->time.best / 1e9;
    r->peak_all = fmax(r->peak_all, row->time.flops);
    r->n++;
    return TESS_OK;
}

/* A backward pass needs the outputs of the forward pass over the same pairs. */
static tess_status add_attn(cli *c, report *r, workload *w, const tess_selection *sel, int samples)
{
    const double density = sel ? w->density : 1;
    if (!r->p.forward)
        TRY(workload_forward(w, sel));
    return add_row(c, r, (timed){w, workload_attn, sel}, sel ? "sparse" : "dense", density,
                   workload_attn_flop(&r->p, density), samples);
}

static tess_status add_select(cli *c, report *r, workload *w, int samples)
{
    tess_selection_lists lists;
    TRY(add_row(c, r, (timed){w, call_select, NULL}, "select", 0, workload_select_flop(w),
                samples));
    TRY(tess_selection_view(w->chosen, &lists));
    r->rows[r->n - 1].pass = "fwd";
    r->rows[r->n - 1].density = lists.density;
    return TESS_OK;
}

static tess_status call_sparse(workload *w, const tess_selection *sel)
{
    (void)sel;
    return workload_step_learned(w);
}

/* Nanoseconds of a step without profile and check. */
static double all_ns(const tess_pass_times *t)
{
    return (double)(t->attention_ns + t->linear_ns + t->select_ns + t->learn_ns + t->other_ns);
}

static tess_status add_step(cli *c, report *r, workload *w, int samples)
{
    tess_pass_times t;
    TRY(add_row(c, r, (timed){w, call_step, NULL}, "step", 1, workload_step_flop(&r->p, 1),
                samples));
    TRY(workload_step_times(w, &t));
    r->step_bytes = w->step_bytes;
    r->shares[0] = (double)t.attention_ns / all_ns(&t);
    r->shares[1] = (double)t.linear_ns / all_ns(&t);
    r->shares[2] = (double)t.other_ns / all_ns(&t);
    r->sparse.attention = (double)(t.attention_ns - t.cross_ns) / all_ns(&t);
    return TESS_OK;
}

/* Where the time of all steps has gone, in the pass and behind it. */
typedef struct {
    tess_pass_times pass;
    int64_t update_ns;
} spent;

static tess_status read_spent(const workload *w, spent *s)
{
    s->update_ns = w->sparse.update_ns;
    return workload_step_times(w, &s->pass);
}

static void set_shares(sparse_report *s, double inside, const spent *before, const spent *after)
{
    const double update = (double)(after->update_ns - before->update_ns);
    const double all = all_ns(&after->pass) - all_ns(&before->pass) + update;
    s->select = inside * (double)(after->pass.select_ns - before->pass.select_ns) / all;
    s->learn = inside * (double)(after->pass.learn_ns - before->pass.learn_ns) / all;
    s->update = inside * update / all;
}

/* Profile and check run in few steps; their cost is spread evenly over all steps. */
static void set_sparse(report *r, const workload *w, const spent *before, const spent *after,
                       const probed *result)
{
    const measured *dense = measured_find(r, "step");
    measured *row = &r->rows[r->n - 1];
    sparse_report *s = &r->sparse;
    s->profile_every = w->sparse.stage.profile_every;
    s->check_every = w->sparse.stage.check_every;
    const double profile = result->profile / (double)s->profile_every;
    const double check = result->check / (double)s->check_every;
    const double total = row->time.best + profile + check;
    s->measured = 1;
    s->density = w->sparse.asked;
    s->ran = w->sparse.ran;
    s->heads = (int)(r->p.layers * r->p.batch * r->p.heads);
    s->dense_heads = w->sparse.dense_heads;
    s->break_even = w->sparse.break_even;
    s->break_even_from = w->sparse.break_even_from;
    s->recall = result->recall;
    memcpy(s->cube, w->sparse.cube, sizeof s->cube);
    s->bound = 1 / (1 - s->attention + s->attention * s->density);
    s->speedup = dense->time.best / total;
    s->profile = profile / total;
    s->check = check / total;
    set_shares(s, row->time.best / total, before, after);
    row->speedup_over_dense = dense->time.best / row->time.best;
    row->speedup_with_select = s->speedup;
    row->over_ideal = s->bound / s->speedup;
}

static tess_status add_sparse_step(cli *c, report *r, workload *w, int samples)
{
    spent before, after;
    probed result = {0};
    TRY(workload_step_probed(w, &result));
    TRY(read_spent(w, &before));
    TRY(add_row(c, r, (timed){w, call_sparse, NULL}, "sparse", w->sparse.ran,
                workload_step_flop(&r->p, w->sparse.ran), samples));
    TRY(read_spent(w, &after));
    set_sparse(r, w, &before, &after, &result);
    return TESS_OK;
}

static tess_status add_rows(cli *c, report *r, workload *w, int samples)
{
    const problem *p = &r->p;
    if (p->kind == PROBLEM_LINEAR)
        return add_row(c, r, (timed){w, call_linear, NULL}, "linear", 1, workload_linear_flop(p),
                       samples);
    if (p->kind == PROBLEM_STEP) {
        TRY(add_step(c, r, w, samples));
        return problem_is_sparse_step(p) ? add_sparse_step(c, r, w, samples) : TESS_OK;
    }
    if (p->kind == PROBLEM_ATTN)
        TRY(add_attn(c, r, w, NULL, samples));
    if (w->sel)
        TRY(add_attn(c, r, w, w->sel, samples));
    return w->selector ? add_select(c, r, w, samples) : TESS_OK;
}

const measured *measured_find(const report *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->rows[i].name, name) == 0)
            return &r->rows[i];
    return NULL;
}

/* Fractions of the peak, and ratios to dense attention. */
static void set_ratios(report *r)
{
    const measured *dense = measured_find(r, "dense"), *select = measured_find(r, "select");
    r->peak = r->peak_one * r->threads;
    for (int i = 0; i < r->n; i++) {
        measured *row = &r->rows[i];
        row->share_of_peak = row->gflops * 1e9 / r->peak;
        if (!dense || row == select)
            continue;
        const double choosing = row != dense && select ? select->time.best : 0;
        row->over_ideal = row->time.best / (row->density * dense->time.best);
        row->speedup_over_dense = dense->time.best / row->time.best;
        row->speedup_with_select = dense->time.best / (row->time.best + choosing);
    }
}

/* Why there are no ranks to measure links between. */
#ifdef CLI_MPI
static const char alone[] = "there is one rank; start several, with mpirun -n 4 tessera bench ...";
#else
static const char alone[] = "this build has no MPI";
#endif

tess_status measure(cli *c, const problem *p, int samples, report *r)
{
    workload w = {0};
    tess_ctx_info info;
    *r = (report){.p = *p, .break_even = NAN};
    if (problem_on_mpi(p)) {
        if (c->ranks < 2)
            return out_fail(c, TESS_EINVAL, "context: links is mpi, but %s", alone);
        r->p.ranks = c->ranks;
        p = &r->p;
    }
    problem_text(p, r->text);
    TRY(tess_ctx_query(c->ctx, &info));
    r->threads = info.threads;
    if (p->kind == PROBLEM_STEP && p->ranks > 1)
        return step_ranks_measure(c, p, samples, &r->step_ranks, &r->profile_heads);
    tess_status status = workload_make(c, p, 1, &w);
    r->profile_heads = w.profile_heads;
    if (p->kind == PROBLEM_CP) {
        if (status == TESS_OK)
            status = cp_measure(&w, samples, &r->context);
        workload_free(&w);
        return status;
    }
    if (status == TESS_OK)
        status = workload_find_products(&w, &r->products);
    if (status == TESS_OK)
        status = measure_peak_one(&r->products, &r->peak_one);
    if (status == TESS_OK)
        status = add_rows(c, r, &w, samples);
    if (status == TESS_OK)
        status = measure_peak_one(&r->products, &r->peak_one);
    workload_free(&w);
    if (status == TESS_OK) {
        if (info.threads == 1)
            r->peak_one = r->peak_all = fmax(r->peak_one, r->peak_all);
        set_ratios(r);
    }
    return status;
}

void measure_free(report *r)
{
    cp_report_free(r->context);
    r->context = NULL;
}

/* ---- break-even --------------------------------------------------------------------------- */

static int same_but_density(const report *a, const report *b)
{
    char text_a[PROBLEM_TEXT_MAX], text_b[PROBLEM_TEXT_MAX];
    problem x = a->p, y = b->p;
    x.density = y.density = 0;
    problem_text(&x, text_a);
    problem_text(&y, text_b);
    return strcmp(text_a, text_b) == 0;
}

/* From one point: sparse time grows in proportion to the density, the selection's does not. */
static double estimate(const measured *sparse)
{
    const double choosing = 1 / sparse->speedup_with_select - 1 / sparse->speedup_over_dense;
    return fmin(1, fmax(0, (1 - choosing) / sparse->over_ideal));
}

static void set_break_even(report *r, const report *reports, int n)
{
    const measured *below = NULL, *above = NULL, *own = measured_find(r, "sparse");
    if (!own || r->p.kind == PROBLEM_STEP)
        return;
    for (int i = 0; i < n; i++) {
        const measured *m = measured_find(&reports[i], "sparse");
        if (!m || !same_but_density(r, &reports[i]))
            continue;
        if (m->speedup_with_select >= 1 && (!below || m->density > below->density))
            below = m;
        if (m->speedup_with_select < 1 && (!above || m->density < above->density))
            above = m;
    }
    r->break_even_measured = below && above && below->density < above->density;
    if (!r->break_even_measured) {
        r->break_even = estimate(own);
        return;
    }
    /* Between them the time relative to dense is taken to be a line, which reaches 1. */
    const double low = 1 / below->speedup_with_select, high = 1 / above->speedup_with_select;
    r->break_even = below->density + (1 - low) / (high - low) * (above->density - below->density);
}

void measure_break_even(report *reports, int n)
{
    for (int i = 0; i < n; i++)
        set_break_even(&reports[i], reports, n);
}
