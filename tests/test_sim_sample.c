/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_sample.c - the time of a sampled clip: what it is made of, guidance, both ends, exchange
 * of context-parallel ranks, what is refused, and published sampling times. */
#include "sim_data.h"

#include "tessera/advanced/validate.h"

#include <math.h>

static tess_scenario wan(int gpus)
{
    tess_scenario s = {0};
    CHECK_OK(tess_scenario_set(ctx, &s, "model.name", "wan2.1-14b"));
    s.model.frames = 81;
    s.model.height = 720;
    s.model.width = 1280;
    s.layout.gpus = s.layout.cp = gpus;
    s.layout.cp_kind = TESS_SIM_CP_ULYSSES;
    s.sampling.steps = 50;
    snprintf(s.system.era, sizeof s.system.era, "wan-2025");
    return s;
}

static double near(double a, double b)
{
    return fabs(a - b) / fmax(fabs(a), fabs(b));
}

static void the_parts_of_a_clip_add_up(void **state)
{
    (void)state;
    tess_scenario s = wan(8);
    s.layout.zero = 3;
    const tess_sim_result r = run_on("h100", &s);
    const double sum =
        r.compute_s + r.tp_s + r.cp_s + r.dp_s + r.host_s + r.other_s + r.decode_s + r.encode_s;
    double ops = r.host_s + r.other_s;
    assert_true(near(sum, r.step_s) < 1e-12);
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        assert_true(strcmp(op.pass, "forward") == 0 || strcmp(op.pass, "step") == 0);
        ops += strcmp(op.kind, "host") == 0 ? 0.0 : op.seconds * op.times;
    }
    assert_true(near(ops, r.step_s) < 1e-9);
    assert_int_equal(r.clips, 1);
    assert_int_equal(r.passes, 100);
    assert_true(r.memory.gradients == 0.0 && r.memory.optimiser == 0.0 &&
                r.memory.activations == 0.0);
    /* bf16 weights, split over eight ranks. */
    assert_true(near(r.memory.weights, 2.0 * r.parameters / 8) < 0.01);
}

/* Seconds between the two ends of a clip. */
static double denoising(const tess_scenario *s)
{
    const tess_sim_result r = run_on("h100", s);
    return r.step_s - r.decode_s - r.encode_s;
}

static void denoising_is_passes_of_the_model(void **state)
{
    (void)state;
    tess_scenario s = wan(1);
    const double twice = denoising(&s);
    s.sampling.steps = 25;
    assert_true(near(2.0 * denoising(&s), twice) < 1e-12);
    s.sampling.steps = 50;
    s.sampling.guidance = TESS_SIM_GUIDANCE_NONE;
    const double none = denoising(&s);
    assert_true(near(2.0 * none, twice) < 1e-12);
    /* A pass of two samples: the same work, fewer kernels. */
    s.sampling.guidance = TESS_SIM_GUIDANCE_BATCHED;
    const tess_sim_result batched = run_on("h100", &s);
    assert_int_equal(batched.clips, 1);
    assert_int_equal(batched.scenario.training.micro_batch, 1);
    assert_true(near(denoising(&s), twice) < 0.01);
    /* Two ranks at the same time. */
    s.sampling.guidance = TESS_SIM_GUIDANCE_PARALLEL;
    s.layout.gpus = s.layout.dp = 2;
    assert_int_equal(run_on("h100", &s).clips, 1);
    assert_true(near(denoising(&s), none) < 1e-12);
    /* A model whose input guidance is needs one pass. */
    s = wan(1);
    s.model.guided = 1;
    assert_int_equal(run_on("h100", &s).passes, 50);
}

static void both_ends_take_what_their_sizes_say(void **state)
{
    (void)state;
    tess_scenario s = wan(1);
    const tess_sim_result one = run_on("h100", &s);
    const double flop = 1e6 * 8.43 * 81 * 720 * 1280;
    double rate = 0.0;
    for (int i = 0; i < tess_sim_params_count(params); i++) {
        tess_sim_param p;
        CHECK_OK(tess_sim_params_query(params, i, &p));
        if (strcmp(p.owner, "h100") == 0 && strcmp(p.name, "vae_tflops") == 0)
            rate = 1e12 * p.value;
    }
    assert_true(near(one.decode_s, flop / rate) < 1e-12);
    assert_true(one.encode_s > 0.0 && one.encode_s < 1.0);
    s = wan(8); /* the other ranks wait ... */
    assert_true(run_on("h100", &s).decode_s == one.decode_s);
    s.sampling.decode_ranks = 8; /* ... or help */
    assert_true(near(run_on("h100", &s).decode_s, one.decode_s / 8) < 1e-12);
    s.sampling.decode = s.sampling.encode = TESS_SIM_OFF;
    const tess_sim_result r = run_on("h100", &s);
    assert_true(r.decode_s == 0.0 && r.encode_s == 0.0);
}

static void a_hybrid_is_between_heads_and_ring(void **state)
{
    (void)state;
    tess_scenario s = wan(8);
    const double heads = denoising(&s);
    s.layout.cp_kind = TESS_SIM_CP_RING;
    const double ring = denoising(&s);
    s.layout.cp_kind = TESS_SIM_CP_HYBRID;
    s.layout.cp_heads = 8;
    assert_true(denoising(&s) == heads);
    s.layout.cp_heads = 1;
    assert_true(denoising(&s) == ring);
    s.layout.cp_heads = 4;
    assert_true(denoising(&s) < heads); /* fewer bytes wait, the ring is hidden */
}

static void what_cannot_be_sampled_is_refused(void **state)
{
    (void)state;
    tess_scenario full, s = wan(8);
    s.layout.pp = 2;
    s.layout.gpus = 16;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.pp is 2, must be 1 where clips are sampled");
    s = wan(8);
    s.training.global_batch = 4;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: training.global_batch is 4, must be dp times micro_batch where clips "
                "are sampled, 1");
    s = wan(8);
    s.sampling.guidance = TESS_SIM_GUIDANCE_PARALLEL;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.dp is 1, must be even: sampling.guidance is parallel");
    s = wan(8);
    s.layout.cp_heads = 4;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.cp_heads is 4, but layout.cp_kind is not hybrid");
    s.layout.cp_kind = TESS_SIM_CP_HYBRID;
    s.layout.cp_heads = 3;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.cp_heads is 3, must divide layout.cp, 8");
    s = wan(8);
    s.model.vae_mflop = 0.0;
    s.sampling.decode = TESS_SIM_ON;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: sampling.decode is on, but model.vae_mflop is missing");
    s = gpt(8, 1024, 16, 1);
    s.sampling.steps = 50;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: sampling.steps is 50, which needs a DiT (model.kind)");
}

/* Rows of one and of eight GPUs; how rivals held their weights on eight is not published. */
static void published_sampling_times_are_met(void **state)
{
    (void)state;
    tess_validation *v = NULL;
    tess_validation_info info;
    double sums[2] = {0.0};
    int n[2] = {0};
    CHECK_OK(tess_validation_run(ctx, MEASURED, NULL, &v));
    CHECK_OK(tess_validation_query(v, &info));
    assert_int_equal(info.skipped, 0);
    for (int i = 0; i < info.cases; i++) {
        tess_validation_case k;
        CHECK_OK(tess_validation_case_query(v, i, &k));
        assert_int_equal(k.quantity, TESS_QUANTITY_CLIP);
        if (strcmp(k.group, "LightX2V 8 H100") == 0)
            continue;
        const int many = strstr(k.label, " 8") != NULL;
        sums[many] += fabs(k.error);
        n[many]++;
    }
    tess_validation_destroy(v);
    assert_true(n[0] > 15 && n[1] >= 5);
    assert_true(sums[0] / n[0] < 15.0 && sums[1] / n[1] < 15.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_a_clip_add_up),
        cmocka_unit_test(denoising_is_passes_of_the_model),
        cmocka_unit_test(both_ends_take_what_their_sizes_say),
        cmocka_unit_test(a_hybrid_is_between_heads_and_ring),
        cmocka_unit_test(what_cannot_be_sampled_is_refused),
        cmocka_unit_test(published_sampling_times_are_met),
    };
    return cmocka_run_group_tests(tests, make_sim, drop_sim);
}
