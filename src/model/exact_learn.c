/* SPDX-License-Identifier: Apache-2.0 */
/* exact_learn.c - a predictor learns the same whoever has which tokens: cut by cut (exact.c).
 *
 *   sampled queries to all ranks -> statistics of their rows by the keys of each cut -> those of
 *   all cuts to all ranks, merged in the order of the tokens -> losses and gradients of each cut
 *
 * The losses and the gradients of the queries are sums over cuts, as are those of the matrices:
 * losses in units of 2^-40, gradients in fixed point. Weights are those of one sample, for a batch
 * is what a group of ranks happens to have.
 *
 * Bytes that travel, with R rows and at most 29 cuts: as in ranks_learn.c, but 32 R batch heads for
 * each cut and 8 R batch heads rank in the sum.
 */
#include "attn/predict_internal.h"
#include "ranks.h"
#include "tessera/advanced/collectives.h"

#include <string.h>

/* One cut of one sample. */
typedef struct {
    int64_t sample, row, n; /* local rows of the sample */
} part;

/* From a row of a sample on. */
static tess_view from_row(const tess_view *all, const part *c)
{
    tess_view view = *all;
    view.data = tess__view_row(all, c->sample, 0, c->row);
    return view;
}

/* The inputs of a cut. */
typedef struct {
    tess_view q, q_low, k, k_low;
    tess_predict_in in;
} inputs;

static void make_inputs(const tess_pass *p, const inputs *all, const part *c, inputs *one)
{
    const part sample = {c->sample, 0, 0};
    *one = *all;
    one->q = from_row(&all->q, &sample);
    one->q_low = from_row(&all->q_low, &sample);
    one->k = from_row(&all->k, c);
    one->k_low = from_row(&all->k_low, c);
    one->in.q = &one->q;
    one->in.q_low = &one->q_low;
    one->in.k = &one->k;
    one->in.k_low = &one->k_low;
    tess__predict_resize(p->learn.predict, 1, c->n);
}

typedef tess_status (*part_fn)(tess_pass *p, int layer, const inputs *all, const part *c, int cut);

static tess_status each_part(tess_pass *p, int layer, const inputs *all, part_fn fn)
{
    tess_status status = TESS_OK;
    for (int cut = 0; cut < p->z.cuts; cut++)
        for (int64_t b = 0; b < p->z.batch && status == TESS_OK; b++) {
            const part c = {b, p->z.cut_at[cut], p->z.cut_at[cut + 1] - p->z.cut_at[cut]};
            status = fn(p, layer, all, &c, cut);
        }
    tess__predict_resize(p->learn.predict, p->z.batch, p->z.local);
    return status;
}

/* ---- statistics ------------------------------------------------------------------------------ */

static int64_t rows_of_sample(const tess_pass *p)
{
    return (int64_t)p->z.heads * p->room.learn_rows;
}

/* Cuts of the ranks before `rank`. */
static int cuts_before(const tess_pass *p, int rank)
{
    int cuts = 0;
    for (int r = 0; r < rank; r++) {
        tess__sizes z = {.exact = 1, .tokens = p->z.tokens, .first = p->ranks.bounds[r]};
        z.local = p->ranks.bounds[r + 1] - z.first;
        tess__exact_cuts(&z);
        cuts += z.cuts;
    }
    return cuts;
}

static tess_status gather_part(tess_pass *p, int layer, const inputs *all, const part *c, int cut)
{
    inputs one;
    (void)layer;
    const int64_t at = (int64_t)(cuts_before(p, p->ranks.rank) + cut) * p->z.batch + c->sample;
    make_inputs(p, all, c, &one);
    return tess_predict_stats_run(p->learn.predict, &one.in,
                                  p->learn.stats + at * rows_of_sample(p) * TESS_PREDICT_STATS);
}

/* The statistics of all keys, at the beginning of p->learn.stats. */
static tess_status merge_stats(tess_pass *p, tess_predict_loss loss)
{
    const int64_t rows = p->z.batch * rows_of_sample(p), each = rows * TESS_PREDICT_STATS;
    const int cuts = cuts_before(p, p->ranks.ranks);
    int64_t *bytes = p->ranks.message;
    for (int r = 0; r < p->ranks.ranks; r++)
        bytes[r] = (cuts_before(p, r + 1) - cuts_before(p, r)) * each * (int64_t)sizeof(double);
    TESS_TRY(tess_comm_allgatherv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD,
                                  p->learn.stats + cuts_before(p, p->ranks.rank) * each,
                                  bytes[p->ranks.rank], p->learn.stats, bytes));
    for (int cut = 1; cut < cuts; cut++)
        TESS_TRY(tess_predict_stats_merge(loss, rows, p->learn.stats + cut * each, p->learn.stats));
    return TESS_OK;
}

/* ---- losses, and gradients of projected vectors ---------------------------------------------- */

static void note(tess_pass *p, int beyond)
{
    ((tess_predictor *)(uintptr_t)p->sparse.attend.predictor)->beyond |= beyond;
}

static tess_status lose_part(tess_pass *p, int layer, const inputs *all, const part *c, int cut)
{
    inputs one;
    (void)cut;
    const int64_t heads = p->z.heads, rank = p->room.proj_dim, rows = rows_of_sample(p);
    const tess_view all_dk = tess__learn_dk(p), dk = from_row(&all_dk, c);
    const tess_view dq = {p->exact.learn, TESS_DTYPE_F32, 0, p->room.learn_rows * rank, rank};
    double *losses = p->sparse.losses + (layer * p->z.batch + c->sample) * heads;
    make_inputs(p, all, c, &one);
    double *found = p->exact.losses;
    TESS_TRY(tess_predict_loss_part(p->learn.predict, &one.in,
                                    p->learn.stats + c->sample * rows * TESS_PREDICT_STATS,
                                    p->z.tokens, found, &dq, &dk));
    for (int64_t h = 0; h < heads; h++)
        losses[h] += tess__in_units(found[h]);
    note(p, p->ctx->kernels->fixed_add(p->exact.dq + c->sample * rows * rank, p->exact.learn, 1.0f,
                                       rows * rank));
    return TESS_OK;
}

/* p->learn.dq and the layer's losses, of all ranks. */
static tess_status lose(tess_pass *p, int layer, const inputs *all)
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    const int64_t n = heads * p->room.learn_rows * p->room.proj_dim;
    double *losses = p->sparse.losses + layer * heads;
    memset(losses, 0, (size_t)heads * sizeof *losses);
    memset(p->exact.dq, 0, (size_t)n * sizeof *p->exact.dq);
    TESS_TRY(each_part(p, layer, all, lose_part));
    TESS_TRY(tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, losses, heads, TESS_DTYPE_F64,
                                 TESS_REDUCE_SUM));
    TESS_TRY(tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, p->exact.dq, n,
                                 TESS_DTYPE_I64, TESS_REDUCE_SUM));
    p->ctx->kernels->fixed_read(p->learn.dq, p->exact.dq, n);
    return TESS_OK;
}

/* ---- gradients of the matrices --------------------------------------------------------------- */

static void add_gradient(tess_pass *p, int layer, int64_t at, int64_t n)
{
    const tess_predictor *predictor = p->sparse.attend.predictor;
    int64_t *to = predictor->sums + layer * predictor->layer_count + at;
    note(p, p->ctx->kernels->fixed_add(to, p->exact.learn, 1.0f, n));
}

static tess_status qk_part(tess_pass *p, int layer, const inputs *all, const part *c, int cut)
{
    inputs one;
    (void)cut;
    const int64_t n = tess__predictor_matrix(p->sparse.attend.predictor);
    const tess__token_range own = tess__learn_local(p, p->z.first + c->row, c->n);
    const tess_view all_dq = tess__learn_dq(p, own.first), all_dk = tess__learn_dk(p);
    const tess_view dq = from_row(&all_dq, &(part){c->sample, 0, 0}), dk = from_row(&all_dk, c);
    const tess_view q = from_row(&all->q, c); /* all->q: local rows here */
    int64_t *rows = p->learn.rows + p->room.learn_rows;
    make_inputs(p, all, c, &one);
    for (int64_t i = 0; i < own.n; i++)
        rows[i] = p->learn.rows[own.first + i] - p->z.first - c->row;
    if (own.n > 0) {
        memset(p->exact.learn, 0, (size_t)n * sizeof *p->exact.learn);
        TESS_TRY(tess_predict_map_backward(p->learn.predict, &q, &dq, rows, own.n, p->exact.learn));
        add_gradient(p, layer, 0, n);
    }
    memset(p->exact.learn, 0, (size_t)n * sizeof *p->exact.learn);
    TESS_TRY(tess_predict_map_backward(p->learn.predict, &one.k, &dk, NULL, 0, p->exact.learn));
    add_gradient(p, layer, n, n);
    return TESS_OK;
}

static tess_status hidden_part(tess_pass *p, int layer, const inputs *all, const part *c, int cut)
{
    (void)all;
    (void)cut;
    const int64_t wide = 2 * (int64_t)p->z.heads * p->room.proj_dim, dim = p->z.dim;
    const int64_t row = c->sample * p->z.local + c->row, matrices = wide * dim;
    const tess_linear_shape shape = {c->n, dim, wide};
    const float *dproj = (const float *)all->k_low.data + row * wide; /* see learn_hidden */
    TESS_TRY(tess__linear_dw(p->ctx, &shape, dproj, p->ws.n + row * dim, p->exact.learn, 0, NULL));
    add_gradient(p, layer, 0, matrices);
    tess__column_sums(p->ctx, c->n, wide, dproj, p->exact.learn, 0);
    add_gradient(p, layer, matrices, wide);
    return TESS_OK;
}

tess_status tess__exact_learn(tess_pass *p, int layer, const tess_view *q, const tess_view *k)
{
    tess_view q_low, k_low;
    inputs all = {.k = *k, .in = {.n_rows = p->room.learn_rows, .loss = p->sparse.attend.loss}};
    tess__proj_views(p, &q_low, &k_low);
    all.k_low = k_low;
    TESS_TRY(tess__ranks_queries(p, q, &q_low, &all.q, &all.q_low));
    TESS_TRY(each_part(p, layer, &all, gather_part));
    TESS_TRY(merge_stats(p, all.in.loss));
    TESS_TRY(lose(p, layer, &all));
    all.q = *q;
    if (!tess__of_hidden(p))
        return each_part(p, layer, &all, qk_part);
    all.k_low.data = tess__learn_dproj(p, tess__learn_local(p, p->z.first, p->z.local));
    return each_part(p, layer, &all, hidden_part);
}
