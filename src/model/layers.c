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

static tess__layer layer_of(const tess_model *m, tess__rows_kind kind, const tess__param *weight,
                            float *w, float *b, int side_by_side)
{
    return (tess__layer){
        .kind = kind,
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
    const tess__rows_kind kind = weight == P_TEXT1_W || weight == P_TEXT2_W ? ROWS_TEXT
                                 : weight == P_PATCH_W || weight == P_OUT_W ? ROWS_TOKENS
                                                                            : ROWS_SAMPLES;
    return layer_of(m, kind, &m->params.outer[weight], tess__outer_at(m, m->values, weight),
                    tess__outer_at(m, m->values, weight + 1), 1);
}

tess__layer tess__block_layer(const tess_pass *p, int layer, tess__block_param weight,
                              tess__block_param bias, int side_by_side)
{
    const tess_model *m = p->model;
    const tess__rows_kind kind = weight == B_K2_W                           ? ROWS_TEXT
                                 : weight == B_FFN1_W || weight == B_FFN2_W ? ROWS_PIECE
                                                                            : ROWS_TOKENS;
    return layer_of(m, kind, &m->params.block[weight], tess__block_at(m, m->values, layer, weight),
                    tess__block_at(m, m->values, layer, bias), side_by_side);
}

/* Rows of the product that begins at a row: all that are left, unless pass is exact. */
static int64_t product_rows(const tess_pass *p, tess__rows_kind kind, int64_t row, int64_t rows)
{
    if (!p->z.exact || kind == ROWS_PIECE)
        return rows - row;
    if (kind == ROWS_TOKENS)
        return tess__cut_of(p, row).end - row;
    return kind == ROWS_TEXT ? p->z.text : 1;
}

tess_status tess__layer_forward(tess_pass *p, const tess__layer *l, int64_t rows, const float *x,
                                float *y, const tess__epilogue *epilogue)
{
    const tess__lap lap = tess__lap_begin(p);
    tess_status status = TESS_OK;
    for (int64_t row = 0, n; row < rows && status == TESS_OK; row += n) {
        n = product_rows(p, l->kind, row, rows);
        const tess_linear_shape shape = {n, l->in, l->out};
        tess__epilogue last = {.row = row};
        if (epilogue)
            last = (tess__epilogue){epilogue->fn, epilogue->user, row};
        status = tess__linear_forward(p->ctx, &shape, x + row * l->in, l->w, l->b, y + row * l->out,
                                      epilogue ? &last : NULL);
    }
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

tess_status tess__layer_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           float *dx, int add, const tess__epilogue *epilogue)
{
    const tess__lap lap = tess__lap_begin(p);
    tess_status status = TESS_OK;
    for (int64_t row = 0, n; row < rows && status == TESS_OK; row += n) {
        n = product_rows(p, l->kind, row, rows);
        const tess_linear_shape shape = {n, l->in, l->out};
        tess__epilogue last = {.row = row};
        if (epilogue)
            last = (tess__epilogue){epilogue->fn, epilogue->user, row};
        status = tess__linear_dx(p->ctx, &shape, dy + row * l->out, l->w, dx + row * l->in, add,
                                 epilogue ? &last : NULL);
    }
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

typedef struct {
    tess_pass *p;
    const tess__layer *layer;
} weight_sums;

static void add_weights(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const weight_sums *s = user;
    tess__exact_add(s->p, s->layer->dw + row * s->layer->in + column, y, 1.0f, n);
}

/* Each product's result passes through l->dw on its way to the sums. */
static tess_status exact_dw(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                            const float *x)
{
    const weight_sums sums = {p, l};
    const tess__epilogue epilogue = {add_weights, &sums, 0};
    if ((l->kind == ROWS_TEXT || l->kind == ROWS_SAMPLES) && !tess__exact_first(p))
        return TESS_OK;
    for (int64_t row = 0, n; row < rows; row += n) {
        n = product_rows(p, l->kind, row, rows);
        const tess_linear_shape shape = {n, l->in, l->out};
        TESS_TRY(tess__linear_dw(p->ctx, &shape, dy + row * l->out, x + row * l->in, l->dw, 0,
                                 &epilogue));
        tess__column_sums(p->ctx, n, l->out, dy + row * l->out, p->exact.columns, 0);
        tess__exact_add(p, l->db, p->exact.columns, 1.0f, l->out);
    }
    return TESS_OK;
}

tess_status tess__layer_dw(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           const float *x)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    tess_status status;
    if (p->z.exact) {
        status = exact_dw(p, l, rows, dy, x);
    } else {
        status = tess__linear_dw(p->ctx, &shape, dy, x, l->dw, 1, NULL);
        tess__column_sums(p->ctx, rows, l->out, dy, l->db, 1);
    }
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
                               &(tess__epilogue){run_residual, &f, 0});
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
    return tess__layer_forward(p, l, rows, x, h, &(tess__epilogue){run_gelu, &f, 0});
}

tess_status tess__layer_gelu_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                                const float *h, float *act, float *dh)
{
    const gelu_epilogue f = {p->ctx->kernels, l->in, NULL, h, act};
    return tess__layer_dx(p, l, rows, dy, dh, 0, &(tess__epilogue){run_gelu_backward, &f, 0});
}

tess_status tess__layer_m(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                          const float *x, int add)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status =
        tess__linear_dw(p->ctx, &shape, p->ws.g + row * p->z.dim, x, p->ws.m, add, NULL);
    p->times.linear_ns += tess__lap_end(p, lap);
    return status;
}

void tess__gate_backward(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                         const float *gate, float *dgate)
{
    const int64_t dim = p->z.dim, in = l->in;
    tess__column_sums(p->ctx, rows, dim, p->ws.g + row * dim, p->ws.sums, 0);
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t j = 0; j < dim; j++) {
        const float *m = p->ws.m + j * in, factor = p->z.exact ? 0.0f : gate[j];
        const double dot =
            p->ctx->kernels->gate_gradient(l->dw + j * in, m, l->w + j * in, factor, in);
        const float sum = (float)(dot + (double)l->b[j] * p->ws.sums[j]);
        if (p->z.exact) {
            tess__exact_add(p, l->dw + j * in, m, gate[j], in);
            tess__exact_add(p, l->db + j, p->ws.sums + j, gate[j], 1);
            tess__exact_add(p, dgate + j, &sum, 1.0f, 1);
        } else {
            dgate[j] = sum;
            l->db[j] += gate[j] * p->ws.sums[j];
        }
    }
}

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

void tess__norm_rows(tess_pass *p, const float *x, const float *scale, const float *shift,
                     int64_t stride, float *y)
{
    const int64_t dim = p->z.dim, blocks = p->z.batch * blocks_of(p, ROWS_TOKENS);
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, ROWS_TOKENS, i);
        p->ctx->kernels->norm_forward(y + b.begin * dim, x + b.begin * dim,
                                      scale + b.sample * stride, shift + b.sample * stride, b.n,
                                      dim, eps);
    }
}

void tess__norm_rows_backward(tess_pass *p, const float *dy, const float *x, const float *scale,
                              int64_t stride, float *dx, float *dscale, float *dshift)
{
    const int64_t dim = p->z.dim, per = blocks_of(p, ROWS_TOKENS), blocks = p->z.batch * per;
    const float eps = (float)p->model->config.eps;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t i = 0; i < blocks; i++) {
        const rows_block b = block_at(p, ROWS_TOKENS, i);
        float *part = p->ws.partial + i * 2 * dim;
        memset(part, 0, (size_t)(2 * dim) * sizeof *part);
        p->ctx->kernels->norm_backward(dx + b.begin * dim, part, part + dim, dy + b.begin * dim,
                                       x + b.begin * dim, scale + b.sample * stride, b.n, dim, eps);
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

void tess__to_heads(tess_pass *p, tess__rows_kind kind, const float *x, int n_parts,
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
                p->ctx->kernels->rms_rotary(parts[k].heads + head_place(p, per_sample, row), stride,
                                            x + (row * n_parts + k) * z->dim, parts[k].weight,
                                            parts[k].rotate ? rope : NULL, z->heads, z->head_dim,
                                            eps);
        }
    }
}

void tess__from_heads(tess_pass *p, tess__rows_kind kind, const float *x, int n_parts,
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
                    x + row * width + k * z->dim, parts[k].weight, parts[k].rotate ? rope : NULL,
                    z->heads, z->head_dim, eps);
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
