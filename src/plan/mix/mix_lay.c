/* SPDX-License-Identifier: Apache-2.0 */
/* mix_lay.c - clips to ranks, within a time limit.
 *
 * Each rank has room for the limit times its speed, and its memory. Clips are laid one after the
 * other; a clip that fits goes, whole, to the rank with the most room. Where none has room for it,
 * even a little beyond the limit, it is cut: over the ranks of the node whose room is the least
 * that does, or over several nodes where none does, the ranks with the most room first. A rank that
 * takes a part which does not end its clip is full then, so that clips and ranks form trees: there
 * are at most ranks - 1 cuts, and one less for each set of clips that fills a set of ranks.
 *
 * A part also pays for its exchange, from its bytes: a constant (calls, and the keys of a head that
 * it shares) and a fraction of the part. Parts below a few thousandths of the limit are not made.
 *
 * Cost: O(clips log ranks + parts (log ranks + nodes)).
 */
#include "mix_internal.h"

#include <math.h>

static const double SLIVER = 0.002; /* of the limit: the least part, and what may be left over */
static const double OVER = 0.003; /* of the limit: what a whole clip may exceed a rank's room by */

/* ---- the tournament tree --------------------------------------------------------------------- */

static int tree_size(int n)
{
    int size = 1;
    while (size < n)
        size *= 2;
    return size;
}

size_t tess__mix_tree_bytes(int n)
{
    return 2 * (size_t)tree_size(n) * sizeof(double);
}

void tess__mix_tree_start(tess__mix_tree *tree, int n)
{
    tree->size = tree_size(n);
    for (int i = 0; i < 2 * tree->size; i++)
        tree->key[i] = -INFINITY;
}

void tess__mix_tree_set(tess__mix_tree *tree, int i, double key)
{
    int at = tree->size + i;
    tree->key[at] = key;
    for (at /= 2; at > 0; at /= 2)
        tree->key[at] = TESS_MAX(tree->key[2 * at], tree->key[2 * at + 1]);
}

int tess__mix_tree_largest(const tess__mix_tree *tree)
{
    int at = 1;
    while (at < tree->size)
        at = tree->key[2 * at] == tree->key[at] ? 2 * at : 2 * at + 1;
    return at - tree->size;
}

/* ---- rooms ----------------------------------------------------------------------------------- */

static void set_room(tess__mix_lay *lay, int p, double room)
{
    lay->node_room[p / lay->rules->per_node] += TESS_MAX(room, 0.0) - TESS_MAX(lay->room[p], 0.0);
    lay->room[p] = room;
    tess__mix_tree_set(&lay->tree, p, room);
}

static void start(tess__mix_lay *lay, double limit)
{
    const tess__mix_rules *r = lay->rules;
    lay->n_pieces = 0;
    lay->short_of_memory = 0;
    tess__mix_tree_start(&lay->tree, r->ranks);
    for (int k = 0; k < r->nodes; k++) {
        lay->node_room[k] = 0.0;
        lay->node_done[k] = -1;
    }
    for (int p = 0; p < r->ranks; p++) {
        lay->memory[p] = r->memory ? r->memory : INT64_MAX;
        lay->node_room[p / r->per_node] += limit * r->speed[p];
        lay->room[p] = limit * r->speed[p];
        lay->tree.key[lay->tree.size + p] = lay->room[p];
    }
    for (int at = lay->tree.size - 1; at > 0; at--)
        lay->tree.key[at] = TESS_MAX(lay->tree.key[2 * at], lay->tree.key[2 * at + 1]);
}

static void put(tess__mix_lay *lay, int64_t clip, int p, double time)
{
    lay->pieces[lay->n_pieces++] = (tess__mix_piece){clip, (int32_t)p, time};
}

/* ---- whole clips ----------------------------------------------------------------------------- */

/* The rank with the most room that has the memory, or -1. */
static int roomiest(tess__mix_lay *lay, int64_t bytes)
{
    const int p = tess__mix_tree_largest(&lay->tree);
    if (lay->memory[p] >= bytes)
        return p;
    lay->short_of_memory = 1;
    int best = -1;
    for (int q = 0; q < lay->rules->ranks; q++)
        if (lay->memory[q] >= bytes && (best < 0 || lay->room[q] > lay->room[best]))
            best = q;
    return best;
}

/* 1: it has a place. */
static int lay_whole(tess__mix_lay *lay, int64_t clip, double limit)
{
    const tess__mix_work *w = &lay->work[clip];
    const int64_t bytes = w->tokens * lay->rules->token_bytes;
    const int p = roomiest(lay, bytes);
    if (p < 0)
        return 0;
    const double room = lay->room[p] + OVER * limit * lay->rules->speed[p];
    if (room < w->total && !lay->rules->whole_clips)
        return 0;
    put(lay, clip, p, w->total);
    lay->memory[p] -= bytes;
    set_room(lay, p, lay->room[p] - w->total);
    return 1;
}

/* ---- cut clips ------------------------------------------------------------------------------- */

/* What a part costs beyond its own time: once, and for each unit of time. */
typedef struct {
    double once, each;
} surcharge;

static surcharge surcharge_of(const tess__mix_lay *lay, const tess__mix_work *w, int far,
                              double limit)
{
    const tess__mix_rules *r = lay->rules;
    const tess_cluster_info *c = r->cluster;
    if (!c)
        return (surcharge){0.0, 0.0};
    double byte = 1e9 / (c->link_bandwidth * c->link_efficiency), call = (double)c->link_latency;
    if (far && c->nics > 0) {
        const double adapters = TESS_MAX((double)c->nics / (double)r->per_node, 1e-9);
        byte = 1e9 * c->oversubscription /
               (c->nic_bandwidth * c->network_efficiency *
                TESS_MIN(adapters, TESS_MAX((double)c->nics / c->node_gpus, 1.0)));
        call = (double)c->network_latency;
    }
    const double passes = (r->train ? 2.0 : 1.0) * r->layers;
    const double parts = TESS_MAX(w->total / limit, 2.0), remote = 1.0 - 1.0 / parts;
    const double row = (double)w->tokens * (double)r->row_bytes * byte * remote * passes;
    return (surcharge){2.0 * passes * ((double)c->launch + call) + 2.0 * row,
                       4.0 * row * r->heads / w->total};
}

/* The most of a clip that memory leaves room for on a rank, in time. Bytes of a part of fraction f:
 * tokens f S and a few that rounding adds, q and o of f S heads rows, K and V of at most f heads +
 * 2 heads. */
static double memory_limit(const tess__mix_lay *lay, const tess__mix_work *w, int p)
{
    const tess__mix_rules *r = lay->rules;
    if (!r->memory)
        return w->total;
    const double s = (double)w->tokens;
    const double extra =
        2.0 + (w->linear > 0.0 ? (double)r->group * w->attention / (w->linear * r->heads) : 0.0);
    const double fixed = tess__mix_held(r, extra, (double)r->group, 2.0 * s);
    const double all = tess__mix_held(r, s, s * r->heads, s * r->heads);
    const double f = ((double)lay->memory[p] - fixed) / all;
    return f >= 1.0 ? w->total : f > 0.0 ? f * w->total : 0.0;
}

static int most_of_node(const tess__mix_lay *lay, int node)
{
    if (lay->rules->nodes == 1)
        return tess__mix_tree_largest(&lay->tree);
    const int begin = node * lay->rules->per_node;
    const int end = TESS_MIN(begin + lay->rules->per_node, lay->rules->ranks);
    int best = begin;
    for (int p = begin + 1; p < end; p++)
        if (lay->room[p] > lay->room[best])
            best = p;
    return best;
}

/* The node with the least room that is enough, *enough 1; else that with the most; -1 where all
 * have given the clip what they have. */
static int choose_node(const tess__mix_lay *lay, int64_t clip, double need, int *enough)
{
    int best = -1, most = -1;
    for (int k = 0; k < lay->rules->nodes; k++) {
        if (lay->node_done[k] == clip)
            continue;
        if (most < 0 || lay->node_room[k] > lay->node_room[most])
            most = k;
        if (lay->node_room[k] >= need && (best < 0 || lay->node_room[k] < lay->node_room[best]))
            best = k;
    }
    *enough = best >= 0;
    return best >= 0 ? best : most;
}

/* Takes as much of the clip as rank p has room for; returns what is left of it. A rank that has too
 * little is that of its node with the most. */
static double take(tess__mix_lay *lay, int64_t clip, int p, double left, surcharge x, double limit)
{
    const tess__mix_work *w = &lay->work[clip];
    const tess__mix_rules *r = lay->rules;
    const double least = SLIVER * limit * r->speed[p], held = memory_limit(lay, w, p);
    double time = (lay->room[p] - x.once) / (1.0 + x.each);
    const int short_of_memory = held < time && held < left;
    time = short_of_memory ? held : time;
    if (time + least >= left && held >= left)
        time = left; /* a little beyond the limit, rather than one more part */
    if (time < least && time < left) {
        if (short_of_memory)
            set_room(lay, p, 0.0);
        else
            lay->node_done[p / r->per_node] = clip;
        lay->short_of_memory |= short_of_memory;
        return left;
    }
    lay->short_of_memory |= short_of_memory;
    put(lay, clip, p, time);
    const double f = time / w->total, s = (double)w->tokens;
    lay->memory[p] -= (int64_t)tess__mix_held(r, f * s + 2.0, f * s * r->heads + (double)r->group,
                                              (f * r->heads + 2.0) * s);
    const double room = lay->room[p] - time * (1.0 + x.each) - x.once;
    set_room(lay, p, time < left ? 0.0 : TESS_MAX(room, 0.0));
    return left - time;
}

/* Returns the time that found no place. */
static double lay_cut(tess__mix_lay *lay, int64_t clip, double limit)
{
    const tess__mix_work *w = &lay->work[clip];
    const int64_t begin = lay->n_pieces;
    const surcharge near = surcharge_of(lay, w, 0, limit);
    const double need = w->total * (1.0 + near.each) + near.once * (1.0 + w->total / limit);
    int enough;
    int node = choose_node(lay, clip, need + SLIVER * limit, &enough);
    const surcharge x = enough ? near : surcharge_of(lay, w, 1, limit);
    double left = w->total;
    while (left > 0.0 && node >= 0) {
        const int p = most_of_node(lay, node);
        if (lay->room[p] > 0.0)
            left = take(lay, clip, p, left, x, limit);
        else
            lay->node_done[node] = clip;
        if (lay->node_done[node] == clip)
            node = choose_node(lay, clip, INFINITY, &enough);
    }
    if (lay->n_pieces == begin + 1 && left <= 0.0) { /* one rank after all: without an exchange */
        const int p = lay->pieces[begin].rank;
        set_room(lay, p, lay->room[p] + x.once + x.each * w->total);
    }
    return left;
}

double tess__mix_lay_run(tess__mix_lay *lay, double limit)
{
    double left = 0.0;
    start(lay, limit);
    for (int64_t i = 0; i < lay->n; i++) {
        const int64_t clip = lay->order[i];
        if (lay_whole(lay, clip, limit))
            continue;
        left += lay->rules->whole_clips ? lay->work[clip].total : lay_cut(lay, clip, limit);
    }
    return left;
}
