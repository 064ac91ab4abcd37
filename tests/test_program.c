/* SPDX-License-Identifier: Apache-2.0 */
/* test_program.c - programs of PyTorch (traces of version 2) in the event engine: dependencies by
 * storages, gathers that run ahead, messages, times of the operation model, and files that are
 * wrong. */
#include "replay_files.h"

#include <math.h>

static int open_all(void **state)
{
    (void)state;
    return replay_files_open("h100");
}

#define HEAD(rank, more)                                                                           \
    "{\"otherData\": {\"tessera_trace\": 2, \"rank\": " rank ", \"ranks\": 8" more                 \
    "},\n\"traceEvents\": [\n"
#define OP(name, ns, stores)                                                                       \
    "{\"name\": \"" name "\", \"cat\": \"compute\", \"ph\": \"X\", \"args\": {\"shapes\": [], "    \
    "\"out\": [], \"dtype\": \"float\", \"flop\": 0, \"bytes\": 64, \"ns\": " ns ", " stores "}}"
#define CALL(op, bytes, stores, more)                                                              \
    "{\"name\": \"c10d\", \"cat\": \"communication\", \"ph\": \"X\", \"args\": {\"op\": \"" op     \
    "\", \"group\": [0, 8, 1], \"in_bytes\": " bytes ", \"out_bytes\": " bytes                     \
    ", \"dtype\": \"float\", " stores more "}}"
#define READS(r, w) "\"reads\": [" r "], \"writes\": [" w "]"

/* The k-th operation of a stream, the host's left out. */
static const tess__tl_op *find(const tess_replay *r, int cat, int k)
{
    for (int64_t i = 0; i < r->timeline->n; i++)
        if (r->timeline->ops[i].cat == cat && k-- == 0)
            return &r->timeline->ops[i];
    fail();
    return NULL;
}

static int64_t end_of(const tess_replay *r)
{
    return r->timeline->end;
}

/* a writes 0, which is summed over ranks while b computes; c reads the sum. */
static void a_collective_runs_beside_what_does_not_need_it(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "") OP("a", "5000000", READS("", "0")) "," CALL(
                      "all_reduce", "4000000", READS("0", "0"),
                      ", \"request\": 1") ",\n" OP("b", "7000000",
                                                   READS("", "1")) "," OP("c", "1000000",
                                                                          READS("0", "2")) "]}");
    const int64_t sum = price(TESS_ALL_REDUCE, 4000000, 8);
    tess_replay *r = replay(1, NULL);
    const tess_replay_rank k = rank_of(r, 0);
    assert_int_equal(find(r, TESS__CAT_COMM, 0)->begin, 5000000);
    const int64_t slow = find(r, TESS__CAT_COMPUTE, 1)->end - 5000000;
    assert_true(slow >= 7000000); /* beside communication it may be slower */
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 2)->begin,
                     TESS_MAX(5000000 + slow, find(r, TESS__CAT_COMM, 0)->end));
    assert_true(k.comm_ns >= sum);
    assert_int_equal(k.program, 1);
    assert_int_equal(k.calls, 1);
    tess_replay_destroy(r);
}

/* Gathers of storages that were there before the step, each read by one operator: the third begins
 * when the first has been read, the fourth when the second has. */
static void two_gathers_of_parameters_are_in_flight(void **state)
{
    (void)state;
#define GATHER(from, to) CALL("all_gather", "4000000", READS(from, to), "") ","
#define LAYER(name, reads, to) OP(name, "9000000", READS(reads, to))
    static const char *const parts[] = {
        HEAD("0", ""),
        GATHER("0", "1") LAYER("a", "1", "2") ",",
        GATHER("3", "4") LAYER("b", "2, 4", "5") ",",
        OP("copy", "10", READS("6", "7")) ",",
        GATHER("7", "8") LAYER("c", "5, 8", "9") ",",
        GATHER("10", "11") LAYER("d", "9, 11", "12") "]}",
    };
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_replay *r = replay(1, NULL);
    const int64_t a_end = find(r, TESS__CAT_COMPUTE, 0)->end,
                  b_end = find(r, TESS__CAT_COMPUTE, 1)->end;
    assert_int_equal(find(r, TESS__CAT_COMM, 0)->begin, 0);
    assert_int_equal(find(r, TESS__CAT_COMM, 1)->begin, find(r, TESS__CAT_COMM, 0)->end);
    assert_int_equal(find(r, TESS__CAT_COMM, 2)->begin, a_end);
    assert_int_equal(find(r, TESS__CAT_COMM, 3)->begin, b_end);
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 1)->begin, a_end);
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 2)->begin, 0); /* the copy runs ahead */
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 3)->begin, b_end);
    tess_replay_destroy(r);
}

/* A gather of what was computed waits for it, and its stream goes on when it is read. */
static void a_gather_of_activations_is_not_ahead(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "") OP("a", "9000000", READS("0", "1")) "," CALL(
                      "all_gather", "4000000", READS("1", "2"), "") "," OP("b", "1000000",
                                                                           READS("2", "3")) "]}");
    tess_replay *r = replay(1, NULL);
    assert_int_equal(find(r, TESS__CAT_COMM, 0)->begin, 9000000);
    assert_int_equal(end_of(r), 9000000 + price(TESS_ALL_GATHER, 4000000, 8) + 1000000);
    tess_replay_destroy(r);
}

/* What is read by a call must not be written before it has ended. */
static void a_writer_waits_for_the_readers(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "") OP("a", "1000", READS("", "0")) "," CALL(
                      "all_reduce", "400000000", READS("0", "1"), "") "," OP("b", "1000",
                                                                             READS("", "0")) "]}");
    tess_replay *r = replay(1, NULL);
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 1)->begin, find(r, TESS__CAT_COMM, 0)->end);
    tess_replay_destroy(r);
}

/* a writes a gradient, which is summed in two pieces while b runs backward; the optimiser's "decay"
 * reads no gradient, and begins when both sums have ended. "between", an update before the last
 * backward operator, does not wait. */
static void the_optimizer_waits_for_sums_of_gradients(void **state)
{
    (void)state;
#define PASS(name, ns, stores, pass) OP(name, ns, stores ", \"pass\": \"" pass "\"")
    static const char *const parts[] = {
        HEAD("0", ""),
        PASS("a", "5000000", READS("", "0, 1"), "backward") ",",
        CALL("all_reduce", "4000000", READS("0", "0"), ", \"pass\": \"backward\"") ",",
        CALL("reduce_scatter", "400000000", READS("1", "1"), "") ",",
        PASS("between", "1000", READS("", "2"), "optimizer") ",",
        PASS("b", "1000", READS("", "3"), "backward") ",",
        PASS("decay", "1000", READS("", "4"), "optimizer") "]}",
    };
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_replay *r = replay(1, NULL);
    const int64_t summed = find(r, TESS__CAT_COMM, 1)->end;
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 1)->begin, 5000000);
    assert_true(find(r, TESS__CAT_COMPUTE, 2)->end < summed);
    assert_int_equal(find(r, TESS__CAT_COMPUTE, 3)->begin, summed);
    assert_int_equal(end_of(r), summed + 1000);
    tess_replay_destroy(r);
}

static void messages_of_two_ranks_meet_by_direction(void **state)
{
    (void)state;
    write_file(0, HEAD("0", "") OP("a", "3000000", READS("", "0")) "," CALL(
                      "send", "1000000", READS("0", ""),
                      ", \"peer\": 1") "," CALL("receive", "1000000", READS("", "1"),
                                                ", \"peer\": 1") "," OP("b", "1000000",
                                                                        READS("1", "2")) "]}");
    write_file(1, HEAD("1", "") CALL("receive", "1000000", READS("", "0"), ", \"peer\": 0") "," OP(
                      "c", "2000000", READS("0", "1")) "," CALL("send", "1000000", READS("1", ""),
                                                                ", \"peer\": 0") "]}");
    const int64_t hop = price(TESS_SEND_RECEIVE, 1000000, 2);
    tess_replay *r = replay(2, NULL);
    const tess_replay_info info = info_of(r);
    assert_int_equal(info.step_ns, 3000000 + hop + 2000000 + hop + 1000000);
    assert_int_equal(info.unmatched, 0);
    assert_int_equal(info.notes, 0);
    tess_replay_destroy(r);
}

#define UNTIMED(name, shapes, out, more, reads, writes)                                            \
    "{\"name\": \"" name                                                                           \
    "\", \"cat\": \"compute\", \"ph\": \"X\", \"args\": {\"shapes\": [" shapes "], \"out\": [" out \
    "], \"dtype\": \"bfloat16\", " more                                                            \
    "\"flop\": 1, \"bytes\": 50000000, " READS(reads, writes) "}}"

static void operators_without_times_take_those_of_the_model(void **state)
{
    (void)state;
    static const char *const parts[] = {
        HEAD("0", ""),
        UNTIMED("addmm", "[512], [8192, 1024], [1024, 512]", "[8192, 512]", "", "", "0") ",",
        UNTIMED("_scaled_dot_product_flash_attention_for_cpu_backward",
                "[2, 8, 512, 64], [2, 8, 512, 64], [2, 8, 512, 64], [2, 8, 512, 64]", "",
                "\"causal\": true, ", "0", "1") ",",
        UNTIMED("convolution_backward", "[4, 64, 32, 32], [4, 32, 32, 32], [64, 16, 3, 3]", "", "",
                "0", "1") ",",
        UNTIMED("gelu", "[2]", "[2]", "", "", "1") "]}",
    };
    write_parts(0, parts, sizeof parts / sizeof *parts);
    tess_replay *r = replay(1, &(tess_replay_opts){.software = "pytorch-fsdp2-2025"});
    const double want[] = {tess__gemm_seconds(r->sim, 1, 8192, 512, 1024, TESS_SIM_BF16, 0, 0),
                           tess__flash_seconds(r->sim, 16, 512, 256, 64, 64, 1),
                           2.0 * tess__gemm_seconds(r->sim, 2, 4096, 32, 144, TESS_SIM_BF16, 0, 0),
                           tess__memory_seconds(r->sim, 5e7)};
    for (int i = 0; i < 4; i++)
        assert_int_equal(find(r, TESS__CAT_COMPUTE, i)->ns, llround(1e9 * want[i]));
    assert_string_equal(info_of(r).software, "pytorch-fsdp2-2025");
    tess_replay_destroy(r);
}

/* Two operators in each of 2 layers: a launch takes half of the software's time of a layer. */
static void the_host_launches_one_operator_after_the_other(void **state)
{
    (void)state;
#define IN(module) READS("", "0") ", \"module\": \"" module "\""
    write_file(0, HEAD("0", "")
                      OP("a", "1", IN("layers.0.q")) "," OP("a", "1", IN("layers.0.o")) "," OP(
                          "a", "1", IN("layers.1.q")) "," OP("a", "1", IN("layers.1.o")) "]}");
    tess_replay *r = replay(1, &(tess_replay_opts){.software = "pytorch-eager-2024"});
    const double us = r->sim->era[TESS__ERA_HOST_FORWARD_US];
    assert_true(us > 0.0);
    assert_int_equal(end_of(r), 4 * llround(1e3 * us / 2.0) + 1);
    tess_replay_destroy(r);
}

static void memory_and_warnings_are_passed_on(void **state)
{
    (void)state;
    write_file(0,
               HEAD("3", ", \"peak_bytes\": 91000000000, \"memory\": {\"parameters\": 1000000000, "
                         "\"activations\": 90000000000}, \"warnings\": [\"a.py:3: item\"]") "]}");
    tess_replay *r = replay(1, NULL);
    const tess_replay_rank k = rank_of(r, 0);
    assert_int_equal(k.peak_bytes, 91000000000);
    assert_string_equal(tess_replay_memory_name(k.largest), "activations");
    assert_null(tess_replay_memory_name(5));
    assert_string_equal(tess_replay_note(r, 0), "rank 3: a.py:3: item");
    tess_replay_destroy(r);
}

#define SUM(group)                                                                                 \
    "{\"ph\": \"X\", \"cat\": \"communication\", \"args\": {\"op\": \"all_reduce\", " group        \
    ", \"in_bytes\": 1, \"out_bytes\": 1, " READS("", "") "}}"

static void wrong_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{\"otherData\": {\"tessera_trace\": 3, \"rank\": 0, \"ranks\": 8}}",
         "\"tessera_trace\" is 3, must be 1 or 2"},
        {"{\"otherData\": {\"tessera_trace\": 20}}", "\"tessera_trace\" is 20, must be 1 or 2"},
        {"{\"otherData\": {\"tessera_trace\": 2, \"rank\": 8, \"ranks\": 8}}",
         "\"rank\" is 8, must be below \"ranks\", 8"},
        {"{\"otherData\": {\"tessera_trace\": 2, \"rank\": 0}}", "\"otherData\" lacks \"ranks\""},
        {HEAD("0", ", \"peak_bytes\": -1") "]}",
         "\"peak_bytes\" is -1, must be 0..9007199254740992"},
        {HEAD("0", "") OP("a", "-1", READS("", "0")) "]}",
         "event 0: \"ns\" is -1, must be a number of 0..1000000000000"},
        {HEAD("0", "") OP("a", "1", READS("", "1")) "]}",
         "event 0: \"writes\" is [1], must be an array of numbers of storages, each at most one "
         "above those before it"},
        {HEAD("0", "") OP("a", "1", "\"reads\": []") "]}", "event 0: lacks \"writes\""},
        {HEAD("0", "") CALL("all_reduce", "8", READS("", "0"),
                            "") "," CALL("sum", "8", READS("", "0"), "") "]}",
         "event 1: \"op\" is \"sum\", must be an operation of docs/formats.md"},
        {HEAD("0", "") CALL("send", "8", READS("", "0"), ", \"peer\": 0") "]}",
         "event 0: \"peer\" is 0, must be another rank"},
        {HEAD("0", "") CALL("send", "8", READS("", "0"), "") "]}", "event 0: lacks \"peer\""},
        {HEAD("1", "") SUM("\"group\": [0, 4, 2]") "]}",
         "event 0: \"group\" is [0, 4, 2], must be [first, count, stride] in the ranks, with this "
         "one among them"},
        {HEAD("1", "") SUM("\"ranks\": [1, 1]") "]}",
         "event 0: \"ranks\" is [1, 1], must be an ascending array of ranks with this one among "
         "them"},
        {HEAD("0", "") "{\"ph\": \"X\", \"cat\": \"kernel\", \"args\": {\"reads\": [], \"writes\": "
                       "[]}}]}",
         "event 0: \"cat\" is \"kernel\", must be compute, communication or wait"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[400];
        const char *files[1] = {paths[0]};
        tess_replay *r = NULL;
        write_file(0, cases[i].text);
        snprintf(want, sizeof want, "%s: %s", paths[0], cases[i].sentence);
        CHECK_FAILS(tess_replay_run(ctx, files, 1, cluster, NULL, &r), TESS_EFORMAT, want);
    }
    const char *files[1] = {paths[0]};
    tess_replay *r = NULL;
    write_file(0, HEAD("0", "") OP("a", "1", READS("", "0")));
    assert_int_equal(tess_replay_run(ctx, files, 1, cluster, NULL, &r), TESS_EFORMAT);
    assert_non_null(strstr(tess_last_error(), ": ends too early, after "));
    write_file(0, HEAD("0", "") CALL("all_reduce", "8", READS("", "0"), "") "]}");
    assert_int_equal(
        tess_replay_run(ctx, files, 1, NULL, &(tess_replay_opts){.as_recorded = 1}, &r),
        TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "has operators without times"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_runs_beside_what_does_not_need_it),
        cmocka_unit_test(two_gathers_of_parameters_are_in_flight),
        cmocka_unit_test(a_gather_of_activations_is_not_ahead),
        cmocka_unit_test(a_writer_waits_for_the_readers),
        cmocka_unit_test(the_optimizer_waits_for_sums_of_gradients),
        cmocka_unit_test(messages_of_two_ranks_meet_by_direction),
        cmocka_unit_test(operators_without_times_take_those_of_the_model),
        cmocka_unit_test(the_host_launches_one_operator_after_the_other),
        cmocka_unit_test(memory_and_warnings_are_passed_on),
        cmocka_unit_test(wrong_files_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, replay_files_close);
}
