/* SPDX-License-Identifier: Apache-2.0 */
/* test_linear_bf16.c - linear layers with products in bf16 against double precision, by each
 * instruction set that multiplies so, by the emulations, and in fp32 where there is none. */
#include "model/linear/linear_bf16.h"
#include "ref/ref.h"
#include "test.h"

#include <stdlib.h>

/* The smallest; no multiples of anything; several blocks in each direction, with tails; a single
 * row and a single column; blocks without tails; several blocks of the depth. */
static const tess_linear_shape shapes[] = {
    {1, 1, 1},     {3, 7, 5},        {257, 100, 390},  {600, 33, 800}, {1, 300, 500},
    {300, 500, 1}, {1300, 512, 600}, {256, 1536, 256}, {31, 1301, 65}, {1025, 96, 1057},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- numbers --------------------------------------------------------------------------------- */

static float wide_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t half_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A matrix as floats that bf16 holds, and as bf16. */
typedef struct {
    size_t n;
    float *x;
    uint16_t *half;
} matrix;

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(p);
    return memset(p, 0xff, bytes);
}

static matrix make(size_t n, uint64_t seed)
{
    const matrix m = {n, room(n * sizeof(float)), room(n * sizeof(uint16_t))};
    if (seed)
        fill_normal(m.x, n, seed);
    for (size_t i = 0; seed && i < n; i++) {
        m.half[i] = half_of(m.x[i]);
        m.x[i] = wide_of(m.half[i]);
    }
    return m;
}

static void drop(matrix *m)
{
    free(m->x);
    free(m->half);
}

static tess__factor factor(const matrix *m, int bf16)
{
    return bf16 ? (tess__factor){m->half, TESS_DTYPE_BF16} : (tess__factor){m->x, TESS_DTYPE_F32};
}

static tess__result result(const matrix *m, int bf16, int add)
{
    return bf16 ? (tess__result){m->half, TESS_DTYPE_BF16, add}
                : (tess__result){m->x, TESS_DTYPE_F32, add};
}

/* ---- one layer ------------------------------------------------------------------------------- */

typedef struct {
    const tess_linear_shape *s;
    matrix x, w, dy, y, dx, dw;
    float *bias, *dbias;
    void *packed;
} layer;

static layer make_layer(const tess_linear_shape *s)
{
    const size_t m = (size_t)s->rows, k = (size_t)s->in, n = (size_t)s->out;
    layer l = {s,
               make(m * k, 1),
               make(n * k, 2),
               make(m * n, 4),
               make(m * n, 0),
               make(m * k, 0),
               make(n * k, 0),
               room(n * sizeof(float)),
               room(n * sizeof(float)),
               room(tess__bf16_weights_size(s->in, s->out))};
    fill_normal(l.bias, n, 3);
    return l;
}

static void drop_layer(layer *l)
{
    matrix *all[] = {&l->x, &l->w, &l->dy, &l->y, &l->dx, &l->dw};
    for (int i = 0; i < 6; i++)
        drop(all[i]);
    free(l->bias);
    free(l->dbias);
    free(l->packed);
}

/* Which of x and dy, and of y, dx and dw, are bf16. */
typedef struct {
    int x, dy, y, dx, dw;
} kinds;

static void run(tess_ctx *ctx, layer *l, kinds bf16)
{
    tess__linear_bf16 *linear = NULL;
    CHECK_OK(tess__linear_bf16_create(ctx, &linear));
    tess__bf16_weights_pack(ctx, l->s->in, l->s->out, l->w.x, l->packed);
    const tess__factor x = factor(&l->x, bf16.x), dy = factor(&l->dy, bf16.dy);
    CHECK_OK(tess__linear_bf16_forward(linear, l->s, x, l->packed, l->bias,
                                       result(&l->y, bf16.y, 0), NULL));
    CHECK_OK(tess__linear_bf16_dx(linear, l->s, dy, l->packed, result(&l->dx, bf16.dx, 0), NULL));
    CHECK_OK(tess__linear_bf16_dw(linear, l->s, dy, x, result(&l->dw, bf16.dw, 0), NULL));
    tess__bf16_column_sums(ctx, l->s->rows, l->s->out, dy, l->dbias, 0);
    tess__linear_bf16_destroy(linear);
}

/* ---- against double precision ---------------------------------------------------------------- */

/* Roundings of n <= 1536 sums add up like a random walk: to sqrt(n) / 2 units of 2^-24 of what the
 * terms of an element sum up to without their signs, and at most 4 times as much for the worst of
 * many elements: 79 * 2^-24 = 4.7e-6. Results in bf16 are off by 2^-8 of themselves. */
static const double tolerance = 4.7e-6, unit = 0x1p-8;

static void check_close(const char *name, const matrix *got, int bf16, const double *want,
                        const double *terms)
{
    for (size_t i = 0; i < got->n; i++) {
        const double x = (double)(bf16 ? wide_of(got->half[i]) : got->x[i]);
        const double most = tolerance * terms[i] + (bf16 ? unit * fabs(want[i]) : 0.0);
        if (!(fabs(x - want[i]) <= most * (1.0 + unit)))
            fail_msg("%s[%zu] is %.9g, must be %.9g +- %.2e", name, i, x, want[i], most);
    }
}

static float *absolute(const float *x, size_t n)
{
    float *y = room(n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = fabsf(x[i]);
    return y;
}

/* y, dx, dw and dbias in double, and behind them the same of numbers without their signs. */
static double *reference(const layer *l)
{
    const tess_linear_shape *s = l->s;
    const size_t dx = l->y.n, dw = dx + l->dx.n, dbias = dw + l->dw.n;
    const size_t most = dbias + (size_t)s->out;
    double *want = room(2 * most * sizeof *want), *terms = want + most;
    float *x = absolute(l->x.x, l->x.n), *w = absolute(l->w.x, l->w.n);
    float *dy = absolute(l->dy.x, l->dy.n), *bias = absolute(l->bias, (size_t)s->out);
    ref_linear_forward(s->rows, s->in, s->out, l->x.x, l->w.x, l->bias, want);
    ref_linear_forward(s->rows, s->in, s->out, x, w, bias, terms);
    ref_linear_backward(s->rows, s->in, s->out, l->x.x, l->w.x, l->dy.x, want + dx, want + dw,
                        want + dbias);
    ref_linear_backward(s->rows, s->in, s->out, x, w, dy, terms + dx, terms + dw, terms + dbias);
    void *all[] = {x, w, dy, bias};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    return want;
}

static void compare(const layer *l, kinds bf16, const double *want)
{
    const size_t dx = l->y.n, dw = dx + l->dx.n, dbias = dw + l->dw.n;
    const double *terms = want + dbias + l->s->out;
    const matrix sums = {(size_t)l->s->out, l->dbias, NULL};
    check_close("y", &l->y, bf16.y, want, terms);
    check_close("dx", &l->dx, bf16.dx, want + dx, terms + dx);
    check_close("dw", &l->dw, bf16.dw, want + dw, terms + dw);
    check_close("dbias", &sums, 0, want + dbias, terms + dbias);
}

/* ---- every instruction set ------------------------------------------------------------------- */

/* Those with products in bf16, and one without. */
static void on_every_set(void (*fn)(tess_ctx *ctx))
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (!isa.bf16 && strcmp(isa.name, "base") != 0)
            continue;
        if (!isa.available) {
            print_message("skipped %s: %s\n", isa.name, isa.why);
            continue;
        }
        print_message("%s\n", isa.name);
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa.name, .threads = 3}, &ctx));
        fn(ctx);
        tess_ctx_destroy(ctx);
    }
}

/* Of the shapes, made once for all sets. */
static double *wanted[SHAPES];

static void check_shapes(tess_ctx *ctx)
{
    for (int i = 0; i < SHAPES; i++) {
        layer l = make_layer(&shapes[i]);
        wanted[i] = wanted[i] ? wanted[i] : reference(&l);
        const kinds all[] = {{0}, {1, 1, 1, 1, 1}, {.x = i % 2, .dy = 1, .dx = 1}};
        for (int k = i % 2; k < 3; k += 2 - i % 2) {
            run(ctx, &l, all[k]);
            compare(&l, all[k], wanted[i]);
        }
        drop_layer(&l);
    }
}

static void layers_match_double_precision(void **state)
{
    (void)state;
    on_every_set(check_shapes);
    for (int i = 0; i < SHAPES; i++)
        free(wanted[i]);
}

/* A few columns of x, and rows of dy, that are 30000 times as large as the others, as activations
 * of trained transformers are. */
static void check_large(tess_ctx *ctx)
{
    static const tess_linear_shape s = {100, 700, 90};
    layer l = make_layer(&s);
    for (size_t i = 0; i < l.x.n; i++)
        if (i % 700 % 97 == 5) {
            l.x.x[i] *= 30000.0f;
            l.x.half[i] = half_of(l.x.x[i]);
            l.x.x[i] = wide_of(l.x.half[i]);
        }
    for (size_t i = 0; i < l.dy.n; i++)
        if (i / 90 % 41 == 7) {
            l.dy.x[i] *= 30000.0f;
            l.dy.half[i] = half_of(l.dy.x[i]);
            l.dy.x[i] = wide_of(l.dy.half[i]);
        }
    const kinds bf16 = {.x = 1, .y = 1};
    run(ctx, &l, bf16);
    double *want = reference(&l);
    compare(&l, bf16, want);
    free(want);
    drop_layer(&l);
}

static void large_activations_lose_nothing(void **state)
{
    (void)state;
    on_every_set(check_large);
}

/* ---- what must hold besides ------------------------------------------------------------------ */

static void check_same(const matrix *a, const matrix *b)
{
    assert_memory_equal(a->x, b->x, a->n * sizeof(float));
    assert_memory_equal(a->half, b->half, a->n * sizeof(uint16_t));
}

static void check_threads(tess_ctx *ctx)
{
    static const int counts[] = {1, 2, 7};
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    for (int i = 0; i < SHAPES; i++) {
        const kinds bf16 = {i % 2, i % 3 == 0, i % 2, i % 3 == 1, 0};
        layer l[3];
        for (int t = 0; t < 3; t++) {
            tess_ctx *own = NULL;
            CHECK_OK(
                tess_ctx_create(&(tess_ctx_opts){.isa = info.isa, .threads = counts[t]}, &own));
            l[t] = make_layer(&shapes[i]);
            run(own, &l[t], bf16);
            tess_ctx_destroy(own);
            check_same(&l[0].y, &l[t].y);
            check_same(&l[0].dx, &l[t].dx);
            check_same(&l[0].dw, &l[t].dw);
            assert_memory_equal(l[0].dbias, l[t].dbias, (size_t)shapes[i].out * sizeof(float));
        }
        for (int t = 0; t < 3; t++)
            drop_layer(&l[t]);
    }
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    on_every_set(check_threads);
}

/* Where an epilogue was called, and what it was given. */
typedef struct {
    int64_t rows, columns, first;
    float *given;
    int *calls;
} record;

static void observe(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const record *s = user;
    const int64_t at = (row - s->first) * s->columns + column;
    for (int64_t i = 0; i < n; i++) {
        s->given[at + i] = y[i];
        s->calls[at + i]++;
        y[i] = 0.5f * (float)(at + i);
    }
}

static void check_epilogue(tess_ctx *ctx)
{
    static const tess_linear_shape s = {300, 70, 520};
    layer l = make_layer(&s);
    run(ctx, &l, (kinds){0});
    matrix y = make(l.y.n, 0), sum = make(l.y.n, 5);
    record what = {s.rows, s.out, 1000, room(l.y.n * sizeof(float)), room(l.y.n * sizeof(int))};
    memset(what.calls, 0, l.y.n * sizeof(int));
    tess__linear_bf16 *linear = NULL;
    CHECK_OK(tess__linear_bf16_create(ctx, &linear));
    const tess__epilogue epilogue = {observe, &what, 1000};
    CHECK_OK(tess__linear_bf16_forward(linear, &s, factor(&l.x, 0), l.packed, NULL,
                                       result(&y, 1, 0), &epilogue));
    for (size_t i = 0; i < y.n; i++) {
        assert_int_equal(what.calls[i], 1);
        assert_int_equal(y.half[i], half_of(0.5f * (float)i));
        assert_true(what.given[i] + l.bias[i % 520] == l.y.x[i]);
    }
    /* What is added comes before the epilogue. */
    memcpy(y.half, sum.half, y.n * sizeof *y.half);
    float *plain = room(l.y.n * sizeof(float));
    memcpy(plain, what.given, l.y.n * sizeof(float));
    CHECK_OK(tess__linear_bf16_forward(linear, &s, factor(&l.x, 0), l.packed, NULL,
                                       result(&y, 1, 1), &epilogue));
    for (size_t i = 0; i < y.n; i++)
        assert_true(what.given[i] == plain[i] + sum.x[i]);
    CHECK_OK(tess__linear_bf16_forward(linear, &s, factor(&l.x, 0), l.packed, NULL,
                                       result(&sum, 0, 1), NULL));
    for (size_t i = 0; i < y.n; i++)
        assert_true(sum.x[i] == what.given[i]);
    tess__linear_bf16_destroy(linear);
    drop(&y);
    drop(&sum);
    drop_layer(&l);
    free(plain);
    free(what.given);
    free(what.calls);
}

static void epilogues_are_given_each_element_once(void **state)
{
    (void)state;
    on_every_set(check_epilogue);
}

static void check_nan(tess_ctx *ctx)
{
    static const tess_linear_shape s = {70, 50, 40};
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        layer l = make_layer(&s);
        l.x.x[7 * 50 + 3] = bad[i];
        l.x.half[7 * 50 + 3] = i == 0 ? 0x7fc1 : 0x7f80;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            run(ctx, &l, (kinds){.x = bf16});
            for (int j = 0; j < 70 * 40; j++)
                assert_int_equal(!isfinite(l.y.x[j]), j / 40 == 7);
            for (int j = 0; j < 40 * 50; j++)
                assert_int_equal(!isfinite(l.dw.x[j]), j % 50 == 3);
        }
        drop_layer(&l);
    }
}

static void nan_and_infinity_reach_their_row_alone(void **state)
{
    (void)state;
    on_every_set(check_nan);
}

static void check_empty(tess_ctx *ctx)
{
    static const tess_linear_shape s = {0, 2, 3};
    layer l = make_layer(&s);
    run(ctx, &l, (kinds){0});
    for (int i = 0; i < 6; i++)
        assert_true(l.dw.x[i] == 0.0f && l.dbias[i % 3] == 0.0f);
    drop_layer(&l);
}

static void no_rows_give_gradients_of_zero(void **state)
{
    (void)state;
    on_every_set(check_empty);
}

static void check_memory(tess_ctx *ctx)
{
    tess_ctx_info before, made, after;
    tess__linear_bf16 *linear = NULL;
    layer l = make_layer(&shapes[3]);
    CHECK_OK(tess_ctx_query(ctx, &before));
    CHECK_OK(tess__linear_bf16_create(ctx, &linear));
    CHECK_OK(tess_ctx_query(ctx, &made));
    assert_int_equal(made.bytes_now - before.bytes_now, tess__linear_bf16_bytes(ctx));
    tess__bf16_weights_pack(ctx, l.s->in, l.s->out, l.w.x, l.packed);
    CHECK_OK(tess__linear_bf16_forward(linear, l.s, factor(&l.x, 1), l.packed, l.bias,
                                       result(&l.y, 1, 0), NULL));
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(made.allocations, after.allocations);
    tess__linear_bf16_destroy(linear);
    tess__linear_bf16_destroy(NULL);
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.bytes_now, after.bytes_now);
    drop_layer(&l);
}

static void memory_is_that_predicted(void **state)
{
    (void)state;
    on_every_set(check_memory);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layers_match_double_precision),
    cmocka_unit_test(large_activations_lose_nothing),
    cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
    cmocka_unit_test(epilogues_are_given_each_element_once),
    cmocka_unit_test(nan_and_infinity_reach_their_row_alone),
    cmocka_unit_test(no_rows_give_gradients_of_zero),
    cmocka_unit_test(memory_is_that_predicted),
};
RUN_TESTS(tests)
