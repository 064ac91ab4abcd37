/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_again.c - recomputation module by module and operation by operation, by hand. A layer of
 * 1024 columns and tokens keeps, in units of 2^21 bytes: norm 1, qkv's input 1, q k v 3, the
 * projection's input 1, norm 1, the MLP's input 1, its activation's input 4 and result 4; and 4
 * bytes of each row and head in attention. */
#include "sim_round.h"

static const double unit = 2097152.0, rows = 32768.0;

static tess_scenario again(int modules)
{
    tess_scenario s = layer();
    s.training.recompute = TESS_SIM_RECOMPUTE_SELECTIVE;
    s.training.recompute_modules = modules;
    return s;
}

/* Seconds and names of what runs again. */
static double repeated(const char *const *names)
{
    double seconds = 0.0;
    int n = 0, wanted = 0;
    while (names[wanted])
        wanted++;
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.pass, "again") != 0)
            continue;
        seconds += op.seconds;
        if (n < wanted && strcmp(names[n], op.name) != 0)
            fail_msg("%s runs again, must be %s", op.name, names[n]);
        n++;
    }
    assert_int_equal(n, wanted);
    return seconds;
}

static void modules_run_again_and_keep_nothing(void **state)
{
    (void)state;
    static const struct {
        int modules;
        double kept; /* in units, without the rows of attention */
        const char *names[8];
    } cases[] = {{TESS_SIM_AGAIN_NORM, 14, {"norm of attention", "norm of mlp"}},
                 {TESS_SIM_AGAIN_ACTIVATION, 12, {"activation"}},
                 {TESS_SIM_AGAIN_MLP, 8, {"mlp in", "activation", "mlp out"}},
                 {TESS_SIM_AGAIN_NORM | TESS_SIM_AGAIN_ACTIVATION,
                  10,
                  {"norm of attention", "norm of mlp", "activation"}},
                 {TESS_SIM_AGAIN_NORM | TESS_SIM_AGAIN_MLP,
                  6,
                  {"norm of attention", "norm of mlp", "mlp in", "activation", "mlp out"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_scenario s = again(cases[i].modules);
        const tess_sim_memory m = run(&s).memory;
        repeated(cases[i].names);
        if (m.layer_activations != cases[i].kept * unit + rows)
            fail_msg("modules %d: %g units", cases[i].modules, (m.layer_activations - rows) / unit);
    }
    tess_scenario s = again(TESS_SIM_AGAIN_CORE); /* what selective does by itself */
    assert_true(run(&s).memory.layer_activations == 16 * unit);
    check_us(repeated((const char *const[]){"attention", NULL}),
             find("attention", "forward").seconds * 1e6);
    s.training.recompute_modules = 0;
    assert_true(run(&s).memory.layer_activations == 16 * unit);
}

/* Latent attention keeps q, k and v of 1536, 1536 and 1024 columns no longer: 4 units. */
static void latent_up_projections_run_again(void **state)
{
    (void)state;
    tess_scenario s = layer();
    s.model.q_rank = 256;
    s.model.kv_rank = 128;
    s.model.rope_dim = 64;
    s.model.nope_dim = s.model.value_dim = 128;
    const double all = run(&s).memory.layer_activations;
    s.training.recompute = TESS_SIM_RECOMPUTE_SELECTIVE;
    s.training.recompute_modules = TESS_SIM_AGAIN_MLA_UP;
    const tess_sim_result r = run(&s);
    assert_true(all - r.memory.layer_activations == 4 * unit);
    repeated((const char *const[]){"q up", "kv up", "rotary", NULL});
    const double up = 2.0 * 8 * (256 * 192 + 128 * (128 + 128)) * 1024;
    assert_true(r.hardware_flop - r.model_flop == up);
}

/* A layer of experts keeps what the router reads, and what runs before: 1 + 1 + 3 + 1 + 1 + 1. */
static void experts_run_again(void **state)
{
    (void)state;
    tess_scenario s = again(TESS_SIM_AGAIN_EXPERTS);
    s.model.experts = 4;
    s.model.top_k = 2;
    assert_true(run(&s).memory.layer_activations == 8 * unit + rows);
    repeated((const char *const[]){"router", "choose experts", "permute", "mlp in", "activation",
                                   "mlp out", "unpermute", NULL});
}

/* Every second product keeps its result: half of 3 + 1 + 4 + 1 units; attention's is 1, and the
 * layer's input 1. */
static void operation_by_operation_half_of_the_products_stay(void **state)
{
    (void)state;
    tess_scenario s = layer();
    s.training.recompute = TESS_SIM_RECOMPUTE_OP;
    const tess_sim_result r = run(&s);
    assert_true(r.memory.layer_activations == 6.5 * unit);
    check_us(find("mlp in", "again").seconds, find("mlp in", "forward").seconds / 2 * 1e6);
    check_us(find("norm of mlp", "again").seconds, 4.194304);
    assert_true(r.hardware_flop - r.model_flop == 12.0 * 1048576 * 1024);
}

static void modules_are_words_with_plus(void **state)
{
    (void)state;
    tess_scenario full, s = again(0);
    CHECK_OK(tess_scenario_set(ctx, &s, "training.recompute_modules", "norm+mla-up"));
    assert_int_equal(s.training.recompute_modules, TESS_SIM_AGAIN_NORM | TESS_SIM_AGAIN_MLA_UP);
    int found = 0;
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting out;
        CHECK_OK(tess_scenario_get(&s, i, &out));
        if (strcmp(out.name, "recompute_modules") == 0) {
            assert_string_equal(out.value, "norm+mla-up");
            found = 1;
        }
    }
    assert_true(found);
    CHECK_OK(tess_scenario_set(ctx, &s, "training.recompute_modules", "none"));
    assert_int_equal(s.training.recompute_modules, 0);
    CHECK_FAILS(tess_scenario_set(ctx, &s, "training.recompute_modules", "norm+attn"), TESS_EINVAL,
                "training.recompute_modules is \"attn\", must be core, norm, activation, mla-up, "
                "mlp or experts");
    s = again(TESS_SIM_AGAIN_MLP);
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: training.recompute_modules needs training.recompute selective");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(modules_run_again_and_keep_nothing),
    cmocka_unit_test(latent_up_projections_run_again),
    cmocka_unit_test(experts_run_again),
    cmocka_unit_test(operation_by_operation_half_of_the_products_stay),
    cmocka_unit_test(modules_are_words_with_plus),
};

RUN_TESTS_WITH(tests, make, drop)
