/* SPDX-License-Identifier: Apache-2.0 */
/* predictor_project.c - a predictor's projections of q and k of a layer.
 *
 *   qk       q_low = q wq^T, k_low = k wk^T for each head: (batch, heads, local, proj_dim) each
 *   hidden   proj = n w^T + b: (rows, 2 heads proj_dim), q beside k; rotated by position
 *
 * n is the block's normed and modulated input. Work: 4 rows dim proj_dim flop, or heads times as
 * much for hidden.
 */
#include "sparse_internal.h"

void tess__proj_views(const tess_pass *p, tess_view *q_low, tess_view *k_low)
{
    const int64_t rank = p->room.proj_dim, wide = p->z.heads * rank, head = p->z.local * rank;
    const tess_view q = {p->learn.proj, TESS_DTYPE_F32, p->z.local * 2 * wide, rank, 2 * wide};
    const tess_view by_heads = {p->learn.proj, TESS_DTYPE_F32, p->z.heads * head, head, rank};
    *q_low = *k_low = tess__of_hidden(p) ? q : by_heads;
    k_low->data = p->learn.proj + (tess__of_hidden(p) ? wide : p->z.rows * wide);
}

/* Each row's 2 * heads vectors, in place. */
static void rotate(tess_pass *p)
{
    const int vectors = 2 * p->z.heads, rank = p->room.proj_dim;
    const int64_t wide = (int64_t)vectors * rank;
#pragma omp parallel for num_threads(p->ctx->threads)
    for (int64_t row = 0; row < p->z.rows; row++) {
        float rope[TESS__ROPE_MAX], *x = p->learn.proj + row * wide;
        tess__rope_at(p, p->z.first + row % p->z.local, rank, p->learn.rope, rope);
        p->ctx->kernels->rms_rotary(x, rank, x, NULL, rope, vectors, rank, 0.0f);
    }
}

static tess_status make_hidden(tess_pass *p, const float *w)
{
    const tess_predictor *predictor = p->sparse.attend.predictor;
    const int64_t dim = p->z.dim, wide = 2 * (int64_t)p->z.heads * p->room.proj_dim;
    const float *bias = w + 2 * tess__predictor_matrix(predictor);
    for (int64_t row = 0, n; row < p->z.rows; row += n) {
        n = (p->z.exact ? tess__cut_of(p, row).end : p->z.rows) - row;
        const tess_linear_shape shape = {n, dim, wide};
        TESS_TRY(tess__linear_forward(p->ctx, &shape, p->ws.n + row * dim, w, bias,
                                      p->learn.proj + row * wide, NULL));
    }
    if (predictor->opts.rotary)
        rotate(p);
    return TESS_OK;
}

static tess_status make_qk(tess_pass *p, const float *w, const tess_view *q, const tess_view *k)
{
    tess_view q_low, k_low;
    tess__proj_views(p, &q_low, &k_low);
    TESS_TRY(tess_predict_map(p->learn.predict, q, w, &q_low));
    return tess_predict_map(p->learn.predict, k,
                            w + tess__predictor_matrix(p->sparse.attend.predictor), &k_low);
}

tess_status tess__proj_make(tess_pass *p, int layer, const tess_view *q, const tess_view *k)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_predictor *predictor = p->sparse.attend.predictor;
    const float *w = tess__predictor_at(predictor, predictor->values, layer);
    const tess_status status = tess__of_hidden(p) ? make_hidden(p, w) : make_qk(p, w, q, k);
    p->times.select_ns += tess__lap_end(p, lap);
    return status;
}
