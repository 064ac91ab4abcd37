/* SPDX-License-Identifier: Apache-2.0 */
/* linear_bf16.h - linear layers with products in bf16, summed in fp32: y = x w^T, dx = dy w,
 * dw = dy^T x.
 *
 * Factors are bf16, or floats that are rounded to bf16 as they are read; results are floats, or
 * floats rounded to bf16 as they are written. An element is one sum over the whole depth in its
 * order: the bits depend neither on threads nor on the blocks that results are cut into. Where the
 * machine has no products in bf16, or these are slower, fp32 multiplies; floats are not rounded
 * then.
 */
#ifndef TESS_LINEAR_BF16_H
#define TESS_LINEAR_BF16_H

#include "model/model_internal.h"

/* A matrix without gaps, row-major, of TESS_DTYPE_BF16 or TESS_DTYPE_F32. */
typedef struct {
    const void *data;
    tess_dtype dtype;
} tess__factor;

typedef struct {
    void *data;
    tess_dtype dtype;
    int add; /* 1: to what is there, before an epilogue */
} tess__result;

/* What the products need: which instructions multiply, and memory of each thread of the context. It
 * is for one call at a time. */
typedef struct tess__linear_bf16 tess__linear_bf16;

/* Bytes that it takes from its context. */
size_t tess__linear_bf16_bytes(tess_ctx *ctx);
size_t tess__linear_bf16_need(int threads); /* the same where there are products in bf16 */
tess_status tess__linear_bf16_create(tess_ctx *ctx, tess__linear_bf16 **linear);
void tess__linear_bf16_destroy(tess__linear_bf16 *linear); /* NULL accepted */

/* The instruction set that multiplies; *bf16 is 0 where it multiplies in fp32. */
const char *tess__linear_bf16_isa(const tess__linear_bf16 *linear, int *bf16);

/* Bytes of weights (out, in) once they are packed, and the packing, over all threads. Weights are
 * packed again whenever they change: once a step. packed is 64-byte aligned. */
size_t tess__bf16_weights_size(int64_t in, int64_t out);
void tess__bf16_weights_pack(const tess_ctx *ctx, int64_t in, int64_t out, const float *w,
                             void *packed);

/* y = x w^T + bias (NULL: none). An epilogue takes the place of the bias and is called with floats,
 * of which what it leaves is the result, rounded if y is bf16. x, dy and results do not overlap. */
tess_status tess__linear_bf16_forward(tess__linear_bf16 *linear, const tess_linear_shape *shape,
                                      tess__factor x, const void *packed, const float *bias,
                                      tess__result y, const tess__epilogue *epilogue);
tess_status tess__linear_bf16_dx(tess__linear_bf16 *linear, const tess_linear_shape *shape,
                                 tess__factor dy, const void *packed, tess__result dx,
                                 const tess__epilogue *epilogue);
tess_status tess__linear_bf16_dw(tess__linear_bf16 *linear, const tess_linear_shape *shape,
                                 tess__factor dy, tess__factor x, tess__result dw,
                                 const tess__epilogue *epilogue);

/* The gradient of a bias: tess__column_sums of either type. */
void tess__bf16_column_sums(const tess_ctx *ctx, int64_t rows, int64_t columns, tess__factor x,
                            float *sums, int add);

#endif
