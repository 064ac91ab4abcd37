/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gpu.h - what the files of `tessera gpu` share. */
#ifndef CLI_CMD_GPU_H
#define CLI_CMD_GPU_H

#include "cli.h"
#include "tessera/advanced/gpu.h"

typedef struct {
    common common;
    const char *action, *cache, *dtype;
    int64_t device;
    int64_t check_tokens, check_repeats;
    int64_t tokens, heads, head_dim, group, unit, rank, repeats;
    const char *densities;
    double dense_forward, dense_backward; /* ms; NaN: not given */
    int atomic;
} gpu_values;

/* Device, driver and library as lines, or as members of `object` with --json. */
void gpu_print_device(cli *c, const tess_gpu_info *info, const tess_gpu_check_result *checked);

/* "passed, 46 cases, 4096 keys, 16 runs", or "not checked on this device: tessera gpu check". */
void gpu_outcome(const tess_gpu_check_result *checked, char *text, size_t bytes);
extern const char *const gpu_outcome_names[];

tess_status gpu_check(cli *c, const gpu_values *v, tess_gpu *gpu);
tess_status gpu_bench(cli *c, const gpu_values *v, tess_gpu *gpu);

#endif
