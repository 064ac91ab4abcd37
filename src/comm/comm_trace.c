/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace.c - trace recorder: a communicator of one rank that runs alone and records its calls.
 *
 * A call is recorded when it begins, with the time since the previous call ended: what the rank
 * computed. The duration of the call itself, copies at most, is not that of a real one and is
 * recorded separately.
 */
#include "comm_trace.h"

#include <assert.h>
#include <string.h>

enum { RANKS_MAX = 1024 };

/* ---- the log -------------------------------------------------------------------------------- */

/* The last call ends now. */
static void extend_last_call(tess__trace_log *log)
{
    log->end = tess_clock_ns() - log->origin;
    if (log->n > 0)
        log->records[log->n - 1].took = log->end - log->records[log->n - 1].begin;
}

tess_status tess__trace_record_call(tess_comm *comm, const tess__call *call)
{
    const tess__comm_trace *self = (const tess__comm_trace *)comm;
    tess__trace_log *log = self->log;
    TESS_GROW(log->ctx, log->records, log->n, log->n + 1, log->room);
    const int64_t now = tess_clock_ns() - log->origin;
    log->records[log->n++] = (tess__trace_record){.call = *call,
                                                  .first = self->first,
                                                  .count = comm->size,
                                                  .stride = self->stride,
                                                  .begin = now,
                                                  .compute = now - log->end};
    extend_last_call(log);
    return TESS_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static tess_status trace_message(tess_comm *comm, tess__message *message)
{
    (void)comm;
    message->done = 1;
    return TESS_OK;
}

static tess_status trace_progress(tess_comm *comm)
{
    (void)comm;
    return TESS_OK;
}

/* Receives get what the rank sends itself, where the sizes agree, or zeros. */
static tess_status trace_finish(tess_comm *comm, tess_request *request)
{
    const tess__call wait = {.op = "wait", .traffic = request->traffic, .request = request->number};
    if (request->number > 0)
        TESS_TRY(tess__trace_record_call(comm, &wait));
    for (int i = 0; i < request->n_receives; i++) {
        const tess__message *m = &request->receives[i];
        if (m->bytes == request->own_bytes)
            memcpy(m->data, request->own, (size_t)m->bytes);
        else
            memset(m->data, 0, (size_t)m->bytes);
    }
    extend_last_call(((const tess__comm_trace *)comm)->log);
    return TESS_OK;
}

static void trace_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    (void)comm;
    (void)status;
    (void)sentence; /* no other rank runs */
}

static int64_t trace_clock(const tess_comm *comm)
{
    (void)comm;
    return tess_clock_ns();
}

/* ---- creation -------------------------------------------------------------------------------- */

static void trace_destroy(tess_comm *comm)
{
    tess__comm_trace *self = (tess__comm_trace *)comm;
    if (!self->is_world)
        return;
    tess__free(comm->ctx, self->log->records);
    tess__free(comm->ctx, self->log);
}

static const tess__comm_ops trace_ops = {
    .kind = "trace",
    .synthetic = 1,
    .send = trace_message,
    .receive = trace_message,
    .finish = trace_finish,
    .progress = trace_progress,
    .fail = trace_fail,
    .clock = trace_clock,
    .destroy = trace_destroy,
    .alltoallv = tess__trace_alltoallv,
    .sendrecv = tess__trace_sendrecv,
    .broadcast = tess__trace_broadcast,
    .allreduce = tess__trace_allreduce,
    .agree = tess__trace_agree,
    .check_equal = tess__trace_check_equal,
    .split = tess__trace_split,
    .grid = tess__trace_grid,
    .measure = tess__trace_measure,
};

static tess__comm_trace *make_trace(tess_ctx *ctx, tess__trace_log *log, int rank, int size)
{
    tess__comm_trace *made =
        (tess__comm_trace *)tess__comm_make(ctx, &trace_ops, sizeof *made, rank, size);
    if (made) {
        made->log = log;
        made->stride = 1;
    }
    return made;
}

tess_status tess__trace_subgroup(tess_comm *comm, int first, int n, int stride, tess_comm **sub)
{
    const tess__comm_trace *self = (const tess__comm_trace *)comm;
    tess__comm_trace *made =
        TESS_MEMORY(make_trace(comm->ctx, self->log, (comm->rank - first) / stride, n));
    made->first = self->first + first * self->stride;
    made->stride = n > 1 ? stride * self->stride : 1;
    *sub = &made->comm;
    return TESS_OK;
}

tess_status tess_comm_trace(tess_ctx *ctx, int rank, int size, tess_comm **comm)
{
    TESS_REQUIRE(ctx, comm);
    TESS_TRY(tess__check_range(__func__, "size", size, 1, RANKS_MAX));
    TESS_TRY(tess__check_range(__func__, "rank", rank, 0, size - 1));
    tess__trace_log *log = TESS_ALLOC_ZERO(ctx, sizeof *log);
    tess__comm_trace *made = make_trace(ctx, log, rank, size);
    if (!made) {
        tess__free(ctx, log);
        return TESS_ENOMEM;
    }
    log->ctx = ctx;
    log->origin = tess_clock_ns();
    made->is_world = 1;
    *comm = &made->comm;
    return TESS_OK;
}

tess_status tess__trace_of(const char *fn, const tess_comm *comm, const tess__comm_trace **trace)
{
    if (comm->ops != &trace_ops || !((const tess__comm_trace *)comm)->is_world)
        return tess__invalid(fn, "comm is not one that tess_comm_trace made");
    *trace = (const tess__comm_trace *)comm;
    return TESS_OK;
}

tess_status tess_comm_trace_clear(tess_comm *comm)
{
    const tess__comm_trace *trace = NULL;
    TESS_REQUIRE(comm);
    TESS_TRY(tess__trace_of(__func__, comm, &trace));
    assert(trace);
    tess__trace_log *log = trace->log;
    log->n = 0;
    log->end = 0;
    log->origin = tess_clock_ns();
    return TESS_OK;
}
