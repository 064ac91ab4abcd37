/* SPDX-License-Identifier: Apache-2.0 */
/* test_partition.c - whole heads to groups: published cases, invariants, the optimum of small
 * cases. */
#include "partition_data.h"

enum { MOST_HEADS = 48, MOST_GROUPS = 16 };

static const tess_plan_method methods[] = {TESS_PLAN_CONTIGUOUS, TESS_PLAN_SNAKE, TESS_PLAN_LPT,
                                           TESS_PLAN_DB_SP, TESS_PLAN_REFINED};
enum { METHODS = sizeof methods / sizeof *methods };

static int set_up(void **state)
{
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    space = new_space(ctx, 4096, 1024, 1, 0);
    return 0;
}

static void sums_of(const tess__heads *heads, const int32_t *group_of, int64_t *sums, int *counts)
{
    memset(sums, 0, (size_t)heads->groups * sizeof *sums);
    memset(counts, 0, (size_t)heads->groups * sizeof *counts);
    for (int h = 0; h < heads->heads; h++) {
        assert_in_range(group_of[h], 0, heads->groups - 1);
        sums[group_of[h]] += heads->loads[h];
        counts[group_of[h]]++;
    }
}

/* ---- published cases --------------------------------------------------------------------- */

static void check_sums(tess_plan_method method, const int64_t *loads, int n, int groups,
                       const int64_t *want)
{
    const tess__heads heads = {.heads = n, .groups = groups, .loads = loads};
    int32_t group_of[64];
    int64_t sums[16];
    int counts[16];
    split(space, &heads, method, group_of);
    sums_of(&heads, group_of, sums, counts);
    for (int g = 0; g < groups; g++)
        assert_int_equal(sums[g], want[g]);
}

static void db_sp_gives_the_published_sums(void **state)
{
    (void)state;
    check_sums(TESS_PLAN_CONTIGUOUS, (int64_t[]){4, 8, 0, 4}, 4, 2, (int64_t[]){12, 4});
    check_sums(TESS_PLAN_DB_SP, (int64_t[]){4, 8, 0, 4}, 4, 2, (int64_t[]){8, 8});
    int32_t group_of[4];
    const tess__heads a1 = {.heads = 4, .groups = 2, .loads = (int64_t[]){4, 8, 0, 4}};
    split(space, &a1, TESS_PLAN_DB_SP, group_of);
    assert_int_equal(group_of[1], 0);
    assert_int_equal(group_of[2], 0);
    assert_int_equal(group_of[0], 1);
    assert_int_equal(group_of[3], 1);
    check_sums(TESS_PLAN_DB_SP, (int64_t[]){2, 4, 3, 16, 13, 5, 9, 10}, 8, 4,
               (int64_t[]){18, 16, 14, 14});
    check_sums(TESS_PLAN_DB_SP, (int64_t[]){8, 7, 6, 5, 4, 2, 2, 2}, 8, 2, (int64_t[]){19, 17});
    check_sums(TESS_PLAN_REFINED, (int64_t[]){8, 7, 6, 5, 4, 2, 2, 2}, 8, 2, (int64_t[]){18, 18});
}

static void lpt_gives_the_published_sums(void **state)
{
    (void)state;
    const int64_t a4[] = {4, 5, 6, 7, 8};
    check_sums(TESS_PLAN_LPT, a4, 5, 2, (int64_t[]){17, 13});
    check_sums(TESS_PLAN_LPT, a4, 5, 3, (int64_t[]){8, 11, 11});
    const tess__heads heads = {.heads = 5, .groups = 2, .loads = a4};
    int32_t group_of[5];
    split(space, &heads, TESS_PLAN_REFINED, group_of);
    assert_int_equal(tess__heads_time(space, &heads, group_of), 15);
}

/* {2m-1, 2m-1, ..., m+1, m+1, m, m, m}: LPT has 4m - 1 where 3m would do. */
static void lpt_reaches_the_graham_bound_on_its_tight_family(void **state)
{
    (void)state;
    for (int m = 2; m <= 8; m++) {
        int64_t loads[32];
        int n = 0;
        for (int w = 2 * m - 1; w > m; w--)
            loads[n] = loads[n + 1] = w, n += 2;
        for (int i = 0; i < 3; i++)
            loads[n++] = m;
        const tess__heads heads = {.heads = n, .groups = m, .loads = loads};
        int32_t group_of[32];
        split(space, &heads, TESS_PLAN_LPT, group_of);
        assert_int_equal(tess__heads_time(space, &heads, group_of), 4 * m - 1);
        assert_int_equal(tess__heads_bound(space, &heads, TESS_PLAN_LPT), 3 * m);
    }
}

static void trivial_cases_are_even(void **state)
{
    (void)state;
    const int64_t equal[] = {7, 7, 7, 7, 7, 7, 7, 7}, zero[8] = {0},
                  one[] = {0, 0, 0, 9, 0, 0, 0, 0};
    for (int m = 0; m < METHODS; m++) {
        check_sums(methods[m], equal, 8, 4, (int64_t[]){14, 14, 14, 14});
        check_sums(methods[m], zero, 8, 4, (int64_t[]){0, 0, 0, 0});
        check_sums(methods[m], equal, 8, 1, (int64_t[]){56});
        check_sums(methods[m], equal, 8, 8, equal);
        int32_t group_of[8];
        const tess__heads alone = {.heads = 8, .groups = 4, .loads = one};
        split(space, &alone, methods[m], group_of);
        assert_int_equal(tess__heads_time(space, &alone, group_of), 9);
        assert_int_equal(tess__heads_bound(space, &alone, methods[m]), 9);
    }
}

static void snake_reverses_at_both_ends(void **state)
{
    (void)state;
    check_sums(TESS_PLAN_SNAKE, (int64_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8, 3,
               (int64_t[]){8 + 3 + 2, 7 + 4 + 1, 6 + 5});
}

/* Cap 2 and 2 groups of three: one group may have two heads, whichever asks first. */
static void db_sp_lets_as_many_groups_be_larger_as_heads_are_left_over(void **state)
{
    (void)state;
    check_sums(TESS_PLAN_DB_SP, (int64_t[]){9, 8, 1, 1}, 4, 3, (int64_t[]){9, 8, 2});
    check_sums(TESS_PLAN_DB_SP, (int64_t[]){9, 8, 7, 1, 1}, 5, 3, (int64_t[]){9, 9, 8});
}

/* Twice as fast takes twice as much. */
static void speeds_decide_by_time(void **state)
{
    (void)state;
    const int64_t loads[] = {6, 6, 6, 6, 6, 6}, speeds[] = {2, 1};
    const tess__heads heads = {.heads = 6, .groups = 2, .loads = loads, .speeds = speeds};
    int32_t group_of[6];
    split(space, &heads, TESS_PLAN_LPT, group_of);
    int64_t sums[2];
    int counts[2];
    sums_of(&heads, group_of, sums, counts);
    assert_int_equal(sums[0], 24);
    assert_int_equal(sums[1], 12);
    /* Mean speed 1.5: 24 at speed 2 and 12 at speed 1 both take as long as 18 at mean speed. */
    assert_int_equal(tess__heads_time(space, &heads, group_of), 18);
    assert_int_equal(tess__heads_bound(space, &heads, TESS_PLAN_LPT), 18);
}

/* ---- invariants --------------------------------------------------------------------------- */

static void random_speeds(uint64_t *random, int64_t *speeds, int groups)
{
    for (int g = 0; g < groups; g++)
        speeds[g] = 1 + below(random, below(random, 2) ? 4 : 1000000);
}

static void check_partition(const tess__heads *heads, tess_plan_method method,
                            const int32_t *group_of)
{
    int64_t sums[MOST_GROUPS], all = 0, again = 0;
    int counts[MOST_GROUPS];
    sums_of(heads, group_of, sums, counts);
    for (int h = 0; h < heads->heads; h++)
        all += heads->loads[h];
    const int floor = heads->heads / heads->groups;
    const int equal = heads->equal_heads || method == TESS_PLAN_DB_SP ||
                      method == TESS_PLAN_SNAKE || method == TESS_PLAN_CONTIGUOUS;
    for (int g = 0; g < heads->groups; g++) {
        again += sums[g];
        if (equal)
            assert_in_range(counts[g], floor, floor + (heads->heads % heads->groups != 0));
    }
    assert_int_equal(again, all);
    const int64_t time = tess__heads_time(space, heads, group_of);
    const int64_t bound = tess__heads_bound(space, heads, method);
    if (time < bound)
        fail_msg("time %" PRId64 " is below its bound %" PRId64, time, bound);
}

static void every_partition_keeps_the_invariants(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 10000; round++) {
        int64_t loads[MOST_HEADS], speeds[MOST_GROUPS];
        const int n = 1 + (int)below(&random, MOST_HEADS),
                  groups = 1 + (int)below(&random, MOST_GROUPS);
        random_loads(&random, loads, n);
        random_speeds(&random, speeds, groups);
        const tess__heads heads = {.heads = n,
                                   .groups = groups,
                                   .loads = loads,
                                   .speeds = below(&random, 3) ? NULL : speeds,
                                   .equal_heads = below(&random, 3) == 0};
        int32_t contiguous[MOST_HEADS], group_of[MOST_HEADS], again[MOST_HEADS];
        split(space, &heads, TESS_PLAN_CONTIGUOUS, contiguous);
        const int64_t before = tess__heads_time(space, &heads, contiguous);
        for (int m = 0; m < METHODS; m++) {
            split(space, &heads, methods[m], group_of);
            check_partition(&heads, methods[m], group_of);
            split(space, &heads, methods[m], again);
            assert_memory_equal(again, group_of, (size_t)n * sizeof *again);
            const int64_t after = tess__heads_time(space, &heads, group_of);
            if (methods[m] == TESS_PLAN_REFINED && after > before)
                fail_msg("refined takes %" PRId64 ", contiguous %" PRId64, after, before);
        }
    }
}

static void other_numbers_of_the_same_heads_give_the_same_groups(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (int round = 0; round < 1000; round++) {
        int64_t loads[MOST_HEADS], moved[MOST_HEADS];
        int32_t to[MOST_HEADS], group_of[MOST_HEADS], then[MOST_HEADS];
        const int n = 1 + (int)below(&random, MOST_HEADS),
                  groups = 1 + (int)below(&random, MOST_GROUPS);
        for (int h = 0; h < n; h++) {
            loads[h] = 1000 * below(&random, 1000) + h; /* no ties */
            to[h] = h;
        }
        for (int h = n - 1; h > 0; h--) {
            const int other = (int)below(&random, h + 1), swap = to[h];
            to[h] = to[other];
            to[other] = swap;
        }
        for (int h = 0; h < n; h++)
            moved[to[h]] = loads[h];
        const tess_plan_method sorted[] = {TESS_PLAN_SNAKE, TESS_PLAN_LPT, TESS_PLAN_DB_SP};
        for (int m = 0; m < 3; m++) {
            split(space, &(tess__heads){.heads = n, .groups = groups, .loads = loads}, sorted[m],
                  group_of);
            split(space, &(tess__heads){.heads = n, .groups = groups, .loads = moved}, sorted[m],
                  then);
            for (int h = 0; h < n; h++)
                assert_int_equal(then[to[h]], group_of[h]);
        }
    }
}

/* ---- the optimum of small cases ------------------------------------------------------------ */

typedef struct {
    const int64_t *loads;
    int n, groups, cap;
    int64_t sums[4], best;
    int counts[4];
} bound_search;

/* Branch and bound over heads in the order given. */
static void branch(bound_search *s, int h, int64_t most)
{
    if (most >= s->best)
        return;
    if (h == s->n) {
        s->best = most;
        return;
    }
    for (int g = 0; g < s->groups; g++) {
        if (s->counts[g] < s->cap) {
            s->sums[g] += s->loads[h];
            s->counts[g]++;
            branch(s, h + 1, s->sums[g] > most ? s->sums[g] : most);
            s->sums[g] -= s->loads[h];
            s->counts[g]--;
        }
        if (s->counts[g] == 0)
            return; /* all further groups are empty too */
    }
}

static int64_t optimum(const int64_t *loads, int n, int groups, int cap)
{
    bound_search s = {.loads = loads, .n = n, .groups = groups, .cap = cap, .best = INT64_MAX};
    branch(&s, 0, 0);
    return s.best;
}

/* Graham: LPT <= (4/3 - 1/(3m)) optimum, a theorem. For db-SP's cap it is what all known cases
 * keep: a failure here would be a discovery. */
static void small_cases_lie_between_the_optimum_and_grahams_bound(void **state)
{
    (void)state;
    uint64_t random = 3;
    int64_t refined_sum = 0, optimum_sum = 0, refined_best = 0, cases = 0;
    for (int round = 0; round < 3000; round++) {
        int64_t loads[10];
        int32_t group_of[10];
        const int m = 2 + (int)below(&random, 3), n = m * (1 + (int)below(&random, 10 / m));
        random_loads(&random, loads, n);
        const int64_t free = optimum(loads, n, m, n), capped = optimum(loads, n, m, n / m);
        tess__heads heads = {.heads = n, .groups = m, .loads = loads};
        for (int i = 0; i < METHODS; i++) {
            assert_true(
                tess__heads_bound(space, &heads, methods[i]) <=
                (methods[i] == TESS_PLAN_LPT || methods[i] == TESS_PLAN_REFINED ? free : capped));
            split(space, &heads, methods[i], group_of);
            const int64_t time = tess__heads_time(space, &heads, group_of);
            assert_true(time >= free);
            if (methods[i] == TESS_PLAN_LPT && time * 3 * m > (4 * m - 1) * free)
                fail_msg("LPT is above Graham's bound: %" PRId64 " of %" PRId64, time, free);
            if (methods[i] == TESS_PLAN_DB_SP && time * 3 * m > (4 * m - 1) * capped)
                fail_msg("db-SP is above Graham's bound: %" PRId64 " of %" PRId64 ", m = %d", time,
                         capped, m);
            if (methods[i] == TESS_PLAN_DB_SP && n == 2 * m)
                assert_int_equal(time, capped); /* the largest with the smallest */
            if (methods[i] == TESS_PLAN_REFINED) {
                refined_sum += time;
                optimum_sum += free;
                refined_best += time == free;
                cases++;
            }
        }
        heads.equal_heads = 1;
        split(space, &heads, TESS_PLAN_REFINED, group_of);
        assert_true(tess__heads_time(space, &heads, group_of) >= capped);
    }
    print_message("refined meets the optimum in %" PRId64 " of %" PRId64
                  " small cases, and is %.5f of it in all\n",
                  refined_best, cases, (double)refined_sum / (double)optimum_sum);
    assert_true(refined_sum * 1000 <= optimum_sum * 1005);
}

/* ---- published profiles -------------------------------------------------------------------- */

static void refined_balances_the_published_profile(void **state)
{
    (void)state;
    profile p = read_profile("wan2.1_14b_t2v.csv");
    double sum = 0.0;
    for (int cell = 0; cell < p.cells; cell++) {
        int64_t loads[64], total = 0;
        int32_t group_of[64];
        for (int h = 0; h < p.heads; h++)
            total += loads[h] = (int64_t)(p.density[cell * p.heads + h] * 1e9);
        const tess__heads heads = {.heads = p.heads, .groups = 8, .loads = loads};
        split(space, &heads, TESS_PLAN_REFINED, group_of);
        sum += 8.0 * (double)tess__heads_time(space, &heads, group_of) / (double)total;
    }
    print_message("refined on 8 ranks: mean imbalance %.4f\n", sum / p.cells);
    assert_true(sum / p.cells <= 1.02);
    free(p.density);
}

static void many_groups_are_as_valid_as_few(void **state)
{
    (void)state;
    uint64_t random = 4;
    static int64_t loads[4096];
    static int32_t group_of[4096];
    random_loads(&random, loads, 4096);
    const tess__heads heads = {.heads = 4096, .groups = 1024, .loads = loads};
    for (int m = 0; m < METHODS; m++) {
        split(space, &heads, methods[m], group_of);
        assert_true(tess__heads_time(space, &heads, group_of) >=
                    tess__heads_bound(space, &heads, methods[m]));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(db_sp_gives_the_published_sums),
    cmocka_unit_test(lpt_gives_the_published_sums),
    cmocka_unit_test(lpt_reaches_the_graham_bound_on_its_tight_family),
    cmocka_unit_test(trivial_cases_are_even),
    cmocka_unit_test(snake_reverses_at_both_ends),
    cmocka_unit_test(db_sp_lets_as_many_groups_be_larger_as_heads_are_left_over),
    cmocka_unit_test(speeds_decide_by_time),
    cmocka_unit_test(every_partition_keeps_the_invariants),
    cmocka_unit_test(other_numbers_of_the_same_heads_give_the_same_groups),
    cmocka_unit_test(small_cases_lie_between_the_optimum_and_grahams_bound),
    cmocka_unit_test(refined_balances_the_published_profile),
    cmocka_unit_test(many_groups_are_as_valid_as_few),
};

RUN_TESTS_WITH(tests, set_up, tear_down)
