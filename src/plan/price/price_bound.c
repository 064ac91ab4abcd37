/* SPDX-License-Identifier: Apache-2.0 */
/* price_bound.c - what no layer of given degrees goes below, from the heads of its groups alone: by
 * this a candidate is given up before its blocks are planned, or its keys counted.
 *
 *   ns >= in + max(attention of the busiest group, hops of the slowest ring) + out
 *
 * Each term is a maximum over groups or nodes of what some rank of them must wait for:
 *
 *   in, out     rows that a rank computes with and does not own, over all wires of a rank; rows
 *               that a node's ranks compute with and none of them owns, over the node's wires
 *   attention   the mean over a group's ranks
 *   hops        as many as every rank of a ring has busy iterations, but one, of the largest part
 *
 * The layer of a selective candidate, whose queries are cut, bounds its keys better: by those that
 * some rows of each share select. Cost: O(ranks + heads x groups), rows of blocks for busy
 * iterations, SAMPLED rows of bits of each share.
 */
#include "price.h"

#include <string.h>

/* What a rank can send or receive at most in a second, and what a call takes before its bytes. */
typedef struct {
    double wires;
    int64_t call;
} limits;

static limits limits_of(const tess_cluster_info *c, int nodes)
{
    limits l = {c->link_bandwidth * c->link_efficiency, c->launch + c->link_latency};
    if (nodes > 1) {
        const double adapters = 1.0 + (double)c->nics / c->node_gpus;
        l.wires += c->nic_bandwidth * c->network_efficiency * adapters;
        l.call = c->launch +
                 (c->network_latency < c->link_latency ? c->network_latency : c->link_latency);
    }
    return l;
}

static int64_t at_least(const limits *l, double bytes)
{
    return bytes > 0.0 ? l->call + tess__ns(bytes * 1e9 / l->wires) : 0;
}

/* Iterations in which every rank of a ring has work at least, however its blocks are ordered. A
 * query block that selects l key blocks of a head meets ceil(l / blocks of a part) parts, and the
 * least that a rank can have is the lightest blocks, of which it has the floor(blocks / ring): as
 * many iterations as the last of these meets, by a count of the query blocks that meet each number
 * of parts. */
static int busy_iterations(const tess_plan_info *info, const tess_work *work, int at,
                           const int32_t *head_group, int u, int ring,
                           const tess__bound_scratch *scratch)
{
    if (tess__work_words(work) == 0)
        return ring;
    if (work->by_rows || info->speeds)
        return 0;
    const int32_t part = (info->k_blocks + ring - 1) / ring, least = info->q_blocks / ring;
    const int32_t n = info->q_blocks;
    int32_t *const most = scratch->most, *const meet = scratch->meet;
    memset(most, 0, (size_t)n * sizeof *most);
    memset(meet, 0, ((size_t)ring + 1) * sizeof *meet);
    for (int h = 0; h < info->heads; h++) {
        if (head_group[h] != u)
            continue;
        const int64_t *sums = work->prefix + tess__work_place(work, at, h) * ((size_t)n + 1);
        for (int32_t q = 0; q < n; q++) {
            const int32_t blocks = (int32_t)(sums[q + 1] - sums[q]);
            most[q] = TESS_MAX(most[q], blocks);
        }
    }
    for (int32_t q = 0; q < n; q++)
        meet[((int64_t)most[q] + part - 1) / part]++;
    int busy = 0;
    for (int32_t below = meet[0]; busy < ring && below < least; below += meet[busy])
        busy++;
    return busy;
}

/* Query blocks of a share whose keys bound its union: 16 rows that select a tenth of the keys each,
 * at random, select four fifths of them together. */
enum { SAMPLED = 16 };

/* One candidate of one layer. */
typedef struct {
    const tess__pricing *pricing;
    const tess_plan_info *info;
    const tess_work *work;
    int at;
    const tess_strategy *strategy;
    const int32_t *head_group;
    const tess__bound_scratch *scratch;
    int64_t in, out, phase[2]; /* ns, so far; forward and backward */
} bounds;

/* One head group. */
typedef struct {
    int64_t units, heads;
    int64_t rows;    /* that every rank computes with */
    int64_t further; /* of them in a further key part */
    int busy;        /* iterations of every rank */
} group;

static double row_bytes(const tess_plan_info *info)
{
    return (double)info->head_dim * info->element_bytes;
}

/* Rows that every part of a ring has at least: parts have equal numbers of blocks within one, and
 * the last block may be short. */
static int64_t least_part(int32_t blocks, int ring, int32_t rows)
{
    return ((int64_t)blocks / ring - 1) * rows;
}

static group group_of(const bounds *b, int u)
{
    const tess_plan_info *info = b->info;
    const int ring = b->strategy->ring;
    const int64_t rows = least_part(info->q_blocks, ring, info->group);
    group g = {.busy = 1};
    for (int h = 0; h < info->heads; h++)
        if (b->head_group[h] == u) {
            g.units += tess__work_head(b->work, b->at, h);
            g.heads++;
        }
    /* Without masks tiles are even: all have work where there is some for each. The last block may
     * be short, and a rank may have it. */
    if (ring > 1 && g.units / ring > 2 * ring + g.heads)
        g.busy = busy_iterations(info, b->work, b->at, b->head_group, u, ring, b->scratch);
    if (ring > 1 && rows > 0)
        g.rows = rows * g.heads * (g.busy > 1 ? g.busy : 0);
    g.further = g.rows * (ring - 1) / ring;
    return g;
}

/* ---- terms ----------------------------------------------------------------------------------- */

static void raise_to(int64_t *term, int64_t ns)
{
    *term = tess__larger(*term, ns);
}

/* Some rank has the mean of the group's work and of its queries, and keeps at most its own shard.
 * Key parts of a ring are even. Of a selective group some rank selects, summed over heads, what
 * the mean query block does; the rank with the mean of the queries may be another. */
static void bound_group(bounds *b, const group *g)
{
    const tess_plan_info *info = b->info;
    const limits l = limits_of(b->pricing->cluster, info->nodes);
    const int ring = b->strategy->ring, parts = ring * b->strategy->selective;
    const double row = row_bytes(info), heads = (double)g->heads;
    const int64_t shard_q = info->tokens_q / info->ranks + 1;
    const int64_t shard_k = info->tokens_k / info->ranks + 1;
    const double pairs = (double)g->units * b->pricing->unit_pairs / parts;
    const int64_t rows_q = info->tokens_q / parts - shard_q;
    const double q = TESS_MAX(heads * (double)rows_q, 0.0);
    double kv = 0.0;
    if (ring > 1)
        kv = heads * (double)(least_part(info->k_blocks, ring, info->unit) - shard_k);
    else if (info->unit > 0 && tess__work_words(b->work) > 0 && !b->work->by_rows)
        kv = ((double)g->units / info->q_blocks - heads) * info->unit - heads * (double)shard_k;
    kv = TESS_MAX(kv, 0.0);
    raise_to(&b->out, at_least(&l, q * row));
    raise_to(&b->in, at_least(&l, ((ring > 1 ? q : 0.0) + 2.0 * kv) * row));
    raise_to(&b->in, b->out);
    raise_to(&b->phase[0], tess__attn_ns(&b->pricing->forward, pairs, g->rows, g->further));
    raise_to(&b->phase[1], tess__attn_ns(&b->pricing->backward, pairs, g->rows, g->further));
}

/* Prices scratch->traffic; the slowest rank. */
static int64_t slowest(const bounds *b)
{
    int64_t *ns = b->scratch->ns, most = 0;
    tess__exchange_ns(b->pricing->cluster, b->scratch->traffic, b->info->ranks,
                      b->pricing->per_node, ns);
    for (int p = 0; p < b->info->ranks; p++)
        raise_to(&most, ns[p]);
    return most;
}

static void clear_traffic(const bounds *b)
{
    memset(b->scratch->traffic, 0, (size_t)b->info->ranks * sizeof *b->scratch->traffic);
}

/* Hops with `bytes` a key row and head. The largest part of a ring, which decides, has the mean at
 * least. */
static int64_t bound_hops(const bounds *b, int64_t bytes)
{
    const tess_plan_layer mesh = {.strategy = *b->strategy, .groups = b->strategy->ulysses};
    const int64_t part = b->info->tokens_k / b->strategy->ring * bytes;
    int64_t most = 0;
    clear_traffic(b);
    for (int u = 0; u < mesh.groups; u++)
        tess__hop_traffic(&mesh, u, b->pricing->per_node, part * b->scratch->heads[u],
                          b->scratch->traffic);
    slowest(b);
    for (int p = 0; p < b->info->ranks; p++)
        raise_to(&most, (b->scratch->busy[tess__rank_group(&mesh, p)] - 1) * b->scratch->ns[p]);
    return most;
}

/* Rows of a head that a node with n of the parts of its group computes with at least. */
static int64_t node_rows(const bounds *b, int n, int64_t tokens, int64_t part)
{
    if (n == b->strategy->ring * b->strategy->selective)
        return tokens;
    return b->strategy->ring > 1 && !b->info->speeds ? n * part : 0;
}

/* Rows of q, and of k and v, of a group's heads that come into a node from others. */
static double node_bytes(const bounds *b, int n, int first, int end, int keys)
{
    const tess_plan_info *info = b->info;
    const int64_t own_q = tess__shard(info->tokens_q, info->ranks, end) -
                          tess__shard(info->tokens_q, info->ranks, first);
    const int64_t own_k = tess__shard(info->tokens_k, info->ranks, end) -
                          tess__shard(info->tokens_k, info->ranks, first);
    const int64_t q = node_rows(b, n, info->tokens_q,
                                least_part(info->q_blocks, b->strategy->ring, info->group)) -
                      own_q;
    const int64_t k =
        node_rows(b, n, info->tokens_k, least_part(info->k_blocks, b->strategy->ring, info->unit)) -
        own_k;
    return row_bytes(info) * (double)(TESS_MAX(q, 0) + (keys ? 2 * TESS_MAX(k, 0) : 0));
}

/* The wires of a node. Keys of a selective layer are not all needed. */
static int64_t bound_nodes(const bounds *b, int keys)
{
    const tess_plan_layer mesh = {.strategy = *b->strategy, .groups = b->strategy->ulysses};
    const int per_node = b->pricing->per_node;
    int *parts = b->scratch->parts;
    clear_traffic(b);
    for (int first = 0; first < b->info->ranks; first += per_node) {
        const int end = TESS_MIN(first + per_node, b->info->ranks);
        double bytes = 0.0;
        for (int p = first; p < end; p++)
            parts[tess__rank_group(&mesh, p)] = 0;
        for (int p = first; p < end; p++)
            parts[tess__rank_group(&mesh, p)]++;
        for (int p = first; p < end; p++) {
            const int u = tess__rank_group(&mesh, p);
            bytes += (double)b->scratch->heads[u] * node_bytes(b, parts[u], first, end, keys);
            parts[u] = 0; /* each group once */
        }
        for (int p = first; p < end; p++)
            b->scratch->traffic[p].far_in = (int64_t)(bytes / (end - first));
    }
    return slowest(b);
}

/* Keys that some rows of each share select, of a layer whose queries are cut. */
static int64_t bound_unions(const bounds *b, const tess_plan_layer *layer)
{
    const tess_plan_info *info = b->info;
    const limits l = limits_of(b->pricing->cluster, info->nodes);
    const double row = row_bytes(info);
    int64_t most = 0;
    clear_traffic(b);
    for (int p = 0; p < info->ranks; p++) {
        const int first = p / b->pricing->per_node * b->pricing->per_node;
        const int end = TESS_MIN(first + b->pricing->per_node, info->ranks);
        const int64_t own = tess__shard(info->tokens_k, info->ranks, p + 1) -
                            tess__shard(info->tokens_k, info->ranks, p);
        const int64_t node = tess__shard(info->tokens_k, info->ranks, end) -
                             tess__shard(info->tokens_k, info->ranks, first);
        int64_t in = 0, far = 0;
        for (int64_t i = layer->first[p], next; i < layer->first[p + 1]; i = next) {
            next = tess__shares_run(layer, i);
            const int64_t blocks =
                tess__shares_union(info, layer, b->work, b->at, i, next, SAMPLED, b->scratch->bits);
            const int64_t rows = (blocks - 1) * info->unit; /* the last may be short */
            in += TESS_MAX(rows - own, 0);
            far += TESS_MAX(rows - node, 0);
        }
        raise_to(&most, at_least(&l, 2.0 * (double)in * row));
        b->scratch->traffic[p].far_in = (int64_t)(2.0 * (double)far * row);
    }
    return tess__larger(most, slowest(b));
}

/* ---- all together ---------------------------------------------------------------------------- */

/* The sum of the terms so far. */
static int64_t sum_ns(const bounds *b)
{
    const int train = b->info->pass == TESS_PLAN_TRAIN;
    return (1 + train) * (b->in + b->out) + b->phase[0] + (train ? b->phase[1] : 0);
}

/* Raises the terms, which need a cluster, by what takes longer to find, until they are enough. */
static void bound_further(bounds *b, const tess_plan_layer *layer, int64_t enough)
{
    const tess_plan_info *info = b->info;
    const int64_t row = 2 * (int64_t)info->head_dim;
    const int ring = b->strategy->ring > 1;
    if (ring && sum_ns(b) <= enough)
        raise_to(&b->phase[0], bound_hops(b, row * info->element_bytes));
    if (ring && info->pass == TESS_PLAN_TRAIN && sum_ns(b) <= enough)
        raise_to(&b->phase[1], bound_hops(b, row * (info->element_bytes + TESS_GRADIENT_BYTES)));
    if (info->nodes > 1 && sum_ns(b) <= enough) {
        raise_to(&b->in, bound_nodes(b, ring));
        raise_to(&b->out, bound_nodes(b, 0));
    }
    if (layer && tess__work_words(b->work) > 0 && sum_ns(b) <= enough)
        raise_to(&b->in, bound_unions(b, layer));
}

tess_status tess__bound_scratch_make(tess__arena *arena, const tess_plan_info *info,
                                     const tess_work *work, tess__bound_scratch *scratch)
{
    const size_t ranks = (size_t)info->ranks, words = (size_t)tess__work_words(work) + 1;
    const size_t blocks = (size_t)info->q_blocks;
    *scratch = (tess__bound_scratch){.traffic = TESS_TAKE(arena, ranks * sizeof *scratch->traffic),
                                     .ns = TESS_TAKE(arena, ranks * sizeof *scratch->ns),
                                     .parts = TESS_TAKE(arena, ranks * sizeof *scratch->parts),
                                     .heads = TESS_TAKE(arena, ranks * sizeof *scratch->heads),
                                     .busy = TESS_TAKE(arena, ranks * sizeof *scratch->busy),
                                     .bits = TESS_TAKE(arena, words * sizeof *scratch->bits),
                                     .most = TESS_TAKE(arena, blocks * sizeof *scratch->most),
                                     .meet = TESS_TAKE(arena, (ranks + 1) * sizeof *scratch->meet)};
    return TESS_OK;
}

void tess__price_bound(const tess__pricing *pricing, const tess_plan_info *info,
                       const tess_work *work, int at, const int32_t *head_group,
                       const tess_plan_layer *layer, int64_t enough,
                       const tess__bound_scratch *scratch, tess_candidate *c)
{
    const int ring = c->strategy.ring;
    bounds b = {pricing, info, work, at, &c->strategy, head_group, scratch, 0, 0, {0}};
    int64_t worst = 0, total = 0, sent = 0;
    /* Some rank of a ring in which all are always busy sends all key parts but one. */
    const int64_t part = info->tokens_k / ring + info->tokens_k / info->k_blocks + 1;
    for (int u = 0; u < c->strategy.ulysses; u++) {
        const group g = group_of(&b, u);
        raise_to(&worst, g.units);
        total += g.units;
        if (g.busy == ring && part < info->tokens_k && info->unit > 0)
            raise_to(&sent, g.heads * (info->tokens_k - part));
        scratch->heads[u] = g.heads;
        scratch->busy[u] = TESS_MAX(g.busy, 1);
        if (pricing->cluster)
            bound_group(&b, &g);
    }
    c->ns = c->compute_ns = -1;
    if (pricing->cluster) {
        c->compute_ns = b.phase[0] + (info->pass == TESS_PLAN_TRAIN ? b.phase[1] : 0);
        bound_further(&b, layer, enough);
        c->ns = sum_ns(&b);
    }
    c->rho = total > 0 && !info->speeds ? (double)worst * c->strategy.ulysses / (double)total : 1.0;
    c->bytes = ring > 1 ? 2 * sent * info->head_dim * info->element_bytes : 0;
}
