/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - pages to look at: one self-contained HTML file each. */
#ifndef TESSERA_REPORT_H
#define TESSERA_REPORT_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The page of a plan over any number of steps: imbalance by layer before and after, the load of
 * each rank, the heads cut into shares, and where masks are known, the masks with the cuts drawn on
 * them.
 *
 *   tess_plan_report *report;
 *   tess_plan_report_create(ctx, NULL, &report);
 *   tess_plan_report_add(report, step, plan, work);       // for each step, in order
 *   tess_plan_report_write(report, "plan.html");
 *   tess_plan_report_destroy(report);
 *
 * A page stays below some 10 MB: of many steps and layers it shows every imbalance, but the details
 * of the first ones only, and says so. */
typedef struct tess_plan_report tess_plan_report;

typedef struct {
    int64_t first_layer; /* the number of the plans' first layer, for the page */
} tess_plan_report_opts;

TESS_API tess_status tess_plan_report_create(tess_ctx *ctx, const tess_plan_report_opts *opts,
                                             tess_plan_report **report);

/* The plan used for this work, which may be one made for an earlier step. Every plan has the same
 * ranks, layers and heads. After a failure the report is as it was. */
TESS_API tess_status tess_plan_report_add(tess_plan_report *report, int64_t step,
                                          const tess_plan *plan, const tess_work *work);
TESS_API tess_status tess_plan_report_write(tess_plan_report *report, const char *path);
TESS_API void tess_plan_report_destroy(tess_plan_report *report);

/* The page of a training run: loss, loss by noise level, time of a step by part, samples as they
 * improved, settings. run is its folder, as docs/training.md describes it; a run that is still
 * going on will do. */
TESS_API tess_status tess_report_run(tess_ctx *ctx, const char *run, const char *path);

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

#ifdef __cplusplus
}
#endif

#endif
