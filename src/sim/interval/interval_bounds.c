/* SPDX-License-Identifier: Apache-2.0 */
/* interval_bounds.c - tess_sim_interval: the interval of a step and of its memory.
 *
 * Of each input both directions are run; its deviation is the root of the mean square of both
 * changes of the logarithm. Deviations of inputs add up as squares: they are taken as independent.
 */
#include "sim/sim_internal.h"

#include "tessera/advanced/interval.h"

#include <math.h>
#include <stdlib.h>

static const double Z = 1.2815515655446004; /* 80 % of a normal distribution lie within -+Z */

_Static_assert((int)TESS__INPUTS + 2 <= TESS_INTERVAL_INPUTS, "an interval names every input");

const char *tess_fit_name(tess_fit fit)
{
    static const char *const names[] = {"no", "yes", "maybe"};
    return (int)fit >= 0 && (int)fit < 3 ? names[fit] : NULL;
}

void tess__interval_bounds(double value, double deviation, double *low, double *high)
{
    *low = value * exp(-Z * deviation);
    *high = value * exp(Z * deviation);
}

static int by_width(const void *a, const void *b)
{
    const tess_interval_input *x = a, *y = b;
    return (y->pct > x->pct) - (y->pct < x->pct);
}

static tess_interval_input input_of(const tess__input_def *def, const tess__spread *spread,
                                    double deviation)
{
    return (tess_interval_input){def->name, def->about, spread->origin,
                                 100.0 * (exp(Z * deviation) - 1.0)};
}

static void add(tess_interval_input *list, int *n, const tess__input_def *def,
                const tess__spread *spread, double deviation)
{
    if (deviation > 0.0)
        list[(*n)++] = input_of(def, spread, deviation);
}

/* Deviation of the logarithm of the step with one input; 0 where it is not used. */
static tess_status deviation_of(tess_sim *sim, const tess_cluster *cluster,
                                const tess_scenario *scenario, int input, double spread,
                                double step_s, double *deviation)
{
    double sum = 0.0;
    *deviation = 0.0;
    if (spread == 0.0)
        return TESS_OK;
    sim->varied = input + 1;
    for (int k = 0; k < 2; k++) {
        tess_sim_result r;
        sim->variation = k ? spread : -spread;
        const tess_status status = tess_sim_run(sim, cluster, scenario, &r);
        if (status != TESS_OK) {
            sim->varied = 0;
            return status;
        }
        sum += log(r.step_s / step_s) * log(r.step_s / step_s);
    }
    sim->varied = 0;
    *deviation = sqrt(sum / 2.0);
    return TESS_OK;
}

static tess_status step_interval(tess_sim *sim, const tess_cluster *cluster,
                                 const tess_scenario *scenario, double step_s, tess_interval *out)
{
    const tess__interval_params *p = &sim->params->interval;
    const int known = sim->software_known;
    const double residual = p->residual.value[known];
    const double experts = scenario->model.experts ? p->experts.value[known] : 0.0;
    double sum = residual * residual + experts * experts;
    out->residual[0] = input_of(&tess__residual_def, &p->residual, residual);
    add(out->step, &out->n_step, &tess__experts_def, &p->experts, experts);
    for (int i = 0; i < TESS__INPUTS; i++) {
        double deviation;
        TESS_TRY(
            deviation_of(sim, cluster, scenario, i, p->inputs[i].value[known], step_s, &deviation));
        add(out->step, &out->n_step, &tess__input_defs[i], &p->inputs[i], deviation);
        sum += deviation * deviation;
    }
    tess__interval_bounds(step_s, sqrt(sum), &out->step_low_s, &out->step_high_s);
    qsort(out->step, (size_t)out->n_step, sizeof *out->step, by_width);
    return TESS_OK;
}

/* Parts are added up as bytes; the deviation of a sum's logarithm is that of its bytes over it. */
static void memory_interval(const tess_sim *sim, const tess_sim_memory *m, tess_interval *out)
{
    const tess__interval_params *p = &sim->params->interval;
    const int known = sim->software_known;
    const double parts[TESS__ROOMS] = {[TESS__ROOM_STATE] =
                                           m->weights + m->gradients + m->optimiser,
                                       [TESS__ROOM_ACTIVATIONS] = m->activations,
                                       [TESS__ROOM_WORKING] = m->working,
                                       [TESS__ROOM_BUFFERS] = m->buffers,
                                       [TESS__ROOM_RESERVED] = m->reserved};
    const double residual = p->memory_residual.value[known];
    double allocated = 0.0, peak = 0.0;
    out->residual[1] = input_of(&tess__residual_def, &p->memory_residual, residual);
    for (int i = 0; i < TESS__ROOMS; i++) {
        const double bytes = p->rooms[i].value[known] * parts[i];
        add(out->memory, &out->n_memory, &tess__room_defs[i], &p->rooms[i], bytes / m->peak);
        allocated += i == TESS__ROOM_RESERVED ? 0.0 : bytes * bytes;
        peak += bytes * bytes;
    }
    allocated = m->allocated > 0.0 ? allocated / (m->allocated * m->allocated) : 0.0;
    peak /= m->peak * m->peak;
    tess__interval_bounds(m->allocated, sqrt(residual * residual + allocated), &out->allocated_low,
                          &out->allocated_high);
    tess__interval_bounds(m->peak, sqrt(residual * residual + peak), &out->peak_low,
                          &out->peak_high);
    qsort(out->memory, (size_t)out->n_memory, sizeof *out->memory, by_width);
}

void tess__interval_memory(const tess_sim *sim, const tess_sim_memory *m, double *low, double *high)
{
    tess_interval out = {.peak_low = m->peak, .peak_high = m->peak};
    if (sim->params->interval.given)
        memory_interval(sim, m, &out);
    *low = out.peak_low;
    *high = out.peak_high;
}

tess_fit tess__fit_of(double low, double high, double limit)
{
    return high <= limit ? TESS_FIT_YES : low <= limit ? TESS_FIT_MAYBE : TESS_FIT_NO;
}

tess_status tess_sim_interval(tess_sim *sim, const tess_cluster *cluster,
                              const tess_scenario *scenario, tess_sim_result *result,
                              tess_interval *interval)
{
    TESS_REQUIRE(sim, cluster, scenario, result, interval);
    tess_sim_result r;
    TESS_TRY(tess_sim_run(sim, cluster, scenario, &r));
    tess_interval out = {.known = sim->params->interval.given,
                         .software = sim->params->eras[sim->i_era].name,
                         .software_known = sim->software_known,
                         .step_low_s = r.step_s,
                         .step_high_s = r.step_s,
                         .allocated_low = r.memory.allocated,
                         .allocated_high = r.memory.allocated,
                         .peak_low = r.memory.peak,
                         .peak_high = r.memory.peak};
    if (out.known) {
        TESS_TRY(step_interval(sim, cluster, scenario, r.step_s, &out));
        memory_interval(sim, &r.memory, &out);
        TESS_TRY(tess_sim_run(sim, cluster, scenario, &r));
    }
    out.fits = tess__fit_of(out.peak_low, out.peak_high, r.memory.capacity);
    *result = r;
    *interval = out;
    return TESS_OK;
}
