/* SPDX-License-Identifier: Apache-2.0 */
/* test_pass_bf16.c - passes with precision BF16: their distance from F32 on every instruction set
 * that multiplies so, on the emulations, and where fp32 computes; bits, memory, refusals. */
#include "model_data.h"
#include "tessera/advanced/machine.h"

/* No size a multiple of another; more tokens than a block of rows has. */
static const tess_model_config odd = {.patch = {1, 2, 3},
                                      .heads = 3,
                                      .head_dim = 24,
                                      .in_channels = 3,
                                      .out_channels = 2,
                                      .text_dim = 11,
                                      .text_len = 9,
                                      .freq_dim = 14,
                                      .ffn_dim = 50,
                                      .layers = 2,
                                      .cross_attn_norm = 1,
                                      .qk_norm = 1,
                                      .eps = 1e-6,
                                      .rope_max = 64};
static const tess_pass_shape odd_shape = {.batch = 2,
                                          .frames = 3,
                                          .height = 10,
                                          .width = 15,
                                          .text_len = 5,
                                          .train = 1,
                                          .precision = TESS_PRECISION_BF16};

static tess_pass_shape in_f32(tess_pass_shape shape)
{
    shape.precision = TESS_PRECISION_FP32;
    return shape;
}

/* Those with products in bf16, and one without. */
static void on_every_set(void (*fn)(const char *name))
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (!isa.bf16 && strcmp(isa.name, "base") != 0)
            continue;
        if (isa.available) {
            print_message("%s\n", isa.name);
            fn(isa.name);
        } else {
            print_message("skipped on %s: %s\n", isa.name, isa.why);
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A rounding to BF16 is off by 2^-9 / sqrt(3) = 1.1e-3 of an element's size on average. Of the
 * output, each of two blocks has some 12 rounded factors on its way (the input of each product and
 * its weights, q, k, v, P, what attention gives): 1.1e-3 sqrt(24) = 5.5e-3; a gradient has passed
 * twice as many again: 1.1e-3 sqrt(72) = 9.5e-3. Twice that is allowed. Less than a third of one
 * rounding would mean that nothing was rounded. */
static const double out_most = 1.1e-2, gradient_most = 1.9e-2, least = 4e-4;

static void check_near(const char *isa, const tess_model_config *config, tess_pass_shape shape)
{
    const tess_pass_shape plain = in_f32(shape);
    world exact = make_world(2, config, &plain), w = make_world_on(isa, 2, config, &shape);
    run_both(&exact);
    run_both(&w);
    const double out = apart(w.out, exact.out, (int64_t)w.n_out);
    const double all = apart(w.info.gradients, exact.info.gradients, w.info.count);
    const double dx = apart(w.dx, exact.dx, (int64_t)w.n_x);
    print_message("  out %.2e, gradients %.2e, dx %.2e\n", out, all, dx);
    assert_true(out > least && out < out_most);
    assert_true(all > least && all < gradient_most);
    assert_true(dx > least && dx < gradient_most);
    drop_world(&exact);
    drop_world(&w);
}

static void check_odd(const char *isa)
{
    check_near(isa, &odd, odd_shape);
    tess_model_config bare = odd;
    bare.cross_attn_norm = bare.qk_norm = 0;
    check_near(isa, &bare, odd_shape);
}

static void results_are_those_of_f32_but_for_rounding(void **state)
{
    (void)state;
    on_every_set(check_odd);
}

/* More rows than the feed-forward layer takes at a time. */
static void many_tokens_are_taken_in_chunks(void **state)
{
    (void)state;
    tess_pass_shape shape = odd_shape;
    shape.height = 46;
    shape.width = 96;
    shape.batch = 1;
    check_near(NULL, &odd, shape);
}

static void backward_adds_to_the_gradients(void **state)
{
    (void)state;
    world once = make_world(2, &odd, &odd_shape), twice = make_world(2, &odd, &odd_shape);
    run_both(&once);
    run_both(&twice);
    run_forward(&twice);
    CHECK_OK(tess_pass_backward(twice.pass, twice.dout, NULL));
    for (int64_t i = 0; i < once.info.count; i++)
        once.info.gradients[i] *= 2.0f;
    assert_true(apart(twice.info.gradients, once.info.gradients, once.info.count) < 1e-6);
    drop_world(&once);
    drop_world(&twice);
}

/* Weights are packed for products: after an update, new ones. */
static void weights_that_change_are_packed_again(void **state)
{
    (void)state;
    world a = make_world(2, &odd, &odd_shape), b = make_world(2, &odd, &odd_shape);
    run_both(&a);
    for (int64_t i = 0; i < a.info.count; i++)
        b.info.values[i] = a.info.values[i] *= 1.25f;
    run_both(&a);
    run_both(&b);
    check_same(&a, &b);
    drop_world(&a);
    drop_world(&b);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void check_bits(const char *isa)
{
    world one = make_world_on(isa, 1, &odd, &odd_shape);
    run_both(&one);
    for (int threads = 2; threads <= 3; threads++) {
        world many = make_world_on(isa, threads, &odd, &odd_shape);
        run_both(&many);
        check_same(&one, &many);
        drop_world(&many);
    }
    tess_pass_shape again = odd_shape, forward = odd_shape;
    again.keep = TESS_KEEP_BLOCKS;
    forward.train = 0;
    world made = make_world_on(isa, 2, &odd, &again), alone = make_world_on(isa, 2, &odd, &forward);
    run_both(&made);
    check_same(&one, &made);
    run_forward(&alone);
    assert_memory_equal(one.out, alone.out, one.n_out * sizeof(float));
    drop_world(&one);
    drop_world(&made);
    drop_world(&alone);
}

static void threads_recomputation_and_training_change_no_bit(void **state)
{
    (void)state;
    on_every_set(check_bits);
}

static void saved_activations_are_halves_whatever_store_says(void **state)
{
    (void)state;
    tess_pass_shape stored = odd_shape;
    stored.store = TESS_DTYPE_BF16;
    world a = make_world(2, &odd, &odd_shape), b = make_world(2, &odd, &stored);
    run_both(&a);
    run_both(&b);
    check_same(&a, &b);
    drop_world(&a);
    drop_world(&b);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void steps_allocate_nothing(void **state)
{
    (void)state;
    world w = make_world(2, &odd, &odd_shape);
    tess_ctx_info before, after;
    CHECK_OK(tess_ctx_query(w.ctx, &before));
    for (int i = 0; i < 3; i++)
        run_both(&w);
    CHECK_OK(tess_ctx_query(w.ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    drop_world(&w);
}

/* Where fp32 computes, attention takes less. */
static void check_memory(const char *isa)
{
    static const int cube[3] = {1, 2, 2};
    for (int choice = 0; choice < 8; choice++) {
        tess_pass_shape shape = odd_shape;
        shape.train = choice & 1;
        shape.keep = choice & 2 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL;
        shape.cube = choice & 4 ? cube : NULL;
        for (int threads = 1; threads <= 2; threads++) {
            world w = make_world_on(isa, threads, &odd, &shape);
            tess_ctx_info info;
            tess_bf16_use use;
            tess_model_memory need;
            run_forward(&w);
            if (shape.train)
                CHECK_OK(tess_pass_backward(w.pass, w.dout, NULL));
            CHECK_OK(tess_ctx_query(w.ctx, &info));
            CHECK_OK(tess_bf16_query(w.ctx, &use));
            CHECK_OK(tess_model_need(&odd, &(tess_model_opts){.gradients = shape.train}, &shape,
                                     threads, &need));
            if (use.precision == TESS_PRECISION_BF16)
                assert_int_equal(need.total, info.bytes_peak);
            else
                assert_true(need.total >= (int64_t)info.bytes_peak);
            drop_world(&w);
        }
    }
}

static void the_memory_needed_is_the_memory_taken(void **state)
{
    (void)state;
    on_every_set(check_memory);
}

/* Of a model of 12 layers and 16k tokens, whose activations are most of it: 0.62 of F32, with
 * moments, average and gradients, which do not shrink. */
static void memory_of_training_is_five_eighths(void **state)
{
    (void)state;
    tess_model_config config = odd;
    config.heads = 4;
    config.head_dim = 64;
    config.ffn_dim = 1024;
    config.layers = 12;
    config.patch[1] = config.patch[2] = 1;
    tess_pass_shape shape = {.batch = 1,
                             .frames = 16,
                             .height = 32,
                             .width = 32,
                             .train = 1,
                             .precision = TESS_PRECISION_BF16};
    const tess_pass_shape plain = in_f32(shape);
    const tess_model_opts opts = {.gradients = 1};
    tess_model_memory half, whole;
    CHECK_OK(tess_model_need(&config, &opts, &shape, 2, &half));
    CHECK_OK(tess_model_need(&config, &opts, &plain, 2, &whole));
    const double optimiser = 3.0 * (double)whole.weights;
    const double share = ((double)half.total + optimiser) / ((double)whole.total + optimiser);
    print_message("%.3f of %.2f GiB\n", share, ((double)whole.total + optimiser) / 0x1p30);
    assert_true(share < 0.62);
    assert_true((double)half.activations < 0.52 * (double)whole.activations);
}

static void refuses_other_precisions(void **state)
{
    (void)state;
    world w = make_world(1, &odd, &odd_shape);
    tess_pass *pass = NULL;
    tess_pass_shape shape = odd_shape;
    shape.precision = (tess_precision)7;
    CHECK_FAILS(tess_pass_create(w.model, &shape, &pass), TESS_EINVAL,
                "tess_pass_create: precision is 7, must be a tess_precision");
    drop_world(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_are_those_of_f32_but_for_rounding),
    cmocka_unit_test(many_tokens_are_taken_in_chunks),
    cmocka_unit_test(backward_adds_to_the_gradients),
    cmocka_unit_test(weights_that_change_are_packed_again),
    cmocka_unit_test(threads_recomputation_and_training_change_no_bit),
    cmocka_unit_test(saved_activations_are_halves_whatever_store_says),
    cmocka_unit_test(steps_allocate_nothing),
    cmocka_unit_test(the_memory_needed_is_the_memory_taken),
    cmocka_unit_test(memory_of_training_is_five_eighths),
    cmocka_unit_test(refuses_other_precisions),
};
RUN_TESTS(tests)
