/* SPDX-License-Identifier: Apache-2.0 */
/* price_bound.c - what no layer of given degrees goes below, from the heads of its groups alone: by
 * this a candidate is given up before its blocks are planned. */
#include "price.h"

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
 * least that a rank can have is the lightest blocks, of which it has the floor(blocks / ring). */
static int busy_iterations(const tess_plan_info *info, const tess_work *work, int at,
                           const int32_t *head_group, int u, int ring)
{
    if (tess__work_words(work) == 0)
        return ring;
    if (work->by_rows || info->speeds)
        return 0;
    const int32_t part = (info->k_blocks + ring - 1) / ring, least = info->q_blocks / ring;
    int32_t below = 0;
    int busy = ring;
    /* busy is lowered until fewer than `least` blocks meet fewer parts than it. */
    for (; busy > 0; busy--, below = 0) {
        for (int32_t q = 0; q < info->q_blocks && below < least; q++) {
            int64_t most = 0;
            for (int h = 0; h < info->heads && most <= (int64_t)part * (busy - 1); h++)
                if (head_group[h] == u)
                    most = tess__larger(most, tess__work_prefix(work, at, h, q + 1) -
                                                  tess__work_prefix(work, at, h, q));
            below += most <= (int64_t)part * (busy - 1);
        }
        if (below < least)
            break;
    }
    return busy;
}

/* One head group. */
typedef struct {
    int64_t units, heads;
    int64_t rows;    /* that every rank computes with */
    int64_t further; /* of them in a further key part */
    int busy;        /* iterations of every rank */
} group;

/* Some rank has the mean of the group's work and of its queries, and keeps at most its own shard.
 * Key parts of a ring are even. Of a selective group some rank selects, summed over heads, what
 * the mean query block does. */
static int64_t bound_group(const tess__pricing *pricing, const tess_plan_info *info,
                           const tess_work *work, const tess_candidate *c, const group *g)
{
    const limits l = limits_of(pricing->cluster, info->nodes);
    const int train = info->pass == TESS_PLAN_TRAIN,
              parts = c->strategy.ring * c->strategy.selective;
    const double row = (double)info->head_dim * info->element_bytes, heads = (double)g->heads;
    const int64_t shard_q = info->tokens_q / info->ranks + 1;
    const int64_t shard_k = info->tokens_k / info->ranks + 1;
    const int64_t part_q = info->tokens_q / parts;
    const double pairs = (double)g->units * pricing->unit_pairs / parts;
    double q = heads * (double)(part_q - shard_q);
    double kv = 0.0, hop = 0.0;
    if (c->strategy.ring > 1)
        hop = heads * (double)info->tokens_k / c->strategy.ring * 2.0 * info->head_dim;
    else if (info->unit > 0 && tess__work_words(work) > 0 && !work->by_rows)
        kv = ((double)g->units / info->q_blocks - heads) * info->unit - heads * (double)shard_k;
    q = q > 0.0 ? q : 0.0;
    kv = kv > 0.0 ? kv : 0.0;
    const int64_t out = at_least(&l, q * row), in = tess__larger(out, at_least(&l, 2.0 * kv * row));
    const int64_t hops = (g->busy - 1) * at_least(&l, hop * info->element_bytes);
    int64_t ns =
        in + tess__larger(tess__attn_ns(&pricing->forward, pairs, g->rows, g->further), hops) + out;
    if (train) {
        const double gradient = hop * TESS_GRADIENT_BYTES;
        const int64_t back = (g->busy - 1) * at_least(&l, hop * info->element_bytes + gradient);
        ns += out +
              tess__larger(tess__attn_ns(&pricing->backward, pairs, g->rows, g->further), back) +
              in;
    }
    return ns;
}

void tess__price_bound(const tess__pricing *pricing, const tess_plan_info *info,
                       const tess_work *work, int at, const int32_t *head_group, tess_candidate *c)
{
    int64_t ns = 0, worst = 0, total = 0, sent = 0;
    /* Some rank of a ring in which all are always busy sends all key parts but one. */
    const int64_t part = info->tokens_k / c->strategy.ring + info->tokens_k / info->k_blocks + 1;
    const int64_t rows = ((int64_t)info->q_blocks / c->strategy.ring - 1) * info->group;
    for (int u = 0; u < c->strategy.ulysses; u++) {
        group g = {.busy = 1};
        for (int h = 0; h < info->heads; h++)
            if (head_group[h] == u) {
                g.units += tess__work_head(work, at, h);
                g.heads++;
            }
        worst = tess__larger(worst, g.units);
        total += g.units;
        /* Without masks tiles are even: all have work where there is some for each. The last block
         * may be short, and a rank may have it. */
        if (c->strategy.ring > 1 && g.units / c->strategy.ring > 2 * c->strategy.ring + g.heads)
            g.busy = busy_iterations(info, work, at, head_group, u, c->strategy.ring);
        if (c->strategy.ring > 1 && rows > 0)
            g.rows = rows * g.heads * (g.busy > 1 ? g.busy : 0);
        g.further = g.rows * (c->strategy.ring - 1) / c->strategy.ring;
        if (g.busy == c->strategy.ring && part < info->tokens_k && info->unit > 0)
            sent = tess__larger(sent, g.heads * (info->tokens_k - part));
        g.busy = g.busy > 1 ? g.busy : 1;
        if (pricing->cluster)
            ns = tess__larger(ns, bound_group(pricing, info, work, c, &g));
    }
    c->ns = pricing->cluster ? ns : -1;
    c->rho = total > 0 && !info->speeds ? (double)worst * c->strategy.ulysses / (double)total : 1.0;
    c->bytes = c->strategy.ring > 1 ? 2 * sent * info->head_dim * info->element_bytes : 0;
}
