/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_software.c - software profiles: which one is meant, and what its rules do to a job; what
 * a job loses with its nodes and to a limit of power. */
#include "sim_data.h"

#include "tessera/advanced/validate.h"

#include <stdlib.h>
#include <unistd.h>

static int of_hardware(const char *name)
{
    for (int i = 0; i < params->n_hardware; i++)
        if (strcmp(params->hardware[i].name, name) == 0)
            return i;
    fail_msg("no hardware %s", name);
    return -1;
}

static const char *name_of(int software)
{
    return software < 0 ? "none" : params->eras[software].name;
}

static void hardware_and_date_choose_the_default(void **state)
{
    (void)state;
    const int a100 = of_hardware("a100"), gb200 = of_hardware("gb200");
    assert_string_equal(name_of(tess__software_default(params, a100, "")), "megatron-core-2024");
    assert_string_equal(name_of(tess__software_default(params, a100, "2022-08")), "megatron-2022");
    assert_string_equal(name_of(tess__software_default(params, a100, "2021-12")), "megatron-2021");
    assert_string_equal(name_of(tess__software_default(params, a100, "2019-01")), "megatron-2021");
    assert_string_equal(name_of(tess__software_default(params, gb200, "")), "bridge-2025");
}

static void the_words_of_a_source_name_its_software(void **state)
{
    (void)state;
    static const struct {
        const char *text, *software;
    } rows[] = {
        {"github pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md",
         "torchtitan-2024"},
        {"torchtitan 2025-06 H100", "torchtitan-2025"},
        {"github huggingface/nanotron docs/benchmark_summary.svg", "nanotron-2025"},
        {"mlcommons/training_results_v3.1 eos_n64_ngc23.09_nemo/gpt3", "nemo-mlperf-2023"},
        {"mlcommons/training_results_v5.0 carina_ngpu512_ngc25.04_nemo", "nemo-mlperf-2025"},
        {"MegaScale A100 MegaScale: Megatron-LM 175B 256", "megatron-2023"},
        {"MegaScale A100 MegaScale 175B 256", "megascale-2024"},
        {"a run of our own", "none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(name_of(tess__software_of(params, rows[i].text)), rows[i].software);
}

static void a_row_without_software_takes_that_of_its_source(void **state)
{
    (void)state;
    static const char table[] = "label,source,system.cluster,system.era,model.name,layout.gpus,"
                                "layout.zero,measured.step_ms\n"
                                "a,github huggingface/nanotron,h100,,llama3-8b,8,1,100\n"
                                "b,,h100,nanotron-2025,llama3-8b,8,1,100\n"
                                "c,,h100,,llama3-8b,8,1,100\n";
    char path[] = "/tmp/tess_software_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(write(file, table, sizeof table - 1) == (ssize_t)(sizeof table - 1));
    close(file);
    tess_validation *v = NULL;
    tess_validation_case c[2];
    CHECK_OK(tess_validation_run(ctx, path, NULL, &v));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tess_validation_case_query(v, i, &c[i]));
    assert_int_equal(c[0].repeats, 2); /* a and b are the same configuration */
    assert_true(c[0].predicted != c[1].predicted);
    tess_validation_destroy(v);
    unlink(path);
}

/* A decoder of nanotron's sizes: 16 layers, a vocabulary that weighs four of them. */
static tess_scenario small(const char *software, int gpus)
{
    tess_scenario s = {.model = {.layers = 16,
                                 .hidden = 2048,
                                 .heads = 32,
                                 .ffn = 8192,
                                 .gated = 1,
                                 .vocab = 131072,
                                 .seq = 4096,
                                 .tied = 1},
                       .layout = {.gpus = gpus, .zero = 1},
                       .training = {.micro_batch = 1, .global_batch = 512}};
    snprintf(s.system.era, sizeof s.system.era, "%s", software);
    return s;
}

static void one_node_loses_nothing_to_scale(void **state)
{
    (void)state;
    static const int losses[] = {TESS__ERA_SPREAD, TESS__ERA_NETWORK_LOSS, TESS__ERA_JITTER_MS};
    int era = -1;
    CHECK_OK(tess__params_era(params, "nemo-mlperf-2023", &era));
    double *values = params->eras[era].value;
    for (int i = 0; i < 3; i++) {
        const double shipped = values[losses[i]];
        for (int gpus = 8; gpus <= 512; gpus *= 8) {
            tess_scenario s = small("nemo-mlperf-2023", gpus);
            s.training.overlap_dp = TESS_SIM_OFF;
            values[losses[i]] = 0.0;
            const double without = run_on("h100", &s).step_s;
            values[losses[i]] = shipped;
            const double with = run_on("h100", &s).step_s;
            assert_true(shipped > 0.0);
            assert_true(gpus == 8 ? with == without : with > without);
        }
    }
}

static void a_limit_of_power_slows_products(void **state)
{
    (void)state;
    tess_scenario s = small("pytorch-fsdp2-2025", 8);
    tess_cluster *cluster = NULL;
    tess_sim_result r;
    double before = 0.0;
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    for (int watts = 700; watts >= 300; watts -= 100) {
        cluster->info.power = watts;
        CHECK_OK(tess_sim_run(sim, cluster, &s, &r));
        assert_true(r.step_s > before);
        before = r.step_s;
    }
    /* (500 - 105) / (700 - 105), the root of it. */
    cluster->info.power = 500;
    CHECK_OK(tess_sim_run(sim, cluster, &s, &r));
    assert_true(fabs(sim->clock - sqrt(395.0 / 595.0)) < 1e-12);
    cluster->info.power = 0;
    cluster->info.memory = (int64_t)96 << 30;
    CHECK_OK(tess_sim_run(sim, cluster, &s, &r));
    assert_true(fabs(sim->clock - sqrt(395.0 / 595.0)) < 1e-12);
    tess_cluster_destroy(cluster);
}

static void nanotron_counts_the_head_when_it_splits_layers(void **state)
{
    (void)state;
    tess_scenario s = small("nanotron-2025", 16);
    s.layout.pp = 2;
    (void)run_on("h100", &s);
    assert_int_equal(sim->layers[0], 10);
    assert_int_equal(sim->layers[1], 6);
    s.layout.last_layers = 8;
    (void)run_on("h100", &s);
    assert_int_equal(sim->layers[1], 8);
}

static void torchtitan_makes_a_micro_batch_for_each_stage(void **state)
{
    (void)state;
    tess_scenario s = small("torchtitan-2024", 16);
    s.layout.pp = 4;
    tess_sim_result r = run_on("h100", &s);
    assert_int_equal(r.micro_batches, 4);
    assert_int_equal(r.scenario.training.micro_batch, 32);
    snprintf(s.system.era, sizeof s.system.era, "torchtitan-2025");
    r = run_on("h100", &s);
    assert_int_equal(r.micro_batches, 128);
}

static void fsdp_keeps_fp32_and_gathers_bf16(void **state)
{
    (void)state;
    tess_scenario s = small("pytorch-fsdp2-2025", 8);
    s.layout.zero = 3;
    const tess_sim_result r = run_on("h100", &s);
    double experts;
    const double weights = tess__stage_weights(sim, 0, &experts);
    assert_true(fabs(r.memory.weights - 4.0 * weights / 8.0) < 1.0);
    assert_true(fabs(r.memory.gradients - 4.0 * weights / 8.0) < 1.0);
    assert_true(fabs(r.memory.optimiser - 8.0 * weights / 8.0) < 1.0);
    assert_true(r.memory.buffers >= 2.0 * sim->parts[TESS__EMBED].weights);
    assert_true(r.memory.peak > 1.05 * r.memory.allocated);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hardware_and_date_choose_the_default),
    cmocka_unit_test(the_words_of_a_source_name_its_software),
    cmocka_unit_test(a_row_without_software_takes_that_of_its_source),
    cmocka_unit_test(one_node_loses_nothing_to_scale),
    cmocka_unit_test(a_limit_of_power_slows_products),
    cmocka_unit_test(nanotron_counts_the_head_when_it_splits_layers),
    cmocka_unit_test(torchtitan_makes_a_micro_batch_for_each_stage),
    cmocka_unit_test(fsdp_keeps_fp32_and_gathers_bf16),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
