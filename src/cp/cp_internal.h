/* SPDX-License-Identifier: Apache-2.0 */
/* cp_internal.h - plans at run time: the rates they come from, the rule that keeps them, the
 * words that tell them.
 *
 *   cp.c         the object: options, rows at home, blocks of plans, what callers see
 *   cp_probe.c   what attention and copies take on this rank
 *   cp_rates.c   rates and links agreed on, as a cluster
 *   cp_unions.c  which keys selective layers would need, given or looked at
 *   cp_plan.c    densities to work, kept plans and new ones, measured times
 *
 * A plan is one for a single sample. A pass has `batch` of them, which take batch times as long but
 * for latencies: plans are priced on a copy of the cluster whose rates are divided by the batch.
 */
#ifndef TESS_CP_INTERNAL_H
#define TESS_CP_INTERNAL_H

#include "base/base_internal.h"
#include "exec/dist_attn_internal.h"
#include "tessera/cp.h"

enum { TESS_TOLD = 512 }; /* bytes of a sentence */

/* ---- cp_probe.c ------------------------------------------------------------------------- */

/* What a rank does, on all of its threads. Times in ns. */
typedef struct {
    double forward, backward; /* of a (query, key) pair in a list */
    double row_keys;          /* pairs in whose time a query row is opened and closed */
    double part_keys;         /* the same of each further part of the keys, merged */
    double dense;             /* a pair of dense attention in pairs of lists: 1 or less */
    double copied;            /* of a byte that is packed or unpacked */
} tess__rates;

typedef struct {
    int head_dim, backward;
    int64_t tokens, group, unit; /* mean rows of a query group and of a key unit */
} tess__probe_shape;

/* Times attention on random numbers by the thread's own clock, in about a tenth of a second. */
tess_status tess__probe(const tess_ctx *ctx, const tess__probe_shape *shape, tess__rates *rates);

/* ---- the object ------------------------------------------------------------------------------ */

/* What is known of a layer besides its plan. Measured values are running means, -1 before. */
typedef struct {
    char words[TESS_STRATEGY_TEXT];
    int64_t bytes; /* predicted: of the rank that sends most */
    double measured_ns, measured_bytes;
} tess__cp_layer;

struct tess_cp {
    tess_ctx *ctx;
    tess_comm *comm;
    tess__arena arena; /* the context and its arrays lie in it */
    tess_cp_opts opts; /* arrays in the arena; without strategy and cluster */
    int rank, ranks;
    int64_t *bounds;              /* (ranks + 1): rows at home */
    int64_t *blocks_q, *blocks_k; /* (n + 1): bounds of the blocks of plans */
    int32_t n_q, n_k;
    double *unions;   /* (layers, ranks + 1): shares that plans are priced with; 0: not known */
    double *looked;   /* the same as it is known by now */
    int looks;        /* 1: shares are looked at, 0: given, or of no use */
    int begins;       /* 1: the next look begins the means anew */
    int64_t unlooked; /* steps since the last look */
    tess_union_counts counts;
    tess_dist_attn *attn;
    int measured;          /* 1: rates are the ranks' own, 0: a named cluster's */
    tess__rates rates;     /* agreed */
    tess_cluster *cluster; /* as measured or named */
    tess_cluster *priced;  /* the same for a pass of all samples */
    tess_plan_opts how;
    tess_plan *plan; /* NULL before the first */
    int64_t plans, kept, carried_ns;
    double planned;     /* work that the plan was made for: mean over heads of shares */
    uint8_t *low;       /* (layers): 1: low-rank vectors travel; behind them those of the plan */
    double select_keys; /* pairs in whose time a sparse query row is given its list */
    double *density;    /* (layers, heads), the sum of select_ns, and counts.rows: agreed */
    double *shares;     /* (layers, heads): time of a head in dense heads of lists */
    double *seen;       /* (layers, 2): ns and bytes of the last step, agreed */
    tess__cp_layer *layers;
};

/* Tells everybody who listens. */
void tess__cp_tell(const tess_cp *c, tess_cp_event_kind kind, int64_t step, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Sums over layers; -1: not known. */
int64_t tess__cp_predicted(const tess_cp *c);
int64_t tess__cp_measured(const tess_cp *c);

/* cp_rates.c: fills rates, cluster, priced, how. Collective. */
tess_status tess__cp_rates(tess_cp *c, const tess_cp_opts *opts);

/* ---- cp_unions.c ------------------------------------------------------------------------ */

/* Selective degrees of so many ranks, the divisors above 1; NULL only counts them. *parts: their
 * sum. */
int tess__degrees(int ranks, int *degrees, int64_t *parts);

/* Fills unions and looked, and makes what counting needs. */
tess_status tess__cp_unions(tess_cp *c, const tess_cp_opts *opts);

/* Numbers behind those of densities that ranks add up: 0 where nothing was looked at. */
int64_t tess__cp_counts(const tess_cp *c);

/* Takes over what was counted, once that is agreed; 1: plans should be priced anew. */
int tess__cp_learn(tess_cp *c, int64_t step);

/* The next plan is priced with what is known. */
void tess__cp_price_unions(tess_cp *c);

/* Before a step: whether the executor shall count. made: with a new plan. */
void tess__cp_look(tess_cp *c, int made);

#endif
