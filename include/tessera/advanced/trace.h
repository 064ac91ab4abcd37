/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - what a rank did, as tess_comm_trace_write wrote it, replayed on a cluster.
 *
 *   tess_trace *trace;
 *   tess_trace_load(ctx, "rank0.json", &trace);
 *   tess_trace_replay(trace, cluster, &(tess_trace_opts){.compute_scale = 0.01}, &result);
 *
 * Computing takes as long as it was recorded, times a scale; messages take what cost.h says of the
 * cluster. So the program of one rank, run alone on one machine, predicts the step of a job that
 * this machine could not hold, if its ranks are alike.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_TRACE_H
#define TESSERA_TRACE_H

#include "../cluster.h"

TESS_BEGIN_DECLS

typedef struct tess_trace tess_trace;

/* Whether a file, plain or gzip, is such a trace: by its first bytes. */
TESS_API tess_status tess_trace_is(tess_ctx *ctx, const char *path, int *is);

/* EFORMAT names the line that breaks a rule (docs/formats.md). */
TESS_API tess_status tess_trace_load(tess_ctx *ctx, const char *path, tess_trace **trace);
TESS_API void tess_trace_destroy(tess_trace *trace);

typedef struct {
    int rank, ranks;
    int64_t calls;
    double compute_s; /* as recorded */
} tess_trace_info;

TESS_API tess_status tess_trace_query(const tess_trace *trace, tess_trace_info *info);

typedef enum {
    TESS_TRACE_ALLTOALL,
    TESS_TRACE_EXCHANGE,
    TESS_TRACE_GATHER,
    TESS_TRACE_BROADCAST,
    TESS_TRACE_SUM,
    TESS_TRACE_MAX,
    TESS_TRACE_AGREE,
    TESS_TRACE_SAME,
    TESS_TRACE_OPS
} tess_trace_op;

TESS_API const char *tess_trace_op_name(tess_trace_op op); /* "alltoall"; NULL outside the enum */

typedef struct {
    double compute_scale; /* the cluster's time of a computation over the recorded one; 0: 1 */
    int per_node;         /* ranks of a node, neighbours; 0: as many as the cluster's nodes have */
} tess_trace_opts;

typedef struct {
    int64_t calls, bytes; /* sent to others */
    double message_s;     /* that messages take */
    double wait_s;        /* of that, what the rank waits */
} tess_trace_part;

typedef struct {
    double step_s;    /* compute_s + wait_s */
    double compute_s; /* with the scale */
    double wait_s;    /* for messages */
    double hidden_s;  /* of messages while the rank computes */
    tess_trace_part parts[TESS_TRACE_OPS];
} tess_trace_result;

/* Ranks reach each call at the same time. A rank's messages follow each other; one that was started
 * is on its way while the rank computes, until it is waited for. ENOTSUP: groups of several nodes
 * on a cluster without a network. */
TESS_API tess_status tess_trace_replay(const tess_trace *trace, const tess_cluster *cluster,
                                       const tess_trace_opts *opts, tess_trace_result *result);

TESS_END_DECLS

#endif
