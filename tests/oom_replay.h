/* SPDX-License-Identifier: Apache-2.0 */
/* oom_replay.h - scenarios of test_oom.c: slowdowns fitted, traces of ranks together. */
#ifndef TESS_OOM_REPLAY_H
#define TESS_OOM_REPLAY_H

#include "tessera/advanced/replay.h"

/* A table of kernels, and the traces of two ranks. */
static inline void make_replay_files(void)
{
    FILE *csv = fopen(in_folder("kernels.csv"), "w");
    assert_non_null(csv);
    fputs("gpu,kernel,isolated_ns,overlapped_ns,overlap_ratio\n", csv);
    for (int i = 0; i < 6; i++)
        fprintf(csv, "A100,kernel_%d,1000,%d,1\n", i / 2, 1000 + 10 * i);
    fclose(csv);
    FILE *ours = fopen(in_folder("rank0.json"), "w");
    assert_non_null(ours);
    fputs("{\"otherData\": {\"tessera_trace\": 1, \"rank\": 0, \"ranks\": 2}, \"traceEvents\": [\n"
          "{\"ph\": \"X\", \"args\": {\"op\": \"sum\", \"traffic\": \"payload\", \"group\": [0, 2, "
          "1], \"sent\": 4000, \"received\": 4000, \"peer\": 1, \"compute_ns\": 100}}]}",
          ours);
    fclose(ours);
    FILE *kineto = fopen(in_folder("rank1.json"), "w");
    assert_non_null(kineto);
    fputs("{\"distributedInfo\": {\"rank\": 1}, \"traceEvents\": [\n"
          "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, "
          "\"ts\": 1, \"dur\": 5, \"args\": {\"device\": 0, \"stream\": 7}},\n"
          "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_Reduce\", \"pid\": 0, "
          "\"tid\": 9, \"ts\": 7, \"dur\": 5, \"args\": {\"device\": 0, \"stream\": 9, "
          "\"Collective name\": \"reduce\", \"In msg nelems\": 9, \"Out msg nelems\": 9, "
          "\"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\"}}]}",
          kineto);
    fclose(kineto);
}

static inline tess_status s_calibrate_overlap(world *w)
{
    const char *const tables[] = {in_folder("kernels.csv")};
    tess_calibration *k = NULL;
    const tess_status status = tess_calibration_run(
        w->ctx,
        &(tess_calibration_opts){
            .tables = tables, .n_tables = 1, .quantity = TESS_QUANTITY_OVERLAP, .leave_one_out = 1},
        &k);
    tess_calibration_destroy(k);
    return status;
}

static inline tess_status s_replay_ranks(world *w)
{
    char first[256];
    snprintf(first, sizeof first, "%s", in_folder("rank0.json"));
    const char *const files[] = {first, in_folder("rank1.json")};
    tess_cluster *cluster = NULL;
    tess_replay *replay = NULL;
    tess_status status = tess_cluster_load(w->ctx, "a100-80", &cluster);
    if (status == TESS_OK)
        status = tess_replay_run(w->ctx, files, 2, cluster, NULL, &replay);
    tess_replay_destroy(replay);
    tess_cluster_destroy(cluster);
    return status;
}

#endif
