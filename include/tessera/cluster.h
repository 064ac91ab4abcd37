/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h - clusters: nodes of equal GPUs, a link inside a node and a network between nodes.
 *
 * A cluster is described by one JSON file (docs/formats.md) or by the name of one that is shipped.
 * The planner and the simulator read the same clusters and use the same times (advanced/cost.h).
 */
#ifndef TESSERA_CLUSTER_H
#define TESSERA_CLUSTER_H

#include "base.h"

TESS_BEGIN_DECLS

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
    double power;                             /* W that the GPU is limited to; 0: its own limit */
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

    double attn_forward, attn_backward; /* fraction of the peak that dense attention sustains */
    double attn_sparse;                 /* fraction of that which block-sparse kernels reach */
    double attn_row_keys;  /* fixed cost of a query row, in units of the time of one key */
    double attn_part_keys; /* the same for each further key part of a ring; 0: attn_row_keys */
    double attn_flops; /* FLOP/s of sparse attention on a rank, measured; 0: peak and fractions */
    /* ns per byte of rows that the cores of a rank copy, beside the link; 0: none. */
    double pack_ns;   /* rows packed into messages, unpacked, or copied in place */
    double select_ns; /* K and V of selective ranks: selection, index exchange and scatter */
    double load_ns;   /* K and V beyond one key for each query row, from memory into caches */
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

TESS_END_DECLS

#endif
