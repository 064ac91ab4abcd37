/* SPDX-License-Identifier: Apache-2.0 */
/* case_predict.c - predicts cases with the engine and the cost model. */
#include "case.h"
#include "events/events_internal.h"
#include "sim_internal.h"

#include <math.h>

static const double GIB = 1073741824.0;

/* ---- one case -------------------------------------------------------------------------------- */

static tess_status predict_collective(const tess__cases *cases, const tess__case *c, double *us)
{
    tess_collective_result result;
    TESS_TRY(tess_collective_time(cases->clusters[c->cluster].cluster, &c->collective, &result));
    *us = (double)result.ns * 1e-3;
    return TESS_OK;
}

/* A product needs the parameters of a GPU alone. */
static tess_status predict_product(tess_sim *sim, const tess__cases *cases, const tess__case *c,
                                   double *share)
{
    const tess_cluster *cluster = cases->clusters[c->cluster].cluster;
    const tess__product *p = &c->product;
    const int precision = c->scenario.training.precision;
    if (p->m < 1 || p->n < 1 || p->k < 1)
        return tess__fail(TESS_EINVAL, "product.m, product.n and product.k must be given");
    sim->s = c->scenario;
    TESS_TRY(tess__sim_find_params(sim, cluster));
    const double batch = p->batch > 0 ? p->batch : 1;
    const double seconds =
        tess__gemm_seconds(sim, batch, p->m, p->n, p->k, precision, p->weight, 0);
    const double peak = precision >= TESS_SIM_FP8    ? cluster->info.flops_fp8
                        : precision == TESS_SIM_FP32 ? cluster->info.flops_fp32
                                                     : cluster->info.flops_bf16;
    *share = 2.0 * batch * p->m * p->n * p->k / seconds / peak;
    return TESS_OK;
}

static tess_status hardware_of(const tess_sim *sim, const tess__cases *cases, const tess__case *c,
                               int *hardware)
{
    const tess__param_set *set;
    const tess_cluster_info *info = &cases->clusters[c->cluster].cluster->info;
    TESS_TRY(tess__params_hardware(sim->params, info->gpu, (double)info->memory, &set));
    *hardware = (int)(set - sim->params->hardware);
    return TESS_OK;
}

/* Time beside communication over time alone; 1 where none ran. */
static tess_status predict_overlap(const tess_sim *sim, const tess__cases *cases,
                                   const tess__case *c, double *ratio)
{
    const tess__overlap_row *o = &c->overlap;
    int hardware = 0;
    TESS_TRY(hardware_of(sim, cases, c, &hardware));
    *ratio = tess__overlap_ratio(
        o->share, tess__overlap_find(&sim->params->overlaps, hardware, o->kernel, o->kernel_class));
    return TESS_OK;
}

tess_status tess__cases_overlap(const tess_sim *sim, const tess__cases *cases,
                                tess__overlap_row **rows, int **hardware, int *n)
{
    *n = 0;
    *rows = tess__alloc(cases->ctx, (size_t)cases->n * sizeof **rows);
    *hardware = tess__alloc(cases->ctx, (size_t)cases->n * sizeof **hardware);
    tess_status status = *rows && *hardware ? TESS_OK : TESS_ENOMEM;
    for (int i = 0; status == TESS_OK && i < cases->n; i++) {
        const tess__case *c = &cases->cases[i];
        if (c->what != TESS__MEASURED_OVERLAPPED_NS)
            continue;
        (*rows)[*n] = c->overlap;
        (*rows)[*n].beside_ns = c->measured * c->overlap.alone_ns;
        (*rows)[*n].ratio = c->predicted[0];
        status = hardware_of(sim, cases, c, &(*hardware)[(*n)++]);
    }
    if (status != TESS_OK) {
        tess__free(cases->ctx, *rows);
        tess__free(cases->ctx, *hardware);
        *rows = NULL;
        *hardware = NULL;
    }
    return status;
}

static double quantity_of(tess__measured_kind what, const tess_sim_result *r)
{
    switch (what) {
    case TESS__MEASURED_FORWARD_MS: return 1e3 * r->layer_forward_s;
    case TESS__MEASURED_BACKWARD_MS: return 1e3 * r->layer_backward_s;
    case TESS__MEASURED_MEMORY: return r->memory.allocated / GIB;
    case TESS__MEASURED_DEVICE_MEMORY: return r->memory.peak / GIB;
    case TESS__MEASURED_STATE: return r->memory.layer_state / GIB;
    case TESS__MEASURED_ACTIVATIONS: return r->memory.layer_activations / GIB;
    case TESS__MEASURED_CLIP_S: return r->step_s;
    default: return 1e3 * r->step_s;
    }
}

/* Seconds of the step of the last run, event by event. */
static tess_status step_by_events(const tess_sim *sim, double *seconds)
{
    tess_timeline *t = NULL;
    tess_timeline_info info;
    TESS_TRY(tess_sim_timeline(sim, NULL, &t));
    const tess_status status = tess_timeline_query(t, &info);
    tess_timeline_destroy(t);
    *seconds = 1e-9 * (double)info.ns;
    return status;
}

static tess_status predict_step(tess_sim *sim, const tess__cases *cases, const tess__case *c,
                                int plain, double *value)
{
    const tess_cluster *cluster = cases->clusters[c->cluster].cluster;
    tess_scenario s = c->scenario;
    tess_sim_result r, base;
    if (plain)
        s.system.scalar = TESS_SIM_OFF;
    TESS_TRY(tess_sim_run(sim, cluster, &s, &r));
    if ((c->what == TESS__MEASURED_CLIP_S) != (r.clips > 0))
        return tess__fail(TESS_EINVAL, r.clips ? "a row with sampling.steps needs measured.clip_s"
                                               : "measured.clip_s needs sampling.steps");
    *value = quantity_of(c->what, &r);
    if (cases->events && tess__measured_defs[c->what].quantity == TESS_QUANTITY_STEP) {
        const double closed = r.step_s;
        TESS_TRY(step_by_events(sim, &r.step_s));
        *value *= r.step_s / closed;
    }
    if (c->what != TESS__MEASURED_ACTIVATIONS_PCT)
        return TESS_OK;
    s.layout.sequence = 0;
    s.training.recompute = TESS_SIM_RECOMPUTE_NONE;
    TESS_TRY(tess_sim_run(sim, cluster, &s, &base));
    *value = 100 * r.memory.layer_activations / base.memory.layer_activations;
    return TESS_OK;
}

tess_status tess__case_predict(tess_sim *sim, const tess__cases *cases, tess__case *c)
{
    const tess_quantity quantity = tess__measured_defs[c->what].quantity;
    double value[2] = {0}; /* 0 is refused below */
    if (quantity == TESS_QUANTITY_COLLECTIVE) {
        TESS_TRY(predict_collective(cases, c, &value[0]));
        value[1] = value[0];
    } else if (quantity == TESS_QUANTITY_PRODUCT) {
        TESS_TRY(predict_product(sim, cases, c, &value[0]));
        value[1] = value[0];
    } else if (quantity == TESS_QUANTITY_OVERLAP) {
        TESS_TRY(predict_overlap(sim, cases, c, &value[0]));
        value[1] = value[0];
    } else {
        TESS_TRY(predict_step(sim, cases, c, 0, &value[0]));
        TESS_TRY(predict_step(sim, cases, c, 1, &value[1]));
    }
    if (!(value[0] > 0) || !isfinite(value[0]) || !(value[1] > 0) || !isfinite(value[1]))
        return tess__fail(TESS_EINVAL, "the model gives nothing for this");
    c->predicted[0] = value[0];
    c->predicted[1] = value[1];
    return TESS_OK;
}

/* Predicts all; reasons (rows): why a row cannot be, NULL where it can. */
static tess_status predict_rows(tess_sim *sim, tess__cases *cases, const char **reasons,
                                int *failed)
{
    for (int i = 0; i < cases->n; i++) {
        const char **reason = &reasons[cases->cases[i].row - 1];
        TESS_TRY(tess__progress(cases->ctx, "predicting rows", i, cases->n));
        if (*reason)
            continue;
        tess_status status = tess__case_predict(sim, cases, &cases->cases[i]);
        if (status == TESS_OK && cases->intervals)
            status = tess__case_interval(sim, cases, &cases->cases[i]);
        if (status == TESS_OK)
            continue;
        if (status == TESS_ENOMEM)
            return status;
        char text[TESS_ROW_REASON];
        snprintf(text, sizeof text, "%s", tess_last_error());
        *reason = TESS_MEMORY(tess__cases_text(cases, text));
        *failed = 1;
    }
    return TESS_OK;
}

tess_status tess__cases_predict(tess_sim *sim, tess__cases *cases)
{
    int failed = 0;
    const char **reasons = TESS_ALLOC_ZERO(cases->ctx, (size_t)cases->rows * sizeof *reasons);
    tess_status status = predict_rows(sim, cases, reasons, &failed);
    if (status == TESS_OK && failed)
        status = tess__cases_skip(cases, reasons);
    tess__free(cases->ctx, reasons);
    return status;
}
