/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_lora.c - adapters of rank 16 beside frozen weights, by hand: a layer of 1024 columns has
 * products of 3072, 1024, 4096 and 1024 outputs, so 16 (4096 + 2048 + 5120 + 5120) = 2^18 trained
 * parameters beside 12 * 2^20 + 4096 frozen ones. */
#include "sim_round.h"

static const double frozen = 12.0 * 1048576 + 4096, trained = 262144;

static tess_scenario adapted(void)
{
    tess_scenario s = layer();
    s.training.lora = 16;
    s.training.grad_bytes = 4;
    return s;
}

static int count(const char *name, const char *pass)
{
    int n = 0;
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        n += strcmp(op.name, name) == 0 && strcmp(op.pass, pass) == 0;
    }
    return n;
}

static void frozen_products_have_no_gradients_of_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"qkv", "projection", "mlp in", "mlp out"};
    tess_scenario s = adapted();
    run(&s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(count(names[i], "forward"), 1);
        assert_int_equal(count(names[i], "backward"), 1);
        assert_int_equal(count(names[i], "weight"), 0);
    }
    /* Of qkv: 1024 rows to 16 columns and to 3072, and back; y is read, added to and written. */
    tess_sim_op op = find("adapter down", "forward");
    assert_true(op.m == 1024 && op.n == 16 && op.k == 1024);
    op = find("adapter down", "weight");
    assert_true(op.m == 16 && op.n == 1024 && op.k == 1024);
    op = find("adapter up", "forward");
    assert_true(op.m == 1024 && op.n == 3072 && op.k == 16 && op.saved == 2 * 1024 * 16);
    check_us(find("add adapter", "forward").seconds, 3 * 2 * 1024 * 3072 / 1e12 * 1e6);
    check_us(find("add adapter", "backward").seconds, 3 * 2 * 1024 * 1024 / 1e12 * 1e6);
    /* Norms have no gradients of scale and shift: three passes instead of five. */
    check_us(find("norm of attention", "backward").seconds, 3 * 2 * 1048576 / 1e12 * 1e6);
    assert_int_equal(count("adapter up", "weight"), 4);
    s.training.lora_on = TESS_SIM_LORA_ATTENTION;
    run(&s);
    assert_int_equal(count("adapter up", "weight"), 2);
}

/* Frozen weights have 2 bytes each; adapters 2, gradients of 4 and an optimiser of 12. */
static void memory_is_of_adapters_but_for_weights(void **state)
{
    (void)state;
    tess_scenario s = adapted();
    tess_sim_memory m = run(&s).memory;
    assert_true(m.weights == 2 * (frozen + trained));
    assert_true(m.gradients == 4 * trained && m.optimiser == 12 * trained);
    assert_true(m.layer_state == m.weights + m.gradients + m.optimiser);
    check_us(run(&s).optimiser_s, 10 * trained / 1e12 * 1e6);
    /* An MLP without adapters keeps neither of its inputs: x of 1024 columns and the activation of
     * 4096; nor the 16 columns inside of two adapters. */
    const double all = m.activations;
    s.training.lora_on = TESS_SIM_LORA_ATTENTION;
    m = run(&s).memory;
    assert_true(all - m.activations == 2 * 1024 * (1024 + 4096 + 2 * 16));
    s.layout.gpus = 8; /* weights split, frozen or not */
    s.layout.zero = 3;
    s.training.lora_on = TESS_SIM_LORA_ALL;
    m = run(&s).memory;
    assert_true(m.weights == 2 * (frozen + trained) / 8 && m.optimiser == 12 * trained / 8);
}

static void gradients_of_adapters_alone_travel(void **state)
{
    (void)state;
    tess_scenario s = adapted();
    s.layout.gpus = 8;
    run(&s);
    assert_true(find("reduce gradients", "step").bytes == 4 * trained);
    s.layout.zero = 3;
    run(&s);
    assert_true(find("gather weights", "forward").bytes == 2 * (frozen + trained));
    assert_true(find("scatter gradients", "backward").bytes == 4 * trained);
}

/* Products twice instead of three times, attention three times. The LM head is frozen too. */
static void flop_leave_out_gradients_of_frozen_weights(void **state)
{
    (void)state;
    tess_scenario s = adapted();
    const double pairs = 2.0 * (128 + 128) * 8 * 1024;
    assert_true(run(&s).model_flop == (2 * 2 * 12 * 1048576.0 + 3 * pairs) * 1024);
    s.model.vocab = 2048;
    const tess_sim_result r = run(&s);
    assert_true(r.model_flop == (2 * (2 * 12 * 1048576.0 + 2 * 2097152.0) + 3 * pairs) * 1024);
    assert_int_equal(count("logits", "weight"), 0);
    assert_int_equal(count("lookup", "weight"), 0);
    assert_true(r.memory.optimiser == 12 * trained);
}

/* Experts and routers are frozen too; each expert has adapters of its own. */
static void experts_have_adapters(void **state)
{
    (void)state;
    tess_scenario s = adapted();
    s.model.experts = 4;
    s.model.top_k = 1;
    const tess_sim_memory m = run(&s).memory;
    assert_int_equal(count("router", "weight"), 0);
    assert_true(m.optimiser == 12 * (16 * (4096 + 2048) + 4 * 16 * (5120 + 5120)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(frozen_products_have_no_gradients_of_weights),
    cmocka_unit_test(memory_is_of_adapters_but_for_weights),
    cmocka_unit_test(gradients_of_adapters_alone_travel),
    cmocka_unit_test(flop_leave_out_gradients_of_frozen_weights),
    cmocka_unit_test(experts_have_adapters),
};

RUN_TESTS_WITH(tests, make, drop)
