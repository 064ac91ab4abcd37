/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace_calls.c - collectives of the trace recorder.
 *
 * A call is recorded with the bytes and messages that the generic algorithm of that collective
 * would send on this rank. Data of other ranks is replaced by this rank's own: an all-to-all
 * delivers what the rank sends to itself (comm_trace.c), a sum is the own value times size, a
 * broadcast, an agreement and a maximum leave the own value.
 */
#include "comm_trace.h"

/* Records a collective that changes no data, and counts its messages. */
static tess_status record(tess_comm *comm, const char *op, tess_traffic_kind traffic, int64_t sent,
                          int64_t messages, int64_t received)
{
    const tess__call call = {.op = op,
                             .traffic = traffic,
                             .sent = sent,
                             .received = received,
                             .most = messages > 0 ? sent / messages : 0};
    tess__comm_count(comm, traffic, sent, messages);
    return tess__trace_record_call(comm, &call);
}

static int64_t next_request(tess_comm *comm)
{
    return ++((const tess__comm_trace *)comm)->log->requests;
}

tess_status tess__trace_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                  const tess__alltoallv_args *args, tess_request **request)
{
    const int64_t *out = args->send_bytes;
    tess__call call = {.op = out ? "alltoall" : "gather",
                       .traffic = traffic,
                       .request = request ? next_request(comm) : 0};
    for (int p = 0; p < comm->size; p++) {
        const int64_t bytes = out ? out[p] : args->recv_bytes[comm->rank];
        if (p == comm->rank)
            continue;
        call.sent += bytes;
        call.received += args->recv_bytes[p];
        call.most = TESS_MAX(call.most, bytes);
    }
    TESS_TRY(tess__trace_record_call(comm, &call));
    if (!request)
        return tess__comm_alltoallv(comm, traffic, args);
    TESS_TRY(tess__comm_start_alltoallv(comm, traffic, args, request));
    (*request)->number = call.request;
    return TESS_OK;
}

tess_status tess__trace_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                 const tess__sendrecv_args *args, tess_request **request)
{
    const int own = args->to == comm->rank;
    const int64_t sent = own || args->to < 0 ? 0 : args->send_bytes;
    const tess__call call = {.op = "exchange",
                             .traffic = traffic,
                             .sent = sent,
                             .received = own || args->from < 0 ? 0 : args->recv_bytes,
                             .most = sent,
                             .request = next_request(comm)};
    TESS_TRY(tess__trace_record_call(comm, &call));
    TESS_TRY(tess__comm_start_sendrecv(comm, traffic, args, request));
    (*request)->number = call.request;
    return TESS_OK;
}

tess_status tess__trace_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root,
                                  int64_t bytes)
{
    const int64_t peers = comm->size - 1, is_root = comm->rank == root;
    const int64_t own = tess__piece_begin(bytes, comm->size, comm->rank + 1) -
                        tess__piece_begin(bytes, comm->size, comm->rank);
    if (tess__broadcast_is_direct(comm, bytes))
        return record(comm, "broadcast", traffic, is_root * peers * bytes, is_root * peers,
                      is_root ? 0 : bytes);
    return record(comm, "broadcast", traffic, is_root * (bytes - own) + peers * own,
                  (1 + is_root) * peers, is_root ? bytes - own : bytes);
}

/* Every rank has the values of this one; what is counted is what the ranks would send. */
tess_status tess__trace_allreduce(tess_comm *comm, tess_traffic_kind traffic,
                                  const tess__reduction *op, char *x, int64_t n)
{
    const tess_comm_counts before = comm->counts;
    const int64_t size = (int64_t)op->size, piece = TESS_COMM_PIECE / size;
    int64_t messages;
    const int64_t sent = tess__allreduce_bytes(comm, op, n, &messages);
    const tess__call call = {.op = op->name,
                             .traffic = traffic,
                             .sent = sent,
                             .received = sent,
                             .most = comm->size > 1 ? sent / (comm->size - 1) : 0};
    TESS_TRY(tess__trace_record_call(comm, &call));
    for (int64_t at = 0, now; at < n && comm->size > 1; at += now) {
        now = n - at < piece ? n - at : piece;
        TESS_TRY(tess__reduce_by_allgather(comm, traffic, op, x + at * size, now));
    }
    comm->counts = before;
    tess__comm_count(comm, traffic, sent, messages);
    return TESS_OK;
}

tess_status tess__trace_agree(tess_comm *comm, tess_status mine)
{
    const int64_t peers = comm->size - 1, bytes = peers * (int64_t)sizeof(int32_t);
    TESS_TRY(record(comm, "agree", TESS_TRAFFIC_CONTROL, bytes, peers, bytes));
    return mine;
}

tess_status tess__trace_check_equal(tess_comm *comm, int64_t bytes)
{
    const int64_t peers = comm->size - 1, first = comm->rank == 0;
    const int64_t small = peers * (int64_t)(sizeof(int64_t) + sizeof(int32_t));
    const int64_t pieces = (bytes + TESS_COMM_PIECE - 1) / TESS_COMM_PIECE;
    return record(comm, "same", TESS_TRAFFIC_CONTROL, small + first * peers * bytes,
                  peers * (2 + first * pieces), small + (first ? 0 : bytes));
}

/* ---- sub-communicators ----------------------------------------------------------------------- */

tess_status tess__trace_split(tess_comm *comm, int color, int key, tess_comm **sub)
{
    (void)comm, (void)color, (void)key, (void)sub;
    return tess__fail(TESS_ENOTSUP, "tess_comm_split: a trace cannot know the colours of other "
                                    "ranks; tess_comm_grid makes parts of it");
}

tess_status tess__trace_grid(tess_comm *comm, int columns, tess_comm **row, tess_comm **column)
{
    const int r = comm->rank / columns, c = comm->rank % columns;
    tess_comm *made = NULL;
    TESS_TRY(tess__trace_subgroup(comm, r * columns, columns, 1, &made));
    const tess_status status = tess__trace_subgroup(comm, c, comm->size / columns, columns, column);
    if (status == TESS_OK)
        *row = made;
    else
        tess_comm_destroy(made);
    return status;
}

tess_status tess__trace_measure(tess_comm *comm, tess_link *link)
{
    (void)comm, (void)link;
    return tess__fail(TESS_ENOTSUP, "tess_comm_measure: a trace is alone and has no links");
}
