/* SPDX-License-Identifier: Apache-2.0 */
/* predict_map.c - projected vectors of q or k, one map per head, and the gradient of the maps.
 *
 *   low_t = W_h x_t                      W_h (rank, head_dim)
 *   dW_h += sum over t of dlow_t x_t^T
 *
 * Tasks are parts of heads (predict.h). The gradient of a part is a matrix of its own, and a head's
 * are summed in order of samples and parts. Flop: 2 tokens head_dim rank per head, either way.
 */
#include "predict_internal.h"

#include <omp.h>
#include <string.h>

static tess_status check_map(const char *who, const tess_predict *p, const tess_view *x,
                             const float *w, const char *name_w, const tess_view *low,
                             const char *name_low, int64_t rows)
{
    if (!p || !w)
        return tess__invalid(who, "%s is NULL", p ? name_w : "predict");
    TESS_TRY(tess__view_check(who, "x", x, TESS_DTYPE_F32, TESS_DTYPE_F32, p->shape.tokens));
    return tess__view_check(who, name_low, low, TESS_DTYPE_F32, TESS_DTYPE_F32, rows);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Panels of a map: row r of it is a column. */
static void pack_map(const tess_predict *p, float *panels, const float *w)
{
    const int rank = p->shape.rank, dim = p->shape.head_dim;
    p->ctx->kernels->panel_pack(panels, w, dim, rank, dim);
}

static void map_part(const tess_predict *p, const tess__predict_scratch *w, int64_t task,
                     const tess_view *x, const float *weights, const tess_view *low)
{
    const tess_predict_shape *s = &p->shape;
    const int64_t head = task / p->parts, b = head / s->heads, h = head % s->heads;
    const int64_t begin = task % p->parts * TESS__PART;
    const int64_t end = s->tokens - begin < TESS__PART ? s->tokens : begin + TESS__PART;
    pack_map(p, w->panels, weights + h * s->rank * s->head_dim);
    for (int64_t t = begin; t < end; t += TESS__STEP) {
        const int n = end - t < TESS__STEP ? (int)(end - t) : TESS__STEP;
        tess__predict_multiply(p, tess__view_row(low, b, h, t), low->stride_s,
                               tess__view_row(x, b, h, t), x->stride_s, n, w->panels, s->head_dim,
                               w->out);
    }
}

tess_status tess_predict_map(tess_predict *predict, const tess_view *x, const float *w,
                             const tess_view *low)
{
    const tess_predict *p = predict;
    TESS_TRY(check_map("tess_predict_map", p, x, w, "w", low, "low", 1));
#pragma omp parallel for schedule(dynamic) num_threads(p->ctx->threads)
    for (int64_t task = 0; task < p->tasks; task++)
        map_part(p, &p->scratch[omp_get_thread_num()], task, x, w, low);
    return TESS_OK;
}

/* ---- gradient ------------------------------------------------------------------------------ */

typedef struct {
    const tess_predict *p;
    const tess_view *x, *dlow;
    const int64_t *rows; /* NULL: all tokens */
    int64_t n_rows, parts;
} gradient;

/* The x of n rows from the i-th on: where they lie, or gathered. */
static const float *rows_of(const gradient *g, const tess__predict_scratch *w, int64_t b, int64_t h,
                            int64_t i, int n, int64_t *stride)
{
    const int dim = g->p->shape.head_dim;
    *stride = g->x->stride_s;
    if (!g->rows)
        return tess__view_row(g->x, b, h, i);
    *stride = dim;
    for (int r = 0; r < n; r++)
        memcpy(w->x + (size_t)r * (size_t)dim, tess__view_row(g->x, b, h, g->rows[i + r]),
               sizeof(float) * (size_t)dim);
    return w->x;
}

static void add_part(const gradient *g, const tess__predict_scratch *w, int64_t task)
{
    const tess_predict *p = g->p;
    const int rank = p->shape.rank, dim = p->shape.head_dim;
    const int64_t head = task / g->parts, b = head / p->shape.heads, h = head % p->shape.heads;
    const int64_t begin = task % g->parts * TESS__PART;
    const int64_t end = g->n_rows - begin < TESS__PART ? g->n_rows : begin + TESS__PART;
    const size_t size = (size_t)rank * (size_t)dim;
    float *sum = p->partial + (size_t)task * size;
    memset(sum, 0, sizeof *sum * size);
    for (int64_t i = begin; i < end; i += TESS__STEP) {
        const int n = end - i < TESS__STEP ? (int)(end - i) : TESS__STEP;
        int64_t stride;
        const float *x = rows_of(g, w, b, h, i, n, &stride);
        p->ctx->kernels->add_products(sum, dim, tess__view_row(g->dlow, b, h, i), g->dlow->stride_s,
                                      x, stride, n, rank, dim);
    }
}

/* The sums of a head's tasks, in order, onto its gradient. */
static void add_head(const gradient *g, int64_t h, float *dw)
{
    const tess_predict_shape *s = &g->p->shape;
    const size_t size = (size_t)s->rank * (size_t)s->head_dim;
    float *to = dw + (size_t)h * size;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t part = 0; part < g->parts; part++) {
            const float *from =
                g->p->partial + (size_t)((b * s->heads + h) * g->parts + part) * size;
            for (size_t i = 0; i < size; i++)
                to[i] += from[i];
        }
}

tess_status tess_predict_map_backward(tess_predict *predict, const tess_view *x,
                                      const tess_view *dlow, const int64_t *rows, int64_t n_rows,
                                      float *dw)
{
    tess_predict *p = predict;
    TESS_TRY(check_map(__func__, p, x, dw, "dw", dlow, "dlow", 1));
    if (rows && (n_rows < 1 || n_rows > p->shape.tokens))
        return tess__invalid(__func__, "n_rows is %lld, must be 1..%lld", (long long)n_rows,
                             (long long)p->shape.tokens);
    if (rows)
        TESS_TRY(tess__predict_check_rows(__func__, rows, n_rows, p->shape.tokens));
    const int64_t n = rows ? n_rows : p->shape.tokens;
    const gradient g = {p, x, dlow, rows, n, (n + TESS__PART - 1) / TESS__PART};
#pragma omp parallel num_threads(p->ctx->threads)
    {
        const tess__predict_scratch *w = &p->scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < p->heads * g.parts; task++)
            add_part(&g, w, task);
#pragma omp for
        for (int64_t h = 0; h < p->shape.heads; h++)
            add_head(&g, h, dw);
    }
    return TESS_OK;
}
