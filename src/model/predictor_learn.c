/* SPDX-License-Identifier: Apache-2.0 */
/* predictor_learn.c - a layer's predictor learns inside the forward pass.
 *
 * Its loss compares the scores of projected vectors with those of q and k for some queries against
 * all keys. Loss and gradients come out of one call while q and k are there, so nothing is saved;
 * q, k and the hidden state get no gradient from it, and the network does not know of it.
 *
 * The queries are the same for all samples and heads, one at random in each of learn_rows parts of
 * the tokens. Work: 4 learn_rows tokens (dim + 3 heads proj_dim) flop and the gradients of the
 * projections, which take as much as the projections.
 *
 *   big, behind q k v:   dk_low by heads (qk), or dproj (rows, 2 heads rank), q beside k (hidden)
 */
#include "ranks.h"

#include <string.h>

/* Random numbers behind those of the lists. */
static const uint64_t rows_index = (uint64_t)1 << 40;

static tess_status choose_rows(tess_pass *p, int layer)
{
    const int64_t n = p->room.learn_rows;
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = i * p->z.tokens / n, end = (i + 1) * p->z.tokens / n;
        uint32_t word;
        TESS_TRY(tess__attend_random(p, layer, rows_index + (uint64_t)i, &word, 1));
        p->learn.rows[i] = begin + word % (end - begin);
    }
    return TESS_OK;
}

tess__token_range tess__learn_local(const tess_pass *p, int64_t first, int64_t n)
{
    tess__token_range span = {0, 0};
    for (int64_t i = 0; i < p->room.learn_rows; i++) {
        span.first += p->learn.rows[i] < first;
        span.n += p->learn.rows[i] >= first && p->learn.rows[i] < first + n;
    }
    return span;
}

/* The gradients of the queries from the first-th on. */
tess_view tess__learn_dq(const tess_pass *p, int64_t first)
{
    const int64_t rank = p->room.proj_dim, head = p->room.learn_rows * rank;
    return (tess_view){p->learn.dq + first * rank, TESS_DTYPE_F32, p->z.heads * head, head, rank};
}

/* This rank's queries, as local rows. */
static const int64_t *local_rows(const tess_pass *p, tess__token_range own)
{
    int64_t *rows = p->learn.rows + p->room.learn_rows;
    for (int64_t i = 0; i < own.n; i++)
        rows[i] = p->learn.rows[own.first + i] - p->z.first;
    return rows;
}

static float *dproj_of(const tess_pass *p)
{
    return p->ws.big + 3 * p->z.rows * p->z.dim;
}

/* As the projected vectors of k lie, in a buffer of their gradients. */
tess_view tess__learn_dk(const tess_pass *p)
{
    tess_view q_low, dk;
    tess__proj_views(p, &q_low, &dk);
    dk.data = dproj_of(p) + (tess__of_hidden(p) ? (int64_t)p->z.heads * p->room.proj_dim : 0);
    return dk;
}

/* ---- hidden ---------------------------------------------------------------------------------- */

/* dproj of q is that of this rank's chosen queries, and 0 for the others. */
static void scatter_queries(tess_pass *p, tess__token_range own)
{
    const int64_t rank = p->room.proj_dim, wide = p->z.heads * rank, n = p->room.learn_rows;
    const int64_t *rows = local_rows(p, own);
    float *dproj = dproj_of(p);
    for (int64_t row = 0; row < p->z.rows; row++)
        memset(dproj + row * 2 * wide, 0, (size_t)wide * sizeof *dproj);
    for (int64_t b = 0; b < p->z.batch; b++)
        for (int64_t h = 0; h < p->z.heads; h++)
            for (int64_t i = 0; i < own.n; i++)
                memcpy(dproj + (b * p->z.local + rows[i]) * 2 * wide + h * rank,
                       p->learn.dq + ((b * p->z.heads + h) * n + own.first + i) * rank,
                       (size_t)rank * sizeof *dproj);
}

static void rotate_back(tess_pass *p)
{
    const int vectors = 2 * p->z.heads, rank = p->room.proj_dim;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t row = 0; row < p->z.rows; row++) {
        float rope[TESS__ROPE_MAX], *d = dproj_of(p) + row * vectors * rank;
        tess__rope_at(p, p->z.first + row % p->z.local, rank, p->learn.rope, rope);
        p->ctx->kernels->rms_rotary_backward(d, NULL, d, rank, NULL, NULL, rope, vectors, rank,
                                             0.0f);
    }
}

float *tess__learn_dproj(tess_pass *p, tess__token_range own)
{
    scatter_queries(p, own);
    if (p->sparse.attend.predictor->opts.rotary)
        rotate_back(p);
    return dproj_of(p);
}

static tess_status hidden_gradients(tess_pass *p, tess__token_range own, float *dw)
{
    const tess_predictor *predictor = p->sparse.attend.predictor;
    const tess_linear_shape shape = {p->z.rows, p->z.dim,
                                     2 * (int64_t)p->z.heads * p->room.proj_dim};
    const float *dproj = tess__learn_dproj(p, own);
    TESS_TRY(tess__linear_dw(p->ctx, &shape, dproj, p->ws.n, dw, 1, NULL));
    tess__column_sums(p->ctx, shape.rows, shape.out, dproj,
                      dw + 2 * tess__predictor_matrix(predictor), 1);
    return TESS_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

static tess_status qk_gradients(tess_pass *p, tess__token_range own, const tess_view *q,
                                const tess_view *k, float *dw)
{
    const tess_view dq = tess__learn_dq(p, own.first), dk = tess__learn_dk(p);
    if (own.n > 0)
        TESS_TRY(
            tess_predict_map_backward(p->learn.predict, q, &dq, local_rows(p, own), own.n, dw));
    return tess_predict_map_backward(p->learn.predict, k, &dk, NULL, 0,
                                     dw + tess__predictor_matrix(p->sparse.attend.predictor));
}

static tess_status learn(tess_pass *p, int layer, const tess_view *q, const tess_view *k)
{
    const tess_predictor *predictor = p->sparse.attend.predictor;
    const tess_view dq = tess__learn_dq(p, 0), dk = tess__learn_dk(p);
    float *dw = tess__predictor_at(predictor, predictor->gradients, layer);
    tess_view q_low, k_low;
    tess__proj_views(p, &q_low, &k_low);
    TESS_TRY(choose_rows(p, layer));
    if (p->z.exact)
        return tess__exact_learn(p, layer, q, k);
    const tess_predict_in in = {.q = q,
                                .k = k,
                                .q_low = &q_low,
                                .k_low = &k_low,
                                .rows = p->learn.rows,
                                .n_rows = p->room.learn_rows,
                                .loss = p->sparse.attend.loss};
    double *losses = p->sparse.losses + (int64_t)layer * p->z.batch * p->z.heads;
    TESS_TRY(p->ranks.comm ? tess__ranks_loss(p, &in, losses, &dq, &dk)
                           : tess_predict_loss_run(p->learn.predict, &in, losses, &dq, &dk));
    const tess__token_range own = tess__learn_local(p, p->z.first, p->z.local);
    return tess__of_hidden(p) ? hidden_gradients(p, own, dw) : qk_gradients(p, own, q, k, dw);
}

tess_status tess__learn(tess_pass *p, int layer, const tess_view *q, const tess_view *k)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_status status = learn(p, layer, q, k);
    p->times.learn_ns += tess__lap_end(p, lap);
    return status;
}
