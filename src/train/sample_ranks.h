/* SPDX-License-Identifier: Apache-2.0 */
/* sample_ranks.h - the ranks of a sampling. A crew of {0}, or NULL, is one rank alone. */
#ifndef TESS_CREW_H
#define TESS_CREW_H

#include "train_internal.h"

typedef struct tess__crew {
    tess_ctx *ctx;
    tess_comm *world;      /* the caller's; NULL: alone */
    tess_comm *half;       /* with halves: the ranks of this one's */
    tess_comm *pair;       /* with halves: this rank and its counterpart, by half */
    int halves, turn;      /* turn: what this half evaluates; 0: with prompts, 1: without */
    tess_context *context; /* NULL: this rank has all tokens */
    int layers, heads;
    double *density;        /* (layers, heads): sums over evaluations since the last plan */
    int seen;               /* evaluations */
    tess_comm_counts *sent; /* the caller's, or NULL */
    int known;              /* 1: the failure under way is known to all ranks */
} tess__crew;

/* Before all else; leave and close it in any case. */
void tess__crew_begin(tess_ctx *ctx, const tess_sample_opts *opts, tess__crew *crew);

/* Collective: the failure of the lowest rank that has one, on all. Alone: mine. */
tess_status tess__crew_agree(tess__crew *crew, tess_status mine);

/* What the sampling returns: tells the others of a failure that they do not know of. */
tess_status tess__crew_leave(const tess__crew *crew, tess_status status);

/* Collective. EINVAL if ranks differ, or cannot work in halves that are asked for. */
tess_status tess__crew_open(const char *who, tess_model *model, const tess_sample_opts *opts,
                            const float *text, tess__crew *crew);

/* Collective: makes the context in which the ranks of a half, or all, share the tokens. */
tess_status tess__crew_share(tess__crew *crew, const tess__sharing *sharing);
void tess__crew_close(tess__crew *crew); /* after the pass; adds up what was sent */

int tess__crew_evaluates(const tess__crew *crew, int turn);

/* Collective over a half: before the evaluations of a step, after each, and after all of them. */
tess_status tess__crew_plan(tess__crew *crew, int step);
tess_status tess__crew_seen(tess__crew *crew, const tess_pass *pass, int batch);
tess_status tess__crew_exchange(tess__crew *crew, float *v, float *v_none, int64_t n);

/* Collective: sums over all ranks; over this one and its counterpart. */
tess_status tess__crew_sum(tess__crew *crew, double *x, int64_t n);
tess_status tess__crew_sum_halves(tess__crew *crew, double *x, int64_t n);

#endif
