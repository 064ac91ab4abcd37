/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.h - shared by the files of `tessera plan`: cmd_plan.c runs the steps, plan_input.c
 * makes the work of each, plan_output.c prints the plan; plan_clips.c plans mixtures of clips. */
#ifndef CLI_CMD_PLAN_H
#define CLI_CMD_PLAN_H

#include "cli.h"
#include "tessera/strategy.h"

typedef struct {
    common common;
    const char *file;  /* a plan that was written before */
    const char *check; /* the work it is checked with */
    const char *density, *mask, *column, *tiles;
    int kept, dropped;
    const char *ranks; /* one number, which opts.ranks then is, or several */
    tess_plan_opts opts;
    const char *cluster, *speeds, *out, *html;
    int64_t tokens, group, layer, step;
    double memory, replan_above, rate; /* in GiB; imbalance; in TFLOP/s */
    int reuse, whole_keys, explain;
    const char *clips; /* and the options of a mixture of clips; 0: not given */
    int64_t steps, width, heads, ffn, layers;
    int whole_clips;
} plan_values;

/* ---- cmd_plan.c ------------------------------------------------------------------------------ */

/* "4,4,2": a whole number 1..1000000 for each rank, to be freed; NULL where none are given. */
tess_status plan_speeds(cli *c, const plan_values *v, int32_t **speeds);
/* The cluster, with the rate of attention that was given instead of its own. */
tess_status plan_cluster(cli *c, const plan_values *v, tess_cluster **cluster);

/* A method that distributes whole heads does so over all ranks, unless degrees are given. */
int plan_default_ulysses(const tess_plan_opts *o, int heads);

/* ---- plan_scaling.c -------------------------------------------------------------------------- */

enum { PLAN_RANKS = 64 };
/* "8", "4,8,16": up to `room` numbers. */
tess_status plan_ranks(cli *c, const char *text, int *ranks, int room, int *n);
/* A table over numbers of ranks. */
tess_status plan_scaling_run(cli *c, const plan_values *v, const int *ranks, int n);

/* ---- plan_show.c ----------------------------------------------------------------------------- */

/* A plan that was written before: printed, explained, checked, drawn. */
tess_status plan_show_run(cli *c, const plan_values *v);

/* ---- plan_clips.c ---------------------------------------------------------------------------- */

tess_status plan_clips_run(cli *c, const plan_values *v);
/* Fails if an option of mixtures is given without one. */
tess_status plan_clips_unused(cli *c, const plan_values *v);

/* ---- plan_input.c ---------------------------------------------------------------------------- */

typedef struct {
    const plan_values *given;
    tess_profile *profile; /* NULL: a mask */
    tess_profile_view view;
    tess_work *masks;
    int first, steps; /* those that are planned */
    int layer, layers, heads;
} plan_input;

int plan_ends_in(const char *path, const char *end);

/* EINVAL where a file given as a plan is another kind of file, with what to do. */
tess_status plan_check_plan(cli *c, const char *path);

/* A profile, its column read as the options say. */
tess_status plan_open_profile(cli *c, const plan_values *v, const char *path,
                              tess_profile **profile);
/* A wrong kind of file for masks that is known by its name or content gets a sentence of its own;
 * option is what it was given with. */
tess_status plan_check_masks(cli *c, const char *option, const char *path);

tess_status plan_input_open(cli *c, const plan_values *v, plan_input *in);
int64_t plan_input_step(const plan_input *in, int i); /* its number in the file; 0 for a mask */
int64_t plan_input_layer(const plan_input *in, int i);
/* The caller destroys the work. */
tess_status plan_input_work(cli *c, plan_input *in, int i, tess_work **work);
void plan_input_close(plan_input *in);

/* ---- plan_output.c --------------------------------------------------------------------------- */

/* Layers that were planned alike. */
typedef struct {
    tess_strategy strategy;
    int64_t layers, before_count;
    double before_sum, before_max, after_sum, after_max, copies_sum, predicted_ms;
    int64_t bytes_sum;
} plan_strategy;

enum { STRATEGIES_MAX = 64 };

typedef struct {
    cli *c;
    const plan_values *given;
    const plan_input *input;
    int n_strategies;
    plan_strategy strategies[STRATEGIES_MAX];
    plan_strategy all;     /* over every layer and step */
    int64_t replans, made; /* plans after the first; layers that were planned */
    int64_t plan_ns;       /* time that took */
    json_t *plans;         /* NULL without --json */
} plan_tally;

/* Counts the plan in force for the work of a step (NULL: that it was made for), and with --json
 * adds it to the plans. */
tess_status plan_tally_step(plan_tally *t, int64_t step, int fresh, const tess_plan *plan,
                            const tess_work *work);
tess_status plan_print_reasons(cli *c, const plan_input *in, int64_t step, const tess_plan *plan);
void plan_print(const plan_tally *t);
void plan_set_json(plan_tally *t);

#endif
