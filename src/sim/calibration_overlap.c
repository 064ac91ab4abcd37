/* SPDX-License-Identifier: Apache-2.0 */
/* calibration_overlap.c - slowdowns beside communication, fitted to the rows of tables.
 *
 * Totals have one solution (overlap_fit.c): there is no search. Each hardware of the tables is
 * fitted by itself; what was left out is a kernel, whose rows are predicted by its class or by the
 * constant. Kernels that the parameters did not have are added.
 */
#include "calibration.h"

#include <math.h>

/* The rows of one hardware, behind each other. */
static int pick(const tess__overlap_row *rows, const int *hardware, int n, int which,
                tess__overlap_row *out)
{
    int picked = 0;
    for (int i = 0; i < n; i++)
        if (hardware[i] == which)
            out[picked++] = rows[i];
    return picked;
}

static tess_status fit_all(tess_calibration *k, const tess__overlap_row *rows, const int *hardware,
                           int n, tess__overlap_row *room)
{
    tess_sim_params *p = k->params;
    for (int h = 0; h < p->n_hardware; h++) {
        const int picked = pick(rows, hardware, n, h, room);
        if (picked)
            TESS_TRY(tess__overlap_fit(&p->overlaps, &p->arena, h, room, picked, NULL));
    }
    return TESS_OK;
}

static tess_status leave_out(tess_calibration *k, const tess__overlap_row *rows,
                             const int *hardware, int n, tess__overlap_row *room)
{
    int done = 0;
    for (int h = 0; h < k->params->n_hardware; h++) {
        int names;
        const int picked = pick(rows, hardware, n, h, room + done);
        TESS_TRY(tess__overlap_leave_out(k->ctx, room + done, picked, &names));
        k->info.models += names;
        done += picked;
    }
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += 100 * fabs(room[i].ratio * room[i].alone_ns / room[i].beside_ns - 1);
    k->info.left_out = sum / n;
    for (int m = 0; m < TESS_OVERLAP_MODELS; m++)
        k->overlap[1][m] = tess__overlap_score(room, n, (tess_overlap_model)m, 1);
    return TESS_OK;
}

/* What was there before, and how far its predictions are from the rows. */
static double mean_error(const tess__cases *cases)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < cases->n; i++) {
        const tess__case *c = &cases->cases[i];
        if (c->what != TESS__MEASURED_OVERLAPPED_NS)
            continue;
        sum += 100 * fabs(c->predicted[0] / c->measured - 1);
        n++;
    }
    return n ? sum / n : 0;
}

/* The parameters that the fit set or added: those whose origin it wrote. */
static tess_status list_fitted(tess_calibration *k, const tess__overlap_list *before)
{
    const tess__overlap_list *now = &k->params->overlaps;
    const int first = tess_sim_params_count(k->params) - (int)now->n;
    for (int i = 0; i < now->n; i++) {
        const int old = i < before->n;
        if (old && before->items[i].origin == now->items[i].origin)
            continue;
        if (k->n == TESS__FITTED_MAX)
            return tess__fail(TESS_EINVAL, "tess_calibration_run: more than %d parameters",
                              TESS__FITTED_MAX);
        k->start[k->n] = old ? before->items[i].value : 0.0;
        k->index[k->n++] = first + i;
    }
    k->info.parameters = k->n;
    return TESS_OK;
}

static tess_status run(tess_calibration *k, const tess__overlap_row *rows, const int *hardware,
                       int n, int leave)
{
    const size_t bytes = (size_t)k->params->overlaps.n * sizeof *k->params->overlaps.items;
    tess__overlap_list before = {.n = k->params->overlaps.n};
    tess__overlap_row *room = tess__alloc(k->ctx, (size_t)n * sizeof *room);
    before.items = tess__alloc(k->ctx, bytes);
    tess_status status = room && before.items ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK) {
        for (int64_t i = 0; i < before.n; i++)
            before.items[i] = k->params->overlaps.items[i];
        status = fit_all(k, rows, hardware, n, room);
    }
    if (status == TESS_OK)
        status = list_fitted(k, &before);
    if (status == TESS_OK && leave)
        status = leave_out(k, rows, hardware, n, room);
    tess__free(k->ctx, before.items);
    tess__free(k->ctx, room);
    return status;
}

/* Scores of the fitted parameters. */
static tess_status score(tess_calibration *k)
{
    tess__overlap_row *rows;
    int *hardware, n;
    TESS_TRY(tess__cases_predict(k->sim, &k->cases));
    k->info.after = mean_error(&k->cases);
    TESS_TRY(tess__cases_overlap(k->sim, &k->cases, &rows, &hardware, &n));
    for (int m = 0; m < TESS_OVERLAP_MODELS; m++)
        k->overlap[0][m] = tess__overlap_score(rows, n, (tess_overlap_model)m, 0);
    tess__free(k->ctx, rows);
    tess__free(k->ctx, hardware);
    return TESS_OK;
}

tess_status tess__calibration_overlap(tess_calibration *k, int leave)
{
    tess__overlap_row *rows;
    int *hardware, n;
    TESS_TRY(tess__cases_predict(k->sim, &k->cases));
    TESS_TRY(tess__cases_overlap(k->sim, &k->cases, &rows, &hardware, &n));
    k->info.before = mean_error(&k->cases);
    k->info.cases = n;
    tess_status status =
        n ? run(k, rows, hardware, n, leave)
          : tess__fail(TESS_EINVAL, "tess_calibration_run: no row measures an overlap");
    tess__free(k->ctx, rows);
    tess__free(k->ctx, hardware);
    return status == TESS_OK ? score(k) : status;
}
