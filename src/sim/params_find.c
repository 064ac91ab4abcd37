/* SPDX-License-Identifier: Apache-2.0 */
/* params_find.c - the parameters of the simulator: their definitions and lookup.
 *
 * A parameter belongs to a kind of hardware or to a software era, never to a model or a row of a
 * table; besides, a (system, era) may have one scalar. docs/simulator.md says what each one means.
 * Index order of the public calls: hardware sets, eras, scalars, each in the order of the file.
 */
#include "sim_internal.h"

#include "tessera/advanced/nearest.h"

#include <math.h>
#include <string.h>

const tess__param_def tess__hw_defs[TESS__HW_COUNT] = {
    [TESS__HW_SMS] = {"sms", "", 1, 1000, 132},
    [TESS__HW_GEMM_SHARE] = {"gemm_share", "of the peak", 0.05, 1, 0.75},
    [TESS__HW_GEMM_DEPTH] = {"gemm_depth", "elements", 0, 10000, 133},
    [TESS__HW_GEMM_WAVE] = {"gemm_wave", "", 0, 1, 0.54},
    [TESS__HW_TILE_128] = {"tile_128", "of 256 x 128", 0.05, 1, 0.93},
    [TESS__HW_TILE_64] = {"tile_64", "of 256 x 128", 0.05, 1, 0.75},
    [TESS__HW_TILE_32] = {"tile_32", "of 256 x 128", 0.05, 1, 0.55},
    [TESS__HW_GEMM_WEIGHT] = {"gemm_weight", "", 0.5, 3, 1.05},
    [TESS__HW_GEMM_FP32] = {"gemm_fp32", "of the peak", 0.05, 1, 0.8},
    [TESS__HW_GEMM_DEPTH_FP8] = {"gemm_depth_fp8", "elements", 0, 10000, 133},
    [TESS__HW_GEMM_FP8] = {"gemm_fp8", "of the peak", 0.05, 1, 0.66},
    [TESS__HW_BMM_SHARE] = {"bmm_share", "of plain products", 0.05, 2, 1},
    [TESS__HW_BMM_ODD] = {"bmm_odd", "of plain products", 0.05, 1, 0.5},
    [TESS__HW_FLASH_FORWARD] = {"flash_forward", "of the peak", 0.01, 1, 0.52},
    [TESS__HW_FLASH_BACKWARD] = {"flash_backward", "of the peak", 0.01, 1, 0.38},
    [TESS__HW_FLASH_DIM] = {"flash_dim", "elements", 0, 1000, 0},
    [TESS__HW_FLASH_UNEVEN] = {"flash_uneven", "", 0.1, 1.5, 0.85},
    [TESS__HW_FLASH_WAVE] = {"flash_wave", "waves", 0, 10, 0},
    [TESS__HW_FLASH_KEYS] = {"flash_keys", "keys", 0, 10000, 300},
    [TESS__HW_MEMORY_SHARE] = {"memory_share", "of the bandwidth", 0.05, 1, 0.8},
    [TESS__HW_KERNEL_US] = {"kernel_us", "us", 0, 100, 3},
    [TESS__HW_RESERVED_GIB] = {"reserved_gib", "GiB", 0, 64, 5},
    [TESS__HW_POWER_WATTS] = {"power_watts", "W", 0, 1e4, 0},
    [TESS__HW_POWER_LIMIT] = {"power_limit", "W", 0, 1e4, 0},
    [TESS__HW_POWER_IDLE] = {"power_idle", "of power_watts", 0, 0.9, 0.15},
    [TESS__HW_POWER_EXPONENT] = {"power_exponent", "", 1, 4, 2},
    [TESS__HW_VAE_TFLOPS] = {"vae_tflops", "TFLOP/s", 0.1, 1e5, 40},
};

const tess__param_def tess__era_defs[TESS__ERA_COUNT] = {
    [TESS__ERA_HOST_FORWARD_US] = {"host_forward_us", "us of a layer", 0, 1e5, 300},
    [TESS__ERA_HOST_BACKWARD_US] = {"host_backward_us", "us of a layer", 0, 1e5, 500},
    [TESS__ERA_HOST_COMM_US] = {"host_comm_us", "us for each doubling of ranks", 0, 1e4, 0},
    [TESS__ERA_HOST_POWER] = {"host_power", "", 1, 64, 8},
    [TESS__ERA_HOST_SYNC_US] = {"host_sync_us", "us of a layer", 0, 1e5, 0},
    [TESS__ERA_HOST_STEP_MS] = {"host_step_ms", "ms", 0, 1e5, 0},
    [TESS__ERA_HOST_BATCH_MS] = {"host_batch_ms", "ms of a micro-batch", 0, 1e4, 0},
    [TESS__ERA_ATTENTION] = {"attention", "1 flash, 2 fused softmax, 3 unfused", 1, 3, 1},
    [TESS__ERA_FLASH] = {"flash", "of today's kernels", 0.1, 2, 1},
    [TESS__ERA_DROPOUT] = {"dropout", "0 or 1", 0, 1, 0},
    [TESS__ERA_GRAD_BYTES] = {"grad_bytes", "bytes", 2, 4, 4},
    [TESS__ERA_TP_EXPOSED] = {"tp_exposed", "share", 0, 1, 1},
    [TESS__ERA_TP_ASYNC] = {"tp_async", "0 or 1", 0, 1, 0},
    [TESS__ERA_CP_EXPOSED] = {"cp_exposed", "share", 0, 1, 1},
    [TESS__ERA_EP_EXPOSED] = {"ep_exposed", "share", 0, 1, 1},
    [TESS__ERA_PP_EXPOSED] = {"pp_exposed", "share", 0, 1, 1},
    [TESS__ERA_DP_HIDDEN] = {"dp_hidden", "of a backward pass", 0, 1, 0},
    [TESS__ERA_DP_FORWARD] = {"dp_forward", "of a forward pass", 0, 1, 0},
    [TESS__ERA_NETWORK_SHARE] = {"network_share", "of the collective's rate", 0.05, 2, 1},
    [TESS__ERA_OVERLAP_SLOW] = {"overlap_slow", "share of the hidden time", 0, 1, 0},
    [TESS__ERA_PP_SPLIT] = {"pp_split", "0 or 1", 0, 1, 0},
    [TESS__ERA_OPT_BYTES] = {"opt_bytes", "bytes of a parameter", 0, 1000, 56},
    [TESS__ERA_GRAD_TRAFFIC] = {"grad_traffic", "bytes of a gradient", 0, 1000, 0},
    [TESS__ERA_OPT_MS] = {"opt_ms", "ms", 0, 1e4, 0},
    [TESS__ERA_LOSS_BYTES] = {"loss_bytes", "bytes of a logit", 0, 1000, 28},
    [TESS__ERA_WEIGHT_DUMMY] = {"weight_dummy", "0 or 1", 0, 1, 0},
    [TESS__ERA_FP8_CAST] = {"fp8_cast", "passes", 0, 10, 1},
    [TESS__ERA_GRAD_COPY] = {"grad_copy", "0 or 1", 0, 1, 0},
    [TESS__ERA_PP_BUFFERS] = {"pp_buffers", "of a micro-batch", 0, 16, 0},
    [TESS__ERA_RESERVED_GIB] = {"reserved_more_gib", "GiB", 0, 64, 0},
    [TESS__ERA_STRAGGLE] = {"straggle", "share for each doubling of nodes", 0, 1, 0},
    [TESS__ERA_SPREAD] = {"spread", "of the mean speed", 0, 0.2, 0},
    [TESS__ERA_NETWORK_LOSS] = {"network_loss", "share for each doubling of nodes", 0, 4, 0},
    [TESS__ERA_JITTER_MS] = {"jitter_ms", "ms for each doubling of nodes", 0, 1e4, 0},
    [TESS__ERA_DP_CALLS] = {"dp_calls", "of a layer", 0, 1000, 0},
    [TESS__ERA_CP_SLOW] = {"cp_slow", "of attention on one GPU", 0.5, 4, 1},
    [TESS__ERA_AGAIN_GEMM] = {"again_gemm", "share of products", 0, 1, 0},
    [TESS__ERA_AGAIN_KEPT] = {"again_kept", "share of activations", 0, 1, 1},
    [TESS__ERA_LOGIT_BYTES] = {"logit_bytes", "bytes of a logit", 0, 64, 0},
    [TESS__ERA_TP_KEPT] = {"tp_kept", "0 or 1", 0, 1, 0},
    [TESS__ERA_GLU_KEPT] = {"glu_kept", "0 or 1", 0, 1, 0},
    [TESS__ERA_STATE_FP32] = {"state_fp32", "0 or 1", 0, 1, 0},
    [TESS__ERA_FRAGMENT] = {"fragment", "share of allocations", 0, 1, 0},
    [TESS__ERA_GEMM] = {"gemm", "of the hardware's", 0.2, 2, 1},
    [TESS__ERA_ACCUM_BYTES] = {"accum_bytes", "bytes of a parameter", 0, 100, 0},
    [TESS__ERA_PP_BALANCE] = {"pp_balance", "0 or 1", 0, 1, 0},
    [TESS__ERA_PP_ROUNDS] = {"pp_rounds", "of a stage", 0, 1000, 0},
    [TESS__ERA_DIT_BYTES] = {"dit_bytes", "bytes of a token's channel", 0, 10000, 0},
};

_Static_assert((int)TESS__HW_COUNT <= TESS__VALUES_MAX, "a set holds every hardware parameter");
_Static_assert((int)TESS__ERA_COUNT <= TESS__VALUES_MAX, "a set holds every era parameter");

/* ---- finding --------------------------------------------------------------------------------- */

static int names_gpu(const tess__param_set *set, const char *gpu)
{
    for (int k = 0; k < set->n_gpus; k++)
        if (strncmp(gpu, set->gpus[k], strlen(set->gpus[k])) == 0)
            return 1;
    return 0;
}

tess_status tess__params_hardware(const tess_sim_params *params, const char *gpu, double memory,
                                  const tess__param_set **set)
{
    for (int exact = 1; exact >= 0; exact--)
        for (int i = 0; i < params->n_hardware; i++) {
            const tess__param_set *one = &params->hardware[i];
            const double gib = one->memory_gib;
            if ((exact ? gib > 0.0 && fabs(memory / 1073741824.0 - gib) < 1.0 : gib == 0.0) &&
                names_gpu(one, gpu)) {
                *set = one;
                return TESS_OK;
            }
        }
    return tess__invalid(params->name,
                         "no hardware for the GPU \"%.64s\"; add one whose \"gpus\" match", gpu);
}

tess_status tess__params_era(const tess_sim_params *params, const char *name, int *era)
{
    const char *names[64];
    int n = 0;
    for (int i = 0; i < params->n_eras; i++) {
        if (strcmp(name, params->eras[i].name) == 0) {
            *era = i;
            return TESS_OK;
        }
        if (n < 64)
            names[n++] = params->eras[i].name;
    }
    const char *near = tess_nearest(name, names, n);
    return tess__invalid(params->name, "no software \"%.32s\"; did you mean \"%s\"?", name,
                         near ? near : params->eras[params->default_era].name);
}

double tess__params_scalar(const tess_sim_params *params, const char *system, int era)
{
    for (int i = 0; i < params->n_scalars; i++)
        if (params->scalars[i].era == era && strcmp(params->scalars[i].system, system) == 0)
            return params->scalars[i].value;
    return 1.0;
}

/* ---- the list of all ------------------------------------------------------------------------- */

int tess_sim_params_count(const tess_sim_params *params)
{
    return params ? params->n_hardware * TESS__HW_COUNT + params->n_eras * TESS__ERA_COUNT +
                        params->n_scalars + (int)params->overlaps.n
                  : 0;
}

static double *place_overlap(const tess_sim_params *params, tess__overlap_param *p,
                             const tess__param_def **def, tess_sim_param *param)
{
    static const tess__param_def overlap = {"", "of its time alone", 0, TESS__OVERLAP_MAX, 0};
    *def = &overlap;
    *param = (tess_sim_param){.group = "overlap",
                              .owner = params->hardware[p->hardware].name,
                              .name = p->name,
                              .origin = p->origin};
    return &p->value;
}

/* Where parameter `index` is kept, and what it is. */
static double *place(const tess_sim_params *params, int index, const tess__param_def **def,
                     tess_sim_param *param)
{
    const int n_hw = params->n_hardware * TESS__HW_COUNT, n_era = params->n_eras * TESS__ERA_COUNT;
    const int at_overlap = index - n_hw - n_era - params->n_scalars;
    if (at_overlap >= 0)
        return place_overlap(params, &params->overlaps.items[at_overlap], def, param);
    if (index >= n_hw + n_era) {
        tess__scalar *s = &params->scalars[index - n_hw - n_era];
        static const tess__param_def scalar = {"scalar", "", 0.2, 5, 1};
        *def = &scalar;
        *param = (tess_sim_param){.group = "scalar", .owner = s->owner, .origin = s->origin};
        return &s->value;
    }
    const int hardware = index < n_hw;
    const int at = hardware ? index : index - n_hw;
    const int width = hardware ? (int)TESS__HW_COUNT : (int)TESS__ERA_COUNT;
    tess__param_set *set = hardware ? &params->hardware[at / width] : &params->eras[at / width];
    *def = hardware ? &tess__hw_defs[at % width] : &tess__era_defs[at % width];
    *param = (tess_sim_param){.group = hardware ? "hardware" : "era",
                              .owner = set->name,
                              .origin = set->origin[at % width]};
    return &set->value[at % width];
}

static tess_status check_index(const char *who, const tess_sim_params *params, int index)
{
    if (!params)
        return tess__invalid(who, "params is NULL");
    return tess__check_range(who, "index", index, 0, tess_sim_params_count(params) - 1);
}

tess_status tess_sim_params_query(const tess_sim_params *params, int index, tess_sim_param *param)
{
    const tess__param_def *def;
    tess_sim_param found;
    TESS_TRY(check_index(__func__, params, index));
    TESS_REQUIRE(param);
    found.value = 0.0;
    const double value = *place(params, index, &def, &found);
    if (!found.name)
        found.name = def->name;
    found.unit = def->unit;
    found.low = def->low;
    found.high = def->high;
    found.value = value;
    *param = found;
    return TESS_OK;
}

tess_status tess_sim_params_set(tess_sim_params *params, int index, double value)
{
    const tess__param_def *def;
    tess_sim_param found;
    TESS_TRY(check_index(__func__, params, index));
    double *at = place(params, index, &def, &found);
    if (!(value >= def->low && value <= def->high))
        return tess__invalid(__func__, "%s of %s is %g, must be %g..%g",
                             found.name ? found.name : def->name, found.owner, value, def->low,
                             def->high);
    *at = value;
    return TESS_OK;
}

void tess_sim_params_destroy(tess_sim_params *params)
{
    if (!params)
        return;
    tess_ctx *ctx = params->ctx;
    tess__arena_free(&params->arena);
    tess__free(ctx, params->overlaps.items);
    tess__free(ctx, params);
}
