/* SPDX-License-Identifier: Apache-2.0 */
/* linear_bf16.c - linear layers with products in bf16: blocks of a result, over all threads.
 *
 * A result is cut into blocks, and each is computed by one thread over the whole depth, in floats
 * of that thread's memory: then what is there is added, the epilogue runs, and the rows are
 * written. Work: 2 rows in out flop for each product.
 */
#include "linear_block.h"

#include <omp.h>
#include <string.h>

enum { SUM_COLUMNS = 64, AHEAD = 4 /* rows */ };

struct tess__linear_bf16 {
    tess__arena arena;
    tess_ctx *ctx;
    const tess__products *products; /* NULL: fp32 multiplies */
    const char *isa;
    tess__linear_scratch *scratch; /* of each thread */
};

static size_t bytes_of(const tess_ctx *ctx, const tess__products *products)
{
    const size_t threads = (size_t)ctx->threads;
    return tess__arena_round(sizeof(tess__linear_bf16)) +
           tess__arena_round(threads * sizeof(tess__linear_scratch)) +
           threads * tess__linear_scratch_bytes(products);
}

size_t tess__linear_bf16_bytes(tess_ctx *ctx)
{
    return bytes_of(ctx, tess__products_of(ctx, NULL)) + TESS_CHUNK_OVERHEAD;
}

size_t tess__linear_bf16_need(int threads)
{
    static const tess__products any;
    const tess_ctx like = {.threads = threads};
    return bytes_of(&like, &any) + TESS_CHUNK_OVERHEAD;
}

tess_status tess__linear_bf16_create(tess_ctx *ctx, tess__linear_bf16 **linear)
{
    const char *isa;
    const tess__products *products = tess__products_of(ctx, &isa);
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, bytes_of(ctx, products)));
    tess__linear_bf16 *made = tess__arena_take(&arena, sizeof *made);
    tess__linear_scratch *all = tess__arena_take(&arena, (size_t)ctx->threads * sizeof *all);
    for (int i = 0; i < ctx->threads; i++)
        tess__linear_scratch_take(&arena, products, &all[i]);
    *made = (tess__linear_bf16){arena, ctx, products, isa, all};
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
    *bf16 = linear->products != NULL;
    return linear->isa;
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

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Row `row` of the block at column j: y are its n sums. */
static void write_row(const tess__linear_product *p, int64_t row, int64_t j, int64_t n, float *y,
                      float *there)
{
    const tess__kernels *kernels = p->ctx->kernels;
    const int64_t at = row * p->n + j;
    const int bf16 = p->c.dtype == TESS_DTYPE_BF16;
    float *whole = (float *)p->c.data + (bf16 ? 0 : at);
    uint16_t *half = (uint16_t *)p->c.data + (bf16 ? at : 0);
    if (p->c.add && bf16)
        kernels->f32_from_bf16(there, half, (size_t)n);
    if (p->c.add)
        kernels->mix(1.0f, bf16 ? there : whole, 1.0f, y, (size_t)n);
    if (p->epilogue)
        p->epilogue->fn(p->epilogue->user, p->epilogue->row + row, j, n, y);
    if (bf16)
        kernels->bf16_from_f32(half, y, (size_t)n);
    else
        memcpy(whole, y, (size_t)n * sizeof *y);
}

/* Rows of the result lie far apart: a later one is fetched while another is written. */
static void fetch_row(const tess__linear_product *p, int64_t row, int64_t j, int64_t n)
{
    enum { LINE = 64 };
    const size_t size = p->c.dtype == TESS_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    const char *at = (const char *)p->c.data + (size_t)(row * p->n + j) * size;
    for (size_t i = 0; i < (size_t)n * size; i += LINE)
        __builtin_prefetch(at + i, 1);
}

static int run_block(const tess__linear_product *p, int64_t block, const tess__linear_scratch *s)
{
    const int64_t across = (p->n + p->block_n - 1) / p->block_n;
    const int64_t i = block / across * p->block_m, j = block % across * p->block_n;
    const int64_t m = TESS_MIN(p->m - i, p->block_m), n = TESS_MIN(p->n - j, p->block_n);
    if (tess__linear_block(p, i, j, s))
        return 1;
    for (int64_t row = 0; row < m; row++) {
        if (row + AHEAD < m)
            fetch_row(p, i + row + AHEAD, j, n);
        write_row(p, i + row, j, n, tess__linear_block_row(p, m, n, row, s), s->there);
    }
    return 0;
}

static int64_t count_blocks(const tess__linear_product *p)
{
    return ((p->m + p->block_m - 1) / p->block_m) * ((p->n + p->block_n - 1) / p->block_n);
}

/* Blocks as large as they may be, or smaller ones where these are too few for several threads.
 * oneDNN gets those of one size, because its bits may depend on it. */
static void choose_blocks(tess__linear_product *p)
{
    enum { OF_A_THREAD = 3, LEAST = 64 };
    p->block_m = TESS__LINEAR_ROWS;
    p->block_n = TESS__LINEAR_COLUMNS;
    while (p->products && p->ctx->threads > 1 &&
           count_blocks(p) < OF_A_THREAD * (int64_t)p->ctx->threads) {
        if (p->block_m >= p->block_n && p->block_m > LEAST)
            p->block_m /= 2;
        else if (p->block_n > LEAST)
            p->block_n /= 2;
        else
            return;
    }
}

static tess_status run_product(tess__linear_bf16 *linear, tess__linear_product *p)
{
    p->ctx = linear->ctx;
    p->products = linear->products;
    choose_blocks(p);
    const int64_t blocks = count_blocks(p);
    int failed = 0;
    if (!p->products)
        TESS_TRY(tess__sgemm_ready());
#pragma omp parallel num_threads(p->ctx->threads) reduction(| : failed)
    {
        omp_set_num_threads(1); /* as in linear.c */
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < blocks; block++)
            failed |= run_block(p, block, &linear->scratch[omp_get_thread_num()]);
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
    return run_product(linear, &(tess__linear_product){'N', 'T', s->rows, s->out, s->in, x, w,
                                                       s->in, s->in, y, .epilogue = last});
}

tess_status tess__linear_bf16_dx(tess__linear_bf16 *linear, const tess_linear_shape *s,
                                 tess__factor dy, const void *packed, tess__result dx,
                                 const tess__epilogue *epilogue)
{
    const tess__factor w = {packed, TESS_DTYPE_BF16};
    return run_product(linear, &(tess__linear_product){'N', 'N', s->rows, s->in, s->out, dy, w,
                                                       s->out, s->in, dx, .epilogue = epilogue});
}

tess_status tess__linear_bf16_dw(tess__linear_bf16 *linear, const tess_linear_shape *s,
                                 tess__factor dy, tess__factor x, tess__result dw,
                                 const tess__epilogue *epilogue)
{
    return run_product(linear, &(tess__linear_product){'T', 'N', s->out, s->in, s->rows, dy, x,
                                                       s->out, s->in, dw, .epilogue = epilogue});
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
            const float *part = tess__factor_floats(ctx, x, i, j, some, n, block, &ld);
            ctx->kernels->column_sums(sum, part, ld, some, n);
        }
        for (int64_t i = 0; i < n; i++)
            sums[j + i] = (float)(add ? sums[j + i] + sum[i] : sum[i]);
    }
}
