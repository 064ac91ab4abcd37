/* SPDX-License-Identifier: Apache-2.0 */
/* train_run.c - a training run from the command line: model, data, memory, steps, result. */
#include "train_job.h"
#include "train_together.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- many ranks ------------------------------------------------------------------------------ */

/* Collective: all ranks begin with the same checkpoint, or with none. */
static tess_status same_start(const train_job *j)
{
    const cli *c = j->c;
    return c->comm ? tess_comm_check_equal(c->comm, "checkpoint to start from", j->start,
                                           strlen(j->start))
                   : TESS_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void remember(train_job *j, double step_ms)
{
    if (j->n_times == j->room) {
        const int64_t room = 2 * j->room + 1024;
        double *times = realloc(j->times, (size_t)room * sizeof *times);
        if (!times)
            return; /* the median is then of fewer steps */
        j->times = times;
        j->room = room;
    }
    j->times[j->n_times++] = step_ms;
}

/* commands.txt: when the run was started or resumed, and how. The folder is there after a step. */
static void record_command(const train_job *j)
{
    char path[PATH_BYTES], date[32];
    char *line = out_command(j->c);
    const time_t now = time(NULL);
    struct tm tm;
    FILE *f = NULL;
    if (line && gmtime_r(&now, &tm) &&
        snprintf(path, sizeof path, "%s/commands.txt", j->v->out) < (int)sizeof path)
        f = fopen(path, "ae");
    if (f) {
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
        fprintf(f, "%s %s\n", date, line);
        fclose(f);
    }
    free(line);
}

static int on_step(void *user, const tess_step *step)
{
    train_job *j = user;
    remember(j, step->step_ms);
    if (j->n_times == 1 && j->c->rank == 0 && j->v->out)
        record_command(j);
    j->density = step->density;
    j->sparse_layers = step->sparse_layers;
    if (!isnan(step->val_loss)) {
        memcpy(j->buckets, step->val_buckets, sizeof j->buckets);
        j->validated = 1;
    }
    train_progress_step(j, step);
    j->ended = j->v->until > 0 && step->step >= j->v->until;
    return signals_caught() || j->ended;
}

static tess_status make_model(train_job *j)
{
    const tess_model_opts opts = {.gradients = 1, .seed = (uint64_t)j->v->common.seed};
    if (j->start[0])
        return tess_model_load(j->c->ctx, j->start, &opts, &j->model);
    return tess_model_create(j->c->ctx, &j->config, &opts, &j->model);
}

static tess_status make(train_job *j)
{
    TRY(world_agree(j->c, j->c->comm, make_model(j)));
    TRY(tess_train_create(j->model, j->data, &j->opts, &j->train));
    if (j->branched)
        return tess_train_branch(j->train, j->start);
    if (!j->resumed)
        return TESS_OK;
    /* The folder is locked now: before, another process may have gone on with the run and ended. */
    TRY(tess_checkpoint_find(j->c->ctx, j->v->out, j->start, sizeof j->start));
    return tess_train_resume(j->train, j->start);
}

static tess_status run_steps(train_job *j)
{
    tess_train_info info;
    char text[128];
    TRY(tess_train_query(j->train, &info));
    j->first = info.step;
    if (j->resumed)
        train_say_schedule(j, info.step);
    if (info.step >= info.steps && !j->c->common->quiet) {
        snprintf(text, sizeof text, "the run is at step %lld of %lld: nothing to do",
                 (long long)info.step, (long long)info.steps);
        out_log(j->c, TESS_LOG_INFO, text);
    }
    if (info.step >= info.steps)
        return TESS_OK;
    if (j->v->until > 0 && info.step >= j->v->until)
        return TESS_OK;
    TRY(train_banner(j));
    j->c->progress.hold = 1; /* on_step asks for the checkpoint that a signal ends with */
    train_progress_begin(j);
    const tess_status status = tess_train_run(j->train, 0, on_step, j);
    train_progress_end(j);
    j->c->progress.hold = 0;
    if (status != TESS_ESTOPPED)
        return status;
    if (j->ended)
        return TESS_OK;
    /* A signal, of this rank or another one. */
    j->c->code = EXIT_SIGNAL + 2; /* of Ctrl-C, for SIGTERM too */
    TRY(tess_train_query(j->train, &info));
    return out_fail(j->c, status, "interrupted by a signal; --resume goes on from %s",
                    info.checkpoint ? info.checkpoint : "nothing");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static tess_status run_job(train_job *j)
{
    TRY(world_agree(j->c, j->c->comm, train_prepare(j)));
    TRY(same_start(j));
    TRY(world_agree(j->c, j->c->comm, train_check_memory(j)));
    if (j->v->dry_run)
        return TESS_OK;
    TRY(make(j));
    if (j->trace)
        return train_trace_run(j->c, j->v, j->train, j->trace);
    TRY(run_steps(j));
    return train_report(j);
}

static tess_status check_usage(cli *c, const train_values *v)
{
    TRY(train_trace_check(c, v));
    if (!v->out && !v->dry_run && !v->trace_out)
        return out_usage(c, "--out is missing, must be the folder of the run");
    if (v->resume && !v->out)
        return out_usage(c, "--resume needs --out, the folder of the run");
    if (v->init && v->branch)
        return out_usage(c, "--init and --branch are both given, must be one of them");
    return TESS_OK;
}

/* One run; path: of the trace of one rank among all, NULL: as the options say. */
static tess_status run_one(cli *c, const train_values *v, int trace_rank, const char *path)
{
    train_settings settings = {0};
    train_job j = {.c = c, .from = &settings};
    tess_status status = train_settings_read(c, v, &settings, &j.v);
    status = world_agree(c, c->comm, status);
    if (status == TESS_OK) {
        j.values = *j.v;
        j.v = &j.values;
        j.values.trace_number = trace_rank;
        if (path)
            j.values.trace_out = path;
        if (c->json)
            out_set(c, c->json, "seed", json_integer(j.v->common.seed));
        status = run_job(&j);
    }
    tess_train_destroy(j.train);
    tess_comm_destroy(j.trace);
    tess_model_destroy(j.model);
    tess_data_close(j.data);
    free(j.settings);
    free(j.times);
    train_settings_free(&settings);
    return status;
}

/* Every rank, each into its file; of a node as many at once as there are cores. */
static tess_status run_ranks(cli *c, const train_values *v)
{
    char path[4096];
    train_together plan;
    TRY(train_together_plan(c, v, &plan));
    TRY(train_trace_folder(c, v));
    for (int rank = 0, n; rank < (int)v->trace_ranks; rank += n) {
        const int node_end = (rank / plan.node + 1) * plan.node;
        const int end = node_end < (int)v->trace_ranks ? node_end : (int)v->trace_ranks;
        n = end - rank < plan.at_once ? end - rank : plan.at_once;
        if (v->dry_run)
            n = 1; /* nothing is timed side by side */
        train_trace_path(v, rank, path, sizeof path);
        TRY(n > 1 ? train_together_run(c, v, &plan, rank, n) : run_one(c, v, rank, path));
    }
    return TESS_OK;
}

tess_status train_run(cli *c, const train_values *v)
{
    TRY(world_agree(c, c->comm, check_usage(c, v)));
    if (v->trace_out && train_trace_all(v))
        return run_ranks(c, v);
    return run_one(c, v, train_trace_number(v), NULL);
}
