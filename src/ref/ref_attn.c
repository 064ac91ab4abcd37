/* SPDX-License-Identifier: Apache-2.0 */
/* ref_attn.c - attention forward, backward and merge in double precision.
 *
 * For a query i that selects the keys J:
 *
 *   s_j = scale q_i . k_j      lse = log sum_j exp(s_j)      p_j = exp(s_j - lse)
 *   o_i = sum_j p_j v_j
 *
 *   dp_j = do_i . v_j          ds_j = p_j (dp_j - sum_j p_j dp_j + dlse_i)
 *   dq_i = sum_j scale ds_j k_j         dk_j += scale ds_j q_i         dv_j += p_j do_i
 *
 * With shape.compensate J has one key more for each cluster of keys (1: all of them): the mean of
 * the n keys of the cluster that are not in J, with log n added to its score; its gradients are
 * summed over the queries of a group, and a share of 1 / n goes to each of the n.
 *
 * One head after the other, one row after the other. Work: 4 D flop for each pair forward, 10 D
 * backward. Memory for each thread: one head's q, k, v and do in double, and a row of scores.
 */
#include "ref.h"

#include "base/base_internal.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* One head's inputs, widened, and a row's keys, probabilities and their gradients. */
typedef struct {
    int64_t tokens_q, tokens_k, dim;
    double scale;
    double *q, *k, *v, *dout; /* (tokens, dim) */
    double *p, *dp;           /* (tokens_k), of which n are in use */
    int64_t *keys;            /* (tokens_k): the keys of the row, ascending */
    int64_t n;
    int64_t clusters;          /* virtual keys: 0 without shape.compensate or a selection */
    const uint8_t *labels;     /* (tokens_k): the cluster of each key; NULL: 0 */
    int64_t *dropped;          /* (clusters): keys that each stands for; 0: there is none */
    double *mean_k, *mean_v;   /* (clusters, dim): the virtual keys */
    double *mean_dk, *mean_dv; /* (clusters, dim): their gradients so far */
    double *p_mean, *dp_mean;  /* (clusters): their probabilities for the row, and gradients */
} head;

static double widen_one(const void *row, tess_dtype dtype, int64_t c)
{
    if (dtype == TESS_DTYPE_F64)
        return ((const double *)row)[c];
    if (dtype == TESS_DTYPE_F32)
        return ((const float *)row)[c];
    /* BF16 is the upper half of F32. */
    const uint32_t bits = (uint32_t)((const uint16_t *)row)[c] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The rows of one head of a view, as (tokens, dim). */
static void widen(double *to, const tess_view *from, int64_t b, int64_t h, int64_t tokens,
                  int64_t dim)
{
    for (int64_t s = 0; s < tokens; s++) {
        const int64_t at = b * from->stride_b + h * from->stride_h + s * from->stride_s;
        const void *row = (const char *)from->data + at * (int64_t)tess_dtype_size(from->dtype);
        for (int64_t c = 0; c < dim; c++)
            to[s * dim + c] = widen_one(row, from->dtype, c);
    }
}

/* In four sums, which a compiler may keep in vectors. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sum[4] = {0};
    int64_t c = 0;
    for (; c + 4 <= n; c += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += a[c + i] * b[c + i];
    for (; c < n; c++)
        sum[0] += a[c] * b[c];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* to += factor * x */
static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += factor * x[c];
}

/* Sets the keys that the queries of group g in head number bh select. */
static void select_keys(head *w, const tess_selection_lists *sel, int64_t bh, int64_t g)
{
    w->n = 0;
    if (!sel) {
        for (int64_t j = 0; j < w->tokens_k; j++)
            w->keys[w->n++] = j;
        return;
    }
    const int64_t list = bh * sel->shape.n_q + g;
    for (int64_t i = sel->offsets[list]; i < sel->offsets[list + 1]; i++) {
        const int32_t unit = sel->indices[i];
        for (int64_t j = sel->shape.bounds_k[unit]; j < sel->shape.bounds_k[unit + 1]; j++)
            w->keys[w->n++] = j;
    }
}

static int64_t label_of(const head *w, int64_t j)
{
    return w->labels ? w->labels[j] : 0;
}

/* Sets the virtual keys of the keys that are not selected. */
static void make_virtual(head *w)
{
    memset(w->dropped, 0, (size_t)w->clusters * sizeof *w->dropped);
    memset(w->mean_k, 0, (size_t)(4 * w->clusters * w->dim) * sizeof *w->mean_k);
    for (int64_t j = 0, next = 0; j < w->tokens_k; j++) {
        const int64_t c = label_of(w, j);
        if (next < w->n && w->keys[next] == j) {
            next++;
            continue;
        }
        w->dropped[c]++;
        add(w->mean_k + c * w->dim, 1.0, w->k + j * w->dim, w->dim);
        add(w->mean_v + c * w->dim, 1.0, w->v + j * w->dim, w->dim);
    }
    for (int64_t i = 0; i < w->clusters * w->dim; i++) {
        const int64_t c = i / w->dim;
        if (w->dropped[c] > 0) {
            w->mean_k[i] /= (double)w->dropped[c];
            w->mean_v[i] /= (double)w->dropped[c];
        }
    }
}

/* Gives the gradients of the virtual keys to the keys they stand for. */
static void spread_virtual(const head *w, double *dk, double *dv)
{
    for (int64_t j = 0, next = 0; w->clusters > 0 && j < w->tokens_k; j++) {
        if (next < w->n && w->keys[next] == j) {
            next++;
            continue;
        }
        const int64_t c = label_of(w, j);
        add(dk + j * w->dim, 1.0 / (double)w->dropped[c], w->mean_dk + c * w->dim, w->dim);
        add(dv + j * w->dim, 1.0 / (double)w->dropped[c], w->mean_dv + c * w->dim, w->dim);
    }
}

/* Sets p for query i; returns lse. */
static double softmax(head *w, int64_t i)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t c = 0; c < w->clusters; c++) {
        w->p_mean[c] = w->scale * dot(w->q + i * w->dim, w->mean_k + c * w->dim, w->dim) +
                       log((double)w->dropped[c]); /* -inf where there is none */
        max = fmax(max, w->p_mean[c]);
    }
    for (int64_t j = 0; j < w->n; j++) {
        w->p[j] = w->scale * dot(w->q + i * w->dim, w->k + w->keys[j] * w->dim, w->dim);
        max = fmax(max, w->p[j]);
    }
    for (int64_t j = 0; j < w->n; j++)
        sum += w->p[j] = exp(w->p[j] - max);
    for (int64_t c = 0; c < w->clusters && max > -INFINITY; c++)
        sum += w->p_mean[c] = exp(w->p_mean[c] - max);
    for (int64_t j = 0; j < w->n; j++)
        w->p[j] /= sum;
    for (int64_t c = 0; c < w->clusters; c++)
        w->p_mean[c] = sum > 0.0 ? w->p_mean[c] / sum : 0.0;
    return max > -INFINITY ? max + log(sum) : -INFINITY;
}

static void forward_row(head *w, int64_t i, double *o, double *lse)
{
    const double row_lse = softmax(w, i);
    memset(o, 0, (size_t)w->dim * sizeof *o);
    for (int64_t j = 0; j < w->n; j++)
        add(o, w->p[j], w->v + w->keys[j] * w->dim, w->dim);
    for (int64_t c = 0; c < w->clusters; c++)
        add(o, w->p_mean[c], w->mean_v + c * w->dim, w->dim);
    if (lse)
        *lse = row_lse;
}

/* dq is the row's, dk and dv the head's. */
static void backward_row(head *w, int64_t i, double dlse, double *dq, double *dk, double *dv)
{
    const int64_t dim = w->dim;
    const double *dout = w->dout + i * dim;
    softmax(w, i);
    double delta = 0.0;
    for (int64_t j = 0; j < w->n; j++) {
        w->dp[j] = dot(dout, w->v + w->keys[j] * dim, dim);
        delta += w->p[j] * w->dp[j];
    }
    for (int64_t c = 0; c < w->clusters; c++) {
        w->dp_mean[c] = dot(dout, w->mean_v + c * dim, dim);
        delta += w->p_mean[c] * w->dp_mean[c];
    }
    memset(dq, 0, (size_t)dim * sizeof *dq);
    for (int64_t j = 0; j < w->n; j++) {
        const int64_t key = w->keys[j];
        const double ds = w->scale * w->p[j] * (w->dp[j] - delta + dlse);
        add(dq, ds, w->k + key * dim, dim);
        add(dk + key * dim, ds, w->q + i * dim, dim);
        add(dv + key * dim, w->p[j], dout, dim);
    }
    for (int64_t c = 0; c < w->clusters; c++) {
        const double ds = w->scale * w->p_mean[c] * (w->dp_mean[c] - delta + dlse);
        add(dq, ds, w->mean_k + c * dim, dim);
        add(w->mean_dk + c * dim, ds, w->q + i * dim, dim);
        add(w->mean_dv + c * dim, w->p_mean[c], dout, dim);
    }
}

/* What to compute: backward if dq is set. */
typedef struct {
    const tess_attn_shape *shape;
    const tess_selection_lists *sel;
    const uint8_t *labels; /* (batch, heads, tokens_k); NULL: one cluster */
    const tess_view *q, *k, *v, *dout;
    const float *dlse;
    double *o, *lse, *dq, *dk, *dv;
} job;

/* Moves on to the next group of queries. */
static void next_group(const job *j, head *w, int64_t bh, int64_t g)
{
    const int64_t keys = bh * w->tokens_k * w->dim;
    if (g > 0 && j->dq)
        spread_virtual(w, j->dk + keys, j->dv + keys);
    select_keys(w, j->sel, bh, g);
    if (w->clusters > 0)
        make_virtual(w);
}

static void run_head(const job *j, head *w, int64_t bh)
{
    const int64_t b = bh / j->shape->heads, h = bh % j->shape->heads, dim = w->dim;
    const int64_t rows = bh * w->tokens_q, keys = bh * w->tokens_k; /* before this head */
    widen(w->q, j->q, b, h, w->tokens_q, dim);
    widen(w->k, j->k, b, h, w->tokens_k, dim);
    widen(w->v, j->v, b, h, w->tokens_k, dim);
    w->labels = j->labels ? j->labels + keys : NULL;
    if (j->dq) {
        widen(w->dout, j->dout, b, h, w->tokens_q, dim);
        memset(j->dk + keys * dim, 0, (size_t)(w->tokens_k * dim) * sizeof *j->dk);
        memset(j->dv + keys * dim, 0, (size_t)(w->tokens_k * dim) * sizeof *j->dv);
    }
    int64_t g = -1;
    for (int64_t i = 0; i < w->tokens_q; i++) {
        if (i == 0 || (j->sel && i == j->sel->shape.bounds_q[g + 1]))
            next_group(j, w, bh, ++g);
        const int64_t row = rows + i;
        if (j->dq)
            backward_row(w, i, j->dlse ? j->dlse[row] : 0.0, j->dq + row * dim, j->dk + keys * dim,
                         j->dv + keys * dim);
        else
            forward_row(w, i, j->o + row * dim, j->lse ? &j->lse[row] : NULL);
    }
    if (j->dq && g >= 0)
        spread_virtual(w, j->dk + keys * dim, j->dv + keys * dim);
}

/* Memory for one thread. */
static tess_status take_head(tess__arena *arena, const job *j, head *w)
{
    const tess_attn_shape *s = j->shape;
    *w = (head){.tokens_q = s->tokens_q, .tokens_k = s->tokens_k, .dim = s->head_dim};
    w->scale = s->scale != 0.0f ? s->scale : 1.0 / sqrt(s->head_dim);
    const size_t q = (size_t)(s->tokens_q * s->head_dim) * sizeof(double);
    const size_t k = (size_t)(s->tokens_k * s->head_dim) * sizeof(double);
    const size_t row = (size_t)s->tokens_k * sizeof(double);
    w->q = tess__arena_take(arena, q);
    w->dout = tess__arena_take(arena, j->dq ? q : 0);
    w->k = tess__arena_take(arena, k);
    w->v = tess__arena_take(arena, k);
    w->p = tess__arena_take(arena, row);
    w->dp = tess__arena_take(arena, row);
    w->keys = tess__arena_take(arena, row);
    w->clusters = j->sel ? s->compensate : 0;
    const size_t n = (size_t)w->clusters, dim = n * (size_t)s->head_dim;
    w->mean_k = TESS_TAKE(arena, (4 * dim + 2 * n) * sizeof *w->mean_k);
    w->dropped = TESS_TAKE(arena, n * sizeof *w->dropped);
    w->mean_v = w->mean_k + dim;
    w->mean_dk = w->mean_v + dim;
    w->mean_dv = w->mean_dk + dim;
    w->p_mean = w->mean_dv + dim;
    w->dp_mean = w->p_mean + n;
    return w->q && w->dout && w->k && w->v && w->p && w->dp && w->keys ? TESS_OK : TESS_ENOMEM;
}

static tess_status run(tess_ctx *ctx, const job *j)
{
    const int64_t heads = (int64_t)j->shape->batch * j->shape->heads;
    const int threads = heads < ctx->threads ? (int)heads : ctx->threads;
    tess__arena arena = {.ctx = ctx};
    tess_status status = TESS_OK;
    head *work = tess__arena_take(&arena, (size_t)threads * sizeof *work);
    if (!work)
        status = TESS_ENOMEM;
    for (int t = 0; t < threads && status == TESS_OK; t++)
        status = take_head(&arena, j, &work[t]);
    if (status == TESS_OK) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t bh = 0; bh < heads; bh++)
            run_head(j, &work[omp_get_thread_num()], bh);
    }
    tess__arena_free(&arena);
    return status;
}

tess_status ref_attn_forward(tess_ctx *ctx, const tess_attn_shape *shape,
                             const tess_selection_lists *sel, const tess_view *q,
                             const tess_view *k, const tess_view *v, double *o, double *lse)
{
    return ref_cluster_forward(ctx, shape, sel, NULL, q, k, v, o, lse);
}

tess_status ref_attn_backward(tess_ctx *ctx, const tess_attn_shape *shape,
                              const tess_selection_lists *sel, const tess_view *q,
                              const tess_view *k, const tess_view *v, const tess_view *dout,
                              const float *dlse, double *dq, double *dk, double *dv)
{
    return ref_cluster_backward(ctx, shape, sel, NULL, q, k, v, dout, dlse, dq, dk, dv);
}

tess_status ref_cluster_forward(tess_ctx *ctx, const tess_attn_shape *shape,
                                const tess_selection_lists *sel, const uint8_t *labels,
                                const tess_view *q, const tess_view *k, const tess_view *v,
                                double *o, double *lse)
{
    return run(ctx, &(job){shape, sel, labels, .q = q, .k = k, .v = v, .o = o, .lse = lse});
}

tess_status ref_cluster_backward(tess_ctx *ctx, const tess_attn_shape *shape,
                                 const tess_selection_lists *sel, const uint8_t *labels,
                                 const tess_view *q, const tess_view *k, const tess_view *v,
                                 const tess_view *dout, const float *dlse, double *dq, double *dk,
                                 double *dv)
{
    return run(ctx, &(job){shape, sel, labels, q, k, v, dout, dlse, .dq = dq, .dk = dk, .dv = dv});
}

void ref_attn_merge(const tess_attn_shape *shape, const double *o_part, const double *lse_part,
                    double *o, double *lse)
{
    const int64_t rows = (int64_t)shape->batch * shape->heads * shape->tokens_q;
    const int64_t dim = shape->head_dim;
    for (int64_t i = 0; i < rows; i++) {
        const double max = fmax(lse[i], lse_part[i]);
        if (max == -INFINITY)
            continue; /* neither saw anything: o is 0 and lse is -inf */
        const double a = exp(lse[i] - max), b = exp(lse_part[i] - max), sum = a + b;
        for (int64_t c = i * dim; c < (i + 1) * dim; c++)
            o[c] = (a * o[c] + b * o_part[c]) / sum;
        lse[i] = max + log(sum);
    }
}
