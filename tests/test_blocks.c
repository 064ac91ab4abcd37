/* SPDX-License-Identifier: Apache-2.0 */
/* test_blocks.c - blocks of a ring group: published counter-examples, invariants, the optimum of
 * small cases. */
#include "partition_data.h"

enum { MOST_HEADS = 4, MOST_BLOCKS = 1184, MOST_RING = 40 };

static int set_up(void **state)
{
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    space = new_space(ctx, 64, 64, MOST_BLOCKS, MOST_RING);
    return 0;
}

static const int32_t all_heads[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

typedef struct {
    int32_t q_order[MOST_BLOCKS], k_order[MOST_BLOCKS], q_cuts[MOST_RING + 1],
        k_cuts[MOST_RING + 1];
    tess__ring_result result;
} ring_plan;

static void make_plan(const tess__ring_job *job, ring_plan *plan)
{
    CHECK_OK(tess__blocks_plan(space, job, plan->q_order, plan->k_order, plan->q_cuts, plan->k_cuts,
                               &plan->result));
}

/* ---- published cases ------------------------------------------------------------------------- */

/* Tiles as a mask of `each` x `each` blocks per tile, one head. */
static void check_tiles(const uint8_t *tiles, int ring, int each, int reward, double before,
                        double after)
{
    static uint8_t mask[64 * 64];
    const int n = ring * each;
    for (int q = 0; q < n; q++)
        for (int k = 0; k < n; k++)
            mask[q * n + k] = tiles[q / each * ring + k / each];
    tess_work *work = mask_work(mask, 1, n, n);
    ring_plan plan;
    make_plan(
        &(tess__ring_job){.work = work, .heads = all_heads, .n = 1, .ring = ring, .reward = reward},
        &plan);
    assert_float_equal(plan.result.before / plan.result.bound, before, 1e-9);
    assert_float_equal(plan.result.after / plan.result.bound, after, 1e-9);
    tess_work_destroy(work);
}

/* B1: sums of rows and columns are perfect, and yet one rank works in each iteration. */
static void rings_with_even_sums_reach_their_optimum(void **state)
{
    (void)state;
    const uint8_t b1[] = {0, 1, 0, 1, 0, 0, 0, 0, 1};
    for (int each = 1; each <= 16; each *= 2)
        for (int reward = 0; reward <= 2; reward += 2)
            check_tiles(b1, 3, each, reward, 3.0, 1.0);
}

/* B4: every rank works in the same iterations already. */
static void cyclic_tiles_stay_as_they_are(void **state)
{
    (void)state;
    const uint8_t shift[] = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0};
    const uint8_t chess[] = {0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0};
    for (int each = 1; each <= 8; each *= 2) {
        check_tiles(shift, 4, each, 2, 1.0, 1.0);
        check_tiles(chess, 4, each, 2, 1.0, 1.0);
    }
}

/* B2: two ring groups, each of which works in the rows of one rank only. Together they appear
 * balanced. */
static void each_ring_group_has_a_plan_of_its_own(void **state)
{
    (void)state;
    enum { N = 8 };
    uint8_t mask[2 * N * N] = {0};
    for (int h = 0; h < 2; h++)
        for (int q = 0; q < N; q++)
            for (int k = 0; k < N; k++)
                mask[(h * N + q) * N + k] = q / (N / 2) == h;
    tess_work *work = mask_work(mask, 2, N, N);
    for (int h = 0; h < 2; h++) {
        ring_plan plan;
        make_plan(
            &(tess__ring_job){.work = work, .heads = all_heads + h, .n = 1, .ring = 2, .reward = 2},
            &plan);
        assert_float_equal(plan.result.before / plan.result.bound, 2.0, 1e-9);
        assert_float_equal(plan.result.after / plan.result.bound, 1.0, 1e-9);
        assert_int_equal(plan.result.moved_q, N / 2);
        assert_int_equal(plan.result.moved_k, 0);
    }
    tess_work_destroy(work);
}

/* B3: with two ranks equal sums of rows and columns leave nothing to do. */
static void two_ranks_with_even_sums_are_balanced(void **state)
{
    (void)state;
    uint64_t random = 21;
    for (int round = 0; round < 200; round++) {
        const uint8_t a = (uint8_t)below(&random, 2), b = (uint8_t)(below(&random, 2) | !a);
        check_tiles((uint8_t[]){a, b, b, a}, 2, 4, 2, 1.0, 1.0);
    }
}

/* B5: the kinds of masks that db-SP was tried on. The bounds hold what is reached. */
static void fill_synthetic(int kind, int heads, int n, uint8_t *mask)
{
    uint64_t random = 22;
    for (int h = 0; h < heads; h++)
        for (int q = 0; q < n; q++)
            for (int k = 0; k < n; k++) {
                const int apart = q < k ? k - q : q - k;
                mask[((size_t)h * (size_t)n + (size_t)q) * (size_t)n + (size_t)k] =
                    kind == 0   ? apart < 10 * (h + 1)
                    : kind == 1 ? k / (10 + h) % 5 == h % 5 || apart < 20
                    : kind == 2 ? k < n / 2 && below(&random, 10) < 3
                                : h < 2 || below(&random, 20) < 1;
            }
}

static void synthetic_masks_are_balanced(void **state)
{
    (void)state;
    enum { HEADS = 8, N = 592 };
    const double most[] = {1.05, 1.02, 1.01, 1.01};
    uint8_t *mask = malloc((size_t)HEADS * N * N);
    assert_non_null(mask);
    for (int kind = 0; kind < 4; kind++) {
        fill_synthetic(kind, HEADS, N, mask);
        tess_work *work = mask_work(mask, HEADS, N, N);
        for (int ring = 2; ring <= 8; ring *= 2) {
            ring_plan plan;
            make_plan(
                &(tess__ring_job){
                    .work = work, .heads = all_heads, .n = HEADS, .ring = ring, .reward = 2},
                &plan);
            print_message("mask %d, ring %d: %.4f -> %.4f, moved %" PRId64 " and %" PRId64 "\n",
                          kind, ring, plan.result.before / plan.result.bound,
                          plan.result.after / plan.result.bound, plan.result.moved_q,
                          plan.result.moved_k);
            assert_true(plan.result.after <= most[kind] * plan.result.bound);
        }
        tess_work_destroy(work);
    }
    free(mask);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static void check_side(const int32_t *order, const int32_t *cuts, int32_t n, int ring, int equal)
{
    uint8_t found[MOST_BLOCKS] = {0};
    assert_int_equal(cuts[0], 0);
    assert_int_equal(cuts[ring], n);
    for (int p = 0; p < ring; p++) {
        if (equal)
            assert_in_range(cuts[p + 1] - cuts[p], n / ring, n / ring + (n % ring != 0));
        for (int32_t at = cuts[p]; at < cuts[p + 1]; at++) {
            assert_in_range(order[at], 0, n - 1);
            assert_false(found[order[at]]);
            found[order[at]] = 1;
            if (at > cuts[p])
                assert_true(order[at] > order[at - 1]);
        }
    }
}

/* The time of a pass, from the tiles of the work itself. */
static double measured_time(const tess__ring_job *job, const ring_plan *plan)
{
    int64_t tiles[MOST_RING * MOST_RING];
    double sum = 0.0, speed = 0.0;
    CHECK_OK(tess__work_tiles(job->work, job->layer, job->heads, job->n, plan->q_order,
                              plan->q_cuts, plan->k_order, plan->k_cuts, job->ring, tiles));
    for (int r = 0; r < job->ring; r++)
        speed += job->speeds ? job->speeds[r] : 1;
    for (int s = 0; s < job->ring; s++) {
        double most = 0.0;
        for (int r = 0; r < job->ring; r++) {
            const double slowness = job->speeds ? speed / job->ring / job->speeds[r] : 1.0;
            const int64_t tile = tiles[r * job->ring + (r - s + job->ring) % job->ring];
            most = fmax(most, slowness * (double)tile);
        }
        sum += most;
    }
    return sum;
}

static void random_mask(uint64_t *random, uint8_t *mask, int heads, int32_t q_blocks,
                        int32_t k_blocks)
{
    const int64_t share = below(random, 100), band = below(random, q_blocks) + 1;
    for (int h = 0; h < heads; h++)
        for (int32_t q = 0; q < q_blocks; q++)
            for (int32_t k = 0; k < k_blocks; k++)
                mask[(h * q_blocks + q) * k_blocks + k] =
                    below(random, 100) < (q / band % 2 ? share : share / 8);
}

static void every_block_plan_keeps_the_invariants(void **state)
{
    (void)state;
    uint64_t random = 23;
    static uint8_t mask[MOST_HEADS * 80 * 80];
    for (int round = 0; round < 10000; round++) {
        const int most = round % 10 ? 12 : 80;
        const int heads = 1 + (int)below(&random, MOST_HEADS),
                  ring = 1 + (int)below(&random, round % 20 ? 8 : MOST_RING);
        const int32_t q_blocks = 1 + (int32_t)below(&random, most),
                      k_blocks = 1 + (int32_t)below(&random, most);
        int32_t speeds[MOST_RING];
        for (int r = 0; r < ring; r++)
            speeds[r] = 1 + (int32_t)below(&random, 4);
        random_mask(&random, mask, heads, q_blocks, k_blocks);
        tess_work *work = mask_work(mask, heads, q_blocks, k_blocks);
        const tess__ring_job job = {.work = work,
                                    .heads = all_heads,
                                    .n = heads,
                                    .ring = ring,
                                    .reward = round % 7 == 0 ? INT32_MAX : (int)below(&random, 4),
                                    .speeds = below(&random, 5) ? NULL : speeds};
        ring_plan plan, again;
        make_plan(&job, &plan);
        check_side(plan.q_order, plan.q_cuts, q_blocks, ring, !job.speeds);
        check_side(plan.k_order, plan.k_cuts, k_blocks, ring, 1);
        assert_true(plan.result.after <= plan.result.before);
        assert_true(plan.result.after >= plan.result.bound * (1 - 1e-12));
        /* Each of at most 40 terms is a product that is rounded once: 2^-53 of it, and as much for
         * each addition. */
        assert_float_equal(plan.result.after, measured_time(&job, &plan),
                           1e-14 * plan.result.after);
        if (job.reward == INT32_MAX && !job.speeds)
            assert_int_equal(plan.result.moved_q + plan.result.moved_k, 0);
        make_plan(&job, &again);
        assert_memory_equal(again.q_order, plan.q_order, (size_t)q_blocks * sizeof *plan.q_order);
        assert_memory_equal(again.k_order, plan.k_order, (size_t)k_blocks * sizeof *plan.k_order);
        tess_work_destroy(work);
    }
}

static void without_masks_nothing_moves(void **state)
{
    (void)state;
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_weights(ctx, (int64_t[]){1000, 3}, 1, 2, 10, &work));
    ring_plan plan;
    make_plan(&(tess__ring_job){.work = work, .heads = all_heads, .n = 2, .ring = 3, .reward = 2},
              &plan);
    assert_int_equal(plan.result.moved_q + plan.result.moved_k, 0);
    assert_true(plan.result.after == plan.result.before);
    tess_work_destroy(work);
}

/* ---- one side alone
 * ------------------------------------------------------------------------------ */

static void a_reward_of_0_is_the_capped_greedy_and_a_huge_one_moves_nothing(void **state)
{
    (void)state;
    uint64_t random = 24;
    for (int round = 0; round < 2000; round++) {
        int64_t weights[64];
        int32_t part_of[64], group_of[64];
        const int n = 1 + (int)below(&random, 64), parts = 1 + (int)below(&random, 9);
        random_loads(&random, weights, n);
        tess__blocks_greedy(space, weights, n, parts, 0, part_of);
        split(space, &(tess__heads){.heads = n, .groups = parts, .loads = weights}, TESS_PLAN_DB_SP,
              group_of);
        assert_memory_equal(part_of, group_of, (size_t)n * sizeof *part_of);
        tess__blocks_greedy(space, weights, n, parts, INT32_MAX, part_of);
        split(space, &(tess__heads){.heads = n, .groups = parts, .loads = weights},
              TESS_PLAN_CONTIGUOUS, group_of);
        assert_memory_equal(part_of, group_of, (size_t)n * sizeof *part_of);
    }
}

/* ---- the optimum of small rings
 * -------------------------------------------------------------------- */

static double tiles_time(const int64_t *tiles, int ring, const int *q, const int *k)
{
    double sum = 0.0;
    for (int s = 0; s < ring; s++) {
        int64_t most = 0;
        for (int r = 0; r < ring; r++) {
            const int64_t tile = tiles[q[r] * ring + k[(r - s + ring) % ring]];
            most = tile > most ? tile : most;
        }
        sum += (double)most;
    }
    return sum;
}

/* The best over all orders of rows and columns, by exchanging behind place `at` of 2 * ring. */
static double best_order(const int64_t *tiles, int ring, int *q, int *k, int at)
{
    if (at == 2 * ring)
        return tiles_time(tiles, ring, q, k);
    int *const side = at < ring ? q : k, from = at % ring;
    double best = INFINITY;
    for (int i = from; i < ring; i++) {
        int swap = side[from];
        side[from] = side[i];
        side[i] = swap;
        best = fmin(best, best_order(tiles, ring, q, k, at + 1));
        swap = side[from];
        side[from] = side[i];
        side[i] = swap;
    }
    return best;
}

/* One block per rank on each side, so that only their order is free; loads come from many heads. */
static void orders_of_single_blocks_are_near_their_optimum(void **state)
{
    (void)state;
    uint64_t random = 25;
    enum { HEADS = 16, RING = 4 };
    double ours = 0.0, best = 0.0;
    int met = 0, cases = 300;
    for (int round = 0; round < cases; round++) {
        uint8_t mask[HEADS * RING * RING] = {0};
        int64_t tiles[RING * RING];
        for (int t = 0; t < RING * RING; t++) {
            tiles[t] = below(&random, 3) ? below(&random, HEADS + 1) : 0;
            for (int h = 0; h < tiles[t]; h++)
                mask[h * RING * RING + t] = 1;
        }
        tess_work *work = mask_work(mask, HEADS, RING, RING);
        ring_plan plan;
        make_plan(
            &(tess__ring_job){
                .work = work, .heads = all_heads, .n = HEADS, .ring = RING, .reward = 0},
            &plan);
        const double least = best_order(tiles, RING, (int[]){0, 1, 2, 3}, (int[]){0, 1, 2, 3}, 0);
        assert_true(plan.result.after >= least);
        ours += plan.result.after;
        best += least;
        met += plan.result.after == least;
        tess_work_destroy(work);
    }
    print_message("%d of %d small rings are at their optimum; %.4f of it in all\n", met, cases,
                  ours / best);
    assert_true(ours <= 1.03 * best);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rings_with_even_sums_reach_their_optimum),
    cmocka_unit_test(cyclic_tiles_stay_as_they_are),
    cmocka_unit_test(each_ring_group_has_a_plan_of_its_own),
    cmocka_unit_test(two_ranks_with_even_sums_are_balanced),
    cmocka_unit_test(synthetic_masks_are_balanced),
    cmocka_unit_test(every_block_plan_keeps_the_invariants),
    cmocka_unit_test(without_masks_nothing_moves),
    cmocka_unit_test(a_reward_of_0_is_the_capped_greedy_and_a_huge_one_moves_nothing),
    cmocka_unit_test(orders_of_single_blocks_are_near_their_optimum),
};

RUN_TESTS_WITH(tests, set_up, tear_down)
