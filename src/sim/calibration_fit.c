/* SPDX-License-Identifier: Apache-2.0 */
/* calibration_fit.c - the search for the parameters that fit measured rows best.
 *
 * The cost is the mean absolute error of the chosen quantity over all cases. The search goes over
 * the parameters in turn, round after round: each is moved up and down by its step, relative to its
 * value, and kept where the cost falls by more than rounding; a round without gain halves all
 * steps, and the search ends when they are small or the rounds are used up. No random numbers and
 * no threads: the same rows give the same parameters.
 *
 * Leave one model out: for each model the parameters start from the defaults of the simulator,
 * which know no table (scalars from 1), are fitted to the rows of all other models and predict the
 * rows of this one. The mean over these predictions is the error to expect for a model without
 * measurements.
 */
#include "calibration.h"

#include <math.h>
#include <string.h>

enum { ROUNDS_MAX = 200 };

/* ---- cost ------------------------------------------------------------------------------------ */

/* Mean absolute error in % of the cases that count, or of those left out. Infinite where a case
 * cannot be predicted, and where the caller stops the fit (k->stopped). */
static double cost_of(tess_calibration *k, int of_left_out, int *n)
{
    double sum = 0;
    *n = 0;
    for (int i = 0; i < k->cases.n; i++) {
        tess__case *c = &k->cases.cases[i];
        const int out = k->left_out && strcmp(c->model, k->left_out) == 0;
        if (out != of_left_out || tess__measured_defs[c->what].quantity != k->quantity)
            continue;
        k->stopped = tess__progress(k->ctx, "fitting", k->round, ROUNDS_MAX);
        if (k->stopped != TESS_OK || tess__case_predict(k->sim, &k->cases, c) != TESS_OK)
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

/* ---- search ---------------------------------------------------------------------------------- */

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
        for (int more = 1; more && k->stopped == TESS_OK;) {
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
    k->round = 0;
    *best = cost(k);
    for (; k->stopped == TESS_OK && k->round < ROUNDS_MAX && step > 0.002; k->round++) {
        int moved = 0;
        for (int i = 0; i < k->n && k->stopped == TESS_OK; i++)
            moved |= descend(k, i, step, best);
        if (!moved)
            step /= 2;
    }
    return k->stopped;
}

/* ---- leave one model out --------------------------------------------------------------------- */

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
    double sum = 0, unused;
    int n_all = 0, n;
    for (int i = 0; i < k->cases.n; i++) {
        if (!is_first(k, i))
            continue;
        k->left_out = k->cases.cases[i].model;
        for (int p = 0; p < k->n; p++)
            (void)tess_sim_params_set(k->params, k->index[p], neutral(k, p));
        TESS_TRY(search(k, &unused));
        sum += cost_of(k, 1, &n) * n;
        TESS_TRY(k->stopped);
        n_all += n;
        k->info.models++;
    }
    k->left_out = NULL;
    k->info.left_out = n_all ? sum / n_all : 0;
    return TESS_OK;
}

tess_status tess__calibration_fit(tess_calibration *k, int leave)
{
    int n;
    TESS_TRY(tess__cases_predict(k->sim, &k->cases));
    k->info.before = cost_of(k, 0, &n);
    TESS_TRY(k->stopped);
    k->info.cases = n;
    k->info.parameters = k->n;
    if (!n)
        return tess__fail(TESS_EINVAL, "tess_calibration_run: no row measures a %s",
                          tess_quantity_name(k->quantity));
    if (leave)
        TESS_TRY(leave_out(k));
    for (int p = 0; p < k->n; p++)
        (void)tess_sim_params_set(k->params, k->index[p], k->start[p]);
    return search(k, &k->info.after);
}
