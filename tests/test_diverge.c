/* SPDX-License-Identifier: Apache-2.0 */
/* test_diverge.c - runs that diverge end with a checkpoint of their last good state.
 *
 * A run is ruined from outside, after a step: its weights grow, so that the loss rises for two
 * steps and then leaves its level, or their average grows, which validation alone sees. The
 * checkpoint that is left must have the bits of a run that was ended at its step.
 */
#include "train_ranks.h"

#include <string.h>

enum { STEPS = 30, AT = 17 };

static const tess_train_opts dense = {TESS_TRAIN_OPTS_DEFAULTS,
                                      .batch = 4,
                                      .steps = STEPS,
                                      .warmup = 5,
                                      .validate_every = 7,
                                      .validate_clips = 1,
                                      .weight_decay = 0.01,
                                      .ranks_context = 1,
                                      .seed = 3,
                                      .checkpoint_every = 6};

static const tess_train_opts sparse = {
    TESS_TRAIN_OPTS_DEFAULTS,
    .batch = 4,
    .steps = STEPS,
    .warmup = 5,
    .validate_every = 7,
    .validate_clips = 1,
    .ranks_context = 1,
    .seed = 3,
    .checkpoint_every = 6,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.25,
                  .dispatch = "sparse", .switch_by = TESS_SWITCH_STEP, .switch_step = 10,
                  .back_recall = 1e-6, .profile_every = 5, .check_every = 5, .cube = {2, 2, 2}}};

/* The step of the checkpoint that the sentence of every rank names; the sentence's first part. */
static int64_t step_left(const story *s, const char *what)
{
    static const char mark[] = "/checkpoints/step-", end[] = " holds its last good state";
    for (int r = 0; r < s->ranks; r++) {
        assert_int_equal(s->status[r], TESS_EINVAL);
        assert_string_equal(s->sentence[r], s->sentence[0]);
    }
    const char *at = strstr(s->sentence[0], mark);
    if (!strstr(s->sentence[0], what) || !at || !strstr(s->sentence[0], end))
        fail_msg("%s", s->sentence[0]);
    return strtoll(at + sizeof mark - 1, NULL, 10);
}

/* The same bytes. */
static void check_same_file(const char *a, const char *b)
{
    FILE *files[2] = {fopen(a, "rb"), fopen(b, "rb")};
    int64_t at = 0;
    assert_non_null(files[0]);
    assert_non_null(files[1]);
    for (int c = 0; c != EOF; at++) {
        c = fgetc(files[0]);
        if (c != fgetc(files[1]))
            fail_msg("%s and %s differ at byte %lld", a, b, (long long)at);
    }
    fclose(files[0]);
    fclose(files[1]);
}

static const char *left_path(const story *s, int64_t step, const char *file)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/checkpoints/step-%06d/%s", s->opts->folder, (int)step, file);
    return path;
}

/* A run that was not ruined, ended at the step. */
static void check_bits(const story *s, int64_t step)
{
    char whole_file[PATH_MAX];
    tess_train_opts opts = *s->opts;
    opts.folder = NULL;
    story whole = {.opts = &opts,
                   .ranks = s->ranks,
                   .context = s->context,
                   .strategy = s->strategy,
                   .stop = step,
                   .save = in_root("whole")};
    run_ranks(&whole);
    for (size_t i = 0; i < sizeof checkpoint_files / sizeof *checkpoint_files; i++) {
        snprintf(whole_file, sizeof whole_file, "%s/%s", in_root("whole"), checkpoint_files[i]);
        if (exists(whole_file)) /* not all have a controller */
            check_same_file(left_path(s, step, checkpoint_files[i]), whole_file);
    }
    assert_true(exists(in_root("whole/state.json")));
    tess__remove_folder(in_root("whole"));
}

/* Runs it and returns the step of the checkpoint that is left. */
static int64_t check_left(story *s, const char *what)
{
    assert_int_equal(run_story(s), TESS_EINVAL);
    const int64_t left = step_left(s, what);
    if (left > 0)
        check_bits(s, left);
    assert_true(exists(left_path(s, left, "state.json")));
    for (int64_t later = left + 1; later <= STEPS; later++) /* a resume would take it */
        assert_false(exists(left_path(s, later, "")));
    assert_false(exists(left_path(s, left, "../.step-start")));
    return left;
}

static const struct {
    int ranks, context;
    const char *strategy;
} cases[] = {{1, 1, NULL}, {2, 1, NULL}, {2, 2, "contiguous"}};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- losses ---------------------------------------------------------------------------------- */

static void check_loss(const tess_train_opts *of, int every)
{
    for (int i = 0; i < CASES; i++) {
        tess_train_opts opts = *of;
        opts.folder = in_root("rises");
        opts.checkpoint_every = every;
        story s = {.opts = &opts,
                   .ranks = cases[i].ranks,
                   .context = cases[i].context,
                   .strategy = cases[i].strategy,
                   .odd = ODD_RISES,
                   .at = AT};
        const int64_t left = check_left(&s, "diverges: the loss of step 20 is ");
        assert_in_range(left, AT - 6, AT - 1); /* the newest loss that is not above the mean */
        /* The steps that diverged stay on record. */
        assert_int_equal(count_lines(in_root("rises/metrics.jsonl")), AT + 2);
        tess__remove_folder(opts.folder);
    }
}

static void a_loss_that_diverges_leaves_the_last_good_state(void **state)
{
    (void)state;
    check_loss(&dense, 6);
    check_loss(&dense, 0);      /* from the start: there is no checkpoint */
    check_loss(&dense, AT + 1); /* the one there is has lost weights */
}

static void sparse_attention_goes_back_too(void **state)
{
    (void)state;
    check_loss(&sparse, 6);
    check_loss(&sparse, 0);
}

static void a_run_goes_on_if_asked_to(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    opts.folder = in_root("goes_on");
    opts.diverge_above = 0;
    story s = {.opts = &opts, .ranks = 1, .odd = ODD_RISES, .at = AT};
    run_ranks(&s);
    assert_int_equal(s.steps, STEPS);
    assert_true(s.loss[AT + 2] > 10 * s.loss[AT - 1]);
}

/* ---- validation ------------------------------------------------------------------------------ */

static void a_validation_that_diverges_leaves_the_last_validated_state(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        tess_train_opts opts = dense;
        opts.folder = in_root("average");
        story s = {.opts = &opts,
                   .ranks = cases[i].ranks,
                   .context = cases[i].context,
                   .strategy = cases[i].strategy,
                   .odd = ODD_AVERAGE,
                   .at = AT};
        const int64_t left = check_left(&s, "diverges: the validation loss of step 21 is ");
        assert_int_equal(left, 14); /* losses are as low as ever: validation alone shows it */
        tess__remove_folder(opts.folder);
    }
}

/* ---- what is missing ------------------------------------------------------------------------- */

static void without_a_folder_the_sentence_alone_is_left(void **state)
{
    (void)state;
    story s = {.opts = &dense, .ranks = 2, .context = 1, .odd = ODD_RISES, .at = AT};
    assert_int_equal(run_story(&s), TESS_EINVAL);
    for (int r = 0; r < s.ranks; r++) {
        assert_non_null(strstr(s.sentence[r], "the run diverges: the loss of step 20 is "));
        assert_non_null(strstr(s.sentence[r], "; a smaller learning rate may help"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_loss_that_diverges_leaves_the_last_good_state),
    cmocka_unit_test(sparse_attention_goes_back_too),
    cmocka_unit_test(a_run_goes_on_if_asked_to),
    cmocka_unit_test(a_validation_that_diverges_leaves_the_last_validated_state),
    cmocka_unit_test(without_a_folder_the_sentence_alone_is_left),
};
RUN_TESTS_WITH(tests, open_root, close_root)
