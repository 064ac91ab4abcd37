/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_lists.c - lists by key and units as rows, against loops over the lists. */
#include "gpu_passes.h"

#include <stdlib.h>

static const gpu_problem problems[] = {
    {2, 2, 64, 100, 700, 3, 1, 0.3, 0},
    {1, 1, 64, 40, 513, 1, 2, 0.1, 0},
    {1, 2, 64, 64, 256, 64, 1, 1.0, FULL},
    {1, 1, 64, 7, 5, 2, 1, 0.0, 0},
};

static void test_entries_by_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        gpu_case c = make_case(&problems[i], 20 + i);
        const int heads = c.p.batch * c.p.heads, n_q = c.lists.shape.n_q, n_k = c.lists.shape.n_k;
        const size_t n = (size_t)c.lists.offsets[c.lists.lists];
        int *const first = malloc((size_t)(heads * (n_k + 1)) * sizeof(int));
        int *const group = malloc(n * sizeof(int) + 1), *const place = malloc(n * sizeof(int) + 1);
        const tess_gpu_transpose_args args = {lists_of(&c), first, group, place};
        for (u32 seed = 0; seed < 16; seed++) {
            transpose_lists(&args, heads, seed);
            for (int h = 0; h < heads; h++) {
                const int64_t base = c.lists.offsets[(int64_t)h * n_q];
                const int *const f = first + h * (n_k + 1);
                for (int u = 0; u < n_k; u++) {
                    int at = f[u];
                    for (int g = 0; g < n_q; g++)
                        for (int64_t j = c.lists.offsets[h * n_q + g];
                             j < c.lists.offsets[h * n_q + g + 1]; j++)
                            if (c.lists.indices[j] == u) {
                                assert_int_equal(group[base + at], g);
                                assert_int_equal(place[base + at], j - base);
                                at++;
                            }
                    assert_int_equal(at, f[u + 1]);
                }
                assert_int_equal(f[n_k], c.lists.offsets[(int64_t)(h + 1) * n_q] - base);
            }
        }
        free(first);
        free(group);
        free(place);
        free_case(&c);
    }
}

static void test_units_become_rows(void **state)
{
    (void)state;
    const gpu_problem p = {2, 1, 64, 50, 900, 7, 0, 0.4, 0};
    gpu_case c = make_case(&p, 9);
    const tess_selection_lists *const l = &c.lists;
    int bounds_k[100];
    for (int u = 0; u <= l->shape.n_k; u++)
        bounds_k[u] = (int)l->shape.bounds_k[u];
    long long *const row_offsets = malloc((size_t)(l->lists + 1) * sizeof *row_offsets);
    row_offsets[0] = 0;
    for (int64_t i = 0; i < l->lists; i++) {
        row_offsets[i + 1] = row_offsets[i];
        for (int64_t j = l->offsets[i]; j < l->offsets[i + 1]; j++)
            row_offsets[i + 1] += bounds_k[l->indices[j] + 1] - bounds_k[l->indices[j]];
    }
    int *const rows = malloc((size_t)row_offsets[l->lists] * sizeof *rows);
    const tess_gpu_expand_args args = {(const long long *)l->offsets, l->indices, bounds_k,
                                       row_offsets, rows};
    for (u32 seed = 0; seed < 16; seed++) {
        i64 at = 0;
        memset(rows, 0xff, (size_t)row_offsets[l->lists] * sizeof *rows);
        launch("expand_units", &args, l->lists, seed);
        for (int64_t j = 0; j < l->offsets[l->lists]; j++)
            for (int r = bounds_k[l->indices[j]]; r < bounds_k[l->indices[j] + 1]; r++)
                assert_int_equal(rows[at++], r);
        assert_int_equal(at, row_offsets[l->lists]);
    }
    free(row_offsets);
    free(rows);
    free_case(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_entries_by_key),
    cmocka_unit_test(test_units_become_rows),
};
RUN_GPU_TESTS(tests)
