/* SPDX-License-Identifier: Apache-2.0 */
/* cp_bench.c - measured and predicted times of the strategies of a context-parallel problem.
 *
 * A time is that of a pass over all layers: for each layer that of its best sample, from when the
 * last rank begins it to when the last one ends it. The quality of predictions: Spearman's
 * correlation of predicted and measured times over the strategies, and the time of the planner's
 * choices over that of the fastest strategy of each layer.
 */
#include "cp_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- strategies ------------------------------------------------------------------------------ */

int cp_strategies(const problem *p, char names[CP_ROWS][PROBLEM_STRATEGY_MAX])
{
    static const char *const whole[] = {"contiguous", "db-sp", "refined", "fractional"};
    const size_t size = PROBLEM_STRATEGY_MAX;
    int n = 0;
    if (strcmp(p->strategy, "all") != 0) {
        snprintf(names[0], size, "%s", p->strategy);
        return 1;
    }
    for (int i = 0; i < 4; i++)
        snprintf(names[n++], size, "%s", whole[i]);
    const int ranks = (int)p->ranks; /* at most 64 */
    for (int parts = 2; parts <= ranks && n + 2 <= CP_ROWS; parts++)
        if (ranks % parts == 0) {
            snprintf(names[n++], size, "%dx%dr", ranks / parts, parts);
            snprintf(names[n++], size, "%dx%ds", ranks / parts, parts);
        }
    return n;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* How many of x are smaller than x[i], and half of those that equal it. */
static double place_of(const double *x, int n, int i)
{
    double place = 0;
    for (int k = 0; k < n; k++)
        place += x[k] < x[i] ? 1 : x[k] == x[i] ? 0.5 : 0;
    return place;
}

/* Of ranks with ties shared; NaN where one side is constant. */
static double spearman(const double *a, const double *b, int n)
{
    double aa = 0, bb = 0, ab = 0;
    for (int i = 0; i < n; i++) {
        const double x = place_of(a, n, i) - n / 2.0, y = place_of(b, n, i) - n / 2.0;
        aa += x * x;
        bb += y * y;
        ab += x * y;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

static int64_t largest(const int64_t *x, int n)
{
    int64_t most = x[0];
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static int64_t sum(const int64_t *x, int n)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += x[i];
    return all;
}

/* ---- a row ----------------------------------------------------------------------------------- */

/* One layer: the time of its best sample, and the median over samples of max / mean of the ranks'
 * CPU time. */
static void layer_times(const cp_job *job, const cp_run *run, int layer, double *scratch,
                        double *seconds, double *cpu)
{
    const int ranks = job->lists->ranks;
    const size_t step = (size_t)job->lists->layers * (size_t)ranks;
    *seconds = INFINITY;
    for (int s = 0; s < job->samples; s++) {
        const size_t at = (size_t)s * step + (size_t)layer * (size_t)ranks;
        const int64_t *own = run->cpu + at;
        const int64_t ns = largest(run->end + at, ranks) - largest(run->start + at, ranks);
        *seconds = fmin(*seconds, (double)ns * 1e-9);
        scratch[s] = (double)largest(own, ranks) * ranks / (double)sum(own, ranks);
    }
    *cpu = out_median(scratch, job->samples);
}

/* max / mean over ranks of the least CPU time that each took: the plan's part of the imbalance, for
 * what disturbs a rank comes and goes. */
static double best_cpu(const cp_job *job, const cp_run *run, int layer)
{
    const int ranks = job->lists->ranks;
    double most = 0, all = 0;
    for (int r = 0; r < ranks; r++) {
        double least = INFINITY;
        for (int s = 0; s < job->samples; s++)
            least = fmin(least,
                         (double)run->cpu[((size_t)s * (size_t)job->lists->layers + (size_t)layer) *
                                              (size_t)ranks +
                                          (size_t)r]);
        most = fmax(most, least);
        all += least;
    }
    return most * ranks / all;
}

static void layer_bytes(const cp_job *job, const cp_run *run, int layer, cp_row *row)
{
    const int ranks = job->lists->ranks, at = layer * ranks;
    const int64_t back = job->w->p.backward ? 2 : 1; /* gradients are sent back */
    int64_t most = 0;
    for (int r = 0; r < ranks; r++) {
        /* The model counts indices of selected keys, not the few bytes of rings. */
        const int64_t indices = run->selective[layer] ? run->index[at + r] : 0;
        const int64_t sent = run->payload[at + r] + indices;
        most = sent > most ? sent : most;
    }
    row->sent += most;
    row->modelled += run->modelled[layer];
    row->index += sum(run->index + at, ranks);
    row->attend += (double)sum(run->attend + at, ranks) * 1e-9 / ranks;
    row->exchange += (double)sum(run->exchange + at, ranks) * 1e-9 / ranks;
    row->rest += (double)sum(run->rest + at, ranks) * 1e-9 / ranks;
    if (run->selective[layer]) { /* q and o, and dout and dq, make up the rest */
        row->keys += sum(run->payload + at, ranks) - 2 * back * sum(run->moved + at, ranks);
        row->apart += back * sum(run->apart + at, ranks);
    }
}

static tess_status make_row(workload *w, const cp_job *job, const cp_run *run, cp_row *row)
{
    const int layers = job->lists->layers;
    double *scratch = malloc((size_t)job->samples * sizeof *scratch);
    *row = (cp_row){.run = run};
    row->seconds = calloc((size_t)layers, sizeof *row->seconds);
    if (!scratch || !row->seconds) {
        free(scratch);
        return out_fail(w->c, TESS_ENOMEM, "no memory for %d layers", layers);
    }
    for (int layer = 0; run->possible && layer < layers; layer++) {
        double cpu;
        layer_times(job, run, layer, scratch, &row->seconds[layer], &cpu);
        layer_bytes(job, run, layer, row);
        row->measured += row->seconds[layer];
        row->cpu += cpu / layers;
        row->cpu_worst = fmax(row->cpu_worst, cpu);
        row->cpu_best += best_cpu(job, run, layer) / layers;
        row->imbalance += run->imbalance[layer] / layers;
        row->predicted = row->predicted < 0 || run->predicted[layer] < 0
                             ? -1
                             : row->predicted + run->predicted[layer];
    }
    free(scratch);
    return TESS_OK;
}

/* ---- all rows -------------------------------------------------------------------------------- */

/* Strategies that came out alike, as whole heads of one density do, are one: with the best sample
 * of them all. */
static void correlate(cp_report *r)
{
    double predicted[CP_ROWS], measured[CP_ROWS];
    int n = 0;
    for (int i = 0; i < r->job.n; i++) {
        const cp_row *row = &r->rows[i];
        int at = 0;
        if (!row->run->possible || row->predicted < 0)
            continue;
        while (at < n && predicted[at] != row->predicted)
            at++;
        predicted[at] = row->predicted;
        measured[at] = at < n ? fmin(measured[at], row->measured) : row->measured;
        n += at == n;
    }
    r->correlation = n >= 3 ? spearman(predicted, measured, n) : NAN;
}

/* The least time of a layer: of all strategies, or of those predicted to take `alike` seconds. */
static double least_seconds(const cp_report *r, int layer, double alike)
{
    double least = INFINITY;
    for (int i = 0; i < r->job.n; i++) {
        const cp_row *row = &r->rows[i];
        if (row->run->possible && (isnan(alike) || row->run->predicted[layer] == alike))
            least = fmin(least, row->seconds[layer]);
    }
    return least;
}

/* Times of the planner's choice and of the fastest for each layer; NaN if the choice was not
 * measured. */
static void judge_choice(cp_report *r)
{
    for (int layer = 0; layer < r->layers; layer++) {
        double chosen = NAN;
        for (int i = 0; i < r->job.n; i++) {
            const cp_run *run = r->rows[i].run;
            if (run->possible && strcmp(run->words[layer], r->job.choice[layer]) == 0)
                chosen = least_seconds(r, layer, run->predicted[layer]);
        }
        r->best += least_seconds(r, layer, NAN);
        r->chosen += chosen;
    }
}

/* "20 layers fractional and 8 layers refined U4 x R2". */
static void word_choice(cp_report *r)
{
    size_t used = 0;
    for (int layer = 0; layer < r->layers && used < sizeof r->choice; layer++) {
        int before = 0, same = 0;
        for (int i = 0; i < r->layers; i++) {
            const int equal = strcmp(r->job.choice[i], r->job.choice[layer]) == 0;
            before += i < layer && equal;
            same += i >= layer && equal;
        }
        if (!before)
            used +=
                (size_t)snprintf(r->choice + used, sizeof r->choice - used, "%s%d layer%s %s",
                                 used ? " and " : "", same, out_plural(same), r->job.choice[layer]);
    }
}

static tess_status fill(workload *w, int samples, cp_report *r)
{
    char names[CP_ROWS][PROBLEM_STRATEGY_MAX];
    const int n = cp_strategies(&w->p, names);
    r->layers = (int)w->p.layers;
    TRY(cp_lists_make(w, &r->lists));
    TRY(cp_job_make(w, &r->lists, samples, n, &r->job));
    for (int i = 0; i < n; i++)
        strcpy(r->job.runs[i].name, names[i]);
    if (problem_on_mpi(&w->p))
        r->job.comm = w->c->comm;
    TRY(cp_job_run(&r->job));
    if (w->c->rank > 0)
        return TESS_OK; /* rank 0 knows of all */
    if (n == 1 && !r->job.runs[0].possible)
        return out_fail(w->c, TESS_EINVAL, "%s", r->job.runs[0].why);
    for (int i = 0; i < n; i++)
        TRY(make_row(w, &r->job, &r->job.runs[i], &r->rows[i]));
    word_choice(r);
    judge_choice(r);
    correlate(r);
    return TESS_OK;
}

tess_status cp_measure(workload *w, int samples, cp_report **report)
{
    cp_report *r = calloc(1, sizeof *r);
    if (!r)
        return out_fail(w->c, TESS_ENOMEM, "no memory for a report");
    const tess_status status = fill(w, samples, r);
    if (status == TESS_OK)
        *report = r;
    else
        cp_report_free(r);
    return status;
}

void cp_report_free(cp_report *r)
{
    if (!r)
        return;
    for (int i = 0; i < CP_ROWS; i++)
        free(r->rows[i].seconds);
    cp_job_free(&r->job);
    cp_lists_free(&r->lists);
    free(r);
}
