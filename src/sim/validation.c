/* SPDX-License-Identifier: Apache-2.0 */
/* validation.c - a table of measurements from its file to its scores. */
#include "case.h"
#include "sim_internal.h"

#include <math.h>
#include <string.h>

struct tess_validation {
    tess_ctx *ctx;
    tess_sim_params *own; /* the shipped ones, while it runs */
    tess__cases cases;
    tess__map map;
    tess_validation_info info;
    tess_validation_group *groups;
    double *room; /* for scores */
    tess_overlap_score overlap[TESS_OVERLAP_MODELS];
};

const char *tess_quantity_name(tess_quantity quantity)
{
    static const char *const names[TESS_QUANTITIES] = {"step",    "layer",   "collective", "memory",
                                                       "product", "overlap", "clip"};
    return (int)quantity >= 0 && quantity < TESS_QUANTITIES ? names[quantity] : NULL;
}

void tess_validation_destroy(tess_validation *v)
{
    if (!v)
        return;
    tess_ctx *ctx = v->ctx;
    tess__cases_free(&v->cases);
    tess__map_close(&v->map);
    tess__free(ctx, v->groups);
    tess__free(ctx, v->room);
    tess__free(ctx, v);
}

static tess_status score_overlap(tess_validation *v, const tess_sim *sim)
{
    tess__overlap_row *rows;
    int *hardware, n;
    TESS_TRY(tess__cases_overlap(sim, &v->cases, &rows, &hardware, &n));
    for (int m = 0; m < TESS_OVERLAP_MODELS; m++)
        v->overlap[m] = tess__overlap_score(rows, n, (tess_overlap_model)m, 0);
    tess__free(v->ctx, rows);
    tess__free(v->ctx, hardware);
    return TESS_OK;
}

static tess_status predict(tess_validation *v)
{
    tess_sim *sim = NULL;
    tess_status status = tess_sim_create(v->ctx, v->cases.params, &sim);
    if (status == TESS_OK)
        status = tess__cases_predict(sim, &v->cases);
    if (status == TESS_OK)
        status = score_overlap(v, sim);
    tess_sim_destroy(sim);
    return status;
}

static tess_status summarise(tess_validation *v)
{
    tess_validation_info *info = &v->info;
    v->room = TESS_ALLOC(v->ctx, (size_t)v->cases.n * sizeof *v->room);
    *info = (tess_validation_info){.map = v->map.name,
                                   .about = v->map.about,
                                   .rows = v->cases.rows,
                                   .cases = v->cases.n,
                                   .skipped = v->cases.n_skips};
    for (int q = 0; q < TESS_QUANTITIES && !info->score.scored; q++) {
        info->quantity = (tess_quantity)q;
        info->score = tess__cases_score(&v->cases, info->quantity, NULL, 0, v->room);
        info->plain = tess__cases_score(&v->cases, info->quantity, NULL, 1, v->room);
    }
    if (!info->score.scored)
        info->quantity = TESS_QUANTITY_STEP;
    return tess__cases_groups(&v->cases, v->room, &v->groups, &info->groups);
}

static tess_status run(tess_validation *v, const char *path, const tess_validation_opts *opts)
{
    tess__table table = {0};
    TESS_TRY(tess__table_open(v->ctx, path, &table));
    v->cases.params = opts->params ? opts->params : v->own;
    tess_status status = opts->map ? tess__map_parse(v->ctx, opts->map, NULL, 0, &v->map)
                                   : tess__map_find(v->ctx, &table, &v->map);
    if (status == TESS_OK)
        status = tess__cases_add(&v->cases, &v->map, &table);
    tess__table_close(&table);
    if (status == TESS_OK)
        v->cases.events = opts->events;
    v->cases.intervals = 1;
    if (status == TESS_OK)
        status = predict(v);
    return status == TESS_OK ? summarise(v) : status;
}

tess_status tess_validation_run(tess_ctx *ctx, const char *path, const tess_validation_opts *opts,
                                tess_validation **validation)
{
    static const tess_validation_opts none;
    TESS_REQUIRE(ctx, path, validation);
    tess_validation *v = TESS_ALLOC_ZERO(ctx, sizeof *v);
    v->ctx = ctx;
    v->cases.ctx = v->cases.arena.ctx = ctx;
    if (!opts)
        opts = &none;
    tess_status status = opts->params ? TESS_OK : tess_sim_params_load(ctx, NULL, &v->own);
    if (status == TESS_OK)
        status = run(v, path, opts);
    tess_sim_params_destroy(v->own);
    v->own = NULL;
    if (status == TESS_OK)
        *validation = v;
    else
        tess_validation_destroy(v);
    return status;
}

tess_status tess_validation_query(const tess_validation *validation, tess_validation_info *info)
{
    TESS_REQUIRE(validation, info);
    *info = validation->info;
    return TESS_OK;
}

tess_status tess_validation_score(const tess_validation *validation, tess_quantity quantity,
                                  const char *group, tess_score *score, tess_score *plain)
{
    TESS_REQUIRE(validation, score, plain);
    *score = tess__cases_score(&validation->cases, quantity, group, 0, validation->room);
    *plain = tess__cases_score(&validation->cases, quantity, group, 1, validation->room);
    return TESS_OK;
}

tess_status tess_validation_overlap(const tess_validation *validation, tess_overlap_model model,
                                    tess_overlap_score *score)
{
    TESS_REQUIRE(validation, score);
    TESS_TRY(tess__check_range(__func__, "model", (int)model, 0, TESS_OVERLAP_MODELS - 1));
    *score = validation->overlap[model];
    return TESS_OK;
}

tess_status tess_validation_group_query(const tess_validation *validation, int index,
                                        tess_validation_group *out)
{
    TESS_REQUIRE(validation, out);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, validation->info.groups - 1));
    *out = validation->groups[index];
    return TESS_OK;
}

tess_status tess_validation_case_query(const tess_validation *validation, int index,
                                       tess_validation_case *out)
{
    TESS_REQUIRE(validation, out);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, validation->cases.n - 1));
    const tess__case *c = &validation->cases.cases[index];
    *out = (tess_validation_case){.row = c->row,
                                  .repeats = c->repeats,
                                  .quantity = tess__measured_defs[c->what].quantity,
                                  .label = c->label,
                                  .group = c->group,
                                  .unit = tess__measured_defs[c->what].unit,
                                  .measured = c->measured,
                                  .predicted = c->predicted[0],
                                  .plain = c->predicted[1],
                                  .error = 100 * (c->predicted[0] / c->measured - 1),
                                  .low = c->low,
                                  .high = c->high,
                                  .software = c->software,
                                  .software_known = c->software_known};
    return TESS_OK;
}

tess_status tess_validation_skip_query(const tess_validation *validation, int index,
                                       tess_validation_skip *out)
{
    TESS_REQUIRE(validation, out);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, validation->cases.n_skips - 1));
    *out = validation->cases.skips[index];
    return TESS_OK;
}
