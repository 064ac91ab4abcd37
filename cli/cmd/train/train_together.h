/* SPDX-License-Identifier: Apache-2.0 */
/* train_together.h - ranks of one node traced at the same time, each in a process of its own. */
#ifndef CLI_CMD_TRAIN_TOGETHER_H
#define CLI_CMD_TRAIN_TOGETHER_H

#include "cmd_train.h"

enum { TRAIN_TOGETHER_MAX = 256 };

typedef struct {
    int at_once; /* ranks that are traced at the same time */
    int node;    /* ranks of a node: those of different nodes are not traced together */
    int threads; /* of each */
} train_together;

/* As --trace-together says, or as many as a node has ranks and this machine cores. */
tess_status train_together_plan(cli *c, const train_values *v, train_together *plan);

/* Ranks first .. first + n, 2 to TRAIN_TOGETHER_MAX of them, each into its file; prints a line for
 * each. If one fails the others are stopped, and files of this call may be missing. */
tess_status train_together_run(cli *c, const train_values *v, const train_together *plan, int first,
                               int n);

/* In a process of one rank: how many run together (1: it is alone); and the wait for all of them
 * before the step that is recorded. */
int train_together_ranks(void);
void train_together_wait(void);

#endif
