/* SPDX-License-Identifier: Apache-2.0 */
/* even_ring.c - the tiles of rings whose blocks stay as they are, in even parts.
 *
 * The tiles of a group are the sums of its heads' tiles, (ring, ring) each. Those are counted once
 * for a layer and ring, and serve every method and degree that has this ring:
 *
 *   heads x ring^2 numbers; one pass over the masks for each ring, O(heads ring^2) for each method
 */
#include "strategy_internal.h"

#include "work.h"

#include <string.h>

/* Above this, tables of all heads would not fit into caches; such rings count their own tiles. */
enum { RING_MAX = TESS__EVEN_RINGS - 1 };

int tess__even_ring_ok(const tess__task *task, int ring)
{
    return ring > 1 && ring <= RING_MAX && task->work->info.masks && !task->info.speeds;
}

static tess_status count_heads(const tess__task *task, int at, int ring, int64_t *tiles)
{
    int32_t cuts[TESS__EVEN_RINGS + 1];
    tess__key_parts parts = {0};
    for (int i = 0; i <= ring; i++)
        cuts[i] = tess__even_cut(task->info.k_blocks, ring, i);
    TESS_TRY(tess__key_parts_make(task->work, NULL, cuts, ring, &parts));
    for (int32_t h = 0; h < task->info.heads; h++)
        for (int i = 0; i < ring; i++)
            tess__key_parts_sum(&parts, at, &h, 1, NULL,
                                tess__even_cut(task->info.q_blocks, ring, i),
                                tess__even_cut(task->info.q_blocks, ring, i + 1),
                                tiles + ((size_t)h * (size_t)ring + (size_t)i) * (size_t)ring);
    tess__key_parts_free(&parts);
    return TESS_OK;
}

tess_status tess__even_ring_tiles(const tess__task *task, int at, const tess_plan_layer *layer,
                                  tess__even_rings *rings, tess__arena *arena, int64_t **tiles)
{
    const int ring = layer->strategy.ring;
    const size_t n = (size_t)ring * (size_t)ring, heads = (size_t)task->info.heads;
    int64_t **of_heads = &rings->tiles[ring];
    if (!*of_heads) {
        int64_t *made = TESS_TAKE(&rings->arena, heads * n * sizeof *made);
        TESS_TRY(count_heads(task, at, ring, made));
        *of_heads = made;
    }
    const size_t groups = (size_t)layer->groups;
    int64_t *sums = TESS_TAKE(arena, groups * n * sizeof *sums);
    memset(sums, 0, groups * n * sizeof *sums);
    for (size_t h = 0; h < heads; h++) {
        int64_t *to = sums + (size_t)layer->head_group[h] * n;
        for (size_t i = 0; i < n; i++)
            to[i] += (*of_heads)[h * n + i];
    }
    *tiles = sums;
    return TESS_OK;
}

void tess__even_ring_hops(const tess_plan_layer *layer, int64_t *tiles)
{
    const size_t n =
        (size_t)layer->groups * (size_t)layer->strategy.ring * (size_t)layer->strategy.ring;
    for (size_t i = 0; i < n; i++)
        tiles[i] = tiles[i] > 0;
}
