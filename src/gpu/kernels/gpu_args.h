/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_args.h - what kernels take: one struct each, the same for the host and the device.
 *
 * Pointers are of the device. Strides of rows are in bytes, so that a kernel multiplies once; those
 * of samples and heads too. Lists are numbered (b * heads + h) * n_q + g, as in a selection.
 */
#ifndef TESS_GPU_ARGS_H
#define TESS_GPU_ARGS_H

/* Names of kernels, made from what defines them. */
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)

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

/* The keep[head] units of largest q . k for each group, into the group's list. */
typedef struct {
    tess_gpu_rows q, k; /* float rows: of groups, of units */
    const int *keep;    /* (batch, heads), 0..n_k */
    const long long *offsets;
    int *indices;
    int heads, n_q, n_k, rank;
} tess_gpu_select_args;

/* The lists by key: entry i of unit u of a head is number first[u] + i of the head's entries. It
 * names a group that has the unit, ascending, and where in the head's lists it stands. */
typedef struct {
    tess_gpu_lists lists;
    int *first; /* (batch, heads, n_k + 1) */
    int *group; /* (indices), as `place`: those of a head are where its lists are */
    int *place;
} tess_gpu_transpose_args;

/* Units given by bounds as rows. */
typedef struct {
    const long long *offsets; /* of the lists of units */
    const int *indices;
    const int *bounds_k;          /* (n_k + 1) */
    const long long *row_offsets; /* (lists + 1) */
    int *rows;
} tess_gpu_expand_args;

/* What becomes of the rows of dk and dv in the backward kernel. */
enum { TESS_GPU_ORDERED, TESS_GPU_ATOMIC, TESS_GPU_QUERIES };

/* Gradients are float. */
typedef struct {
    tess_gpu_lists lists;
    tess_gpu_rows q, k, v, o, dout, dq, dk, dv;
    const float *lse, *dlse; /* (batch, heads, tokens_q); dlse may be NULL */
    /* ORDERED: rows of the workspace, D floats each. Row r of entry e, of a block's tile t, is row
     * ((e - entry0) tiles + t) << shift | r. */
    float *row_dk, *row_dv;
    long long entry0;
    int list0; /* the first list of this launch */
    int tiles, mode;
    float scale;
} tess_gpu_backward_args;

typedef struct {
    tess_gpu_lists lists;
    tess_gpu_rows dk, dv;
    const int *first, *group, *place; /* lists by key */
    const float *row_dk, *row_dv;
    long long entry0, entry1; /* of the rows that are there */
    int tiles, rows;          /* blocks for each group in the workspace; queries of a block */
    int begin;                /* 1: the first round */
    float scale;              /* of dk: 1 before the last round */
} tess_gpu_sum_args;

typedef struct {
    tess_gpu_rows o, dout;
    const float *dlse;
    float *delta; /* (batch, heads, tokens_q) */
    int heads, tokens_q;
} tess_gpu_delta_args;

typedef struct {
    tess_gpu_lists lists;
    tess_gpu_rows q, k, v, dout, dk, dv;
    const float *lse, *delta;
    const int *first, *group;
    float scale;
} tess_gpu_keys_args;

#endif
