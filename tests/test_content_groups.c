/* SPDX-License-Identifier: Apache-2.0 */
/* test_content_groups.c - queries of one head grouped by what they look for. */
#include "ctx_fixture.h"

#include "attn/attn_internal.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 96, DIM = 16, GROUPS = 6, EACH = TOKENS / GROUPS };

static void bounds_of(const int *sizes, int n, int64_t *bounds)
{
    bounds[0] = 0;
    for (int i = 0; i < n; i++)
        bounds[i + 1] = bounds[i] + sizes[i];
}

static void group(int threads, const float *q, int32_t n, const int64_t *bounds, int32_t *rows)
{
    tess_ctx *own = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &own));
    void *room = malloc(tess__content_bytes(bounds[n]));
    assert_non_null(room);
    const tess_view view = {.data = (void *)(uintptr_t)q, .dtype = TESS_DTYPE_F32, .stride_s = DIM};
    tess__content_groups(own, &view, DIM, n, bounds, room, rows);
    free(room);
    tess_ctx_destroy(own);
}

static void check_permutation(const int32_t *rows, int64_t n)
{
    uint8_t found[TOKENS] = {0};
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(rows[i], 0, n - 1);
        assert_false(found[rows[i]]++);
    }
}

/* Rows near one of GROUPS points of a line that is not an axis, in an order that mixes them. */
static void groups_are_the_bunches_that_rows_are_in(void **state)
{
    (void)state;
    static float q[TOKENS * DIM];
    const int sizes[GROUPS] = {EACH, EACH, EACH, EACH, EACH, EACH};
    int64_t bounds[GROUPS + 1];
    int32_t rows[TOKENS];
    CHECK_OK(tess_random_normal(1, 0, 0, q, TOKENS * DIM));
    for (int i = 0; i < TOKENS * DIM; i++)
        q[i] = 0.01f * q[i] + (float)(i / DIM * 5 % GROUPS) * (i % DIM % 2 ? 1.0f : -2.0f);
    bounds_of(sizes, GROUPS, bounds);
    group(1, q, GROUPS, bounds, rows);
    check_permutation(rows, TOKENS);
    for (int g = 0; g < GROUPS; g++)
        for (int i = g * EACH + 1; i < (g + 1) * EACH; i++) {
            assert_int_equal(rows[i] * 5 % GROUPS, rows[g * EACH] * 5 % GROUPS);
            assert_true(rows[i] > rows[i - 1]);
        }
}

static void threads_change_no_row(void **state)
{
    (void)state;
    static float q[TOKENS * DIM];
    const int sizes[] = {7, 20, 1, 30, 16, 9, 13};
    int64_t bounds[8];
    int32_t rows[3][TOKENS];
    CHECK_OK(tess_random_normal(2, 0, 0, q, TOKENS * DIM));
    bounds_of(sizes, 7, bounds);
    for (int threads = 1; threads <= 3; threads++)
        group(threads, q, 7, bounds, rows[threads - 1]);
    check_permutation(rows[0], TOKENS);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_memory_equal(rows[0], rows[2], sizeof rows[0]);
}

/* Equal rows, and rows that are no numbers, stay in order. */
static void ties_go_by_row_number(void **state)
{
    (void)state;
    static float q[TOKENS * DIM];
    const int sizes[] = {10, 50, 36};
    int64_t bounds[4];
    int32_t rows[TOKENS];
    bounds_of(sizes, 3, bounds);
    for (int nan = 0; nan < 2; nan++) {
        for (int i = 0; i < TOKENS * DIM; i++)
            q[i] = nan ? NAN : 3.0f;
        group(2, q, 3, bounds, rows);
        for (int i = 0; i < TOKENS; i++)
            assert_int_equal(rows[i], i);
    }
}

static void random_groups_follow_their_seed(void **state)
{
    (void)state;
    const int sizes[] = {48, 48};
    int64_t bounds[3];
    int32_t rows[3][TOKENS];
    bounds_of(sizes, 2, bounds);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tess__random_groups(7 + (uint64_t)(i / 2), 2, bounds, rows[i]));
    check_permutation(rows[0], TOKENS);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_memory_not_equal(rows[0], rows[2], sizeof rows[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_the_bunches_that_rows_are_in),
        cmocka_unit_test(threads_change_no_row),
        cmocka_unit_test(ties_go_by_row_number),
        cmocka_unit_test(random_groups_follow_their_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
