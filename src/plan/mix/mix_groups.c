/* SPDX-License-Identifier: Apache-2.0 */
/* mix_groups.c - clips to ranks where the ranks of a cut clip compute it together.
 *
 * Training runs a pass clip by clip, and the ranks of a cut clip exchange rows in each layer, so
 * that none of them is done before the slowest one: their shares must be equal, and they should
 * begin at the same time. Ranks are therefore halved, and halves halved again, between nodes first;
 * a clip is cut over one of these ranges, in equal shares, and the widest ranges come first. As
 * ranges nest, their ranks then begin together as far as what came before was even, and ranks that
 * have two clips in common compute them in the same order.
 *
 *   [0 1 2 3]  ->  [0 1] [2 3]  ->  [0] [1] [2] [3]        depth 0, 1, 2
 *
 * A clip longer than a limit of a share is cut over the narrowest range that brings its share below
 * it, the range that ends it first; whole clips go, the longest first, to the rank that would end
 * first with them. Several limits are tried.
 *
 * Cost of a laying: O(clips ranks).
 */
#include "mix_internal.h"

#include <math.h>

/* ---- ranges ---------------------------------------------------------------------------------- */

static int half_of(int first, int end, int per_node)
{
    const int middle = first + (end - first + 1) / 2;
    if (first / per_node == (end - 1) / per_node)
        return middle;
    const int low = middle / per_node * per_node, high = low + per_node;
    const int nearest = low > first && (middle - low <= high - middle || high >= end) ? low : high;
    return nearest > first && nearest < end ? nearest : middle;
}

void tess_mix_range(int ranks, int nodes, int depth, int rank, int *first, int *end)
{
    const int per_node = (ranks + nodes - 1) / nodes;
    int low = 0, high = ranks;
    for (int i = 0; i < depth && high - low > 1; i++) {
        const int half = half_of(low, high, per_node);
        low = rank < half ? low : half;
        high = rank < half ? half : high;
    }
    *first = low;
    *end = high;
}

/* ---- laying ---------------------------------------------------------------------------------- */

typedef struct {
    int first, end;
    double done; /* when it would have computed the clip */
} range;

/* The range of a depth that would end a clip first. */
static range best_range(const tess__mix_lay *lay, int depth, double total)
{
    const tess__mix_rules *r = lay->rules;
    range best = {.done = INFINITY};
    for (int p = 0; p < r->ranks;) {
        range at = {.done = 0.0};
        double speed = 1.0;
        tess_mix_range(r->ranks, r->nodes, depth, p, &at.first, &at.end);
        for (int q = at.first; q < at.end; q++) {
            at.done = TESS_MAX(at.done, lay->room[q]);
            speed = TESS_MIN(speed, r->speed[q]);
        }
        at.done += total / (at.end - at.first) / speed;
        if (at.done < best.done)
            best = at;
        p = at.end;
    }
    return best;
}

/* The widest range of a depth. */
static int width_at(const tess__mix_rules *r, int depth)
{
    int widest = 1, first, end;
    for (int p = 0; p < r->ranks; p = end) {
        tess_mix_range(r->ranks, r->nodes, depth, p, &first, &end);
        widest = TESS_MAX(widest, end - first);
    }
    return widest;
}

/* The depth at which a share is no longer than the limit, else the least one that may be. */
static int depth_of(const tess__mix_rules *r, const tess__mix_work *w, int depths, double share)
{
    int depth = depths;
    while (depth > 0) {
        const int wider = width_at(r, depth - 1);
        if (wider > r->together || wider > w->tokens || (w->total <= share * width_at(r, depth)))
            break;
        depth--;
    }
    return depth;
}

/* 0: more parts than there is room for. */
static int lay_range(tess__mix_lay *lay, int64_t clip, range at, int64_t room)
{
    const int width = at.end - at.first;
    if (lay->n_pieces + width > room)
        return 0;
    for (int p = at.first; p < at.end; p++) {
        lay->room[p] = at.done;
        lay->pieces[lay->n_pieces++] =
            (tess__mix_piece){clip, (int32_t)p, lay->work[clip].total / width};
    }
    return 1;
}

static void lay_one(tess__mix_lay *lay, int64_t clip)
{
    const tess__mix_rules *r = lay->rules;
    const double total = lay->work[clip].total;
    int best = 0;
    for (int p = 1; p < r->ranks; p++)
        if (lay->room[p] + total / r->speed[p] < lay->room[best] + total / r->speed[best])
            best = p;
    lay->pieces[lay->n_pieces++] = (tess__mix_piece){clip, (int32_t)best, total};
    lay->room[best] += total / r->speed[best];
}

int tess__mix_lay_groups(tess__mix_lay *lay, double share)
{
    const tess__mix_rules *r = lay->rules;
    int depths = 0, last = 0;
    while (width_at(r, depths) > 1)
        depths++;
    lay->n_pieces = 0;
    for (int p = 0; p < r->ranks; p++)
        lay->room[p] = 0.0; /* here: when the rank is free */
    for (int64_t i = 0; i < lay->n; i++) {
        const int64_t clip = lay->order[i], room = TESS__MIX_PIECES(lay->n, r->ranks);
        /* Ascending: the longest clips come first. */
        last = TESS_MAX(last, depth_of(r, &lay->work[clip], depths, share));
        if (last == depths)
            lay_one(lay, clip);
        else if (!lay_range(lay, clip, best_range(lay, last, lay->work[clip].total),
                            room - (lay->n - i - 1)))
            return 0;
    }
    return 1;
}

double tess__mix_groups_time(const tess__mix_lay *lay, const tess__mix_price *price)
{
    double time = 0.0;
    for (int p = 0; p < lay->rules->ranks; p++)
        time = TESS_MAX(time, lay->room[p] + (double)price->rank[p].exchange);
    return time;
}
