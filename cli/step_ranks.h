/* SPDX-License-Identifier: Apache-2.0 */
/* step_ranks.h - a training step on one rank of one thread, and on several of them. */
#ifndef TESS_CLI_STEP_RANKS_H
#define TESS_CLI_STEP_RANKS_H

#include "workload.h"

enum { STEP_DENSE, STEP_SPARSE, STEP_KINDS, STEP_WORDS = 48 };

typedef struct {
    int ranks;
    int kinds;               /* STEP_KINDS, or 1: the problem is dense */
    double one[STEP_KINDS];  /* seconds of the best step on one rank */
    double many[STEP_KINDS]; /* on all ranks, from the first to begin to the last to end */
    double plan[STEP_KINDS]; /* of these, planning */
    double sum[STEP_KINDS];  /* of these, adding up gradients */
    char words[STEP_KINDS][STEP_WORDS]; /* strategy of the first layer */
} step_ranks_report;

/* Wall time: as many cores as ranks must be free. profile_heads: as of a workload. */
tess_status step_ranks_measure(cli *c, const problem *p, int samples, step_ranks_report *r,
                               int *profile_heads);

void step_ranks_print(const cli *c, const char *text, const step_ranks_report *r);
void step_ranks_json(cli *c, json_t *object, const step_ranks_report *r);

#endif
