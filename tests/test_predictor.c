/* SPDX-License-Identifier: Apache-2.0 */
/* test_predictor.c - predictors: their parameters, first values and files. */
#include "test.h"

#include "tessera/advanced/sparse.h"
#include "tessera/file.h"

#include <stdlib.h>
#include <unistd.h>

static const tess_model_config config = {.patch = {1, 2, 2},
                                         .heads = 3,
                                         .head_dim = 24,
                                         .in_channels = 3,
                                         .out_channels = 3,
                                         .text_dim = 8,
                                         .text_len = 4,
                                         .freq_dim = 8,
                                         .ffn_dim = 32,
                                         .layers = 2,
                                         .eps = 1e-6,
                                         .rope_max = 16};

static tess_ctx *make_ctx(void)
{
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    return ctx;
}

static tess_predictor *make(tess_ctx *ctx, const tess_predictor_opts *opts)
{
    tess_predictor *p = NULL;
    CHECK_OK(tess_predictor_create(ctx, &config, opts, &p));
    return p;
}

static void check_param(const tess_predictor *p, int index, const char *name, int rank, int64_t a,
                        int64_t b, int64_t c, tess_param_kind kind)
{
    tess_param param;
    CHECK_OK(tess_predictor_param(p, index, &param));
    assert_string_equal(param.name, name);
    assert_int_equal(param.rank, rank);
    assert_int_equal(param.shape[0], a);
    assert_int_equal(param.shape[1], b);
    assert_int_equal(param.shape[2], c);
    assert_int_equal(param.count, a * (b ? b : 1) * (c ? c : 1));
    assert_int_equal(param.kind, kind);
}

static void parameters_lie_one_behind_the_other(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    for (int hidden = 0; hidden < 2; hidden++) {
        tess_predictor *p =
            make(ctx, &(tess_predictor_opts){.input = (tess_predict_input)hidden, .proj_dim = 8});
        tess_predictor_info info;
        CHECK_OK(tess_predictor_query(p, &info));
        assert_int_equal(info.params, hidden ? 8 : 4);
        assert_int_equal(info.opts.proj_dim, 8);
        int64_t at = 0;
        for (int i = 0; i < info.params; i++) {
            tess_param param;
            CHECK_OK(tess_predictor_param(p, i, &param));
            assert_ptr_equal(param.value, info.values + at);
            assert_ptr_equal(param.gradient, info.gradients + at);
            assert_int_equal(param.layer, i / (info.params / 2));
            at += param.count;
        }
        assert_int_equal(at, info.count);
        tess_predictor_destroy(p);
    }
    tess_predictor *p = make(ctx, NULL);
    check_param(p, 3, "blocks.1.attn1.predictor.k.weight", 3, 3, 16, 24, TESS_PARAM_MATRIX);
    tess_predictor_destroy(p);
    p = make(ctx, &(tess_predictor_opts){.input = TESS_PREDICT_HIDDEN, .rotary = 1});
    check_param(p, 0, "blocks.0.attn1.predictor.q.weight", 2, 48, 72, 0, TESS_PARAM_MATRIX);
    check_param(p, 7, "blocks.1.attn1.predictor.k.bias", 1, 48, 0, 0, TESS_PARAM_VECTOR);
    tess_predictor_destroy(p);
    tess_ctx_destroy(ctx);
}

/* Products of the vectors of a fresh QK predictor estimate those of q and k: over many matrices the
 * mean of q w^T w k / sqrt(rank) is q k / sqrt(head_dim). With q = k the estimate of one matrix has
 * a relative deviation of sqrt(2 / rank); of 600 matrices 1 / 69. */
static void a_fresh_predictor_estimates_scores(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    float q[24];
    double sum = 0.0, norm = 0.0;
    fill_normal(q, 24, 1);
    for (int c = 0; c < 24; c++)
        norm += (double)q[c] * q[c];
    for (int seed = 0; seed < 100; seed++) {
        tess_predictor *p = make(ctx, &(tess_predictor_opts){.seed = (uint64_t)seed});
        tess_predictor_info info;
        CHECK_OK(tess_predictor_query(p, &info));
        for (int layer = 0; layer < 2; layer++)
            for (int row = 0; row < 3 * 16; row++) {
                const float *wq = info.values + layer * (2 * 3 * 16 * 24) + row * 24;
                double low_q = 0.0, low_k = 0.0;
                for (int c = 0; c < 24; c++) {
                    low_q += (double)wq[c] * q[c];
                    low_k += (double)wq[3 * 16 * 24 + c] * q[c];
                }
                sum += low_q * low_k / 4.0 / (norm / sqrt(24.0)) / 600.0;
            }
        tess_predictor_destroy(p);
    }
    assert_true(fabs(sum - 1.0) < 4.0 / 69.0);
    tess_ctx_destroy(ctx);
}

static void gradients_can_be_cleared(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    tess_predictor *p = make(ctx, NULL);
    tess_predictor_info info;
    CHECK_OK(tess_predictor_query(p, &info));
    info.gradients[0] = info.gradients[info.count - 1] = 3.0f;
    CHECK_OK(tess_predictor_zero_gradients(p));
    assert_true(info.gradients[0] == 0.0f && info.gradients[info.count - 1] == 0.0f);
    tess_predictor_destroy(p);
    tess_predictor_destroy(NULL);
    tess_ctx_destroy(ctx);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void files_keep_every_bit_and_choice(void **state)
{
    (void)state;
    char path[] = "/tmp/tess_XXXXXX.safetensors";
    const int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    close(fd);
    tess_ctx *ctx = make_ctx();
    const tess_predictor_opts choices[] = {{0},
                                           {TESS_PREDICT_QK, 32, 0, 1},
                                           {TESS_PREDICT_HIDDEN, 8, 0, 2},
                                           {TESS_PREDICT_HIDDEN, 64, 1, 3}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        tess_predictor *p = make(ctx, &choices[i]), *q = NULL;
        tess_predictor_info a, b;
        CHECK_OK(tess_predictor_save(p, path));
        CHECK_OK(tess_predictor_load(ctx, &config, path, &q));
        CHECK_OK(tess_predictor_query(p, &a));
        CHECK_OK(tess_predictor_query(q, &b));
        assert_int_equal(a.opts.input, b.opts.input);
        assert_int_equal(a.opts.proj_dim, b.opts.proj_dim);
        assert_int_equal(a.opts.rotary, b.opts.rotary);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.values, b.values, (size_t)a.count * sizeof(float));
        tess_predictor_destroy(p);
        tess_predictor_destroy(q);
    }
    unlink(path);
    tess_ctx_destroy(ctx);
}

/* Writes one tensor with these metadata and loads it; the sentence ends as given. */
static void check_refused(tess_ctx *ctx, const char *path, const tess_meta *metas, int n,
                          const char *end)
{
    static const float numbers[2 * 3 * 16 * 24];
    const tess_tensor tensors[4] = {{.name = "blocks.0.attn1.predictor.q.weight",
                                     .rank = 3,
                                     .shape = {3, 16, 24},
                                     .data = numbers},
                                    {.name = "blocks.0.attn1.predictor.k.weight",
                                     .rank = 3,
                                     .shape = {3, 16, 24},
                                     .data = numbers},
                                    {.name = "blocks.1.attn1.predictor.q.weight",
                                     .rank = 3,
                                     .shape = {3, 16, 24},
                                     .data = numbers},
                                    {.name = "blocks.1.attn1.predictor.k.weight",
                                     .rank = 2,
                                     .shape = {48, 24},
                                     .data = numbers}};
    char sentence[256];
    tess_predictor *p = NULL;
    snprintf(sentence, sizeof sentence, "%s: %s", path, end);
    CHECK_OK(tess_file_write(ctx, path, tensors, strstr(end, "tensors") ? 3 : 4,
                             &(tess_file_opts){.metas = metas, .n_metas = n}));
    CHECK_FAILS(tess_predictor_load(ctx, &config, path, &p), TESS_EFORMAT, sentence);
    assert_null(p);
}

static void files_that_are_no_predictor_are_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/tess_XXXXXX.safetensors";
    const int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    close(fd);
    tess_ctx *ctx = make_ctx();
    tess_meta m[] = {{"format", "1"}, {"input", "qk"}, {"rank", "16"}, {"rotary", "0"}};
    check_refused(ctx, path, m, 3, "lacks the metadata \"rotary\" of a predictor");
    check_refused(ctx, path, m, 0, "lacks the metadata \"format\" of a predictor");
    check_refused(ctx, path, m, 4, "has 3 tensors, must have 4 for a model of 2 layers");
    check_refused(ctx, path, m, 4,
                  "tensor \"blocks.1.attn1.predictor.k.weight\" is no F32 of the 1152 numbers that "
                  "the model asks for");
    m[0].value = "2";
    check_refused(ctx, path, m, 4, "metadata \"format\" is \"2\", must be 1");
    m[0].value = "1", m[1].value = "qkv";
    check_refused(ctx, path, m, 4, "metadata \"input\" is \"qkv\", must be qk or hidden");
    m[1].value = "qk", m[2].value = "16x";
    check_refused(ctx, path, m, 4,
                  "metadata \"rank\" is \"16x\", must be a multiple of 8 up to 64");
    m[2].value = "72";
    check_refused(ctx, path, m, 4, "metadata \"rank\" is \"72\", must be a multiple of 8 up to 64");
    m[2].value = "16", m[3].value = "1";
    check_refused(ctx, path, m, 4, "metadata \"rotary\" is \"1\", must be 0 for qk");
    unlink(path);
    tess_ctx_destroy(ctx);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    tess_predictor *p = NULL;
    tess_param param;
    CHECK_FAILS(tess_predictor_create(NULL, &config, NULL, &p), TESS_EINVAL,
                "tess_predictor_create: ctx is NULL");
    CHECK_FAILS(tess_predictor_create(ctx, &config, &(tess_predictor_opts){.proj_dim = 20}, &p),
                TESS_EINVAL,
                "tess_predictor_create: proj_dim is 20, must be a multiple of 8 up to 64");
    CHECK_FAILS(tess_predictor_create(ctx, &config, &(tess_predictor_opts){.rotary = 1}, &p),
                TESS_EINVAL,
                "tess_predictor_create: rotary is 1, must be 0 for QK, which is rotated");
    CHECK_FAILS(tess_predictor_create(ctx, &config,
                                      &(tess_predictor_opts){.input = (tess_predict_input)2}, &p),
                TESS_EINVAL, "tess_predictor_create: input is 2, must be QK (0) or HIDDEN (1)");
    assert_null(p);
    p = make(ctx, NULL);
    CHECK_FAILS(tess_predictor_param(p, 4, &param), TESS_EINVAL,
                "tess_predictor_param: index is 4, must be 0..3");
    CHECK_FAILS(tess_predictor_query(p, NULL), TESS_EINVAL, "tess_predictor_query: info is NULL");
    CHECK_FAILS(tess_predictor_save(NULL, "x"), TESS_EINVAL,
                "tess_predictor_save: predictor is NULL");
    CHECK_FAILS(tess_predictor_save(p, "x.npz"), TESS_EINVAL,
                "tess_predictor_save: path is \"x.npz\", must end in .safetensors");
    CHECK_FAILS(tess_predictor_load(ctx, &config, NULL, &p), TESS_EINVAL,
                "tess_predictor_load: path is NULL");
    CHECK_FAILS(tess_predictor_zero_gradients(NULL), TESS_EINVAL,
                "tess_predictor_zero_gradients: predictor is NULL");
    tess_predictor_destroy(p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_lie_one_behind_the_other),
    cmocka_unit_test(a_fresh_predictor_estimates_scores),
    cmocka_unit_test(gradients_can_be_cleared),
    cmocka_unit_test(files_keep_every_bit_and_choice),
    cmocka_unit_test(files_that_are_no_predictor_are_refused),
    cmocka_unit_test(wrong_calls_are_named),
};
RUN_TESTS(tests)
