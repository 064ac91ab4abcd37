/* SPDX-License-Identifier: Apache-2.0 */
/* assets.h - styles and scripts of the pages, as strings. */
#ifndef TESS_ASSETS_H
#define TESS_ASSETS_H

extern const char tess__asset_page_css[] __attribute__((visibility("hidden")));
extern const char tess__asset_charts_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_plan_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_mix_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_run_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_compare_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_profile_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_activity_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_timeline_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_cost_js[] __attribute__((visibility("hidden")));
extern const char tess__asset_measured_js[] __attribute__((visibility("hidden")));

#endif
