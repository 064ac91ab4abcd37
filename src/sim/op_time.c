/* SPDX-License-Identifier: Apache-2.0 */
/* op_time.c - the time of one operation on one GPU.
 *
 * Products run tile by tile. With tiles of tm x tn,
 *
 *   waves   = batch ceil(m / tm) ceil(n / tn) / sms
 *   paid    = (1 - wave) waves + wave ceil(waves)
 *   seconds = paid sms 2 tm tn k / (peak gemm_share rate) (k + gemm_depth) / k
 *
 * and the library takes the fastest of its tiles; rate is that of smaller tiles, which reuse less.
 * Edges of tiles and the last wave are so paid for, and a short k is slow. No product is faster
 * than its operands can be read and its result written; experts' products, one after the other,
 * take both times, because each is too short to hide its loads. Weight gradients take gemm_weight
 * times as long, because they are added to a matrix of fp32.
 *
 * Flash attention runs at a fraction of the peak; a query row costs flash_keys keys besides its
 * own, and a call with few tiles leaves GPUs' units idle: it costs flash_wave waves of tiles
 * besides. All other operations take their bytes over the memory's bandwidth. Each kernel costs
 * kernel_us.
 */
#include "sim_internal.h"

#include <math.h>

double tess__memory_seconds(const tess_sim *sim, double bytes)
{
    return bytes / (sim->cluster->memory_bandwidth * sim->hw[TESS__HW_MEMORY_SHARE]) +
           sim->hw[TESS__HW_KERNEL_US] * 1e-6;
}

static double peak_of(const tess_sim *sim, int precision, double *share)
{
    const double *hw = sim->hw;
    if (precision == TESS_SIM_FP32) {
        *share = hw[TESS__HW_GEMM_FP32];
        return sim->cluster->flops_fp32;
    }
    if (precision == TESS_SIM_FP8 || precision == TESS_SIM_MXFP8 || precision == TESS_SIM_NVFP4) {
        *share = hw[TESS__HW_GEMM_FP8];
        return sim->cluster->flops_fp8 * (precision == TESS_SIM_NVFP4 ? 2.0 : 1.0);
    }
    *share = hw[TESS__HW_GEMM_SHARE];
    return sim->cluster->flops_bf16;
}

double tess__gemm_seconds(const tess_sim *sim, double batch, double m, double n, double k,
                          int precision, int weight, int grouped)
{
    const double *hw = sim->hw;
    const double sms = hw[TESS__HW_SMS], wave = hw[TESS__HW_GEMM_WAVE];
    const struct {
        double m, n, rate;
    } tiles[] = {{256, 128, 1.0},
                 {128, 256, 1.0},
                 {128, 128, hw[TESS__HW_TILE_128]},
                 {128, 64, hw[TESS__HW_TILE_64]},
                 {64, 128, hw[TESS__HW_TILE_64]},
                 {64, 64, hw[TESS__HW_TILE_32]}};
    double share, best = INFINITY;
    const double peak = peak_of(sim, precision, &share) * sim->clock * sim->era[TESS__ERA_GEMM];
    const double depth =
        hw[precision >= TESS_SIM_FP8 ? TESS__HW_GEMM_DEPTH_FP8 : TESS__HW_GEMM_DEPTH];
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        const double waves = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n) / sms;
        const double paid = (1.0 - wave) * waves + wave * ceil(waves);
        const double flop = 2.0 * tiles[i].m * tiles[i].n * (k + depth);
        best = fmin(best, paid * sms * flop / (peak * share * tiles[i].rate));
    }
    if (weight)
        best *= hw[TESS__HW_GEMM_WEIGHT];
    const double in = precision == TESS_SIM_FP32                                 ? 4.0
                      : precision == TESS_SIM_BF16 || precision == TESS_SIM_FP16 ? 2.0
                                                                                 : 1.0;
    const double out = weight ? 8.0 : precision == TESS_SIM_FP32 ? 4.0 : 2.0;
    const double bytes = batch * (in * (m * k + k * n) + out * m * n);
    const double moved = bytes / (sim->cluster->memory_bandwidth * hw[TESS__HW_MEMORY_SHARE]);
    best = grouped ? best + moved : fmax(best, moved);
    return best + hw[TESS__HW_KERNEL_US] * 1e-6;
}

double tess__flash_flop(double head_dim, double value_dim, int backward)
{
    return backward ? 6.0 * head_dim + 4.0 * value_dim : 2.0 * head_dim + 2.0 * value_dim;
}

double tess__flash_seconds(const tess_sim *sim, double heads, double queries, double keys,
                           double head_dim, double value_dim, int backward)
{
    const double *hw = sim->hw;
    const double share =
        hw[backward ? TESS__HW_FLASH_BACKWARD : TESS__HW_FLASH_FORWARD] * sim->era[TESS__ERA_FLASH];
    const double pair = tess__flash_flop(head_dim, value_dim, backward);
    /* Narrow heads leave more of each tile's time to the softmax. */
    double rate = sim->cluster->flops_bf16 * sim->clock * share * head_dim /
                  (head_dim + hw[TESS__HW_FLASH_DIM]);
    if (head_dim != value_dim)
        rate *= hw[TESS__HW_FLASH_UNEVEN];
    /* Forward a tile is 256 queries; backward there are four times as many. */
    const double tiles = heads * queries / (backward ? 64.0 : 256.0);
    const double partial = 1.0 + hw[TESS__HW_FLASH_WAVE] * hw[TESS__HW_SMS] / fmax(tiles, 1.0);
    const double flop = heads * queries * (keys + hw[TESS__HW_FLASH_KEYS]) * pair;
    return flop * partial / rate + hw[TESS__HW_KERNEL_US] * 1e-6;
}
