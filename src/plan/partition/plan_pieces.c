/* SPDX-License-Identifier: Apache-2.0 */
/* plan_pieces.c - what one rank computes, piece by piece.
 *
 *   for step in 0..ring-1:                          step:        0        1        2
 *     part = (s - step) mod ring                    part 0:   keys 0   keys 2   keys 1
 *     for each share of the rank: a piece           part 1:   keys 1   keys 0   keys 2
 *                                                   part 2:   keys 2   keys 1   keys 0
 *
 * At each step a rank passes its keys on to sequence part s + 1 of its group, so that it holds
 * those that began at part s - step. Parts without keys make no pieces.
 */
#include "plan/plan_internal.h"

/* Pieces of a rank, written where pieces is not NULL. */
static int64_t walk_pieces(const tess_plan_layer *layer, int rank, tess_piece *pieces)
{
    const int u = tess__rank_group(layer, rank);
    const int32_t *cuts = layer->k_cuts + (size_t)u * ((size_t)layer->strategy.ring + 1);
    const int64_t begin = layer->first[rank], end = layer->first[rank + 1];
    int64_t n = 0;
    for (int step = 0; step < layer->strategy.ring; step++) {
        const int part = tess__key_part(layer, rank, step);
        if (cuts[part] == cuts[part + 1])
            continue;
        for (int64_t i = begin; i < end; i++, n++)
            if (pieces) {
                const tess_share *s = &layer->shares[i];
                pieces[n] = (tess_piece){rank,       s->head,        s->q_begin, s->q_end,
                                         cuts[part], cuts[part + 1], step};
            }
    }
    return n;
}

tess_status tess_plan_pieces(const tess_plan *plan, int layer, int rank, tess_piece *pieces,
                             int64_t *n)
{
    TESS_TRY(tess__plan_layer_ok(__func__, plan, layer));
    TESS_TRY(tess__check_range(__func__, "rank", rank, 0, plan->info.ranks - 1));
    TESS_REQUIRE(n);
    const int64_t need = walk_pieces(&plan->layers[layer], rank, NULL);
    if (pieces && *n < need)
        return tess__invalid(__func__, "n is %lld, rank %d has %lld pieces", (long long)*n, rank,
                             (long long)need);
    if (pieces)
        walk_pieces(&plan->layers[layer], rank, pieces);
    *n = need;
    return TESS_OK;
}
