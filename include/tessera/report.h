/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - HTML pages of plans, training runs and sparsity profiles: one self-contained file
 * each. */
#ifndef TESSERA_REPORT_H
#define TESSERA_REPORT_H

#include "plan.h"

TESS_BEGIN_DECLS

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
 * A page stays below 2 MB: pictures of masks get smaller with the number of layers and heads. The
 * imbalance of every step and layer counts, but of very many steps one in so many is drawn, and of
 * a step of very many shares one layer in so many; the page says so. */
typedef struct tess_plan_report tess_plan_report;

typedef struct {
    int64_t first_layer; /* the number of the plans' first layer, for the page */
    const char *input;   /* what is planned, a file's name, for title and header; NULL: not said */
    const char *command; /* that makes the page, for the header; NULL: not said */
    const char *cluster; /* that times are predicted for, for the header; NULL: not said */
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

TESS_END_DECLS

#endif
