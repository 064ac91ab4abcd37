/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_log.c - logs of nccl-tests, good and bad, clusters fitted to them, and clusters written
 * and read again. */
#include "ctx_fixture.h"

#include "cost/cost_internal.h"

#include <math.h>
#include <unistd.h>

static tess_status parse(const char *text, tess_collective_op op, tess_nccl_log **log)
{
    return tess__nccl_log_parse(ctx, "n.log", text, strlen(text), op, log);
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* Two runs: two GPUs of one host, then one of each of two. Warnings of others stand between. */
static const char two_runs[] =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 128 step: 2(factor)\n"
    "# Collective test starting: all_gather_perf\n"
    "#  Rank  0 Group  0 Pid  42 on    alpha device  0 [0x07] NVIDIA A100\n"
    "#  Rank  1 Group  0 Pid  42 on    alpha device  1 [0x0f] NVIDIA A100\n"
    "#       size  count  type redop root  time algbw busbw #wrong  time algbw busbw #wrong\n"
    "alpha:42:42 NCCL INFO something\n"
    "           0      0 float  none   -1  1.50  0.00  0.00      0  1.40  0.00  0.00      0\n"
    "        1024    256 float  none   -1  8.85  0.12  0.12    N/A  8.59  0.12  0.12    N/A\r\n"
    "\n"
    "# Avg bus bandwidth    : 1\n"
    "#   Rank  0 Pid  42 on    alpha device  0 [0x07] NVIDIA A100\n"
    "#   Rank  1 Pid  42 on    beta device  0 [0x07] NVIDIA A100\n"
    "  1048576  262144 float  sum  100.1 10.47 19.64 0e+00  99.93 10.49 19.67 0e+00";

static void rows_of_all_runs_are_read(void **state)
{
    (void)state;
    tess_nccl_log *log = NULL;
    const tess_collective_row *rows;
    int64_t n;
    CHECK_OK(parse(two_runs, TESS_ALL_REDUCE, &log));
    CHECK_OK(tess_nccl_log_rows(log, &rows, &n));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0].work.op, TESS_ALL_GATHER);
    assert_int_equal(rows[0].work.bytes, 1024);
    assert_int_equal(rows[0].work.gpus, 2);
    assert_int_equal(rows[0].work.per_node, 2);
    assert_int_equal(rows[0].line, 8);
    assert_true(rows[0].us == 8.85);
    assert_int_equal(rows[1].work.op, TESS_ALL_REDUCE);
    assert_int_equal(rows[1].work.gpus, 2);
    assert_int_equal(rows[1].work.per_node, 1);
    assert_true(rows[1].us == 100.1);
    tess_nccl_log_close(log);
    tess_nccl_log_close(NULL);
}

#define RANKS "# Rank 0 Pid 1 on a device 0 x\n# Rank 1 Pid 1 on a device 1 x\n"

static void bad_logs_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"", "n.log: no row of nccl-tests with two ranks or more"},
        {RANKS "# only comments\n", "n.log: no row of nccl-tests with two ranks or more"},
        {"8 2 float sum -1 1 1 1 0 1 1 1 0\n",
         "n.log: line 1: a row before the ranks of its run are listed"},
        {RANKS "8 2 float sum\n", "n.log: line 3: a row has 11 to 14 columns"},
        {RANKS "8 2 float sum -1 1 1 1 0 1 1 1 0 0 0\n",
         "n.log: line 3: a row has 11 to 14 columns"},
        {RANKS "8x 2 float sum -1 1 1 1 0 1 1 1 0\n",
         "n.log: line 3: the size and the count of a row are integers"},
        {RANKS "99999999999999999999 2 float sum -1 1 1 1 0 1 1 1 0\n",
         "n.log: line 3: the size and the count of a row are integers"},
        {RANKS "8 2 float sum -1 nan 1 1 0 1 1 1 0\n",
         "n.log: line 3: time, algbw and busbw of a row are numbers"},
        {RANKS "8 2 float sum -1 -5 1 1 0 1 1 1 0\n",
         "n.log: line 3: time, algbw and busbw of a row are numbers"},
        {RANKS "8 2 float sum -1 0.00 1 1 0 1 1 1 0\n",
         "n.log: line 3: the time out of place is 0, must be above"},
        {"# Rank 0 Pid 1 of nowhere\n", "n.log: line 1: a rank without \"on\" and its host"},
        {RANKS "# Rank 2 Pid 1 on b device 0 x\n8 2 float sum -1 1 1 1 0 1 1 1 0\n",
         "n.log: line 4: the hosts of the run have different numbers of ranks"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tess_nccl_log *log = NULL;
        CHECK_FAILS(parse(bad[i].text, TESS_ALL_REDUCE, &log), TESS_EFORMAT, bad[i].sentence);
        assert_null(log);
    }
    tess_nccl_log *log = NULL;
    CHECK_FAILS(parse(RANKS "8 2 float sum -1 1 1 1 0 1 1 1 0\n", TESS_COLLECTIVE_OPS, &log),
                TESS_EFORMAT, "n.log: line 3: the run does not say which collective it is");
    CHECK_FAILS(tess__nccl_log_parse(ctx, "n.log", "a\0b\n", 4, TESS_ALL_REDUCE, &log),
                TESS_EFORMAT, "n.log: line 1: a NUL byte");
    CHECK_FAILS(tess_nccl_log_open(ctx, "nowhere.log", TESS_ALL_REDUCE, &log), TESS_EIO,
                "nowhere.log: cannot open: No such file or directory");
    CHECK_FAILS(tess_nccl_log_open(ctx, "nowhere.log", (tess_collective_op)7, &log), TESS_EINVAL,
                "tess_nccl_log_open: op is 7, must be a tess_collective_op");
    CHECK_FAILS(tess_nccl_log_open(ctx, NULL, TESS_ALL_REDUCE, &log), TESS_EINVAL,
                "tess_nccl_log_open: path is NULL");
    CHECK_FAILS(tess_nccl_log_rows(NULL, NULL, NULL), TESS_EINVAL,
                "tess_nccl_log_rows: log is NULL");
}

/* ---- collectives of traces ------------------------------------------------------------------- */

#define HEAD "file,rank,call,op,group,in_bytes,out_bytes,dtype,stream,begin_ns,ns,source\n"

static void the_shortest_member_of_a_traced_call_counts(void **state)
{
    (void)state;
    static const char text[] =
        HEAD "a.json,0,0,all_reduce,0 1,4096,4096,float,7,100,9000,kernel\n"
             "\"b,c.json\",1,0,all_reduce,0 1,4096,4096,float,7,900,1000,kernel\n"
             "a.json,0,1,all_gather,0 1,100,200,half,7,100,2500,kernel\n"
             "a.json,0,0,reduce_scatter,0 2 4 6 8 10 12 14,800,100,half,7,100,3000,kernel\n"
             "a.json,0,0,all_reduce,,100,100,,7,1,1,name\n"
             "a.json,0,0,reduce,0 1,100,100,,7,1,1,name\n"
             "a.json,0,2,broadcast,0 1,,,,7,1,1,name\n"
             "a.json,0,0,broadcast,0 1 8,8,8,byte,7,1,1,kernel\n";
    static const tess_collective want[] = {{TESS_ALL_REDUCE, 4096, 2, 2, 0},
                                           {TESS_ALL_GATHER, 200, 2, 2, 0},
                                           {TESS_REDUCE_SCATTER, 800, 8, 4, 0}};
    static const double us[] = {1.0, 2.5, 3.0};
    const tess_collective_row *rows;
    tess_nccl_log *log = NULL;
    int64_t n;
    CHECK_OK(tess__call_csv_parse(ctx, "c.csv", text, sizeof text - 1, 8, &log));
    CHECK_OK(tess_nccl_log_rows(log, &rows, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rows[i].work.op, want[i].op);
        assert_int_equal(rows[i].work.bytes, want[i].bytes);
        assert_int_equal(rows[i].work.gpus, want[i].gpus);
        assert_int_equal(rows[i].work.per_node, want[i].per_node);
        assert_true(rows[i].us == us[i]);
    }
    tess_nccl_log_close(log);
}

static void bad_lines_of_traced_calls_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {HEAD, "c.csv: no collective of two ranks or more whose operation, group, bytes and time "
               "are known"},
        {HEAD "a,0,0,all_reduce\n", "c.csv: line 2: 4 fields, must be 12"},
        {HEAD "a,0,0,all_reduce,0;1,1,1,,7,1,1,kernel\n",
         "c.csv: line 2: \"0;1\": a group has ranks below 1048576 with spaces between them"},
        {HEAD "a,0,0,all_reduce,0 1,-1,1,,7,1,1,kernel\n",
         "c.csv: line 2: \"-1\": must be an integer 0..2^53, or empty"},
        {"file,rank,call,op,group,in,out_bytes,dtype,stream,begin_ns,ns,source\n",
         "c.csv: line 1: \"in\": a column of another name is expected here"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tess_nccl_log *log = NULL;
        CHECK_FAILS(tess__call_csv_parse(ctx, "c.csv", bad[i].text, strlen(bad[i].text), 8, &log),
                    TESS_EFORMAT, bad[i].sentence);
    }
    tess_nccl_log *log = NULL;
    CHECK_FAILS(tess_collective_rows_open(ctx, "nowhere.csv", TESS_ALL_REDUCE, 8, &log), TESS_EIO,
                "nowhere.csv: cannot open: No such file or directory");
    CHECK_FAILS(tess_collective_rows_open(ctx, "nowhere.csv", TESS_ALL_REDUCE, 0, &log),
                TESS_EINVAL, "tess_collective_rows_open: node_gpus is 0, must be 1..1048576");
}

/* ---- fits ------------------------------------------------------------------------------------ */

enum { SIZES = 14, COUNTS = 3, N = SIZES * COUNTS };

/* What another cluster would measure. */
static void measure(const tess_cluster *truth, tess_collective_row rows[N])
{
    static const int gpus[COUNTS] = {4, 8, 32};
    for (int i = 0; i < N; i++) {
        tess_collective_result r;
        rows[i] = (tess_collective_row){
            .work = {TESS_ALL_REDUCE, (int64_t)64 << 2 * (i % SIZES), gpus[i / SIZES], 0, 0}};
        rows[i].work.per_node = rows[i].work.gpus < 8 ? rows[i].work.gpus : 8;
        CHECK_OK(tess_collective_time(truth, &rows[i].work, &r));
        rows[i].us = (double)r.ns / 1e3;
    }
}

static void a_cluster_is_found_again_from_its_times(void **state)
{
    (void)state;
    tess_cluster *truth = NULL, *like = NULL, *fitted = NULL, *again = NULL;
    tess_collective_row rows[N];
    tess_collective_fit report;
    tess_cluster_info a, b;
    CHECK_OK(tess_cluster_load(ctx, "azure-ndv4", &truth));
    CHECK_OK(tess_cluster_load(ctx, "a100-80", &like));
    measure(truth, rows);
    CHECK_OK(tess_cluster_calibrate(ctx, like, rows, N, "a test", &fitted, &report));
    assert_int_equal(report.rows, N);
    assert_int_equal(report.rows_large, 3 * 5);
    /* Both are A100: the start is near, the fit is nearer; no noise hides the truth. */
    assert_true(report.before > 0.03 && report.after < 0.01 && report.after_large < 0.01);
    CHECK_OK(tess_cluster_calibrate(ctx, like, rows, N, "a test", &again, NULL));
    CHECK_OK(tess_cluster_query(fitted, &a));
    CHECK_OK(tess_cluster_query(again, &b));
    assert_memory_equal(&a.collectives, &b.collectives,
                        offsetof(tess_collective_params, origin)); /* padding has been zeroed */
    assert_string_equal(a.collectives.origin, "a test");
    assert_true(fabs(a.collectives.network / 128.6e9 - 1.0) < 0.01);
    assert_true(a.flops_bf16 == 312e12);
    tess_cluster_destroy(truth);
    tess_cluster_destroy(like);
    tess_cluster_destroy(fitted);
    tess_cluster_destroy(again);
}

static void what_rows_do_not_determine_stays(void **state)
{
    (void)state;
    tess_cluster *like = NULL, *fitted = NULL;
    tess_cluster_info a, b;
    const tess_collective_row row = {{TESS_ALL_REDUCE, 1 << 30, 8, 8, 0}, 9000.0, 1};
    CHECK_OK(tess_cluster_load(ctx, "azure-ndv4", &like));
    CHECK_OK(tess_cluster_calibrate(ctx, like, &row, 1, "one row", &fitted, NULL));
    CHECK_OK(tess_cluster_query(like, &a));
    CHECK_OK(tess_cluster_query(fitted, &b));
    assert_true(a.collectives.network == b.collectives.network);
    assert_true(a.collectives.net_hop[1][0] == b.collectives.net_hop[1][0]);
    tess_collective_result r;
    CHECK_OK(tess_collective_time(fitted, &row.work, &r));
    assert_true(fabs((double)r.ns / 9e6 - 1.0) < 0.005);
    tess_cluster_destroy(like);
    tess_cluster_destroy(fitted);
}

static void bad_rows_are_refused(void **state)
{
    (void)state;
    tess_cluster *like = NULL, *fitted = NULL;
    const tess_collective_row zero = {{TESS_ALL_REDUCE, 8, 8, 0, 0}, 0.0, 1};
    const tess_collective_row wide = {{TESS_ALL_REDUCE, 8, 8, 9, 0}, 1.0, 1};
    CHECK_OK(tess_cluster_load(ctx, "h100", &like));
    CHECK_FAILS(tess_cluster_calibrate(ctx, like, &zero, 1, "", &fitted, NULL), TESS_EINVAL,
                "tess_cluster_calibrate: row 0 took 0 us, must be above 0, at most 1e15");
    CHECK_FAILS(tess_cluster_calibrate(ctx, like, &wide, 1, "", &fitted, NULL), TESS_EINVAL,
                "tess_collective_time: per_node is 9, must be 0..8, the GPUs of a node");
    CHECK_FAILS(tess_cluster_calibrate(ctx, like, &zero, 0, "", &fitted, NULL), TESS_EINVAL,
                "tess_cluster_calibrate: n is 0, must be 1..1048576");
    CHECK_FAILS(tess_cluster_calibrate(ctx, like, &zero, 1, NULL, &fitted, NULL), TESS_EINVAL,
                "tess_cluster_calibrate: origin is NULL");
    assert_null(fitted);
    tess_cluster_destroy(like);
}

/* ---- written and read ------------------------------------------------------------------------ */

static void a_cluster_written_and_read_is_the_same(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-cluster-XXXXXX.json";
    const int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && close(fd) == 0);
    for (int i = 0; i < tess_cluster_count(); i++) {
        tess_cluster *one = NULL, *two = NULL;
        tess_cluster_info a, b;
        CHECK_OK(tess_cluster_load(ctx, tess_cluster_name(i), &one));
        CHECK_OK(tess_cluster_save(one, path));
        CHECK_OK(tess_cluster_load(ctx, path, &two));
        CHECK_OK(tess_cluster_query(one, &a));
        CHECK_OK(tess_cluster_query(two, &b));
        assert_string_equal(a.about, b.about);
        assert_string_equal(a.attn_origin, b.attn_origin);
        assert_int_equal(a.memory, b.memory);
        assert_int_equal(a.link_latency, b.link_latency);
        assert_int_equal(a.nics, b.nics);
        /* A value goes through two roundings, of the quotient and of the product: 2^-52 of it. */
        assert_true(fabs(a.flops_bf16 - b.flops_bf16) <= a.flops_bf16 * 0x1p-52);
        for (int p = 0; p < TESS_PROTOCOLS; p++)
            assert_true(fabs(a.collectives.hop[1][p] - b.collectives.hop[1][p]) <=
                        a.collectives.hop[1][p] * 0x1p-52);
        assert_true(fabs(a.collectives.ring_by_gpus[4] - b.collectives.ring_by_gpus[4]) <=
                    a.collectives.ring_by_gpus[4] * 0x1p-52);
        assert_int_equal(a.collectives.nvls_gpus, b.collectives.nvls_gpus);
        tess_cluster_destroy(one);
        tess_cluster_destroy(two);
    }
    unlink(path);
    CHECK_FAILS(tess_cluster_save(NULL, path), TESS_EINVAL, "tess_cluster_save: cluster is NULL");
}

static void collectives_without_description_are_derived(void **state)
{
    (void)state;
    tess_cluster *one = NULL, *two = NULL;
    tess_cluster_info info, back;
    CHECK_OK(tess_cluster_load(ctx, "h100", &one));
    CHECK_OK(tess_cluster_query(one, &info));
    info.collectives = (tess_collective_params){0};
    CHECK_OK(tess_cluster_create(ctx, &info, &two));
    CHECK_OK(tess_cluster_query(two, &back));
    assert_true(back.collectives.channels > 0);
    assert_true(back.collectives.ring > 0.0);
    assert_true(back.link_bandwidth == info.link_bandwidth);
    tess_cluster_destroy(two);
    tess_cluster_destroy(one);
}

static void a_description_that_breaks_a_rule_is_no_cluster(void **state)
{
    (void)state;
    tess_cluster *one = NULL, *two = NULL;
    tess_cluster_info info;
    CHECK_OK(tess_cluster_load(ctx, "h100", &one));
    CHECK_OK(tess_cluster_query(one, &info));
    info.name = "mine";
    info.node_gpus = 0;
    CHECK_FAILS(tess_cluster_create(ctx, &info, &two), TESS_EFORMAT,
                "mine: line 16: \"gpus\" is 0, must be 1..4096");
    info.node_gpus = 4;
    info.about = "\xff";
    CHECK_FAILS(tess_cluster_create(ctx, &info, &two), TESS_EINVAL,
                "tess_cluster_create: a text is not UTF-8");
    assert_null(two);
    CHECK_FAILS(tess_cluster_create(ctx, NULL, &two), TESS_EINVAL,
                "tess_cluster_create: info is NULL");
    tess_cluster_destroy(one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_of_all_runs_are_read),
    cmocka_unit_test(bad_logs_are_refused_with_their_line),
    cmocka_unit_test(the_shortest_member_of_a_traced_call_counts),
    cmocka_unit_test(bad_lines_of_traced_calls_are_refused),
    cmocka_unit_test(a_cluster_is_found_again_from_its_times),
    cmocka_unit_test(what_rows_do_not_determine_stays),
    cmocka_unit_test(bad_rows_are_refused),
    cmocka_unit_test(a_cluster_written_and_read_is_the_same),
    cmocka_unit_test(collectives_without_description_are_derived),
    cmocka_unit_test(a_description_that_breaks_a_rule_is_no_cluster),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
