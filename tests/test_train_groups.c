/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_groups.c - training with groups of queries by content, on one rank and on many. */
#include "train_ranks.h"

#include <string.h>

static const tess_train_opts sparse = {
    TESS_TRAIN_OPTS_DEFAULTS,
    .batch = 4,
    .steps = 24,
    .warmup = 5,
    .validate_every = 12,
    .validate_clips = 3,
    .ranks_context = 1,
    .seed = 3,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.25,
                  .dispatch = "sparse", .switch_by = TESS_SWITCH_STEP, .switch_step = 10,
                  .back_recall = 1e-6, .profile_every = 5, .check_every = 5, .cube = {2, 2, 2}}};

/* Whole heads have the groups of one rank; parts of heads their own, with a loss that is near. */
static void groups_by_content_train_on_ranks_that_share_tokens(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *strategy;
        double tolerance;
    } cases[] = {{2, "contiguous", 1e-4},
                 {2, "ring", 0.05},
                 {2, "selective", 0.05},
                 {4, "fractional", 0.05}};
    for (int group = TESS_GROUP_CONTENT; group <= TESS_GROUP_RANDOM; group++) {
        tess_train_opts opts = sparse;
        opts.attention.group = (tess_group)group;
        opts.attention.compensate = group == TESS_GROUP_CONTENT ? 4 : 1;
        story one = {.opts = &opts, .ranks = 1};
        run_ranks(&one);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            story many = {.opts = &opts,
                          .ranks = cases[i].ranks,
                          .context = cases[i].ranks,
                          .strategy = cases[i].strategy};
            story again = many;
            run_ranks(&many);
            assert_int_equal(many.steps, one.steps);
            for (int64_t s = 0; s < one.steps; s++)
                assert_true(fabs(many.loss[s] / one.loss[s] - 1.0) < cases[i].tolerance);
            run_ranks(&again);
            check_same(&many, &again);
        }
    }
}

static void hear(void *user, const char *sentence)
{
    if (strstr(sentence, "shares keys"))
        strcat(strcat(user, sentence), ";");
}

/* Decided once for each layer, in the checkpoint, on any ranks alike; a resumed run has the bits of
 * one that was not stopped. */
static void groups_are_decided_when_a_layer_switches(void **state)
{
    (void)state;
    for (int by_error = 0; by_error < 2; by_error++) {
        char text[3][2048] = {"", "", ""};
        tess_train_opts opts = sparse;
        opts.attention.group = TESS_GROUP_AUTO;
        opts.attention.compensate = 2;
        opts.attention.density = by_error ? 0 : 0.25;
        opts.attention.max_density = 0.5;
        opts.attention.error = by_error ? 50 : 0;
        opts.event = hear;
        opts.event_user = text[0];
        story whole = {.opts = &opts, .ranks = 1};
        run_ranks(&whole);
        assert_non_null(strstr(text[0], by_error ? "density needed in cubes" : "overlap in cubes"));
        tess_train_opts half = opts;
        half.event_user = text[1];
        story first = {.opts = &half, .ranks = 1, .stop = 15, .save = in_root("half")};
        run_ranks(&first);
        assert_string_equal(text[1], text[0]);
        story second = {.opts = &half, .ranks = 1, .resume = in_root("half")};
        run_ranks(&second);
        assert_string_equal(text[1], text[0]); /* nothing is decided again */
        assert_memory_equal(whole.loss + 15, second.loss + 15, 9 * sizeof *whole.loss);
        assert_true(whole.weights[0] == second.weights[0]);
        tess__remove_folder(in_root("half"));
        opts.event_user = text[2];
        story many = {.opts = &opts, .ranks = 2, .context = 2, .strategy = "contiguous"};
        run_ranks(&many);
        assert_string_equal(text[2], text[0]);
        for (int64_t s = 0; s < whole.steps; s++)
            assert_true(fabs(many.loss[s] / whole.loss[s] - 1.0) < 1e-4);
    }
}

static void memory_of_groups_on_ranks_is_predicted(void **state)
{
    (void)state;
    tess_train_opts opts = sparse;
    opts.attention.group = TESS_GROUP_CONTENT;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        story s = {.opts = &opts,
                   .ranks = ranks,
                   .context = ranks,
                   .strategy = "fractional",
                   .stop = 12,
                   .frames = 16};
        run_ranks(&s);
        for (int r = 0; r < ranks; r++) {
            print_message("rank %d of %d needs %lld bytes, took %lld\n", r, ranks,
                          (long long)s.need[r], (long long)s.peak[r]);
            assert_true(fabs((double)s.peak[r] / (double)s.need[r] - 1.0) < 0.3);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(groups_are_decided_when_a_layer_switches),
    cmocka_unit_test(memory_of_groups_on_ranks_is_predicted),
    cmocka_unit_test(groups_by_content_train_on_ranks_that_share_tokens),
};
RUN_TESTS_WITH(tests, open_root, close_root)
