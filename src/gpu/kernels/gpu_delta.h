/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_delta.h - delta of each query, the sum of o dout over its row, less dlse: what
 * gpu_key_blocks.h needs. A warp for each row. */
#include "gpu_gather.h"

#define NAME JOIN(JOIN(JOIN(delta_d, D), _), TYPE)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_DELTA, TYPE, D, 4, 128, 0)
#else
KERNEL(NAME, tess_gpu_delta_args, 128, 8)
{
    const int blocks = (a.tokens_q + 3) / 4, head = BLOCK / blocks, own = BLOCK % blocks * 4 + WARP;
    const int row = min_int(own, a.tokens_q - 1);
    const u32 *const x = (const u32 *)(head_rows(&a.o, a.heads, head) + (i64)row * a.o.s);
    const u32 *const y = (const u32 *)(head_rows(&a.dout, a.heads, head) + (i64)row * a.dout.s);
    const i64 at = (i64)head * a.tokens_q + row;
    float sum = 0.0f;
    FOR (i, D / 64)
        sum += LOW(x[LANE + 32 * i]) * LOW(y[LANE + 32 * i]) +
               HIGH(x[LANE + 32 * i]) * HIGH(y[LANE + 32 * i]);
    for (int mask = 1; mask < 32; mask *= 2)
        sum += SHFL_XOR(sum, mask);
    if (LANE == 0 && own == row)
        a.delta[at] = sum - (a.dlse ? a.dlse[at] : 0.0f);
}
#endif
#undef NAME
