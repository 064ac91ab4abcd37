/* SPDX-License-Identifier: Apache-2.0 */
/* linear_block.h - a block of a product in bf16, by one thread. */
#ifndef TESS_LINEAR_BLOCK_H
#define TESS_LINEAR_BLOCK_H

#include "kernels/bf16/bf16.h"
#include "linear_bf16.h"

/* Blocks of a result have at most so many rows and columns; the bits do not depend on it. */
enum { TESS__LINEAR_ROWS = TESS_BF16_MATRIX_ROWS, TESS__LINEAR_COLUMNS = TESS_BF16_MATRIX_COLUMNS };

/* One thread's memory. */
typedef struct {
    tess__bf16_matrix_room room;
    float *a, *b;       /* where fp32 multiplies: parts of the factors */
    float *c;           /* the block's sums */
    float *row, *there; /* one row of it, and of what is there */
} tess__linear_scratch;

/* c = op(a) op(b): (m, n), row-major; op is the transpose where its letter is 'T'. */
typedef struct {
    char trans_a, trans_b;
    int64_t m, n, k;
    tess__factor a, b;
    int64_t lda, ldb;
    tess__result c;
    const tess__epilogue *epilogue;
    const tess_ctx *ctx;            /* this and what follows: set by run_product */
    const tess__products *products; /* NULL: fp32 multiplies */
    int64_t block_m, block_n;
} tess__linear_product;

size_t tess__linear_scratch_bytes(const tess__products *products);
void tess__linear_scratch_take(tess__arena *arena, const tess__products *products,
                               tess__linear_scratch *s);

/* The sums of the block that begins at row i and column j. Returns 1 if oneDNN failed. */
int tess__linear_block(const tess__linear_product *p, int64_t i, int64_t j,
                       const tess__linear_scratch *s);

/* Row number `row` of that block, which is (m, n). */
float *tess__linear_block_row(const tess__linear_product *p, int64_t m, int64_t n, int64_t row,
                              const tess__linear_scratch *s);

/* (rows, columns) of a factor from row i and column j on, as floats *ld apart; before, *ld is how
 * far the factor's own rows are. */
const float *tess__factor_floats(const tess_ctx *ctx, tess__factor x, int64_t i, int64_t j,
                                 int64_t rows, int64_t columns, float *room, int64_t *ld);

#endif
