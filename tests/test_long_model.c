/* SPDX-License-Identifier: Apache-2.0 */
/* test_long_model.c - the 1.3b model, with random weights, on a machine of 24 GiB. */
#include "tessera/advanced/pass.h"
#include "tessera/model.h"
#include "test.h"

#include <stdlib.h>
#include <sys/resource.h>

static const int64_t gib = (int64_t)1 << 30;

static float *floats(size_t n, uint64_t seed)
{
    float *data = malloc(n * sizeof *data);
    assert_non_null(data);
    fill_normal(data, n, seed);
    return data;
}

/* The last layer begins as zero, and would hide whatever is before it. */
static void make_head_random(const tess_model *model)
{
    tess_model_info info;
    CHECK_OK(tess_model_query(model, &info));
    for (int i = 0; i < info.params; i++) {
        tess_param p;
        CHECK_OK(tess_model_param(model, i, &p));
        if (strcmp(p.name, "proj_out.weight") == 0)
            CHECK_OK(tess_random_normal(3, 0, 0, p.value, (size_t)p.count));
    }
}

/* 5 x 30 x 52 tokens: 17 frames of video at 480p. */
static void a_model_of_1_3b_runs_forward_in_24_gib(void **state)
{
    (void)state;
    const tess_pass_shape shape = {.batch = 1, .frames = 5, .height = 60, .width = 104};
    const size_t n = (size_t)16 * 5 * 60 * 104;
    tess_ctx *ctx = NULL;
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_model_config config;
    tess_model_memory need;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_ctx_query(ctx, &info));
    CHECK_OK(tess_model_preset("1.3b", &config));
    CHECK_OK(tess_model_need(&config, NULL, &shape, info.threads, &need));
    assert_true(need.total < 24 * gib);
    CHECK_OK(tess_model_create(ctx, &config, NULL, &model));
    make_head_random(model);
    CHECK_OK(tess_pass_create(model, &shape, &pass));
    float *x = floats(n, 1), *out = floats(n, 2);
    float *text = floats((size_t)config.text_len * (size_t)config.text_dim, 3);
    const float timestep = 500.0f;
    CHECK_OK(tess_pass_forward(pass, &(tess_model_in){x, &timestep, text}, out));

    /* Each output is a sum of 1536 products of a normalised row with normal numbers. */
    double square = 0.0;
    for (size_t i = 0; i < n; i++)
        square += (double)out[i] * out[i];
    const double deviation = sqrt(square / (double)n / 1536.0);
    assert_true(deviation > 0.9 && deviation < 1.2);

    CHECK_OK(tess_ctx_query(ctx, &info));
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_int_equal(info.bytes_peak, need.total);
    assert_true(usage.ru_maxrss * (int64_t)1024 < 24 * gib);
    print_message("predicted %.2f GiB, the process had %.2f at most\n",
                  (double)need.total / (double)gib, (double)usage.ru_maxrss * 1024.0 / (double)gib);
    /* oneDNN's buffers, the input and the program itself are not in the prediction. */
    assert_true((double)usage.ru_maxrss * 1024.0 < 1.03 * (double)need.total);
    free(x);
    free(out);
    free(text);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_of_1_3b_runs_forward_in_24_gib),
};
RUN_TESTS(tests)
