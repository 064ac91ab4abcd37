/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_simulate.h - declarations of `tessera simulate`: cmd_simulate.c runs the scenario,
 * simulate_output.c prints the result, simulate_trace.c does both for a traced rank. */
#ifndef CLI_CMD_SIMULATE_H
#define CLI_CMD_SIMULATE_H

#include "cli.h"
#include "tessera/advanced/sim_detail.h"
#include "tessera/scenario.h"

typedef struct {
    common common;
    const char *scenario, *params, *measured, *density, *method;
    strings set;
    double price, steps;
    int explain;
    const char *trace, *cluster; /* of a traced rank, instead of a scenario */
    double compute_scale;
    int64_t per_node;
} simulate_values;

typedef struct {
    cli *c;
    const simulate_values *given;
    tess_scenario s; /* as given; r.scenario has the defaults */
    tess_sim_params *params;
    tess_cluster *cluster;
    tess_sim *sim;
    tess_sim_measured *measured;
    tess_sim_result r;
} simulate_job;

/* ---- simulate_output.c ----------------------------------------------------------------------- */

tess_status simulate_report(const simulate_job *j);

/* ---- simulate_trace.c ------------------------------------------------------------------------ */

/* The step of a traced rank on a cluster; scale NaN: as recorded; per_node 0: the cluster's. */
tess_status simulate_trace(cli *c, const char *path, const char *cluster, double scale,
                           int64_t per_node);

#endif
