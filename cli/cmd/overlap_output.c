/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_output.c - scores of kernels beside communication, as text and as JSON. */
#include "cmd_overlap.h"

#include <string.h>

void overlap_print_head(const cli *c, const char *what)
{
    fprintf(c->out, "%-24s %6s %9s %9s %9s\n", what, "rows", "total %", "log-RMSE", "mean us");
}

void overlap_print(const cli *c, tess_overlap_model model, const tess_overlap_score *score)
{
    fprintf(c->out, "  %-22s %6d %+9.2f %9.3f %9.2f\n", tess_overlap_model_name(model), score->rows,
            score->total_pct, score->log_rmse, score->mean_us);
}

void overlap_set(cli *c, json_t *object, tess_overlap_model model, const tess_overlap_score *score)
{
    json_t *one = json_object();
    char name[32];
    snprintf(name, sizeof name, "%s", tess_overlap_model_name(model));
    for (char *at = name; *at; at++)
        *at = *at == ' ' ? '_' : *at;
    out_set(c, one, "rows", json_integer(score->rows));
    out_set(c, one, "total_pct", out_number(score->total_pct));
    out_set(c, one, "log_rmse", out_number(score->log_rmse));
    out_set(c, one, "mean_us", out_number(score->mean_us));
    out_set(c, object, name, one);
}
