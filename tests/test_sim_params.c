/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_params.c - scenarios filled in and refused, and the parameters' file, good and bad. */
#include "ctx_fixture.h"

#include "sim/sim_internal.h"

/* ---- scenarios ------------------------------------------------------------------------------- */

static tess_scenario small(void)
{
    return (tess_scenario){
        .model = {.layers = 4, .hidden = 1024, .heads = 16, .vocab = 1000, .seq = 512},
        .layout = {.tp = 2, .pp = 2, .dp = 3},
        .training = {.micro_batch = 2, .global_batch = 24}};
}

static void defaults_are_filled_in(void **state)
{
    (void)state;
    tess_scenario s = small();
    CHECK_OK(tess_scenario_fill(&s, &s));
    assert_int_equal(s.model.kv_heads, 16);
    assert_int_equal(s.model.head_dim, 64);
    assert_int_equal(s.model.ffn, 4096);
    assert_int_equal(s.layout.gpus, 12);
    assert_int_equal(s.layout.schedule, TESS_SIM_1F1B);
    s = (tess_scenario){.model = {.layers = 1, .hidden = 64, .heads = 4, .seq = 8},
                        .layout = {.gpus = 8, .tp = 2}};
    CHECK_OK(tess_scenario_fill(&s, &s));
    assert_int_equal(s.layout.dp, 4);
    assert_int_equal(s.training.global_batch, 4);
}

/* Wan2.1 at 720p: 81 frames are 21 latent ones, 90 x 160 latent rows and columns, patches of
 * 2 x 2: 21 * 45 * 80 tokens. */
static void tokens_of_a_clip_are_counted(void **state)
{
    (void)state;
    tess_scenario s = {.model = {.kind = TESS_SIM_DIT,
                                 .layers = 40,
                                 .hidden = 5120,
                                 .heads = 40,
                                 .frames = 81,
                                 .height = 720,
                                 .width = 1280,
                                 .text = 512,
                                 .cross = 1}};
    CHECK_OK(tess_scenario_fill(&s, &s));
    assert_int_equal(s.model.seq, 75600);
    assert_int_equal(s.model.full, 1);
    s.model.seq = 0;
    s.model.cross = 0;
    CHECK_OK(tess_scenario_fill(&s, &s));
    assert_int_equal(s.model.seq, 75600 + 512);
    s.model.seq = 0;
    s.model.height = 721;
    CHECK_FAILS(tess_scenario_fill(&s, &s), TESS_EINVAL,
                "scenario: model.height is 721, must be a multiple of 16");
}

#define REFUSED(change, sentence)                                                                  \
    do {                                                                                           \
        tess_scenario s = small(), out = {.model = {.layers = 77}};                                \
        change;                                                                                    \
        CHECK_FAILS(tess_scenario_fill(&s, &out), TESS_EINVAL, sentence);                          \
        assert_int_equal(out.model.layers, 77);                                                    \
    } while (0)

static void a_bad_scenario_is_reported_by_value_and_rule(void **state)
{
    (void)state;
    REFUSED(s.model.layers = 0, "scenario: model.layers is 0, must be 1..100000");
    REFUSED(s.model.seq = 0, "scenario: model.seq is 0, must be 1 or more");
    REFUSED(s.model.seq = -1, "scenario: model.seq is -1, must be 0..4294967296");
    REFUSED(s.model.hidden = 1000, "scenario: model.hidden is 1000, must be a multiple of "
                                   "model.heads 16");
    REFUSED(s.model.kv_heads = 5, "scenario: model.heads is 16, must be a multiple of "
                                  "model.kv_heads 5");
    REFUSED(s.layout.tp = 3, "scenario: layout.tp is 3, must divide model.heads 16");
    REFUSED(s.layout.gpus = 13, "scenario: layout.gpus is 13, must be tp x cp x pp x dp, 12");
    REFUSED((s.layout.gpus = 13, s.layout.dp = 0),
            "scenario: layout.gpus is 13, must be a multiple of tp x cp x pp, 4");
    REFUSED(s.layout.pp = 5, "scenario: layout.pp is 5, must leave a layer to each stage; layers / "
                             "vpp is 4");
    REFUSED((s.layout.pp = 1, s.layout.vpp = 2),
            "scenario: layout.vpp is 2, must be 1 without a pipeline: layout.pp is 1");
    REFUSED(s.layout.ep = 2, "scenario: layout.ep is 2, must be 1: model.experts is 0");
    REFUSED((s.model.experts = 8, s.model.top_k = 9),
            "scenario: model.top_k is 9, must be 1..8 (model.experts)");
    REFUSED(s.model.density = 1.5, "scenario: model.density is 1.5, must be 0..1");
    REFUSED(s.model.density = NAN, "scenario: model.density is nan, must be 0..1");
    REFUSED(s.training.global_batch = 25,
            "scenario: training.global_batch is 25, must be a multiple of dp times micro_batch, 6");
    REFUSED(s.training.grad_bytes = 3, "scenario: training.grad_bytes is 3, must be 0, 2 or 4");
    REFUSED(s.training.precision = 9, "scenario: training.precision is 9, must be 0..5");
    tess_scenario s = small();
    CHECK_FAILS(tess_scenario_fill(NULL, &s), TESS_EINVAL, "tess_scenario_fill: scenario is NULL");
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void every_shipped_parameter_has_a_unit_limits_and_an_origin(void **state)
{
    (void)state;
    tess_sim_params *params = NULL;
    CHECK_OK(tess_sim_params_load(ctx, NULL, &params));
    const int n = tess_sim_params_count(params);
    assert_true(n > 100);
    for (int i = 0; i < n; i++) {
        tess_sim_param p;
        CHECK_OK(tess_sim_params_query(params, i, &p));
        assert_true(p.value >= p.low && p.value <= p.high);
        assert_true(strlen(p.name) > 0 && strlen(p.owner) > 0 && strlen(p.origin) > 5);
        CHECK_OK(tess_sim_params_set(params, i, p.low));
        CHECK_OK(tess_sim_params_query(params, i, &p));
        assert_true(p.value == p.low);
    }
    tess_sim_param p;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "tess_sim_params_query: index is %d, must be 0..%d", n,
             n - 1);
    CHECK_FAILS(tess_sim_params_query(params, n, &p), TESS_EINVAL, sentence);
    CHECK_FAILS(tess_sim_params_query(NULL, 0, &p), TESS_EINVAL,
                "tess_sim_params_query: params is NULL");
    CHECK_FAILS(tess_sim_params_set(params, 0, -1), TESS_EINVAL,
                "tess_sim_params_set: sms of a100 is -1, must be 1..1000");
    tess_sim_params_destroy(params);
    tess_sim_params_destroy(NULL);
    assert_int_equal(tess_sim_params_count(NULL), 0);
}

static const char good[] =
    "{\"schema\": 1, \"default_era\": \"late\",\n"
    " \"hardware\": {\"g\": {\"gpus\": [\"G\"], \"values\": {\"sms\": [10, \"made up\"]}},\n"
    "  \"g2\": {\"like\": \"g\", \"gpus\": [\"H\"], \"values\": {\"kernel_us\": [1, "
    "\"stated\"]}}},\n"
    " \"eras\": {\"early\": {\"values\": {\"dropout\": [1, \"stated\"]}},\n"
    "  \"late\": {\"like\": \"early\", \"values\": {}}},\n"
    " \"scalars\": [{\"system\": \"s\", \"era\": \"early\", \"value\": 1.5, \"origin\": \"fit\"}]}";

static tess_status parse_with(const char *part, const char *by, tess_sim_params **params)
{
    char text[2048];
    const char *at = strstr(good, part);
    assert_non_null(at);
    const int n =
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, by, at + strlen(part));
    return tess__params_parse(ctx, "p.json", text, (size_t)n, params);
}

static void an_entry_inherits_what_it_does_not_say(void **state)
{
    (void)state;
    tess_sim_params *params = NULL;
    const tess__param_set *set = NULL;
    int era = -1;
    CHECK_OK(tess__params_parse(ctx, "p.json", good, strlen(good), &params));
    CHECK_OK(tess__params_hardware(params, "H100", 0, &set));
    assert_true(set->value[TESS__HW_SMS] == 10 && set->value[TESS__HW_KERNEL_US] == 1);
    assert_string_equal(set->origin[TESS__HW_SMS], "made up");
    assert_true(set->value[TESS__HW_GEMM_SHARE] == tess__hw_defs[TESS__HW_GEMM_SHARE].usual);
    era = tess__software_default(params, 0, "");
    assert_int_equal(era, 1);
    assert_true(params->eras[era].value[TESS__ERA_DROPOUT] == 1);
    assert_true(tess__params_scalar(params, "s", 0) == 1.5);
    assert_true(tess__params_scalar(params, "s", 1) == 1.0);
    assert_true(tess__params_scalar(params, "", 0) == 1.0);
    CHECK_FAILS(tess__params_hardware(params, "T4", 0, &set), TESS_EINVAL,
                "p.json: no hardware for the GPU \"T4\"; add one whose \"gpus\" match");
    CHECK_FAILS(tess__params_era(params, "lat", &era), TESS_EINVAL,
                "p.json: no software \"lat\"; did you mean \"late\"?");
    tess_sim_params_destroy(params);
}

static void a_bad_file_is_reported_by_its_line(void **state)
{
    (void)state;
    tess_sim_params *params = NULL;
    CHECK_FAILS(parse_with("\"sms\"", "\"smss\"", &params), TESS_EFORMAT,
                "p.json: line 2: unknown member \"smss\"; did you mean \"sms\"?");
    CHECK_FAILS(parse_with("[10, \"made up\"]", "10", &params), TESS_EFORMAT,
                "p.json: line 2: \"sms\" is 10, must be an array");
    CHECK_FAILS(parse_with("[10,", "[0,", &params), TESS_EFORMAT,
                "p.json: line 2: \"sms\"[0] is 0, must be 1..1000");
    CHECK_FAILS(parse_with("\"like\": \"g\"", "\"like\": \"x\"", &params), TESS_EFORMAT,
                "p.json: line 3: \"like\" is \"x\", must be g");
    CHECK_FAILS(parse_with("\"era\": \"early\"", "\"era\": \"mid\"", &params), TESS_EFORMAT,
                "p.json: line 6: \"era\" is \"mid\", must be early or late");
    CHECK_FAILS(tess_sim_params_load(ctx, "nowhere.json", &params), TESS_EIO,
                "nowhere.json: cannot open: No such file or directory");
    CHECK_FAILS(tess_sim_params_load(NULL, NULL, &params), TESS_EINVAL,
                "tess_sim_params_load: ctx is NULL");
    assert_null(params);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(defaults_are_filled_in),
    cmocka_unit_test(tokens_of_a_clip_are_counted),
    cmocka_unit_test(a_bad_scenario_is_reported_by_value_and_rule),
    cmocka_unit_test(every_shipped_parameter_has_a_unit_limits_and_an_origin),
    cmocka_unit_test(an_entry_inherits_what_it_does_not_say),
    cmocka_unit_test(a_bad_file_is_reported_by_its_line),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
