/* SPDX-License-Identifier: Apache-2.0 */
/* train_trace.c - records one rank of a training job and writes a step of it as a trace.
 *
 * The rank trains as it would among the others, on a trace recorder, which sends nothing. The first
 * step touches memory that later ones only use again, so the second one is written. Losses have no
 * meaning: the data that other ranks would send are made up.
 */
#include "tessera/advanced/collectives.h"
#include "train_together.h"

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

int train_trace_number(const train_values *v)
{
    return v->trace_rank && !train_trace_all(v) ? (int)strtol(v->trace_rank, NULL, 10) : 0;
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
        return v->trace_ranks || v->trace_rank || v->trace_together
                   ? out_usage(c, "--trace-%s is given, but no --trace-out",
                               v->trace_ranks  ? "ranks"
                               : v->trace_rank ? "rank"
                                               : "together")
                   : TESS_OK;
    if (c->ranks > 1)
        return out_usage(c, "--trace-out plays one rank alone, must be started without a launcher");
    if (v->trace_ranks < 2)
        return out_usage(c, "--trace-ranks is missing, must be the ranks of the job, 2 or more");
    TRY(check_rank(c, v));
    if (v->trace_together && !train_trace_all(v) && train_together_ranks() == 1)
        return out_usage(c, "--trace-together is given, but no --trace-rank all");
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
    if (++r->steps == 1) {
        train_together_wait();
        r->status = tess_comm_trace_clear(r->comm);
    } else {
        r->status = tess_comm_trace_write(r->comm, r->path);
    }
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
    train_trace_show(
        c, v, &(train_traced){v->trace_out, v->trace_number, train_together_ranks(), r.step_ms});
    return TESS_OK;
}

void train_trace_show(cli *c, const train_values *v, const train_traced *t)
{
    if (!c->json) {
        fprintf(c->out, "%s: a step of rank %d of %lld, %.1f ms of computing here", t->path,
                t->rank, (long long)v->trace_ranks, t->step_ms);
        if (t->together > 1)
            fprintf(c->out, ", %d ranks at the same time", t->together);
        fputc('\n', c->out);
        return;
    }
    json_t *one = train_trace_all(v) ? json_object() : c->json;
    out_set(c, one, "trace", out_text(t->path));
    out_set(c, one, "rank", json_integer(t->rank));
    out_set(c, one, "ranks", json_integer(v->trace_ranks));
    out_set(c, one, "together", json_integer(t->together));
    out_set(c, one, "step_ms", out_number(t->step_ms));
    if (one == c->json)
        return;
    if (!json_object_get(c->json, "traces"))
        out_set(c, c->json, "traces", json_array());
    out_append(c, json_object_get(c->json, "traces"), one);
}
