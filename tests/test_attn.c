/* SPDX-License-Identifier: Apache-2.0 */
/* test_attn.c - attention forward and backward against the double-precision reference, on every
 * instruction set of the machine, and what must hold besides values. */
#include "attn_data.h"

#include "attn/attn_internal.h"

#include <pthread.h>

/* ---- problems -------------------------------------------------------------------------------- */

static const problem problems[] = {
    PROBLEM(1, 1, 8, 1, 1, .dlse = 1),            /* the smallest: dq comes from dlse alone */
    PROBLEM(1, 2, 64, 100, 300, .dlse = 1),       /* cross-attention, tails everywhere */
    PROBLEM(2, 3, 72, 97, 193, .token_major = 1), /* a head_dim no panel divides */
    PROBLEM(1, 2, 128, 200, 200, .token_major = 1, .bf16 = 1, .dlse = 1), /* bf16 storage */
    PROBLEM(1, 1, 256, 65, 130),                                          /* the largest head_dim */
    PROBLEM(1, 1, 72, 9 * TESS_TILE_DENSE_MOST - 1, 110, .dlse = 1),      /* the largest tiles */
    PROBLEM(1, 1, 40, 50, 0),                                             /* no keys */
    PROBLEM(1, 1, 40, 0, 50),                                             /* no queries */
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static void attention_matches_the_reference_on_every_isa(void **state)
{
    (void)state;
    check_on_every_isa(problems, PROBLEMS);
    check_on_every_isa(list_problems, LIST_PROBLEMS);
}

/* ---- what must hold besides ------------------------------------------------------------------ */

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int n = 0; n < PROBLEMS; n++)
        check_bits_of_any_threads(&problems[n]);
    for (int n = 0; n < LIST_PROBLEMS; n++)
        check_bits_of_any_threads(&list_problems[n]);
}

static void a_full_list_gives_the_bits_of_dense_attention(void **state)
{
    tess_ctx *ctx = *state;
    enum { QUERIES = 9 * TESS_TILE_DENSE_MOST - 1 }; /* so that dense tiles are the largest */
    static const problem dense = PROBLEM(1, 2, 64, QUERIES, 300);
    static const int32_t groups[] = {QUERIES, 64, 1}, units[] = {300, 32, 1};
    setting d = make(ctx, &dense);
    run(ctx, &d);
    for (int i = 0; i < 3; i++) {
        problem full = dense;
        full.pattern = FULL;
        full.group = groups[i];
        full.unit = units[i];
        full.density = 1.0;
        setting f = make(ctx, &full);
        run(ctx, &f);
        assert_memory_equal(d.o, f.o, 2 * QUERIES * 64 * sizeof(float));
        assert_memory_equal(d.lse, f.lse, 2 * QUERIES * sizeof(float));
        drop(&f);
    }
    drop(&d);
}

/* Selection s keeps the units with (unit + 1) % 2 == half of the full set. */
static tess_selection *half_of(tess_ctx *ctx, const problem *p, int half)
{
    problem whole = *p;
    whole.pattern = FULL;
    tess_selection *sel = make_selection(ctx, &whole);
    tess_selection_lists lists;
    CHECK_OK(tess_selection_view(sel, &lists));
    const size_t nk = (size_t)lists.shape.n_k, n = (size_t)lists.lists * nk;
    uint8_t *mask = malloc(n);
    assert_non_null(mask);
    for (size_t i = 0; i < n; i++)
        mask[i] = (int)(i % nk % 2) == half;
    CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
    free(mask);
    return sel;
}

static void merging_two_halves_equals_the_whole(void **state)
{
    tess_ctx *ctx = *state;
    static const problem p = PROBLEM(2, 2, 64, 100, 260);
    setting whole = make(ctx, &p), a = make(ctx, &p), b = make(ctx, &p);
    run(ctx, &whole);
    a.sel = half_of(ctx, &p, 0);
    b.sel = half_of(ctx, &p, 1);
    run(ctx, &a);
    run(ctx, &b);
    const size_t rows = 2 * 2 * 100, n = rows * 64;
    b.lse[3] = -INFINITY; /* a row that saw nothing changes nothing, whatever it holds */
    float kept[64];
    memcpy(kept, a.o + 3 * 64, sizeof kept);
    const float kept_lse = a.lse[3];
    CHECK_OK(tess_attn_merge(&a.shape, &b.vo, b.lse, &a.vo, a.lse));
    assert_memory_equal(a.o + 3 * 64, kept, sizeof kept);
    assert_memory_equal(&a.lse[3], &kept_lse, sizeof kept_lse);
    double *want = malloc(n * sizeof *want);
    assert_non_null(want);
    memcpy(a.o + 3 * 64, whole.o + 3 * 64, sizeof kept); /* that row is not the whole's */
    a.lse[3] = whole.lse[3];
    for (size_t i = 0; i < n; i++)
        want[i] = whole.o[i];
    CHECK_CLOSE(a.o, want, n, tol_forward);
    for (size_t i = 0; i < rows; i++)
        want[i] = whole.lse[i];
    CHECK_CLOSE(a.lse, want, rows, tol_forward);

    for (size_t i = 0; i < rows; i++)
        a.lse[i] = b.lse[i] = -INFINITY;
    memset(a.o, 0, n * sizeof(float));
    CHECK_OK(tess_attn_merge(&a.shape, &b.vo, b.lse, &a.vo, a.lse));
    for (size_t i = 0; i < rows; i++)
        assert_true(a.lse[i] == -INFINITY && a.o[i * 64] == 0.0f);
    free(want);
    drop(&whole);
    drop(&a);
    drop(&b);
}

static void rows_between_heads_are_left_alone(void **state)
{
    tess_ctx *ctx = *state;
    /* Outputs whose rows are 80 floats apart for 72 used: the gaps keep their NaN. */
    enum { TQ = 50, TK = 70, D = 72, STEP = 80 };
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = D, .tokens_q = TQ, .tokens_k = TK};
    float *q = buffer(TQ * D, 1), *k = buffer(TK * D, 2), *lse = buffer(TQ, 0);
    float *o = buffer(TQ * STEP, 0), *dq = buffer(TQ * STEP, 0), *dk = buffer(TK * STEP, 0),
          *dv = buffer(TK * STEP, 0);
    const tess_view vq = {q, TESS_DTYPE_F32, 0, 0, D}, vk = {k, TESS_DTYPE_F32, 0, 0, D};
    const tess_view vo = {o, TESS_DTYPE_F32, 0, 0, STEP}, vdq = {dq, TESS_DTYPE_F32, 0, 0, STEP};
    const tess_view vdk = {dk, TESS_DTYPE_F32, 0, 0, STEP}, vdv = {dv, TESS_DTYPE_F32, 0, 0, STEP};
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &shape, &attn));
    CHECK_OK(tess_attn_forward(attn, NULL, &vq, &vk, &vk, &vo, lse));
    const tess_attn_saved saved = {&vq, &vk, &vk, &vo, lse};
    CHECK_OK(tess_attn_backward(attn, NULL, &saved, &vq, NULL, &vdq, &vdk, &vdv));
    const float *all[] = {o, dq, dk, dv};
    for (int a = 0; a < 4; a++)
        for (int i = 0; i < (a < 2 ? TQ : TK); i++)
            for (int d = 0; d < STEP; d++)
                assert_int_equal(isnan(all[a][i * STEP + d]) != 0, d >= D);
    tess_attn_destroy(attn);
    float *mine[] = {q, k, lse, o, dq, dk, dv};
    for (int i = 0; i < 7; i++)
        free(mine[i]);
}

static void a_nan_is_not_lost(void **state)
{
    tess_ctx *ctx = *state;
    static const problem p = PROBLEM(1, 1, 16, 40, 50);
    /* One that arithmetic makes, and one with a payload, as a debugger or a file may put there. */
    static const uint32_t bits[] = {0x7fc00000, 0x7fc00001, 0xffc12345};
    for (int i = 0; i < 3; i++) {
        setting s = make(ctx, &p);
        memcpy(&s.q[7 * 16 + 3], &bits[i], sizeof bits[i]);
        run(ctx, &s);
        for (int q = 0; q < 40; q++)
            assert_int_equal(isnan(s.o[q * 16]) != 0, q == 7);
        drop(&s);
    }
}

static void the_steady_state_allocates_nothing(void **state)
{
    tess_ctx *ctx = *state;
    static const problem lists = PROBLEM(1, 3, 64, 256, 700, LISTS(RANDOM, 64, 1, 0.2), .dlse = 1);
    setting s = make(ctx, &lists);
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
    tess_ctx_info before, after;
    CHECK_OK(tess_ctx_query(ctx, &before));
    const tess_attn_saved saved = {&s.vq, &s.vk, &s.vv, &s.vo, s.lse};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        CHECK_OK(tess_attn_backward(attn, s.sel, &saved, &s.vdout, NULL, &s.vdq, &s.vdk, &s.vdv));
    }
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    tess_attn_destroy(attn);
    drop(&s);
}

static int stop_after(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what, (void)done, (void)total;
    return --*(int *)user <= 0;
}

static void a_long_call_can_be_stopped(void **state)
{
    (void)state;
    int calls = 1; /* the first question is answered with "stop" */
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 3, .progress = stop_after, .progress_user = &calls}, &ctx));
    static const problem lists = PROBLEM(1, 1, 64, 96, 2500, LISTS(RANDOM, 64, 1, 0.9), .dlse = 1);
    setting s = make(ctx, &lists);
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
    CHECK_FAILS(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse), TESS_ESTOPPED,
                "stopped by the caller while attention");
    const tess_attn_saved saved = {&s.vq, &s.vk, &s.vv, &s.vo, s.lse};
    CHECK_FAILS(tess_attn_backward(attn, s.sel, &saved, &s.vdout, NULL, &s.vdq, &s.vdk, &s.vdv),
                TESS_ESTOPPED, "stopped by the caller while attention backward");
    tess_attn_destroy(attn);
    drop(&s);
    tess_ctx_destroy(ctx);
}

typedef struct {
    pthread_t caller;
    int calls, elsewhere; /* elsewhere: on another thread */
} meanwhile;

static void count_call(void *user)
{
    meanwhile *m = user;
    m->calls++;
    m->elsewhere += !pthread_equal(pthread_self(), m->caller);
}

/* What is on its way moves on between tiles, forward and backward, by the thread that called; with
 * one thread between any two, with several ones between those of its own. */
static void other_work_is_done_between_tiles(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        const problem p = {
            .batch = 1, .heads = 2, .dim = 64, .tq = 8 * TESS_TILE, .tk = 300, .dlse = 1};
        meanwhile m = {.caller = pthread_self()};
        tess_ctx *ctx = NULL;
        tess_attn *attn = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
        setting s = make(ctx, &p);
        const tess_attn_saved saved = {&s.vq, &s.vk, &s.vv, &s.vo, s.lse};
        CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
        tess__attn_meanwhile(attn, count_call, &m);
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        assert_true(m.calls >= (threads == 1 ? 16 : 1));
        m.calls = 0;
        CHECK_OK(tess_attn_backward(attn, s.sel, &saved, &s.vdout, NULL, &s.vdq, &s.vdk, &s.vdv));
        assert_true(m.calls >= (threads == 1 ? 16 : 1));
        assert_int_equal(m.elsewhere, 0);
        m.calls = 0;
        tess__attn_meanwhile(attn, NULL, NULL);
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        assert_int_equal(m.calls, 0);
        tess_attn_destroy(attn);
        drop(&s);
        tess_ctx_destroy(ctx);
    }
}

static void wrong_arguments_get_a_sentence(void **state)
{
    tess_ctx *ctx = *state;
    tess_attn *attn = NULL;
    tess_attn_shape shape = {.batch = 1, .heads = 1, .head_dim = 20, .tokens_q = 4, .tokens_k = 4};
    CHECK_FAILS(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL,
                "tess_attn_create: head_dim is 20, must be a multiple of 8 up to 256");
    shape.head_dim = 16;
    shape.heads = 0;
    CHECK_FAILS(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL,
                "tess_attn_create: heads is 0, must be 1..65536");
    shape.heads = 1;
    shape.scale = NAN;
    CHECK_FAILS(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL,
                "tess_attn_create: scale is nan, must be positive, or 0 for 1/sqrt(head_dim)");
    shape.scale = 0.0f;
    CHECK_FAILS(tess_attn_create(ctx, NULL, &attn), TESS_EINVAL, "tess_attn_create: shape is NULL");
    assert_null(attn);
    CHECK_OK(tess_attn_create(ctx, &shape, &attn));

    float x[64] = {0}, lse[4];
    const tess_view good = {x, TESS_DTYPE_F32, 0, 0, 16}, half = {x, TESS_DTYPE_BF16, 0, 0, 16};
    const tess_view folded = {x, TESS_DTYPE_F32, 0, 0, 8}, none = {NULL, TESS_DTYPE_F32, 0, 0, 16};
    CHECK_FAILS(tess_attn_forward(NULL, NULL, &good, &good, &good, &good, lse), TESS_EINVAL,
                "tess_attn_forward: attn is NULL");
    CHECK_FAILS(tess_attn_forward(attn, NULL, &half, &good, &good, &good, lse), TESS_EINVAL,
                "tess_attn_forward: q.dtype is BF16, must be F32");
    CHECK_FAILS(tess_attn_forward(attn, NULL, &good, &half, &good, &good, lse), TESS_EINVAL,
                "tess_attn_forward: k is BF16 and v is F32, must be the same");
    CHECK_FAILS(tess_attn_forward(attn, NULL, &good, &none, &good, &good, lse), TESS_EINVAL,
                "tess_attn_forward: k.data is NULL");
    CHECK_FAILS(tess_attn_forward(attn, NULL, &good, &good, &good, &folded, lse), TESS_EINVAL,
                "tess_attn_forward: o has token stride 8, its rows of 16 overlap");
    const tess_attn_saved saved = {&good, &good, &good, &good, NULL};
    CHECK_FAILS(tess_attn_backward(attn, NULL, &saved, &good, NULL, &good, &good, &good),
                TESS_EINVAL, "tess_attn_backward: lse is NULL");
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(
        ctx,
        &(tess_sel_shape){
            .batch = 1, .heads = 2, .tokens_q = 4, .tokens_k = 4, .group = 1, .unit = 1},
        16, &sel));
    CHECK_FAILS(tess_attn_forward(attn, sel, &good, &good, &good, &good, lse), TESS_EINVAL,
                "tess_attn_forward: the selection's heads is 2, must be 1");
    tess_selection_destroy(sel);
    tess_attn_destroy(attn);
    tess_attn_destroy(NULL);
}

static int count_nan(const float *x, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++)
        found += isnan(x[i]) != 0;
    return found;
}

/* 0 and -inf are for rows without keys; a NaN must not become one of them. */
static void check_nan(tess_ctx *ctx)
{
    static const problem dense = PROBLEM(1, 1, 64, 100, 150);
    setting s = make(ctx, &dense);
    s.q[5 * 64 + 3] = NAN;
    run(ctx, &s);
    assert_true(isnan(s.lse[5]));
    assert_int_equal(count_nan(s.lse, 100), 1);
    assert_int_equal(count_nan(s.o + 5 * 64, 64), 64);
    assert_int_equal(count_nan(s.o, 100 * 64), 64);
    assert_int_equal(count_nan(s.dq, 100 * 64), 64);
    assert_int_equal(count_nan(s.dk, 150 * 64), 150 * 64);
    drop(&s);

    s = make(ctx, &dense);
    s.k[149 * 64 + 3] = NAN;
    run(ctx, &s);
    assert_int_equal(count_nan(s.lse, 100), 100);
    assert_int_equal(count_nan(s.o, 100 * 64), 100 * 64);
    drop(&s);
}

static void nan_reaches_every_row_that_sees_it_on_every_isa(void **state)
{
    (void)state;
    with_every_isa(check_nan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(attention_matches_the_reference_on_every_isa),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test_setup_teardown(a_full_list_gives_the_bits_of_dense_attention, make_ctx,
                                    drop_ctx),
    cmocka_unit_test_setup_teardown(merging_two_halves_equals_the_whole, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(rows_between_heads_are_left_alone, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(a_nan_is_not_lost, make_ctx, drop_ctx),
    cmocka_unit_test_setup_teardown(the_steady_state_allocates_nothing, make_ctx, drop_ctx),
    cmocka_unit_test(nan_reaches_every_row_that_sees_it_on_every_isa),
    cmocka_unit_test(a_long_call_can_be_stopped),
    cmocka_unit_test(other_work_is_done_between_tiles),
    cmocka_unit_test_setup_teardown(wrong_arguments_get_a_sentence, make_ctx, drop_ctx),
};
RUN_TESTS(tests)
