/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - the public calls that move messages: arguments, counts, requests.
 *
 * An all-to-all is size - 1 messages out and as many in. Turn i of everyone is a permutation, so
 * that no rank gets messages from all others at once, and on several nodes so is every turn between
 * two nodes:
 *
 *   4 ranks, 1 node    rank 0:  to 1 2 3   from 3 2 1      2 nodes    rank 0:  to 1 2 3   from 1 2
 * 3 rank 1:  to 2 3 0   from 0 3 2                 rank 1:  to 0 3 2   from 0 3 2
 *
 * A request keeps its messages in the communicator's own memory: starting one allocates nothing.
 */
#include "dist.h"

#include <string.h>

/* ---- life --------------------------------------------------------------------------------------
 */

tess_status tess__comm_open(tess_comm *comm, tess_ctx *ctx, const tess__comm_ops *ops, int rank,
                            int size)
{
    const size_t n = (size_t)size, peers = n - 1;
    const size_t messages = TESS_COMM_OPEN * 2 * peers * sizeof(tess__message);
    const size_t scratch = size > 1 ? n * TESS_COMM_PIECE : 0;
    *comm = (tess_comm){
        .ctx = ctx, .ops = ops, .rank = rank, .size = size, .nodes = 1, .arena = {.ctx = ctx}};
    TESS_TRY(tess__arena_reserve(&comm->arena, 4 * tess__arena_round(n * sizeof(int64_t)) +
                                                   tess__arena_round(messages) +
                                                   tess__arena_round(scratch)));
    int64_t **const arrays[] = {&comm->sent, &comm->received, &comm->sizes[0], &comm->sizes[1]};
    for (int i = 0; i < 4; i++) {
        *arrays[i] = tess__arena_take(&comm->arena, n * sizeof(int64_t));
        memset(*arrays[i], 0, n * sizeof(int64_t));
    }
    comm->messages = tess__arena_take(&comm->arena, messages);
    comm->scratch = tess__arena_take(&comm->arena, scratch);
    for (size_t i = 0; i < TESS_COMM_OPEN; i++) {
        comm->requests[i].sends = comm->messages + 2 * i * peers;
        comm->requests[i].receives = comm->requests[i].sends + peers;
    }
    return TESS_OK;
}

void tess__comm_close(tess_comm *comm)
{
    tess__arena_free(&comm->arena);
}

void tess_comm_destroy(tess_comm *comm)
{
    if (!comm)
        return;
    comm->ops->destroy(comm);
    tess__comm_close(comm);
    tess__free(comm->ctx, comm);
}

tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info)
{
    if (!comm || !info)
        return tess__fail(TESS_EINVAL, "tess_comm_query: %s is NULL", comm ? "info" : "comm");
    *info = (tess_comm_info){.kind = comm->ops->kind,
                             .rank = comm->rank,
                             .size = comm->size,
                             .nodes = comm->nodes,
                             .node = comm->node};
    return TESS_OK;
}

tess_status tess_comm_counts_read(const tess_comm *comm, tess_comm_counts *counts)
{
    if (!comm || !counts)
        return tess__fail(TESS_EINVAL, "tess_comm_counts_read: %s is NULL",
                          comm ? "counts" : "comm");
    *counts = comm->counts;
    return TESS_OK;
}

int64_t tess_comm_clock(const tess_comm *comm)
{
    return comm ? comm->ops->clock(comm) : 0;
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static tess_status take_request(tess_comm *comm, tess_traffic_kind traffic, const char *own,
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

/* A message of nothing is none: both sides know its size. */
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

/* The rank that is `turn` turns away: its node and its place on it both go round. way is 1 for whom
 * to send to, -1 for whom to receive from. */
static int peer_of(const tess_comm *comm, int turn, int way)
{
    const int each = comm->size % comm->nodes == 0 ? comm->size / comm->nodes : comm->size;
    const int nodes = comm->size / each;
    const int node = (comm->rank / each + way * (turn / each) + nodes) % nodes;
    return node * each + (comm->rank % each + way * (turn % each) + each) % each;
}

static tess_status start_receives(tess_comm *comm, const tess__moves *moves, tess_request *request)
{
    for (int i = 1; i < comm->size; i++) {
        const int p = peer_of(comm, i, -1);
        TESS_TRY(start_receive(comm, request, p, moves->recv + total(moves->recv_bytes, p),
                               moves->recv_bytes[p]));
    }
    return TESS_OK;
}

static tess_status start_sends(tess_comm *comm, const tess__moves *moves, tess_request *request)
{
    const int64_t *bytes = moves->send_bytes;
    for (int i = 1; i < comm->size; i++) {
        const int p = peer_of(comm, i, 1);
        TESS_TRY(start_send(comm, request, p, moves->send + (bytes ? total(bytes, p) : 0),
                            bytes ? bytes[p] : moves->recv_bytes[comm->rank]));
    }
    return TESS_OK;
}

tess_status tess__comm_start(tess_comm *comm, tess_traffic_kind traffic, const tess__moves *moves,
                             tess_request **request)
{
    tess_request *r = NULL;
    const int64_t *out = moves->send_bytes, own = moves->recv_bytes[comm->rank];
    const char *from = own > 0 ? moves->send + (out ? total(out, comm->rank) : 0) : NULL;
    TESS_TRY(comm->ops->progress(comm));
    TESS_TRY(take_request(comm, traffic, from, own, &r));
    if (own > 0) {
        char *to = moves->recv + total(moves->recv_bytes, comm->rank);
        if (from != to)
            memcpy(to, from, (size_t)own);
    }
    if (moves->recv)
        TESS_TRY(start_receives(comm, moves, r));
    if (moves->send)
        TESS_TRY(start_sends(comm, moves, r));
    *request = r;
    return TESS_OK;
}

tess_status tess__comm_note(tess_comm *comm, const char *op, tess_traffic_kind traffic,
                            const tess__moves *moves, int64_t request)
{
    tess__call call = {.op = op, .traffic = traffic, .request = request};
    if (!comm->ops->note)
        return TESS_OK;
    for (int p = 0; p < comm->size; p++) {
        const int64_t *out = moves->send_bytes;
        const int64_t bytes = out ? out[p] : moves->recv_bytes[comm->rank];
        if (p == comm->rank)
            continue;
        call.sent += bytes;
        call.received += moves->recv_bytes[p];
        call.most = call.most > bytes ? call.most : bytes;
    }
    return comm->ops->note(comm, &call);
}

/* ---- all-to-all --------------------------------------------------------------------------------
 */

tess_status tess__comm_check(const char *fn, const tess_comm *comm, tess_traffic_kind traffic)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "%s: comm is NULL", fn);
    if ((int)traffic < 0 || traffic >= TESS_TRAFFIC_COUNT)
        return tess__fail(TESS_EINVAL, "%s: traffic is %d, must be a tess_traffic_kind", fn,
                          (int)traffic);
    return TESS_OK;
}

tess_status tess__comm_check_bytes(const char *fn, const tess_comm *comm, const char *name,
                                   const void *data, const int64_t *bytes)
{
    int64_t sum = 0;
    if (!bytes)
        return tess__fail(TESS_EINVAL, "%s: %s_bytes is NULL", fn, name);
    for (int p = 0; p < comm->size; p++) {
        if (bytes[p] < 0 || bytes[p] > INT64_MAX / 2 - sum)
            return tess__fail(TESS_EINVAL, "%s: %s_bytes[%d] is %lld, must be at least 0%s", fn,
                              name, p, (long long)bytes[p],
                              bytes[p] < 0 ? "" : " and their sum below 2^62");
        sum += bytes[p];
    }
    if (sum > 0 && !data)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL, with %lld bytes", fn, name, (long long)sum);
    return TESS_OK;
}

static tess_status check_alltoall(const char *fn, const tess_comm *comm, tess_traffic_kind traffic,
                                  const tess__moves *moves)
{
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "send", moves->send, moves->send_bytes));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "recv", moves->recv, moves->recv_bytes));
    if (moves->send_bytes[comm->rank] != moves->recv_bytes[comm->rank])
        return tess__fail(TESS_EINVAL, "%s: rank %d sends itself %lld bytes and expects %lld", fn,
                          comm->rank, (long long)moves->send_bytes[comm->rank],
                          (long long)moves->recv_bytes[comm->rank]);
    return TESS_OK;
}

static int64_t number_of(tess_comm *comm)
{
    return comm->ops->note ? comm->ops->fresh(comm) : 0;
}

tess_status tess_comm_start_alltoall(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                     const int64_t *send_bytes, void *recv,
                                     const int64_t *recv_bytes, tess_request **request)
{
    const char *fn = "tess_comm_start_alltoall";
    const tess__moves moves = {send, send_bytes, recv, recv_bytes};
    TESS_TRY(check_alltoall(fn, comm, traffic, &moves));
    if (!request)
        return tess__fail(TESS_EINVAL, "%s: request is NULL", fn);
    const int64_t number = number_of(comm);
    TESS_TRY(tess__comm_note(comm, "alltoall", traffic, &moves, number));
    TESS_TRY(tess__comm_start(comm, traffic, &moves, request));
    (*request)->number = number;
    return TESS_OK;
}

/* Ends a request that is open. */
static tess_status finish(tess_comm *comm, tess_request *request)
{
    const int64_t begin = comm->ops->clock(comm);
    const tess_status status = comm->ops->finish(comm, request);
    comm->counts.wait_ns += comm->ops->clock(comm) - begin;
    request->open = 0;
    return status;
}

tess_status tess__comm_move(tess_comm *comm, tess_traffic_kind traffic, const tess__moves *moves)
{
    tess_request *request = NULL;
    TESS_TRY(tess__comm_start(comm, traffic, moves, &request));
    return finish(comm, request);
}

tess_status tess_comm_alltoall(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                               const int64_t *send_bytes, void *recv, const int64_t *recv_bytes)
{
    const tess__moves moves = {send, send_bytes, recv, recv_bytes};
    TESS_TRY(check_alltoall("tess_comm_alltoall", comm, traffic, &moves));
    TESS_TRY(tess__comm_note(comm, "alltoall", traffic, &moves, 0));
    return tess__comm_move(comm, traffic, &moves);
}

/* ---- exchanges ---------------------------------------------------------------------------------
 */

typedef struct {
    const char *name;
    const void *data;
    int64_t bytes;
    int peer;
} side;

static tess_status check_side(const char *fn, const tess_comm *comm, const side *s)
{
    const char *peer = *s->name == 's' ? "to" : "from";
    if (s->peer < -1 || s->peer >= comm->size)
        return tess__fail(TESS_EINVAL, "%s: %s is %d, must be -1..%d", fn, peer, s->peer,
                          comm->size - 1);
    if (s->bytes < 0)
        return tess__fail(TESS_EINVAL, "%s: %s_bytes is %lld, must be at least 0", fn, s->name,
                          (long long)s->bytes);
    if (s->peer >= 0 && s->bytes > 0 && !s->data)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL, with %lld bytes", fn, s->name,
                          (long long)s->bytes);
    return TESS_OK;
}

tess_status tess_comm_start_exchange(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                     int64_t send_bytes, int to, void *recv, int64_t recv_bytes,
                                     int from, tess_request **request)
{
    const char *fn = "tess_comm_start_exchange";
    tess_request *r = NULL;
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    TESS_TRY(check_side(fn, comm, &(side){"send", send, send_bytes, to}));
    TESS_TRY(check_side(fn, comm, &(side){"recv", recv, recv_bytes, from}));
    const int own = to == comm->rank;
    if (own != (from == comm->rank) || (own && send_bytes != recv_bytes))
        return tess__fail(TESS_EINVAL,
                          "%s: rank %d sends itself %lld bytes and expects %lld from itself", fn,
                          comm->rank, own ? (long long)send_bytes : 0,
                          from == comm->rank ? (long long)recv_bytes : 0);
    if (!request)
        return tess__fail(TESS_EINVAL, "%s: request is NULL", fn);
    const tess__call call = {.op = "exchange",
                             .traffic = traffic,
                             .sent = own || to < 0 ? 0 : send_bytes,
                             .received = own || from < 0 ? 0 : recv_bytes,
                             .most = own || to < 0 ? 0 : send_bytes,
                             .request = number_of(comm)};
    if (comm->ops->note)
        TESS_TRY(comm->ops->note(comm, &call));
    TESS_TRY(comm->ops->progress(comm));
    TESS_TRY(take_request(comm, traffic, to < 0 ? NULL : send, to < 0 ? 0 : send_bytes, &r));
    r->number = call.request;
    if (own && send_bytes > 0 && send != recv)
        memcpy(recv, send, (size_t)send_bytes);
    if (!own && from >= 0)
        TESS_TRY(start_receive(comm, r, from, recv, recv_bytes));
    if (!own && to >= 0)
        TESS_TRY(start_send(comm, r, to, send, send_bytes));
    *request = r;
    return TESS_OK;
}

/* ---- the end of a request, or of all -----------------------------------------------------------
 */

tess_status tess_comm_wait(tess_comm *comm, tess_request *request)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "tess_comm_wait: comm is NULL");
    if (!request)
        return TESS_OK;
    int known = 0;
    for (int i = 0; i < TESS_COMM_OPEN; i++)
        known |= request == &comm->requests[i] && request->open;
    if (!known)
        return tess__fail(TESS_EINVAL, "tess_comm_wait: request is not open on this communicator");
    const tess__call call = {.op = "wait", .traffic = request->traffic, .request = request->number};
    if (comm->ops->note)
        TESS_TRY(comm->ops->note(comm, &call));
    return finish(comm, request);
}

tess_status tess_comm_progress(tess_comm *comm)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "tess_comm_progress: comm is NULL");
    return comm->ops->progress(comm);
}

tess_status tess_comm_fail(tess_comm *comm, tess_status mine)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "tess_comm_fail: comm is NULL");
    if (mine != TESS_OK)
        comm->ops->fail(comm, mine, tess_last_error());
    return mine;
}
