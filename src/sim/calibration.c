/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.c - tess_calibration: which parameters are fitted to which rows, and the results. */
#include "calibration.h"

#include <string.h>

/* ---- parameters by name ---------------------------------------------------------------------- */

/* "owner.name", or "scalar.system era". */
static tess_status find_parameter(tess_calibration *k, const char *name)
{
    const int count = tess_sim_params_count(k->params);
    if (k->n == TESS__FITTED_MAX)
        return tess__fail(TESS_EINVAL, "tess_calibration_run: more than %d parameters",
                          TESS__FITTED_MAX);
    for (int i = 0; i < count; i++) {
        tess_sim_param p;
        char full[160];
        TESS_TRY(tess_sim_params_query(k->params, i, &p));
        snprintf(full, sizeof full, "%s.%s", strcmp(p.group, "scalar") == 0 ? "scalar" : p.owner,
                 strcmp(p.group, "scalar") == 0 ? p.owner : p.name);
        if (strcmp(full, name) == 0) {
            k->start[k->n] = p.value;
            k->index[k->n++] = i;
            return TESS_OK;
        }
    }
    return tess__fail(TESS_EINVAL,
                      "tess_calibration_run: no parameter \"%.80s\"; names are those of the file, "
                      "\"h100.gemm_share\" or \"scalar.SYSTEM ERA\"",
                      name);
}

/* ---- public ---------------------------------------------------------------------------------- */

static tess_status add_table(tess_calibration *k, const char *path)
{
    tess__table table = {0};
    tess__map map = {0};
    TESS_TRY(tess__table_open(k->ctx, path, &table));
    tess_status status = tess__map_find(k->ctx, &table, &map);
    if (status == TESS_OK)
        status = tess__cases_add(&k->cases, &map, &table);
    tess__map_close(&map);
    tess__table_close(&table);
    return status;
}

tess_status tess_calibration_run(tess_ctx *ctx, const tess_calibration_opts *opts,
                                 tess_calibration **calibration)
{
    const tess_calibration_opts *o = opts;
    TESS_REQUIRE(ctx, opts, calibration);
    const int overlap = o->quantity == TESS_QUANTITY_OVERLAP;
    if (o->n_tables < 1 || !o->tables || (!overlap && (o->n_names < 1 || !o->names)))
        return tess__invalid(__func__, "a table and a parameter must be given");
    if (overlap && o->n_names > 0)
        return tess__invalid(__func__,
                             "names \"%.80s\": of overlap all parameters are fitted, none "
                             "is named",
                             o->names[0]);
    tess_calibration *k = TESS_ALLOC_ZERO(ctx, sizeof *k);
    k->ctx = k->cases.ctx = k->cases.arena.ctx = ctx;
    k->quantity = o->quantity;
    tess_status status = tess_sim_params_load(ctx, o->params, &k->params);
    if (status == TESS_OK && o->params) {
        k->from = tess__arena_string(&k->cases.arena, o->params, strlen(o->params));
        status = k->from ? TESS_OK : TESS_ENOMEM;
    }
    k->cases.params = k->params;
    for (int i = 0; status == TESS_OK && i < o->n_names; i++)
        status = find_parameter(k, o->names[i]);
    if (status == TESS_OK)
        status = tess_sim_create(ctx, k->params, &k->sim);
    for (int i = 0; status == TESS_OK && i < o->n_tables; i++)
        status = add_table(k, o->tables[i]);
    if (status == TESS_OK)
        status = overlap ? tess__calibration_overlap(k, o->leave_one_out)
                         : tess__calibration_fit(k, o->leave_one_out);
    if (status == TESS_OK)
        *calibration = k;
    else
        tess_calibration_destroy(k);
    return status;
}

void tess_calibration_destroy(tess_calibration *k)
{
    if (!k)
        return;
    tess_ctx *ctx = k->ctx;
    tess_sim_destroy(k->sim);
    tess_sim_params_destroy(k->params);
    tess__cases_free(&k->cases);
    tess__free(ctx, k);
}

tess_status tess_calibration_query(const tess_calibration *calibration, tess_calibration_info *info)
{
    TESS_REQUIRE(calibration, info);
    *info = calibration->info;
    return TESS_OK;
}

tess_status tess_calibration_overlap(const tess_calibration *calibration, int left_out,
                                     tess_overlap_model model, tess_overlap_score *score)
{
    TESS_REQUIRE(calibration, score);
    TESS_TRY(tess__check_range(__func__, "model", (int)model, 0, TESS_OVERLAP_MODELS - 1));
    *score = calibration->overlap[left_out != 0][model];
    return TESS_OK;
}

tess_status tess_calibration_value(const tess_calibration *calibration, int index,
                                   tess_sim_param *param, double *before)
{
    const tess_calibration *k = calibration;
    TESS_REQUIRE(calibration, param, before);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, k->n - 1));
    TESS_TRY(tess_sim_params_query(k->params, k->index[index], param));
    *before = k->start[index];
    return TESS_OK;
}
