/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - what a machine would take: clusters, and the time of attention and of exchanges on them.
 *
 * A cluster is nodes of equal GPUs, a link inside a node and a network between nodes, described by
 * one JSON file (docs/formats.md) or by the name of one that is shipped. The planner and the
 * simulator read the same clusters and use the same times.
 *
 * Times are int64 nanoseconds, computed with additions, multiplications and divisions alone: the
 * same on every machine, so that ranks agree on a decision without asking each other.
 */
#ifndef TESSERA_COST_H
#define TESSERA_COST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- clusters ---------------------------------------------------------------------------- */

typedef struct tess_cluster tess_cluster;

/* How a collective's rows travel, and in which form: NCCL's words. */
typedef enum {
    TESS_ALGORITHM_RING,
    TESS_ALGORITHM_TREE,      /* two binary trees over nodes, a chain inside each */
    TESS_ALGORITHM_NVLS,      /* the switch of the node adds and copies */
    TESS_ALGORITHM_NVLS_TREE, /* the same, and trees over nodes */
    TESS_ALGORITHM_PAIRS      /* every rank with every other, or one with one */
} tess_algorithm;

typedef enum {
    TESS_PROTOCOL_LL,    /* a flag beside every 4 bytes: no waiting, half of the bandwidth */
    TESS_PROTOCOL_LL128, /* 8 of 128 bytes are flags */
    TESS_PROTOCOL_SIMPLE /* large pieces, a wait for each */
} tess_protocol;

enum { TESS_PROTOCOLS = 3, TESS_COLLECTIVE_GPUS_MAX = 64 };

/* What the time of a collective is made of (docs/cost.md). Times in ns, bandwidths in bytes/s. */
typedef struct {
    double call;    /* of the smallest call, hops apart */
    double channel; /* of each channel after the first */
    int channels;   /* most that large messages use */
    double ring;    /* a ring inside a node: what nccl-tests call bus bandwidth */
    double ring_by_gpus[TESS_COLLECTIVE_GPUS_MAX + 1]; /* the same by GPUs; 0: ring */
    double network;                           /* a ring over nodes that uses all their adapters */
    double share_ll, share_ll128, share_tree; /* of these bandwidths */
    double extra[TESS_PROTOCOLS];             /* of a call in this protocol */
    double loop;                              /* of each further round of Simple's buffers */
    double hop[2][TESS_PROTOCOLS];            /* inside a node: [tess_algorithm, ring or tree] */
    double net_hop[2][TESS_PROTOCOLS];        /* between nodes */
    double nvls, nvls_bandwidth; /* of a call; what a GPU sends to the switch; 0: no NVLS */
    int nvls_gpus;               /* fewest that use it */
    const char *origin;          /* NULL: not described, all of it derived */
} tess_collective_params;

/* Strings live as long as the cluster. Each origin says where the numbers before it come from. */
typedef struct {
    const char *name; /* as shipped, or the path */
    const char *about;

    const char *gpu;
    double flops_fp32, flops_bf16, flops_fp8; /* dense peaks, FLOP/s; 0: not known */
    int64_t memory;                           /* bytes */
    double memory_bandwidth;                  /* bytes/s */
    const char *gpu_origin;

    int node_gpus;
    const char *link;
    double link_bandwidth; /* bytes/s each way for each GPU, nominal */
    int64_t link_latency;  /* ns */
    double link_efficiency;
    const char *link_origin;

    int nics; /* of a node; 0: there is no network, one node is all */
    const char *network;
    double nic_bandwidth;    /* bytes/s each way for each adapter, nominal */
    int64_t network_latency; /* ns */
    double network_efficiency;
    double oversubscription; /* what nodes can send together is that share of their adapters */
    const char *network_origin;

    int64_t launch; /* ns before a collective moves its first byte */
    const char *launch_origin;

    double attn_forward, attn_backward; /* share of the peak that dense attention sustains */
    double attn_sparse;                 /* share of that which block-sparse kernels reach */
    double attn_row_keys; /* keys in whose time a query row is opened and closed, pairs apart */
    const char *attn_origin;

    tess_collective_params collectives;
} tess_cluster_info;

/* A shipped name, or a path: what contains '/' or ends in ".json". An unknown name is EINVAL with
 * the nearest one; a file that breaks a rule is EFORMAT with its line. */
TESS_API tess_status tess_cluster_load(tess_ctx *ctx, const char *name, tess_cluster **cluster);
TESS_API tess_status tess_cluster_query(const tess_cluster *cluster, tess_cluster_info *info);
TESS_API void tess_cluster_destroy(tess_cluster *cluster);

/* The shipped ones, in alphabetical order; name is NULL outside 0..count-1. */
TESS_API int tess_cluster_count(void);
TESS_API const char *tess_cluster_name(int index);

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

/* ---- a user's own cluster ---------------------------------------------------------------- */

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
TESS_API tess_status tess_nccl_log_rows(const tess_nccl_log *log, const tess_collective_row **rows,
                                        int64_t *n);
TESS_API void tess_nccl_log_close(tess_nccl_log *log);

typedef struct {
    int64_t rows, rows_large;    /* those of 16 MiB and more */
    double before, before_large; /* mean absolute errors with the parameters of the model cluster */
    double after, after_large;
} tess_collective_fit;

/* A cluster like `like` whose collectives are fitted to the rows: what the rows do not tell stays
 * near what it was. The same rows give the same bits everywhere. origin says where the rows come
 * from; report may be NULL. */
TESS_API tess_status tess_cluster_calibrate(tess_ctx *ctx, const tess_cluster *like,
                                            const tess_collective_row *rows, int64_t n,
                                            const char *origin, tess_cluster **cluster,
                                            tess_collective_fit *report);

/* Like tess_cluster_load on a description that info was filled from: strings are copied, values
 * checked by writing and reading it; collectives without channels are derived. */
TESS_API tess_status tess_cluster_create(tess_ctx *ctx, const tess_cluster_info *info,
                                         tess_cluster **cluster);

/* Writes the description, complete or not at all. */
TESS_API tess_status tess_cluster_save(const tess_cluster *cluster, const char *path);

/* "all_reduce", "ring", "LL128"; NULL outside the enum. */
TESS_API const char *tess_collective_name(tess_collective_op op);
TESS_API const char *tess_algorithm_name(tess_algorithm algorithm);
TESS_API const char *tess_protocol_name(tess_protocol protocol);

#ifdef __cplusplus
}
#endif

#endif
