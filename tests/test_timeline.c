/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c - the event engine: by hand, and against a reference that knows no queue.
 *
 * The reference repeats "an operation begins when everything it waits for has ended" over all
 * operations until no time changes, which is the longest path whatever the order.
 */
#include "ctx_fixture.h"

#include "timeline/timeline_internal.h"

#include <stdlib.h>

static tess_timeline *make(int rows, int streams)
{
    tess_timeline *t = NULL;
    CHECK_OK(tess__timeline_create(ctx, rows, streams, &t));
    return t;
}

static int32_t compute(tess_timeline *t, int row, int stream, int64_t ns)
{
    return tess__timeline_add(t, &(tess__tl_op){.row = row,
                                                .stream = (int16_t)stream,
                                                .name = tess__timeline_name(t, "compute"),
                                                .call = -1,
                                                .ns = ns});
}

static int32_t member(tess_timeline *t, int row, int stream, int32_t call, int64_t ns)
{
    return tess__timeline_add(t, &(tess__tl_op){.row = row,
                                                .stream = (int16_t)stream,
                                                .cat = TESS__CAT_COMM,
                                                .class = 1,
                                                .name = tess__timeline_name(t, "sum"),
                                                .call = call,
                                                .ns = ns});
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void collective_waits_for_the_last_member(void **state)
{
    (void)state;
    tess_timeline *t = make(2, 2);
    const int32_t call = tess__timeline_call(t, &(tess__tl_call){0});
    int32_t b[2], c[2];
    for (int row = 0; row < 2; row++) {
        const int32_t a = compute(t, row, 0, 1000 * (row + 1));
        b[row] = member(t, row, 1, call, 500);
        tess__timeline_depend(t, b[row], a);
        c[row] = compute(t, row, 0, 10);
        tess__timeline_depend(t, c[row], b[row]);
    }
    CHECK_OK(tess__timeline_run(t));
    for (int row = 0; row < 2; row++) {
        assert_int_equal(t->ops[b[row]].ready, 1000 * (row + 1));
        assert_int_equal(t->ops[b[row]].begin, 2000);
        assert_int_equal(t->ops[b[row]].end, 2500);
        assert_int_equal(t->ops[c[row]].begin, 2500);
    }
    assert_int_equal(t->end, 2510);
    int64_t ns[TESS__CLASS_MAX];
    tess__timeline_critical(t, ns);
    assert_int_equal(ns[0], 2010);
    assert_int_equal(ns[1], 500);
    tess_timeline_destroy(t);
}

static void names_are_stored_once(void **state)
{
    (void)state;
    tess_timeline *t = make(1, 1);
    int32_t numbers[1000];
    char name[24];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "name %d", i);
        numbers[i] = tess__timeline_name(t, name);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "name %d", i);
        assert_int_equal(tess__timeline_name(t, name), numbers[i]);
        assert_string_equal(t->names[numbers[i]], name);
    }
    assert_int_equal(t->n_names, 1000);
    tess_timeline_destroy(t);
}

static void circle_is_a_sentence(void **state)
{
    (void)state;
    tess_timeline *t = make(2, 2);
    compute(t, 0, 0, 5);
    const int32_t a = compute(t, 0, 0, 1), b = compute(t, 1, 1, 1);
    compute(t, 1, 1, 5);
    tess__timeline_depend(t, a, b);
    tess__timeline_depend(t, b, a);
    CHECK_FAILS(tess__timeline_run(t), TESS_EINVAL,
                "timeline: row 0, stream 0: \"compute\" waits for ever");
    tess_timeline_destroy(t);
}

static void member_in_another_order_is_a_sentence(void **state)
{
    (void)state;
    tess_timeline *t = make(2, 1);
    const int32_t first = tess__timeline_call(t, &(tess__tl_call){0});
    const int32_t second = tess__timeline_call(t, &(tess__tl_call){0});
    member(t, 0, 0, first, 1);
    member(t, 0, 0, second, 1);
    member(t, 1, 0, second, 1);
    member(t, 1, 0, first, 1);
    CHECK_FAILS(tess__timeline_run(t), TESS_EINVAL,
                "timeline: row 0, stream 0: \"sum\" waits for ever");
    tess_timeline_destroy(t);
}

/* ---- compute beside communication ------------------------------------------------------------ */

static int32_t half_slower(const void *user, const char *name, int class)
{
    (void)user;
    assert_true(class >= 0 && class < TESS__CLASS_MAX);
    return strcmp(name, "compute") == 0 ? 500000 : 0;
}

/* 1000 ns of work; communication from 200 to 500 and from 600 on for 10000. */
static void compute_beside_communication_takes_longer(void **state)
{
    (void)state;
    tess_timeline *t = make(1, 3);
    const int32_t work = compute(t, 0, 0, 1000);
    const int32_t wait = tess__timeline_add(
        t, &(tess__tl_op){.stream = 1, .name = tess__timeline_name(t, "x"), .call = -1, .ns = 200});
    tess__timeline_depend(t, member(t, 0, 2, -1, 300), wait);
    tess__timeline_add(
        t, &(tess__tl_op){.stream = 1, .name = tess__timeline_name(t, "x"), .call = -1, .ns = 400});
    tess__timeline_depend(t, member(t, 0, 2, -1, 10000), 3);
    tess__timeline_slow(t, half_slower, NULL);
    CHECK_OK(tess__timeline_run(t));
    /* 200 alone, 300 beside (200 of the work), 100 alone, and the other 500 take 750. */
    assert_int_equal(t->ops[work].end, 200 + 300 + 100 + 750);
    tess__timeline_slow(t, NULL, NULL);
    CHECK_OK(tess__timeline_run(t));
    assert_int_equal(t->ops[work].end, 1000);
    tess_timeline_destroy(t);
}

static int32_t never(const void *user, const char *name, int class)
{
    (void)user;
    (void)name;
    (void)class;
    return 0;
}

/* ---- random programs ------------------------------------------------------------------------- */

static uint64_t seed;

static int draw_below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

/* The longest path: repeats until nothing changes. */
static void check_against_reference(const tess_timeline *t)
{
    const int64_t n = t->n;
    int64_t *begin = calloc((size_t)n + 1, sizeof *begin);
    for (int changed = 1; changed;) {
        changed = 0;
        for (int64_t i = 0; i < n; i++) {
            const int32_t k = t->next[i];
            if (k >= 0 && begin[k] < begin[i] + t->ops[i].ns) {
                begin[k] = begin[i] + t->ops[i].ns;
                changed = 1;
            }
            for (int64_t j = 0; t->ops[i].call >= 0 && j < n; j++)
                if (t->ops[j].call == t->ops[i].call && begin[j] < begin[i]) {
                    begin[j] = begin[i];
                    changed = 1;
                }
        }
        for (int64_t k = 0; k < t->n_edges; k++) {
            const int32_t a = t->edges[k].before, b = t->edges[k].after;
            if (begin[b] < begin[a] + t->ops[a].ns) {
                begin[b] = begin[a] + t->ops[a].ns;
                changed = 1;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(t->ops[i].begin, begin[i]);
        assert_int_equal(t->ops[i].end, begin[i] + t->ops[i].ns);
    }
    free(begin);
}

/* Every operation is added after all it waits for, so that none waits for ever. */
static void random_programs_have_the_longest_path(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        seed = (uint64_t)round + 1;
        const int rows = 1 + draw_below(6), streams = 1 + draw_below(3);
        tess_timeline *t = make(rows, streams);
        for (int step = 0; step < 60; step++) {
            const int kind = draw_below(3), stream = draw_below(streams);
            const int32_t before = (int32_t)t->n;
            if (kind == 0) {
                const int32_t call = tess__timeline_call(t, &(tess__tl_call){0});
                const int64_t ns = draw_below(50);
                const int first = draw_below(rows), last = first + draw_below(rows - first);
                for (int row = first; row <= last; row++)
                    member(t, row, stream, call, ns);
            } else {
                compute(t, draw_below(rows), stream, draw_below(100));
            }
            for (int k = 0; k < 2 && before > 0; k++)
                tess__timeline_depend(t, before, draw_below(before));
        }
        if (round % 2)
            tess__timeline_slow(t, never, NULL);
        CHECK_OK(tess__timeline_run(t));
        check_against_reference(t);
        int64_t ns[TESS__CLASS_MAX], sum = 0, last = 0;
        tess__timeline_critical(t, ns);
        for (int i = 0; i < TESS__CLASS_MAX; i++)
            sum += ns[i];
        for (int64_t i = 0; i < t->n; i++)
            last = TESS_MAX(last, t->ops[i].end);
        assert_int_equal(sum, last);
        assert_int_equal(t->end, last);
        tess_timeline_destroy(t);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(collective_waits_for_the_last_member),
    cmocka_unit_test(names_are_stored_once),
    cmocka_unit_test(circle_is_a_sentence),
    cmocka_unit_test(member_in_another_order_is_a_sentence),
    cmocka_unit_test(compute_beside_communication_takes_longer),
    cmocka_unit_test(random_programs_have_the_longest_path),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
