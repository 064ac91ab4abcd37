/* SPDX-License-Identifier: Apache-2.0 */
/* comm_trace.h - a rank that plays alone: what it calls, written down. */
#ifndef TESS_COMM_TRACE_H
#define TESS_COMM_TRACE_H

#include "comm_internal.h"

typedef struct {
    tess__call call;
    int first, count, stride; /* the group, in ranks of the world */
    int64_t begin, compute;   /* ns since the trace began; since the call before ended */
    int64_t took;             /* by the call itself */
} tess__trace_record;

/* What a trace and its parts write on; it belongs to the world communicator. */
typedef struct {
    tess_ctx *ctx;
    tess__trace_record *records;
    size_t n;
    int64_t room;
    int64_t origin, end; /* of the trace; of the last call */
    int64_t numbers;     /* that have been given */
} tess__trace_log;

typedef struct {
    tess_comm comm;
    tess__trace_log *log;
    int is_world;      /* owns the log */
    int first, stride; /* rank p of it is rank first + p * stride of the world */
} tess__comm_trace;

/* EINVAL unless comm is the world of a trace. */
tess_status tess__trace_of(const char *fn, const tess_comm *comm, const tess__comm_trace **trace);

#endif
