/* SPDX-License-Identifier: Apache-2.0 */
/* train_trace.c - records one rank of a training job and writes a step of it as a trace.
 *
 * The rank trains as it would among the others, on a trace recorder, which sends nothing. The first
 * step touches memory that later ones only use again, so the second one is written. Losses have no
 * meaning: the data that other ranks would send are made up.
 */
#include "cmd_train.h"

#include "tessera/advanced/collectives.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    cli *c;
    tess_comm *comm;
    const char *path;
    int64_t steps; /* of this call */
    double step_ms;
    tess_status status;
} recorder;

/* ---- which ranks ----------------------------------------------------------------------------- */

int train_trace_all(const train_values *v)
{
    return v->trace_rank && strcmp(v->trace_rank, "all") == 0;
}

void train_trace_ranks(const train_values *v, int *first, int *last)
{
    *first = v->trace_rank && !train_trace_all(v) ? (int)strtol(v->trace_rank, NULL, 10) : 0;
    *last = train_trace_all(v) ? (int)v->trace_ranks - 1 : *first;
}

void train_trace_path(const train_values *v, int rank, char *path, size_t size)
{
    snprintf(path, size, "%s/rank%d.json", v->trace_out, rank);
}

tess_status train_trace_folder(cli *c, const train_values *v)
{
    if (mkdir(v->trace_out, 0777) != 0 && errno != EEXIST)
        return out_fail(c, TESS_EIO, "%s: %s", v->trace_out, strerror(errno));
    return TESS_OK;
}

static tess_status check_rank(cli *c, const train_values *v)
{
    char *end = NULL;
    if (!v->trace_rank || train_trace_all(v))
        return TESS_OK;
    const long rank = strtol(v->trace_rank, &end, 10);
    if (end == v->trace_rank || *end || rank < 0 || rank >= v->trace_ranks)
        return out_usage(c, "--trace-rank is %.40s, must be 0..%lld, or all", v->trace_rank,
                         (long long)v->trace_ranks - 1);
    return TESS_OK;
}

tess_status train_trace_check(cli *c, const train_values *v)
{
    if (!v->trace_out)
        return v->trace_ranks || v->trace_rank
                   ? out_usage(c, "--trace-%s is given, but no --trace-out",
                               v->trace_ranks ? "ranks" : "rank")
                   : TESS_OK;
    if (c->ranks > 1)
        return out_usage(c, "--trace-out plays one rank alone, must be started without a launcher");
    if (v->trace_ranks < 2)
        return out_usage(c, "--trace-ranks is missing, must be the ranks of the job, 2 or more");
    TRY(check_rank(c, v));
    if (!v->opts.cluster && v->opts.ranks_context != 1)
        return out_usage(c, "--cluster is missing: a rank alone has no links to measure");
    return v->out || v->resume ? out_usage(c, "--trace-out writes no run, --out and --resume must "
                                              "not be given")
                               : TESS_OK;
}

tess_status train_trace_open(cli *c, const train_values *v, tess_comm **comm)
{
    return v->trace_out ? tess_comm_trace(c->ctx, v->trace_number, (int)v->trace_ranks, comm)
                        : TESS_OK;
}

static int on_step(void *user, const tess_step *step)
{
    recorder *r = user;
    r->step_ms = step->step_ms;
    r->status =
        ++r->steps == 1 ? tess_comm_trace_clear(r->comm) : tess_comm_trace_write(r->comm, r->path);
    if (r->status != TESS_OK)
        out_fail(r->c, r->status, "%s", tess_last_error());
    return r->status != TESS_OK || signals_caught();
}

tess_status train_trace_run(cli *c, const train_values *v, tess_train *train, tess_comm *comm)
{
    recorder r = {.c = c, .comm = comm, .path = v->trace_out};
    const tess_status status = tess_train_run(train, 2, on_step, &r);
    progress_clear(c);
    TRY(r.status);
    TRY(status);
    if (!c->json) {
        fprintf(c->out, "%s: a step of rank %d of %lld, %.1f ms of computing here\n", v->trace_out,
                v->trace_number, (long long)v->trace_ranks, r.step_ms);
        return TESS_OK;
    }
    json_t *one = train_trace_all(v) ? json_object() : c->json;
    out_set(c, one, "trace", out_text(v->trace_out));
    out_set(c, one, "rank", json_integer(v->trace_number));
    out_set(c, one, "ranks", json_integer(v->trace_ranks));
    out_set(c, one, "step_ms", out_number(r.step_ms));
    if (one == c->json)
        return TESS_OK;
    if (!json_object_get(c->json, "traces"))
        out_set(c, c->json, "traces", json_array());
    out_append(c, json_object_get(c->json, "traces"), one);
    return TESS_OK;
}
