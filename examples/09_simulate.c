/* SPDX-License-Identifier: Apache-2.0 */
/* 09_simulate.c - a training job of 128 GPUs, simulated dense and with sparse attention.
 *
 * What it shows: a scenario that is shipped, one of its settings changed, its cluster, the time and
 * the memory of a step.
 *
 *   cc 09_simulate.c $(pkg-config --cflags --libs tessera) && ./a.out
 */
#include <stdio.h>
#include <tessera/tessera.h>

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    tess_ctx *ctx;
    tess_scenario scenario;
    tess_cluster *cluster;
    tess_sim_params *params;
    tess_sim *sim;
    tess_sim_result sparse, dense;
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_scenario_load(ctx, "wan2.1-14b-dsv-128", &scenario));
    TRY(tess_cluster_load(ctx, scenario.system.cluster, &cluster));
    TRY(tess_sim_params_load(ctx, NULL, &params)); /* the shipped ones */
    TRY(tess_sim_create(ctx, params, &sim));

    TRY(tess_sim_run(sim, cluster, &scenario, &sparse));
    TRY(tess_scenario_set(ctx, &scenario, "model.density", "1"));
    TRY(tess_sim_run(sim, cluster, &scenario, &dense));
    printf("a step of %lld micro-batches: %.2f s dense, %.2f s sparse\n",
           (long long)sparse.micro_batches, dense.step_s, sparse.step_s);
    printf("%.1f of %.1f GiB of a GPU's memory, most of it %s\n", sparse.memory.peak / 1073741824.0,
           sparse.memory.capacity / 1073741824.0, sparse.memory.largest);
    tess_sim_destroy(sim);
    tess_sim_params_destroy(params);
    tess_cluster_destroy(cluster);
    tess_ctx_destroy(ctx);
    return !(sparse.step_s > 0.0 && sparse.step_s < dense.step_s);
}
