/* SPDX-License-Identifier: Apache-2.0 */
/* cp_bench.h - attention over many ranks: the time of the strategies of a problem, and
 * whether they are right.
 *
 * Ranks are threads with injected links: their clocks are virtual (tessera/comm.h), so that eight
 * ranks on two cores measure what eight cores with such links would take. Or they are those that a
 * launcher started, with their real links and the wall clock (links=mpi): each makes the same
 * tensors and lists for itself, and rank 0 receives the numbers of all ranks. Every strategy
 * attends to the same keys.
 */
#ifndef CLI_CP_BENCH_H
#define CLI_CP_BENCH_H

#include "verify.h"

enum { CP_ROWS = 32, CP_WORDS = TESS_STRATEGY_TEXT, CP_WHY = 256 };

/* ---- cp_lists.c ------------------------------------------------------------------------- */

/* Which keys each group of queries attends to, for all layers and heads. */
typedef struct {
    int layers, heads, ranks;
    int64_t tokens;
    int32_t groups, units;
    int64_t *group_bounds, *unit_bounds; /* (groups + 1), (units + 1) */
    int32_t *keys;                       /* (layers, heads): units of a list; 0: dense */
    double *density;                     /* (layers, heads): of pairs, 1 for dense heads */
    tess_selection **chosen;             /* (layers): batch 1, empty lists for dense heads */
    int32_t keys_most;                   /* of a list */
} cp_lists;

/* Call cp_lists_free in any case. */
tess_status cp_lists_make(workload *w, cp_lists *lists);
void cp_lists_free(cp_lists *lists);

/* ---- cp_rank.c -------------------------------------------------------------------------- */

/* One strategy on all ranks, filled by them. */
typedef struct {
    char name[PROBLEM_STRATEGY_MAX];
    int possible;
    char why[CP_WHY];
    int64_t *cpu, *start, *end; /* (samples, layers, ranks): ns; CPU of attention; virtual clocks */
    /* (layers, ranks): bytes sent in a pass; selective: bytes of K and V that a rank needs of
     * others, and of q's rows that the plan moves. */
    int64_t *payload, *index, *apart, *moved;
    int64_t *attend, *exchange, *rest; /* (layers, ranks): ns of the last sample: attention; inside
                                          of exchanges; packing, selecting and sending keys */
    /* (layers), set by rank 0. */
    char (*words)[CP_WORDS];
    double *predicted, *imbalance; /* seconds, negative: not known */
    int64_t *modelled;             /* bytes of the rank that sends most */
    uint8_t *selective;
} cp_run;

/* All strategies. */
typedef struct {
    workload *w;
    const cp_lists *lists;
    tess_comm *comm; /* of the launcher's ranks; NULL: threads */
    int samples;
    cp_run *runs; /* (n) */
    int n;
    char (*choice)[CP_WORDS];                               /* (layers): of the planner */
    char rates[CP_WHY];                                     /* measured rates of ranks and links */
    tess_status (*compare)(void *user, int run, int layer); /* on rank 0, after each layer */
    void *user;
} cp_job;

/* Makes everything but the names of runs; call cp_job_free in any case. */
tess_status cp_job_make(workload *w, const cp_lists *lists, int samples, int n, cp_job *job);
void cp_job_free(cp_job *job);

/* Runs every strategy on its ranks. A strategy that is not possible is one of the results. */
tess_status cp_job_run(cp_job *job);

/* ---- cp_bench.c ------------------------------------------------------------------------- */

typedef struct {
    const cp_run *run;
    double predicted, measured; /* seconds, over layers; predicted negative: not known */
    double imbalance;           /* planned, mean over layers */
    double cpu, cpu_worst;      /* max / mean CPU time of attention over ranks, median over samples:
                                   mean over layers, and of the worst layer */
    double cpu_best;            /* the same of each rank's least time over samples */
    int64_t sent, modelled;     /* bytes of the rank that sends most, summed over layers */
    int64_t index;              /* bytes of indices, over ranks and layers */
    int64_t keys, apart;        /* selective: bytes of K and V that travelled, and those needed */
    double attend, exchange, rest; /* seconds of the last sample, mean over ranks */
    double *seconds;               /* (layers): measured */
} cp_row;

typedef struct {
    cp_job job;
    cp_lists lists;
    cp_row rows[CP_ROWS];
    int layers;
    char choice[CP_WHY]; /* "2 layers fractional" */
    double chosen, best; /* seconds: of the planner's choices, of the fastest for each layer */
    double correlation;  /* Spearman's, of predicted and measured; NaN with fewer than 3 */
} cp_report;

tess_status cp_measure(workload *w, int samples, cp_report **report);
void cp_report_free(cp_report *report); /* NULL accepted */

/* The names of the strategies that a problem asks for. */
int cp_strategies(const problem *p, char names[CP_ROWS][PROBLEM_STRATEGY_MAX]);

/* cp_verify.c: every strategy against one rank on the same lists. */
tess_status cp_verify(workload *w, verdict *v);

/* ---- cp_output.c ------------------------------------------------------------------------ */

void cp_print(const cli *c, const char *text, const cp_report *r);
/* The problem in one line, below others; first: with the heads of the columns. */
void cp_print_line(const cli *c, const problem *p, const cp_report *r, int first);
void cp_json(cli *c, json_t *object, const cp_report *r);

#endif
