/* SPDX-License-Identifier: Apache-2.0 */
/* imbalance.c - the sparse imbalance ratio of contiguous heads and blocks.
 *
 * b(i, u, r) is the work of rank r in the ring of head run u in iteration i: tile (r, (r + i) mod
 * R) of that ring. With the mean m = all work / (U R),
 *
 *   global   sum_i max_u,r b / m      all ranks meet after every iteration
 *   ring     max_u sum_i max_r b / m  the ranks of a ring do
 *   free     max_u,r sum_i b / m      no rank waits before the end
 *
 * so that global >= ring >= free >= 1. The direction of the ring does not matter: the iterations of
 * the one are those of the other in another order. One row of tiles is held at a time: memory is
 * O(R), besides the bits of R key parts.
 */
#include "work.h"

#include <string.h>

enum { ULYSSES_MAX = 65536, RING_MAX = 4096 };

/* Where run i begins when n things are cut into `runs`, the remainder to the first. */
static int64_t run_begin(int64_t n, int runs, int64_t i)
{
    const int64_t rest = n % runs;
    return n / runs * i + TESS_MIN(i, rest);
}

typedef struct {
    int32_t *q_cuts, *k_cuts; /* (ring + 1) */
    int32_t *heads;           /* of one run */
    int64_t *row;             /* (ring): tiles of one rank */
    int64_t *most, *most_all; /* (ring): the busiest in each iteration, of a ring and of all */
} scratch;

static tess_status scratch_make(tess__arena *arena, const tess_work *work, int ring, scratch *s)
{
    const size_t n = (size_t)ring, cuts = (n + 1) * sizeof(int32_t), row = n * sizeof(int64_t);
    const size_t heads = (size_t)work->info.heads * sizeof(int32_t);
    TESS_TRY(tess__arena_reserve(arena, 2 * tess__arena_round(cuts) + 3 * tess__arena_round(row) +
                                            tess__arena_round(heads)));
    s->q_cuts = tess__arena_take(arena, cuts);
    s->k_cuts = tess__arena_take(arena, cuts);
    s->heads = tess__arena_take(arena, heads);
    s->row = tess__arena_take(arena, row);
    s->most = tess__arena_take(arena, row);
    s->most_all = tess__arena_take(arena, row);
    for (int i = 0; i <= ring; i++) {
        s->q_cuts[i] = (int32_t)run_begin(work->info.q_blocks, ring, i);
        s->k_cuts[i] = (int32_t)run_begin(work->info.k_blocks, ring, i);
    }
    memset(s->most_all, 0, row);
    return TESS_OK;
}

/* What one ring adds: the busiest of its ranks in each iteration, and over all of them. */
static int64_t ring_busiest(const tess__key_parts *parts, int layer, int n_heads, const scratch *s)
{
    const int ring = parts->n;
    int64_t busiest = 0;
    memset(s->most, 0, (size_t)ring * sizeof *s->most);
    for (int r = 0; r < ring; r++) {
        int64_t sum = 0;
        tess__key_parts_sum(parts, layer, s->heads, n_heads, NULL, s->q_cuts[r], s->q_cuts[r + 1],
                            s->row);
        for (int i = 0; i < ring; i++) {
            const int64_t b = s->row[(r + i) % ring];
            sum += b;
            if (b > s->most[i])
                s->most[i] = b;
        }
        if (sum > busiest)
            busiest = sum;
    }
    return busiest;
}

static int64_t sum_of(const int64_t *x, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* The units of work after which the layer is done. */
static int64_t longest(const tess__key_parts *parts, int layer, int ulysses, tess_rho_form form,
                       const scratch *s)
{
    const int heads = parts->work->info.heads, ring = parts->n;
    int64_t most = 0;
    for (int u = 0; u < ulysses && u < heads; u++) {
        const int begin = (int)run_begin(heads, ulysses, u);
        const int n = (int)run_begin(heads, ulysses, u + 1) - begin;
        for (int i = 0; i < n; i++)
            s->heads[i] = begin + i;
        const int64_t alone = ring_busiest(parts, layer, n, s);
        const int64_t here = form == TESS_RHO_FREE ? alone : sum_of(s->most, ring);
        if (here > most)
            most = here;
        for (int i = 0; i < ring; i++)
            if (s->most[i] > s->most_all[i])
                s->most_all[i] = s->most[i];
    }
    return form == TESS_RHO_GLOBAL ? sum_of(s->most_all, ring) : most;
}

static tess_status check(const char *who, const tess_work *work, int layer, int ulysses, int ring,
                         tess_rho_form form, const double *rho)
{
    if (!work || !rho)
        return tess__invalid(who, "%s is NULL", work ? "rho" : "work");
    TESS_TRY(tess__check_range(who, "layer", layer, 0, work->info.layers - 1));
    TESS_TRY(tess__check_range(who, "ulysses", ulysses, 1, ULYSSES_MAX));
    TESS_TRY(tess__check_range(who, "ring", ring, 1, RING_MAX));
    TESS_TRY(tess__check_range(who, "form", (int)form, TESS_RHO_GLOBAL, TESS_RHO_FREE));
    return TESS_OK;
}

tess_status tess_work_imbalance(const tess_work *work, int layer, int ulysses, int ring,
                                tess_rho_form form, double *rho)
{
    TESS_TRY(check("tess_work_imbalance", work, layer, ulysses, ring, form, rho));
    int64_t total = 0;
    for (int h = 0; h < work->info.heads; h++)
        total += tess__work_head(work, layer, h);
    tess__arena arena = {.ctx = work->ctx};
    tess__key_parts parts = {0};
    scratch s;
    tess_status status = scratch_make(&arena, work, ring, &s);
    if (status == TESS_OK)
        status = tess__key_parts_make(work, NULL, s.k_cuts, ring, &parts);
    if (status == TESS_OK) {
        const double ranks = (double)ulysses * ring;
        const double time = (double)longest(&parts, layer, ulysses, form, &s);
        *rho = total > 0 ? time * ranks / (double)total : 1.0;
    }
    tess__key_parts_free(&parts);
    tess__arena_free(&arena);
    return status;
}
