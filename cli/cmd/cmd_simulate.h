/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_simulate.h - declarations of `tessera simulate`: cmd_simulate.c runs the scenario,
 * simulate_output.c prints the result, simulate_trace.c does both for a traced rank,
 * simulate_ranks.c for several, simulate_search.c for many scenarios, simulate_timeline.c rank by
 * rank and event by event; the folder simulate has the lists of names, the whole run and the jobs
 * of other frameworks. */
#ifndef CLI_CMD_SIMULATE_H
#define CLI_CMD_SIMULATE_H

#include "cli.h"
#include "tessera/advanced/goodput.h"
#include "tessera/advanced/interval.h"
#include "tessera/advanced/job.h"
#include "tessera/advanced/replay.h"
#include "tessera/advanced/search.h"
#include "tessera/advanced/sim_detail.h"
#include "tessera/advanced/sim_timeline.h"
#include "tessera/scenario.h"

typedef struct {
    common common;
    const char *scenario, *params, *measured, *density, *method;
    strings set;
    const char *list;
    double price, steps, tokens;
    int explain;
    int sample;   /* a clip instead of a step */
    int failures; /* with interruptions and checkpoints */
    double mtbf, write, restart, every;
    strings trace; /* of ranks, instead of a scenario */
    const char *cluster;
    int as_recorded;
    double compute_scale;
    int64_t per_node;
    int search, exhaustive; /* all combinations of some settings */
    strings over;
    const char *gpus, *by, *checkpoint;
    double memory_limit, deadline;
    const char *timeline, *timeline_ranks, *schedule_out, *html; /* the step event by event */
    strings slow_rank, scale;
} simulate_values;

typedef struct {
    cli *c;
    const simulate_values *given;
    const tess_job *job; /* of another framework; NULL: a scenario of our own */
    tess_job *own_job;   /* the same, if it was read from a file here */
    tess_scenario s;     /* as given; r.scenario has the defaults */
    tess_sim_params *params;
    tess_cluster *cluster;
    tess_sim *sim;
    tess_sim_measured *measured;
    tess_sim_result r;
    tess_interval interval;
    tess_goodput_result goodput; /* 1 without --failures */
    double steps; /* of the whole run: --steps, those of --tokens or of the job; NaN: none */
    tess_schedule *schedule; /* from a file; NULL: by name */
    tess_timeline *timeline; /* NULL: not wanted */
    int64_t events;          /* written */
    int ranks;               /* of them */
} simulate_job;

/* ---- simulate_output.c ----------------------------------------------------------------------- */

#define SIMULATE_GIB 1073741824.0

/* What a step is made of: these add up to it. */
typedef struct {
    const char *name, *what;
    double seconds;
} simulate_part;

enum { SIMULATE_PARTS = 10, SIMULATE_CLIP_PARTS = 12 };

typedef struct {
    const char *name;
    double bytes;
} simulate_room;

enum { SIMULATE_ROOMS = 7 };

/* What the memory of a GPU is made of. */
void simulate_rooms(const tess_sim_memory *m, simulate_room rooms[SIMULATE_ROOMS]);

/* How many there are: SIMULATE_PARTS of a step, SIMULATE_CLIP_PARTS of a clip. */
int simulate_parts(const tess_sim_result *r, simulate_part *parts);
tess_status simulate_report(const simulate_job *j);

/* ---- cmd_simulate.c -------------------------------------------------------------------------- */

/* The settings of the command line: of a job model 1, the model's name alone, 0, the others. */
tess_status simulate_set(simulate_job *j, int model);

/* The scenario that is given, a job file among them, with the settings of the command line. */
tess_status simulate_scenario(simulate_job *j);

/* ---- simulate/simulate_interval.c ------------------------------------------------------------ */

void simulate_fit_print(const simulate_job *j);      /* whether it fits, with the range */
void simulate_interval_print(const simulate_job *j); /* what widens the intervals most */
void simulate_interval_json(const simulate_job *j);

/* ---- simulate/simulate_list.c ---------------------------------------------------------------- */

extern const char *const simulate_lists[]; /* tess_listing_kind */

/* --list: the names that a scenario may use. */
tess_status simulate_list(cli *c, const simulate_values *v);

/* ---- simulate/simulate_job.c: job files of other frameworks ---------------------------------- */

/* The scenario of j->job, with the settings of the command line. */
tess_status simulate_job_use(simulate_job *j);
int simulate_job_model(const simulate_job *j); /* 1: the command line names the job's model */
void simulate_job_print(const simulate_job *j);
void simulate_job_json(const simulate_job *j);

/* ---- simulate/simulate_page.c: --html without a timeline ------------------------------------- */

tess_status simulate_page(simulate_job *j);

/* ---- simulate/simulate_run.c: the whole run -------------------------------------------------- */

/* Sets j->steps from --steps or --tokens; the scenario has its settings. */
tess_status simulate_steps(simulate_job *j);
double simulate_run_scale(const simulate_job *j); /* steps of the run over its goodput; else 1 */
void simulate_run_print(const simulate_job *j);
void simulate_run_json(const simulate_job *j);

/* ---- simulate/simulate_sample.c: clips instead of steps -------------------------------------- */

/* What --sample makes of the scenario, and whether the other options go with it. */
tess_status simulate_sample_use(simulate_job *j);
void simulate_sample_print(const simulate_job *j);
void simulate_sample_json(const simulate_job *j);
double simulate_sample_hours(const tess_sim_result *r); /* GPU-hours of a clip */

/* ---- simulate/simulate_goodput.c: failures and checkpoints ----------------------------------- */

tess_status simulate_goodput_usage(cli *c, const simulate_values *v);
tess_status simulate_goodput(simulate_job *j); /* after the step is known */
void simulate_goodput_print(const simulate_job *j);
void simulate_goodput_json(const simulate_job *j);

/* ---- simulate_trace.c ------------------------------------------------------------------------ */

/* The step of traced ranks on a cluster: --trace and its options. */
tess_status simulate_trace(cli *c, const simulate_values *v);

/* ---- simulate_ranks.c: several files, or those of a profiler --------------------------------- */

tess_status simulate_ranks(cli *c, const simulate_values *v);

/* ---- simulate/simulate_programs.c: what files of tessera.torch.trace say besides ------------ */

/* Classes of operators, memory and whether it fits; nothing where there is no such file. */
tess_status simulate_programs(cli *c, const tess_replay *replay, const tess_cluster *cluster);

/* ---- simulate_timeline.c --------------------------------------------------------------------- */

/* Whether the options of a timeline fit together, and what they were given with. */
tess_status simulate_timeline_usage(cli *c, const simulate_values *v);

/* Whether the step also runs event by event. */
int simulate_timeline_wanted(const simulate_values *v);

/* The timeline of the step that was simulated, and the files of it, where they are wanted. */
tess_status simulate_timeline(simulate_job *j);
void simulate_timeline_print(const simulate_job *j);
void simulate_timeline_json(const simulate_job *j);

/* ---- simulate_search.c ----------------------------------------------------------------------- */

extern const char *const simulate_by[]; /* tess_search_by */

/* Whether the options of a search fit together, and what --search was not given for. */
tess_status simulate_search_usage(cli *c, const simulate_values *v);

/* The best of all combinations; j has scenario, cluster, parameters and measured products. */
tess_status simulate_search(simulate_job *j);

/* ---- simulate/search_text.c, simulate/search_json.c ------------------------------------------ */

void simulate_search_print(const simulate_job *j, const tess_search *s,
                           const tess_search_info *info);
/* The error of a search that lists nothing, with the nearest combination. */
tess_status simulate_search_empty(const simulate_job *j, const tess_search *s,
                                  const tess_search_info *info);
void simulate_search_json(const simulate_job *j, const tess_search *s,
                          const tess_search_info *info);

#endif
