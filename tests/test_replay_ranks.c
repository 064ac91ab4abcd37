/* SPDX-License-Identifier: Apache-2.0 */
/* test_replay_ranks.c - traces of several ranks in the event engine: times that can be followed by
 * hand, the two clocks of one rank, traces of a profiler as recorded, and files that do not fit
 * together. With TESS_REFERENCE the sample traces. */
#include "replay_files.h"

#include <math.h>

static int open_all(void **state)
{
    (void)state;
    return replay_files_open("a100-80");
}

static int64_t step_of(const tess_replay *r)
{
    return info_of(r).step_ns;
}

/* ---- traces of the trace recorder ------------------------------------------------------------ */

#define HEAD(rank, ranks)                                                                          \
    "{\"otherData\": {\"tessera_trace\": 1, \"rank\": " rank ", \"ranks\": " ranks                 \
    "},\n\"traceEvents\": [\n"
#define CALL(op, group, bytes, compute, more)                                                      \
    "{\"name\": \"x\", \"ph\": \"X\", \"dur\": 1.5, \"args\": {\"op\": \"" op                      \
    "\", \"traffic\": \"payload\", \"group\": " group ", \"sent\": " bytes                         \
    ", \"received\": " bytes ", \"peer\": 1, \"compute_ns\": " compute more "}}"

static void the_slower_rank_is_waited_for(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "2000000", "5000",
                                      "") "," CALL("sum", "[0, 2, 1]", "2000000", "1000", "") "]}");
    write_file(1, HEAD("1", "2") CALL("sum", "[0, 2, 1]", "2000000", "9000",
                                      "") "," CALL("sum", "[0, 2, 1]", "2000000", "400", "") "]}");
    const int64_t sum = price(TESS_ALL_REDUCE, 2000000, 2);
    tess_replay *r = replay(2, NULL);
    assert_int_equal(step_of(r), 9000 + sum + 1000 + sum);
    const tess_replay_rank a = rank_of(r, 0), b = rank_of(r, 1);
    assert_int_equal(a.wait_ns, 4000);
    assert_int_equal(b.wait_ns, 600);
    assert_int_equal(a.comm_ns, 2 * sum);
    assert_int_equal(a.compute_ns, 6000);
    assert_int_equal(a.exposed_ns, 4000 + 2 * sum);
    assert_int_equal(a.recorded_ns, 6000 + 3000);
    assert_int_equal(a.calls, 2);
    assert_int_equal(a.kineto, 0);
    tess_replay_destroy(r);
    r = replay(2, &(tess_replay_opts){.compute_scale = 10});
    assert_int_equal(step_of(r), 90000 + sum + 10000 + sum);
    tess_replay_destroy(r);
    r = replay(2, &(tess_replay_opts){.as_recorded = 1});
    assert_int_equal(rank_of(r, 0).span_ns, 9000);
    assert_int_equal(rank_of(r, 1).span_ns, 12400);
    tess_replay_destroy(r);
}

/* Of four ranks in two groups: group (0, 1) waits, and rank 2 waits for no rank. */
static void members_without_a_file_are_not_waited_for(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "4") CALL("sum", "[0, 2, 1]", "4000", "5000", "") "]}");
    write_file(1, HEAD("1", "4") CALL("sum", "[0, 2, 1]", "4000", "9000", "") "]}");
    write_file(2, HEAD("2", "4") CALL("sum", "[2, 2, 1]", "4000", "7000", "") "]}");
    const int64_t sum = price(TESS_ALL_REDUCE, 4000, 2);
    tess_replay *r = replay(3, NULL);
    assert_int_equal(rank_of(r, 0).span_ns, 9000 + sum);
    assert_int_equal(rank_of(r, 2).span_ns, 7000 + sum);
    assert_int_equal(rank_of(r, 2).wait_ns, 0);
    tess_replay_destroy(r);
}

/* The engine and the two clocks of tess_trace_replay are the same of one rank: blocking calls,
 * started ones that hide, wires that are busy, waits one after the other, calls of nothing. */
static void one_rank_has_the_step_of_the_two_clocks(void **state)
{
    (void)state;
    static const char *const parts[] = {
        HEAD("0", "4"),
        CALL("exchange", "[0, 4, 1]", "80000000", "1000", ", \"request\": 7") ",",
        CALL("sum", "[0, 4, 1]", "6000000", "7000", "") ",",
        CALL("alltoall", "[0, 2, 2]", "3000000", "100", ", \"request\": 8") ",",
        CALL("agree", "[0, 1, 1]", "0", "50", "") ",",
        CALL("wait", "[0, 2, 2]", "0", "900000", ", \"request\": 8") ",",
        CALL("wait", "[0, 4, 1]", "0", "0", ", \"request\": 7") ",",
        CALL("gather", "[0, 4, 1]", "3000000", "0", "") "]}",
    };
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_trace *trace = NULL;
    tess_trace_result clocks;
    CHECK_OK(tess_trace_load(ctx, paths[0], &trace));
    CHECK_OK(tess_trace_replay(trace, cluster, NULL, &clocks));
    tess_trace_destroy(trace);
    tess_replay *r = replay(1, NULL);
    assert_float_equal(1e-9 * (double)step_of(r), clocks.step_s, 1e-12);
    assert_float_equal(1e-9 * (double)rank_of(r, 0).exposed_ns, clocks.wait_s, 1e-12);
    tess_replay_destroy(r);
}

/* ---- traces of a profiler -------------------------------------------------------------------- */

#define KINETO(rank)                                                                               \
    "{\"distributedInfo\": {\"rank\": " rank ", \"world_size\": 2}, \"traceEvents\": ["
#define LAUNCH(number, ts, dur)                                                                    \
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "      \
    "\"tid\": 1, \"ts\": " ts ", \"dur\": " dur ", \"args\": {\"correlation\": " number "}}"
#define KERNEL(name, number, stream, ts, dur)                                                      \
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" name "\", \"pid\": 0, \"tid\": " stream    \
    ", \"ts\": " ts ", \"dur\": " dur ", \"args\": {\"device\": 0, \"stream\": " stream            \
    ", \"correlation\": " number "}}"
#define SUM(number, stream, ts, dur)                                                               \
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce_Sum\", \"pid\": 0, " \
    "\"tid\": " stream ", \"ts\": " ts ", \"dur\": " dur                                           \
    ", \"args\": {\"device\": 0, \"stream\": " stream ", \"correlation\": " number                 \
    ", \"Collective name\": \"allreduce\", \"In msg nelems\": 1000000, \"Out msg nelems\": "       \
    "1000000, \"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\"}}"

/* A GEMM, a sum on another stream that waits for it, and a GEMM that waits for the sum; the last
 * kernel is held up by its launch. */
#define RANK(first, sum_ts, sum_dur, gemm_ts, late_ts)                                             \
    LAUNCH("1", "0", "4")                                                                          \
    "," LAUNCH("2", "5", "4") "," LAUNCH("3", "10", "4") "," LAUNCH("4", late_ts, "4") "," KERNEL( \
        "ampere_sgemm", "1", "7", "10",                                                            \
        first) "," SUM("2", "20", sum_ts, sum_dur) "," KERNEL("ampere_sgemm", "3", "7", gemm_ts,   \
                                                              "100") "," KERNEL("reduce_kernel",   \
                                                                                "4", "7",          \
                                                                                late_ts ".5", "3")

static void ranks_of_a_profiler_wait_for_each_other(void **state)
{
    (void)state;
    write_file(0, KINETO("0") RANK("200", "212", "500", "715", "9000") "]}");
    write_file(1, KINETO("1") RANK("600", "612", "100", "715", "9000") "]}");
    tess_replay *r = replay(2, &(tess_replay_opts){.as_recorded = 1});
    for (int i = 0; i < 2; i++) {
        const tess_replay_rank k = rank_of(r, i);
        assert_int_equal(k.kineto, 1);
        assert_int_equal(k.recorded_ns, 9003500 - 10000);
        assert_int_equal(k.span_ns, k.recorded_ns);
        assert_int_equal(k.wait_ns, 0);
    }
    tess_replay_destroy(r);

    /* The sum begins when rank 1 has come, with the lag of 2 us behind the GEMM. */
    const int64_t sum = price(TESS_ALL_REDUCE, 4000000, 2);
    r = replay(2, NULL);
    const tess_timeline *t = r->timeline;
    int found = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const tess__tl_op *op = &t->ops[i];
        const char *name = t->names[op->name];
        if (op->cat == TESS__CAT_COMM) {
            assert_int_equal(op->begin, 612000);
            assert_int_equal(op->end, 612000 + sum);
            found++;
        }
        if (strcmp(name, "ampere_sgemm") == 0 && op->ns == 100000) {
            assert_int_equal(op->begin, 612000 + sum + 3000); /* 3 us behind the sum, as recorded */
            found++;
        }
        if (strcmp(name, "reduce_kernel") == 0) {
            assert_int_equal(op->begin, 9000500); /* its launch had returned before by then */
            found++;
        }
    }
    assert_int_equal(found, 6);
    assert_int_equal(rank_of(r, 0).wait_ns, 400000);
    assert_int_equal(rank_of(r, 1).wait_ns, 0);
    tess_replay_destroy(r);

    /* Kernels ten times as fast: the host becomes what the last kernel waits for. */
    r = replay(2, &(tess_replay_opts){.compute_scale = 0.1});
    assert_int_equal(rank_of(r, 1).wait_ns, 0);
    assert_int_equal(rank_of(r, 0).wait_ns, 40000);
    tess_replay_destroy(r);
}

/* Kernels after calls that wait for the GPU. As recorded, in us:
 *
 *   host    launch 0..4, device 5..213, launch 220..224, launch 226..230, stream 231..285,
 *           launch 300..304, device 400..401, launch 410..414
 *   GPU     10..210, 226..276, 277..280, 306..316, 416..417
 */
#define SYNC(name, ts, dur)                                                                        \
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"" name "\", \"pid\": 1, "              \
    "\"tid\": 1, \"ts\": " ts ", \"dur\": " dur ", \"args\": {\"correlation\": 900}}"

static void the_host_waits_in_its_synchronisations(void **state)
{
    (void)state;
    static const char *const parts[] = {KINETO("0"),
                                        LAUNCH("1", "0", "4") ",",
                                        SYNC("cudaDeviceSynchronize", "5", "208") ",",
                                        LAUNCH("2", "220", "4") ",",
                                        LAUNCH("3", "226", "4") ",",
                                        SYNC("cudaStreamSynchronize", "231", "54") ",",
                                        LAUNCH("4", "300", "4") ",",
                                        SYNC("cudaDeviceSynchronize", "400", "1") ",",
                                        LAUNCH("5", "410", "4") ",",
                                        KERNEL("ampere_sgemm", "1", "7", "10", "200") ",",
                                        KERNEL("ampere_sgemm", "2", "7", "226", "50") ",",
                                        KERNEL("reduce_kernel", "3", "7", "277", "3") ",",
                                        KERNEL("ampere_sgemm", "4", "7", "306", "10") ",",
                                        KERNEL("reduce_kernel", "5", "7", "416", "1") "]}"};
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_replay *r = replay(1, &(tess_replay_opts){.as_recorded = 1});
    assert_int_equal(rank_of(r, 0).span_ns, 417000 - 10000);
    tess_replay_destroy(r);

    /* The device 10..410, call until 413, launch 424, 426..526, 527..533, call until 538, launch
     * 557, 559..579; the host is later than that when it asks again: 653..654, launch 667. */
    r = replay(1, &(tess_replay_opts){.compute_scale = 2});
    assert_int_equal(rank_of(r, 0).span_ns, 671000 - 10000);
    tess_replay_destroy(r);

    /* 10..2010, 2013, 2024, 2026..2526, 2527..2557, 2562, 2581, 2583..2683: the last call comes at
     * 2677 and waits until then, 2684, 2697, 2699..2709. */
    r = replay(1, &(tess_replay_opts){.compute_scale = 10});
    assert_int_equal(rank_of(r, 0).span_ns, 2709000 - 10000);
    tess_replay_destroy(r);
}

/* Stamps that contradict each other, a kernel launched after it ran, wait in no circle. */
static void contradicting_stamps_wait_in_no_circle(void **state)
{
    (void)state;
    static const char *const parts[] = {KINETO("0"),
                                        LAUNCH("1", "0", "4") ",",
                                        SYNC("cudaDeviceSynchronize", "5", "100") ",",
                                        LAUNCH("2", "200", "4") ",",
                                        KERNEL("a", "2", "7", "6", "10") ",",
                                        KERNEL("b", "1", "7", "20", "50") "]}"};
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_replay *r = replay(1, &(tess_replay_opts){.as_recorded = 1});
    assert_true(rank_of(r, 0).span_ns > 0);
    tess_replay_destroy(r);
}

/* A rank of the recorder and one of a profiler are members of one group. */
static void traces_of_both_kinds_meet(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "4000000", "5000", "") "]}");
    write_file(1, KINETO("1") RANK("600", "612", "100", "715", "9000") "]}");
    tess_replay *r = replay(2, NULL);
    assert_int_equal(rank_of(r, 0).wait_ns, 612000 - 5000);
    const tess_replay_info info = info_of(r);
    assert_int_equal(info.calls, 2);
    assert_int_equal(info.unmatched, 0);
    assert_int_equal(info.ranks, 2);
    char path[80];
    snprintf(path, sizeof path, "%s/t.json", folder);
    CHECK_OK(tess_replay_write(r, path));
    FILE *f = fopen(path, "r");
    char text[4096] = "";
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    unlink(path);
    assert_non_null(strstr(text, "\"group\":\"0,1\""));
    tess_replay_destroy(r);
}

/* A kernel beside a collective: what the collective costs it in the recording is taken off, and
 * added again where they still overlap. */
static void a_slowdown_is_taken_off_and_put_on(void **state)
{
    (void)state;
    write_file(0, KINETO("0") KERNEL("GammaBetaBackwardCUDAKernel_32x32", "1", "7", "100",
                                     "500") "," SUM("2", "20", "100", "500") "]}");
    tess_replay *r = replay(1, NULL);
    const int64_t sum = price(TESS_ALL_REDUCE, 4000000, 2);
    const double s = tess__overlap_find(&r->params->overlaps, r->hardware,
                                        "GammaBetaBackwardCUDAKernel_32x32", TESS_KERNEL_NORM);
    assert_true(s > 1);
    const int64_t alone = llround(500000 / (1 + s));
    const int64_t left = alone - (int64_t)((double)sum / (1 + s));
    assert_true(sum < 500000);
    assert_true(llabs(rank_of(r, 0).compute_ns - (sum + left)) <= 2);
    tess_replay_destroy(r);
    r = replay(1, &(tess_replay_opts){.as_recorded = 1});
    assert_int_equal(rank_of(r, 0).compute_ns, 500000);
    tess_replay_destroy(r);
}

/* ---- files that do not fit together ---------------------------------------------------------- */

static void wrong_input_is_refused(void **state)
{
    (void)state;
    const char *files[2] = {paths[0], paths[1]};
    char sentence[256];
    tess_replay *r = NULL;
    write_file(0, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "4000", "5000", "") "]}");
    write_file(1, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "4000", "5000", "") "]}");
    snprintf(sentence, sizeof sentence, "%s and %s are both of rank 0", paths[0], paths[1]);
    CHECK_FAILS(tess_replay_run(ctx, files, 2, cluster, NULL, &r), TESS_EINVAL, sentence);
    CHECK_FAILS(tess_replay_run(ctx, files, 0, cluster, NULL, &r), TESS_EINVAL,
                "tess_replay_run: n is 0, must be 1..1048576");
    CHECK_FAILS(tess_replay_run(ctx, files, 1, NULL, NULL, &r), TESS_EINVAL,
                "tess_replay_run: cluster is NULL, and as_recorded is 0");
    CHECK_FAILS(
        tess_replay_run(ctx, files, 1, cluster, &(tess_replay_opts){.compute_scale = -1}, &r),
        TESS_EINVAL, "tess_replay_run: compute_scale is -1, must be 1e-9..1e9, or 0 for 1");
    write_file(0, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "4000", "900000000000", "") "]}");
    snprintf(sentence, sizeof sentence, "%s: computes 900 s times 1e+09, must be at most 1e+08 s",
             paths[0]);
    CHECK_FAILS(
        tess_replay_run(ctx, files, 1, cluster, &(tess_replay_opts){.compute_scale = 1e9}, &r),
        TESS_EINVAL, sentence);
    /* Two groups in the opposite order, one call after the other: each waits for the other one. */
    write_file(0, HEAD("0", "4") CALL("sum", "[0, 2, 1]", "4000", "5",
                                      "") "," CALL("sum", "[0, 3, 1]", "4000", "5", "") "]}");
    write_file(1, HEAD("1", "4") CALL("sum", "[0, 3, 1]", "4000", "5",
                                      "") "," CALL("sum", "[0, 2, 1]", "4000", "5", "") "]}");
    CHECK_FAILS(tess_replay_run(ctx, files, 2, cluster, NULL, &r), TESS_EINVAL,
                "timeline: row 0, stream 1: \"sum\" waits for ever: the files are not of the same "
                "step");
    assert_null(r);
}

static void calls_that_do_not_match_are_notes(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "2") CALL("sum", "[0, 2, 1]", "4000", "5000",
                                      "") "," CALL("sum", "[0, 2, 1]", "4000", "5000", "") "]}");
    write_file(1, HEAD("1", "2") CALL("gather", "[0, 2, 1]", "4000", "5000", "") "]}");
    tess_replay *r = replay(2, NULL);
    const tess_replay_info info = info_of(r);
    assert_int_equal(info.unmatched, 1);
    assert_int_equal(info.notes, 2);
    assert_non_null(
        strstr(tess_replay_note(r, 0), "is all_gather, and all_reduce in another file"));
    assert_non_null(
        strstr(tess_replay_note(r, 1), "calls that are not in the files of all members"));
    assert_null(tess_replay_note(r, 2));
    tess_replay_destroy(r);
}

/* ---- sample traces --------------------------------------------------------------------------- */

static void sample_traces_have_their_recorded_span(void **state)
{
    (void)state;
    static const char *const names[] = {"kineto_alexnet_train", "kineto_ddp_2gpu",
                                        "kineto_rank0_of_128"};
    const char *reference = getenv("TESS_REFERENCE");
    if (!reference) {
        print_message("skipped: TESS_REFERENCE does not name the folder of published tables\n");
        skip();
    }
    for (int i = 0; i < 3; i++) {
        char path[512];
        const char *files[1] = {path};
        tess_replay *r = NULL;
        snprintf(path, sizeof path, "%s/traces/%s.json.gz", reference, names[i]);
        CHECK_OK(tess_replay_run(ctx, files, 1, NULL, &(tess_replay_opts){.as_recorded = 1}, &r));
        const tess_replay_rank k = rank_of(r, 0);
        assert_true(k.recorded_ns > 0);
        assert_true(llabs(k.span_ns - k.recorded_ns) * 100 <= k.recorded_ns);
        tess_replay_destroy(r);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_slower_rank_is_waited_for),
    cmocka_unit_test(members_without_a_file_are_not_waited_for),
    cmocka_unit_test(one_rank_has_the_step_of_the_two_clocks),
    cmocka_unit_test(ranks_of_a_profiler_wait_for_each_other),
    cmocka_unit_test(the_host_waits_in_its_synchronisations),
    cmocka_unit_test(contradicting_stamps_wait_in_no_circle),
    cmocka_unit_test(traces_of_both_kinds_meet),
    cmocka_unit_test(a_slowdown_is_taken_off_and_put_on),
    cmocka_unit_test(wrong_input_is_refused),
    cmocka_unit_test(calls_that_do_not_match_are_notes),
    cmocka_unit_test(sample_traces_have_their_recorded_span),
};
RUN_TESTS_WITH(tests, open_all, replay_files_close)
