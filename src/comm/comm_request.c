/* SPDX-License-Identifier: Apache-2.0 */
/* comm_request.c - all-to-all and send-receive: arguments, requests, and their messages.
 *
 * An all-to-all is size - 1 messages out and as many in. Round i is a permutation of the ranks, so
 * that no rank receives from all others at once; on several nodes every round between two nodes is
 * a permutation, too:
 *
 *   4 ranks on 1 node                         4 ranks on 2 nodes: {0 1} {2 3}
 *   round     1        2        3             round     1        2        3
 *   rank 0    to 1     to 2     to 3          rank 0    to 1     to 2     to 3
 *             from 3   from 2   from 1                  from 1   from 2   from 3
 *   rank 1    to 2     to 3     to 0          rank 1    to 0     to 3     to 2
 *             from 0   from 3   from 2                  from 0   from 3   from 2
 *
 * The messages of a request lie in the communicator's own memory: starting one allocates nothing.
 */
#include "comm_internal.h"

#include <assert.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

static tess_status open_request(tess_comm *comm, tess_traffic_kind traffic, const char *own,
                                int64_t own_bytes, tess_request **request)
{
    for (int i = 0; i < TESS_COMM_OPEN; i++) {
        tess_request *r = &comm->requests[i];
        if (r->open)
            continue;
        *r = (tess_request){.open = 1,
                            .traffic = traffic,
                            .own = own,
                            .own_bytes = own_bytes,
                            .sends = r->sends,
                            .receives = r->receives};
        *request = r;
        return TESS_OK;
    }
    return tess__fail(TESS_EINVAL,
                      "%d operations are open on a communicator, that is the most: "
                      "tess_comm_wait ends them",
                      TESS_COMM_OPEN);
}

void tess__comm_count(tess_comm *comm, tess_traffic_kind traffic, int64_t bytes, int64_t messages)
{
    comm->counts.bytes[traffic] += bytes;
    comm->counts.messages[traffic] += messages;
}

/* Zero-byte messages are not sent: both sides know the size. */
static tess_status start_send(tess_comm *comm, tess_request *request, int to, const char *data,
                              int64_t bytes)
{
    if (bytes == 0)
        return TESS_OK;
    tess__message *m = &request->sends[request->n_sends++];
    *m = (tess__message){
        .peer = to, .number = comm->sent[to]++, .data = (char *)(uintptr_t)data, .bytes = bytes};
    tess__comm_count(comm, request->traffic, bytes, 1);
    return comm->ops->send(comm, m);
}

static tess_status start_receive(tess_comm *comm, tess_request *request, int from, char *data,
                                 int64_t bytes)
{
    if (bytes == 0)
        return TESS_OK;
    tess__message *m = &request->receives[request->n_receives++];
    *m = (tess__message){
        .peer = from, .number = comm->received[from]++, .data = data, .bytes = bytes};
    return comm->ops->receive(comm, m);
}

static int64_t total(const int64_t *bytes, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

/* The peer of a round: node and rank within the node both advance cyclically. way is 1 for the rank
 * to send to, -1 for the rank to receive from. */
static int peer_of(const tess_comm *comm, int round, int way)
{
    const int each = comm->size % comm->nodes == 0 ? comm->size / comm->nodes : comm->size;
    const int nodes = comm->size / each;
    const int node = (comm->rank / each + way * (round / each) + nodes) % nodes;
    return node * each + (comm->rank % each + way * (round % each) + each) % each;
}

static tess_status start_receives(tess_comm *comm, const tess__alltoallv_args *args,
                                  tess_request *request)
{
    for (int i = 1; i < comm->size; i++) {
        const int p = peer_of(comm, i, -1);
        TESS_TRY(start_receive(comm, request, p, args->recv + total(args->recv_bytes, p),
                               args->recv_bytes[p]));
    }
    return TESS_OK;
}

static tess_status start_sends(tess_comm *comm, const tess__alltoallv_args *args,
                               tess_request *request)
{
    const int64_t *bytes = args->send_bytes;
    for (int i = 1; i < comm->size; i++) {
        const int p = peer_of(comm, i, 1);
        TESS_TRY(start_send(comm, request, p, args->send + (bytes ? total(bytes, p) : 0),
                            bytes ? bytes[p] : args->recv_bytes[comm->rank]));
    }
    return TESS_OK;
}

tess_status tess__comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                       const tess__alltoallv_args *args, tess_request **request)
{
    tess_request *r = NULL;
    const int64_t *out = args->send_bytes, own = args->recv_bytes[comm->rank];
    const char *from = own > 0 ? args->send + (out ? total(out, comm->rank) : 0) : NULL;
    TESS_TRY(comm->ops->progress(comm));
    TESS_TRY(open_request(comm, traffic, from, own, &r));
    assert(r);
    if (own > 0) {
        char *to = args->recv + total(args->recv_bytes, comm->rank);
        if (from != to)
            memcpy(to, from, (size_t)own);
    }
    if (args->recv)
        TESS_TRY(start_receives(comm, args, r));
    if (args->send)
        TESS_TRY(start_sends(comm, args, r));
    *request = r;
    return TESS_OK;
}

tess_status tess__comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                 const tess__alltoallv_args *args)
{
    tess_request *request = NULL;
    TESS_TRY(tess__comm_start_alltoallv(comm, traffic, args, &request));
    return tess__comm_finish(comm, request);
}

tess_status tess__comm_allgather(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv)
{
    for (int p = 0; p < comm->size; p++)
        comm->sizes[0][p] = bytes;
    return tess__comm_alltoallv(comm, traffic,
                                &(tess__alltoallv_args){send, NULL, recv, comm->sizes[0]});
}

tess_status tess__comm_start_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                      const tess__sendrecv_args *args, tess_request **request)
{
    const int to = args->to, from = args->from, own = to == comm->rank;
    tess_request *r = NULL;
    TESS_TRY(comm->ops->progress(comm));
    TESS_TRY(
        open_request(comm, traffic, to < 0 ? NULL : args->send, to < 0 ? 0 : args->send_bytes, &r));
    assert(r);
    if (own && args->send_bytes > 0 && args->send != args->recv)
        memcpy(args->recv, args->send, (size_t)args->send_bytes);
    if (!own && from >= 0)
        TESS_TRY(start_receive(comm, r, from, args->recv, args->recv_bytes));
    if (!own && to >= 0)
        TESS_TRY(start_send(comm, r, to, args->send, args->send_bytes));
    *request = r;
    return TESS_OK;
}

/* ---- all-to-all: the public calls ------------------------------------------------------------ */

tess_status tess__comm_check(const char *fn, const tess_comm *comm, tess_traffic_kind traffic)
{
    if (!comm)
        return tess__invalid(fn, "comm is NULL");
    TESS_TRY(
        tess__check_enum(fn, "traffic", (int)traffic, TESS_TRAFFIC_COUNT, "tess_traffic_kind"));
    return TESS_OK;
}

tess_status tess__comm_check_bytes(const char *fn, const tess_comm *comm, const char *name,
                                   const void *data, const int64_t *bytes)
{
    int64_t sum = 0;
    if (!bytes)
        return tess__invalid(fn, "%s_bytes is NULL", name);
    for (int p = 0; p < comm->size; p++) {
        if (bytes[p] < 0 || bytes[p] > INT64_MAX / 2 - sum)
            return tess__invalid(fn, "%s_bytes[%d] is %lld, must be 0 or more%s", name, p,
                                 (long long)bytes[p],
                                 bytes[p] < 0 ? "" : " and their sum below 2^62");
        sum += bytes[p];
    }
    if (sum > 0 && !data)
        return tess__invalid(fn, "%s is NULL, with %lld bytes", name, (long long)sum);
    return TESS_OK;
}

static tess_status check_alltoallv(const char *fn, const tess_comm *comm, tess_traffic_kind traffic,
                                   const tess__alltoallv_args *args)
{
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "send", args->send, args->send_bytes));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "recv", args->recv, args->recv_bytes));
    if (args->send_bytes[comm->rank] != args->recv_bytes[comm->rank])
        return tess__invalid(fn, "rank %d sends itself %lld bytes and expects %lld", comm->rank,
                             (long long)args->send_bytes[comm->rank],
                             (long long)args->recv_bytes[comm->rank]);
    return TESS_OK;
}

tess_status tess_comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                      const int64_t *send_bytes, void *recv,
                                      const int64_t *recv_bytes, tess_request **request)
{
    const tess__alltoallv_args args = {send, send_bytes, recv, recv_bytes};
    TESS_TRY(check_alltoallv(__func__, comm, traffic, &args));
    if (!request)
        return tess__invalid(__func__, "request is NULL");
    return comm->ops->alltoallv ? comm->ops->alltoallv(comm, traffic, &args, request)
                                : tess__comm_start_alltoallv(comm, traffic, &args, request);
}

tess_status tess_comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                const int64_t *send_bytes, void *recv, const int64_t *recv_bytes)
{
    const tess__alltoallv_args args = {send, send_bytes, recv, recv_bytes};
    TESS_TRY(check_alltoallv("tess_comm_alltoallv", comm, traffic, &args));
    return comm->ops->alltoallv ? comm->ops->alltoallv(comm, traffic, &args, NULL)
                                : tess__comm_alltoallv(comm, traffic, &args);
}

/* ---- send-receive: the public call ----------------------------------------------------------- */

/* One direction: peer_name is "to" or "from", name "send" or "recv". */
static tess_status check_direction(const tess_comm *comm, const char *peer_name, int peer,
                                   const char *name, const void *data, int64_t bytes)
{
    const char *fn = "tess_comm_start_sendrecv";
    TESS_TRY(tess__check_range(fn, peer_name, peer, -1, comm->size - 1));
    if (bytes < 0)
        return tess__invalid(fn, "%s_bytes is %lld, must be 0 or more", name, (long long)bytes);
    if (peer >= 0 && bytes > 0 && !data)
        return tess__invalid(fn, "%s is NULL, with %lld bytes", name, (long long)bytes);
    return TESS_OK;
}

tess_status tess_comm_start_sendrecv(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                     int64_t send_bytes, int to, void *recv, int64_t recv_bytes,
                                     int from, tess_request **request)
{
    TESS_TRY(tess__comm_check(__func__, comm, traffic));
    TESS_TRY(check_direction(comm, "to", to, "send", send, send_bytes));
    TESS_TRY(check_direction(comm, "from", from, "recv", recv, recv_bytes));
    const int own = to == comm->rank;
    if (own != (from == comm->rank) || (own && send_bytes != recv_bytes))
        return tess__invalid(
            __func__, "rank %d sends itself %lld bytes and expects %lld from itself", comm->rank,
            own ? (long long)send_bytes : 0, from == comm->rank ? (long long)recv_bytes : 0);
    if (!request)
        return tess__invalid(__func__, "request is NULL");
    const tess__sendrecv_args args = {send, send_bytes, to, recv, recv_bytes, from};
    return comm->ops->sendrecv ? comm->ops->sendrecv(comm, traffic, &args, request)
                               : tess__comm_start_sendrecv(comm, traffic, &args, request);
}
