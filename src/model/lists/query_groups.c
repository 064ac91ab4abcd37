/* SPDX-License-Identifier: Apache-2.0 */
/* query_groups.c - groups of queries by content, in a pass.
 *
 * Groups have the sizes of the cubes, and each (sample, head) has its own: a permutation that says
 * which query is at each place. Selectors get the queries in that order; attention reads and writes
 * rows of q, o and dq by number, and k and v stay where they are. A permutation is made in the
 * forward pass, 4 bytes for each token and head of every layer, and saved for the backward pass and
 * for a block that is recomputed, whose rounded queries might fall into other groups.
 *
 * Where ranks share the tokens each groups the queries that it has of a head among themselves: all
 * of them where heads are whole, its own ones where they are not. The executor keeps the rows.
 */
#include "attn/attn_internal.h"
#include "model/sparse_internal.h"

#include <string.h>

int32_t *tess__groups_rows(const tess_pass *p, int layer)
{
    const int64_t all = (int64_t)p->z.batch * p->z.heads;
    return p->sparse.rows ? p->sparse.rows + (p->shape.train ? layer * all * p->z.tokens : 0)
                          : NULL;
}

static int by_cube(const tess_pass *p, int layer, int head)
{
    return p->sparse.by_cube[(int64_t)layer * p->z.heads + head];
}

int32_t *tess__groups_of(const tess_pass *p, int layer, int sample, int head)
{
    int32_t *rows = tess__groups_rows(p, layer);
    if (!rows || by_cube(p, layer, head))
        return NULL;
    return rows + ((int64_t)sample * p->z.heads + head) * p->z.tokens;
}

/* For the hook, where other heads have groups of their own. */
static void keep_order(const tess_pass *p, int layer, int sample, int head)
{
    int32_t *rows = tess__groups_rows(p, layer);
    if (!rows)
        return;
    rows += ((int64_t)sample * p->z.heads + head) * p->z.tokens;
    for (int64_t i = 0; i < p->z.tokens; i++)
        rows[i] = (int32_t)i;
}

/* Some queries of one head in groups with these bounds. */
typedef struct {
    int layer, sample, head;
    int32_t n;
    const int64_t *bounds;
} head_groups;

static tess_status find(tess_pass *p, const head_groups *g, int dim, const tess_view *q,
                        int32_t *rows)
{
    const int64_t at = (p->sparse.attend.sample + g->sample) * p->z.heads + g->head;
    uint32_t words[2];
    if (p->room.group == TESS_GROUP_CONTENT) {
        tess__content_groups(p->ctx, q, dim, g->n, g->bounds, p->sparse.group_room, rows);
        return TESS_OK;
    }
    TESS_TRY(tess__attend_random(p, g->layer, 2 * (uint64_t)at, words, 2));
    return tess__random_groups((uint64_t)words[0] << 32 | words[1], g->n, g->bounds, rows);
}

/* *q becomes a view of n rows in the order of the groups. */
static void gather(const tess_pass *p, const int32_t *rows, int64_t n, int dim, tess_view *q)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(p->sparse.grouped + i * dim, (const float *)q->data + rows[i] * q->stride_s,
               (size_t)dim * sizeof(float));
    q->data = p->sparse.grouped;
    q->stride_s = dim;
}

tess_status tess__groups_make(tess_pass *p, int layer, int sample, int head, int dim, int known,
                              tess_view *q)
{
    const head_groups all = {layer, sample, head, p->z.n_q, p->sparse.bounds};
    int32_t *rows = tess__groups_of(p, layer, sample, head);
    if (!rows && !known)
        keep_order(p, layer, sample, head);
    if (!rows)
        return TESS_OK;
    if (!known)
        TESS_TRY(find(p, &all, dim, q, rows));
    gather(p, rows, p->z.tokens, dim, q);
    return TESS_OK;
}

tess_status tess__groups_share(tess_pass *p, const tess_share_in *in, int dim,
                               const int64_t *bounds, tess_view *q)
{
    const head_groups own = {in->layer, in->sample, in->head, in->n_groups, bounds};
    if (by_cube(p, in->layer, in->head))
        return TESS_OK;
    TESS_TRY(find(p, &own, dim, q, in->rows));
    gather(p, in->rows, bounds[in->n_groups], dim, q);
    return TESS_OK;
}
