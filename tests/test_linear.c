/* SPDX-License-Identifier: Apache-2.0 */
/* test_linear.c - linear layers against double precision, and with any number of threads. */
#include "ref/ref.h"
#include "tessera/advanced/pass.h"
#include "tessera/model.h"
#include "test.h"

#include <stdlib.h>
#include <time.h>

/* The smallest; no multiples of anything; several blocks in each direction, with tails; a single
 * row and a single column; rows a power of two apart, which has blocks of another size. */
static const tess_linear_shape shapes[] = {
    {1, 1, 1},     {3, 7, 5},     {257, 100, 390},  {600, 33, 800},
    {1, 300, 500}, {300, 500, 1}, {1300, 512, 600},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Buffers of exactly the sizes needed. Outputs begin as NaN. */
typedef struct {
    size_t rows, in, out;
    float *x, *w, *bias, *y, *dy, *dx, *dw, *dbias;
} layer;

static float *buffer(size_t n, uint64_t seed)
{
    float *data = malloc(n * sizeof *data);
    assert_non_null(data);
    if (seed)
        fill_normal(data, n, seed);
    else
        memset(data, 0xff, n * sizeof *data);
    return data;
}

static layer make(const tess_linear_shape *s)
{
    const size_t m = (size_t)s->rows, k = (size_t)s->in, n = (size_t)s->out;
    return (layer){m,
                   k,
                   n,
                   .x = buffer(m * k, 1),
                   .w = buffer(n * k, 2),
                   .bias = buffer(n, 3),
                   .y = buffer(m * n, 0),
                   .dy = buffer(m * n, 4),
                   .dx = buffer(m * k, 0),
                   .dw = buffer(n * k, 0),
                   .dbias = buffer(n, 0)};
}

static void drop(layer *l)
{
    float *all[] = {l->x, l->w, l->bias, l->y, l->dy, l->dx, l->dw, l->dbias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void run(tess_ctx *ctx, const tess_linear_shape *s, layer *l)
{
    CHECK_OK(tess_linear_forward(ctx, s, l->x, l->w, l->bias, l->y));
    CHECK_OK(tess_linear_backward(ctx, s, l->x, l->w, l->dy, l->dx, l->dw, l->dbias));
}

/* Sums of n <= 1300 products of normal numbers: roundings add up like a random walk to sqrt(n) / 2
 * units of 2^-24 of the largest result, which for the worst of many elements is at most 4 times as
 * much: 72 * 2^-24 = 4.3e-6. A single sum has no larger ones beside it to be measured by. */
static const double tolerance = 4.5e-6;

static void layers_match_double_precision(void **state)
{
    tess_ctx *ctx = *state;
    for (int i = 0; i < SHAPES; i++) {
        const tess_linear_shape *s = &shapes[i];
        layer l = make(s);
        run(ctx, s, &l);
        const size_t most = l.rows * l.in + l.rows * l.out + l.in * l.out;
        double *want = malloc(2 * most * sizeof *want), *dw = want + most;
        double *dbias = dw + l.in * l.out;
        assert_non_null(want);
        ref_linear_forward(s->rows, s->in, s->out, l.x, l.w, l.bias, want);
        CHECK_CLOSE(l.y, want, l.rows * l.out, tolerance);
        ref_linear_backward(s->rows, s->in, s->out, l.x, l.w, l.dy, want, dw, dbias);
        CHECK_CLOSE(l.dx, want, l.rows * l.in, tolerance);
        CHECK_CLOSE(l.dw, dw, l.in * l.out, tolerance);
        CHECK_CLOSE(l.dbias, dbias, l.out, tolerance);
        free(want);
        drop(&l);
    }
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 7};
    for (int i = 0; i < SHAPES; i++) {
        layer l[3];
        for (int t = 0; t < 3; t++) {
            tess_ctx *ctx = NULL;
            CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = counts[t]}, &ctx));
            l[t] = make(&shapes[i]);
            run(ctx, &shapes[i], &l[t]);
            tess_ctx_destroy(ctx);
            assert_memory_equal(l[0].y, l[t].y, l[t].rows * l[t].out * sizeof(float));
            assert_memory_equal(l[0].dx, l[t].dx, l[t].rows * l[t].in * sizeof(float));
            assert_memory_equal(l[0].dw, l[t].dw, l[t].in * l[t].out * sizeof(float));
            assert_memory_equal(l[0].dbias, l[t].dbias, l[t].out * sizeof(float));
        }
        for (int t = 0; t < 3; t++)
            drop(&l[t]);
    }
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* oneDNN would take every core in a team of one: then the process works for longer than the thread
 * that called. */
static void one_thread_works_alone(void **state)
{
    (void)state;
    const tess_linear_shape s = {1000, 500, 700};
    tess_ctx *ctx = NULL;
    layer l = make(&s);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    const double thread = seconds(CLOCK_THREAD_CPUTIME_ID);
    const double process = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(ctx, &s, &l);
    const double alone = seconds(CLOCK_THREAD_CPUTIME_ID) - thread;
    assert_true(seconds(CLOCK_PROCESS_CPUTIME_ID) - process < 1.2 * alone);
    tess_ctx_destroy(ctx);
    drop(&l);
}

static void no_bias_is_a_bias_of_zeros(void **state)
{
    tess_ctx *ctx = *state;
    const tess_linear_shape *s = &shapes[2];
    layer a = make(s), b = make(s);
    memset(a.bias, 0, a.out * sizeof *a.bias);
    CHECK_OK(tess_linear_forward(ctx, s, a.x, a.w, a.bias, a.y));
    CHECK_OK(tess_linear_forward(ctx, s, b.x, b.w, NULL, b.y));
    assert_memory_equal(a.y, b.y, a.rows * a.out * sizeof(float));
    drop(&a);
    drop(&b);
}

static void no_rows_give_gradients_of_zero(void **state)
{
    tess_ctx *ctx = *state;
    const tess_linear_shape s = {.rows = 0, .in = 2, .out = 3};
    float w[6] = {0}, dw[6] = {1, 1, 1, 1, 1, 1}, dbias[3] = {1, 1, 1}, none[1] = {0};
    CHECK_OK(tess_linear_forward(ctx, &s, none, w, NULL, none));
    CHECK_OK(tess_linear_backward(ctx, &s, none, w, none, none, dw, dbias));
    for (int i = 0; i < 6; i++)
        assert_true(dw[i] == 0.0f && dbias[i % 3] == 0.0f);
}

static void wrong_arguments_are_named(void **state)
{
    tess_ctx *ctx = *state;
    float a[1] = {0}, y[1];
    const tess_linear_shape one = {1, 1, 1}, rows = {-1, 1, 1}, in = {1, 0, 1},
                            out = {1, 1, ((int64_t)1 << 30) + 1};
    CHECK_FAILS(tess_linear_forward(ctx, &rows, a, a, NULL, y), TESS_EINVAL,
                "tess_linear_forward: rows is -1, must be 0..1073741824");
    CHECK_FAILS(tess_linear_forward(ctx, &in, a, a, NULL, y), TESS_EINVAL,
                "tess_linear_forward: in is 0, must be 1..1073741824");
    CHECK_FAILS(tess_linear_backward(ctx, &out, a, a, a, NULL, NULL, NULL), TESS_EINVAL,
                "tess_linear_backward: out is 1073741825, must be 1..1073741824");
    CHECK_FAILS(tess_linear_forward(NULL, &one, a, a, NULL, y), TESS_EINVAL,
                "tess_linear_forward: ctx is NULL");
    CHECK_FAILS(tess_linear_forward(ctx, NULL, a, a, NULL, y), TESS_EINVAL,
                "tess_linear_forward: shape is NULL");
    CHECK_FAILS(tess_linear_forward(ctx, &one, NULL, a, NULL, y), TESS_EINVAL,
                "tess_linear_forward: x is NULL");
    CHECK_FAILS(tess_linear_forward(ctx, &one, a, NULL, NULL, y), TESS_EINVAL,
                "tess_linear_forward: w is NULL");
    CHECK_FAILS(tess_linear_forward(ctx, &one, a, a, NULL, NULL), TESS_EINVAL,
                "tess_linear_forward: y is NULL");
    CHECK_FAILS(tess_linear_backward(ctx, &one, a, a, NULL, y, NULL, NULL), TESS_EINVAL,
                "tess_linear_backward: dy is NULL");
    CHECK_FAILS(tess_linear_backward(ctx, &one, a, NULL, a, y, NULL, NULL), TESS_EINVAL,
                "tess_linear_backward: w is NULL, must be given for dx");
    CHECK_FAILS(tess_linear_backward(ctx, &one, NULL, a, a, NULL, y, NULL), TESS_EINVAL,
                "tess_linear_backward: x is NULL, must be given for dw");
}

static int open_context(void **state)
{
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2}, (tess_ctx **)state) != TESS_OK;
}

static int close_context(void **state)
{
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_thread_works_alone),
    cmocka_unit_test(layers_match_double_precision),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test(no_bias_is_a_bias_of_zeros),
    cmocka_unit_test(no_rows_give_gradients_of_zero),
    cmocka_unit_test(wrong_arguments_are_named),
};
RUN_TESTS_WITH(tests, open_context, close_context)
