/* SPDX-License-Identifier: Apache-2.0 */
/* profile_report.h - the page of a sparsity profile.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PROFILE_REPORT_H
#define TESSERA_PROFILE_REPORT_H

#include "../base.h"

TESS_BEGIN_DECLS

/* The page of a sparsity profile: how many keys heads need, by layer, noise level and training
 * step; how well a predictor finds them; and what chosen heads attend to, drawn on the frames.
 *
 *   tess_profile_report_create(ctx, &(tess_profile_report_opts){.layers = 4, .heads = 2}, &report);
 *   tess_profile_report_add(report, &map);                // for each checkpoint and noise level
 *   tess_profile_report_mask(report, &mask);              // for each head to be shown
 *   tess_profile_report_write(report, "profile.html"); */
typedef struct tess_profile_report tess_profile_report;

typedef struct {
    int layers, heads;    /* 1..65536 each */
    double mass;          /* that densities are measured at; 0: 0.9 */
    int cube[3];          /* tokens of the groups of queries: frames, rows, columns; 0: 1 */
    const char *subtitle; /* what was measured; NULL: nothing is said */
    const char *input;    /* model or run, for title and header; NULL: not said */
    const char *command;  /* that makes the page, for the header; NULL: not said */
} tess_profile_report_opts;

TESS_API tess_status tess_profile_report_create(tess_ctx *ctx, const tess_profile_report_opts *opts,
                                                tess_profile_report **report);

typedef struct {
    int64_t step;                 /* of training */
    double noise_low, noise_high; /* the noise levels s it is the mean of, 0..1 */
    const double *density;        /* (layers, heads), 0..1 */
    const double *recall;         /* the same; NULL: there is no predictor */
} tess_profile_map;

/* Maps of one step follow each other, from little noise to much. */
TESS_API tess_status tess_profile_report_add(tess_profile_report *report,
                                             const tess_profile_map *map);

/* What sharing keys in cubes of this size costs: means over heads. */
typedef struct {
    int cube[3];
    double overlap; /* mass of what the cube shares / mass of what its queries would choose */
    double density; /* that cubes of this size need */
} tess_profile_cube;

TESS_API tess_status tess_profile_report_cube(tess_profile_report *report,
                                              const tess_profile_cube *cube);

/* What one group of queries of a head attends to. Arrays over tokens are in raster order of
 * grid[0] frames x grid[1] rows x grid[2] columns. */
typedef struct {
    int layer, head;
    const char *why; /* "the sparsest head" */
    int64_t step;
    double noise; /* the level s that the clip was shown at */
    int grid[3];
    int frames, height, width; /* of the clip */
    const uint8_t *pixels;     /* (frames, height, width, 3), before noise; NULL: not known */
    const uint8_t *query;      /* (tokens): 1 for the queries of the group */
    const float *mass;         /* (tokens): their mean softmax */
    const uint8_t *oracle;     /* (tokens): 1 for keys that the oracle selects */
    const uint8_t *predicted;  /* (tokens): the predictor, as many keys; NULL: there is none */
} tess_profile_mask;

TESS_API tess_status tess_profile_report_mask(tess_profile_report *report,
                                              const tess_profile_mask *mask);
TESS_API tess_status tess_profile_report_write(tess_profile_report *report, const char *path);
TESS_API void tess_profile_report_destroy(tess_profile_report *report);

TESS_END_DECLS

#endif
