/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - pipeline schedules: orders, times by hand, files, broken files. */
#include "ctx_fixture.h"

#include "timeline/timeline_internal.h"

#include <stdlib.h>
#include <unistd.h>

static tess_schedule *make(const char *name, int p, int v, int64_t m)
{
    tess_schedule *s = NULL;
    CHECK_OK(tess_schedule_make(ctx, name, p, v, m, &s));
    return s;
}

static tess_status parse(const char *text, tess_schedule **s)
{
    return tess__schedule_parse(ctx, "s.csv", text, strlen(text), s);
}

/* All stages alike. */
static tess_schedule_result replay(const tess_schedule *s, int64_t f, int64_t i, int64_t w,
                                   int64_t hop, int *in_flight)
{
    tess_schedule_result r;
    int64_t *ns = calloc(3 * (size_t)s->stages, sizeof *ns);
    for (int k = 0; k < s->stages; k++) {
        ns[k] = f;
        ns[s->stages + k] = i;
        ns[2 * s->stages + k] = w;
    }
    const tess_schedule_times times = {ns, ns + s->stages, ns + 2 * s->stages, hop};
    CHECK_OK(tess_schedule_replay(s, &times, &r, in_flight, NULL));
    free(ns);
    return r;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* tess_schedule_make fails where an action is missing or runs twice, the replay where it waits for
 * ever. No rank holds more than its schedule may. */
static void every_order_is_complete_and_ends(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 7, 8};
    for (int kind = 0; tess_schedule_name(kind); kind++)
        for (size_t q = 0; q < sizeof ranks / sizeof *ranks; q++)
            for (int v = 1; v <= 3; v++)
                for (int times = 1; times <= 4; times++) {
                    const char *name = tess_schedule_name(kind);
                    const int p = ranks[q], one = kind == 0 || kind == 2 || kind == 4;
                    const int64_t m = (int64_t)p * times;
                    int in_flight[8];
                    if ((one && v > 1) || (strcmp(name, "zb-v") == 0 && v != 2))
                        continue;
                    tess_schedule *s = make(name, p, v, m);
                    const int split = kind >= 4;
                    assert_int_equal(s->n, (split ? 3 : 2) * m * p * v);
                    replay(s, 1000, 900, 700, 30, in_flight);
                    for (int r = 0; r < p; r++) {
                        const int64_t hops = p - 1 - r, all = m * v;
                        const int64_t bound = kind < 2 ? all
                                              : one    ? hops + 1
                                              : strcmp(name, "zb-v") == 0
                                                  ? 2 * p
                                                  : (v - 1) * p + (split ? 1 : 2) * hops + 1;
                        assert_true(in_flight[r] <= TESS_MIN(bound, all));
                    }
                    tess_schedule_destroy(s);
                }
}

static void lengths_are_the_closed_forms(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p *= 2)
        for (int64_t m = p; m <= 4 * p; m *= 2) {
            const struct {
                const char *name;
                int v;
                int64_t ns;
            } cases[] = {{"gpipe", 1, (m + p - 1) * 3000},
                         {"1f1b", 1, (m + p - 1) * 3000},
                         {"interleaved", 2, m * 6000 + (p - 1) * 3000},
                         {"interleaved", 3, m * 9000 + (p - 1) * 3000}};
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                tess_schedule *s = make(cases[i].name, p, cases[i].v, m);
                assert_int_equal(replay(s, 1000, 1000, 1000, 0, NULL).ns, cases[i].ns);
                tess_schedule_destroy(s);
            }
            tess_schedule *s = make("zero-bubble", p, 1, m);
            const double want = 3000.0 * (double)m + 1000.0 * (p - 1);
            assert_true(fabs((double)replay(s, 1000, 1000, 1000, 0, NULL).ns / want - 1) < 0.01);
            tess_schedule_destroy(s);
        }
}

/* F0 of stage 0 ends at 10, arrives at 13, stage 1 is forward until 33 and backward until 73, its
 * gradient arrives at 76; backward of stage 0 takes 15 + 5. */
static void hops_and_stages_by_hand(void **state)
{
    (void)state;
    tess_schedule *s = make("1f1b", 2, 1, 1);
    const int64_t f[] = {10, 20}, i[] = {15, 30}, w[] = {5, 10};
    tess_schedule_result r;
    int in_flight[2];
    const tess_schedule_times times = {f, i, w, 3};
    CHECK_OK(tess_schedule_replay(s, &times, &r, in_flight, NULL));
    assert_int_equal(r.ns, 96);
    assert_true(fabs(r.bubble - (1 - 90.0 / (2 * 96))) < 1e-12);
    assert_int_equal(in_flight[0], 1);
    tess_schedule_destroy(s);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void files_have_other_cells_too(void **state)
{
    (void)state;
    tess_schedule *s = NULL;
    CHECK_OK(parse("0UNSHARD,0F0, 0F1,,,0SEND_F0,(0B0;0F2)OVERLAP_F_B,0B1,0B2,0REDUCE_GRAD\r\n"
                   ",1RECV_F0,1F0,1I0,1F1,1W0,1B1,1F2,1B2\r\n",
                   &s));
    assert_int_equal(s->ranks, 2);
    assert_int_equal(s->stages, 2);
    assert_int_equal(s->batches, 3);
    assert_int_equal(s->n, 13);
    char path[] = "/tmp/test_schedule.XXXXXX", text[256] = "";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    CHECK_OK(tess_schedule_write(s, path));
    tess_schedule_destroy(s);
    FILE *f = fopen(path, "r");
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text,
                        "0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\n1F0,1I0,1F1,1W0,1B1,1F2,1B2\n");
    CHECK_OK(tess_schedule_load(ctx, path, &s));
    assert_int_equal(s->n, 13);
    tess_schedule_destroy(s);
    close(file);
    unlink(path);
}

/* PyTorch 2.15 numbers the forward passes of the last rank from 1 in the list of Schedule1F1B. */
static void list_of_1f1b_is_read_as_it_runs(void **state)
{
    (void)state;
    tess_schedule *s = NULL;
    CHECK_OK(parse("0F0,,,0F1,0B0,0F2,0B1,,0B2,0REDUCE_GRAD\n,1F1,1B0,1F2,1B1,1F3,1B2\n", &s));
    tess_schedule *made = make("1f1b", 2, 1, 3);
    assert_int_equal(s->n, made->n);
    assert_int_equal(s->batches, 3);
    for (int64_t i = 0; i < s->n; i++) {
        assert_int_equal(s->actions[i].kind, made->actions[i].kind);
        assert_int_equal(s->actions[i].batch, made->actions[i].batch);
    }
    tess_schedule_destroy(made);
    tess_schedule_destroy(s);
    s = NULL;
    CHECK_FAILS(parse("0F0,0B0,0F1,0B1\n1F1,1B1\n", &s), TESS_EINVAL,
                "s.csv: rank 1 never runs 1F0");
}

static void broken_files_are_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
        tess_status status;
    } cases[] = {
        {"0F0,0B0,0F0\n", "s.csv: rank 0 runs 0F0 twice", TESS_EINVAL},
        {"0F0,0I0,0W0,0B0\n", "s.csv: rank 0 runs 0B0 twice", TESS_EINVAL},
        {"0F0,0B0,0F1\n", "s.csv: rank 0 never runs 0B1", TESS_EINVAL},
        {"0F0,0I0\n", "s.csv: rank 0 never runs 0W0", TESS_EINVAL},
        {"0B0\n", "s.csv: rank 0 never runs 0F0", TESS_EINVAL},
        {"0F0,0B0\n2F0,2B0\n", "s.csv: no rank runs 1F0, the last stage is 2", TESS_EINVAL},
        {"0F0,0B0\n1F0,0F1\n", "s.csv: rank 1 runs 0F1, but stage 0 is rank 0's", TESS_EINVAL},
        {"0B0,0F0\n", "s.csv: deadlock: rank 0 waits for ever with 0B0 for 0F0", TESS_EINVAL},
        {"0F0,0W0,0I0\n", "s.csv: deadlock: rank 0 waits for ever with 0W0 for 0I0", TESS_EINVAL},
        {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
         "s.csv: deadlock: rank 0 waits for ever with 0B0 for the gradient of stage 1, "
         "micro-batch 0",
         TESS_EINVAL},
        {"0F0,0X0\n",
         "s.csv: line 1: rank 0 has the action \"0X0\", must be like 0F1, 3B2, 3I2 or 3W2",
         TESS_EFORMAT},
        {"0F0,0F99999999999\n",
         "s.csv: line 1: rank 0 has the action \"0F99999999999\", must be like 0F1, 3B2, 3I2 or "
         "3W2",
         TESS_EFORMAT},
        {"", "s.csv: has 0 rows, must have one for each rank, 1..65536", TESS_EFORMAT},
        {",,\n", "s.csv: has no action", TESS_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_schedule *s = NULL;
        CHECK_FAILS(parse(cases[i].text, &s), cases[i].status, cases[i].sentence);
        assert_null(s);
    }
}

static void wrong_sizes_are_sentences(void **state)
{
    (void)state;
    tess_schedule *s = NULL;
    CHECK_FAILS(tess_schedule_make(ctx, "1f1b", 4, 2, 8, &s), TESS_EINVAL,
                "schedule 1f1b: chunks is 2, must be 1");
    CHECK_FAILS(tess_schedule_make(ctx, "zb-v", 4, 1, 8, &s), TESS_EINVAL,
                "schedule zb-v: chunks is 1, must be 2");
    CHECK_FAILS(tess_schedule_make(ctx, "interleaved", 4, 2, 9, &s), TESS_EINVAL,
                "schedule interleaved: 9 micro-batches do not divide into 2 rounds, one for each 4 "
                "ranks");
}

/* Every allocation of a schedule from a file, its replay and its timeline fails once. */
static int64_t allowed;

static void *limited(void *user, size_t bytes)
{
    (void)user;
    return allowed-- > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void allocations_that_fail_leave_nothing(void **state)
{
    (void)state;
    static const char text[] = "0F0,0B0\n1F0,1I0,1W0\n";
    static const int64_t ns[] = {1, 2};
    const tess_schedule_times times = {ns, ns, ns, 0};
    tess_status status = TESS_ENOMEM;
    for (int64_t n = 0; status != TESS_OK; n++) {
        tess_ctx *small = NULL;
        tess_schedule *s = NULL;
        tess_timeline *t = NULL;
        tess_schedule_result r;
        tess_ctx_info info;
        allowed = 1000;
        CHECK_OK(tess_ctx_create(
            &(tess_ctx_opts){.threads = 1, .allocator = {.alloc = limited, .free = release}},
            &small));
        allowed = n;
        status = tess__schedule_parse(small, "s.csv", text, strlen(text), &s);
        if (status == TESS_OK)
            status = tess_schedule_replay(s, &times, &r, NULL, &t);
        assert_true(status == TESS_OK || status == TESS_ENOMEM);
        tess_timeline_destroy(t);
        tess_schedule_destroy(s);
        CHECK_OK(tess_ctx_query(small, &info));
        assert_int_equal(info.bytes_now, 0);
        tess_ctx_destroy(small);
        assert_true(n < 1000);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_order_is_complete_and_ends),
    cmocka_unit_test(lengths_are_the_closed_forms),
    cmocka_unit_test(hops_and_stages_by_hand),
    cmocka_unit_test(files_have_other_cells_too),
    cmocka_unit_test(list_of_1f1b_is_read_as_it_runs),
    cmocka_unit_test(broken_files_are_sentences),
    cmocka_unit_test(wrong_sizes_are_sentences),
    cmocka_unit_test(allocations_that_fail_leave_nothing),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
