/* SPDX-License-Identifier: Apache-2.0 */
/* observe_sample.c - a sample of the query groups of a layer.
 *
 * A group of queries is measured against all keys, so that a few groups stand for all of them at a
 * small part of the cost. Groups g = first, first + stride, ... are taken, `first` being a hash of
 * the step, so that every group is sampled sooner or later whatever the interval of measurements
 * is. Queries are found through the raster index of each token, so that groups of any cube size can
 * be taken from a pass whose tokens lie in another order:
 *
 *   position of query i of a group = inverse[perm_of_the_cubes[bounds[g] + i]]
 *
 * and copied side by side, as keys need no order. Memory: `capacity` rows for each sample and head.
 */
#include "model/observe.h"

#include <string.h>

/* An eighth of the queries: enough for a mean over heads, at an eighth of a forward pass. */
enum { FRACTION = 8, ROWS_MIN = 128, ROWS_MAX = 512 };

int64_t tess__sampled_rows(int64_t tokens)
{
    int64_t rows = tokens / FRACTION;
    rows = rows > ROWS_MIN ? rows : ROWS_MIN;
    rows = rows < ROWS_MAX ? rows : ROWS_MAX;
    return rows < tokens ? rows : tokens;
}

/* A group larger than the capacity is taken alone, with as many of its queries as fit. */
void tess__sample_groups(tess__observer *o, const tess__order *order)
{
    tess__sampled *s = &o->sampled;
    const int64_t number = (int64_t)((uint64_t)o->step * 0x9e3779b97f4a7c15u >> 33);
    const int64_t each = (o->opts.tokens + order->groups - 1) / order->groups;
    const int64_t wanted = s->capacity / each > 0 ? s->capacity / each : 1;
    const int64_t stride = (order->groups + wanted - 1) / wanted;
    s->rows = 0;
    s->groups = 0;
    s->bounds[0] = 0;
    for (int64_t i = number % stride; i < order->groups; i += stride) {
        int64_t n = order->bounds[i + 1] - order->bounds[i];
        if (n > s->capacity - s->rows)
            n = s->capacity - s->rows;
        for (int64_t r = 0; r < n; r++)
            s->token[s->rows + r] = o->inverse[order->perm[order->bounds[i] + r]];
        if (n == 0)
            break;
        s->rows += n;
        s->group[s->groups] = (int32_t)i;
        s->bounds[++s->groups] = s->rows;
    }
}

/* to: (batch, heads, rows, dim) */
static void copy_rows(const tess__observer *o, int64_t heads, const tess_view *from, int64_t dim,
                      float *to)
{
    const tess__sampled *s = &o->sampled;
    const int64_t all = o->opts.batch * heads;
#pragma omp parallel for num_threads(o->ctx->threads) schedule(static)
    for (int64_t i = 0; i < all; i++) {
        const float *base =
            (const float *)from->data + i / heads * from->stride_b + i % heads * from->stride_h;
        for (int64_t r = 0; r < s->rows; r++)
            memcpy(to + (i * s->rows + r) * dim, base + s->token[r] * from->stride_s,
                   (size_t)dim * sizeof *to);
    }
}

void tess__sample_queries(tess__observer *o, const tess_hook_in *in)
{
    tess__sampled *s = &o->sampled;
    const int64_t all = (int64_t)o->opts.batch * in->heads;
    copy_rows(o, in->heads, in->q, o->opts.head_dim, s->q);
    if (in->q_low)
        copy_rows(o, in->heads, in->q_low, in->proj_dim, s->low);
    for (int64_t i = 0; i < all && in->lse; i++)
        for (int64_t r = 0; r < s->rows; r++)
            s->lse[i * s->rows + r] = in->lse[i * o->opts.tokens + s->token[r]];
}

tess_view tess__sampled_view(const tess__sampled *s, int heads, float *data, int64_t dim)
{
    return (tess_view){.data = data,
                       .dtype = TESS_DTYPE_F32,
                       .stride_b = heads * s->rows * dim,
                       .stride_h = s->rows * dim,
                       .stride_s = dim};
}

tess_status tess__sampled_create(tess__arena *arena, const tess__observer_opts *o, tess__sampled *s)
{
    const size_t all = (size_t)o->batch * (size_t)o->heads;
    s->capacity = tess__sampled_rows(o->tokens);
    const size_t rows = (size_t)s->capacity;
    s->token = TESS_TAKE(arena, rows * sizeof *s->token);
    s->bounds = TESS_TAKE(arena, (rows + 1) * sizeof *s->bounds);
    s->group = TESS_TAKE(arena, rows * sizeof *s->group);
    s->checked = TESS_TAKE(arena, (TESS__CHECK_GROUPS + 1) * sizeof *s->checked);
    s->q = TESS_TAKE(arena, all * rows * (size_t)o->head_dim * sizeof *s->q);
    s->low = TESS_TAKE(arena, all * rows * (size_t)o->proj_dim * sizeof *s->low);
    s->lse = TESS_TAKE(arena, all * rows * sizeof *s->lse);
    return TESS_OK;
}
