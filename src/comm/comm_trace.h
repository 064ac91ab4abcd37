/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace.h - trace recorder: one rank runs alone and records its communication calls.
 *
 *   comm_trace.c         the communicator, its log, its messages
 *   comm_trace_calls.c   the collectives: each call is recorded with the bytes it would send
 *   comm_trace_file.c    the log as a Chrome trace
 */
#ifndef TESS_COMM_TRACE_H
#define TESS_COMM_TRACE_H

#include "comm_internal.h"

/* A call of the public interface. */
typedef struct {
    const char *op;
    tess_traffic_kind traffic;
    int64_t sent, received, most; /* bytes to other ranks, from them, and the most to one of them */
    int64_t request;              /* of a started operation and its wait; 0: none */
} tess__call;

typedef struct {
    tess__call call;
    int first, count, stride; /* the ranks of the communicator, as ranks of the world */
    int64_t begin, compute;   /* ns since the trace began; since the end of the previous call */
    int64_t took;             /* by the call itself */
} tess__trace_record;

/* The log of a trace, which its sub-communicators share; it belongs to the world communicator. */
typedef struct {
    tess_ctx *ctx;
    tess__trace_record *records;
    int64_t n, room;
    int64_t origin, end; /* of the trace; of the last call */
    int64_t requests;    /* numbers of started operations so far */
} tess__trace_log;

typedef struct {
    tess_comm comm;
    tess__trace_log *log;
    int is_world;      /* owns the log */
    int first, stride; /* its rank p is rank first + p * stride of the world */
} tess__comm_trace;

/* EINVAL unless comm was made by tess_comm_trace. */
tess_status tess__trace_of(const char *fn, const tess_comm *comm, const tess__comm_trace **trace);

/* Appends a call that begins now. */
tess_status tess__trace_record_call(tess_comm *comm, const tess__call *call);

/* A communicator of the n ranks first, first + stride, ... of comm. */
tess_status tess__trace_subgroup(tess_comm *comm, int first, int n, int stride, tess_comm **sub);

/* ---- comm_trace_calls.c: optional operations of a communicator ------------------------------- */

tess_status tess__trace_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                  const tess__alltoallv_args *args, tess_request **request);
tess_status tess__trace_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                 const tess__sendrecv_args *args, tess_request **request);
tess_status tess__trace_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root,
                                  int64_t bytes);
tess_status tess__trace_allreduce(tess_comm *comm, tess_traffic_kind traffic,
                                  const tess__reduction *op, char *x, int64_t n);
tess_status tess__trace_agree(tess_comm *comm, tess_status mine);
tess_status tess__trace_check_equal(tess_comm *comm, int64_t bytes);
tess_status tess__trace_split(tess_comm *comm, int color, int key, tess_comm **sub);
tess_status tess__trace_grid(tess_comm *comm, int columns, tess_comm **row, tess_comm **column);
tess_status tess__trace_measure(tess_comm *comm, tess_link *link);

#endif
