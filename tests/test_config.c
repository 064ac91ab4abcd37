/* SPDX-License-Identifier: Apache-2.0 */
/* test_config.c - config.json of a model: both sides' words, what is written, and the exact
 * sentence for everything that is wrong. */
#include "files.h"
#include "tessera/advanced/pass.h"
#include "tessera/model.h"

static void put(const char *path, const char *text)
{
    const blob b = {(unsigned char *)text, strlen(text)};
    blob_save(&b, path);
}

static void get(const char *path, char text[4096])
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, 4095, file)] = '\0';
    fclose(file);
}

static tess_status read_text(const char *text, tess_model_config *config)
{
    put("config.json", text);
    return tess_model_config_read(ctx, "config.json", config);
}

static void assert_same(const tess_model_config *a, const tess_model_config *b)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(a->patch[i], b->patch[i]);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->in_channels, b->in_channels);
    assert_int_equal(a->out_channels, b->out_channels);
    assert_int_equal(a->text_dim, b->text_dim);
    assert_int_equal(a->text_len, b->text_len);
    assert_int_equal(a->freq_dim, b->freq_dim);
    assert_int_equal(a->ffn_dim, b->ffn_dim);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->cross_attn_norm, b->cross_attn_norm);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_true(a->eps == b->eps);
    assert_int_equal(a->rope_max, b->rope_max);
}

/* As diffusers 0.42.1 saves Wan2.1's 1.3B model. */
static const char diffusers[] = "{\n"
                                "  \"_class_name\": \"WanTransformer3DModel\",\n"
                                "  \"_diffusers_version\": \"0.42.1\",\n"
                                "  \"added_kv_proj_dim\": null,\n"
                                "  \"attention_head_dim\": 128,\n"
                                "  \"cross_attn_norm\": true,\n"
                                "  \"eps\": 1e-06,\n"
                                "  \"ffn_dim\": 8960,\n"
                                "  \"freq_dim\": 256,\n"
                                "  \"image_dim\": null,\n"
                                "  \"in_channels\": 16,\n"
                                "  \"num_attention_heads\": 12,\n"
                                "  \"num_layers\": 30,\n"
                                "  \"out_channels\": 16,\n"
                                "  \"patch_size\": [\n    1,\n    2,\n    2\n  ],\n"
                                "  \"pos_embed_seq_len\": null,\n"
                                "  \"qk_norm\": \"rms_norm_across_heads\",\n"
                                "  \"rope_max_seq_len\": 1024,\n"
                                "  \"text_dim\": 4096\n"
                                "}\n";

/* The original repository's, of the same model. */
static const char original[] =
    "{\"_class_name\": \"WanModel\", \"_diffusers_version\": \"0.30.0\",\n"
    "\"dim\": 1536, \"eps\": 1e-06, \"ffn_dim\": 8960, \"freq_dim\": 256,\n"
    "\"in_dim\": 16, \"model_type\": \"t2v\", \"num_heads\": 12,\n"
    "\"num_layers\": 30, \"out_dim\": 16, \"text_len\": 512}\n";

static void both_sides_describe_the_same_model(void **state)
{
    (void)state;
    tess_model_config preset, config;
    CHECK_OK(tess_model_preset("1.3b", &preset));
    CHECK_OK(read_text(diffusers, &config));
    assert_same(&config, &preset);
    CHECK_OK(read_text(original, &config));
    assert_same(&config, &preset);
    memset(&config, 0, sizeof config);
    CHECK_OK(tess_model_config_read(ctx, ".", &config));
    assert_same(&config, &preset);
}

static void what_is_written_is_what_diffusers_writes(void **state)
{
    (void)state;
    tess_model_config config;
    char text[4096];
    CHECK_OK(tess_model_preset("1.3b", &config));
    CHECK_OK(tess_model_config_write(ctx, "out.json", &config));
    get("out.json", text);
    assert_string_equal(text, diffusers);
}

static void every_value_comes_back(void **state)
{
    (void)state;
    const tess_model_config odd = {.patch = {2, 3, 4},
                                   .heads = 3,
                                   .head_dim = 24,
                                   .in_channels = 5,
                                   .out_channels = 7,
                                   .text_dim = 11,
                                   .text_len = 13,
                                   .freq_dim = 14,
                                   .ffn_dim = 17,
                                   .layers = 19,
                                   .cross_attn_norm = 0,
                                   .qk_norm = 0,
                                   .eps = 1.2345678901234567e-5,
                                   .rope_max = 23};
    tess_model_config config;
    assert_int_equal(mkdir("model", 0777), 0);
    CHECK_OK(tess_model_config_write(ctx, "model", &odd));
    CHECK_OK(tess_model_config_read(ctx, "model/config.json", &config));
    assert_same(&config, &odd);
}

static void presets_are_valid_and_named(void **state)
{
    (void)state;
    tess_model_config config;
    static const char *const names[] = {"tiny", "small", "1.3b", "14b"};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(tess_model_preset(names[i], &config));
        CHECK_OK(tess_model_config_check(&config));
    }
    CHECK_OK(tess_model_preset("14b", &config));
    assert_int_equal(config.heads * config.head_dim, 5120);
    CHECK_FAILS(tess_model_preset("smal", &config), TESS_EINVAL,
                "tess_model_preset: name is \"smal\", must be one of tiny, small, 1.3b, 14b; did "
                "you mean \"small\"?");
    CHECK_FAILS(tess_model_preset("huge", &config), TESS_EINVAL,
                "tess_model_preset: name is \"huge\", must be one of tiny, small, 1.3b, 14b");
    CHECK_FAILS(tess_model_preset(NULL, &config), TESS_EINVAL, "tess_model_preset: name is NULL");
    CHECK_FAILS(tess_model_preset("tiny", NULL), TESS_EINVAL, "tess_model_preset: config is NULL");
}

/* A short file of either side, to which cases add a member. */
#define SIZES                                                                                      \
    "\"num_attention_heads\": 2, \"attention_head_dim\": 16, \"ffn_dim\": 8, \"num_layers\": 1"
#define SIZES_ORIGINAL "\"num_heads\": 2, \"dim\": 32, \"ffn_dim\": 8, \"num_layers\": 1"

static void what_a_file_leaves_out_has_its_default(void **state)
{
    (void)state;
    tess_model_config short_one, config;
    CHECK_OK(read_text("{" SIZES "}", &short_one));
    assert_int_equal(short_one.text_dim, 4096);
    assert_int_equal(short_one.text_len, 512);
    assert_int_equal(short_one.patch[2], 2);
    CHECK_OK(read_text("{" SIZES_ORIGINAL "}", &config));
    assert_same(&config, &short_one);
    CHECK_OK(read_text("{" SIZES ", \"out_channels\": null, \"in_channels\": 5}", &config));
    assert_int_equal(config.out_channels, 5);
}

static void harmless_keys_are_passed_over(void **state)
{
    (void)state;
    tess_model_config config;
    CHECK_OK(read_text("{" SIZES ", \"_note\": [1], \"pos_embed_seq_len\": 7, \"later\": null}",
                       &config));
    CHECK_OK(
        read_text("{" SIZES_ORIGINAL ", \"window_size\": [-1, -1], \"qk_norm\": true}", &config));
    assert_int_equal(config.qk_norm, 1);
    CHECK_OK(read_text("{" SIZES ", \"qk_norm\": null}", &config));
    assert_int_equal(config.qk_norm, 0);
    CHECK_OK(read_text("{" SIZES ", \"qk_norm\": \"layer_norm\"}", &config));
    assert_int_equal(config.qk_norm, 1);
}

static void what_is_wrong_gets_its_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"[]", "line 1: the document is an array, must be an object"},
        {"{", "line 1: string or '}' expected near end of file"},
        {"{\n\"dim\": 1}", "line 1: the document lacks \"num_heads\""},
        {"{\"num_attention_heads\": 2,\n\"attention_head_dim\": 20}",
         "line 2: \"attention_head_dim\" is 20, must be a multiple of 8"},
        {"{\"num_attention_heads\": 2,\n\"attention_head_dim\": 264}",
         "line 2: \"attention_head_dim\" is 264, must be 8..256"},
        {"{\"num_attention_heads\": 8192, \"attention_head_dim\": 256,\n\"ffn_dim\": 8, "
         "\"num_layers\": 1}",
         "line 1: \"num_attention_heads\" is 8192 for heads of 256, must give at most 65536 "
         "together"},
        {"{" SIZES_ORIGINAL ",\n\"image_dim\": 1280}",
         "line 2: \"image_dim\" must be null: models that take an image are not read"},
        {"{" SIZES ",\n\"added_kv_proj_dim\": 5120}",
         "line 2: \"added_kv_proj_dim\" must be null: models that take an image are not read"},
        {"{" SIZES_ORIGINAL ",\n\"model_type\": \"i2v\"}",
         "line 2: \"model_type\" is \"i2v\", must be \"t2v\""},
        {"{" SIZES ",\n\"_class_name\": \"WanVACETransformer3DModel\"}",
         "line 2: the model is a \"WanVACETransformer3DModel\", must be a WanTransformer3DModel or "
         "a WanModel"},
        {"{" SIZES_ORIGINAL ",\n\"window_size\": [4, -1]}",
         "line 2: \"window_size\"[0] is 4, must be -1"},
        {"{" SIZES ",\n\"patch_size\": [1, 2]}",
         "line 2: \"patch_size\" has 2 elements, must have 3"},
        {"{" SIZES ",\n\"patch_size\": [1, 2, 65]}",
         "line 2: \"patch_size\"[2] is 65, must be 1..64"},
        {"{" SIZES ",\n\"freq_dim\": 7}", "line 2: \"freq_dim\" is 7, must be even"},
        {"{" SIZES ",\n\"eps\": 0}", "line 2: \"eps\" is 0, must be above 0"},
        {"{" SIZES ",\n\"eps\": \"small\"}", "line 2: \"eps\" is \"small\", must be a number 0..1"},
        {"{" SIZES_ORIGINAL ",\n\"qk_norm\": \"layer_norm\"}",
         "line 2: \"qk_norm\" is \"layer_norm\", must be rms_norm_across_heads"},
        {"{" SIZES ",\n\"qk_norm\": 1}", "line 2: \"qk_norm\" is 1, must be rms_norm_across_heads"},
        {"{" SIZES ",\n\"cross_attn_norm\": 1}",
         "line 2: \"cross_attn_norm\" is 1, must be true or false"},
        {"{" SIZES ",\n\"text_dims\": 8}",
         "line 2: unknown key \"text_dims\"; did you mean \"text_dim\"?"},
        {"{" SIZES ",\n\"vace_layers\": [0, 5]}", "line 2: unknown key \"vace_layers\""},
        {"{\"num_heads\": 3,\n\"dim\": 32, \"ffn_dim\": 8, \"num_layers\": 1}",
         "line 2: \"dim\" is 32 for 3 heads, must give each a multiple of 8, 8..256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_model_config config = {.heads = 77};
        char sentence[512];
        snprintf(sentence, sizeof sentence, "config.json: %s", cases[i].sentence);
        CHECK_FAILS(read_text(cases[i].text, &config), TESS_EFORMAT, sentence);
        assert_int_equal(config.heads, 77);
    }
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    tess_model_config config;
    CHECK_OK(tess_model_preset("tiny", &config));
    CHECK_FAILS(tess_model_config_read(NULL, "x", &config), TESS_EINVAL,
                "tess_model_config_read: ctx is NULL");
    CHECK_FAILS(tess_model_config_read(ctx, NULL, &config), TESS_EINVAL,
                "tess_model_config_read: path is NULL");
    CHECK_FAILS(tess_model_config_read(ctx, "x", NULL), TESS_EINVAL,
                "tess_model_config_read: config is NULL");
    CHECK_FAILS(tess_model_config_read(ctx, "none.json", &config), TESS_EIO,
                "none.json: cannot open: No such file or directory");
    CHECK_FAILS(tess_model_config_write(NULL, "x", &config), TESS_EINVAL,
                "tess_model_config_write: ctx is NULL");
    CHECK_FAILS(tess_model_config_write(ctx, NULL, &config), TESS_EINVAL,
                "tess_model_config_write: path is NULL");
    CHECK_FAILS(tess_model_config_write(ctx, "x", NULL), TESS_EINVAL,
                "tess_model_config_write: config is NULL");
    CHECK_FAILS(tess_model_config_write(ctx, "no/where.json", &config), TESS_EIO,
                "no/where.json: cannot create: No such file or directory");
    config.layers = 0;
    CHECK_FAILS(tess_model_config_write(ctx, "x", &config), TESS_EINVAL,
                "tess_model_config_write: layers is 0, must be 1..1024");
    assert_int_equal(access("x", F_OK), -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_sides_describe_the_same_model),
    cmocka_unit_test(what_is_written_is_what_diffusers_writes),
    cmocka_unit_test(every_value_comes_back),
    cmocka_unit_test(presets_are_valid_and_named),
    cmocka_unit_test(what_a_file_leaves_out_has_its_default),
    cmocka_unit_test(harmless_keys_are_passed_over),
    cmocka_unit_test(what_is_wrong_gets_its_sentence),
    cmocka_unit_test(wrong_arguments_are_named),
};
RUN_TESTS_IN_FOLDER(tests)
