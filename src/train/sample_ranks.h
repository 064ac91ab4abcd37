/* SPDX-License-Identifier: Apache-2.0 */
/* sample_ranks.h - the ranks of a sampling. {0}, or NULL, is one rank. */
#ifndef TESS_SAMPLE_RANKS_H
#define TESS_SAMPLE_RANKS_H

#include "train_internal.h"

typedef struct tess__sample_ranks {
    tess_ctx *ctx;
    tess__process_group pg; /* world and agreement alone; world NULL: one rank */
    tess_comm *half_comm;   /* with halves: the ranks of this one's */
    tess_comm *pair_comm;   /* with halves: this rank and its counterpart, by half */
    int halves, evaluation; /* evaluation: what this half evaluates; 0: with prompts, 1: without */
    tess_cp *cp;            /* NULL: this rank has all tokens */
    int layers, heads;
    double *density;        /* (layers, heads): sums over evaluations since the last plan */
    int evaluated;          /* evaluations */
    tess_comm_counts *sent; /* the caller's, or NULL */
} tess__sample_ranks;

/* First call; propagate its status and close it in any case. */
void tess__sample_ranks_init(tess_ctx *ctx, const tess_sample_opts *opts,
                             tess__sample_ranks *ranks);

/* Collective. EINVAL if ranks have different inputs, or cannot form the halves of the options. */
tess_status tess__sample_ranks_open(const char *who, tess_model *model,
                                    const tess_sample_opts *opts, const float *text,
                                    tess__sample_ranks *ranks);

/* Collective: makes the context-parallel group of the ranks of a half, or of all. */
tess_status tess__sample_ranks_cp(tess__sample_ranks *ranks, const tess__sharing *sharing);
void tess__sample_ranks_close(
    tess__sample_ranks *ranks); /* after the pass; adds up what was sent */

int tess__sample_ranks_evaluates(const tess__sample_ranks *ranks, int evaluation);

/* Collective over a half: before the evaluations of a step, after each, and after all of them. */
tess_status tess__sample_ranks_plan(tess__sample_ranks *ranks, int step);
tess_status tess__sample_ranks_observe(tess__sample_ranks *ranks, const tess_pass *pass, int batch);
tess_status tess__sample_ranks_exchange(tess__sample_ranks *ranks, float *v, float *v_none,
                                        int64_t n);

/* Collective: the sum over this rank and its counterpart. */
tess_status tess__sample_ranks_allreduce_pair(tess__sample_ranks *ranks, double *x, int64_t n);

#endif
