/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_learn.c - a predictor's loss where ranks share the keys.
 *
 * The sampled queries come to every rank, which scores them against its own keys. What the keys of
 * all ranks say of each row is merged in rank order; then every rank has the gradient of its own
 * projected keys, and the sums over ranks are the losses and the gradient of the queries.
 *
 *   learn_q      (learn_rows, batch, heads, head_dim + proj_dim): a sampled row belongs to one
 *                rank, so that rows lie in the order of ranks
 *   learn_stats  (ranks, batch, heads, learn_rows, TESS_PREDICT_STATS)
 *
 * Bytes that travel, with R rows: 4 R batch (dim + heads rank) once to every rank, 32 R batch heads
 * of each rank, and the sum of 4 R batch heads rank.
 */
#include "attn/attn_internal.h"
#include "ranks.h"
#include "tessera/advanced/collectives.h"

#include <string.h>

static int64_t row_floats(const tess_pass *p)
{
    return (int64_t)p->z.batch * p->z.heads * (p->z.head_dim + p->room.proj_dim);
}

/* Copies this rank's sampled rows to their position among all, from views of the local rows. */
static void put_rows(tess_pass *p, const tess_view *q, const tess_view *q_low)
{
    const int64_t dim = p->z.head_dim, rank = p->room.proj_dim;
    const tess__token_range own = tess__learn_local(p, p->z.first, p->z.local);
    float *to = p->learn.q + own.first * row_floats(p);
    for (int64_t i = 0; i < own.n; i++)
        for (int64_t b = 0; b < p->z.batch; b++)
            for (int64_t h = 0; h < p->z.heads; h++, to += dim + rank) {
                const int64_t row = p->learn.rows[own.first + i] - p->z.first;
                memcpy(to, tess__view_row(q, b, h, row), (size_t)dim * sizeof *to);
                memcpy(to + dim, tess__view_row(q_low, b, h, row), (size_t)rank * sizeof *to);
            }
}

static tess_status gather_rows(tess_pass *p)
{
    const int64_t bytes = row_floats(p) * (int64_t)sizeof(float), *bounds = p->ranks.bounds;
    for (int r = 0; r < p->ranks.ranks; r++)
        p->ranks.message[r] = bytes * tess__learn_local(p, bounds[r], bounds[r + 1] - bounds[r]).n;
    const int64_t first = tess__learn_local(p, p->z.first, p->z.local).first;
    return tess_comm_allgatherv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD,
                                p->learn.q + first * row_floats(p), p->ranks.message[p->ranks.rank],
                                p->learn.q, p->ranks.message);
}

/* What the keys of all ranks say of the rows: p->learn.stats of rank 0's place. */
static tess_status gather_stats(tess_pass *p, const tess_predict_in *in)
{
    const int64_t rows = (int64_t)p->z.batch * p->z.heads * in->n_rows;
    const int64_t n = rows * TESS_PREDICT_STATS;
    double *own = p->learn.stats + p->ranks.rank * n;
    TESS_TRY(tess_predict_stats_run(p->learn.predict, in, own));
    for (int r = 0; r < p->ranks.ranks; r++)
        p->ranks.message[r] = n * (int64_t)sizeof *own;
    TESS_TRY(tess_comm_allgatherv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, own, p->ranks.message[0],
                                  p->learn.stats, p->ranks.message));
    for (int r = 1; r < p->ranks.ranks; r++)
        TESS_TRY(tess_predict_stats_merge(in->loss, rows, p->learn.stats + r * n, p->learn.stats));
    return TESS_OK;
}

tess_status tess__ranks_queries(tess_pass *p, const tess_view *q, const tess_view *q_low,
                                tess_view *all_q, tess_view *all_q_low)
{
    const int64_t width = p->z.head_dim + p->room.proj_dim;
    *all_q = (tess_view){p->learn.q, TESS_DTYPE_F32, p->z.heads * width, width, row_floats(p)};
    *all_q_low = *all_q;
    all_q_low->data = p->learn.q + p->z.head_dim;
    put_rows(p, q, q_low);
    return gather_rows(p);
}

tess_status tess__ranks_loss(tess_pass *p, const tess_predict_in *in, double *losses,
                             const tess_view *dq, const tess_view *dk)
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    tess_view q, q_low;
    TESS_TRY(tess__ranks_queries(p, in->q, in->q_low, &q, &q_low));
    tess_predict_in all = *in;
    all.q = &q;
    all.q_low = &q_low;
    all.rows = NULL;
    TESS_TRY(gather_stats(p, &all));
    TESS_TRY(tess_predict_loss_part(p->learn.predict, &all, p->learn.stats, p->z.tokens, losses, dq,
                                    dk));
    TESS_TRY(tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, losses, heads, TESS_DTYPE_F64,
                                 TESS_REDUCE_SUM));
    return tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, p->learn.dq,
                               heads * in->n_rows * p->room.proj_dim, TESS_DTYPE_F32,
                               TESS_REDUCE_SUM);
}
