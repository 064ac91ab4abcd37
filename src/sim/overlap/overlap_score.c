/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_score.c - how far predicted times beside communication are from measured ones.
 *
 * Three numbers, because none says all: the error of the total, which a step is made of; the root
 * of the mean square of log(predicted / measured), where a kernel of 3 us counts as much as one of
 * 3 ms; and the mean error in us. Class means ask all rows for each row: O(n^2).
 */
#include "overlap_internal.h"

#include <math.h>
#include <string.h>

const char *tess_overlap_model_name(tess_overlap_model model)
{
    static const char *const names[TESS_OVERLAP_MODELS] = {"predicted", "no slowdown",
                                                           "class mean"};
    return (int)model >= 0 && model < TESS_OVERLAP_MODELS ? names[model] : NULL;
}

/* The mean ratio of the class, of all rows where it has none. */
static double class_mean(const tess__overlap_row *rows, int n, int at, int leave_out)
{
    double of_class = 0, of_all = 0;
    int n_class = 0, n_all = 0;
    for (int i = 0; i < n; i++) {
        const tess__overlap_row *r = &rows[i];
        if (r->share <= 0 || (leave_out && strcmp(r->kernel, rows[at].kernel) == 0))
            continue;
        of_all += r->beside_ns / r->alone_ns;
        n_all++;
        if (r->kernel_class != rows[at].kernel_class)
            continue;
        of_class += r->beside_ns / r->alone_ns;
        n_class++;
    }
    return n_class ? of_class / n_class : n_all ? of_all / n_all : 1.0;
}

tess_overlap_score tess__overlap_score(const tess__overlap_row *rows, int n,
                                       tess_overlap_model model, int leave_out)
{
    double predicted = 0, measured = 0, squares = 0, errors = 0;
    int count = 0;
    for (int i = 0; i < n; i++) {
        const tess__overlap_row *r = &rows[i];
        if (r->share <= 0)
            continue;
        const double ratio = model == TESS_OVERLAP_PREDICTED ? r->ratio
                             : model == TESS_OVERLAP_NONE    ? 1.0
                                                             : class_mean(rows, n, i, leave_out);
        const double ns = ratio * r->alone_ns, log_ratio = log(ns / r->beside_ns);
        predicted += ns;
        measured += r->beside_ns;
        squares += log_ratio * log_ratio;
        errors += fabs(ns - r->beside_ns);
        count++;
    }
    if (!count)
        return (tess_overlap_score){0};
    return (tess_overlap_score){.rows = count,
                                .total_pct = 100 * (predicted / measured - 1),
                                .log_rmse = sqrt(squares / count),
                                .mean_us = 1e-3 * errors / count};
}
