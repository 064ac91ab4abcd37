/* SPDX-License-Identifier: Apache-2.0 */
/* comm_measure.c - latency and bandwidth between ranks, measured with messages of this library.
 *
 * Latency: half of a round trip of 8 bytes between ranks 2i and 2i + 1, all pairs at once, median
 * over many. Bandwidth: an all-to-all of 4 MiB from every rank, less the latency. Ranks that begin
 * a round one latency apart alternate in being early, so two rounds are timed together; the fastest
 * of a few counts, for a rank that waits for a core only takes longer. Both results are those of
 * the slowest rank, and the same on all ranks.
 *
 * On several nodes the ranks of each node form one group, and the ranks with the same index on
 * every node another: the network bandwidth of a rank when all ranks use the network together. Then
 * the first rank of each node uses it alone: where that is faster, the ranks of a node share a
 * link.
 *
 * Cost: about 0.3 s and 50 MiB per rank, for each of the two or three groups.
 */
#include "comm_internal.h"

#include <string.h>

enum { PINGS = 100, PINGS_LEAST = 10, PING_BYTES = 8, ROUNDS = 5, ROUND_BYTES = 4 << 20 };
static const double budget = 3e8; /* ns for the latency, and for the bandwidth */

typedef struct {
    double latency; /* ns; 0 for a group of one rank */
    double per_byte;
} link_times;

static tess_status one_way(tess_comm *comm, char *data, int to, int from)
{
    tess_request *request = NULL;
    TESS_TRY(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_CONTROL, data, PING_BYTES, to, data,
                                      PING_BYTES, from, &request));
    return tess_comm_wait(comm, request);
}

static tess_status ping(tess_comm *comm, int n, double *latency)
{
    const int peer = comm->rank ^ 1, first = comm->rank < peer;
    double times[PINGS];
    char data[PING_BYTES] = {0};
    if (peer >= comm->size)
        return TESS_OK;
    for (int i = 0; i < n; i++) {
        const int64_t begin = tess_comm_clock(comm);
        TESS_TRY(one_way(comm, data, first ? peer : -1, first ? -1 : peer));
        TESS_TRY(one_way(comm, data, first ? -1 : peer, first ? peer : -1));
        times[i] = (double)(tess_comm_clock(comm) - begin);
    }
    tess__sort(times, (size_t)n);
    *latency = times[n / 2] / 2.0;
    return TESS_OK;
}

/* send and recv have ROUND_BYTES each; sizes one element per rank. */
static tess_status flood(tess_comm *comm, const char *send, char *recv, int64_t *sizes, int n,
                         double *round)
{
    double times[ROUNDS];
    for (int p = 0; p < comm->size; p++)
        sizes[p] = p == comm->rank ? 0 : ROUND_BYTES / (comm->size - 1);
    for (int i = 0; i < n; i++) {
        const int64_t begin = tess_comm_clock(comm);
        for (int twice = 0; twice < 2; twice++)
            TESS_TRY(tess_comm_alltoallv(comm, TESS_TRAFFIC_CONTROL, send, sizes, recv, sizes));
        times[i] = (double)(tess_comm_clock(comm) - begin);
    }
    tess__sort(times, (size_t)n);
    *round = times[0] / 2.0;
    return TESS_OK;
}

/* Number of repetitions within the budget when one takes `once` on the slowest rank. */
static tess_status affordable(tess_comm *comm, double once, int least, int most, int *n)
{
    TESS_TRY(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, &once, 1, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    *n = once * most <= budget ? most : (int)(budget / once);
    *n = *n < least ? least : *n;
    return TESS_OK;
}

/* The first repetitions warm up links and caches, and determine how many follow. */
static tess_status time_group(tess_comm *comm, char *buffer, int64_t *sizes, double slowest[2])
{
    int n = 0;
    TESS_TRY(ping(comm, PINGS_LEAST, &slowest[0]));
    TESS_TRY(affordable(comm, 2.0 * slowest[0], PINGS_LEAST, PINGS, &n));
    TESS_TRY(ping(comm, n, &slowest[0]));
    TESS_TRY(flood(comm, buffer, buffer + ROUND_BYTES, sizes, 1, &slowest[1]));
    TESS_TRY(affordable(comm, 2.0 * slowest[1], 1, ROUNDS, &n));
    TESS_TRY(flood(comm, buffer, buffer + ROUND_BYTES, sizes, n, &slowest[1]));
    return tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, slowest, 2, TESS_DTYPE_F64,
                               TESS_REDUCE_MAX);
}

static tess_status measure_group(tess_comm *comm, link_times *s)
{
    *s = (link_times){0};
    if (comm->size == 1)
        return TESS_OK;
    double slowest[2] = {0};
    tess__arena arena = {.ctx = comm->ctx};
    char *buffer = tess__arena_take(&arena, 2 * (size_t)ROUND_BYTES);
    int64_t *sizes = tess__arena_take(&arena, (size_t)comm->size * sizeof *sizes);
    tess_status status = tess_comm_agree(comm, buffer && sizes ? TESS_OK : TESS_ENOMEM);
    if (status == TESS_OK) {
        memset(buffer, 0, 2 * (size_t)ROUND_BYTES);
        status = time_group(comm, buffer, sizes, slowest);
    }
    tess__arena_free(&arena);
    TESS_TRY(status);
    const int64_t bytes = ROUND_BYTES / (comm->size - 1) * (comm->size - 1);
    s->latency = slowest[0];
    s->per_byte = (slowest[1] > slowest[0] ? slowest[1] - slowest[0] : slowest[1]) / (double)bytes;
    return TESS_OK;
}

/* Inside the nodes, between the ranks with the same index on every node, and between the first
 * ranks of the nodes. All ranks agree before the next group begins: links are measured one after
 * the other, and all ranks return the failure of any group. */
static tess_status measure_nodes(tess_comm *comm, link_times *inside, link_times *between,
                                 link_times *alone)
{
    tess_comm *node = NULL, *across = NULL;
    TESS_TRY(tess_comm_split(comm, comm->node, comm->rank, &node));
    tess_status status = tess_comm_split(comm, node->rank, comm->rank, &across);
    if (status == TESS_OK)
        status = tess_comm_agree(comm, measure_group(node, inside));
    if (status == TESS_OK)
        status = tess_comm_agree(comm, measure_group(across, between));
    if (status == TESS_OK)
        status = tess_comm_agree(comm, node->rank == 0 ? measure_group(across, alone) : TESS_OK);
    tess_comm_destroy(across);
    tess_comm_destroy(node);
    return status;
}

static double rate(double per_byte)
{
    return per_byte > 0.0 ? 1e9 / per_byte : 0.0;
}

tess_status tess_comm_measure(tess_comm *comm, tess_link *link)
{
    TESS_REQUIRE(comm, link);
    if (comm->ops->measure)
        return comm->ops->measure(comm, link);
    link_times inside = {0}, between = {0}, alone = {0};
    if (comm->nodes == 1)
        TESS_TRY(measure_group(comm, &inside));
    else
        TESS_TRY(measure_nodes(comm, &inside, &between, &alone));
    double x[] = {inside.latency, inside.per_byte, between.latency, between.per_byte,
                  alone.per_byte};
    TESS_TRY(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, x, 5, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    *link = (tess_link){
        .latency = (int64_t)(x[0] + 0.5),
        .bandwidth = rate(x[1]),
        .node_ranks = comm->nodes == 1 ? 0 : (comm->size + comm->nodes - 1) / comm->nodes,
        .network_latency = (int64_t)(x[2] + 0.5),
        .network_bandwidth = rate(x[3]),
        .network_alone = rate(x[4]),
    };
    return TESS_OK;
}
