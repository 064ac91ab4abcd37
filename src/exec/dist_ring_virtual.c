/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring_virtual.c - virtual keys in a ring: sums over key parts that a position does not
 * receive.
 *
 * The virtual key of a group is the mean of all rows that its list omits, over all key parts. A
 * position sums the omitted rows of the parts that it receives. A key part that no share of a
 * position needs is not sent there; its owner then sends the sums of its rows, two for each sample
 * and head: all groups omit all of these rows. Backward, the gradient of these rows is summed over
 * the groups of the position and sent to the owner:
 *
 *   forward    p -> s   sum k, sum v of key part p        where s does not need p
 *   backward   s -> p   sum over groups of e
 *
 * Cost: 8 D bytes for each sample, head and such pair of positions, as control traffic; with C
 * clusters of keys C (8 D + 4), for sums and numbers of rows are those of each cluster.
 *
 *   scratch, from virtual_offset   each | all | out (steps blocks) | in (steps blocks)
 */
#include "dist_ring.h"

#include <string.h>

static int64_t each_floats(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    return d->opts.batch * tess__layer_groups(d, layer) * tess__virtual_keys(d) * 2 *
           d->opts.head_dim;
}

int64_t tess__ring_virtual_floats(const tess_dist_attn *d, const tess__dist_layer *layer,
                                  const tess__ring_exec *x)
{
    return d->opts.compensate ? each_floats(d, layer) + x->sums * (1 + 2 * x->steps) : 0;
}

float *tess__ring_each(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                       int sample, int64_t i)
{
    const int64_t groups = tess__layer_groups(d, run->layer);
    const int64_t before = (int64_t)(run->layer->shares[i].bits / tess__group_bytes(d));
    return (float *)d->scratch.data + x->virtual_offset +
           (sample * groups + before) * tess__virtual_keys(d) * 2 * d->opts.head_dim;
}

float *tess__ring_all(const tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                      int sample, int64_t i)
{
    return (float *)d->scratch.data + x->virtual_offset + each_floats(d, run->layer) +
           (sample * run->layer->n_shares + i) * tess__dist_sums(d);
}

/* Whether key part p is not sent to position s, so that sums are. */
static int is_skipped(const tess__ring_exec *x, const uint8_t *needs, int s, int p)
{
    return !needs[s * x->steps + p] && x->parts[p].rows > 0;
}

/* Sends the block (x->sums) to each position that needs it, and receives theirs, by position:
 * forward about the own key part, back about the parts that were not received. */
static tess_status exchange_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 const uint8_t *needs, int back, const float *block, float *out,
                                 float *in)
{
    const int64_t begin = tess_comm_clock(d->comm);
    int64_t n = 0;
    memset(d->send_bytes, 0, (size_t)d->ranks * sizeof *d->send_bytes);
    memset(d->recv_bytes, 0, (size_t)d->ranks * sizeof *d->recv_bytes);
    for (int s = 0; s < x->steps; s++) {
        const int to =
            back ? is_skipped(x, needs, x->position, s) : is_skipped(x, needs, s, x->position);
        const int from =
            back ? is_skipped(x, needs, s, x->position) : is_skipped(x, needs, x->position, s);
        d->send_bytes[x->ranks[s]] = to ? x->sums * (int64_t)sizeof(float) : 0;
        d->recv_bytes[x->ranks[s]] = from ? x->sums * (int64_t)sizeof(float) : 0;
        if (to)
            memcpy(out + x->sums * n++, block, (size_t)x->sums * sizeof(float));
    }
    TESS_TRY(
        tess_comm_alltoallv(d->comm, TESS_TRAFFIC_CONTROL, out, d->send_bytes, in, d->recv_bytes));
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void sum_part(tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                     float *block)
{
    const int dim = d->opts.head_dim;
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int h = 0; h < x->n_heads; h++) {
            const tess__key_subset keys =
                tess__ring_rows(d, x, x->position, run->acts->k, sample, h);
            const tess_view k = {.data = keys.k, .dtype = TESS_DTYPE_F32, .stride_s = dim};
            const tess_view v = {.data = keys.v, .dtype = TESS_DTYPE_F32, .stride_s = dim};
            tess__use_clusters(d, run->call, sample, x->heads[h]);
            tess__row_sums(d->attn, keys.rows, &k, &v, tess__virtual_keys(d), block);
            block += tess__dist_sums(d);
        }
}

tess_status tess__ring_fetch_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  const uint8_t *needs)
{
    const tess__dist_layer *layer = run->layer;
    float *const block = (float *)d->scratch.data + x->virtual_offset;
    float *const out = block + x->sums, *in = out + x->sums * x->steps;
    tess__left_clear(d, run);
    sum_part(d, run, x, block);
    TESS_TRY(exchange_sums(d, run, x, needs, 0, block, out, in));
    for (int p = 0; p < x->steps; p++) {
        if (!is_skipped(x, needs, x->position, p))
            continue;
        for (int sample = 0; run->status == TESS_OK && sample < d->opts.batch; sample++)
            for (int64_t i = 0; i < layer->n_shares; i++) {
                const tess__left left = tess__left_of(d, run, sample, i);
                if (tess__has_virtual(d, run, sample, i))
                    tess__left_all(d->attn, x->parts[p].rows,
                                   in + (sample * x->n_heads + i) * tess__dist_sums(d), &left);
            }
        in += x->sums;
    }
    return TESS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

void tess__ring_virtual(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x)
{
    const int64_t shares = run->layer->n_shares, dim = d->opts.head_dim;
    memset((float *)d->scratch.data + x->virtual_offset + each_floats(d, run->layer), 0,
           (size_t)x->sums * sizeof(float));
    for (int64_t item = 0; item < d->opts.batch * shares; item++) {
        const int sample = (int)(item / shares);
        const int64_t i = item % shares;
        if (!tess__has_virtual(d, run, sample, i))
            continue;
        const tess__dist_share *share = &run->layer->shares[i];
        memset(run->dq + (sample * run->layer->q.packed_rows + share->q_place) * dim, 0,
               (size_t)(share->q_rows * dim) * sizeof(float));
        tess__partial_virtual(d, run, sample, i, tess__ring_each(d, run, x, sample, i),
                              tess__ring_all(d, run, x, sample, i));
        x->started[item] = 1;
    }
}

/* Adds what each row of the own key part gets from one position, by its cluster. */
static void add_rows(tess_dist_attn *d, const tess__dist_run *run, const tess__ring_exec *x,
                     int sample, int h, const float *from)
{
    const int dim = d->opts.head_dim, many = d->opts.compensate > 1;
    const tess__key_subset to = tess__ring_rows(d, x, x->position, run->dk, sample, h);
    const tess__key_subset own = tess__ring_rows(d, x, x->position, run->acts->k, sample, h);
    const tess_view k = {.data = own.k, .dtype = TESS_DTYPE_F32, .stride_s = dim};
    if (many) {
        tess__use_clusters(d, run->call, sample, x->heads[h]);
        tess__row_labels(d->attn, to.rows, &k, x->labels);
    }
    for (int64_t r = 0; r < to.rows; r++) {
        const float *row = from + (ptrdiff_t)(many ? x->labels[r] : 0) * 2 * dim;
        tess__add_floats(d, to.k + r * dim, row, dim);
        tess__add_floats(d, to.v + r * dim, row + dim, dim);
    }
}

tess_status tess__ring_return_sums(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                   const uint8_t *needs)
{
    float *const all = (float *)d->scratch.data + x->virtual_offset + each_floats(d, run->layer);
    float *const out = all + x->sums, *in = out + x->sums * x->steps;
    TESS_TRY(exchange_sums(d, run, x, needs, 1, all, out, in));
    for (int s = 0; s < x->steps; s++) {
        if (!is_skipped(x, needs, s, x->position))
            continue;
        for (int sample = 0; sample < d->opts.batch; sample++)
            for (int h = 0; h < x->n_heads; h++, in += tess__dist_sums(d))
                add_rows(d, run, x, sample, h, in);
    }
    return TESS_OK;
}
