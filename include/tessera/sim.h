/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h - what a training job or the sampling of a clip costs before it is run: time, memory, why.
 *
 * A scenario is a model, its layout over GPUs, how it is trained, and the software that trains it:
 * one struct of plain values, in which zero means the default. The simulator turns it into the
 * operations of one GPU of each pipeline stage, times each of them on a cluster (cost.h) with
 * parameters that are listed in one file with their origin, and combines them: pipeline
 * schedule, exposed communication, optimiser, memory. docs/simulator.md describes the model.
 *
 * The same operations that make up the step can be asked for afterwards, so that every number has
 * its reasons. Times are seconds, sizes bytes.
 */
#ifndef TESSERA_SIM_H
#define TESSERA_SIM_H

#include "cluster.h"
#include "plan.h"

TESS_BEGIN_DECLS

/* ---- scenarios ------------------------------------------------------------------------------- */

typedef enum { TESS_SIM_DECODER, TESS_SIM_DIT } tess_sim_kind;
typedef enum {
    TESS_SIM_CP_RING,
    TESS_SIM_CP_ULYSSES,
    TESS_SIM_CP_PLAN,
    TESS_SIM_CP_HYBRID /* rings of groups of cp_heads ranks, which exchange heads */
} tess_sim_cp;
typedef enum {
    TESS_SIM_SCHEDULE_DEFAULT,
    TESS_SIM_1F1B,
    TESS_SIM_INTERLEAVED,
    TESS_SIM_ZERO_BUBBLE,
    TESS_SIM_GPIPE,
    TESS_SIM_GPIPE_LOOPED,
    TESS_SIM_INTERLEAVED_ZB,
    TESS_SIM_ZB_V,
    TESS_SIM_DUALPIPE,     /* half of the micro-batches from each end: a rank has two stages */
    TESS_SIM_SCHEDULE_FILE /* layout.schedule_file; tess_sim_use_schedule gives its content */
} tess_sim_schedule;
typedef enum {
    TESS_SIM_BF16,
    TESS_SIM_FP16,
    TESS_SIM_FP32,
    TESS_SIM_FP8,
    TESS_SIM_MXFP8,
    TESS_SIM_NVFP4
} tess_sim_precision;
typedef enum {
    TESS_SIM_RECOMPUTE_NONE,
    TESS_SIM_RECOMPUTE_SELECTIVE, /* recompute_modules, or what the software does by that name */
    TESS_SIM_RECOMPUTE_FULL,
    TESS_SIM_RECOMPUTE_OP /* all but the results of attention and of every second product */
} tess_sim_recompute;
typedef enum {
    TESS_SIM_ATTENTION_DEFAULT,
    TESS_SIM_FLASH,
    TESS_SIM_FUSED_SOFTMAX,
    TESS_SIM_UNFUSED
} tess_sim_attention;

/* Linear layers of a layer that have adapters. */
typedef enum { TESS_SIM_LORA_ALL, TESS_SIM_LORA_ATTENTION, TESS_SIM_LORA_QKV } tess_sim_lora;

/* Modules of a layer that run again in the backward pass, one by one; a set of bits. What a module
 * keeps is dropped, but for its input; of a norm its result. */
enum {
    TESS_SIM_AGAIN_CORE = 1,       /* attention without its projections */
    TESS_SIM_AGAIN_NORM = 2,       /* norms before attention and MLP */
    TESS_SIM_AGAIN_ACTIVATION = 4, /* of MLP and experts */
    TESS_SIM_AGAIN_MLA_UP = 8,     /* up-projections of latent attention, and rotation */
    TESS_SIM_AGAIN_MLP = 16,       /* the dense MLP, and that of the shared expert */
    TESS_SIM_AGAIN_EXPERTS = 32    /* router, exchange and experts */
};

typedef enum {
    TESS_SIM_GUIDANCE_DEFAULT,  /* twice; none of a model whose input guidance is */
    TESS_SIM_GUIDANCE_NONE,     /* one pass a denoising step */
    TESS_SIM_GUIDANCE_TWICE,    /* two passes, one after the other */
    TESS_SIM_GUIDANCE_BATCHED,  /* one pass of two samples */
    TESS_SIM_GUIDANCE_PARALLEL, /* two passes at the same time, on two data-parallel ranks */
} tess_sim_guidance;

/* What the software era does, on, off. */
typedef enum { TESS_SIM_AUTO = 0, TESS_SIM_ON = 1, TESS_SIM_OFF = -1 } tess_sim_switch;

typedef struct {
    tess_sim_kind kind;
    int layers, hidden, heads;
    int kv_heads;   /* 0: heads */
    int head_dim;   /* 0: hidden / heads */
    int64_t ffn;    /* 0: 4 hidden; of dense layers */
    int gated;      /* 1: two matrices in, as SwiGLU */
    int64_t vocab;  /* 0: no embedding and no LM head (a layer alone, a DiT) */
    int64_t seq;    /* tokens of a sample; a DiT's may be 0: then from frames, height, width */
    int tied;       /* 1: the LM head is the embedding */
    int full;       /* 1: attention is not causal (always so in a DiT) */
    int64_t window; /* keys a query sees at most; 0: all */
    int parallel;   /* 1: attention and MLP read the same input, one all-reduce less */
    int learned_positions; /* 1: a table of seq x hidden */
    double density;        /* computed fraction of (query, key) pairs; 0: 1 */
    double imbalance; /* slowest rank's attention over the mean, of context parallelism; 0: 1 */

    /* Sparse attention, where density is below 1. */
    int sparse_layers; /* layers that attend to `density` of the pairs, the others to all; 0: all */
    double sparse_forward, sparse_backward; /* rate of their kernels relative to dense ones; 0: what
                                               the cluster says of sparse attention */
    int select_group; /* queries for which a learnt predictor selects keys together, as in DSV; 0:
                         the selection costs nothing */

    /* Mixture of experts; experts 0: dense. */
    int experts, top_k;
    int64_t expert_ffn, shared_ffn; /* of one expert; of the one that every token passes, 0: none */
    int dense_layers;               /* layers before the first one with experts */
    double capacity;                /* busiest expert rank's tokens over the mean; 0: 1 */

    /* Multi-head latent attention; kv_rank 0: none. head_dim is then nope_dim + rope_dim. */
    int q_rank, kv_rank, rope_dim, nope_dim, value_dim;
    int predict_layers; /* multi-token prediction: further layers with an LM head each */

    /* A DiT over video: pixels, strides of its autoencoder (0: 4 x 8 x 8), patch (0: 1 x 2 x 2). */
    int frames, height, width;
    char clips[128]; /* of several sizes in a step, with their shares: "81x480x832:3+1x480x832:1";
                        "": frames, height and width are those of all */
    int stride_t, stride_s, patch_t, patch_s;
    int text;          /* tokens of the prompt; they join the sequence, unless ... */
    int cross;         /* 1: each layer attends to them apart */
    int double_layers; /* first layers whose prompt has weights of its own, and meets the clip in
                          attention alone (MMDiT); `parallel` is then that of the others */
    int modulation; /* width of the embedding of time that a layer turns into its shifts and gates;
                       0: it adds a few numbers of its own to those of all layers */
    int latent;     /* channels of the latent; 0: 16 */

    /* What sampling has besides. */
    int guided;          /* 1: guidance is an input, one pass a denoising step is enough */
    int time_tokens;     /* 1: the timestep is embedded for each token, in fp32, on every rank */
    double vae_mflop;    /* MFLOP of the autoencoder's decoder for a pixel of a frame, overlap of
                            tiles included; 0: not known, decoding is left out */
    double text_billion; /* 10^9 parameters of the text encoder; 0: not known, left out */
} tess_sim_model;

typedef struct {
    int gpus;     /* 0: tp cp pp dp */
    int tp;       /* 0: 1, and so for the others */
    int sequence; /* 1: sequence parallelism among the tp ranks */
    int pp, vpp;
    tess_sim_schedule schedule;
    char schedule_file[256]; /* the CSV of PyTorch's pipelining, of SCHEDULE_FILE */
    int cp;
    tess_sim_cp cp_kind;
    int cp_heads; /* of a hybrid: ranks that exchange heads; the others are a ring */
    int ep;
    int etp;      /* tensor parallelism of experts; 0: tp */
    int ep_nodes; /* nodes that hold a token's experts at most, to each of which it travels once and
                     is copied there (DeepEP); 0: a copy for each expert */
    int dp;       /* 0: gpus / (tp cp pp) */
    int zero;     /* 0; 1: optimiser, 2: and gradients, 3: and weights are split over dp (FSDP) */
    int replicas; /* groups of dp ranks that split all of it each and hold copies of each other
                     (HSDP, instances of Megatron's distributed optimizer); 0: 1 */
    int first_layers, last_layers; /* of the first and last stage; 0: an even split */
    int outer_layers; /* 1: embedding and LM head count as a layer each when layers are split */
} tess_sim_layout;

typedef struct {
    int micro_batch;      /* samples; 0: 1 */
    int64_t global_batch; /* samples; 0: dp micro_batch */
    tess_sim_precision precision;
    tess_sim_recompute recompute;
    int recompute_layers;  /* of each stage; 0: all */
    int recompute_modules; /* with SELECTIVE: bits of TESS_SIM_AGAIN_; 0: the software's */
    int lora;              /* rank of adapters beside frozen weights (LoRA); 0: all is trained */
    tess_sim_lora lora_on; /* of attention and MLP, of attention, or of its first one alone */
    int grad_bytes;        /* of a gradient as it is reduced; 0: the era's; 2 or 4 */
    tess_sim_attention attention;
    tess_sim_switch dropout;
    tess_sim_switch overlap_tp, overlap_dp, overlap_pp;
    tess_sim_switch distributed_optimizer; /* ZeRO-1 of Megatron, as layout.zero of 1 or more */
    tess_sim_switch graphs;                /* CUDA graphs: no host floor */
} tess_sim_training;

/* Sampling of clips instead of training: steps above 0. The clips of the data-parallel ranks are
 * made at the same time, micro_batch of each. */
typedef struct {
    int steps; /* denoising steps of a clip; 0: training */
    tess_sim_guidance guidance;
    tess_sim_switch decode, encode; /* autoencoder and text encoder; AUTO: where the model says what
                                       they cost */
    int decode_ranks;               /* that share the decoding of a clip; 0: 1 */
} tess_sim_sampling;

/* Only cluster and era are looked up by the simulator; system chooses the scalar of (system, era).
 */
typedef struct {
    char cluster[128]; /* as tess_cluster_load takes it */
    char era[32];      /* a software profile; "": the default of the hardware and date */
    char date[16];     /* "2024-06": when the job runs, where no software is named; "": now */
    char system[32];   /* "": unknown, whose scalar is 1 */
    tess_sim_switch
        scalar; /* AUTO, ON, OFF: whether the scalar of (system, era) is used; AUTO: yes */
} tess_sim_system;

typedef struct {
    tess_sim_model model;
    tess_sim_layout layout;
    tess_sim_training training;
    tess_sim_system system;
    tess_sim_sampling sampling;
} tess_scenario;

/* *full is the scenario with every default filled in. EINVAL names the value and the rule that it
 * breaks: "scenario: layout.tp is 3, must divide model.heads 16". full may be scenario itself. */
TESS_API tess_status tess_scenario_fill(const tess_scenario *scenario, tess_scenario *full);

/* Sets density, sparse_layers, imbalance and cp_kind of a scenario from a density profile: the
 * planner distributes the work of every layer over the layout's cp ranks, by a method of plan.h
 * (CONTIGUOUS: as Ulysses does, LPT: DSV's, DB_SP: db-SP's, AUTO: the best there is). step: of the
 * profile, or -1 for the mean over its steps. EINVAL: a profile with other layers or heads than the
 * model. */
TESS_API tess_status tess_scenario_plan(tess_ctx *ctx, const tess_cluster *cluster,
                                        const tess_profile *profile, int64_t step,
                                        tess_plan_method method, tess_scenario *scenario);

/* ---- parameters ------------------------------------------------------------------------------ */

/* Named numbers, each of a kind of hardware, of a software era, or the scalar of a (system, era).
 */
typedef struct tess_sim_params tess_sim_params;

/* The shipped file, or the one at path. */
TESS_API tess_status tess_sim_params_load(tess_ctx *ctx, const char *path,
                                          tess_sim_params **params);
TESS_API void tess_sim_params_destroy(tess_sim_params *params);

/* ---- simulation ------------------------------------------------------------------------------ */

/* Bytes of one GPU of the stage that needs most. */
typedef struct {
    double weights, gradients, optimiser; /* of layers, embedding and LM head */
    double layer_state;                   /* the part of the state in layers */
    double activations;       /* saved for the backward pass by all micro-batches in flight */
    double layer_activations; /* the part of the activations in layers */
    double working;           /* of the layer, or of the LM head, that is being computed */
    double buffers;           /* communication, gathered weights, dummy gradients */
    double allocated;         /* sum of the above: the framework's peak of allocations */
    double reserved;          /* context, libraries, fragments */
    double peak;              /* allocated + reserved */
    double capacity;          /* of the GPU */
    int fits;
    int stage;           /* the one that needs most */
    const char *largest; /* name of the largest part */
} tess_sim_memory;

/* compute .. host, decode and encode add up to step_s: what the slowest stage does, and what it
 * waits for. Of sampling step_s is the time of a clip, from the prompt to its frames. */
typedef struct {
    double step_s;
    double compute_s;
    double tp_s, cp_s, ep_s, pp_s, dp_s; /* communication that is waited for */
    double bubble_s;                     /* the pipeline's idle time */
    double optimiser_s;
    double host_s;             /* time by which the host is slower than the GPU */
    double decode_s, encode_s; /* of sampling: autoencoder, text encoder */
    double other_s;            /* the scalar of (system, era), stragglers */
    double scalar;

    double layer_forward_s, layer_backward_s; /* of one layer and one micro-batch */
    int64_t micro_batches;                    /* of each data-parallel rank */
    int64_t clips;                            /* of sampling: made at the same time; 0: training */
    int passes;          /* of sampling: of the model, one after the other, for a clip */
    double tokens_per_s; /* of all GPUs */
    double parameters;   /* of the whole model */
    double model_flop;   /* of a step: products of the forward pass x 3, attention over all pairs */
    double hardware_flop; /* with recomputation */
    double mfu, hfu;      /* over gpus x the dense peak of bf16 (fp32 runs: of fp32) */
    double mfu_causal;    /* with half the attention of a causal model */
    double gpu_hours;     /* of a step */
    tess_sim_memory memory;
    tess_scenario scenario; /* that was run, with all defaults filled in */
} tess_sim_result;

typedef struct tess_sim tess_sim;

/* Keeps params, which must outlive it; a run sees values set later. */
TESS_API tess_status tess_sim_create(tess_ctx *ctx, const tess_sim_params *params, tess_sim **sim);
TESS_API void tess_sim_destroy(tess_sim *sim);

/* One scenario, its defaults filled in. Allocates nothing. Errors: those of tess_scenario_fill; an
 * unknown era or GPU; ENOTSUP: the cluster lacks a peak or a network that the layout needs. */
TESS_API tess_status tess_sim_run(tess_sim *sim, const tess_cluster *cluster,
                                  const tess_scenario *scenario, tess_sim_result *result);

TESS_END_DECLS

#endif
