/* SPDX-License-Identifier: Apache-2.0 */
/* test_predict.c - the predictor's loss, its gradients and its maps, against double precision and
 * finite differences. */
#include "predict_data.h"
#include "ref_predict.h"

static double mean_loss(const problem *p)
{
    const int heads = p->shape.batch * p->shape.heads;
    double sum = 0.0;
    for (int i = 0; i < heads; i++)
        sum += p->loss[i] / heads;
    return sum;
}

/* ---- against double precision -------------------------------------------------------------- */

/* Scores are up to 20 in base 2 with a rounding of 2^-24 of their terms each, so probabilities err
 * by a few 1e-6 of themselves, and so do the sums of them. dr = p - a cancels where the two are
 * alike, which random vectors are not. */
static const double TOL = 1e-5;

static void compare_with_reference(tess_ctx *ctx, const tess_predict_shape *shape, int n_rows,
                                   tess_predict_loss loss)
{
    problem p = problem_make(shape, n_rows, loss);
    const size_t heads = (size_t)shape->batch * (size_t)shape->heads, rank = (size_t)shape->rank;
    const size_t n_q = heads * (size_t)n_rows * rank, n_k = heads * (size_t)shape->tokens * rank;
    double *want = malloc(sizeof *want * (heads + n_q + n_k));
    assert_non_null(want);
    run(ctx, &p);
    CHECK_OK(ref_predict_loss(ctx, shape, in_of(&p), want, want + heads, want + heads + n_q));
    float *dq = packed(&p, 4, n_rows, shape->rank), *dk = packed(&p, 5, shape->tokens, shape->rank);
    CHECK_CLOSE(p.loss, want, heads, shape->tokens == 1 ? 1e-6 : TOL);
    CHECK_CLOSE(dq, want + heads, n_q, TOL);
    CHECK_CLOSE(dk, want + heads + n_q, n_k, TOL);
    free(dq);
    free(dk);
    free(want);
    problem_free(&p);
}

static void compare_all(tess_ctx *ctx)
{
    /* One key has nothing to be wrong about: every loss and gradient is rounding. */
    for (int i = 1; i < SHAPES; i++)
        for (int loss = 0; loss < 2; loss++) {
            compare_with_reference(ctx, &shapes[i], shapes[i].rows, (tess_predict_loss)loss);
            compare_with_reference(ctx, &shapes[i], 1 + shapes[i].rows / 2,
                                   (tess_predict_loss)loss);
        }
}

static void losses_and_gradients_are_those_of_double_precision(void **state)
{
    (void)state;
    with_every_isa(compare_all);
}

static void one_key_leaves_nothing_to_learn(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int loss = 0; loss < 2; loss++) {
        problem p = problem_make(&shapes[0], 1, (tess_predict_loss)loss);
        run(ctx, &p);
        /* The cosine of two numbers is 1 or -1. */
        assert_true(fabs(p.loss[0]) < 1e-6 || (loss == 1 && fabs(p.loss[0] - 2.1) < 1e-6));
        for (int d = 0; d < 8; d++)
            assert_true(fabsf(p.data[4][d]) < 1e-6f && fabsf(p.data[5][d]) < 1e-6f);
        problem_free(&p);
    }
    tess_ctx_destroy(ctx);
}

/* ---- against finite differences ------------------------------------------------------------ */

/* The mean loss in double precision with element `at` of q_low (2) or k_low (3) moved. */
static double moved_loss(tess_ctx *ctx, const problem *p, double *const low[2], int which,
                         size_t at, double by, double *scrap)
{
    problem q = *p;
    const int heads = q.shape.batch * q.shape.heads;
    q.view[2].data = low[0];
    q.view[3].data = low[1];
    q.view[2].dtype = q.view[3].dtype = TESS_DTYPE_F64;
    low[which - 2][at] += by;
    CHECK_OK(ref_predict_loss(ctx, &q.shape, in_of(&q), q.loss, scrap, scrap + 4096));
    low[which - 2][at] -= by;
    double sum = 0.0;
    for (int i = 0; i < heads; i++)
        sum += q.loss[i] / heads;
    return sum;
}

static void the_reference_meets_finite_differences(void **state)
{
    (void)state;
    static const tess_predict_shape shape = {2, 2, 16, 8, 23, 4};
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    const size_t n = 2 * 2 * 23 * (8 + GAP);
    double *low[2] = {malloc(sizeof(double) * n), malloc(sizeof(double) * n)};
    double *got = malloc(sizeof(double) * 16384), *scrap = got + 8192;
    for (int loss = 0; loss < 2; loss++) {
        problem p = problem_make(&shape, 4, (tess_predict_loss)loss);
        for (size_t i = 0; i < n; i++) {
            low[0][i] = (double)p.data[2][i];
            low[1][i] = (double)p.data[3][i];
        }
        CHECK_OK(ref_predict_loss(ctx, &shape, in_of(&p), p.loss, got, got + 4096));
        double want[64];
        /* Some elements of sampled queries and of keys, of every head. */
        for (int i = 0; i < 64; i++) {
            const int head = i % 4, b = head / 2, h = head % 2, d = i % 8, of_k = i & 1;
            const int64_t row = of_k ? i * 7 % 23 : p.rows[i / 8 % 4];
            const size_t at = (size_t)((b * 23 + row) * 2 + h) * (8 + GAP) + (size_t)d;
            const double step = 1e-5;
            want[i] = (moved_loss(ctx, &p, low, 2 + of_k, at, step, scrap) -
                       moved_loss(ctx, &p, low, 2 + of_k, at, -step, scrap)) /
                      (2.0 * step);
            got[1024 + i] =
                of_k ? got[4096 + (head * 23 + row) * 8 + d] : got[(head * 4 + i / 8 % 4) * 8 + d];
        }
        /* Central differences err by step^2 and by rounding / step: 1e-10 of the largest. */
        CHECK_CLOSE(got + 1024, want, 64, 1e-8);
        problem_free(&p);
    }
    free(low[0]);
    free(low[1]);
    free(got);
    tess_ctx_destroy(ctx);
}

typedef struct {
    tess_predict *predict;
    problem p;
    float *w[2], *dw[2]; /* of q, of k */
    size_t n;
} qk;

static double qk_loss(qk *m)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(tess_predict_map(m->predict, &m->p.view[i], m->w[i], &m->p.view[2 + i]));
    CHECK_OK(
        tess_predict_loss_run(m->predict, in_of(&m->p), m->p.loss, &m->p.view[4], &m->p.view[5]));
    return mean_loss(&m->p);
}

static void move(qk *m, double by)
{
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < m->n; j++)
            m->w[i][j] += (float)(by * (double)m->dw[i][j]);
}

/* Along the gradient of the maps the loss falls as fast as the gradient is long. */
static void gradients_of_maps_meet_finite_differences(void **state)
{
    (void)state;
    static const tess_predict_shape shape = {2, 3, 48, 16, 500, 48};
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int loss = 0; loss < 2; loss++) {
        qk m = {.p = problem_make(&shape, 48, (tess_predict_loss)loss), .n = 3 * 16 * 48};
        CHECK_OK(tess_predict_create(ctx, &shape, &m.predict));
        double length = 0.0;
        for (int i = 0; i < 2; i++) {
            m.w[i] = malloc(sizeof(float) * m.n);
            m.dw[i] = calloc(m.n, sizeof(float));
            fill_normal(m.w[i], m.n, 7 + (uint64_t)i);
            for (size_t j = 0; j < m.n; j++)
                m.w[i][j] *= 0.2f;
        }
        qk_loss(&m);
        CHECK_OK(tess_predict_map_backward(m.predict, &m.p.view[0], &m.p.view[4], m.p.rows, 48,
                                           m.dw[0]));
        CHECK_OK(
            tess_predict_map_backward(m.predict, &m.p.view[1], &m.p.view[5], NULL, 0, m.dw[1]));
        for (int i = 0; i < 2; i++)
            for (size_t j = 0; j < m.n; j++)
                length += (double)m.dw[i][j] * (double)m.dw[i][j];
        const double step = 0.02 / sqrt(length);
        move(&m, step);
        const double above = qk_loss(&m);
        move(&m, -2.0 * step);
        const double below = qk_loss(&m);
        /* The loss errs by 1e-6 of itself, its difference by 1e-4 of the step's 0.04; the third
         * derivative adds as much. */
        const double slope = (above - below) / (2.0 * step);
        if (fabs(slope - length) > 1e-3 * length)
            fail_msg("loss %d: the slope is %.9g, the gradient says %.9g", loss, slope, length);
        for (int i = 0; i < 2; i++) {
            free(m.w[i]);
            free(m.dw[i]);
        }
        tess_predict_destroy(m.predict);
        problem_free(&m.p);
    }
    tess_ctx_destroy(ctx);
}

/* ---- maps ---------------------------------------------------------------------------------- */

static void compare_maps(tess_ctx *ctx)
{
    for (int i = 0; i < SHAPES; i++) {
        const tess_predict_shape *s = &shapes[i];
        problem p = problem_make(s, s->rows, TESS_PREDICT_KL);
        const int64_t heads = (int64_t)s->batch * s->heads, tokens = s->tokens;
        const int dim = s->head_dim, rank = s->rank;
        const size_t n_w = (size_t)s->heads * (size_t)rank * (size_t)dim;
        const size_t n_low = (size_t)(heads * tokens * rank);
        float *w = malloc(sizeof *w * n_w), *dw = malloc(sizeof *dw * n_w);
        double *want = calloc(n_low + 2 * n_w, sizeof *want), *all = want + n_low,
               *some = all + n_w;
        assert_true(w && dw && want);
        fill_normal(w, n_w, 5);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t t = 0; t < tokens; t++) {
                const int64_t h = head % s->heads, b = head / s->heads;
                const float *x = tess__view_row(&p.view[0], b, h, t);
                const float *dlow = tess__view_row(&p.view[5], b, h, t);
                int64_t at = 0;
                while (at < s->rows && p.rows[at] != t)
                    at++;
                const float *few = at < s->rows ? tess__view_row(&p.view[4], b, h, at) : NULL;
                for (int r = 0; r < rank; r++)
                    for (int d = 0; d < dim; d++) {
                        const size_t e = (size_t)((h * rank + r) * dim + d);
                        want[(head * tokens + t) * rank + r] += (double)w[e] * (double)x[d];
                        all[e] += (double)dlow[r] * (double)x[d];
                        some[e] += few ? (double)few[r] * (double)x[d] : 0.0;
                    }
            }
        tess_predict *predict = NULL;
        CHECK_OK(tess_predict_create(ctx, s, &predict));
        CHECK_OK(tess_predict_map(predict, &p.view[0], w, &p.view[2]));
        float *low = packed(&p, 2, tokens, rank);
        /* Sums of up to 256 and 4500 products, each rounded to 2^-24. */
        CHECK_CLOSE(low, want, n_low, 2e-6);
        memset(dw, 0, sizeof *dw * n_w);
        CHECK_OK(tess_predict_map_backward(predict, &p.view[0], &p.view[5], NULL, 0, dw));
        CHECK_CLOSE(dw, all, n_w, 1e-5);
        /* Gradients are added to what is there. */
        CHECK_OK(tess_predict_map_backward(predict, &p.view[0], &p.view[4], p.rows, s->rows, dw));
        for (size_t e = 0; e < n_w; e++)
            all[e] += some[e];
        CHECK_CLOSE(dw, all, n_w, 1e-5);
        tess_predict_destroy(predict);
        free(low);
        free(w);
        free(dw);
        free(want);
        problem_free(&p);
    }
}

static void maps_are_those_of_double_precision(void **state)
{
    (void)state;
    with_every_isa(compare_maps);
}

/* ---- behaviour ----------------------------------------------------------------------------- */

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const tess_predict_shape shape = {2, 3, 32, 16, 5000, 20};
    const size_t n_k = 2 * 3 * 5000 * (16 + GAP), n_q = 2 * 3 * 20 * (16 + GAP);
    const size_t n_w = 3 * 16 * 32;
    float first[3 * 16 * 32], dw[3 * 16 * 32];
    for (int loss = 0; loss < 2; loss++) {
        problem one = problem_make(&shape, 20, (tess_predict_loss)loss);
        for (int threads = 1; threads <= 5; threads++) {
            tess_ctx *ctx = NULL;
            CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
            problem p = problem_make(&shape, 20, (tess_predict_loss)loss);
            tess_predict *predict = NULL;
            CHECK_OK(tess_predict_create(ctx, &shape, &predict));
            problem *to = threads == 1 ? &one : &p;
            CHECK_OK(
                tess_predict_loss_run(predict, in_of(to), to->loss, &to->view[4], &to->view[5]));
            memset(dw, 0, sizeof dw);
            CHECK_OK(tess_predict_map_backward(predict, &one.view[1], &one.view[5], NULL, 0, dw));
            if (threads == 1)
                memcpy(first, dw, sizeof dw);
            if (threads > 1) {
                assert_memory_equal(p.loss, one.loss, sizeof(double) * 6);
                assert_memory_equal(p.data[4], one.data[4], sizeof(float) * n_q);
                assert_memory_equal(p.data[5], one.data[5], sizeof(float) * n_k);
                assert_memory_equal(dw, first, sizeof(float) * n_w);
            }
            tess_predict_destroy(predict);
            problem_free(&p);
            tess_ctx_destroy(ctx);
        }
        problem_free(&one);
    }
}

static void the_loss_alone_is_the_same_and_writes_no_gradient(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int loss = 0; loss < 2; loss++) {
        problem p = problem_make(&shapes[2], 48, (tess_predict_loss)loss);
        run(ctx, &p);
        double alone[2];
        tess_predict *predict = NULL;
        CHECK_OK(tess_predict_create(ctx, &p.shape, &predict));
        CHECK_OK(tess_predict_loss_run(predict, in_of(&p), alone, NULL, NULL));
        assert_memory_equal(alone, p.loss, sizeof alone);
        tess_predict_destroy(predict);
        problem_free(&p);
    }
    tess_ctx_destroy(ctx);
}

/* A student that equals its teacher has no loss and no gradient. */
static void a_perfect_student_has_nothing_to_learn(void **state)
{
    (void)state;
    static const tess_predict_shape shape = {1, 2, 16, 16, 100, 10};
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int loss = 0; loss < 2; loss++) {
        problem p = problem_make(&shape, 10, (tess_predict_loss)loss);
        p.view[2] = p.view[0];
        p.view[3] = p.view[1];
        run(ctx, &p);
        for (int h = 0; h < 2; h++)
            assert_true(fabs(p.loss[h]) < 1e-6);
        for (size_t i = 0; i < 2 * 100; i++)
            for (int d = 0; d < 16; d++)
                assert_true(fabsf(p.data[5][i * (16 + GAP) + (size_t)d]) < 1e-6f);
        problem_free(&p);
    }
    tess_ctx_destroy(ctx);
}

static void rows_of_zeros_have_no_direction_and_no_gradient(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&shapes[2], 48, TESS_PREDICT_COSINE);
    memset(p.data[2], 0, sizeof(float) * 300 * 2 * (16 + GAP));
    run(ctx, &p);
    for (int h = 0; h < 2; h++)
        assert_float_equal(p.loss[h], 0.95 + 0.1 / 300.0, 1e-7);
    float *dq = packed(&p, 4, 48, 16);
    for (int i = 0; i < 2 * 48 * 16; i++)
        assert_true(dq[i] == 0.0f);
    free(dq);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void what_is_not_finite_shows_in_its_head_alone(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int i = 0; i < 12; i++) {
        problem p = problem_make(&shapes[2], 48, (tess_predict_loss)(i % 2));
        /* Of head 1: a key of the teacher, or of the student. */
        p.data[1 + 2 * (i / 2 % 2)][i / 2 % 2 ? 16 + GAP : 48 + GAP] = bad[i / 4];
        run(ctx, &p);
        assert_true(isfinite(p.loss[0]));
        assert_false(isfinite(p.loss[1]));
        problem_free(&p);
    }
    tess_ctx_destroy(ctx);
}

/* ---- bad input ----------------------------------------------------------------------------- */

static void wrong_shapes_are_named(void **state)
{
    (void)state;
    static const struct {
        tess_predict_shape shape;
        const char *sentence;
    } cases[] = {
        {{0, 1, 8, 8, 1, 1}, "batch is 0, must be 1..65536"},
        {{1, 65537, 8, 8, 1, 1}, "heads is 65537, must be 1..65536"},
        {{1, 1, 12, 8, 1, 1}, "head_dim is 12, must be a multiple of 8 up to 256"},
        {{1, 1, 264, 8, 1, 1}, "head_dim is 264, must be a multiple of 8 up to 256"},
        {{1, 1, 8, 0, 1, 1}, "rank is 0, must be a multiple of 8 up to 64"},
        {{1, 1, 8, 72, 1, 1}, "rank is 72, must be a multiple of 8 up to 64"},
        {{1, 1, 8, 8, 0, 1}, "tokens is 0, must be 1..2147483647"},
        {{1, 1, 8, 8, 1, 0}, "rows is 0, must be 1..512"},
        {{1, 1, 8, 8, 1, 513}, "rows is 513, must be 1..512"},
    };
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_predict *predict = NULL;
        char sentence[160];
        snprintf(sentence, sizeof sentence, "tess_predict_create: %s", cases[i].sentence);
        CHECK_FAILS(tess_predict_create(ctx, &cases[i].shape, &predict), TESS_EINVAL, sentence);
        assert_null(predict);
    }
    tess_predict *predict = NULL;
    CHECK_FAILS(tess_predict_create(NULL, &shapes[0], &predict), TESS_EINVAL,
                "tess_predict_create: ctx is NULL");
    CHECK_FAILS(tess_predict_create(ctx, NULL, &predict), TESS_EINVAL,
                "tess_predict_create: shape is NULL");
    CHECK_FAILS(tess_predict_create(ctx, &shapes[0], NULL), TESS_EINVAL,
                "tess_predict_create: predict is NULL");
    const tess_predict_shape huge = {65536, 65536, 256, 64, INT32_MAX, 512};
    assert_int_equal(tess_predict_create(ctx, &huge, &predict), TESS_ENOMEM);
    tess_predict_destroy(NULL);
    tess_ctx_destroy(ctx);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_predict *predict = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&shapes[1], 5, TESS_PREDICT_KL);
    CHECK_OK(tess_predict_create(ctx, &p.shape, &predict));
    const tess_view half = {p.data[0], TESS_DTYPE_BF16, 0, 0, 0};
    const tess_view *dq = &p.view[4], *dk = &p.view[5];
    const int64_t back[] = {3, 3}, far[] = {0, 37};
    tess_predict_in in;
#define CASE(change, sentence)                                                                     \
    in = *in_of(&p);                                                                               \
    change;                                                                                        \
    CHECK_FAILS(tess_predict_loss_run(predict, &in, p.loss, dq, dk), TESS_EINVAL,                  \
                "tess_predict_loss_run: " sentence)
    CASE(in.q = NULL, "q is NULL");
    CASE(in.k = &half, "k.dtype is BF16, must be F32");
    CASE(in.q_low = NULL, "q_low is NULL");
    CASE(in.k_low = NULL, "k_low is NULL");
    CASE(in.scale = -1.0f, "scale is -1, must be finite and not below 0");
    CASE(in.scale_low = INFINITY, "scale_low is inf, must be finite and not below 0");
    CASE(in.n_rows = 0, "n_rows is 0, must be 1..5");
    CASE(in.n_rows = 6, "n_rows is 6, must be 1..5");
    CASE(in.loss = (tess_predict_loss)2, "loss is 2, must be KL (0) or COSINE (1)");
    CASE((in.rows = back, in.n_rows = 2), "rows[1] is 3, must be above rows[0]'s 3");
    CASE((in.rows = far, in.n_rows = 2), "rows[1] is 37, must be 0..36");
    CASE(dq = NULL, "dq_low is NULL, both gradients are given or none");
    dq = &p.view[4];
    CASE(dk = NULL, "dk_low is NULL, both gradients are given or none");
    CASE(dk = &half, "dk_low.dtype is BF16, must be F32");
#undef CASE
    CHECK_FAILS(tess_predict_loss_run(NULL, &in, p.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_run: predict is NULL");
    CHECK_FAILS(tess_predict_loss_run(predict, NULL, p.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_run: in is NULL");
    CHECK_FAILS(tess_predict_loss_run(predict, &in, NULL, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_run: loss_heads is NULL");
    float w[3 * 8 * 16] = {0};
    const tess_view *x = &p.view[0], *low = &p.view[2];
    CHECK_FAILS(tess_predict_map(NULL, x, w, low), TESS_EINVAL,
                "tess_predict_map: predict is NULL");
    CHECK_FAILS(tess_predict_map(predict, NULL, w, low), TESS_EINVAL,
                "tess_predict_map: x is NULL");
    CHECK_FAILS(tess_predict_map(predict, x, NULL, low), TESS_EINVAL,
                "tess_predict_map: w is NULL");
    CHECK_FAILS(tess_predict_map(predict, x, w, &half), TESS_EINVAL,
                "tess_predict_map: low.dtype is BF16, must be F32");
    CHECK_FAILS(tess_predict_map_backward(predict, x, low, NULL, 0, NULL), TESS_EINVAL,
                "tess_predict_map_backward: dw is NULL");
    CHECK_FAILS(tess_predict_map_backward(predict, x, NULL, NULL, 0, w), TESS_EINVAL,
                "tess_predict_map_backward: dlow is NULL");
    CHECK_FAILS(tess_predict_map_backward(predict, x, low, far, 0, w), TESS_EINVAL,
                "tess_predict_map_backward: n_rows is 0, must be 1..37");
    CHECK_FAILS(tess_predict_map_backward(predict, x, low, far, 2, w), TESS_EINVAL,
                "tess_predict_map_backward: rows[1] is 37, must be 0..36");
    tess_predict_destroy(predict);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_and_gradients_are_those_of_double_precision),
    cmocka_unit_test(one_key_leaves_nothing_to_learn),
    cmocka_unit_test(the_reference_meets_finite_differences),
    cmocka_unit_test(gradients_of_maps_meet_finite_differences),
    cmocka_unit_test(maps_are_those_of_double_precision),
    cmocka_unit_test(bits_do_not_depend_on_threads),
    cmocka_unit_test(the_loss_alone_is_the_same_and_writes_no_gradient),
    cmocka_unit_test(a_perfect_student_has_nothing_to_learn),
    cmocka_unit_test(rows_of_zeros_have_no_direction_and_no_gradient),
    cmocka_unit_test(what_is_not_finite_shows_in_its_head_alone),
    cmocka_unit_test(wrong_shapes_are_named),
    cmocka_unit_test(wrong_inputs_are_named),
};

RUN_TESTS(tests)
