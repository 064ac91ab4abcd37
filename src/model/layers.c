/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - what the steps of the network are made of: loops over rows.
 *
 * Loops go over blocks of TESS__BLOCK_ROWS rows that never straddle two samples. Sums over rows
 * are made for each block by itself and added up in the order of the blocks, in double: the bits
 * do not depend on which thread had which block.
 */
#include "pass_internal.h"

#include <string.h>

/* ---- loops over rows ------------------------------------------------------------------------- */

/* Rows begin .. begin + n - 1 of a sample. */
typedef struct {
    int64_t sample, begin, n;
} rows_block;

static int64_t rows_of(const tess_pass *p, tess__rows_kind kind)
{
    return kind == ROWS_TEXT ? p->z.text : p->z.local;
}

/* Blocks of a sample. */
static int64_t blocks_of(const tess_pass *p, tess__rows_kind kind)
{
    return kind == ROWS_TEXT ? (p->z.text + TESS__BLOCK_ROWS - 1) / TESS__BLOCK_ROWS
                             : p->z.cut_block[p->z.cuts];
}

static rows_block block_at(const tess_pass *p, tess__rows_kind kind, int64_t index)
{
    const int64_t blocks = blocks_of(p, kind), sample = index / blocks, at = index % blocks;
    const int64_t per_sample = rows_of(p, kind);
    int64_t first = at * TESS__BLOCK_ROWS, end = per_sample;
    if (kind != ROWS_TEXT) {
        int cut = 0;
        while (p->z.cut_block[cut + 1] <= at)
            cut++;
        first = p->z.cut_at[cut] + (at - p->z.cut_block[cut]) * TESS__BLOCK_ROWS;
        end = p->z.cut_at[cut + 1];
    }
    return (rows_block){sample, sample * per_sample + first,
                        end - first < TESS__BLOCK_ROWS ? end - first : TESS__BLOCK_ROWS};
}

/* A block's part of a gradient for each block, as add_up takes them. */
static void add_exact(tess_pass *p, const float *partial, int64_t n, int64_t stride,
                      int64_t columns, const float *out)
{
    for (int64_t i = 0; i < n; i++)
        tess__exact_add(p, out, partial + i * stride, 1.0f, columns);
}

/* The sums of n partial sums of `columns` each, `stride` apart: added to out, or written. */
static void add_up(const tess_pass *p, const float *partial, int64_t n, int64_t stride,
                   int64_t columns, float *out, int add)
{
    enum { COLUMNS = 64 };
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t j = 0; j < columns; j += COLUMNS) {
        const int64_t width = columns - j < COLUMNS ? columns - j : COLUMNS;
        double sum[COLUMNS] = {0};
        p->ctx->kernels->column_sums(sum, partial + j, stride, n, width);
        for (int64_t i = 0; i < width; i++)
            out[j + i] = (float)(add ? out[j + i] + sum[i] : sum[i]);
    }
}

void tess__gate_rows(tess_pass *p, const float *g, const float *gate, float *y)
{
    const int64_t dim = p->z.dim, blocks = p->z.batch * blocks_of(p, ROWS_TOKENS);
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, ROWS_TOKENS, i);
        p->ctx->kernels->scale(y + b.begin * dim, g + b.begin * dim,
                               gate + b.sample * MOD_ALL * dim, b.n, dim);
    }
}

/* Rows of a block that are read at once: all, or one that is converted. */
static int64_t rows_read(tess__matrix x, rows_block b)
{
    return x.half || x.round ? 1 : b.n;
}

void tess__norm_rows(tess_pass *p, tess__matrix x, const float *scale, const float *shift,
                     int64_t stride, float *y)
{
    const int64_t dim = p->z.dim, blocks = p->z.batch * blocks_of(p, ROWS_TOKENS);
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, ROWS_TOKENS, i);
        const int64_t n = rows_read(x, b);
        for (int64_t row = b.begin; row < b.begin + b.n; row += n)
            p->ctx->kernels->norm_forward(y + row * dim, tess__matrix_read(p, x, row * dim, dim),
                                          scale + b.sample * stride, shift + b.sample * stride, n,
                                          dim, eps);
    }
}

void tess__norm_rows_backward(tess_pass *p, const float *dy, tess__matrix x, const float *scale,
                              int64_t stride, float *dx, float *dscale, float *dshift)
{
    const int64_t dim = p->z.dim, per = blocks_of(p, ROWS_TOKENS), blocks = p->z.batch * per;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, ROWS_TOKENS, i);
        float *part = p->ws.partial + i * 2 * dim;
        memset(part, 0, (size_t)(2 * dim) * sizeof *part);
        const int64_t n = rows_read(x, b);
        for (int64_t row = b.begin; row < b.begin + b.n; row += n)
            p->ctx->kernels->norm_backward(dx + row * dim, part, part + dim, dy + row * dim,
                                           tess__matrix_read(p, x, row * dim, dim),
                                           scale + b.sample * stride, n, dim, eps);
    }
    const int64_t groups = stride ? p->z.batch : 1, n = blocks / groups;
    for (int64_t group = 0; group < groups; group++) {
        const float *part = p->ws.partial + group * n * 2 * dim;
        if (p->z.exact) {
            add_exact(p, part, n, 2 * dim, dim, dscale + group * stride);
            add_exact(p, part + dim, n, 2 * dim, dim, dshift + group * stride);
            continue;
        }
        add_up(p, part, n, 2 * dim, dim, dscale + group * stride, !stride);
        add_up(p, part + dim, n, 2 * dim, dim, dshift + group * stride, !stride);
    }
}

/* ---- rows and heads -------------------------------------------------------------------------- */

/* Where a row's first head begins among the heads. */
static int64_t head_place(const tess_pass *p, int64_t per_sample, int64_t row)
{
    return row / per_sample * per_sample * p->z.dim + row % per_sample * p->z.head_dim;
}

void tess__to_heads(tess_pass *p, tess__rows_kind kind, tess__matrix x, int n_parts,
                    const tess__qkv_part *parts)
{
    const tess__sizes *z = &p->z;
    const int64_t per_sample = rows_of(p, kind), stride = per_sample * z->head_dim;
    const int64_t blocks = z->batch * blocks_of(p, kind);
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, kind, i);
        float rope[TESS__ROPE_MAX];
        for (int64_t row = b.begin; row < b.begin + b.n; row++) {
            if (parts[0].rotate)
                tess__rope_at(p, z->first + row % per_sample, z->head_dim, p->rope, rope);
            for (int k = 0; k < n_parts; k++)
                p->ctx->kernels->rms_rotary(
                    parts[k].heads + head_place(p, per_sample, row), stride,
                    tess__matrix_read(p, x, (row * n_parts + k) * z->dim, z->dim), parts[k].weight,
                    parts[k].rotate ? rope : NULL, z->heads, z->head_dim, eps);
        }
    }
}

void tess__from_heads(tess_pass *p, tess__rows_kind kind, tess__matrix x, int n_parts,
                      const tess__qkv_part *parts, float *dx)
{
    const tess__sizes *z = &p->z;
    const int64_t per_sample = rows_of(p, kind), stride = per_sample * z->head_dim;
    const int64_t blocks = z->batch * blocks_of(p, kind);
    const int64_t width = n_parts * z->dim;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, kind, i);
        float rope[TESS__ROPE_MAX], *sum = p->ws.partial + i * width;
        memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t row = b.begin; row < b.begin + b.n; row++) {
            if (parts[0].rotate)
                tess__rope_at(p, z->first + row % per_sample, z->head_dim, p->rope, rope);
            for (int k = 0; k < n_parts; k++)
                p->ctx->kernels->rms_rotary_backward(
                    dx + row * width + k * z->dim, sum + k * z->dim,
                    parts[k].heads + head_place(p, per_sample, row), stride,
                    tess__matrix_read(p, x, row * width + k * z->dim, z->dim), parts[k].weight,
                    parts[k].rotate ? rope : NULL, z->heads, z->head_dim, eps);
        }
    }
    if (p->z.exact && kind == ROWS_TEXT && !tess__exact_first(p))
        return;
    for (int k = 0; k < n_parts; k++)
        if (parts[k].dweight && p->z.exact)
            add_exact(p, p->ws.partial + k * z->dim, blocks, width, z->dim, parts[k].dweight);
        else if (parts[k].dweight)
            add_up(p, p->ws.partial + k * z->dim, blocks, width, z->dim, parts[k].dweight, 1);
}

tess_view tess__heads_view(const tess_pass *p, const float *heads, int64_t per_sample)
{
    const int64_t head = per_sample * p->z.head_dim;
    return (tess_view){(void *)(uintptr_t)heads, TESS_DTYPE_F32, p->z.heads * head, head,
                       p->z.head_dim};
}

tess_view tess__rows_view(const tess_pass *p, const float *rows)
{
    return (tess_view){(void *)(uintptr_t)rows, TESS_DTYPE_F32, p->z.local * p->z.dim,
                       p->z.head_dim, p->z.dim};
}
