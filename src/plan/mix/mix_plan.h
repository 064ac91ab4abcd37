/* SPDX-License-Identifier: Apache-2.0 */
/* mix_plan.h - the mixture plan inside: what its files share. */
#ifndef TESS_MIX_PLAN_H
#define TESS_MIX_PLAN_H

#include "mix_internal.h"

struct tess_mix_plan {
    tess_ctx *ctx;
    tess__arena arena; /* the plan lies in it */
    tess__mix_rules rules;
    const tess__mix_work *work; /* (clips) */
    tess_mix_view view;
};

/* ---- mix_rules.c ----------------------------------------------------------------------------- */

tess_status tess__mix_rules_make(const char *who, tess__arena *arena, const tess_cluster *cluster,
                                 const tess_mix_opts *opts, tess__mix_rules *rules);

/* ---- mix_steps.c ----------------------------------------------------------------------------- */

/* order (n): the clips of each step, the longest first; begin (steps + 1): where each begins. Whole
 * clips to the step that has the least time so far. */
tess_status tess__mix_steps(tess_ctx *ctx, const tess__mix_work *work, int64_t n, int steps,
                            int64_t *order, int64_t *begin);

/* Slowest rank over the mean of a step without a plan: clips [first, last) on the ranks that drew
 * them, or as listed, in equal numbers. times (ranks) is scratch. */
double tess__mix_rho_before(const tess__mix_rules *rules, const tess_mix_clip *clips,
                            const tess__mix_work *work, int64_t first, int64_t last, double *times);

/* The same clips with the least time for each token first. */
tess_status tess__mix_by_tokens(tess_ctx *ctx, const tess__mix_work *work, const int64_t *order,
                                int64_t n, int64_t *by_tokens);

#endif
