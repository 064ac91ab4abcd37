/* SPDX-License-Identifier: Apache-2.0 */
/* interval_vary.c - the parameters of a run with one input by a spread more or less.
 *
 * Rates and times are multiplied by exp(-+spread), shares get spread added; all stay within the
 * limits of their parameter. An input that the run does not use changes nothing, and its interval
 * is that of the others.
 */
#include "sim/sim_internal.h"

#include <math.h>
#include <string.h>

enum { MEMBERS = 6, END = -1 };

static const struct {
    int add; /* 1: the spread is added, 0: it multiplies */
    int hw[MEMBERS], era[MEMBERS];
} inputs[TESS__INPUTS] = {
    [TESS__IN_PRODUCTS] = {0,
                           {TESS__HW_GEMM_SHARE, TESS__HW_GEMM_FP8, TESS__HW_GEMM_FP32, END},
                           {END}},
    [TESS__IN_ATTENTION] = {0,
                            {TESS__HW_FLASH_FORWARD, TESS__HW_FLASH_BACKWARD, TESS__HW_BMM_SHARE,
                             TESS__HW_BMM_ODD, END},
                            {END}},
    [TESS__IN_MEMORY] = {0, {TESS__HW_MEMORY_SHARE, END}, {END}},
    [TESS__IN_HOST] = {0,
                       {END},
                       {TESS__ERA_HOST_FORWARD_US, TESS__ERA_HOST_BACKWARD_US,
                        TESS__ERA_HOST_COMM_US, TESS__ERA_HOST_SYNC_US, TESS__ERA_HOST_BATCH_MS,
                        END}},
    [TESS__IN_TP] = {1, {END}, {TESS__ERA_TP_EXPOSED, END}},
    [TESS__IN_DP] = {1, {END}, {TESS__ERA_DP_HIDDEN, TESS__ERA_DP_FORWARD, END}},
    [TESS__IN_EP] = {1, {END}, {TESS__ERA_EP_EXPOSED, END}},
    [TESS__IN_PP] = {1, {END}, {TESS__ERA_PP_EXPOSED, END}},
    [TESS__IN_NETWORK] = {0, {END}, {TESS__ERA_NETWORK_SHARE, END}},
    [TESS__IN_OPTIMISER] = {0,
                            {END},
                            {TESS__ERA_OPT_BYTES, TESS__ERA_GRAD_TRAFFIC, TESS__ERA_OPT_MS, END}},
    [TESS__IN_LOSS] = {0, {END}, {TESS__ERA_LOSS_BYTES, END}},
    [TESS__IN_CASTS] = {0, {END}, {TESS__ERA_FP8_CAST, END}},
    [TESS__IN_NODES] = {0,
                        {END},
                        {TESS__ERA_SPREAD, TESS__ERA_NETWORK_LOSS, TESS__ERA_JITTER_MS,
                         TESS__ERA_STRAGGLE, END}},
    [TESS__IN_POWER] = {0, {TESS__HW_POWER_LIMIT, END}, {END}},
};

static void change(const int *members, const tess__param_def *defs, int add, double spread,
                   double *values)
{
    for (int i = 0; members[i] != END; i++) {
        const tess__param_def *def = &defs[members[i]];
        double *v = &values[members[i]];
        *v = fmin(fmax(add ? *v + spread : *v * exp(spread), def->low), def->high);
    }
}

void tess__interval_vary(tess_sim *sim)
{
    const int i = sim->varied - 1;
    if (i < 0)
        return;
    memcpy(sim->own_hw, sim->hw, sizeof sim->own_hw);
    memcpy(sim->own_era, sim->era, sizeof sim->own_era);
    if (i == TESS__IN_POWER && sim->own_hw[TESS__HW_POWER_LIMIT] == 0.0)
        sim->own_hw[TESS__HW_POWER_LIMIT] = sim->own_hw[TESS__HW_POWER_WATTS];
    change(inputs[i].hw, tess__hw_defs, inputs[i].add, sim->variation, sim->own_hw);
    change(inputs[i].era, tess__era_defs, inputs[i].add, sim->variation, sim->own_era);
    sim->hw = sim->own_hw;
    sim->era = sim->own_era;
}
