/* SPDX-License-Identifier: Apache-2.0 */
/* select_data.h - problems for the tests of selectors, and their answers in double precision. */
#ifndef TESS_SELECT_DATA_H
#define TESS_SELECT_DATA_H

#include "attn/select_internal.h"
#include "ref/ref.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { GAP = 3 }; /* floats between rows, never read */

/* Tensors as [batch, tokens, heads, dim + GAP], which no kernel may take for contiguous. */
typedef struct {
    tess_sel_shape shape;
    int dim;
    int32_t n_q, n_k;
    int64_t *bounds;       /* of groups, then of units */
    tess_sel_shape ranges; /* the shape, by these bounds */
    float *q_data, *k_data;
    tess_view q, k;
} problem;

static const int64_t bounds_q_odd[] = {0, 1, 9, 20}, bounds_k_odd[] = {0, 4, 5, 16, 17, 30};

/* The smallest, tails on both sides, single keys, blocks, bounds, several heads. */
static const tess_sel_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, NULL, NULL, 0, 0},
    {1, 1, 5, 7, 2, 1, NULL, NULL, 0, 0},
    {2, 3, 70, 90, 16, 1, NULL, NULL, 0, 0},
    {1, 2, 64, 96, 16, 8, NULL, NULL, 0, 0},
    {1, 2, 61, 301, 8, 16, NULL, NULL, 0, 0},
    {1, 1, 130, 2100, 100, 1, NULL, NULL, 0, 0},
    {1, 1, 20, 30, 0, 0, bounds_q_odd, bounds_k_odd, 3, 5},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static inline tess_view view_of(float *data, int heads, int64_t tokens, int dim)
{
    const int64_t row = dim + GAP;
    return (tess_view){data, TESS_DTYPE_F32, heads * tokens * row, row, heads * row};
}

static inline float *fill(uint64_t stream, int64_t n, int integers)
{
    float *x = malloc(sizeof *x * (size_t)(n + 1));
    assert_non_null(x);
    CHECK_OK(tess_random_normal(42, stream, 0, x, (size_t)n));
    for (int64_t i = 0; i < n && integers; i++)
        x[i] = nearbyintf(x[i]);
    return x;
}

static inline const int64_t *fill_bounds(int64_t *to, const int64_t *bounds, int32_t n,
                                         int32_t size, int64_t tokens)
{
    for (int32_t i = 0; i <= n; i++)
        to[i] = bounds ? bounds[i] : i < n ? (int64_t)i * size : tokens;
    return to;
}

/* integers: every score is exact in fp32, and many are equal. */
static inline problem problem_make(const tess_sel_shape *shape, int dim, int integers)
{
    problem p = {.shape = *shape, .dim = dim};
    CHECK_OK(tess__sel_shape_check("test", shape, &p.n_q, &p.n_k));
    p.bounds = malloc(sizeof *p.bounds * ((size_t)p.n_q + (size_t)p.n_k + 2));
    assert_non_null(p.bounds);
    const int64_t *q = fill_bounds(p.bounds, shape->bounds_q, p.n_q, shape->group, shape->tokens_q);
    const int64_t *k =
        fill_bounds(p.bounds + p.n_q + 1, shape->bounds_k, p.n_k, shape->unit, shape->tokens_k);
    p.ranges = p.shape;
    p.ranges.bounds_q = q;
    p.ranges.bounds_k = k;
    p.ranges.n_q = p.n_q;
    p.ranges.n_k = p.n_k;
    const int64_t rows = (int64_t)shape->batch * shape->heads, row = dim + GAP;
    p.q_data = fill(1, rows * shape->tokens_q * row, integers);
    p.k_data = fill(2, rows * shape->tokens_k * row, integers);
    p.q = view_of(p.q_data, shape->heads, shape->tokens_q, dim);
    p.k = view_of(p.k_data, shape->heads, shape->tokens_k, dim);
    return p;
}

static inline void problem_free(problem *p)
{
    free(p->q_data);
    free(p->k_data);
    free(p->bounds);
}

static inline int64_t bound_q(const problem *p, int64_t g)
{
    return p->ranges.bounds_q[g];
}

static inline int64_t bound_k(const problem *p, int64_t u)
{
    return p->ranges.bounds_k[u];
}

/* ---- answers: scores (n_k) of the units for one group ---------------------------------------- */

static inline void ref_group(tess_ctx *ctx, const problem *p, const tess_selector_opts *opts,
                             float scale, int64_t list, double *scores)
{
    const tess_select_in in = {.q = &p->q, .k = &p->k, .head_dim = p->dim, .scale = scale};
    const int64_t head = list / p->n_q;
    CHECK_OK(ref_select_scores(ctx, opts, &in, &p->ranges, head / p->shape.heads,
                               head % p->shape.heads, (int32_t)(list % p->n_q), scores));
}

/* Softmax mass of the units for queries begin .. end - 1; lse may be NULL. */
static inline void ref_mass(tess_ctx *ctx, const problem *p, int64_t head, int64_t begin,
                            int64_t end, float scale, double *mass, double *lse)
{
    const tess_select_in in = {.q = &p->q, .k = &p->k, .head_dim = p->dim, .scale = scale};
    CHECK_OK(ref_select_mass(ctx, &in, &p->ranges, head / p->shape.heads, head % p->shape.heads,
                             begin, end, mass, lse));
}

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct {
    double score;
    int32_t unit;
} ranked;

static inline int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Units by descending score, equals by ascending number. */
static inline ranked *rank_units(const double *scores, int32_t n)
{
    ranked *r = malloc(sizeof *r * (size_t)(n + 1));
    assert_non_null(r);
    for (int32_t u = 0; u < n; u++)
        r[u] = (ranked){scores[u], u};
    qsort(r, (size_t)n, sizeof *r, by_rank);
    return r;
}

/* Every list ascends within 0..n_k-1. */
static inline void check_valid(const tess_selection *sel)
{
    assert_int_equal(sel->offsets[0], 0);
    for (int64_t list = 0; list < sel->lists; list++) {
        assert_true(sel->offsets[list] <= sel->offsets[list + 1]);
        for (int64_t i = sel->offsets[list]; i < sel->offsets[list + 1]; i++) {
            assert_in_range(sel->indices[i], 0, sel->n_k - 1);
            if (i > sel->offsets[list])
                assert_true(sel->indices[i] > sel->indices[i - 1]);
        }
    }
    assert_true(sel->offsets[sel->lists] <= sel->capacity);
}

/* The list holds the top units of these scores, where scores that differ by less than tol may
 * trade places; tol 0 demands the exact list, ties to the lowest unit. Returns its length. */
static inline int64_t check_top(const tess_selection *sel, int64_t list, const double *scores,
                                double tol)
{
    const int64_t begin = sel->offsets[list], k = sel->offsets[list + 1] - begin;
    ranked *r = rank_units(scores, sel->n_k);
    assert_true(ref_select_miss(scores, sel->n_k, sel->indices + begin, k) <= 2 * tol);
    char *in = calloc((size_t)sel->n_k + 1, 1);
    assert_non_null(in);
    for (int64_t i = 0; i < k; i++) {
        const double score = scores[sel->indices[begin + i]];
        if (score < r[k - 1].score - tol)
            fail_msg("list %d takes unit %d of score %.9g, its least is %.9g", (int)list,
                     sel->indices[begin + i], score, r[k - 1].score);
        in[sel->indices[begin + i]] = 1;
    }
    for (int64_t i = 0; i < k; i++)
        if (!in[r[i].unit] && (tol == 0.0 || r[i].score > r[k - 1].score + tol))
            fail_msg("list %d leaves out unit %d of score %.9g, its least is %.9g", (int)list,
                     r[i].unit, r[i].score, r[k - 1].score);
    free(in);
    free(r);
    return k;
}

static inline tess_selection *selection_make(tess_ctx *ctx, const problem *p)
{
    tess_selection *sel = NULL;
    const int64_t all = (int64_t)p->shape.batch * p->shape.heads * p->n_q * p->n_k;
    CHECK_OK(tess_selection_create(ctx, &p->shape, all, &sel));
    return sel;
}

/* A selection made by a selector of these options. */
static inline tess_selection *select_by(tess_ctx *ctx, const problem *p,
                                        const tess_selector_opts *opts, const tess_select_in *in)
{
    tess_selector *selector = NULL;
    tess_selection *sel = selection_make(ctx, p);
    CHECK_OK(tess_selector_create(ctx, opts, &selector));
    CHECK_OK(tess_selector_run(selector, in, sel));
    check_valid(sel);
    tess_selector_destroy(selector);
    return sel;
}

#endif
