/* SPDX-License-Identifier: Apache-2.0 */
/* test_virtual.c - attention with a virtual key for what lists leave out: against the reference,
 * and where the answer is known without it. */
#include "attn_data.h"

static void virtual_keys_match_the_reference_on_every_isa(void **state)
{
    (void)state;
    problem p[LIST_PROBLEMS];
    with_virtual_keys(&(int){1}, 1, 0, p);
    check_on_every_isa(p, LIST_PROBLEMS);
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    problem p[LIST_PROBLEMS];
    with_virtual_keys(&(int){1}, 1, 0, p);
    for (int n = 0; n < LIST_PROBLEMS; n++)
        check_bits_of_any_threads(&p[n]);
}

/* Full lists, and no selection: the same bits with and without, gradients included. */
static void what_drops_nothing_gives_the_bits_it_gives_without(void **state)
{
    tess_ctx *ctx = *state;
    static const problem with[] = {
        PROBLEM(2, 2, 64, 200, 300, LISTS(FULL, 64, 1, 1.0), .dlse = 1, .compensate = 1),
        PROBLEM(1, 2, 48, 100, 130, LISTS(FULL, 8, 13, 1.0), .token_major = 1, .bf16 = 1,
                .compensate = 1),
        PROBLEM(1, 2, 64, 100, 130, .dlse = 1, .compensate = 1),
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
    static const problem p =
        PROBLEM(1, 1, D, TQ, TK, LISTS(RANDOM, 8, 1, 0), .dlse = 1, .compensate = 1);
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
        PROBLEM(1, 1, 64, 16, 3000, LISTS(RANDOM, 16, 1, 0.999), .compensate = 1),
        PROBLEM(1, 1, 64, 16, 3000, LISTS(RANDOM, 16, 1, 0.45), .compensate = 1),
        PROBLEM(1, 1, 64, 16, 3000, LISTS(RANDOM, 16, 1, 0), .compensate = 1),
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
    static const problem p = PROBLEM(1, 1, D, TQ, TK, LISTS(RANDOM, 8, 1, 0.1), .compensate = 1);
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
    static const problem p = PROBLEM(1, 1, 16, 16, 50, LISTS(RANDOM, 8, 1, 0), .compensate = 1);
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
    static const problem small_groups = PROBLEM(2, 2, 48, 100, 512, LISTS(RANDOM, 8, 1, 0.125),
                                                .token_major = 1, .dlse = 1, .compensate = 1);
    setting s = make(ctx, &small_groups);
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
        .batch = 1, .heads = 1, .head_dim = 8, .tokens_q = 4, .tokens_k = 4, .compensate = 65};
    CHECK_FAILS(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL,
                "tess_attn_create: compensate is 65, must be 0..64");
    assert_null(attn);
    const tess_attn_shape one = {
        .batch = 1, .heads = 1, .head_dim = 8, .tokens_q = 4, .tokens_k = 4, .compensate = 1};
    const uint8_t *labels = NULL;
    CHECK_OK(tess_attn_create(ctx, &one, &attn));
    CHECK_FAILS(tess_attn_labels(attn, &labels), TESS_EINVAL,
                "tess_attn_labels: compensate is 1, must be 2 or more");
    tess_attn_destroy(attn);
}

/* ---- clusters -------------------------------------------------------------------------------- */

static const int cluster_counts[] = {2, 8, 33, 64};

static void clusters_match_the_reference_on_every_isa(void **state)
{
    (void)state;
    for (int i = 0; i < (SANITIZED ? 1 : 4); i++) {
        problem p[LIST_PROBLEMS];
        with_virtual_keys(cluster_counts, 4, i, p);
        check_on_every_isa(p, LIST_PROBLEMS);
    }
}

static void clusters_have_the_same_bits_for_any_threads(void **state)
{
    (void)state;
    problem p[LIST_PROBLEMS];
    with_virtual_keys(cluster_counts, 4, 0, p);
    for (int n = 0; n < LIST_PROBLEMS; n++)
        check_bits_of_any_threads(&p[n]);
}

/* Gradients by k are summed over tiles, which dense attention has others of. */
static void full_lists_with_clusters_are_dense_attention(void **state)
{
    tess_ctx *ctx = *state;
    for (int i = 0; i < 2; i++) {
        const problem with = PROBLEM(1, 2, 64, 200, 300, LISTS(i ? DENSE : FULL, 64, 1, 1.0),
                                     .dlse = 1, .compensate = 32);
        problem without = with;
        without.compensate = 0;
        setting a = make(ctx, &with), b = make(ctx, &without);
        run(ctx, &a);
        run(ctx, &b);
        check_same_bits(&a, &b);
        tess_selection_destroy(b.sel);
        b.sel = NULL;
        float *o = b.o;
        b.o = buffer((size_t)2 * 200 * 64, 0);
        b.vo.data = b.o;
        run(ctx, &b);
        assert_memory_equal(a.o, b.o, (size_t)2 * 200 * 64 * sizeof(float));
        free(o);
        drop(&a);
        drop(&b);
    }
}

/* Scores up to +-80: the softmax of a query is almost all on one key, or on one virtual key. Scores
 * of 80 carry 80 * 2^-24 * sqrt(64) = 4e-5 into the exponent; gradients pass through two. */
static void gradients_hold_at_scores_of_eighty(void **state)
{
    tess_ctx *ctx = *state;
    const problem p =
        PROBLEM(1, 2, 64, 128, 500, LISTS(RANDOM, 16, 1, 0.1), .dlse = 1, .compensate = 8);
    setting s = make(ctx, &p);
    double most = 0;
    for (int64_t i = 0; i < 2 * 128 * 64; i++)
        s.q[i] *= 20.0f;
    run(ctx, &s);
    tess_selection_lists lists;
    CHECK_OK(tess_selection_view(s.sel, &lists));
    enum { NQ = 2 * 128 * 64, NK = 2 * 500 * 64 };
    double *o = malloc((2 * NQ + 2 * NK + 256) * sizeof *o);
    assert_non_null(o);
    double *dq = o + NQ, *dk = dq + NQ, *dv = dk + NK, *lse = dv + NK;
    CHECK_OK(ref_cluster_forward(ctx, &s.shape, &lists, s.labels, &s.vq, &s.vk, &s.vv, o, lse));
    for (int i = 0; i < 256; i++)
        most = fmax(most, lse[i]);
    assert_true(most > 60.0 && most < 120.0);
    CHECK_OK(ref_cluster_backward(ctx, &s.shape, &lists, s.labels, &s.vq, &s.vk, &s.vv, &s.vdout,
                                  s.dlse, dq, dk, dv));
    CHECK_CLOSE(s.o, o, NQ, 1e-4);
    CHECK_CLOSE(s.dq, dq, NQ, 4e-4);
    CHECK_CLOSE(s.dk, dk, NK, 4e-4);
    CHECK_CLOSE(s.dv, dv, NK, 4e-4);
    free(o);
    drop(&s);
}

/* Four far-apart bunches of equal keys and values: with as many clusters, virtual keys lose
 * nothing; with one they do. */
static void bunches_of_keys_are_replaced_without_loss(void **state)
{
    tess_ctx *ctx = *state;
    enum { TQ = 32, TK = 400, D = 32, KEPT = 20 };
    problem p = PROBLEM(1, 1, D, TQ, TK, LISTS(RANDOM, 8, 1, 0), .compensate = 32), all = p;
    all.pattern = DENSE;
    double off[2];
    for (int one = 0; one < 2; one++) {
        p.compensate = one ? 1 : 32;
        setting s = make(ctx, &p), dense = make(ctx, &all);
        int64_t offsets[TQ / 8 + 1];
        int32_t indices[TQ / 8 * KEPT];
        for (int g = 0; g <= TQ / 8; g++)
            offsets[g] = (int64_t)g * KEPT;
        for (int i = 0; i < TQ / 8 * KEPT; i++)
            indices[i] = i % KEPT * 20 + i / KEPT;
        CHECK_OK(tess_selection_set_lists(s.sel, offsets, indices));
        for (int j = 0; j < TK; j++) {
            memcpy(s.k + (size_t)j * D, s.k + (size_t)(j % 4) * D, D * sizeof(float));
            memcpy(s.v + (size_t)j * D, s.v + (size_t)(j % 4) * D, D * sizeof(float));
        }
        memcpy(dense.k, s.k, sizeof(float) * TK * D);
        memcpy(dense.v, s.v, sizeof(float) * TK * D);
        run(ctx, &s);
        run(ctx, &dense);
        off[one] = 0;
        for (int i = 0; i < TQ * D; i++)
            if (fabs((double)s.o[i] - (double)dense.o[i]) > off[one])
                off[one] = fabs((double)s.o[i] - (double)dense.o[i]);
        drop(&s);
        drop(&dense);
    }
    assert_true(off[0] < 2 * tol_forward && off[1] > 0.01);
}

/* A cluster of thousands of which one row was dropped: its mean is that row, to the last digits. */
static void one_dropped_row_of_a_cluster_keeps_its_digits(void **state)
{
    tess_ctx *ctx = *state;
    enum { TK = 3000, D = 64, LOST = 1234 };
    const problem p = PROBLEM(1, 1, D, 16, TK, LISTS(RANDOM, 16, 1, 1.0), .compensate = 2);
    setting s = make(ctx, &p);
    int32_t indices[TK - 1];
    for (int j = 0; j < TK - 1; j++)
        indices[j] = j < LOST ? j : j + 1;
    CHECK_OK(tess_selection_set_lists(s.sel, (int64_t[]){0, TK - 1}, indices));
    for (int n = 0; n < TK * D; n++) {
        s.v[n] += 1000.0f;
        s.k[n] = n % D == 0 ? (n / D == LOST ? 10.0f : -10.0f) : 0.0f;
    }
    for (int n = 0; n < 16 * D; n += D)
        s.q[n] = 50.0f;
    run(ctx, &s);
    for (int i = 0; i < 16 * D; i++)
        assert_true(fabsf(s.o[i] - s.v[LOST * D + i % D]) <= 1000.0f * 0x1p-22f);
    drop(&s);
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
    cmocka_unit_test(clusters_match_the_reference_on_every_isa),
    cmocka_unit_test(clusters_have_the_same_bits_for_any_threads),
    cmocka_unit_test_setup_teardown(full_lists_with_clusters_are_dense_attention, make_ctx,
                                    drop_ctx),
    cmocka_unit_test_setup_teardown(gradients_hold_at_scores_of_eighty, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(bunches_of_keys_are_replaced_without_loss, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(one_dropped_row_of_a_cluster_keeps_its_digits, make_ctx,
                                    drop_ctx),
};
RUN_TESTS(tests)
