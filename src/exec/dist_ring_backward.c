/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring_backward.c - the backward pass of a ring: keys go round once more, and sums of gradients.
 *
 * The sum of a part's dK and dV goes with it one step behind: a place attends, adds what came from
 * the place before it, and sends the sum on while it attends to the next part. The sum begins at
 * the first place with work for the part and goes from the last one straight home. So every sum has
 * one order, that of the ring. With work for everybody, in a ring of 4:
 *
 *   step   place 0            place 1                place 2   ...
 *   0      g = k0             g = k1                 g = k2        g goes to the next place
 *   1      g = k3 + came      g = k0 + came          g = k1 + came
 *   ...
 *   3      g = k1 + came      g = k2 + came          g = k3 + came, which goes home, to the next
 *
 * Cost: hops of keys as forward, and as many floats for each hop of a sum; four messages in flight
 * at most. Memory: three parts beside those of keys.
 */
#include "dist_ring.h"

#include <string.h>

/* What a backward pass has in flight and in hand, beside the keys. */
typedef struct {
    float *tile[2]; /* dK, dV of the part in hand, and of the one before, on its way */
    float *came;    /* the sum that comes from the place before */
    float *dq;      /* of one share and part */
    tess_request *sum, *home, *away[2];
} flow;

/* dq of a share grows, dk and dv of its head in the part are written. */
static tess_status backward_share(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  int step, int sample, int64_t i, float *tile, float *dq_part)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int p = tess__ring_at(x, step), dim = d->opts.head_dim;
    const tess__tile_keys keys =
        tess__ring_rows(d, x, p, tess__ring_keys(d, run, x, step), sample, i);
    const tess__tile_keys to = tess__ring_rows(d, x, p, tile, sample, i);
    const tess_selection *lists = tess__ring_lists(d, run, &x->parts[p], &keys, sample, i);
    float *const dq = run->dq + (sample * layer->q.places + share->q_place) * dim;
    uint8_t *begun = &x->begun[sample * layer->n_shares + i];
    if (tess__ring_needs(d, run, &x->parts[p], sample, i)) {
        TESS_TRY(tess__tile_backward(d, run, sample, i, &keys, lists, *begun ? dq_part : dq, to.k,
                                     to.v));
        if (*begun)
            tess__add_floats(d, dq, dq_part, share->q_rows * dim);
        *begun = 1;
    } else {
        memset(to.k, 0, (size_t)(to.rows * dim) * sizeof(float));
        memset(to.v, 0, (size_t)(to.rows * dim) * sizeof(float));
    }
    if (tess__has_virtual(d, run, sample, i))
        tess__tile_return(d, run, lists, tess__ring_each(d, run, x, sample, i),
                          tess__ring_all(d, run, x, sample, i), to.k, to.v);
    return TESS_OK;
}

/* The gradients of the part in hand: those of all shares; zero without shares. */
static tess_status backward_tile(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 int step, const flow *f)
{
    const tess__dist_layer *layer = run->layer;
    float *const tile = f->tile[step % 2];
    if (layer->n_shares == 0)
        memset(tile, 0, (size_t)tess__ring_bytes(d, x, tess__ring_at(x, step)));
    for (int64_t item = 0; item < d->opts.batch * layer->n_shares; item++) {
        if (run->mine == TESS_OK)
            run->mine = backward_share(d, run, x, step, (int)(item / layer->n_shares),
                                       item % layer->n_shares, tile, f->dq);
        TESS_TRY(tess_comm_progress(d->comm));
    }
    return TESS_OK;
}

/* The sum of the part in hand is complete up to this place: sends it to the next, or home, and gets
 * ready for that of the next part, or for that of the part that began here. */
static tess_status pass_sum(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                            int step, flow *f)
{
    const int steps = x->steps, p = tess__ring_at(x, step), q = tess__ring_at(x, step + 1);
    const int64_t bytes = tess__ring_bytes(d, x, p);
    float *const tile = f->tile[step % 2];
    int to = x->last[p] > 0 && x->first[p] <= step && step <= x->last[p] ? x->next : -1;
    int from = x->first[q] <= step && step < x->last[q] ? x->previous : -1;
    float *recv = f->came;
    if (x->last[p] == 0 && step == 0)
        memcpy(run->dk, tile, (size_t)bytes);
    if (to >= 0 && step == x->last[p] && step < steps - 1) {
        TESS_TRY(
            tess__ring_start(d, run, tile, bytes, x->ranks[p], NULL, 0, -1, &f->away[step % 2]));
        to = -1;
    }
    if (step == steps - 1) {
        from = x->last[x->me] == step && steps > 1 ? x->previous : -1;
        recv = run->dk;
    }
    return tess__ring_start(d, run, tile, bytes, to, recv, tess__ring_bytes(d, x, q), from,
                            &f->sum);
}

/* One step: the keys go on, gradients of this place, the sum that came with what is behind it. */
static tess_status backward_step(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 int step, const uint8_t *needs, flow *f)
{
    const int p = tess__ring_at(x, step);
    float *const tile = f->tile[step % 2];
    const int works = needs[x->me * x->steps + p];
    tess_request *hop;
    TESS_TRY(tess__ring_hop(d, run, x, step, &hop));
    TESS_TRY(tess__ring_finish(d, run, &f->away[step % 2]));
    if (works)
        TESS_TRY(backward_tile(d, run, x, step, f));
    TESS_TRY(tess__ring_finish(d, run, &hop));
    TESS_TRY(tess__ring_finish(d, run, &f->sum));
    const int came = x->first[p] < step && step <= x->last[p];
    if (came && works)
        tess__add_floats(d, tile, f->came, 2 * tess__ring_floats(d, x, p));
    else if (came)
        memcpy(tile, f->came, (size_t)tess__ring_bytes(d, x, p));
    else if (!works)
        memset(tile, 0, (size_t)tess__ring_bytes(d, x, p));
    return pass_sum(d, run, x, step, f);
}

tess_status tess__ring_backward(tess_dist_attn *d, tess__dist_run *run)
{
    const tess__dist_layer *layer = run->layer;
    const tess__ring_exec *x = layer->extra;
    const uint8_t *needs = run->set->own;
    const int dim = d->opts.head_dim, steps = x->steps;
    float *const work = d->scratch.data;
    flow f = {.tile = {work + 4 * x->most, work + 6 * x->most},
              .came = work + 8 * x->most,
              .dq = work + 10 * x->most};
    tess__ring_ends(x, needs);
    memset(x->begun, 0, (size_t)d->opts.batch * (size_t)layer->n_shares);
    memset(run->dq, 0, (size_t)(d->opts.batch * layer->q.places * dim) * sizeof(float));
    if (d->opts.compensate)
        tess__ring_virtual(d, run, x);
    /* The sum of the part that began here comes from the last place with work for it. From the
     * place before this one other messages come first, so that it is waited for in the last step.
     */
    const int last = x->last[x->me];
    if (last > 0 && last < steps - 1)
        TESS_TRY(tess__ring_start(d, run, NULL, 0, -1, run->dk, tess__ring_bytes(d, x, x->me),
                                  x->ranks[(x->me + last) % steps], &f.home));
    for (int step = 0; step < steps; step++)
        TESS_TRY(backward_step(d, run, x, step, needs, &f));
    TESS_TRY(tess__ring_finish(d, run, &f.sum));
    TESS_TRY(tess__ring_finish(d, run, &f.home));
    TESS_TRY(tess__ring_finish(d, run, &f.away[0]));
    TESS_TRY(tess__ring_finish(d, run, &f.away[1]));
    if (d->opts.compensate)
        TESS_TRY(tess__ring_return(d, run, x, needs));
    TESS_TRY(tess__run_agree(d, run));
    const tess__cargo cargo[] = {{&layer->q, dim, *run->home_dq, run->dq},
                                 {&layer->kv, dim, *run->home_dk, run->dk},
                                 {&layer->kv, dim, *run->home_dv, run->dv}};
    return tess__move_back(d, &run->layer->seen, cargo, 3);
}
