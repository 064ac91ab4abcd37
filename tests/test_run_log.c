/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_log.c - logs of frameworks: steps after warm-up, medians, memory, the job they print. */
#include "job/log_internal.h"
#include "test.h"

#include <string.h>

static tess_run_log *parse(tess_ctx *ctx, const char *text, int64_t warmup)
{
    tess_run_log *log = NULL;
    const tess_status status =
        tess__run_log_parse(ctx, "run.log", text, strlen(text), warmup, &log);
    if (status != TESS_OK)
        print_message("%s\n", tess_last_error());
    assert_int_equal(status, TESS_OK);
    return log;
}

static void warm_up_is_left_out_and_the_median_taken(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_run_log_info info;
    assert_int_equal(tess_ctx_create(NULL, &ctx), TESS_OK);
    static const char text[] =
        "iteration 1/9 | elapsed time per iteration (ms): 9000 |\n"
        " iteration 2/9 | elapsed time per iteration (ms): 9000 |\n"
        " iteration 3/9 | elapsed time per iteration (ms): 100.0 | throughput per GPU "
        "(TFLOP/s/GPU): 200 |\n"
        " iteration 4/9 | elapsed time per iteration (ms): 120.0 |\n"
        " iteration 4/9 | elapsed time per iteration (ms): 120.0 |\n"
        " iteration 5/9 | elapsed time per iteration (ms): 1000.0 | global batch size:  32 |\n"
        " memory (MB) | allocated: 1 | max allocated: 2048.0 | reserved: 3 | max reserved: "
        "4096.0\n";
    tess_run_log *log = parse(ctx, text, 1);
    assert_int_equal(tess_run_log_query(log, &info), TESS_OK);
    assert_string_equal(info.framework, "Megatron-LM");
    assert_int_equal(info.lines, 4);
    assert_int_equal(info.used, 3);
    assert_int_equal(info.first, 3);
    assert_true(info.step_s == 0.12 && info.tflops == 200);
    assert_true(info.allocated_gib == 2 && info.reserved_gib == 4);
    assert_int_equal(info.global_batch, 32);
    assert_null(tess_run_log_job(log));
    tess_run_log_destroy(log);
    log = parse(ctx, text, 100); /* too few would be left: the first line alone is */
    assert_int_equal(tess_run_log_query(log, &info), TESS_OK);
    assert_int_equal(info.used, 3);
    tess_run_log_destroy(log);
    tess_ctx_destroy(ctx);
}

static void tokens_per_second_make_a_step(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    double seconds;
    assert_int_equal(tess_ctx_create(NULL, &ctx), TESS_OK);
    tess_run_log *log = parse(
        ctx,
        "[titan] - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, "
        "dp_shard=8, cp=1, tp=2, ep=1\n"
        "[titan] - root - INFO - Model llama3 8B size: 8 total parameters\n"
        "[titan] - root - INFO - Trainer is initialized with local batch size 2, global batch size "
        "16, gradient accumulation steps 1, sequence length 4096, total steps 10\n"
        "\033[31mstep:  1  \033[32mloss: 8 memory: 30.00GiB(1%)  tps: 4,096  tflops: 1.0\n",
        10);
    const tess_job *job = tess_run_log_job(log);
    assert_non_null(job);
    tess_scenario s = {0}, full;
    assert_int_equal(tess_job_apply(ctx, job, 0, &s), TESS_OK);
    assert_int_equal(tess_scenario_fill(&s, &full), TESS_OK);
    assert_int_equal(full.layout.gpus, 16);
    assert_int_equal(full.layout.tp, 2);
    assert_int_equal(full.training.global_batch, 16);
    assert_int_equal(tess_run_log_step(log, &s, &seconds), TESS_OK);
    assert_true(seconds == 1.0); /* 16 x 4096 tokens at 16 x 4096 a second */
    tess_run_log_destroy(log);
    tess_ctx_destroy(ctx);
}

static void a_log_without_steps_is_refused(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_run_log *log = NULL;
    assert_int_equal(tess_ctx_create(NULL, &ctx), TESS_OK);
    assert_int_equal(tess__run_log_parse(ctx, "run.log", "hello\n", 6, 0, &log), TESS_EFORMAT);
    assert_string_equal(tess_last_error(), "run.log: no line has the time of a step as torchtitan, "
                                           "Megatron-LM or NeMo print it");
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(warm_up_is_left_out_and_the_median_taken),
    cmocka_unit_test(tokens_per_second_make_a_step),
    cmocka_unit_test(a_log_without_steps_is_refused),
};
RUN_TESTS(tests)
