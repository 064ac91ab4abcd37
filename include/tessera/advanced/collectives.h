/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.h - messages, collectives, sub-communicators, measured links and the trace recorder.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_COLLECTIVES_H
#define TESSERA_COLLECTIVES_H

#include "../comm.h"

TESS_BEGIN_DECLS

/* A communicator of one rank. */
TESS_API tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm);

/* Neither is collective. The clock is in ns from an arbitrary start: wall time, or the virtual time
 * of threads with a link. */
TESS_API tess_status tess_comm_counts_read(const tess_comm *comm, tess_comm_counts *counts);
TESS_API int64_t tess_comm_clock(const tess_comm *comm);        /* 0 if comm is NULL */
TESS_API const char *tess_traffic_name(tess_traffic_kind kind); /* "payload"; NULL: none such */

/* ---- messages ------------------------------------------------------------------------------ */

/* All-to-all with sizes per rank: send holds the bytes for rank 0, then those for rank 1, and so
 * on; recv likewise those from each rank. The bytes for the rank itself are copied. Zero-byte
 * messages are not sent. send and recv do not overlap. send_bytes and recv_bytes have one element
 * per rank; a buffer may be NULL if it has no bytes. */
TESS_API tess_status tess_comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                         const void *send, const int64_t *send_bytes, void *recv,
                                         const int64_t *recv_bytes);

/* The same, non-blocking: it proceeds while the rank computes, and completes in tess_comm_wait.
 * Buffers and sizes must not change until then. At most TESS_COMM_OPEN requests are open on a
 * communicator at a time (EINVAL); they may be waited for in any order. No memory is allocated. */
enum { TESS_COMM_OPEN = 64 };
typedef struct tess_request tess_request; /* owned by the communicator */

TESS_API tess_status tess_comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                               const void *send, const int64_t *send_bytes,
                                               void *recv, const int64_t *recv_bytes,
                                               tess_request **request);

/* Non-blocking send to one rank and receive from one; -1: none. Only these ranks take part;
 * messages between two ranks arrive in the order in which both sides started them. A rank may send
 * to itself: to and from are then both its own, and the sizes equal. */
TESS_API tess_status tess_comm_start_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                              const void *send, int64_t send_bytes, int to,
                                              void *recv, int64_t recv_bytes, int from,
                                              tess_request **request);

/* Completes a started operation: its data has arrived, its buffers belong to the caller. NULL is
 * accepted. The request is closed after a failure, too. */
TESS_API tess_status tess_comm_wait(tess_comm *comm, tess_request *request);

/* Not collective. Advances started operations; cheap; to be called now and then in long
 * computations. Fails if another rank has failed. */
TESS_API tess_status tess_comm_progress(tess_comm *comm);

/* ---- collectives --------------------------------------------------------------------------- */

/* All-gather with sizes per rank: recv gets the bytes of rank 0, then those of rank 1, and so on.
 * recv_bytes has one element per rank; that of this rank is bytes. In place: send may be where recv
 * gets the bytes of this rank. */
TESS_API tess_status tess_comm_allgatherv(tess_comm *comm, tess_traffic_kind traffic,
                                          const void *send, int64_t bytes, void *recv,
                                          const int64_t *recv_bytes);

/* Copies the bytes of rank root to every rank. */
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

/* ---- sub-communicators --------------------------------------------------------------------- */

/* Ranks of equal colour form a sub-communicator, ordered by key, then by rank. color < 0: *sub is
 * NULL. */
TESS_API tess_status tess_comm_split(tess_comm *comm, int color, int key, tess_comm **sub);

/* Ranks as a grid, rank = r * columns + c: *row has the ranks with the same r, where this one is
 * rank c; *column those with the same c, where this one is rank r. columns divides the size. */
TESS_API tess_status tess_comm_grid(tess_comm *comm, int columns, tess_comm **row,
                                    tess_comm **column);

/* ---- ranks that do not answer ---------------------------------------------------------------- */

/* On the lowest rank that answers: `rank` of the world has not for silent_ns. */
typedef void (*tess_silent_fn)(void *user, int rank, int64_t silent_ns);

typedef struct {
    int64_t report_ns;     /* after which report is called, once for each rank; 0: 30 s */
    int64_t limit_ns;      /* after which the call that waits fails with EIO; 0: never */
    tess_silent_fn report; /* NULL: none */
    void *user;
} tess_comm_watch_opts;

/* Not collective. From now on a call of this rank that waits for longer than a second asks the
 * other ranks of the world whether they are there. A rank answers in calls that wait and in
 * tess_comm_progress: one that is stopped (SIGSTOP) does not, nor does one that computes without
 * such calls, so limit_ns is longer than the longest computation between them. Communicators of
 * kinds other than "mpi" have no such ranks, and nothing happens. */
TESS_API tess_status tess_comm_watch(tess_comm *comm, const tess_comm_watch_opts *opts);

/* ---- links ---------------------------------------------------------------------------------- */

/* Measures the links of a communicator: ping-pong for the latency, an all-to-all of 4 MiB from each
 * rank for the bandwidth, of both the slowest rank's value, the same on all ranks. On several nodes
 * node_ranks is the largest number of ranks on a node, and the network is measured twice: used by
 * all ranks at once, and by one rank of each node. A single rank measures nothing: zeros. */
TESS_API tess_status tess_comm_measure(tess_comm *comm, tess_link *link);

/* ---- trace recorder ------------------------------------------------------------------------ */

/* Runs as rank `rank` of `size` (1..1024) without the other ranks: nothing is sent. Bytes from
 * other ranks are replaced: by a copy of what this rank sends itself (all-gather, send-receive: of
 * what it sends), or by zeros where sizes differ; sums are its own value times size; maxima,
 * broadcasts and agreement return its own. Only tess_comm_grid makes sub-communicators. Every call
 * is recorded with its bytes, its ranks and the time since the previous call: the work of one rank
 * of a job that is too large for the machine at hand. */
TESS_API tess_status tess_comm_trace(tess_ctx *ctx, int rank, int size, tess_comm **comm);

/* Clears the recorded calls: the trace begins here. */
TESS_API tess_status tess_comm_trace_clear(tess_comm *comm);

/* Writes the recorded calls of the communicator and its sub-communicators as a Chrome trace
 * (docs/formats.md). comm is the one that tess_comm_trace made. */
TESS_API tess_status tess_comm_trace_write(const tess_comm *comm, const char *path);

TESS_END_DECLS

#endif
