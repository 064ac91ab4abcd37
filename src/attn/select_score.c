/* SPDX-License-Identifier: Apache-2.0 */
/* select_score.c - selectors that score: predictor and pooled by proxies, oracle and search by
 * mass.
 *
 *   predictor:  s_u = max or mean over keys j of unit u of  p k_j,   p the proxy of the group
 *   pooled:     s_u = p c_u,   p and c_u the means of the group's queries and of the unit's keys
 *   mass:       s_u = softmax mass of the unit over the group's queries (mass.c)
 *
 * With weights e_j of the keys the mass of a key is taken times e_j, which for a proxy's score is
 * log(e_j) / scale more.
 *
 * Proxies go in chunks of TESS__ROWS groups, which share every load of a key panel. Flop of the
 * predictor: 2 n_q tokens_k dim; of pooled: 2 n_q n_k dim; of mass: 2 or 4 tokens_q tokens_k dim.
 */
#include "select_internal.h"

#include <math.h>
#include <string.h>

/* to (n, dim) = the means of the rows of `view` in ranges first .. first + n - 1 of the bounds. */
static void pool_rows(float *to, const tess_view *view, int64_t b, int64_t h, const int64_t *bounds,
                      int32_t first, int32_t n, int dim)
{
    for (int32_t i = 0; i < n; i++, to += dim) {
        const int64_t begin = bounds[first + i], end = bounds[first + i + 1];
        memset(to, 0, sizeof *to * (size_t)dim);
        for (int64_t s = begin; s < end; s++) {
            const float *row = tess__view_row(view, b, h, s);
            for (int d = 0; d < dim; d++)
                to[d] += row[d];
        }
        const float share = 1.0f / (float)(end - begin);
        for (int d = 0; d < dim; d++)
            to[d] *= share;
    }
}

void tess__select_pack(tess__select_job *job, const tess__scratch *w, int64_t head, int64_t first,
                       int64_t n)
{
    const int dim = job->in->head_dim;
    const int64_t b = head / job->sel->heads, h = head % job->sel->heads;
    const tess_view *k = job->in->k;
    float *to = job->panels +
                ((size_t)(head - job->first_head) * (size_t)job->head_panels + (size_t)first) *
                    TESS_PANEL * (size_t)dim;
    for (int64_t p = first; p < first + n; p++, to += TESS_PANEL * dim) {
        const int64_t j = p * TESS_PANEL;
        const int64_t left =
            (tess__rule_of(job->opts)->pooled ? job->sel->n_k : job->sel->tokens_k) - j;
        const int here = left < TESS_PANEL ? (int)left : TESS_PANEL;
        if (tess__rule_of(job->opts)->pooled) {
            pool_rows(w->proxies, k, b, h, job->sel->bounds_k, (int32_t)j, here, dim);
            job->kernels->panel_pack(to, w->proxies, dim, here, dim);
        } else {
            job->kernels->panel_pack(to, tess__view_row(k, b, h, j), k->stride_s, here, dim);
        }
    }
}

/* ---- proxies -------------------------------------------------------------------------------- */

/* The score of a unit is the largest of its keys. */
static void reduce(float *to, const float *row, const int64_t *bounds, int32_t n_k)
{
    for (int32_t u = 0; u < n_k; u++) {
        float max = row[bounds[u]];
        for (int64_t j = bounds[u]; j < bounds[u + 1]; j++) /* any number replaces NaN */
            max = row[j] > max || max != max ? row[j] : max;
        to[u] = max;
    }
}

/* Weights of a head's keys; NULL: none. */
static const float *weights_of(const tess__select_job *job, int64_t head)
{
    return job->in->weights ? job->in->weights + head * job->sel->tokens_k : NULL;
}

static void weigh_scores(const tess__select_job *job, int64_t head, float *scores)
{
    const float *e = weights_of(job, head), inverse = 1.0f / job->scale;
    for (int64_t j = 0; e && j < job->sel->tokens_k; j++)
        scores[j] += inverse * logf(e[j]);
}

/* Units are single keys, or their mean weight counts. */
static void weigh_mass(const tess__select_job *job, int64_t head, float *mass)
{
    const float *e = weights_of(job, head);
    const int64_t *bounds = job->sel->bounds_k;
    for (int32_t u = 0; e && u < job->sel->n_k; u++) {
        float sum = 0.0f;
        for (int64_t j = bounds[u]; j < bounds[u + 1]; j++)
            sum += e[j];
        mass[u] *= sum / (float)(bounds[u + 1] - bounds[u]);
    }
}

void tess__rule_proxy(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                      int32_t n)
{
    const tess_selection *sel = job->sel;
    const int dim = job->in->head_dim;
    const int64_t b = head / sel->heads, h = head % sel->heads;
    if (job->opts->proxy == TESS_PROXY_CENTRE)
        for (int32_t i = 0; i < n; i++) {
            const int64_t begin = sel->bounds_q[g + i], end = sel->bounds_q[g + i + 1];
            memcpy(w->proxies + i * dim,
                   tess__view_row(job->in->q, b, h, begin + (end - begin) / 2),
                   sizeof(float) * (size_t)dim);
        }
    else
        pool_rows(w->proxies, job->in->q, b, h, sel->bounds_q, g, n, dim);
    job->kernels->score(w->rows, w->ld, w->proxies, dim, n, tess__select_panels(job, head),
                        job->head_panels, dim);
    for (int32_t i = 0; i < n; i++) {
        const float *scores = w->rows + i * w->ld;
        weigh_scores(job, head, w->rows + i * w->ld);
        if (sel->n_k != sel->tokens_k) {
            reduce(w->scores, scores, sel->bounds_k, sel->n_k);
            scores = w->scores;
        }
        tess__select_emit(job, w, head, g + i, scores, job->keys[head]);
    }
}

/* How many units of the highest scores hold `share` of the softmax over all of them. */
static int32_t count_top_p(const float *scores, int32_t n, float scale, double share,
                           const tess__scratch *w)
{
    float max = -INFINITY;
    for (int32_t u = 0; u < n; u++)
        max = TESS_MAX(scores[u], max);
    for (int32_t u = 0; u < n; u++) {
        const float x = scale * (scores[u] - max);
        w->scores[u] = x <= 0.0f ? expf(x) : 0.0f;
    }
    return tess__mass_count(w->scores, n, share, w);
}

void tess__rule_pooled(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n)
{
    const tess_selection *sel = job->sel;
    const int dim = job->in->head_dim;
    const int64_t b = head / sel->heads, h = head % sel->heads;
    pool_rows(w->proxies, job->in->q, b, h, sel->bounds_q, g, n, dim);
    job->kernels->score(w->rows, w->ld, w->proxies, dim, n, tess__select_panels(job, head),
                        job->head_panels, dim);
    for (int32_t i = 0; i < n; i++) {
        const float *scores = w->rows + i * w->ld;
        const int32_t k = job->keys
                              ? job->keys[head]
                              : count_top_p(scores, sel->n_k, job->scale, job->in->budget.mass, w);
        tess__select_emit(job, w, head, g + i, scores, k);
    }
}

/* ---- mass ----------------------------------------------------------------------------------- */

void tess__rule_mass(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                     int32_t n)
{
    const tess_selection *sel = job->sel;
    const int64_t b = head / sel->heads, h = head % sel->heads;
    const tess__mass_keys keys = {
        .kernels = job->kernels,
        .panels = tess__select_panels(job, head),
        .tokens = sel->tokens_k,
        .dim = job->in->head_dim,
        .scale2 = job->scale * (float)M_LOG2E,
        .bounds = sel->bounds_k,
        .n_k = sel->n_k,
    };
    /* A predictor's vectors are not those the lse belongs to. */
    const float *lse = job->opts->kind == TESS_SELECT_PREDICTOR ? NULL : job->in->lse;
    for (int32_t i = 0; i < n; i++) {
        const int64_t row = sel->bounds_q[g + i], rows = sel->bounds_q[g + i + 1] - row;
        tess__mass_group(&keys, tess__view_row(job->in->q, b, h, row), job->in->q->stride_s, rows,
                         lse ? lse + head * sel->tokens_q + row : NULL, w, w->scores);
        weigh_mass(job, head, w->scores);
        const int32_t k = job->keys
                              ? job->keys[head]
                              : tess__mass_count(w->scores, sel->n_k, job->in->budget.mass, w);
        tess__select_emit(job, w, head, g + i, w->scores, k);
    }
}
