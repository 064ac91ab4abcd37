/* SPDX-License-Identifier: Apache-2.0 */
/* test_model.c - models: their parameters, places and first values, and what they refuse. */
#include "tessera/advanced/pass.h"
#include "tessera/model.h"
#include "test.h"

#include <stdlib.h>

static const tess_model_config small = {.patch = {1, 2, 2},
                                        .heads = 3,
                                        .head_dim = 16,
                                        .in_channels = 4,
                                        .out_channels = 5,
                                        .text_dim = 20,
                                        .text_len = 6,
                                        .freq_dim = 10,
                                        .ffn_dim = 70,
                                        .layers = 2,
                                        .cross_attn_norm = 1,
                                        .qk_norm = 1,
                                        .eps = 1e-6,
                                        .rope_max = 64};

static tess_model *make(tess_ctx *ctx, const tess_model_config *config, uint64_t seed)
{
    tess_model *model = NULL;
    CHECK_OK(tess_model_create(ctx, config, &(tess_model_opts){1, seed}, &model));
    return model;
}

static tess_param find(const tess_model *model, const char *name)
{
    tess_model_info info;
    tess_param p = {0};
    CHECK_OK(tess_model_query(model, &info));
    for (int i = 0; i < info.params; i++) {
        CHECK_OK(tess_model_param(model, i, &p));
        if (strcmp(p.name, name) == 0)
            return p;
    }
    fail_msg("there is no parameter %s", name);
    return p;
}

static void parameters_lie_one_behind_the_other(void **state)
{
    for (int norms = 0; norms < 2; norms++) {
        tess_model_config config = small;
        config.cross_attn_norm = config.qk_norm = norms;
        tess_model *model = make(*state, &config, 1);
        tess_model_info info;
        int64_t count = 0;
        CHECK_OK(tess_model_query(model, &info));
        for (int i = 0; i < info.params; i++) {
            tess_param p;
            int64_t product = 1;
            CHECK_OK(tess_model_param(model, i, &p));
            for (int d = 0; d < p.rank; d++)
                product *= p.shape[d];
            assert_int_equal(product, p.count);
            assert_ptr_equal(p.value, info.values + count);
            assert_ptr_equal(p.gradient, info.gradients + count);
            count += p.count;
        }
        assert_int_equal(count, info.count);
        assert_int_equal(info.params, 15 + 2 * (norms ? 27 : 21));
        tess_model_destroy(model);
    }
}

static void parameters_have_the_shapes_of_diffusers(void **state)
{
    tess_model *model = make(*state, &small, 1);
    const struct {
        const char *name;
        tess_param_kind kind;
        int layer, rank;
        int64_t shape[5];
    } wanted[] = {
        {"patch_embedding.weight", TESS_PARAM_EMBEDDING, -1, 5, {48, 4, 1, 2, 2}},
        {"condition_embedder.time_embedder.linear_1.weight", TESS_PARAM_EMBEDDING, -1, 2, {48, 10}},
        {"condition_embedder.time_proj.bias", TESS_PARAM_VECTOR, -1, 1, {288}},
        {"condition_embedder.text_embedder.linear_1.weight", TESS_PARAM_EMBEDDING, -1, 2, {48, 20}},
        {"scale_shift_table", TESS_PARAM_VECTOR, -1, 3, {1, 2, 48}},
        {"proj_out.weight", TESS_PARAM_EMBEDDING, -1, 2, {20, 48}},
        {"blocks.0.scale_shift_table", TESS_PARAM_VECTOR, 0, 3, {1, 6, 48}},
        {"blocks.1.attn1.to_out.0.weight", TESS_PARAM_MATRIX, 1, 2, {48, 48}},
        {"blocks.1.attn2.norm_k.weight", TESS_PARAM_VECTOR, 1, 1, {48}},
        {"blocks.1.norm2.bias", TESS_PARAM_VECTOR, 1, 1, {48}},
        {"blocks.1.ffn.net.0.proj.weight", TESS_PARAM_MATRIX, 1, 2, {70, 48}},
        {"blocks.1.ffn.net.2.weight", TESS_PARAM_MATRIX, 1, 2, {48, 70}},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const tess_param p = find(model, wanted[i].name);
        assert_int_equal(p.kind, wanted[i].kind);
        assert_int_equal(p.layer, wanted[i].layer);
        assert_int_equal(p.rank, wanted[i].rank);
        assert_memory_equal(p.shape, wanted[i].shape, (size_t)p.rank * sizeof *p.shape);
    }
    tess_model_destroy(model);
}

static double deviation(const tess_param *p)
{
    double sum = 0.0;
    for (int64_t i = 0; i < p->count; i++)
        sum += (double)p->value[i] * p->value[i];
    return sqrt(sum / (double)p->count);
}

/* n normal numbers have a deviation within 4 / sqrt(2 n) of theirs; the smallest parameter here has
 * 288. */
static void first_values_have_their_deviations(void **state)
{
    tess_model *model = make(*state, &small, 5);
    const struct {
        const char *name;
        double wanted;
    } rows[] = {
        {"blocks.0.attn1.to_q.weight", sqrt(2.0 / 96)},
        {"blocks.1.ffn.net.2.weight", sqrt(2.0 / 118)},
        {"patch_embedding.weight", sqrt(2.0 / 64)},
        {"condition_embedder.time_proj.weight", sqrt(2.0 / (7 * 48))},
        {"condition_embedder.text_embedder.linear_2.weight", 0.02},
        {"blocks.1.scale_shift_table", sqrt(1.0 / 48)},
        {"proj_out.weight", 0.0},
        {"blocks.0.ffn.net.0.proj.bias", 0.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tess_param p = find(model, rows[i].name);
        const double off = fabs(deviation(&p) - rows[i].wanted);
        assert_true(off <= 4.0 / sqrt(2.0 * (double)p.count) * rows[i].wanted);
    }
    const tess_param norm = find(model, "blocks.1.attn1.norm_q.weight");
    for (int64_t i = 0; i < norm.count; i++)
        assert_true(norm.value[i] == 1.0f);
    tess_model_destroy(model);
}

static void first_values_depend_on_the_seed_and_not_on_threads(void **state)
{
    (void)state;
    tess_model *models[3];
    tess_ctx *contexts[3] = {0};
    tess_model_info info[3];
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = i + 1}, &contexts[i]));
        models[i] = make(contexts[i], &small, i == 2 ? 8 : 7);
        CHECK_OK(tess_model_query(models[i], &info[i]));
    }
    const size_t bytes = (size_t)info[0].count * sizeof(float);
    assert_memory_equal(info[0].values, info[1].values, bytes);
    assert_memory_not_equal(info[0].values, info[2].values, bytes);
    for (int i = 0; i < 3; i++) {
        tess_model_destroy(models[i]);
        tess_ctx_destroy(contexts[i]);
    }
}

static void gradients_begin_as_zero_and_return_to_it(void **state)
{
    tess_model *model = make(*state, &small, 1), *without = NULL;
    tess_model_info info;
    CHECK_OK(tess_model_query(model, &info));
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < info.count; i++) {
            assert_true(info.gradients[i] == 0.0f);
            info.gradients[i] = 1.0f;
        }
        CHECK_OK(tess_model_zero_gradients(model));
    }
    CHECK_OK(tess_model_create(*state, &small, NULL, &without));
    CHECK_OK(tess_model_query(without, &info));
    assert_null(info.gradients);
    CHECK_FAILS(tess_model_zero_gradients(without), TESS_EINVAL,
                "tess_model_zero_gradients: the model was made without gradients");
    tess_model_destroy(model);
    tess_model_destroy(without);
}

static void check_config(const tess_model_config *config, const char *sentence)
{
    CHECK_FAILS(tess_model_config_check(config), TESS_EINVAL, sentence);
}

static void wrong_configurations_are_named(void **state)
{
    (void)state;
    tess_model_config c = small;
    CHECK_OK(tess_model_config_check(&c));
    check_config(NULL, "tess_model_config_check: config is NULL");
    c.head_dim = 20;
    check_config(&c, "tess_model_config_check: head_dim is 20, must be a multiple of 8");
    c.head_dim = 264;
    check_config(&c, "tess_model_config_check: head_dim is 264, must be 8..256");
    c.head_dim = 256, c.heads = 257;
    check_config(&c, "tess_model_config_check: heads x head_dim is 65792, must be at most 65536");
    c = small, c.patch[1] = 0;
    check_config(&c, "tess_model_config_check: patch[1] is 0, must be 1..64");
    c = small, c.freq_dim = 7;
    check_config(&c, "tess_model_config_check: freq_dim is 7, must be even");
    c = small, c.layers = 0;
    check_config(&c, "tess_model_config_check: layers is 0, must be 1..1024");
    c = small, c.qk_norm = 2;
    check_config(&c, "tess_model_config_check: qk_norm is 2, must be 0..1");
    c = small, c.eps = 0.0;
    check_config(&c, "tess_model_config_check: eps is 0, must be above 0 and at most 1");
    c = small, c.eps = NAN;
    check_config(&c, "tess_model_config_check: eps is nan, must be above 0 and at most 1");
}

static void wrong_arguments_are_named(void **state)
{
    tess_model *model = make(*state, &small, 1), *none = NULL;
    tess_param p;
    CHECK_FAILS(tess_model_create(NULL, &small, NULL, &none), TESS_EINVAL,
                "tess_model_create: ctx is NULL");
    CHECK_FAILS(tess_model_create(*state, NULL, NULL, &none), TESS_EINVAL,
                "tess_model_create: config is NULL");
    CHECK_FAILS(tess_model_create(*state, &small, NULL, NULL), TESS_EINVAL,
                "tess_model_create: model is NULL");
    CHECK_FAILS(tess_model_query(model, NULL), TESS_EINVAL, "tess_model_query: info is NULL");
    CHECK_FAILS(tess_model_param(NULL, 0, &p), TESS_EINVAL, "tess_model_param: model is NULL");
    CHECK_FAILS(tess_model_param(model, 69, &p), TESS_EINVAL,
                "tess_model_param: index is 69, must be 0..68");
    CHECK_FAILS(tess_model_zero_gradients(NULL), TESS_EINVAL,
                "tess_model_zero_gradients: model is NULL");
    assert_null(none);
    tess_model_destroy(model);
    tess_model_destroy(NULL);
}

static int open_context(void **state)
{
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2}, (tess_ctx **)state) != TESS_OK;
}

static int close_context(void **state)
{
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_lie_one_behind_the_other),
    cmocka_unit_test(parameters_have_the_shapes_of_diffusers),
    cmocka_unit_test(first_values_have_their_deviations),
    cmocka_unit_test(first_values_depend_on_the_seed_and_not_on_threads),
    cmocka_unit_test(gradients_begin_as_zero_and_return_to_it),
    cmocka_unit_test(wrong_configurations_are_named),
    cmocka_unit_test(wrong_arguments_are_named),
};
RUN_TESTS_WITH(tests, open_context, close_context)
