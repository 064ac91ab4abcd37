/* SPDX-License-Identifier: Apache-2.0 */
/* price.c - bytes, time and memory of one layer of a plan on a cluster.
 *
 * Forward: q, k and v come to the ranks that compute (one exchange), attention runs, o goes back.
 * Training adds: dO comes, the backward pass runs, dQ, dK and dV go back. Where keys are chosen by
 * projected vectors, forward those of a query row come with q and those of all keys of a rank's
 * heads with k, and ranks of a ring announce what was chosen; lse goes back with o where it is
 * asked for. With exact rows of traffic.c and rows of head_dim elements:
 *
 *   ns = in + phase + out          (the same again for the backward pass)
 *
 * where in and out are the slowest rank's wires, and the copies of the rank that has most of them.
 *
 * The phase of a layer without a ring is its busiest rank; price_ring.c has that of rings. A query
 * row is opened once in each iteration that has work for it. Of ranks of unequal speed the fastest
 * runs at the cluster's rate.
 *
 * A selective layer first sends each owner rank which key blocks are needed, one bit per block and
 * head.
 */
#include "price.h"

#include <string.h>

/* ---- exchanges ------------------------------------------------------------------------------- */

static tess_traffic reversed(tess_traffic t)
{
    return (tess_traffic){t.near_in, t.near_out, t.far_in, t.far_out};
}

static tess_traffic sum(tess_traffic a, tess_traffic b, int64_t times)
{
    return (tess_traffic){a.near_out + times * b.near_out, a.near_in + times * b.near_in,
                          a.far_out + times * b.far_out, a.far_in + times * b.far_in};
}

int64_t tess__price_exchange(tess__layer_cost *d)
{
    int64_t slowest = 0;
    for (int p = 0; p < d->info->ranks; p++)
        d->sent[p] += d->traffic[p].near_out + d->traffic[p].far_out;
    if (!d->pricing->cluster)
        return 0;
    tess__exchange_ns(d->pricing->cluster, d->traffic, d->info->ranks, d->pricing->per_node, d->ns);
    for (int p = 0; p < d->info->ranks; p++)
        slowest = tess__larger(slowest, d->ns[p]);
    return slowest;
}

/* Bytes of a flow that rank p copies: those that leave, and all that it computes with. */
static double copied(const tess__flow *flow, int p, int64_t bytes)
{
    return (double)(flow->rows[p].near_out + flow->rows[p].far_out + flow->held[p]) * (double)bytes;
}

/* So many bytes of each row of q, of the keys, and of those with projected vectors, to the ranks
 * that compute or back: packed, sent, unpacked. place_keys has the copies of selected keys. */
static int64_t exchange_rows(tess__layer_cost *d, int64_t q, int64_t kv, int64_t low, int back)
{
    double most = 0.0;
    for (int p = 0; p < d->info->ranks; p++) {
        tess_traffic t = sum((tess_traffic){0}, d->flow.q.rows[p], q);
        t = sum(t, d->flow.kv.rows[p], kv);
        t = sum(t, d->flow.low.rows[p], low);
        d->traffic[p] = back ? reversed(t) : t;
        const double bytes = copied(&d->flow.q, p, q) + copied(&d->flow.low, p, low) +
                             (d->layer->strategy.selective > 1 ? 0.0 : copied(&d->flow.kv, p, kv));
        most = bytes > most ? bytes : most;
    }
    const int64_t ns = tess__price_exchange(d);
    return d->pricing->cluster ? ns + tess__ns(most * d->pricing->cluster->pack_ns) : ns;
}

/* Bits that name key blocks, from those who need them to those who have them. */
static int64_t exchange_index(tess__layer_cost *d)
{
    const tess_plan_info *info = d->info;
    const int64_t rows =
        tess__larger(1, info->tokens_k / info->k_blocks) * 8; /* that a byte speaks of */
    for (int p = 0; p < info->ranks; p++) {
        const tess_traffic t = reversed(d->flow.low.rows[p]);
        d->traffic[p] =
            (tess_traffic){(t.near_out + rows - 1) / rows, (t.near_in + rows - 1) / rows,
                           (t.far_out + rows - 1) / rows, (t.far_in + rows - 1) / rows};
    }
    return tess__price_exchange(d);
}

/* Selection, index exchange and scatter of the keys of a selective layer, local ones included: the
 * rank that has most. */
static int64_t place_keys(const tess__layer_cost *d)
{
    const double row = 2.0 * d->info->head_dim * d->info->element_bytes;
    int64_t most = 0;
    for (int p = 0; p < d->info->ranks; p++)
        most = tess__larger(most, d->flow.kv.held[p]);
    return d->pricing->cluster ? tess__ns((double)most * row * d->pricing->cluster->select_ns) : 0;
}

/* A share of the remote keys where their union is not known. */
static void thin(tess__flow *kv, double share, int ranks)
{
    for (int p = 0; p < ranks; p++) {
        tess_traffic *t = &kv->rows[p];
        const int64_t remote = t->near_in + t->far_in;
        int64_t *const counts[] = {&t->near_out, &t->near_in, &t->far_out, &t->far_in};
        for (int i = 0; i < 4; i++)
            *counts[i] = (int64_t)((double)*counts[i] * share + 0.5);
        kv->held[p] -= remote - t->near_in - t->far_in;
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

int64_t tess__attend(const tess__layer_cost *d, int backward, int p, int64_t units, int times)
{
    const tess__pricing *pricing = d->pricing;
    const tess__attn_rate *rate = backward ? &pricing->backward : &pricing->forward;
    const int64_t rows = units > 0 ? d->flow.q.held[p] * times : 0;
    const int ring = d->layer->strategy.ring; /* all key parts but one, even over the iterations */
    const int64_t ns =
        tess__attn_ns(rate, (double)units * pricing->unit_pairs, rows, rows * (ring - 1) / ring);
    const int32_t *speeds = d->info->speeds;
    return speeds ? tess__ns((double)ns * d->fastest / speeds[p]) : ns;
}

/* K and V of keys beyond one for each query row, which work knows nothing of, come into caches. A
 * ring's are among the costs of its parts. */
static int64_t load_keys(const tess__layer_cost *d, int p)
{
    const int64_t rows = d->flow.kv.held[p] - d->flow.q.held[p];
    const double row = 2.0 * d->info->head_dim * d->info->element_bytes;
    return rows > 0 ? tess__ns((double)rows * row * d->pricing->cluster->load_ns) : 0;
}

/* Work of all iterations of a rank, each rounded as the phase rounds it. */
static int64_t attend_all(const tess__layer_cost *d, int backward, int p)
{
    const int ring = d->layer->strategy.ring;
    if (ring == 1)
        return tess__attend(d, backward, p, d->loads[p], 1) + load_keys(d, p);
    if (!d->tiles)
        return tess__attend(d, backward, p, d->loads[p], ring);
    int64_t ns = 0;
    for (int i = 0; i < ring; i++)
        ns += tess__attend(d, backward, p, tess__tile(d->layer, d->tiles, p, i), 1);
    return ns;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of the layer's tensors on the rank that holds most: local q, k, v, o and those it
 * computes with, lse; projected vectors; a ring's second key part, for the one that arrives;
 * gradients in training. */
static int64_t memory_of(const tess__layer_cost *d)
{
    const tess_plan_info *info = d->info;
    const int train = info->pass == TESS_PLAN_TRAIN, ring = d->layer->strategy.ring > 1;
    const int64_t element = info->element_bytes, dim = info->head_dim;
    int64_t most = 0;
    for (int p = 0; p < info->ranks; p++) {
        const int64_t local_q = tess__shard(info->tokens_q, info->ranks, p + 1) -
                                tess__shard(info->tokens_q, info->ranks, p);
        const int64_t local_k = tess__shard(info->tokens_k, info->ranks, p + 1) -
                                tess__shard(info->tokens_k, info->ranks, p);
        const int64_t q = d->flow.q.held[p], kv = d->flow.kv.held[p];
        int64_t rows = 2 * info->heads * (local_q + local_k) * (1 + train);
        rows += 2 * q * (1 + train) + 2 * kv * (1 + ring);
        int64_t bytes = rows * dim * element + 4 * q;
        bytes +=
            (info->heads * (local_q + local_k) + q + d->flow.low.held[p]) * d->proj_dim * element;
        if (train)
            bytes += 2 * kv * dim * (ring ? 2 * TESS_GRADIENT_BYTES : element);
        most = tess__larger(most, bytes);
    }
    return most;
}

/* ---- all together ---------------------------------------------------------------------------- */

static int64_t pass_ns(tess__layer_cost *d, int backward, int64_t *start, int64_t *next,
                       tess__price *price)
{
    const int64_t row = (int64_t)d->info->head_dim * d->info->element_bytes;
    const int64_t low = (int64_t)d->proj_dim * d->info->element_bytes;
    const int64_t lse = d->pricing->lse ? sizeof(float) : 0;
    int64_t ns =
        backward ? exchange_rows(d, row, 0, 0, 0) : exchange_rows(d, row + low, 2 * row, low, 0);
    int64_t busiest = 0;
    if (!backward && d->layer->strategy.selective > 1)
        ns += exchange_index(d);
    if (!backward && d->layer->strategy.ring > 1 && low > 0)
        ns += tess__ring_announce(d);
    if (d->layer->strategy.selective > 1)
        ns += place_keys(d);
    for (int p = 0; d->pricing->cluster && p < d->info->ranks; p++)
        busiest = tess__larger(busiest, attend_all(d, backward, p));
    const int64_t phase =
        d->layer->strategy.ring > 1 ? tess__ring_phase(d, backward, start, next) : busiest;
    price->compute_ns += busiest;
    price->phase_ns += phase;
    return ns + phase +
           (backward ? exchange_rows(d, row, 2 * row, 0, 1) : exchange_rows(d, row + lse, 0, 0, 1));
}

static tess_status price_in(tess__arena *arena, tess__layer_cost *d, const tess_work *work, int at,
                            tess__price *price)
{
    const size_t n = (size_t)d->info->ranks;
    d->traffic = TESS_TAKE(arena, n * sizeof *d->traffic);
    d->ns = TESS_TAKE(arena, n * sizeof *d->ns);
    d->loads = TESS_TAKE(arena, n * sizeof *d->loads);
    d->sent = TESS_TAKE_ZERO(arena, n * sizeof *d->sent);
    const size_t parts = (size_t)d->layer->groups * (size_t)d->layer->strategy.ring;
    d->first = TESS_TAKE(arena, parts * sizeof *d->first);
    d->last = TESS_TAKE(arena, parts * sizeof *d->last);
    int64_t *start = TESS_TAKE(arena, (size_t)d->layer->strategy.ring * sizeof *start);
    int64_t *next = TESS_TAKE(arena, (size_t)d->layer->strategy.ring * sizeof *next);
    d->proj_dim = tess__proj_dim(d->pricing, at);
    for (int p = 0; d->info->speeds && p < d->info->ranks; p++)
        d->fastest = d->info->speeds[p] > d->fastest ? d->info->speeds[p] : d->fastest;
    TESS_TRY(tess__layer_traffic(arena, d->info, d->layer, work, at, &d->flow));
    const double travels = tess__union_share(d->pricing, at, d->layer->strategy.selective);
    if (d->layer->strategy.selective > 1 && tess__work_words(work) == 0 && travels > 0.0)
        thin(&d->flow.kv, travels, d->info->ranks);
    tess__layer_loads(d->info, d->layer, work, at, d->loads);

    int64_t copies = 0;
    double rho[3];
    tess__layer_rho_of(d->info, d->layer, d->loads, d->tiles, rho);
    *price = (tess__price){.memory = memory_of(d), .rho = rho[TESS_RHO_RING]};
    for (int backward = 0; backward <= (d->info->pass == TESS_PLAN_TRAIN); backward++)
        price->ns += pass_ns(d, backward, start, next, price);
    if (!d->pricing->cluster)
        price->ns = price->compute_ns = price->phase_ns = -1;
    for (size_t p = 0; p < n; p++) {
        price->bytes = tess__larger(price->bytes, d->sent[p]);
        copies += d->flow.kv.held[p];
    }
    price->kv_copies = (double)copies / ((double)d->info->tokens_k * d->info->heads);
    return TESS_OK;
}

tess_status tess__layer_price(tess_ctx *ctx, const tess__pricing *pricing,
                              const tess_plan_info *info, const tess_plan_layer *layer,
                              const tess_work *work, int at, const int64_t *tiles,
                              tess__price *price)
{
    tess__arena arena = {.ctx = ctx};
    tess__layer_cost d = {.pricing = pricing, .info = info, .layer = layer, .tiles = tiles};
    const tess_status status = price_in(&arena, &d, work, at, price);
    tess__arena_free(&arena);
    return status;
}
