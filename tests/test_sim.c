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

/* What can be asked for is what the step is made of. */
static void the_operations_add_up_to_the_compute_time(void **state)
{
    (void)state;
    const tess_scenario s = some();
    const tess_sim_result r = run_on("a100-80", &s);
    double compute = 0.0, tp = 0.0;
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        assert_true(op.seconds >= 0.0 && op.times >= 0.0 && strlen(op.formula) > 5);
        if (strcmp(op.part, "step") == 0)
            continue;
        *(strcmp(op.kind, "comm") ? &compute : &tp) += op.seconds * op.times;
    }
    assert_true(near(compute, r.compute_s) < 1e-9);
    assert_true(near(tp, r.tp_s) < 1e-9);
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
                "tess_sim_run: scenario is NULL, must not be");
    CHECK_FAILS(tess_sim_create(ctx, NULL, &sim), TESS_EINVAL,
                "tess_sim_create: params is NULL, must not be");
    assert_true(r.step_s == 7.0);
    tess_cluster_destroy(cluster);
    tess_sim_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_parts_of_a_step_add_up),
    cmocka_unit_test(the_operations_add_up_to_the_compute_time),
    cmocka_unit_test(a_run_allocates_nothing),
    cmocka_unit_test(what_a_run_refuses_it_says),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
