/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_interval.c - intervals of steps and memory: what they hold, what widens them. */
#include "ctx_fixture.h"

#include "sim/sim_internal.h"
#include "tessera/advanced/interval.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    tess_sim_params *params;
    tess_cluster *cluster;
    tess_sim *sim;
} simulator;

static tess_scenario llama(void)
{
    tess_scenario s = {.layout = {.gpus = 64, .tp = 8, .pp = 2, .sequence = 1},
                       .training = {.micro_batch = 1, .global_batch = 64}};
    CHECK_OK(tess_scenario_set(ctx, &s, "model.name", "llama3-70b"));
    CHECK_OK(tess_scenario_set(ctx, &s, "system.era", "nemo-2024"));
    return s;
}

static simulator make(const char *params)
{
    simulator m = {0};
    CHECK_OK(tess_sim_params_load(ctx, params, &m.params));
    CHECK_OK(tess_cluster_load(ctx, "h100", &m.cluster));
    CHECK_OK(tess_sim_create(ctx, m.params, &m.sim));
    return m;
}

static void end(simulator *m)
{
    tess_sim_destroy(m->sim);
    tess_cluster_destroy(m->cluster);
    tess_sim_params_destroy(m->params);
}

/* The square of an interval's deviation is the sum of those of residual and inputs. */
static void widths_add_up(void **state)
{
    (void)state;
    simulator m = make(NULL);
    tess_scenario s = llama();
    tess_sim_result r, plain;
    tess_interval i;
    CHECK_OK(tess_sim_run(m.sim, m.cluster, &s, &plain));
    const int ops = tess_sim_ops(m.sim);
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
    assert_true(r.step_s == plain.step_s && r.memory.peak == plain.memory.peak);
    assert_int_equal(tess_sim_ops(m.sim), ops);
    assert_true(i.known && i.software_known && i.n_step >= 3 && i.n_memory >= 3);
    assert_string_equal(i.software, "nemo-2024");
    double sum = pow(log1p(i.residual[0].pct / 100), 2);
    for (int k = 0; k < i.n_step; k++) {
        sum += pow(log1p(i.step[k].pct / 100), 2);
        assert_true(k == 0 || i.step[k].pct <= i.step[k - 1].pct);
        assert_non_null(i.step[k].origin);
    }
    assert_true(fabs(log(i.step_high_s / i.step_low_s) / 2 - sqrt(sum)) < 1e-9);
    assert_true(fabs(i.step_low_s * i.step_high_s / (r.step_s * r.step_s) - 1) < 1e-9);
    assert_true(i.peak_low < r.memory.peak && r.memory.peak < i.peak_high);
    end(&m);
}

/* Software that is not named, or of which no run was measured, is slower and less certain. */
static void unknown_software_widens(void **state)
{
    (void)state;
    simulator m = make(NULL);
    tess_scenario s = llama();
    tess_sim_result r, named;
    tess_interval i, known;
    CHECK_OK(tess_scenario_set(ctx, &s, "system.era", "megatron-core-2024"));
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &named, &known));
    s.system.era[0] = '\0';
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
    assert_string_equal(i.software, "megatron-core-2024");
    assert_int_equal(i.software_known, 0);
    assert_true(fabs(r.step_s / named.step_s / exp(m.params->interval.loss.value[0]) - 1) < 1e-12);
    assert_true(i.step_high_s / i.step_low_s > known.step_high_s / known.step_low_s);
    assert_true(i.peak_high / i.peak_low > known.peak_high / known.peak_low);
    CHECK_OK(tess_scenario_set(ctx, &s, "system.era", "fastvideo-2025"));
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
    assert_int_equal(i.software_known, 0);
    end(&m);
}

/* A scenario whose hosts are slow depends on them most; one of experts on these. */
static void inputs_are_those_of_the_scenario(void **state)
{
    (void)state;
    simulator m = make(NULL);
    tess_scenario s = {.model = {.layers = 8, .hidden = 512, .heads = 8, .seq = 128},
                       .layout = {.gpus = 1}};
    tess_sim_result r;
    tess_interval i;
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
    assert_string_equal(i.step[0].name, "host");
    s.model.experts = 8;
    s.model.top_k = 2;
    s.model.expert_ffn = 512;
    CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
    int found = 0;
    for (int k = 0; k < i.n_step; k++)
        found += strcmp(i.step[k].name, "experts") == 0;
    assert_int_equal(found, 1);
    end(&m);
}

static void fit_of(tess_sim *sim, const tess_cluster *cluster, int batch, tess_fit wanted)
{
    tess_scenario s = llama();
    tess_sim_result r;
    tess_interval i;
    s.layout = (tess_sim_layout){.gpus = 64, .tp = 8, .zero = 1, .sequence = 1};
    s.training.micro_batch = batch;
    s.training.global_batch = 8 * batch;
    CHECK_OK(tess_sim_interval(sim, cluster, &s, &r, &i));
    const int expected = i.peak_high <= r.memory.capacity  ? TESS_FIT_YES
                         : i.peak_low <= r.memory.capacity ? TESS_FIT_MAYBE
                                                           : TESS_FIT_NO;
    assert_int_equal(i.fits, expected);
    assert_int_equal(i.fits, wanted);
}

static void fits_is_yes_no_or_maybe(void **state)
{
    (void)state;
    simulator m = make(NULL);
    tess_cluster_info info;
    tess_scenario s = llama();
    tess_sim_result r;
    s.layout = (tess_sim_layout){.gpus = 64, .tp = 8, .zero = 1, .sequence = 1};
    s.training = (tess_sim_training){.micro_batch = 1, .global_batch = 8};
    CHECK_OK(tess_sim_run(m.sim, m.cluster, &s, &r));
    CHECK_OK(tess_cluster_query(m.cluster, &info));
    const struct {
        double share;
        tess_fit fits;
    } cases[] = {{1.5, TESS_FIT_YES}, {1.0, TESS_FIT_MAYBE}, {0.6, TESS_FIT_NO}};
    for (int k = 0; k < 3; k++) {
        tess_cluster *other = NULL;
        info.memory = (int64_t)(cases[k].share * r.memory.peak);
        CHECK_OK(tess_cluster_create(ctx, &info, &other));
        fit_of(m.sim, other, 1, cases[k].fits);
        tess_cluster_destroy(other);
    }
    assert_string_equal(tess_fit_name(TESS_FIT_MAYBE), "maybe");
    assert_null(tess_fit_name((tess_fit)3));
    end(&m);
}

/* Parameters without spreads have no intervals, and nothing is lost. */
static void a_file_without_spreads_has_none(void **state)
{
    (void)state;
    static const char text[] = "{\"schema\": 1, \"default_era\": \"mine\","
                               "\"hardware\": {\"h100\": {\"gpus\": [\"H100\"], \"values\": {}}},"
                               "\"software\": {\"mine\": {\"values\": {}}}, \"scalars\": []}";
    simulator m = make(NULL);
    tess_sim_params *bare = NULL;
    tess_sim *sim = NULL;
    tess_scenario s = llama();
    tess_sim_result r;
    tess_interval i;
    s.system.era[0] = '\0';
    CHECK_OK(tess__params_parse(ctx, "bare.json", text, sizeof text - 1, &bare));
    CHECK_OK(tess_sim_create(ctx, bare, &sim));
    CHECK_OK(tess_sim_interval(sim, m.cluster, &s, &r, &i));
    assert_int_equal(i.known, 0);
    assert_true(i.step_low_s == r.step_s && i.step_high_s == r.step_s);
    tess_sim_destroy(sim);
    tess_sim_params_destroy(bare);
    static const char bad[] =
        "{\"schema\": 1, \"default_era\": \"mine\","
        "\"hardware\": {\"h100\": {\"gpus\": [\"H100\"], \"values\": {}}},"
        "\"software\": {\"mine\": {\"values\": {}}}, \"scalars\": [],"
        "\"interval\": {\"step\": {\"los\": [0, 0, \"x\"]}, \"memory\": {}, \"other\": {}}}";
    CHECK_FAILS(tess__params_parse(ctx, "bad.json", bad, sizeof bad - 1, &bare), TESS_EFORMAT,
                "bad.json: line 1: unknown member \"los\"; did you mean \"loss\"?");
    end(&m);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The bar is 5 ms in a release build; the best of several, since machines are shared. */
static void an_interval_takes_few_milliseconds(void **state)
{
    (void)state;
    simulator m = make(NULL);
    tess_scenario s = llama();
    tess_sim_result r;
    tess_interval i;
    double best = 1e9;
    for (int k = 0; k < 20; k++) {
        const double begin = cpu_ms();
        CHECK_OK(tess_sim_interval(m.sim, m.cluster, &s, &r, &i));
        best = fmin(best, cpu_ms() - begin);
    }
    if (getenv("TESS_PRINT"))
        printf("one interval: %.3f ms\n", best);
    assert_true(best < 50);
    end(&m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(widths_add_up),
    cmocka_unit_test(unknown_software_widens),
    cmocka_unit_test(inputs_are_those_of_the_scenario),
    cmocka_unit_test(fits_is_yes_no_or_maybe),
    cmocka_unit_test(a_file_without_spreads_has_none),
    cmocka_unit_test(an_interval_takes_few_milliseconds),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
