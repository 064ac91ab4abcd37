/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_passes.h - attention on a case, forward and backward, as launches of emulated kernels; and
 * its results against double precision.
 *
 * A seed is an order of blocks, warps and lanes. */
#ifndef TESS_GPU_PASSES_H
#define TESS_GPU_PASSES_H

#include "gpu_data.h"

/* Fails with what the emulation finds. */
void launch(const char *kernel, const void *args, i64 blocks, u32 seed);

tess_gpu_lists lists_of(const gpu_case *c);

/* Lists by key of `heads` over all samples: counts, their sums, entries. */
void transpose_lists(const tess_gpu_transpose_args *args, i64 heads, u32 seed);

/* o and lse of the case. */
void forward_pass(gpu_case *c, u32 seed);

/* o and lse, in the type of the case, from double precision. */
void make_output(gpu_case *c);

/* What a backward pass takes and gives beside the case: `first` to `place` are the lists by key. */
typedef struct {
    float *dq, *dk, *dv, *delta;
    int *first, *group, *place;
    size_t dq_bytes, dk_bytes, dv_bytes;
} gradients;

gradients make_gradients(const gpu_case *c);
void spoil_gradients(gradients *g);
void free_gradients(gradients *g);
void check_same_gradients(const gradients *g, const gradients *want);

/* In rounds of `lists_each`, with a workspace that has exactly the rows of a round. */
void backward_ordered(const gpu_case *c, gradients *g, int64_t lists_each, u32 seed);
void backward_atomic(const gpu_case *c, gradients *g, u32 seed);
void backward_blocks(const gpu_case *c, gradients *g, u32 seed); /* units of 16 rows or more */
/* As the library does it: by blocks, or ordered in rounds of 1 to 4 lists. */
void backward_by_unit(const gpu_case *c, gradients *g, u32 seed);

/* Results where the device has them, against double precision. */
void check_output(const gpu_case *c, const void *o, const float *lse);
void check_gradients(const gpu_case *c, const void *dq, const void *dk, const void *dv);

#endif
