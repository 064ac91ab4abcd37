/* SPDX-License-Identifier: Apache-2.0 */
/* strategy.h - makes plans: tries the ways to split each layer, takes the best and says why, and
 * decides later whether a plan still serves.
 *
 *   tess_cluster *cluster;
 *   tess_plan *plan;
 *   tess_plan_opts opts = TESS_PLAN_OPTS_INIT;
 *   opts.ranks = 8;
 *   tess_cluster_load(ctx, "h100", &cluster);
 *   tess_plan_create(ctx, work, cluster, &opts, &plan);
 *
 * The same work, cluster and options give the same plan on every rank, compiler and machine.
 */
#ifndef TESSERA_STRATEGY_H
#define TESSERA_STRATEGY_H

#include "base.h"
#include "cluster.h"
#include "plan.h"

TESS_BEGIN_DECLS

/* ---- making a plan ------------------------------------------------------------------------ */

/* Initialise with TESS_PLAN_OPTS_INIT; ranks must be set. tessera/advanced/options.h has the
 * ranges. */
typedef struct {
    int ranks;                  /* 1..65536 */
    int nodes;                  /* 0: as many as the ranks need of the cluster's, 1 without one */
    tess_strategy strategy;     /* AUTO: every method at all degrees (without a cluster refined
                                     heads), and fractional heads, anywhere and inside of nodes;
                                     degrees of 0 are free, and the placement always is */
    tess_plan_pass pass;        /* what is predicted: forward alone, or with the backward pass */
    int head_dim;               /* 1..4096 */
    int element_bytes;          /* of q, k, v, o and their gradients: 2, or 4 for fp32 */
    int proj_dim;               /* elements of the projected vectors by which ranks select keys,
                                     0..65536: forward, those of a query row travel with it, those
                                     of all keys of a head to every rank that has a share of it, and
                                     ranks of a ring announce what they selected; 0: none */
    const uint8_t *proj_layers; /* (layers of the work): 0 where keys are not selected so, and no
                                     projected vectors travel; NULL: everywhere */
    int lse;            /* 1: forward, lse returns to the owner rank with o, 4 bytes a query row */
    int64_t memory;     /* bytes per rank for the tensors of a layer's attention; 0: the
                                     cluster's GPU, no limit without one */
    double union_share; /* share of remote keys that the queries of a rank need together,
                                     for selective without masks; 0: not known */
    const double *union_shares; /* (layers, ranks + 1): the same by layer and selective degree, 0:
                                     not known; NULL: union_share */
    int equal_heads;            /* 1: executors that need as many heads on every rank */
    int whole_keys;             /* 1: kernels without lse, so no ring; 2: nor selective, for
                                     ranks that need all keys of their heads */
    int whole_heads;            /* 1: no head on two ranks: no fractional, ring, selective */
    const int32_t *speeds;      /* (ranks), relative, 1..1000000; NULL: equal */
    int reward;                 /* for blocks that stay on their rank, R_b of db-SP; 0: none */
    double replan_above;        /* for tess_plan_keep: an imbalance; 0: by cost */
} tess_plan_opts;

#define TESS_PLAN_OPTS_DEFAULTS .head_dim = 128, .element_bytes = 2, .reward = 2
#define TESS_PLAN_OPTS_INIT                                                                        \
    {                                                                                              \
        TESS_PLAN_OPTS_DEFAULTS                                                                    \
    }

/* With a cluster every layer takes the candidate of the least predicted time; then fewer bytes,
 * then the smaller ulysses. Without one (NULL): the least imbalance in whole percent, then bytes.
 * EINVAL also if no candidate is possible or fits in memory. */
TESS_API tess_status tess_plan_create(tess_ctx *ctx, const tess_work *work,
                                      const tess_cluster *cluster, const tess_plan_opts *opts,
                                      tess_plan **plan);

/* ---- reuse -------------------------------------------------------------------------------- */

typedef struct {
    int keep;
    double rho;         /* mean over layers, a barrier per iteration in each ring */
    int64_t loss_ns;    /* of this step against a fresh plan; -1 by threshold */
    int64_t carried_ns; /* with the steps before: the next call's carried_ns */
    int64_t cost_ns;    /* of a new plan; -1 by threshold */
    char reason[128];
} tess_plan_verdict;

/* Whether the plan still serves work of its shape. With replan_above, or without a cluster (then
 * 1.1): while the mean imbalance is not above it. Else while carried_ns, the losses of the steps
 * since the plan was made, and this step's together stay below the cost of a new plan; 0 for the
 * first step. Depends on the arguments alone, so that all ranks decide alike. */
TESS_API tess_status tess_plan_keep(const tess_plan *plan, const tess_work *work,
                                    const tess_cluster *cluster, const tess_plan_opts *opts,
                                    int64_t carried_ns, tess_plan_verdict *answer);

TESS_END_DECLS

#endif
