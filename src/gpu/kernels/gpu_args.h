/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_args.h - what kernels take: one struct each, the same for the host and the device.
 *
 * Pointers are of the device. Strides of rows are in bytes, so that a kernel multiplies once; those
 * of samples and heads too. Lists are numbered (b * heads + h) * n_q + g, as in a selection.
 */
#ifndef TESS_GPU_ARGS_H
#define TESS_GPU_ARGS_H

/* Rows of head_dim elements. */
typedef struct {
    unsigned char *data;
    long long b, h; /* bytes from a sample or head to the next */
    int s, pad;     /* bytes from a row to the next, below 2^31 */
} tess_gpu_rows;

/* Lists of key units: a unit is 1 << shift rows, the last one may be shorter. */
typedef struct {
    const long long *offsets; /* (lists + 1) */
    const int *indices;
    const int *bounds_q; /* (n_q + 1): group g has rows bounds_q[g] .. bounds_q[g + 1] - 1 */
    int heads, tokens_q, tokens_k, n_q, n_k, shift;
} tess_gpu_lists;

typedef struct {
    tess_gpu_lists lists;
    tess_gpu_rows q, k, v, o;
    float *lse;   /* (batch, heads, tokens_q) */
    int tiles;    /* blocks for each group: those beyond its rows end at once */
    float scale2; /* scale * log2(e) */
} tess_gpu_forward_args;

#endif
