/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_ops.c - times and bytes of single operations, computed by hand for a GPU of round
 * numbers: 100 TFLOP/s, 1 TB/s, 10 units, every share 1 and no overheads. */
#include "sim_round.h"

#include <stdlib.h>
#include <unistd.h>

/* 1024 x 3072 of 256 x 128 tiles: 96 tiles on 10 units are 10 waves of 2 * 256 * 128 * 1024 FLOP at
 * 10 TFLOP/s a unit, 67.1 us; with tiles of 128 x 128 it is 192 tiles, 20 waves of half the work;
 * 128 x 64 makes 384 tiles, 39 waves, 65.4 us; 64 x 64 768, 77 waves, 64.6 us, which is taken.
 * Reading and writing take less: 2 (1 + 3 + 3) 2^20 bytes, 14.7 us. */
static void a_product_pays_for_its_last_wave(void **state)
{
    (void)state;
    const tess_scenario s = layer();
    run(&s);
    const tess_sim_op qkv = find("qkv", "forward");
    assert_true(qkv.m == 1024 && qkv.n == 3072 && qkv.k == 1024);
    assert_true(qkv.flop == 2.0 * 1024 * 3072 * 1024);
    check_us(qkv.seconds, 77 * 2.0 * 64 * 64 * 1024 / 10e12 * 1e6);
    const tess_sim_op weight = find("qkv", "weight");
    assert_true(weight.m == 3072 && weight.n == 1024 && weight.k == 1024);
}

/* The norm reads and writes 2^20 elements of 2 bytes at 1 TB/s. */
static void elementwise_operations_take_their_bytes(void **state)
{
    (void)state;
    tess_scenario s = layer();
    run(&s);
    check_us(find("norm of attention", "forward").seconds, 4.194304);
    check_us(find("activation", "forward").seconds, 4 * 4.194304);
    s.training.precision = TESS_SIM_FP32;
    run(&s);
    check_us(find("norm of attention", "forward").seconds, 2 * 4.194304);
}

/* 8 heads of 1024 queries over 512 keys on average, 4 * 128 FLOP a pair at 50 TFLOP/s; backward 10
 * * 128 at 25. */
static void flash_attention_counts_pairs(void **state)
{
    (void)state;
    tess_scenario s = layer();
    run(&s);
    check_us(find("attention", "forward").seconds, 8.0 * 1024 * 512 * 512 / 50e12 * 1e6);
    check_us(find("attention", "backward").seconds, 8.0 * 1024 * 512 * 1280 / 25e12 * 1e6);
    s.model.density = 0.25;
    s.model.imbalance = 1.5;
    s.model.full = 1;
    run(&s);
    /* Sparse kernels reach half of the rate and open a row in the time of 100 keys. */
    check_us(find("attention", "forward").seconds,
             1.5 * 8.0 * 1024 * (256 + 100) * 512 / 0.5 / 50e12 * 1e6);
    s.model.sparse_forward = 0.8;
    run(&s);
    check_us(find("attention", "forward").seconds,
             1.5 * 8.0 * 1024 * (256 + 100) * 512 / 0.8 / 50e12 * 1e6);
    s.model.density = 0.0;
    s.model.window = 100;
    s.model.full = 0;
    run(&s);
    assert_true(find("attention", "forward").n == 100.0 - 100.0 * 100.0 / 2048.0);
}

/* A causal softmax reads half of 8 * 1024 * 1024 scores and writes all of them. */
static void scores_without_flash_are_read_and_written(void **state)
{
    (void)state;
    tess_scenario s = layer();
    snprintf(s.system.era, sizeof s.system.era, "fused");
    run(&s);
    check_us(find("softmax", "forward").seconds, 3.0 * 8 * 1024 * 1024 / 1e12 * 1e6);
    check_us(find("softmax", "backward").seconds, 4.0 * 8 * 1024 * 1024 / 1e12 * 1e6);
    s.training.attention = TESS_SIM_UNFUSED;
    run(&s);
    check_us(find("softmax", "forward").seconds, 28.0 * 8 * 1024 * 1024 / 1e12 * 1e6);
}

static void collectives_are_those_of_the_cost_model(void **state)
{
    (void)state;
    tess_scenario s = layer();
    s.layout.tp = 4;
    const tess_sim_result r = run(&s);
    tess_collective_result want;
    CHECK_OK(tess_collective_time(
        cluster,
        &(tess_collective){.op = TESS_ALL_REDUCE, .bytes = 2 << 20, .gpus = 4, .per_node = 4},
        &want));
    check_us(find("reduce", "forward").seconds, (double)want.ns * 1e-3);
    check_us(r.tp_s, 4 * (double)want.ns * 1e-3);
    s.layout.sequence = 1;
    run(&s);
    CHECK_OK(tess_collective_time(
        cluster,
        &(tess_collective){.op = TESS_REDUCE_SCATTER, .bytes = 2 << 20, .gpus = 4, .per_node = 4},
        &want));
    check_us(find("scatter", "forward").seconds, (double)want.ns * 1e-3);
}

static void recomputation_runs_the_forward_pass_again(void **state)
{
    (void)state;
    tess_scenario s = layer();
    const tess_sim_result none = run(&s);
    s.training.recompute = TESS_SIM_RECOMPUTE_FULL;
    const tess_sim_result full = run(&s);
    check_us(full.layer_backward_s, (none.layer_backward_s + none.layer_forward_s) * 1e6);
    s.training.recompute = TESS_SIM_RECOMPUTE_SELECTIVE;
    const tess_sim_result selective = run(&s);
    check_us(selective.layer_backward_s,
             (none.layer_backward_s + find("attention", "forward").seconds) * 1e6);
    assert_true(full.hfu / full.mfu > 1.3 && none.hfu == none.mfu);
}

/* A host of 1 ms forward hides what the GPU does in less; p = 64 is the longer of the two. */
static void the_host_may_be_the_slower_one(void **state)
{
    (void)state;
    tess_scenario s = layer();
    snprintf(s.system.era, sizeof s.system.era, "eager");
    const tess_sim_result r = run(&s);
    check_us(r.layer_forward_s, 1000.0);
    assert_true(r.host_s > 0.0);
    s.training.graphs = TESS_SIM_ON;
    assert_true(run(&s).host_s == 0.0);
}

static void a_scalar_multiplies_the_step_of_its_system_alone(void **state)
{
    (void)state;
    tess_scenario s = layer();
    const double plain = run(&s).step_s;
    snprintf(s.system.system, sizeof s.system.system, "slow");
    check_us(run(&s).step_s, 1.5e6 * plain);
    s.system.scalar = TESS_SIM_OFF;
    assert_true(run(&s).step_s == plain);
    snprintf(s.system.system, sizeof s.system.system, "unknown");
    s.system.scalar = TESS_SIM_AUTO;
    assert_true(run(&s).step_s == plain);
}

/* 12 h^2 and four vectors; 2 + 4 + 12 bytes each; one micro-batch of a layer keeps by arXiv:
 * 2205.05198 without scores and dropout 34 s b h - 2 (masks), and 4 bytes a row and head. */
static void memory_is_counted_part_by_part(void **state)
{
    (void)state;
    const tess_scenario s = layer();
    const tess_sim_memory m = run(&s).memory;
    const double n = 12.0 * 1024 * 1024 + 4096;
    assert_true(m.weights == 2.0 * n && m.gradients == 4.0 * n && m.optimiser == 12.0 * n);
    assert_true(m.layer_state == 18.0 * n);
    assert_true(m.layer_activations == 32.0 * 1024 * 1024 + 4.0 * 1024 * 8);
    assert_true(m.fits && m.capacity == 2147483648.0);
    assert_string_equal(m.largest, "optimiser");
}

/* Experts: a row goes to 2 of 8, so that 2 ranks of 4 experts have 1024 rows each for their 4. */
static void experts_multiply_the_rows_that_they_get(void **state)
{
    (void)state;
    tess_scenario s = layer();
    s.model.experts = 8;
    s.model.top_k = 2;
    s.layout.ep = 2;
    s.layout.dp = 2;
    const tess_sim_result r = run(&s);
    const tess_sim_op in = find("mlp in", "forward");
    assert_true(in.batch == 4 && in.m == 512 && in.n == 4096 && in.k == 1024);
    assert_true(find("dispatch", "forward").bytes == 2.0 * 2048 * 1024);
    assert_true(r.ep_s > 0.0);
    /* Of 8 experts a token pays for 2. */
    const double active = 4.0 * 1024 * 1024 + 2 * 8.0 * 1024 * 1024 + 8.0 * 1024;
    const double pairs = 2.0 * 256 * 8 * 1024;
    assert_true(fabs(r.model_flop / (3.0 * 2048 * (2.0 * active + pairs)) - 1.0) < 1e-12);
}

/* ---- measured products ----------------------------------------------------------------------- */

static const char *write_table(const char *rows)
{
    static char path[] = "/tmp/tess_ops_XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fprintf(f, "system,op,shape,peak_tflops,measured_efficiency\n%s", rows);
    fclose(f);
    return path;
}

/* The forward product of a projection as measured at half the peak of B200, 2250 TFLOP/s; its
 * gradients are not in the table. */
static void a_measured_product_takes_its_time(void **state)
{
    (void)state;
    const char *path = write_table(
        "b200_bf16,matmul,\"b=1, m=1024, k=1024, n=3072, layout=TN, accumulate=False\",2250,0.5\n"
        "b200_bf16,sdp_fwd,\"batch=1, seq_len=4096\",2250,0.9\n");
    tess_sim_measured *measured = NULL;
    tess_sim_params *shipped = NULL;
    tess_cluster *b200 = NULL;
    tess_sim *other = NULL, *round = sim;
    tess_sim_result r;
    CHECK_OK(tess_sim_measured_load(ctx, path, NULL, &measured));
    CHECK_OK(tess_sim_params_load(ctx, NULL, &shipped));
    CHECK_OK(tess_cluster_load(ctx, "b200", &b200));
    CHECK_OK(tess_sim_create(ctx, shipped, &other));
    CHECK_OK(tess_sim_use_measured(other, measured));
    const tess_scenario s = layer();
    CHECK_OK(tess_sim_run(other, b200, &s, &r));
    sim = other;
    check_us(find("qkv", "forward").seconds, 2.0 * 1024 * 1024 * 3072 / (2250e12 * 0.5) * 1e6);
    assert_true(find("qkv", "forward").measured && !find("qkv", "backward").measured);
    CHECK_OK(tess_sim_use_measured(other, NULL));
    CHECK_OK(tess_sim_run(other, b200, &s, &r));
    assert_false(find("qkv", "forward").measured);
    sim = round;
    tess_sim_destroy(other);
    tess_cluster_destroy(b200);
    tess_sim_params_destroy(shipped);
    tess_sim_measured_destroy(measured);
    tess_sim_measured_destroy(NULL);
    unlink(path);
}

static void a_table_without_products_is_refused(void **state)
{
    (void)state;
    tess_sim_measured *measured = NULL;
    char sentence[128];
    const char *path = write_table("b200_bf16,sdp_fwd,\"batch=1, seq_len=4096\",2250,0.9\n");
    snprintf(sentence, sizeof sentence, "%s: has no measured products", path);
    CHECK_FAILS(tess_sim_measured_load(ctx, path, NULL, &measured), TESS_EFORMAT, sentence);
    unlink(path);
    CHECK_FAILS(tess_sim_measured_load(ctx, NULL, NULL, &measured), TESS_EINVAL,
                "tess_sim_measured_load: path is NULL");
    CHECK_FAILS(tess_sim_use_measured(NULL, NULL), TESS_EINVAL,
                "tess_sim_use_measured: sim is NULL");
    assert_null(measured);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_measured_product_takes_its_time),
    cmocka_unit_test(a_table_without_products_is_refused),
    cmocka_unit_test(a_product_pays_for_its_last_wave),
    cmocka_unit_test(elementwise_operations_take_their_bytes),
    cmocka_unit_test(flash_attention_counts_pairs),
    cmocka_unit_test(scores_without_flash_are_read_and_written),
    cmocka_unit_test(collectives_are_those_of_the_cost_model),
    cmocka_unit_test(recomputation_runs_the_forward_pass_again),
    cmocka_unit_test(the_host_may_be_the_slower_one),
    cmocka_unit_test(a_scalar_multiplies_the_step_of_its_system_alone),
    cmocka_unit_test(memory_is_counted_part_by_part),
    cmocka_unit_test(experts_multiply_the_rows_that_they_get),
};

RUN_TESTS_WITH(tests, make, drop)
