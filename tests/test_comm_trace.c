/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm_trace.c - trace recorder: received data, counts, the file. */
#include "comm_ranks.h"
#include "files.h"

#include <jansson.h>

/* ---- what comes ------------------------------------------------------------------------------ */

static void others_are_taken_to_be_like_the_rank_itself(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    tess_request *request = NULL;
    CHECK_OK(tess_comm_trace(ctx, 1, 3, &comm));
    tess_comm_info info;
    CHECK_OK(tess_comm_query(comm, &info));
    assert_string_equal(info.kind, "trace");
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.size, 3);
    assert_int_equal(info.nodes, 1);

    /* Rank 0 sends as many as the own part has, rank 2 does not. */
    const int64_t out[] = {1, 2, 3}, in[] = {2, 2, 4};
    char got[9] = "????????";
    CHECK_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, "abbccc", out, got, in));
    assert_memory_equal(got, "bbbb\0\0\0\0", 8);
    CHECK_OK(
        tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, "xyz", 3, 2, got, 3, 0, &request));
    CHECK_OK(tess_comm_wait(comm, request));
    assert_memory_equal(got, "xyzb", 4);
    CHECK_OK(
        tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, NULL, 0, -1, got, 2, 0, &request));
    CHECK_OK(tess_comm_wait(comm, request));
    assert_memory_equal(got, "\0\0zb", 4);
    const int64_t parts[] = {2, 2, 1};
    CHECK_OK(tess_comm_allgatherv(comm, TESS_TRAFFIC_INDEX, "mn", 2, got, parts));
    assert_memory_equal(got, "mnmn\0", 5);

    static float x[40000];
    double y[] = {1.5, -2.0};
    int64_t z[] = {7};
    for (int i = 0; i < 40000; i++)
        x[i] = (float)i;
    CHECK_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, x, 40000, TESS_DTYPE_F32, TESS_REDUCE_SUM));
    for (int i = 0; i < 40000; i++)
        assert_true(x[i] == 3.0f * (float)i);
    CHECK_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, y, 2, TESS_DTYPE_F64, TESS_REDUCE_SUM));
    assert_true(y[0] == 4.5 && y[1] == -6.0);
    CHECK_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, y, 2, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    assert_true(y[0] == 4.5 && y[1] == -6.0);
    CHECK_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, z, 1, TESS_DTYPE_I64, TESS_REDUCE_MAX));
    assert_int_equal(z[0], 7);
    CHECK_OK(tess_comm_broadcast(comm, TESS_TRAFFIC_PAYLOAD, 0, z, sizeof z));
    assert_int_equal(z[0], 7);
    CHECK_OK(tess_comm_check_equal(comm, "anything", z, sizeof z));
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    char sentence[200];
    sentence_of(1, sentence);
    CHECK_FAILS(tess_comm_agree(comm, fail_here(1)), TESS_EINVAL, sentence);
    assert_int_equal(tess_comm_fail(comm, TESS_EIO), TESS_EIO);
    tess_comm_destroy(comm);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* One call of each kind; counts of a real rank and of one that is played must be the same. */
static tess_status some_of_everything(tess_comm *comm)
{
    static const int64_t lengths[] = {0, 3, 1024, 5003, 70001, 131077};
    tess_comm_info info;
    tess_request *request = NULL;
    round_data d;
    float *x = calloc(131077, sizeof *x);
    char *text = calloc(1, 300001);
    EXPECT(x && text);
    EXPECT_OK(tess_comm_query(comm, &info));
    fill_round(&d, 1, info.rank, info.size);
    EXPECT_OK(tess_comm_start_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, d.send, d.send_bytes, d.recv,
                                        d.recv_bytes, &request));
    EXPECT_OK(tess_comm_wait(comm, request));
    const int next = (info.rank + 1) % info.size, before = (info.rank + info.size - 1) % info.size;
    EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_INDEX, d.send, 100, next, d.recv, 100,
                                       before, &request));
    EXPECT_OK(tess_comm_wait(comm, request));
    for (int p = 0; p < info.size; p++)
        d.recv_bytes[p] = size_of(3, p, p);
    EXPECT_OK(tess_comm_allgatherv(comm, TESS_TRAFFIC_CONTROL, d.send, d.recv_bytes[info.rank],
                                   d.recv, d.recv_bytes));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        EXPECT_OK(tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, x, lengths[i], TESS_DTYPE_F32,
                                      TESS_REDUCE_SUM));
    EXPECT_OK(tess_comm_broadcast(comm, TESS_TRAFFIC_INDEX, 0, text, 1000));
    EXPECT_OK(tess_comm_broadcast(comm, TESS_TRAFFIC_INDEX, info.size - 1, text, 300001));
    memset(text, 0, 300001);
    EXPECT_OK(tess_comm_check_equal(comm, "text", text, 300001));
    EXPECT_OK(tess_comm_agree(comm, TESS_OK));
    free(text);
    free(x);
    return TESS_OK;
}

static tess_status count_really(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)own;
    tess_comm_counts *counts = user;
    tess_comm_info info;
    EXPECT_OK(tess_comm_query(comm, &info));
    EXPECT_OK(some_of_everything(comm));
    return tess_comm_counts_read(comm, &counts[info.rank]);
}

static void a_played_rank_counts_what_a_real_one_sends(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) {
        tess_comm_counts counts[RANKS_MOST];
        CHECK_OK(tess_comm_threads(NULL, size, NULL, count_really, counts));
        for (int rank = 0; rank < size; rank++) {
            tess_comm *comm = NULL;
            CHECK_OK(tess_comm_trace(ctx, rank, size, &comm));
            CHECK_OK(some_of_everything(comm));
            CHECK_OK(expect_counts(comm, &counts[rank]));
            tess_comm_destroy(comm);
        }
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void expect_text(const json_t *object, const char *key, const char *want)
{
    assert_string_equal(json_string_value(json_object_get(object, key)), want);
}

static void expect_number(const json_t *object, const char *key, int64_t want)
{
    assert_int_equal(json_integer_value(json_object_get(object, key)), want);
}

static void expect_group(const json_t *args, int first, int count, int stride)
{
    const json_t *group = json_object_get(args, "group");
    assert_int_equal(json_integer_value(json_array_get(group, 0)), first);
    assert_int_equal(json_integer_value(json_array_get(group, 1)), count);
    assert_int_equal(json_integer_value(json_array_get(group, 2)), stride);
}

static const json_t *args_of(const json_t *events, size_t i, const char *op)
{
    const json_t *event = json_array_get(events, i), *args = json_object_get(event, "args");
    expect_text(event, "name", op);
    expect_text(event, "ph", "X");
    expect_text(args, "op", op);
    return args;
}

/* When an event began, in us. */
static double time_of(const json_t *events, size_t i)
{
    return json_number_value(json_object_get(json_array_get(events, i), "ts"));
}

/* Rank 5 of 8 as a grid of two rows: its row is 4 5 6 7, its column 1 5. */
static tess_status play(tess_comm *comm)
{
    tess_comm *row = NULL, *column = NULL;
    tess_request *request = NULL, *other = NULL;
    float x[5000] = {0};
    const int64_t out[] = {1, 2, 3, 4}, in[] = {9, 2, 0, 1};
    char got[16], back[4];
    EXPECT_OK(tess_comm_grid(comm, 4, &row, &column));
    EXPECT_OK(
        tess_comm_start_alltoallv(row, TESS_TRAFFIC_PAYLOAD, "abbcccdddd", out, got, in, &request));
    EXPECT_OK(
        tess_comm_start_sendrecv(column, TESS_TRAFFIC_INDEX, "abc", 3, 0, back, 3, 0, &other));
    const int64_t begin = tess_clock_ns();
    while (tess_clock_ns() - begin < 20000000)
        ;
    EXPECT_OK(tess_comm_wait(row, request));
    EXPECT_OK(tess_comm_wait(column, other));
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, x, 5000, TESS_DTYPE_F32, TESS_REDUCE_SUM));
    EXPECT_OK(tess_comm_agree(comm, TESS_OK));
    tess_comm_destroy(column);
    tess_comm_destroy(row);
    return TESS_OK;
}

static void the_file_has_every_call_with_its_group(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    const char *path = "trace.json";
    CHECK_OK(tess_comm_trace(ctx, 5, 8, &comm));
    CHECK_OK(play(comm));
    CHECK_OK(tess_comm_trace_write(comm, path));
    tess_comm_destroy(comm);

    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    const json_t *other = json_object_get(root, "otherData");
    expect_number(other, "tessera_trace", 1);
    expect_number(other, "rank", 5);
    expect_number(other, "ranks", 8);
    const json_t *events = json_object_get(root, "traceEvents"), *a;
    assert_int_equal(json_array_size(events), 6);
    a = args_of(events, 0, "alltoall");
    expect_text(a, "traffic", "payload");
    expect_group(a, 4, 4, 1);
    expect_number(a, "sent", 1 + 3 + 4);
    expect_number(a, "received", 9 + 0 + 1);
    expect_number(a, "peer", 4);
    expect_number(a, "request", 1);
    a = args_of(events, 1, "exchange");
    expect_text(a, "traffic", "index");
    expect_group(a, 1, 2, 4);
    expect_number(a, "sent", 3);
    expect_number(a, "request", 2);
    a = args_of(events, 2, "wait");
    expect_number(a, "request", 1);
    assert_true(json_integer_value(json_object_get(a, "compute_ns")) >= 20000000);
    a = args_of(events, 3, "wait");
    expect_number(a, "request", 2);
    /* Nothing is counted twice: not more than what passed since the wait before. */
    const double since = time_of(events, 3) - time_of(events, 2);
    assert_true((double)json_integer_value(json_object_get(a, "compute_ns")) <= 1e3 * since + 1);
    a = args_of(events, 4, "sum");
    expect_group(a, 0, 8, 1);
    expect_number(a, "sent", 2 * 7 * 5000 / 8 * 4);
    assert_null(json_object_get(a, "request"));
    a = args_of(events, 5, "agree");
    expect_text(a, "traffic", "control");
    expect_number(a, "sent", 28);
    json_decref(root);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_comm *comm = NULL, *part = NULL, *row = NULL, *column = NULL;
    tess_link link;
    CHECK_FAILS(tess_comm_trace(NULL, 0, 1, &comm), TESS_EINVAL, "tess_comm_trace: ctx is NULL");
    CHECK_FAILS(tess_comm_trace(ctx, 0, 0, &comm), TESS_EINVAL,
                "tess_comm_trace: size is 0, must be 1..1024");
    CHECK_FAILS(tess_comm_trace(ctx, 4, 4, &comm), TESS_EINVAL,
                "tess_comm_trace: rank is 4, must be 0..3");
    CHECK_FAILS(tess_comm_trace_write(NULL, "x"), TESS_EINVAL,
                "tess_comm_trace_write: comm is NULL");
    CHECK_FAILS(tess_comm_trace_clear(NULL), TESS_EINVAL, "tess_comm_trace_clear: comm is NULL");
    CHECK_OK(tess_comm_self(ctx, &comm));
    CHECK_FAILS(tess_comm_trace_clear(comm), TESS_EINVAL,
                "tess_comm_trace_clear: comm is not one that tess_comm_trace made");
    CHECK_FAILS(tess_comm_trace_write(comm, "x"), TESS_EINVAL,
                "tess_comm_trace_write: comm is not one that tess_comm_trace made");
    tess_comm_destroy(comm);
    CHECK_OK(tess_comm_trace(ctx, 0, 4, &comm));
    CHECK_FAILS(tess_comm_split(comm, 0, 0, &part), TESS_ENOTSUP,
                "tess_comm_split: a trace cannot know the colours of other ranks; tess_comm_grid "
                "makes parts of it");
    CHECK_FAILS(tess_comm_measure(comm, &link), TESS_ENOTSUP,
                "tess_comm_measure: a trace is alone and has no links");
    CHECK_FAILS(tess_comm_trace_write(comm, "/nowhere/trace.json"), TESS_EIO,
                "/nowhere/trace.json: cannot create: No such file or directory");
    CHECK_OK(tess_comm_grid(comm, 2, &row, &column));
    CHECK_FAILS(tess_comm_trace_write(row, "x"), TESS_EINVAL,
                "tess_comm_trace_write: comm is not one that tess_comm_trace made");
    tess_comm_destroy(column);
    tess_comm_destroy(row);
    tess_comm_destroy(comm);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(others_are_taken_to_be_like_the_rank_itself),
    cmocka_unit_test(a_played_rank_counts_what_a_real_one_sends),
    cmocka_unit_test(the_file_has_every_call_with_its_group),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};

RUN_TESTS_IN_FOLDER(tests)
