/* SPDX-License-Identifier: Apache-2.0 */
/* search_report.h - what text and JSON of `tessera simulate --search` share: the settings of a
 * combination, and the parts by which two steps differ. */
#ifndef CLI_CMD_SIMULATE_SEARCH_REPORT_H
#define CLI_CMD_SIMULATE_SEARCH_REPORT_H

#include "cmd/cmd_simulate.h"
#include "tessera/advanced/search.h"

enum { SEARCH_SETTINGS_BYTES = 512 };

/* "layout.tp=8 layout.pp=12"; without the names of groups where short_names. */
const char *search_settings(const tess_search *s, int64_t combination, int short_names,
                            char text[SEARCH_SETTINGS_BYTES]);

typedef struct {
    const char *name;
    double ms;
} search_difference;

/* Parts by which b's step differs from a's, the largest first; how many. */
int search_differences(const tess_sim_result *a, const tess_sim_result *b,
                       search_difference list[SIMULATE_PARTS]);

#endif
