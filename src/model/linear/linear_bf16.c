/* SPDX-License-Identifier: Apache-2.0 */
/* linear_bf16.c - linear layers with products in bf16: blocks of a result, over all threads.
 *
 * A result is cut into blocks, and each is computed by one thread over the whole depth, in floats
 * of that thread's memory: then what is there is added, the epilogue runs, and the rows are
 * written. Work: 2 rows in out flop for each product. Memory: 0.9 MiB a thread.
 */
#include "linear_bf16.h"

#include <omp.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 256, DEPTH = 512, SUM_COLUMNS = 64 };

/* One thread's memory. */
typedef struct {
    float *a, *b; /* ROWS * DEPTH, DEPTH * COLUMNS: factors as floats */
    float *c;     /* ROWS * COLUMNS: a block of the result */
    float *row;   /* COLUMNS: what is there */
} scratch;

struct tess__linear_bf16 {
    tess__arena arena;
    tess_ctx *ctx;
    scratch *scratch; /* of each thread */
};

/* c = op(a) op(b): (m, n), row-major; op is the transpose where its letter is 'T'. */
typedef struct {
    char trans_a, trans_b;
    int64_t m, n, k;
    tess__factor a, b;
    int64_t lda, ldb;
    tess__result c;
    const tess__epilogue *epilogue;
} product;

static size_t scratch_bytes(void)
{
    return tess__arena_round(ROWS * DEPTH * sizeof(float)) +
           tess__arena_round(DEPTH * COLUMNS * sizeof(float)) +
           tess__arena_round(ROWS * COLUMNS * sizeof(float)) +
           tess__arena_round(COLUMNS * sizeof(float));
}

size_t tess__linear_bf16_bytes(const tess_ctx *ctx)
{
    const size_t threads = (size_t)ctx->threads;
    return tess__arena_round(sizeof(tess__linear_bf16)) +
           tess__arena_round(threads * sizeof(scratch)) + threads * scratch_bytes() +
           TESS_CHUNK_OVERHEAD;
}

tess_status tess__linear_bf16_create(tess_ctx *ctx, tess__linear_bf16 **linear)
{
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, tess__linear_bf16_bytes(ctx) - TESS_CHUNK_OVERHEAD));
    tess__linear_bf16 *made = tess__arena_take(&arena, sizeof *made);
    scratch *all = tess__arena_take(&arena, (size_t)ctx->threads * sizeof *all);
    for (int i = 0; i < ctx->threads; i++) {
        all[i].a = tess__arena_take(&arena, ROWS * DEPTH * sizeof(float));
        all[i].b = tess__arena_take(&arena, DEPTH * COLUMNS * sizeof(float));
        all[i].c = tess__arena_take(&arena, ROWS * COLUMNS * sizeof(float));
        all[i].row = tess__arena_take(&arena, COLUMNS * sizeof(float));
    }
    *made = (tess__linear_bf16){.arena = arena, .ctx = ctx, .scratch = all};
    *linear = made;
    return TESS_OK;
}

void tess__linear_bf16_destroy(tess__linear_bf16 *linear)
{
    if (!linear)
        return;
    tess__arena arena = linear->arena;
    tess__arena_free(&arena);
}

const char *tess__linear_bf16_isa(const tess__linear_bf16 *linear, int *bf16)
{
    *bf16 = 0;
    return linear->ctx->isa;
}

/* ---- weights --------------------------------------------------------------------------------- */

size_t tess__bf16_weights_size(int64_t in, int64_t out)
{
    return (size_t)in * (size_t)out * sizeof(uint16_t);
}

void tess__bf16_weights_pack(const tess_ctx *ctx, int64_t in, int64_t out, const float *w,
                             void *packed)
{
    uint16_t *to = packed;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t i = 0; i < out; i++)
        ctx->kernels->bf16_from_f32(to + i * in, w + i * in, (size_t)in);
}

/* ---- a block --------------------------------------------------------------------------------- */

/* (rows, columns) of a factor from row i and column j on, as floats *ld apart. */
static const float *as_floats(const tess_ctx *ctx, tess__factor x, int64_t i, int64_t j,
                              int64_t rows, int64_t columns, float *room, int64_t *ld)
{
    if (x.dtype == TESS_DTYPE_F32)
        return (const float *)x.data + i * *ld + j;
    for (int64_t r = 0; r < rows; r++)
        ctx->kernels->f32_from_bf16(room + r * columns,
                                    (const uint16_t *)x.data + (i + r) * *ld + j, (size_t)columns);
    *ld = columns;
    return room;
}

/* The products of a block into s->c. Returns 1 if oneDNN failed. */
static int multiply(const tess_ctx *ctx, const product *p, int64_t i, int64_t j, int64_t m,
                    int64_t n, const scratch *s)
{
    int failed = 0;
    if (p->k == 0)
        memset(s->c, 0, ROWS * COLUMNS * sizeof *s->c);
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        const int64_t deep = TESS_MIN(p->k - k, DEPTH);
        tess__sgemm_call call = {p->trans_a, p->trans_b, m,      n,     deep, NULL,
                                 p->lda,     NULL,       p->ldb, k > 0, s->c, COLUMNS};
        call.a = p->trans_a == 'T' ? as_floats(ctx, p->a, k, i, deep, m, s->a, &call.lda)
                                   : as_floats(ctx, p->a, i, k, m, deep, s->a, &call.lda);
        call.b = p->trans_b == 'T' ? as_floats(ctx, p->b, j, k, n, deep, s->b, &call.ldb)
                                   : as_floats(ctx, p->b, k, j, deep, n, s->b, &call.ldb);
        failed |= tess__sgemm(&call);
    }
    return failed;
}

/* Row `row` of the block at column j: y are its n sums. */
static void write_row(const tess_ctx *ctx, const product *p, int64_t row, int64_t j, int64_t n,
                      float *y, float *there)
{
    const int64_t at = row * p->n + j;
    const int bf16 = p->c.dtype == TESS_DTYPE_BF16;
    float *whole = (float *)p->c.data + (bf16 ? 0 : at);
    uint16_t *half = (uint16_t *)p->c.data + (bf16 ? at : 0);
    if (p->c.add) {
        if (bf16)
            ctx->kernels->f32_from_bf16(there, half, (size_t)n);
        else
            memcpy(there, whole, (size_t)n * sizeof *there);
        for (int64_t c = 0; c < n; c++)
            y[c] += there[c];
    }
    if (p->epilogue)
        p->epilogue->fn(p->epilogue->user, p->epilogue->row + row, j, n, y);
    if (bf16)
        ctx->kernels->bf16_from_f32(half, y, (size_t)n);
    else
        memcpy(whole, y, (size_t)n * sizeof *y);
}

static int run_block(const tess_ctx *ctx, const product *p, int64_t i, int64_t j, const scratch *s)
{
    const int64_t m = TESS_MIN(p->m - i, ROWS), n = TESS_MIN(p->n - j, COLUMNS);
    if (multiply(ctx, p, i, j, m, n, s))
        return 1;
    for (int64_t row = 0; row < m; row++)
        write_row(ctx, p, i + row, j, n, s->c + row * COLUMNS, s->row);
    return 0;
}

static tess_status run_product(tess__linear_bf16 *linear, const product *p)
{
    const tess_ctx *ctx = linear->ctx;
    const int64_t across = (p->n + COLUMNS - 1) / COLUMNS;
    const int64_t blocks = (p->m + ROWS - 1) / ROWS * across;
    int failed = 0;
    TESS_TRY(tess__sgemm_ready());
#pragma omp parallel num_threads(ctx->threads) reduction(| : failed)
    {
        omp_set_num_threads(1); /* as in linear.c */
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < blocks; block++)
            failed |= run_block(ctx, p, block / across * ROWS, block % across * COLUMNS,
                                &linear->scratch[omp_get_thread_num()]);
    }
    if (failed)
        return tess__fail(TESS_ENOMEM, "oneDNN has no memory for a product of %lld x %lld x %lld",
                          (long long)p->m, (long long)p->n, (long long)p->k);
    return TESS_OK;
}

/* ---- the three products ---------------------------------------------------------------------- */

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

tess_status tess__linear_bf16_forward(tess__linear_bf16 *linear, const tess_linear_shape *s,
                                      tess__factor x, const void *packed, const float *bias,
                                      tess__result y, const tess__epilogue *epilogue)
{
    const adder bias_adder = {linear->ctx->kernels, bias};
    const tess__epilogue plain = {add_bias, &bias_adder, 0};
    const tess__epilogue *last = epilogue ? epilogue : bias ? &plain : NULL;
    const tess__factor w = {packed, TESS_DTYPE_BF16};
    return run_product(linear,
                       &(product){'N', 'T', s->rows, s->out, s->in, x, w, s->in, s->in, y, last});
}

tess_status tess__linear_bf16_dx(tess__linear_bf16 *linear, const tess_linear_shape *s,
                                 tess__factor dy, const void *packed, tess__result dx,
                                 const tess__epilogue *epilogue)
{
    const tess__factor w = {packed, TESS_DTYPE_BF16};
    return run_product(
        linear, &(product){'N', 'N', s->rows, s->in, s->out, dy, w, s->out, s->in, dx, epilogue});
}

tess_status tess__linear_bf16_dw(tess__linear_bf16 *linear, const tess_linear_shape *s,
                                 tess__factor dy, tess__factor x, tess__result dw,
                                 const tess__epilogue *epilogue)
{
    return run_product(
        linear, &(product){'T', 'N', s->out, s->in, s->rows, dy, x, s->out, s->in, dw, epilogue});
}

void tess__bf16_column_sums(const tess_ctx *ctx, int64_t rows, int64_t columns, tess__factor x,
                            float *sums, int add)
{
    if (x.dtype == TESS_DTYPE_F32) {
        tess__column_sums(ctx, rows, columns, x.data, sums, add);
        return;
    }
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t j = 0; j < columns; j += SUM_COLUMNS) {
        const int64_t n = TESS_MIN(columns - j, SUM_COLUMNS);
        double sum[SUM_COLUMNS] = {0};
        float block[SUM_COLUMNS * SUM_COLUMNS];
        for (int64_t i = 0; i < rows; i += SUM_COLUMNS) {
            const int64_t some = TESS_MIN(rows - i, SUM_COLUMNS);
            int64_t ld = columns;
            const float *part = as_floats(ctx, x, i, j, some, n, block, &ld);
            ctx->kernels->column_sums(sum, part, ld, some, n);
        }
        for (int64_t i = 0; i < n; i++)
            sums[j + i] = (float)(add ? sums[j + i] + sum[i] : sum[i]);
    }
}
