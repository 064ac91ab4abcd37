/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.h - declarations of `tessera train`: its values, its settings, its run. */
#ifndef CLI_CMD_TRAIN_H
#define CLI_CMD_TRAIN_H

#include "cli.h"
#include "tessera/train.h"

typedef struct {
    common common;
    tess_train_opts opts; /* without its folder, seed and texts, which train_start.c adds */
    tess_data_opts data;  /* without pack and seed */
    int64_t pack;         /* 0: as the model's channels ask for */
    const char *preset, *config, *init, *branch, *cache;
    const char *out, *settings;
    int resume, dry_run;
    int64_t until; /* 0: to the end */
    const char *trace_out;
    int64_t trace_ranks;
    const char *trace_rank; /* a number, or "all" */
    int64_t trace_together; /* 0: as many as fit */
    int trace_number;       /* the rank that is played now; not an option */
} train_values;

/* ---- train_settings.c: settings.json, in and out --------------------------------------------- */

/* Values of a command line that begins with the members of settings files. {0} is empty. */
typedef struct {
    train_values *values; /* NULL: none were read */
    train_values *own;    /* of the run that is resumed, or branched off, alone; NULL: none */
    char **words;
    int n_words, n_own; /* the first n_own are of `own` */
} train_settings;

/* The options in force: the defaults, then the run's own settings if it is resumed, or those of the
 * one it branches off, then --settings, then the command line. *values is v itself, or in s. */
tess_status train_settings_read(cli *c, const train_values *v, train_settings *s,
                                const train_values **values);
void train_settings_free(train_settings *s);

/* Whether the user gave an option, by the command line or --settings; whether the run's own
 * settings have it. */
int train_settings_given(const cli *c, const train_settings *s, const char *name);
int train_settings_has(const train_settings *s, const char *name);

/* The options in force as the text of a settings file, to be freed; NULL: no memory. */
char *train_settings_text(const command *cmd, const train_values *v);

/* ---- train_run.c ----------------------------------------------------------------------------- */

tess_status train_run(cli *c, const train_values *v);

/* ---- train_trace.c: a trace of one rank of many ---------------------------------------------- */

tess_status train_trace_check(cli *c, const train_values *v);
int train_trace_number(const train_values *v); /* the rank to trace; of all: 0 */
/* Whether every rank is played, each into a file of a folder. */
int train_trace_all(const train_values *v);
/* Makes the folder; the file of a rank in it. */
tess_status train_trace_folder(cli *c, const train_values *v);
void train_trace_path(const train_values *v, int rank, char *path, size_t size);
tess_status train_trace_open(cli *c, const train_values *v, tess_comm **comm); /* if asked for */
tess_status train_trace_run(cli *c, const train_values *v, tess_train *train, tess_comm *comm);

/* Prints what was traced: the file, the rank, how many ranks ran at the same time. */
typedef struct {
    const char *path;
    int rank, together;
    double step_ms;
} train_traced;
void train_trace_show(cli *c, const train_values *v, const train_traced *t);

#endif
