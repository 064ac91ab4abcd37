/* SPDX-License-Identifier: Apache-2.0 */
/* observe_groups.c - overlap of the queries of cubes, and of as many with similar content.
 *
 * For each head: the mass of the best keys that a group shares over the mean mass of each query's
 * own best (tess_overlap_measure), in the sampled cubes, and in the groups by content with the same
 * numbers. A head whose second overlap is the larger one attends better in groups by content.
 *
 * Flop of a sample and head, with r sampled queries and S keys: 16 r S D, and the bisection of its
 * S queries (attn/content_groups.c).
 */
#include "attn/attn_internal.h"
#include "model/observe.h"

#include <string.h>

/* What a measurement by content works with: one head at a time. */
typedef struct {
    tess__arena arena;
    float *q;        /* (rows, head_dim) */
    int32_t *placed; /* (tokens): the query at each place */
    void *room;
} grouped;

int64_t tess__group_bytes_most(const tess__observer_opts *o, int64_t rows)
{
    if (o->group != TESS_GROUP_AUTO || o->error > 0.0)
        return 0;
    return rows * o->head_dim * (int64_t)sizeof(float) + o->tokens * (int64_t)sizeof(int32_t) +
           (int64_t)tess__content_bytes(o->tokens) + 3 * (int64_t)tess__arena_round(1) +
           TESS_ALLOC_OVERHEAD;
}

static tess_status take(const tess__observer *o, grouped *g)
{
    const size_t rows = (size_t)o->sampled.rows, tokens = (size_t)o->opts.tokens;
    g->q = TESS_TAKE(&g->arena, rows * (size_t)o->opts.head_dim * sizeof *g->q);
    g->placed = TESS_TAKE(&g->arena, tokens * sizeof *g->placed);
    g->room = TESS_TAKE(&g->arena, tess__content_bytes(o->opts.tokens));
    return TESS_OK;
}

static tess_view head_of(const tess_view *all, int b, int h)
{
    tess_view one = *all;
    one.data = (float *)all->data + b * all->stride_b + h * all->stride_h;
    return one;
}

/* g->q = the queries of the sampled groups of one head. */
static void gather(const tess__observer *o, const tess__order *order, const tess_view *q,
                   const grouped *g)
{
    const tess__sampled *s = &o->sampled;
    const int64_t dim = o->opts.head_dim;
    for (int32_t i = 0; i < s->groups; i++)
        for (int64_t r = s->bounds[i]; r < s->bounds[i + 1]; r++)
            memcpy(g->q + r * dim,
                   (const float *)q->data +
                       g->placed[order->bounds[s->group[i]] + r - s->bounds[i]] * q->stride_s,
                   (size_t)dim * sizeof *g->q);
}

static tess_status by_content(tess__observer *o, const tess__order *order, const tess_hook_in *in,
                              const tess_density_in *density, const grouped *g, double *sums)
{
    tess_sel_shape shape = *density->groups;
    shape.batch = shape.heads = 1;
    for (int i = 0; i < o->opts.batch * in->heads; i++) {
        const int b = i / in->heads, h = i % in->heads;
        const tess_view q = head_of(in->q, b, h), k = head_of(in->k, b, h);
        const tess_view by = in->q_low ? head_of(in->q_low, b, h) : q;
        const tess_view rows = {
            .data = g->q, .dtype = TESS_DTYPE_F32, .stride_s = o->opts.head_dim};
        tess_density_in one = *density;
        double overlap;
        one.q = &rows;
        one.k = &k;
        one.groups = &shape;
        one.lse = NULL;
        tess__content_groups(o->ctx, &by, in->q_low ? in->proj_dim : o->opts.head_dim,
                             order->groups, order->bounds, g->room, g->placed);
        gather(o, order, &q, g);
        TESS_TRY(tess_overlap_measure(o->ctx, &one, 0, &overlap));
        sums[h] += tess__in_units(overlap);
    }
    return TESS_OK;
}

tess_status tess__observe_groups(tess__observer *o, int order, const tess_hook_in *in,
                                 const tess_density_in *density)
{
    const int64_t heads = o->opts.heads, all = o->opts.layers * heads;
    tess__cube_sums *sums = &o->sums.cubes[order];
    double *shared = sums->shared + in->layer * heads + in->head;
    grouped g = {.arena = {.ctx = o->ctx}};
    sums->compared[in->layer] += in->head == 0 ? o->opts.batch : 0;
    if (o->opts.error > 0.0)
        return TESS_OK;
    TESS_TRY(tess_overlap_measure(o->ctx, density, 0, o->values));
    for (int i = 0; i < o->opts.batch * in->heads; i++)
        shared[i % in->heads] += tess__in_units(o->values[i]);
    tess_status status = take(o, &g);
    if (status == TESS_OK)
        status = by_content(o, &o->orders[order], in, density, &g, shared + all);
    tess__arena_free(&g.arena);
    return status;
}
