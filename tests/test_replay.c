/* SPDX-License-Identifier: Apache-2.0 */
/* test_replay.c - a traced rank on a cluster: clocks that can be followed by hand, real traces, and
 * files that break a rule. */
#include "replay/replay_calls.h"
#include "tessera/advanced/collectives.h"
#include "tessera/advanced/cost.h"
#include "tessera/comm.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static tess_ctx *ctx;
static tess_cluster *cluster;

static int open_all(void **state)
{
    (void)state;
    return tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) != TESS_OK ||
           tess_cluster_load(ctx, "a100-80", &cluster) != TESS_OK;
}

static int close_all(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_cluster_destroy(cluster);
    const int left = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return left;
}

/* ---- files ---------------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    "{\"otherData\": {\"tessera_trace\": 1, \"rank\": 1, \"ranks\": 4},\n\"traceEvents\": [\n"
#define CALL(op, group, bytes, compute, more)                                                      \
    "{\"name\": \"x\", \"ph\": \"X\", \"args\": {\"op\": \"" op                                    \
    "\", \"traffic\": \"payload\", \"group\": " group ", \"sent\": " bytes                         \
    ", \"received\": " bytes ", \"peer\": 1, \"compute_ns\": " compute more "}}"
#define ALL "[0, 4, 1]"

static tess_status parse(const char *text, tess_trace **trace)
{
    return tess__trace_parse(ctx, "t.json", text, strlen(text), trace);
}

/* Seconds of a collective of the four ranks, all in a node. */
static double seconds(tess_collective_op op, int64_t bytes)
{
    const tess_collective work = {.op = op, .bytes = bytes, .gpus = 4, .per_node = 4};
    tess_collective_result result;
    CHECK_OK(tess_collective_time(cluster, &work, &result));
    return 1e-9 * (double)result.ns;
}

static tess_trace_result replay(const char *text, const tess_trace_opts *opts)
{
    tess_trace *trace = NULL;
    tess_trace_result r;
    CHECK_OK(parse(text, &trace));
    CHECK_OK(tess_trace_replay(trace, cluster, opts, &r));
    tess_trace_destroy(trace);
    return r;
}

/* ---- clocks --------------------------------------------------------------------------------- */

static void a_blocking_call_is_waited_for(void **state)
{
    (void)state;
    const tess_trace_result r = replay(
        HEAD CALL("alltoall", ALL, "3000000", "5000", "") "," CALL(
            "sum", ALL, "6000000", "7000", "") "," CALL("gather", ALL, "3000000", "0", "") "]}",
        NULL);
    const double all = seconds(TESS_ALL_TO_ALL, 4000000), sum = seconds(TESS_ALL_REDUCE, 4000000),
                 gather = seconds(TESS_ALL_GATHER, 4000000);
    assert_float_equal(r.compute_s, 12e-6, 1e-15);
    assert_float_equal(r.wait_s, all + sum + gather, 1e-12);
    assert_float_equal(r.step_s, r.compute_s + r.wait_s, 1e-12);
    assert_float_equal(r.hidden_s, 0.0, 1e-12);
    assert_float_equal(r.parts[TESS_TRACE_SUM].wait_s, sum, 1e-12);
    assert_int_equal(r.parts[TESS_TRACE_ALLTOALL].bytes, 3000000);
    assert_int_equal(r.parts[TESS_TRACE_GATHER].calls, 1);
}

#define STARTED(compute)                                                                           \
    HEAD CALL("exchange", ALL, "80000000", "1000",                                                 \
              ", \"request\": 7") "," CALL("wait", ALL, "0", compute, ", \"request\": 7") "]}"

static void a_started_call_hides_behind_computing(void **state)
{
    (void)state;
    const double d = seconds(TESS_SEND_RECEIVE, 80000000);
    const tess_trace_result most = replay(STARTED("900000000"), NULL);
    assert_float_equal(most.wait_s, 0.0, 1e-15);
    assert_float_equal(most.hidden_s, d, 1e-12);
    assert_float_equal(most.step_s, 0.900001, 1e-9);
    const tess_trace_result some = replay(STARTED("1000"), NULL);
    assert_float_equal(some.wait_s, d - 1e-6, 1e-12);
    assert_float_equal(some.parts[TESS_TRACE_EXCHANGE].wait_s, d - 1e-6, 1e-12);
    assert_float_equal(some.hidden_s, 1e-6, 1e-12);
}

static void messages_follow_each_other(void **state)
{
    (void)state;
    const double d = seconds(TESS_SEND_RECEIVE, 80000000);
    const tess_trace_result r = replay(
        HEAD CALL("exchange", ALL, "80000000", "0", ", \"request\": 1") "," CALL(
            "exchange", ALL, "80000000", "0",
            ", \"request\": 2") "," CALL("wait", ALL, "0", "0",
                                         ", \"request\": 2") "," CALL("wait", ALL, "0", "0",
                                                                      ", \"request\": 1") "]}",
        NULL);
    assert_float_equal(r.step_s, 2 * d, 1e-12);
}

static void the_scale_is_of_computing_alone(void **state)
{
    (void)state;
    const tess_trace_opts tenth = {.compute_scale = 0.1};
    const char *text = HEAD CALL("sum", ALL, "6000000", "1000000", "") "]}";
    const tess_trace_result whole = replay(text, NULL), scaled = replay(text, &tenth);
    assert_float_equal(scaled.compute_s, 0.1 * whole.compute_s, 1e-15);
    assert_float_equal(scaled.wait_s, whole.wait_s, 1e-15);
}

static void groups_alone_and_empty_messages_cost_nothing(void **state)
{
    (void)state;
    const tess_trace_result r = replay(
        HEAD CALL("sum", "[1, 1, 0]", "0", "10", "") "," CALL("alltoall", ALL, "0", "10", "") "]}",
        NULL);
    assert_float_equal(r.step_s, 20e-9, 1e-15);
}

/* Members that lie far apart are on different nodes. */
static void strides_reach_other_nodes(void **state)
{
    (void)state;
    const tess_trace_opts two = {.per_node = 2};
    const char *text = HEAD CALL("sum", "[1, 2, 2]", "8000000", "0", "") "]}";
    assert_true(replay(text, &two).step_s > 1.5 * replay(text, NULL).step_s);
}

/* ---- real traces ---------------------------------------------------------------------------- */

static void what_a_rank_wrote_is_read(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-replay-XXXXXX";
    const int file = mkstemp(path);
    tess_comm *comm = NULL, *row = NULL, *column = NULL;
    tess_trace *trace = NULL;
    tess_trace_info info;
    tess_trace_result r;
    tess_comm_counts counts;
    int64_t bytes[4] = {4, 8, 12, 16};
    char send[40] = "", recv[40];
    double x[3] = {1, 2, 3};
    assert_true(file >= 0);
    close(file);
    CHECK_OK(tess_comm_trace(ctx, 2, 4, &comm));
    CHECK_OK(tess_comm_grid(comm, 2, &row, &column));
    CHECK_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, send, bytes, recv, bytes));
    tess_request *request = NULL;
    CHECK_OK(
        tess_comm_start_sendrecv(row, TESS_TRAFFIC_PAYLOAD, send, 16, 1, recv, 16, 1, &request));
    CHECK_OK(tess_comm_wait(row, request));
    CHECK_OK(
        tess_comm_allreduce(column, TESS_TRAFFIC_CONTROL, x, 3, TESS_DTYPE_F64, TESS_REDUCE_SUM));
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    CHECK_OK(tess_comm_counts_read(row, &counts));
    CHECK_OK(tess_comm_trace_write(comm, path));
    CHECK_OK(tess_trace_load(ctx, path, &trace));
    CHECK_OK(tess_trace_query(trace, &info));
    CHECK_OK(tess_trace_replay(trace, cluster, NULL, &r));
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.ranks, 4);
    assert_true(info.calls >= 5);
    assert_int_equal(r.parts[TESS_TRACE_ALLTOALL].bytes, 4 + 8 + 16);
    assert_int_equal(r.parts[TESS_TRACE_EXCHANGE].bytes, counts.bytes[TESS_TRAFFIC_PAYLOAD]);
    assert_int_equal(r.parts[TESS_TRACE_SUM].calls, 1);
    assert_true(r.step_s > 0.0 && r.wait_s > 0.0);
    tess_trace_destroy(trace);
    tess_comm_destroy(column);
    tess_comm_destroy(row);
    tess_comm_destroy(comm);
    unlink(path);
}

static void what_was_before_a_clear_is_not_in_the_trace(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-replay-XXXXXX";
    const int file = mkstemp(path);
    tess_comm *comm = NULL;
    tess_trace *trace = NULL;
    tess_trace_info info;
    double x = 1;
    assert_true(file >= 0);
    close(file);
    CHECK_OK(tess_comm_trace(ctx, 0, 4, &comm));
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    CHECK_OK(tess_comm_trace_clear(comm));
    CHECK_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, &x, 1, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    CHECK_OK(tess_comm_trace_write(comm, path));
    CHECK_OK(tess_trace_load(ctx, path, &trace));
    CHECK_OK(tess_trace_query(trace, &info));
    assert_int_equal(info.calls, 1);
    assert_true(info.compute_s < 1.0);
    tess_trace_destroy(trace);
    tess_comm_destroy(comm);
    unlink(path);
}

/* ---- wrong ones ----------------------------------------------------------------------------- */

static void wrong_traces_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{\"traceEvents\": []}", "t.json: line 1: the document lacks \"otherData\""},
        {"{\"otherData\": {\"tessera_trace\": 2}, \"traceEvents\": []}",
         "t.json: line 1: \"tessera_trace\" is 2, must be 1"},
        {"{\"otherData\": {\"tessera_trace\": 1, \"ranks\": 4, \"rank\": 4}, \"traceEvents\": []}",
         "t.json: line 1: \"rank\" is 4, must be 0..3"},
        {HEAD CALL("scatter", ALL, "1", "1", "") "]}",
         "t.json: line 3: \"op\" is \"scatter\", must be alltoall, exchange, gather, broadcast, "
         "sum, max, agree, same or wait"},
        {HEAD CALL("sum", "[1, 2, 3]", "1", "1", "") "]}",
         "t.json: line 3: \"group\" is [1, 2, 3], must lie in 4 ranks"},
        {HEAD CALL("sum", "[0, 2, 0]", "1", "1", "") "]}",
         "t.json: line 3: \"group\" is [0, 2, 0], must lie in 4 ranks"},
        {HEAD CALL("sum", ALL, "-1", "1", "") "]}",
         "t.json: line 3: \"sent\" is -1, must be 0..9007199254740992"},
        {HEAD CALL("wait", ALL, "0", "1", "") "]}", "t.json: line 3: \"wait\" lacks \"request\""},
        {HEAD CALL("wait", ALL, "0", "1", ", \"request\": 5") "]}",
         "t.json: line 3: \"request\" is 5, which no operation before it started"},
        {HEAD CALL("sum", ALL, "0", "1", ", \"request\": 5") "," CALL("sum", ALL, "0", "1",
                                                                      ", \"request\": 5") "]}",
         "t.json: line 3: \"request\" is 5, which has not been waited for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_trace *trace = NULL;
        CHECK_FAILS(parse(cases[i].text, &trace), TESS_EFORMAT, cases[i].sentence);
        assert_null(trace);
    }
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_trace *trace = NULL;
    tess_trace_result r = {.step_s = 5};
    CHECK_FAILS(tess_trace_load(NULL, "x", &trace), TESS_EINVAL, "tess_trace_load: ctx is NULL");
    CHECK_FAILS(tess_trace_query(NULL, NULL), TESS_EINVAL, "tess_trace_query: trace is NULL");
    CHECK_OK(parse(HEAD CALL("sum", ALL, "1", "1", "") "]}", &trace));
    CHECK_FAILS(tess_trace_replay(trace, NULL, NULL, &r), TESS_EINVAL,
                "tess_trace_replay: cluster is NULL");
    CHECK_FAILS(tess_trace_replay(trace, cluster, &(tess_trace_opts){.compute_scale = -1}, &r),
                TESS_EINVAL,
                "tess_trace_replay: compute_scale is -1, must be 1e-9..1e9, or 0 for 1");
    CHECK_FAILS(tess_trace_replay(trace, cluster, &(tess_trace_opts){.per_node = -1}, &r),
                TESS_EINVAL, "tess_trace_replay: per_node is -1, must be 0 or more");
    assert_float_equal(r.step_s, 5, 0.0);
    assert_string_equal(tess_trace_op_name(TESS_TRACE_SAME), "same");
    assert_null(tess_trace_op_name(TESS_TRACE_OPS));
    tess_trace_destroy(trace);
    tess_trace_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_blocking_call_is_waited_for),
    cmocka_unit_test(a_started_call_hides_behind_computing),
    cmocka_unit_test(messages_follow_each_other),
    cmocka_unit_test(the_scale_is_of_computing_alone),
    cmocka_unit_test(groups_alone_and_empty_messages_cost_nothing),
    cmocka_unit_test(strides_reach_other_nodes),
    cmocka_unit_test(what_a_rank_wrote_is_read),
    cmocka_unit_test(what_was_before_a_clear_is_not_in_the_trace),
    cmocka_unit_test(wrong_traces_are_refused_with_their_line),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};

RUN_TESTS_WITH(tests, open_all, close_all)
