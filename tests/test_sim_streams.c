/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_streams.c - DiTs whose prompt has a stream of its own (MMDiT): rows, parameters and FLOP
 * computed by hand for 768 tokens of a clip and 256 of a prompt. */
#include "sim_round.h"

/* A layer of two streams and one of one, 1024 columns in 8 heads. */
static tess_scenario streams(void)
{
    return (tess_scenario){.model = {.kind = TESS_SIM_DIT,
                                     .layers = 2,
                                     .double_layers = 1,
                                     .parallel = 1,
                                     .modulation = 512,
                                     .hidden = 1024,
                                     .heads = 8,
                                     .text = 256,
                                     .seq = 1024}};
}

/* An operation of one of the two kinds of layers. */
static tess_sim_op of_part(const char *part, const char *name, const char *pass)
{
    for (int i = 0; i < tess_sim_ops(sim); i++) {
        tess_sim_op op;
        CHECK_OK(tess_sim_op_query(sim, i, &op));
        if (strcmp(op.part, part) == 0 && strcmp(op.name, name) == 0 && strcmp(op.pass, pass) == 0)
            return op;
    }
    fail_msg("no operation %s %s %s", part, name, pass);
    return (tess_sim_op){0};
}

static const char two[] = "layer of two streams", one[] = "layer of one stream";

static void each_stream_has_products_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double rows, n, k;
    } want[] = {{"qkv", 768, 3072, 1024},        {"qkv of prompt", 256, 3072, 1024},
                {"projection", 768, 1024, 1024}, {"projection of prompt", 256, 1024, 1024},
                {"mlp in", 768, 4096, 1024},     {"mlp in of prompt", 256, 4096, 1024},
                {"mlp out", 768, 1024, 4096},    {"mlp out of prompt", 256, 1024, 4096},
                {"modulation", 1, 12288, 512}};
    const tess_scenario s = streams();
    run(&s);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const tess_sim_op f = of_part(two, want[i].name, "forward");
        const tess_sim_op w = of_part(two, want[i].name, "weight");
        assert_true(f.m == want[i].rows && f.n == want[i].n && f.k == want[i].k);
        assert_true(w.m == want[i].n && w.n == want[i].k && w.k == want[i].rows);
    }
    /* All tokens meet in attention, in both kinds of layers. */
    tess_sim_op op = of_part(two, "attention", "forward");
    assert_true(op.m == 1024 && op.n == 1024);
    op = of_part(one, "qkv", "forward");
    assert_true(op.m == 1024);
    op = of_part(one, "modulation", "forward");
    assert_true(op.n == 3 * 1024 && op.k == 512);
    /* What is saved is that of all tokens, whatever the streams. */
    assert_true(of_part(two, "qkv", "forward").saved +
                    of_part(two, "qkv of prompt", "forward").saved ==
                of_part(one, "qkv", "forward").saved);
}

/* A layer of two streams has two sets of 12 h^2 weights, and 6 shifts for each; one of one stream,
 * whose MLP runs beside attention, 12 h^2 and 3. 4 h are scales and shifts of norms. */
static void parameters_are_of_both_streams_and_flop_of_one(void **state)
{
    (void)state;
    const double h = 1024.0, first = 24 * h * h + 12 * h * 512 + 4 * h;
    const double second = 12 * h * h + 3 * h * 512 + 4 * h;
    tess_scenario s = streams();
    const tess_sim_result r = run(&s);
    assert_true(r.parameters == first + second);
    assert_true(r.memory.weights == 2 * (first + second));
    const double token = 2 * (2 * 12 * h * h + 2 * (128 + 128) * 8 * 1024);
    assert_true(r.model_flop == 3 * token * 1024);
    s.layout.tp = 4; /* all weights are split but those of norms */
    assert_true(run(&s).memory.weights == 2 * ((first + second - 8 * h) / 4 + 8 * h));
}

/* Stages hold layers in the order of the model: the first has the one of two streams. */
static void stages_have_the_layers_in_order(void **state)
{
    (void)state;
    tess_scenario s = streams();
    s.layout.pp = 2;
    run(&s);
    assert_true(sim->layers[0] == 1 && sim->later[0] == 0);
    assert_true(sim->layers[1] == 0 && sim->later[1] == 1);
}

/* Published sizes: 13 and 12 billion parameters, 11 of Open-Sora 2, 5 (really 5.57) and 2 (1.69) of
 * CogVideoX; what is left out here (embeddings, refiner of the prompt) is below 8 %. */
static void models_of_the_catalogue_have_their_published_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters;
    } models[] = {{"hunyuan-13b", 13e9},    {"flux-dev", 12e9},       {"opensora2-11b", 11e9},
                  {"cogvideox-5b", 5.57e9}, {"cogvideox-2b", 1.69e9}, {"wan2.1-14b", 14e9}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tess_scenario s = {0};
        CHECK_OK(tess_scenario_set(ctx, &s, "model.name", models[i].name));
        s.model.frames = 1;
        s.model.height = s.model.width = 256;
        const double got = run(&s).parameters;
        if (fabs(got / models[i].parameters - 1.0) > 0.08)
            fail_msg("%s: %g parameters, published %g", models[i].name, got, models[i].parameters);
    }
}

static void streams_that_cannot_be_are_refused(void **state)
{
    (void)state;
    tess_scenario full, s = streams();
    s.model.cross = 1;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.double_layers is 1, needs a DiT with model.text and without "
                "model.cross");
    s = streams();
    s.model.double_layers = 3;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.double_layers is 3, must be at most model.layers, 2");
    s = streams();
    s.model.seq = 256;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.seq is 256, must be more than model.text, 256");
    s = streams();
    s.model.experts = 4;
    s.model.top_k = 1;
    CHECK_FAILS(tess_scenario_fill(&s, &full), TESS_EINVAL,
                "scenario: model.double_layers is 1, must be 0 with experts, not 1");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_stream_has_products_of_its_own),
    cmocka_unit_test(parameters_are_of_both_streams_and_flop_of_one),
    cmocka_unit_test(stages_have_the_layers_in_order),
    cmocka_unit_test(models_of_the_catalogue_have_their_published_size),
    cmocka_unit_test(streams_that_cannot_be_are_refused),
};

RUN_TESTS_WITH(tests, make, drop)
