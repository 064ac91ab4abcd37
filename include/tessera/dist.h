/* SPDX-License-Identifier: Apache-2.0 */
/* dist.h - many ranks: communicators. (MPI's is made by mpi.h, in libtessera_mpi.)
 *
 * A communicator is a group of ranks, numbered from 0, that call the same functions on it in the
 * same order. Calls are collective unless they say otherwise: every rank of the group makes them.
 * A rank that cannot go on while others wait for it calls tess_comm_fail, and nobody hangs.
 *
 * Four kinds: "self" is one rank alone; "thread" has its ranks on threads of one process, for tests
 * and for measuring links that are not there; "mpi" is for machines; "trace" plays one rank of
 * many alone, and writes down what it sends and computes.
 *
 * Bytes travel as they are: all ranks are of one architecture. Sizes are known on both sides: a
 * message of another size than its receiver expects is an error there. A communicator belongs to
 * the thread that uses it; a part (of tess_comm_split) is destroyed before its whole is.
 */
#ifndef TESSERA_DIST_H
#define TESSERA_DIST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_comm tess_comm;

typedef struct {
    const char *kind; /* "self", "thread", "mpi", "trace" */
    int rank, size;
    int nodes, node; /* hosts of the group; this rank's, numbered by their lowest ranks */
} tess_comm_info;

/* One rank that is alone. */
TESS_API tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm);

/* Not collective. */
TESS_API tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info);

/* Not collective; requests that are still open are given up. */
TESS_API void tess_comm_destroy(tess_comm *comm);

/* ---- what is sent -------------------------------------------------------------------------- */

typedef enum {
    TESS_TRAFFIC_PAYLOAD, /* rows of tensors, gradients, weights */
    TESS_TRAFFIC_INDEX,   /* which rows */
    TESS_TRAFFIC_CONTROL, /* counts, agreement, settings; sums that virtual keys are made of */
    TESS_TRAFFIC_COUNT
} tess_traffic_kind;

/* What this rank sent to other ranks on this communicator (what it sends on a part counts there),
 * and how long it waited for messages on it. */
typedef struct {
    int64_t bytes[TESS_TRAFFIC_COUNT];
    int64_t messages[TESS_TRAFFIC_COUNT];
    int64_t wait_ns; /* by tess_comm_clock */
} tess_comm_counts;

/* Neither is collective. The clock is in ns from an arbitrary start: the wall's, or the virtual one
 * of threads with a link. */
TESS_API tess_status tess_comm_counts_read(const tess_comm *comm, tess_comm_counts *counts);
TESS_API int64_t tess_comm_clock(const tess_comm *comm); /* 0 if comm is NULL */

/* ---- messages ------------------------------------------------------------------------------ */

/* From every rank to every rank: send holds the bytes for rank 0, those for rank 1, and so on, one
 * after the other; recv likewise those from each rank. A rank's own part is copied. Nothing is sent
 * where the size is 0. send and recv do not overlap. send_bytes and recv_bytes have one element per
 * rank; a buffer may be NULL if it has no bytes. */
TESS_API tess_status tess_comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                         const void *send, const int64_t *send_bytes, void *recv,
                                         const int64_t *recv_bytes);

/* The same, started: it goes on while the rank computes, and ends with tess_comm_wait. Buffers and
 * sizes stay untouched until then. At most TESS_COMM_OPEN are open on a communicator at a time
 * (EINVAL); they may be waited for in any order. Starting and waiting allocates nothing. */
enum { TESS_COMM_OPEN = 64 };
typedef struct tess_request tess_request; /* the communicator's own */

TESS_API tess_status tess_comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                               const void *send, const int64_t *send_bytes,
                                               void *recv, const int64_t *recv_bytes,
                                               tess_request **request);

/* One message to a rank and one from a rank, started; -1 for none that way. Only these ranks take
 * part; messages between two ranks arrive in the order in which both sides started them. A rank may
 * send to itself: to and from are then both its own, and the sizes equal. */
TESS_API tess_status tess_comm_start_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                              const void *send, int64_t send_bytes, int to,
                                              void *recv, int64_t recv_bytes, int from,
                                              tess_request **request);

/* Ends a started operation: its data has arrived, its buffers are the caller's. NULL is accepted.
 * After a failure of any kind the request is gone too. */
TESS_API tess_status tess_comm_wait(tess_comm *comm, tess_request *request);

/* Not collective. Lets started operations move on; cheap; for long computations to call now and
 * then. Fails if another rank has failed. */
TESS_API tess_status tess_comm_progress(tess_comm *comm);

/* ---- collectives --------------------------------------------------------------------------- */

/* Every rank gets the bytes of all, one rank's after the other's. recv_bytes has one element per
 * rank; the own one is bytes. send may lie at its place in recv. */
TESS_API tess_status tess_comm_allgatherv(tess_comm *comm, tess_traffic_kind traffic,
                                          const void *send, int64_t bytes, void *recv,
                                          const int64_t *recv_bytes);

/* The bytes of rank root on every rank. */
TESS_API tess_status tess_comm_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root,
                                         void *data, int64_t bytes);

typedef enum { TESS_REDUCE_SUM, TESS_REDUCE_MAX, TESS_REDUCE_COUNT } tess_reduce_op;

/* All-reduce: x[i] becomes the sum or the maximum of x[i] over the ranks, in place. dtype is
 * TESS_DTYPE_F32, F64 or I64; sums of I64 wrap. Elements are combined in rank order: the same bits
 * on every rank, on repeat and for every kind of communicator. A NaN of any rank makes NaN. */
TESS_API tess_status tess_comm_allreduce(tess_comm *comm, tess_traffic_kind traffic, void *x,
                                         int64_t n, tess_dtype dtype, tess_reduce_op op);

/* ---- failure and agreement ----------------------------------------------------------------- */

/* Every rank gets the status and the sentence of the lowest rank that failed, or TESS_OK if none
 * did: nobody leaves while another waits. The communicator stays usable. */
TESS_API tess_status tess_comm_agree(tess_comm *comm, tess_status mine);

/* EINVAL on all ranks if a rank's bytes differ from those of rank 0: "rank 3 has another <what>
 * than rank 0", the lowest such rank. */
TESS_API tess_status tess_comm_check_equal(tess_comm *comm, const char *what, const void *data,
                                           size_t bytes);

/* Not collective. Tells all ranks of the world, the communicator that no split made, that this one
 * cannot go on: their calls, also those in which they wait and those on parts, return this status
 * with the sentence "rank 2: <this thread's tess_last_error>", with the rank's number in the world.
 * Returns mine; TESS_OK tells nobody. Afterwards communicators of that world can be asked and
 * destroyed, and nothing else. Buffers of open operations are the callers' again; over MPI, which
 * cannot take a send back, if all ranks come to a call within two seconds: a rank that another one
 * does not answer should end its process rather than go on. */
TESS_API tess_status tess_comm_fail(tess_comm *comm, tess_status mine);

/* ---- parts --------------------------------------------------------------------------------- */

/* Ranks of equal colour form a part, ordered by key, then by rank. color < 0: *part is NULL. */
TESS_API tess_status tess_comm_split(tess_comm *comm, int color, int key, tess_comm **part);

/* Ranks as a grid, rank = r * columns + c: *row holds the ranks of this r, and this is its rank c;
 * *column those of this c, and this is its rank r. columns divides the size. */
TESS_API tess_status tess_comm_grid(tess_comm *comm, int columns, tess_comm **row,
                                    tess_comm **column);

/* ---- links, and ranks as threads ----------------------------------------------------------- */

/* What lies between ranks. All 0: nothing is injected. */
typedef struct {
    int64_t latency;          /* ns */
    double bandwidth;         /* bytes/s each way of each rank; 0: infinite */
    int node_ranks;           /* ranks of a node, neighbours; 0: one node is all */
    int64_t network_latency;  /* between nodes */
    double network_bandwidth; /* the same, each way of each rank */
    double network_alone; /* measured: what a rank has while the others of its node are silent */
    int share_cores;      /* threads alone: 1: ranks compute at once, however many there are */
} tess_link;

/* What lies between the ranks of a communicator, measured: pings for the latency, an all-to-all of
 * 4 MiB from each rank for the bandwidth, the slowest rank's of both, the same on all. On several
 * nodes node_ranks is the most of a node, and the network is measured twice: used by all ranks at
 * once, and by one of each node. A rank alone measures nothing, and gets zeros. */
TESS_API tess_status tess_comm_measure(tess_comm *comm, tess_link *link);

/* The work of one rank. ctx and comm are its own, and gone when it returns. */
typedef tess_status (*tess_rank_fn)(void *user, tess_ctx *ctx, tess_comm *comm);

/* Calls fn on `ranks` threads (1..1024), each with a context made from opts (threads 0 means 1) and
 * a communicator of all. Returns when all have, with the failure of the lowest rank that has one. A
 * rank that fails has called tess_comm_fail. A communicator of n ranks reserves about 78 KiB for
 * each of them on each of them, for all n 78 KiB n^2 of address space: 5 MiB for 8 ranks, 0.3 GiB
 * for 64, 78 GiB for 1024, of which only what messages and sums touch becomes memory. ENOMEM where
 * the system does not reserve that much.
 *
 * With a link every rank has a virtual clock, tess_comm_clock: it advances by the CPU time of the
 * rank's thread outside of calls on communicators, and inside of them to the arrival of what the
 * rank waits for. Nothing sleeps, so eight ranks on two cores measure what eight cores with such
 * links would take. No more ranks compute at once than there are cores: fn must wait for other
 * ranks through its communicator alone. With share_cores all of them do, in slices that the system
 * gives them: caches are shared and clocks late, but where the machine is slow for a while it is so
 * for all ranks alike, and their CPU times compare. Contexts must have one thread. A rank has a
 * wire to the ranks of its node and one to other nodes, both ways at once. A message of n bytes
 * that starts at t leaves when its wire is free, at s >= t, keeps it for n / bandwidth, and has
 * arrived at s + latency + n / bandwidth, or later by what its receiver's wire is busy with
 * messages that left before. */
TESS_API tess_status tess_comm_threads(const tess_ctx_opts *opts, int ranks, const tess_link *link,
                                       tess_rank_fn fn, void *user);

/* ---- one rank of many, alone ----------------------------------------------------------------- */

/* Plays rank `rank` of `size` (1..1024): nothing is sent. What would come from others is a copy of
 * what this rank sends itself, in a gather and an exchange of what it sends, or zeros where sizes
 * differ; sums are its own times size, maxima, broadcasts and agreement its own. Parts are made by
 * tess_comm_grid alone. Every call is written down with its bytes, its group and the time since the
 * one before it: the work of one rank of a job that no machine at hand could hold. */
TESS_API tess_status tess_comm_trace(tess_ctx *ctx, int rank, int size, tess_comm **comm);

/* Forgets the calls so far, so that the trace begins here: with the step that is of interest. */
TESS_API tess_status tess_comm_trace_clear(tess_comm *comm);

/* The calls so far, of the communicator and its parts, as a Chrome trace (docs/formats.md). comm is
 * the one that tess_comm_trace made. */
TESS_API tess_status tess_comm_trace_write(const tess_comm *comm, const char *path);

#ifdef __cplusplus
}
#endif

#endif
