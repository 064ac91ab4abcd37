/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - training on clips of several sizes: the clips of a step, and who computes them.
 *
 *   mixture.c        the clips of a step in their order, their passes, gradients and weights
 *   mixture_plan.c   which rank computes which clips: a plan of the mixture for each step
 *   mixture_rates.c  what the plan counts with: measured times of pairs and tokens, speeds of ranks
 *
 * The clips of a step are samples n, n + 1, ... of the data, whoever computes them. They are
 * computed, and their gradients added, in one order: the largest size first, then by number. The
 * loss of a step is sum over clips of w_i loss_i, with w_i = tokens_i / tokens, or 1 / clips.
 */
#ifndef TESS_MIXTURE_H
#define TESS_MIXTURE_H

#include "tessera/advanced/mix.h"
#include "train_internal.h"

typedef struct {
    int64_t number; /* among the clips of the step: what its noise is keyed by */
    int64_t tokens;
    int bucket;
    double weight; /* of its loss */
} tess__step_clip;

enum { TESS__RATE_STEPS = 5 }; /* whose median counts */

/* Times are those of the passes of a step, without waiting; of many ranks. */
typedef struct {
    int fixed;       /* 1: given by --cluster or --speeds: speeds are not measured */
    int32_t *speeds; /* (ranks): in force, 1..1000000 */
    double pair,
        token;     /* in force: ns of a pair of a head, of a token's other work, both of a layer
                           on the fastest rank; 0: not measured yet */
    int adopted;   /* how often they were */
    int n;         /* steps measured since, the last TESS__RATE_STEPS of which are below */
    double *speed; /* (TESS__RATE_STEPS, ranks) */
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
    int bucket;           /* of the pass at hand */
    int largest;
    tess_pass_times times; /* of passes that are no more */

    int n;                  /* clips of a step */
    tess__step_clip *clips; /* (n), in order */
    int64_t *samples;       /* (n): what this rank reads in the step */

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

/* The clips of this rank in the step, ascending: part i of *n. */
int tess__mixture_own(const tess_train *train, int i, int *n);

/* ---- mixture_rates.c ------------------------------------------------------------------------- */

tess_status tess__rates_create(tess_train *train);

/* Collective, after the passes of a step, which took this rank so many ns in attention and in all:
 * what was measured, and new rates where that pays. */
tess_status tess__rates_step(tess_train *train, double attention, double all);

#endif
