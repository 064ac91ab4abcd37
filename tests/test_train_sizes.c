/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_sizes.c - training on clips of several sizes: losses and gradients against passes that
 * the test runs itself, resuming, memory, uneven ranks. */
#include "train_ranks.h"

#include <math.h>
#include <string.h>

static const char three_sizes[] = "2x16x16:3,4x16x24:2,4x32x32"; /* 128, 384 and 1024 tokens */

static const tess_train_opts plain = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 3,          .accumulate = 2, .steps = 8,         .warmup = 2,
    .validate_every = 4,      .validate_clips = 5, .ema = 0.5,      .ranks_context = 1, .seed = 3};

/* ---- loss and gradients ---------------------------------------------------------------------- */

typedef struct {
    double loss, norm;
} sums;

/* One clip of step 0, by the formulas of docs/training.md: adds to the model's gradients. */
static double reference_clip(const run *r, const tess_train_opts *o, int i, double weight,
                             int64_t largest)
{
    tess_data_info info;
    int bucket;
    CHECK_OK(tess_data_bucket_of(r->data, TESS_SPLIT_TRAIN, i, &bucket));
    CHECK_OK(tess_data_bucket(r->data, bucket, &info));
    const size_t n = (size_t)info.channels * (size_t)(info.frames * info.height * info.width);
    const size_t words = (size_t)info.text_len * (size_t)info.text_dim;
    float *x = calloc(n, sizeof *x), *eps = calloc(n, sizeof *eps), *out = calloc(n, sizeof *out);
    float *text = calloc(words, sizeof *text), u, chance;
    assert_true(x && eps && out && text);
    CHECK_OK(tess_data_sample(r->data, TESS_SPLIT_TRAIN, i, x, text, NULL, 0));
    tess_random_uniform(o->seed, tess__stream(TESS__LEVEL, 0), (uint64_t)i, &u, 1);
    tess_random_uniform(o->seed, tess__stream(TESS__DROPOUT, 0), (uint64_t)i, &chance, 1);
    tess_random_normal(o->seed, tess__stream(TESS__NOISE, 0), (uint64_t)(i * largest), eps, n);
    const double level = (i + (double)u) / (o->batch * o->accumulate);
    const double s = o->shift * level / (1.0 + (o->shift - 1.0) * level);
    const float time = (float)(1000.0 * s);
    if ((double)chance < o->prompt_dropout)
        memset(text, 0, words * sizeof *text);
    for (size_t k = 0; k < n; k++) {
        const float target = eps[k] - x[k];
        x[k] = (1.0F - (float)s) * x[k] + (float)s * eps[k];
        eps[k] = target;
    }
    const tess_pass_shape shape = {.batch = 1,
                                   .frames = info.frames,
                                   .height = info.height,
                                   .width = info.width,
                                   .text_len = info.text_len,
                                   .train = 1};
    tess_pass *pass;
    CHECK_OK(tess_pass_create(r->model, &shape, &pass));
    CHECK_OK(tess_pass_forward(pass, &(tess_model_in){x, &time, text}, out));
    double loss = 0.0;
    for (size_t k = 0; k < n; k++) {
        const double d = (double)out[k] - (double)eps[k];
        loss += d * d / (double)n;
        out[k] = (float)(2.0 * weight * d / (double)n);
    }
    CHECK_OK(tess_pass_backward(pass, out, NULL));
    tess_pass_destroy(pass);
    free(x), free(eps), free(out), free(text);
    return loss;
}

static sums reference(const tess_train_opts *o)
{
    const int n = o->batch * o->accumulate;
    int64_t tokens[64], all = 0, largest = 0;
    sums s = {0};
    run r = {0};
    tess_model_config config;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &r.ctx));
    CHECK_OK(tess_model_preset("tiny", &config));
    CHECK_OK(tess_model_create(r.ctx, &config, &(tess_model_opts){1, 9}, &r.model));
    CHECK_OK(tess_model_query(r.model, &r.info));
    CHECK_OK(
        tess_data_open(r.ctx,
                       &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .sizes = three_sizes, .pack = 2,
                                         .text_len = config.text_len, .text_dim = config.text_dim},
                       &r.data));
    for (int i = 0; i < n; i++) {
        tess_data_info info;
        int bucket;
        CHECK_OK(tess_data_bucket_of(r.data, TESS_SPLIT_TRAIN, i, &bucket));
        CHECK_OK(tess_data_bucket(r.data, bucket, &info));
        tokens[i] = (int64_t)info.frames * info.height * info.width /
                    (config.patch[0] * config.patch[1] * config.patch[2]);
        all += tokens[i];
    }
    tess_data_info whole;
    CHECK_OK(tess_data_query(r.data, &whole));
    assert_int_equal(whole.sizes, 3);
    largest = (int64_t)whole.channels * whole.frames * whole.height * whole.width;
    CHECK_OK(tess_model_zero_gradients(r.model));
    for (int i = 0; i < n; i++) {
        const double weight =
            o->weigh == TESS_WEIGH_CLIPS ? 1.0 / n : (double)tokens[i] / (double)all;
        s.loss += weight * reference_clip(&r, o, i, weight, largest);
    }
    for (int64_t i = 0; i < r.info.count; i++)
        s.norm += (double)r.info.gradients[i] * (double)r.info.gradients[i];
    s.norm = sqrt(s.norm);
    tess_data_close(r.data);
    tess_model_destroy(r.model);
    tess_ctx_destroy(r.ctx);
    return s;
}

/* Sums in F32 of a few thousand terms, in another order: 1e-6 of the whole. */
static void every_token_counts_alike_or_every_clip(void **state)
{
    (void)state;
    sums both[2];
    for (int weigh = TESS_WEIGH_TOKENS; weigh <= TESS_WEIGH_CLIPS; weigh++) {
        tess_train_opts opts = plain;
        opts.weigh = (tess_weigh)weigh;
        both[weigh] = reference(&opts);
        story s = {.opts = &opts, .ranks = 1, .sizes = three_sizes, .stop = 1};
        run_ranks(&s);
        assert_true(fabs(s.loss[0] / both[weigh].loss - 1.0) < 1e-6);
        assert_true(fabs(s.first_step[0].grad_norm / both[weigh].norm - 1.0) < 1e-6);
    }
    assert_true(fabs(both[0].loss / both[1].loss - 1.0) > 1e-5); /* the rule matters */
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void a_resumed_run_has_the_bits_of_one_that_was_not_stopped(void **state)
{
    (void)state;
    story whole = {.opts = &plain, .ranks = 1, .sizes = three_sizes};
    run_ranks(&whole);
    assert_int_equal(whole.steps, plain.steps);
    story half = {
        .opts = &plain, .ranks = 1, .sizes = three_sizes, .stop = 3, .save = in_root("half")};
    run_ranks(&half);
    story rest = {.opts = &plain, .ranks = 1, .sizes = three_sizes, .resume = in_root("half")};
    run_ranks(&rest);
    assert_memory_equal(whole.loss + 3, rest.loss + 3, 5 * sizeof *whole.loss);
    assert_true(whole.weights[0] == rest.weights[0]);
    assert_memory_equal(&whole.val_loss, &rest.val_loss, sizeof whole.val_loss);
    tess__remove_folder(in_root("half"));
}

static void one_size_in_the_list_is_data_of_that_size(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.batch = 4;
    story listed = {.opts = &opts, .ranks = 1, .sizes = "2x16x16"};
    story given = {.opts = &opts, .ranks = 1, .frames = 2};
    run_ranks(&listed);
    run_ranks(&given);
    check_same(&listed, &given);
}

/* The largest clip's pass counts, whatever the number of clips. */
static void memory_is_that_of_the_largest_clip(void **state)
{
    (void)state;
    for (int batch = 3; batch <= 12; batch *= 2) {
        tess_train_opts opts = plain;
        opts.batch = batch;
        story s = {.opts = &opts, .ranks = 1, .sizes = three_sizes, .stop = 4};
        run_ranks(&s);
        print_message("needs %lld bytes, took %lld\n", (long long)s.need[0], (long long)s.peak[0]);
        assert_in_range(s.peak[0], (int64_t)(0.97 * (double)s.need[0]), s.need[0]);
    }
}

/* ---- many ranks ------------------------------------------------------------------------------ */

/* The first step has the same weights everywhere: its loss and gradients differ in the order of
 * sums alone. Later ones go apart slowly. */
static void uneven_ranks_have_the_losses_of_one(void **state)
{
    (void)state;
    story one = {.opts = &plain, .ranks = 1, .sizes = three_sizes};
    run_ranks(&one);
    for (int ranks = 2; ranks <= 8; ranks += ranks < 4 ? 1 : 4) { /* 8: some have no clip */
        story many = {.opts = &plain, .ranks = ranks, .context = 1, .sizes = three_sizes};
        story again = many;
        run_ranks(&many);
        assert_int_equal(many.steps, one.steps);
        assert_true(fabs(many.loss[0] / one.loss[0] - 1.0) < 1e-6);
        assert_true(fabs(many.first_step[0].grad_norm / one.first_step[0].grad_norm - 1.0) < 1e-6);
        for (int64_t s = 0; s < one.steps; s++)
            assert_true(fabs(many.loss[s] / one.loss[s] - 1.0) < 1e-4);
        assert_true(fabs(many.val_loss / one.val_loss - 1.0) < 1e-4);
        for (int r = 0; r < ranks; r++)
            assert_true(many.weights[r] == many.weights[0]);
        run_ranks(&again);
        check_same(&many, &again);
    }
}

static void a_run_goes_on_with_another_number_of_ranks(void **state)
{
    (void)state;
    story whole = {.opts = &plain, .ranks = 3, .context = 1, .sizes = three_sizes};
    run_ranks(&whole);
    for (int ranks = 1; ranks <= 3; ranks++) {
        story half = {.opts = &plain,
                      .ranks = 3,
                      .context = 1,
                      .sizes = three_sizes,
                      .stop = 3,
                      .save = in_root("half")};
        run_ranks(&half);
        story rest = {.opts = &plain,
                      .ranks = ranks,
                      .context = 1,
                      .sizes = three_sizes,
                      .resume = in_root("half")};
        run_ranks(&rest);
        for (int64_t s = 3; s < whole.steps; s++)
            assert_true(fabs(rest.loss[s] / whole.loss[s] - 1.0) < (ranks == 3 ? 1e-300 : 1e-4));
        assert_true(ranks < 3 || rest.weights[0] == whole.weights[0]);
        tess__remove_folder(in_root("half"));
    }
}

/* Every rank knows how even the step was planned and was; ranks of given speeds get what they can
 * do. */
static void imbalances_are_reported(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.batch = 16;
    opts.steps = 3;
    opts.ranks_context = 0;
    opts.speeds = "3,1";
    /* Simulated links make a rank's clock that of its thread: other jobs do not count. */
    const tess_link link = {.latency = 1000, .bandwidth = 1e10};
    story s = {.opts = &opts, .ranks = 2, .sizes = three_sizes, .link = &link};
    run_ranks(&s);
    for (int r = 0; r < 2; r++) {
        const tess_step *last = &s.last_step[r];
        assert_true(last->imbalance >= 1.0 && last->imbalance < 1.2);
        assert_true(last->imbalance_measured >= 1.0 && last->imbalance_measured <= 2.0);
        assert_true(last->passes_ms > 0.0 && last->passes_ms < last->step_ms);
        assert_true(isnan(s.first_step[r].passes_predicted_ms)); /* not measured before */
        assert_true(last->passes_predicted_ms > 0.0);
    }
    /* Equal machines of which one is said to be thrice as fast: it takes thrice as long. */
    assert_true(s.last_step[0].imbalance_measured > 1.2);
    opts.speeds = "3,1,1";
    story wrong = {.opts = &opts, .ranks = 2, .sizes = three_sizes};
    CHECK_FAILS(run_story(&wrong), TESS_EINVAL,
                "tess_train_create: speeds is \"3,1,1\", must be 2 integers 1..1000000 with commas "
                "between them");
}

static void what_is_not_possible_is_refused(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.attention.kind = TESS_ATTENTION_OWN;
    opts.attention.selector = "a.so:f";
    story own = {.opts = &opts, .ranks = 1, .sizes = three_sizes};
    CHECK_FAILS(run_story(&own), TESS_ENOTSUP,
                "tess_train_create: attention is own, must be of another kind for clips of several "
                "sizes");
    opts.attention = (tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV,
                                           .density = 0.25, .compensate = 4, .cluster_every = 20};
    story clusters = {.opts = &opts, .ranks = 1, .sizes = three_sizes};
    CHECK_FAILS(run_story(&clusters), TESS_ENOTSUP,
                "tess_train_create: cluster_every is 20, must be 0 for clips of several sizes");
    story odd = {.opts = &plain, .ranks = 1, .sizes = "2x16x16,2x16x18"};
    CHECK_FAILS(run_story(&odd), TESS_EINVAL,
                "tess_model_need: width is 9, must be a multiple of 2, the patch's");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_token_counts_alike_or_every_clip),
    cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_was_not_stopped),
    cmocka_unit_test(one_size_in_the_list_is_data_of_that_size),
    cmocka_unit_test(memory_is_that_of_the_largest_clip),
    cmocka_unit_test(uneven_ranks_have_the_losses_of_one),
    cmocka_unit_test(a_run_goes_on_with_another_number_of_ranks),
    cmocka_unit_test(imbalances_are_reported),
    cmocka_unit_test(what_is_not_possible_is_refused),
};

int main(void)
{
    return cmocka_run_group_tests(tests, open_root, close_root);
}
