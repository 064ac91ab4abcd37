/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - the planner: sparse attention of one layer or step, balanced over any number of ranks.
 *
 * Work comes in as block masks, selections, head weights or densities, and is counted in units: a
 * selected block of a mask, a pair of tokens of a selection or a density, whatever a weight means.
 * Counts are integers, so that every rank, compiler and machine decides the same.
 *
 *   tess_work *work;
 *   tess_work_from_masks(ctx, &masks, &work);             // or _load, _from_selection, ...
 *   double rho;
 *   tess_work_imbalance(work, 0, 8, 1, TESS_RHO_RING, &rho);      // layer 0 on 8 ranks, as it is
 */
#ifndef TESSERA_PLAN_H
#define TESSERA_PLAN_H

#include "attn.h"
#include "base.h"

TESS_BEGIN_DECLS

/* ---- work --------------------------------------------------------------------------------- */

typedef struct tess_work tess_work;

typedef struct {
    int layers, heads;
    int32_t q_blocks, k_blocks;
    int64_t tokens_q, tokens_k; /* 0: unknown, a block then counts as one row */
    int32_t group, unit;        /* rows of a query block and of a key block (the last may be
                                   shorter); 0 where blocks have sizes of their own */
    int masks;                  /* 1: the work of each (query block, key block) is known; 0: that of
                                   each head, taken as spread evenly over its rows */
    double unit_pairs;          /* (query, key) pairs of tokens a unit stands for; 0: unknown */
    int64_t total;              /* units, over layers and heads; below 2^63 */
} tess_work_info;

/* Block masks (layers, heads, q_blocks, k_blocks), 1..65536 layers and heads, at least one block on
 * each side. Tokens and the rows of a block are all given, so that blocks of `group` rows make
 * q_blocks of tokens_q and blocks of `unit` rows k_blocks of tokens_k, or all 0. */
typedef struct {
    int layers, heads;
    int32_t q_blocks, k_blocks;
    const void *data;
    tess_mask_kind kind;
    int64_t tokens_q, tokens_k;
    int32_t group, unit;
} tess_mask_set;

/* A unit is a selected block. */
TESS_API tess_status tess_work_from_masks(tess_ctx *ctx, const tess_mask_set *masks,
                                          tess_work **work);

/* Masks from a file with one tensor: BOOL, or U8 of 0 and 1, ([layers,] heads, q_blocks, k_blocks);
 * or with two of I32 or I64: counts, ([layers,] heads, q_blocks), and indices of key blocks, the
 * same with a row of them, of which the first counts are read. */
typedef struct {
    int32_t group, unit;        /* rows of a block; both 0: unknown */
    int64_t tokens_q, tokens_k; /* 0: as many as whole blocks have */
    int layer, layers;          /* the first, and how many; layers 0: all from the first on */
} tess_mask_opts;

TESS_API tess_status tess_work_load(tess_ctx *ctx, const char *path, const tess_mask_opts *opts,
                                    tess_work **work);

/* One selection for each of n layers, all of the same shape and of batch 1. A unit is a pair of
 * tokens. */
TESS_API tess_status tess_work_from_selection(tess_ctx *ctx, const tess_selection *const *layers,
                                              int n, tess_work **work);

/* weights (layers, heads), 0 or more, of any unit; spread over q_blocks query blocks, as many key
 * blocks, and their tokens, of which nothing is known. */
TESS_API tess_status tess_work_from_weights(tess_ctx *ctx, const int64_t *weights, int layers,
                                            int heads, int32_t q_blocks, tess_work **work);

/* density (layers, heads), 0..1: the share of all tokens^2 pairs that a head computes, rounded to
 * the nearest number of pairs. A unit is a pair; blocks have `group` rows on both sides. */
TESS_API tess_status tess_work_from_density(tess_ctx *ctx, const double *density, int layers,
                                            int heads, int64_t tokens, int32_t group,
                                            tess_work **work);

TESS_API tess_status tess_work_query(const tess_work *work, tess_work_info *info);
TESS_API void tess_work_destroy(tess_work *work);

/* ---- imbalance ---------------------------------------------------------------------------- */

/* Where ranks wait for each other in the `ring` iterations of a layer. */
typedef enum {
    TESS_RHO_GLOBAL, /* all of them, after each iteration */
    TESS_RHO_RING,   /* the ranks of a ring, after each iteration */
    TESS_RHO_FREE,   /* no rank before the end */
} tess_rho_form;

/* How many times longer a layer takes than with the work spread evenly, without any plan: heads cut
 * into `ulysses` runs (1..65536), blocks into `ring` runs (1..4096), uneven remainders to the
 * first. In iteration i rank r of a ring computes its queries against key run (r + i) mod ring. 1
 * where there is no work. Without masks the work of a head is even over its keys too. */
TESS_API tess_status tess_work_imbalance(const tess_work *work, int layer, int ulysses, int ring,
                                         tess_rho_form form, double *rho);

/* ---- density profiles --------------------------------------------------------------------- */

/* A table of densities, one line per head:
 *
 *   step,layer,head,density
 *   1,0,0,0.7382
 *
 * CSV as of RFC 4180, in UTF-8, with or without quotes, spaces, a byte order mark, CRLF, further
 * columns; columns and lines in any order. A table without the column step is step 0. Steps and
 * layers are numbers of 0 or more, heads are
 * counted from 0 or from 1; every step has the same layers and every layer the same heads. */
typedef struct tess_profile tess_profile;

typedef struct {
    const char *column; /* the kept fraction, 0..1; NULL: "density". Files that call it "Sparsity"
                           exist; a name that contradicts this is worth a warning in the log. */
    int meaning;        /* 1: the column is the kept fraction, 2: the dropped one, whatever its name
                           says, without a warning; 0: the kept one */
    int tiles[3];       /* of a clip, frames, rows, columns: for a .json of sliding tile attention,
                           {"step_layer_head": [frames, rows, columns]} in tiles */
} tess_profile_opts;

typedef struct {
    int steps, layers, heads;
    const int64_t *step, *layer; /* (steps), (layers): numbers as in the file, ascending */
    const double *density;       /* (steps, layers, heads) */
} tess_profile_view;

TESS_API tess_status tess_profile_open(tess_ctx *ctx, const char *path,
                                       const tess_profile_opts *opts, tess_profile **profile);
TESS_API tess_status tess_profile_query(const tess_profile *profile, tess_profile_view *view);
TESS_API void tess_profile_close(tess_profile *profile);

/* Writes such a file, heads counted from 0, densities to six digits; it appears whole or not at
 * all. */
TESS_API tess_status tess_profile_write(tess_ctx *ctx, const char *path,
                                        const tess_profile_view *view);

/* ---- plans --------------------------------------------------------------------------------- */

typedef struct tess_plan tess_plan;

typedef enum {
    TESS_PLAN_AUTO,          /* the best of all that follow */
    TESS_PLAN_CONTIGUOUS,    /* heads and blocks in their order, as they are */
    TESS_PLAN_SNAKE,         /* heads by falling load, forth and back over the groups */
    TESS_PLAN_LPT,           /* each head to the least loaded group, any number per group */
    TESS_PLAN_DB_SP,         /* the same with as many heads in every group */
    TESS_PLAN_REFINED,       /* the best of them, then moves and swaps until none helps */
    TESS_PLAN_FRACTIONAL,    /* heads cut between ranks wherever the load asks for it */
    TESS_PLAN_REFINED_EQUAL, /* refined, with as many heads in every group */
    TESS_PLAN_METHOD_COUNT
} tess_plan_method;

/* Which ranks are neighbours. u is the head group, 0..U-1, s the sequence part, 0..S-1, where S is
 * the ring or the selective degree. */
typedef enum {
    TESS_PLACE_HEADS_INSIDE,    /* rank = s * U + u: heads are exchanged between neighbours */
    TESS_PLACE_SEQUENCE_INSIDE, /* rank = u * S + s: keys travel between neighbours */
    TESS_PLACEMENT_COUNT
} tess_placement;

typedef enum { TESS_PLAN_FORWARD, TESS_PLAN_TRAIN, TESS_PLAN_PASS_COUNT } tess_plan_pass;

/* The words of the command line and of plan files: "contiguous", ...; NULL beyond the last. */
TESS_API const char *tess_plan_method_name(tess_plan_method method);

/* How a layer is split over ulysses x ring x selective ranks: heads over `ulysses` groups, and the
 * sequence of each group over a ring or over selective ranks, so that at most one of ring and
 * selective is above 1. Fractional heads have degrees 1 x 1 x 1, or where they are cut inside of
 * nodes those of a node's ranks and of the nodes. Where a strategy is asked for, method AUTO and
 * degrees of 0 leave the choice to the planner. */
typedef struct {
    tess_plan_method method;
    int ulysses, ring, selective;
    tess_placement placement;
} tess_strategy;

enum { TESS_STRATEGY_TEXT = 64 }; /* bytes, with the 0 at the end */

/* "auto", "fractional", "fractional U8 x R4" (cut inside of 4 nodes, a ring between these),
 * "refined U4 x R2" (rings of 2), "db-sp U2 x C4" (selective), with
 * " sequence-inside" for that placement. */
TESS_API void tess_strategy_format(const tess_strategy *strategy, char text[TESS_STRATEGY_TEXT]);

/* Reads what tess_strategy_format writes, and shorter forms for so many ranks: a method alone
 * (heads over all ranks), "ring", "selective", and degrees of refined heads: "4x2r", "2x4s", "8x1".
 * NULL is auto. EINVAL with the value and the rule: "strategy is \"rign\", did you mean ring?" */
TESS_API tess_status tess_strategy_parse(const char *text, int ranks, tess_strategy *strategy);

/* The query blocks of one head that one rank computes: places q_begin..q_end-1 of the order of the
 * rank's head group. A rank computes each of its shares against all keys. */
typedef struct {
    int32_t rank, head, q_begin, q_end;
} tess_share;

/* A rectangle of work: a share against one key part, in places of the group's orders. Ring plans
 * have `ring` key parts, all others one. */
typedef struct {
    int32_t rank, head, q_begin, q_end, k_begin, k_end;
    int32_t step; /* the ring iteration in which the rank holds these keys */
} tess_piece;

/* One layer. Every head belongs to one head group; a group's ranks are those with its u. The
 * arrays belong to the plan. */
typedef struct {
    tess_strategy strategy;
    int groups;               /* head groups: ulysses; 1 for fractional heads */
    const tess_share *shares; /* ascending by rank, head, q_begin; none is empty */
    int64_t n_shares;
    const int64_t *first;      /* (ranks + 1): where each rank's shares begin */
    const int32_t *head_group; /* (heads); NULL where heads are cut each in its own way */
    const int32_t *q_cuts;     /* (groups, S + 1): places where the sequence parts begin; NULL as
                                  head_group is */
    const int32_t *k_cuts;     /* (groups, ring + 1): places where the key parts begin */
    const int32_t *q_order;    /* (groups, q_blocks): the block at each place; NULL: as they are */
    const int32_t *k_order;    /* (groups, k_blocks) */
    int64_t load_max, load_total; /* units of work of the busiest rank, of all */
    int64_t load_bound;           /* what the busiest rank must have at least, by this method */
    double rho[3];                /* imbalance, by tess_rho_form */
    double rho_before;            /* tess_plan_imbalance_before of the work it was made for */
    double kv_copies;             /* copies of a head's K and V, mean over heads; 1: none extra */
    int64_t moved_q, moved_k;     /* blocks that the orders bring to another sequence part */
    int64_t predicted_ns;         /* -1 without a cluster */
    int64_t bytes;                /* sent by the rank that sends most; -1: not known */
} tess_plan_layer;

typedef struct {
    int ranks, nodes, layers, heads;
    int32_t q_blocks, k_blocks;
    int64_t tokens_q, tokens_k; /* rows; the blocks where tokens are not known */
    int32_t group, unit;        /* rows of a query and of a key block; 0 where bounds say it */
    const int64_t *bounds_q;    /* (q_blocks + 1): where blocks begin; NULL: all of `group` rows */
    const int64_t *bounds_k;
    const int32_t *speeds; /* (ranks); NULL: all the same */
    tess_plan_pass pass;
    int head_dim, element_bytes; /* of the rows that travel */
} tess_plan_info;

TESS_API tess_status tess_plan_query(const tess_plan *plan, tess_plan_info *info);
TESS_API tess_status tess_plan_layer_view(const tess_plan *plan, int layer, tess_plan_layer *view);

/* What one rank computes, ordered by step, head and q_begin. pieces NULL: *n = how many there are;
 * else *n is the room on entry and the number after the call. At step i a rank of sequence part s
 * holds key part (s - i) mod ring. */
TESS_API tess_status tess_plan_pieces(const tess_plan *plan, int layer, int rank,
                                      tess_piece *pieces, int64_t *n);

/* EINVAL, with what is wrong and where, unless the plan is one for work of this shape (NULL: any)
 * and computes every (head, query block, key block) exactly once. */
TESS_API tess_status tess_plan_check(const tess_plan *plan, const tess_work *work);

/* The imbalance of this layer of any work of the plan's shape: time of the busiest ranks over the
 * time of all at perfect balance, where a rank's time is its load over its speed. */
TESS_API tess_status tess_plan_imbalance(const tess_plan *plan, int layer, const tess_work *work,
                                         tess_rho_form form, double *rho);

/* JSON, docs/formats.md; the same plan gives the same bytes. Loading checks all that
 * tess_plan_check does. */
TESS_API tess_status tess_plan_save(const tess_plan *plan, const char *path);
TESS_API tess_status tess_plan_load(tess_ctx *ctx, const char *path, tess_plan **plan);
TESS_API void tess_plan_destroy(tess_plan *plan);

TESS_END_DECLS

#endif
