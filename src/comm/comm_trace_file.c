/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace_file.c - a trace as a Chrome trace: JSON that Perfetto shows and the simulator reads.
 *
 *   {"otherData": {"tessera_trace": 1, "rank": 3, "ranks": 8},
 *    "traceEvents": [
 *    {"name": "alltoall", "ph": "X", "pid": 0, "tid": 3, "ts": 12.345, "dur": 0.5, "args": {...}},
 *    ...]}
 */
#include "comm_trace.h"

static const char *const traffics[TESS_TRAFFIC_COUNT] = {"payload", "index", "control"};

static tess_status write_record(tess__out *out, const tess__record *r, int rank, const char *end)
{
    char request[48] = "", line[640];
    if (r->call.request > 0)
        snprintf(request, sizeof request, ", \"request\": %lld", (long long)r->call.request);
    const int n = snprintf(
        line, sizeof line,
        "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %lld.%03d, \"dur\": "
        "%lld.%03d, \"args\": {\"op\": \"%s\", \"traffic\": \"%s\", \"group\": [%d, %d, %d], "
        "\"sent\": %lld, \"received\": %lld, \"peer\": %lld, \"compute_ns\": %lld%s}}%s\n",
        r->call.op, rank, (long long)(r->begin / 1000), (int)(r->begin % 1000),
        (long long)(r->took / 1000), (int)(r->took % 1000), r->call.op, traffics[r->call.traffic],
        r->first, r->count, r->stride, (long long)r->call.sent, (long long)r->call.received,
        (long long)r->call.most, (long long)r->compute, request, end);
    return tess__out_write(out, line, (size_t)n);
}

static tess_status write_all(tess__out *out, const tess__trace *trace)
{
    const tess__tape *tape = trace->tape;
    char head[160];
    const int n = snprintf(head, sizeof head,
                           "{\"otherData\": {\"tessera_trace\": 1, \"rank\": %d, \"ranks\": %d},\n"
                           "\"traceEvents\": [\n",
                           trace->comm.rank, trace->comm.size);
    TESS_TRY(tess__out_write(out, head, (size_t)n));
    for (size_t i = 0; i < tape->n; i++)
        TESS_TRY(
            write_record(out, &tape->records[i], trace->comm.rank, i + 1 < tape->n ? "," : ""));
    return tess__out_write(out, "]}\n", 3);
}

tess_status tess_comm_trace_write(const tess_comm *comm, const char *path)
{
    const char *fn = "tess_comm_trace_write";
    const tess__trace *trace = NULL;
    tess__out *out = NULL;
    if (!comm || !path)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", fn, comm ? "path" : "comm");
    TESS_TRY(tess__trace_of(fn, comm, &trace));
    TESS_TRY(tess__out_open(comm->ctx, path, &out));
    const tess_status status = write_all(out, trace);
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}
