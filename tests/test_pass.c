/* SPDX-License-Identifier: Apache-2.0 */
/* test_pass.c - the network against double precision: outputs, gradients of every parameter,
 * options, threads, memory, and what it refuses. */
#include "model_data.h"

/* 2 samples, no size a multiple of another; norms of both kinds; heads of which the widest vectors
 * leave half over; more tokens than a block of rows has; patches in all three directions. */
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
static const tess_pass_shape odd_shape = {
    .batch = 2, .frames = 3, .height = 10, .width = 15, .text_len = 5, .train = 1};

/* The other way round in every choice, with text longer than the video. */
static const tess_model_config bare = {.patch = {2, 1, 1},
                                       .heads = 1,
                                       .head_dim = 8,
                                       .in_channels = 1,
                                       .out_channels = 1,
                                       .text_dim = 1,
                                       .text_len = 70,
                                       .freq_dim = 2,
                                       .ffn_dim = 3,
                                       .layers = 1,
                                       .eps = 1e-5,
                                       .rope_max = 4};
static const tess_pass_shape bare_shape = {
    .batch = 1, .frames = 4, .height = 1, .width = 3, .train = 1};

/* ---- values ---------------------------------------------------------------------------------- */

/* A layer's output carries roundings of about sqrt(width) 2^-24 of its size, the widest sum here is
 * 72 long; some 30 layers follow one another and add up like a random walk, and the worst of a few
 * thousand elements is 4 times as far out: 8.5 * 2^-24 * 5.5 * 4 = 1.1e-5. */
static const double tolerance = 1.2e-5;

static void outputs_match_double_precision(void **state)
{
    (void)state;
    static const int cube[3] = {2, 2, 3};
    for (int i = 0; i < 4; i++) {
        tess_pass_shape shape = i == 1 ? bare_shape : odd_shape;
        shape.train = i < 2;
        shape.cube = i == 3 ? cube : NULL;
        world w = make_world(2, i == 1 ? &bare : &odd, &shape);
        doubles d = make_doubles(&w);
        run_forward(&w);
        reference(&d);
        CHECK_CLOSE(w.out, d.out, w.n_out, tolerance);
        drop_doubles(&d);
        drop_world(&w);
    }
}

/* Central differences of the reference with step h have an error of h^2 of the third derivative
 * and of 2^-53 / h of the loss: below 1e-8 of what is asked for here. */
static const double step = 1e-5;

static double difference(doubles *d, double *at)
{
    const double before = *at;
    *at = before + step;
    const double up = reference(d);
    *at = before - step;
    const double down = reference(d);
    *at = before;
    return (up - down) / (2.0 * step);
}

/* The i-th of n places spread over 0 .. count - 1. */
static size_t place_of(size_t i, size_t n, size_t count)
{
    return n > 1 ? i * (count - 1) / (n - 1) : 0;
}

/* Compares up to `most` elements, spread over the whole, to 1e-3 of the largest. A gradient that is
 * nothing (that of a key's bias, which no softmax notices, unless norms see it) has roundings of
 * the others' size in it. */
static void check_gradient(doubles *d, const char *name, const float *gradient, double *values,
                           size_t count, size_t most)
{
    const size_t n = count < most ? count : most;
    double largest = 0.0, size = 0.0, want[64];
    assert_true(n <= 64);
    for (int64_t i = 0; i < d->w->info.count; i++)
        largest = fmax(largest, fabs(d->w->info.gradients[i]));
    for (size_t i = 0; i < n; i++) {
        want[i] = difference(d, values + place_of(i, n, count));
        size = fmax(size, fabs(want[i]));
    }
    for (size_t i = 0; i < n; i++) {
        const double got = gradient[place_of(i, n, count)];
        if (!(fabs(got - want[i]) <= 1e-3 * size + 1e-6 * largest))
            fail_msg("%s[%zu] is %g, must be %g", name, place_of(i, n, count), got, want[i]);
    }
}

static void check_all_gradients(const tess_model_config *config, const tess_pass_shape *shape,
                                size_t most)
{
    world w = make_world(2, config, shape);
    doubles d = make_doubles(&w);
    run_both(&w);
    for (int i = 0; i < w.info.params; i++) {
        tess_param p;
        CHECK_OK(tess_model_param(w.model, i, &p));
        check_gradient(&d, p.name, p.gradient, d.values + (p.value - w.info.values),
                       (size_t)p.count, most);
    }
    check_gradient(&d, "x", w.dx, d.x, w.n_x, most);
    drop_doubles(&d);
    drop_world(&w);
}

static void every_gradient_matches_finite_differences(void **state)
{
    (void)state;
    check_all_gradients(&bare, &bare_shape, 24);
    tess_pass_shape shape = odd_shape;
    shape.frames = 2, shape.height = 4, shape.width = 9;
    check_all_gradients(&odd, &shape, 8);
    shape.cube = (const int[3]){2, 2, 3};
    check_all_gradients(&odd, &shape, 3);
}

static void check_whole_gradient(const char *isa, const tess_model_config *config,
                                 const tess_pass_shape *shape)
{
    world w = make_world_on(isa, 2, config, shape);
    doubles d = make_doubles(&w);
    run_both(&w);
    check_direction(&w, &d, tolerance, step);
    drop_doubles(&d);
    drop_world(&w);
}

/* More rows than a block has, and more than the feed-forward layer takes at a time. */
static void gradients_match_along_a_direction_over_many_tokens(void **state)
{
    (void)state;
    tess_model_config config = bare;
    config.qk_norm = config.cross_attn_norm = 1;
    config.rope_max = 64;
    check_whole_gradient(
        NULL, &config,
        &(tess_pass_shape){
            .batch = 1, .frames = 2, .height = 46, .width = 46, .text_len = 3, .train = 1});
}

static void every_instruction_set_matches_double_precision(void **state)
{
    (void)state;
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (isa.bf16)
            continue;
        if (isa.available)
            check_whole_gradient(isa.name, &odd, &odd_shape);
        else
            print_message("skipped on %s: %s\n", isa.name, isa.why);
    }
}

static void backward_adds_to_the_gradients(void **state)
{
    (void)state;
    world w = make_world(1, &odd, &odd_shape);
    const size_t n = (size_t)w.info.count;
    run_both(&w);
    double *twice = widened(w.info.gradients, n);
    for (size_t i = 0; i < n; i++)
        twice[i] *= 2.0;
    run_forward(&w);
    CHECK_OK(tess_pass_backward(w.pass, w.dout, NULL));
    /* Sums that begin with the first gradient instead of zero round differently, each at most as
     * often as it has terms: 450 rows, like a random walk. */
    for (int i = 0; i < w.info.params; i++) {
        tess_param p;
        CHECK_OK(tess_model_param(w.model, i, &p));
        CHECK_CLOSE(p.gradient, twice + (p.gradient - w.info.gradients), (size_t)p.count, 5e-6);
    }
    free(twice);
    drop_world(&w);
}

/* ---- options --------------------------------------------------------------------------------- */

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    world one = make_world(1, &odd, &odd_shape);
    run_both(&one);
    for (int threads = 2; threads <= 3; threads++) {
        world many = make_world(threads, &odd, &odd_shape);
        run_both(&many);
        check_same(&one, &many);
        drop_world(&many);
    }
    drop_world(&one);
}

static void recomputing_blocks_gives_the_same_bits(void **state)
{
    (void)state;
    tess_pass_shape again = odd_shape;
    again.keep = TESS_KEEP_BLOCKS;
    world kept = make_world(2, &odd, &odd_shape), made = make_world(2, &odd, &again);
    run_both(&kept);
    run_both(&made);
    check_same(&kept, &made);
    drop_world(&kept);
    drop_world(&made);
}

static void a_pass_without_training_gives_the_same_output(void **state)
{
    (void)state;
    tess_pass_shape forward = odd_shape;
    forward.train = 0;
    world a = make_world(2, &odd, &odd_shape), b = make_world(2, &odd, &forward);
    run_forward(&a);
    run_forward(&b);
    assert_memory_equal(a.out, b.out, a.n_out * sizeof(float));
    drop_world(&a);
    drop_world(&b);
}

/* Rounding to BF16 is off by 2^-9 / sqrt(3) = 1.1e-3 of an element's size on average. A gradient
 * sees perhaps a dozen rounded factors on its way (a block has six, softmax doubles two of them),
 * which are independent: 1.1e-3 sqrt(24 for two blocks) = 5.5e-3; twice that is allowed. The output
 * does not change where nothing is run again. */
static void halves_change_gradients_by_their_rounding_alone(void **state)
{
    (void)state;
    world exact = make_world(2, &odd, &odd_shape);
    run_both(&exact);
    for (int keep = 0; keep < 2; keep++) {
        tess_pass_shape shape = odd_shape;
        shape.store = TESS_DTYPE_BF16;
        shape.keep = (tess_keep)keep;
        world w = make_world(2, &odd, &shape);
        run_both(&w);
        assert_memory_equal(exact.out, w.out, w.n_out * sizeof(float));
        const double off = apart(w.info.gradients, exact.info.gradients, w.info.count);
        assert_true(off > 1e-4 && off < 1.1e-2);
        assert_true(apart(w.dx, exact.dx, (int64_t)w.n_x) < 1.1e-2);
        drop_world(&w);
    }
    drop_world(&exact);
}

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

static void the_memory_needed_is_the_memory_taken(void **state)
{
    (void)state;
    static const int cube[3] = {1, 2, 2};
    for (int choice = 0; choice < 16; choice++) {
        tess_pass_shape shape = odd_shape;
        shape.train = choice & 1;
        shape.keep = choice & 2 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL;
        shape.store = choice & 4 ? TESS_DTYPE_BF16 : TESS_DTYPE_F32;
        shape.cube = choice & 8 ? cube : NULL;
        for (int threads = 1; threads <= 2; threads++) {
            world w = make_world(threads, choice & 2 ? &bare : &odd,
                                 choice & 2 ? &(tess_pass_shape){.batch = 3,
                                                                 .frames = 6,
                                                                 .height = 4,
                                                                 .width = 2,
                                                                 .train = shape.train,
                                                                 .keep = shape.keep,
                                                                 .store = shape.store,
                                                                 .cube = shape.cube}
                                            : &shape);
            tess_ctx_info info;
            tess_model_memory need;
            tess_pass_shape same = w.shape;
            same.cube = shape.cube;
            CHECK_OK(tess_ctx_query(w.ctx, &info));
            CHECK_OK(tess_model_need(&w.info.config, &(tess_model_opts){.gradients = shape.train},
                                     &same, threads, &need));
            assert_int_equal(need.total, info.bytes_peak);
            assert_int_equal(need.weights + need.gradients + need.activations + need.workspace,
                             need.total);
            drop_world(&w);
        }
    }
}

/* Of a model with many layers: halves are half, and inputs of blocks a small part. */
static void options_save_the_memory_they_promise(void **state)
{
    (void)state;
    tess_model_config config = odd;
    config.layers = 40;
    config.ffn_dim = 288;
    tess_pass_shape shape = odd_shape;
    tess_model_memory all, halves, blocks;
    CHECK_OK(tess_model_need(&config, NULL, &shape, 1, &all));
    shape.store = TESS_DTYPE_BF16;
    CHECK_OK(tess_model_need(&config, NULL, &shape, 1, &halves));
    shape.store = TESS_DTYPE_F32;
    shape.keep = TESS_KEEP_BLOCKS;
    CHECK_OK(tess_model_need(&config, NULL, &shape, 1, &blocks));
    assert_true((double)halves.activations < 0.52 * (double)all.activations);
    assert_true((double)blocks.activations < 0.10 * (double)all.activations);
}

static void times_add_up(void **state)
{
    (void)state;
    world w = make_world(1, &odd, &odd_shape);
    tess_pass_times t;
    const int64_t begin = tess_clock_ns();
    run_both(&w);
    const int64_t took = tess_clock_ns() - begin;
    CHECK_OK(tess_pass_times_read(w.pass, &t));
    assert_true(t.attention_ns > 0 && t.linear_ns > 0 && t.other_ns > 0);
    assert_true(t.attention_ns + t.linear_ns + t.other_ns <= took);
    assert_int_equal(t.forwards, 1);
    assert_int_equal(t.backwards, 1);
    drop_world(&w);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void check_shape(tess_model *model, const tess_pass_shape *shape, const char *sentence)
{
    tess_pass *pass = NULL;
    CHECK_FAILS(tess_pass_create(model, shape, &pass), TESS_EINVAL, sentence);
    assert_null(pass);
}

static void wrong_shapes_are_named(void **state)
{
    (void)state;
    world w = make_world(1, &odd, &odd_shape);
    tess_pass_shape s = odd_shape;
    s.batch = 0;
    check_shape(w.model, &s, "tess_pass_create: batch is 0, must be 1..65536");
    s = odd_shape, s.height = 11;
    check_shape(w.model, &s,
                "tess_pass_create: height is 11, must be a multiple of 2, the patch's");
    s = odd_shape, s.frames = 0;
    check_shape(w.model, &s, "tess_pass_create: frames is 0, must be a multiple of 1, the patch's");
    s = odd_shape, s.width = 195;
    check_shape(w.model, &s,
                "tess_pass_create: width is 65 tokens, must be at most rope_max, which is 64");
    s = odd_shape, s.text_len = -1;
    check_shape(w.model, &s,
                "tess_pass_create: text_len is -1, must be 1..65536, or 0 for the configuration's");
    s = odd_shape, s.train = 2;
    check_shape(w.model, &s, "tess_pass_create: train is 2, must be 0 or 1");
    s = odd_shape, s.keep = (tess_keep)2;
    check_shape(w.model, &s, "tess_pass_create: keep is 2, must be ALL (0) or BLOCKS (1)");
    s = odd_shape, s.store = TESS_DTYPE_F16;
    check_shape(w.model, &s, "tess_pass_create: store is F16, must be F32 or BF16");
    s = odd_shape, s.cube = (const int[3]){1, 0, 1};
    check_shape(w.model, &s, "tess_pass_create: cube[1] is 0, must be 1 or more");
    s = odd_shape, s.batch = 65536, s.frames = 64, s.height = 128, s.width = 192;
    check_shape(w.model, &s,
                "tess_pass_create: the batch has 17179869184 tokens, must have at most 1073741824");
    check_shape(w.model, NULL, "tess_pass_create: shape is NULL");
    check_shape(NULL, &odd_shape, "tess_pass_create: model is NULL");
    tess_model_memory need;
    CHECK_FAILS(tess_model_need(&odd, NULL, &odd_shape, 0, &need), TESS_EINVAL,
                "tess_model_need: threads is 0, must be 1..1024");
    CHECK_FAILS(tess_model_need(NULL, NULL, &odd_shape, 1, &need), TESS_EINVAL,
                "tess_model_need: config is NULL");
    drop_world(&w);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    tess_pass_shape forward = odd_shape;
    forward.train = 0;
    world w = make_world(1, &odd, &odd_shape), f = make_world(1, &odd, &forward);
    check_shape(f.model, &odd_shape,
                "tess_pass_create: train is 1, but the model was made without gradients");
    CHECK_FAILS(tess_pass_backward(w.pass, w.dout, NULL), TESS_EINVAL,
                "tess_pass_backward: there is no forward pass before it");
    run_both(&w);
    CHECK_FAILS(tess_pass_backward(w.pass, w.dout, NULL), TESS_EINVAL,
                "tess_pass_backward: there is no forward pass before it");
    run_forward(&f);
    CHECK_FAILS(tess_pass_backward(f.pass, f.dout, NULL), TESS_EINVAL,
                "tess_pass_backward: the pass was made with train 0");
    CHECK_FAILS(tess_pass_backward(w.pass, NULL, NULL), TESS_EINVAL,
                "tess_pass_backward: dout is NULL");
    CHECK_FAILS(tess_pass_forward(w.pass, &(tess_model_in){w.x, NULL, w.text}, w.out), TESS_EINVAL,
                "tess_pass_forward: in->timestep is NULL");
    CHECK_FAILS(tess_pass_forward(w.pass, NULL, w.out), TESS_EINVAL,
                "tess_pass_forward: in is NULL");
    CHECK_FAILS(tess_pass_times_read(w.pass, NULL), TESS_EINVAL,
                "tess_pass_times_read: times is NULL");
    tess_pass_destroy(NULL);
    drop_world(&w);
    drop_world(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(outputs_match_double_precision),
    cmocka_unit_test(every_gradient_matches_finite_differences),
    cmocka_unit_test(gradients_match_along_a_direction_over_many_tokens),
    cmocka_unit_test(every_instruction_set_matches_double_precision),
    cmocka_unit_test(backward_adds_to_the_gradients),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test(recomputing_blocks_gives_the_same_bits),
    cmocka_unit_test(a_pass_without_training_gives_the_same_output),
    cmocka_unit_test(halves_change_gradients_by_their_rounding_alone),
    cmocka_unit_test(steps_allocate_nothing),
    cmocka_unit_test(the_memory_needed_is_the_memory_taken),
    cmocka_unit_test(options_save_the_memory_they_promise),
    cmocka_unit_test(times_add_up),
    cmocka_unit_test(wrong_shapes_are_named),
    cmocka_unit_test(wrong_calls_are_named),
};
RUN_TESTS(tests)
