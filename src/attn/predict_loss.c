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
 * dr and multiplies. predict_rows.c has the tiles and the first pass. Flop per head, with R rows: 4
 * S R head_dim + 8 S R rank; two passes over k in memory. Nothing of R by S is held.
 *
 * Where the keys are shared out over ranks, the rows' statistics of all of them are merged between
 * the passes; dq_low and the loss of KL are then sums over the ranks.
 *
 * rows of a head, from its statistics:  KL: lse of s, lse of r (base 2)
 *                                       cosine: factors of s_j and r_j, u (1 - c)
 */
#include "predict_internal.h"

#include <omp.h>
#include <string.h>

typedef tess__predict_job job;

/* ---- between the passes -------------------------------------------------------------------- */

/* The factors of s_j and r_j in dr_j, scores unscaled, and u (1 - c). */
static void finish_cosine(const job *j, const double stats[TESS_PREDICT_STATS], int row, float *to)
{
    const int wide = j->p->wide;
    const double u = 0.95 + 0.1 / (double)j->keys;
    const double ss = stats[0], sr = stats[1], rr = stats[2];
    const int none = ss == 0.0 || rr == 0.0;
    const double cosine = none ? 0.0 : sr / sqrt(ss * rr);
    /* By unscaled scores, the scale of r cancels against that of dq_low and dk_low. */
    const double factor = j->weight * u;
    to[row] = none ? 0.0f : (float)(-factor / sqrt(ss * rr));
    to[wide + row] = none ? 0.0f : (float)(factor * cosine / rr);
    to[2 * wide + row] = (float)(u * (1.0 - cosine));
}

/* From the statistics of all keys; NULL: this object has all keys. */
static void finish_rows(const job *j, int64_t head, const double *all)
{
    const tess_predict *p = j->p;
    const int wide = p->wide, n_rows = j->in->n_rows;
    float *to = p->rows + head * TESS_PREDICT_STATS * wide;
    for (int row = 0; row < tess__predict_columns(j); row++) {
        /* Columns that only fill a panel have queries of 0, and are not read. */
        double stats[TESS_PREDICT_STATS] = {0.0, 1.0, 0.0, 1.0};
        if (!all)
            tess__predict_row_stats(j, head, row, stats);
        else if (row < n_rows)
            memcpy(stats, all + (head * n_rows + row) * TESS_PREDICT_STATS, sizeof stats);
        if (j->in->loss == TESS_PREDICT_KL) {
            to[row] = (float)(stats[0] + log2(stats[1]));
            to[wide + row] = (float)(stats[2] + log2(stats[3]));
        } else {
            finish_cosine(j, stats, row, to);
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
        .scale2 = (float)((double)j->scale * M_LOG2E),
        .scale2_low = (float)((double)j->scale_low * M_LOG2E),
        .weight = (float)(j->weight * (double)j->scale_low),
        .lse2 = rows,
        .lse2_low = rows + wide,
    };
    if (j->in->loss == TESS_PREDICT_KL)
        p->ctx->kernels->kl_columns(loss, w->student, w->teacher, p->ld, tess__predict_columns(j),
                                    n, &kl);
    else
        p->ctx->kernels->blend_columns(w->student, w->teacher, p->ld, tess__predict_columns(j), n,
                                       rows, rows + wide);
}

static void learn_part(const job *j, const tess__predict_scratch *w, int64_t task)
{
    const tess_predict *p = j->p;
    const tess_predict_in *in = j->in;
    const tess__predict_range r = tess__predict_range_of(p, task);
    const int wide = p->wide, low = p->low, rank = p->shape.rank;
    const float *rows = p->rows + (size_t)r.head * TESS_PREDICT_STATS * (size_t)wide;
    float *loss = p->losses + (size_t)task * (size_t)wide;
    float *dq = p->partial + (size_t)task * (size_t)in->n_rows * (size_t)low;
    memset(loss, 0, sizeof *loss * (size_t)wide);
    memset(dq, 0, sizeof *dq * (size_t)in->n_rows * (size_t)low);
    memset(w->rows_low, 0, sizeof(float) * (size_t)in->n_rows * (size_t)low);
    /* Panel c of rows_low holds columns 16 c .. 16 c + 15 of the sampled projected vectors. */
    for (int i = 0; i < in->n_rows; i++)
        for (int d = 0; d < rank; d++)
            w->rows_low[(d / TESS_PANEL * in->n_rows + i) * TESS_PANEL + d % TESS_PANEL] =
                ((const float *)tess__view_row(in->q_low, r.b, r.h, tess__predict_row(in, i)))[d];
    tess__predict_pack_rows(j, w, &r);
    for (int64_t t = r.begin; t < r.end; t += TESS__STEP) {
        const int n = tess__predict_score(j, w, &r, t);
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
    const float *rows = p->rows + head * TESS_PREDICT_STATS * wide;
    double loss = 0.0;
    for (int64_t i = 0; i < n_rows; i++)
        loss += j->in->loss == TESS_PREDICT_KL
                    ? M_LN2 * tess__predict_sum(p->losses + first * wide + i, wide, p->parts)
                    : (double)rows[2 * wide + i];
    /* The cosine's rows are known whole: a part takes its share of them. */
    const double share =
        j->in->loss == TESS_PREDICT_KL ? 1.0 : (double)p->shape.tokens / (double)j->keys;
    *loss_head = loss / (double)n_rows * share;
    for (int64_t i = 0; i < n_rows && j->dq; i++) {
        float *to = tess__view_row(j->dq, head / p->shape.heads, head % p->shape.heads, i);
        const int64_t next = n_rows * p->low;
        for (int d = 0; d < p->shape.rank; d++)
            to[d] = (float)tess__predict_sum(p->partial + first * next + i * p->low + d, next,
                                             p->parts);
    }
}

/* all: statistics of the rows over all keys; NULL: this object has all keys. */
static void run(const job *j, const double *all, double *loss_heads)
{
    const tess_predict *p = j->p;
    /* The cosine's loss is known after the first pass. */
    const int second = j->dk || j->in->loss == TESS_PREDICT_KL;
#pragma omp parallel num_threads(p->ctx->threads)
    {
        const tess__predict_scratch *w = &p->scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < (all ? 0 : p->tasks); task++)
            tess__predict_gather(j, w, task);
#pragma omp for
        for (int64_t head = 0; head < p->heads; head++)
            finish_rows(j, head, all);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < (second ? p->tasks : 0); task++)
            learn_part(j, w, task);
#pragma omp for
        for (int64_t head = 0; head < p->heads; head++)
            finish_head(j, head, &loss_heads[head]);
    }
}

/* ---- the calls ----------------------------------------------------------------------------- */

static tess_status set_gradients(const char *who, const tess_view *dq_low, const tess_view *dk_low,
                                 job *j)
{
    if (!dq_low != !dk_low)
        return tess__invalid(who, "%s is NULL, both gradients are given or none",
                             dq_low ? "dk_low" : "dq_low");
    if (dq_low) {
        TESS_TRY(tess__view_check(who, "dq_low", dq_low, TESS_DTYPE_F32, TESS_DTYPE_F32, 1));
        TESS_TRY(tess__view_check(who, "dk_low", dk_low, TESS_DTYPE_F32, TESS_DTYPE_F32, 1));
    }
    j->dq = dq_low;
    j->dk = dk_low;
    return TESS_OK;
}

tess_status tess_predict_loss_run(tess_predict *predict, const tess_predict_in *in,
                                  double *loss_heads, const tess_view *dq_low,
                                  const tess_view *dk_low)
{
    TESS_REQUIRE(predict, in, loss_heads);
    job j;
    TESS_TRY(tess__predict_job_make(__func__, predict, in, &j));
    TESS_TRY(set_gradients(__func__, dq_low, dk_low, &j));
    run(&j, NULL, loss_heads);
    return TESS_OK;
}

tess_status tess_predict_loss_part(tess_predict *predict, const tess_predict_in *in,
                                   const double *stats, int64_t keys, double *loss_heads,
                                   const tess_view *dq_low, const tess_view *dk_low)
{
    TESS_REQUIRE(predict, in, stats, loss_heads);
    if (keys < predict->shape.tokens)
        return tess__invalid(__func__, "keys is %lld, must be this part's %lld or more",
                             (long long)keys, (long long)predict->shape.tokens);
    job j;
    TESS_TRY(tess__predict_job_make(__func__, predict, in, &j));
    TESS_TRY(set_gradients(__func__, dq_low, dk_low, &j));
    j.keys = keys;
    run(&j, stats, loss_heads);
    return TESS_OK;
}
