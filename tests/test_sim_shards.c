/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_shards.c - replicas of ranks that split state (HSDP): bytes, ranks and memory by hand
 * for a layer of 12 * 2^20 + 4096 parameters on 8 GPUs of a node. */
#include "sim_round.h"

static const double weights = 12.0 * 1048576 + 4096;

/* 8 data-parallel ranks in 2 replicas of 4. */
static tess_scenario replicas(int zero, int n)
{
    tess_scenario s = layer();
    s.layout.gpus = 8;
    s.layout.zero = zero;
    s.layout.replicas = n;
    s.training.grad_bytes = 4;
    return s;
}

static void check_comm(const char *name, const char *pass, double bytes, int n, int stride,
                       tess_collective_op what)
{
    tess_collective_result r;
    const tess_sim_op op = find(name, pass);
    const tess_collective work = {.op = what, .bytes = (int64_t)bytes, .gpus = n, .per_node = n};
    CHECK_OK(tess_collective_time(cluster, &work, &r));
    assert_true(op.bytes == bytes && op.m == n && op.n == stride);
    check_us(op.seconds + op.hidden_s, (double)r.ns * 1e-3);
}

/* Weights of 2 bytes travel among 4 neighbours; of the gradients, 4 bytes each, a quarter is added
 * up with the other replica, 4 ranks away. */
static void weights_stay_in_a_replica_and_gradients_cross(void **state)
{
    (void)state;
    tess_scenario s = replicas(3, 2);
    run(&s);
    check_comm("gather weights", "forward", 2 * weights, 4, 1, TESS_ALL_GATHER);
    check_comm("gather weights", "backward", 2 * weights, 4, 1, TESS_ALL_GATHER);
    check_comm("scatter gradients", "backward", 4 * weights, 4, 1, TESS_REDUCE_SCATTER);
    check_comm("reduce over replicas", "backward", weights, 2, 4, TESS_ALL_REDUCE);
    s = replicas(1, 2);
    run(&s);
    check_comm("scatter gradients", "step", 4 * weights, 4, 1, TESS_REDUCE_SCATTER);
    check_comm("reduce over replicas", "step", weights, 2, 4, TESS_ALL_REDUCE);
    check_comm("gather weights", "step", 2 * weights, 4, 1, TESS_ALL_GATHER);
}

/* With tp 2 the shards are 2 ranks apart and the copies 4: 4 data-parallel ranks in 2 replicas. */
static void tensor_parallel_ranks_come_first(void **state)
{
    (void)state;
    tess_scenario s = replicas(3, 2);
    s.layout.tp = 2;
    run(&s);
    const double half = 6.0 * 1048576 + 4096;
    tess_sim_op op = find("gather weights", "forward");
    assert_true(op.m == 2 && op.n == 2 && op.bytes == 2 * half);
    op = find("reduce over replicas", "backward");
    assert_true(op.m == 2 && op.n == 4 && op.bytes == 2 * half);
}

/* State of 2 + 4 + 12 bytes a parameter: split by 4, not by 8; one replica splits by 8. */
static void state_is_split_within_a_replica(void **state)
{
    (void)state;
    tess_scenario s = replicas(3, 2);
    tess_sim_memory m = run(&s).memory;
    assert_true(m.weights == 2 * weights / 4 && m.gradients == 4 * weights / 4 &&
                m.optimiser == 12 * weights / 4);
    s = replicas(3, 1);
    m = run(&s).memory;
    assert_true(m.weights == 2 * weights / 8 && m.optimiser == 12 * weights / 8);
    s = replicas(1, 8); /* each rank a replica: nothing is split */
    m = run(&s).memory;
    assert_true(m.optimiser == 12 * weights);
    check_us(run(&s).optimiser_s, 10 * weights / 1e12 * 1e6);
}

/* Experts: 8 ranks, ep 2, have 4 ranks with the same experts, 2 apart; 2 replicas make pairs. */
static void experts_have_replicas_too(void **state)
{
    (void)state;
    tess_scenario s = replicas(1, 2);
    s.model.experts = 4;
    s.model.top_k = 1;
    s.layout.ep = 2;
    const tess_sim_memory m = run(&s).memory;
    /* Each expert has 8 * 2^20 parameters; a rank has 2 of 4, and 4 * 2^20 + 4096 + a router. */
    const double dense = 4.0 * 1048576 + 4096 + 4 * 1024, own = 16.0 * 1048576;
    assert_true(m.optimiser == 12 * (dense / 4 + own / 2));
    for (int i = 0, found = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.name, "reduce over replicas") != 0)
            continue;
        assert_true(op.m == 2 && op.n == 4); /* both kinds: 4 ranks of 1, 2 ranks of 2 */
        assert_true(op.bytes == (found++ ? 4 * own / 2 : 4 * dense / 4));
    }
}

static void what_cannot_be_split_is_refused(void **state)
{
    (void)state;
    tess_scenario full, s = replicas(3, 3);
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.replicas is 3, must divide layout.dp 8");
    s = replicas(0, 2);
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.replicas is 2, needs layout.zero of 1 or more, or "
                "training.distributed_optimizer");
    s.training.distributed_optimizer = TESS_SIM_ON;
    CHECK_OK(tess_scenario_fill(&s, &full));
    s.model.experts = 8;
    s.model.top_k = 1;
    s.layout.ep = 8;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.ep is 8, must with etp divide tp cp dp / replicas, 4");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_stay_in_a_replica_and_gradients_cross),
    cmocka_unit_test(tensor_parallel_ranks_come_first),
    cmocka_unit_test(state_is_split_within_a_replica),
    cmocka_unit_test(experts_have_replicas_too),
    cmocka_unit_test(what_cannot_be_split_is_refused),
};

RUN_TESTS_WITH(tests, make, drop)
