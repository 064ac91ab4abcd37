/* SPDX-License-Identifier: Apache-2.0 */
/* sim_round.h - a simulator on a GPU of round numbers, for values computed by hand: 100 TFLOP/s,
 * 1 TB/s, 10 units, every share 1 and no overheads; nodes of 8 GPUs. */
#ifndef TESS_SIM_ROUND_H
#define TESS_SIM_ROUND_H

#include "test.h"

#include "sim/sim_internal.h"

static const char params_text[] =
    "{\"schema\": 1, \"default_era\": \"plain\", \"hardware\": {\"g\": {\"gpus\": [\"G\"], "
    "\"values\": {\n"
    "\"sms\": [10, \"round\"], \"gemm_share\": [1, \"round\"], \"gemm_depth\": [0, \"round\"],\n"
    "\"gemm_wave\": [1, \"round\"], \"tile_128\": [1, \"round\"], \"tile_64\": [1, \"round\"],\n"
    "\"tile_32\": [1, \"round\"], \"gemm_weight\": [1, \"round\"], \"gemm_fp32\": [1, \"round\"],\n"
    "\"gemm_fp8\": [1, \"round\"], \"flash_forward\": [0.5, \"round\"],\n"
    "\"flash_backward\": [0.25, \"round\"], \"flash_keys\": [0, \"round\"],\n"
    "\"memory_share\": [1, \"round\"], \"kernel_us\": [0, \"round\"],\n"
    "\"reserved_gib\": [0, \"round\"]}}},\n"
    "\"eras\": {\"plain\": {\"values\": {\"host_forward_us\": [0, \"round\"],\n"
    " \"host_backward_us\": [0, \"round\"], \"opt_bytes\": [10, \"round\"],\n"
    " \"fp8_cast\": [0, \"round\"]}},\n"
    " \"eager\": {\"like\": \"plain\", \"values\": {\"host_forward_us\": [1000, \"round\"],\n"
    "  \"host_power\": [64, \"round\"]}},\n"
    " \"fused\": {\"like\": \"plain\", \"values\": {\"attention\": [2, \"round\"]}}},\n"
    "\"scalars\": [{\"system\": \"slow\", \"era\": \"plain\", \"value\": 1.5, \"origin\": "
    "\"round\"}]}";

static const char cluster_text[] =
    "{\"schema\": 1, \"about\": \"round numbers\",\n"
    " \"gpu\": {\"name\": \"G\", \"peak_tflops\": {\"bf16\": 100, \"fp32\": 50, \"fp8\": 200},\n"
    "  \"memory_gib\": 2, \"memory_gbytes_per_s\": 1000, \"origin\": \"none\"},\n"
    " \"node\": {\"gpus\": 8, \"link\": {\"name\": \"L\", \"gbytes_per_s\": 200,\n"
    "  \"latency_us\": 1, \"efficiency\": 0.5, \"origin\": \"none\"}},\n"
    " \"launch\": {\"us\": 3, \"origin\": \"none\"},\n"
    " \"attention\": {\"forward\": 0.5, \"backward\": 0.25, \"sparse\": 0.5, \"row_keys\": 100,\n"
    "  \"origin\": \"none\"}}\n";

static tess_ctx *ctx;
static tess_sim_params *params;
static tess_cluster *cluster;
static tess_sim *sim;

static inline int make(void **state)
{
    (void)state;
    return tess_ctx_create(NULL, &ctx) != TESS_OK ||
           tess__params_parse(ctx, "p", params_text, strlen(params_text), &params) != TESS_OK ||
           tess__cluster_parse(ctx, "c", cluster_text, strlen(cluster_text), &cluster) != TESS_OK ||
           tess_sim_create(ctx, params, &sim) != TESS_OK;
}

static inline int drop(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_sim_destroy(sim);
    tess_cluster_destroy(cluster);
    tess_sim_params_destroy(params);
    const int leak = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return leak;
}

/* One layer of 1024 columns in 8 heads, 1024 tokens, flash attention, GELU. */
static inline tess_scenario layer(void)
{
    return (tess_scenario){.model = {.layers = 1, .hidden = 1024, .heads = 8, .seq = 1024}};
}

static inline tess_sim_result run(const tess_scenario *s)
{
    tess_sim_result r;
    CHECK_OK(tess_sim_run(sim, cluster, s, &r));
    return r;
}

static inline tess_sim_op find(const char *name, const char *pass)
{
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.name, name) == 0 && strcmp(op.pass, pass) == 0)
            return op;
    }
    fail_msg("no operation %s %s", name, pass);
    return (tess_sim_op){0};
}

static inline void check_us(double seconds, double us)
{
    if (fabs(seconds * 1e6 - us) > 1e-6 * us + 1e-9)
        fail_msg("%.9g us, must be %.9g", seconds * 1e6, us);
}

#endif
