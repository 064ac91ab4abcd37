/* SPDX-License-Identifier: Apache-2.0 */
/* mix_report.h - the page of a mixture plan: which rank computes which clips, and how even that is.
 *
 *   tess_mix_report_opts page = {.input = "mix.csv", .cluster = "h100"};
 *   tess_mix_report_write(ctx, plan, tess_mix_clips(mix, &n), n, &page, "mix.html");
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_MIX_REPORT_H
#define TESSERA_MIX_REPORT_H

#include "mix.h"

TESS_BEGIN_DECLS

typedef struct {
    const char *input;   /* the clips: a file's name, or codes; NULL: not said */
    const char *cluster; /* that the plan was made for; NULL: times are FLOP */
    const char *command; /* that makes the page; NULL: not said */
} tess_mix_report_opts;

/* clips: those that the plan was made from. Of many steps and ranks the page has a part, evenly
 * spread, and says so. opts may be NULL. */
TESS_API tess_status tess_mix_report_write(tess_ctx *ctx, const tess_mix_plan *plan,
                                           const tess_mix_clip *clips, int64_t n,
                                           const tess_mix_report_opts *opts, const char *path);

TESS_END_DECLS

#endif
