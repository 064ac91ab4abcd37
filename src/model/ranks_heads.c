/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_heads.c - whole heads for measuring, where ranks share the tokens.
 *
 * Rank r measures heads H r / C .. H (r + 1) / C - 1 of H, over all tokens: one all-to-all for each
 * tensor. Measuring is rare, so its memory is allocated when the first layer is to be
 * measured.
 */
#include "attn/attn_internal.h"
#include "observe.h"
#include "ranks.h"
#include "tessera/advanced/collectives.h"

#include <string.h>

static tess__token_range heads_of(const tess_pass *p, int64_t rank)
{
    const int64_t heads = p->z.heads, ranks = p->ranks.ranks;
    const int64_t first = heads * rank / ranks;
    return (tess__token_range){first, heads * (rank + 1) / ranks - first};
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { PIECES = 9 };

/* Floats of each member, in their order. */
static void list_pieces(const tess_pass *p, int64_t counts[PIECES])
{
    const int64_t dim = p->z.head_dim, rank = p->room.proj_dim, wide = dim > rank ? dim : rank;
    const int64_t local = p->z.rows * p->z.heads;
    const int64_t whole = p->z.batch * p->z.tokens * heads_of(p, p->ranks.rank).n;
    const int64_t all[PIECES] = {local * wide, whole * wide, whole * dim,
                                 whole * dim,  whole * rank, whole * rank,
                                 whole,        local,        p->room.values ? whole * dim : 0};
    memcpy(counts, all, sizeof all);
}

static size_t all_bytes(const tess_pass *p)
{
    int64_t counts[PIECES];
    size_t bytes = tess__arena_round(sizeof(tess__whole_heads));
    list_pieces(p, counts);
    for (int i = 0; i < PIECES; i++)
        bytes += tess__arena_round((size_t)counts[i] * sizeof(float));
    return bytes;
}

size_t tess__whole_heads_bytes(const tess_pass *p)
{
    return all_bytes(p) + TESS_ALLOC_OVERHEAD;
}

tess_status tess__whole_heads_make(tess_pass *p)
{
    if (p->ranks.whole)
        return TESS_OK;
    char *memory = TESS_ALLOC(p->ctx, all_bytes(p));
    tess__whole_heads *l = (tess__whole_heads *)memory;
    float **const pieces[PIECES] = {&l->send,  &l->recv, &l->q,         &l->k, &l->q_low,
                                    &l->k_low, &l->lse,  &l->lse_local, &l->v};
    int64_t counts[PIECES];
    list_pieces(p, counts);
    memory += tess__arena_round(sizeof *l);
    for (int i = 0; i < PIECES; i++) {
        *pieces[i] = (float *)memory;
        memory += tess__arena_round((size_t)counts[i] * sizeof(float));
    }
    p->ranks.whole = l;
    return TESS_OK;
}

/* ---- rows to heads --------------------------------------------------------------------------- */

/* For each rank the local rows of its heads: (batch, heads of it, local, width). */
static void pack(const tess_pass *p, const tess_view *view, int64_t width, int64_t *bytes)
{
    float *to = p->ranks.whole->send;
    for (int r = 0; r < p->ranks.ranks; r++) {
        const tess__token_range heads = heads_of(p, r);
        bytes[r] = p->z.rows * heads.n * width * (int64_t)sizeof *to;
        for (int64_t b = 0; b < p->z.batch; b++)
            for (int64_t h = heads.first; h < heads.first + heads.n; h++)
                for (int64_t row = 0; row < p->z.local; row++, to += width)
                    memcpy(to, tess__view_row(view, b, h, row), (size_t)width * sizeof *to);
    }
}

/* From each rank's rows of this one's heads to whole heads. */
static void unpack(const tess_pass *p, int64_t width, float *whole)
{
    const int64_t heads = p->z.batch * heads_of(p, p->ranks.rank).n;
    const float *from = p->ranks.whole->recv;
    for (int r = 0; r < p->ranks.ranks; r++) {
        const int64_t first = p->ranks.bounds[r], n = (p->ranks.bounds[r + 1] - first) * width;
        for (int64_t head = 0; head < heads; head++, from += n)
            memcpy(whole + (head * p->z.tokens + first) * width, from, (size_t)n * sizeof *whole);
    }
}

static tess_status bring(tess_pass *p, const tess_view *view, int64_t width, float *whole)
{
    const int64_t heads = heads_of(p, p->ranks.rank).n;
    int64_t *send = p->ranks.message, *recv = p->ranks.message + p->ranks.ranks;
    pack(p, view, width, send);
    for (int r = 0; r < p->ranks.ranks; r++)
        recv[r] = p->z.batch * heads * (p->ranks.bounds[r + 1] - p->ranks.bounds[r]) * width *
                  (int64_t)sizeof *whole;
    TESS_TRY(tess_comm_alltoallv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, p->ranks.whole->send, send,
                                 p->ranks.whole->recv, recv));
    unpack(p, width, whole);
    return TESS_OK;
}

static tess_view whole_view(const tess_pass *p, float *data, int64_t width)
{
    const int64_t head = p->z.tokens * width;
    return (tess_view){data, TESS_DTYPE_F32, heads_of(p, p->ranks.rank).n * head, head, width};
}

/* ---- measuring ------------------------------------------------------------------------------- */

static tess_status show(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                        const tess_view *v)
{
    const tess__whole_heads *l = p->ranks.whole;
    const tess__token_range heads = heads_of(p, p->ranks.rank);
    const int64_t dim = p->z.head_dim, rank = p->room.proj_dim;
    const tess_view views[5] = {whole_view(p, l->q, dim), whole_view(p, l->k, dim),
                                whole_view(p, l->q_low, rank), whole_view(p, l->k_low, rank),
                                whole_view(p, l->v, dim)};
    tess_hook_in hook = {.layer = layer,
                         .head = (int)heads.first,
                         .heads = (int)heads.n,
                         .q = &views[0],
                         .k = &views[1]};
    TESS_TRY(bring(p, q, dim, l->q));
    TESS_TRY(bring(p, k, dim, l->k));
    if (p->room.values) {
        TESS_TRY(bring(p, v, dim, l->v));
        hook.v = &views[4];
    }
    if (p->sparse.attend.predictor) {
        tess_view q_low, k_low;
        tess__proj_views(p, &q_low, &k_low);
        TESS_TRY(bring(p, &q_low, rank, l->q_low));
        TESS_TRY(bring(p, &k_low, rank, l->k_low));
        hook.q_low = &views[2];
        hook.k_low = &views[3];
        hook.proj_dim = p->room.proj_dim;
    }
    if (p->shape.train) {
        const tess_view lse = {l->lse_local, TESS_DTYPE_F32, p->z.heads * p->z.local, p->z.local,
                               1};
        TESS_TRY(bring(p, &lse, 1, l->lse));
        hook.lse = l->lse;
    }
    return heads.n > 0 ? tess__pass_show(p, &hook) : TESS_OK;
}

tess_status tess__ranks_show(tess_pass *p, int layer, const tess_view *q, const tess_view *k,
                             const tess_view *v)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_status status = show(p, layer, q, k, v);
    p->times.observe_ns += tess__lap_end(p, lap);
    return status;
}
