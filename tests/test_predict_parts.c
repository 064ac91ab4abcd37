/* SPDX-License-Identifier: Apache-2.0 */
/* test_predict_parts.c - the predictor's loss with the keys shared out: parts against the whole. */
#include "predict_data.h"

enum { PARTS_MAX = 5 };

/* A problem whose queries are gathered, as ranks hold them: (n_rows, batch, heads, dim). */
typedef struct {
    problem whole;
    float *rows[2]; /* of q, of q_low */
    tess_view view[2];
} gathered;

static gathered gather(const tess_predict_shape *shape, int n_rows, tess_predict_loss loss)
{
    gathered g = {.whole = problem_make(shape, n_rows, loss)};
    const int64_t heads = (int64_t)shape->batch * shape->heads;
    for (int i = 0; i < 2; i++) {
        const int64_t dim = i ? shape->rank : shape->head_dim;
        g.rows[i] = malloc(sizeof(float) * (size_t)(heads * n_rows * dim));
        assert_non_null(g.rows[i]);
        g.view[i] = (tess_view){g.rows[i], TESS_DTYPE_F32, shape->heads * dim, dim, heads * dim};
        for (int64_t b = 0; b < shape->batch; b++)
            for (int64_t h = 0; h < shape->heads; h++)
                for (int64_t row = 0; row < n_rows; row++)
                    memcpy(tess__view_row(&g.view[i], b, h, row),
                           tess__view_row(&g.whole.view[i ? 2 : 0], b, h, g.whole.rows[row]),
                           sizeof(float) * (size_t)dim);
    }
    return g;
}

static void drop(gathered *g)
{
    problem_free(&g->whole);
    free(g->rows[0]);
    free(g->rows[1]);
}

static tess_view from_token(const tess_view *view, int64_t token)
{
    tess_view part = *view;
    part.data = (float *)view->data + token * view->stride_s;
    return part;
}

/* One part's keys, and what it gives. */
typedef struct {
    tess_predict *predict;
    tess_view k, k_low, dq, dk;
    tess_predict_in in;
    double *stats, *loss;
    float *dq_low;
} share;

static share make_share(tess_ctx *ctx, gathered *g, int64_t begin, int64_t end)
{
    tess_predict_shape shape = g->whole.shape;
    const int64_t n_rows = g->whole.n_rows, rank = shape.rank;
    const size_t heads = (size_t)shape.batch * (size_t)shape.heads;
    share s = {.k = from_token(&g->whole.view[1], begin),
               .k_low = from_token(&g->whole.view[3], begin),
               .dk = from_token(&g->whole.view[5], begin),
               .in = *in_of(&g->whole)};
    shape.tokens = end - begin;
    CHECK_OK(tess_predict_create(ctx, &shape, &s.predict));
    s.stats = malloc(sizeof(double) * heads * (size_t)n_rows * TESS_PREDICT_STATS);
    s.loss = malloc(sizeof(double) * heads);
    s.dq_low = malloc(sizeof(float) * heads * (size_t)(n_rows * rank));
    assert_true(s.stats && s.loss && s.dq_low);
    s.dq = (tess_view){s.dq_low, TESS_DTYPE_F32, shape.heads * n_rows * rank, n_rows * rank, rank};
    return s;
}

static tess_predict_in *in_share(gathered *g, share *s)
{
    s->in.q = &g->view[0];
    s->in.q_low = &g->view[1];
    s->in.k = &s->k;
    s->in.k_low = &s->k_low;
    s->in.rows = NULL;
    return &s->in;
}

static void drop_share(share *s)
{
    tess_predict_destroy(s->predict);
    free(s->stats);
    free(s->loss);
    free(s->dq_low);
}

/* Both steps on all parts; the sums of losses and of dq_low come to lie in the first. */
static void run_parts(gathered *g, share *s, int parts)
{
    const tess_predict_shape *shape = &g->whole.shape;
    const int64_t heads = (int64_t)shape->batch * shape->heads, rows = heads * g->whole.n_rows;
    for (int i = 0; i < parts; i++)
        CHECK_OK(tess_predict_stats_run(s[i].predict, in_share(g, &s[i]), s[i].stats));
    for (int i = 1; i < parts; i++)
        CHECK_OK(tess_predict_stats_merge(g->whole.in.loss, rows, s[i].stats, s[0].stats));
    for (int i = 0; i < parts; i++)
        CHECK_OK(tess_predict_loss_part(s[i].predict, in_share(g, &s[i]), s[0].stats, shape->tokens,
                                        s[i].loss, &s[i].dq, &s[i].dk));
    for (int i = 1; i < parts; i++) {
        for (int64_t h = 0; h < heads; h++)
            s[0].loss[h] += s[i].loss[h];
        for (int64_t n = 0; n < rows * shape->rank; n++)
            s[0].dq_low[n] += s[i].dq_low[n];
    }
}

/* The parts' dk_low are written where the whole's were; each sum has its roundings in another
 * order: a few 2^-24 of it. */
static void compare_with_parts(tess_ctx *ctx, const tess_predict_shape *shape,
                               tess_predict_loss loss, int parts)
{
    gathered g = gather(shape, shape->rows, loss);
    problem *p = &g.whole;
    const size_t heads = (size_t)shape->batch * (size_t)shape->heads, rank = (size_t)shape->rank;
    const size_t n_q = heads * (size_t)shape->rows * rank,
                 n_k = heads * (size_t)shape->tokens * rank;
    run(ctx, p);
    float *dq = packed(p, 4, shape->rows, shape->rank);
    float *dk = packed(p, 5, shape->tokens, shape->rank);
    double *want = malloc(sizeof *want * (n_q + n_k));
    assert_non_null(want);
    for (size_t i = 0; i < n_q; i++)
        want[i] = (double)dq[i];
    for (size_t i = 0; i < n_k; i++)
        want[n_q + i] = (double)dk[i];
    share s[PARTS_MAX];
    for (int i = 0; i < parts; i++)
        s[i] = make_share(ctx, &g, i * shape->tokens / parts, (i + 1) * shape->tokens / parts);
    run_parts(&g, s, parts);
    float *dk_parts = packed(p, 5, shape->tokens, shape->rank);
    if (parts == 1) {
        assert_memory_equal(s[0].loss, p->loss, sizeof(double) * heads);
        assert_memory_equal(s[0].dq_low, dq, sizeof(float) * n_q);
        assert_memory_equal(dk_parts, dk, sizeof(float) * n_k);
    }
    CHECK_CLOSE(s[0].loss, p->loss, heads, 1e-6);
    CHECK_CLOSE(s[0].dq_low, want, n_q, 2e-6);
    CHECK_CLOSE(dk_parts, want + n_q, n_k, 2e-6);
    for (int i = 0; i < parts; i++)
        drop_share(&s[i]);
    free(dq);
    free(dk);
    free(dk_parts);
    free(want);
    drop(&g);
}

static void compare_all(tess_ctx *ctx)
{
    for (int i = 1; i < SHAPES; i++)
        for (int loss = 0; loss < 2; loss++)
            for (int parts = 1; parts <= PARTS_MAX; parts += 2)
                compare_with_parts(ctx, &shapes[i], (tess_predict_loss)loss, parts);
}

static void parts_of_the_keys_together_give_what_one_has(void **state)
{
    (void)state;
    with_every_isa(compare_all);
}

/* More sampled queries than a part has keys. */
static void a_part_may_have_a_single_key(void **state)
{
    (void)state;
    static const tess_predict_shape shape = {1, 2, 16, 8, 5, 5};
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int loss = 0; loss < 2; loss++)
        compare_with_parts(ctx, &shape, (tess_predict_loss)loss, 5);
    tess_ctx_destroy(ctx);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    gathered g = gather(&shapes[1], 5, TESS_PREDICT_KL);
    share s = make_share(ctx, &g, 0, 37);
    tess_predict_in *in = in_share(&g, &s);
    const tess_predict_loss wrong = (tess_predict_loss)2;
    CHECK_FAILS(tess_predict_stats_run(NULL, in, s.stats), TESS_EINVAL,
                "tess_predict_stats_run: predict is NULL");
    CHECK_FAILS(tess_predict_stats_run(s.predict, NULL, s.stats), TESS_EINVAL,
                "tess_predict_stats_run: in is NULL");
    CHECK_FAILS(tess_predict_stats_run(s.predict, in, NULL), TESS_EINVAL,
                "tess_predict_stats_run: stats is NULL");
    CHECK_FAILS(tess_predict_stats_merge(wrong, 1, s.stats, s.stats), TESS_EINVAL,
                "tess_predict_stats_merge: loss is 2, must be KL (0) or COSINE (1)");
    CHECK_FAILS(tess_predict_stats_merge(TESS_PREDICT_KL, -1, s.stats, s.stats), TESS_EINVAL,
                "tess_predict_stats_merge: rows is -1, must be 0 or more");
    CHECK_FAILS(tess_predict_stats_merge(TESS_PREDICT_KL, 1, NULL, s.stats), TESS_EINVAL,
                "tess_predict_stats_merge: part is NULL");
    CHECK_FAILS(tess_predict_stats_merge(TESS_PREDICT_KL, 1, s.stats, NULL), TESS_EINVAL,
                "tess_predict_stats_merge: stats is NULL");
    CHECK_OK(tess_predict_stats_merge(TESS_PREDICT_KL, 0, NULL, NULL));
    CHECK_FAILS(tess_predict_loss_part(NULL, in, s.stats, 37, s.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_part: predict is NULL");
    CHECK_FAILS(tess_predict_loss_part(s.predict, in, NULL, 37, s.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_part: stats is NULL");
    CHECK_FAILS(tess_predict_loss_part(s.predict, in, s.stats, 36, s.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_part: keys is 36, must be this part's 37 or more");
    CHECK_FAILS(tess_predict_loss_part(s.predict, in, s.stats, 37, NULL, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_part: loss_heads is NULL");
    CHECK_FAILS(tess_predict_loss_part(s.predict, in, s.stats, 37, s.loss, &s.dq, NULL),
                TESS_EINVAL,
                "tess_predict_loss_part: dk_low is NULL, both gradients are given or none");
    in->k = NULL;
    CHECK_FAILS(tess_predict_stats_run(s.predict, in, s.stats), TESS_EINVAL,
                "tess_predict_stats_run: k is NULL");
    CHECK_FAILS(tess_predict_loss_part(s.predict, in, s.stats, 37, s.loss, NULL, NULL), TESS_EINVAL,
                "tess_predict_loss_part: k is NULL");
    drop_share(&s);
    drop(&g);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_of_the_keys_together_give_what_one_has),
    cmocka_unit_test(a_part_may_have_a_single_key),
    cmocka_unit_test(wrong_inputs_are_named),
};

RUN_TESTS(tests)
