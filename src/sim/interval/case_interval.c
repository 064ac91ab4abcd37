/* SPDX-License-Identifier: Apache-2.0 */
/* case_interval.c - the interval of a predicted case, relative to its prediction. */
#include "sim/case.h"
#include "sim/sim_internal.h"

#include "tessera/advanced/interval.h"

/* Of a prediction whose spread is one number. */
static void bounds(tess__case *c, const tess__spread *spread, int known)
{
    tess__interval_bounds(c->predicted[0], spread->value[known], &c->low, &c->high);
}

static void scale(tess__case *c, double low, double high, double value)
{
    c->low = c->predicted[0] * low / value;
    c->high = c->predicted[0] * high / value;
}

static tess_status of_scenario(tess_sim *sim, tess__cases *cases, tess__case *c)
{
    const tess__interval_params *p = &sim->params->interval;
    tess_sim_result r;
    tess_interval i;
    TESS_TRY(tess_sim_interval(sim, cases->clusters[c->cluster].cluster, &c->scenario, &r, &i));
    const int known = sim->software_known;
    switch (c->what) {
    case TESS__MEASURED_FORWARD_MS:
    case TESS__MEASURED_BACKWARD_MS: bounds(c, &p->others[TESS__OTHER_LAYER], known); break;
    case TESS__MEASURED_STATE: bounds(c, &p->rooms[TESS__ROOM_STATE], known); break;
    case TESS__MEASURED_ACTIVATIONS:
    case TESS__MEASURED_ACTIVATIONS_PCT: bounds(c, &p->rooms[TESS__ROOM_ACTIVATIONS], known); break;
    case TESS__MEASURED_MEMORY:
        scale(c, i.allocated_low, i.allocated_high, r.memory.allocated);
        break;
    case TESS__MEASURED_DEVICE_MEMORY: scale(c, i.peak_low, i.peak_high, r.memory.peak); break;
    default: scale(c, i.step_low_s, i.step_high_s, r.step_s); break;
    }
    c->software = TESS_MEMORY(tess__cases_text(cases, sim->params->eras[sim->i_era].name));
    c->software_known = known;
    return TESS_OK;
}

tess_status tess__case_interval(tess_sim *sim, tess__cases *cases, tess__case *c)
{
    const tess__interval_params *p = &sim->params->interval;
    c->low = c->high = c->predicted[0];
    c->software = "";
    switch (tess__measured_defs[c->what].quantity) {
    case TESS_QUANTITY_COLLECTIVE: bounds(c, &p->others[TESS__OTHER_COLLECTIVE], 1); break;
    case TESS_QUANTITY_PRODUCT: bounds(c, &p->others[TESS__OTHER_PRODUCT], 1); break;
    case TESS_QUANTITY_OVERLAP: bounds(c, &p->others[TESS__OTHER_OVERLAP], 1); break;
    default: return of_scenario(sim, cases, c);
    }
    return TESS_OK;
}
