/* SPDX-License-Identifier: Apache-2.0 */
/* mix_price.c - what a laying of clips costs: parts, exchanges and memory, exactly.
 *
 * Ranks hold the tokens whose linear layers they compute. For the attention of a cut clip a rank
 * gathers the q rows of its places and K and V of the heads that these lie in, from the ranks that
 * hold the tokens, and returns o; training sends dO, and returns dQ, dK and dV. All clips of a step
 * are exchanged together: two calls a layer forward, two more backward.
 *
 * The parts of a clip ascend by rank in tokens and in places, so those of a node are one range of
 * both, and what comes from the own rank, the own node and others is a difference of counts: O(1)
 * for each part.
 */
#include "mix_internal.h"

static void sort_by_rank(tess__mix_piece *pieces, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const tess__mix_piece piece = pieces[i];
        int64_t at = i;
        for (; at > 0 && pieces[at - 1].rank > piece.rank; at--)
            pieces[at] = pieces[at - 1];
        pieces[at] = piece;
    }
}

/* Tokens and places of the n parts of a clip. */
static void cut(const tess__mix_rules *rules, const tess__mix_work *w, int step,
                const tess__mix_piece *pieces, int64_t n, tess_mix_part *parts)
{
    double time = 0.0;
    int64_t token = 0, place = 0;
    for (int64_t i = 0; i < n; i++) {
        tess_mix_part *part = &parts[i];
        *part = (tess_mix_part){.step = step,
                                .rank = pieces[i].rank,
                                .clip = pieces[i].clip,
                                .token_begin = token,
                                .begin = place};
        time += pieces[i].time;
        if (i + 1 < n) {
            tess__mix_cut(rules, w, time, &token, &place);
        } else {
            token = w->tokens;
            place = w->places;
        }
        part->token_end = token;
        part->end = place;
    }
}

static int64_t heads_of(const tess__mix_work *w, const tess_mix_part *part)
{
    if (part->begin == part->end)
        return 0;
    return (part->end - 1) / w->blocks - part->begin / w->blocks + 1;
}

static int64_t rows_of(const tess__mix_rules *rules, const tess__mix_work *w, int64_t begin,
                       int64_t end, int64_t token_begin, int64_t token_end)
{
    return tess__mix_rows_of(rules, w, end, token_begin, token_end) -
           tess__mix_rows_of(rules, w, begin, token_begin, token_end);
}

/* Adds the rows of a cut clip's parts of one node to the traffic of q and of k. heads: copies of
 * heads over all parts of the clip. */
static void add_node(const tess__mix_rules *rules, const tess__mix_work *w,
                     const tess_mix_part *parts, int64_t n, int64_t heads, tess_traffic *q,
                     tess_traffic *kv)
{
    const int64_t first = parts[0].token_begin, last = parts[n - 1].token_end;
    const int64_t begin = parts[0].begin, end = parts[n - 1].end;
    int64_t node_heads = 0;
    for (int64_t i = 0; i < n; i++)
        node_heads += heads_of(w, &parts[i]);
    for (int64_t i = 0; i < n; i++) {
        const tess_mix_part *p = &parts[i];
        const int64_t tokens = p->token_end - p->token_begin, own_heads = heads_of(w, p);
        const int64_t rows = tess__mix_rows(rules, w, p->end) - tess__mix_rows(rules, w, p->begin);
        const int64_t own = rows_of(rules, w, p->begin, p->end, p->token_begin, p->token_end);
        const int64_t inside = rows_of(rules, w, p->begin, p->end, first, last);
        const int64_t here = rows_of(rules, w, begin, end, p->token_begin, p->token_end);
        q[p->rank].near_in += inside - own;
        q[p->rank].far_in += rows - inside;
        q[p->rank].near_out += here - own;
        q[p->rank].far_out += tokens * rules->heads - here;
        kv[p->rank].near_in += own_heads * (last - first - tokens);
        kv[p->rank].far_in += own_heads * (w->tokens - (last - first));
        kv[p->rank].near_out += tokens * (node_heads - own_heads);
        kv[p->rank].far_out += tokens * (heads - node_heads);
    }
}

static void add_part(const tess__mix_rules *rules, int rank, int64_t tokens, double time,
                     tess__mix_price *price)
{
    tess_mix_rank *r = &price->rank[rank];
    r->tokens += tokens;
    r->memory += tokens * rules->token_bytes;
    r->compute += time / rules->speed[rank];
}

/* Counts a cut clip; returns 1 if it lies in several nodes. */
static int add_cut(const tess__mix_rules *rules, const tess__mix_work *w,
                   const tess_mix_part *parts, int64_t n, tess_traffic *q, tess_traffic *kv,
                   tess__mix_price *price)
{
    int64_t heads = 0;
    for (int64_t i = 0; i < n; i++) {
        const tess_mix_part *p = &parts[i];
        const int64_t own = heads_of(w, p);
        const int64_t rows = tess__mix_rows(rules, w, p->end) - tess__mix_rows(rules, w, p->begin);
        const int64_t tokens = p->token_end - p->token_begin;
        heads += own;
        add_part(rules, p->rank, tokens,
                 (double)tokens * rules->token + tess__mix_before(rules, w, p->end) -
                     tess__mix_before(rules, w, p->begin),
                 price);
        price->rank[p->rank].memory +=
            (int64_t)tess__mix_held(rules, 0.0, (double)rows, (double)(own * w->tokens));
    }
    for (int64_t i = 0, end; i < n; i = end) {
        const int node = parts[i].rank / rules->per_node;
        for (end = i + 1; end < n && parts[end].rank / rules->per_node == node; end++)
            ;
        add_node(rules, w, parts + i, end - i, heads, q, kv);
    }
    return parts[0].rank / rules->per_node != parts[n - 1].rank / rules->per_node;
}

/* Time and bytes of a call that moves so many times the rows of q and of k. */
static void add_call(const tess__mix_rules *rules, int64_t q_times, int64_t kv_times, int back,
                     tess_traffic *traffic, int64_t *ns, tess_mix_rank *ranks)
{
    const tess_traffic *q = traffic, *kv = traffic + rules->ranks;
    tess_traffic *sum = traffic + 2 * (size_t)rules->ranks;
    const int64_t bytes = rules->row_bytes;
    for (int p = 0; p < rules->ranks; p++) {
        const tess_traffic t = {(q[p].near_out * q_times + kv[p].near_out * kv_times) * bytes,
                                (q[p].near_in * q_times + kv[p].near_in * kv_times) * bytes,
                                (q[p].far_out * q_times + kv[p].far_out * kv_times) * bytes,
                                (q[p].far_in * q_times + kv[p].far_in * kv_times) * bytes};
        sum[p] = back ? (tess_traffic){t.near_in, t.near_out, t.far_in, t.far_out} : t;
        ranks[p].sent += sum[p].near_out + sum[p].far_out;
    }
    if (!rules->cluster)
        return;
    tess__exchange_ns(rules->cluster, sum, rules->ranks, rules->per_node, ns);
    for (int p = 0; p < rules->ranks; p++)
        ranks[p].exchange += ns[p] * rules->layers;
}

static void finish(const tess__mix_rules *rules, tess__mix_price *price)
{
    double sum = 0.0;
    price->time = 0.0;
    for (int p = 0; p < rules->ranks; p++) {
        const tess_mix_rank *r = &price->rank[p];
        const double time = r->compute + (double)r->exchange;
        price->time = TESS_MAX(price->time, time);
        sum += time * rules->speed[p];
    }
    price->mean = sum / rules->total_speed;
}

void tess__mix_price_of(tess__mix_lay *lay, int step, tess_traffic *traffic, int64_t *ns,
                        tess__mix_price *price)
{
    const tess__mix_rules *rules = lay->rules;
    const size_t ranks = (size_t)rules->ranks;
    price->cuts = price->cut_clips = price->far_clips = 0;
    for (size_t p = 0; p < 2 * ranks; p++)
        traffic[p] = (tess_traffic){0};
    for (size_t p = 0; p < ranks; p++)
        price->rank[p] = (tess_mix_rank){0};
    for (int64_t i = 0, end; i < lay->n_pieces; i = end) {
        const tess__mix_piece *piece = &lay->pieces[i];
        const tess__mix_work *w = &lay->work[piece->clip];
        for (end = i + 1; end < lay->n_pieces && lay->pieces[end].clip == piece->clip;)
            end++;
        if (end == i + 1) {
            price->parts[i] =
                (tess_mix_part){step, piece->rank, piece->clip, 0, w->tokens, 0, w->places};
            add_part(rules, piece->rank, w->tokens, w->total, price);
            continue;
        }
        sort_by_rank(lay->pieces + i, end - i);
        cut(rules, w, step, lay->pieces + i, end - i, price->parts + i);
        price->cuts += end - i - 1;
        price->cut_clips++;
        price->far_clips +=
            add_cut(rules, w, price->parts + i, end - i, traffic, traffic + ranks, price);
    }
    if (price->cut_clips) {
        add_call(rules, 1, 2, 0, traffic, ns, price->rank);
        add_call(rules, 1, 0, 1, traffic, ns, price->rank);
        if (rules->train) {
            add_call(rules, 1, 0, 0, traffic, ns, price->rank);
            add_call(rules, 1, 2, 1, traffic, ns, price->rank);
        }
    }
    finish(rules, price);
}
