/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - query and key blocks of one ring group to the places of the ring.
 *
 * db-SP's block level balances sums of rows and of columns, over the heads of all ring groups. Here
 * every ring group has a plan of its own, for it exchanges blocks only within itself, and the plan
 * is judged by what a pass of the ring takes: the longest tile of each iteration (ring.h).
 *
 *   1. where contiguous parts of queries are uneven, exchanges that make them even
 *      (blocks_level.c), or where these do not, db-SP's biased greedy (with speeds: contiguous
 *      ranges by work)
 *   2. the work of every key block with each query part, and exchanges of key blocks that shorten
 *      the pass (blocks_search.c)
 *   3. if the pass is still too long, everything afresh: the biased greedy on both sides, and
 *      exchanges of key blocks
 *   4. if it is still too long, the work of every query block with each key part, and exchanges of
 *      query blocks
 *   5. contiguous parts, if that has not made the pass shorter
 *
 * Exchanges move far fewer blocks than the greedy, which distributes all of them, so it comes last.
 *
 * Cost: each of 2., 3. and 4. reads the bits of the group once, about 1, 1 and 1.6 ms for 40 heads
 * of 1184 x 1184 blocks. Memory: (blocks, ring) sums, in the scratch.
 */
#include "plan/plan_internal.h"
#include "ring.h"

#include <string.h>

/* A pass is planned if it is FAR above the bound; a search ends NEAR it; TOO_FAR is worth moving
 * most blocks, and reading the bits once more. */
static const double TOO_FAR = 1.02, FAR = 1.01, NEAR = 1.003;

/* The longest ring in which query blocks are searched for: counting them against every key part
 * takes time in proportion to the ring. */
enum { MOST_PARTS = 64 };

typedef struct {
    tess__partition_scratch *space;
    const tess__ring_job *job;
    tess__ring_search *ring;
    int32_t *q_order, *k_order, *q_cuts, *k_cuts;
    double bound;
} state;

static void all_contiguous(state *s)
{
    const tess_work_info *const info = &s->job->work->info;
    tess__parts_contiguous(info->q_blocks, s->job->ring, s->q_order, s->q_cuts,
                           s->space->own_part[0]);
    tess__parts_contiguous(info->k_blocks, s->job->ring, s->k_order, s->k_cuts,
                           s->space->own_part[1]);
}

/* ---- the two sides --------------------------------------------------------------------------- */

/* Work of each query block, summed over the group's heads. */
static void add_rows(const state *s, int64_t *weights)
{
    const tess__ring_job *const job = s->job;
    const int32_t n = job->work->info.q_blocks;
    memset(weights, 0, (size_t)n * sizeof *weights);
    for (int i = 0; i < job->n; i++)
        for (int32_t g = 0; g < n; g++)
            weights[g] += tess__work_prefix(job->work, job->layer, job->heads[i], g + 1) -
                          tess__work_prefix(job->work, job->layer, job->heads[i], g);
}

/* The heaviest part. */
static double heaviest(const int64_t *weights, const int32_t *order, const int32_t *cuts, int parts)
{
    double most = 0.0;
    for (int p = 0; p < parts; p++) {
        double sum = 0.0;
        for (int32_t at = cuts[p]; at < cuts[p + 1]; at++)
            sum += (double)weights[order[at]];
        most = TESS_MAX(sum, most);
    }
    return most;
}

/* Orders the n blocks of the space's weights by db-SP's biased greedy. */
static void distribute(state *s, int32_t n, int32_t *order, int32_t *cuts)
{
    tess__blocks_greedy(s->space, s->space->weights, n, s->job->ring, s->job->reward,
                        s->space->part_of);
    tess__parts_order(s->space->part_of, n, s->job->ring, order, cuts);
}

/* Step 1. */
static void begin_queries(state *s)
{
    const tess__ring_job *const job = s->job;
    if (job->speeds) {
        tess__cuts_by_work(s->space, job->work, job->layer, job->heads, job->n, job->ring,
                           job->speeds, s->q_cuts);
        return;
    }
    add_rows(s, s->space->weights);
    if (heaviest(s->space->weights, s->q_order, s->q_cuts, job->ring) <= FAR * s->bound)
        return;
    const tess__level_job level = {.weights = s->space->weights,
                                   .n = job->work->info.q_blocks,
                                   .parts = job->ring,
                                   .cuts = s->q_cuts,
                                   .own_part = s->space->own_part[0],
                                   .reward = job->reward,
                                   .limit = NEAR * s->bound};
    if (!tess__blocks_level(s->space, &level, s->q_order))
        distribute(s, level.n, s->q_order, s->q_cuts);
}

/* sums[n] = sums of x. */
static void add_sums(tess__partition_scratch *space, int32_t n, int ring)
{
    for (int32_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int o = 0; o < ring; o++)
            sum += space->x[(size_t)i * (size_t)ring + (size_t)o];
        space->x_sums[i] = sum;
    }
}

static void search(state *s, int keys)
{
    const tess_work_info *const info = &s->job->work->info;
    tess__ring_side side = {.keys = keys,
                            .n = keys ? info->k_blocks : info->q_blocks,
                            .x = s->space->x,
                            .weights = s->space->x_sums,
                            .cuts = keys ? s->k_cuts : s->q_cuts,
                            .order = keys ? s->k_order : s->q_order,
                            .own_part = s->space->own_part[keys],
                            .reward = s->job->reward};
    tess__side_search(s->ring, &side, NEAR * s->bound);
}

/* x = the work of each key block with each query part. */
static void add_columns(state *s)
{
    tess__partition_scratch *const space = s->space;
    const tess__ring_job *const job = s->job;
    const int32_t n = job->work->info.k_blocks;
    const size_t ring = (size_t)job->ring;
    for (size_t r = 0; r < ring; r++) {
        tess__work_columns(job->work, job->layer, job->heads, job->n, s->q_order, s->q_cuts[r],
                           s->q_cuts[r + 1], space->weights);
        for (int32_t k = 0; k < n; k++)
            space->x[(size_t)k * ring + r] = (double)space->weights[k];
    }
    add_sums(space, n, job->ring);
}

/* Step 2. */
static void plan_keys(state *s)
{
    add_columns(s);
    search(s, 1);
}

/* Step 3. */
static void distribute_all(state *s)
{
    const tess_work_info *const info = &s->job->work->info;
    if (!s->job->speeds) {
        add_rows(s, s->space->weights);
        distribute(s, info->q_blocks, s->q_order, s->q_cuts);
        add_columns(s);
    }
    for (int32_t k = 0; k < info->k_blocks; k++)
        s->space->weights[k] = (int64_t)s->space->x_sums[k];
    distribute(s, info->k_blocks, s->k_order, s->k_cuts);
    search(s, 1);
}

/* Step 4. */
static tess_status plan_queries(state *s)
{
    const tess__ring_job *const job = s->job;
    const int32_t n = job->work->info.q_blocks;
    tess__key_parts parts = {0};
    TESS_TRY(tess__key_parts_make(job->work, s->k_order, s->k_cuts, job->ring, &parts));
    for (int32_t q = 0; q < n; q++) {
        tess__key_parts_sum(&parts, job->layer, job->heads, job->n, NULL, q, q + 1,
                            s->space->tiles);
        for (int c = 0; c < job->ring; c++)
            s->space->x[(size_t)q * (size_t)job->ring + (size_t)c] = (double)s->space->tiles[c];
    }
    tess__key_parts_free(&parts);
    add_sums(s->space, n, job->ring);
    search(s, 0);
    return TESS_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Tiles of contiguous parts, and the bound. */
static tess_status begin(state *s)
{
    const tess__ring_job *const job = s->job;
    const int ring = job->ring;
    int64_t *const tiles = s->space->tiles;
    double speed = 0.0, work = 0.0;
    for (int r = 0; r < ring; r++)
        speed += job->speeds ? job->speeds[r] : 1;
    for (int r = 0; r < ring; r++)
        s->ring->slowness[r] = job->speeds ? speed / ring / job->speeds[r] : 1.0;
    all_contiguous(s);
    TESS_TRY(tess__work_tiles(job->work, job->layer, job->heads, job->n, NULL, s->q_cuts, NULL,
                              s->k_cuts, ring, tiles));
    for (int i = 0; i < ring * ring; i++)
        work += s->ring->tiles[i] = (double)tiles[i];
    s->ring->ring = ring;
    tess__ring_update(s->ring);
    s->bound = work / ring;
    return TESS_OK;
}

/* Puts the orders, cuts and tiles aside (keep 1), or takes them back. */
static void keep_plan(state *s, int keep)
{
    const tess_work_info *const info = &s->job->work->info;
    const size_t ring = (size_t)s->job->ring, q = (size_t)info->q_blocks,
                 k = (size_t)info->k_blocks;
    int32_t *const arrays[] = {s->q_order, s->k_order, s->q_cuts, s->k_cuts};
    const size_t sizes[] = {q, k, ring + 1, ring + 1};
    int32_t *aside = s->space->kept;
    for (int i = 0; i < 4; aside += sizes[i++])
        memcpy(keep ? aside : arrays[i], keep ? arrays[i] : aside, sizes[i] * sizeof *aside);
    double *const tiles = s->ring->tiles, *const kept = s->space->kept_tiles;
    memcpy(keep ? kept : tiles, keep ? tiles : kept, ring * ring * sizeof *tiles);
    if (!keep)
        tess__ring_update(s->ring);
}

static tess_status plan(state *s)
{
    begin_queries(s);
    plan_keys(s);
    const double time = s->ring->time;
    if (time > TOO_FAR * s->bound) {
        keep_plan(s, 1);
        distribute_all(s);
        if (s->ring->time >= time)
            keep_plan(s, 0);
    }
    if (s->ring->time > TOO_FAR * s->bound && s->job->ring <= MOST_PARTS)
        TESS_TRY(plan_queries(s));
    return TESS_OK;
}

tess_status tess__blocks_plan(tess__partition_scratch *space, const tess__ring_job *job,
                              int32_t *q_order, int32_t *k_order, int32_t *q_cuts, int32_t *k_cuts,
                              tess__ring_result *result)
{
    state s = {.space = space,
               .ring = space->ring,
               .job = job,
               .q_order = q_order,
               .k_order = k_order,
               .q_cuts = q_cuts,
               .k_cuts = k_cuts};
    TESS_TRY(begin(&s));
    const double before = s.ring->time;
    double after = before;
    if (job->work->info.masks && job->ring > 1 && before > FAR * s.bound) {
        TESS_TRY(plan(&s));
        after = s.ring->time;
    }
    if (after < before) {
        tess__parts_sort(space, job->work->info.q_blocks, job->ring, q_order, q_cuts);
        tess__parts_sort(space, job->work->info.k_blocks, job->ring, k_order, k_cuts);
    } else {
        all_contiguous(&s);
        after = before;
    }
    *result = (tess__ring_result){
        .before = before,
        .after = after,
        .bound = s.bound,
        .moved_q = tess__parts_moved(q_order, q_cuts, job->ring, space->own_part[0]),
        .moved_k = tess__parts_moved(k_order, k_cuts, job->ring, space->own_part[1])};
    return TESS_OK;
}
