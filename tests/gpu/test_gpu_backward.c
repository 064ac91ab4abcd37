/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_backward.c - the backward kernels in the emulation: error, bits, rounds, conflicts. */
#include "gpu_passes.h"

static const gpu_problem token_problems[] = {
    {1, 2, 64, 70, 130, 32, 1, 0.4, 0}, {2, 1, 64, 130, 150, 64, 4, 0.4, TOKEN_MAJOR},
    {1, 2, 128, 70, 90, 20, 1, 0.5, 0}, {1, 1, 128, 150, 130, 100, 1, 0.4, FULL},
    {1, 2, 64, 95, 100, 0, 1, 0.4, 0},
};
static const gpu_problem block_problems[] = {
    {1, 2, 64, 130, 200, 64, 64, 0.5, FULL}, {2, 1, 64, 137, 150, 0, 16, 0.5, TOKEN_MAJOR},
    {1, 1, 128, 100, 300, 50, 128, 0.6, 0},  {1, 1, 128, 90, 110, 33, 32, 0.6, 0},
    {1, 1, 64, 130, 90, 64, 16, 0.6, FULL},
};

/* Gradients, and their bits in so many orders; each order of ordered lists has other rounds. */
static void check_orders(const gpu_case *c)
{
    gradients g = make_gradients(c), other = make_gradients(c);
    if (c->p.unit < 16)
        backward_ordered(c, &g, c->lists.lists, 0);
    else
        backward_blocks(c, &g, 0);
    check_gradients(c, g.dq, g.dk, g.dv);
    for (u32 seed = 1; seed < (SANITIZED ? 3u : 16u); seed++) {
        spoil_gradients(&other);
        backward_by_unit(c, &other, seed);
        check_same_gradients(&other, &g);
    }
    for (u32 seed = 0; seed < 4 && c->p.unit < 16; seed++) { /* sums in another order */
        spoil_gradients(&other);
        backward_atomic(c, &other, seed);
        check_gradients(c, other.dq, other.dk, other.dv);
        assert_memory_equal(other.dq, g.dq, g.dq_bytes);
    }
    free_gradients(&g);
    free_gradients(&other);
}

static void check_problems(const gpu_problem *problems, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        for (int fp16 = 0; fp16 < (SANITIZED ? 1 : 2); fp16++) {
            gpu_problem p = problems[i];
            p.options |= APART | (fp16 ? FP16 : 0);
            gpu_case c = make_case(&p, seed + i);
            make_output(&c);
            check_orders(&c);
            free_case(&c);
        }
}

static void test_token_lists(void **state)
{
    (void)state;
    check_problems(token_problems, sizeof token_problems / sizeof *token_problems, 30);
}

static void test_block_lists(void **state)
{
    (void)state;
    check_problems(block_problems, sizeof block_problems / sizeof *block_problems, 50);
}

/* Ordered and atomic: five products of 2 D flop for each pair; rows of k and v come as in the
 * forward pass, 0.4 / BM of a byte for each flop, and those of dk and dv go out, 0.8 / BM. No two
 * rows of a matrix are in the same banks. */
static void check_products(const gpu_problem *p, void (*backward)(const gpu_case *, gradients *))
{
    gpu_case c = make_case(p, 5);
    make_output(&c);
    gradients g = make_gradients(&c);
    emulation_reset();
    backward(&c, &g);
    const emulation_counts n = emulation_read();
    const i64 dim = p->dim, pairs = p->tq * p->tk, flop = n.mma * 4096;
    assert_int_equal(n.conflicts, 0);
    assert_int_equal(flop, 10 * pairs * dim);
    assert_int_equal((n.copied_bytes - 2 * p->tq * dim * 2) * p->group * 10, flop * 4);
    assert_int_equal((n.stored_bytes - p->tq * dim * 4) * p->group * 10, flop * 8);
    free_gradients(&g);
    free_case(&c);
}

static void one_round(const gpu_case *c, gradients *g)
{
    backward_ordered(c, g, c->lists.lists, 0);
}

static void by_atomics(const gpu_case *c, gradients *g)
{
    backward_atomic(c, g, 0);
}

/* 64 keys: 6 D flop for dq, with q and dout once, k and v for each group; 8 D for dk and dv, with k
 * and v once, q and dout for each block of keys. */
static void check_products_of_blocks(const gpu_problem *p)
{
    gpu_case c = make_case(p, 5);
    make_output(&c);
    gradients g = make_gradients(&c);
    emulation_reset();
    backward_blocks(&c, &g, 0);
    const emulation_counts n = emulation_read();
    const i64 pairs = p->tq * p->tk;
    assert_int_equal(n.conflicts, 0);
    assert_int_equal(n.mma * 4096, (6 + 8) * pairs * p->dim);
    assert_int_equal(n.copied_bytes, 4 * p->dim * (p->tq + pairs / p->group + p->tk + pairs / 64));
    assert_int_equal(n.stored_bytes, 4 * p->dim * (p->tq + 2 * p->tk));
    free_gradients(&g);
    free_case(&c);
}

static void test_products_and_bytes(void **state)
{
    (void)state;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int group = 32; group <= 64; group *= 2) {
            const gpu_problem tokens = {1, 1, dim, 2 * group, 128, group, 1, 1.0, FULL};
            const gpu_problem blocks = {1, 1, dim, 2 * group, 128, group, 64, 1.0, FULL};
            check_products(&tokens, one_round);
            check_products(&tokens, by_atomics);
            check_products_of_blocks(&blocks);
        }
}

/* A NaN in one query reaches its own gradient and those of the keys it attends to, no others. */
static void test_nan_stays_with_its_keys(void **state)
{
    (void)state;
    gpu_case c = make_case(&token_problems[0], 3);
    make_output(&c);
    gradients g = make_gradients(&c);
    const int d = c.p.dim;
    c.q[5 * d + 7] = 0x7fff;
    backward_ordered(&c, &g, 2, 0);
    for (int64_t s = 0; s < c.p.heads * c.p.tq; s++)
        assert_int_equal(isnan(g.dq[s * d]) != 0, s == 5);
    for (int64_t s = 0; s < c.p.heads * c.p.tk; s++) {
        int listed = 0;
        for (int64_t j = c.lists.offsets[0]; j < c.lists.offsets[1]; j++)
            listed |= c.lists.indices[j] == s;
        assert_int_equal(isnan(g.dk[s * d]) != 0, listed);
        assert_int_equal(isnan(g.dv[s * d]) != 0, listed);
    }
    free_gradients(&g);
    free_case(&c);
}

/* The same of blocks of keys: every key of the units that the query's group has. */
static void test_nan_stays_with_its_units(void **state)
{
    (void)state;
    gpu_case c = make_case(&block_problems[3], 3);
    make_output(&c);
    gradients g = make_gradients(&c);
    const int d = c.p.dim, unit = c.p.unit;
    c.q[40 * d + 7] = 0x7fff; /* of group 1 */
    backward_blocks(&c, &g, 0);
    for (int64_t s = 0; s < c.p.tq; s++)
        assert_int_equal(isnan(g.dq[s * d]) != 0, s == 40);
    int listed = 0;
    for (int64_t s = 0; s < c.p.tk; s++) {
        int own = 0;
        for (int64_t j = c.lists.offsets[1]; j < c.lists.offsets[2]; j++)
            own |= c.lists.indices[j] == s / unit;
        assert_int_equal(isnan(g.dk[s * d]) != 0, own);
        assert_int_equal(isnan(g.dv[s * d]) != 0, own);
        listed += own;
    }
    assert_in_range(listed, 1, c.p.tk - 1);
    free_gradients(&g);
    free_case(&c);
}

/* Logits that are all -inf, of one query: o = 0 and lse = -inf, and it has no part in gradients. */
static void test_logits_of_minus_infinity(void **state)
{
    (void)state;
    const gpu_problem *const from[] = {&token_problems[0], &block_problems[0]};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        gpu_case c = make_case(from[i], 3);
        const int d = c.p.dim;
        make_output(&c);
        for (int64_t s = 0; s < c.p.heads * c.p.tq; s++)
            c.q[s * d] = 0;
        for (int64_t s = 0; s < c.p.heads * c.p.tk; s++)
            c.k[s * d] = (u16)round_bf16(-0x1p100f);
        c.q[5 * d] = (u16)round_bf16(0x1p100f);
        memset(c.o + 5 * d, 0, (size_t)d * sizeof *c.o);
        c.lse[5] = -INFINITY;
        gradients g = make_gradients(&c);
        backward_by_unit(&c, &g, 1);
        for (int j = 0; j < d; j++)
            assert_true(g.dq[5 * d + j] == 0.0f);
        for (int64_t j = 0; j < c.p.heads * c.p.tk * d; j++)
            assert_true(isfinite(g.dk[j]) && isfinite(g.dv[j]));
        free_gradients(&g);
        free_case(&c);
    }
}

/* Logits of +-100, whose exponentials are out of the range of floats, in lists whose last chunk is
 * not whole: what is beyond a list must not meet an lse of -100. */
static void test_large_logits(void **state)
{
    (void)state;
    const gpu_problem *const from[] = {&token_problems[0], &token_problems[2], &block_problems[2]};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        gpu_case c = make_case(from[i], 80 + i);
        make_large_logits(&c);
        make_output(&c);
        gradients g = make_gradients(&c);
        backward_by_unit(&c, &g, 2);
        check_gradients(&c, g.dq, g.dk, g.dv);
        free_gradients(&g);
        free_case(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_token_lists),
    cmocka_unit_test(test_block_lists),
    cmocka_unit_test(test_products_and_bytes),
    cmocka_unit_test(test_nan_stays_with_its_keys),
    cmocka_unit_test(test_nan_stays_with_its_units),
    cmocka_unit_test(test_logits_of_minus_infinity),
    cmocka_unit_test(test_large_logits),
};
RUN_GPU_TESTS(tests)
