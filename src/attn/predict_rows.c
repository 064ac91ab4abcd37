/* SPDX-License-Identifier: Apache-2.0 */
/* predict_rows.c - tiles of scores of sampled queries, and what whole rows of them come to.
 *
 * Tiles are keys by queries: keys are read where they lie, the few queries are packed by every
 * task. A task leaves four numbers per row, and a head's tasks are merged in order, in double:
 *
 *   KL:      m, l of s and of r: the largest score in base 2, and the sum of 2^(score - m)
 *   cosine:  s.s, s.r, r.r of unscaled scores, and 0
 *
 * Parts of the keys on several ranks are merged the same way. Flop per head, with R rows and S
 * keys: 2 S R (head_dim + rank), one pass over k in memory.
 */
#include "predict_internal.h"

#include <omp.h>

/* ---- calls and their tiles ----------------------------------------------------------------- */

static tess_status check_scale(const char *who, const char *name, float scale)
{
    if (scale >= 0.0f && isfinite(scale))
        return TESS_OK;
    return tess__invalid(who, "%s is %g, must be finite and not below 0", name, (double)scale);
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
    TESS_TRY(tess__check_range(who, "n_rows", in->n_rows, 1, s->rows));
    if (in->loss != TESS_PREDICT_KL && in->loss != TESS_PREDICT_COSINE)
        return tess__invalid(who, "loss is %d, must be KL (0) or COSINE (1)", (int)in->loss);
    return in->rows ? tess__predict_check_rows(who, in->rows, in->n_rows, s->tokens) : TESS_OK;
}

tess_status tess__predict_job_make(const char *who, const tess_predict *p,
                                   const tess_predict_in *in, tess__predict_job *job)
{
    const tess_predict_shape *s = &p->shape;
    TESS_TRY(check_in(who, s, in));
    *job = (tess__predict_job){
        .p = p,
        .in = in,
        .scale = in->scale != 0.0f ? in->scale : 1.0f / sqrtf((float)s->head_dim),
        .scale_low = in->scale_low != 0.0f ? in->scale_low : 1.0f / sqrtf((float)s->rank),
        .weight = 1.0 / ((double)s->batch * s->heads * in->n_rows),
        .keys = s->tokens,
    };
    return TESS_OK;
}

tess__predict_range tess__predict_range_of(const tess_predict *p, int64_t task)
{
    tess__predict_range r = {.head = task / p->parts, .begin = task % p->parts * TESS__PART};
    r.b = r.head / p->shape.heads;
    r.h = r.head % p->shape.heads;
    r.end = p->shape.tokens - r.begin < TESS__PART ? p->shape.tokens : r.begin + TESS__PART;
    return r;
}

void tess__predict_pack_rows(const tess__predict_job *j, const tess__predict_scratch *w,
                             const tess__predict_range *r)
{
    const tess_predict_shape *s = &j->p->shape;
    const tess_predict_in *in = j->in;
    tess__predict_pack(j->p, w->panels, in->q, r->head, in->rows, in->n_rows, s->head_dim);
    tess__predict_pack(j->p, w->panels_low, in->q_low, r->head, in->rows, in->n_rows, s->rank);
}

int tess__predict_score(const tess__predict_job *j, const tess__predict_scratch *w,
                        const tess__predict_range *r, int64_t t)
{
    const tess_predict_in *in = j->in;
    const int n = r->end - t < TESS__STEP ? (int)(r->end - t) : TESS__STEP;
    const int panels = tess__predict_columns(j) / TESS_PANEL;
    const tess__kernels *kernels = j->p->ctx->kernels;
    kernels->score(w->teacher, j->p->ld, tess__view_row(in->k, r->b, r->h, t), in->k->stride_s, n,
                   w->panels, panels, j->p->shape.head_dim);
    kernels->score(w->student, j->p->ld, tess__view_row(in->k_low, r->b, r->h, t),
                   in->k_low->stride_s, n, w->panels_low, panels, j->p->shape.rank);
    return n;
}

/* ---- rows ---------------------------------------------------------------------------------- */

void tess__predict_gather(const tess__predict_job *j, const tess__predict_scratch *w, int64_t task)
{
    const tess_predict *p = j->p;
    const tess__kernels *kernels = p->ctx->kernels;
    const tess__predict_range r = tess__predict_range_of(p, task);
    const int cols = tess__predict_columns(j), wide = p->wide, kl = j->in->loss == TESS_PREDICT_KL;
    float *stats = p->stats + (size_t)task * TESS_PREDICT_STATS * (size_t)wide;
    for (int i = 0; i < TESS_PREDICT_STATS * wide; i++)
        stats[i] = kl && i / wide % 2 == 0 ? -INFINITY : 0.0f;
    tess__predict_pack_rows(j, w, &r);
    for (int64_t t = r.begin; t < r.end; t += TESS__STEP) {
        const int n = tess__predict_score(j, w, &r, t);
        if (kl) {
            kernels->lse_columns(stats, stats + wide, w->teacher, p->ld, cols, n,
                                 (float)((double)j->scale * M_LOG2E));
            kernels->lse_columns(stats + 2 * wide, stats + 3 * wide, w->student, p->ld, cols, n,
                                 (float)((double)j->scale_low * M_LOG2E));
        } else {
            kernels->dot_columns(stats, stats + wide, stats + 2 * wide, w->student, w->teacher,
                                 p->ld, cols, n);
        }
    }
}

/* The sum that parts have as pairs of maximum and sum, `next` floats apart, as such a pair. */
static void merge_sums(const float *m, int64_t next, int64_t parts, int wide, double out[2])
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < parts; i++)
        top = TESS_MAX((double)m[i * next], top);
    for (int64_t i = 0; i < parts; i++)
        sum += (double)m[i * next + wide] * exp2((double)m[i * next] - top);
    out[0] = top;
    out[1] = sum;
}

void tess__predict_row_stats(const tess__predict_job *j, int64_t head, int row,
                             double stats[TESS_PREDICT_STATS])
{
    const tess_predict *p = j->p;
    const int wide = p->wide;
    const int64_t next = (int64_t)TESS_PREDICT_STATS * wide;
    const float *from = p->stats + head * p->parts * next + row;
    if (j->in->loss == TESS_PREDICT_KL) {
        merge_sums(from, next, p->parts, wide, stats);
        merge_sums(from + 2 * wide, next, p->parts, wide, stats + 2);
        return;
    }
    for (int i = 0; i < TESS_PREDICT_STATS; i++)
        stats[i] = tess__predict_sum(from + i * wide, next, p->parts);
}

/* ---- the calls ----------------------------------------------------------------------------- */

tess_status tess_predict_stats_run(tess_predict *predict, const tess_predict_in *in, double *stats)
{
    TESS_REQUIRE(predict, in, stats);
    const tess_predict *p = predict;
    tess__predict_job j;
    TESS_TRY(tess__predict_job_make(__func__, p, in, &j));
#pragma omp parallel num_threads(p->ctx->threads)
    {
        const tess__predict_scratch *w = &p->scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < p->tasks; task++)
            tess__predict_gather(&j, w, task);
#pragma omp for
        for (int64_t head = 0; head < p->heads; head++)
            for (int row = 0; row < in->n_rows; row++)
                tess__predict_row_stats(&j, head, row,
                                        stats + (head * in->n_rows + row) * TESS_PREDICT_STATS);
    }
    return TESS_OK;
}

/* m, l of one set of keys, and of both. */
static void merge_pair(const double part[2], double all[2])
{
    const double top = TESS_MAX(part[0], all[0]);
    all[1] = all[1] * exp2(all[0] - top) + part[1] * exp2(part[0] - top);
    all[0] = top;
}

tess_status tess_predict_stats_merge(tess_predict_loss loss, int64_t rows, const double *part,
                                     double *stats)
{
    if (loss != TESS_PREDICT_KL && loss != TESS_PREDICT_COSINE)
        return tess__invalid(__func__, "loss is %d, must be KL (0) or COSINE (1)", (int)loss);
    TESS_TRY(tess__check_least(__func__, "rows", rows, 0));
    if (rows > 0 && (!part || !stats))
        return tess__invalid(__func__, "%s is NULL", part ? "stats" : "part");
    for (int64_t i = 0; i < rows; i++, part += TESS_PREDICT_STATS, stats += TESS_PREDICT_STATS) {
        if (loss == TESS_PREDICT_KL) {
            merge_pair(part, stats);
            merge_pair(part + 2, stats + 2);
        } else {
            for (int n = 0; n < TESS_PREDICT_STATS; n++)
                stats[n] += part[n];
        }
    }
    return TESS_OK;
}
