/* SPDX-License-Identifier: Apache-2.0 */
/* control_probe.c - a sample of query groups, taken out of a layer as it is shown.
 *
 * A group of queries is measured against all keys, so a few groups tell what all of them do at a
 * small part of the cost. Groups g = first, first + stride, ... are taken, `first` being a hash of
 * the step, so that all have their turn whatever the interval of measurements is. Their queries are
 * found through the raster index of each token, so that groups of any cube size can be taken from a
 * pass that lies in another order:
 *
 *   place of query i of a group = inverse[perm_of_the_cubes[bounds[g] + i]]
 *
 * and gathered side by side, as keys need no order. Memory: `room` rows for each sample and head.
 */
#include "control.h"

#include <string.h>

/* An eighth of the queries: enough for a mean over heads, at an eighth of a forward pass. */
enum { SHARE = 8, ROWS_MIN = 128, ROWS_MAX = 512 };

int64_t tess__probe_rows(int64_t tokens)
{
    int64_t rows = tokens / SHARE;
    rows = rows > ROWS_MIN ? rows : ROWS_MIN;
    rows = rows < ROWS_MAX ? rows : ROWS_MAX;
    return rows < tokens ? rows : tokens;
}

/* A group larger than the room is taken alone, with as many of its queries as fit. */
void tess__probe_choose(const tess__control *c, const tess__order *order, tess__gathered *g)
{
    const int64_t number = (int64_t)((uint64_t)c->step * 0x9e3779b97f4a7c15u >> 33);
    const int64_t each = (c->tokens + order->groups - 1) / order->groups;
    const int64_t wanted = g->room / each > 0 ? g->room / each : 1;
    const int64_t stride = (order->groups + wanted - 1) / wanted;
    g->rows = 0;
    g->groups = 0;
    g->bounds[0] = 0;
    for (int64_t i = number % stride; i < order->groups; i += stride) {
        int64_t n = order->bounds[i + 1] - order->bounds[i];
        if (n > g->room - g->rows)
            n = g->room - g->rows;
        for (int64_t r = 0; r < n; r++)
            g->place[g->rows + r] = c->inverse[order->perm[order->bounds[i] + r]];
        if (n == 0)
            break;
        g->rows += n;
        g->bounds[++g->groups] = g->rows;
    }
}

/* to: (batch, heads, rows, dim) */
static void gather_rows(const tess__control *c, const tess__gathered *g, int64_t heads,
                        const tess_view *from, int64_t dim, float *to)
{
    const int64_t all = c->opts.batch * heads;
#pragma omp parallel for num_threads(c->ctx->threads) schedule(static)
    for (int64_t i = 0; i < all; i++) {
        const float *base =
            (const float *)from->data + i / heads * from->stride_b + i % heads * from->stride_h;
        for (int64_t r = 0; r < g->rows; r++)
            memcpy(to + (i * g->rows + r) * dim, base + g->place[r] * from->stride_s,
                   (size_t)dim * sizeof *to);
    }
}

void tess__probe_gather(const tess__control *c, const tess_hook_in *hook, tess__gathered *g)
{
    const int64_t all = (int64_t)c->opts.batch * hook->heads;
    gather_rows(c, g, hook->heads, hook->q, c->config.head_dim, g->q);
    if (hook->q_low)
        gather_rows(c, g, hook->heads, hook->q_low, hook->rank, g->low);
    for (int64_t i = 0; i < all && hook->lse; i++)
        for (int64_t r = 0; r < g->rows; r++)
            g->lse[i * g->rows + r] = hook->lse[i * c->tokens + g->place[r]];
}

tess_view tess__probe_view(const tess_hook_in *hook, const tess__gathered *g, float *data,
                           int64_t dim)
{
    return (tess_view){.data = data,
                       .dtype = TESS_DTYPE_F32,
                       .stride_b = hook->heads * g->rows * dim,
                       .stride_h = g->rows * dim,
                       .stride_s = dim};
}

tess_status tess__probe_create(tess__control *c, tess__gathered *g)
{
    const size_t all = (size_t)c->opts.batch * (size_t)c->config.heads;
    g->room = tess__probe_rows(c->tokens);
    const size_t rows = (size_t)g->room;
    const size_t rank = c->rules.learns ? (size_t)c->attention.proj_dim : 0;
    g->place = tess__arena_take(&c->arena, rows * sizeof *g->place);
    g->bounds = tess__arena_take(&c->arena, (rows + 1) * sizeof *g->bounds);
    g->part = tess__arena_take(&c->arena, (TESS__CHECK_GROUPS + 1) * sizeof *g->part);
    g->q = tess__arena_take(&c->arena, all * rows * (size_t)c->config.head_dim * sizeof *g->q);
    g->low = tess__arena_take(&c->arena, all * rows * rank * sizeof *g->low);
    g->lse = tess__arena_take(&c->arena, all * rows * sizeof *g->lse);
    return g->place && g->bounds && g->part && g->q && g->low && g->lse ? TESS_OK : TESS_ENOMEM;
}
