/* SPDX-License-Identifier: Apache-2.0 */
/* test_overlap.c - kernels beside communication: parameters found, fitted, scored, and used by the
 * event engine; with TESS_REFERENCE Echo's kernels. */
#include "draw.h"

#include "ctx_fixture.h"

#include "sim/sim_internal.h"
#include "tessera/advanced/validate.h"
#include "timeline/timeline_internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- names ----------------------------------------------------------------------------------- */

static void profiler_names_are_those_of_a_kernel(void **state)
{
    (void)state;
    assert_true(tess__overlap_names("reduce_kernel", "reduce_kernel"));
    assert_true(tess__overlap_names("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<"
                                    "float> >(at::native::ReduceOp<float>)",
                                    "reduce_kernel"));
    assert_true(tess__overlap_names("void at::native::(anonymous namespace)::"
                                    "GammaBetaBackwardCUDAKernel_32x32<float, float>(long, long)",
                                    "GammaBetaBackwardCUDAKernel_32x32"));
    assert_false(tess__overlap_names("void at::native::vectorized_elementwise_kernel<4, f>(int)",
                                     "elementwise_kernel"));
    assert_false(tess__overlap_names("void f<reduce_kernel>(int)", "reduce_kernel"));
    assert_false(tess__overlap_names("", "reduce_kernel"));
}

/* ---- parameters ------------------------------------------------------------------------------ */

static const char file[] =
    "{\"schema\": 1, \"default_era\": \"e\", \"hardware\": {\n"
    " \"g\": {\"gpus\": [\"G\"], \"values\": {}, \"overlap\": {\"kernels\": {\"k\": [0.5, "
    "\"one\"]},"
    " \"classes\": {\"gemm\": [0.25, \"two\"]}, \"constant\": [0.125, \"three\"],"
    " \"communication\": [0, \"four\"]}},\n"
    " \"h\": {\"like\": \"g\", \"gpus\": [\"H\"], \"values\": {}, \"overlap\":"
    " {\"constant\": [2, \"five\"]}},\n"
    " \"i\": {\"gpus\": [\"I\"], \"values\": {}}},\n"
    " \"eras\": {\"e\": {\"values\": {}}}, \"scalars\": []}";

static tess_sim_params *parse(const char *text)
{
    tess_sim_params *p = NULL;
    CHECK_OK(tess__params_parse(ctx, "p.json", text, strlen(text), &p));
    return p;
}

static void a_slowdown_is_found_by_name_then_class_then_constant(void **state)
{
    (void)state;
    tess_sim_params *p = parse(file);
    const tess__overlap_list *list = &p->overlaps;
    assert_true(tess__overlap_find(list, 0, "void n::k<1>()", TESS_KERNEL_NORM) == 0.5);
    assert_true(tess__overlap_find(list, 0, "x", TESS_KERNEL_GEMM) == 0.25);
    assert_true(tess__overlap_find(list, 0, "x", TESS_KERNEL_OTHER) == 0.125);
    assert_true(tess__overlap_comm(list, 0) == 0);
    assert_true(tess__overlap_find(list, 1, "k", TESS_KERNEL_NORM) == 0.5); /* as "g" */
    assert_true(tess__overlap_find(list, 1, "x", TESS_KERNEL_NORM) == 2);
    assert_true(tess__overlap_find(list, 2, "k", TESS_KERNEL_GEMM) == 0); /* not measured */
    tess_sim_param param;
    const int first = tess_sim_params_count(p) - (int)list->n;
    CHECK_OK(tess_sim_params_query(p, first, &param));
    assert_string_equal(param.group, "overlap");
    assert_string_equal(param.owner, "g");
    assert_string_equal(param.name, "overlap.kernels.k");
    assert_string_equal(param.origin, "one");
    CHECK_FAILS(tess_sim_params_set(p, first, -1), TESS_EINVAL,
                "tess_sim_params_set: overlap.kernels.k of g is -1, must be 0..100");
    CHECK_OK(tess_sim_params_set(p, first, 1));
    assert_true(tess__overlap_find(list, 0, "k", TESS_KERNEL_NORM) == 1);
    tess_sim_params_destroy(p);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *overlap, *sentence;
    } cases[] = {
        {"{\"kernels\": {\"k\": [-1, \"o\"]}}", "-1"},
        {"{\"constant\": [101, \"o\"]}", "101"},
        {"{\"constant\": [1]}", "constant"},
        {"{\"classes\": {\"gem\": [1, \"o\"]}}", "gem"},
        {"{\"classes\": {\"communication\": [1, \"o\"]}}", "communication"},
        {"{\"kernel\": {}}", "kernel"},
        {"3", "overlap"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        tess_sim_params *p = NULL;
        snprintf(text, sizeof text,
                 "{\"schema\": 1, \"default_era\": \"e\", \"hardware\": {\"g\": {\"gpus\": [\"G\"],"
                 " \"values\": {}, \"overlap\": %s}}, \"eras\": {\"e\": {\"values\": {}}},"
                 " \"scalars\": []}",
                 cases[i].overlap);
        assert_int_equal(tess__params_parse(ctx, "p.json", text, strlen(text), &p), TESS_EFORMAT);
        assert_null(p);
        if (!strstr(tess_last_error(), cases[i].sentence))
            fail_msg("\"%s\" has no %s", tess_last_error(), cases[i].sentence);
    }
}

/* ---- fit ------------------------------------------------------------------------------------- */

/* Rows that slowdowns 0.5 of "a" and 3 of "b" would give. */
static int make_rows(tess__overlap_row rows[8])
{
    static const double shares[] = {1.0, 0.3, 0.7, 0.0};
    for (int i = 0; i < 8; i++) {
        const double s = i < 4 ? 0.5 : 3.0, alone = 1000.0 * (i + 1);
        rows[i] = (tess__overlap_row){.kernel = i < 4 ? "a" : "b",
                                      .kernel_class = i < 4 ? TESS_KERNEL_GEMM : TESS_KERNEL_NORM,
                                      .alone_ns = alone,
                                      .share = shares[i % 4],
                                      .beside_ns = alone * tess__overlap_ratio(shares[i % 4], s)};
    }
    return 8;
}

static void a_fit_finds_the_slowdowns_that_made_the_rows(void **state)
{
    (void)state;
    tess__overlap_row rows[8];
    const int n = make_rows(rows);
    tess__overlap_list list = {.ctx = ctx};
    tess__arena arena = {.ctx = ctx};
    CHECK_OK(tess__overlap_fit(&list, &arena, 0, rows, n, NULL));
    assert_true(fabs(tess__overlap_find(&list, 0, "a", TESS_KERNEL_OTHER) - 0.5) < 1e-12);
    assert_true(fabs(tess__overlap_find(&list, 0, "b", TESS_KERNEL_OTHER) - 3.0) < 1e-12);
    assert_true(fabs(tess__overlap_find(&list, 0, "", TESS_KERNEL_NORM) - 3.0) < 1e-12);
    const double all = tess__overlap_find(&list, 0, "", TESS_KERNEL_OTHER);
    assert_true(all > 0.5 && all < 3.0);
    assert_string_equal(list.items[0].origin, "fitted: 3 rows, 0.00491 ms beside communication");
    tess__free(ctx, list.items);
    tess__arena_free(&arena);
}

static void a_kernel_left_out_does_not_predict_itself(void **state)
{
    (void)state;
    tess__overlap_row rows[8];
    const int n = make_rows(rows);
    int names;
    CHECK_OK(tess__overlap_leave_out(ctx, rows, n, &names));
    assert_int_equal(names, 2);
    for (int i = 0; i < n; i++) /* by the constant, which is that of the other kernel */
        assert_true(fabs(rows[i].ratio - tess__overlap_ratio(rows[i].share, i < 4 ? 3.0 : 0.5)) <
                    1e-12);
    const tess_overlap_score none = tess__overlap_score(rows, n, TESS_OVERLAP_NONE, 0);
    assert_int_equal(none.rows, 6);
    assert_true(none.total_pct < 0 && none.log_rmse > 0 && none.mean_us > 0);
    for (int i = 0; i < n; i++)
        rows[i].ratio = rows[i].beside_ns / rows[i].alone_ns;
    const tess_overlap_score right = tess__overlap_score(rows, n, TESS_OVERLAP_PREDICTED, 0);
    assert_true(fabs(right.total_pct) < 1e-9 && right.log_rmse < 1e-9 && right.mean_us < 1e-9);
}

/* Two rows that communication touched for a moment give a kernel no value of its own. */
static void a_moment_beside_communication_is_no_measurement(void **state)
{
    (void)state;
    tess__overlap_row rows[2] = {{.kernel = "a",
                                  .kernel_class = TESS_KERNEL_GEMM,
                                  .alone_ns = 100,
                                  .beside_ns = 110,
                                  .share = 0.1},
                                 {.kernel = "a",
                                  .kernel_class = TESS_KERNEL_GEMM,
                                  .alone_ns = 100,
                                  .beside_ns = 101,
                                  .share = 0.01}};
    tess__overlap_list list = {.ctx = ctx};
    tess__arena arena = {.ctx = ctx};
    CHECK_OK(tess__overlap_fit(&list, &arena, 0, rows, 2, NULL));
    assert_int_equal(list.n, 2); /* class and constant */
    tess__free(ctx, list.items);
    tess__arena_free(&arena);
}

/* ---- engine ---------------------------------------------------------------------------------- */

static int32_t half(const void *user, const char *name, int class)
{
    (void)user, (void)class;
    return strcmp(name, "kernel") == 0 ? 500000 : 0;
}

/* A kernel with communication beside it for the first 300 ns of its time: the engine's time is that
 * of the formula, rounded up. */
static void the_engine_uses_the_formula(void **state)
{
    (void)state;
    tess_timeline *t = NULL;
    CHECK_OK(tess__timeline_create(ctx, 1, 2, &t));
    const int32_t kernel = tess__timeline_add(
        t, &(tess__tl_op){.name = tess__timeline_name(t, "kernel"), .call = -1, .ns = 1000});
    tess__timeline_add(t, &(tess__tl_op){.stream = 1,
                                         .cat = TESS__CAT_COMM,
                                         .name = tess__timeline_name(t, "sum"),
                                         .call = -1,
                                         .ns = 300});
    tess__timeline_slow(t, half, NULL);
    CHECK_OK(tess__timeline_run(t));
    const double took = (double)(t->ops[kernel].end - t->ops[kernel].begin);
    assert_int_equal(t->ops[kernel].end, 1100);
    assert_true(fabs(1000 * tess__overlap_ratio(300 / took, 0.5) - took) < 1e-9);
    tess_timeline_destroy(t);
}

/* By half where the name says so. */
static int32_t named(const void *user, const char *name, int class)
{
    (void)user, (void)class;
    return strstr(name, "slow") ? 500000 : 0;
}

/* Compute of `ns` on the last row beside a call of all rows: the end of both. */
static void run_beside(int rows, const char *kernel, int64_t ns, const char *sum, int64_t ends[2])
{
    tess_timeline *t = NULL;
    int32_t member = -1;
    CHECK_OK(tess__timeline_create(ctx, rows, 2, &t));
    const int32_t compute = tess__timeline_add(
        t, &(tess__tl_op){
               .row = rows - 1, .name = tess__timeline_name(t, kernel), .call = -1, .ns = ns});
    const int32_t call =
        rows > 1 ? tess__timeline_call(t, &(tess__tl_call){.group = 0, .bytes = 1}) : -1;
    for (int row = 0; row < rows; row++)
        member = tess__timeline_add(t, &(tess__tl_op){.row = row,
                                                      .stream = 1,
                                                      .cat = TESS__CAT_COMM,
                                                      .name = tess__timeline_name(t, sum),
                                                      .call = call,
                                                      .ns = 600});
    tess__timeline_slow(t, named, NULL);
    CHECK_OK(tess__timeline_run(t));
    ends[0] = t->ops[compute].end;
    ends[1] = t->ops[member].end;
    assert_int_equal(t->ops[member - rows + 1].end, ends[1]); /* all members end together */
    tess_timeline_destroy(t);
}

static void communication_may_be_slower_beside_compute(void **state)
{
    (void)state;
    for (int rows = 1; rows <= 3; rows++) {
        int64_t ends[2];
        run_beside(rows, "kernel", 1000, "slow sum", ends); /* compute beside all of it */
        assert_int_equal(ends[0], 1000);
        assert_int_equal(ends[1], 900);
        run_beside(rows, "kernel", 300, "slow sum", ends); /* 200 of its 600 ns in the first 300 */
        assert_int_equal(ends[0], 300);
        assert_int_equal(ends[1], 700);
        run_beside(rows, "slow kernel", 1000, "slow sum", ends); /* both slow down */
        assert_int_equal(ends[0], 900 + 400);
        assert_int_equal(ends[1], 900);
        run_beside(rows, "slow kernel", 1000, "sum", ends);
        assert_int_equal(ends[0], 600 + 600);
        assert_int_equal(ends[1], 600);
    }
}

/* ---- random programs ------------------------------------------------------------------------- */

enum { ROWS = 3, STREAMS = 3, LENGTH = 12 };

/* Compute on stream 0, calls of all rows on stream 1, communication of a row alone on stream 2; on
 * streams 0 and 2 every second operation is a pause. */
typedef struct {
    int64_t ns[ROWS][STREAMS][LENGTH];
    int slow[STREAMS];
} program;

static int is_pause(int stream, int number)
{
    return stream != 1 && number % 2 == 1;
}

static int32_t twice(const void *user, const char *name, int class)
{
    (void)class;
    return ((const program *)user)->slow[name[0] - '0'] ? 1000000 : 0;
}

/* Nanosecond by nanosecond, in halves of a nanosecond of work: two if alone, one beside the other
 * side. ends: of each stream of each row. */
static void step_through(const program *p, int64_t ends[ROWS][STREAMS])
{
    int at[ROWS][STREAMS] = {{0}}, left = ROWS * STREAMS;
    int64_t work[ROWS][STREAMS];
    for (int r = 0; r < ROWS; r++)
        for (int s = 0; s < STREAMS; s++)
            work[r][s] = 2 * p->ns[r][s][0];
    for (int64_t now = 1; left > 0; now++) {
        int compute[ROWS], comm[ROWS], any = 0;
        for (int r = 0; r < ROWS; r++) {
            compute[r] = at[r][0] < LENGTH && !is_pause(0, at[r][0]);
            comm[r] = at[r][1] < LENGTH || (at[r][2] < LENGTH && !is_pause(2, at[r][2]));
            any |= compute[r];
        }
        for (int r = 0; r < ROWS; r++)
            for (int s = 0; s < STREAMS; s++) {
                const int beside = s == 0 ? comm[r] : s == 1 ? any : compute[r];
                if (at[r][s] == LENGTH)
                    continue;
                work[r][s] -= beside && p->slow[s] && !is_pause(s, at[r][s]) ? 1 : 2;
                if (work[r][s] > 0)
                    continue;
                if (++at[r][s] < LENGTH) {
                    work[r][s] += 2 * p->ns[r][s][at[r][s]];
                } else {
                    ends[r][s] = now;
                    left--;
                }
            }
    }
}

static void run_engine(const program *p, int64_t ends[ROWS][STREAMS])
{
    static const char *const names[STREAMS] = {"0", "1", "2"};
    tess_timeline *t = NULL;
    CHECK_OK(tess__timeline_create(ctx, ROWS, STREAMS, &t));
    for (int k = 0; k < LENGTH; k++) {
        const int32_t call = tess__timeline_call(t, &(tess__tl_call){.number = k});
        for (int r = 0; r < ROWS; r++)
            for (int s = 0; s < STREAMS; s++)
                tess__timeline_add(t, &(tess__tl_op){.row = r,
                                                     .stream = (int16_t)s,
                                                     .cat = is_pause(s, k) ? TESS__CAT_HOST
                                                            : s            ? TESS__CAT_COMM
                                                                           : TESS__CAT_COMPUTE,
                                                     .name = tess__timeline_name(t, names[s]),
                                                     .call = s == 1 ? call : -1,
                                                     .ns = p->ns[r][s][k]});
    }
    tess__timeline_slow(t, twice, p);
    CHECK_OK(tess__timeline_run(t));
    for (int64_t i = 0; i < t->n; i++)
        ends[t->ops[i].row][t->ops[i].stream] = t->ops[i].end;
    tess_timeline_destroy(t);
}

/* The engine rounds once where a rate changes, which each end of another operation may do: the ends
 * differ by fewer nanoseconds than that. */
static void random_programs_take_what_stepping_through_gives(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        program p;
        int64_t want[ROWS][STREAMS], got[ROWS][STREAMS];
        for (int s = 0; s < STREAMS; s++)
            p.slow[s] = round >> s & 1;
        for (int k = 0; k < LENGTH; k++)
            for (int r = 0; r < ROWS; r++)
                for (int s = 0; s < STREAMS; s++)
                    p.ns[r][s][k] = s == 1 && r > 0 ? p.ns[0][s][k] : 1 + draw(2000);
        step_through(&p, want);
        run_engine(&p, got);
        for (int r = 0; r < ROWS; r++)
            for (int s = 0; s < STREAMS; s++)
                if (llabs(want[r][s] - got[r][s]) > ROWS * STREAMS * LENGTH)
                    fail_msg("round %d, row %d, stream %d: %lld ns, must be %lld", round, r, s,
                             (long long)got[r][s], (long long)want[r][s]);
    }
}

/* ---- Echo's kernels -------------------------------------------------------------------------- */

/* Bars of what is given: rows of known kernels, and one kernel left out at a time. */
static void echo_kernels_meet_their_bars(void **state)
{
    (void)state;
    const char *reference = getenv("TESS_REFERENCE");
    if (!reference) {
        print_message("skipped: TESS_REFERENCE does not name the folder of published tables\n");
        skip();
    }
    char path[512];
    const char *const tables[] = {path};
    tess_validation *v = NULL;
    tess_calibration *k = NULL;
    tess_overlap_score s, none;
    snprintf(path, sizeof path, "%s/echo_slowdown_a100_kernels.csv", reference);
    CHECK_OK(tess_validation_run(ctx, path, NULL, &v));
    CHECK_OK(tess_validation_overlap(v, TESS_OVERLAP_PREDICTED, &s));
    CHECK_OK(tess_validation_overlap(v, TESS_OVERLAP_NONE, &none));
    assert_true(s.rows > 0 && fabs(s.total_pct) <= 3.0 && s.mean_us <= 38.0);
    assert_true(s.log_rmse < none.log_rmse && s.mean_us < none.mean_us);
    tess_validation_destroy(v);
    CHECK_OK(tess_calibration_run(
        ctx,
        &(tess_calibration_opts){
            .tables = tables, .n_tables = 1, .quantity = TESS_QUANTITY_OVERLAP, .leave_one_out = 1},
        &k));
    CHECK_OK(tess_calibration_overlap(k, 1, TESS_OVERLAP_PREDICTED, &s));
    CHECK_OK(tess_calibration_overlap(k, 1, TESS_OVERLAP_NONE, &none));
    assert_true(s.rows > 0 && fabs(s.total_pct) <= 5.0 && s.log_rmse <= none.log_rmse);
    tess_calibration_destroy(k);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(profiler_names_are_those_of_a_kernel),
    cmocka_unit_test(a_slowdown_is_found_by_name_then_class_then_constant),
    cmocka_unit_test(wrong_values_are_refused),
    cmocka_unit_test(a_fit_finds_the_slowdowns_that_made_the_rows),
    cmocka_unit_test(a_kernel_left_out_does_not_predict_itself),
    cmocka_unit_test(a_moment_beside_communication_is_no_measurement),
    cmocka_unit_test(the_engine_uses_the_formula),
    cmocka_unit_test(communication_may_be_slower_beside_compute),
    cmocka_unit_test(random_programs_take_what_stepping_through_gives),
    cmocka_unit_test(echo_kernels_meet_their_bars),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
