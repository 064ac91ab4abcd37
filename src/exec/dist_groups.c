/* SPDX-License-Identifier: Apache-2.0 */
/* dist_groups.c - query groups of a share with rows in an order of the selector's.
 *
 * The groups of a share are ranges of places, and the selector says which row of the share is at
 * each place. Rows are then moved: between the selection and the end of the call the packed rows of
 * q, o, lse, dout and dq of such a share are in the order of the groups, so that attention over all
 * keys, over key parts and over selected keys, with its virtual keys, reads ranges as without it.
 * Rows on their way from and to the owner ranks are in the order of tokens: the same bytes are
 * sent.
 *
 *   forward    tess__rows_group   q, after the selection of each share
 *              tess__to_tokens    o and lse, before they are returned; tess__to_groups after it,
 *                                 if they are saved
 *   backward   tess__to_groups    dout
 *              tess__to_tokens    dq, before it is returned
 *
 * Cost: two copies of each such row of q, four of o, two of dout and dq. Memory: 4 bytes for each
 * packed query row of saved activations, and the rows of the largest share.
 */
#include "dist_attn_internal.h"

#include <string.h>

int32_t *tess__rows_of(const tess_dist_attn *d, const tess__dist_run *run, int sample,
                       const tess__dist_share *share)
{
    if (!d->opts.group_rows)
        return NULL;
    return run->acts->rows + sample * run->layer->q.packed_rows + share->q_place;
}

void tess__rows_begin(const tess__dist_share *share, int32_t *rows)
{
    for (int64_t i = 0; rows && i < share->q_rows; i++)
        rows[i] = (int32_t)i;
}

/* EINVAL unless every row of the share has one place; marks in d->ordered. */
static tess_status check_rows(const tess_dist_attn *d, const tess__dist_run *run,
                              const tess__dist_share *share, const int32_t *rows)
{
    uint8_t *const found = d->ordered.data;
    memset(found, 0, (size_t)share->q_rows);
    for (int64_t i = 0; i < share->q_rows; i++) {
        if (rows[i] < 0 || rows[i] >= share->q_rows || found[rows[i]])
            return tess__invalid("tess_dist_attn_forward",
                                 "layer %d, head %d: rows[%lld] of a share is %d, must be each of "
                                 "0..%lld once",
                                 run->call->layer, share->head, (long long)i, rows[i],
                                 (long long)share->q_rows - 1);
        found[rows[i]] = 1;
    }
    return TESS_OK;
}

/* Place i = row rows[i], or with back the other way round. */
static void move_rows(const tess_dist_attn *d, const tess__dist_share *share, const int32_t *rows,
                      int width, int back, float *packed)
{
    float *const copy = d->ordered.data;
    const int64_t n = share->q_rows;
    const size_t bytes = (size_t)width * sizeof *packed;
#pragma omp parallel for num_threads(d->ctx->threads) if (n * width > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        memcpy(copy + (back ? rows[i] : i) * width, packed + (back ? i : rows[i]) * width, bytes);
    memcpy(packed, copy, (size_t)n * bytes);
}

tess_status tess__rows_group(tess_dist_attn *d, tess__dist_run *run, int sample,
                             const tess__dist_share *share)
{
    const int32_t *rows = tess__rows_of(d, run, sample, share);
    const int64_t place = sample * run->layer->q.packed_rows + share->q_place;
    if (!rows)
        return TESS_OK;
    TESS_TRY(check_rows(d, run, share, rows));
    move_rows(d, share, rows, d->opts.head_dim, 0, run->acts->q + place * d->opts.head_dim);
    return TESS_OK;
}

static void move_all(const tess_dist_attn *d, tess__dist_run *run, int width, int back,
                     float *packed)
{
    tess__dist_layer *layer = run->layer;
    const int64_t begin = tess_comm_clock(d->comm);
    for (int sample = 0; d->opts.group_rows && sample < d->opts.batch; sample++)
        for (int64_t i = 0; i < layer->n_shares; i++) {
            const tess__dist_share *share = &layer->shares[i];
            const int64_t place = sample * layer->q.packed_rows + share->q_place;
            if (!run->acts->dense[sample * layer->n_shares + i])
                move_rows(d, share, tess__rows_of(d, run, sample, share), width, back,
                          packed + place * width);
        }
    layer->stats.move_ns += tess_comm_clock(d->comm) - begin;
}

void tess__to_groups(const tess_dist_attn *d, tess__dist_run *run, int width, float *packed)
{
    move_all(d, run, width, 0, packed);
}

void tess__to_tokens(const tess_dist_attn *d, tess__dist_run *run, int width, float *packed)
{
    move_all(d, run, width, 1, packed);
}
