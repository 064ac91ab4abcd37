/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim.c - a step's time and memory: parts that add up, properties that must hold, and what is
 * refused. */
#include "sim_data.h"

static tess_scenario some(void)
{
    tess_scenario s = gpt(96, 12288, 96, 8);
    s.layout.vpp = 3;
    s.training.global_batch = 64;
    return s;
}

static double near(double a, double b)
{
    return fabs(a - b) / fmax(fabs(a), fabs(b));
}

static void the_parts_of_a_step_add_up(void **state)
{
    (void)state;
    const tess_scenario s = some();
    const tess_sim_result r = run_on("a100-80", &s);
    const double sum = r.compute_s + r.tp_s + r.cp_s + r.ep_s + r.pp_s + r.dp_s + r.bubble_s +
                       r.optimiser_s + r.host_s + r.other_s;
    assert_true(near(sum, r.step_s) < 1e-12);
    const tess_sim_memory *m = &r.memory;
    assert_true(
        near(m->weights + m->gradients + m->optimiser + m->activations + m->working + m->buffers,
             m->allocated) < 1e-12);
    /* 175 billion parameters: 12 L h^2 and the embedding. */
    assert_true(near(r.parameters, 12.0 * 96 * 12288.0 * 12288.0 + (51200.0 + 2048) * 12288) <
                1e-4);
}

/* What can be asked for is what the step is made of: on the slowest stage every second but those of
 * the pipeline, the optimiser and gradients has its operation. */
static void check_sums(const tess_scenario *s)
{
    const tess_sim_result r = run_on("a100-80", s);
    double compute = 0.0, comm = 0.0, host = 0.0;
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        assert_true(op.seconds >= 0.0 && op.times >= 0.0 && strlen(op.formula) > 5);
        for (int k = 0; k < 4; k++) {
            tess_sim_param p;
            if (op.params[k] >= 0)
                CHECK_OK(tess_sim_params_query(params, op.params[k], &p));
        }
        if (strcmp(op.part, "step") == 0)
            continue;
        *(strcmp(op.kind, "comm") == 0   ? &comm
          : strcmp(op.kind, "host") == 0 ? &host
                                         : &compute) += op.seconds * op.times;
    }
    assert_true(near(compute, r.compute_s) < 1e-9);
    assert_true(near(comm, r.tp_s + r.cp_s + r.ep_s) < 1e-9);
    assert_true(host == r.host_s || near(host, r.host_s) < 1e-9);
}

static void the_operations_add_up_to_the_step(void **state)
{
    (void)state;
    tess_scenario s = some();
    check_sums(&s);
    s.layout.cp = 2;
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    check_sums(&s);
    s = gpt(8, 1024, 16, 2); /* small enough for the host to matter */
    snprintf(s.system.era, sizeof s.system.era, "deepspeed-2022");
    check_sums(&s);
    assert_true(run_on("a100-80", &s).host_s > 0.0);
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    tess_cluster *cluster = NULL;
    tess_ctx_info before, after;
    tess_sim_result r;
    const tess_scenario s = some();
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    CHECK_OK(tess_ctx_query(ctx, &before));
    CHECK_OK(tess_sim_run(sim, cluster, &s, &r));
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    tess_cluster_destroy(cluster);
}

static void what_a_run_refuses_it_says(void **state)
{
    (void)state;
    tess_cluster *cluster = NULL;
    tess_sim_result r = {.step_s = 7.0};
    tess_scenario s = some();
    CHECK_OK(tess_cluster_load(ctx, "a100-80", &cluster));
    s.training.precision = TESS_SIM_FP8;
    CHECK_FAILS(tess_sim_run(sim, cluster, &s, &r), TESS_ENOTSUP,
                "cluster a100-80: the peak in fp8 is not known");
    s = some();
    s.layout.tp = 7;
    CHECK_FAILS(tess_sim_run(sim, cluster, &s, &r), TESS_EINVAL,
                "scenario: layout.tp is 7, must divide model.heads 96");
    CHECK_FAILS(tess_sim_run(sim, cluster, NULL, &r), TESS_EINVAL,
                "tess_sim_run: scenario is NULL");
    CHECK_FAILS(tess_sim_create(ctx, NULL, &sim), TESS_EINVAL, "tess_sim_create: params is NULL");
    assert_true(r.step_s == 7.0);
    tess_cluster_destroy(cluster);
    tess_sim_destroy(NULL);
}

/* ---- properties ------------------------------------------------------------------------------ */

/* GPT-175B on 96 GPUs with everything in it: tensor, context, data and pipeline parallelism. */
static tess_scenario wide(void)
{
    tess_scenario s = some();
    s.layout = (tess_sim_layout){.tp = 2, .cp = 2, .pp = 4, .dp = 6, .sequence = 1, .zero = 1};
    s.training.global_batch = 96;
    return s;
}

static double step_with(const tess_scenario *s, void (*change)(tess_cluster_info *info))
{
    tess_cluster *cluster = NULL;
    tess_sim_result r;
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    if (change)
        change(&cluster->info);
    CHECK_OK(tess_sim_run(sim, cluster, s, &r));
    tess_cluster_destroy(cluster);
    return r.step_s;
}

static void more_flops(tess_cluster_info *info)
{
    info->flops_bf16 *= 1.5;
}

static void more_memory_bandwidth(tess_cluster_info *info)
{
    info->memory_bandwidth *= 1.5;
}

static void better_hardware_is_never_slower(void **state)
{
    (void)state;
    static void (*const better[])(tess_cluster_info *) = {more_flops, more_memory_bandwidth};
    const tess_scenario scenarios[] = {some(), wide()};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof better / sizeof better[0]; i++)
            assert_true(step_with(&scenarios[k], better[i]) < step_with(&scenarios[k], NULL));
}

/* H800 is H100 with links of 200 instead of 450 GB/s. */
static void faster_links_are_never_slower(void **state)
{
    (void)state;
    const tess_scenario scenarios[] = {some(), wide()};
    for (int k = 0; k < 2; k++) {
        const tess_sim_result slow = run_on("h800", &scenarios[k]);
        const tess_sim_result fast = run_on("h100", &scenarios[k]);
        assert_true(fast.tp_s < slow.tp_s && fast.step_s < slow.step_s);
        assert_true(fast.compute_s == slow.compute_s);
    }
}

static void more_work_is_never_faster(void **state)
{
    (void)state;
    tess_scenario s = wide();
    double last = 0.0;
    for (int layers = 4; layers <= 128; layers *= 2) {
        s.model.layers = layers;
        const double step = step_with(&s, NULL);
        assert_true(step > last);
        last = step;
    }
    last = 0.0;
    for (int64_t seq = 256; seq <= 65536; seq *= 2) {
        s.model.seq = seq;
        const double step = step_with(&s, NULL);
        assert_true(step > last);
        last = step;
    }
    s = wide();
    last = 0.0;
    for (int recompute = 0; recompute <= TESS_SIM_RECOMPUTE_FULL; recompute++) {
        s.training.recompute = recompute;
        const double step = step_with(&s, NULL);
        assert_true(step > last);
        last = step;
    }
}

/* Recomputation and every way to split trade time for memory. */
static void what_saves_memory_saves_it(void **state)
{
    (void)state;
    tess_scenario s = wide();
    double last = 1e30;
    for (int recompute = 0; recompute <= TESS_SIM_RECOMPUTE_FULL; recompute++) {
        s.training.recompute = recompute;
        s.training.attention = TESS_SIM_FUSED_SOFTMAX;
        const double bytes = run_on("h100", &s).memory.activations;
        assert_true(bytes < last);
        last = bytes;
    }
    s = wide();
    last = 1e30;
    for (int zero = 0; zero <= 3; zero++) {
        s.layout.zero = zero;
        const tess_sim_memory m = run_on("h100", &s).memory;
        assert_true(m.weights + m.gradients + m.optimiser < last);
        last = m.weights + m.gradients + m.optimiser;
    }
}

static void what_does_not_fit_is_said_with_its_largest_part(void **state)
{
    (void)state;
    tess_scenario s = gpt(96, 12288, 96, 1);
    const tess_sim_memory m = run_on("h100", &s).memory;
    assert_false(m.fits);
    assert_string_equal(m.largest, "optimiser");
    s.layout.pp = 8;
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    assert_true(run_on("h100", &s).memory.fits);
}

/* Every kind of scenario runs, with finite and positive numbers. */
static void every_kind_of_model_and_layout_runs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tess_sim_model model;
        tess_sim_layout layout;
        tess_sim_training training;
    } rows[] = {
        {"experts and latent attention",
         {.layers = 8,
          .hidden = 7168,
          .heads = 128,
          .vocab = 129280,
          .seq = 4096,
          .gated = 1,
          .ffn = 18432,
          .experts = 256,
          .top_k = 8,
          .expert_ffn = 2048,
          .shared_ffn = 2048,
          .dense_layers = 3,
          .q_rank = 1536,
          .kv_rank = 512,
          .rope_dim = 64,
          .nope_dim = 128,
          .value_dim = 128,
          .predict_layers = 1},
         {.pp = 2, .dp = 8, .ep = 8, .schedule = TESS_SIM_ZERO_BUBBLE},
         {.global_batch = 64, .precision = TESS_SIM_FP8}},
        {"weights split over all ranks",
         {.layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ffn = 14336,
          .gated = 1,
          .vocab = 128256,
          .seq = 8192},
         {.dp = 16, .zero = 3},
         {.micro_batch = 1, .recompute = TESS_SIM_RECOMPUTE_FULL, .recompute_layers = 16}},
        {"a video of 720p by heads",
         {.kind = TESS_SIM_DIT,
          .layers = 40,
          .hidden = 5120,
          .heads = 40,
          .ffn = 13824,
          .frames = 81,
          .height = 720,
          .width = 1280,
          .text = 512,
          .cross = 1,
          .density = 0.2},
         {.cp = 8, .cp_kind = TESS_SIM_CP_ULYSSES, .dp = 2, .zero = 3},
         {.recompute = TESS_SIM_RECOMPUTE_FULL}},
        {"fp32 with an uneven split",
         {.layers = 30, .hidden = 1024, .heads = 16, .vocab = 50000, .seq = 1024, .tied = 1},
         {.tp = 2, .pp = 4, .outer_layers = 1},
         {.global_batch = 16, .precision = TESS_SIM_FP32}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tess_scenario s = {
            .model = rows[i].model, .layout = rows[i].layout, .training = rows[i].training};
        const tess_sim_result r = run_on("h100", &s);
        if (!(r.step_s > 0.0 && isfinite(r.step_s) && r.mfu > 0.0 && r.mfu < 1.0 &&
              r.hfu >= r.mfu && r.memory.peak > 0.0 && isfinite(r.memory.peak)))
            fail_msg("%s: step %g s, mfu %g, hfu %g, peak %g", rows[i].name, r.step_s, r.mfu, r.hfu,
                     r.memory.peak);
        assert_true(tess_sim_ops(sim) < TESS__OPS_MAX);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(better_hardware_is_never_slower),
    cmocka_unit_test(faster_links_are_never_slower),
    cmocka_unit_test(more_work_is_never_faster),
    cmocka_unit_test(what_saves_memory_saves_it),
    cmocka_unit_test(what_does_not_fit_is_said_with_its_largest_part),
    cmocka_unit_test(every_kind_of_model_and_layout_runs),
    cmocka_unit_test(the_parts_of_a_step_add_up),
    cmocka_unit_test(the_operations_add_up_to_the_step),
    cmocka_unit_test(a_run_allocates_nothing),
    cmocka_unit_test(what_a_run_refuses_it_says),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
