/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_clips.c - clips of several sizes in one step: 1 frame and 9 frames of 512 x 512 are 1024
 * and 3072 tokens, three quarters and one quarter of the micro-batches. */
#include "sim_round.h"

static tess_scenario clips(const char *sizes)
{
    tess_scenario s = layer();
    s.model.kind = TESS_SIM_DIT;
    s.model.seq = 0;
    s.training.global_batch = 16;
    snprintf(s.model.clips, sizeof s.model.clips, "%s", sizes);
    return s;
}

static const char few[] = "1x512x512", many[] = "9x512x512", mixed[] = "1x512x512:3+9x512x512:1";

static double micro_batch(const tess_sim_result *r)
{
    return r->layer_forward_s + r->layer_backward_s;
}

static void one_size_is_as_its_tokens(void **state)
{
    (void)state;
    tess_scenario s = clips(few), plain = clips("");
    plain.model.seq = 1024;
    const tess_sim_result a = run(&s), b = run(&plain);
    assert_true(a.step_s == b.step_s && a.model_flop == b.model_flop && a.tokens_per_s > 0.0);
    assert_true(a.memory.peak == b.memory.peak && a.tokens_per_s == b.tokens_per_s);
}

/* Time and FLOP are means, memory is that of the longest: (3 x 1024 + 3072) / 4 = 1536 tokens. */
static void several_sizes_are_means_and_the_largest(void **state)
{
    (void)state;
    tess_scenario s = clips(few);
    const tess_sim_result a = run(&s);
    s = clips(many);
    const tess_sim_result b = run(&s);
    s = clips(mixed);
    const tess_sim_result r = run(&s);
    assert_int_equal(r.scenario.model.seq, 1536);
    check_us(r.compute_s, (0.75 * a.compute_s + 0.25 * b.compute_s) * 1e6);
    assert_true(fabs(r.model_flop / (0.75 * a.model_flop + 0.25 * b.model_flop) - 1.0) < 1e-12);
    assert_true(r.memory.activations == b.memory.activations);
    assert_true(r.memory.weights == b.memory.weights && r.parameters == b.parameters);
    double sum = 0.0;
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        sum += op.seconds * op.times;
    }
    assert_true(fabs(sum / r.step_s - 1.0) < 1e-9);
}

/* 8 ranks with 2 micro-batches each: the expected largest of 8 normal values is 1.4236, of the sum
 * of two the deviation is sqrt(2) that of one. ZeRO-3 waits in each of them, for the longer size
 * unless all 8 ranks have the shorter one. */
static void the_rank_with_the_longest_clips_is_waited_for(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero += 3) {
        tess_scenario s = clips(few);
        s.layout.gpus = 8;
        s.layout.zero = zero;
        const tess_sim_result a = run(&s);
        snprintf(s.model.clips, sizeof s.model.clips, "%s", many);
        const tess_sim_result b = run(&s);
        snprintf(s.model.clips, sizeof s.model.clips, "%s", mixed);
        const double ta = micro_batch(&a), tb = micro_batch(&b), mean = 0.75 * ta + 0.25 * tb;
        const double deviation =
            sqrt(0.75 * (ta - mean) * (ta - mean) + 0.25 * (tb - mean) * (tb - mean));
        const tess_sim_result r = run(&s);
        const tess_sim_op wait = find("wait for longer clips", "step");
        const double drawn = tb - (tb - ta) * pow(0.75, 8);
        const double want = zero == 3 ? 2.0 * (drawn - mean) : 1.4236 * deviation * sqrt(2.0);
        if (fabs(wait.seconds / want - 1.0) > 0.01)
            fail_msg("zero %d: %g us, must be %g", zero, wait.seconds * 1e6, want * 1e6);
        assert_true(r.dp_s > wait.seconds && strcmp(wait.kind, "wait") == 0);
    }
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *sizes, *sentence;
    } cases[] = {
        {"81x480", "scenario: model.clips is \"81x480\", must be sizes as 81x480x832:3 with + "
                   "between them"},
        {"81x480x832:0", "scenario: model.clips is \"81x480x832:0\", must be sizes as "
                         "81x480x832:3 with + between them"},
        {"81x480x832+", "scenario: model.clips is \"81x480x832+\", must be sizes as 81x480x832:3 "
                        "with + between them"},
        {"81x480x832 ", "scenario: model.clips is \"81x480x832 \", must be sizes as 81x480x832:3 "
                        "with + between them"},
        {"81x", "scenario: model.clips is \"81x\", must be sizes as 81x480x832:3 with + between "
                "them"},
        {"1x470x480", "scenario: a size of model.clips is 470, must be a multiple of 16"},
        {"1x16x16+1x32x32+1x48x48+1x64x64+1x80x80", "scenario: model.clips has more than 4 sizes"}};
    tess_scenario full, s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s = clips(cases[i].sizes);
        CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL, cases[i].sentence);
    }
    s = clips(few);
    s.model.kind = TESS_SIM_DECODER;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.clips needs model.kind dit");
    s = clips(few);
    s.sampling.steps = 2;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.clips is of training, sampling.steps is 2");
}

/* The longest list: sizes, streams, adapters, casts and recomputation at once. */
static void all_operations_find_room(void **state)
{
    (void)state;
    tess_scenario s = clips("1x512x512+5x512x512+9x512x512+13x512x512");
    s.model.layers = 2;
    s.model.double_layers = 1;
    s.model.text = 64;
    s.model.modulation = 1024;
    s.model.gated = 1;
    s.model.density = 0.5;
    s.model.select_group = 16;
    s.layout.gpus = 8;
    s.layout.tp = s.layout.cp = 2;
    s.layout.zero = 3;
    s.layout.sequence = 1;
    s.layout.replicas = 2;
    s.training.precision = TESS_SIM_FP8;
    s.training.lora = 16;
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    s.training.global_batch = 4;
    run(&s);
    /* Casts and sums of gradients, which this software lacks, are 5 more for each of the products'
     * forward operations. */
    int products = 0;
    for (int i = 0; i < tess_sim_ops(sim); i++)
        products += sim->ops[i].kind == TESS__GEMM && sim->ops[i].pass == TESS__FORWARD;
    if (tess_sim_ops(sim) + 5 * products >= TESS__OPS_MAX)
        fail_msg("%d operations and %d products", tess_sim_ops(sim), products);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_size_is_as_its_tokens),
    cmocka_unit_test(several_sizes_are_means_and_the_largest),
    cmocka_unit_test(the_rank_with_the_longest_clips_is_waited_for),
    cmocka_unit_test(sizes_that_cannot_be_are_refused),
    cmocka_unit_test(all_operations_find_room),
};

RUN_TESTS_WITH(tests, make, drop)
