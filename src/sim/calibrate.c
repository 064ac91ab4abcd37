/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - fits listed parameters to measured rows, and tells what that is worth.
 *
 * The cost is the mean absolute error of the chosen quantity over all cases. The search goes over
 * the parameters in turn, round after round: each is moved up and down by its step, relative to its
 * value, and kept where the cost falls by more than a hair; a round without gain halves all steps,
 * and the search ends when they are small or the rounds are used up. No random numbers and no
 * threads: the same rows give the same parameters.
 *
 * Leave one model out: for each model the parameters start from the defaults of the simulator,
 * which know no table (scalars from 1), are fitted to the rows of all other models and predict the
 * rows of this one. The mean over these predictions is what a model that nobody has measured may
 * expect.
 */
#include "case.h"
#include "sim.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

enum { FITTED_MAX = 64, MODELS_MAX = 128, ROUNDS_MAX = 200 };

struct tess_calibration {
    tess_ctx *ctx;
    tess__cases cases;
    tess_sim_params *params;
    tess_sim *sim;
    tess_quantity quantity;
    int n;
    int index[FITTED_MAX];
    double start[FITTED_MAX], fitted[FITTED_MAX];
    char *from;           /* path of the parameters; NULL: the shipped ones */
    const char *left_out; /* a model whose cases do not count; NULL: none */
    tess_calibration_info info;
};

/* ---- cost -------------------------------------------------------------------------------------
 */

/* Mean absolute error in % of the cases that count, or of those left out. */
static double cost_of(tess_calibration *k, int of_left_out, int *n)
{
    double sum = 0;
    *n = 0;
    for (int i = 0; i < k->cases.n; i++) {
        tess__case *c = &k->cases.cases[i];
        const int out = k->left_out && strcmp(c->model, k->left_out) == 0;
        if (out != of_left_out || tess__measured_defs[c->what].quantity != k->quantity)
            continue;
        if (tess__case_predict(k->sim, &k->cases, c) != TESS_OK)
            return INFINITY;
        sum += 100 * fabs(c->predicted[0] / c->measured - 1);
        (*n)++;
    }
    return *n ? sum / *n : 0;
}

static double cost(tess_calibration *k)
{
    int n;
    return cost_of(k, 0, &n);
}

/* ---- search -----------------------------------------------------------------------------------
 */

static double value_of(const tess_calibration *k, int i, double *low, double *high)
{
    tess_sim_param p;
    (void)tess_sim_params_query(k->params, k->index[i], &p);
    *low = p.low;
    *high = p.high;
    return p.value;
}

/* Moves parameter i to a value within its limits; returns the cost there. */
static double cost_at(tess_calibration *k, int i, double value)
{
    double low, high;
    (void)value_of(k, i, &low, &high);
    (void)tess_sim_params_set(k->params, k->index[i], fmin(fmax(value, low), high));
    return cost(k);
}

/* One parameter: up or down while it pays. 1 if it moved. */
static int descend(tess_calibration *k, int i, double step, double *best)
{
    static const double HAIR = 1e-4; /* of a percent: below the noise of any measurement */
    double low, high;
    int moved = 0;
    for (int sign = 1; sign >= -1; sign -= 2)
        for (int more = 1; more;) {
            const double from = value_of(k, i, &low, &high);
            const double unit = from != 0 ? fabs(from) : 0.01 * (high - low);
            const double there = cost_at(k, i, from + sign * step * unit);
            more = there < *best - HAIR;
            if (more) {
                *best = there;
                moved = 1;
            } else {
                (void)tess_sim_params_set(k->params, k->index[i], from);
            }
        }
    return moved;
}

static tess_status search(tess_calibration *k, double *best)
{
    double step = 0.16;
    *best = cost(k);
    for (int round = 0; round < ROUNDS_MAX && step > 0.002; round++) {
        int moved = 0;
        TESS_TRY(tess__progress(k->ctx, "fitting", round, ROUNDS_MAX));
        for (int i = 0; i < k->n; i++)
            moved |= descend(k, i, step, best);
        if (!moved)
            step /= 2;
    }
    return TESS_OK;
}

static void put_back(tess_calibration *k, const double *values)
{
    for (int i = 0; i < k->n; i++)
        (void)tess_sim_params_set(k->params, k->index[i], values[i]);
}

/* ---- leave one model out ----------------------------------------------------------------------
 */

static int is_first(const tess_calibration *k, int i)
{
    for (int j = 0; j < i; j++)
        if (strcmp(k->cases.cases[j].model, k->cases.cases[i].model) == 0)
            return 0;
    return 1;
}

/* What a parameter is where no file gives it. */
static double neutral(const tess_calibration *k, int i)
{
    tess_sim_param p;
    (void)tess_sim_params_query(k->params, k->index[i], &p);
    const int era = strcmp(p.group, "era") == 0;
    const tess__param_def *defs = era ? tess__era_defs : tess__hw_defs;
    const int n = era ? (int)TESS__ERA_COUNT : (int)TESS__HW_COUNT;
    for (int d = 0; d < n && strcmp(p.group, "scalar") != 0; d++)
        if (strcmp(defs[d].name, p.name) == 0)
            return defs[d].usual;
    return 1.0;
}

static tess_status leave_out(tess_calibration *k)
{
    double neutrals[FITTED_MAX];
    for (int i = 0; i < k->n; i++)
        neutrals[i] = neutral(k, i);
    double sum = 0, unused;
    int n_all = 0, n;
    for (int i = 0; i < k->cases.n; i++) {
        if (!is_first(k, i))
            continue;
        k->left_out = k->cases.cases[i].model;
        put_back(k, neutrals);
        TESS_TRY(search(k, &unused));
        sum += cost_of(k, 1, &n) * n;
        n_all += n;
        k->info.models++;
    }
    k->left_out = NULL;
    k->info.left_out = n_all ? sum / n_all : 0;
    return TESS_OK;
}

/* ---- parameters by name -----------------------------------------------------------------------
 */

/* "owner.name", or "scalar.system era". */
static tess_status find_parameter(tess_calibration *k, const char *name)
{
    const int count = tess_sim_params_count(k->params);
    if (k->n == FITTED_MAX)
        return tess__fail(TESS_EINVAL, "tess_calibration_run: more than %d parameters", FITTED_MAX);
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

/* ---- public -----------------------------------------------------------------------------------
 */

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

static tess_status fit(tess_calibration *k, int leave)
{
    int n;
    TESS_TRY(tess__cases_predict(k->sim, &k->cases));
    k->info.before = cost_of(k, 0, &n);
    k->info.cases = n;
    k->info.parameters = k->n;
    if (!n)
        return tess__fail(TESS_EINVAL, "tess_calibration_run: no row measures a %s",
                          tess_quantity_name(k->quantity));
    if (leave)
        TESS_TRY(leave_out(k));
    put_back(k, k->start);
    TESS_TRY(search(k, &k->info.after));
    for (int i = 0; i < k->n; i++) {
        double low, high;
        k->fitted[i] = value_of(k, i, &low, &high);
    }
    return TESS_OK;
}

static tess_status check(tess_ctx *ctx, const tess_calibration_opts *o, tess_calibration **out)
{
    static const char who[] = "tess_calibration_run";
    if (!ctx || !o || !out)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL, must not be", who,
                          !ctx ? "ctx"
                          : !o ? "opts"
                               : "calibration");
    if (o->n_tables < 1 || !o->tables || o->n_names < 1 || !o->names)
        return tess__fail(TESS_EINVAL, "%s: a table and a parameter must be given", who);
    return TESS_OK;
}

tess_status tess_calibration_run(tess_ctx *ctx, const tess_calibration_opts *o,
                                 tess_calibration **calibration)
{
    TESS_TRY(check(ctx, o, calibration));
    tess_calibration *k = tess__alloc_zero(ctx, sizeof *k);
    if (!k)
        return TESS_ENOMEM;
    k->ctx = k->cases.ctx = k->cases.arena.ctx = ctx;
    k->quantity = o->quantity;
    tess_status status = tess_sim_params_load(ctx, o->params, &k->params);
    if (status == TESS_OK && o->params) {
        k->from = tess__arena_string(&k->cases.arena, o->params, strlen(o->params));
        status = k->from ? TESS_OK : TESS_ENOMEM;
    }
    for (int i = 0; status == TESS_OK && i < o->n_names; i++)
        status = find_parameter(k, o->names[i]);
    if (status == TESS_OK)
        status = tess_sim_create(ctx, k->params, &k->sim);
    for (int i = 0; status == TESS_OK && i < o->n_tables; i++)
        status = add_table(k, o->tables[i]);
    if (status == TESS_OK)
        status = fit(k, o->leave_one_out);
    if (status != TESS_OK) {
        tess_calibration_destroy(k);
        return status;
    }
    *calibration = k;
    return TESS_OK;
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

tess_status tess_calibration_query(const tess_calibration *k, tess_calibration_info *info)
{
    if (!k || !info)
        return tess__fail(TESS_EINVAL, "tess_calibration_query: %s is NULL, must not be",
                          !k ? "calibration" : "info");
    *info = k->info;
    return TESS_OK;
}

tess_status tess_calibration_value(const tess_calibration *k, int index, tess_sim_param *param,
                                   double *before)
{
    static const char who[] = "tess_calibration_value";
    if (!k || !param || !before)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL, must not be", who,
                          !k       ? "calibration"
                          : !param ? "param"
                                   : "before");
    if (index < 0 || index >= k->n)
        return tess__fail(TESS_EINVAL, "%s: index is %d, must be 0..%d", who, index, k->n - 1);
    TESS_TRY(tess_sim_params_query(k->params, k->index[index], param));
    *before = k->start[index];
    return TESS_OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static int is_owner(json_t *scalar, const char *owner)
{
    const char *system = json_string_value(json_object_get(scalar, "system"));
    const char *era = json_string_value(json_object_get(scalar, "era"));
    char text[160];
    snprintf(text, sizeof text, "%s %s", system ? system : "", era ? era : "");
    return strcmp(text, owner) == 0;
}

/* Puts a value where the file has it, or where it would have it. */
static void put_value(json_t *root, const tess_sim_param *p)
{
    if (strcmp(p->group, "scalar") == 0) {
        json_t *item;
        size_t i;
        json_array_foreach(json_object_get(root, "scalars"), i, item) if (is_owner(item, p->owner))
            json_object_set_new(item, "value", json_real(p->value));
        return;
    }
    json_t *group = json_object_get(root, strcmp(p->group, "era") == 0 ? "eras" : "hardware");
    json_t *values = json_object_get(json_object_get(group, p->owner), "values");
    json_t *entry = json_object_get(values, p->name);
    if (entry)
        json_array_set_new(entry, 0, json_real(p->value));
    else
        json_object_set_new(values, p->name, json_pack("[fs]", p->value, "fitted"));
}

tess_status tess_calibration_write(const tess_calibration *k, const char *path)
{
    if (!k || !path)
        return tess__fail(TESS_EINVAL, "tess_calibration_write: %s is NULL, must not be",
                          !k ? "calibration" : "path");
    const tess__shipped *file = &tess__shipped_simulator[0];
    tess__json doc;
    if (k->from)
        TESS_TRY(tess__json_open(k->ctx, k->from, &doc));
    else
        TESS_TRY(tess__json_open_memory(k->ctx, file->name, (const char *)file->text, file->bytes,
                                        &doc));
    for (int i = 0; i < k->n; i++) {
        tess_sim_param p;
        (void)tess_sim_params_query(k->params, k->index[i], &p);
        put_value(doc.root, &p);
    }
    const tess_status status = tess__json_write(k->ctx, path, doc.root);
    tess__json_close(&doc);
    return status;
}
