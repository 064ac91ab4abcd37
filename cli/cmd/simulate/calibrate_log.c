/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_log.c - tessera calibrate --software NAME --log FILE: one scalar from logs of runs.
 *
 * Each log gives a measured step m and, with the scenario that it prints or that --scenario names,
 * a predicted one p with scalar 1. The scalar s that makes the mean of |s p / m - 1| least is the
 * median of m / p with weights p / m. Cost: one simulated step for each log.
 */
#include "calibrate_log.h"

#include "cmd/cmd_simulate.h"
#include "tessera/advanced/listing.h"
#include "tessera/advanced/nearest.h"
#include "tessera/advanced/run_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *path;
    tess_run_log_info log;
    double measured, predicted; /* seconds of a step, the scalar being 1 */
    tess_sim_memory memory;
    tess_scenario scenario;
} fitted_run;

/* ---- names ----------------------------------------------------------------------------------- */

static tess_status check_software(cli *c, const tess_sim_params *params, const char *name)
{
    tess_listing *listing = NULL;
    tess_listing_entry e;
    const char *names[128];
    int n = 0, known = 0;
    TRY(tess_listing_create(c->ctx, TESS_LISTING_SOFTWARE, params, &listing));
    for (; n < 128 && tess_listing_query(listing, n, &e) == TESS_OK; n++) {
        names[n] = e.name;
        known |= strcmp(e.name, name) == 0;
    }
    const char *near = tess_nearest(name, names, n);
    const tess_status status =
        known  ? TESS_OK
        : near ? out_usage(c, "--software is \"%.60s\"; did you mean \"%s\"?", name, near)
               : out_usage(c,
                           "--software is \"%.60s\", which the parameters do not have; see tessera "
                           "simulate --list software",
                           name);
    tess_listing_destroy(listing);
    return status;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* The global batch that the log prints: the scenario's, where that has none of its own. */
static tess_status check_batch(cli *c, const fitted_run *run, tess_scenario *s)
{
    if (run->log.global_batch && !s->training.global_batch)
        s->training.global_batch = run->log.global_batch;
    if (run->log.global_batch && s->training.global_batch != run->log.global_batch)
        return out_usage(c, "%.200s: a global batch of %lld, the scenario has %lld", run->path,
                         (long long)run->log.global_batch, (long long)s->training.global_batch);
    return TESS_OK;
}

static tess_status make_scenario(cli *c, const calibrate_log_values *v, const tess_run_log *log,
                                 fitted_run *run)
{
    const simulate_values given = {.scenario = v->scenario ? v->scenario : run->path,
                                   .set = v->set};
    simulate_job j = {.c = c, .given = &given};
    if (!v->scenario && !tess_run_log_job(log))
        return out_usage(c,
                         "%.200s: the log does not print model and layout; use --scenario FILE, a "
                         "scenario or a job file",
                         run->path);
    if (!v->scenario)
        j.job = tess_run_log_job(log);
    tess_status status = v->scenario ? simulate_scenario(&j) : simulate_job_use(&j);
    if (status == TESS_OK)
        status = check_batch(c, run, &j.s);
    if (status == TESS_OK && !j.s.system.cluster[0])
        status = out_usage(c, "the scenario names no cluster; use --set system.cluster=NAME");
    if (status == TESS_OK)
        status = tess_scenario_set(c->ctx, &j.s, "system.era", v->software);
    if (status == TESS_OK)
        status = tess_scenario_set(c->ctx, &j.s, "system.scalar", "off");
    run->scenario = j.s;
    tess_job_destroy(j.own_job);
    return status;
}

static tess_status predict(cli *c, const tess_sim_params *params, fitted_run *run)
{
    tess_cluster *cluster = NULL;
    tess_sim *sim = NULL;
    tess_sim_result r;
    tess_status status = tess_cluster_load(c->ctx, run->scenario.system.cluster, &cluster);
    if (status == TESS_OK)
        status = tess_sim_create(c->ctx, params, &sim);
    if (status == TESS_OK)
        status = tess_sim_run(sim, cluster, &run->scenario, &r);
    if (status == TESS_OK) {
        run->predicted = r.step_s;
        run->memory = r.memory;
        run->scenario = r.scenario;
    }
    tess_sim_destroy(sim);
    tess_cluster_destroy(cluster);
    return status;
}

static tess_status read_run(cli *c, const calibrate_log_values *v, const tess_sim_params *params,
                            fitted_run *run)
{
    tess_run_log *log = NULL;
    TRY(tess_run_log_load(c->ctx, run->path, v->warmup, &log));
    tess_status status = tess_run_log_query(log, &run->log);
    if (status == TESS_OK)
        status = make_scenario(c, v, log, run);
    if (status == TESS_OK)
        status = predict(c, params, run);
    if (status == TESS_OK)
        status = tess_run_log_step(log, &run->scenario, &run->measured);
    tess_run_log_destroy(log);
    return status;
}

/* ---- the scalar ------------------------------------------------------------------------------ */

static int by_ratio(const void *a, const void *b)
{
    const fitted_run *const x = *(fitted_run *const *)a, *const y = *(fitted_run *const *)b;
    const double p = x->measured / x->predicted, q = y->measured / y->predicted;
    return (p > q) - (p < q);
}

static double fit(fitted_run *const *sorted, int n)
{
    double all = 0, below = 0;
    for (int i = 0; i < n; i++)
        all += sorted[i]->predicted / sorted[i]->measured;
    for (int i = 0; i < n; i++) {
        below += sorted[i]->predicted / sorted[i]->measured;
        if (below >= all / 2)
            return sorted[i]->measured / sorted[i]->predicted;
    }
    return 1;
}

static double error_of(const fitted_run *runs, int n, double scalar)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += 100 * fabs(scalar * runs[i].predicted / runs[i].measured - 1);
    return sum / n;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_run(cli *c, const fitted_run *run, double scalar)
{
    const tess_sim_layout *l = &run->scenario.layout;
    FILE *f = c->out;
    fprintf(f, "%s: %s, %d of %d lines, steps %lld to %lld\n", run->path, run->log.framework,
            run->log.used, run->log.lines, (long long)run->log.first, (long long)run->log.last);
    fprintf(f, "  %d GPUs of %s: tp %d, pp %d, cp %d, dp %d; global batch %lld of %lld tokens\n",
            l->gpus, run->scenario.system.cluster, l->tp, l->pp, l->cp, l->dp,
            (long long)run->scenario.training.global_batch, (long long)run->scenario.model.seq);
    fprintf(f, "  step            %10.1f ms", 1e3 * run->measured);
    if (run->log.step_s > 0)
        fprintf(f, " (quartiles %.1f and %.1f)", 1e3 * run->log.step_low_s,
                1e3 * run->log.step_high_s);
    else
        fprintf(f, " from %.0f tokens/s of a GPU", run->log.tokens_per_s);
    fprintf(f, "; predicted %.1f, with the scalar %.1f\n", 1e3 * run->predicted,
            1e3 * scalar * run->predicted);
    if (run->log.tflops > 0)
        fprintf(f, "  TFLOP/s         %10.1f of a GPU, as the framework counts\n", run->log.tflops);
    if (run->log.allocated_gib > 0)
        fprintf(f, "  allocated       %10.1f GiB; predicted %.1f\n", run->log.allocated_gib,
                run->memory.allocated / SIMULATE_GIB);
    if (run->log.reserved_gib > 0)
        fprintf(f, "  reserved        %10.1f GiB; predicted %.1f\n", run->log.reserved_gib,
                run->memory.peak / SIMULATE_GIB);
}

static void print_fit(cli *c, const calibrate_log_values *v, const char *system,
                      const fitted_run *runs, int n, double scalar)
{
    for (int i = 0; i < n; i++)
        print_run(c, &runs[i], scalar);
    fprintf(c->out, "scalar of (%s, %s): %.4f\n", system, v->software, scalar);
    fprintf(c->out, "mean absolute error: %.3f %% before, %.3f %% after\n", error_of(runs, n, 1),
            error_of(runs, n, scalar));
    if (v->out)
        fprintf(c->out,
                "use: tessera simulate ... --params %s --set system.era=%s --set "
                "system.system=%s\n",
                v->out, v->software, system);
}

static json_t *run_json(cli *c, const fitted_run *run)
{
    json_t *one = json_object();
    const tess_run_log_info *l = &run->log;
    out_set(c, one, "path", out_text(run->path));
    out_set(c, one, "framework", out_text(l->framework));
    out_set(c, one, "lines", json_integer(l->lines));
    out_set(c, one, "used", json_integer(l->used));
    out_set(c, one, "gpus", json_integer(run->scenario.layout.gpus));
    out_set(c, one, "step_ms", out_number(1e3 * run->measured));
    out_set(c, one, "predicted_ms", out_number(1e3 * run->predicted));
    out_set(c, one, "tokens_per_s_per_gpu",
            l->tokens_per_s > 0 ? out_number(l->tokens_per_s) : json_null());
    out_set(c, one, "tflops_per_gpu", l->tflops > 0 ? out_number(l->tflops) : json_null());
    out_set(c, one, "allocated_gib",
            l->allocated_gib > 0 ? out_number(l->allocated_gib) : json_null());
    out_set(c, one, "reserved_gib",
            l->reserved_gib > 0 ? out_number(l->reserved_gib) : json_null());
    return one;
}

static void set_fit(cli *c, const calibrate_log_values *v, const char *system,
                    const fitted_run *runs, int n, double scalar)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        out_append(c, list, run_json(c, &runs[i]));
    out_set(c, c->json, "software", out_text(v->software));
    out_set(c, c->json, "system", out_text(system));
    out_set(c, c->json, "scalar", out_number(scalar));
    out_set(c, c->json, "before_mean_abs_pct", out_number(error_of(runs, n, 1)));
    out_set(c, c->json, "after_mean_abs_pct", out_number(error_of(runs, n, scalar)));
    out_set(c, c->json, "logs", list);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static tess_status fit_all(cli *c, const calibrate_log_values *v, const tess_sim_params *params,
                           fitted_run *runs, fitted_run **sorted)
{
    const int n = v->logs.n;
    char origin[512], system[32];
    TRY(check_software(c, params, v->software));
    for (int i = 0; i < n; i++) {
        runs[i].path = v->logs.items[i];
        sorted[i] = &runs[i];
        TRY(read_run(c, v, params, &runs[i]));
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_ratio);
    const double scalar = fit(sorted, n);
    if (!(scalar >= 0.2 && scalar <= 5))
        return out_fail(c, TESS_EINVAL,
                        "a step takes %.3g times as long as predicted, a scalar must be 0.2..5: is "
                        "the scenario that of the run?",
                        scalar);
    const char *base = strrchr(runs[0].scenario.system.cluster, '/');
    snprintf(system, sizeof system, "%.31s",
             v->system ? v->system
             : base    ? base + 1
                       : runs[0].scenario.system.cluster);
    snprintf(origin, sizeof origin, "fitted: %d log%s of %s, %.200s", n, out_plural(n),
             runs[0].log.framework, runs[0].path);
    if (v->out)
        TRY(tess_sim_scalar_write(c->ctx, v->from, system, v->software, scalar, origin, v->out));
    if (c->json)
        set_fit(c, v, system, runs, n, scalar);
    else
        print_fit(c, v, system, runs, n, scalar);
    return TESS_OK;
}

tess_status calibrate_log(cli *c, const calibrate_log_values *v)
{
    tess_sim_params *params = NULL;
    fitted_run *runs = calloc((size_t)v->logs.n, sizeof *runs);
    fitted_run **sorted = calloc((size_t)v->logs.n, sizeof *sorted);
    tess_status status = TESS_ENOMEM;
    if (runs && sorted) {
        status = tess_sim_params_load(c->ctx, v->from, &params);
        if (status == TESS_OK)
            status = fit_all(c, v, params, runs, sorted);
    } else {
        out_fail(c, status, "no memory for %d logs", v->logs.n);
    }
    tess_sim_params_destroy(params);
    free(sorted);
    free(runs);
    return status;
}
