/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_forward.c - the forward kernels in the emulation: error, bits, conflicts, bytes. */
#include "gpu_passes.h"

#include <stdlib.h>

/* Each kernel, groups that are cut into tiles, that are ragged, units that are not whole. */
static const gpu_problem problems[] = {
    {1, 2, 64, 40, 200, 16, 1, 0.4, 0},
    {2, 2, 64, 128, 200, 32, 1, 0.3, TOKEN_MAJOR},
    {1, 2, 64, 130, 333, 64, 1, 0.5, 0},
    {1, 1, 64, 200, 300, 200, 8, 0.4, FULL},
    {1, 2, 128, 30, 211, 11, 1, 0.4, 0},
    {1, 2, 128, 100, 300, 32, 64, 0.5, 0},
    {1, 2, 128, 193, 333, 64, 1, 0.2, TOKEN_MAJOR},
    {1, 1, 128, 260, 300, 128, 16, 0.4, 0},
    {1, 2, 64, 137, 150, 0, 1, 0.4, 0},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* Every seed is an order of blocks, warps and lanes. */
static void test_error_and_bits(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++)
        for (int fp16 = 0; fp16 < (SANITIZED ? 1 : 2); fp16++) {
            const u32 orders = SANITIZED ? 4 : 16;
            gpu_problem p = problems[i];
            p.options |= APART | (fp16 ? FP16 : 0);
            gpu_case c = make_case(&p, (uint64_t)(10 * i + 1));
            const size_t bytes = device_bytes(&c, GPU_O);
            const size_t lse_bytes = (size_t)(p.batch * p.heads * p.tq) * sizeof *c.lse;
            forward_pass(&c, 0);
            check_output(&c, c.o, c.lse);
            u16 *const o = memcpy(malloc(bytes), c.o, bytes);
            float *const lse = memcpy(malloc(lse_bytes), c.lse, lse_bytes);
            for (u32 seed = 1; seed < orders; seed++) {
                spoilt(c.o, bytes);
                spoilt(c.lse, lse_bytes);
                forward_pass(&c, seed);
                assert_memory_equal(c.o, o, bytes);
                assert_memory_equal(c.lse, lse, lse_bytes);
            }
            free(o);
            free(lse);
            free_case(&c);
        }
}

/* Rows of K and V: 4 D bytes for each key and block of BM queries, which make 4 D BM flop of it. Q
 * comes once. No two rows of a matrix are in the same banks. */
static void test_bytes_per_flop(void **state)
{
    (void)state;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int group = 16; group <= 128; group *= 2) {
            const gpu_problem p = {1, 1, dim, 2 * group, 512, group, 1, 1.0, FULL};
            gpu_case c = make_case(&p, 5);
            emulation_reset();
            forward_pass(&c, 0);
            const emulation_counts n = emulation_read();
            const i64 flop = n.mma * 2 * 16 * 8 * 16, q_bytes = p.tq * dim * 2;
            assert_int_equal(n.conflicts, 0);
            assert_true(n.ldmatrix > 0);
            assert_int_equal(flop, 4 * p.tq * p.tk * dim);
            assert_int_equal((n.copied_bytes - q_bytes) * group, flop);
            free_case(&c);
        }
}

/* A NaN in one query stays in its row; a query without keys has o = 0 and lse = -inf. */
static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    const gpu_problem p = problems[2];
    gpu_case c = make_case(&p, 3);
    const int d = p.dim;
    forward_pass(&c, 0);
    u16 *const o = malloc((size_t)(p.heads * p.tq * d) * sizeof *o);
    memcpy(o, c.o, (size_t)(p.heads * p.tq * d) * sizeof *o);
    c.q[5 * d + 7] = 0x7fff;
    forward_pass(&c, 0);
    for (int64_t i = 0; i < p.heads * p.tq * d; i++)
        if (i / d == 5)
            assert_true((c.o[i] & 0x7fff) > 0x7f80);
        else
            assert_int_equal(c.o[i], o[i]);
    assert_true(isnan(c.lse[5]));
    const int64_t row = p.tq + c.bounds_q[0]; /* list 3 is group 0 of head 1: it is empty */
    assert_int_equal(c.lists.offsets[3], c.lists.offsets[4]);
    assert_true(c.lse[row] == -INFINITY);
    assert_int_equal(c.o[row * d], 0);
    free(o);
    free_case(&c);
}

/* Logits of +-100: the softmax is that of their differences. */
static void test_large_logits(void **state)
{
    (void)state;
    for (int i = 2; i < PROBLEMS; i += 2) {
        gpu_case c = make_case(&problems[i], (uint64_t)(90 + i));
        make_large_logits(&c);
        forward_pass(&c, 2);
        check_output(&c, c.o, c.lse);
        free_case(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_error_and_bits),
    cmocka_unit_test(test_bytes_per_flop),
    cmocka_unit_test(test_nan_stays_in_its_row),
    cmocka_unit_test(test_large_logits),
};
RUN_GPU_TESTS(tests)
