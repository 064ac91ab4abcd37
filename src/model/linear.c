/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - linear layers in fp32: y = x w^T + bias, and its gradients.
 *
 *   forward    y = x w^T + bias      (rows, out) = (rows, in) (out, in)^T
 *   backward   dx = dy w             (rows, in)  = (rows, out) (out, in)
 *              dw = dy^T x           (out, in)   = (rows, out)^T (rows, in)
 *              dbias = sums of dy's columns, in double, row after row
 *
 * Each result is cut into blocks whose size follows from its shape, and each block is one call of
 * oneDNN's product on one thread over the whole sum: so the bits do not depend on the number of
 * threads. Work: 2 rows in out flop for each product. Memory: oneDNN's packing buffers, on each
 * thread.
 *
 * What follows a product element by element (bias, gate and residual, GELU) can be done by a
 * `epilogue` on each block while it is in the cache, so that it costs no pass over memory.
 */
#include "model_internal.h"

#include <omp.h>
#include <string.h>

enum { SUM_COLUMNS = 64 };

/* c = op(a) op(b), or c += if add: (m, n), row-major; op is the transpose where its letter is 'T'.
 */
typedef struct {
    char trans_a, trans_b;
    int64_t m, n, k;
    const float *a, *b;
    int64_t lda, ldb;
    float *c;
    int add;
    const tess__epilogue *epilogue;
    int64_t block_m, block_n; /* set by choose_blocks */
} product;

static int64_t round_up(int64_t x)
{
    return (x + 15) / 16 * 16;
}

/* oneDNN packs its operands unless 1/m + 1/n is 0.0038 or more; then it reads them in place. That
 * is the fastest, and small blocks are as fast as large ones, unless rows of an operand that is
 * walked across them are a multiple of 2 KiB apart: they fall into the same sets of the cache, and
 * the product takes twice as long. So those, and x w^T, get blocks just large enough to be packed,
 * an even number of them, and the others get small blocks, for many threads. */
static void choose_blocks(product *p)
{
    enum { COLUMNS = 1024, ROWS_MAX = 2048, SET_STRIDE = 512 };
    const double packed = 0.0036;
    const int across = p->trans_a == 'T' || p->trans_b == 'N';
    const int clashes = p->lda % SET_STRIDE == 0 || p->ldb % SET_STRIDE == 0;
    const int64_t n_pieces = (p->n + COLUMNS - 1) / COLUMNS;
    const int64_t columns = round_up((p->n + n_pieces - 1) / n_pieces);
    const double left = packed - 1.0 / (double)columns;
    const int64_t rows = left > 1.0 / ROWS_MAX ? (int64_t)(1.0 / left) + 1 : INT64_MAX;
    p->block_m = 128;
    p->block_n = 192;
    if ((across && !clashes) || p->m < rows)
        return;
    const int64_t fit = p->m / rows, m_pieces = fit > 1 ? fit / 2 * 2 : 1;
    p->block_n = columns;
    p->block_m = round_up((p->m + m_pieces - 1) / m_pieces);
}

/* The block of c that begins at row i and column j. Returns 1 if oneDNN failed. */
static int run_block(const product *p, int64_t i, int64_t j)
{
    const int64_t m = p->m - i < p->block_m ? p->m - i : p->block_m;
    const int64_t n = p->n - j < p->block_n ? p->n - j : p->block_n;
    const float *a = p->a + (p->trans_a == 'T' ? i : i * p->lda);
    const float *b = p->b + (p->trans_b == 'T' ? j * p->ldb : j);
    float *c = p->c + i * p->n + j;
    if (tess__sgemm(&(tess__sgemm_call){p->trans_a, p->trans_b, m, n, p->k, a, p->lda, b, p->ldb,
                                        p->add, c, p->n}))
        return 1;
    for (int64_t row = 0; p->epilogue && row < m; row++)
        p->epilogue->fn(p->epilogue->user, p->epilogue->row + i + row, j, n, c + row * p->n);
    return 0;
}

static tess_status run_product(const tess_ctx *ctx, product *p)
{
    choose_blocks(p);
    const int64_t across = (p->n + p->block_n - 1) / p->block_n;
    const int64_t blocks = (p->m + p->block_m - 1) / p->block_m * across;
    int failed = 0;
    TESS_TRY(tess__sgemm_ready());
#pragma omp parallel num_threads(ctx->threads) reduction(| : failed)
    {
        /* oneDNN asks whether it is in a parallel region, and one thread is none. This is the
         * setting of the thread's own task, and ends with the region. */
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < blocks; block++)
            failed |= run_block(p, block / across * p->block_m, block % across * p->block_n);
    }
    if (failed)
        return tess__fail(TESS_ENOMEM, "oneDNN has no memory for a product of %lld x %lld x %lld",
                          (long long)p->m, (long long)p->n, (long long)p->k);
    return TESS_OK;
}

/* ---- for the rest of the model: arguments are right ------------------------------------------ */

typedef struct {
    const tess__kernels *kernels;
    const float *bias;
} adder;

static void add_bias(const void *user, int64_t row, int64_t column, int64_t n, float *y)
{
    const adder *a = user;
    (void)row;
    a->kernels->epilogue(y, a->bias + column, NULL, NULL, n);
}

tess_status tess__linear_forward(const tess_ctx *ctx, const tess_linear_shape *s, const float *x,
                                 const float *w, const float *bias, float *y,
                                 const tess__epilogue *epilogue)
{
    const adder bias_adder = {ctx->kernels, bias};
    const tess__epilogue plain = {add_bias, &bias_adder, epilogue ? epilogue->row : 0};
    const tess__epilogue *last = epilogue ? epilogue : bias ? &plain : NULL;
    return run_product(
        ctx, &(product){'N', 'T', s->rows, s->out, s->in, x, w, s->in, s->in, y, .epilogue = last});
}

tess_status tess__linear_dx(const tess_ctx *ctx, const tess_linear_shape *s, const float *dy,
                            const float *w, float *dx, int add, const tess__epilogue *epilogue)
{
    return run_product(ctx, &(product){'N', 'N', s->rows, s->in, s->out, dy, w, s->out, s->in, dx,
                                       .add = add, .epilogue = epilogue});
}

tess_status tess__linear_dw(const tess_ctx *ctx, const tess_linear_shape *s, const float *dy,
                            const float *x, float *dw, int add, const tess__epilogue *epilogue)
{
    if (s->rows == 0) {
        if (!add)
            memset(dw, 0, (size_t)(s->in * s->out) * sizeof *dw);
        return TESS_OK;
    }
    return run_product(ctx, &(product){'T', 'N', s->out, s->in, s->rows, dy, x, s->out, s->in, dw,
                                       .add = add, .epilogue = epilogue});
}

void tess__column_sums(const tess_ctx *ctx, int64_t rows, int64_t columns, const float *x,
                       float *sums, int add)
{
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t j = 0; j < columns; j += SUM_COLUMNS) {
        const int64_t n = columns - j < SUM_COLUMNS ? columns - j : SUM_COLUMNS;
        double sum[SUM_COLUMNS] = {0};
        ctx->kernels->column_sums(sum, x + j, columns, rows, n);
        for (int64_t i = 0; i < n; i++)
            sums[j + i] = (float)(add ? sums[j + i] + sum[i] : sum[i]);
    }
}

/* ---- public ---------------------------------------------------------------------------------- */

static tess_status check_shape(const char *who, const tess_ctx *ctx, const tess_linear_shape *s)
{
    enum { MOST = 1 << 30 };
    if (!ctx || !s)
        return tess__invalid(who, "%s is NULL", !ctx ? "ctx" : "shape");
    const struct {
        const char *name;
        int64_t value, least;
    } sides[] = {{"rows", s->rows, 0}, {"in", s->in, 1}, {"out", s->out, 1}};
    for (int i = 0; i < 3; i++)
        TESS_TRY(tess__check_range(who, sides[i].name, sides[i].value, sides[i].least, MOST));
    return TESS_OK;
}

tess_status tess_linear_forward(const tess_ctx *ctx, const tess_linear_shape *shape, const float *x,
                                const float *w, const float *bias, float *y)
{
    TESS_TRY(check_shape(__func__, ctx, shape));
    TESS_REQUIRE(x, w, y);
    return tess__linear_forward(ctx, shape, x, w, bias, y, NULL);
}

tess_status tess_linear_backward(const tess_ctx *ctx, const tess_linear_shape *shape,
                                 const float *x, const float *w, const float *dy, float *dx,
                                 float *dw, float *dbias)
{
    TESS_TRY(check_shape(__func__, ctx, shape));
    TESS_REQUIRE(dy);
    if ((dx && !w) || (dw && !x))
        return tess__invalid(__func__, "%s is NULL, must be given for %s", dx && !w ? "w" : "x",
                             dx && !w ? "dx" : "dw");
    if (dx)
        TESS_TRY(tess__linear_dx(ctx, shape, dy, w, dx, 0, NULL));
    if (dw)
        TESS_TRY(tess__linear_dw(ctx, shape, dy, x, dw, 0, NULL));
    if (dbias)
        tess__column_sums(ctx, shape->rows, shape->out, dy, dbias, 0);
    return TESS_OK;
}
