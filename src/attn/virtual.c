/* SPDX-License-Identifier: Apache-2.0 */
/* virtual.c - what the virtual key needs of a whole head: sums of its keys, gradients to spread.
 *
 * A tile's virtual key is the mean of the rows its list leaves out: the sum of all rows less that
 * of the listed ones. The sums of all rows are made once for a call, here, by slices of rows and
 * then over the slices, cut by the shape alone.
 *
 * In the backward pass each tile gives what it takes back from the rows it lists, -e and -f of
 * attn_virtual.c; they lie side by side by head and tile, and behind the last tile of a head lies
 * the sum of e and f over its tiles, with which every row of dk and dv begins.
 *
 * Cost: 2 D additions for each key and 2 D for each tile. Memory: 16 D bytes for each tile and
 * head.
 */
#include "attention.h"

#include <string.h>

/* Slices are for many threads with few heads, and worth their sum from a few thousand rows on. */
enum { ITEMS_GOOD = 16, ROWS_LEAST = 2048 };

int tess__virtual_slices(const tess_attn_shape *shape)
{
    const int64_t heads = (int64_t)shape->batch * shape->heads;
    const int64_t most = ITEMS_GOOD / heads, by_rows = shape->tokens_k / ROWS_LEAST;
    const int64_t n = TESS_MIN(by_rows, most);
    return !shape->compensate ? 0 : n < 1 ? 1 : (int)n;
}

const double *tess__virtual_total(const tess_attn *attn, int64_t head)
{
    return attn->totals + head * 2 * attn->slices * attn->shape.head_dim;
}

void tess__virtual_totals(tess_attn *attn, const tess_view *k, const tess_view *v,
                          tess__attn_scratch *w)
{
    if (attn->clusters) {
        tess__clusters(attn, k, v, w);
        return;
    }
    const tess_attn_shape *s = &attn->shape;
    const int64_t slices = attn->slices, items = (int64_t)s->batch * s->heads * 2 * slices;
    const int64_t dim = s->head_dim;
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < items; item++) {
        const int64_t slice = item / 2 % slices, head = item / 2 / slices;
        const tess_view *x = item % 2 ? v : k;
        const tess__rows rows = {tess__view_row(x, head / s->heads, head % s->heads, 0),
                                 x->stride_s};
        attn->ctx->kernels->attn_total(
            attn->totals + item * dim, &rows, x->dtype == TESS_DTYPE_BF16, (int)dim,
            s->tokens_k * slice / slices, s->tokens_k * (slice + 1) / slices, w);
    }
    if (slices == 1)
        return;
#pragma omp for
    for (int64_t item = 0; item < items / slices; item++) {
        double *sum = attn->totals + (item / 2 * slices * 2 + item % 2) * dim;
        for (int64_t slice = 1; slice < slices; slice++)
            for (int64_t d = 0; d < dim; d++)
                sum[d] += sum[slice * 2 * dim + d];
    }
}

/* slots   double (threads, tiles of an item, 2, head_dim): sums of the tiles a thread works on
 *         float (batch * heads, tiles + 1, 2, head_dim): starts */
static size_t sums_floats(const tess_attn_shape *shape, int64_t tiles, int threads)
{
    return (size_t)(threads * tess__virtual_tiles(shape, tiles)) * 4 * (size_t)shape->head_dim;
}

size_t tess__attn_virtual_bytes(const tess_attn_shape *shape, int64_t tiles, int threads)
{
    const size_t heads = (size_t)shape->batch * (size_t)shape->heads;
    size_t starts;
    if (shape->compensate > 1)
        return tess__cluster_slots(shape, tess__virtual_parts(shape, tiles));
    if (tess__mul(heads, 2 * (size_t)shape->head_dim * sizeof(float), &starts) ||
        tess__mul(starts, (size_t)tiles + 1, &starts))
        return SIZE_MAX;
    return shape->compensate ? sums_floats(shape, tiles, threads) * sizeof(float) + starts : 0;
}

tess_status tess__attn_reserve(tess_attn *attn, int64_t tiles)
{
    const size_t bytes = tess__attn_virtual_bytes(&attn->shape, tiles, attn->ctx->threads);
    if (bytes <= attn->slots_bytes)
        return TESS_OK;
    double *slots = TESS_ALLOC(attn->ctx, bytes);
    tess__free(attn->ctx, attn->slots);
    attn->slots = slots;
    attn->slots_bytes = bytes;
    return TESS_OK;
}

double *tess__virtual_sums(const tess_attn *attn, int64_t tiles, int thread)
{
    return attn->slots +
           thread * tess__virtual_tiles(&attn->shape, tiles) * 2 * attn->shape.head_dim;
}

float *tess__virtual_start(const tess_attn *attn, int64_t tiles, int64_t head, int64_t tile)
{
    return (float *)attn->slots + sums_floats(&attn->shape, tiles, attn->ctx->threads) +
           (head * (tiles + 1) + tile) * 2 * attn->shape.head_dim;
}

void tess__virtual_spread(tess_attn *attn, int64_t tiles)
{
    const tess_attn_shape *s = &attn->shape;
    const int64_t dim = s->head_dim, items = (int64_t)s->batch * s->heads * 2;
#pragma omp for
    for (int64_t item = 0; item < items; item++) {
        const int64_t head = item / 2, column = item % 2 * dim;
        double sum[TESS_DIM_MAX] = {0};
        for (int64_t t = 0; t < tiles; t++) {
            const float *start = tess__virtual_start(attn, tiles, head, t) + column;
            for (int64_t d = 0; d < dim; d++)
                sum[d] -= (double)start[d];
        }
        float *rest = tess__virtual_start(attn, tiles, head, tiles) + column;
        for (int64_t d = 0; d < dim; d++)
            rest[d] = (float)sum[d];
    }
}
