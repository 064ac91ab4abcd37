/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - compares attention with the double-precision reference; functions of all comparisons.
 *
 * The reference runs on the sampled queries alone: their rows of q and dout are gathered into
 * tensors of their own, and each gets its group's list as a list of its own.
 */
#include "verify.h"

#include "ref/ref.h"
#include "tessera/advanced/clusters.h"

#include <math.h>
#include <string.h>

static const double flop_max = 1e9; /* about a second of the reference */
static const double epsilon = 0x1p-24, unit_bf16 = 0x1p-8;

/* ---- what all share ----------------------------------------------------------------------- */

int64_t verify_count(int64_t total, double flop_row, int all)
{
    const double affordable = flop_max / flop_row;
    if (all || affordable >= (double)total)
        return total;
    return affordable > 2 ? (int64_t)affordable : total < 2 ? total : 2;
}

tess_status verify_sample(const workload *w, uint64_t stream, int64_t count, int64_t total,
                          int64_t *rows)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = (int64_t)((double)i * (double)total / (double)count);
        const int64_t end = (int64_t)((double)(i + 1) * (double)total / (double)count);
        uint32_t bits;
        TRY(tess_random_bits((uint64_t)w->p.seed, stream, (uint64_t)i, &bits, 1));
        rows[i] = begin + (int64_t)bits % (end - begin);
    }
    if (count > 1) {
        rows[0] = 0;
        rows[count - 1] = total - 1;
    }
    return TESS_OK;
}

void verify_widen(const verify_rows *r, double *difference, double *largest)
{
    for (int64_t i = 0; i < r->count; i++) {
        const float *got = r->got + (r->rows ? r->rows[i] : i) * r->stride;
        for (int64_t c = 0; c < r->width; c++) {
            const double want = r->want[i * r->width + c], apart = fabs(got[c] - want);
            *difference = isfinite(apart) ? fmax(*difference, apart) : INFINITY;
            *largest = fmax(*largest, fabs(want));
        }
    }
}

void verify_add(verdict *v, const char *name, double difference, double largest, double tolerance)
{
    const double error = difference == 0 ? 0 : largest > 0 ? difference / largest : INFINITY;
    v->outputs[v->n++] = (comparison){name, error, tolerance};
}

/* ---- attention ---------------------------------------------------------------------------- */

/* A score is a dot product of dim products of normal numbers, scaled to unit variance: rarely
 * beyond 6, its rounding errors add up like a random walk to 6 sqrt(dim) units of 2^-24 in the
 * exponent. The polynomial of exp2 adds 3, the sums over n keys or queries sqrt(n). */
static double tolerance_fp32(const problem *p)
{
    const int64_t n = p->tokens_q > p->tokens_k && p->backward ? p->tokens_q : p->tokens_k;
    return epsilon * (6 * sqrt((double)p->dim) + 3 + sqrt((double)n));
}

/* The gradients pass through two such products and a difference, dp - delta, that may cancel by a
 * few times. With products in bf16 weights and their gradients are rounded by at most 2^-8 of
 * each, and so is what is summed of them; lse sums rounded weights, which leaves 2^-8 / sqrt(n)
 * of n keys; the polynomial of exp2 adds 1e-4, twice. */
static double tolerance(const workload *w, int backward)
{
    const double fp32 = tolerance_fp32(&w->p);
    if (w->products.precision == TESS_PRECISION_BF16)
        return unit_bf16 * (1 + 1 / sqrt(fmax(1, w->density * (double)w->p.tokens_k))) + 3e-4;
    return backward ? 4 * fp32 : fp32;
}

typedef struct {
    workload *w;
    int64_t heads, count; /* batch x heads; rows of each */
    int64_t *rows;        /* (heads, count) */
    tess_attn_shape shape;
    tess_view q, dout; /* (heads, count, dim) */
    tess_selection_lists lists;
    const uint8_t *labels;          /* of the keys, where these have clusters */
    double *o, *lse, *dq, *dk, *dv; /* wanted; dq lies where o does */
} attn_sample;

static float *row_of(const tess_view *view, const problem *p, int64_t head, int64_t row)
{
    return (float *)view->data + head / p->heads * view->stride_b +
           head % p->heads * view->stride_h + row * view->stride_s;
}

/* Copies the sampled rows of a tensor into one of their own, or back. */
static void copy_rows(const attn_sample *s, const tess_view *view, float *packed, int back)
{
    const int64_t dim = s->w->p.dim;
    for (int64_t i = 0; i < s->heads * s->count; i++) {
        float *row = row_of(view, &s->w->p, i / s->count, s->rows[i]), *own = packed + i * dim;
        memcpy(back ? row : own, back ? own : row, (size_t)dim * sizeof *own);
    }
}

static tess_status pack(attn_sample *s, const tess_view *from, tess_view *to)
{
    const problem *p = &s->w->p;
    void *data;
    TRY(workload_take(s->w, s->heads * s->count * p->dim, TESS_DTYPE_F32, &data));
    copy_rows(s, from, data, 0);
    *to =
        (tess_view){data, TESS_DTYPE_F32, p->heads * s->count * p->dim, s->count * p->dim, p->dim};
    return TESS_OK;
}

/* The lists of the sampled rows: each row is a group. */
static tess_status pack_lists(attn_sample *s)
{
    tess_selection_lists whole;
    void *bounds, *offsets, *indices;
    const int64_t n = s->heads * s->count;
    TRY(tess_selection_view(s->w->sel, &whole));
    TRY(workload_take(s->w, s->count + 1, TESS_DTYPE_I64, &bounds));
    TRY(workload_take(s->w, n + 1, TESS_DTYPE_I64, &offsets));
    int64_t *at = offsets, total = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t list = i / s->count * whole.shape.n_q + s->rows[i] / s->w->p.group;
        at[i] = total;
        total += whole.offsets[list + 1] - whole.offsets[list];
    }
    at[n] = total;
    TRY(workload_take(s->w, total, TESS_DTYPE_I32, &indices));
    for (int64_t i = 0; i < n; i++) {
        const int64_t list = i / s->count * whole.shape.n_q + s->rows[i] / s->w->p.group;
        memcpy((int32_t *)indices + at[i], whole.indices + whole.offsets[list],
               (size_t)(at[i + 1] - at[i]) * sizeof(int32_t));
    }
    for (int64_t i = 0; i <= s->count; i++)
        ((int64_t *)bounds)[i] = i;
    s->lists = whole;
    s->lists.shape.bounds_q = bounds;
    s->lists.shape.n_q = (int32_t)s->count;
    s->lists.offsets = offsets;
    s->lists.indices = indices;
    return TESS_OK;
}

static tess_status take_doubles(attn_sample *s, int64_t n, double **data)
{
    void *memory;
    TRY(workload_take(s->w, n, TESS_DTYPE_F64, &memory));
    *data = memory;
    return TESS_OK;
}

static tess_status make_sample(attn_sample *s, int all)
{
    workload *w = s->w;
    const problem *p = &w->p;
    void *rows;
    s->heads = p->batch * p->heads;
    s->count =
        verify_count(p->tokens_q,
                     (TESS_FLOP_FORWARD + TESS_FLOP_BACKWARD * (double)p->backward) * w->density *
                         (double)p->dim * (double)p->tokens_k * (double)s->heads,
                     all);
    TRY(workload_take(w, s->heads * s->count, TESS_DTYPE_I64, &rows));
    s->rows = rows;
    for (int64_t h = 0; h < s->heads; h++)
        TRY(verify_sample(w, (uint64_t)(100 + h), s->count, p->tokens_q, s->rows + h * s->count));
    s->shape = w->shape;
    s->shape.tokens_q = s->count;
    TRY(pack(s, &w->q, &s->q));
    if (w->sel)
        TRY(pack_lists(s));
    TRY(take_doubles(s, s->heads * s->count * p->dim, &s->o));
    TRY(take_doubles(s, s->heads * s->count, &s->lse));
    s->dq = s->o;
    if (!p->backward)
        return TESS_OK;
    TRY(take_doubles(s, s->heads * p->tokens_k * p->dim, &s->dk));
    TRY(take_doubles(s, s->heads * p->tokens_k * p->dim, &s->dv));
    TRY(pack(s, &w->dout, &s->dout));
    if (s->count < p->tokens_q) {
        memset(w->dout.data, 0, (size_t)(s->heads * p->tokens_q * p->dim) * sizeof(float));
        copy_rows(s, &w->dout, s->dout.data, 1);
    }
    return TESS_OK;
}

/* Sampled rows of queries, or all rows of keys. */
static void widen(const attn_sample *s, const tess_view *got, const double *want, int keys,
                  double *difference, double *largest)
{
    const problem *p = &s->w->p;
    const int64_t count = keys ? p->tokens_k : s->count;
    for (int64_t h = 0; h < s->heads; h++)
        verify_widen(&(verify_rows){row_of(got, p, h, 0), got->stride_s, want + h * count * p->dim,
                                    keys ? NULL : s->rows + h * count, count, p->dim},
                     difference, largest);
}

static void compare_lse(const attn_sample *s, double tolerance, verdict *v)
{
    double difference = 0, largest = 0;
    for (int64_t h = 0; h < s->heads; h++)
        verify_widen(&(verify_rows){s->w->lse + h * s->w->p.tokens_q, 1, s->lse + h * s->count,
                                    s->rows + h * s->count, s->count, 1},
                     &difference, &largest);
    verify_add(v, "lse", difference, largest, tolerance);
}

/* The largest of dq and dk without the term delta of ds = p (dp - delta + dlse): dlse = delta takes
 * it away. Overwrites dq, dk and dv. */
static tess_status without_delta(attn_sample *s, const tess_selection_lists *lists,
                                 double largest[2])
{
    workload *w = s->w;
    const int64_t rows = s->heads * s->count, dim = w->p.dim;
    double unused = 0;
    void *memory;
    TRY(workload_take(w, rows, TESS_DTYPE_F32, &memory));
    float *delta = memory;
    TRY(ref_cluster_forward(w->c->ctx, &s->shape, lists, s->labels, &s->q, &w->k, &w->v, s->o,
                            NULL));
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t c = 0; c < dim; c++)
            sum += s->o[i * dim + c] * ((const float *)s->dout.data)[i * dim + c];
        delta[i] = (float)sum;
    }
    TRY(ref_cluster_backward(w->c->ctx, &s->shape, lists, s->labels, &s->q, &w->k, &w->v, &s->dout,
                             delta, s->dq, s->dk, s->dv));
    widen(s, &w->dq, s->dq, 0, &unused, &largest[0]);
    widen(s, &w->dk, s->dk, 1, &unused, &largest[1]);
    return TESS_OK;
}

/* Errors are relative to the largest element. Where every query attends to one key dq and dk are 0,
 * because dp and delta are equal; what rounding leaves of their difference is then relative to the
 * gradient that dp alone would give. */
static tess_status compare_gradients(attn_sample *s, const tess_selection_lists *lists,
                                     double tolerance, verdict *v)
{
    workload *w = s->w;
    double difference[3] = {0}, largest[3] = {0};
    TRY(ref_cluster_backward(w->c->ctx, &s->shape, lists, s->labels, &s->q, &w->k, &w->v, &s->dout,
                             NULL, s->dq, s->dk, s->dv));
    widen(s, &w->dq, s->dq, 0, &difference[0], &largest[0]);
    widen(s, &w->dk, s->dk, 1, &difference[1], &largest[1]);
    widen(s, &w->dv, s->dv, 1, &difference[2], &largest[2]);
    if (largest[0] == 0 && largest[1] == 0)
        TRY(without_delta(s, lists, largest));
    verify_add(v, "dq", difference[0], largest[0], tolerance);
    verify_add(v, "dk", difference[1], largest[1], tolerance);
    verify_add(v, "dv", difference[2], largest[2], tolerance);
    return TESS_OK;
}

tess_status verify_attn(workload *w, int all, verdict *v)
{
    attn_sample s = {.w = w};
    TRY(workload_find_products(w, &w->products));
    const double forward = tolerance(w, 0), backward = tolerance(w, 1);
    TRY(make_sample(&s, all));
    if (!w->p.forward)
        TRY(workload_forward(w, w->sel));
    TRY(workload_attn(w, w->sel));
    const tess_selection_lists *lists = w->sel ? &s.lists : NULL;
    if (w->shape.compensate > 1 && w->sel)
        TRY(tess_attn_labels(w->attn, &s.labels));
    TRY(ref_cluster_forward(w->c->ctx, &s.shape, lists, s.labels, &s.q, &w->k, &w->v, s.o, s.lse));
    double difference = 0, largest = 0;
    widen(&s, &w->o, s.o, 0, &difference, &largest);
    verify_add(v, "o", difference, largest, forward);
    compare_lse(&s, forward, v);
    if (w->p.backward)
        TRY(compare_gradients(&s, lists, backward, v));
    v->products = w->products;
    v->checked = s.heads * s.count;
    v->total = s.heads * w->p.tokens_q;
    return TESS_OK;
}
