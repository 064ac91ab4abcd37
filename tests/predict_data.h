/* SPDX-License-Identifier: Apache-2.0 */
/* predict_data.h - problems of a predictor's loss, for the tests: views with gaps, and shapes. */
#ifndef TESS_PREDICT_DATA_H
#define TESS_PREDICT_DATA_H

#include "test.h"

#include "attn/predict_internal.h"

#include <stdlib.h>

enum { GAP = 3, ROWS_MAX = 512 }; /* floats between rows, never read */

typedef struct {
    tess_predict_shape shape;
    int n_rows;
    float *data[6]; /* q, k, q_low, k_low, dq, dk */
    tess_view view[6];
    int64_t rows[ROWS_MAX];
    tess_predict_in in;
    double *loss;
} problem;

/* As [batch, tokens, heads, dim + GAP], which no kernel may take for contiguous. */
static inline int64_t make_view(problem *p, int i, int64_t tokens, int dim)
{
    const int64_t row = dim + GAP, heads = p->shape.heads,
                  n = p->shape.batch * tokens * heads * row;
    p->data[i] = malloc(sizeof(float) * (size_t)n);
    assert_non_null(p->data[i]);
    fill_normal(p->data[i], (size_t)n, 100 + (uint64_t)i);
    p->view[i] = (tess_view){p->data[i], TESS_DTYPE_F32, heads * tokens * row, row, heads * row};
    return n;
}

static inline problem problem_make(const tess_predict_shape *shape, int n_rows,
                                   tess_predict_loss loss)
{
    problem p = {.shape = *shape, .n_rows = n_rows};
    const int64_t tokens = shape->tokens;
    const int dims[] = {shape->head_dim, shape->head_dim, shape->rank,
                        shape->rank,     shape->rank,     shape->rank};
    for (int i = 0; i < 6; i++)
        make_view(&p, i, i == 4 ? n_rows : tokens, dims[i]);
    for (int i = 0; i < n_rows; i++)
        p.rows[i] = i * tokens / n_rows;
    p.in = (tess_predict_in){.n_rows = n_rows, .loss = loss};
    p.loss = malloc(sizeof(double) * (size_t)shape->batch * (size_t)shape->heads);
    assert_non_null(p.loss);
    return p;
}

/* The inputs point into the problem, which may have moved. */
static inline const tess_predict_in *in_of(problem *p)
{
    p->in.q = &p->view[0];
    p->in.k = &p->view[1];
    p->in.q_low = &p->view[2];
    p->in.k_low = &p->view[3];
    p->in.rows = p->rows;
    return &p->in;
}

static inline void problem_free(problem *p)
{
    for (int i = 0; i < 6; i++)
        free(p->data[i]);
    free(p->loss);
}

static inline void run(tess_ctx *ctx, problem *p)
{
    tess_predict *predict = NULL;
    CHECK_OK(tess_predict_create(ctx, &p->shape, &predict));
    CHECK_OK(tess_predict_loss_run(predict, in_of(p), p->loss, &p->view[4], &p->view[5]));
    tess_predict_destroy(predict);
}

/* A view's rows one after the other. */
static inline float *packed(const problem *p, int i, int64_t tokens, int dim)
{
    float *out = malloc(sizeof *out * (size_t)(p->shape.batch * p->shape.heads * tokens * dim));
    assert_non_null(out);
    float *to = out;
    for (int64_t b = 0; b < p->shape.batch; b++)
        for (int64_t h = 0; h < p->shape.heads; h++)
            for (int64_t t = 0; t < tokens; t++, to += dim)
                memcpy(to, tess__view_row(&p->view[i], b, h, t), sizeof *to * (size_t)dim);
    return out;
}

/* batch, heads, head_dim, rank, tokens, rows: the smallest; odd sizes; ranks that fill no panel;
 * several parts and a tail; more rows than one panel. */
static const tess_predict_shape shapes[] = {
    {1, 1, 8, 8, 1, 1},      {2, 3, 16, 8, 37, 5},      {1, 2, 48, 16, 300, 48},
    {2, 1, 64, 24, 129, 17}, {1, 1, 128, 16, 4500, 33}, {1, 2, 40, 64, 2049, 70},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

#endif
