/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_golden.c - the simulator against measurements of Korthikanti et al., "Reducing
 * activation recomputation in large transformer models", arXiv:2205.05198, on DGX A100 nodes
 * (Selene).
 *
 * Each row may be off by what the simulator promises as a mean for its table: 2 % for a layer, 3 %
 * for a step, 0.5 % for bytes. A change of a formula or parameter that breaks this is no repair.
 */
#include "sim_data.h"

static void check_within(const char *what, double got, double want, double share)
{
    if (!(fabs(got / want - 1.0) <= share))
        fail_msg("%s: %.4g, published %.4g: off by %.2f %%", what, got, want,
                 100.0 * (got / want - 1.0));
}

/* Table 4: one layer of 22B, tensor parallel over 8, micro-batch 4. */
static void a_layer_takes_what_was_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int sequence, recompute;
        double forward_ms, backward_ms;
    } rows[] = {{"baseline", 0, TESS_SIM_RECOMPUTE_NONE, 7.7, 11.9},
                {"sequence parallelism", 1, TESS_SIM_RECOMPUTE_NONE, 7.2, 11.8},
                {"full recomputation", 0, TESS_SIM_RECOMPUTE_FULL, 7.7, 19.5},
                {"selective recomputation", 0, TESS_SIM_RECOMPUTE_SELECTIVE, 7.7, 13.2},
                {"selective and sequence", 1, TESS_SIM_RECOMPUTE_SELECTIVE, 7.2, 13.1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tess_scenario s = gpt(1, 6144, 64, 1);
        s.model.vocab = 0;
        s.training.micro_batch = 4;
        s.layout.sequence = rows[i].sequence;
        s.training.recompute = rows[i].recompute;
        const tess_sim_result r = run_on("a100-80", &s);
        check_within(rows[i].name, r.layer_forward_s * 1e3, rows[i].forward_ms, 0.02);
        check_within(rows[i].name, r.layer_backward_s * 1e3, rows[i].backward_ms, 0.02);
    }
}

/* Tables 3 and 5: full recomputation without sequence parallelism. */
static void a_step_takes_what_was_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int layers, hidden, heads, pp, vpp, micro_batch, batch;
        double seconds;
    } rows[] = {{"22B", 48, 6144, 64, 1, 1, 4, 4, 1.42},
                {"175B", 96, 12288, 96, 8, 3, 1, 64, 18.13},
                {"530B", 105, 20480, 128, 35, 3, 1, 280, 49.05},
                {"1T", 128, 25600, 160, 64, 1, 1, 512, 94.42}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tess_scenario s = gpt(rows[i].layers, rows[i].hidden, rows[i].heads, rows[i].pp);
        s.layout.vpp = rows[i].vpp;
        s.training.micro_batch = rows[i].micro_batch;
        s.training.global_batch = rows[i].batch;
        s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
        check_within(rows[i].name, run_on("a100-80", &s).step_s, rows[i].seconds, 0.03);
    }
}

/* Figure 1, by the formulas of section 4: 18 bytes for each of 12 L h^2 parameters, and activations
 * of the first stage, for tensor parallelism alone and for selective recomputation with sequence
 * parallelism. GiB. */
static void memory_is_what_was_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int layers, hidden, heads, pp, vpp, micro_batch, batch;
        double parameters, plain, selective;
    } rows[] = {{"22B", 48, 6144, 64, 1, 1, 4, 4, 45.5625, 59.25, 9.5625},
                {"175B", 96, 12288, 96, 8, 3, 1, 64, 45.5625, 66.84375, 12.3515625},
                {"530B", 105, 20480, 128, 35, 3, 1, 280, 31.640625, 114.0234375, 23.076171875},
                {"1T", 128, 25600, 160, 64, 1, 1, 512, 32.958984375, 131.25, 26.5625}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tess_scenario s = gpt(rows[i].layers, rows[i].hidden, rows[i].heads, rows[i].pp);
        s.layout.vpp = rows[i].vpp;
        s.training.micro_batch = rows[i].micro_batch;
        s.training.global_batch = rows[i].batch;
        const tess_sim_memory plain = run_on("a100-80", &s).memory;
        s.layout.sequence = 1;
        s.training.recompute = TESS_SIM_RECOMPUTE_SELECTIVE;
        const tess_sim_memory selective = run_on("a100-80", &s).memory;
        const double gib = 1073741824.0;
        assert_int_equal(plain.stage, 0);
        check_within(rows[i].name, plain.layer_state / gib, rows[i].parameters, 0.005);
        check_within(rows[i].name, plain.layer_activations / gib, rows[i].plain, 0.005);
        check_within(rows[i].name, selective.layer_activations / gib, rows[i].selective, 0.005);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_layer_takes_what_was_published),
    cmocka_unit_test(a_step_takes_what_was_published),
    cmocka_unit_test(memory_is_what_was_published),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
