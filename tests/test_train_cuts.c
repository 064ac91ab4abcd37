/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_cuts.c - clips of several sizes, some of them cut over ranks, dense and sparse: losses
 * and gradients of one rank, and the same bits with exact_ranks. Plans come from measured times, so
 * that every run has plans of its own. */
#include "train_ranks.h"

#include <math.h>
#include <string.h>

static const char three_sizes[] = "2x16x16:3,4x16x24:2,4x32x32"; /* 128, 384 and 1024 tokens */

static const tess_train_opts plain = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 3,          .accumulate = 2, .steps = 6, .warmup = 2,
    .validate_every = 3,      .validate_clips = 5, .ema = 0.5,      .seed = 3};

#define SPARSE(...)                                                                                \
    {                                                                                              \
        TESS_ATTENTION_OPTS_DEFAULTS, .density = 0.25, .dispatch = "sparse",                       \
                                      .switch_by = TESS_SWITCH_STEP, .switch_step = 3,             \
                                      .back_recall = 1e-6, .profile_every = 2, .check_every = 2,   \
                                      .cube = {2, 2, 2}, __VA_ARGS__                               \
    }

static const tess_attention_opts kinds[] = {
    {TESS_ATTENTION_OPTS_DEFAULTS},        SPARSE(.kind = TESS_ATTENTION_DSV),
    SPARSE(.kind = TESS_ATTENTION_RANDOM), SPARSE(.kind = TESS_ATTENTION_WINDOW),
    SPARSE(.kind = TESS_ATTENTION_POOLED),
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_kind(int kind, int exact)
{
    tess_train_opts opts = plain;
    opts.attention = kinds[kind];
    opts.exact_ranks = exact;
    story one = {.opts = &opts, .ranks = 1, .sizes = three_sizes};
    run_ranks(&one);
    assert_int_equal(one.steps, opts.steps);
    for (int ranks = 2; ranks <= 8; ranks += ranks < 4 ? 1 : 4) {
        story many = {.opts = &opts, .ranks = ranks, .sizes = three_sizes};
        run_ranks(&many);
        print_message("kind %d, %d ranks: %lld clips cut, loss %.3g, norm %.3g\n", kind, ranks,
                      (long long)many.cut, many.loss[0] / one.loss[0] - 1.0,
                      many.first_step[0].grad_norm / one.first_step[0].grad_norm - 1.0);
        assert_true(many.cut > 0);
        assert_true(fabs(many.loss[0] / one.loss[0] - 1.0) < 1e-6);
        assert_true(fabs(many.first_step[0].grad_norm / one.first_step[0].grad_norm - 1.0) < 1e-6);
        for (int64_t s = 0; s < one.steps; s++)
            assert_true(fabs(many.loss[s] / one.loss[s] - 1.0) < 1e-4);
        assert_true(fabs(many.val_loss / one.val_loss - 1.0) < 1e-4);
        assert_true(fabs(many.last_step[0].density / one.last_step[0].density - 1.0) < 1e-12);
        assert_true(kind == 0 || many.last_step[0].density < 0.5);
        for (int r = 0; r < ranks; r++)
            assert_true(many.weights[r] == many.weights[0]);
        if (!exact)
            continue;
        assert_memory_equal(many.loss, one.loss, sizeof one.loss);
        assert_memory_equal(&many.val_loss, &one.val_loss, sizeof one.val_loss);
        assert_true(many.weights[0] == one.weights[0]);
    }
}

/* The first step has the same weights everywhere: what differs is the order of sums alone. */
static void cut_clips_have_the_losses_of_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        check_kind(kind, 0);
}

static void exact_ranks_have_the_bits_of_one(void **state)
{
    (void)state;
    check_kind(0, 1);
    check_kind(1, 1);
}

static void a_run_goes_on_with_other_ranks_to_the_same_bits(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.attention = kinds[1];
    opts.exact_ranks = 1;
    story whole = {.opts = &opts, .ranks = 1, .sizes = three_sizes};
    story half = {
        .opts = &opts, .ranks = 4, .sizes = three_sizes, .stop = 4, .save = in_root("half")};
    story rest = {.opts = &opts, .ranks = 3, .sizes = three_sizes, .resume = in_root("half")};
    run_ranks(&whole);
    run_ranks(&half);
    run_ranks(&rest);
    assert_true(rest.weights[0] == whole.weights[0]);
    tess__remove_folder(in_root("half"));
}

static void one_context_rank_leaves_clips_whole(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.ranks_context = 1;
    story whole = {.opts = &opts, .ranks = 4, .sizes = three_sizes};
    run_ranks(&whole);
    assert_int_equal(whole.cut, 0);
    opts.ranks_context = 2;
    story two = {.opts = &opts, .ranks = 4, .sizes = three_sizes};
    CHECK_FAILS(run_story(&two), TESS_EINVAL,
                "tess_train_create: ranks_context is 2, must be 0 or 1 for clips of several sizes");
    opts.ranks_context = 0;
    story degrees = {.opts = &opts, .ranks = 4, .sizes = three_sizes, .strategy = "2x2r"};
    CHECK_FAILS(run_story(&degrees), TESS_ENOTSUP,
                "tess_train_create: strategy is \"2x2r\", must be a method without degrees for "
                "clips of several sizes, which are cut over any ranks");
    story ring = {.opts = &opts, .ranks = 4, .sizes = three_sizes, .strategy = "ring"};
    story one = {.opts = &opts, .ranks = 1, .sizes = three_sizes};
    run_ranks(&ring);
    run_ranks(&one);
    for (int64_t s = 0; s < one.steps; s++)
        assert_true(fabs(ring.loss[s] / one.loss[s] - 1.0) < 1e-4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cut_clips_have_the_losses_of_one_rank),
    cmocka_unit_test(exact_ranks_have_the_bits_of_one),
    cmocka_unit_test(a_run_goes_on_with_other_ranks_to_the_same_bits),
    cmocka_unit_test(one_context_rank_leaves_clips_whole),
};
RUN_TESTS_WITH(tests, open_root, close_root)
