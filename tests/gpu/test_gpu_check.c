/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_check.c - tess_gpu_check and tess_gpu_bench over the driver of tests: kernels that are
 * right pass, each kind of mistake is found, and outcomes are stored for the device they are of. */
#include "fake_driver.h"
#include "files.h"
#include "gpu/gpu_internal.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static char log_text[512];
static int log_lines;

static void keep_log(void *user, tess_log_level level, const char *message)
{
    (void)user;
    (void)level;
    log_lines++;
    snprintf(log_text, sizeof log_text, "%s", message);
}

typedef struct {
    int cases, wrong, unequal, unguarded, selections;
    char name[128], output[16];
} case_counts;

static void count_case(void *user, const tess_gpu_case *found)
{
    case_counts *const s = user;
    s->cases++;
    s->wrong += !(found->error <= found->allowed);
    s->unequal += !found->same;
    s->unguarded += !found->guarded;
    s->selections += strncmp(found->name, "selection", 9) == 0;
    assert_int_equal(found->ok, found->error <= found->allowed && found->same && found->guarded);
    if (!found->ok) {
        snprintf(s->name, sizeof s->name, "%s", found->name);
        snprintf(s->output, sizeof s->output, "%s", found->output);
    }
}

static tess_gpu_check_result run_check(const char *folder, int spoil, case_counts *counts)
{
    tess_gpu *gpu = NULL;
    tess_gpu_info info;
    tess_gpu_check_result result = {0};
    *counts = (case_counts){0};
    const tess_gpu_check_opts opts = {
        .folder = folder, .tokens = 64, .repeats = 2, .found = count_case, .user = counts};
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    fake_driver.spoil = spoil;
    fake_driver.copies = 0;
    CHECK_OK(tess_gpu_check(gpu, &opts, &result));
    fake_driver.spoil = 0;
    CHECK_OK(tess_gpu_query(gpu, &info));
    assert_int_equal(info.checked, result.outcome);
    assert_int_equal(result.cases, counts->cases);
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
    return result;
}

static tess_gpu_outcome stored(const char *folder, int device)
{
    tess_gpu *gpu = NULL;
    tess_gpu_check_result result;
    CHECK_OK(tess_gpu_open(ctx, device, &gpu));
    CHECK_OK(tess_gpu_checked(gpu, folder, &result));
    tess_gpu_close(gpu);
    return result.outcome;
}

static void test_right_kernels_pass(void **state)
{
    (void)state;
    case_counts counts;
    const char *const folder = "outcomes-1";
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(stored(folder, 0), TESS_GPU_NOT_CHECKED);
    const tess_gpu_check_result r = run_check(folder, 0, &counts);
    if (r.failed)
        fail_msg("%s: %s", counts.name, counts.output);
    assert_int_equal(r.outcome, TESS_GPU_CHECK_PASSED);
    assert_int_equal(r.cases, 46);
    assert_int_equal(counts.selections, 6);
    assert_int_equal(r.tokens, 64);
    /* Of this device and this driver, no other. */
    assert_int_equal(stored(folder, 0), TESS_GPU_CHECK_PASSED);
    assert_int_equal(stored(folder, 1), TESS_GPU_NOT_CHECKED);
    fake_driver.version = 12080;
    assert_int_equal(stored(folder, 0), TESS_GPU_NOT_CHECKED);
    fake_driver.version = 12040;
}

/* One bit of an output, a byte before it, or a bit in some runs. */
static void test_mistakes_are_found(void **state)
{
    (void)state;
    case_counts counts;
    const char *const folder = "outcomes-2";
    assert_int_equal(mkdir(folder, 0777), 0);
    tess_gpu_check_result r = run_check(folder, 1, &counts);
    assert_int_equal(r.outcome, TESS_GPU_CHECK_FAILED);
    assert_int_equal(r.failed, r.cases);
    assert_true(counts.wrong >= counts.cases - counts.selections);
    assert_int_equal(stored(folder, 0), TESS_GPU_CHECK_FAILED);
    r = run_check(folder, 2, &counts);
    assert_int_equal(r.outcome, TESS_GPU_CHECK_FAILED);
    assert_int_equal(counts.unguarded, counts.cases - counts.selections);
    r = run_check(folder, 3, &counts);
    assert_int_equal(r.outcome, TESS_GPU_CHECK_FAILED);
    assert_true(counts.unequal > 30);
    r = run_check(folder, 0, &counts);
    assert_int_equal(r.outcome, TESS_GPU_CHECK_PASSED);
    assert_int_equal(stored(folder, 0), TESS_GPU_CHECK_PASSED);
}

/* A driver that fails ends the check without an outcome. */
static void test_a_launch_that_fails(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_gpu_check_result result = {.cases = -1};
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    fake_driver.launch_result = 719;
    CHECK_FAILS(tess_gpu_check(gpu, &(tess_gpu_check_opts){.tokens = 64, .repeats = 2}, &result),
                TESS_ENOTSUP,
                "tess_gpu_attn_forward: cuLaunchKernel of the driver: CUDA_ERROR_LAUNCH_FAILED "
                "(719)");
    fake_driver.launch_result = 0;
    assert_int_equal(result.cases, -1);
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
}

static void test_bad_input(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_gpu_check_result result;
    tess_gpu_bench_result times;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    CHECK_FAILS(tess_gpu_check(gpu, &(tess_gpu_check_opts){.tokens = 63}, &result), TESS_EINVAL,
                "tess_gpu_check: tokens is 63, must be 64..65536");
    CHECK_FAILS(tess_gpu_check(gpu, &(tess_gpu_check_opts){.repeats = 1}, &result), TESS_EINVAL,
                "tess_gpu_check: repeats is 1, must be 2..1000");
    tess_gpu_bench_problem p = {
        .shape = {{.batch = 1, .heads = 1, .head_dim = 64, .tokens_q = 64, .tokens_k = 64}, 0},
        .dtype = TESS_DTYPE_BF16,
        .group = 32,
        .unit = 1,
        .density = 0.5,
        .rank = 16,
        .repeats = 1};
    const tess_gpu_bench_problem good = p;
    p.unit = 3;
    CHECK_FAILS(tess_gpu_bench(gpu, &p, &times), TESS_EINVAL,
                "tess_gpu_bench: unit is 3, must be a power of two");
    p = good;
    p.density = 0.0;
    CHECK_FAILS(tess_gpu_bench(gpu, &p, &times), TESS_EINVAL,
                "tess_gpu_bench: density is 0, must be 1e-09..1");
    p = good;
    p.shape.attn.head_dim = 96;
    CHECK_FAILS(tess_gpu_bench(gpu, &p, &times), TESS_ENOTSUP,
                "tess_gpu_bench: head_dim is 96, must be 64 or 128");
    p = good;
    p.dtype = TESS_DTYPE_F32;
    CHECK_FAILS(tess_gpu_bench(gpu, &p, &times), TESS_ENOTSUP,
                "tess_gpu_bench: dtype is F32, must be BF16 or F16");
    p = good;
    CHECK_OK(tess_gpu_bench(gpu, &p, &times));
    assert_true(times.select > 0.0 && times.forward > 0.0 && times.backward > 0.0);
    assert_true(times.pairs == 64.0 * 32.0);
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
}

/* A bench draws few numbers and copies them over all of a tensor, no byte beyond. */
static void test_numbers_are_repeated(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    void *to = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    for (size_t each = 1; each <= 12; each++) {
        tess_gpu_memory m = {.gpu = gpu, .who = "test"};
        CHECK_OK(tess__gpu_allocate(&m, 12, &to));
        CHECK_OK(tess__gpu_repeat(&m, to, 11, "abcdefghijkl", each));
        for (size_t i = 0; i < 11; i++)
            assert_int_equal(((const char *)to)[i], 'a' + (char)(i % each));
        assert_int_equal(((const unsigned char *)to)[11], 0xff);
        tess__gpu_free(&m);
    }
    tess_gpu_close(gpu);
}

/* The first call says once that the device was not checked, unless a stored outcome has passed. */
static void test_the_first_call_warns(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_ctx *own = NULL;
    case_counts counts;
    tess_gpu_check_result result;
    tess_gpu_bench_result times;
    const char *const folder = "outcomes-3";
    const tess_gpu_bench_problem p = {
        .shape = {{.batch = 1, .heads = 1, .head_dim = 64, .tokens_q = 16, .tokens_k = 32}, 0},
        .dtype = TESS_DTYPE_BF16,
        .group = 16,
        .unit = 1,
        .density = 1.0,
        .rank = 4,
        .repeats = 2};
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.log = keep_log}, &own));
    log_lines = 0;
    CHECK_OK(tess_gpu_open(own, 0, &gpu));
    CHECK_OK(tess_gpu_bench(gpu, &p, &times));
    CHECK_OK(tess_gpu_bench(gpu, &p, &times));
    tess_gpu_close(gpu);
    assert_int_equal(log_lines, 1);
    assert_string_equal(log_text, "GPU kernels: not checked on this device: emulation 0");
    assert_int_equal(mkdir(folder, 0777), 0);
    run_check(folder, 0, &counts);
    CHECK_OK(tess_gpu_open(own, 0, &gpu));
    CHECK_OK(tess_gpu_checked(gpu, folder, &result));
    CHECK_OK(tess_gpu_bench(gpu, &p, &times));
    tess_gpu_close(gpu);
    assert_int_equal(log_lines, 1);
    tess_ctx_destroy(own);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_right_kernels_pass),   cmocka_unit_test(test_mistakes_are_found),
    cmocka_unit_test(test_a_launch_that_fails),  cmocka_unit_test(test_bad_input),
    cmocka_unit_test(test_numbers_are_repeated), cmocka_unit_test(test_the_first_call_warns),
};
RUN_TESTS_IN_FOLDER(tests)
