/* SPDX-License-Identifier: Apache-2.0 */
/* sim_internal.h - what a training job costs: parameters, operations, schedule, memory.
 *
 * What lives here: the way from a scenario to the time and memory of a step. What comes in: a
 * scenario, a cluster, parameters. What goes out: a result, and the operations it is the sum of.
 * Everything is a pure function of these; a run allocates nothing.
 */
#ifndef TESS_SIM_INTERNAL_H
#define TESS_SIM_INTERNAL_H

#include "base/base_internal.h"
#include "cost/cost_internal.h"
#include "sim/interval/interval_internal.h"
#include "sim/overlap/overlap_internal.h"
#include "tessera/advanced/interval.h"
#include "tessera/advanced/sim_detail.h"
#include "tessera/sim.h"

/* ---- params_find.c: the numbers, found by place and not by name ------------------------------ */

/* Of a kind of GPU. */
enum {
    TESS__HW_SMS,
    TESS__HW_GEMM_SHARE, /* of the peak, of a GEMM that fills the GPU */
    TESS__HW_GEMM_DEPTH, /* k at which a tile reaches half of that */
    TESS__HW_GEMM_WAVE,  /* fraction of the idle part of the last wave that is paid */
    TESS__HW_TILE_128,   /* rate of smaller tiles relative to 256 x 128 */
    TESS__HW_TILE_64,
    TESS__HW_TILE_32,
    TESS__HW_GEMM_WEIGHT,    /* time of a weight gradient relative to a product of its shape */
    TESS__HW_GEMM_FP32,      /* fraction of the fp32 peak; TF32 is not used */
    TESS__HW_GEMM_DEPTH_FP8, /* k at which a tile of 8-bit products reaches half of its rate */
    TESS__HW_GEMM_FP8,       /* fraction of the fp8 peak */
    TESS__HW_BMM_SHARE,      /* rate of batched products in attention, relative to plain ones */
    TESS__HW_BMM_ODD,        /* the same where head_dim is no multiple of 8 */
    TESS__HW_FLASH_FORWARD,
    TESS__HW_FLASH_BACKWARD,
    TESS__HW_FLASH_DIM,      /* head_dim at which half of the rate is reached */
    TESS__HW_FLASH_UNEVEN,   /* rate where queries and values differ in width, relative to others */
    TESS__HW_FLASH_WAVE,     /* fixed cost of a call, in units of the time of a wave of tiles */
    TESS__HW_FLASH_KEYS,     /* fixed cost of a query row, in units of the time of a key */
    TESS__HW_MEMORY_SHARE,   /* of the memory bandwidth, of elementwise kernels */
    TESS__HW_KERNEL_US,      /* start and end of one kernel */
    TESS__HW_RESERVED_GIB,   /* context, libraries, communication buffers */
    TESS__HW_POWER_WATTS,    /* at which the other parameters were found */
    TESS__HW_POWER_LIMIT,    /* of a board whose cluster file states none; 0: power_watts */
    TESS__HW_POWER_IDLE,     /* share of power_watts that does not depend on the clock */
    TESS__HW_POWER_EXPONENT, /* of the clock, in the rest of the power */
    TESS__HW_VAE_TFLOPS,     /* of the convolutions of a video autoencoder */
    TESS__HW_COUNT
};

/* Of the software that trains. */
enum {
    TESS__ERA_HOST_FORWARD_US, /* host time of a layer: the GPU cannot go faster */
    TESS__ERA_HOST_BACKWARD_US,
    TESS__ERA_HOST_COMM_US,  /* and of a collective, for each doubling of its ranks */
    TESS__ERA_HOST_POWER,    /* p of (gpu^p + host^p)^(1/p): how well one runs ahead of the other */
    TESS__ERA_HOST_SYNC_US,  /* of a layer that runs again: how long its checkpoint stops the GPU */
    TESS__ERA_HOST_STEP_MS,  /* host time of a step outside layers and optimiser */
    TESS__ERA_HOST_BATCH_MS, /* and of a micro-batch */
    TESS__ERA_ATTENTION,     /* a value of enum TESS_SIM_FLASH.. */
    TESS__ERA_FLASH,         /* speed of its flash kernels relative to today's */
    TESS__ERA_DROPOUT,       /* 1: dropout is on */
    TESS__ERA_GRAD_BYTES,
    TESS__ERA_TP_EXPOSED, /* fraction of tensor-parallel communication that is waited for */
    TESS__ERA_TP_ASYNC,   /* 1: gradients are reduced while weight gradients are computed */
    TESS__ERA_CP_EXPOSED, /* of what attention does not hide */
    TESS__ERA_EP_EXPOSED,
    TESS__ERA_PP_EXPOSED,
    TESS__ERA_DP_HIDDEN,     /* fraction of a backward pass that gradients can hide behind */
    TESS__ERA_DP_FORWARD,    /* the same of a forward pass, for gathered weights */
    TESS__ERA_NETWORK_SHARE, /* of what the collective model says, for gradients */
    TESS__ERA_OVERLAP_SLOW,  /* compute beside communication takes that much longer */
    TESS__ERA_PP_SPLIT,      /* 1: activations are sent split over tensor-parallel ranks */
    TESS__ERA_OPT_BYTES,     /* memory traffic of the optimiser for a parameter */
    TESS__ERA_GRAD_TRAFFIC,  /* and to clear, scale and measure a gradient before it is split */
    TESS__ERA_OPT_MS,        /* its fixed part */
    TESS__ERA_LOSS_BYTES,    /* memory traffic of the loss for a logit, both passes */
    TESS__ERA_WEIGHT_DUMMY,  /* 1: a dummy gradient of each shape of weights is held */
    TESS__ERA_FP8_CAST,      /* passes over an operand to cast it to 8 bits */
    TESS__ERA_GRAD_COPY,     /* 1: gradients in fp32 stand beside those of the element type */
    TESS__ERA_PP_BUFFERS,    /* inputs and outputs of a stage that a micro-batch in flight holds */
    TESS__ERA_RESERVED_GIB,  /* memory that fragments and libraries take besides the hardware's */
    TESS__ERA_STRAGGLE,      /* step time grows by this for each doubling of nodes */
    TESS__ERA_SPREAD, /* standard deviation of the speed of nodes: the slowest one sets the pace */
    TESS__ERA_NETWORK_LOSS, /* data-parallel collectives: growth for each doubling of nodes */
    TESS__ERA_JITTER_MS,    /* of a step, for each doubling of nodes */
    TESS__ERA_DP_CALLS,     /* collectives of a layer for gradients and weights; 0: one for all */
    TESS__ERA_CP_SLOW,      /* time of attention in a ring relative to attention of one GPU */
    TESS__ERA_AGAIN_GEMM,   /* share of products that selective recomputation repeats; 0: none */
    TESS__ERA_AGAIN_KEPT,   /* and of activations that it keeps */
    TESS__ERA_LOGIT_BYTES,  /* held for a logit at the peak; 0: by loss_bytes */
    TESS__ERA_TP_KEPT,      /* 1: inputs that tensor parallelism gathers are kept */
    TESS__ERA_GLU_KEPT,     /* 1: a gated MLP keeps the result of its activation besides */
    TESS__ERA_STATE_FP32,   /* 1: weights and gradients are kept in fp32 and cast when gathered */
    TESS__ERA_FRAGMENT,     /* share of allocations that the allocator reserves besides */
    TESS__ERA_GEMM,         /* speed of its products relative to the hardware's */
    TESS__ERA_ACCUM_BYTES,  /* traffic to add up a gradient, of a parameter and micro-batch */
    TESS__ERA_PP_BALANCE,   /* 1: layers are split by cost, the LM head counted */
    TESS__ERA_PP_ROUNDS, /* micro-batches of a pipeline for each stage; 0: as the scenario says */
    TESS__ERA_DIT_BYTES, /* what eager elementwise kernels of a DiT's layer move besides */
    TESS__ERA_COUNT
};

typedef struct {
    const char *name, *unit;
    double low, high, usual; /* usual: where neither a file nor `like` says anything */
} tess__param_def;

extern const tess__param_def tess__hw_defs[TESS__HW_COUNT];
extern const tess__param_def tess__era_defs[TESS__ERA_COUNT];

enum { TESS__GPU_NAMES = 8, TESS__MATCHES = 8, TESS__VALUES_MAX = 64 };

/* A kind of hardware, or a software profile. */
typedef struct {
    const char *name, *about;
    const char *framework, *version;  /* of software: "torchtitan", "2024"; "" where not given */
    const char *launch;               /* eager, compiled or graphs */
    const char *from;                 /* "2024-10": not older */
    const char *match[TESS__MATCHES]; /* patterns of a source that used it */
    int n_match;
    int n_measured;                    /* sources whose runs its values were fitted on */
    uint64_t defaults;                 /* bits of the hardware whose default it is */
    int samples;                       /* 1: of sampling, not of training */
    const char *gpus[TESS__GPU_NAMES]; /* beginnings of names of GPUs; hardware only */
    int n_gpus;
    double memory_gib; /* of these GPUs; 0: any */
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
    tess__overlap_list overlaps;
    tess__interval_params interval;
    int n_hardware, n_eras, n_scalars;
    int default_era;
};

extern const tess__shipped tess__shipped_simulator[];
extern const int tess__n_shipped_simulator;

/* params_read.c */
tess_status tess__params_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_sim_params **params);

/* engine.c: finds the parameters of the cluster's GPU, and of the era and system of sim->s.
 * ENOTSUP: the cluster lacks a peak or a network that sim->s needs. */
tess_status tess__sim_find_params(tess_sim *sim, const tess_cluster *cluster);

/* The set for a GPU's name and bytes of memory: the first that names both, else the first that
 * names the GPU alone. EINVAL: there is none. */
tess_status tess__params_hardware(const tess_sim_params *params, const char *gpu, double memory,
                                  const tess__param_set **set);
/* The number of a software profile. EINVAL with the nearest name. */
tess_status tess__params_era(const tess_sim_params *params, const char *name, int *era);

/* software.c: the profile of a job that names none, by its hardware and date ("2024-06", or ""). */
int tess__software_default(const tess_sim_params *params, int hardware, const char *date);
int tess__software_sampling(const tess_sim_params *params); /* where clips are sampled */
/* The profile whose pattern fits a text that says where a run comes from; -1: none. */
int tess__software_of(const tess_sim_params *params, const char *text);
/* Of (system, era), or 1. */
double tess__params_scalar(const tess_sim_params *params, const char *system, int era);

/* ---- operations ------------------------------------------------------------------------------ */

enum {
    TESS__GEMM,
    TESS__FLASH,
    TESS__MEMORY,
    TESS__COMM,
    TESS__HOST,
    TESS__DECODE,
    TESS__ENCODE,
    TESS__WAIT,
    TESS__OP_KINDS
};
enum { TESS__FORWARD, TESS__BACKWARD, TESS__WEIGHT, TESS__AGAIN, TESS__STEP, TESS__PASSES };
/* LATER: layers of the second kind, with experts, or of one stream after those of two. */
enum { TESS__LAYER, TESS__LATER, TESS__EMBED, TESS__HEAD, TESS__WHOLE, TESS__PARTS };
enum { TESS__COMPUTE, TESS__TP, TESS__CP, TESS__EP, TESS__PP, TESS__DP, TESS__CLASSES };

typedef struct {
    const char *name;
    int kind, pass, part, class;
    int again;             /* bits of TESS_SIM_AGAIN_: modules with which it runs again */
    int freed;             /* and with which what it keeps is dropped */
    double batch, m, n, k; /* of a product; of flash attention: heads, queries, keys, head_dim */
    double flop, bytes;
    double saved;           /* bytes held for the backward pass */
    double seconds, hidden; /* waited for; not waited for */
    double share;           /* of the micro-batches that run it */
    double times;           /* in a step, on the slowest stage */
    int measured;
} tess__op;

enum { TESS__OPS_MAX = 2400, TESS__STAGES_MAX = 4096 };

/* Sums of a part, of one micro-batch. */
typedef struct {
    double pass[TESS__PASSES];              /* seconds, the host's floor included */
    double of[TESS__CLASSES][TESS__PASSES]; /* the same by class */
    double host[TESS__PASSES];
    double saved, saved_input, working;
    double saved_dropped;  /* of saved, what modules that run again do not keep */
    double results;        /* kept where recomputation goes operation by operation */
    double weights;        /* parameters of this rank */
    double expert_weights; /* the part in experts */
    double trained;        /* of these, those that have gradients */
    double expert_trained;
} tess__model_part;

struct tess_sim {
    tess_ctx *ctx;
    const tess_sim_params *params;
    const tess_sim_measured *measured; /* NULL: none */
    tess_scenario s;
    const tess_cluster_info *cluster;
    const double *hw, *era;
    int i_hw, i_era;
    double scalar;
    double clock;       /* under the power limit, relative to that of power_watts */
    int software_known; /* 1: the scenario names it, and its runs were measured */

    /* One input other than it is, for an interval. */
    int varied; /* its number + 1; 0: none */
    double variation;
    double own_hw[TESS__HW_COUNT], own_era[TESS__ERA_COUNT];

    /* Of a micro-batch on one rank. */
    int clip_first;        /* operations from here on are of the size that is being described */
    double clip_share;     /* of it, of the micro-batches */
    double clip_deviation; /* of the times of all sizes, relative to their mean */
    double clip_longest;   /* how much longer the longest takes, in the same way */
    double clip_drawn;     /* and the expected longest of all data-parallel ranks */
    double attended;       /* tokens that a token attends to on average, were none masked */
    double tokens;         /* where all hidden columns are whole */
    double rows;           /* the same, split by sequence parallelism */
    int adapted;    /* 1: the linear layers that are added have adapters, where there are any */
    int reads;      /* modules whose result is the input of the linear layers that are added */
    double prompt;  /* of tokens, those of the prompt, where the layer has two streams */
    double element; /* bytes of an activation */
    double dropout;
    int attention;
    int64_t batches; /* micro-batches of a rank */

    tess__model_part parts[TESS__PARTS];
    int part; /* that operations are added to */
    tess__op ops[TESS__OPS_MAX];
    int n_ops;
    int n_part_ops; /* those of layers, embedding and LM head: the first ones */

    int layers[TESS__STAGES_MAX], later[TESS__STAGES_MAX]; /* layers of a stage, by kind */
    double forward[TESS__STAGES_MAX], backward[TESS__STAGES_MAX];
    double weight;   /* mean of a stage's weight gradients, inside backward */
    double hop;      /* from a stage to the next */
    double slow;     /* by which all takes longer: the scalar of (system, era), stragglers */
    double dp_calls; /* collectives of a stage's gradients; below 1: one */

    const tess_schedule *schedule; /* of tess_sim_use_schedule; NULL: none */
    void *replay;                  /* what its replay needs */
};

/* ---- engine.c: a run in two halves, for a search that needs the first of most scenarios ------ */

/* Operations and seconds of every stage of a scenario whose defaults are filled in; then
 * tess__memory_of and tess__sim_bound may be asked. same_parts: layers, embedding and LM head are
 * those of the run before. Errors as of tess_sim_run. */
tess_status tess__sim_prepare(tess_sim *sim, const tess_cluster *cluster, const tess_scenario *full,
                              int same_parts);

/* What follows from a filled-in scenario alone: tokens, bytes, micro-batches. */
void tess__sim_derive(tess_sim *sim);

/* Seconds below which the step cannot be: the passes of the slowest stage without a pause. */
double tess__sim_bound(const tess_sim *sim);

/* ---- interval/interval_bounds.c -------------------------------------------------------------- */

/* The interval of the memory that the last run was found to need, and what it says of a limit. */
void tess__interval_memory(const tess_sim *sim, const tess_sim_memory *m, double *low,
                           double *high);
tess_fit tess__fit_of(double low, double high, double limit);

/* ---- interval/interval_vary.c ---------------------------------------------------------------- */

/* Gives the run hw and era of its own, in which sim->varied is changed. */
void tess__interval_vary(tess_sim *sim);

/* ---- job_scale.c: what depends on the number of nodes, and on power -------------------------- */

/* The expected largest of n standard normal values. */
double tess__largest_of(double n);
double tess__job_slowness(const tess_sim *sim);  /* by which all takes longer */
double tess__job_host_step(const tess_sim *sim); /* seconds of the hosts in a step */
double tess__job_clock(const tess_sim *sim);     /* under the power limit, relative to none */

/* ---- replicas.c: which ranks split state, and which hold copies of it ------------------------ */

typedef struct {
    int n, stride;
} tess__shard_ranks;

/* Ranks that hold the same weights of a layer, or of its experts; ranks that split the state of one
 * replica; ranks of different replicas that hold the same part. */
enum { TESS__SAME_WEIGHTS, TESS__SHARD, TESS__REPLICAS };
tess__shard_ranks tess__shard_group(const tess_sim *sim, int which, int experts);

/* ---- stage_layers.c -------------------------------------------------------------------------- */

/* Layers of each stage: as given, even with the remainder to the first stages, or by cost. */
void tess__split_layers(tess_sim *sim);

/* ---- op_time.c ------------------------------------------------------------------------------- */

/* batch products of (m, k) and (k, n); weight: a weight gradient, added to fp32; grouped: of
 * experts, which run one after the other. */
double tess__gemm_seconds(const tess_sim *sim, double batch, double m, double n, double k,
                          int precision, int weight, int grouped);
double tess__memory_seconds(const tess_sim *sim, double bytes);
/* FLOP of a pair of query and key. Forward: q k^T, p v; backward: q k^T again, dv, dp, dq, dk. */
double tess__flash_flop(double head_dim, double value_dim, int backward);

double tess__flash_seconds(const tess_sim *sim, double heads, double queries, double keys,
                           double head_dim, double value_dim, int backward);

/* ---- measured.c ------------------------------------------------------------------------------ */

/* Whether this product was measured on this GPU; *seconds is its time. */
int tess__measured_find(const tess_sim *sim, const tess__op *op, int precision, double *seconds);

/* ---- ops.c: adding operations to the current part -------------------------------------------- */

tess__op *tess__add_memory(tess_sim *sim, const char *name, int pass, double bytes);
tess__op *tess__add_gemm(tess_sim *sim, const char *name, int pass, double batch, double m,
                         double n, double k, int precision);

tess__op *tess__add_flash(tess_sim *sim, const char *name, int pass, double heads, double queries,
                          double keys, double head_dim, double value_dim);

/* Operations from `first` on belong to a module: its forward pass runs again, and it keeps nothing
 * but, as `input` says, what its first product keeps. */
void tess__mark_again(tess_sim *sim, int first, int module, int input);

/* What a step waits for, of a class. */
void tess__add_wait(tess_sim *sim, const char *name, int class, double seconds);
/* What a part waits for the host, as an operation; nothing where that is 0. */
void tess__add_host(tess_sim *sim, int part, int pass, double seconds);

/* A linear layer of `batch` matrices: forward, gradient of its input and of its weights. saved: of
 * its input. Adds the parameters to the part. */
void tess__add_linear(tess_sim *sim, const char *name, double batch, double m, double n, double k,
                      double saved);
/* Parameters of the part that are not a linear layer's: of norms, embedding, router, LM head. */
void tess__add_weights(tess_sim *sim, double n);
/* A collective of n ranks that lie `stride` apart. share: the fraction that is waited for. */
tess__op *tess__add_comm(tess_sim *sim, const char *name, int pass, int class,
                         tess_collective_op what, double bytes, int n, int stride, double share);
double tess__comm_seconds(const tess_sim *sim, tess_collective_op op, double bytes, int n,
                          int stride);

/* ---- layer.c, attention_ops.c, experts.c, ends.c --------------------------------------------- */

void tess__layer_ops(tess_sim *sim, int part); /* TESS__LAYER or TESS__LATER */
/* Layers of the first kind: all, or those before the first with experts, or of two streams. */
int tess__first_kind(const tess_sim_model *model);
/* A linear layer of all tokens; where the layer has two streams, one of each. */
void tess__add_token_linear(tess_sim *sim, const char *name, const char *of_prompt, double n,
                            double k, double saved);
void tess__attention_ops(tess_sim *sim);
int tess__softmax_fused(const tess_sim *sim);
void tess__mlp_ops(tess_sim *sim, double batch, double rows, double inner, double saved);
void tess__expert_ops(tess_sim *sim);
void tess__embed_ops(tess_sim *sim);
void tess__head_ops(tess_sim *sim);

/* ---- clips.c: sizes of clips ----------------------------------------------------------------- */

/* Parts and operations, of all sizes. */
void tess__build_clips(tess_sim *sim);
/* Seconds for which the rank with the longest clips is waited for, as an operation too. */
double tess__clip_wait(tess_sim *sim, double passes);

/* ---- parts.c --------------------------------------------------------------------------------- */

void tess__build_parts(tess_sim *sim); /* of one size */
/* Modules that run again, as bits; 0: none, or not module by module. */
int tess__modules_again(const tess_sim *sim);
/* Share of products that runs again where recomputation goes operation by operation; 0: it does
 * not. */
double tess__products_again(const tess_sim *sim);

/* ---- schedule.c ------------------------------------------------------------------------------ */

typedef struct {
    int stages, chunks, schedule;
    int64_t batches;
    const double *forward, *backward; /* of each stage and micro-batch; backward with weights */
    double weight;                    /* mean of a stage's weight gradients, inside backward */
    double input;                     /* and of the rest of its backward pass */
    double hop;                       /* from a stage to the next */
    double hop_waited;                /* of this what a stage waits for in the steady state */
} tess__pipeline;

/* Seconds of a step's passes; *slowest is the stage that sets the pace. */
double tess__pipeline_seconds(const tess__pipeline *p, int *slowest);

/* The other stage of a rank, whose micro-batches come from the other end; else the same one. */
int tess__other_stage(const tess_sim *sim, int stage);

/* The stage with the LM head: the last one, but for schedules that go back through the ranks. */
int tess__head_stage(const tess_sim *sim);

/* ---- step.c: what follows the passes --------------------------------------------------------- */

/* Parameters of a stage on one rank, and those that have gradients; *experts: the part in experts.
 */
double tess__stage_weights(const tess_sim *sim, int stage, double *experts);
double tess__stage_trained(const tess_sim *sim, int stage, double *experts);
void tess__fsdp_ops(tess_sim *sim, int part);            /* gathers and scatters of a layer */
int tess__overlaps_dp(const tess_sim *sim, int forward); /* gathers of weights; else gradients */
double tess__gradient_seconds(tess_sim *sim, int stage);
double tess__optimiser_seconds(tess_sim *sim, int stage);

/* ---- clip_time.c: clips instead of steps ----------------------------------------------------- */

/* The time of a clip, from the operations of a forward pass. */
void tess__sample_time(tess_sim *sim, tess_sim_result *result);
void tess__sample_passes(const tess_sim *sim, int *passes, int *samples); /* of a denoising step */
void tess__sample_forward_only(tess_sim *sim); /* takes all other operations out */
int64_t tess__sample_clips(const tess_sim *sim);

/* ---- flop.c ---------------------------------------------------------------------------------- */

void tess__count_flop(const tess_sim *sim, tess_sim_result *result);

/* ---- memory.c -------------------------------------------------------------------------------- */

void tess__memory_of(const tess_sim *sim, tess_sim_memory *memory);
void tess__stage_memory(const tess_sim *sim, int stage, tess_sim_memory *memory);
double tess__kept(const tess_sim *sim, int part, double layers); /* of one micro-batch */

#endif
