/* SPDX-License-Identifier: Apache-2.0 */
/* cp.h - context parallelism: the ranks of a group share the tokens of each sample, by plans
 * that are made, kept and re-made while a job runs.
 *
 *   tess_cp *context;
 *   tess_cp_create(ctx, comm, &opts, &context);    // measures and agrees on rates
 *   tess_cp_view(context, &info);                  // rows at home, the executor
 *   for each step {
 *       tess_cp_plan(context, step, density, &replanned);
 *       ... tess_dist_attn_forward(info.attn, ...) of each layer, and backward
 *   }
 *
 * Rank p is at home with rows bounds[p]..bounds[p+1]-1 of every sample: even shares, the first ones
 * a row longer where they do not divide. A plan says for each layer who computes what; it comes
 * from the densities of heads and from rates of attention and of links that all ranks agree on, so
 * that all of them make the same one. Every decision is told in a sentence.
 */
#ifndef TESSERA_CP_H
#define TESSERA_CP_H

#include "comm.h"
#include "dist_attn.h"
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_cp tess_cp;

typedef enum {
    TESS_CP_RATES,    /* what ranks and links do, and which keys lists share */
    TESS_CP_FALLBACK, /* what is not done, and why */
    TESS_CP_MADE,     /* a plan was made */
    TESS_CP_KEPT,     /* the plan is kept for this step; once in each step */
    TESS_CP_EVENT_COUNT
} tess_cp_event_kind;

typedef struct {
    tess_cp_event_kind kind;
    int64_t step;         /* -1 when the context is made */
    const char *sentence; /* until the callback returns */
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
    int32_t units_most;          /* of a list; 0: all */
    int proj_dim;                /* elements of low-rank vectors, which travel in layers that have a
                                    head of a density below 1; 0: none */
    int lse;                     /* 1: all forward calls ask for lse */
    int compensate;              /* 1: a virtual key stands for the keys a list leaves out */
    int saves;                   /* sets kept between forward and backward; tess_dist_attn_opts */
    int train;                   /* 1: backward passes too; 0: forward alone */
    int whole_keys;              /* 1: selectors need all keys of a head on one rank, so neither a
                                    ring nor selective */
    const char *strategy; /* NULL or "auto": per layer, by predicted time. Imposed on all layers: a
                             method's name ("contiguous", "db-sp", "refined", "fractional", ..:
                             heads over all ranks), "ring", "selective", or degrees: "4x2r" (4
                             groups of heads, rings of 2), "2x4s" (selective), "8x1" */
    const char *cluster;  /* a name or a path as of tess_cluster_load; NULL: measured here */
    double flops;         /* FLOP/s of attention on a rank; 0: measured, or the cluster's */
    double union_share;   /* as of tess_plan_opts; 0: looked at in some steps, and selective is a
                             candidate once lists were seen */
    const double *union_shares; /* (layers, ranks + 1), the same; copied */
    const tess_cp *like;        /* a context of the same ranks and head_dim whose rates are taken
                                   over; NULL: measured, or the cluster's */
    double replan_above;        /* an imbalance; 0: by cost */
    int fresh;                  /* 1: a new plan for every step */
    tess_cp_event_fn tell;      /* NULL: nobody is told */
    void *user;
} tess_cp_opts;

/* Collective. EINVAL: ranks that differ in their options, degrees that do not make the ranks, a
 * strategy that is none ("strategy is \"rign\", did you mean ring?"). comm must outlive the
 * context. Measuring takes about a tenth of a second. */
TESS_API tess_status tess_cp_create(tess_ctx *ctx, tess_comm *comm, const tess_cp_opts *opts,
                                    tess_cp **context);
TESS_API void tess_cp_destroy(tess_cp *context);

/* Collective, before each step. density (layers, heads), 0..1: the share of pairs that heads
 * computed, 1 for dense ones; NULL: all dense. Densities are averaged over ranks first. The first
 * call makes a plan; later ones keep it or make another by the rule of tess_plan_keep, and always
 * make another once the work has grown or shrunk by a quarter, or low-rank vectors travel in other
 * layers, which may be another strategy's; or where the shares of selected keys that were seen let
 * layers become selective or cease to be.
 * *replanned (may be NULL) = 1: saved sets of the executor are void. */
TESS_API tess_status tess_cp_plan(tess_cp *context, int64_t step, const double *density,
                                  int *replanned);

/* Pointers belong to the context; plan and cluster change with tess_cp_plan. */
typedef struct {
    const tess_cp_opts *opts; /* as given, arrays copied; strategy and cluster are NULL */
    tess_comm *comm;
    int rank, ranks;
    int64_t first, rows;   /* at home: rows first..first+rows-1 of each sample */
    const int64_t *bounds; /* (ranks + 1) */
    tess_dist_attn *attn;
    const tess_union_counts *unions; /* for tess_dist_call.unions */
    const tess_plan *plan;           /* NULL before the first */
    const tess_cluster *cluster;
    const double *union_shares; /* (layers, ranks + 1): by selective degree, as given or as seen by
                                   now; 0: not known */
    int64_t predicted_ns; /* attention of a step over all layers, by the plan; -1: not known */
    int64_t measured_ns;  /* the same as it was; -1: not yet */
    int64_t plans;        /* made */
    int64_t kept;         /* steps that the last one was kept for, after its first */
} tess_cp_info;

TESS_API tess_status tess_cp_view(const tess_cp *context, tess_cp_info *info);

/* One layer of the plan. Times and bytes are of the rank that has most of them; measured ones are
 * agreed when the next step is planned, and running means over steps. lse that a call asks for
 * where the options say none is not in the bytes. They are those predicted, but for keys that lists
 * decide about: those of selective layers, and parts that no rank of a ring ahead needs. */
typedef struct {
    const char *words; /* "fractional"; "4x2 ring, refined"; the context's, until the next plan */
    double imbalance;  /* of the work it was planned for */
    int64_t predicted_ns, measured_ns;   /* -1: not known */
    int64_t bytes_predicted, bytes_sent; /* payload and indices; -1: not known */
} tess_cp_layer_info;

/* EINVAL before the first plan. */
TESS_API tess_status tess_cp_layer(const tess_cp *context, int layer, tess_cp_layer_info *info);

#ifdef __cplusplus
}
#endif

#endif
