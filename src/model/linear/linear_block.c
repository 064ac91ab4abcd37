/* SPDX-License-Identifier: Apache-2.0 */
/* linear_block.c - a block of a product in bf16, by instructions for it or by fp32.
 *
 * Memory, as tess__linear_scratch_bytes: 1.3 MiB a thread; where fp32 multiplies 2 MiB.
 */
#include "linear_block.h"

#include <string.h>

enum {
    ROWS = TESS__LINEAR_ROWS,
    COLUMNS = TESS__LINEAR_COLUMNS,
    DEPTH = TESS_BF16_MATRIX_DEPTH,
    GROUP = TESS_BF16_GROUP,
    WIDEST = 512, /* of the three */
    PIECES = 8,
    AHEAD = 4, /* rows */
};

typedef struct {
    void **piece;
    size_t bytes;
} piece;

static void list_pieces(tess__linear_scratch *s, const tess__products *products,
                        piece pieces[PIECES])
{
    const size_t half = products ? sizeof(uint16_t) : 0, whole = products ? 0 : sizeof(float);
    const piece all[PIECES] = {
        {(void **)&s->room.a, ROWS * DEPTH * half},
        {(void **)&s->room.b, GROUP * DEPTH * half},
        {(void **)&s->room.stage, GROUP * WIDEST * half},
        {(void **)&s->a, ROWS * DEPTH * whole},
        {(void **)&s->b, DEPTH * COLUMNS * whole},
        {(void **)&s->c, ROWS * COLUMNS * sizeof(float)},
        {(void **)&s->row, COLUMNS * sizeof(float)},
        {(void **)&s->there, COLUMNS * sizeof(float)},
    };
    memcpy(pieces, all, sizeof all);
}

size_t tess__linear_scratch_bytes(const tess__products *products)
{
    tess__linear_scratch none;
    piece pieces[PIECES];
    size_t bytes = 0;
    list_pieces(&none, products, pieces);
    for (int i = 0; i < PIECES; i++)
        bytes += tess__arena_round(pieces[i].bytes);
    return bytes;
}

void tess__linear_scratch_take(tess__arena *arena, const tess__products *products,
                               tess__linear_scratch *s)
{
    piece pieces[PIECES];
    list_pieces(s, products, pieces);
    for (int i = 0; i < PIECES; i++)
        *pieces[i].piece = tess__arena_take(arena, pieces[i].bytes);
}

/* ---- by instructions for bf16 ---------------------------------------------------------------- */

static int64_t groups(int64_t n)
{
    return (n + GROUP - 1) / GROUP;
}

/* A factor from its row or column `first` on, whose rows are terms of the sum or not. */
static tess__bf16_matrix matrix_of(tess__factor x, int64_t first, int by_depth, int64_t stride)
{
    const int bf16 = x.dtype == TESS_DTYPE_BF16;
    const int64_t at = first * (by_depth ? 1 : stride);
    const void *data = bf16 ? (const void *)((const uint16_t *)x.data + at)
                            : (const void *)((const float *)x.data + at);
    return (tess__bf16_matrix){data, bf16, by_depth, stride};
}

static void multiply_bf16(const tess__linear_product *p, int64_t i, int64_t j, int64_t m, int64_t n,
                          const tess__linear_scratch *s)
{
    const tess__bf16_matrix a = matrix_of(p->a, i, p->trans_a == 'T', p->lda);
    const tess__bf16_matrix b = matrix_of(p->b, j, p->trans_b == 'N', p->ldb);
    p->products->matrix_multiply(s->c, (int)m, (int)n, p->k, &a, &b, &s->room);
}

/* ---- by fp32 --------------------------------------------------------------------------------- */

const float *tess__factor_floats(const tess_ctx *ctx, tess__factor x, int64_t i, int64_t j,
                                 int64_t rows, int64_t columns, float *room, int64_t *ld)
{
    if (x.dtype == TESS_DTYPE_F32)
        return (const float *)x.data + i * *ld + j;
    for (int64_t r = 0; r < rows; r++)
        ctx->kernels->f32_from_bf16(room + r * columns,
                                    (const uint16_t *)x.data + (i + r) * *ld + j, (size_t)columns);
    *ld = columns;
    return room;
}

static int multiply_fp32(const tess__linear_product *p, int64_t i, int64_t j, int64_t m, int64_t n,
                         const tess__linear_scratch *s)
{
    int failed = 0;
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        const int64_t deep = TESS_MIN(p->k - k, DEPTH);
        tess__sgemm_call call = {p->trans_a, p->trans_b, m,      n,     deep, NULL,
                                 p->lda,     NULL,       p->ldb, k > 0, s->c, COLUMNS};
        call.a = p->trans_a == 'T'
                     ? tess__factor_floats(p->ctx, p->a, k, i, deep, m, s->a, &call.lda)
                     : tess__factor_floats(p->ctx, p->a, i, k, m, deep, s->a, &call.lda);
        call.b = p->trans_b == 'T'
                     ? tess__factor_floats(p->ctx, p->b, j, k, n, deep, s->b, &call.ldb)
                     : tess__factor_floats(p->ctx, p->b, k, j, deep, n, s->b, &call.ldb);
        failed |= tess__sgemm(&call);
    }
    return failed;
}

/* ---- either ---------------------------------------------------------------------------------- */

int tess__linear_block(const tess__linear_product *p, int64_t i, int64_t j,
                       const tess__linear_scratch *s)
{
    const int64_t m = TESS_MIN(p->m - i, p->block_m), n = TESS_MIN(p->n - j, p->block_n);
    if (p->k == 0)
        memset(s->c, 0, ROWS * COLUMNS * sizeof *s->c);
    else if (!p->products)
        return multiply_fp32(p, i, j, m, n, s);
    else
        multiply_bf16(p, i, j, m, n, s);
    return 0;
}

float *tess__linear_block_row(const tess__linear_product *p, int64_t m, int64_t n, int64_t row,
                              const tess__linear_scratch *s)
{
    if (!p->products)
        return s->c + row * COLUMNS;
    /* A row's pieces lie a column of blocks apart: those of a later row are fetched meanwhile. */
    const float *from = s->c + row * GROUP;
    for (int64_t g = 0; g < groups(n); g++, from += groups(m) * GROUP * GROUP) {
        __builtin_prefetch(from + (ptrdiff_t)AHEAD * GROUP);
        __builtin_prefetch(from + (ptrdiff_t)AHEAD * GROUP + GROUP / 2);
        memcpy(s->row + g * GROUP, from, GROUP * sizeof *from);
    }
    return s->row;
}
