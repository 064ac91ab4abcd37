/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_trace.c - tessera trace: where the time of GPUs goes, from traces of profilers. */
#include "cmd_trace.h"
#include "tessera/advanced/activity_report.h"

#include <stdlib.h>

typedef struct {
    common common;
    strings files;
    const char *collectives, *html, *rank;
    int64_t step;
} values;

/* The i-th number of a list "0,1,7"; -1: the list does not have n numbers, or others. */
static int rank_at(const char *list, int i, int n)
{
    int rank = -1, count = 0;
    for (const char *p = list;; p++, count++) {
        char *end;
        const long x = *p >= '0' && *p <= '9' ? strtol(p, &end, 10) : -1;
        if (x < 0 || x >= 1 << 20 || (*end && *end != ','))
            return -1;
        if (count == i)
            rank = (int)x;
        p = end;
        if (!*p)
            return count + 1 == n ? rank : -1;
    }
}

static tess_status load_all(cli *c, const values *v, trace_result *r)
{
    r->files = calloc((size_t)v->files.n, sizeof(tess_activity *));
    if (!r->files)
        return out_fail(c, TESS_ENOMEM, "no memory for %d files", v->files.n);
    for (; r->n < v->files.n; r->n++) {
        tess_activity_opts opts = {
            .rank_given = v->rank != NULL, .step_given = v->step >= 0, .step = v->step};
        if (v->rank)
            opts.rank = rank_at(v->rank, r->n, v->files.n);
        if (opts.rank < 0)
            return out_usage(c,
                             v->files.n == 1
                                 ? "--rank is \"%.60s\", must be one rank, for one file"
                                 : "--rank is \"%.60s\", must be %d ranks with commas between "
                                   "them, one for each file",
                             v->rank, v->files.n);
        TRY(tess_activity_load(c->ctx, v->files.items[r->n], &opts, &r->files[r->n]));
    }
    return TESS_OK;
}

/* Ranks can be put side by side only if they are known. */
static tess_status check_ranks(cli *c, const trace_result *r)
{
    tess_activity_info info;
    for (int i = 0; i < r->n && r->n > 1; i++) {
        TRY(tess_activity_query(r->files[i], &info));
        if (info.rank < 0)
            return out_usage(c,
                             "%s: neither the file nor its name has the rank; give the ranks of "
                             "all files with --rank 0,1,...",
                             info.path);
    }
    return TESS_OK;
}

static tess_status write_all(cli *c, const values *v, const trace_result *r)
{
    const tess_activity *const *files = (const tess_activity *const *)r->files;
    if (v->collectives)
        TRY(tess_activity_write(files, r->n, v->collectives));
    if (!v->html)
        return TESS_OK;
    char *line = out_command(c);
    const tess_status status =
        tess_activity_report(c->ctx, files, r->n, r->ranks, line ? line : "", v->html);
    free(line);
    return status;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    trace_result r = {0};
    tess_status status = load_all(c, v, &r);
    if (status == TESS_OK)
        status = check_ranks(c, &r);
    if (status == TESS_OK)
        status =
            tess_activity_compare(c->ctx, (const tess_activity *const *)r.files, r.n, &r.ranks);
    if (status == TESS_OK)
        status = write_all(c, v, &r);
    if (status == TESS_OK)
        status = trace_print(c, &r);
    tess_activity_ranks_destroy(r.ranks);
    for (int i = 0; i < r.n; i++)
        tess_activity_destroy(r.files[i]);
    free(r.files);
    return out_input(c, status);
}

static const opt arguments[] = {
    {"FILE", 0, OPT_PATHS, offsetof(values, files), .required = 1,
     .help = "traces of the PyTorch profiler or of tessera train --trace-out, plain or gzip; one "
             "for each rank"},
};

static const opt options[] = {
    {"collectives", 0, OPT_PATH, offsetof(values, collectives), "OUT.csv",
     .help = "write every collective: operation, process group, bytes, time"},
    {"html", 0, OPT_PATH, offsetof(values, html), "OUT.html", .help = "write a page"},
    {"step", 0, OPT_INT, offsetof(values, step), "N", .initial = "-1", .min = -1, .max = 1e15,
     .help = "only what was launched during ProfilerStep#N; -1 is the whole file"},
    {"rank", 0, OPT_STRING, offsetof(values, rank), "LIST",
     .help = "ranks of the files, with commas between them, instead of what the files say"},
};

static const example examples[] = {
    {"tessera trace rank0.json.gz", "compute, communication, copies, idle time"},
    {"tessera trace rank*.json.gz --collectives calls.csv --html trace.html",
     "ranks side by side, every collective as CSV, a page"},
    {"tessera collective --calibrate calls.csv --cluster h100 --out mine.json",
     "a cluster from these collectives"},
};

const command command_trace = {
    .name = "trace",
    .summary = "where the time of GPUs goes, from a profiler's traces",
    .description =
        "The span from the first begin to the last end of activity is compute, exposed "
        "communication, copies that nothing hides, and idle time, to the nanosecond. Hidden is "
        "communication while a compute kernel runs. Of several files the n-th call of a process "
        "group is the same call on all members: what a member's call takes longer than the "
        "shortest one's is waiting for the last member. A file that ends too early gives what it "
        "has. docs/traces.md has the rules.\n"
        "With --json the result has the members files (file, rank, ranks, events, kernels, "
        "json_bytes, span_ms, compute_ms, comm_ms, exposed_ms, hidden_ms, copy_ms, idle_ms, "
        "classes, collective_wait_ms, collectives, notes), slowest_rank, imbalance and notes.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
