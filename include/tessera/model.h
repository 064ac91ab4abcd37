/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the Wan2.1 video transformer at any size: configuration and weights.
 * Link with libtessera_train.
 *
 *   tess_model_config config = {...};                     // or from a file, or a preset
 *   tess_model *model;
 *   tess_model_create(ctx, &config, &(tess_model_opts){.gradients = 1, .seed = 7}, &model);
 *   tess_model_save(model, "folder", TESS_WEIGHTS_DIFFUSERS);
 *
 * train.h trains and samples it; advanced/pass.h has its forward and backward passes.
 */
#ifndef TESSERA_MODEL_H
#define TESSERA_MODEL_H

#include "base.h"

TESS_BEGIN_DECLS

/* ---- configuration ------------------------------------------------------------------------ */

/* The sizes of a model, as in the config.json beside its weights. dim = heads * head_dim. */
typedef struct {
    int patch[3];                  /* frames, rows, columns of a token; Wan: 1, 2, 2; 1..64 each */
    int heads, head_dim;           /* head_dim a multiple of 8 up to 256; dim at most 65536 */
    int in_channels, out_channels; /* of the latent; 1..65536 */
    int text_dim, text_len;        /* of the prompt's vectors; 1..65536 */
    int freq_dim;                  /* of the timestep's sinusoids; even, 2..65536 */
    int ffn_dim;                   /* 1..1048576 */
    int layers;                    /* 1..1024 */
    int cross_attn_norm;           /* 1: a norm with weights before attention to the text */
    int qk_norm;                   /* 1: RMS norm of queries and keys across heads; 0: none */
    double eps;                    /* of the norms; above 0, at most 1 */
    int rope_max;                  /* tokens along a side at most; 1..1048576 */
} tess_model_config;

/* Sizes that have a name: "tiny" for tests, "small" learns on a CPU in minutes, "1.3b" and "14b"
 * are Wan2.1's text-to-video models. */
TESS_API tess_status tess_model_preset(const char *name, tess_model_config *config);

/* From config.json, or from that of a folder, of a pipeline's transformer/ or beside a file of
 * weights, in the words of diffusers or of the original repository. diffusers' "qk_norm" has no
 * effect there: another word than its default means 1, null 0, and tess_model_load goes by the
 * tensors; both with a warning. EFORMAT names the line: a size that breaks its rule, a key that is
 * not known, a model of another sort. */
TESS_API tess_status tess_model_config_read(tess_ctx *ctx, const char *path,
                                            tess_model_config *config);

/* ---- the model ---------------------------------------------------------------------------- */

typedef struct tess_model tess_model;

typedef struct {
    int gradients; /* 1: with a buffer of gradients, for training */
    uint64_t seed; /* of the random weights */
} tess_model_opts;

/* Weights are random as in Wan: matrices with variance 2 / (in + out), embeddings of text and time
 * with deviation 0.02, modulation tables with 1 / sqrt(dim), norms 1, biases and proj_out 0. Each
 * parameter has random numbers of its own, so they depend on the seed and its name's place alone.
 * Gradients begin as 0. */
TESS_API tess_status tess_model_create(tess_ctx *ctx, const tess_model_config *config,
                                       const tess_model_opts *opts, tess_model **model);

typedef struct {
    tess_ctx *ctx;
    tess_model_config config;
    int params;       /* tensors */
    int64_t count;    /* numbers in all of them */
    float *values;    /* (count): every parameter, one behind the other in their order */
    float *gradients; /* (count), or NULL */
} tess_model_info;

TESS_API tess_status tess_model_query(const tess_model *model, tess_model_info *info);

TESS_API void tess_model_destroy(tess_model *model); /* after its passes */

/* ---- files -------------------------------------------------------------------------------- */

/* Whose names a file's tensors bear: those of diffusers' WanTransformer3DModel, or those of the
 * original repository's WanModel. */
typedef enum { TESS_WEIGHTS_DIFFUSERS, TESS_WEIGHTS_ORIGINAL } tess_weight_names;

/* path is a folder with config.json and diffusion_pytorch_model.safetensors or its index and shards
 * (or model.safetensors, or the only variant, *.fp16.safetensors), a pipeline's folder with those
 * in transformer/, or the weights' own path, with config.json beside it. Either side's names; F32,
 * BF16, F16 and F64, all become F32. EFORMAT names the tensor that is missing, has no place or
 * another shape. The seed is not used. */
TESS_API tess_status tess_model_load(tess_ctx *ctx, const char *path, const tess_model_opts *opts,
                                     tess_model **model);

/* Writes config.json and diffusion_pytorch_model.safetensors, F32: diffusers opens the folder under
 * its own names. A folder that does not exist is complete when it appears; in one that does, the
 * two files are replaced when both are complete and on disk. EINVAL if an index lies there, which
 * readers would prefer. */
TESS_API tess_status tess_model_save(const tess_model *model, const char *dir,
                                     tess_weight_names names);

/* ---- of training ---------------------------------------------------------------------- */

typedef enum {
    TESS_KEEP_ALL,    /* save the activations of every block */
    TESS_KEEP_BLOCKS, /* save each block's input and recompute the block for its gradients: a third
                         more work, a small part of the memory */
} tess_keep;

enum { TESS_NOISE_BUCKETS = 4 }; /* noise-level quartiles */

TESS_END_DECLS

#endif
