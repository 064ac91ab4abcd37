/* SPDX-License-Identifier: Apache-2.0 */
/* test_fractional.c - fractional heads and contiguous cuts: invariants, the fewest copies of small
 * cases by brute force, published profiles. */
#include "partition_data.h"

enum { MOST_HEADS = 24, MOST_RANKS = 40, MOST_BLOCKS = 40 };

static int set_up(void **state)
{
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    space = new_space(ctx, 1024, 1024, 2048, 0);
    return 0;
}

static tess_work *weights_work(const int64_t *weights, int heads, int32_t blocks)
{
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_weights(ctx, weights, 1, heads, blocks, &work));
    return work;
}

/* Masks whose rows have random, very unequal numbers of blocks. */
static tess_work *random_masks(uint64_t *random, int heads, int32_t blocks)
{
    static uint8_t mask[MOST_HEADS * MOST_BLOCKS * MOST_BLOCKS];
    for (int h = 0; h < heads; h++)
        for (int32_t q = 0; q < blocks; q++) {
            const int64_t share = below(random, 4) ? below(random, 100) : 0;
            for (int32_t k = 0; k < blocks; k++)
                mask[(h * blocks + q) * blocks + k] = below(random, 100) < share;
        }
    return mask_work(mask, heads, blocks, blocks);
}

static int64_t share_load(const tess_work *work, const tess_share *share)
{
    return tess__work_prefix(work, 0, share->head, share->q_end) -
           tess__work_prefix(work, 0, share->head, share->q_begin);
}

/* ---- invariants ---------------------------------------------------------------------------- */

/* Every block of every head once, ascending by rank and head; the time is that of the loads. */
static void check_shares(const tess__fraction_job *job, const tess_share *shares,
                         const tess__fraction_result *result)
{
    const tess_work_info *info = &job->work->info;
    int32_t *covered = calloc((size_t)info->heads, sizeof *covered);
    int64_t loads[1024] = {0}, speeds = 0;
    for (int64_t i = 0; i < result->n; i++) {
        const tess_share *s = &shares[i];
        assert_in_range(s->rank, 0, job->ranks - 1);
        assert_in_range(s->head, 0, info->heads - 1);
        assert_true(s->q_begin < s->q_end);
        if (i > 0)
            assert_true(s->rank > shares[i - 1].rank ||
                        (s->rank == shares[i - 1].rank && s->head > shares[i - 1].head));
        covered[s->head] += s->q_end - s->q_begin;
        loads[s->rank] += share_load(job->work, s);
        for (int64_t j = 0; j < i; j++)
            assert_false(shares[j].head == s->head && shares[j].q_begin < s->q_end &&
                         s->q_begin < shares[j].q_end);
    }
    for (int h = 0; h < info->heads; h++)
        assert_int_equal(covered[h], info->q_blocks);
    free(covered);
    for (int p = 0; p < job->ranks; p++)
        speeds += job->speeds ? job->speeds[p] : 1;
    int64_t most = 0;
    for (int p = 0; p < job->ranks; p++) {
        const __int128 per = (__int128)(job->speeds ? job->speeds[p] : 1) * job->ranks;
        const int64_t time = (int64_t)(((__int128)loads[p] * speeds + per - 1) / per);
        most = time > most ? time : most;
    }
    assert_int_equal(result->time, most);
    assert_int_equal(result->copies, result->n - info->heads);
    assert_true(result->copies <= job->ranks - 1);
}

static int64_t largest_block(const tess_work *work)
{
    int64_t most = 0;
    for (int h = 0; h < work->info.heads; h++)
        for (int32_t g = 0; g < work->info.q_blocks; g++) {
            const int64_t load =
                tess__work_prefix(work, 0, h, g + 1) - tess__work_prefix(work, 0, h, g);
            most = load > most ? load : most;
        }
    return most;
}

/* Filling ranks one after the other needs at most the mean and one block; the limit is found within
 * a 4096th of itself, and may have the slack from the start. */
static void check_balance(const tess__fraction_job *job, const tess__fraction_result *result)
{
    int64_t load = 0;
    for (int h = 0; h < job->work->info.heads; h++)
        load += tess__work_head(job->work, 0, h);
    const int64_t mean = load / job->ranks + 1, block = largest_block(job->work);
    const int64_t limit = mean + mean / 250 + block + (mean + block) / 2048 + 2;
    if (result->time > limit)
        fail_msg("time %" PRId64 ", mean %" PRId64 " and block %" PRId64, result->time, mean,
                 block);
    const int64_t bound = tess__fractional_bound(job->work, 0, job->ranks, job->speeds);
    assert_true(result->time >= bound);
}

static void every_fractional_plan_keeps_the_invariants(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (int round = 0; round < 10000; round++) {
        int64_t weights[MOST_HEADS];
        int32_t speeds[MOST_RANKS];
        const int heads = 1 + (int)below(&random, MOST_HEADS),
                  ranks = 1 + (int)below(&random, MOST_RANKS);
        const int32_t blocks = 1 + (int32_t)below(&random, MOST_BLOCKS);
        random_loads(&random, weights, heads);
        for (int p = 0; p < ranks; p++)
            speeds[p] = 1 + (int32_t)below(&random, 10);
        tess_work *work =
            round % 4 ? weights_work(weights, heads, blocks) : random_masks(&random, heads, blocks);
        const tess__fraction_job job = {.work = work,
                                        .ranks = ranks,
                                        .nodes = 1 + (int)below(&random, 4),
                                        .speeds = below(&random, 4) ? NULL : speeds,
                                        .slack = (int)below(&random, 3) - 1};
        tess_share shares[MOST_HEADS + MOST_RANKS], again[MOST_HEADS + MOST_RANKS];
        tess__fraction_result result, then;
        tess__fractional(space, &job, shares, &result);
        check_shares(&job, shares, &result);
        if (!job.speeds)
            check_balance(&job, &result);
        tess__fractional(space, &job, again, &then);
        assert_int_equal(then.n, result.n);
        assert_memory_equal(again, shares, (size_t)result.n * sizeof *shares);
        tess_work_destroy(work);
    }
}

static void edge_cases_have_the_only_plan_there_is(void **state)
{
    (void)state;
    tess_share shares[16];
    tess__fraction_result result;
    /* No work at all: every head whole somewhere, spread over ranks. */
    tess_work *work = weights_work((int64_t[]){0, 0, 0}, 3, 8);
    tess__fraction_job job = {.work = work, .ranks = 2, .nodes = 1};
    tess__fractional(space, &job, shares, &result);
    check_shares(&job, shares, &result);
    assert_int_equal(result.time, 0);
    assert_int_equal(result.n, 3);
    assert_int_equal(shares[0].rank, 0);
    assert_int_equal(shares[2].rank, 1);
    tess_work_destroy(work);
    /* Fewer blocks of work than ranks: one each, and ranks without. */
    work = weights_work((int64_t[]){30, 0}, 2, 3);
    job = (tess__fraction_job){.work = work, .ranks = 7, .nodes = 1};
    tess__fractional(space, &job, shares, &result);
    check_shares(&job, shares, &result);
    assert_int_equal(result.time, 10);
    assert_int_equal(result.n, 4);
    tess_work_destroy(work);
    /* Four heads on three ranks, as docs/planning.md draws it. */
    work = weights_work((int64_t[]){72, 36, 24, 12}, 4, 12);
    job = (tess__fraction_job){.work = work, .ranks = 3, .nodes = 1};
    tess__fractional(space, &job, shares, &result);
    check_shares(&job, shares, &result);
    assert_int_equal(result.time, 48);
    assert_int_equal(result.copies, 1);
    tess_work_destroy(work);
}

/* Twelve equal heads on eight ranks are four runs of three heads on two ranks: each in a node. */
static void runs_stay_inside_nodes(void **state)
{
    (void)state;
    int64_t weights[13];
    for (int h = 0; h < 12; h++)
        weights[h] = 1200;
    weights[12] = 1800; /* and a rank of its own, which shifts the others by one */
    tess_work *work = weights_work(weights, 13, 100);
    const tess__fraction_job job = {.work = work, .ranks = 9, .nodes = 3};
    tess_share shares[32];
    tess__fraction_result result;
    tess__fractional(space, &job, shares, &result);
    check_shares(&job, shares, &result);
    assert_int_equal(result.copies, 4);
    int crossing = 0;
    for (int h = 0; h < 13; h++) {
        int first = -1;
        for (int64_t i = 0; i < result.n; i++)
            if (shares[i].head == h) {
                first = first < 0 ? shares[i].rank / 3 : first;
                crossing += shares[i].rank / 3 != first;
            }
    }
    /* Nodes of three hold one run of two each, and one of them the single rank: the fourth run
     * cannot stay inside. */
    assert_int_equal(crossing, 1);
    tess_work_destroy(work);
}

/* ---- the fewest copies, by brute force ------------------------------------------------------ */

typedef struct {
    int heads, ranks, blocks;
    const int64_t *block_load; /* (heads) */
    int64_t limit, *loads;     /* loads (ranks), all 0 */
    int best;                  /* shares */
} brute;

static void brute_head(brute *b, int head, int shares);

/* Gives `left` blocks of a head to ranks from p on. */
static void brute_rank(brute *b, int head, int p, int left, int shares)
{
    if (shares + (left > 0) + b->heads - head - 1 >= b->best)
        return;
    if (left == 0) {
        brute_head(b, head + 1, shares);
        return;
    }
    if (p == b->ranks)
        return;
    brute_rank(b, head, p + 1, left, shares);
    for (int n = 1; n <= left && b->loads[p] + n * b->block_load[head] <= b->limit; n++) {
        b->loads[p] += n * b->block_load[head];
        brute_rank(b, head, p + 1, left - n, shares + 1);
        b->loads[p] -= n * b->block_load[head];
    }
}

static void brute_head(brute *b, int head, int shares)
{
    if (head == b->heads)
        b->best = shares;
    else
        brute_rank(b, head, 0, b->blocks, shares);
}

/* Any set of blocks may go anywhere here, also in ways that no line of ranks can do. */
static void copies_are_within_a_twentieth_of_the_fewest(void **state)
{
    (void)state;
    uint64_t random = 12;
    int64_t ours = 0, fewest = 0, met = 0, cases = 0;
    for (int round = 0; round < 2000; round++) {
        const int heads = 2 + (int)below(&random, 6), ranks = 2 + (int)below(&random, 3),
                  blocks = 2 + (int)below(&random, heads > 5 ? 3 : 5);
        int64_t weights[8], block_load[8];
        for (int h = 0; h < heads; h++) {
            block_load[h] = 1 + below(&random, below(&random, 2) ? 8 : 60);
            weights[h] = block_load[h] * blocks;
        }
        tess_work *work = weights_work(weights, heads, blocks);
        const tess__fraction_job job = {.work = work, .ranks = ranks, .nodes = 1};
        tess_share shares[16];
        tess__fraction_result result;
        tess__fractional(space, &job, shares, &result);
        check_shares(&job, shares, &result);
        int64_t loads[4] = {0};
        brute b = {.heads = heads,
                   .ranks = ranks,
                   .blocks = blocks,
                   .block_load = block_load,
                   .limit = result.time,
                   .loads = loads,
                   .best = (int)result.n};
        brute_head(&b, 0, 0);
        ours += result.n;
        fewest += b.best;
        met += b.best == result.n;
        cases++;
        tess_work_destroy(work);
    }
    print_message("%" PRId64 " of %" PRId64 " small cases have the fewest copies; %" PRId64
                  " shares where %" PRId64 " would do\n",
                  met, cases, ours, fewest);
    assert_true(ours * 100 <= fewest * 105);
}

/* ---- published profiles --------------------------------------------------------------------- */

static void check_profile(const char *name, int64_t tokens, int ranks, double mean, double worst)
{
    profile p = read_profile(name);
    double sum = 0.0, most = 0.0, copies = 0.0;
    for (int cell = 0; cell < p.cells; cell++) {
        tess_work *work = NULL;
        CHECK_OK(
            tess_work_from_density(ctx, p.density + cell * p.heads, 1, p.heads, tokens, 64, &work));
        const tess__fraction_job job = {.work = work, .ranks = ranks, .nodes = 1};
        tess_share shares[256];
        tess__fraction_result result;
        tess__fractional(space, &job, shares, &result);
        check_shares(&job, shares, &result);
        const double rho = (double)result.time * ranks / (double)work->info.total;
        sum += rho;
        most = rho > most ? rho : most;
        copies += (double)result.n / p.heads;
        tess_work_destroy(work);
    }
    print_message("%s on %d ranks: imbalance %.4f, worst %.4f, %.3f copies per head\n", name, ranks,
                  sum / p.cells, most, copies / p.cells);
    assert_true(sum / p.cells <= mean);
    assert_true(most <= worst);
    free(p.density);
}

static void fractional_heads_balance_the_published_profiles(void **state)
{
    (void)state;
    const int ranks[] = {4, 7, 8, 16, 64};
    for (int i = 0; i < 5; i++) {
        check_profile("wan2.1_1.3b_t2v.csv", 32760, ranks[i], ranks[i] == 64 ? 1.03 : 1.01, 1.06);
        check_profile("wan2.1_14b_t2v.csv", 75600, ranks[i], 1.01, 1.06);
    }
}

/* ---- contiguous cuts ------------------------------------------------------------------------ */

/* The least that the busiest of `parts` ranges of blocks [from, n) can have. */
static int64_t best_cut(const int64_t *prefix, int n, int from, int parts)
{
    if (parts == 1)
        return prefix[n] - prefix[from];
    int64_t best = INT64_MAX;
    for (int to = from; to <= n; to++) {
        const int64_t first = prefix[to] - prefix[from], rest = best_cut(prefix, n, to, parts - 1);
        const int64_t most = first > rest ? first : rest;
        best = most < best ? most : best;
    }
    return best;
}

static void cuts_by_work_are_the_best_there_are(void **state)
{
    (void)state;
    uint64_t random = 13;
    for (int round = 0; round < 2000; round++) {
        const int heads = 1 + (int)below(&random, 3), parts = 1 + (int)below(&random, 4);
        const int32_t blocks = 1 + (int32_t)below(&random, 10);
        tess_work *work = random_masks(&random, heads, blocks);
        int64_t prefix[16] = {0};
        for (int32_t g = 0; g <= blocks; g++)
            for (int h = 0; h < heads; h++)
                prefix[g] += tess__work_prefix(work, 0, h, g);
        int32_t cuts[8];
        tess__cuts_by_work(space, work, 0, NULL, heads, parts, NULL, cuts);
        int64_t most = 0;
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[parts], blocks);
        for (int p = 0; p < parts; p++) {
            assert_true(cuts[p] <= cuts[p + 1]);
            const int64_t load = prefix[cuts[p + 1]] - prefix[cuts[p]];
            most = load > most ? load : most;
        }
        assert_int_equal(most, best_cut(prefix, blocks, 0, parts));
        tess_work_destroy(work);
    }
}

static void cuts_follow_speeds_and_are_even_without_work(void **state)
{
    (void)state;
    int32_t cuts[8];
    tess_work *work = weights_work((int64_t[]){1200}, 1, 12);
    tess__cuts_by_work(space, work, 0, NULL, 1, 3, (int32_t[]){3, 2, 1}, cuts);
    assert_memory_equal(cuts, ((int32_t[]){0, 6, 10, 12}), 4 * sizeof *cuts);
    tess_work_destroy(work);
    work = weights_work((int64_t[]){0}, 1, 5);
    tess__cuts_by_work(space, work, 0, NULL, 1, 3, NULL, cuts);
    assert_memory_equal(cuts, ((int32_t[]){0, 2, 4, 5}), 4 * sizeof *cuts);
    tess__cuts_by_work(space, work, 0, NULL, 1, 7, NULL, cuts);
    assert_int_equal(cuts[7], 5);
    tess_work_destroy(work);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_fractional_plan_keeps_the_invariants),
    cmocka_unit_test(edge_cases_have_the_only_plan_there_is),
    cmocka_unit_test(runs_stay_inside_nodes),
    cmocka_unit_test(copies_are_within_a_twentieth_of_the_fewest),
    cmocka_unit_test(fractional_heads_balance_the_published_profiles),
    cmocka_unit_test(cuts_by_work_are_the_best_there_are),
    cmocka_unit_test(cuts_follow_speeds_and_are_even_without_work),
};

RUN_TESTS_WITH(tests, set_up, tear_down)
