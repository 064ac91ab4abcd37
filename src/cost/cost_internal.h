/* SPDX-License-Identifier: Apache-2.0 */
/* cost_internal.h - clusters, and what attention, exchanges and collectives cost on them.
 *
 * What lives here: the description of machines and the one model of time, for planner and simulator
 * alike. What comes in: JSON, counts of pairs, rows and bytes. What goes out: nanoseconds.
 * Everything is a pure function of its arguments; only + - * / touch a double.
 */
#ifndef TESS_COST_INTERNAL_H
#define TESS_COST_INTERNAL_H

#include "attn/attn_internal.h"
#include "base/base_internal.h"
#include "file/json.h"
#include "tessera/advanced/cost.h"
#include "tessera/cluster.h"

struct tess_cluster {
    tess_ctx *ctx;
    tess__arena arena; /* the strings */
    tess_cluster_info info;
};

/* The files of share/clusters. */
extern const tess__shipped tess__shipped_clusters[];
extern const int tess__n_shipped_clusters;

/* ---- cluster_read.c ------------------------------------------------------------------------ */

/* Reads a description, NULL: that of the file `name`, which is what the cluster is called. */
tess_status tess__cluster_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                tess_cluster **cluster);

/* ---- cluster_collectives.c ----------------------------------------------------------------- */

/* Fills info->collectives from what else is known, then from the member "collectives" of the
 * description, where it has one. */
tess_status tess__cluster_read_collectives(tess_cluster *cluster, const tess__json_node *root);

/* ---- nccl_log.c ---------------------------------------------------------------------------- */

struct tess_nccl_log {
    tess_ctx *ctx;
    tess_collective_row *rows;
    int64_t n, room;
};

tess_status tess__nccl_log_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_collective_op op, tess_nccl_log **log);

/* ---- call_csv.c ---------------------------------------------------------------------------- */

tess_status tess__call_csv_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 int node_gpus, tess_nccl_log **log);

/* ---- collective.c -------------------------------------------------------------------------- */

extern const char *const tess__collective_names[TESS_COLLECTIVE_OPS];

/* tess_collective_time without its checks. */
void tess__collective_ns(const tess_cluster_info *info, const tess_collective *work,
                         tess_collective_result *result);

/* ---- times.c ------------------------------------------------------------------------------- */

/* Rounds a time that is not negative to whole ns, at most 2^62 (146 years). */
int64_t tess__ns(double ns);

/* ns of one (query, key) pair, of one query row besides its pairs, and of one query row in a
 * further key part: what tess_cost_attention multiplies with. */
typedef struct {
    double pair, row, part;
} tess__attn_rate;

tess_status tess__attn_rates(const tess_cluster *cluster, int head_dim, int backward, double flops,
                             tess_precision precision, tess__attn_rate *rate);

/* Of the rows, so many belong to a further key part. */
int64_t tess__attn_ns(const tess__attn_rate *rate, double pairs, int64_t rows, int64_t further);

/* tess_cost_exchange without its checks. */
void tess__exchange_ns(const tess_cluster_info *info, const tess_traffic *traffic, int n,
                       int per_node, int64_t *ns);

#endif
