/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sample.h - declarations shared by the files of `tessera sample`. */
#ifndef CLI_CMD_SAMPLE_H
#define CLI_CMD_SAMPLE_H

#include "cli.h"
#include "tessera/media.h"
#include "tessera/train.h"

typedef struct {
    common common;
    const char *checkpoint, *output, *text, *prompt_file;
    strings prompts;
    tess_sample_opts opts; /* steps, halves, strategy, cluster */
    int64_t count, batch, frames, height, width, scale;
    double guidance, shift, fps;
    int ema;
    const char *attention, *cube, *proxy; /* NULL: the checkpoint's */
    int64_t compensate;                   /* -1: the checkpoint's */
    const char *selector;                 /* NULL: none */
    double density, mass, max_density;    /* NaN: the checkpoint's */
    const char *density_out;              /* NULL: not written */
    int compare;
    int64_t search_every; /* 0: not given */
    /* many ranks */
    int plan_log;
} sample_values;

/* Densities of each step, layer and head, summed over clips. */
typedef struct {
    int steps, layers, heads;
    int64_t clips;
    double *sum;  /* (steps, layers, heads) */
    double *last; /* the same, of one batch */
} sample_densities;

/* sample_progress.c: the line of a batch. */
typedef struct {
    int64_t first, n;    /* clips of the batch */
    int sparse;          /* 1: densities are recorded */
    int64_t begun, last; /* nanoseconds: of the first step, of the last one */
} sample_line;

enum { SAMPLE_PATH = 4096 };

typedef struct {
    cli *c;
    const sample_values *v;
    char folder[SAMPLE_PATH];     /* of the weights */
    char checkpoint[SAMPLE_PATH]; /* if known */
    int known;                    /* 1: there is a checkpoint, not a model alone */
    tess_checkpoint trained;
    tess_model *model;
    tess_model_config config;
    strings prompts; /* of the options and the file */
    int64_t clips, size, text_size;
    float *text, *latents, *dense; /* of all clips */
    tess_attention_opts attention; /* chosen */
    sample_densities densities;
    double seconds, dense_seconds, psnr;
    tess_comm_counts sent; /* by this rank, both times of a comparison */
    uint8_t *pixels;
    tess_clip *list;
    sample_line line;
} sample_job;

tess_status sample_run(cli *c, const sample_values *v);
tess_status sample_no_memory(const sample_job *j);
int sample_ends_with(const char *s, const char *end);

/* sample_attend.c: all clips, twice to compare, and what was attended to. */
tess_status sample_all(sample_job *j);
const char *sample_kind_name(tess_attention kind); /* "dsv" */

/* sample_progress.c: the line shows the steps of these clips from here on; n 0: no longer. */
void sample_progress(sample_job *j, int64_t first, int64_t n, int sparse);

/* sample_compare.c: PSNR of the two, densities. */
tess_status sample_psnr(sample_job *j);
double sample_density_mean(const sample_densities *densities);
tess_status sample_density_write(const sample_job *j);

/* sample_prompts.c: all prompts, and the one of a clip ("": none). */
tess_status sample_prompts(sample_job *j);
const char *sample_prompt_of(const sample_job *j, int64_t clip);
void sample_prompts_free(sample_job *j);

/* sample_write.c: the folder that -o names, new or empty; the files; what is said about them. */
tess_status sample_folder(const sample_job *j);
tess_status sample_write(sample_job *j);
tess_status sample_report(const sample_job *j);

#endif
