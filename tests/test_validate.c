/* SPDX-License-Identifier: Apache-2.0 */
/* test_validate.c - tables scored, parameters fitted; with TESS_REFERENCE the published tables. */
#include "ctx_fixture.h"

#include "tessera/advanced/sim_detail.h"
#include "tessera/advanced/validate.h"

#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/tessera-validate-XXXXXX";
static char path[128];

static int begin(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/t.csv", folder);
    return make_ctx(state);
}

static int end(void **state)
{
    unlink(path);
    rmdir(folder);
    return drop_ctx(state);
}

static void write_table(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static tess_validation *validate(const char *file)
{
    tess_validation *v = NULL;
    CHECK_OK(tess_validation_run(ctx, file, NULL, &v));
    return v;
}

#define HEADER                                                                                     \
    "label,group,model.name,layout.tp,training.micro_batch,system.cluster,system.era,"             \
    "measured.step_ms\n"

static void repeats_count_once_and_skipped_rows_are_named(void **state)
{
    (void)state;
    write_table(HEADER "a,x,gpt-22b,8,1,a100-80,megatron-2022,300\n"
                       "b,x,gpt-22b,8,2,a100-80,megatron-2022,700\n"
                       "a,x,gpt-22b,8,1,a100-80,megatron-2022,500\n"
                       "c,x,gpt-22b,8,1,a100-80,megatron-1999,500\n"
                       "d,x,gpt-22b,8,1,a100-80,megatron-1999,600\n"
                       "e,x,gpt-22b,5,1,a100-80,megatron-2022,500\n");
    tess_validation *v = validate(path);
    tess_validation_info info;
    tess_validation_case c;
    tess_validation_skip s;
    CHECK_OK(tess_validation_query(v, &info));
    assert_int_equal(info.rows, 6);
    assert_int_equal(info.cases, 2);
    assert_int_equal(info.skipped, 3);
    assert_int_equal(info.score.scored, 2);
    CHECK_OK(tess_validation_case_query(v, 0, &c));
    assert_int_equal(c.row, 1);
    assert_int_equal(c.repeats, 2);
    assert_true(c.measured == 400);
    assert_true(c.predicted > 0 && c.plain == c.predicted);
    /* The unknown era shows when rows are predicted: the repeat is skipped with its first. */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_validation_skip_query(v, i, &s));
        assert_int_equal(s.row, 4 + i);
    }
    tess_score with, plain;
    CHECK_OK(tess_validation_score(v, TESS_QUANTITY_STEP, "y", &with, &plain));
    assert_int_equal(with.scored, 0);
    CHECK_FAILS(tess_validation_case_query(v, 2, &c), TESS_EINVAL,
                "tess_validation_case_query: index is 2, must be 0..1");
    tess_validation_destroy(v);
    tess_validation_destroy(NULL);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    tess_validation *v = NULL;
    tess_calibration *k = NULL;
    const char *tables[] = {path}, *names[] = {"a100.gemm_shaer"};
    CHECK_FAILS(tess_validation_run(ctx, NULL, NULL, &v), TESS_EINVAL,
                "tess_validation_run: path is NULL");
    CHECK_FAILS(tess_calibration_run(ctx, NULL, &k), TESS_EINVAL,
                "tess_calibration_run: opts is NULL");
    CHECK_FAILS(tess_calibration_run(ctx, &(tess_calibration_opts){.n_tables = 1}, &k), TESS_EINVAL,
                "tess_calibration_run: a table and a parameter must be given");
    CHECK_FAILS(
        tess_calibration_run(
            ctx,
            &(tess_calibration_opts){.tables = tables, .n_tables = 1, .names = names, .n_names = 1},
            &k),
        TESS_EINVAL,
        "tess_calibration_run: no parameter \"a100.gemm_shaer\"; names are those of the "
        "file, \"h100.gemm_share\" or \"scalar.SYSTEM ERA\"");
    assert_null(v);
    assert_null(k);
}

/* A table that is what the simulator says with other parameters: the fit finds these again. The
 * search ends at steps of 0.2 % of a value, and the two parameters act on different rows. */
static void a_fit_finds_the_parameters_that_made_the_table(void **state)
{
    (void)state;
    static const double want = 0.7;
    const char *tables[] = {path}, *names[] = {"a100.gemm_share"};
    write_table(HEADER "a,,gpt-22b,8,1,a100-80,megatron-2022,1\n"
                       "b,,gpt-175b,8,2,a100-80,megatron-2022,1\n");
    tess_sim_params *params = NULL;
    CHECK_OK(tess_sim_params_load(ctx, NULL, &params));
    for (int i = 0; i < tess_sim_params_count(params); i++) {
        tess_sim_param p;
        CHECK_OK(tess_sim_params_query(params, i, &p));
        if (strcmp(p.owner, "a100") == 0 && strcmp(p.name, "gemm_share") == 0)
            CHECK_OK(tess_sim_params_set(params, i, want));
    }
    tess_validation *v = NULL;
    tess_validation_case c[2];
    CHECK_OK(tess_validation_run(ctx, path, &(tess_validation_opts){.params = params}, &v));
    CHECK_OK(tess_validation_case_query(v, 0, &c[0]));
    CHECK_OK(tess_validation_case_query(v, 1, &c[1]));
    char text[512];
    snprintf(text, sizeof text,
             HEADER "a,,gpt-22b,8,1,a100-80,megatron-2022,%.9g\n"
                    "b,,gpt-175b,8,2,a100-80,megatron-2022,%.9g\n",
             c[0].predicted, c[1].predicted);
    tess_validation_destroy(v);
    tess_sim_params_destroy(params);
    write_table(text);
    tess_calibration *k = NULL;
    tess_calibration_info info;
    tess_sim_param p;
    double before;
    CHECK_OK(tess_calibration_run(
        ctx,
        &(tess_calibration_opts){
            .tables = tables, .n_tables = 1, .names = names, .n_names = 1, .leave_one_out = 1},
        &k));
    CHECK_OK(tess_calibration_query(k, &info));
    assert_int_equal(info.models, 2);
    assert_true(info.before > 3 && info.after < 0.2 && info.left_out < 0.4);
    CHECK_OK(tess_calibration_value(k, 0, &p, &before));
    assert_true(fabs(p.value / want - 1) < 0.004 && before != p.value);
    CHECK_FAILS(tess_calibration_value(k, 1, &p, &before), TESS_EINVAL,
                "tess_calibration_value: index is 1, must be 0..0");
    CHECK_OK(tess_calibration_write(k, path));
    CHECK_OK(tess_sim_params_load(ctx, path, &params));
    tess_sim_params_destroy(params);
    tess_calibration_destroy(k);
}

/* Groups come in the order of their first row, with the scores that their cases have. */
static void groups_are_scored_in_the_order_of_the_table(void **state)
{
    (void)state;
    write_table(HEADER "a,z,gpt-22b,8,1,a100-80,megatron-2022,300\n"
                       "b,x,gpt-22b,8,2,a100-80,megatron-2022,700\n"
                       "c,,gpt-22b,8,4,a100-80,megatron-2022,1000\n"
                       "d,z,gpt-22b,8,8,a100-80,megatron-2022,2000\n");
    tess_validation *v = validate(path);
    tess_validation_info info;
    tess_validation_group g;
    static const char *const names[] = {"z", "x"};
    static const int scored[] = {2, 1};
    CHECK_OK(tess_validation_query(v, &info));
    assert_int_equal(info.groups, 2);
    for (int i = 0; i < 2; i++) {
        tess_score score, plain;
        CHECK_OK(tess_validation_group_query(v, i, &g));
        assert_string_equal(g.name, names[i]);
        assert_int_equal(g.score.scored, scored[i]);
        CHECK_OK(tess_validation_score(v, TESS_QUANTITY_STEP, names[i], &score, &plain));
        assert_true(g.score.mean == score.mean && g.score.median == score.median &&
                    g.score.max == score.max && g.plain.mean == plain.mean);
    }
    CHECK_FAILS(tess_validation_group_query(v, 2, &g), TESS_EINVAL,
                "tess_validation_group_query: index is 2, must be 0..1");
    tess_validation_destroy(v);
}

static int stop_at_call; /* of stop_then */

static int stop_then(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)what;
    return done >= 0 && total > 0 && --stop_at_call < 0;
}

/* Wherever the caller stops them, validation and fit return its status and leave nothing. */
static void validation_and_fit_stop_at_any_row(void **state)
{
    (void)state;
    const char *tables[] = {path}, *names[] = {"a100.gemm_share"};
    const tess_calibration_opts opts = {
        .tables = tables, .n_tables = 1, .names = names, .n_names = 1, .leave_one_out = 1};
    write_table(HEADER "a,,gpt-22b,8,1,a100-80,megatron-2022,500\n"
                       "b,,gpt-175b,8,2,a100-80,megatron-2022,900\n");
    tess_ctx *stopping = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_then}, &stopping));
    for (int at = 0; at < 4; at++) {
        tess_validation *v = NULL;
        stop_at_call = at;
        assert_int_equal(tess_validation_run(stopping, path, NULL, &v), TESS_ESTOPPED);
        assert_null(v);
    }
    int stops = 0;
    for (tess_status status = TESS_ESTOPPED; status == TESS_ESTOPPED; stops++) {
        tess_calibration *k = NULL;
        stop_at_call = 3 * stops;
        status = tess_calibration_run(stopping, &opts, &k);
        assert_int_equal(k ? TESS_OK : TESS_ESTOPPED, status);
        tess_calibration_destroy(k);
    }
    assert_true(stops > 20);
    tess_ctx_destroy(stopping);
}

/* ---- published tables ------------------------------------------------------------------------ */

/* What each table must reach: mean absolute error in %. */
static void published_tables_meet_their_bars(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        tess_quantity quantity;
        const char *group;
        double bar;
    } bars[] = {
        {"korthikanti_layer_times_22B", TESS_QUANTITY_LAYER, NULL, 2},
        {"korthikanti_memory", TESS_QUANTITY_MEMORY, NULL, 0.5},
        {"e2e_training_reference", TESS_QUANTITY_STEP, "Korthikanti", 3},
        {"vtrain_ground_truth", TESS_QUANTITY_STEP, "single", 6},
        {"vtrain_ground_truth", TESS_QUANTITY_STEP, "multi", 6},
        {"bloom_jeanzay_a100_sweeps", TESS_QUANTITY_STEP, NULL, 5.5},
        {"bloom_jeanzay_a100_sweeps", TESS_QUANTITY_MEMORY, NULL, 6},
        {"dgxc_h100_reference", TESS_QUANTITY_STEP, NULL, 4},
        {"simumax_b200_real", TESS_QUANTITY_STEP, NULL, 3.5},
        {"simumax_b200_real", TESS_QUANTITY_MEMORY, NULL, 1},
        {"mosaicml_mpt_fsdp", TESS_QUANTITY_STEP, NULL, 5},
        {"nvidia_megatron_bridge_perf", TESS_QUANTITY_STEP, "dense", 5},
        {"nvidia_megatron_bridge_perf", TESS_QUANTITY_STEP, "moe", 20},
        {"echo_nccl_tests_a100", TESS_QUANTITY_COLLECTIVE, "16 MiB and more", 4},
        {"echo_nccl_tests_a100", TESS_QUANTITY_COLLECTIVE, NULL, 8},
        {"vtrain_allreduce_intranode", TESS_QUANTITY_COLLECTIVE, NULL, 8},
        {"collectives_h100_h200_b200_a100", TESS_QUANTITY_COLLECTIVE, "16 MiB and more", 4},
        {"collectives_h100_h200_b200_a100", TESS_QUANTITY_COLLECTIVE, NULL, 8},
    };
    const char *reference = getenv("TESS_REFERENCE");
    if (!reference) {
        print_message("skipped: TESS_REFERENCE does not name the folder of published tables\n");
        skip();
    }
    for (size_t i = 0; i < sizeof bars / sizeof bars[0]; i++) {
        char file[512];
        tess_score score, plain;
        snprintf(file, sizeof file, "%s/%s.csv", reference, bars[i].file);
        tess_validation *v = validate(file);
        CHECK_OK(tess_validation_score(v, bars[i].quantity, bars[i].group, &score, &plain));
        tess_validation_destroy(v);
        if (!score.scored || score.mean > bars[i].bar)
            fail_msg("%s, %s: %d scored, %.2f %%, must be at most %g", bars[i].file,
                     tess_quantity_name(bars[i].quantity), score.scored, score.mean, bars[i].bar);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(repeats_count_once_and_skipped_rows_are_named),
    cmocka_unit_test(wrong_arguments_are_refused),
    cmocka_unit_test(a_fit_finds_the_parameters_that_made_the_table),
    cmocka_unit_test(groups_are_scored_in_the_order_of_the_table),
    cmocka_unit_test(validation_and_fit_stop_at_any_row),
    cmocka_unit_test(published_tables_meet_their_bars),
};
RUN_TESTS_WITH(tests, begin, end)
