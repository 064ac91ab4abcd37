/* SPDX-License-Identifier: Apache-2.0 */
/* muon.c - Muon: the momentum of a matrix, made nearly orthogonal, is the step.
 *
 *   m = b m + (1 - b) g,  u = (1 - b) g + b m,  x = u / |u|,
 *   five times:  A = x x^T,  x = a x + (b A + c A A) x,   a, b, c = 3.4445, -4.7750, 2.0315
 *   p = p - lr (sqrt(max(1, rows / cols)) x + decay p)
 *
 * (Keller Jordan: Muon, an optimizer for hidden layers in neural networks, 2024,
 * https://kellerjordan.github.io/posts/muon/, whose coefficients, momentum and scale these are.)
 * The iteration moves every singular value into about 0.7..1.2 and is done on the shorter side:
 * where there are more rows than columns, A = x^T x and x = a x + x (b A + c A A), which is the
 * same polynomial without a transpose. fp32 throughout, through the products of linear layers,
 * whose bits do not depend on threads; so small matrices are distributed over threads, a large one
 * is computed by all of them, and the result is the same.
 *
 * Work: 5 (4 k^2 l + 2 k^3) flop with k the shorter and l the longer side. Scratch: x, its
 * successor and two k x k matrices.
 */
#include "optim.h"

#include "tessera/advanced/pass.h"
#include "tessera/model.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { STEPS = 5, SMALL = 1 << 18 };
static const float newton_a = 3.4445f, newton_b = -4.7750f, newton_c = 2.0315f;

static int64_t shorter(int64_t rows, int64_t cols)
{
    return TESS_MIN(rows, cols);
}

int64_t tess__muon_scratch(int64_t rows, int64_t cols)
{
    const int64_t k = shorter(rows, cols);
    return 2 * rows * cols + 2 * k * k;
}

int tess__muon_small(int64_t rows, int64_t cols)
{
    return rows * cols <= SMALL;
}

/* ---- elementwise passes, in pieces of fixed length ------------------------------------------- */

static int64_t pieces_of(int64_t n)
{
    return (n + TESS_PIECE - 1) / TESS_PIECE;
}

static size_t length(int64_t n, int64_t at)
{
    return (size_t)TESS_MIN(n - at, TESS_PIECE);
}

/* The norm of x; sums has room for the pieces. */
static double norm(const tess_ctx *ctx, const float *x, int64_t n, double *sums)
{
    const int64_t pieces = pieces_of(n);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++)
        sums[i] = ctx->kernels->sum_squares(x + i * TESS_PIECE, length(n, i * TESS_PIECE));
    double sum = 0.0;
    for (int64_t i = 0; i < pieces; i++)
        sum += sums[i];
    return sqrt(sum);
}

/* y = a x + b y */
static void mix(const tess_ctx *ctx, float a, const float *x, float b, float *y, int64_t n)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i += TESS_PIECE)
        ctx->kernels->mix(a, x + i, b, y + i, length(n, i));
}

static void nesterov(const tess_ctx *ctx, const tess__optim_step *step, const float *g, float *m,
                     float *u, int64_t n)
{
    const float momentum = (float)step->momentum, scale = (float)step->scale;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i += TESS_PIECE)
        ctx->kernels->momentum(momentum, scale, g + i, m + i, u + i, length(n, i));
}

static void apply_update(const tess_ctx *ctx, const tess__param_update *d, const float *u, float *p,
                         float *ema, int64_t n)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i += TESS_PIECE)
        ctx->kernels->apply_update(d, u + i, p + i, ema ? ema + i : NULL, length(n, i));
}

/* ---- a matrix -------------------------------------------------------------------------------- */

/* next = (b A + c A A) x, or the same from the right; x: (rows, cols). */
static tess_status polynomial(const tess_ctx *ctx, int64_t rows, int64_t cols, const float *x,
                              float *gram, float *square, float *next)
{
    const int64_t k = shorter(rows, cols);
    const tess_linear_shape wide = {rows, cols, rows}, tall = {rows, cols, cols}, small = {k, k, k};
    if (rows <= cols)
        TESS_TRY(tess_linear_forward(ctx, &wide, x, x, NULL, gram)); /* x x^T */
    else
        TESS_TRY(tess_linear_backward(ctx, &tall, x, NULL, x, NULL, gram, NULL)); /* x^T x */
    TESS_TRY(tess_linear_forward(ctx, &small, gram, gram, NULL, square));
    mix(ctx, newton_b, gram, newton_c, square, k * k);
    if (rows <= cols)
        return tess_linear_backward(ctx, &wide, NULL, x, square, next, NULL, NULL);
    return tess_linear_backward(ctx, &tall, NULL, square, x, next, NULL, NULL);
}

/* Leaves the nearly orthogonal matrix of x in x or next; returns which in *end. */
static tess_status orthogonalise(const tess_ctx *ctx, const tess__optim_slot *slot, float *x,
                                 float *next, float **end)
{
    const int64_t k = shorter(slot->rows, slot->cols);
    float *gram = next + slot->count, *square = gram + k * k;
    for (int i = 0; i < STEPS; i++) {
        TESS_TRY(polynomial(ctx, slot->rows, slot->cols, x, gram, square, next));
        mix(ctx, newton_a, x, 1.0f, next, slot->count);
        float *done = x;
        x = next;
        next = done;
    }
    *end = x;
    return TESS_OK;
}

/* sums has room for the pieces of the matrix. */
static tess_status update_matrix(const tess_ctx *ctx, const tess__optim *optim,
                                 const tess__optim_step *step, const tess__optim_slot *slot,
                                 float *value, const float *gradient, float *scratch, double *sums)
{
    const int64_t n = slot->count, at = slot->at;
    float *x = scratch, *u = x + n;
    nesterov(ctx, step, gradient + at, optim->first + slot->first, u, n);
    /* 0 x is 0 as long as x is finite, which scratch need not be. */
    memset(x, 0, (size_t)n * sizeof *x);
    mix(ctx, (float)(1.0 / (norm(ctx, u, n, sums) + 1e-7)), u, 0.0f, x, n);
    TESS_TRY(orthogonalise(ctx, slot, x, u, &x));
    const double stretch =
        slot->rows > slot->cols ? sqrt((double)slot->rows / (double)slot->cols) : 1.0;
    const tess__param_update d = {
        .step_size = (float)(step->lr_muon * stretch),
        .decay = (float)(1.0 - step->lr_muon * (slot->decay ? step->weight_decay : 0.0)),
        .ema_rate = tess__ema_rate(step->ema, step->step),
    };
    apply_update(ctx, &d, x, value + at, optim->ema ? optim->ema + slot->first : NULL, n);
    return TESS_OK;
}

/* One thread per matrix. The first failure is repeated at the end, because the error sentence is
 * thread-local. */
static tess_status update_small(tess__optim *optim, const tess__optim_step *step, float *value,
                                const float *gradient)
{
    const tess_ctx alone = {.kernels = optim->ctx->kernels, .isa = optim->ctx->isa, .threads = 1};
    int failed = 0;
#pragma omp parallel for num_threads(optim->scratch_sets) schedule(dynamic) reduction(| : failed)
    for (int i = 0; i < optim->n_matrices; i++) {
        const tess__optim_slot *slot = &optim->slots[optim->matrices[i]];
        double sums[SMALL / TESS_PIECE];
        float *scratch = optim->scratch + omp_get_thread_num() * optim->scratch_each;
        if (tess__muon_small(slot->rows, slot->cols))
            failed |=
                update_matrix(&alone, optim, step, slot, value, gradient, scratch, sums) != TESS_OK;
    }
    if (failed)
        return tess__fail(TESS_ENOMEM, "tess_train_run: oneDNN has no memory for Muon's products");
    return TESS_OK;
}

tess_status tess__muon_update(tess__optim *optim, const tess__optim_step *step, float *value,
                              const float *gradient)
{
    TESS_TRY(update_small(optim, step, value, gradient));
    for (int i = 0; i < optim->n_matrices; i++) {
        const tess__optim_slot *slot = &optim->slots[optim->matrices[i]];
        if (!tess__muon_small(slot->rows, slot->cols))
            TESS_TRY(update_matrix(optim->ctx, optim, step, slot, value, gradient, optim->scratch,
                                   optim->sums));
    }
    return TESS_OK;
}
