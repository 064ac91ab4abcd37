/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - rows that ranks exchange under a layer of a plan, exactly as an executor would.
 *
 * A rank computes with runs of tokens, each of some number of heads, and every token is owned by
 * one rank: shards are even, and the shards of a node's ranks follow each other. A run that goes to
 * rank p costs O(1):
 *
 *   in    its length, less the part in the shards of p's node (far), less that in p's own (near)
 *   out   the shards at its ends get their parts at once; those between are counted by a difference
 *         array of how many times a whole shard is sent, and summed at the end. The same once more
 *         for the part of the run inside p's node gives near and far.
 */
#include "plan/strategy_internal.h"

#include <string.h>

/* One flow under construction. */
typedef struct {
    int64_t tokens;
    int ranks, per_node;
    int64_t *sent, *sent_node, *kept; /* (ranks): rows, except those in whole shards */
    int64_t *whole, *whole_node;      /* (ranks + 1): differences of counts of whole shards */
    tess__flow *flow;
} flow_builder;

static tess_status builder_make(tess__arena *arena, const tess_plan_info *info, int64_t tokens,
                                tess__flow *flow, flow_builder *l)
{
    const size_t n = (size_t)info->ranks, longs = n * sizeof(int64_t);
    *l = (flow_builder){.tokens = tokens,
                        .ranks = info->ranks,
                        .per_node = (info->ranks + info->nodes - 1) / info->nodes,
                        .sent = TESS_TAKE_ZERO(arena, longs),
                        .sent_node = TESS_TAKE_ZERO(arena, longs),
                        .kept = TESS_TAKE_ZERO(arena, longs),
                        .whole = TESS_TAKE_ZERO(arena, longs + sizeof(int64_t)),
                        .whole_node = TESS_TAKE_ZERO(arena, longs + sizeof(int64_t)),
                        .flow = flow};
    flow->rows = TESS_TAKE_ZERO(arena, n * sizeof *flow->rows);
    flow->held = TESS_TAKE_ZERO(arena, longs);
    return TESS_OK;
}

static int owner_of(const flow_builder *l, int64_t token)
{
    const int64_t base = l->tokens / l->ranks, rest = l->tokens % l->ranks;
    const int64_t longer = rest * (base + 1);
    return (int)(token < longer ? token / (base + 1) : rest + (token - longer) / base);
}

/* m times the tokens [a, b), a < b, leave their owners. */
static void send(const flow_builder *l, int64_t a, int64_t b, int64_t m, int64_t *rows,
                 int64_t *whole)
{
    const int first = owner_of(l, a), last = owner_of(l, b - 1);
    if (first == last) {
        rows[first] += m * (b - a);
        return;
    }
    rows[first] += m * (tess__shard(l->tokens, l->ranks, first + 1) - a);
    rows[last] += m * (b - tess__shard(l->tokens, l->ranks, last));
    whole[first + 1] += m;
    whole[last] -= m;
}

/* Clips [*a, *b) to the shards of ranks [first, end); returns its length. */
static int64_t clip(const flow_builder *l, int first, int end, int64_t *a, int64_t *b)
{
    const int64_t low = tess__shard(l->tokens, l->ranks, first);
    const int64_t high = tess__shard(l->tokens, l->ranks, end);
    *a = *a < low ? low : *a;
    *b = *b > high ? high : *b;
    return *b > *a ? *b - *a : 0;
}

/* Rank p computes with the tokens [a, b) of m heads. */
static void add_rows(flow_builder *l, int p, int64_t a, int64_t b, int64_t m)
{
    if (a >= b || m == 0)
        return;
    const int first = p / l->per_node * l->per_node;
    const int end = first + l->per_node < l->ranks ? first + l->per_node : l->ranks;
    int64_t node_a = a, node_b = b, own_a = a, own_b = b;
    const int64_t node = clip(l, first, end, &node_a, &node_b);
    const int64_t own = clip(l, p, p + 1, &own_a, &own_b);
    tess_traffic *t = &l->flow->rows[p];
    t->near_in += m * (node - own);
    t->far_in += m * (b - a - node);
    l->flow->held[p] += m * (b - a);
    l->kept[p] += m * own;
    send(l, a, b, m, l->sent, l->whole);
    if (node)
        send(l, node_a, node_b, m, l->sent_node, l->whole_node);
}

static void builder_sum(flow_builder *l)
{
    int64_t whole = 0, whole_node = 0;
    for (int p = 0; p < l->ranks; p++) {
        const int64_t rows =
            tess__shard(l->tokens, l->ranks, p + 1) - tess__shard(l->tokens, l->ranks, p);
        whole += l->whole[p];
        whole_node += l->whole_node[p];
        const int64_t all = l->sent[p] + whole * rows;
        const int64_t node = l->sent_node[p] + whole_node * rows;
        l->flow->rows[p].near_out = node - l->kept[p];
        l->flow->rows[p].far_out = all - node;
    }
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Blocks at places [begin, end) of an order (NULL: as they are), run by run. */
static void add_places(flow_builder *l, const tess_plan_info *info, int keys, int p,
                       const int32_t *order, int32_t begin, int32_t end, int64_t m)
{
    for (int32_t at = begin; at < end;) {
        const int32_t block = order ? order[at] : at;
        int32_t n = order ? 1 : end - at;
        while (order && at + n < end && order[at + n] == block + n)
            n++;
        if (keys)
            add_rows(l, p, tess__plan_k_row(info, block), tess__plan_k_row(info, block + n), m);
        else
            add_rows(l, p, tess__plan_q_row(info, block), tess__plan_q_row(info, block + n), m);
        at += n;
    }
}

static void add_queries(flow_builder *l, const tess_plan_info *info, const tess_plan_layer *layer,
                        int p)
{
    const int u = tess__rank_group(layer, p);
    const int32_t *order =
        layer->q_order ? layer->q_order + (size_t)u * (size_t)info->q_blocks : NULL;
    for (int64_t i = layer->first[p]; i < layer->first[p + 1];) {
        const tess_share *s = &layer->shares[i];
        int64_t m = 1; /* heads with the same places in a row travel the same way */
        while (i + m < layer->first[p + 1] && s[m].q_begin == s->q_begin && s[m].q_end == s->q_end)
            m++;
        add_places(l, info, 0, p, order, s->q_begin, s->q_end, m);
        i += m;
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int64_t heads_of_rank(const tess_plan_layer *layer, int p)
{
    int64_t n = 0;
    for (int64_t i = layer->first[p]; i < layer->first[p + 1]; i++)
        n += i == layer->first[p] || layer->shares[i].head != layer->shares[i - 1].head;
    return n;
}

/* The key part that the rank begins with, of all heads of its group. */
static void add_key_part(flow_builder *l, const tess_plan_info *info, const tess_plan_layer *layer,
                         int p)
{
    const int u = tess__rank_group(layer, p), s = tess__rank_part(layer, p);
    const int32_t *cuts = layer->k_cuts + (size_t)u * ((size_t)layer->strategy.ring + 1);
    const int32_t *order =
        layer->k_order ? layer->k_order + (size_t)u * (size_t)info->k_blocks : NULL;
    add_places(l, info, 1, p, order, cuts[s], cuts[s + 1], tess__group_heads(info, layer, u));
}

/* The key blocks that the rank's queries select, head by head. */
static void add_unions(flow_builder *l, const tess_plan_info *info, const tess_plan_layer *layer,
                       const tess_work *work, int at, int p, uint64_t *bits)
{
    for (int64_t i = layer->first[p]; i < layer->first[p + 1];) {
        int64_t end = i + 1;
        while (end < layer->first[p + 1] && layer->shares[end].head == layer->shares[i].head)
            end++;
        tess__shares_union(info, layer, work, at, i, end, 0, bits);
        for (int32_t b = 0; b < info->k_blocks;) {
            const uint64_t word = bits[b / 64] >> (b % 64);
            if (!(word & 1)) {
                b += word ? __builtin_ctzll(word) : 64 - b % 64;
                continue;
            }
            int32_t e = b + 1;
            while (e < info->k_blocks && bits[e / 64] >> (e % 64) & 1)
                e++;
            add_rows(l, p, tess__plan_k_row(info, b), tess__plan_k_row(info, e), 1);
            b = e;
        }
        i = end;
    }
}

tess_status tess__layer_traffic(tess__arena *arena, const tess_plan_info *info,
                                const tess_plan_layer *layer, const tess_work *work, int at,
                                tess__layer_flow *flow)
{
    flow_builder q, kv, low;
    *flow = (tess__layer_flow){0};
    TESS_TRY(builder_make(arena, info, info->tokens_q, &flow->q, &q));
    TESS_TRY(builder_make(arena, info, info->tokens_k, &flow->kv, &kv));
    const int unions = layer->strategy.selective > 1 && tess__work_words(work) > 0;
    const int apart = layer->strategy.selective > 1 || layer->strategy.ring > 1; /* low is not kv */
    uint64_t *bits = NULL;
    if (apart)
        TESS_TRY(builder_make(arena, info, info->tokens_k, &flow->low, &low));
    if (unions) {
        bits = TESS_TAKE(arena, (size_t)tess__work_words(work) * sizeof *bits);
    }
    for (int p = 0; p < info->ranks; p++) {
        add_queries(&q, info, layer, p);
        if (layer->strategy.ring > 1)
            add_key_part(&kv, info, layer, p);
        else if (unions)
            add_unions(&kv, info, layer, work, at, p, bits);
        else
            add_rows(&kv, p, 0, info->tokens_k, heads_of_rank(layer, p));
        if (apart)
            add_rows(&low, p, 0, info->tokens_k, heads_of_rank(layer, p));
    }
    builder_sum(&q);
    builder_sum(&kv);
    if (apart)
        builder_sum(&low);
    else
        flow->low = flow->kv;
    return TESS_OK;
}
