/* SPDX-License-Identifier: Apache-2.0 */
/* replay_calls.h - the calls of a traced rank. */
#ifndef TESS_REPLAY_CALLS_H
#define TESS_REPLAY_CALLS_H

#include "base/base_internal.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/trace.h"

/* A call on a communicator, or the wait that ends one. */
typedef struct {
    int op;      /* a tess_trace_op; TESS_TRACE_OPS: a wait */
    int started; /* 1: it goes on until its wait */
    int64_t of;  /* of a wait: the number of the call that it ends */
    int first;   /* the first rank of the group */
    int count;   /* ranks of the group */
    int stride;  /* between them */
    int64_t sent, received;
    int64_t compute; /* ns before it */
    int64_t took;    /* ns of the call itself, while the rank was alone */
} tess__replay_call;

struct tess_trace {
    tess_ctx *ctx;
    tess_trace_info info;
    tess__replay_call *calls; /* (info.calls) */
};

/* replay.c: what cost.h knows a call as. */
tess_collective tess__replay_collective(const tess__replay_call *call, int per_node);

/* replay_read.c. The name must live until it returns. */
tess_status tess__trace_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                              tess_trace **trace);

#endif
