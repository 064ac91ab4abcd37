/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - communicators: creation, queries, waiting for requests.
 *
 * Memory of one rank of a communicator of n ranks, reserved at creation so that no operation
 * allocates:
 *
 *   scratch      n TESS_COMM_PIECE                     64 KiB per rank: where collectives combine
 *   messages     2 (n - 1) TESS_COMM_OPEN messages      4 KiB per peer
 *   of the kind  as many descriptors (threads)         10 KiB per peer
 *                or as many MPI requests                4 KiB per peer
 *
 * so about 78 KiB n (72 over MPI), for every communicator of the rank. Ranks that are threads have
 * it in one process: 78 KiB n^2, which is 5 MiB for 8 ranks, 0.3 GiB for 64 and 78 GiB for 1024.
 * That is address space: a page becomes memory when it is first written, and a small all-reduce
 * writes few pages.
 */
#include "comm_internal.h"

#include <string.h>

/* ---- creation and queries -------------------------------------------------------------------- */

tess_comm *tess__comm_make(tess_ctx *ctx, const tess__comm_ops *ops, size_t bytes, int rank,
                           int size)
{
    const size_t n = (size_t)size, peers = n - 1;
    const size_t messages = TESS_COMM_OPEN * 2 * peers * sizeof(tess__message);
    const size_t scratch = size > 1 ? n * TESS_COMM_PIECE : 0;
    tess_comm *comm = tess__alloc_zero(ctx, bytes);
    if (!comm)
        return NULL;
    *comm = (tess_comm){
        .ctx = ctx, .ops = ops, .rank = rank, .size = size, .nodes = 1, .arena = {.ctx = ctx}};
    if (tess__arena_reserve(&comm->arena, 4 * tess__arena_round(n * sizeof(int64_t)) +
                                              tess__arena_round(messages) +
                                              tess__arena_round(scratch)) != TESS_OK) {
        tess__free(ctx, comm);
        return NULL;
    }
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
    return comm;
}

void tess__comm_free(tess_comm *comm)
{
    if (!comm)
        return;
    tess__arena_free(&comm->arena);
    tess__free(comm->ctx, comm);
}

void tess_comm_destroy(tess_comm *comm)
{
    if (!comm)
        return;
    comm->ops->destroy(comm);
    tess__comm_free(comm);
}

tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info)
{
    TESS_REQUIRE(comm, info);
    *info = (tess_comm_info){.kind = comm->ops->kind,
                             .rank = comm->rank,
                             .size = comm->size,
                             .nodes = comm->nodes,
                             .node = comm->node};
    return TESS_OK;
}

tess_status tess_comm_counts_read(const tess_comm *comm, tess_comm_counts *counts)
{
    TESS_REQUIRE(comm, counts);
    *counts = comm->counts;
    return TESS_OK;
}

const char *const tess__traffic_names[TESS_TRAFFIC_COUNT] = {"payload", "index", "control"};

const char *tess_traffic_name(tess_traffic_kind kind)
{
    return (unsigned)kind < TESS_TRAFFIC_COUNT ? tess__traffic_names[kind] : NULL;
}

int64_t tess_comm_clock(const tess_comm *comm)
{
    return comm ? comm->ops->clock(comm) : 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

tess_status tess__comm_finish(tess_comm *comm, tess_request *request)
{
    const int64_t begin = comm->ops->clock(comm);
    const tess_status status = comm->ops->finish(comm, request);
    comm->counts.wait_ns += comm->ops->clock(comm) - begin;
    request->open = 0;
    return status;
}

tess_status tess_comm_wait(tess_comm *comm, tess_request *request)
{
    TESS_REQUIRE(comm);
    if (!request)
        return TESS_OK;
    int known = 0;
    for (int i = 0; i < TESS_COMM_OPEN; i++)
        known |= request == &comm->requests[i] && request->open;
    if (!known)
        return tess__invalid(__func__, "request is not open on this communicator");
    return tess__comm_finish(comm, request);
}

tess_status tess_comm_progress(tess_comm *comm)
{
    if (!comm) /* not TESS_REQUIRE: called for every tile */
        return tess__invalid(__func__, "comm is NULL");
    return comm->ops->progress(comm);
}

tess_status tess_comm_watch(tess_comm *comm, const tess_comm_watch_opts *opts)
{
    TESS_REQUIRE(comm, opts);
    TESS_TRY(tess__check_range(__func__, "report_ns", opts->report_ns, 0, INT64_MAX));
    TESS_TRY(tess__check_range(__func__, "limit_ns", opts->limit_ns, 0, INT64_MAX));
    return comm->ops->watch ? comm->ops->watch(comm, opts) : TESS_OK;
}

tess_status tess_comm_fail(tess_comm *comm, tess_status mine)
{
    TESS_REQUIRE(comm);
    if (mine != TESS_OK)
        comm->ops->fail(comm, mine, tess_last_error());
    return mine;
}
