/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - a traced rank on a cluster: compute time as recorded, messages by the cost model.
 *
 * Two clocks, t of the rank and w, when its wires are free:
 *
 *   before a call     t += compute * scale
 *   a blocking call   w = max(t, w) + d;  t = w
 *   a started one     w = end = max(t, w) + d
 *   its wait          t = max(t, end)
 *
 * where d is the collective's time on the cluster, for a group of `count` ranks that lie `stride`
 * apart: a node holds per_node / stride of them. Buffers follow from the bytes that were sent to
 * others: of an all-to-all count / (count - 1) times as many; a gather holds what came and what the
 * rank gave; a sum is sent twice, in parts there and whole back.
 *   Cost: one tess_collective_time for each call.
 */
#include "replay_calls.h"

tess_collective tess__replay_collective(const tess__replay_call *call, int per_node)
{
    static const tess_collective_op ops[TESS_TRACE_OPS] = {
        TESS_ALL_TO_ALL, TESS_SEND_RECEIVE, TESS_ALL_GATHER, TESS_BROADCAST,
        TESS_ALL_REDUCE, TESS_ALL_REDUCE,   TESS_ALL_REDUCE, TESS_ALL_REDUCE};
    const int n = call->count, near = per_node / (call->stride > 0 ? call->stride : 1);
    const int64_t most = TESS_MAX(call->sent, call->received);
    tess_collective c = {.op = ops[call->op],
                         .gpus = n,
                         .per_node = near < 1   ? 1
                                     : near < n ? near
                                                : n,
                         .bytes = most};
    if (n < 2)
        return c;
    if (call->op == TESS_TRACE_ALLTOALL)
        c.bytes = most + most / (n - 1);
    else if (call->op == TESS_TRACE_GATHER)
        c.bytes = call->received + call->sent / (n - 1);
    else if (call->op == TESS_TRACE_BROADCAST)
        c.bytes = call->received > 0 ? call->received : call->sent / (n - 1);
    else if (call->op >= TESS_TRACE_SUM)
        c.bytes = most / 2 + most / 2 / (n - 1);
    const int64_t limit = (int64_t)1 << 53;
    c.bytes = TESS_MIN(c.bytes, limit);
    return c;
}

/* 0 where nothing is sent. */
static tess_status time_of(const tess_cluster *cluster, const tess__replay_call *call, int per_node,
                           double *seconds)
{
    const tess_collective work = tess__replay_collective(call, per_node);
    tess_collective_result result;
    *seconds = 0.0;
    if (call->count < 2 || (call->sent == 0 && call->received == 0))
        return TESS_OK;
    TESS_TRY(tess_collective_time(cluster, &work, &result));
    *seconds = 1e-9 * (double)result.ns;
    return TESS_OK;
}

typedef struct {
    const tess_trace *trace;
    const tess_cluster *cluster;
    double scale;
    int per_node;
    double t, wires; /* seconds */
    double *ends;    /* (calls): of started ones */
} player;

/* The rank goes on at `end`, and what it waits is counted for the operation. */
static void wait_until(player *p, double end, int op, tess_trace_result *r)
{
    if (end <= p->t)
        return;
    r->parts[op].wait_s += end - p->t;
    r->wait_s += end - p->t;
    p->t = end;
}

static tess_status play(player *p, int64_t number, tess_trace_result *r)
{
    const tess__replay_call *call = &p->trace->calls[number];
    const double compute = p->scale * 1e-9 * (double)call->compute;
    double seconds;
    p->t += compute;
    r->compute_s += compute;
    if (call->op == TESS_TRACE_OPS) {
        wait_until(p, p->ends[call->of], p->trace->calls[call->of].op, r);
        return TESS_OK;
    }
    tess_trace_part *part = &r->parts[call->op];
    TESS_TRY(time_of(p->cluster, call, p->per_node, &seconds));
    part->calls++;
    part->bytes += call->sent;
    part->message_s += seconds;
    if (seconds > 0.0)
        p->wires = (p->wires > p->t ? p->wires : p->t) + seconds;
    p->ends[number] = seconds > 0.0 ? p->wires : p->t;
    if (!call->started)
        wait_until(p, p->ends[number], call->op, r);
    return TESS_OK;
}

static tess_status play_all(player *p, tess_trace_result *result)
{
    tess_trace_result r = {0};
    double messages = 0.0;
    for (int64_t i = 0; i < p->trace->info.calls; i++)
        TESS_TRY(play(p, i, &r));
    for (int op = 0; op < TESS_TRACE_OPS; op++)
        messages += r.parts[op].message_s;
    r.step_s = r.compute_s + r.wait_s;
    r.hidden_s = messages > r.wait_s ? messages - r.wait_s : 0.0;
    *result = r;
    return TESS_OK;
}

tess_status tess_trace_replay(const tess_trace *trace, const tess_cluster *cluster,
                              const tess_trace_opts *opts, tess_trace_result *result)
{
    const tess_trace_opts o = opts ? *opts : (tess_trace_opts){0};
    tess_cluster_info info;
    TESS_REQUIRE(trace, cluster, result);
    if (o.compute_scale != 0.0 && !(o.compute_scale >= 1e-9 && o.compute_scale <= 1e9))
        return tess__invalid(__func__, "compute_scale is %g, must be 1e-9..1e9, or 0 for 1",
                             o.compute_scale);
    TESS_TRY(tess__check_least(__func__, "per_node", o.per_node, 0));
    TESS_TRY(tess_cluster_query(cluster, &info));
    player p = {.trace = trace,
                .cluster = cluster,
                .scale = o.compute_scale != 0.0 ? o.compute_scale : 1.0,
                .per_node = o.per_node ? o.per_node : info.node_gpus,
                .ends =
                    TESS_ALLOC(trace->ctx, tess__bytes((size_t)trace->info.calls, sizeof *p.ends))};
    const tess_status status = play_all(&p, result);
    tess__free(trace->ctx, p.ends);
    return status;
}
