/* SPDX-License-Identifier: Apache-2.0 */
/* train_job.h - a training run from the command line: declarations of its files. */
#ifndef TESS_CLI_TRAIN_JOB_H
#define TESS_CLI_TRAIN_JOB_H

#include "cmd_train.h"
#include "tessera/advanced/sparse.h"
#include "train_attention.h"

enum { PATH_BYTES = 4096, WAN_CHANNELS = 16 /* of the latents of Wan's VAE */ };

/* train_progress.c: the line of a run. */
typedef struct {
    tess_step step;   /* the last one; .step 0: none yet */
    double slow;      /* running mean of the running mean of the loss: where the loss came from */
    int level, width; /* the form of the line, and the columns it was chosen for */
    int64_t parts_at; /* when the parts of a step were last printed, nanoseconds */
} train_line;

/* Everything the run holds. */
typedef struct {
    cli *c;
    train_values values;
    const train_values *v;      /* the values */
    const train_settings *from; /* where they come from */
    tess_model_config config;
    tess_data *data;
    tess_data_info info;
    tess_train_opts opts;
    tess_model *model;
    tess_comm *trace; /* trace recorder of one rank; NULL: no trace */
    tess_train *train;
    char start[PATH_BYTES]; /* folder whose weights begin the run; "" for random ones */
    int resumed, branched;
    int latents; /* 1: the model, before it follows its data, takes latents of Wan's VAE */
    char *settings;
    double *times; /* of the steps of this call */
    int64_t n_times, room;
    double buckets[TESS_NOISE_BUCKETS]; /* of the last validation of this call */
    int validated;
    double density, sparse_layers; /* of the last step */
    int64_t begun;                 /* nanoseconds */
    int64_t first;                 /* steps done before */
    train_line line;
    int ended; /* 1: at the step of --until */
} train_job;

/* train_start.c: model, data and options, before anything is allocated for the run. */
tess_status train_prepare(train_job *j);

/* train_records.c: what is said about a run is true.
 * resume: --preset, --config and --data must be the run's own. text: the settings in force, with
 * the model that was found; to be freed, NULL: no memory. schedule: after a resume, says how the
 * learning rate changes, if it does. */
tess_status train_check_resume(const train_job *j);
char *train_record_text(const train_job *j);
void train_say_schedule(const train_job *j, int64_t step);

/* train_foresee.c: an arm that branches off switches at once, unless --switch-step is given; what
 * cannot happen within the steps asked for is said. */
void train_switch_branched(train_job *j);
void train_foresee(const train_job *j);

/* train_memory.c. Collective: fails where the memory of this rank's host does not suffice; a dry
 * run prints the need. */
tess_status train_check_memory(train_job *j);

/* train_progress.c: takes the line before the first step, shows each step, leaves the line. */
void train_progress_begin(train_job *j);
void train_progress_step(train_job *j, const tess_step *step);
void train_progress_end(train_job *j);

/* train_time.c: predicted seconds, of a step but for the last. */
typedef struct {
    double linear, attention, optimiser, other, step, run;
    int measured; /* steps that were run; 0: predicted from rates */
} train_times;

/* Measures for some seconds and prints the time of a step and of the run. fits: there is memory to
 * run steps. */
tess_status train_show_time(const train_job *j, int64_t tokens, int64_t params, int threads,
                            int fits);

/* train_banner.c: what is trained, on stderr; after it, the next commands, ready to paste. */
tess_status train_banner(const train_job *j);
void train_next(const train_job *j);

/* train_report.c: the result. */
tess_status train_report(train_job *j);

#endif
