/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.h - messages, collectives, sub-communicators, measured links and the trace recorder.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_COLLECTIVES_H
#define TESSERA_COLLECTIVES_H

#include "../comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rank that is alone. */
TESS_API tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm);

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

/* EINVAL on all ranks if a rank's bytes differ from those of rank 0: "rank 3 has another <what>
 * than rank 0", the lowest such rank. */
TESS_API tess_status tess_comm_check_equal(tess_comm *comm, const char *what, const void *data,
                                           size_t bytes);

/* ---- parts --------------------------------------------------------------------------------- */

/* Ranks of equal colour form a part, ordered by key, then by rank. color < 0: *part is NULL. */
TESS_API tess_status tess_comm_split(tess_comm *comm, int color, int key, tess_comm **part);

/* Ranks as a grid, rank = r * columns + c: *row holds the ranks of this r, and this is its rank c;
 * *column those of this c, and this is its rank r. columns divides the size. */
TESS_API tess_status tess_comm_grid(tess_comm *comm, int columns, tess_comm **row,
                                    tess_comm **column);

/* ---- links and traces ------------------------------------------------------------------------ */

/* What lies between the ranks of a communicator, measured: pings for the latency, an all-to-all of
 * 4 MiB from each rank for the bandwidth, the slowest rank's of both, the same on all. On several
 * nodes node_ranks is the most of a node, and the network is measured twice: used by all ranks at
 * once, and by one of each node. A rank alone measures nothing, and gets zeros. */
TESS_API tess_status tess_comm_measure(tess_comm *comm, tess_link *link);

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
