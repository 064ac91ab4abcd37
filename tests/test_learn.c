/* SPDX-License-Identifier: Apache-2.0 */
/* test_learn.c - predictors that learn inside the forward pass: their gradients against finite
 * differences of their loss, and a network that does not notice. */
#include "sparse_data.h"

enum { ROWS = 11 };
static const tess_sparse_opts room = {.proj_dim = 8, .learn_rows = ROWS};
static const int32_t keys[BATCH * HEADS] = {9, 0, 20, 13, 5, 33};

/* A world whose predictor learns in both layers. */
typedef struct {
    world w;
    tess_predictor_info info;
    tess_attend_layer layers[LAYERS];
    tess_attend attend;
} pupil;

static pupil make_pupil(int threads, tess_keep keep, const tess_predictor_opts *opts)
{
    tess_pass_shape shape = shape_with(&room);
    shape.keep = keep;
    pupil p = {.w = make_world(threads, &config, &shape),
               .layers = {{.learn = 1}, {.learn = 1}},
               .attend = {.seed = 3, .step = 4}};
    CHECK_OK(tess_predictor_create(p.w.ctx, &config, opts, &p.attend.predictor));
    CHECK_OK(tess_predictor_query(p.attend.predictor, &p.info));
    return p;
}

static void attend_and_learn(pupil *p)
{
    p->attend.layers = p->layers;
    CHECK_OK(tess_pass_attend(p->w.pass, &p->attend));
}

static void drop_pupil(pupil *p)
{
    tess_predictor_destroy(p->attend.predictor);
    drop_world(&p->w);
}

static double loss_of(pupil *p)
{
    double loss = 0.0;
    run_forward(&p->w);
    for (int layer = 0; layer < LAYERS; layer++) {
        tess_attend_result result;
        double mean = 0.0;
        CHECK_OK(tess_pass_attend_result(p->w.pass, layer, &result));
        for (int i = 0; i < BATCH * HEADS; i++)
            mean += result.loss_heads[i] / (BATCH * HEADS);
        assert_true(fabs(mean - result.loss) <= 1e-12 * fabs(mean));
        loss += result.loss;
    }
    return loss;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* (loss(values + h d) - loss(values - h d)) / 2h, for d of length 1. The loss is made of floats, so
 * it is off by some 2^-24 of its size, averaged over rows and keys, and the difference by 6e-8 / h;
 * h^2 of the third derivative comes on top: twice the step, extrapolated, leaves h^4. */
static double difference(pupil *p, const tess_param *param, const float *d)
{
    const size_t bytes = (size_t)param->count * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, param->value, bytes);
    double slope[2];
    for (int i = 0; i < 2; i++) {
        const double h = 0.006 * (i + 1);
        double loss[2];
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < param->count; k++)
                param->value[k] = (float)(before[k] + (side ? -h : h) * d[k]);
            loss[side] = loss_of(p);
        }
        slope[i] = (loss[0] - loss[1]) / (2.0 * h);
    }
    memcpy(param->value, before, bytes);
    free(before);
    return (4.0 * slope[0] - slope[1]) / 3.0;
}

static double normalise(float *d, int64_t n)
{
    double size = 0.0;
    for (int64_t i = 0; i < n; i++)
        size += (double)d[i] * d[i];
    size = sqrt(size);
    for (int64_t i = 0; i < n; i++)
        d[i] = (float)(d[i] / size);
    return size;
}

/* Along the gradient itself, where the slope is its length, and along a random direction. */
static void check_param(pupil *p, int index, const float *gradients)
{
    tess_param param;
    CHECK_OK(tess_predictor_param(p->attend.predictor, index, &param));
    const int64_t n = param.count;
    const float *g = gradients + (param.value - p->info.values);
    float *d = floats((size_t)n, 70 + (uint64_t)index), *own = malloc((size_t)n * sizeof *own);
    assert_non_null(own);
    memcpy(own, g, (size_t)n * sizeof *own);
    const double size = normalise(own, n);
    normalise(d, n);
    double along = 0.0;
    for (int64_t i = 0; i < n; i++)
        along += (double)g[i] * d[i];
    assert_true(size > 1e-4);
    const double off = fabs(difference(p, &param, own) - size) / size;
    const double off_random = fabs(difference(p, &param, d) - along) / size;
    if (!(off < 1e-3 && off_random < 1e-3))
        fail_msg("%s: off by %g, and by %g at random", param.name, off, off_random);
    free(d);
    free(own);
}

static void check_gradients(const tess_predictor_opts *opts, tess_predict_loss loss)
{
    pupil p = make_pupil(2, TESS_KEEP_ALL, opts);
    p.attend.loss = loss;
    attend_and_learn(&p);
    loss_of(&p);
    float *gradients = malloc((size_t)p.info.count * sizeof *gradients);
    assert_non_null(gradients);
    memcpy(gradients, p.info.gradients, (size_t)p.info.count * sizeof *gradients);
    for (int i = 0; i < p.info.params; i++) {
        tess_param param;
        CHECK_OK(tess_predictor_param(p.attend.predictor, i, &param));
        /* KL does not see what is added to all scores of a row alike: the bias of k, unless it is
         * rotated. */
        if (strstr(param.name, "k.bias") && !opts->rotary && loss == TESS_PREDICT_KL)
            continue;
        check_param(&p, i, gradients);
    }
    free(gradients);
    drop_pupil(&p);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    static const tess_predictor_opts choices[] = {
        {TESS_PREDICT_QK, 8, 0, 1}, {TESS_PREDICT_HIDDEN, 8, 0, 1}, {TESS_PREDICT_HIDDEN, 8, 1, 1}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        for (int loss = 0; loss < 2; loss++)
            check_gradients(&choices[i], (tess_predict_loss)loss);
}

/* ---- what does not change -------------------------------------------------------------------- */

static void a_network_does_not_notice_a_predictor_that_learns(void **state)
{
    (void)state;
    for (int choice = 0; choice < 8; choice++) {
        const tess_predictor_opts opts = {choice & 1 ? TESS_PREDICT_HIDDEN : TESS_PREDICT_QK, 8, 0,
                                          1};
        const tess_keep keep = choice & 2 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL;
        pupil a = make_pupil(2, keep, &opts), b = make_pupil(2, keep, &opts);
        for (int layer = 0; layer < LAYERS; layer++) {
            a.layers[layer].keys = b.layers[layer].keys = choice & 4 ? keys : NULL;
            b.layers[layer].learn = 0;
        }
        attend_and_learn(&a);
        attend_and_learn(&b);
        run_both(&a.w);
        run_both(&b.w);
        assert_memory_equal(a.w.out, b.w.out, a.w.n_out * sizeof(float));
        assert_memory_equal(a.w.dx, b.w.dx, a.w.n_x * sizeof(float));
        assert_memory_equal(a.w.info.gradients, b.w.info.gradients,
                            (size_t)a.w.info.count * sizeof(float));
        tess_attend_result result;
        CHECK_OK(tess_pass_attend_result(b.w.pass, 0, &result));
        assert_true(isnan(result.loss));
        for (int64_t i = 0; i < b.info.count; i++)
            assert_true(b.info.gradients[i] == 0.0f);
        drop_pupil(&a);
        drop_pupil(&b);
    }
}

/* Also not on threads, nor on blocks that are run again. */
static void gradients_have_the_same_bits_on_every_number_of_threads(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        const tess_predictor_opts opts = {(tess_predict_input)hidden, 8, hidden, 1};
        pupil one = make_pupil(1, TESS_KEEP_ALL, &opts);
        attend_and_learn(&one);
        run_both(&one.w);
        for (int choice = 0; choice < 3; choice++) {
            pupil p = make_pupil(choice + 1, choice ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, &opts);
            attend_and_learn(&p);
            run_both(&p.w);
            assert_memory_equal(one.info.gradients, p.info.gradients,
                                (size_t)p.info.count * sizeof(float));
            drop_pupil(&p);
        }
        drop_pupil(&one);
    }
}

/* The first layer sees the same q and k whether it attends sparsely or not. */
static void sparse_heads_teach_the_same(void **state)
{
    (void)state;
    const tess_predictor_opts opts = {.proj_dim = 8, .seed = 1};
    pupil dense = make_pupil(2, TESS_KEEP_ALL, &opts), sparse = make_pupil(2, TESS_KEEP_ALL, &opts);
    sparse.layers[0].keys = sparse.layers[1].keys = keys;
    attend_and_learn(&dense);
    attend_and_learn(&sparse);
    run_both(&dense.w);
    run_both(&sparse.w);
    const size_t half = (size_t)dense.info.count / 2 * sizeof(float);
    assert_memory_equal(dense.info.gradients, sparse.info.gradients, half);
    assert_memory_not_equal(dense.info.gradients + dense.info.count / 2,
                            sparse.info.gradients + dense.info.count / 2, half);
    drop_pupil(&dense);
    drop_pupil(&sparse);
}

static void every_step_learns_from_other_queries(void **state)
{
    (void)state;
    const tess_predictor_opts opts = {.proj_dim = 8, .seed = 1};
    pupil p = make_pupil(2, TESS_KEEP_ALL, &opts);
    double loss[3];
    for (int i = 0; i < 3; i++) {
        p.attend.step = i < 2 ? 4 : 5;
        attend_and_learn(&p);
        loss[i] = loss_of(&p);
    }
    assert_true(loss[0] == loss[1] && loss[0] != loss[2]);
    drop_pupil(&p);
}

/* Descending the gradient lowers the loss. */
static void a_predictor_learns(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        const tess_predictor_opts opts = {(tess_predict_input)hidden, 8, hidden, 1};
        pupil p = make_pupil(2, TESS_KEEP_ALL, &opts);
        attend_and_learn(&p);
        const double first = loss_of(&p);
        for (int step = 0; step < 30; step++) {
            for (int64_t i = 0; i < p.info.count; i++)
                p.info.values[i] -= 0.3f * p.info.gradients[i];
            CHECK_OK(tess_predictor_zero_gradients(p.attend.predictor));
            loss_of(&p);
        }
        assert_true(loss_of(&p) < 0.7 * first);
        drop_pupil(&p);
    }
}

static void learning_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const tess_predictor_opts opts = {.proj_dim = 8};
    pupil p = make_pupil(1, TESS_KEEP_ALL, &opts);
    const tess_attend good = {.layers = p.layers, .predictor = p.attend.predictor};
    tess_attend a = good;
    a.loss = (tess_predict_loss)2;
    CHECK_FAILS(tess_pass_attend(p.w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: loss is 2, must be KL (0) or COSINE (1)");
    a = good;
    a.predictor = NULL;
    CHECK_FAILS(tess_pass_attend(p.w.pass, &a), TESS_EINVAL,
                "tess_pass_attend: layer 0: learn is 1, but there is no predictor");
    p.layers[0].learn = 3;
    CHECK_FAILS(tess_pass_attend(p.w.pass, &good), TESS_EINVAL,
                "tess_pass_attend: layer 0: learn is 3, must be 0 or 1");
    p.layers[0].learn = 1;
    for (int i = 0; i < 2; i++) {
        const tess_sparse_opts none = {.proj_dim = 8, .learn_rows = i ? ROWS : 0};
        const tess_pass_shape shape = {.batch = BATCH,
                                       .frames = 3,
                                       .height = 5,
                                       .width = 5,
                                       .train = !i,
                                       .cube = cube,
                                       .sparse = &none};
        world w = make_world(1, &config, &shape);
        CHECK_FAILS(tess_pass_attend(w.pass, &good), TESS_EINVAL,
                    i ? "tess_pass_attend: layer 0: learn is 1, but the pass was made with train 0"
                      : "tess_pass_attend: layer 0: learn is 1, but the pass was made with "
                        "learn_rows 0");
        drop_world(&w);
    }
    drop_pupil(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_match_finite_differences),
    cmocka_unit_test(a_network_does_not_notice_a_predictor_that_learns),
    cmocka_unit_test(gradients_have_the_same_bits_on_every_number_of_threads),
    cmocka_unit_test(sparse_heads_teach_the_same),
    cmocka_unit_test(every_step_learns_from_other_queries),
    cmocka_unit_test(a_predictor_learns),
    cmocka_unit_test(learning_that_cannot_be_is_refused),
};
RUN_TESTS(tests)
