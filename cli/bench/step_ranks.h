/* SPDX-License-Identifier: Apache-2.0 */
/* step_ranks.h - a training step on one rank of one thread, and on several of them. */
#ifndef TESS_CLI_STEP_RANKS_H
#define TESS_CLI_STEP_RANKS_H

#include "workload.h"

enum { STEP_DENSE, STEP_SPARSE, STEP_KINDS, STEP_WORDS = 96 };

/* Medians and best of some samples, in seconds, and fractions of all samples' time on all ranks. */
typedef struct {
    double one, one_best;   /* on one rank */
    double many, many_best; /* on all ranks, from when all have started to when all are done */
    double plan;            /* planning */
    double index;     /* selecting keys and sending their indices: rings, selected keys alone */
    double move;      /* packing and unpacking rows; with keep=blocks not of the first forward
                         pass */
    double gradients; /* waiting for gradients and for updated weights */
    char words[STEP_WORDS]; /* strategy of the layers, or of the first and how many have it */
} step_ranks_row;

typedef struct {
    int ranks;
    int kinds; /* STEP_KINDS, or 1: the problem is dense */
    step_ranks_row rows[STEP_KINDS];
} step_ranks_report;

/* Wall time: as many cores as ranks must be free. profile_heads: as of a workload. */
tess_status step_ranks_measure(cli *c, const problem *p, int samples, step_ranks_report *r,
                               int *profile_heads);

void step_ranks_print(const cli *c, const char *text, const step_ranks_report *r);
void step_ranks_json(cli *c, json_t *object, const step_ranks_report *r);

#endif
