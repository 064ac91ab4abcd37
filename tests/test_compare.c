/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare.c - training runs side by side: intervals against tables, arms, pairs, notes, and
 * what is said of runs that are none. Whether the page draws itself is for tests/browser. */
#include "files.h"
#include "report/compare_internal.h"

/* ---- statistics --------------------------------------------------------------------------- */

/* Quantiles of Student's t as tables and R's qt() give them, to the digits printed there. */
static void quantiles_are_those_of_the_tables(void **state)
{
    (void)state;
    static const struct {
        double confidence;
        int freedom;
        double t;
    } rows[] = {{0.95, 1, 12.7062047},  {0.95, 2, 4.30265273},    {0.95, 3, 3.18244631},
                {0.95, 4, 2.77644511},  {0.95, 10, 2.22813885},   {0.95, 29, 2.04522964},
                {0.95, 30, 2.04227246}, {0.95, 1000, 1.96233908}, {0.90, 2, 2.91998558},
                {0.99, 5, 4.03214298},  {0.50, 1, 1.0},           {0.999, 7, 5.40788252}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double t = tess__student(rows[i].confidence, rows[i].freedom);
        if (fabs(t / rows[i].t - 1) > 5e-9)
            fail_msg("t(%g, %d) is %.10g, must be %.9g", rows[i].confidence, rows[i].freedom, t,
                     rows[i].t);
    }
}

static void an_estimate_has_the_interval_of_its_numbers(void **state)
{
    (void)state;
    /* Mean 5, deviation sqrt(20/3): the interval is 5 -+ 3.18244631 sqrt(20/3) / 2. */
    const double x[] = {2, 4, NAN, 6, 8};
    tess_estimate e = tess__estimate(x, 5, 0.95);
    assert_int_equal(e.n, 4);
    assert_true(e.mean == 5);
    const double half = 3.18244631 * sqrt(20.0 / 3) / 2;
    assert_true(fabs(e.low - (5 - half)) < 1e-7 && fabs(e.high - (5 + half)) < 1e-7);
    e = tess__estimate(x, 1, 0.95);
    assert_true(e.n == 1 && e.mean == 2 && isnan(e.low) && isnan(e.high));
    e = tess__estimate(NULL, 0, 0.95);
    assert_true(e.n == 0 && isnan(e.mean));
}

static void an_interval_is_judged_by_where_it_lies(void **state)
{
    (void)state;
    static const struct {
        double low, high;
        tess_verdict verdict;
    } rows[] = {{-0.01, 0.01, TESS_VERDICT_INSIDE},   {-0.005, 0.011, TESS_VERDICT_OPEN},
                {-0.03, -0.011, TESS_VERDICT_BETTER}, {0.011, 0.02, TESS_VERDICT_WORSE},
                {-0.02, 0.02, TESS_VERDICT_OPEN},     {NAN, NAN, TESS_VERDICT_NONE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tess_estimate e = {.n = 3, .low = rows[i].low, .high = rows[i].high};
        assert_string_equal(tess_verdict_name(tess_estimate_judge(&e, 0.01)),
                            tess_verdict_name(rows[i].verdict));
    }
    assert_null(tess_verdict_name(TESS_VERDICT_OPEN + 1));
}

/* ---- runs --------------------------------------------------------------------------------- */

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    (void)mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A run of `steps` steps of `ms` each, validated at every second one: the loss is `end` at the
 * last, and 1 more for each two steps before it. */
static void write_run(const char *folder, const char *settings, int steps, double ms, double end)
{
    char text[8192] = "";
    for (int i = 1; i <= steps; i++) {
        const double loss = end + (steps - i) / 2.0;
        char val[200] = "null, \"val_buckets\": null";
        if (i % 2 == 0)
            snprintf(val, sizeof val, "%.9g, \"val_buckets\": [%.9g, %.9g, %.9g, %.9g]", loss,
                     0.5 * loss, loss, loss, 1.5 * loss);
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"step\": %d, \"loss\": %.9g, \"step_ms\": %.9g, \"attention_ms\": 1, "
                 "\"attention_gflop\": 2, \"density\": 0.25, \"val_loss\": %s}\n",
                 i, loss, ms, val);
    }
    write_text(folder, "metrics.jsonl", text);
    if (settings)
        write_text(folder, "settings.json", settings);
}

static void four_runs(void)
{
    write_run("a0", "{\"seed\": 0, \"attention\": \"dense\", \"keep\": 3}", 8, 1000, 1.0);
    write_run("a1", "{\"seed\": 1, \"attention\": \"dense\", \"keep\": 5}", 8, 1000, 2.0);
    write_run("b0", "{\"seed\": 0, \"attention\": \"dsv\", \"keep\": 3}", 8, 500, 1.1);
    write_run("b1", "{\"seed\": 1, \"attention\": \"dsv\", \"keep\": 3}", 8, 500, 2.4);
    write_text("b1", "events.jsonl",
               "{\"step\": 3, \"layer\": 0, \"event\": \"switch\"}\n"
               "{\"step\": 5, \"layer\": 1, \"event\": \"switch\", \"why\": {}}\n"
               "{\"step\": 5, \"layer\": 1, \"event\": \"cube\"}\n"
               "{\"step\": 7, \"layer\": 1, \"head\": 2, \"event\": \"back\"}\n{\"step\": 8");
}

static void check_estimate(const tess_estimate *e, int n, double mean, double half)
{
    assert_int_equal(e->n, n);
    assert_true(fabs(e->mean - mean) < 1e-9 * fabs(mean) + 1e-12);
    assert_true(fabs((e->high - e->low) / 2 - half) < 1e-8 * half + 1e-12);
}

/* Two pairs: changes of +10 % and +20 %, so +15 % with 12.7062047 x 0.0707 / sqrt(2) around it. */
static void arms_are_compared_by_pairs_of_seeds(void **state)
{
    (void)state;
    four_runs();
    const tess_compare_run runs[] = {{"a0", NULL}, {"b1", NULL}, {"b0", NULL}, {"a1", NULL}};
    tess_compare *compare = NULL;
    tess_compare_info info;
    tess_compare_arm a, b;
    CHECK_OK(tess_compare_create(ctx, runs, 4, NULL, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    assert_true(info.arms == 2 && info.runs == 4 && info.baseline == 0 && info.notes == 0);
    assert_true(info.step == 8 && info.wall_s == 4 && info.gflop == 16 && info.margin == 0.01);
    CHECK_OK(tess_compare_arm_view(compare, 0, &a));
    CHECK_OK(tess_compare_arm_view(compare, 1, &b));
    assert_string_equal(a.label, "dense");
    assert_string_equal(b.label, "dsv");
    const double half = 12.7062047364 * 0.5;
    check_estimate(&a.at_step.loss, 2, 1.5, half);
    check_estimate(&b.at_step.change, 2, 0.15, 12.7062047364 * 0.05);
    check_estimate(&b.at_step.buckets[0], 2, 0.875, 12.7062047364 * 0.325);
    check_estimate(&b.at_step.bucket_changes[3], 2, 0.15, 12.7062047364 * 0.05);
    assert_int_equal(a.at_step.change.n, 0);
    assert_int_equal(b.at_step.verdict, TESS_VERDICT_OPEN);
    /* After 4 s a dense run is at step 4, two validations before its end: 2 above it. */
    check_estimate(&a.at_wall.loss, 2, 3.5, half);
    check_estimate(&b.at_wall.loss, 2, 1.75, 12.7062047364 * 0.65);
    check_estimate(&b.at_gflop.change, 2, 0.15, 12.7062047364 * 0.05);
    check_estimate(&b.step_ms, 2, 500, 0);
    check_estimate(&b.wall_s, 2, 4, 0);
    check_estimate(&b.density, 2, 0.25, 0);
    assert_true(b.switches == 2 && b.returns == 1 && b.first_switch == 3 && b.last_switch == 5);
    assert_true(a.switches == 0 && a.first_switch == 0);
    tess_compare_destroy(compare);
}

static void a_loss_between_validations_lies_on_their_line(void **state)
{
    (void)state;
    write_run("short", "{\"seed\": 0, \"attention\": \"dense\"}", 6, 500, 1.0);
    write_run("slow", "{\"seed\": 0, \"attention\": \"dsv\"}", 6, 1000, 1.0);
    const tess_compare_run runs[] = {{"short", NULL}, {"slow", NULL}};
    tess_compare *compare = NULL;
    tess_compare_arm b;
    CHECK_OK(tess_compare_create(ctx, runs, 2, NULL, &compare));
    CHECK_OK(tess_compare_arm_view(compare, 1, &b));
    /* 3 s: half way between step 2 (loss 3) and step 4 (loss 2). */
    assert_true(fabs(b.at_wall.loss.mean - 2.5) < 1e-12);
    assert_string_equal(tess_compare_note(compare, 0),
                        "dsv has one seed in common with dense: no interval");
    assert_null(tess_compare_note(compare, 1));
    assert_int_equal(b.at_wall.verdict, TESS_VERDICT_NONE);
    tess_compare_destroy(compare);
}

/* A run that branched off at step 3 has no time before it, so the other's there does not count. */
static void runs_that_begin_later_count_time_from_there(void **state)
{
    (void)state;
    write_run("whole", "{\"seed\": 0, \"attention\": \"dense\"}", 6, 1000, 1.0);
    write_text("late", "settings.json", "{\"seed\": 0, \"attention\": \"dsv\"}");
    write_text("late", "metrics.jsonl",
               "{\"step\": 3, \"step_ms\": 500}\n"
               "{\"step\": 4, \"step_ms\": 500, \"val_loss\": 2}\n"
               "{\"step\": 5, \"step_ms\": 500}\n"
               "{\"step\": 6, \"step_ms\": 500, \"val_loss\": 1.5}\n");
    const tess_compare_run runs[] = {{"whole", NULL}, {"late", NULL}};
    tess_compare *compare = NULL;
    tess_compare_info info;
    tess_compare_arm a;
    CHECK_OK(tess_compare_create(ctx, runs, 2, NULL, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    CHECK_OK(tess_compare_arm_view(compare, 0, &a));
    assert_string_equal(tess_compare_note(compare, 0),
                        "time and work are counted from step 3 on, at which the last run begins");
    /* 2 s after step 2 the whole run is at step 4, where its loss is 2. */
    assert_true(info.wall_s == 2 && fabs(a.at_wall.loss.mean - 2) < 1e-12);
    assert_true(isnan(info.gflop));
    tess_compare_destroy(compare);
}

static void labels_and_baselines_may_be_given(void **state)
{
    (void)state;
    four_runs();
    write_run("c0", NULL, 8, 500, 1.5);
    const tess_compare_run runs[] = {
        {"a0", "ours"}, {"a1", "theirs"}, {"b0", "ours"}, {"c0", NULL}};
    const tess_compare_opts opts = {.baseline = "theirs", .margin = 0.5, .confidence = 0.9};
    tess_compare *compare = NULL;
    tess_compare_info info;
    tess_compare_arm arm;
    CHECK_OK(tess_compare_create(ctx, runs, 4, &opts, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    assert_true(info.arms == 3 && info.baseline == 1 && info.margin == 0.5);
    CHECK_OK(tess_compare_arm_view(compare, 2, &arm));
    assert_string_equal(arm.label, "c0");
    assert_int_equal(info.notes, 4);
    assert_string_equal(tess_compare_note(compare, 0),
                        "a0 and b0 have the same seed: the first is paired");
    assert_string_equal(tess_compare_note(compare, 1), "c0 has no recorded seed: it is in no pair");
    assert_string_equal(tess_compare_note(compare, 2),
                        "ours has no seed in common with theirs: no change is reported");
    tess_compare_destroy(compare);
    CHECK_FAILS(
        tess_compare_create(ctx, runs, 4, &(tess_compare_opts){.baseline = "their"}, &compare),
        TESS_EINVAL, "tess_compare_create: no arm is called \"their\", did you mean \"theirs\"");
}

static void arms_are_named_by_what_differs(void **state)
{
    (void)state;
    write_run("n0", "{\"seed\": 0, \"attention\": \"dsv\", \"lr\": 0.003, \"compensate\": true}", 2,
              1, 1);
    write_run("n1", "{\"seed\": 0, \"attention\": \"dsv\", \"lr\": 0.001, \"compensate\": true}", 2,
              1, 1);
    write_run("n2", "{\"seed\": 0, \"attention\": \"dsv\", \"lr\": 0.001, \"compensate\": false}",
              2, 1, 1);
    write_run("n3", "{\"seed\": 0, \"attention\": \"dsv\", \"lr\": 0.001}", 2, 1, 1);
    const char *const labels[] = {"lr 0.003, compensate", "lr 0.001, compensate",
                                  "lr 0.001, no compensate", "lr 0.001"};
    const tess_compare_run runs[] = {{"n0", NULL}, {"n1", NULL}, {"n2", NULL}, {"n3", NULL}};
    tess_compare *compare = NULL;
    tess_compare_arm arm;
    CHECK_OK(tess_compare_create(ctx, runs, 4, NULL, &compare));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(tess_compare_arm_view(compare, i, &arm));
        assert_string_equal(arm.label, labels[i]);
    }
    CHECK_FAILS(tess_compare_arm_view(compare, 4, &arm), TESS_EINVAL,
                "tess_compare_arm_view: index is 4, must be 0..3");
    tess_compare_destroy(compare);
}

static void settings_of_sparsity_do_not_count_for_dense_runs(void **state)
{
    (void)state;
    write_run("s0", "{\"seed\": 0, \"attention\": \"dense\", \"density\": 0, \"cube\": \"auto\"}",
              2, 1, 1);
    write_run("s1", "{\"seed\": 1, \"attention\": \"dense\", \"density\": 0.5, \"rank\": 8}", 2, 1,
              1);
    write_run("s2", "{\"seed\": 0, \"attention\": \"dsv\", \"density\": 0.5, \"lr\": 1}", 2, 1, 1);
    write_run("s3", "{\"seed\": 0, \"attention\": \"dsv\", \"density\": 0.25, \"lr\": 1}", 2, 1, 1);
    const char *const labels[] = {"dense", "dsv, density 0.5", "dsv, density 0.25"};
    const tess_compare_run runs[] = {{"s2", NULL}, {"s0", NULL}, {"s1", NULL}, {"s3", NULL}};
    tess_compare *compare = NULL;
    tess_compare_info info;
    tess_compare_arm arm;
    CHECK_OK(
        tess_compare_create(ctx, runs, 4, &(tess_compare_opts){.baseline = "dense"}, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    assert_true(info.arms == 3 && info.baseline == 1);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_compare_arm_view(compare, i, &arm));
        assert_string_equal(arm.label, labels[i == 0 ? 1 : i == 1 ? 0 : 2]);
    }
    tess_compare_destroy(compare);
    CHECK_FAILS(
        tess_compare_create(ctx, runs, 4, &(tess_compare_opts){.baseline = "dsv"}, &compare),
        TESS_EINVAL,
        "tess_compare_create: several arms begin with \"dsv\", must be all of a label such as "
        "\"dsv, "
        "density 0.5\"");
    CHECK_OK(tess_compare_create(ctx, runs, 3, &(tess_compare_opts){.baseline = "dsv"}, &compare));
    tess_compare_destroy(compare);
    /* A label that begins with the name of the only arm of that kind. */
    write_run("s4", "{\"seed\": 0, \"attention\": \"dense\", \"lr\": 2}", 2, 1, 1);
    write_run("s5", "{\"seed\": 0, \"attention\": \"dsv\", \"lr\": 1}", 2, 1, 1);
    const tess_compare_run two[] = {{"s5", NULL}, {"s4", NULL}};
    CHECK_OK(tess_compare_create(ctx, two, 2, &(tess_compare_opts){.baseline = "dense"}, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    CHECK_OK(tess_compare_arm_view(compare, info.baseline, &arm));
    assert_string_equal(arm.label, "dense, lr 2");
    tess_compare_destroy(compare);
}

static void what_cannot_be_compared_is_said(void **state)
{
    (void)state;
    write_run("odd", "{\"seed\": 0, \"data\": \"recall\", \"attention\": \"dense\"}", 3, 1, 1);
    write_run("even", "{\"seed\": 0, \"data\": \"shapes\", \"attention\": \"dense\"}", 4, 1, 1);
    write_text("never", "metrics.jsonl", "{\"step\": 1}\n");
    const tess_compare_run runs[] = {{"odd", NULL}, {"even", NULL}, {"never", NULL}};
    tess_compare *compare = NULL;
    tess_compare_info info;
    CHECK_OK(tess_compare_create(ctx, runs, 3, NULL, &compare));
    CHECK_OK(tess_compare_query(compare, &info));
    assert_true(info.step == 0 && isnan(info.wall_s) && isnan(info.gflop));
    static const char *const notes[] = {
        "never has no recorded seed: it is in no pair",
        "odd ends at step 3, others go on to step 4",
        "never was never validated: there is nothing to compare",
        "there is no step at which every run was validated",
        "runs differ in \"data\": their losses are not of the same thing"};
    assert_int_equal(info.notes, sizeof notes / sizeof *notes);
    for (int i = 0; i < info.notes; i++)
        assert_string_equal(tess_compare_note(compare, i), notes[i]);
    CHECK_OK(tess_compare_write(compare, "page.html"));
    tess_compare_destroy(compare);
}

static void what_is_no_run_gets_a_sentence(void **state)
{
    (void)state;
    tess_compare *compare = NULL;
    tess_compare_run run = {"nowhere", NULL};
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EIO,
                "nowhere/metrics.jsonl: cannot open: No such file or directory");
    run.path = "bad";
    write_text("bad", "metrics.jsonl", "");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EFORMAT,
                "bad/metrics.jsonl: no step was recorded");
    write_text("bad", "metrics.jsonl", "{\"step\": 2}\n{\"step\": 2}\n");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EFORMAT,
                "bad/metrics.jsonl: line 2: step 2, must ascend from 1");
    write_text("bad", "metrics.jsonl", "{\"step\": 1}\nnothing\n");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EFORMAT,
                "bad/metrics.jsonl: line 2: not the metrics of a step");
    write_text("bad", "metrics.jsonl", "{\"step\": 1}\n");
    write_text("bad", "settings.json", "[]");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EFORMAT,
                "bad/settings.json: line 1: must be an object of settings");
    write_text("bad", "settings.json", "{}");
    write_text("bad", "events.jsonl", "{\"event\": \"switch\"}\n");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EFORMAT,
                "bad/events.jsonl: line 1: not an event with its step");
    CHECK_FAILS(tess_compare_create(ctx, &run, 0, NULL, &compare), TESS_EINVAL,
                "tess_compare_create: n is 0, must be 1..65536");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, &(tess_compare_opts){.margin = -1}, &compare),
                TESS_EINVAL, "tess_compare_create: margin is -1, must be 0 or more");
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, &(tess_compare_opts){.confidence = 1}, &compare),
                TESS_EINVAL, "tess_compare_create: confidence is 1, must be 0 or more, below 1");
    CHECK_FAILS(tess_compare_create(ctx, NULL, 1, NULL, &compare), TESS_EINVAL,
                "tess_compare_create: runs is NULL");
    run.path = NULL;
    CHECK_FAILS(tess_compare_create(ctx, &run, 1, NULL, &compare), TESS_EINVAL,
                "tess_compare_create: runs[0].path is NULL");
    assert_null(compare);
}

static void the_page_holds_curves_and_changes(void **state)
{
    (void)state;
    four_runs();
    const tess_compare_run runs[] = {{"a0", NULL}, {"a1", NULL}, {"b0", "</script>"}};
    tess_compare *compare = NULL;
    static char text[1 << 20];
    CHECK_OK(tess_compare_create(ctx, runs, 3, NULL, &compare));
    CHECK_OK(tess_compare_write(compare, "page.html"));
    FILE *f = fopen("page.html", "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "{\"label\":\"\\u003c/script>\",\"runs\":1,"));
    assert_non_null(strstr(text, "\"validation\":[[2,1,4,4.1,null,null,2.05,4.1,4.1,6.15],"));
    assert_non_null(strstr(text, "\"changes\":[[2,0.025,null,null],"));
    assert_non_null(strstr(text, "\"training\":[[1,0.5,2,4.6,null,null,0.25,null],"));
    CHECK_FAILS(tess_compare_write(compare, NULL), TESS_EINVAL, "tess_compare_write: path is NULL");
    CHECK_FAILS(tess_compare_write(compare, "none/x.html"), TESS_EIO,
                "none/x.html: cannot create: No such file or directory");
    tess_compare_destroy(compare);
    tess_compare_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(quantiles_are_those_of_the_tables),
    cmocka_unit_test(an_estimate_has_the_interval_of_its_numbers),
    cmocka_unit_test(an_interval_is_judged_by_where_it_lies),
    cmocka_unit_test(arms_are_compared_by_pairs_of_seeds),
    cmocka_unit_test(a_loss_between_validations_lies_on_their_line),
    cmocka_unit_test(runs_that_begin_later_count_time_from_there),
    cmocka_unit_test(labels_and_baselines_may_be_given),
    cmocka_unit_test(arms_are_named_by_what_differs),
    cmocka_unit_test(settings_of_sparsity_do_not_count_for_dense_runs),
    cmocka_unit_test(what_cannot_be_compared_is_said),
    cmocka_unit_test(what_is_no_run_gets_a_sentence),
    cmocka_unit_test(the_page_holds_curves_and_changes),
};

RUN_TESTS_IN_FOLDER(tests)
