/* SPDX-License-Identifier: Apache-2.0 */
/* mix_internal.h - mixtures of clips inside: their work, the laying on ranks, what that costs.
 *
 * What lives here: which rank computes which clips of a step. What comes in: tokens and densities
 * of clips, speeds of ranks, a cluster. What goes out: parts of clips by rank.
 *
 *   mix_codes.c   clips from KnapFormer's short codes
 *   mix_read.c    clips from a CSV file
 *   mix_work.c    work of a clip in time, and where a cut of it lies in tokens and places
 *   mix_lay.c     clips to ranks, within a time limit and a memory limit
 *   mix_groups.c  the same where the ranks of a cut clip compute it together
 *   mix_price.c   exchanges and memory of a laying, exactly
 *   mix_plan.c    options, steps, the choice between layings, the object
 *
 * Times are doubles made with + - * / alone, in a fixed order: the same everywhere.
 */
#ifndef TESS_MIX_INTERNAL_H
#define TESS_MIX_INTERNAL_H

#include "cost/cost_internal.h"
#include "tessera/advanced/mix.h"

/* ---- mix_codes.c, mix_read.c ----------------------------------------------------------------- */

struct tess_mix {
    tess__arena arena; /* the mixture lies in it */
    const tess_mix_clip *clips;
    int64_t n;
};

/* A mixture of n clips, which the caller fills. */
tess_status tess__mix_new(tess_ctx *ctx, int64_t n, tess_mix **mix, tess_mix_clip **clips);

/* tess_mix_open of a text; profiles are looked for in the folder of `name`. */
tess_status tess__mix_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                           tess_mix **mix);

/* ---- mix_work.c ------------------------------------------------------------------------------ */

/* Time of a clip on the fastest rank, over all layers. */
typedef struct {
    int64_t tokens;
    double linear, attention; /* of all tokens; of all heads */
    double total;
    const double *prefix; /* (heads + 1): attention before each head; NULL: heads are alike */
    int64_t places;       /* heads * query blocks */
    int32_t blocks;       /* query blocks */
} tess__mix_work;

/* What times and memory depend on besides the clips. */
typedef struct {
    const tess_cluster_info *cluster; /* NULL: work in FLOP, exchanges are free */
    int ranks, nodes, per_node, heads, head_dim, layers, train;
    int32_t group;
    double pair, row,
        token;     /* time of a pair, of a row and of a token's linear layers; all layers */
    double *speed; /* (ranks): of the fastest's, 0..1 */
    double total_speed;
    int64_t memory; /* bytes of a rank; 0: no limit */
    int64_t token_bytes;
    int64_t row_bytes; /* of one token of one head */
    int whole_clips;
    int together; /* ranks that may compute a clip together, in equal shares; 0: parts are any */
} tess__mix_rules;

/* heads (rules->heads + 1) is memory for the prefix, taken where the heads are not alike. */
tess__mix_work tess__mix_work_of(const tess__mix_rules *rules, const tess_mix_clip *clip,
                                 double *heads);

/* Query rows over heads before a place; rows of these that are tokens [begin, end). */
int64_t tess__mix_rows(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place);
int64_t tess__mix_rows_of(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place,
                          int64_t begin, int64_t end);

/* Time of the attention before a place. */
double tess__mix_before(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place);

/* The cut at which about `time` of the clip lies before it: the nearest place to the same fraction
 * of attention, and the tokens that make up for its rounding. Not before *token and *place. */
void tess__mix_cut(const tess__mix_rules *rules, const tess__mix_work *work, double time,
                   int64_t *token, int64_t *place);

/* ---- mix_lay.c ------------------------------------------------------------------------------- */

typedef struct {
    int64_t clip;
    int32_t rank;
    double time; /* of the clip, on the fastest rank */
} tess__mix_piece;

/* The largest of n numbers with its index, under changes of single ones: a tournament tree. */
typedef struct {
    double *key; /* (2 * size) */
    int size;    /* a power of 2, at least n */
} tess__mix_tree;

size_t tess__mix_tree_bytes(int n);
void tess__mix_tree_start(tess__mix_tree *tree, int n); /* all keys -infinity */
void tess__mix_tree_set(tess__mix_tree *tree, int i, double key);
int tess__mix_tree_largest(const tess__mix_tree *tree); /* the lowest of equals */

/* Parts of the clips of a step at most. */
#define TESS__MIX_PIECES(n, ranks) ((n) + 64 * (int64_t)(ranks))

typedef struct {
    const tess__mix_rules *rules;
    const tess__mix_work *work;
    const int64_t *order; /* (n): the clips of the step, in the order they are laid */
    int64_t n;
    /* Scratch. */
    tess__mix_tree tree;
    double *room;            /* (ranks): time left on the fastest rank's clock */
    double *node_room;       /* (nodes) */
    int64_t *node_done;      /* (nodes): the last clip that it had no room for */
    int64_t *memory;         /* (ranks): bytes left */
    tess__mix_piece *pieces; /* (TESS__MIX_PIECES): those of a clip side by side */
    int64_t n_pieces;
    int short_of_memory; /* 1: some clip did not go where there was time for it */
} tess__mix_lay;

/* Lays the clips within a time limit; returns the time of what found no place, 0: all did. */
double tess__mix_lay_run(tess__mix_lay *lay, double limit);

/* ---- mix_price.c ----------------------------------------------------------------------------- */

typedef struct {
    tess_mix_part *parts; /* (n_pieces): in the order of the pieces, by rank inside a clip */
    tess_mix_rank *rank;  /* (ranks) */
    double time, mean;    /* of the slowest rank; of all, by speed */
    int64_t cuts, cut_clips, far_clips;
} tess__mix_price;

/* Scratch: traffic (3 * ranks), ns (ranks). Reorders the pieces of cut clips by rank. */
void tess__mix_price_of(tess__mix_lay *lay, int step, tess_traffic *traffic, int64_t *ns,
                        tess__mix_price *price);

/* ---- mix_groups.c ---------------------------------------------------------------------------- */

/* Cuts clips whose share of a rank is longer than `share`; lay->room is when each rank is done. 0:
 * more parts than there is room for. And the time of the slowest rank, exchanges included. */
int tess__mix_lay_groups(tess__mix_lay *lay, double share);
double tess__mix_groups_time(const tess__mix_lay *lay, const tess__mix_price *price);

/* ---- mix_best.c ------------------------------------------------------------------------------ */

typedef struct {
    tess__mix_lay lay;
    tess_traffic *traffic; /* (3 * ranks) */
    int64_t *ns;           /* (ranks) */
    int64_t *by_tokens;    /* (n) */
    double *times;         /* (ranks) */
    tess__mix_price tried, best;
    int64_t n_best; /* parts of the best; 0: none yet */
} tess__mix_scratch;

/* For steps of at most `most` clips. */
tess_status tess__mix_scratch_make(tess__arena *arena, const tess__mix_rules *rules, int64_t most,
                                   tess__mix_scratch *scratch);

/* The best laying of the clips of scratch->lay. EINVAL: they do not fit. */
tess_status tess__mix_step_plan(const char *who, tess_ctx *ctx, tess__mix_scratch *scratch,
                                int step);

/* Bytes that a rank holds of a clip: its tokens, and where the clip is cut, the rows of q, k, v and
 * o that its attention gathers (heads: those it has a share of). */
static inline double tess__mix_held(const tess__mix_rules *rules, double tokens, double q_rows,
                                    double kv_rows)
{
    return tokens * (double)rules->token_bytes +
           (2.0 * q_rows + 2.0 * kv_rows) * (double)rules->row_bytes;
}

#endif
