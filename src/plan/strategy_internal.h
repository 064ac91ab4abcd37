/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_internal.h - what a layer of a plan moves and takes, and the choice between candidates.
 *
 *   traffic.c     rows that ranks exchange, exactly as an executor would
 *   price*.c      bytes, nanoseconds and memory of a layer from them, and their bounds
 *   candidate.c   the candidates, and the layer of one: heads, blocks, cuts
 *   strategy*.c   all of them priced, the best, and what is stored of the others
 *   explain.c     why each loser lost
 *   reuse.c       whether a plan still serves
 */
#ifndef TESS_STRATEGY_INTERNAL_H
#define TESS_STRATEGY_INTERNAL_H

#include "cost/cost_internal.h"
#include "plan/partition/partition.h"
#include "plan_internal.h"
#include "tessera/strategy.h"

/* ---- traffic.c ------------------------------------------------------------------------------- */

/* Local rows: rank p owns rows [tess__shard(n, ranks, p), tess__shard(n, ranks, p + 1)) of all
 * heads, even shares, the first ones a row longer where they do not divide. */
static inline int64_t tess__shard(int64_t rows, int ranks, int p)
{
    const int64_t rest = rows % ranks;
    return p * (rows / ranks) + TESS_MIN(p, rest);
}

/* With exact sums (kernels/fixed.c): ranks that may share the tokens. */
enum { TESS__EXACT_RANKS = 8 };

/* Heads of a group of a layer of whole heads, or of heads that are cut inside of nodes. */
static inline int64_t tess__group_heads(const tess_plan_info *info, const tess_plan_layer *layer,
                                        int u)
{
    int64_t heads = 0;
    if (!layer->head_group) {
        const int rank = tess__rank_at(layer, u, 0);
        return layer->first[rank + 1] - layer->first[rank]; /* a head's shares there are one */
    }
    for (int h = 0; h < info->heads; h++)
        heads += layer->head_group[h] == u;
    return heads;
}

/* A row is one token of one head. in: rows that come to the rank that computes with them; out: rows
 * that their owner sends there. What goes back is the same with in and out exchanged. */
typedef struct {
    tess_traffic *rows; /* (ranks) */
    int64_t *held;      /* (ranks): rows a rank computes with, its own among them */
} tess__flow;

typedef struct {
    tess__flow q, kv;
    tess__flow low; /* all tokens of each head that a rank has a share of: projected vectors, and
                       what the indices of a selective layer speak of */
} tess__layer_flow;

/* Arrays lie in the arena. Selective layers need masks to know their unions; without, kv is all
 * keys. Cost: O(shares + ranks), blocks for orders, words of the masks for unions. */
tess_status tess__layer_traffic(tess__arena *arena, const tess_plan_info *info,
                                const tess_plan_layer *layer, const tess_work *work, int at,
                                tess__layer_flow *flow);

/* ---- price.c --------------------------------------------------------------------------------- */

/* What times depend on besides the layer. */
typedef struct {
    const tess_cluster_info *cluster; /* NULL: only bytes, memory and balance */
    tess__attn_rate forward, backward;
    double unit_pairs;
    double union_share; /* of remote keys, for selective layers without masks; 0: not known */
    const double *union_shares; /* (layers, ranks + 1): by selective degree; NULL: union_share */
    int proj_dim;               /* elements of projected vectors */
    const uint8_t *proj_layers; /* (layers): 0: none there; NULL: everywhere */
    int lse;                    /* 1: it returns with o */
    int ranks, per_node;
} tess__pricing;

/* The share of remote keys that travel in a selective layer without masks; 0: not known. */
static inline double tess__union_share(const tess__pricing *pricing, int layer, int selective)
{
    return pricing->union_shares
               ? pricing->union_shares[(size_t)layer * ((size_t)pricing->ranks + 1) +
                                       (size_t)selective]
               : pricing->union_share;
}

/* Elements of the projected vectors that travel in layer `at`. */
static inline int tess__proj_dim(const tess__pricing *pricing, int at)
{
    return !pricing->proj_layers || pricing->proj_layers[at] ? pricing->proj_dim : 0;
}

/* Bytes by which a rank announces to its ring which key parts it has work with, of all samples of a
 * pass together. */
static inline int64_t tess__ring_announced(int ring)
{
    return (int64_t)(ring - 1) * ((ring + 7) / 8);
}

typedef struct {
    int64_t ns, compute_ns; /* -1 without a cluster */
    int64_t phase_ns;       /* from the first exchange to the last one: attention, a ring's hops */
    int64_t bytes, memory;  /* sent by, and needed on, the rank that has most of it */
    double rho, kv_copies;
} tess__price;

/* tiles as of tess__layer_tiles, which do not depend on the placement. */
tess_status tess__layer_price(tess_ctx *ctx, const tess__pricing *pricing,
                              const tess_plan_info *info, const tess_plan_layer *layer,
                              const tess_work *work, int at, const int64_t *tiles,
                              tess__price *price);

typedef struct {
    tess_traffic *traffic; /* (ranks) */
    int64_t *ns;           /* (ranks) */
    int *parts;            /* (ranks): of a group in one node */
    int64_t *heads;        /* (ranks): of each group */
    int *busy;             /* (ranks): iterations of each group's ring */
    uint64_t *bits;        /* a row of the masks */
    int32_t *most;         /* (q_blocks): key blocks of the head that selects most */
    int32_t *meet;         /* (ranks + 1): query blocks that meet so many parts */
} tess__bound_scratch;

/* Sets ns, compute_ns, rho and bytes to what no layer of whole heads with the candidate's degrees
 * and placement goes below, whatever its blocks are. layer: that of a selective candidate, for a
 * better bound; NULL: not planned yet. A bound above `enough` ns is not made better. */
void tess__price_bound(const tess__pricing *pricing, const tess_plan_info *info,
                       const tess_work *work, int at, const int32_t *head_group,
                       const tess_plan_layer *layer, int64_t enough,
                       const tess__bound_scratch *scratch, tess_candidate *c);

tess_status tess__bound_scratch_make(tess__arena *arena, const tess_plan_info *info,
                                     const tess_work *work, tess__bound_scratch *scratch);

/* ---- strategy_text.c ------------------------------------------------------------------------- */

/* tess_strategy_parse; who starts the sentence of a failure. */
tess_status tess__strategy_parse(const char *who, const char *text, int ranks,
                                 tess_strategy *strategy);

/* ---- candidate.c, strategy.c ----------------------------------------------------------------- */

/* Everything one call of tess_plan_create decides by. */
typedef struct {
    tess_ctx *ctx;
    const tess_work *work;
    tess_plan_opts opts; /* defaults filled in */
    tess_plan_info info;
    tess__pricing pricing;
    /* Scratch, made by tess_plan_create. */
    tess__partition_scratch *space;
    int32_t *heads, *part_speeds; /* (heads), (ranks) */
    int64_t *group_speeds;        /* (ranks) */
    tess__bound_scratch bound;
} tess__task;

/* Checks the arguments and fills the task; nothing of it is to be freed. */
tess_status tess__task_make(const char *who, tess_ctx *ctx, const tess_work *work,
                            const tess_cluster *cluster, const tess_plan_opts *opts,
                            tess__task *task);

/* All candidates in their fixed order: fewer parts of the sequence first, fractional last; list
 * NULL only counts. */
int tess__candidate_list(const tess__task *task, tess_candidate *list);

/* What happens to the blocks of a head group. */
typedef enum {
    TESS__BLOCKS_EVEN,    /* as they are, in even parts */
    TESS__BLOCKS_CUT,     /* as they are, queries cut by their work */
    TESS__BLOCKS_ORDERED, /* in an order of the group's own, see blocks.c */
} tess__block_rule;

/* Two candidates of the same degrees, heads and rule are the same layer. */
tess__block_rule tess__candidate_blocks(const tess__task *task, const tess_candidate *c);

/* Whole heads in groups, by the method; group_of (heads). */
void tess__candidate_heads(tess__task *task, int at, const tess_candidate *c, int32_t *group_of);

/* The layer of a candidate whose heads are in group_of (NULL: fractional), in the arena. */
tess_status tess__candidate_layer(tess__task *task, tess__arena *arena, int at,
                                  const tess_candidate *c, const int32_t *group_of,
                                  tess_plan_layer *layer);

/* The same layer with its ranks placed otherwise, in another arena. */
tess_status tess__candidate_place(tess__task *task, tess__arena *arena,
                                  const tess_plan_layer *layer, tess_placement placement,
                                  tess_plan_layer *placed);

/* ---- even_ring.c ----------------------------------------------------------------------------- */

enum { TESS__EVEN_RINGS = 65 };

/* Tiles of all heads in rings of even parts, (heads, ring, ring) each; NULL: not counted yet. */
typedef struct {
    int64_t *tiles[TESS__EVEN_RINGS]; /* by ring */
    tess__arena arena;
} tess__even_rings;

/* Whether the tiles of a ring of even parts are known from those of its heads. */
int tess__even_ring_ok(const tess__task *task, int ring);

/* What tess__layer_tiles gives for a layer whose blocks are as they are. */
tess_status tess__even_ring_tiles(const tess__task *task, int at, const tess_plan_layer *layer,
                                  tess__even_rings *rings, tess__arena *arena, int64_t **tiles);

/* Leaves one unit of work in each tile that has some: a ring's phase is its hops then. */
void tess__even_ring_hops(const tess_plan_layer *layer, int64_t *tiles);

/* ---- explain.c ------------------------------------------------------------------------------- */

enum { TESS_REASON_BYTES = 192 };

/* Why this candidate cannot be planned at all; "" if it can. */
void tess__candidate_bar(const tess__task *task, const tess_candidate *c,
                         char why[TESS_REASON_BYTES]);

/* Why c lost to best; bounded 1: ns is only a lower bound. */
void tess__candidate_reason(const tess__task *task, const tess_candidate *c,
                            const tess_candidate *best, int bounded, char why[TESS_REASON_BYTES]);

/* Negative where a is better than b: time, then bytes, then degrees; without a cluster imbalance in
 * steps of one percent, then bytes, then degrees. */
int tess__candidate_order(const tess__task *task, const tess_candidate *a, const tess_candidate *b);

/* ---- strategy_layer.c ------------------------------------------------------------------------ */

/* The search for the best candidate of one layer. */
typedef struct {
    tess__task *task;
    int at;
    tess_candidate *list; /* (n) of this layer */
    int n;
    char (*why)[TESS_REASON_BYTES]; /* (n): "" until a reason is known */
    uint8_t *bounded;               /* (n): ns, rho and bytes are lower bounds */
    uint8_t *settled;               /* (n): planned, or never will be */
    uint8_t *closer;                /* (n): its bound is as close as it gets */
    tess__even_rings rings;
    int *split;        /* (n): which of the splits of heads it has */
    int n_splits;      /* one for each U and method */
    uint8_t *is_split; /* (n_splits): group_of is valid for this layer */
    int32_t *group_of; /* (n_splits, heads) */
    int best;          /* -1: none */
    tess__arena arena; /* holds the best layer */
    tess_plan_layer layer;
} tess__layer_search;

/* Tries all, stores the best layer in the plan, and gives every candidate its reason. */
tess_status tess__strategy_layer(tess__layer_search *search, const char *who, tess_plan *plan);

#endif
