/* SPDX-License-Identifier: Apache-2.0 */
/* assets.c - the styles and scripts of assets/, embedded unchanged.
 *
 * The assembler includes the files; TESS_ASSETS is their folder. A NUL after each makes it a
 * string.
 */
#include "assets.h"

#define ASSET(name, file)                                                                          \
    __asm__(".pushsection .rodata\n"                                                               \
            ".global tess__asset_" #name "\n"                                                      \
            ".hidden tess__asset_" #name "\n"                                                      \
            ".type tess__asset_" #name ", %object\n"                                               \
            "tess__asset_" #name ":\n"                                                             \
            ".incbin \"" TESS_ASSETS "/" file "\"\n"                                               \
            ".byte 0\n"                                                                            \
            ".size tess__asset_" #name ", .-tess__asset_" #name "\n"                               \
            ".popsection\n")

ASSET(page_css, "page.css");
ASSET(charts_js, "charts.js");
ASSET(plan_js, "plan.js");
ASSET(mix_js, "mix.js");
ASSET(run_js, "run.js");
ASSET(compare_js, "compare.js");
ASSET(profile_js, "profile.js");
ASSET(activity_js, "activity.js");
ASSET(timeline_js, "timeline.js");
ASSET(cost_js, "cost.js");
ASSET(measured_js, "measured.js");
