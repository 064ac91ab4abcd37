/* SPDX-License-Identifier: Apache-2.0 */
/* pass.h - forward and backward passes of a model, its parameters, memory, linear layers.
 * Link with libtessera_train.
 *
 *   tess_pass *pass;                                      // owns all activations of one shape
 *   tess_pass_create(model, &(tess_pass_shape){.batch = 1, ..., .train = 1}, &pass);
 *   tess_pass_forward(pass, &(tess_model_in){x, timestep, text}, out);
 *   tess_pass_backward(pass, dout, NULL);                 // adds to the model's gradients
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PASS_H
#define TESSERA_PASS_H

#include "../cp.h"
#include "../model.h"
#include "../select.h"

TESS_BEGIN_DECLS

/* ---- configurations -------------------------------------------------------------------------- */

TESS_API tess_status tess_model_config_check(const tess_model_config *config);

/* To that file, or to config.json of that folder, in diffusers' words. */
TESS_API tess_status tess_model_config_write(tess_ctx *ctx, const char *path,
                                             const tess_model_config *config);

/* ---- parameters ---------------------------------------------------------------------------- */

typedef enum {
    TESS_PARAM_EMBEDDING, /* a matrix outside the blocks */
    TESS_PARAM_MATRIX,    /* a matrix of a block: what Muon takes */
    TESS_PARAM_VECTOR,    /* a bias, norm or table: without weight decay */
} tess_param_kind;

typedef struct {
    const char *name; /* as diffusers calls it; the model's */
    tess_param_kind kind;
    int layer; /* -1 outside the blocks */
    int rank;
    int64_t shape[5];
    int64_t count;
    float *value;    /* inside tess_model_info.values */
    float *gradient; /* NULL without gradients */
} tess_param;

/* Parameter number index; the order is fixed by the configuration. */
TESS_API tess_status tess_model_param(const tess_model *model, int index, tess_param *param);
TESS_API tess_status tess_model_zero_gradients(tess_model *model); /* EINVAL without them */

/* ---- passes -------------------------------------------------------------------------------- */

/* What a pass that may attend sparsely (sparse.h) makes room for. */
typedef struct {
    int unit_cubes;   /* 1: keys are selected by whole cubes; 0: one by one */
    int proj_dim;     /* of the predictor that goes with it; 0: none, or a multiple of 8 to 64 */
    int learn_rows;   /* queries of each sample and head it learns from at most; 0: never */
    int compensate;   /* virtual keys that stand for those that were dropped: 0, 1: one for all, or
                           up to 64: one for each cluster of keys */
    tess_group group; /* not with searches, unless CUBE. With a context, made with group_rows, each
                         rank groups the queries that it has of a head: all where heads are whole */
    double max_density;   /* largest share of the keys in a list; 0: 1 */
    int64_t index_memory; /* bytes for lists of keys saved for the backward pass; 0: 1/32 of the
                             pass's other memory, less the lists of one head. Lists that do not
                             fit are selected again */
    int searches; /* sets of lists that SEARCH found and later forward passes may use again, one for
                     each sequence of like passes; 0: none. Not with train */
    int values;   /* 1: measuring also needs v, which ranks that share tokens then send */
    int dense;    /* 1: layers learn and are measured, but all heads attend to all keys: there is
                     no room for lists */
} tess_sparse_opts;

typedef struct {
    int batch;                 /* samples; 1..65536 */
    int frames, height, width; /* of the latent: multiples of the patch */
    int text_len;              /* vectors of each prompt; 0: the configuration's */
    int train;                 /* 1: for forward and backward; the model has gradients */
    tess_keep keep;
    tess_dtype store;         /* of saved activations: F32, or BF16, half of the memory, rounded */
    tess_precision precision; /* BF16: saved activations, and the products of attention and of the
                                 blocks' linear layers, whatever store says; weights, gradients,
                                 sums, norms and softmax stay F32 */
    const int *cube; /* NULL: tokens in raster order; else 3 sides of the cubes that tokens are
                         brought into after the patches and back from before the output */
    const tess_sparse_opts *sparse; /* NULL: attention is dense; else queries are grouped by the
                                       cubes, which must be given */
    tess_cp *context; /* NULL: this rank has all tokens; else the ranks that share them.
                              Outlives the pass; made for the same sizes, with as many saves as
                              layers, 1 with TESS_KEEP_BLOCKS, 0 without training */
    int exact; /* 1: the same bits however many ranks share the tokens, up to 8, and the samples:
                  gradients of parameters are added in fixed point (8 bytes for each parameter
                  more), and training needs a context with `exact`, of one rank or more. Not
                  with precision BF16 */
} tess_pass_shape;

typedef struct {
    const float *x;        /* (batch, in_channels, frames, height, width) */
    const float *timestep; /* (batch): 0..1000 */
    const float *text;     /* (batch, text_len, text_dim) */
} tess_model_in;

/* A pass owns all activations and the workspace for one shape: nothing is allocated in forward or
 * backward. Several passes may share a model, one call at a time. The results have the same bits
 * for every number of threads; TESS_KEEP_BLOCKS has those of TESS_KEEP_ALL.
 *
 * With a context all its ranks make the same calls with the same input and weights; each computes
 * its rows of tokens, and all get the whole output. A plan has been made (tess_cp_plan).
 * Output and gradients are those of one rank up to rounding, with the same bits on every run;
 * gradients of parameters, the predictor's too, are partial: their sum over the ranks is the
 * gradient. A rank that fails in forward or backward fails the context's communicator, so that no
 * other waits. */
typedef struct tess_pass tess_pass;

TESS_API tess_status tess_pass_create(tess_model *model, const tess_pass_shape *shape,
                                      tess_pass **pass);

/* out: (batch, out_channels, frames, height, width), the velocity. */
TESS_API tess_status tess_pass_forward(tess_pass *pass, const tess_model_in *in, float *out);

/* Adds the gradients of a loss to the model's, from dout, the loss's gradient by the last forward
 * call's out, and the weights as they were in it; a second call needs another forward first. dx:
 * the gradient by x, written, whole on every rank; NULL, on all of them, if it is not wanted. After
 * a failure the model's gradients are of no use. */
TESS_API tess_status tess_pass_backward(tess_pass *pass, const float *dout, float *dx);

/* Where the time went, since the pass was made. Linear layers are counted with what runs on their
 * results block by block: bias, gate and residual, GELU. */
typedef struct {
    int64_t attention_ns, linear_ns, other_ns;
    int64_t cross_ns;    /* of attention_ns: that to the text */
    int64_t select_ns;   /* choosing keys: predictor, selection, saved lists */
    int64_t learn_ns;    /* the predictor's loss and gradients */
    int64_t observe_ns;  /* measuring layers: the hook, and bringing heads to it */
    int64_t exchange_ns; /* waiting for other ranks; in none of the others */
    int64_t forwards, backwards;
} tess_pass_times;

TESS_API tess_status tess_pass_times_read(const tess_pass *pass, tess_pass_times *times);
TESS_API void tess_pass_destroy(tess_pass *pass);

/* ---- memory -------------------------------------------------------------------------------- */

/* What a model and one pass take from their context, in bytes. */
typedef struct {
    int64_t weights, gradients;
    int64_t activations; /* live from forward to backward */
    int64_t workspace;
    int64_t total;
} tess_model_memory;

/* Allocates nothing. threads: those of the context, 1..1024. To the byte; of a sparse pass it is
 * the most, for what its selector takes at its first use depends on the kind: that is left. With
 * shape.context it is this rank's, without what the context itself holds. */
TESS_API tess_status tess_model_need(const tess_model_config *config, const tess_model_opts *opts,
                                     const tess_pass_shape *shape, int threads,
                                     tess_model_memory *memory);

/* ---- linear layers ------------------------------------------------------------------------ */

/* A layer of `out` features from `in`, for `rows` tokens. All matrices are F32, row-major and
 * contiguous, and outputs do not overlap inputs. The same bits for every number of threads. */
typedef struct {
    int64_t rows;    /* 0..2^30 */
    int64_t in, out; /* 1..2^30 */
} tess_linear_shape;

/* y = x w^T + bias.   x: (rows, in)   w: (out, in)   bias: (out), or NULL   y: (rows, out) */
TESS_API tess_status tess_linear_forward(const tess_ctx *ctx, const tess_linear_shape *shape,
                                         const float *x, const float *w, const float *bias,
                                         float *y);

/* dx = dy w, dw = dy^T x, dbias = the sums of dy's columns, from dy: (rows, out), each in the shape
 * of its namesake and overwritten. Any of the three may be NULL; x may be if dw is, w if dx is. */
TESS_API tess_status tess_linear_backward(const tess_ctx *ctx, const tess_linear_shape *shape,
                                          const float *x, const float *w, const float *dy,
                                          float *dx, float *dw, float *dbias);

TESS_END_DECLS

#endif
