/* SPDX-License-Identifier: Apache-2.0 */
/* test_speedups.c - the published speed-ups of DSV (arXiv:2502.07590) and db-SP (arXiv:2511.23113),
 * predicted from the settings that they state; and profiles that become scenarios.
 *
 * TESS_PRINT=1 prints every row: docs/accuracy.md is made from it. */
#include "test.h"

#include "tessera/advanced/sim_detail.h"
#include "tessera/scenario.h"
#include "tessera/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static tess_ctx *ctx;
static tess_sim_params *params;
static tess_sim *sim;

static int make(void **state)
{
    (void)state;
    return tess_ctx_create(NULL, &ctx) != TESS_OK ||
           tess_sim_params_load(ctx, NULL, &params) != TESS_OK ||
           tess_sim_create(ctx, params, &sim) != TESS_OK;
}

static int drop(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_sim_destroy(sim);
    tess_sim_params_destroy(params);
    const int leak = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return leak;
}

/* Seconds of one layer: its attention with exchanges, forward and backward apart; what selects. */
typedef struct {
    double forward, backward, exchange, select;
    tess_sim_result result;
} times;

static times run(const tess_scenario *s)
{
    tess_cluster *cluster = NULL;
    times t = {0};
    CHECK_OK(tess_cluster_load(ctx, s->system.cluster, &cluster));
    CHECK_OK(tess_sim_run(sim, cluster, s, &t.result));
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.part, "layer") != 0)
            continue;
        const int forward = strcmp(op.pass, "forward") == 0;
        if (strcmp(op.name, "attention") == 0)
            *(forward ? &t.forward : &t.backward) += op.seconds;
        else if (strcmp(op.name, "exchange heads") == 0 && forward)
            t.exchange += op.seconds;
        else if (strcmp(op.name, "select keys") == 0 || strcmp(op.name, "predictor's loss") == 0)
            t.select += op.seconds;
    }
    tess_cluster_destroy(cluster);
    return t;
}

static double sum;
static int count;

static void row(const char *what, double predicted, double published)
{
    const double error = predicted / published - 1.0;
    if (getenv("TESS_PRINT"))
        printf("%-44s %6.2f %6.2f %+6.1f %%\n", what, predicted, published, 100.0 * error);
    sum += fabs(error);
    count++;
}

/* ---- db-SP ----------------------------------------------------------------------------------- */

static tess_scenario video(int cog, const char *cluster, int gpus, double density)
{
    tess_scenario s = {.model = {.kind = TESS_SIM_DIT, .density = density},
                       .layout = {.cp = gpus, .cp_kind = TESS_SIM_CP_ULYSSES},
                       .training = {.graphs = TESS_SIM_ON}};
    tess_sim_model *m = &s.model;
    m->layers = cog ? 42 : 40;
    m->hidden = cog ? 3072 : 5120;
    m->heads = cog ? 48 : 40;
    m->ffn = cog ? 12288 : 13824;
    if (cog) {
        m->seq = 1343 * 64; /* the columns of its mask */
    } else {
        m->text = 512;
        m->cross = 1;
        m->frames = 81;
        m->height = 720;
        m->width = 1280;
    }
    snprintf(s.system.cluster, sizeof s.system.cluster, "%s", cluster);
    return s;
}

/* Attention and end to end against Ulysses on all GPUs, for PARO at 0.414 and 0.683 and for Sparge:
 * read from the paper's figure. Imbalance before: its table 1, on 8 GPUs; after: what it claims
 * (PARO: the authors' logs, Sparge: their captured densities with plans reused up to 1.1). On 4
 * GPUs the excess is that of their captured densities, 0.2182 over 0.4016 of that on 8. Sparge's
 * density is not stated: that of the captured ones. */
static const struct {
    int cog;
    const char *cluster;
    int gpus;
    double published[6];
} db_sp[] = {
    {0, "a800", 8, {1.38, 1.14, 1.50, 1.22, 1.26, 1.14}},
    {0, "h800", 8, {1.45, 1.20, 1.53, 1.26, 1.22, 1.12}},
    {1, "a800", 8, {1.43, 1.35, 1.50, 1.41, 1.25, 1.18}},
    {1, "h800", 8, {1.36, 1.22, 1.42, 1.30, 1.24, 1.15}},
    {0, "a800", 4, {1.30, 1.11, 1.33, 1.14, 1.21, 1.11}},
    {0, "h800", 4, {1.23, 1.10, 1.24, 1.14, 1.18, 1.10}},
    {1, "a800", 4, {1.28, 1.18, 1.34, 1.23, 1.30, 1.19}},
    {1, "h800", 4, {1.22, 1.11, 1.22, 1.20, 1.31, 1.21}},
};

static void db_sp_speedups(void **state)
{
    (void)state;
    static const double density[] = {0.414, 0.683, 0.26};
    static const char *const kernels[] = {"PARO 0.414", "PARO 0.683", "Sparge"};
    sum = 0.0;
    count = 0;
    for (size_t i = 0; i < sizeof db_sp / sizeof db_sp[0]; i++)
        for (int k = 0; k < 3; k++) {
            const int cog = db_sp[i].cog, gpus = db_sp[i].gpus;
            const double rho = k < 2 ? (cog ? 1.447 : 1.355) : (cog ? 1.513 : 1.428);
            const double fewer = gpus == 4 ? 0.2182 / 0.4016 : 1.0;
            tess_scenario s = video(cog, db_sp[i].cluster, gpus, density[k]);
            s.model.imbalance = 1.0 + (rho - 1.0) * fewer;
            const times before = run(&s);
            s.model.imbalance = 1.0 + (k < 2 ? 0.04 : 0.0783) * fewer;
            const times after = run(&s);
            char what[80];
            snprintf(what, sizeof what, "db-SP %s %d x %s, %s", cog ? "Cog" : "Wan", gpus,
                     db_sp[i].cluster, kernels[k]);
            row(what, (before.forward + before.exchange) / (after.forward + after.exchange),
                db_sp[i].published[2 * k]);
            row("  end to end", before.result.layer_forward_s / after.result.layer_forward_s,
                db_sp[i].published[2 * k + 1]);
        }
    if (getenv("TESS_PRINT"))
        printf("db-SP: %.1f %% over %d rows\n", 100.0 * sum / count, count);
    assert_int_equal(count, 48);
    assert_true(sum / count < 0.12);
}

/* ---- DSV ------------------------------------------------------------------------------------- */

/* The artifact's kernels run at these shares of the rate of the dense ones they are compared with;
 * those of the paper reach 3.3..4.0 backward at 90 %, so 0.38. */
static const double artifact_forward = 0.423, artifact_backward = 0.27, paper_backward = 0.38;

static tess_scenario one_layer(double density)
{
    tess_scenario s = {.model = {.kind = TESS_SIM_DIT,
                                 .layers = 1,
                                 .hidden = 512,
                                 .heads = 4,
                                 .seq = 64000,
                                 .density = density},
                       .training = {.graphs = TESS_SIM_ON},
                       .system = {.cluster = "h100"}};
    return s;
}

static tess_scenario dsv_model(int64_t seq, int gpus, int cp)
{
    tess_scenario s = {.model = {.kind = TESS_SIM_DIT,
                                 .layers = 32,
                                 .hidden = 2048,
                                 .heads = 16,
                                 .ffn = 8192,
                                 .gated = 1,
                                 .text = 120,
                                 .cross = 1,
                                 .seq = seq},
                       .layout = {.gpus = gpus, .cp = cp, .cp_kind = TESS_SIM_CP_ULYSSES},
                       .system = {.cluster = "h100"}};
    return s;
}

static void dsv_kernels(void)
{
    static const double rows[][3] = {{0.80, 2.03, 1.29}, {0.85, 2.65, 1.69}, {0.90, 3.84, 2.44},
                                     {0.92, 4.60, 3.17}, {0.95, 6.83, 4.37}, {0.98, 14.4, 9.21}};
    tess_scenario s = one_layer(0.0);
    const times dense = run(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char what[80];
        s = one_layer(1.0 - rows[i][0]);
        s.model.sparse_forward = artifact_forward;
        s.model.sparse_backward = artifact_backward;
        s.model.select_group = 32;
        const times t = run(&s);
        snprintf(what, sizeof what, "DSV kernel, 64,000 tokens, %.2f: forward", rows[i][0]);
        row(what, dense.forward / t.forward, rows[i][1]);
        row("  backward", dense.backward / t.backward, rows[i][2]);
        if (rows[i][0] == 0.92)
            row("  both, with selection",
                (dense.forward + dense.backward) / (t.forward + t.backward + t.select), 3.06);
    }
}

static int param_index(const char *owner, const char *name)
{
    for (int i = 0; i < tess_sim_params_count(params); i++) {
        tess_sim_param p;
        CHECK_OK(tess_sim_params_query(params, i, &p));
        if (strcmp(p.owner, owner) == 0 && strcmp(p.name, name) == 0)
            return i;
    }
    fail_msg("no parameter %s of %s", name, owner);
    return -1;
}

/* 4 H100, 32,000 tokens, the artifact's run of passes: 5 of 32 layers dense, the others at 0.029 of
 * the pairs on average; its dense kernels reach 449 and 86 TFLOP/s. */
static void dsv_artifact(void)
{
    const int index[2] = {param_index("h100", "flash_forward"),
                          param_index("h100", "flash_backward")};
    const double rate[2] = {449.0 / 989.0, 86.0 / 989.0};
    double kept[2];
    for (int i = 0; i < 2; i++) {
        tess_sim_param p;
        CHECK_OK(tess_sim_params_query(params, index[i], &p));
        kept[i] = p.value;
        CHECK_OK(tess_sim_params_set(params, index[i], rate[i]));
    }
    tess_scenario s = dsv_model(32000, 4, 4);
    s.training.graphs = TESS_SIM_ON;
    const times dense = run(&s);
    s.model.density = 0.029;
    s.model.sparse_layers = 27;
    s.model.sparse_forward = artifact_forward;
    s.model.sparse_backward = artifact_backward;
    s.model.select_group = 32;
    const times t = run(&s);
    row("DSV 2.7B, 4 H100, 32,000 tokens, passes",
        (dense.result.layer_forward_s + dense.result.layer_backward_s) /
            (t.result.layer_forward_s + t.result.layer_backward_s),
        3.1);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tess_sim_params_set(params, index[i], kept[i]));
}

/* A profile in a file that is gone when it has been read. */
static tess_profile *profile_of(const double *density, int layers, int heads)
{
    char path[] = "/tmp/tess-profile-XXXXXX.csv";
    const int fd = mkstemps(path, 4);
    FILE *f = fdopen(fd, "w");
    tess_profile *profile = NULL;
    assert_non_null(f);
    fputs("step,layer,head,density\n", f);
    for (int l = 0; l < layers; l++)
        for (int h = 0; h < heads; h++)
            fprintf(f, "7,%d,%d,%.4f\n", l, h, density[h]);
    assert_int_equal(fclose(f), 0);
    CHECK_OK(tess_profile_open(ctx, path, NULL, &profile));
    unlink(path);
    return profile;
}

/* The densities of one block's heads as the authors list them: two heads have a third of the work,
 * which is what limits DSV's heads on many GPUs. */
static const double heads_of_dsv[16] = {0.1733, 0.0016, 0.0027, 0.0020, 0.0183, 0.0070,
                                        0.0019, 0.0082, 0.0114, 0.0368, 0.0038, 0.0102,
                                        0.1878, 0.0903, 0.0458, 0.0015};

static double dsv_imbalance(void)
{
    tess_profile *profile = profile_of(heads_of_dsv, 32, 16);
    tess_cluster *cluster = NULL;
    tess_scenario s = dsv_model(130000, 32, 4);
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    CHECK_OK(tess_scenario_plan(ctx, cluster, profile, -1, TESS_PLAN_LPT, &s));
    /* The head of 0.1878 alone, over a quarter of 0.6026. */
    assert_true(fabs(s.model.imbalance - 4.0 * 0.1878 / 0.6026) < 1e-6);
    assert_true(fabs(s.model.density - 0.6026 / 16.0) < 1e-9);
    assert_int_equal(s.layout.cp_kind, TESS_SIM_CP_ULYSSES);
    tess_cluster_destroy(cluster);
    tess_profile_close(profile);
    return s.model.imbalance;
}

/* Training at 90 % sparsity, the one that the paper's kernels are shown at; the middle of the
 * published range. Heads go to 4 groups, balanced by DSV's rule; where CP is 8, two GPUs share one.
 */
static void dsv_training(void)
{
    const double imbalance = dsv_imbalance();
    static const struct {
        int gpus, cp;
        int64_t seq;
        const char *cluster;
        double published;
    } rows[] = {
        {32, 4, 130000, "h100", 2.875}, /* 2.73..3.02 */
        {64, 8, 260000, "h100", 2.67},  /* 2.41..2.93 */
        {128, 8, 520000, "h800", 2.56}, /* 2.1..3.02 over 32..128 GPUs */
        {96, 8, 120000, "h800", 2.30},  /* 30B, 2.06..2.53 over 32..96 GPUs */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tess_scenario s = dsv_model(rows[i].seq, rows[i].gpus, rows[i].cp);
        if (i == 3) {
            s.model.layers = 42;
            s.model.hidden = 6144;
            s.model.heads = 24;
            s.model.ffn = 24576;
            s.model.gated = 0;
        }
        s.layout.zero = 3;
        s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
        snprintf(s.system.cluster, sizeof s.system.cluster, "%s", rows[i].cluster);
        const times dense = run(&s);
        s.model.density = 0.10;
        s.model.imbalance = imbalance;
        s.model.sparse_backward = paper_backward;
        s.model.select_group = 32;
        const times t = run(&s);
        char what[80];
        snprintf(what, sizeof what, "DSV %s, %d x %s, CP %d, %lldk tokens", i == 3 ? "30B" : "2.7B",
                 rows[i].gpus, rows[i].cluster, rows[i].cp, (long long)rows[i].seq / 1000);
        row(what, dense.result.step_s / t.result.step_s, rows[i].published);
    }
}

static void dsv_speedups(void **state)
{
    (void)state;
    sum = 0.0;
    count = 0;
    dsv_kernels();
    dsv_artifact();
    dsv_training();
    if (getenv("TESS_PRINT"))
        printf("DSV: %.1f %% over %d rows\n", 100.0 * sum / count, count);
    assert_int_equal(count, 18);
    assert_true(sum / count < 0.12);
}

/* At 90 % the paper's kernels take 2.2..5.7 times less forward, selection and loss included, and
 * 3.3..4.0 backward over 10,000..200,000 tokens; at 98 % and 100,000 more than 15 in all. */
static void dsv_s_kernels_are_in_the_published_ranges(void **state)
{
    (void)state;
    for (int64_t seq = 40000; seq <= 200000; seq += 40000) {
        tess_scenario s = one_layer(0.0);
        s.model.seq = seq;
        const times dense = run(&s);
        s.model.density = 0.1;
        s.model.select_group = 32;
        s.model.sparse_backward = paper_backward;
        const times t = run(&s);
        const double forward = dense.forward / (t.forward + t.select);
        const double backward = dense.backward / t.backward;
        assert_true(forward > 2.2 && forward < 5.7);
        assert_true(backward > 3.3 && backward < 4.0);
    }
    tess_scenario s = one_layer(0.0);
    s.model.seq = 100000;
    const times dense = run(&s);
    s.model.density = 0.02;
    s.model.sparse_backward = paper_backward;
    const times t = run(&s);
    assert_true((dense.forward + dense.backward) / (t.forward + t.backward) > 15.0);
}

/* ---- profiles as scenarios ------------------------------------------------------------------- */

static void methods_differ_by_their_balance(void **state)
{
    (void)state;
    static const tess_plan_method methods[] = {TESS_PLAN_CONTIGUOUS, TESS_PLAN_DB_SP, TESS_PLAN_LPT,
                                               TESS_PLAN_AUTO};
    tess_profile *profile = profile_of(heads_of_dsv, 32, 16);
    tess_cluster *cluster = NULL;
    double imbalance[4];
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    for (int i = 0; i < 4; i++) {
        tess_scenario s = dsv_model(64000, 4, 4);
        CHECK_OK(tess_scenario_plan(ctx, cluster, profile, 7, methods[i], &s));
        imbalance[i] = s.model.imbalance;
        run(&s);
    }
    assert_true(imbalance[0] > imbalance[1] && imbalance[1] >= imbalance[2]);
    assert_true(imbalance[3] <
                imbalance[0]); /* it weighs exchanges too, so that lpt may be more even */
    tess_cluster_destroy(cluster);
    tess_profile_close(profile);
}

/* The shipped scenario against itself with dense attention. */
static void wan_with_dsv_is_shipped(void **state)
{
    (void)state;
    tess_scenario s;
    CHECK_OK(tess_scenario_load(ctx, "wan2.1-14b-dsv-128", &s));
    const times sparse = run(&s);
    assert_true(sparse.result.memory.fits);
    assert_true(sparse.select > 0.0);
    s.model.density = 0.0;
    s.model.imbalance = 0.0;
    const times dense = run(&s);
    assert_true(dense.select == 0.0);
    if (getenv("TESS_PRINT"))
        printf("Wan2.1-14B at 720p on 128 H100: %.2f s, dense %.2f s, %.1f GiB\n",
               sparse.result.step_s, dense.result.step_s, sparse.result.memory.peak / 1073741824.0);
    assert_true(dense.result.step_s / sparse.result.step_s > 1.5);
    assert_true(dense.result.step_s / sparse.result.step_s < 3.0);
}

static void bad_plans_of_scenarios_are_refused(void **state)
{
    (void)state;
    tess_profile *profile = profile_of(heads_of_dsv, 2, 16);
    tess_cluster *cluster = NULL;
    tess_scenario s = dsv_model(64000, 4, 4), same = s;
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    CHECK_FAILS(tess_scenario_plan(ctx, cluster, profile, 7, TESS_PLAN_LPT, &s), TESS_EINVAL,
                "tess_scenario_plan: the profile has 2 layers of 16 heads, the model 32 of 16");
    s.model.layers = same.model.layers = 2;
    CHECK_FAILS(tess_scenario_plan(ctx, cluster, profile, 8, TESS_PLAN_LPT, &s), TESS_EINVAL,
                "tess_scenario_plan: the profile has no step 8");
    CHECK_FAILS(tess_scenario_plan(ctx, NULL, profile, 7, TESS_PLAN_LPT, &s), TESS_EINVAL,
                "tess_scenario_plan: cluster is NULL");
    assert_memory_equal(&s, &same, sizeof s);
    s.model.sparse_layers = 3;
    CHECK_FAILS(tess_scenario_fill(&s, &same), TESS_EINVAL,
                "scenario: model.sparse_layers is 3, must be at most model.layers, 2");
    s.model.sparse_layers = 0;
    s.model.sparse_backward = -1.0;
    CHECK_FAILS(tess_scenario_fill(&s, &same), TESS_EINVAL,
                "scenario: model.sparse_backward is -1, must be 0 or 0.001..10");
    tess_cluster_destroy(cluster);
    tess_profile_close(profile);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(db_sp_speedups),
    cmocka_unit_test(dsv_speedups),
    cmocka_unit_test(dsv_s_kernels_are_in_the_published_ranges),
    cmocka_unit_test(methods_differ_by_their_balance),
    cmocka_unit_test(wan_with_dsv_is_shipped),
    cmocka_unit_test(bad_plans_of_scenarios_are_refused),
};
RUN_TESTS_WITH(tests, make, drop)
