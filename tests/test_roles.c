/* SPDX-License-Identifier: Apache-2.0 */
/* test_roles.c - selections whose tokens have roles: the lists, and attention on them forward and
 * backward against the double-precision reference. */
#include "attn_data.h"

static const tess_row_range pinned[] = {{0, 5}, {7, 1}, {8, 2}, {40, 30}},
                            dense[] = {{3, 1}, {64, 9}};
static const tess_token_roles roles = {pinned, 4, dense, 2};

static int has(const tess_row_range *ranges, int n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < n; i++)
            if (row >= ranges[i].first && row < ranges[i].first + ranges[i].n)
                return 1;
    return 0;
}

static int lists_unit(const tess_selection_lists *l, int64_t list, int32_t unit)
{
    for (int64_t i = l->offsets[list]; i < l->offsets[list + 1]; i++)
        if (l->indices[i] == unit)
            return 1;
    return 0;
}

static const problem problems[] = {
    PROBLEM(1, 2, 64, 128, 300, LISTS(RANDOM, 8, 1, 0.1), .dlse = 1, .roles = &roles),
    PROBLEM(2, 2, 64, 137, 211, LISTS(RANDOM, 0, 0, 0.3), .dlse = 1, .compensate = 1,
            .roles = &roles),
    PROBLEM(1, 2, 72, 100, 200, LISTS(RANDOM, 16, 16, 0.2), .dlse = 1, .compensate = 5,
            .roles = &roles),
    PROBLEM(1, 3, 48, 80, 120, LISTS(EMPTY_ROWS, 1, 1, 0.2), .token_major = 1, .roles = &roles),
    PROBLEM(1, 1, 8, 80, 100, LISTS(FULL, 8, 4, 1.0), .roles = &roles),
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

/* Every unit is listed that was, that has a pinned key, or whose group has a dense query; no other.
 */
static void lists_gain_what_roles_ask_for_and_no_more(void **state)
{
    for (int i = 0; i < PROBLEMS; i++) {
        problem without = problems[i];
        without.roles = NULL;
        tess_selection *before = make_selection(*state, &without),
                       *after = make_selection(*state, &problems[i]);
        tess_selection_lists a, b;
        CHECK_OK(tess_selection_view(before, &a));
        CHECK_OK(tess_selection_view(after, &b));
        for (int64_t list = 0; list < a.lists; list++) {
            const int64_t *group = a.shape.bounds_q + list % a.shape.n_q;
            const int full = has(dense, 2, group[0], group[1]);
            for (int32_t u = 0; u < a.shape.n_k; u++) {
                const int want = full ||
                                 has(pinned, 4, a.shape.bounds_k[u], a.shape.bounds_k[u + 1]) ||
                                 lists_unit(&a, list, u);
                assert_int_equal(lists_unit(&b, list, u), want);
            }
        }
        /* A second time there is nothing left to add. */
        const int64_t n = b.offsets[b.lists];
        CHECK_OK(tess_selection_roles(after, &roles));
        CHECK_OK(tess_selection_view(after, &b));
        assert_int_equal(b.offsets[b.lists], n);
        tess_selection_destroy(before);
        tess_selection_destroy(after);
    }
}

/* The role belongs to the query's row, wherever the groups have it. */
static void rows_by_content_keep_their_roles(void **state)
{
    enum { TOKENS = 80, GROUPS = 10 };
    const problem p = PROBLEM(1, 1, 8, TOKENS, TOKENS, LISTS(RANDOM, 8, 1, 0.0));
    tess_selection *sel = make_selection(*state, &p);
    int32_t rows[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        rows[i] = i * 27 % TOKENS;
    tess__selection_rows(sel, rows);
    CHECK_OK(tess_selection_roles(sel, &(tess_token_roles){.dense_q = dense, .n_dense_q = 2}));
    tess_selection_lists l;
    CHECK_OK(tess_selection_view(sel, &l));
    for (int g = 0; g < GROUPS; g++) {
        int full = 0;
        for (int i = 8 * g; i < 8 * g + 8; i++)
            full |= has(dense, 2, rows[i], rows[i] + 1);
        assert_int_equal(l.offsets[g + 1] - l.offsets[g], full ? TOKENS : 0);
    }
    tess_selection_destroy(sel);
}

static void attention_on_roles_matches_the_reference_on_every_isa(void **state)
{
    (void)state;
    check_on_every_isa(problems, PROBLEMS);
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++)
        check_bits_of_any_threads(&problems[i]);
}

/* A dense query has dense attention's bits, virtual keys or not. */
static void dense_queries_have_the_bits_of_dense_attention(void **state)
{
    tess_ctx *ctx = *state;
    for (int compensate = 0; compensate <= 4; compensate += 4) {
        const problem p = PROBLEM(1, 2, 64, 128, 300, LISTS(RANDOM, 1, 1, 0.1),
                                  .compensate = compensate, .roles = &roles);
        setting sparse = make(ctx, &p), all = make(ctx, &p);
        tess_selection_destroy(all.sel);
        all.sel = NULL;
        run(ctx, &sparse);
        run(ctx, &all);
        for (int h = 0; h < 2; h++)
            for (int row = 0; row < 128; row++) {
                const float *a = tess__view_row(&sparse.vo, 0, h, row);
                const float *b = tess__view_row(&all.vo, 0, h, row);
                assert_int_equal(memcmp(a, b, 64 * sizeof *a) == 0, has(dense, 2, row, row + 1));
            }
        drop(&sparse);
        drop(&all);
    }
}

static void refuse(tess_selection *sel, const tess_token_roles *r, const char *sentence)
{
    assert_int_equal(tess_selection_roles(sel, r), TESS_EINVAL);
    assert_string_equal(tess_last_error(), sentence);
}

static void bad_roles_are_refused_and_change_nothing(void **state)
{
    const tess_sel_shape shape = {
        .batch = 1, .heads = 1, .tokens_q = 16, .tokens_k = 16, .group = 8, .unit = 4};
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(*state, &shape, 5, &sel));
    CHECK_OK(tess_selection_set_lists(sel, (int64_t[]){0, 1, 2}, (int32_t[]){1, 3}));
    const tess_row_range across[] = {{4, 4}, {7, 2}}, behind[] = {{15, 2}}, none[] = {{3, 0}},
                         some[] = {{0, 9}}, last[] = {{15, 1}};
    refuse(sel, &(tess_token_roles){.pinned_k = across, .n_pinned_k = 2},
           "tess_selection_roles: pinned_k[1] is 2 rows from 7 on, must be 1 or more of 8..15");
    refuse(sel, &(tess_token_roles){.dense_q = behind, .n_dense_q = 1},
           "tess_selection_roles: dense_q[0] is 2 rows from 15 on, must be 1 or more of 0..15");
    refuse(sel, &(tess_token_roles){.pinned_k = none, .n_pinned_k = 1},
           "tess_selection_roles: pinned_k[0] is 0 rows from 3 on, must be 1 or more of 0..15");
    refuse(sel, &(tess_token_roles){.pinned_k = NULL, .n_pinned_k = 1},
           "tess_selection_roles: pinned_k is NULL, n is 1");
    refuse(sel, &(tess_token_roles){.n_dense_q = -1},
           "tess_selection_roles: n_dense_q is -1, must be 0 or more");
    refuse(sel, &(tess_token_roles){some, 1, last, 1},
           "tess_selection_roles: 7 indices, the selection has room for 5");
    tess_selection_lists l;
    CHECK_OK(tess_selection_view(sel, &l));
    assert_int_equal(l.offsets[2], 2);
    assert_int_equal(l.indices[0], 1);
    assert_int_equal(l.indices[1], 3);
    CHECK_OK(tess_selection_roles(sel, &(tess_token_roles){.dense_q = last, .n_dense_q = 1}));
    CHECK_OK(tess_selection_view(sel, &l));
    assert_memory_equal(l.indices, ((int32_t[]){1, 0, 1, 2, 3}), 5 * sizeof(int32_t));
    tess_selection_destroy(sel);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(lists_gain_what_roles_ask_for_and_no_more, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(rows_by_content_keep_their_roles, make_ctx, drop_ctx),
    cmocka_unit_test(attention_on_roles_matches_the_reference_on_every_isa),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test_setup_teardown(dense_queries_have_the_bits_of_dense_attention, make_ctx,
                                    drop_ctx),
    cmocka_unit_test_setup_teardown(bad_roles_are_refused_and_change_nothing, make_ctx, drop_ctx),
};
RUN_TESTS(tests)
