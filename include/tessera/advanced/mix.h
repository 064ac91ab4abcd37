/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h - the clips of a training step, of any sizes, spread evenly over ranks.
 *
 * Batches mix resolutions and durations, and a clip of twice the tokens has up to four times the
 * attention. A mixture plan gives whole clips to ranks where they fit, and cuts a clip over several
 * ranks only where no rank has room for it: tokens in ranges, attention by heads and query blocks
 * as in a plan of fractional heads (tess_mix_clip_plan makes that plan).
 *
 *   tess_mix *mix;
 *   tess_mix_plan *plan;
 *   tess_mix_opts opts = TESS_MIX_OPTS_INIT;
 *   opts.ranks = 32;
 *   tess_mix_parse(ctx, "g3b16i256f1s0,g1b1i2048f1s0", opts.ranks, 1, &mix);   // or tess_mix_open
 *   tess_mix_plan_create(ctx, tess_mix_clips(mix, &n), n, cluster, &opts, &plan);
 *
 * The same clips, cluster and options give the same plan on every rank, compiler and machine.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_MIX_H
#define TESSERA_MIX_H

#include "../cluster.h"
#include "../plan.h"

TESS_BEGIN_DECLS

/* ---- clips ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t tokens;      /* 1..2^31-1 */
    double density;      /* of its attention, 0..1; 1: dense */
    const double *heads; /* (n_heads): density of each head; NULL: density */
    int n_heads;         /* 0 without `heads`; else the heads of the model */
    int32_t drawn_by;    /* the rank that drew it, for the imbalance before; -1: none */
} tess_mix_clip;

enum { TESS_MIX_CLIPS_MAX = 1 << 22 };

typedef struct tess_mix tess_mix;

/* Clips from a CSV file with the columns tokens, or frames, height and width in pixels (as Wan
 * counts: 1 + (frames - 1) / 4 latent frames of height / 16 x width / 16 tokens); and optionally
 *
 *   count                  how many such clips; 1
 *   density                of attention, 0..1; 1
 *   noise                  noise level u, 0..1
 *   density_1 .. _4        density by quartile of the noise level, which a line then needs
 *   profile                a density profile beside the file: heads as its mean over layers, in the
 *                          step that u stands for (the first step is u = 1), over all without u
 *
 * Further columns are ignored; an empty field is none. EFORMAT names the line. */
TESS_API tess_status tess_mix_open(tess_ctx *ctx, const char *path, tess_mix **mix);

/* KnapFormer's short codes (arXiv:2508.06001), comma-separated: g8b32i256f1s0 is 8 ranks that draw
 * batches of 32 clips of side 256 with 1 frame; a clip has floor(side / 16)^2 tokens, times its
 * frames with s0, times max(1, int(frames / 3.4)) with s1. The list is one group of ranks and is
 * repeated until the ranks are used up; each rank draws `steps` batches. */
TESS_API tess_status tess_mix_parse(tess_ctx *ctx, const char *code, int ranks, int steps,
                                    tess_mix **mix);

/* The clips live as long as the mixture. */
TESS_API const tess_mix_clip *tess_mix_clips(const tess_mix *mix, int64_t *n);
TESS_API void tess_mix_destroy(tess_mix *mix);

/* ---- plans ---------------------------------------------------------------------------------- */

typedef struct {
    int ranks;           /* 1..65536 */
    int nodes;           /* 0: as many as the ranks need of the cluster's, 1 without one */
    int steps;           /* 1..4096: the clips are those of so many steps, which come out even */
    int width, heads;    /* of the model; heads 0: width / 128 */
    int ffn;             /* hidden width of the feed-forward layers; 0: 4 x width */
    int layers;          /* transformer blocks */
    int32_t group;       /* rows of a query block, between which attention is cut */
    tess_plan_pass pass; /* what is predicted and held: forward alone, or training */
    int element_bytes;   /* of activations: 2, or 4 for fp32 */
    double linear_share; /* of the peak that linear layers reach, above 0 up to 1 */
    int64_t memory;      /* bytes for the clips on a rank; 0: no limit */
    int64_t token_bytes; /* held for a token over all layers; 0: by the rule of docs/planning.md */
    int whole_clips;     /* 1: no clip is cut */
    int together;        /* above 0: the ranks of a cut clip compute it together, as training does:
                            in equal shares, so many ranks at most (tess_mix_range); 0: parts are
                            of any length */
    double pair_ns;      /* measured times of one layer on the fastest rank: of a pair of tokens of
                              a head; 0: the cluster's, or FLOP */
    double token_ns;     /* and of all else of a token; both are given, or neither */
    const int32_t *speeds; /* (ranks), relative, 1..1000000; NULL: equal */
} tess_mix_opts;

#define TESS_MIX_OPTS_INIT                                                                         \
    {                                                                                              \
        .steps = 1, .width = 4096, .layers = 1, .group = 64, .pass = TESS_PLAN_TRAIN,              \
        .element_bytes = 2, .linear_share = 0.7                                                    \
    }

/* What one rank computes of one clip in one step: linear layers of tokens [token_begin, token_end),
 * and of attention the places [begin, end), where place = head * query blocks + block. Over the
 * ranks of a clip both tile it. */
typedef struct {
    int32_t step, rank;
    int64_t clip;
    int64_t token_begin, token_end;
    int64_t begin, end;
} tess_mix_part;

typedef struct {
    double compute;   /* work over the rank's speed: ns with a cluster, else FLOP */
    int64_t exchange; /* ns of the exchanges of cut clips; 0 without a cluster */
    int64_t memory;   /* bytes */
    int64_t tokens;
    int64_t sent; /* bytes of a layer's exchanges that leave the rank */
} tess_mix_rank;

typedef struct {
    double rho; /* slowest rank over the mean, which weighs ranks by their speeds */
    double rho_before;
    double time; /* of the slowest rank: ns with a cluster, else FLOP over relative speed */
} tess_mix_step;

typedef struct {
    int64_t clips, cut_clips; /* over all steps */
    int64_t cuts;             /* parts beyond one per clip */
    int64_t far_clips;        /* cut clips that lie in several nodes */
    double rho_mean, rho_max, rho_before_mean, rho_before_max; /* over steps */
    double predicted_ms; /* of a step, mean; -1 without a cluster */
    int64_t memory;      /* of the rank that needs most */
    int ranks, nodes, steps;
    const tess_mix_part *parts; /* ascending by step, rank, clip */
    int64_t n_parts;
    const int64_t *first;      /* (steps * ranks + 1): where the parts of each rank begin */
    const tess_mix_rank *rank; /* (steps, ranks) */
    const tess_mix_step *step; /* (steps) */
} tess_mix_view;

typedef struct tess_mix_plan tess_mix_plan;

/* Ranks that compute a clip together: all of them at depth 0, and halves of the ranges of the depth
 * before, between nodes first. The range with `rank` in it is *first..*end - 1. */
TESS_API void tess_mix_range(int ranks, int nodes, int depth, int rank, int *first, int *end);

/* cluster NULL: work is counted in FLOP, and exchanges cost nothing. EINVAL also if the clips do
 * not fit in memory, with the amount. The clips are copied. */
TESS_API tess_status tess_mix_plan_create(tess_ctx *ctx, const tess_mix_clip *clips, int64_t n,
                                          const tess_cluster *cluster, const tess_mix_opts *opts,
                                          tess_mix_plan **plan);
TESS_API tess_status tess_mix_plan_query(const tess_mix_plan *plan, tess_mix_view *view);

/* The attention of a clip as a plan of fractional heads, of one layer, for the ranks that have a
 * part of the clip, in ascending order; rank i of the plan is the i-th of them. */
TESS_API tess_status tess_mix_clip_plan(const tess_mix_plan *plan, int64_t clip, tess_plan **made);
TESS_API void tess_mix_plan_destroy(tess_mix_plan *plan);

TESS_END_DECLS

#endif
