/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring_backward.c - backward pass of a ring: keys and the sums of their gradients circulate.
 *
 * The sum of dK and dV of a key part follows the part one step later: a position computes its
 * gradients, adds the received sum, and sends the result on while it computes with the next part.
 * The sum starts at the first position that needs the part; the last one sends it to the position
 * that owns the part. So every sum has one order, that of the ring. With all parts needed, in a
 * ring of 4:
 *
 *   step   position 0         position 1         position 2        ...
 *   0      g = k0             g = k1             g = k2            g is sent to the next position
 *   1      g = k3 + received  g = k0 + received  g = k1 + received
 *   ...
 *   3      g = k1 + received  g = k2 + received  g = k3 + received, sent to its owner, the next
 *
 * Cost: hops of keys as forward, and as many floats for each hop of a sum; at most four messages in
 * flight. Memory: three key parts beside those of the keys.
 */
#include "dist_ring.h"

#include <string.h>

/* Buffers and requests of a backward pass, beside those of the keys. */
typedef struct {
    float *grad[2];  /* dK, dV of the current key part, and of the previous one, being sent */
    float *received; /* the sum from the previous position */
    float *dq;       /* of one share and part */
    tess_request *sum, *own_sum, *last_send[2];
} grad_flow;

/* Adds to dq of a share; overwrites dk and dv of its head in the key part. */
static tess_status backward_share(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                  int step, int sample, int64_t i, float *grad, float *dq_part)
{
    const tess__dist_layer *layer = run->layer;
    const tess__dist_share *share = &layer->shares[i];
    const int p = tess__ring_at(x, step), dim = d->opts.head_dim;
    const tess__key_subset keys =
        tess__ring_rows(d, x, p, tess__ring_keys(d, run, x, step), sample, i);
    const tess__key_subset to = tess__ring_rows(d, x, p, grad, sample, i);
    const tess_selection *lists = tess__ring_lists(d, run, &x->parts[p], &keys, sample, i);
    float *const dq = run->dq + (sample * layer->q.packed_rows + share->q_place) * dim;
    uint8_t *started = &x->started[sample * layer->n_shares + i];
    if (tess__ring_needs(d, run, &x->parts[p], sample, i)) {
        TESS_TRY(tess__partial_backward(d, run, sample, i, &keys, lists, *started ? dq_part : dq,
                                        to.k, to.v));
        if (*started)
            tess__add_floats(d, dq, dq_part, share->q_rows * dim);
        *started = 1;
    } else {
        memset(to.k, 0, (size_t)(to.rows * dim) * sizeof(float));
        memset(to.v, 0, (size_t)(to.rows * dim) * sizeof(float));
    }
    if (tess__has_virtual(d, run, sample, i))
        tess__partial_return(d, run, sample, i, &keys, lists, tess__ring_each(d, run, x, sample, i),
                             tess__ring_all(d, run, x, sample, i), to.k, to.v);
    return TESS_OK;
}

/* Gradients of the current key part over all shares; zero without shares. */
static tess_status backward_part(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 int step, const grad_flow *f)
{
    const tess__dist_layer *layer = run->layer;
    float *const grad = f->grad[step % 2];
    if (layer->n_shares == 0)
        memset(grad, 0, (size_t)tess__ring_bytes(d, x, tess__ring_at(x, step)));
    for (int64_t item = 0; item < d->opts.batch * layer->n_shares; item++) {
        if (run->status == TESS_OK)
            run->status = backward_share(d, run, x, step, (int)(item / layer->n_shares),
                                         item % layer->n_shares, grad, f->dq);
        TESS_TRY(tess_comm_progress(d->comm));
    }
    return TESS_OK;
}

/* The sum of the current key part is complete up to this position: sends it to the next, or to its
 * owner, and posts the receive of the sum of the next part, or of the own part. */
static tess_status pass_sum(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                            int step, grad_flow *f)
{
    const int steps = x->steps, p = tess__ring_at(x, step), q = tess__ring_at(x, step + 1);
    const int64_t bytes = tess__ring_bytes(d, x, p);
    float *const grad = f->grad[step % 2];
    int to = x->last[p] > 0 && x->first[p] <= step && step <= x->last[p] ? x->next : -1;
    int from = x->first[q] <= step && step < x->last[q] ? x->previous : -1;
    float *recv = f->received;
    if (x->last[p] == 0 && step == 0)
        memcpy(run->dk, grad, (size_t)bytes);
    if (to >= 0 && step == x->last[p] && step < steps - 1) {
        TESS_TRY(tess__ring_start(d, run, grad, bytes, x->ranks[p], NULL, 0, -1,
                                  &f->last_send[step % 2]));
        to = -1;
    }
    if (step == steps - 1) {
        from = x->last[x->position] == step && steps > 1 ? x->previous : -1;
        recv = run->dk;
    }
    return tess__ring_start(d, run, grad, bytes, to, recv, tess__ring_bytes(d, x, q), from,
                            &f->sum);
}

/* One step: forwards the keys, computes the gradients, adds the received sum and forwards it. */
static tess_status backward_step(tess_dist_attn *d, tess__dist_run *run, const tess__ring_exec *x,
                                 int step, const uint8_t *needs, grad_flow *f)
{
    const int p = tess__ring_at(x, step);
    float *const grad = f->grad[step % 2];
    const int works = needs[x->position * x->steps + p];
    tess_request *hop;
    TESS_TRY(tess__ring_hop(d, run, x, step, &hop));
    TESS_TRY(tess__ring_finish(d, run, &f->last_send[step % 2]));
    if (works)
        TESS_TRY(backward_part(d, run, x, step, f));
    TESS_TRY(tess__ring_finish(d, run, &hop));
    TESS_TRY(tess__ring_finish(d, run, &f->sum));
    const int received = x->first[p] < step && step <= x->last[p];
    if (received && works)
        tess__add_floats(d, grad, f->received, 2 * tess__ring_floats(d, x, p));
    else if (received)
        memcpy(grad, f->received, (size_t)tess__ring_bytes(d, x, p));
    else if (!works)
        memset(grad, 0, (size_t)tess__ring_bytes(d, x, p));
    return pass_sum(d, run, x, step, f);
}

tess_status tess__ring_backward(tess_dist_attn *d, tess__dist_run *run)
{
    const tess__dist_layer *layer = run->layer;
    const tess__ring_exec *x = layer->kind_state;
    const uint8_t *needs = run->acts->kind_data;
    const int dim = d->opts.head_dim, steps = x->steps;
    float *const work = d->scratch.data;
    grad_flow f = {.grad = {work + 4 * x->max_floats, work + 6 * x->max_floats},
                   .received = work + 8 * x->max_floats,
                   .dq = work + 10 * x->max_floats};
    tess__ring_spans(x, needs);
    memset(x->started, 0, (size_t)d->opts.batch * (size_t)layer->n_shares);
    memset(run->dq, 0, (size_t)(d->opts.batch * layer->q.packed_rows * dim) * sizeof(float));
    if (d->opts.compensate)
        tess__ring_virtual(d, run, x);
    /* The sum of the own key part comes from the last position that needs it. From the previous
     * position other messages come first, so that one is received in the last step. */
    const int last = x->last[x->position];
    if (last > 0 && last < steps - 1)
        TESS_TRY(tess__ring_start(d, run, NULL, 0, -1, run->dk, tess__ring_bytes(d, x, x->position),
                                  x->ranks[(x->position + last) % steps], &f.own_sum));
    for (int step = 0; step < steps; step++)
        TESS_TRY(backward_step(d, run, x, step, needs, &f));
    TESS_TRY(tess__ring_finish(d, run, &f.sum));
    TESS_TRY(tess__ring_finish(d, run, &f.own_sum));
    TESS_TRY(tess__ring_finish(d, run, &f.last_send[0]));
    TESS_TRY(tess__ring_finish(d, run, &f.last_send[1]));
    if (d->opts.compensate)
        TESS_TRY(tess__ring_return_sums(d, run, x, needs));
    TESS_TRY(tess__run_agree(d, run));
    tess__to_tokens(d, run, dim, run->dq);
    const tess__transfer transfers[] = {{&layer->q, dim, *run->local_dq, run->dq, 0},
                                        {&layer->kv, dim, *run->local_dk, run->dk, 0},
                                        {&layer->kv, dim, *run->local_dv, run->dv, 0}};
    return tess__rows_to_owners(d, &run->layer->stats, transfers, 3);
}
