/* SPDX-License-Identifier: Apache-2.0 */
/* predict_loss.c - the predictor's loss on sampled queries, and its gradients, in two passes.
 *
 * With rows s_j = scale q k_j of the teacher and r_j = scale_low q_low k_low_j of the student:
 *
 *   KL:      a = softmax(s), p = softmax(r);  L = sum a_j (log a_j - log p_j);  dr_j = p_j - a_j
 *   cosine:  c = s.r / (|s| |r|);  L = u (1 - c),  u = 0.95 + 0.1 / S;
 *            dr_j = u (c r_j / |r|^2 - s_j / (|s| |r|))
 *
 * for the squared distance of the normalised rows is 2 - 2 c: DSV's second term is the first one
 * over S / 2. Then dq_low = scale_low sum_j dr_j k_low_j, and dk_low_j = scale_low sum_i dr_ij
 * q_low_i, all of it times the weight 1 / (samples heads rows).
 *
 * Pass 1 finds each row's lse (or products), pass 2 computes the scores once more, turns them into
 * dr and multiplies. Tiles are keys by queries: keys are read where they lie, the few queries are
 * packed by every task. Flop per head, with R rows: 4 S R head_dim + 8 S R rank; two passes over k
 * in memory. Nothing of R by S is held.
 *
 * stats of a task, of a head's rows:  KL: m, l of s, m, l of r -> lse of s, lse of r (base 2)
 *                                     cosine: s.s, s.r, r.r    -> factors of s_j and r_j, 1 - c
 */
#include "predict.h"

#include <omp.h>
#include <string.h>

static const double LN_2 = 0.69314718055994531, LOG2_E = 1.4426950408889634;

typedef struct {
    const tess_predict *p;
    const tess_predict_in *in;
    float scale, scale_low;
    double weight;
    const tess_view *dq, *dk; /* NULL: not wanted */
} job;

/* The keys of a task. */
typedef struct {
    int64_t head, b, h, begin, end;
} range;

static range range_of(const tess_predict *p, int64_t task)
{
    range r = {.head = task / p->parts, .begin = task % p->parts * TESS__PART};
    r.b = r.head / p->shape.heads;
    r.h = r.head % p->shape.heads;
    r.end = p->shape.tokens - r.begin < TESS__PART ? p->shape.tokens : r.begin + TESS__PART;
    return r;
}

static int columns(const job *j)
{
    return tess__whole_panels(j->in->n_rows);
}

/* Panels of the sampled queries of a task's head. */
static void pack_rows(const job *j, const tess__predict_scratch *w, const range *r)
{
    const tess_predict_shape *s = &j->p->shape;
    const tess_predict_in *in = j->in;
    tess__predict_pack(j->p, w->panels, in->q, r->head, in->rows, in->n_rows, s->head_dim);
    tess__predict_pack(j->p, w->panels_low, in->q_low, r->head, in->rows, in->n_rows, s->rank);
}

/* Both tiles of scores, unscaled, from key t on; returns their keys. */
static int score(const job *j, const tess__predict_scratch *w, const range *r, int64_t t)
{
    const tess_predict_in *in = j->in;
    const int n = r->end - t < TESS__STEP ? (int)(r->end - t) : TESS__STEP;
    const int panels = columns(j) / TESS_PANEL;
    const tess__kernels *kernels = j->p->ctx->kernels;
    kernels->score(w->teacher, j->p->ld, tess__view_row(in->k, r->b, r->h, t), in->k->stride_s, n,
                   w->panels, panels, j->p->shape.head_dim);
    kernels->score(w->student, j->p->ld, tess__view_row(in->k_low, r->b, r->h, t),
                   in->k_low->stride_s, n, w->panels_low, panels, j->p->shape.rank);
    return n;
}

/* ---- pass 1: whole rows -------------------------------------------------------------------- */

static void gather_part(const job *j, const tess__predict_scratch *w, int64_t task)
{
    const tess_predict *p = j->p;
    const tess__kernels *kernels = p->ctx->kernels;
    const range r = range_of(p, task);
    const int cols = columns(j), wide = p->wide, kl = j->in->loss == TESS_PREDICT_KL;
    float *stats = p->stats + (size_t)task * TESS__STATS * (size_t)wide;
    for (int i = 0; i < TESS__STATS * wide; i++)
        stats[i] = kl && i / wide % 2 == 0 ? -INFINITY : 0.0f;
    pack_rows(j, w, &r);
    for (int64_t t = r.begin; t < r.end; t += TESS__STEP) {
        const int n = score(j, w, &r, t);
        if (kl) {
            kernels->lse_columns(stats, stats + wide, w->teacher, p->ld, cols, n,
                                 (float)((double)j->scale * LOG2_E));
            kernels->lse_columns(stats + 2 * wide, stats + 3 * wide, w->student, p->ld, cols, n,
                                 (float)((double)j->scale_low * LOG2_E));
        } else {
            kernels->dot_columns(stats, stats + wide, stats + 2 * wide, w->student, w->teacher,
                                 p->ld, cols, n);
        }
    }
}

/* The log2 of the sum that parts have as pairs of maximum and sum, `next` floats apart. */
static float merge_lse(const float *m, int64_t next, int64_t parts, int wide)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < parts; i++)
        top = (double)m[i * next] > top ? (double)m[i * next] : top;
    for (int64_t i = 0; i < parts; i++)
        sum += (double)m[i * next + wide] * exp2((double)m[i * next] - top);
    return (float)(top + log2(sum));
}

static double sum_of(const float *x, int64_t next, int64_t parts)
{
    double sum = 0.0;
    for (int64_t i = 0; i < parts; i++)
        sum += (double)x[i * next];
    return sum;
}

/* The factors of s_j and r_j in dr_j, scores unscaled, and 1 - c. */
static void finish_cosine(const job *j, const float *stats, int64_t next, int row, float *to)
{
    const tess_predict *p = j->p;
    const int wide = p->wide;
    const double u = 0.95 + 0.1 / (double)p->shape.tokens;
    const double ss = sum_of(stats + row, next, p->parts);
    const double sr = sum_of(stats + wide + row, next, p->parts);
    const double rr = sum_of(stats + 2 * wide + row, next, p->parts);
    const int none = ss == 0.0 || rr == 0.0;
    const double cosine = none ? 0.0 : sr / sqrt(ss * rr);
    /* By unscaled scores, the scale of r cancels against that of dq_low and dk_low. */
    const double factor = j->weight * u;
    to[row] = none ? 0.0f : (float)(-factor / sqrt(ss * rr));
    to[wide + row] = none ? 0.0f : (float)(factor * cosine / rr);
    to[2 * wide + row] = (float)(u * (1.0 - cosine));
}

static void finish_rows(const job *j, int64_t head)
{
    const tess_predict *p = j->p;
    const int wide = p->wide;
    const int64_t next = (int64_t)TESS__STATS * wide;
    const float *stats = p->stats + head * p->parts * next;
    float *to = p->rows + head * next;
    for (int row = 0; row < columns(j); row++) {
        if (j->in->loss == TESS_PREDICT_KL) {
            to[row] = merge_lse(stats + row, next, p->parts, wide);
            to[wide + row] = merge_lse(stats + 2 * wide + row, next, p->parts, wide);
        } else {
            finish_cosine(j, stats, next, row, to);
        }
    }
}

/* ---- pass 2: losses and gradients ---------------------------------------------------------- */

/* The student's tile becomes dr, scale_low and weight included. */
static void differentiate(const job *j, const tess__predict_scratch *w, const float *rows, int n,
                          float *loss)
{
    const tess_predict *p = j->p;
    const int wide = p->wide;
    const tess__kl kl = {
        .scale2 = (float)((double)j->scale * LOG2_E),
        .scale2_low = (float)((double)j->scale_low * LOG2_E),
        .weight = (float)(j->weight * (double)j->scale_low),
        .lse2 = rows,
        .lse2_low = rows + wide,
    };
    if (j->in->loss == TESS_PREDICT_KL)
        p->ctx->kernels->kl_columns(loss, w->student, w->teacher, p->ld, columns(j), n, &kl);
    else
        p->ctx->kernels->blend_columns(w->student, w->teacher, p->ld, columns(j), n, rows,
                                       rows + wide);
}

static void learn_part(const job *j, const tess__predict_scratch *w, int64_t task)
{
    const tess_predict *p = j->p;
    const tess_predict_in *in = j->in;
    const range r = range_of(p, task);
    const int wide = p->wide, low = p->low, rank = p->shape.rank;
    const float *rows = p->rows + (size_t)r.head * TESS__STATS * (size_t)wide;
    float *loss = p->losses + (size_t)task * (size_t)wide;
    float *dq = p->partial + (size_t)task * (size_t)in->n_rows * (size_t)low;
    memset(loss, 0, sizeof *loss * (size_t)wide);
    memset(dq, 0, sizeof *dq * (size_t)in->n_rows * (size_t)low);
    memset(w->rows_low, 0, sizeof(float) * (size_t)in->n_rows * (size_t)low);
    /* Panel c of rows_low holds columns 16 c .. 16 c + 15 of the sampled low-rank vectors. */
    for (int i = 0; i < in->n_rows; i++)
        for (int d = 0; d < rank; d++)
            w->rows_low[(d / TESS_PANEL * in->n_rows + i) * TESS_PANEL + d % TESS_PANEL] =
                ((const float *)tess__view_row(in->q_low, r.b, r.h, in->rows[i]))[d];
    pack_rows(j, w, &r);
    for (int64_t t = r.begin; t < r.end; t += TESS__STEP) {
        const int n = score(j, w, &r, t);
        differentiate(j, w, rows, n, loss);
        if (!j->dk)
            continue;
        p->ctx->kernels->add_products(dq, low, w->student, p->ld,
                                      tess__view_row(in->k_low, r.b, r.h, t), in->k_low->stride_s,
                                      n, in->n_rows, rank);
        tess__predict_multiply(p, tess__view_row(j->dk, r.b, r.h, t), j->dk->stride_s, w->student,
                               p->ld, n, w->rows_low, in->n_rows, w->out);
    }
}

/* The sums of a head's tasks, in order. */
static void finish_head(const job *j, int64_t head, double *loss_head)
{
    const tess_predict *p = j->p;
    const int64_t n_rows = j->in->n_rows, wide = p->wide, first = head * p->parts;
    const float *rows = p->rows + head * TESS__STATS * wide;
    double loss = 0.0;
    for (int64_t i = 0; i < n_rows; i++)
        loss += j->in->loss == TESS_PREDICT_KL
                    ? LN_2 * sum_of(p->losses + first * wide + i, wide, p->parts)
                    : (double)rows[2 * wide + i];
    *loss_head = loss / (double)n_rows;
    for (int64_t i = 0; i < n_rows && j->dq; i++) {
        float *to = tess__view_row(j->dq, head / p->shape.heads, head % p->shape.heads, i);
        const int64_t next = n_rows * p->low;
        for (int d = 0; d < p->shape.rank; d++)
            to[d] = (float)sum_of(p->partial + first * next + i * p->low + d, next, p->parts);
    }
}

static void run(const job *j, double *loss_heads)
{
    const tess_predict *p = j->p;
    /* The cosine's loss is known after the first pass. */
    const int second = j->dk || j->in->loss == TESS_PREDICT_KL;
#pragma omp parallel num_threads(p->ctx->threads)
    {
        const tess__predict_scratch *w = &p->scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < p->tasks; task++)
            gather_part(j, w, task);
#pragma omp for
        for (int64_t head = 0; head < p->heads; head++)
            finish_rows(j, head);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < (second ? p->tasks : 0); task++)
            learn_part(j, w, task);
#pragma omp for
        for (int64_t head = 0; head < p->heads; head++)
            finish_head(j, head, &loss_heads[head]);
    }
}

/* ---- the call ------------------------------------------------------------------------------ */

static tess_status check_scale(const char *who, const char *name, float scale)
{
    if (scale >= 0.0f && isfinite(scale))
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "%s: %s is %g, must be finite and not below 0", who, name,
                      (double)scale);
}

static tess_status check_in(const char *who, const tess_predict_shape *s, const tess_predict_in *in)
{
    const struct {
        const char *name;
        const tess_view *view;
    } views[] = {{"q", in->q}, {"k", in->k}, {"q_low", in->q_low}, {"k_low", in->k_low}};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        TESS_TRY(tess__view_check(who, views[i].name, views[i].view, TESS_DTYPE_F32, TESS_DTYPE_F32,
                                  s->tokens));
    TESS_TRY(check_scale(who, "scale", in->scale));
    TESS_TRY(check_scale(who, "scale_low", in->scale_low));
    if (!in->rows)
        return tess__fail(TESS_EINVAL, "%s: rows is NULL", who);
    if (in->n_rows < 1 || in->n_rows > s->rows)
        return tess__fail(TESS_EINVAL, "%s: n_rows is %d, must be 1..%d", who, in->n_rows, s->rows);
    if (in->loss != TESS_PREDICT_KL && in->loss != TESS_PREDICT_COSINE)
        return tess__fail(TESS_EINVAL, "%s: loss is %d, must be KL (0) or COSINE (1)", who,
                          (int)in->loss);
    return tess__predict_check_rows(who, in->rows, in->n_rows, s->tokens);
}

tess_status tess_predict_loss_run(tess_predict *predict, const tess_predict_in *in,
                                  double *loss_heads, const tess_view *dq_low,
                                  const tess_view *dk_low)
{
    static const char who[] = "tess_predict_loss_run";
    if (!predict || !in || !loss_heads)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", who,
                          !predict ? "predict"
                          : !in    ? "in"
                                   : "loss_heads");
    const tess_predict_shape *s = &predict->shape;
    TESS_TRY(check_in(who, s, in));
    if (!dq_low != !dk_low)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL, both gradients are given or none", who,
                          dq_low ? "dk_low" : "dq_low");
    if (dq_low) {
        TESS_TRY(tess__view_check(who, "dq_low", dq_low, TESS_DTYPE_F32, TESS_DTYPE_F32, 1));
        TESS_TRY(tess__view_check(who, "dk_low", dk_low, TESS_DTYPE_F32, TESS_DTYPE_F32, 1));
    }
    const job j = {
        .p = predict,
        .in = in,
        .scale = in->scale != 0.0f ? in->scale : 1.0f / sqrtf((float)s->head_dim),
        .scale_low = in->scale_low != 0.0f ? in->scale_low : 1.0f / sqrtf((float)s->rank),
        .weight = 1.0 / ((double)s->batch * s->heads * in->n_rows),
        .dq = dq_low,
        .dk = dk_low,
    };
    run(&j, loss_heads);
    return TESS_OK;
}
