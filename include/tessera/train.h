/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - the training stack: linear layers now, the rest of it as it comes.
 * Link with libtessera_train. */
#ifndef TESSERA_TRAIN_H
#define TESSERA_TRAIN_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif
