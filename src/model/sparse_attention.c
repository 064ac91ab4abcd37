/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_attention.c - attention over the tokens, as tess_pass_attend says.
 *
 * A layer without sparse heads is one call over the batch. Otherwise each (sample, head) is a call
 * of its own, dense or on its lists: a budget of each makes lists of each, and those of one head
 * are in memory at a time. Attention's bits do not depend on which way a dense head goes.
 *
 * Where ranks share the tokens, the context's executor does all of this (ranks_attention.c).
 *
 * Work of a sparse head: density times that of a dense one, 4 and 10 D flop for each pair.
 */
#include "attn/attn_internal.h"
#include "observe.h"
#include "ranks.h"

typedef struct {
    tess_view q, k, v;
} qkv_views;

static qkv_views views_of(const tess_pass *p, const tess__qkv_part parts[3])
{
    return (qkv_views){tess__heads_view(p, parts[0].heads, p->z.local),
                       tess__heads_view(p, parts[1].heads, p->z.local),
                       tess__heads_view(p, parts[2].heads, p->z.local)};
}

static qkv_views one_of(const qkv_views *all, int sample, int head)
{
    return (qkv_views){tess__one_head(&all->q, sample, head), tess__one_head(&all->k, sample, head),
                       tess__one_head(&all->v, sample, head)};
}

static float *lse_of(const tess_pass *p, const tess__set *s, int sample, int head)
{
    const int64_t row = ((int64_t)sample * p->z.heads + head) * p->z.local;
    float *lse = s->at[SET_LSE1];
    return lse ? lse + row : NULL;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The clusters of one head's keys: found by its centroids, or known from the forward pass. */
static void use_clusters(const tess_pass *p, int layer, int sample, int head, int known)
{
    int64_t between;
    if (p->room.compensate <= 1)
        return;
    const float *centroids = tess__clusters_of(p, layer, &between);
    tess__attn_use_centroids(p->sparse.one, centroids + sample * between +
                                                (int64_t)head * p->room.compensate * p->z.head_dim);
    tess__attn_use_labels(p->sparse.one, tess__labels_of(p, layer, sample, head), known);
}

/* One head of one sample on the lists at hand, or dense. */
static tess_status forward_one(tess_pass *p, int sparse, const qkv_views *all, const tess__set *s,
                               int sample, int head)
{
    const tess__lap lap = tess__lap_begin(p);
    const qkv_views x = one_of(all, sample, head);
    const tess_view rows = tess__rows_view(p, p->ws.o);
    const tess_view o = tess__one_head(&rows, sample, head);
    const tess_status status = tess_attn_forward(p->sparse.one, sparse ? p->sparse.lists : NULL,
                                                 &x.q, &x.k, &x.v, &o, lse_of(p, s, sample, head));
    p->times.attention_ns += tess__lap_end(p, lap);
    return status;
}

static tess_status forward_heads(tess_pass *p, int layer, const qkv_views *all, const tess__set *s)
{
    const int32_t *keys = p->sparse.layers[layer].keys;
    for (int sample = 0; sample < p->z.batch; sample++)
        for (int head = 0; head < p->z.heads; head++, keys++) {
            if (*keys > 0)
                TESS_TRY(tess__lists_forward(p, layer, sample, head, &all->q, &all->k));
            use_clusters(p, layer, sample, head, p->recomputing);
            TESS_TRY(forward_one(p, *keys > 0, all, s, sample, head));
        }
    return TESS_OK;
}

static tess_status forward_dense(tess_pass *p, const qkv_views *all, const tess__set *s)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_view o = tess__rows_view(p, p->ws.o);
    const tess_status status =
        tess_attn_forward(p->self, NULL, &all->q, &all->k, &all->v, &o, s->at[SET_LSE1]);
    p->times.attention_ns += tess__lap_end(p, lap);
    return status;
}

/* Whether the tensors of a layer are measured, or shown to the hook. */
static int shows(const tess_pass *p, int layer)
{
    return !p->recomputing && (p->sparse.layers[layer].hook || tess__observes(p->observer, layer));
}

/* The log-sums of whole heads are sent only for measuring: the executor keeps those of the
 * gradients. */
static tess_status forward_ranks(tess_pass *p, int layer, const qkv_views *all)
{
    const tess_view o = tess__rows_view(p, p->ws.o);
    return tess__ranks_forward(p, layer, &all->q, &all->k, &all->v, &o,
                               shows(p, layer) && p->shape.train ? p->ranks.whole->lse_local
                                                                 : NULL);
}

static tess_status show(tess_pass *p, int layer, const qkv_views *all, const tess__set *s)
{
    const tess__lap lap = tess__lap_begin(p);
    tess_view q_low, k_low;
    tess_hook_in hook = {.layer = layer, .heads = p->z.heads, .q = &all->q, .k = &all->k};
    hook.v = &all->v;
    hook.lse = s->at[SET_LSE1];
    if (p->sparse.labels && p->sparse.layers[layer].keys)
        hook.labels = tess__labels_of(p, layer, 0, 0);
    if (p->sparse.layers[layer].keys)
        hook.rows = tess__groups_rows(p, layer);
    if (p->sparse.attend.predictor) {
        tess__proj_views(p, &q_low, &k_low);
        hook.q_low = &q_low;
        hook.k_low = &k_low;
        hook.proj_dim = p->room.proj_dim;
    }
    const tess_status status = tess__pass_show(p, &hook);
    p->times.observe_ns += tess__lap_end(p, lap);
    return status;
}

/* Whether the projected vectors of a layer are read. */
static int needs_proj(const tess_pass *p, int layer)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const int chooses = how->keys && how->kind == TESS_SELECT_PREDICTOR;
    if (p->recomputing)
        return chooses && layer >= p->sparse.saved_lists;
    return p->sparse.attend.predictor && (chooses || how->learn || shows(p, layer));
}

tess_status tess__attend_forward(tess_pass *p, int layer, const tess__qkv_part parts[3],
                                 const tess__set *s)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const qkv_views all = views_of(p, parts);
    if (needs_proj(p, layer))
        TESS_TRY(tess__proj_make(p, layer, &all.q, &all.k));
    TESS_TRY(tess__clusters_find(p, layer, &all.k));
    TESS_TRY(p->ranks.comm ? forward_ranks(p, layer, &all)
             : how->keys   ? forward_heads(p, layer, &all, s)
                           : forward_dense(p, &all, s));
    if (how->learn && !p->recomputing)
        TESS_TRY(tess__learn(p, layer, &all.q, &all.k));
    if (!shows(p, layer))
        return TESS_OK;
    return p->ranks.comm ? tess__ranks_show(p, layer, &all.q, &all.k, &all.v)
                         : show(p, layer, &all, s);
}

/* ---- backward -------------------------------------------------------------------------------- */

static tess_status backward_call(tess_pass *p, tess_attn *attn, const tess_selection *sel,
                                 const qkv_views *x, const qkv_views *d, const tess_view *o,
                                 const float *lse, const tess_view *dout)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_attn_saved saved = {&x->q, &x->k, &x->v, o, lse};
    const tess_status status =
        tess_attn_backward(attn, sel, &saved, dout, NULL, &d->q, &d->k, &d->v);
    p->times.attention_ns += tess__lap_end(p, lap);
    return status;
}

static tess_status backward_heads(tess_pass *p, int layer, const qkv_views *all,
                                  const qkv_views *gradients, const tess__set *s,
                                  const tess_view *dout)
{
    const int32_t *keys = p->sparse.layers[layer].keys;
    const tess_view rows = tess__rows_view(p, p->ws.o);
    for (int sample = 0; sample < p->z.batch; sample++)
        for (int head = 0; head < p->z.heads; head++, keys++) {
            const qkv_views x = one_of(all, sample, head), d = one_of(gradients, sample, head);
            const tess_view o = tess__one_head(&rows, sample, head);
            const tess_view dout_one = tess__one_head(dout, sample, head);
            int again = 0;
            if (*keys > 0)
                TESS_TRY(tess__lists_backward(p, layer, sample, head, &all->q, &all->k, &again));
            use_clusters(p, layer, sample, head, 1);
            if (again)
                TESS_TRY(forward_one(p, 1, all, s, sample, head));
            TESS_TRY(backward_call(p, p->sparse.one, *keys > 0 ? p->sparse.lists : NULL, &x, &d, &o,
                                   lse_of(p, s, sample, head), &dout_one));
        }
    return TESS_OK;
}

tess_status tess__attend_backward(tess_pass *p, int layer, const tess__qkv_part parts[3],
                                  const tess__qkv_part gradients[3], const tess__set *s,
                                  const float *dout)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const qkv_views all = views_of(p, parts), d = views_of(p, gradients);
    const tess_view o = tess__rows_view(p, p->ws.o), rows = tess__rows_view(p, dout);
    tess__observe_gradient(p, layer, &rows);
    if (p->ranks.comm)
        return tess__ranks_backward(p, layer, &rows, &d.q, &d.k, &d.v);
    if (!how->keys)
        return backward_call(p, p->self, NULL, &all, &d, &o, s->at[SET_LSE1], &rows);
    float *const proj = p->learn.proj;
    tess_status status = TESS_OK;
    if (how->kind == TESS_SELECT_PREDICTOR && layer >= p->sparse.saved_lists &&
        !p->sparse.bits_recompute) {
        if (p->learn.in_big) /* which holds gradients now; x2 is not needed any more */
            p->learn.proj = s->at[SET_X2];
        status = tess__proj_make(p, layer, &all.q, &all.k);
    }
    if (status == TESS_OK)
        status = backward_heads(p, layer, &all, &d, s, &rows);
    p->learn.proj = proj;
    return status;
}
