/* SPDX-License-Identifier: Apache-2.0 */
/* job_scale.c - what a job loses with its number of nodes, and to a limit of power.
 *
 *   slowest of n nodes   1 + spread z(n), z(n) the expected largest of n standard normal values
 *   jitter of hosts      jitter_ms log2(n) a step
 *   not measured         exp(loss): what software lost on average whose runs no value was fitted on
 *   clock                ((limit - idle) / (power_watts - idle))^(1 / power_exponent)
 *
 * z(1) = log2(1) = 0: one node loses nothing. What collectives lose is in step.c (network_loss).
 */
#include "sim/sim_internal.h"

#include <math.h>

static double nodes_of(const tess_sim *sim)
{
    return fmax(ceil((double)sim->s.layout.gpus / sim->cluster->node_gpus), 1.0);
}

/* The expected largest of n standard normal values, within 1 % from n = 8 on, 0 of one (Blom's
 * approximation: the quantile of (n - 0.375) / (n + 0.25), by Hastings' formula). */
double tess__largest_of(double n)
{
    if (n < 2.0)
        return 0.0;
    const double t = sqrt(-2.0 * log(1.0 - (n - 0.375) / (n + 0.25)));
    return t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t));
}

/* The scalar of (system, era), stragglers, the slowest of all nodes, and what software loses that
 * was never measured. */
double tess__job_slowness(const tess_sim *sim)
{
    const double nodes = nodes_of(sim);
    const double loss = sim->params->interval.loss.value[sim->software_known];
    return sim->scalar * exp(loss) * (1.0 + sim->era[TESS__ERA_STRAGGLE] * log2(nodes)) *
           (1.0 + sim->era[TESS__ERA_SPREAD] * tess__largest_of(nodes));
}

/* Of a step: host time outside layers, and what waiting for the last of all hosts costs. */
double tess__job_host_step(const tess_sim *sim)
{
    return 1e-3 *
           (sim->era[TESS__ERA_HOST_STEP_MS] + sim->era[TESS__ERA_JITTER_MS] * log2(nodes_of(sim)));
}

/* Power beyond its fixed part grows with the clock's power_exponent-th power. */
double tess__job_clock(const tess_sim *sim)
{
    const double *hw = sim->hw;
    const double full = hw[TESS__HW_POWER_WATTS], fixed = hw[TESS__HW_POWER_IDLE] * full;
    const double limit = sim->cluster->power > 0.0 ? sim->cluster->power : hw[TESS__HW_POWER_LIMIT];
    if (full <= 0.0 || limit <= 0.0 || limit >= full)
        return 1.0;
    return pow(fmax(limit - fixed, 0.05 * full) / (full - fixed),
               1.0 / hw[TESS__HW_POWER_EXPONENT]);
}
