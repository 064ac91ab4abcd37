/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_profile.h - declarations of `tessera profile`: its values, the probe, the results. */
#ifndef CLI_CMD_PROFILE_H
#define CLI_CMD_PROFILE_H

#include "cli.h"

typedef struct {
    common common;
    strings checkpoints;
    const char *data, *out, *csv, *by;
    const char *cube, *proxy;          /* NULL: the checkpoint's */
    const char *selector;              /* NULL: recall is the predictor's */
    const char *dump, *dump_to, *text; /* NULL: not given */
    int64_t clips, batch, layer, head;
    int64_t frames, height, width; /* 0: the checkpoint's */
    double mass, noise, density;   /* density: NaN: of each head's own */
    int ema, cubes;
} profile_values;

tess_status profile_run(cli *c, const profile_values *v);

#ifdef CLI_TRAIN
#include "tessera/advanced/sparse.h"
#include "tessera/advanced/step.h"
#include "tessera/report.h"
#include "tessera/train.h"

/* ---- profile_probe.c: what is measured of a layer while the model runs ----------------------- */

enum { PROFILE_CUBES = TESS_CUBES + 1, PROFILE_LEVELS = TESS_NOISE_BUCKETS };

/* Tokens in cubes of one size. */
typedef struct {
    int cube[3];
    int64_t *from; /* (tokens): place in the pass's order of the token at each place of this one */
    int64_t *bounds; /* (groups + 1) */
    int32_t groups;
    double overlap, density; /* sums over what was measured */
    int64_t measured;
} profile_order;

typedef struct {
    tess_ctx *ctx;
    int batch, heads, head_dim;
    int grid[3];
    int64_t tokens;
    double mass;
    tess_proxy proxy;
    double keys_share; /* of recall; NaN: the density that was measured */
    int n_orders;
    profile_order orders[PROFILE_CUBES]; /* the first is the pass's own */
    int compare;                         /* 1: the other orders are measured too */
    int64_t *raster;                     /* (tokens): raster index of each place of the pass */
    float *q, *k;                        /* (batch, heads, tokens, head_dim), in another order */
    double *values;                      /* (batch, heads) */
    int32_t *keys;
    tess_sel_stats *stats;
    double *density,
        *recall;     /* (layers, heads): sums over samples, the caller's; recall NULL: none */
    double *overlap; /* (layers): of the first order, sums as its own; the caller's */
    tess_selector *predictor; /* made when there are vectors to choose by */
    tess_plugin *plugin;      /* chooses in its place; NULL: none */
    int64_t sample;           /* number of the batch's first clip */
    int32_t level;            /* noise-level quartile: what plugins get as the step */
} profile_probe;

/* The orders of the cube given, and where `others` is not 0, of further ones. */
tess_status profile_probe_open(cli *c, const int cube[3], int others, profile_probe *p);
void profile_probe_close(profile_probe *p);
tess_status profile_probe_hook(void *probe, const tess_hook_in *hook); /* a tess_hook_fn */

/* Groups of queries of `heads` heads of `batch` samples in an order of the probe. */
tess_sel_shape profile_groups(const profile_probe *p, const profile_order *order, int batch,
                              int heads);

/* profile_own.c: p->stats of the plugin at p->keys, every so many groups; and the task it gets. */
tess_status profile_own_recall(profile_probe *p, const tess_hook_in *hook, int32_t every);
tess_selector_task profile_own_task(const profile_probe *p, const tess_hook_in *hook, int b, int h);

/* ---- profile_run.c --------------------------------------------------------------------------- */

typedef struct {
    const char *path; /* as it was given */
    char folder[4096], weights[4096];
    tess_checkpoint trained;
    int model_alone;          /* 1: no checkpoint, the weights of a model */
    double *density, *recall; /* (PROFILE_LEVELS, layers, heads); recall[0] NaN: no predictor */
} profile_point;

/* A head whose attention is drawn, and its measured maps. */
typedef struct {
    int layer, head;
    const char *why;
    float *mass; /* over tokens in raster order */
    uint8_t *query, *oracle, *predicted;
    int has_predicted;
} profile_head;

typedef struct {
    cli *c;
    const profile_values *v;
    int cube[3];
    double *overlap; /* (layers): of the last checkpoint, in groups of this cube */
    profile_point *points;
    int n_points;
    tess_model_config config;
    tess_data *data;
    tess_data_info info;
    profile_probe probe;
    float *clip, *x, *text, *out, *noise; /* of a batch; clip: before noise */
    float *timestep;
    double *levels;
    uint8_t *pixels; /* of the clip that masks are drawn on; NULL: not pictures */
    profile_head heads[3];
    int n_heads;
    double mask_noise;
    int dump_layer, dump_head;
} profile_job;

/* profile_source.c: the checkpoint or model of a path; the data of the last one, in its shape. */
tess_status profile_find(profile_job *j, const char *path, profile_point *p,
                         tess_model_config *config);
tess_status profile_data(profile_job *j);

/* The level s of noise u, as training shifts it. */
double profile_level(const profile_job *j, double u);

/* Clips [first, first + batch) with noise at levels s[i] into j->x, timestep and text. */
tess_status profile_batch(profile_job *j, int64_t first, int batch, const double *s);

/* A pass of this many clips over a checkpoint's model, with its predictor where it has one. */
typedef struct {
    tess_model *model;
    tess_predictor *predictor;
    tess_pass *pass;
    tess_attend_layer *layers;
} profile_engine;

/* ---- profile_masks.c, profile_output.c ------------------------------------------------------- */

/* Chooses heads by the last checkpoint's densities, and measures which keys they attend to. */
tess_status profile_masks(profile_job *j, profile_engine *e);
tess_status profile_show(profile_job *j);

/* profile_dump.c: what --dump says; q, k, v and the selections of that head. */
tess_status profile_dump_check(profile_job *j);
tess_status profile_dump(profile_job *j, profile_engine *e);
#endif

#endif
