/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - what the steps of the network are made of: timed products, and loops over rows.
 *
 * Loops go over blocks of TESS__BLOCK_ROWS rows that never straddle two samples. Sums over rows
 * are made for each block by itself and added up in the order of the blocks, in double: the bits
 * do not depend on which thread had which block.
 *
 * A gate is a factor of each column of a layer's output y = x w^T + b, and its gradient would need
 * y. It is found without: with m = g^T x, which the weights' gradient takes anyway,
 *
 *   dw = gate m (by rows),   dgate_j = sum_i g_ij y_ij = sum_k w_jk m_jk + b_j sum_i g_ij
 */
#include "pass_internal.h"

#include <string.h>

/* ---- linear layers --------------------------------------------------------------------------- */

static tess__layer layer_of(const tess_model *m, const tess__param *weight, float *w, float *b,
                            int side_by_side)
{
    return (tess__layer){
        .in = weight->count / weight->shape[0],
        .out = weight->shape[0] * side_by_side,
        .w = w,
        .b = b,
        .dw = m->gradients ? m->gradients + (w - m->values) : NULL,
        .db = m->gradients ? m->gradients + (b - m->values) : NULL,
    };
}

tess__layer tess__outer_layer(const tess_pass *p, tess__outer_param weight)
{
    const tess_model *m = p->model;
    return layer_of(m, &m->params.outer[weight], tess__outer_at(m, m->values, weight),
                    tess__outer_at(m, m->values, weight + 1), 1);
}

tess__layer tess__block_layer(const tess_pass *p, int layer, tess__block_param weight,
                              tess__block_param bias, int side_by_side)
{
    const tess_model *m = p->model;
    return layer_of(m, &m->params.block[weight], tess__block_at(m, m->values, layer, weight),
                    tess__block_at(m, m->values, layer, bias), side_by_side);
}

tess_status tess__layer_forward(tess_pass *p, const tess__layer *l, int64_t rows, const float *x,
                                float *y, const tess__epilogue *epilogue)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status = tess__linear_forward(p->ctx, &shape, x, l->w, l->b, y, epilogue);
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

tess_status tess__layer_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           float *dx, int add, const tess__epilogue *epilogue)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status = tess__linear_dx(p->ctx, &shape, dy, l->w, dx, add, epilogue);
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

tess_status tess__layer_dw(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           const float *x)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status = tess__linear_dw(p->ctx, &shape, dy, x, l->dw, 1);
    tess__column_sums(p->ctx, rows, l->out, dy, l->db, 1);
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

typedef struct {
    const tess_pass *p;
    const float *bias, *residual, *gate;
    int64_t row; /* of the pass, at the product's first */
} residual_epilogue;

static void run_residual(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const residual_epilogue *f = user;
    const int64_t dim = f->p->z.dim, at = f->row + row;
    const float *gate = f->gate ? f->gate + at / f->p->z.local * MOD_ALL * dim + column : NULL;
    f->p->ctx->kernels->epilogue(y, f->bias + column, gate, f->residual + at * dim + column, n);
}

tess_status tess__layer_residual(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                                 const float *x, const float *residual, const float *gate, float *y)
{
    const residual_epilogue f = {p, l->b, residual, gate, row};
    return tess__layer_forward(p, l, rows, x, y + row * p->z.dim,
                               &(tess__epilogue){run_residual, &f});
}

typedef struct {
    const tess__kernels *kernels;
    int64_t ld;
    const float *bias, *h;
    float *act;
} gelu_epilogue;

static void run_gelu(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const gelu_epilogue *f = user;
    f->kernels->epilogue(y, f->bias + column, NULL, NULL, n);
    f->kernels->gelu(f->act + row * f->ld + column, y, n);
}

static void run_gelu_backward(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const gelu_epilogue *f = user;
    const int64_t at = row * f->ld + column;
    f->kernels->gelu_backward(y, f->act + at, f->h + at, n);
}

tess_status tess__layer_gelu(tess_pass *p, const tess__layer *l, int64_t rows, const float *x,
                             float *h, float *act)
{
    const gelu_epilogue f = {p->ctx->kernels, l->out, l->b, NULL, act};
    return tess__layer_forward(p, l, rows, x, h, &(tess__epilogue){run_gelu, &f});
}

tess_status tess__layer_gelu_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                                const float *h, float *act, float *dh)
{
    const gelu_epilogue f = {p->ctx->kernels, l->in, NULL, h, act};
    return tess__layer_dx(p, l, rows, dy, dh, 0, &(tess__epilogue){run_gelu_backward, &f});
}

tess_status tess__layer_m(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                          const float *x, int add)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status =
        tess__linear_dw(p->ctx, &shape, p->ws.g + row * p->z.dim, x, p->ws.m, add);
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

void tess__gate_backward(tess_pass *p, const tess__layer *l, int64_t sample, const float *gate,
                         float *dgate)
{
    const int64_t dim = p->z.dim, in = l->in;
    tess__column_sums(p->ctx, p->z.local, dim, p->ws.g + sample * p->z.local * dim, p->ws.sums, 0);
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t j = 0; j < dim; j++) {
        const double dot = p->ctx->kernels->gate_gradient(l->dw + j * in, p->ws.m + j * in,
                                                          l->w + j * in, gate[j], in);
        dgate[j] = (float)(dot + (double)l->b[j] * p->ws.sums[j]);
        l->db[j] += gate[j] * p->ws.sums[j];
    }
}

/* ---- loops over rows ------------------------------------------------------------------------- */

/* Rows begin .. begin + n - 1 of a sample. */
typedef struct {
    int64_t sample, begin, n;
} rows_block;

static int64_t blocks_of(int64_t per_sample)
{
    return (per_sample + TESS__BLOCK_ROWS - 1) / TESS__BLOCK_ROWS;
}

static rows_block block_at(int64_t per_sample, int64_t index)
{
    const int64_t blocks = blocks_of(per_sample), sample = index / blocks;
    const int64_t first = index % blocks * TESS__BLOCK_ROWS, left = per_sample - first;
    return (rows_block){sample, sample * per_sample + first,
                        left < TESS__BLOCK_ROWS ? left : TESS__BLOCK_ROWS};
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
    const int64_t dim = p->z.dim, blocks = p->z.batch * blocks_of(p->z.local);
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p->z.local, i);
        p->ctx->kernels->scale(y + b.begin * dim, g + b.begin * dim,
                               gate + b.sample * MOD_ALL * dim, b.n, dim);
    }
}

void tess__norm_rows(tess_pass *p, const float *x, const float *scale, const float *shift,
                     int64_t stride, float *y)
{
    const int64_t dim = p->z.dim, blocks = p->z.batch * blocks_of(p->z.local);
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p->z.local, i);
        p->ctx->kernels->norm_forward(y + b.begin * dim, x + b.begin * dim,
                                      scale + b.sample * stride, shift + b.sample * stride, b.n,
                                      dim, eps);
    }
}

void tess__norm_rows_backward(tess_pass *p, const float *dy, const float *x, const float *scale,
                              int64_t stride, float *dx, float *dscale, float *dshift)
{
    const int64_t dim = p->z.dim, per = blocks_of(p->z.local), blocks = p->z.batch * per;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p->z.local, i);
        float *part = p->ws.partial + i * 2 * dim;
        memset(part, 0, (size_t)(2 * dim) * sizeof *part);
        p->ctx->kernels->norm_backward(dx + b.begin * dim, part, part + dim, dy + b.begin * dim,
                                       x + b.begin * dim, scale + b.sample * stride, b.n, dim, eps);
    }
    const int64_t groups = stride ? p->z.batch : 1, n = blocks / groups;
    for (int64_t group = 0; group < groups; group++) {
        const float *part = p->ws.partial + group * n * 2 * dim;
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

void tess__to_heads(tess_pass *p, int64_t per_sample, const float *x, int n_parts,
                    const tess__qkv_part *parts)
{
    const tess__sizes *z = &p->z;
    const int64_t blocks = z->batch * blocks_of(per_sample), stride = per_sample * z->head_dim;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(per_sample, i);
        float rope[TESS__ROPE_MAX];
        for (int64_t row = b.begin; row < b.begin + b.n; row++) {
            if (parts[0].rotate)
                tess__rope_at(p, z->first + row % per_sample, z->head_dim, p->rope, rope);
            for (int k = 0; k < n_parts; k++)
                p->ctx->kernels->rms_rotary(parts[k].heads + head_place(p, per_sample, row), stride,
                                            x + (row * n_parts + k) * z->dim, parts[k].weight,
                                            parts[k].rotate ? rope : NULL, z->heads, z->head_dim,
                                            eps);
        }
    }
}

void tess__from_heads(tess_pass *p, int64_t per_sample, const float *x, int n_parts,
                      const tess__qkv_part *parts, float *dx)
{
    const tess__sizes *z = &p->z;
    const int64_t blocks = z->batch * blocks_of(per_sample), stride = per_sample * z->head_dim;
    const int64_t width = n_parts * z->dim;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(per_sample, i);
        float rope[TESS__ROPE_MAX], *sum = p->ws.partial + i * width;
        memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t row = b.begin; row < b.begin + b.n; row++) {
            if (parts[0].rotate)
                tess__rope_at(p, z->first + row % per_sample, z->head_dim, p->rope, rope);
            for (int k = 0; k < n_parts; k++)
                p->ctx->kernels->rms_rotary_backward(
                    dx + row * width + k * z->dim, sum + k * z->dim,
                    parts[k].heads + head_place(p, per_sample, row), stride,
                    x + row * width + k * z->dim, parts[k].weight, parts[k].rotate ? rope : NULL,
                    z->heads, z->head_dim, eps);
        }
    }
    for (int k = 0; k < n_parts; k++)
        if (parts[k].dweight)
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
