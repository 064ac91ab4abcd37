/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - the time of attention, exchanges and collectives on a cluster; NCCL logs, and clusters
 * fitted to them.
 *
 * Times are int64 nanoseconds, computed with additions, multiplications and divisions alone: the
 * same on every machine, so that ranks agree on a decision without asking each other.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_COST_H
#define TESSERA_COST_H

#include "../cluster.h"

TESS_BEGIN_DECLS

/* ---- attention --------------------------------------------------------------------------- */

typedef struct {
    double pairs; /* (query, key) pairs of tokens, over heads */
    int64_t rows; /* query rows, over heads: each pays attn_row_keys once more */
    int head_dim; /* 1..4096 */
    int backward; /* 0: forward, 4 * head_dim FLOP a pair; 1: backward, 10 * head_dim */
    double flops; /* FLOP/s of this rank as measured; 0: the cluster's peak and shares */
    tess_precision precision; /* of the products, chooses the peak */
} tess_attn_work;

/* ns = (pairs + rows * attn_row_keys) * FLOP a pair / rate: efficiency falls with density, because
 * a query that attends to k keys runs at k / (k + attn_row_keys) of the rate. A measured rate is
 * what the kernel reaches on long rows. ENOTSUP: the cluster does not know this peak. */
TESS_API tess_status tess_cost_attention(const tess_cluster *cluster, const tess_attn_work *work,
                                         int64_t *ns);

/* ---- exchanges --------------------------------------------------------------------------- */

/* Bytes of one rank that leave it or arrive; what it keeps is no traffic. */
typedef struct {
    int64_t near_out, near_in; /* with ranks of its node */
    int64_t far_out, far_in;   /* with ranks of other nodes */
} tess_traffic;

/* Time of an all-to-all(v) or of one send and receive for each of n ranks. Node i holds ranks
 * [i * per_node, (i + 1) * per_node). Links are full duplex:
 *
 *   near = latency + max(out, in) / link
 *   far  = latency + max(most of the rank over its adapters, most of its node over all adapters)
 *   ns   = launch + max(near, far); 0 for a rank without traffic
 *
 * A rank drives nics / node_gpus adapters, at least one. Between nodes oversubscription divides the
 * bandwidth. ENOTSUP: far traffic without a network. ns has n elements. */
TESS_API tess_status tess_cost_exchange(const tess_cluster *cluster, const tess_traffic *traffic,
                                        int n, int per_node, int64_t *ns);

/* ---- collectives ------------------------------------------------------------------------- */

typedef enum {
    TESS_ALL_REDUCE,
    TESS_ALL_GATHER,
    TESS_REDUCE_SCATTER,
    TESS_ALL_TO_ALL,
    TESS_BROADCAST,
    TESS_SEND_RECEIVE, /* each rank sends to the next: between nodes if there are several */
    TESS_COLLECTIVE_OPS
} tess_collective_op;

typedef struct {
    tess_collective_op op;
    int64_t bytes;  /* as nccl-tests count: of a rank's larger buffer, so of what all_gather gathers
                       and of what reduce_scatter takes; 0..2^53 */
    int gpus;       /* 1..2^20 */
    int per_node;   /* of them in a node; 0: as many as a node has, or all of them */
    int algorithms; /* 1 << tess_algorithm of each that may be used, of ring, tree and NVLS; 0: all,
                       and so where none of them can run the op */
} tess_collective;

typedef struct {
    int64_t ns;
    double algbw, busbw; /* bytes/s: bytes / time, and times what the op moves at least */
    tess_algorithm algorithm;
    tess_protocol protocol; /* the fastest by this model: what NCCL is believed to pick */
    int channels;
} tess_collective_result;

/* Time of one call, from the call to the end on the slowest rank, with the wires to itself; the
 * adapters of the other GPUs of its nodes stay idle. ENOTSUP: several nodes without a network. An
 * uneven all-to-all is tess_cost_exchange's. */
TESS_API tess_status tess_collective_time(const tess_cluster *cluster, const tess_collective *work,
                                          tess_collective_result *result);

/* "all_reduce", "ring", "LL128"; NULL outside the enum. */
TESS_API const char *tess_collective_name(tess_collective_op op);
TESS_API const char *tess_nccl_test_name(tess_collective_op op); /* "all_reduce_perf" */
TESS_API const char *tess_algorithm_name(tess_algorithm algorithm);
TESS_API const char *tess_protocol_name(tess_protocol protocol);

/* ---- measured collectives ----------------------------------------------------------------- */

/* A measured collective. */
typedef struct {
    tess_collective work;
    double us;
    int64_t line; /* of the log */
} tess_collective_row;

typedef struct tess_nccl_log tess_nccl_log;

/* Reads what nccl-tests print: rows of any number of runs, one after the other. The GPUs and nodes
 * of a run come from its "# Rank" lines, the op from the line that names the test; op is that of
 * runs that do not name it (TESS_COLLECTIVE_OPS: such a run is EFORMAT). Times are those out of
 * place; rows of 0 bytes and runs of one GPU are passed over. EFORMAT names the line. */
TESS_API tess_status tess_nccl_log_open(tess_ctx *ctx, const char *path, tess_collective_op op,
                                        tess_nccl_log **log);
/* The same, or where the file begins so, the CSV of tess_activity_write: of each call the shortest
 * member's time, bytes of the larger side. node_gpus, 1 or more: GPUs of a node of the cluster that
 * was traced, its ranks counted node by node. Calls of which something is not known, or that the
 * model does not have, are passed over. */
TESS_API tess_status tess_collective_rows_open(tess_ctx *ctx, const char *path,
                                               tess_collective_op op, int node_gpus,
                                               tess_nccl_log **log);
TESS_API tess_status tess_nccl_log_rows(const tess_nccl_log *log, const tess_collective_row **rows,
                                        int64_t *n);
TESS_API void tess_nccl_log_close(tess_nccl_log *log);

typedef struct {
    int64_t rows, rows_large;    /* those of 16 MiB and more */
    double before, before_large; /* mean absolute errors with the parameters of the model cluster */
    double after, after_large;
} tess_collective_fit;

/* A cluster like `like` whose collectives are fitted to the rows: parameters that the
 * rows do not determine stay near what they were. The same rows give the same bits everywhere.
 * origin says where the rows come from; report may be NULL. */
TESS_API tess_status tess_cluster_calibrate(tess_ctx *ctx, const tess_cluster *like,
                                            const tess_collective_row *rows, int64_t n,
                                            const char *origin, tess_cluster **cluster,
                                            tess_collective_fit *report);

/* ---- a user's own cluster ---------------------------------------------------------------- */

/* Like tess_cluster_load on a description that info was filled from: strings are copied, values
 * checked by writing and reading it; collectives without channels are derived. */
TESS_API tess_status tess_cluster_create(tess_ctx *ctx, const tess_cluster_info *info,
                                         tess_cluster **cluster);

/* Writes the description, complete or not at all. */
TESS_API tess_status tess_cluster_save(const tess_cluster *cluster, const char *path);

TESS_END_DECLS

#endif
