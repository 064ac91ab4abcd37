/* SPDX-License-Identifier: Apache-2.0 */
/* baseline.c - measurements against those of an earlier run.
 *
 * Fractions of the peak are compared, because the peak follows the clock of the processor; rows are
 * found by their problem's canonical text and their name. A row is slower if its fraction is below
 * the baseline's by more than the distance from its best to its upper quartile, at least 2 %.
 */
#include "baseline.h"

#include <math.h>
#include <string.h>

static const double spread_least = 0.02;

tess_status baseline_read(cli *c, const char *path, json_t **baseline)
{
    json_error_t error;
    tess_ctx_info info;
    TRY(tess_ctx_query(c->ctx, &info));
    FILE *f;
    TRY(input_open(c, path, &f));
    json_t *root = json_loadf(f, 0, &error);
    fclose(f);
    const char *isa = json_string_value(json_object_get(root, "isa"));
    const char *made_by = json_string_value(json_object_get(root, "command"));
    const int threads = (int)json_integer_value(json_object_get(root, "threads"));
    tess_status status = TESS_OK;
    if (!root)
        status = out_fail(c, TESS_EFORMAT, "%.200s: line %d: %s", path, error.line, error.text);
    else if (!made_by || strcmp(made_by, "bench") != 0 || !isa)
        status = out_fail(c, TESS_EFORMAT, "%.200s: is no result of tessera bench --json", path);
    else if (strcmp(isa, info.isa) != 0 || threads != info.threads)
        status = out_fail(c, TESS_EINVAL,
                          "%.200s: was measured with --isa %.20s -j %d, must be --isa %s -j %d",
                          path, isa, threads, info.isa, info.threads);
    if (status == TESS_OK)
        *baseline = root;
    else
        json_decref(root);
    return status;
}

/* The row of a name among the results of a problem. */
static const json_t *find_row(const json_t *run, const char *text, const char *name)
{
    const char *problem_of = json_string_value(json_object_get(run, "problem"));
    const json_t *rows = json_object_get(run, "results");
    if (!problem_of || strcmp(problem_of, text) != 0)
        return NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *row_name = json_string_value(json_object_get(row, "name"));
        if (row_name && strcmp(row_name, name) == 0)
            return row;
    }
    return NULL;
}

int baseline_find(const json_t *baseline, const report *r, const measured *row, double *share,
                  double *least)
{
    const json_t *runs = json_object_get(baseline, "problems");
    const json_t *found = find_row(baseline, r->text, row->name);
    for (size_t i = 0; !found && i < json_array_size(runs); i++)
        found = find_row(json_array_get(runs, i), r->text, row->name);
    if (!found)
        return 0;
    const double best = json_number_value(json_object_get(found, "seconds"));
    const double high = json_number_value(json_object_get(found, "seconds_high"));
    *share = json_number_value(json_object_get(found, "share_of_peak"));
    if (!(best > 0 && *share > 0))
        return 0;
    *least = *share * best / fmax(high, (1 + spread_least) * best);
    return 1;
}
