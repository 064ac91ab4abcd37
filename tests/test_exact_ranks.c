/* SPDX-License-Identifier: Apache-2.0 */
/* test_exact_ranks.c - with exact_ranks a run has the same bits on any number of ranks.
 *
 * Weights, losses and validation are compared bit for bit, and with those of a run without
 * exact_ranks within 1e-4 of the loss, the bar of test_train_ranks.c. Checkpoints are compared file
 * by file after a resume on another number of ranks.
 */
#include "train_ranks.h"

#include <string.h>

static const tess_train_opts dense = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 4,         .steps = 6, .warmup = 2,     .validate_every = 3,
    .validate_clips = 3,      .ranks_context = 1, .seed = 3,  .exact_ranks = 1};

static const tess_train_opts sparse = {
    TESS_TRAIN_OPTS_DEFAULTS,
    .batch = 4,
    .steps = 8,
    .warmup = 2,
    .validate_every = 4,
    .validate_clips = 3,
    .ranks_context = 1,
    .seed = 3,
    .exact_ranks = 1,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.25,
                  .dispatch = "sparse", .switch_by = TESS_SWITCH_STEP, .switch_step = 3,
                  .back_recall = 1e-6, .profile_every = 2, .check_every = 2, .cube = {2, 2, 2}}};

/* How tokens and clips are shared out. */
typedef struct {
    int ranks, context;
    const char *strategy;
} sharing;

static void check_sharings(const tess_train_opts *opts, const sharing *sharings, size_t n)
{
    story one = {.opts = opts, .ranks = 1, .context = 1};
    run_ranks(&one);
    assert_int_equal(one.steps, opts->steps);
    for (size_t i = 0; i < n; i++) {
        story many = {.opts = opts,
                      .ranks = sharings[i].ranks,
                      .context = sharings[i].context,
                      .strategy = sharings[i].strategy};
        run_ranks(&many);
        assert_memory_equal(many.loss, one.loss, sizeof one.loss);
        assert_memory_equal(&many.val_loss, &one.val_loss, sizeof one.val_loss);
        for (int r = 0; r < many.ranks; r++)
            assert_true(many.weights[r] == one.weights[0]);
    }
}

static void dense_runs_have_the_same_bits(void **state)
{
    (void)state;
    static const sharing all[] = {{2, 2, "refined"},    {2, 1, "auto"},       {2, 2, "fractional"},
                                  {3, 3, "fractional"}, {4, 2, "contiguous"}, {4, 4, "auto"}};
    check_sharings(&dense, all, sizeof all / sizeof *all);
}

static void sparse_runs_have_the_same_bits(void **state)
{
    (void)state;
    static const sharing all[] = {
        {2, 2, "db-sp"}, {3, 3, "fractional"}, {4, 2, "refined"}, {4, 1, "auto"}};
    check_sharings(&sparse, all, sizeof all / sizeof *all);
}

static void predictors_of_hidden_states_learn_the_same(void **state)
{
    (void)state;
    static const sharing all[] = {{3, 3, "fractional"}};
    tess_train_opts opts = sparse;
    opts.attention.predictor = TESS_PREDICTOR_HIDDEN;
    opts.attention.loss = TESS_PREDICT_COSINE;
    check_sharings(&opts, all, 1);
}

static void other_ways_to_keep_activations_have_the_same_bits(void **state)
{
    (void)state;
    static const sharing all[] = {{3, 3, "fractional"}};
    tess_train_opts opts = dense;
    opts.steps = 3;
    opts.accumulate = 2;
    opts.keep = TESS_KEEP_BLOCKS;
    check_sharings(&opts, all, 1);
    opts.store = TESS_DTYPE_BF16;
    check_sharings(&opts, all, 1);
}

static void exact_sums_are_those_of_a_run_without(void **state)
{
    (void)state;
    tess_train_opts plain = dense;
    plain.exact_ranks = 0;
    story a = {.opts = &dense, .ranks = 1, .context = 1}, b = {.opts = &plain, .ranks = 1};
    run_ranks(&a);
    run_ranks(&b);
    for (int i = 0; i < dense.steps; i++)
        assert_true(fabs(a.loss[i] / b.loss[i] - 1.0) < 1e-4);
    assert_true(fabs(a.val_loss / b.val_loss - 1.0) < 1e-4);
    assert_true(a.weights[0] != b.weights[0]);
}

static void check_same_file(const char *folder, const char *other, const char *name)
{
    static char bytes[2][1 << 20];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX + 256];
        snprintf(path, sizeof path, "%s/%s", i ? other : folder, name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        n[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        assert_true(n[i] > 0 && n[i] < sizeof bytes[i]);
        fclose(file);
    }
    if (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0)
        fail_msg("%s differs", name);
}

/* Four steps on three ranks and the others on two, or all on one. */
static void checkpoints_are_equal_after_a_resume_on_other_ranks(void **state)
{
    (void)state;
    char half[PATH_MAX], whole[PATH_MAX], resumed[PATH_MAX];
    snprintf(half, sizeof half, "%s", in_root("half"));
    snprintf(whole, sizeof whole, "%s", in_root("whole"));
    snprintf(resumed, sizeof resumed, "%s", in_root("resumed"));
    story one = {.opts = &sparse, .ranks = 1, .context = 1, .save = whole};
    story first = {.opts = &sparse,
                   .ranks = 3,
                   .context = 3,
                   .strategy = "fractional",
                   .stop = 4,
                   .save = half};
    story second = {.opts = &sparse,
                    .ranks = 2,
                    .context = 2,
                    .strategy = "contiguous",
                    .resume = half,
                    .save = resumed};
    run_ranks(&one);
    run_ranks(&first);
    run_ranks(&second);
    for (size_t i = 0; i < sizeof checkpoint_files / sizeof *checkpoint_files; i++)
        check_same_file(whole, resumed, checkpoint_files[i]);
}

static void what_has_another_order_is_refused_by_name(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    story rings = {.opts = &opts, .ranks = 2, .context = 2, .strategy = "ring"};
    assert_int_equal(run_story(&rings), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "strategy is \"ring\", must leave keys whole"));
    opts.attention = sparse.attention;
    opts.attention.dispatch = NULL;
    story timed = {.opts = &opts, .ranks = 1};
    assert_int_equal(run_story(&timed), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "attention.dispatch is auto"));
    opts.attention = sparse.attention;
    opts.attention.group = TESS_GROUP_CONTENT;
    story content = {.opts = &opts, .ranks = 1};
    assert_int_equal(run_story(&content), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "attention.group must be cube"));
    opts.attention = sparse.attention;
    opts.attention.compensate = 4;
    story clusters = {.opts = &opts, .ranks = 1};
    assert_int_equal(run_story(&clusters), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "attention.compensate is 4"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(dense_runs_have_the_same_bits),
    cmocka_unit_test(sparse_runs_have_the_same_bits),
    cmocka_unit_test(predictors_of_hidden_states_learn_the_same),
    cmocka_unit_test(other_ways_to_keep_activations_have_the_same_bits),
    cmocka_unit_test(exact_sums_are_those_of_a_run_without),
    cmocka_unit_test(checkpoints_are_equal_after_a_resume_on_other_ranks),
    cmocka_unit_test(what_has_another_order_is_refused_by_name),
};
RUN_TESTS_WITH(tests, open_root, close_root)
