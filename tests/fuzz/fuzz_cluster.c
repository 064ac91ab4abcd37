/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_cluster.c - any bytes as the description of a cluster: refused with a sentence that names
 * the file, or a cluster on which every time is finite. */
#include "cost/cost_internal.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void use(const tess_cluster *cluster)
{
    const tess_traffic traffic[4] = {{1, 1, 0, 0}, {1 << 30, 1, 0, 0}, {0}, {0, 5, 0, 0}};
    const tess_attn_work work = {.pairs = 1e12, .rows = 1000, .head_dim = 128};
    tess_cluster_info info;
    int64_t ns[4];
    tess_collective_result result;
    MUST(tess_cluster_query(cluster, &info) == TESS_OK);
    MUST(info.node_gpus >= 1 && info.memory > 0 && info.name && info.about && info.network);
    MUST(tess_cost_exchange(cluster, traffic, 4, 2, ns) == TESS_OK);
    MUST(ns[0] >= 0 && ns[1] >= ns[0] && ns[2] == 0);
    const tess_status status = tess_cost_attention(cluster, &work, ns);
    MUST(status == TESS_OK || (status == TESS_ENOTSUP && info.flops_fp32 == 0.0));
    MUST(status != TESS_OK || ns[0] >= 0);
    for (int op = 0; op < TESS_COLLECTIVE_OPS; op++) {
        const tess_collective one = {(tess_collective_op)op, 1 << 20, info.node_gpus, 0, 0};
        MUST(tess_collective_time(cluster, &one, &result) == TESS_OK);
        MUST(result.ns >= 0 && result.algbw >= 0.0 && result.busbw >= 0.0);
        MUST(tess_algorithm_name(result.algorithm) && tess_protocol_name(result.protocol));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess_cluster *cluster = NULL;
    tess_ctx_info left;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__cluster_parse(ctx, "fuzz.json", (const char *)data, size, &cluster);
    if (status == TESS_OK)
        use(cluster);
    else
        MUST(status == TESS_EFORMAT && strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    tess_cluster_destroy(cluster);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
