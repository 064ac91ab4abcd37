/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h (internal) - what a training job costs: parameters, operations, schedule, memory.
 *
 * What lives here: the way from a scenario to the time and memory of a step. What comes in: a
 * scenario, a cluster, parameters. What goes out: a result, and the operations it is the sum of.
 * Everything is a pure function of these; a run allocates nothing.
 */
#ifndef TESS_SIM_H
#define TESS_SIM_H

#include "base/base.h"
#include "cost/cost.h"
#include "tessera/sim.h"

/* ---- params.c: the numbers, found by place and not by name ----------------------------------- */

/* Of a kind of GPU. */
enum {
    TESS__HW_SMS,
    TESS__HW_GEMM_SHARE, /* of the peak, of a GEMM that fills the GPU */
    TESS__HW_GEMM_DEPTH, /* k at which a tile reaches half of that */
    TESS__HW_GEMM_WAVE,  /* share of the idle part of the last wave that is paid */
    TESS__HW_TILE_128,   /* rate of smaller tiles relative to 256 x 128 */
    TESS__HW_TILE_64,
    TESS__HW_TILE_32,
    TESS__HW_GEMM_WEIGHT, /* time of a weight gradient relative to a product of its shape */
    TESS__HW_GEMM_FP32,   /* share of the fp32 peak; TF32 is not used */
    TESS__HW_GEMM_FP8,    /* share of the fp8 peak */
    TESS__HW_BMM_SHARE,   /* of the peak, of batched products in attention without flash */
    TESS__HW_FLASH_FORWARD,
    TESS__HW_FLASH_BACKWARD,
    TESS__HW_FLASH_KEYS,   /* keys in whose time a query row is opened and closed */
    TESS__HW_MEMORY_SHARE, /* of the memory bandwidth, of elementwise kernels */
    TESS__HW_KERNEL_US,    /* start and end of one kernel */
    TESS__HW_RESERVED_GIB, /* context, libraries, communication buffers */
    TESS__HW_COUNT
};

/* Of the software that trains. */
enum {
    TESS__ERA_HOST_FORWARD_US, /* host time of a layer: the GPU cannot go faster */
    TESS__ERA_HOST_BACKWARD_US,
    TESS__ERA_HOST_STEP_MS,  /* host time of a step outside layers and optimiser */
    TESS__ERA_HOST_BATCH_MS, /* and of a micro-batch */
    TESS__ERA_ATTENTION,     /* a value of enum TESS_SIM_FLASH.. */
    TESS__ERA_FLASH,         /* speed of its flash kernels relative to today's */
    TESS__ERA_DROPOUT,       /* 1: dropout is on */
    TESS__ERA_GRAD_BYTES,
    TESS__ERA_TP_EXPOSED, /* share of tensor-parallel communication that is waited for */
    TESS__ERA_CP_EXPOSED, /* of what attention does not hide */
    TESS__ERA_EP_EXPOSED,
    TESS__ERA_PP_EXPOSED,
    TESS__ERA_DP_HIDDEN,     /* share of a backward pass that gradients can hide behind */
    TESS__ERA_DP_FORWARD,    /* the same of a forward pass, for gathered weights */
    TESS__ERA_NETWORK_SHARE, /* of what the collective model says, for gradients */
    TESS__ERA_OVERLAP_SLOW,  /* compute beside communication takes that much longer */
    TESS__ERA_PP_SPLIT,      /* 1: activations are sent split over tensor-parallel ranks */
    TESS__ERA_OPT_BYTES,     /* memory traffic of the optimiser for a parameter */
    TESS__ERA_OPT_MS,        /* its fixed part */
    TESS__ERA_FUSED,         /* 1: norms, rotary and activations are fused kernels */
    TESS__ERA_WEIGHT_DUMMY,  /* 1: a buffer of the largest weight gradient is held */
    TESS__ERA_FP8_CAST,      /* passes over an operand to cast it to 8 bits */
    TESS__ERA_STRAGGLE,      /* step time grows by this for each doubling of nodes */
    TESS__ERA_COUNT
};

typedef struct {
    const char *name, *unit;
    double low, high, usual; /* usual: where neither a file nor `like` says anything */
} tess__param_def;

extern const tess__param_def tess__hw_defs[TESS__HW_COUNT];
extern const tess__param_def tess__era_defs[TESS__ERA_COUNT];

enum { TESS__GPU_NAMES = 8, TESS__VALUES_MAX = 48 };

/* A kind of hardware, or an era. */
typedef struct {
    const char *name, *about;
    const char *gpus[TESS__GPU_NAMES]; /* beginnings of names of GPUs; hardware only */
    int n_gpus;
    double value[TESS__VALUES_MAX];
    const char *origin[TESS__VALUES_MAX];
} tess__param_set;

typedef struct {
    const char *owner; /* "selene megatron-2022" */
    const char *system, *origin;
    int era;
    double value;
} tess__scalar;

struct tess_sim_params {
    tess_ctx *ctx;
    tess__arena arena;
    const char *name;
    tess__param_set *hardware, *eras;
    tess__scalar *scalars;
    int n_hardware, n_eras, n_scalars;
    int default_era;
};

extern const tess__shipped tess__shipped_simulator[];
extern const int tess__n_shipped_simulator;

/* params_read.c */
tess_status tess__params_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_sim_params **params);

/* The set for a GPU's name; EINVAL names the ones there are. */
tess_status tess__params_hardware(const tess_sim_params *params, const char *gpu,
                                  const tess__param_set **set);
/* The number of an era; "" is the default. EINVAL with the nearest name. */
tess_status tess__params_era(const tess_sim_params *params, const char *name, int *era);
/* Of (system, era), or 1. */
double tess__params_scalar(const tess_sim_params *params, const char *system, int era);

#endif
