/* SPDX-License-Identifier: Apache-2.0 */
/* bench_linear.c - linear layers in bf16 beside oneDNN's in bf16 and ours in fp32, in one run.
 *
 *   bench_linear [samples [rows in out]]          5, the shapes of Wan 1.3B with 4096 tokens
 *
 * Samples of the three sides follow each other, with the peak of the products in bf16 before and
 * after; a rate is the median of the shares of that peak, in CPU time of one thread. Activations
 * and their gradients are bf16, gradients of weights floats; weights are packed before. Then each
 * side computes on 1, 2 and 3 threads, and the bits are compared.
 */
#include "kernels/bf16/bf16.h"
#include "model/linear/linear_bf16.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDES = 3, PRODUCTS = 3, SAMPLES_MAX = 99 };
static const char *const side_names[SIDES] = {"ours bf16", "oneDNN bf16", "ours fp32"};
static const char *const product_names[PRODUCTS] = {"forward", "dx", "dw"};

typedef struct {
    tess_ctx *ctx;
    tess__linear_bf16 *linear;
    tess_linear_shape shape;
    uint16_t *x, *dy, *w, *half;           /* half: y or dx */
    float *x32, *dy32, *w32, *whole, *out; /* whole: dw; out: results of fp32 */
    void *packed;
} job;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "bench_linear: %s\n", tess_last_error());
        exit(1);
    }
}

static void need_dnnl(dnnl_status_t status)
{
    if (status != dnnl_success) {
        fprintf(stderr, "bench_linear: oneDNN has no such product (status %d)\n", (int)status);
        exit(1);
    }
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(TESS_ALIGN, (bytes + TESS_ALIGN) / TESS_ALIGN * TESS_ALIGN);
    if (!p)
        need(tess__nomem(bytes));
    return memset(p, 0, bytes);
}

/* ---- oneDNN: c (m, n) = op(a) op(b) ---------------------------------------------------------- */

static dnnl_memory_t dnnl_matrix(dnnl_engine_t engine, dnnl_memory_desc_t *desc, int64_t m,
                                 int64_t n, int transposed, dnnl_data_type_t type, const void *data)
{
    dnnl_memory_t memory;
    const dnnl_dims_t dims = {m, n};
    const dnnl_format_tag_t tag = transposed ? dnnl_ba : dnnl_ab;
#if DNNL_VERSION_MAJOR >= 3
    need_dnnl(dnnl_memory_desc_create_with_tag(desc, 2, dims, type, tag));
    need_dnnl(dnnl_memory_create(&memory, *desc, engine, (void *)(uintptr_t)data));
#else
    need_dnnl(dnnl_memory_desc_init_by_tag(desc, 2, dims, type, tag));
    need_dnnl(dnnl_memory_create(&memory, desc, engine, (void *)(uintptr_t)data));
#endif
    return memory;
}

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[3];
} dnnl_product;

static dnnl_product dnnl_make(const job *j, int product)
{
    const int64_t rows = j->shape.rows, in = j->shape.in, out = j->shape.out;
    const int64_t m = product == 2 ? out : rows, n = product == 0 ? out : in;
    const int64_t k = product == 0 ? in : product == 1 ? out : rows;
    dnnl_product p;
    dnnl_memory_desc_t a, b, c;
    dnnl_primitive_desc_t desc;
    need_dnnl(dnnl_engine_create(&p.engine, dnnl_cpu, 0));
    need_dnnl(dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags));
    const dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_SRC,
         dnnl_matrix(p.engine, &a, m, k, product == 2, dnnl_bf16, product == 0 ? j->x : j->dy)},
        {DNNL_ARG_WEIGHTS,
         dnnl_matrix(p.engine, &b, k, n, product == 0, dnnl_bf16, product == 2 ? j->x : j->w)},
        {DNNL_ARG_DST, dnnl_matrix(p.engine, &c, m, n, 0, product == 2 ? dnnl_f32 : dnnl_bf16,
                                   product == 2 ? (void *)j->whole : (void *)j->half)},
    };
    memcpy(p.args, args, sizeof args);
#if DNNL_VERSION_MAJOR >= 3
    need_dnnl(dnnl_matmul_primitive_desc_create(&desc, p.engine, a, b, NULL, c, NULL));
#else
    dnnl_matmul_desc_t matmul;
    need_dnnl(dnnl_matmul_desc_init(&matmul, &a, &b, NULL, &c));
    need_dnnl(dnnl_primitive_desc_create(&desc, &matmul, NULL, p.engine, NULL));
#endif
    need_dnnl(dnnl_primitive_create(&p.primitive, desc));
    dnnl_primitive_desc_destroy(desc);
    return p;
}

static void dnnl_drop(dnnl_product *p)
{
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(p->args[i].memory);
    dnnl_primitive_destroy(p->primitive);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
}

/* ---- one product of one side ----------------------------------------------------------------- */

static void run_ours(const job *j, int product)
{
    const tess__factor x = {j->x, TESS_DTYPE_BF16}, dy = {j->dy, TESS_DTYPE_BF16};
    const tess__result half = {j->half, TESS_DTYPE_BF16, 0}, whole = {j->whole, TESS_DTYPE_F32, 0};
    if (product == 0)
        need(tess__linear_bf16_forward(j->linear, &j->shape, x, j->packed, NULL, half, NULL));
    else if (product == 1)
        need(tess__linear_bf16_dx(j->linear, &j->shape, dy, j->packed, half, NULL));
    else
        need(tess__linear_bf16_dw(j->linear, &j->shape, dy, x, whole, NULL));
}

static void run_fp32(const job *j, int product)
{
    if (product == 0)
        need(tess__linear_forward(j->ctx, &j->shape, j->x32, j->w32, NULL, j->out, NULL));
    else if (product == 1)
        need(tess__linear_dx(j->ctx, &j->shape, j->dy32, j->w32, j->out, 0, NULL));
    else
        need(tess__linear_dw(j->ctx, &j->shape, j->dy32, j->x32, j->out, 0, NULL));
}

static void run(const job *j, int side, int product, dnnl_product *peer)
{
    if (side == 1) {
        need_dnnl(dnnl_primitive_execute(peer->primitive, peer->stream, 3, peer->args));
        need_dnnl(dnnl_stream_wait(peer->stream));
    } else if (side == 0) {
        run_ours(j, product);
    } else {
        run_fp32(j, product);
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double peak(tess_ctx *ctx)
{
    enum { ROUNDS = 100000, PROBES = 3 };
    double best = 0.0;
    float sink = 0.0f;
    for (int i = 0; i < PROBES; i++) {
        const double start = cpu_seconds();
        const int64_t flop = tess__rate_of(ctx, TESS_PRECISION_BF16)(ROUNDS, &sink);
        best = fmax(best, (double)flop / (cpu_seconds() - start));
    }
    return best;
}

static void measure(job *j, int product, int samples)
{
    double share[SIDES][SAMPLES_MAX], best = 0.0;
    const double flop = 2.0 * (double)(j->shape.rows * j->shape.in * j->shape.out);
    omp_set_num_threads(1);
    dnnl_product peer = dnnl_make(j, product);
    for (int s = -1; s < samples; s++)
        for (int side = 0; side < SIDES; side++) {
            const double before = peak(j->ctx), start = cpu_seconds();
            run(j, side, product, &peer);
            const double rate = flop / (cpu_seconds() - start);
            const double top = fmax(before, peak(j->ctx));
            best = fmax(best, top);
            share[side][s < 0 ? 0 : s] = rate / top;
        }
    printf("%6lld %6lld %6lld  %-8s", (long long)j->shape.rows, (long long)j->shape.in,
           (long long)j->shape.out, product_names[product]);
    for (int side = 0; side < SIDES; side++)
        printf("  %11.3f", tess__median(share[side], (size_t)samples));
    printf("   %6.0f\n", 1e-9 * best);
    fflush(stdout);
    dnnl_drop(&peer);
}

/* 1: the same bits on 1, 2 and 3 threads. */
static int same_bits(job *j, int side, int product)
{
    const size_t rows = (size_t)j->shape.rows, in = (size_t)j->shape.in;
    const size_t out = (size_t)j->shape.out;
    const void *result = side == 2 ? (void *)j->out : product == 2 ? (void *)j->whole : j->half;
    const size_t bytes = (product == 0   ? rows * out
                          : product == 1 ? rows * in
                                         : in * out) *
                         (side == 2 || product == 2 ? sizeof(float) : sizeof(uint16_t));
    void *first = take(bytes);
    int same = 1;
    job own = *j;
    for (int threads = 1; threads <= 3; threads++) {
        need(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &own.ctx));
        need(tess__linear_bf16_create(own.ctx, &own.linear));
        omp_set_num_threads(threads);
        dnnl_product peer = dnnl_make(j, product);
        run(&own, side, product, &peer);
        if (threads == 1)
            memcpy(first, result, bytes);
        same &= memcmp(first, result, bytes) == 0;
        dnnl_drop(&peer);
        tess__linear_bf16_destroy(own.linear);
        tess_ctx_destroy(own.ctx);
    }
    free(first);
    return same;
}

/* ---- a shape --------------------------------------------------------------------------------- */

static void fill(const job *j, uint16_t *half, float *whole, size_t n, uint64_t stream)
{
    need(tess_random_normal(1, stream, 0, whole, n));
    j->ctx->kernels->bf16_from_f32(half, whole, n);
    j->ctx->kernels->f32_from_bf16(whole, half, n);
}

static void run_shape(tess_ctx *ctx, tess_linear_shape shape, int samples, int compare)
{
    const size_t m = (size_t)shape.rows, k = (size_t)shape.in, n = (size_t)shape.out;
    const size_t widest = m * (k > n ? k : n), most = widest > k * n ? widest : k * n;
    job j = {.ctx = ctx, .shape = shape};
    need(tess__linear_bf16_create(ctx, &j.linear));
    void *all[] = {
        j.x = take(2 * m * k),   j.dy = take(2 * m * n),
        j.w = take(2 * k * n),   j.half = take(2 * widest),
        j.x32 = take(4 * m * k), j.dy32 = take(4 * m * n),
        j.w32 = take(4 * k * n), j.whole = take(4 * k * n),
        j.out = take(4 * most),  j.packed = take(tess__bf16_weights_size(shape.in, shape.out))};
    fill(&j, j.x, j.x32, m * k, 1);
    fill(&j, j.dy, j.dy32, m * n, 2);
    fill(&j, j.w, j.w32, k * n, 3);
    tess__bf16_weights_pack(ctx, shape.in, shape.out, j.w32, j.packed);
    for (int product = 0; product < PRODUCTS; product++)
        measure(&j, product, samples);
    for (int side = 0; compare && side < SIDES; side++)
        for (int product = 0; product < PRODUCTS; product++)
            printf("%s, %s: %s bits on 1, 2 and 3 threads\n", side_names[side],
                   product_names[product], same_bits(&j, side, product) ? "the same" : "other");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    tess__linear_bf16_destroy(j.linear);
}

int main(int argc, char **argv)
{
    static const tess_linear_shape wan[] = {
        {4096, 1536, 1536}, {4096, 1536, 4608}, {4096, 1536, 8960}, {4096, 8960, 1536}};
    const int samples = argc > 1 ? atoi(argv[1]) : 5;
    tess_ctx *ctx;
    if (samples < 1 || samples > SAMPLES_MAX || (argc > 2 && argc != 5)) {
        fprintf(stderr, "usage: bench_linear [samples, 1..%d [rows in out]]\n", SAMPLES_MAX);
        return 2;
    }
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    printf("  rows     in    out  product   %s  %s    %s  peak GFLOP/s\n", side_names[0],
           side_names[1], side_names[2]);
    if (argc == 5)
        run_shape(ctx, (tess_linear_shape){atoll(argv[2]), atoll(argv[3]), atoll(argv[4])}, samples,
                  1);
    for (size_t i = 0; argc < 5 && i < sizeof wan / sizeof wan[0]; i++)
        run_shape(ctx, wan[i], samples, i == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
