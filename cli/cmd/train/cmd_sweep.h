/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sweep.h - declarations of `tessera sweep`: its values, its runs, a run as a process. */
#ifndef CLI_CMD_SWEEP_H
#define CLI_CMD_SWEEP_H

#include "cmd_train.h"

typedef struct {
    train_values train; /* first: the options of train are read into it */
    const char *attention, *out, *init, *baseline;
    int64_t seeds, trunk; /* trunk -1: half of the steps */
    double margin, confidence;
    int dry_run;
} sweep_values;

enum { SWEEP_NAME = 64, SWEEP_PATH = 4096 };

/* One run of a sweep: a trunk, or an arm of one seed. */
typedef struct {
    char name[SWEEP_NAME];  /* its folder in that of the sweep: "dsv-0" */
    char path[SWEEP_PATH];  /* of its folder */
    char trunk[SWEEP_PATH]; /* that it branches off; "": none */
    const char *kind;       /* of attention */
    int is_trunk;
    int64_t seed, end;   /* end: its last step */
    int64_t first, step; /* steps done when the sweep began; steps done */
    double loss;         /* of its last line of metrics */
    int failed;
} sweep_run;

typedef struct {
    cli *c;
    const sweep_values *v;
    char **words; /* the options of train that were given */
    int n_words;
    sweep_run *runs; /* trunks and arms, in the order in which they are made */
    unsigned n_runs;
    int64_t trunk;       /* steps of a trunk; 0: none */
    int64_t begun, done; /* nanoseconds; steps of this call in runs that ended */
    char why[640];       /* sentence of the first run that failed */
} sweep_job;

/* sweep_runs.c: the runs, in their order; the words of a run's command, ended by NULL, to be freed
 * with each of them; the steps that a run has done. */
tess_status sweep_plan(sweep_job *j);
char **sweep_command(const sweep_job *j, const sweep_run *r);
void sweep_words_free(char **words);
int64_t sweep_steps_done(const sweep_job *j, const sweep_run *r);

/* sweep_process.c: makes a run, or what is left of it, in a process. *code: its exit code, or 128
 * and the number of the signal that ended it. ESTOPPED: a signal came, and the run has stopped. */
tess_status sweep_process(sweep_job *j, sweep_run *r, int *code);

/* sweep_main.c: all runs, then their comparison. */
tess_status sweep_main(cli *c, const sweep_values *v);

#endif
