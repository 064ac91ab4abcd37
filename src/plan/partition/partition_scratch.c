/* SPDX-License-Identifier: Apache-2.0 */
/* partition_scratch.c - scratch of the partitions: one arena, sized by a shape.
 *
 * What depends on the ring is there only where a ring was asked for, and what fractional heads need
 * always: about 100 bytes per head and rank, and 40 KiB for the search of runs.
 */
#include "fraction.h"
#include "ring.h"

/* One array: where its pointer is kept, and its size. */
typedef struct {
    void *pointer;
    size_t n, size;
} part;

static size_t most_of(size_t a, size_t b)
{
    return TESS_MAX(a, b);
}

/* Takes all parts from the arena, in one allocation. */
static tess_status take(tess__arena *arena, const part *parts, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        size_t product;
        if (tess__mul(parts[i].n, parts[i].size, &product) || product > SIZE_MAX / 2 - bytes)
            return tess__nomem(SIZE_MAX);
        bytes += tess__arena_round(product);
    }
    TESS_TRY(tess__arena_reserve(arena, bytes));
    for (int i = 0; i < n; i++) {
        void *const memory = TESS_TAKE(arena, parts[i].n * parts[i].size);
        *(void **)parts[i].pointer = memory;
    }
    return TESS_OK;
}

#define PART(field, count)                                                                         \
    {                                                                                              \
        (void *)&(field), (count), sizeof *(field)                                                 \
    }

static tess_status fill(tess__partition_scratch *space)
{
    struct tess__fraction *const line = space->fraction;
    tess__ring_search *const ring_search = space->ring;
    const tess__partition_scratch_shape *const shape = &space->shape;
    const size_t heads = (size_t)shape->heads, ranks = (size_t)shape->ranks;
    const size_t q = (size_t)shape->q_blocks, k = (size_t)shape->k_blocks;
    const size_t ring = (size_t)shape->ring, blocks = ring > 0 ? most_of(q, k) : 0;
    const size_t n = most_of(heads, most_of(blocks, ranks)), m = most_of(ranks, ring);
    size_t leaves = 1;
    while (leaves < m)
        leaves *= 2;
    const size_t places = most_of(2 * (TESS__LINE_RUNS + 1), TESS__LINE_STATES);
    const size_t choices = most_of(TESS__LINE_RUNS * (TESS__LINE_RUNS + 1), TESS__LINE_STATES);
    const part parts[] = {
        PART(space->order, n),
        PART(space->order_swap, n),
        PART(space->sums, m),
        PART(space->counts, m),
        PART(space->tree, 2 * leaves),
        PART(space->next, n),
        PART(space->first, m),
        PART(space->some[0], TESS__HEAD_SETS_MAX),
        PART(space->some[1], TESS__HEAD_SETS_MAX),
        PART(space->start, heads),
        PART(space->prefix, q + 1),
        PART(space->weights, blocks),
        PART(space->x, blocks * ring),
        PART(space->x_sums, blocks),
        PART(space->tiles, ring * ring),
        PART(space->part_of, blocks),
        PART(space->own_part[0], blocks),
        PART(space->own_part[1], blocks),
        PART(space->kept, 2 * (blocks + ring + 1)),
        PART(space->kept_tiles, ring * ring),
        PART(ring_search->tiles, ring * ring),
        PART(ring_search->slowness, ring),
        PART(ring_search->longest, 3 * ring),
        PART(ring_search->place, 3 * ring),
        PART(ring_search->lenses, ring),
        PART(ring_search->whole, 2 * ring),
        PART(line->room, ranks),
        PART(line->all_speeds, ranks),
        PART(line->loads, heads),
        PART(line->order, heads),
        PART(line->best_order, heads),
        PART(line->spare, heads),
        PART(line->residue, heads),
        PART(line->runs, heads + 1),
        PART(line->best_runs, heads + 1),
        PART(line->lowest, ranks + 1),
        PART(line->places, places),
        PART(line->choice, choices),
    };
    return take(&space->arena, parts, (int)(sizeof parts / sizeof *parts));
}

tess_status tess__partition_scratch_create(tess_ctx *ctx,
                                           const tess__partition_scratch_shape *shape,
                                           tess__partition_scratch **space)
{
    tess__arena arena = {.ctx = ctx};
    tess__partition_scratch *const made = TESS_TAKE(&arena, sizeof *made);
    *made = (tess__partition_scratch){.arena = arena, .shape = *shape};
    const part parts[] = {PART(made->fraction, 1), PART(made->ring, 1)};
    tess_status status = take(&made->arena, parts, 2);
    if (status == TESS_OK)
        status = fill(made);
    if (status == TESS_OK)
        *space = made;
    else
        tess__partition_scratch_destroy(made);
    return status;
}

void tess__partition_scratch_destroy(tess__partition_scratch *space)
{
    if (!space)
        return;
    tess__arena arena = space->arena;
    tess__arena_free(&arena);
}
