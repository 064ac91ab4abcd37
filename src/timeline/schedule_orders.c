/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_orders.c - the orders of pipeline schedules, as torch.distributed.pipelining has them.
 *
 * p ranks, v stages of a rank, m micro-batches; rank r has the virtual stages r, r + p, r + 2 p ...
 *
 *   gpipe           forward of all micro-batches, backward of all, in the same order
 *   gpipe-looped    forward of all for each stage of the rank, backward in reverse of both
 *   1f1b            p - 1 - r forward passes, then forward and backward in alternation
 *   interleaved     rounds of q = m / max(1, m / p) micro-batches go through the stages of a rank
 *                   one after the other; (v - 1) q + 2 (p - 1 - r) forward passes come first
 *   zero-bubble, interleaved-zb
 *                   the same with (v - 1) q + (p - 1 - r) forward passes first and backward passes
 *                   in two parts; the weights' follow from the r-th backward pass on: rank 0 runs
 *                   them at once, the others where the bubble of 1f1b would be. With v = 1 it is
 *                   ZB-H1 of arXiv:2401.10241
 *   zb-v            rank r has stages r and 2 p - 1 - r
 */
#include "timeline_internal.h"

enum { GPIPE, GPIPE_LOOPED, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, INTERLEAVED_ZB, ZB_V };

#define PUT(kind, stage, batch) TESS_TRY(tess__schedule_put(s, TESS__ACT_##kind, stage, batch))

static tess_status order_gpipe(tess_schedule *s, int r, int chunks, int64_t m, int reverse)
{
    for (int c = 0; c < chunks; c++)
        for (int64_t i = 0; i < m; i++)
            PUT(F, r + c * s->ranks, i);
    for (int c = chunks - 1; c >= 0; c--)
        for (int64_t i = 0; i < m; i++)
            PUT(B, r + c * s->ranks, reverse ? m - 1 - i : i);
    return TESS_OK;
}

static tess_status order_1f1b(tess_schedule *s, int r, int64_t m)
{
    const int64_t warm = TESS_MIN((int64_t)s->ranks - 1 - r, m);
    for (int64_t i = 0; i < warm; i++)
        PUT(F, r, i);
    for (int64_t i = 0; i < m; i++) {
        if (warm + i < m)
            PUT(F, r, warm + i);
        PUT(B, r, i);
    }
    return TESS_OK;
}

/* The k-th forward or backward pass of a rank: its stage and micro-batch. */
static tess__action numbered(const tess_schedule *s, int r, int chunks, int64_t round, int backward,
                             int64_t k)
{
    const int chunk = (int)(k / round % chunks);
    return (tess__action){.stage = r + (backward ? chunks - 1 - chunk : chunk) * s->ranks,
                          .batch = (int32_t)(k / (round * chunks) * round + k % round)};
}

static tess_status order_interleaved(tess_schedule *s, int r, int chunks, int64_t m, int split)
{
    const int64_t rounds = TESS_MAX((int64_t)1, m / s->ranks), round = m / rounds;
    const int64_t total = m * chunks, hops = (int64_t)s->ranks - 1 - r;
    const int64_t warm = TESS_MIN((chunks - 1) * round + (split ? 1 : 2) * hops, total);
    int64_t weights = 0;
    for (int64_t k = 0; k < warm; k++) {
        const tess__action a = numbered(s, r, chunks, round, 0, k);
        PUT(F, a.stage, a.batch);
    }
    for (int64_t k = 0; k < total; k++) {
        if (warm + k < total) {
            const tess__action a = numbered(s, r, chunks, round, 0, warm + k);
            PUT(F, a.stage, a.batch);
        }
        const tess__action a = numbered(s, r, chunks, round, 1, k);
        TESS_TRY(tess__schedule_put(s, split ? TESS__ACT_I : TESS__ACT_B, a.stage, a.batch));
        if (split && k >= r) {
            const tess__action w = numbered(s, r, chunks, round, 1, weights++);
            PUT(W, w.stage, w.batch);
        }
    }
    while (split && weights < total) {
        const tess__action w = numbered(s, r, chunks, round, 1, weights++);
        PUT(W, w.stage, w.batch);
    }
    return TESS_OK;
}

/* ---- ZB-V ------------------------------------------------------------------------------------ */

/* The next pass of each kind and stage of a rank. Passes of micro-batches beyond the last are
 * counted, not run: the order is that of at least 2 p - 1 micro-batches. */
typedef struct {
    tess_schedule *s;
    int stage[2];
    int64_t m, forward[2], input[2], weight[2];
} zb_v;

static tess_status v_put(zb_v *z, int kind, int c)
{
    int64_t *count = kind == TESS__ACT_F ? z->forward : kind == TESS__ACT_I ? z->input : z->weight;
    const int64_t batch = count[c]++;
    return batch < z->m ? tess__schedule_put(z->s, kind, z->stage[c], batch) : TESS_OK;
}

/* Kinds and stages in a text: "F1I1W1". */
static tess_status v_run(zb_v *z, const char *passes)
{
    for (const char *p = passes; *p; p += 2)
        TESS_TRY(v_put(z, p[0], p[1] - '0'));
    return TESS_OK;
}

static tess_status order_zb_v(tess_schedule *s, int r, int64_t m)
{
    const int p = s->ranks;
    const int64_t all = TESS_MAX(2 * (int64_t)p - 1, m);
    zb_v z = {.s = s, .m = m, .stage = {r, 2 * p - 1 - r}};
    for (int i = 0; i < 2 * (p - r) - 1; i++)
        TESS_TRY(v_run(&z, "F0"));
    for (int i = 0; i < r; i++)
        TESS_TRY(v_run(&z, "F1F0"));
    for (int i = 0; i < p - r; i++)
        TESS_TRY(v_run(&z, "F1I1W1"));
    while (z.forward[1] < z.forward[0] || z.forward[0] < all) {
        if (z.forward[0] < all)
            TESS_TRY(v_run(&z, "F0"));
        TESS_TRY(v_run(&z, "I0W0F1I1W1"));
    }
    for (int i = 0; i < r; i++)
        TESS_TRY(v_run(&z, "I0I1"));
    for (int i = 0; i < p - r; i++)
        TESS_TRY(v_run(&z, "I0W0"));
    for (int c = 1; c >= 0; c--)
        while (z.weight[c] < z.input[c])
            TESS_TRY(v_put(&z, TESS__ACT_W, c));
    return TESS_OK;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static tess_status check_sizes(const tess_schedule *s, int kind, int chunks, int64_t m)
{
    const int64_t rounds = TESS_MAX((int64_t)1, m / s->ranks);
    const char *const name = tess_schedule_name(kind);
    if ((kind == GPIPE || kind == ONE_F_ONE_B || kind == ZERO_BUBBLE) && chunks != 1)
        return tess__fail(TESS_EINVAL, "schedule %s: chunks is %d, must be 1", name, chunks);
    if (kind == ZB_V && chunks != 2)
        return tess__fail(TESS_EINVAL, "schedule %s: chunks is %d, must be 2", name, chunks);
    if (kind >= INTERLEAVED && kind <= INTERLEAVED_ZB && m % rounds && chunks > 1)
        return tess__fail(TESS_EINVAL,
                          "schedule %s: %lld micro-batches do not divide into %lld rounds, one for "
                          "each %d ranks",
                          name, (long long)m, (long long)rounds, s->ranks);
    return TESS_OK;
}

tess_status tess__schedule_order(tess_schedule *s, int kind, int chunks, int64_t m)
{
    TESS_TRY(check_sizes(s, kind, chunks, m));
    for (int r = 0; r < s->ranks; r++) {
        s->first[r] = s->n;
        switch (kind) {
        case GPIPE: TESS_TRY(order_gpipe(s, r, 1, m, 0)); break;
        case GPIPE_LOOPED: TESS_TRY(order_gpipe(s, r, chunks, m, 1)); break;
        case ONE_F_ONE_B: TESS_TRY(order_1f1b(s, r, m)); break;
        case INTERLEAVED: TESS_TRY(order_interleaved(s, r, chunks, m, 0)); break;
        case ZERO_BUBBLE:
        case INTERLEAVED_ZB: TESS_TRY(order_interleaved(s, r, chunks, m, 1)); break;
        default: TESS_TRY(order_zb_v(s, r, m)); break;
        }
    }
    s->first[s->ranks] = s->n;
    return TESS_OK;
}
