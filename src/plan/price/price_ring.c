/* SPDX-License-Identifier: Apache-2.0 */
/* price_ring.c - the iterations of rings: tiles computed while keys, and gradients, travel on.
 *
 *   start(s, i+1) = max(start(s, i) + compute(s, i), max(start(s, i), start(s-1, i)) + hop)
 *
 * Rank s computes tile (s, (s - i) mod R) in iteration i; the phase ends with its last rank. The
 * keys it holds go on to the next rank at the start of an iteration, when both have come to it, as
 * long as masks show work for them on some rank ahead.
 * Backward, K and V travel with dK and dV, sums in fp32 that begin at the first rank with work for
 * the part, go on to the last one, and need one more hop from there to the owner. Hops are priced
 * for the largest key part; parts differ by a block at most. Without masks all tiles of a rank are
 * alike, and the phase of a ring is (R - 1) max(compute, hop) + compute of its busiest rank.
 */
#include "price.h"

#include <string.h>

static int64_t part_rows(const tess__layer_cost *d, int u, int part)
{
    const tess_plan_layer *layer = d->layer;
    const int32_t *cuts = layer->k_cuts + (size_t)u * ((size_t)layer->strategy.ring + 1);
    if (!layer->k_order)
        return tess__plan_k_row(d->info, cuts[part + 1]) - tess__plan_k_row(d->info, cuts[part]);
    const int32_t *order = layer->k_order + (size_t)u * (size_t)d->info->k_blocks;
    int64_t rows = 0;
    for (int32_t i = cuts[part]; i < cuts[part + 1]; i++)
        rows += tess__plan_k_row(d->info, order[i] + 1) - tess__plan_k_row(d->info, order[i]);
    return rows;
}

void tess__hop_traffic(const tess_plan_layer *layer, int u, int per_node, int64_t bytes,
                       tess_traffic *traffic)
{
    for (int s = 0; s < layer->strategy.ring; s++) {
        const int from = tess__rank_at(layer, u, s);
        const int to = tess__rank_at(layer, u, (s + 1) % layer->strategy.ring);
        const int near = from / per_node == to / per_node;
        *(near ? &traffic[from].near_out : &traffic[from].far_out) += bytes;
        *(near ? &traffic[to].near_in : &traffic[to].far_in) += bytes;
    }
}

/* d->ns[p] = time of one hop with `bytes` a key row and head, of the largest part of p's group. */
static void price_hop(tess__layer_cost *d, int64_t bytes)
{
    const tess_plan_layer *layer = d->layer;
    const int per_node = d->pricing->per_node;
    memset(d->traffic, 0, (size_t)d->info->ranks * sizeof *d->traffic);
    for (int u = 0; u < layer->groups; u++) {
        const int64_t heads = tess__group_heads(d->info, layer, u);
        int64_t rows = 0;
        for (int s = 0; s < layer->strategy.ring; s++)
            rows = tess__larger(rows, part_rows(d, u, s));
        tess__hop_traffic(layer, u, per_node, rows * heads * bytes, d->traffic);
    }
    tess__exchange_ns(d->pricing->cluster, d->traffic, d->info->ranks, per_node, d->ns);
}

int64_t tess__ring_announce(tess__layer_cost *d)
{
    const tess_plan_layer *layer = d->layer;
    const int64_t each = tess__ring_announced(layer->strategy.ring) / (layer->strategy.ring - 1);
    const int per_node = d->pricing->per_node;
    for (int p = 0; p < d->info->ranks; p++) {
        tess_traffic t = {0};
        for (int s = 0; s < layer->strategy.ring; s++) {
            const int to = tess__rank_at(layer, tess__rank_group(layer, p), s);
            if (to != p)
                *(p / per_node == to / per_node ? &t.near_out : &t.far_out) += each;
        }
        d->traffic[p] = (tess_traffic){t.near_out, t.near_out, t.far_out, t.far_out};
    }
    return tess__price_exchange(d);
}

/* The first and the last iteration in which some rank has work with each key part: it travels until
 * the last, and its gradients from the first on. */
static void find_ends(const tess__layer_cost *d)
{
    const tess_plan_layer *layer = d->layer;
    const size_t ring = (size_t)layer->strategy.ring;
    for (int u = 0; u < layer->groups; u++)
        for (size_t part = 0; part < ring; part++) {
            const int64_t *column = d->tiles ? d->tiles + (size_t)u * ring * ring + part : NULL;
            int first = 0, last = layer->strategy.ring - 1;
            while (column && last > 0 && column[((part + (size_t)last) % ring) * ring] == 0)
                last--;
            while (column && first < last && column[((part + (size_t)first) % ring) * ring] == 0)
                first++;
            d->last[(size_t)u * ring + part] = last;
            d->first[(size_t)u * ring + part] = first;
        }
}

/* Whether the keys that rank s of group u holds in an iteration go on. */
static int passes(const tess__layer_cost *d, int u, int s, int iteration)
{
    const int ring = d->layer->strategy.ring;
    return d->last[u * ring + (s - iteration + ring) % ring] > iteration;
}

/* Whether gradients of the part that rank s of group u holds in an iteration leave it: to the next
 * rank, or from the last to the owner. What only its first holder has worked with is there. */
static int returns(const tess__layer_cost *d, int u, int s, int iteration)
{
    const int ring = d->layer->strategy.ring, at = u * ring + (s - iteration + ring) % ring;
    return d->last[at] > 0 && d->first[at] <= iteration && iteration <= d->last[at];
}

/* Rows that a ring's ranks send in a pass: K and V while they are needed, gradients to owners. */
static void count_hops(tess__layer_cost *d, int backward)
{
    const tess_plan_layer *layer = d->layer;
    const int64_t row = 2 * (int64_t)d->info->head_dim;
    const int ring = layer->strategy.ring;
    for (int p = 0; p < d->info->ranks; p++) {
        const int u = tess__rank_group(layer, p), s = tess__rank_part(layer, p);
        const int64_t heads = tess__group_heads(d->info, layer, u);
        const int known = d->tiles != NULL;
        int64_t rows = known ? 0 : d->info->tokens_k - part_rows(d, u, (s + 1) % ring);
        int64_t gradients = known || !backward ? 0 : d->info->tokens_k;
        for (int i = 0; known && i < ring; i++) {
            const int64_t part = part_rows(d, u, (s - i + ring) % ring);
            rows += passes(d, u, s, i) ? part : 0;
            gradients += backward && returns(d, u, s, i) ? part : 0;
        }
        d->sent[p] += rows * heads * row * d->info->element_bytes;
        d->sent[p] += gradients * heads * row * TESS_GRADIENT_BYTES;
    }
}

/* The end of one ring group's iterations, whose hops are in d->ns. Without tiles all of a rank's
 * are alike. */
static int64_t ring_group(const tess__layer_cost *d, int backward, int u, int64_t *start,
                          int64_t *next)
{
    const tess_plan_layer *layer = d->layer;
    const int ring = layer->strategy.ring;
    int64_t end = 0;
    if (!d->tiles) {
        int64_t compute = 0, hop = 0;
        for (int s = 0; s < ring; s++) {
            const int p = tess__rank_at(layer, u, s);
            compute = tess__larger(compute, tess__attend(d, backward, p, d->loads[p] / ring, 1));
            hop = tess__larger(hop, d->ns[p]);
        }
        return (ring - 1) * tess__larger(compute, hop) + compute;
    }
    memset(start, 0, (size_t)ring * sizeof *start);
    for (int i = 0; i < ring; i++) {
        for (int s = 0; s < ring; s++) {
            const int p = tess__rank_at(layer, u, s), before = s ? s - 1 : ring - 1;
            const int64_t done =
                start[s] + tess__attend(d, backward, p, tess__tile(layer, d->tiles, p, i), 1);
            const int64_t arrives = tess__larger(start[s], start[before]) + d->ns[p];
            next[s] = tess__larger(done, passes(d, u, before, i) ? arrives : 0);
            end = tess__larger(end, done);
        }
        memcpy(start, next, (size_t)ring * sizeof *start);
    }
    return end;
}

int64_t tess__ring_phase(tess__layer_cost *d, int backward, int64_t *start, int64_t *next)
{
    const int64_t row = 2 * (int64_t)d->info->head_dim, gradient = row * TESS_GRADIENT_BYTES;
    int64_t end = 0, last_hop = 0;
    find_ends(d);
    count_hops(d, backward);
    if (!d->pricing->cluster)
        return 0;
    price_hop(d, row * d->info->element_bytes + (backward ? gradient : 0));
    for (int u = 0; u < d->layer->groups; u++)
        end = tess__larger(end, ring_group(d, backward, u, start, next));
    if (backward) {
        price_hop(d, gradient);
        for (int p = 0; p < d->info->ranks; p++)
            last_hop = tess__larger(last_hop, d->ns[p]);
    }
    return end + last_hop;
}
