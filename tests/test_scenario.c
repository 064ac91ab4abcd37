/* SPDX-License-Identifier: Apache-2.0 */
/* test_scenario.c - scenarios in files, settings by name, the catalogue, imported models. */
#include "ctx_fixture.h"

#include "sim/fields.h"
#include "tessera/advanced/sim_detail.h"

static tess_status parse(const char *text, tess_scenario *s)
{
    return tess__scenario_parse(ctx, "s.json", text, strlen(text), s);
}

static void every_shipped_scenario_is_complete(void **state)
{
    (void)state;
    assert_true(tess__n_shipped_scenarios > 3);
    for (int i = 0; i < tess__n_shipped_scenarios; i++) {
        tess_scenario s;
        CHECK_OK(tess_scenario_load(ctx, tess__shipped_scenarios[i].name, &s));
        CHECK_OK(tess_scenario_fill(&s, &s));
        assert_true(s.system.cluster[0]);
    }
}

static void every_shipped_model_is_read(void **state)
{
    (void)state;
    int models = 0;
    for (int i = 0; i < tess__n_shipped_models; i++) {
        json_t *root = json_loadb((const char *)tess__shipped_models[i].text,
                                  tess__shipped_models[i].bytes, 0, NULL);
        const char *key;
        json_t *item;
        json_object_foreach(json_object_get(root, "models"), key, item)
        {
            tess_scenario s = {0};
            CHECK_OK(tess_scenario_set(ctx, &s, "model.name", key));
            assert_true(s.model.layers > 0 && s.model.hidden > 0 && s.model.heads > 0);
            models++;
        }
        json_decref(root);
    }
    assert_true(models > 30);
}

static void members_change_the_model_of_the_catalogue(void **state)
{
    (void)state;
    tess_scenario s;
    CHECK_OK(parse("{\"schema\": 1, \"model\": {\"layers\": 12, \"name\": \"llama3-70b\"},\n"
                   " \"layout\": {\"tp\": 4, \"sequence\": true},\n"
                   " \"training\": {\"precision\": \"fp8\", \"overlap_tp\": \"off\"},\n"
                   " \"system\": {\"cluster\": \"h100\"}}",
                   &s));
    assert_int_equal(s.model.layers, 12);
    assert_int_equal(s.model.kv_heads, 8);
    assert_int_equal(s.model.gated, 1);
    assert_int_equal(s.layout.tp, 4);
    assert_int_equal(s.layout.sequence, 1);
    assert_int_equal(s.training.precision, TESS_SIM_FP8);
    assert_int_equal(s.training.overlap_tp, TESS_SIM_OFF);
    assert_string_equal(s.system.cluster, "h100");
}

static void bad_files_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{\"schema\": 1}", "s.json: line 1: the document lacks \"model\""},
        {"{\"schema\": 1, \"model\": {}, \"layuot\": {}}",
         "s.json: line 1: unknown member \"layuot\"; did you mean \"layout\"?"},
        {"{\"schema\": 1, \"model\": {\n\"haeds\": 3}}",
         "s.json: line 2: unknown member \"haeds\"; did you mean \"heads\"?"},
        {"{\"schema\": 1, \"model\": {\n\"name\": \"gpt-175\"}}",
         "s.json: line 2: model.name is \"gpt-175\"; did you mean \"gpt-175b\"?"},
        {"{\"schema\": 1, \"model\": {\"layers\": 1.5}}",
         "s.json: line 1: model.layers is \"1.5\", must be an integer 1..100000"},
        {"{\"schema\": 1, \"model\": {}, \"layout\": {\"zero\": 4}}",
         "s.json: line 1: layout.zero is \"4\", must be an integer 0..3"},
        {"{\"schema\": 1, \"model\": {\"gated\": \"maybe\"}}",
         "s.json: line 1: model.gated is \"maybe\", must be true or false"},
        {"{\"schema\": 1, \"model\": {}, \"training\": {\"precision\": \"fp9\"}}",
         "s.json: line 1: training.precision is \"fp9\", must be bf16, fp16, fp32, fp8, mxfp8 or "
         "nvfp4"},
        {"{\"schema\": 1, \"model\": {}, \"training\": {\"offload\": \"on\"}}",
         "s.json: line 1: training.offload is \"on\", must be off or auto: the simulator does not "
         "model it"},
        {"{\"schema\": 1, \"model\": {\"layers\": [1]}}",
         "s.json: line 1: \"layers\" must be a number, a short text, true or false"},
        {"{\"schema\": 1, \"model\": {\"name\": \"gpt-175b\", \"config\": \"c.json\"}}",
         "s.json: line 1: a model has a \"name\" or a \"config\", not both"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_scenario s = {.layout = {.tp = 77}};
        CHECK_FAILS(parse(cases[i].text, &s), TESS_EFORMAT, cases[i].sentence);
        assert_int_equal(s.layout.tp, 77);
    }
}

static void files_of_before_may_name_offload(void **state)
{
    (void)state;
    tess_scenario s = {0};
    CHECK_OK(parse("{\"schema\": 1, \"model\": {\"name\": \"gpt-175b\"}, "
                   "\"training\": {\"offload\": \"off\"}}",
                   &s));
}

static void settings_go_out_as_they_come_in(void **state)
{
    (void)state;
    tess_scenario s = {0}, back = {0};
    CHECK_OK(tess_scenario_load(ctx, "llama3-405b", &s));
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting out;
        char key[64];
        CHECK_OK(tess_scenario_get(&s, i, &out));
        snprintf(key, sizeof key, "%s.%s", out.group, out.name);
        if (out.given)
            CHECK_OK(tess_scenario_set(ctx, &back, key, out.value));
    }
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting a, b;
        CHECK_OK(tess_scenario_get(&s, i, &a));
        CHECK_OK(tess_scenario_get(&back, i, &b));
        assert_string_equal(a.value, b.value);
    }
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    tess_scenario s = {0};
    tess_scenario_setting out;
    CHECK_FAILS(tess_scenario_set(ctx, &s, "layout.tpp", "1"), TESS_EINVAL,
                "no setting \"layout.tpp\"; did you mean \"layout.tp\"?");
    CHECK_FAILS(tess_scenario_set(ctx, &s, "x", "1"), TESS_EINVAL, "no setting \"x\"");
    CHECK_FAILS(tess_scenario_set(ctx, &s, "layout.tp", ""), TESS_EINVAL,
                "layout.tp is \"\", must be an integer 0..65536");
    CHECK_FAILS(tess_scenario_set(ctx, NULL, "layout.tp", ""), TESS_EINVAL,
                "tess_scenario_set: scenario is NULL");
    char sentence[96];
    snprintf(sentence, sizeof sentence, "tess_scenario_get: index is -1, must be 0..%d",
             tess_scenario_settings() - 1);
    CHECK_FAILS(tess_scenario_get(&s, -1, &out), TESS_EINVAL, sentence);
    CHECK_FAILS(tess_scenario_load(ctx, "llama3-40b", &s), TESS_EINVAL,
                "tess_scenario_load: no scenario \"llama3-40b\"; did you mean \"llama3-405b\"?");
    CHECK_FAILS(tess_scenario_load(ctx, NULL, &s), TESS_EINVAL, "tess_scenario_load: name is NULL");
}

/* Two published files: a decoder with experts and latent attention, and Wan2.1-T2V-1.3B. */
static void published_models_are_imported(void **state)
{
    (void)state;
    static const char deepseek[] =
        "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_hidden_layers\": 61,"
        "\"num_attention_heads\": 128, \"num_key_value_heads\": 128, \"intermediate_size\": 18432,"
        "\"vocab_size\": 129280, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8,"
        "\"moe_intermediate_size\": 2048, \"n_shared_experts\": 1, \"first_k_dense_replace\": 3,"
        "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64,"
        "\"qk_nope_head_dim\": 128, \"v_head_dim\": 128, \"num_nextn_predict_layers\": 1,"
        "\"tie_word_embeddings\": false, \"rope_scaling\": null}";
    static const char wan[] =
        "{\"_class_name\": \"WanTransformer3DModel\", \"attention_head_dim\": 128,"
        "\"ffn_dim\": 8960, \"num_attention_heads\": 12, \"num_layers\": 30,"
        "\"patch_size\": [1, 2, 2], \"text_dim\": 4096}";
    tess_scenario s = {.model = {.seq = 4096}}, want = {0};
    CHECK_OK(tess__model_import(ctx, "c.json", deepseek, sizeof deepseek - 1, &s));
    CHECK_OK(tess_scenario_set(ctx, &want, "model.name", "deepseek-v3"));
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting a, b;
        CHECK_OK(tess_scenario_get(&s, i, &a));
        CHECK_OK(tess_scenario_get(&want, i, &b));
        if (strcmp(a.value, b.value) != 0)
            fail_msg("%s is %s, must be %s", a.name, a.value, b.value);
    }
    CHECK_OK(tess__model_import(ctx, "c.json", wan, sizeof wan - 1, &s));
    assert_int_equal(s.model.kind, TESS_SIM_DIT);
    assert_int_equal(s.model.hidden, 1536);
    assert_int_equal(s.model.cross, 1);
    assert_int_equal(s.model.patch_s, 2);
    static const char hunyuan[] =
        "{\"_class_name\": \"HunyuanVideoTransformer3DModel\", \"attention_head_dim\": 128,"
        "\"mlp_ratio\": 4.0, \"num_attention_heads\": 24, \"num_layers\": 20,"
        "\"num_single_layers\": 40, \"patch_size\": 2, \"patch_size_t\": 1}";
    CHECK_OK(tess__model_import(ctx, "c.json", hunyuan, sizeof hunyuan - 1, &s));
    CHECK_OK(tess_scenario_set(ctx, &want, "model.name", "hunyuan-13b"));
    assert_true(s.model.layers == want.model.layers && s.model.hidden == want.model.hidden &&
                s.model.double_layers == 20 && want.model.double_layers == 20 &&
                s.model.modulation == want.model.modulation && s.model.parallel &&
                want.model.parallel && s.model.text == want.model.text);
    static const char flux[] =
        "{\"_class_name\": \"FluxTransformer2DModel\", \"attention_head_dim\": 128,"
        "\"in_channels\": 64, \"num_attention_heads\": 24, \"num_layers\": 19,"
        "\"num_single_layers\": 38, \"patch_size\": 1}";
    CHECK_OK(tess__model_import(ctx, "c.json", flux, sizeof flux - 1, &s));
    assert_true(s.model.layers == 57 && s.model.double_layers == 19 && s.model.hidden == 3072 &&
                s.model.text == 512 && s.model.patch_s == 2);
    static const char cog[] =
        "{\"_class_name\": \"CogVideoXTransformer3DModel\", \"attention_head_dim\": 64,"
        "\"num_attention_heads\": 48, \"num_layers\": 42, \"patch_size\": 2,"
        "\"max_text_seq_length\": 226, \"time_embed_dim\": 512}";
    CHECK_OK(tess__model_import(ctx, "c.json", cog, sizeof cog - 1, &s));
    assert_true(s.model.modulation == 512 && s.model.double_layers == 0 && s.model.text == 226);
    CHECK_FAILS(tess__model_import(ctx, "c.json", "{\"a\": 1}", 8, &s), TESS_EFORMAT,
                "c.json: line 1: no layers, width or heads of a transformer are here");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_shipped_scenario_is_complete),
    cmocka_unit_test(every_shipped_model_is_read),
    cmocka_unit_test(members_change_the_model_of_the_catalogue),
    cmocka_unit_test(bad_files_are_refused_with_their_line),
    cmocka_unit_test(files_of_before_may_name_offload),
    cmocka_unit_test(settings_go_out_as_they_come_in),
    cmocka_unit_test(wrong_settings_are_refused),
    cmocka_unit_test(published_models_are_imported),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
