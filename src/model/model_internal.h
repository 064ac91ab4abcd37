/* SPDX-License-Identifier: Apache-2.0 */
/* model_internal.h - the Wan transformer: parameters, layers forward and backward, passes.
 *
 * What lives here: the parameters of a model in one buffer, linear layers on oneDNN's product, and
 * the passes that run the network on them. What comes in: a configuration, latents, timesteps and
 * text vectors. What goes out: velocities, and gradients of every parameter, whose bits depend on
 * neither threads nor runs.
 */
#ifndef TESS_MODEL_INTERNAL_H
#define TESS_MODEL_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/advanced/pass.h"
#include "tessera/model.h"

/* ---- params.c: which parameters a configuration has, and where they lie ---------------------- */

/* Outside the blocks, in their order. Weights are followed by their bias. */
typedef enum {
    P_PATCH_W, /* patch_embedding */
    P_PATCH_B,
    P_TIME1_W, /* condition_embedder.time_embedder */
    P_TIME1_B,
    P_TIME2_W,
    P_TIME2_B,
    P_PROJ_W, /* condition_embedder.time_proj */
    P_PROJ_B,
    P_TEXT1_W, /* condition_embedder.text_embedder */
    P_TEXT1_B,
    P_TEXT2_W,
    P_TEXT2_B,
    P_TABLE, /* scale_shift_table (1, 2, dim): shift, scale */
    P_OUT_W, /* proj_out */
    P_OUT_B,
    P_OUTER
} tess__outer_param;

/* Of a block, in their order: the weights of q, k and v lie side by side, and so do their biases,
 * so that the three are one linear layer. */
typedef enum {
    B_TABLE, /* scale_shift_table (1, 6, dim): shift, scale, gate of attn1, then of ffn */
    B_Q1_W,
    B_K1_W,
    B_V1_W,
    B_Q1_B,
    B_K1_B,
    B_V1_B,
    B_NORM_Q1, /* absent without qk_norm */
    B_NORM_K1,
    B_O1_W,
    B_O1_B,
    B_Q2_W,
    B_Q2_B,
    B_K2_W,
    B_V2_W,
    B_K2_B,
    B_V2_B,
    B_NORM_Q2,
    B_NORM_K2,
    B_O2_W,
    B_O2_B,
    B_NORM2_W, /* absent without cross_attn_norm */
    B_NORM2_B,
    B_FFN1_W,
    B_FFN1_B,
    B_FFN2_W,
    B_FFN2_B,
    B_BLOCK
} tess__block_param;

typedef enum {
    TESS__INIT_ZERO,
    TESS__INIT_ONE,
    TESS__INIT_XAVIER, /* variance 2 / (in + out) */
    TESS__INIT_SMALL,  /* deviation 0.02 */
    TESS__INIT_TABLE,  /* deviation 1 / sqrt(dim) */
} tess__init;

/* One parameter; of the blocks, that of every block. rank 0: the configuration has none. */
typedef struct {
    const char *name; /* in diffusers; of a block, behind "blocks.N." */
    tess_param_kind kind;
    tess__init init;
    int rank;
    int64_t shape[5], count;
    int64_t offset; /* of the buffer's beginning, or of its block's */
    int index;      /* in the model, or in its block */
} tess__param;

/* Outer parameters but the last three come first, then the blocks, then those three: the order in
 * which the network uses them. */
typedef struct {
    tess__param outer[P_OUTER], block[B_BLOCK];
    int64_t block_begin, block_count; /* where block 0 begins; numbers of each block */
    int block_index, block_params;    /* the same in parameters */
    int params;
    int64_t count; /* of the whole model */
} tess__params;

/* The configuration has been checked. */
void tess__params_make(const tess_model_config *config, tess__params *params);

/* Parameter number index of the model: what, and in which layer (-1 outside the blocks). */
const tess__param *tess__params_at(const tess__params *params, int index, int *layer);

/* ---- model.c --------------------------------------------------------------------------------- */

/* All of it lies in the arena, the object first; values and gradients are allocations of their own.
 */
struct tess_model {
    tess_ctx *ctx;
    tess__arena arena;
    tess_model_config config;
    int dim;
    tess__params params;
    const char **names;
    float *values, *gradients; /* (params.count); gradients may be NULL */
    int64_t *sums; /* (params.count): gradients in fixed point; NULL until an exact pass is made */
};

/* Bytes a model without gradients takes from its context, and each of its buffers. */
size_t tess__model_bytes(const tess__params *params);
size_t tess__model_buffer_bytes(const tess__params *params);

/* A model whose values are not set yet; the caller writes all of them or destroys it. */
tess_status tess__model_make(tess_ctx *ctx, const tess_model_config *config, int gradients,
                             tess_model **model);

/* Makes the sums of exact passes, once; then the gradients from them. */
tess_status tess__model_sums(tess_model *model);
void tess__model_read_sums(const tess_model *model);

/* Where a parameter begins, in values or gradients; NULL if the model has none of it. */
static inline float *tess__outer_at(const tess_model *m, float *buffer, tess__outer_param id)
{
    return buffer + m->params.outer[id].offset;
}

static inline float *tess__block_at(const tess_model *m, float *buffer, int layer,
                                    tess__block_param id)
{
    const tess__param *p = &m->params.block[id];
    const int64_t begin = m->params.block_begin + layer * m->params.block_count;
    return p->rank == 0 ? NULL : buffer + begin + p->offset;
}

/* ---- pass.c: gradients that are ready -------------------------------------------------------- */

/* Called inside tess_pass_backward as soon as the gradients of some parameters are complete: layer
 * `layers` are those behind the blocks, then come the blocks, last one first, and at the end layer
 * -1, those before the blocks. Between the parts of a block it is called with TESS__NOT_READY, for
 * messages that are on their way to move on. A failure ends the backward pass with that status. fn
 * NULL: no call. */
enum { TESS__NOT_READY = -2 };
typedef tess_status (*tess__ready_fn)(void *user, int layer);
void tess__pass_ready(tess_pass *pass, tess__ready_fn fn, void *user);

/* Layers whose lists are saved for the backward pass; those of the others are selected again. -1:
 * the pass has no lists, or ranks share its tokens and save the lists of what they compute. */
int tess__pass_saved_lists(const tess_pass *pass);

/* Whether a gradient of an exact pass was too large for its sums, or NaN, since the last call. */
int tess__pass_beyond(tess_pass *pass);

/* ---- sgemm.c --------------------------------------------------------------------------------- */

/* c = op(a) op(b), or c += if add: (m, n), row-major; op is the transpose where its letter is 'T'.
 */
typedef struct {
    char trans_a, trans_b;
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    int add;
    float *c;
    int64_t ldc;
} tess__sgemm_call;

/* On the calling thread, after tess__sgemm_ready has succeeded once. Returns 1 without memory. */
int tess__sgemm(const tess__sgemm_call *product);
tess_status tess__sgemm_ready(void);

/* ---- linear.c -------------------------------------------------------------------------------- */

/* Called for n elements of each row of a product's result as soon as they are computed, from any
 * thread, each element once: y is where row `row` and column `column` lie. */
typedef struct {
    void (*fn)(const void *user, int64_t row, int64_t column, int64_t n, float *y);
    const void *user;
    int64_t row; /* added to the row */
} tess__epilogue;

/* tess_linear_forward and the parts of tess_linear_backward, with arguments that are right. A
 * epilogue takes the place of the bias; NULL: there is none. add: to what is there. */
tess_status tess__linear_forward(const tess_ctx *ctx, const tess_linear_shape *shape,
                                 const float *x, const float *w, const float *bias, float *y,
                                 const tess__epilogue *epilogue);
tess_status tess__linear_dx(const tess_ctx *ctx, const tess_linear_shape *shape, const float *dy,
                            const float *w, float *dx, int add, const tess__epilogue *epilogue);
tess_status tess__linear_dw(const tess_ctx *ctx, const tess_linear_shape *shape, const float *dy,
                            const float *x, float *dw, int add, const tess__epilogue *epilogue);
void tess__column_sums(const tess_ctx *ctx, int64_t rows, int64_t columns, const float *x,
                       float *sums, int add);

#endif
