/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_bf16.c - training and sampling with precision BF16: learning beside F32, resuming bit
 * for bit, checkpoints of either precision, memory, ranks. */
#include "train_ranks.h"

#include <string.h>

static const tess_train_opts small = {TESS_TRAIN_OPTS_DEFAULTS,
                                      .batch = 2,
                                      .accumulate = 2,
                                      .steps = 8,
                                      .warmup = 2,
                                      .validate_every = 4,
                                      .validate_clips = 2,
                                      .weight_decay = 0.01,
                                      .seed = 3,
                                      .precision = TESS_PRECISION_BF16};

/* By the emulation of products, that every machine can run. */
static run start_on(const char *isa, int threads, const tess_train_opts *opts)
{
    return start_run(&(tess_ctx_opts){.isa = isa, .threads = threads}, 2, opts);
}

static run start(int threads, const tess_train_opts *opts)
{
    return start_on("wide-pairs", threads, opts);
}

static tess_train_opts in_f32(tess_train_opts opts)
{
    opts.precision = TESS_PRECISION_FP32;
    return opts;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* The bar of validation losses is 0.5 % after a run; steps follow that of F32 closely. */
static void the_loss_falls_as_in_f32(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.steps = 40;
    const tess_train_opts plain = in_f32(opts);
    run a = start(2, &opts), b = start(2, &plain);
    CHECK_OK(tess_train_run(a.train, 0, NULL, NULL));
    CHECK_OK(tess_train_run(b.train, 0, NULL, NULL));
    print_message("bf16 %.5f, fp32 %.5f\n", a.train->val_loss, b.train->val_loss);
    assert_true(fabs(a.train->val_loss / b.train->val_loss - 1.0) < 0.005);
    assert_true(memcmp(a.info.values, b.info.values, (size_t)a.info.count * sizeof(float)) != 0);
    end(&a);
    end(&b);
}

static void sparse_attention_learns_too(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.steps = 40;
    opts.attention.kind = TESS_ATTENTION_DSV;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 10;
    opts.attention.density = 0.25;
    opts.attention.dispatch = "sparse";
    opts.attention.cube[0] = opts.attention.cube[1] = opts.attention.cube[2] = 2;
    const tess_train_opts plain = in_f32(opts);
    run a = start(2, &opts), b = start(2, &plain);
    CHECK_OK(tess_train_run(a.train, 0, NULL, NULL));
    CHECK_OK(tess_train_run(b.train, 0, NULL, NULL));
    print_message("bf16 %.5f, fp32 %.5f\n", a.train->val_loss, b.train->val_loss);
    assert_true(fabs(a.train->val_loss / b.train->val_loss - 1.0) < 0.01);
    end(&a);
    end(&b);
}

/* ---- bits and checkpoints -------------------------------------------------------------------- */

static void check_resume(const tess_train_opts *opts)
{
    run whole = start(2, opts);
    CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
    assert_int_equal(whole.train->step, 8);
    run first = start(3, opts), second = start(1, opts);
    hand_over(&first, 3, &second);
    check_same_training(&whole, &second);
    end(&second);
    end(&whole);
}

static void a_resumed_run_is_the_run_that_was_not_stopped(void **state)
{
    (void)state;
    tess_train_opts again = small;
    check_resume(&small);
    again.keep = TESS_KEEP_BLOCKS;
    check_resume(&again);
}

static void recomputing_blocks_gives_the_same_run(void **state)
{
    (void)state;
    tess_train_opts again = small;
    again.keep = TESS_KEEP_BLOCKS;
    run a = start(2, &small), b = start(1, &again);
    CHECK_OK(tess_train_run(a.train, 0, NULL, NULL));
    CHECK_OK(tess_train_run(b.train, 0, NULL, NULL));
    check_same_training(&a, &b);
    end(&a);
    end(&b);
}

/* Checkpoints have the weights in F32: each precision goes on from those of the other. */
static void checkpoints_serve_either_precision(void **state)
{
    (void)state;
    const tess_train_opts plain = in_f32(small);
    const tess_train_opts *opts[2] = {&small, &plain};
    for (int i = 0; i < 2; i++) {
        run first = start(2, opts[i]), second = start(2, opts[!i]);
        CHECK_OK(tess_train_run(first.train, 4, NULL, NULL));
        CHECK_OK(tess_train_save(first.train, in_root("other")));
        CHECK_OK(tess_train_resume(second.train, in_root("other")));
        assert_memory_equal(first.info.values, second.info.values,
                            (size_t)first.info.count * sizeof(float));
        CHECK_OK(tess_train_run(second.train, 0, NULL, NULL));
        assert_int_equal(second.train->step, 8);
        tess__remove_folder(in_root("other"));
        end(&first);
        end(&second);
    }
}

/* ---- memory and sampling --------------------------------------------------------------------- */

static int count_allocations(void *user, const tess_step *step)
{
    tess_ctx_info info;
    const run *r = user;
    static int64_t before;
    CHECK_OK(tess_ctx_query(r->ctx, &info));
    if (step->step > 1)
        assert_int_equal(info.allocations, before);
    before = info.allocations;
    return 0;
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    run r = start(1, &small);
    CHECK_OK(tess_train_run(r.train, 0, count_allocations, &r));
    end(&r);
}

static void the_need_is_within_three_percent(void **state)
{
    (void)state;
    run r = start(1, &small);
    check_need(&r, &small, 2, 0.03);
    end(&r);
}

static void samples_are_those_of_f32_but_for_rounding(void **state)
{
    (void)state;
    enum { SIZE = 12 * 2 * 8 * 8 };
    static float latents[4][SIZE], text[8 * 16];
    tess_sample_opts opts = {
        TESS_SAMPLE_OPTS_DEFAULTS, .steps = 5, .frames = 2, .height = 8, .width = 8, .seed = 4};
    CHECK_OK(tess_text_vectors("a red disc", 8, 16, text));
    for (int i = 0; i < 4; i++) {
        run r = start(i ? i : 2, &small);
        CHECK_OK(tess_train_run(r.train, 2, NULL, NULL));
        opts.precision = i ? TESS_PRECISION_BF16 : TESS_PRECISION_FP32;
        CHECK_OK(tess_sample_run(r.model, &opts, text, latents[i]));
        end(&r);
    }
    assert_memory_equal(latents[1], latents[2], sizeof latents[1]);
    assert_memory_equal(latents[1], latents[3], sizeof latents[1]);
    double off = 0, size = 0;
    for (int i = 0; i < SIZE; i++) {
        off += pow((double)latents[1][i] - (double)latents[0][i], 2);
        size += pow((double)latents[0][i], 2);
    }
    print_message("off by %.2e\n", sqrt(off / size));
    assert_true(off > 0 && sqrt(off / size) < 0.02);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Ranks add in another order, which roundings to bf16 make larger: each run stays within 1 % of one
 * rank's, and as many ranks give the same bits. */
static void ranks_train_as_one(void **state)
{
    (void)state;
    static const struct {
        int ranks, context;
        const char *strategy;
    } cases[] = {{2, 1, NULL}, {2, 2, "contiguous"}, {4, 2, "refined"}, {2, 2, "ring"}};
    tess_train_opts opts = small;
    opts.batch = 4;
    opts.accumulate = 1;
    opts.steps = 20;
    opts.ranks_context = 1;
    story one = {.opts = &opts, .ranks = 1};
    run_ranks(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story many = {.opts = &opts,
                      .ranks = cases[i].ranks,
                      .context = cases[i].context,
                      .strategy = cases[i].strategy};
        story again = many;
        run_ranks(&many);
        run_ranks(&again);
        assert_int_equal(many.steps, one.steps);
        for (int64_t k = 0; k < one.steps; k++) {
            if (!(fabs(many.loss[k] / one.loss[k] - 1.0) < 0.01))
                fail_msg("case %zu: loss of step %d is %.6g, must be %.6g", i, (int)k + 1,
                         many.loss[k], one.loss[k]);
            assert_true(many.loss[k] == again.loss[k]);
        }
        for (int r = 0; r < many.ranks; r++)
            assert_true(many.weights[r] == again.weights[0]);
    }
}

/* Gradients travel as bf16, weights as they are: three quarters of the bytes. */
static void gradients_travel_as_halves(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.steps = 4;
    opts.validate_every = 0;
    opts.ema = 0;
    opts.ranks_context = 1;
    const tess_train_opts plain = in_f32(opts);
    story half = {.opts = &opts, .ranks = 2}, whole = {.opts = &plain, .ranks = 2};
    run_ranks(&half);
    run_ranks(&whole);
    for (int r = 0; r < 2; r++) {
        const double share = half.first_step[r].payload_bytes / whole.first_step[r].payload_bytes;
        print_message("%.4f\n", share);
        assert_true(share > 0.74 && share < 0.76);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void exact_ranks_are_refused(void **state)
{
    (void)state;
    tess_train_opts opts = small, full;
    opts.exact_ranks = 1;
    CHECK_FAILS(tess__train_options("t", &opts, &full), TESS_EINVAL,
                "t: precision must be fp32 with exact_ranks: products in bf16 depend on which rows "
                "of a head a rank has");
    opts.exact_ranks = 0;
    opts.precision = (tess_precision)2;
    CHECK_FAILS(tess__train_options("t", &opts, &full), TESS_EINVAL,
                "t: precision is 2, must be one of fp32, bf16");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_loss_falls_as_in_f32),
    cmocka_unit_test(sparse_attention_learns_too),
    cmocka_unit_test(a_resumed_run_is_the_run_that_was_not_stopped),
    cmocka_unit_test(recomputing_blocks_gives_the_same_run),
    cmocka_unit_test(checkpoints_serve_either_precision),
    cmocka_unit_test(a_step_allocates_nothing),
    cmocka_unit_test(the_need_is_within_three_percent),
    cmocka_unit_test(samples_are_those_of_f32_but_for_rounding),
    cmocka_unit_test(ranks_train_as_one),
    cmocka_unit_test(gradients_travel_as_halves),
    cmocka_unit_test(exact_ranks_are_refused),
};
RUN_TESTS_WITH(tests, open_root, close_root)
