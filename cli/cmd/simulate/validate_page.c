/* SPDX-License-Identifier: Apache-2.0 */
/* validate_page.c - tessera validate --html: predicted against measured. */
#include "cmd/cmd_overlap.h"

#include "tessera/advanced/cost_report.h"

#include <stdlib.h>

tess_status validate_page(cli *c, const tess_validation *v, const tess_validation_info *info,
                          const char *table, const char *path)
{
    tess_measured_point *points = calloc((size_t)info->cases, sizeof *points);
    char title[160];
    int n = 0;
    if (!points)
        return out_fail(c, TESS_ENOMEM, "no memory for %d points", info->cases);
    tess_status status = TESS_OK;
    for (int q = 0; q < TESS_QUANTITIES; q++)
        for (int i = 0; status == TESS_OK && i < info->cases; i++) {
            tess_validation_case k;
            status = tess_validation_case_query(v, i, &k);
            if (status == TESS_OK && (int)k.quantity == q)
                points[n++] = (tess_measured_point){.quantity = tess_quantity_name(k.quantity),
                                                    .group = k.group,
                                                    .label = k.label,
                                                    .unit = k.unit,
                                                    .measured = k.measured,
                                                    .predicted = k.predicted,
                                                    .low = k.low,
                                                    .high = k.high};
        }
    snprintf(title, sizeof title, "Predicted against measured: %.100s", table);
    char *const line = out_command(c);
    if (status == TESS_OK)
        status = tess_measured_report_write(c->ctx,
                                            &(tess_measured_report_opts){.title = title,
                                                                         .subtitle = info->about,
                                                                         .command = line,
                                                                         .points = points,
                                                                         .n_points = n},
                                            path);
    free(line);
    free(points);
    return status;
}
