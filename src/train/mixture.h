/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - training on clips of several sizes: the clips of a step, and who computes them.
 *
 *   mixture.c        the clips of a step in their order, their gradients and weights
 *   mixture_pass.c   the pass at hand, of one size on one range of ranks
 *   mixture_plan.c   which rank computes which clips: a plan of the mixture for each step
 *   mixture_rates.c  what the plan counts with: measured times of pairs and tokens, speeds of ranks
 *
 * The clips of a step are samples n, n + 1, ... of the data, whoever computes them. They are
 * computed, and their gradients added, in one order: the largest size first, then by number. The
 * loss of a step is sum over clips of w_i loss_i, with w_i = tokens_i / tokens, or 1 / clips.
 *
 * Of many ranks one computes a clip, or the ranks of a range together (tess_mix_range), by a
 * context-parallel group of their own. A rank computes what it shares with most ranks first: ranges
 * nest, so that ranks with two clips in common have them in the same order.
 */
#ifndef TESS_MIXTURE_H
#define TESS_MIXTURE_H

#include "tessera/advanced/mix.h"
#include "train_internal.h"

typedef struct {
    int64_t number; /* among the clips of the step: what its noise is keyed by */
    int64_t tokens;
    int bucket;
    double u;         /* its noise level, a fraction of the schedule */
    double weight;    /* of its loss */
    int first, width; /* ranks that compute it; without a plan 0 and 1 */
} tess__step_clip;

/* What a pass with sparse attention was made for. */
typedef struct {
    tess_sparse_opts opts;
    int cube[3];
} tess__mixture_room;

/* Ranks that compute clips together, this one among them; the last range is this rank alone. */
typedef struct {
    tess_comm *comm; /* NULL: this rank alone, without exact_ranks */
    tess_cp *cp;     /* of the last pass on the range; NULL: none yet */
    int first, end;  /* ranks */
    int planned;     /* 1: cp has the plan of the step at hand */
    int bucket;      /* that cp is for, and what else it was made for: the same on all its ranks */
    tess__mixture_room room;
} tess__mixture_range;

enum { TESS__RATE_STEPS = 5 }; /* whose median counts */

/* Times are those of the passes of a step, without waiting; of many ranks. */
typedef struct {
    int fixed;       /* 1: given by --cluster or --speeds: speeds are not measured */
    int32_t *speeds; /* (ranks): in force, 1..1000000 */
    double pair;     /* in force: ns of a pair of a head, of a layer on the fastest rank */
    double token;    /* and of a token's other work; 0: not measured yet */
    int adopted;     /* how often new ones came into force */
    int n;           /* steps measured since, the last TESS__RATE_STEPS of which are below */
    double *speed;   /* (TESS__RATE_STEPS, ranks) */
    double pairs[TESS__RATE_STEPS], tokens[TESS__RATE_STEPS];     /* as pair and token */
    double planned[TESS__RATE_STEPS], measured[TESS__RATE_STEPS]; /* imbalances */
    double *times;  /* (2, ranks): of the step, attention and the rest, ns */
    double *work;   /* (2, ranks): pairs and tokens of the step, by the plan */
    double *sorted; /* (TESS__RATE_STEPS) */
} tess__mixture_rates;

struct tess__mixture {
    int sizes;
    tess_data_info *info; /* (sizes) */
    int64_t *tokens;      /* (sizes): of a clip */
    int (*grids)[3];      /* (sizes): its tokens by frames, rows, columns */
    int largest;
    int bucket, range; /* of the pass at hand */
    tess__mixture_room room;
    int beyond;            /* 1: exact sums of a pass that is no more were beyond their range */
    tess_pass_times times; /* of passes that are no more */

    int n;                  /* clips of a step */
    tess__step_clip *clips; /* (n), in order */
    int64_t *samples;       /* (n): what this rank reads in the step */
    int *own;               /* (n): the clips of this rank, in the order it computes them */
    int n_own;
    tess__mixture_range *ranges; /* (n_ranges) */
    int n_ranges;
    int reported; /* 1: the log has a line about cut clips */

    /* Of many ranks. */
    tess_cluster *cluster; /* what plans are made for; NULL: measured */
    tess_mix_clip *input;  /* (n): the same clips for the planner */
    tess_mix_plan *plan;   /* of the step; NULL: one rank */
    tess_mix_view view;
    int timed; /* 1: the plan counts ns, not FLOP */
    tess__mixture_rates rates;
};

/* ---- mixture_plan.c -------------------------------------------------------------------------- */

tess_status tess__mixture_ranks(tess_train *train); /* what many ranks need; after the sizes */

/* Before the passes of a step: the same plan on all ranks. One rank has none. */
tess_status tess__mixture_plan(tess_train *train);

/* The range of the ranks of a clip that this rank has a part of. */
int tess__mixture_range_of(const tess__mixture *m, const tess__step_clip *clip);

/* ---- mixture_pass.c -------------------------------------------------------------------------- */

/* The pass of one size on a range; collective there if it is another one. */
tess_status tess__mixture_pass(tess_train *train, int bucket, int range);
int tess__mixture_alone(const tess__mixture *m); /* the range of this rank alone */

/* ---- mixture_rates.c ------------------------------------------------------------------------- */

tess_status tess__rates_create(tess_train *train);
void tess__mixture_say(const tess_train *train, const char *sentence); /* in the log, by rank 0 */

/* Collective, after the passes of a step, which took this rank so many ns in attention and in all:
 * what was measured, and new rates where that pays. */
tess_status tess__rates_step(tess_train *train, double attention, double all);

#endif
