/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_trace.c - the step of a rank that was traced, on a cluster. */
#include "cmd_simulate.h"
#include "tessera/advanced/trace.h"

#include <math.h>

static void print(const cli *c, const tess_trace_info *info, const char *cluster,
                  const tess_trace_result *r)
{
    char bytes[32];
    fprintf(c->out, "rank %d of %d on %s, %lld calls\n", info->rank, info->ranks, cluster,
            (long long)info->calls);
    fprintf(c->out, "step            %12.3f ms\n", 1e3 * r->step_s);
    fprintf(c->out, "  compute       %12.3f\n", 1e3 * r->compute_s);
    fprintf(c->out, "  waiting       %12.3f\n", 1e3 * r->wait_s);
    fprintf(c->out, "hidden          %12.3f ms of messages, while it computes\n",
            1e3 * r->hidden_s);
    fprintf(c->out, "\n%-10s %8s %12s %14s %12s\n", "call", "times", "sent", "messages ms",
            "waiting ms");
    for (int op = 0; op < TESS_TRACE_OPS; op++) {
        const tess_trace_part *p = &r->parts[op];
        if (p->calls > 0)
            fprintf(c->out, "%-10s %8lld %12s %14.3f %12.3f\n",
                    tess_trace_op_name((tess_trace_op)op), (long long)p->calls,
                    out_bytes(p->bytes, bytes), 1e3 * p->message_s, 1e3 * p->wait_s);
    }
}

static void set_members(cli *c, const tess_trace_info *info, const char *cluster,
                        const tess_trace_result *r)
{
    json_t *calls = json_object();
    for (int op = 0; op < TESS_TRACE_OPS; op++) {
        const tess_trace_part *p = &r->parts[op];
        json_t *o = json_object();
        out_set(c, o, "calls", json_integer(p->calls));
        out_set(c, o, "bytes", json_integer(p->bytes));
        out_set(c, o, "message_ms", out_number(1e3 * p->message_s));
        out_set(c, o, "wait_ms", out_number(1e3 * p->wait_s));
        out_set(c, calls, tess_trace_op_name((tess_trace_op)op), o);
    }
    out_set(c, c->json, "cluster", out_text(cluster));
    out_set(c, c->json, "rank", json_integer(info->rank));
    out_set(c, c->json, "ranks", json_integer(info->ranks));
    out_set(c, c->json, "recorded_compute_ms", out_number(1e3 * info->compute_s));
    out_set(c, c->json, "step_ms", out_number(1e3 * r->step_s));
    out_set(c, c->json, "compute_ms", out_number(1e3 * r->compute_s));
    out_set(c, c->json, "wait_ms", out_number(1e3 * r->wait_s));
    out_set(c, c->json, "hidden_ms", out_number(1e3 * r->hidden_s));
    out_set(c, c->json, "calls", calls);
}

/* One file of the trace recorder, whose rank stands for all. */
static tess_status simulate_one(cli *c, const simulate_values *v, tess_trace *trace)
{
    const tess_trace_opts opts = {.compute_scale = isnan(v->compute_scale) ? 0.0 : v->compute_scale,
                                  .per_node = (int)v->per_node};
    tess_cluster *on = NULL;
    tess_trace_info info = {0};
    tess_trace_result result;
    tess_status status = out_option(c, "--cluster", tess_cluster_load(c->ctx, v->cluster, &on));
    if (status == TESS_OK)
        status = tess_trace_query(trace, &info);
    if (status == TESS_OK)
        status = tess_trace_replay(trace, on, &opts, &result);
    if (status == TESS_OK && c->json)
        set_members(c, &info, v->cluster, &result);
    else if (status == TESS_OK)
        print(c, &info, v->cluster, &result);
    tess_cluster_destroy(on);
    return status;
}

tess_status simulate_trace(cli *c, const simulate_values *v)
{
    tess_trace *trace = NULL;
    int ours = 0;
    if (v->trace.n == 1 && !v->as_recorded && !v->timeline)
        TRY(tess_trace_is(c->ctx, v->trace.items[0], &ours));
    if (!ours)
        return simulate_ranks(c, v);
    if (v->set.n)
        return out_usage(c, "--set is given, but %s has times of its own", v->trace.items[0]);
    if (v->params)
        return out_usage(c, "--params is given, but %s has no kernels that it could slow down",
                         v->trace.items[0]);
    TRY(tess_trace_load(c->ctx, v->trace.items[0], &trace));
    const tess_status status = simulate_one(c, v, trace);
    tess_trace_destroy(trace);
    return status;
}
