/* SPDX-License-Identifier: Apache-2.0 */
/* test_loader.c - batches prepared beside the caller: their order, their end, their failures. Run
 * under ThreadSanitizer by the tsan preset. */
#include "data/data_internal.h"
#include "data/loader.h"
#include "test.h"

#include <stdlib.h>
#include <time.h>

enum { BATCH = 3 };

/* A source of one number per sample, its index, which fails at one of them. */
static int64_t broken_at;

static tess_status count_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                tess__sample_meta *meta)
{
    (void)data;
    (void)meta;
    if (index == broken_at)
        return tess__fail(TESS_EIO, "clip %lld is gone", (long long)index);
    x[0] = (float)index + (split == TESS_SPLIT_VALIDATION ? 0.5F : 0.0F);
    return TESS_OK;
}

static const tess__data_source counting = {"counting", NULL, count_sample, NULL};

static tess_data make_counting(tess_ctx *ctx)
{
    return (tess_data){.ctx = ctx,
                       .source = &counting,
                       .info = {.kind = "counting",
                                .channels = 1,
                                .frames = 1,
                                .height = 1,
                                .width = 1,
                                .text_len = 1,
                                .text_dim = 2,
                                .pack = 1}};
}

static void rest(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* Consumers that are faster, slower and of uneven speed, rings of any depth. */
static void batches_come_in_order_whatever_the_speed(void **state)
{
    static const int depths[] = {0, 1, 2, 7};
    tess_data data = make_counting(*state);
    broken_at = -1;
    for (int d = 0; d < 4; d++)
        for (int speed = 0; speed < 3; speed++) {
            tess__loader *loader = NULL;
            const tess__loader_opts opts = {.data = &data,
                                            .split = TESS_SPLIT_VALIDATION,
                                            .batch = BATCH,
                                            .depth = depths[d],
                                            .first = 1000};
            CHECK_OK(tess__loader_start(*state, &opts, &loader));
            for (int64_t k = 1000; k < 1040; k++) {
                tess__batch batch;
                CHECK_OK(tess__loader_next(loader, &batch));
                assert_int_equal(batch.number, k);
                for (int i = 0; i < BATCH; i++)
                    assert_true(batch.x[i] == (float)(k * BATCH + i) + 0.5F);
                if (speed == 1 || (speed == 2 && k % 8 == 0))
                    rest(200);
                for (int i = 0; i < BATCH; i++) /* the batch is still the caller's */
                    assert_true(batch.x[i] == (float)(k * BATCH + i) + 0.5F);
            }
            tess__loader_stop(loader);
        }
}

static void batches_hold_what_the_data_samples(void **state)
{
    tess_data *data = NULL;
    tess_data_info info;
    CHECK_OK(tess_data_open(
        *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = "recall", .pack = 2}, &data));
    CHECK_OK(tess_data_query(data, &info));
    const size_t n = (size_t)info.channels * 8 * 16 * 16, words = 16 * 64;
    float *x = malloc(n * sizeof *x), *text = malloc(words * sizeof *text);
    assert_true(x && text);
    tess__loader *loader = NULL;
    CHECK_OK(tess__loader_start(
        *state, &(tess__loader_opts){.data = data, .batch = BATCH, .first = 2}, &loader));
    for (int64_t k = 2; k < 6; k++) {
        tess__batch batch;
        CHECK_OK(tess__loader_next(loader, &batch));
        for (int i = 0; i < BATCH; i++) {
            CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, k * BATCH + i, x, text, NULL, 0));
            assert_memory_equal(batch.x + (size_t)i * n, x, n * sizeof *x);
            assert_memory_equal(batch.text + (size_t)i * words, text, words * sizeof *text);
        }
    }
    tess__loader_stop(loader);
    free(x);
    free(text);
    tess_data_close(data);
}

static void a_steady_loader_allocates_nothing(void **state)
{
    tess_data *data = NULL;
    tess_data_info info;
    tess_ctx_info before, after;
    CHECK_OK(tess_data_open(*state, NULL, &data));
    CHECK_OK(tess_data_query(data, &info));
    CHECK_OK(tess_ctx_query(*state, &before));
    tess__loader *loader = NULL;
    CHECK_OK(tess__loader_start(*state, &(tess__loader_opts){.data = data, .batch = 2}, &loader));
    CHECK_OK(tess_ctx_query(*state, &after));
    /* What is predicted, and the heads of two allocations. */
    const int64_t predicted = tess__loader_bytes(&info, 2, 0);
    assert_in_range(after.bytes_now - before.bytes_now, predicted, predicted + 256);
    tess__batch batch;
    for (int k = 0; k < 20; k++)
        CHECK_OK(tess__loader_next(loader, &batch));
    CHECK_OK(tess_ctx_query(*state, &before));
    assert_int_equal(before.allocations, after.allocations);
    tess__loader_stop(loader);
    tess_data_close(data);
}

static void a_failure_comes_where_its_batch_would_have(void **state)
{
    tess_data data = make_counting(*state);
    broken_at = 5 * BATCH + 1;
    tess__loader *loader = NULL;
    CHECK_OK(tess__loader_start(
        *state, &(tess__loader_opts){.data = &data, .batch = BATCH, .depth = 4}, &loader));
    tess__batch batch = {.number = -1};
    for (int64_t k = 0; k < 5; k++) {
        CHECK_OK(tess__loader_next(loader, &batch));
        assert_int_equal(batch.number, k);
    }
    for (int again = 0; again < 3; again++)
        CHECK_FAILS(tess__loader_next(loader, &batch), TESS_EIO, "clip 16 is gone");
    assert_int_equal(batch.number, 4); /* a failed call writes nothing */
    tess__loader_stop(loader);
}

static void a_loader_stops_at_any_moment(void **state)
{
    tess_data *data = NULL;
    CHECK_OK(tess_data_open(*state, NULL, &data));
    for (int taken = 0; taken < 6; taken++)
        for (int pause = 0; pause < 3; pause++) {
            tess__loader *loader = NULL;
            CHECK_OK(tess__loader_start(*state, &(tess__loader_opts){.data = data, .batch = 2},
                                        &loader));
            tess__batch batch;
            for (int k = 0; k < taken; k++)
                CHECK_OK(tess__loader_next(loader, &batch));
            if (pause)
                rest(pause * 300);
            tess__loader_stop(loader);
        }
    tess__loader_stop(NULL);
    tess_data_close(data);
}

static void a_batch_beyond_memory_is_refused(void **state)
{
    tess_data data = make_counting(*state);
    data.info.frames = data.info.height = data.info.width = INT32_MAX;
    tess__loader *loader = NULL;
    assert_int_equal(tess__loader_bytes(&data.info, INT32_MAX, 0), 0);
    assert_int_equal(tess__loader_start(
                         *state, &(tess__loader_opts){.data = &data, .batch = INT32_MAX}, &loader),
                     TESS_ENOMEM);
    assert_null(loader);
}

static int make_ctx(void **state)
{
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2}, (tess_ctx **)state);
}

static int drop_ctx(void **state)
{
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(*state, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_come_in_order_whatever_the_speed),
    cmocka_unit_test(batches_hold_what_the_data_samples),
    cmocka_unit_test(a_steady_loader_allocates_nothing),
    cmocka_unit_test(a_failure_comes_where_its_batch_would_have),
    cmocka_unit_test(a_loader_stops_at_any_moment),
    cmocka_unit_test(a_batch_beyond_memory_is_refused),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
