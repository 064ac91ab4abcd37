/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace_file.c - a trace as a Chrome trace: JSON that Perfetto displays and the simulator
 * reads.
 *
 *   {"otherData": {"tessera_trace": 1, "rank": 3, "ranks": 8},
 *    "traceEvents": [
 *    {"name": "alltoall", "ph": "X", "pid": 0, "tid": 3, "ts": 12.345, "dur": 0.5, "args": {...}},
 *    ...]}
 */
#include "comm_trace.h"

#include "file/json.h"

static void add_record(tess__jw *w, const tess__trace_record *r, int rank)
{
    tess__jw_row(w, NULL, '{');
    tess__jw_text(w, "name", r->call.op);
    tess__jw_text(w, "ph", "X");
    tess__jw_int(w, "pid", 0);
    tess__jw_int(w, "tid", rank);
    tess__jw_real(w, "ts", (double)r->begin / 1e3);
    tess__jw_real(w, "dur", (double)r->took / 1e3);
    tess__jw_row(w, "args", '{');
    tess__jw_text(w, "op", r->call.op);
    tess__jw_text(w, "traffic", tess_traffic_name(r->call.traffic));
    tess__jw_row_i32(w, "group", (int32_t[]){r->first, r->count, r->stride}, 3);
    tess__jw_int(w, "sent", r->call.sent);
    tess__jw_int(w, "received", r->call.received);
    tess__jw_int(w, "peer", r->call.most);
    tess__jw_int(w, "compute_ns", r->compute);
    if (r->call.request > 0)
        tess__jw_int(w, "request", r->call.request);
    tess__jw_end(w, '}');
    tess__jw_end(w, '}');
}

static void add_trace(tess__jw *w, const void *user)
{
    const tess__comm_trace *trace = user;
    const tess__trace_log *log = trace->log;
    tess__jw_begin(w, NULL, '{');
    tess__jw_row(w, "otherData", '{');
    tess__jw_int(w, "tessera_trace", 1);
    tess__jw_int(w, "rank", trace->comm.rank);
    tess__jw_int(w, "ranks", trace->comm.size);
    tess__jw_end(w, '}');
    tess__jw_begin(w, "traceEvents", '[');
    for (int64_t i = 0; i < log->n; i++)
        add_record(w, &log->records[i], trace->comm.rank);
    tess__jw_end(w, ']');
    tess__jw_end(w, '}');
}

tess_status tess_comm_trace_write(const tess_comm *comm, const char *path)
{
    const tess__comm_trace *trace = NULL;
    TESS_REQUIRE(comm, path);
    TESS_TRY(tess__trace_of(__func__, comm, &trace));
    return tess__json_save(comm->ctx, path, add_trace, trace);
}
