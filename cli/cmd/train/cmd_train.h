/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.h - what the files of `tessera train` share: its values, its settings, its run. */
#ifndef CLI_CMD_TRAIN_H
#define CLI_CMD_TRAIN_H

#include "cli.h"
#include "tessera/train.h"

typedef struct {
    common common;
    /* model */
    const char *preset, *config, *init, *branch, *attention, *store;
    int recompute;
    /* sparse attention */
    double density, mass, min_density, max_density, predictor_lr, switch_recall, switch_loss,
        back_recall;
    const char *compensate, *predictor, *predictor_loss, *proxy, *switch_by, *cube, *dispatch,
        *cache;
    int64_t rank, switch_step, profile_every, check_every, index_memory;
    /* data */
    const char *data, *text;
    int64_t frames, height, width, pack;
    double fps;
    /* steps */
    int64_t steps, batch, accumulate, warmup;
    const char *optimiser;
    double lr, lr_muon, beta1, beta2, momentum, weight_decay, clip, ema, decay_from;
    double shift, prompt_dropout;
    int64_t validate_every, validate_clips;
    /* the run */
    const char *out, *settings;
    int64_t checkpoint_every, keep, sample_every, sample_steps;
    double guidance;
    int resume, dry_run;
    /* many ranks */
    int64_t ranks_context;
    const char *strategy, *cluster;
    const char *trace_out;
    int64_t trace_ranks, trace_rank;
} train_values;

/* ---- train_settings.c: settings.json, in and out ------------------------------------------- */

/* Values of a command line that begins with the members of settings files. {0} is empty. */
typedef struct {
    train_values *values; /* NULL: none were read */
    char **words;
    int n_words;
} train_settings;

/* The options in force: the defaults, then the run's own settings if it is resumed, or those of the
 * one it branches off, then --settings, then the command line. *values is v itself, or in s. */
tess_status train_settings_read(cli *c, const train_values *v, train_settings *s,
                                const train_values **values);
void train_settings_free(train_settings *s);

/* The options in force as the text of a settings file, to be freed; NULL: no memory. */
char *train_settings_text(const command *cmd, const train_values *v);

/* ---- train_run.c ---------------------------------------------------------------------------- */

tess_status train_run(cli *c, const train_values *v);

/* ---- train_trace.c: one rank of many, played alone ------------------------------------------ */

tess_status train_trace_check(cli *c, const train_values *v);
tess_status train_trace_open(cli *c, const train_values *v, tess_comm **comm); /* if asked for */
tess_status train_trace_run(cli *c, const train_values *v, tess_train *train, tess_comm *comm);

#endif
