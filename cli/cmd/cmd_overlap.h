/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_overlap.h - scores of kernels beside communication, as `tessera validate` and `tessera
 * calibrate` print them. */
#ifndef CLI_CMD_OVERLAP_H
#define CLI_CMD_OVERLAP_H

#include "cli.h"
#include "tessera/advanced/validate.h"

void overlap_print_head(const cli *c, const char *what);
void overlap_print(const cli *c, tess_overlap_model model, const tess_overlap_score *score);

/* Adds the member of a model to an object: {"rows", "total_pct", "log_rmse", "mean_us"}. */
void overlap_set(cli *c, json_t *object, tess_overlap_model model, const tess_overlap_score *score);

/* ---- simulate/validate_page.c ---------------------------------------------------------------- */

/* Predicted against measured as a page. */
tess_status validate_page(cli *c, const tess_validation *v, const tess_validation_info *info,
                          const char *table, const char *path);

#endif
