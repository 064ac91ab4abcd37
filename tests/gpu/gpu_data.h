/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_data.h - problems for the kernels of the GPU: tensors of 16 bits, lists, and what double
 * precision makes of them. Arrays are allocated to the byte, so that a sanitizer sees what is
 * beyond. */
#ifndef TESS_GPU_DATA_H
#define TESS_GPU_DATA_H

#include "emulation.h"

#include "gpu/kernels/gpu_args.h"
#include "test.h"

#include "tessera/attn.h"

/* Options of a problem. */
enum {
    FP16 = 1, /* not bf16 */
    TOKEN_MAJOR = 2,
    FULL = 4,  /* no list is empty; without it every fifth is */
    APART = 8, /* each tensor of the device has strides of its own, with padding in between */
};

/* A group or unit of 0 stands for bounds that grow: 1, 2, 3, ... rows. */
typedef struct {
    int batch, heads, dim;
    int64_t tq, tk;
    int32_t group, unit;
    double density; /* of units in each list */
    int options;
} gpu_problem;

/* The tensors of the device: five of 16 bits, three of floats. */
typedef enum { GPU_Q, GPU_K, GPU_V, GPU_O, GPU_DOUT, GPU_DQ, GPU_DK, GPU_DV } gpu_tensor;

typedef struct {
    gpu_problem p;
    tess_selection *sel;
    tess_selection_lists lists;
    u16 *q, *k, *v, *o, *dout; /* as the device has them: device_view; o, lse: all bits set */
    float *lse, *dlse;
    float *q32, *k32, *v32, *dout32; /* the same values, without padding: view_of */
    int *bounds_q;
} gpu_case;

/* The context of all cases; RUN_GPU_TESTS opens it, and sees that all of its memory is freed. */
extern tess_ctx *ctx;
int open_context(void **state);
int close_context(void **state);
#define RUN_GPU_TESTS(tests) RUN_TESTS_WITH(tests, open_context, close_context)

gpu_case make_case(const gpu_problem *p, uint64_t seed);
void free_case(gpu_case *c);

/* Dim 0 of every q becomes large, its sign alternating, and that of every k 1: logits of +-100. */
void make_large_logits(gpu_case *c);

/* x rounded to the type of the case, and its value. */
u16 round_half(const gpu_case *c, float x, float *value);

/* A view of (batch, heads, tokens, dim), or (batch, tokens, heads, dim). */
tess_view view_of(const gpu_case *c, const void *data, tess_dtype dtype, int64_t tokens);

/* The same of a tensor of the device, and as kernels take it. */
tess_view device_view(const gpu_case *c, gpu_tensor t, const void *data);
tess_gpu_rows rows_of(const gpu_case *c, gpu_tensor t, const void *data);
size_t device_bytes(const gpu_case *c, gpu_tensor t); /* to the end of the last row */

/* A tensor of the device as doubles in the order (batch, heads, tokens, dim); allocated. */
double *in_order(const gpu_case *c, gpu_tensor t, const void *got);

tess_attn_shape shape_of(const gpu_case *c);
int largest_group(const gpu_case *c); /* its rows */

/* All bits set, which is NaN: also what padding has, in and out. Returns data. */
void *spoilt(void *data, size_t bytes);

#endif
