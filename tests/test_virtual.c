/* SPDX-License-Identifier: Apache-2.0 */
/* test_virtual.c - attention with a virtual key for what lists leave out: against the reference,
 * and where the answer is known without it. */
#include "attn_data.h"

static const problem problems[] = {
    {1, 1, 8, 1, 1, RANDOM, 1, 1, 0.0, 0, 0, 1, 1},           /* the virtual key is the only one */
    {1, 2, 64, 128, 256, EMPTY_ROWS, 16, 8, 0.3, 0, 0, 1, 1}, /* lists with nothing in them */
    {2, 2, 48, 100, 512, RANDOM, 8, 1, 0.125, 1, 0, 1, 1},    /* small groups of single keys */
    {1, 3, 64, 256, 700, RANDOM, 64, 1, 0.2, 0, 0, 0, 1},
    {2, 2, 128, 130, 1000, RANDOM, 64, 1, 0.1, 1, 1, 1, 1}, /* bf16 storage */
    {1, 1, 256, 65, 400, RANDOM, 32, 1, 0.5, 0, 0, 1, 1},   /* as many listed as dropped */
    {1, 2, 72, 97, 300, RANDOM, 16, 1, 0.9, 0, 0, 1, 1},    /* fewer dropped than listed */
    {1, 2, 40, 97, 300, RANDOM, 16, 1, 0.995, 1, 1, 0, 1},  /* a few dropped, some lists full */
    {1, 2, 24, 77, 500, RANDOM, 5, 1, 0.2, 0, 0, 1, 1},     /* groups narrower than a vector */
    {1, 1, 16, 40, 90, RANDOM, 1, 1, 0.3, 0, 0, 0, 1},
    {1, 2, 64, 600, 300, RANDOM, 256, 32, 0.5, 0, 0, 1, 1},  /* groups cut into tiles */
    {1, 2, 128, 300, 500, RANDOM, 128, 64, 0.3, 1, 0, 0, 1}, /* the last unit is shorter */
    {1, 2, 64, 137, 211, RANDOM, 0, 0, 0.4, 0, 0, 1, 1},     /* bounds on both sides */
    {1, 2, 64, 137, 211, RANDOM, 0, 0, 0.8, 1, 1, 1, 1},
    {1, 1, 64, 96, 2500, RANDOM, 64, 1, 0.3, 0, 0, 1, 1}, /* several ranges of keys */
    {1, 1, 8, 16, 9000, RANDOM, 8, 1, 0.05, 0, 0, 1, 1},  /* keys summed in slices */
    {1, 1, 40, 20, 96, RANDOM, 20, 1, 1.0, 0, 0, 1, 1},   /* exactly a chunk, all of it */
    {1, 1, 40, 0, 50, RANDOM, 4, 1, 0.5, 0, 0, 0, 1},     /* no queries */
    {1, 1, 40, 50, 0, RANDOM, 4, 1, 0.5, 0, 0, 0, 1},     /* no keys */
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static void virtual_keys_match_the_reference_on_every_isa(void **state)
{
    (void)state;
    check_on_every_isa(problems, PROBLEMS);
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < PROBLEMS; n++)
        check_bits_of_any_threads(&problems[n]);
}

/* Full lists, and no selection: the same bits with and without, gradients included. */
static void what_drops_nothing_gives_the_bits_it_gives_without(void **state)
{
    tess_ctx *ctx = *state;
    static const problem with[] = {
        {2, 2, 64, 200, 300, FULL, 64, 1, 1.0, 0, 0, 1, 1},
        {1, 2, 48, 100, 130, FULL, 8, 13, 1.0, 1, 1, 0, 1},
        {1, 2, 64, 100, 130, DENSE, 0, 0, 0, 0, 0, 1, 1},
    };
    for (int i = 0; i < 3; i++) {
        problem without = with[i];
        without.compensate = 0;
        setting a = make(ctx, &with[i]), b = make(ctx, &without);
        run(ctx, &a);
        run(ctx, &b);
        check_same_bits(&a, &b);
        drop(&a);
        drop(&b);
    }
}

/* Where the dropped keys are all the same and so are their values, one stands for all exactly: the
 * result is dense attention. So it is for the gradients by q; those by k and v agree in their sum
 * over the dropped keys, since each is given the mean. */
static void equal_keys_are_replaced_without_loss(void **state)
{
    tess_ctx *ctx = *state;
    enum { TQ = 40, TK = 300, D = 64, KEPT = 30 };
    static const problem p = {1, 1, D, TQ, TK, RANDOM, 8, 1, 0.0, 0, 0, 1, 1};
    setting s = make(ctx, &p), dense = make(ctx, &p);
    int64_t offsets[TQ / 8 + 1];
    int32_t indices[TQ / 8 * KEPT];
    for (int g = 0; g <= TQ / 8; g++)
        offsets[g] = (int64_t)g * KEPT;
    for (int i = 0; i < TQ / 8 * KEPT; i++)
        indices[i] = i % KEPT * 10; /* every tenth */
    CHECK_OK(tess_selection_set_lists(s.sel, offsets, indices));
    for (int j = 0; j < TK; j++)
        if (j % 10 != 0) {
            memcpy(s.k + (size_t)j * D, s.k + D, D * sizeof(float));
            memcpy(s.v + (size_t)j * D, s.v + D, D * sizeof(float));
        }
    memcpy(dense.k, s.k, sizeof(float) * TK * D);
    memcpy(dense.v, s.v, sizeof(float) * TK * D);
    tess_selection_destroy(dense.sel);
    dense.sel = NULL;
    run(ctx, &s);
    run(ctx, &dense);
    static double want[TK * D];
    const struct {
        const float *got, *want;
        size_t n;
        double tolerance;
    } pairs[] = {{s.o, dense.o, TQ * D, tol_forward},
                 {s.lse, dense.lse, TQ, tol_forward},
                 {s.dq, dense.dq, TQ * D, tol_backward},
                 {s.dk, dense.dk, TK * D, tol_backward}, /* equal keys have equal gradients */
                 {s.dv, dense.dv, TK * D, tol_backward}};
    for (int i = 0; i < 5; i++) {
        for (size_t n = 0; n < pairs[i].n; n++)
            want[n] = pairs[i].want[n];
        CHECK_CLOSE(pairs[i].got, want, pairs[i].n, pairs[i].tolerance);
    }
    drop(&s);
    drop(&dense);
}

/* Values near 1000, of which the list leaves out almost none, half, or all; scores are such that
 * the virtual key has all the mass, and the output is the mean itself. A chunk of 96 rows is summed
 * in four sums of 24, whose roundings of 2^-24 add up like a random walk to 5 of them; chunks
 * average out, and the mean is rounded once more. A difference of two sums in fp32 would be off by
 * 3000 times that where few are left out. */
static void a_mean_far_from_zero_keeps_its_digits(void **state)
{
    tess_ctx *ctx = *state;
    static const problem cases[] = {
        {1, 1, 64, 16, 3000, RANDOM, 16, 1, 0.999, 0, 0, 0, 1},
        {1, 1, 64, 16, 3000, RANDOM, 16, 1, 0.45, 0, 0, 0, 1},
        {1, 1, 64, 16, 3000, RANDOM, 16, 1, 0.0, 0, 0, 0, 1},
    };
    for (int i = 0; i < 3; i++) {
        setting s = make(ctx, &cases[i]);
        tess_selection_lists lists;
        CHECK_OK(tess_selection_view(s.sel, &lists));
        for (int n = 0; n < 3000 * 64; n++) {
            s.v[n] += 1000.0f;
            s.k[n] = n % 64 == 0 ? 10.0f : 0.0f;
        }
        for (int64_t n = 0; n < lists.offsets[1]; n++)
            s.k[lists.indices[n] * 64] = -10.0f;
        for (int n = 0; n < 16 * 64; n += 64)
            s.q[n] = 50.0f;
        tess_attn *attn = NULL;
        CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        static double want[16 * 64];
        CHECK_OK(ref_attn_forward(ctx, &s.shape, &lists, &s.vq, &s.vk, &s.vv, want, NULL));
        CHECK_CLOSE(s.o, want, 16 * 64, 6 * 0x1p-24);
        tess_attn_destroy(attn);
        drop(&s);
    }
}

/* Keys that all groups list take nothing from virtual keys: what all groups give is taken back by
 * each. What is left must vanish beside the gradient itself, also where that is small. */
static void what_is_taken_back_leaves_no_trace(void **state)
{
    tess_ctx *ctx = *state;
    enum { TQ = 512, TK = 600, D = 32, EVERY = 60 };
    static const problem p = {1, 1, D, TQ, TK, RANDOM, 8, 1, 0.1, 0, 0, 0, 1};
    setting s = make(ctx, &p);
    const int64_t groups = TQ / 8;
    uint8_t *mask = malloc((size_t)groups * TK);
    float *u = malloc((size_t)groups * TK * sizeof *u);
    assert_true(mask && u);
    CHECK_OK(tess_random_uniform(3, 0, 0, u, (size_t)groups * TK));
    for (int64_t i = 0; i < groups * TK; i++)
        mask[i] = i % TK % EVERY == 0 || u[i] < 0.1f;
    CHECK_OK(tess_selection_set_mask(s.sel, mask, TESS_MASK_BYTES));
    run(ctx, &s);
    tess_selection_lists lists;
    CHECK_OK(tess_selection_view(s.sel, &lists));
    double *want = malloc((TQ + 2 * TK) * D * sizeof *want), *dk = want + TQ * D, *dv = dk + TK * D;
    assert_non_null(want);
    CHECK_OK(ref_attn_backward(ctx, &s.shape, &lists, &s.vq, &s.vk, &s.vv, &s.vdout, NULL, want, dk,
                               dv));
    for (int j = 0; j < TK; j += EVERY) {
        CHECK_CLOSE(s.dk + (size_t)j * D, dk + (size_t)j * D, D, tol_backward);
        CHECK_CLOSE(s.dv + (size_t)j * D, dv + (size_t)j * D, D, tol_backward);
    }
    free(want);
    free(mask);
    free(u);
    drop(&s);
}

static void a_nan_that_was_dropped_is_not_hidden(void **state)
{
    tess_ctx *ctx = *state;
    static const problem p = {1, 1, 16, 16, 50, RANDOM, 8, 1, 0.0, 0, 0, 0, 1};
    setting s = make(ctx, &p);
    s.k[7 * 16 + 3] = NAN;
    CHECK_OK(tess_selection_set_lists(s.sel, (int64_t[]){0, 1, 2}, (int32_t[]){0, 7}));
    run(ctx, &s);
    assert_true(isnan(s.lse[0]) && isnan(s.lse[15])); /* dropped by group 0, listed by group 1 */
    drop(&s);
}

static void the_second_backward_pass_allocates_nothing(void **state)
{
    tess_ctx *ctx = *state;
    setting s = make(ctx, &problems[2]);
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
    tess_ctx_info before, after;
    const tess_attn_saved saved = {&s.vq, &s.vk, &s.vv, &s.vo, s.lse};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        CHECK_OK(tess_attn_backward(attn, s.sel, &saved, &s.vdout, NULL, &s.vdq, &s.vdk, &s.vdv));
        if (i == 0)
            CHECK_OK(tess_ctx_query(ctx, &before));
    }
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    tess_attn_destroy(attn);
    CHECK_OK(tess_ctx_query(ctx, &after));
    drop(&s);
}

static void a_wrong_wish_gets_a_sentence(void **state)
{
    tess_ctx *ctx = *state;
    tess_attn *attn = NULL;
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = 8, .tokens_q = 4, .tokens_k = 4, .compensate = 2};
    CHECK_FAILS(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL,
                "tess_attn_create: compensate is 2, must be 0 or 1");
    assert_null(attn);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(virtual_keys_match_the_reference_on_every_isa),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test_setup_teardown(what_drops_nothing_gives_the_bits_it_gives_without, make_ctx,
                                    drop_ctx),
    cmocka_unit_test_setup_teardown(equal_keys_are_replaced_without_loss, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(a_mean_far_from_zero_keeps_its_digits, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(what_is_taken_back_leaves_no_trace, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(a_nan_that_was_dropped_is_not_hidden, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(the_second_backward_pass_allocates_nothing, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(a_wrong_wish_gets_a_sentence, make_ctx, drop_ctx),
};
RUN_TESTS(tests)
