/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace.c - a communicator that plays one rank of many alone, and writes its calls down.
 *
 * A call is written down when it begins, with the time since the one before it ended: what the rank
 * computed. What the call itself takes here, copies at most, is no time of a real one and is kept
 * apart.
 */
#include "comm_trace.h"

#include <string.h>

enum { RANKS_MAX = 1024, ROOM = 256 };

/* ---- the tape -------------------------------------------------------------------------------- */

static tess_status grow(tess__tape *tape)
{
    const size_t room = tape->room ? 2 * tape->room : ROOM;
    size_t bytes;
    if (tess__mul(room, sizeof *tape->records, &bytes))
        return tess__nomem(SIZE_MAX);
    tess__record *records = tess__alloc(tape->ctx, bytes);
    if (!records)
        return TESS_ENOMEM;
    if (tape->n > 0)
        memcpy(records, tape->records, tape->n * sizeof *records);
    tess__free(tape->ctx, tape->records);
    tape->records = records;
    tape->room = room;
    return TESS_OK;
}

/* The last call goes on until now. */
static void touch(tess__tape *tape)
{
    tape->end = tess_clock_ns() - tape->origin;
    if (tape->n > 0)
        tape->records[tape->n - 1].took = tape->end - tape->records[tape->n - 1].begin;
}

static tess_status trace_note(tess_comm *comm, const tess__call *call)
{
    const tess__trace *self = (const tess__trace *)comm;
    tess__tape *tape = self->tape;
    if (tape->n == tape->room)
        TESS_TRY(grow(tape));
    const int64_t now = tess_clock_ns() - tape->origin;
    tape->records[tape->n++] = (tess__record){.call = *call,
                                              .first = self->first,
                                              .count = comm->size,
                                              .stride = self->stride,
                                              .begin = now,
                                              .compute = now - tape->end};
    touch(tape);
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

static tess_status trace_finish(tess_comm *comm, tess_request *request)
{
    for (int i = 0; i < request->n_receives; i++) {
        const tess__message *m = &request->receives[i];
        if (m->bytes == request->own_bytes)
            memcpy(m->data, request->own, (size_t)m->bytes);
        else
            memset(m->data, 0, (size_t)m->bytes);
    }
    touch(((const tess__trace *)comm)->tape);
    return TESS_OK;
}

static void trace_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    (void)comm;
    (void)status;
    (void)sentence; /* there is nobody to tell */
}

static int64_t trace_clock(const tess_comm *comm)
{
    (void)comm;
    return tess_clock_ns();
}

static int64_t trace_fresh(tess_comm *comm)
{
    return ++((const tess__trace *)comm)->tape->numbers;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void trace_destroy(tess_comm *comm)
{
    tess__trace *self = (tess__trace *)comm;
    if (!self->whole)
        return;
    tess__free(comm->ctx, self->tape->records);
    tess__free(comm->ctx, self->tape);
}

static tess_status trace_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                              tess_comm **part);

static const tess__comm_ops trace_ops = {
    .kind = "trace",
    .send = trace_message,
    .receive = trace_message,
    .finish = trace_finish,
    .progress = trace_progress,
    .fail = trace_fail,
    .clock = trace_clock,
    .fresh = trace_fresh,
    .part = trace_part,
    .note = trace_note,
    .destroy = trace_destroy,
};

static tess__trace *make(tess_ctx *ctx, tess__tape *tape, int rank, int size)
{
    tess__trace *made = (tess__trace *)tess__comm_make(ctx, &trace_ops, sizeof *made, rank, size);
    if (made) {
        made->tape = tape;
        made->stride = 1;
    }
    return made;
}

static tess_status trace_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                              tess_comm **part)
{
    const tess__trace *self = (const tess__trace *)comm;
    (void)tag;
    tess__trace *made = make(comm->ctx, self->tape, rank, n);
    if (!made)
        return TESS_ENOMEM;
    made->first = self->first + order[0] * self->stride;
    made->stride = n > 1 ? (order[1] - order[0]) * self->stride : 1;
    *part = &made->comm;
    return TESS_OK;
}

tess_status tess_comm_trace(tess_ctx *ctx, int rank, int size, tess_comm **comm)
{
    const char *fn = "tess_comm_trace";
    if (!ctx || !comm)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", fn, ctx ? "comm" : "ctx");
    if (size < 1 || size > RANKS_MAX)
        return tess__fail(TESS_EINVAL, "%s: size is %d, must be 1..%d", fn, size, RANKS_MAX);
    if (rank < 0 || rank >= size)
        return tess__fail(TESS_EINVAL, "%s: rank is %d, must be 0..%d", fn, rank, size - 1);
    tess__tape *tape = tess__alloc_zero(ctx, sizeof *tape);
    if (!tape)
        return TESS_ENOMEM;
    tess__trace *made = make(ctx, tape, rank, size);
    if (!made) {
        tess__free(ctx, tape);
        return TESS_ENOMEM;
    }
    tape->ctx = ctx;
    tape->origin = tess_clock_ns();
    made->whole = 1;
    *comm = &made->comm;
    return TESS_OK;
}

tess_status tess__trace_of(const char *fn, const tess_comm *comm, const tess__trace **trace)
{
    if (comm->ops != &trace_ops || !((const tess__trace *)comm)->whole)
        return tess__fail(TESS_EINVAL, "%s: comm is not one that tess_comm_trace made", fn);
    *trace = (const tess__trace *)comm;
    return TESS_OK;
}

tess_status tess_comm_trace_clear(tess_comm *comm)
{
    const char *fn = "tess_comm_trace_clear";
    const tess__trace *trace = NULL;
    if (!comm)
        return tess__fail(TESS_EINVAL, "%s: comm is NULL", fn);
    TESS_TRY(tess__trace_of(fn, comm, &trace));
    tess__tape *tape = trace->tape;
    tape->n = 0;
    tape->end = 0;
    tape->origin = tess_clock_ns();
    return TESS_OK;
}
