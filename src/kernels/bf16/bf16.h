/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.h - attention with products in bf16, and their rate: a table for each instruction set.
 *
 * What comes in: the tasks of attn_tile.h, and the keys of a head once more as packed blocks or
 * rows of bf16 (blocks.h). What goes out: the same as from the kernels in fp32. One source over
 * products.h; TESS_TILES says which of its two kinds.
 */
#ifndef TESS_BF16_H
#define TESS_BF16_H

#include "kernels/attn_tile.h"
#include "kernels/kernels.h"

enum {
    TESS_BF16_GROUP = 32, /* keys, or queries, of a block */
    TESS_BF16_CHUNK = 8,  /* groups of keys taken at a time */
    TESS_BF16_TILE = 256, /* queries of a tile at most */
};

/* The keys of a head, or of a range of them, in bf16; D is tess__wide(head_dim), zeros past
 * head_dim. Either as groups of 32 rows, (D / 32) blocks each:
 *
 *   k, v     rows as columns of dot products (block_rows); forward: k alone
 *   kt, vt   transposed (block_columns); forward vt, backward kt
 *
 * or, where lists name single rows, these side by side: rows (tokens, 2, D). */
typedef struct {
    const uint16_t *k, *v, *kt, *vt;
    const uint16_t *rows;
    int64_t first; /* the row of the head that they begin with */
    int bounded;   /* 1: no score is beyond +-TESS_BF16_BOUND, base 2 */
} tess__bf16_keys;

enum { TESS_BF16_BOUND = 64 };

/* One thread's memory; D as above, T is TESS_BF16_TILE, C TESS_BF16_CHUNK, G TESS_BF16_GROUP. */
typedef struct {
    uint16_t *q, *g;    /* T * D: queries (dout) as pairs */
    uint16_t *qn, *gn;  /* T * D: side by side (backward) */
    uint16_t *p, *ds;   /* C * G * T: weights, and their gradients (forward: C * G * G of p) */
    uint16_t *pairs;    /* C * G * T: gradients as pairs (backward) */
    uint16_t *gathered; /* 3 * C * G * D: blocks of single rows */
    uint16_t *stage;    /* 2 * G * D: rows in bf16 */
    float *s;           /* 4 * G * G: scores of two blocks, and their gradients */
    float *sum;         /* T * D: output (backward: dq), blocks of dimensions by queries */
    float *acc;         /* T * D: the tile's dq, rows of D floats (backward) */
    float *block;       /* G * G */
    float *m, *l;       /* T: maximum and sum (backward: lse, delta) */
    int32_t *rows;      /* C * G */
} tess__bf16_scratch;

/* Keys that come after the list's: floats, rows of D; bias is added to their scores, base 2. */
typedef struct {
    const float *k, *v;
    const float *bias;
    int n;
} tess__bf16_extra;

/* Of a product of matrices: rows and columns of a result at most, terms of its sums at a time. */
enum {
    TESS_BF16_MATRIX_ROWS = 512,
    TESS_BF16_MATRIX_COLUMNS = 512,
    TESS_BF16_MATRIX_DEPTH = 256,
};

/* A factor: rows `stride` elements apart, of bf16, or of floats that are rounded to it. Its rows
 * are those of the result (of the second factor: its columns), or, by_depth, terms of the sums. */
typedef struct {
    const void *data;
    int bf16, by_depth;
    int64_t stride;
} tess__bf16_matrix;

/* One thread's memory for it; D is TESS_BF16_MATRIX_DEPTH. */
typedef struct {
    uint16_t *a;     /* TESS_BF16_MATRIX_ROWS * D */
    uint16_t *b;     /* TESS_BF16_GROUP * D */
    uint16_t *stage; /* TESS_BF16_GROUP * the largest of the three */
} tess__bf16_matrix_room;

struct tess__products {
    int64_t (*rate)(int64_t rounds, float *sink); /* returns the flop done */
    /* Packs n rows from `first` on, of k and of v; out as of tess__bf16_keys, of which those that
     * are NULL are left out. norm, if not NULL: the largest squared length of k's rows. */
    void (*pack)(const tess__attn_tile *t, int64_t first, int64_t n, uint16_t *k, uint16_t *v,
                 uint16_t *kt, uint16_t *vt, uint16_t *rows, float *norm, tess__bf16_scratch *w);
    /* The largest squared length of n rows of floats, rounded to bf16. */
    float (*norm)(const float *x, int64_t stride, int64_t n, int dim);
    void (*forward)(const tess__attn_fwd *job, const tess__bf16_keys *keys,
                    const tess__bf16_extra *extra, tess__bf16_scratch *w);
    void (*backward)(const tess__attn_bwd *job, const tess__bf16_keys *keys, tess__bf16_scratch *w);
    /* c (n / 32, m / 32, 32, 32), rounded up, = a b: m rows by n columns, each a sum of k terms.
     * k > 0. */
    void (*matrix_multiply)(float *c, int m, int n, int64_t k, const tess__bf16_matrix *a,
                            const tess__bf16_matrix *b, const tess__bf16_matrix_room *w);
};

#endif
