/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_experts.c - DeepSeek's layouts: a token travels to few nodes, micro-batches come from
 * both ends of the pipeline. DeepSeek-V3 on H800, nodes of 8 GPUs, ep 64. */
#include "sim_data.h"

#include "tessera/advanced/sim_timeline.h"

static tess_scenario deepseek(void)
{
    tess_scenario s = {.layout = {.gpus = 1024, .pp = 8, .ep = 64, .zero = 1}};
    CHECK_OK(tess_scenario_set(ctx, &s, "model.name", "deepseek-v3"));
    snprintf(s.system.era, sizeof s.system.era, "deepseek-2024");
    s.training.global_batch = 128 * 32;
    return s;
}

static tess_sim_op find(const char *name, const char *pass)
{
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.name, name) == 0 && strcmp(op.pass, pass) == 0)
            return op;
    }
    fail_msg("no operation %s %s", name, pass);
    return (tess_sim_op){0};
}

/* 4096 tokens of 7168 columns in bf16 to 8 experts: to 8 experts of 8 nodes a copy each; with 4
 * nodes 4 (1 - 0.75^8) = 3.5996 copies over 8 nodes, and 8 copies within a node of 8 GPUs. */
static void a_token_travels_to_a_node_once(void **state)
{
    (void)state;
    const double row = 4096.0 * 7168 * 2;
    tess_scenario s = deepseek();
    run_on("h800", &s);
    tess_sim_op op = find("dispatch", "forward");
    assert_true(op.m == 64 && op.n == 1 && op.bytes == 8 * row);
    const double before = op.seconds + op.hidden_s;
    s.layout.ep_nodes = 4;
    run_on("h800", &s);
    op = find("dispatch", "forward");
    assert_true(op.m == 8 && op.n == 8);
    assert_true(fabs(op.bytes / (row * 4.0 * (1.0 - 6561.0 / 65536.0)) - 1.0) < 1e-12);
    const tess_sim_op near = find("dispatch in node", "forward");
    assert_true(near.m == 8 && near.n == 1 && near.bytes == 8 * row);
    /* The network is the longer way, of which a tenth is waited for; the other is hidden. */
    assert_true(op.seconds > 0.0 && near.seconds == 0.0 && near.hidden_s > 0.0);
    assert_true(op.seconds + op.hidden_s < 0.6 * before && op.hidden_s > near.hidden_s);
    assert_true(find("combine in node", "backward").bytes == 8 * row);
    s.layout.ep_nodes = 100; /* more than there are: 8 (1 - (7/8)^8) */
    run_on("h800", &s);
    op = find("dispatch", "forward");
    assert_true(fabs(op.bytes / (row * 8.0 * (1.0 - 5764801.0 / 16777216.0)) - 1.0) < 1e-12);
    s.layout.ep = 8; /* a group in one node travels as before */
    run_on("h800", &s);
    op = find("dispatch", "forward");
    assert_true(op.m == 8 && op.n == 1 && op.bytes == 8 * row);
}

/* Stages of equal layers, no ends: the passes are m T + (p / 2 - 1) (F + 2 B - 3 W). */
static void micro_batches_from_both_ends_have_the_published_bubble(void **state)
{
    (void)state;
    tess_scenario s = gpt(32, 4096, 32, 8);
    s.model.vocab = 0;
    s.model.tied = s.model.learned_positions = 0;
    s.layout.tp = 1;
    s.layout.zero = 1;
    s.training.global_batch = 64;
    s.layout.schedule = TESS_SIM_DUALPIPE;
    snprintf(s.system.era, sizeof s.system.era, "bridge-2025");
    s.training.overlap_pp = TESS_SIM_ON;
    const tess_sim_result r = run_on("a100-80", &s);
    const double f = sim->forward[0], b = sim->backward[0], w = sim->weight;
    const double hops = 2 * 7 * sim->hop;
    const double pause = r.bubble_s - hops;
    if (fabs(pause / (3 * (f + 2 * b - 3 * w)) - 1.0) > 1e-9)
        fail_msg("pause %g ms, must be %g", pause * 1e3, 3e3 * (f + 2 * b - 3 * w));
    /* Against 1F1B: weights and gradients twice, the same optimiser, 9 in flight and not 8. */
    s.layout.schedule = TESS_SIM_1F1B;
    const tess_sim_result one = run_on("a100-80", &s);
    assert_true(r.memory.weights == 2 * one.memory.weights);
    assert_true(r.memory.gradients == 2 * one.memory.gradients);
    assert_true(r.memory.optimiser == one.memory.optimiser);
    assert_true(fabs(r.memory.activations / one.memory.activations - 9.0 / 8.0) < 1e-12);
    assert_true(r.bubble_s < one.bubble_s);
}

/* Embedding and LM head are on both ends: a rank has the mean of both. */
static void both_ends_have_embedding_and_head(void **state)
{
    (void)state;
    tess_scenario s = gpt(32, 4096, 32, 8);
    s.layout.tp = 1;
    s.training.global_batch = 64;
    s.layout.schedule = TESS_SIM_DUALPIPE;
    run_on("a100-80", &s);
    for (int i = 0; i < 4; i++)
        assert_true(sim->forward[i] == sim->forward[7 - i] &&
                    sim->backward[i] == sim->backward[7 - i]);
    assert_true(sim->forward[0] > sim->forward[1]);
}

static void layouts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    tess_scenario full, s = deepseek();
    s.layout.schedule = TESS_SIM_DUALPIPE;
    s.training.global_batch = 128 * 15;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: 15 micro-batches, must with dualpipe be an even number of at least 16, "
                "twice layout.pp");
    s = deepseek();
    s.layout.schedule = TESS_SIM_DUALPIPE;
    s.layout.pp = 1;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.pp is 1, must with dualpipe be a multiple of 2");
    s = deepseek();
    s.layout.ep = 1;
    s.layout.ep_nodes = 4;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: layout.ep_nodes is 4, must be 0 without expert parallelism, not 4");
    s = deepseek();
    s.layout.schedule = TESS_SIM_DUALPIPE;
    run_on("h800", &s);
    tess_schedule *schedule = NULL;
    CHECK_FAILS(tess_sim_schedule_of(sim, &schedule), TESS_ENOTSUP,
                "layout.schedule is dualpipe, which has a closed form alone: no order of passes "
                "from both ends is known here");
    assert_null(schedule);
}

/* Latent attention, experts, adapters, casts, separate sums of gradients, ZeRO-3, recomputation. */
static void the_longest_list_of_a_decoder_finds_room(void **state)
{
    (void)state;
    tess_scenario s = deepseek();
    s.layout.pp = 1;
    s.layout.gpus = 256;
    s.layout.tp = s.layout.cp = 2;
    s.layout.etp = 1;
    s.layout.sequence = 1;
    s.layout.zero = 3;
    s.layout.replicas = 1;
    s.layout.ep_nodes = 4;
    s.training.global_batch = 64;
    s.training.precision = TESS_SIM_FP8;
    s.training.lora = 16;
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    snprintf(s.system.era, sizeof s.system.era, "pytorch-eager-2024");
    run_on("h100", &s);
    if (tess_sim_ops(sim) >= TESS__OPS_MAX)
        fail_msg("%d operations, room for %d", tess_sim_ops(sim), TESS__OPS_MAX);
    assert_true(tess_sim_ops(sim) > 250); /* it is a long one */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_token_travels_to_a_node_once),
    cmocka_unit_test(micro_batches_from_both_ends_have_the_published_bubble),
    cmocka_unit_test(both_ends_have_embedding_and_head),
    cmocka_unit_test(layouts_that_cannot_be_are_refused),
    cmocka_unit_test(the_longest_list_of_a_decoder_finds_room),
};

RUN_TESTS_WITH(tests, make_sim, drop_sim)
