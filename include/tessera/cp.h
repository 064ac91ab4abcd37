/* SPDX-License-Identifier: Apache-2.0 */
/* cp.h - context-parallel groups: ranks that split the tokens of each sample, by plans that are
 * made, reused and replaced while a job runs.
 *
 *   tess_cp *cp;
 *   tess_cp_create(ctx, comm, &opts, &cp);         // measures rates; all ranks agree on them
 *   tess_cp_view(cp, &info);                       // local rows, the executor
 *   for each step {
 *       tess_cp_plan(cp, step, density, &replanned);
 *       ... tess_dist_attn_forward(info.attn, ...) of each layer, and backward
 *   }
 *
 * Rank p owns rows bounds[p]..bounds[p+1]-1 of every sample: even shards, the first ones a row
 * longer where the ranks do not divide the rows. A plan assigns the attention of each layer to
 * ranks; it depends on the densities of heads and on rates of attention and links that are the same
 * on all ranks, so that all make the same plan. Every decision is reported in a sentence.
 */
#ifndef TESSERA_CP_H
#define TESSERA_CP_H

#include "comm.h"
#include "dist_attn.h"
#include "strategy.h"

TESS_BEGIN_DECLS

typedef struct tess_cp tess_cp;

typedef enum {
    TESS_CP_RATES,       /* rates of ranks and links, measured unions of selected keys */
    TESS_CP_FALLBACK,    /* a strategy that is not considered, and why */
    TESS_CP_PLAN_NEW,    /* a plan was made */
    TESS_CP_PLAN_REUSED, /* the plan is reused for this step; once per step */
    TESS_CP_EVENT_COUNT
} tess_cp_event_kind;

typedef struct {
    tess_cp_event_kind kind;
    int64_t step;         /* -1: tess_cp_create */
    const char *sentence; /* valid until the callback returns */
} tess_cp_event;

/* Called on every rank, with the same sentences. */
typedef void (*tess_cp_event_fn)(void *user, const tess_cp_event *event);

typedef struct {
    int layers, heads, head_dim; /* 1..65536; 1..65536; as tess_attn_shape */
    int batch;                   /* samples of a pass */
    int64_t tokens;              /* of a sample, over all ranks; at least as many as ranks */
    float scale;                 /* 0: 1 / sqrt(head_dim) */
    int32_t n_groups;            /* query groups of selections; 0: dense attention alone */
    const int64_t *groups;       /* (n_groups + 1) */
    int32_t n_units;             /* key units; 0: single rows */
    const int64_t *units;        /* (n_units + 1) */
    int32_t units_most;          /* longest list; 0: all units */
    int proj_dim;                /* elements of projected q and k, which are sent in layers with a
                                    head of density below 1; 0: none */
    int lse;                     /* 1: all forward calls request lse */
    int compensate;              /* virtual keys, as in tess_dist_attn_opts */
    int group_rows;              /* as in tess_dist_attn_opts; selective layers are then no
                                    candidates unless union_share or union_shares is given, for
                                    groups, and with them the keys that a rank needs, differ from
                                    strategy to strategy */
    int saves;                   /* sets of saved activations; tess_dist_attn_opts */
    int train;                   /* 1: backward passes too; 0: forward only */
    int whole_keys;              /* 1: selectors need all keys of a head on one rank: neither rings
                                    nor selective layers */
    const char *strategy; /* NULL or "auto": per layer, by predicted time. Imposed on all layers: a
                             method's name ("contiguous", "db-sp", "refined", "fractional", ..:
                             heads over all ranks), "ring", "selective", or degrees: "4x2r" (4
                             groups of heads, rings of 2), "2x4s" (selective), "8x1" */
    const char *cluster;  /* a name or a path as of tess_cluster_load; NULL: measured here */
    double flops;         /* FLOP/s of attention on a rank; 0: measured, or the cluster's */
    double union_share;   /* fraction, as in tess_plan_opts; 0: measured in some steps; selective
                             layers are candidates from then on */
    const double *union_shares; /* (layers, ranks + 1), the same; copied */
    const tess_cp *rates_from;  /* a group of the same ranks and head_dim whose rates are reused;
                                   NULL: measured, or the cluster's */
    double replan_above;        /* an imbalance; 0: by cost */
    int replan_always;          /* 1: a new plan for every step */
    int exact; /* 1: the same bits on 1 to 8 ranks and with every strategy that leaves keys whole:
                  neither rings nor selective layers; see tess_dist_attn_opts */
    tess_precision precision;  /* of attention's products; FP32 with exact */
    tess_cp_event_fn on_event; /* NULL: no events */
    void *user;
} tess_cp_opts;

/* Collective. EINVAL: options that differ between ranks, degrees whose product is not the number of
 * ranks, an unknown strategy ("strategy is \"rign\", did you mean ring?"). comm must outlive the
 * group. Measuring takes about a tenth of a second. */
TESS_API tess_status tess_cp_create(tess_ctx *ctx, tess_comm *comm, const tess_cp_opts *opts,
                                    tess_cp **cp);
TESS_API void tess_cp_destroy(tess_cp *cp);

/* Collective, before each step. density (layers, heads), 0..1: the fraction of pairs that heads
 * computed, 1 for dense ones; NULL: all dense. Densities are averaged over ranks. The first call
 * makes a plan; later ones reuse it or make another by the rule of tess_plan_keep. A new plan is
 * always made when the work has grown or shrunk by a quarter, when projected q and k are sent in
 * other layers, since another strategy may be faster then, or when measured unions of selected keys
 * let layers become selective or cease to be.
 * *replanned (may be NULL) = 1: saved activations of the executor are discarded. */
TESS_API tess_status tess_cp_plan(tess_cp *cp, int64_t step, const double *density, int *replanned);

/* Pointers belong to the group; plan and cluster change with tess_cp_plan. */
typedef struct {
    const tess_cp_opts *opts; /* as given, arrays copied; strategy and cluster are NULL */
    tess_comm *comm;
    int rank, ranks;
    int64_t first, rows;   /* local rows: first..first+rows-1 of each sample */
    const int64_t *bounds; /* (ranks + 1) */
    tess_dist_attn *attn;
    const tess_union_counts *unions; /* for tess_dist_call.unions */
    const tess_plan *plan;           /* NULL before the first */
    const tess_cluster *cluster;
    const double *union_shares; /* (layers, ranks + 1): by selective degree, as given or as
                                   measured so far; 0: not known */
    int64_t predicted_ns; /* attention of a step over all layers, by the plan; -1: not known */
    int64_t measured_ns;  /* the same, measured; -1: not yet */
    int64_t plans;        /* number of plans made */
    int64_t reused;       /* steps for which the last plan was reused, after its first */
} tess_cp_info;

TESS_API tess_status tess_cp_view(const tess_cp *cp, tess_cp_info *info);

/* One layer of the plan. Times and bytes are maxima over ranks; measured ones are agreed when the
 * next step is planned, and running means over steps. Without opts.lse, bytes do not include lse.
 * Sent bytes equal the predicted ones, except where lists decide: keys of selective layers, and key
 * parts that no later rank of a ring needs. */
typedef struct {
    const char *words; /* "fractional"; "4x2 ring, refined"; the group's, until the next plan */
    double imbalance;  /* of the work that it was planned for */
    int64_t predicted_ns, measured_ns;   /* -1: not known */
    int64_t bytes_predicted, bytes_sent; /* payload and indices; -1: not known */
} tess_cp_layer_info;

/* EINVAL before the first plan. */
TESS_API tess_status tess_cp_layer(const tess_cp *cp, int layer, tess_cp_layer_info *info);

TESS_END_DECLS

#endif
