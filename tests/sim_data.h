/* SPDX-License-Identifier: Apache-2.0 */
/* sim_data.h - what the tests of the simulator share: a simulator, clusters and published models.
 */
#ifndef TESS_SIM_DATA_H
#define TESS_SIM_DATA_H

#include "test.h"

#include "sim/sim_internal.h"

static tess_ctx *ctx;
static tess_sim_params *params;
static tess_sim *sim;

static inline int make_sim(void **state)
{
    (void)state;
    return tess_ctx_create(NULL, &ctx) != TESS_OK ||
           tess_sim_params_load(ctx, NULL, &params) != TESS_OK ||
           tess_sim_create(ctx, params, &sim) != TESS_OK;
}

static inline int drop_sim(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_sim_destroy(sim);
    tess_sim_params_destroy(params);
    const int leak = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return leak;
}

/* A run on a shipped cluster. */
static inline tess_sim_result run_on(const char *name, const tess_scenario *s)
{
    tess_cluster *cluster = NULL;
    tess_sim_result r;
    CHECK_OK(tess_cluster_load(ctx, name, &cluster));
    CHECK_OK(tess_sim_run(sim, cluster, s, &r));
    tess_cluster_destroy(cluster);
    return r;
}

/* GPT as in arXiv:2205.05198, table 3. */
static inline tess_scenario gpt(int layers, int hidden, int heads, int pp)
{
    tess_scenario s = {.model = {.layers = layers,
                                 .hidden = hidden,
                                 .heads = heads,
                                 .vocab = 51200,
                                 .seq = 2048,
                                 .tied = 1,
                                 .learned_positions = 1},
                       .layout = {.tp = 8, .pp = pp},
                       .training = {.micro_batch = 1, .precision = TESS_SIM_FP16}};
    snprintf(s.system.era, sizeof s.system.era, "megatron-2022");
    return s;
}

#endif
