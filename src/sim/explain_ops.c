/* SPDX-License-Identifier: Apache-2.0 */
/* explain_ops.c - the operations of the last run, with their formulas and parameters in words. */
#include "sim_internal.h"

static const char *part_name(const tess_sim *sim, int part)
{
    static const char *const names[TESS__PARTS] = {"layer", "expert layer", "embedding", "head",
                                                   "step"};
    if (sim->s.model.double_layers && part <= TESS__LATER)
        return part == TESS__LAYER ? "layer of two streams" : "layer of one stream";
    return names[part];
}

static const char *const pass_names[TESS__PASSES] = {"forward", "backward", "weight", "again",
                                                     "step"};

static const struct {
    const char *name, *formula;
    int params[3]; /* of the hardware; -1: none */
} kinds[TESS__OP_KINDS] = {
    [TESS__GEMM] = {"gemm",
                    "waves of tiles x 2 tm tn (k + gemm_depth) / (peak gemm_share), at least its "
                    "bytes / memory rate",
                    {TESS__HW_GEMM_SHARE, TESS__HW_GEMM_DEPTH, TESS__HW_GEMM_WAVE}},
    [TESS__FLASH] = {"flash",
                     "heads queries (keys + flash_keys) FLOP of a pair / (peak share)",
                     {TESS__HW_FLASH_FORWARD, TESS__HW_FLASH_BACKWARD, TESS__HW_FLASH_KEYS}},
    [TESS__MEMORY] = {"memory",
                      "bytes / (memory bandwidth memory_share) + kernel_us",
                      {TESS__HW_MEMORY_SHARE, TESS__HW_KERNEL_US, -1}},
    [TESS__COMM] = {"comm", "the collective's time x the share that is waited for", {-1, -1, -1}},
    [TESS__DECODE] = {"decode", "pixels vae_mflop / vae_tflops", {TESS__HW_VAE_TFLOPS, -1, -1}},
    [TESS__ENCODE] = {"encode",
                      "2 parameters tokens / (peak gemm_share), at least their bytes / memory rate",
                      {TESS__HW_GEMM_SHARE, TESS__HW_MEMORY_SHARE, -1}},
    [TESS__WAIT] = {"wait",
                    "passes x relative deviation of clips' times x z(dp) / sqrt(micro-batches); "
                    "with ZeRO-3 the expected longest of dp clips",
                    {-1, -1, -1}},
    [TESS__HOST] = {"host",
                    "(gpu^p + host^p)^(1/p) - gpu, p = host_power, and stops of checkpoints",
                    {-1, -1, -1}},
};

/* The era's parameter behind a class of communication. */
static const int shares[TESS__CLASSES] = {-1,
                                          TESS__ERA_TP_EXPOSED,
                                          TESS__ERA_CP_EXPOSED,
                                          TESS__ERA_EP_EXPOSED,
                                          TESS__ERA_PP_EXPOSED,
                                          TESS__ERA_DP_HIDDEN};

int tess_sim_ops(const tess_sim *sim)
{
    return sim ? sim->n_ops : 0;
}

tess_status tess_sim_op_query(const tess_sim *sim, int index, tess_sim_op *op)
{
    TESS_REQUIRE(sim, op);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, sim->n_ops - 1));
    const tess__op *o = &sim->ops[index];
    const int hw = sim->i_hw * TESS__HW_COUNT;
    const int era = sim->params->n_hardware * TESS__HW_COUNT + sim->i_era * TESS__ERA_COUNT;
    *op = (tess_sim_op){.part = part_name(sim, o->part),
                        .pass = pass_names[o->pass],
                        .name = o->name,
                        .kind = kinds[o->kind].name,
                        .formula = kinds[o->kind].formula,
                        .batch = o->batch,
                        .m = o->m,
                        .n = o->n,
                        .k = o->k,
                        .flop = o->flop,
                        .bytes = o->bytes,
                        .saved = o->saved,
                        .seconds = o->seconds,
                        .hidden_s = o->hidden,
                        .times = o->times,
                        .measured = o->measured};
    for (int i = 0; i < 3; i++)
        op->params[i] = kinds[o->kind].params[i] < 0 ? -1 : hw + kinds[o->kind].params[i];
    op->params[3] = shares[o->class] < 0 ? -1 : era + shares[o->class];
    if (o->kind == TESS__HOST) {
        const int forward = o->pass == TESS__FORWARD;
        op->params[0] = era + (forward ? TESS__ERA_HOST_FORWARD_US : TESS__ERA_HOST_BACKWARD_US);
        op->params[1] = era + TESS__ERA_HOST_COMM_US;
        op->params[2] = era + TESS__ERA_HOST_POWER;
    }
    return TESS_OK;
}
