/* SPDX-License-Identifier: Apache-2.0 */
/* linear_layers.c - the linear layers of a pass: timed products in its precision, and their
 * gradients.
 *
 * A gate is a factor of each column of a layer's output y = x w^T + b, and its gradient would need
 * y. It is found without: with m = g^T x, which the weights' gradient takes anyway,
 *
 *   dw = gate m (by rows),   dgate_j = sum_i g_ij y_ij = sum_k w_jk m_jk + b_j sum_i g_ij
 *
 * In BF16 the layers of the blocks multiply in bf16; those before and behind them, which are a
 * small part of the work and read the timestep and the latent as they are, do not.
 */
#include "model/pass_internal.h"

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
    tess__layer l =
        layer_of(m, kind, &m->params.block[weight], tess__block_at(m, m->values, layer, weight),
                 tess__block_at(m, m->values, layer, bias), side_by_side);
    l.half = p->z.half;
    return l;
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

/* ---- products in either precision ------------------------------------------------------------ */

static tess__factor factor_of(tess__matrix x)
{
    return (tess__factor){x.at, x.half ? TESS_DTYPE_BF16 : TESS_DTYPE_F32};
}

static tess__result result_of(tess__matrix y, int add)
{
    return (tess__result){y.at, y.half ? TESS_DTYPE_BF16 : TESS_DTYPE_F32, add};
}

/* A layer's weights, packed when they are used: weights change between passes, and packing takes
 * as long as the products of a few rows. */
static const void *packed_of(tess_pass *p, const tess__layer *l)
{
    for (int i = 0; i < 2; i++)
        if (p->ws.packed_of[i] == l->w)
            return p->ws.packed[p->ws.packed_last = i];
    const int i = p->ws.packed_last = !p->ws.packed_last;
    tess__bf16_weights_pack(p->ctx, l->in, l->out, l->w, p->ws.packed[i]);
    p->ws.packed_of[i] = l->w;
    return p->ws.packed[i];
}

void tess__packed_forget(tess_pass *p)
{
    p->ws.packed_of[0] = p->ws.packed_of[1] = NULL;
}

static tess_status product_forward(tess_pass *p, const tess__layer *l,
                                   const tess_linear_shape *shape, tess__matrix x, tess__matrix y,
                                   const tess__epilogue *epilogue)
{
    if (l->half)
        return tess__linear_bf16_forward(p->linear, shape, factor_of(x), packed_of(p, l), l->b,
                                         result_of(y, 0), epilogue);
    return tess__linear_forward(p->ctx, shape, x.at, l->w, l->b, y.at, epilogue);
}

static tess_status product_dx(tess_pass *p, const tess__layer *l, const tess_linear_shape *shape,
                              const float *dy, float *dx, int add, const tess__epilogue *epilogue)
{
    if (l->half)
        return tess__linear_bf16_dx(p->linear, shape, factor_of(tess__matrix_f32(dy)),
                                    packed_of(p, l), result_of(tess__matrix_f32(dx), add),
                                    epilogue);
    return tess__linear_dx(p->ctx, shape, dy, l->w, dx, add, epilogue);
}

static tess_status product_dw(tess_pass *p, const tess__layer *l, const tess_linear_shape *shape,
                              const float *dy, tess__matrix x, float *dw, int add,
                              const tess__epilogue *epilogue)
{
    if (l->half)
        return tess__linear_bf16_dw(p->linear, shape, factor_of(tess__matrix_f32(dy)), factor_of(x),
                                    result_of(tess__matrix_f32(dw), add), epilogue);
    return tess__linear_dw(p->ctx, shape, dy, x.at, dw, add, epilogue);
}

/* ---- layers ---------------------------------------------------------------------------------- */

tess_status tess__layer_forward(tess_pass *p, const tess__layer *l, int64_t rows, tess__matrix x,
                                tess__matrix y, const tess__epilogue *epilogue)
{
    const tess__lap lap = tess__lap_begin(p);
    tess_status status = TESS_OK;
    for (int64_t row = 0, n; row < rows && status == TESS_OK; row += n) {
        n = product_rows(p, l->kind, row, rows);
        const tess_linear_shape shape = {n, l->in, l->out};
        tess__epilogue last = {.row = row};
        if (epilogue)
            last = (tess__epilogue){epilogue->fn, epilogue->user, row};
        status = product_forward(p, l, &shape, tess__matrix_from(x, row * l->in),
                                 tess__matrix_from(y, row * l->out), epilogue ? &last : NULL);
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
        status = product_dx(p, l, &shape, dy + row * l->out, dx + row * l->in, add,
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
                            tess__matrix x)
{
    const weight_sums sums = {p, l};
    const tess__epilogue epilogue = {add_weights, &sums, 0};
    if ((l->kind == ROWS_TEXT || l->kind == ROWS_SAMPLES) && !tess__exact_first(p))
        return TESS_OK;
    for (int64_t row = 0, n; row < rows; row += n) {
        n = product_rows(p, l->kind, row, rows);
        const tess_linear_shape shape = {n, l->in, l->out};
        TESS_TRY(product_dw(p, l, &shape, dy + row * l->out, tess__matrix_from(x, row * l->in),
                            l->dw, 0, &epilogue));
        tess__column_sums(p->ctx, n, l->out, dy + row * l->out, p->exact.columns, 0);
        tess__exact_add(p, l->db, p->exact.columns, 1.0f, l->out);
    }
    return TESS_OK;
}

tess_status tess__layer_dw(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           tess__matrix x)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    tess_status status;
    if (p->z.exact) {
        status = exact_dw(p, l, rows, dy, x);
    } else {
        status = product_dw(p, l, &shape, dy, x, l->dw, 1, NULL);
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
                                 tess__matrix x, const float *residual, const float *gate, float *y)
{
    const residual_epilogue f = {p, l->b, residual, gate, row};
    return tess__layer_forward(p, l, rows, x, tess__matrix_f32(y + row * p->z.dim),
                               &(tess__epilogue){run_residual, &f, 0});
}

typedef struct {
    const tess__kernels *kernels;
    int64_t ld;
    const float *bias;
    tess__matrix h;
    float *act; /* NULL: in place of h */
} gelu_epilogue;

static void run_gelu(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const gelu_epilogue *f = user;
    f->kernels->epilogue(y, f->bias + column, NULL, NULL, n);
    f->kernels->gelu(f->act ? f->act + row * f->ld + column : y, y, n);
}

static void run_gelu_backward(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    enum { PIECE = 512 };
    const gelu_epilogue *f = user;
    const int64_t at = row * f->ld + column;
    if (!f->h.half) {
        f->kernels->gelu_backward(y, f->act + at, (const float *)f->h.at + at, n);
        return;
    }
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = TESS_MIN(n - i, PIECE);
        float h[PIECE];
        f->kernels->f32_from_bf16(h, (const uint16_t *)f->h.at + at + i, (size_t)count);
        f->kernels->gelu_backward(y + i, f->act + at + i, h, count);
    }
}

tess_status tess__layer_gelu(tess_pass *p, const tess__layer *l, int64_t rows, const float *x,
                             tess__matrix h, float *act)
{
    const gelu_epilogue f = {p->ctx->kernels, l->out, l->b, h, h.at ? act : NULL};
    return tess__layer_forward(p, l, rows, tess__matrix_f32(x), h.at ? h : tess__matrix_f32(act),
                               &(tess__epilogue){run_gelu, &f, 0});
}

tess_status tess__layer_gelu_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                                tess__matrix h, float *act, float *dh)
{
    const gelu_epilogue f = {p->ctx->kernels, l->in, NULL, h, act};
    return tess__layer_dx(p, l, rows, dy, dh, 0, &(tess__epilogue){run_gelu_backward, &f, 0});
}

tess_status tess__layer_m(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                          tess__matrix x, int add)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_linear_shape shape = {rows, l->in, l->out};
    const tess_status status =
        product_dw(p, l, &shape, p->ws.g + row * p->z.dim, x, p->ws.m, add, NULL);
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
