/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_forward.c - the forward kernels in the emulation: error, bits, conflicts, bytes. */
#include "gpu_data.h"
#include "gpu_kernels.h"

static tess_ctx *ctx;

/* Each kernel, groups that are cut into tiles, that are ragged, units that are not whole. */
static const gpu_problem problems[] = {
    {.batch = 1,
     .heads = 2,
     .dim = 64,
     .tq = 40,
     .tk = 200,
     .group = 16,
     .unit = 1,
     .density = 0.4},
    {.batch = 2,
     .heads = 2,
     .dim = 64,
     .tq = 128,
     .tk = 200,
     .group = 32,
     .unit = 1,
     .density = 0.3,
     .token_major = 1},
    {.batch = 1,
     .heads = 2,
     .dim = 64,
     .tq = 130,
     .tk = 333,
     .group = 64,
     .unit = 1,
     .density = 0.5},
    {.batch = 1,
     .heads = 1,
     .dim = 64,
     .tq = 200,
     .tk = 300,
     .group = 200,
     .unit = 8,
     .density = 0.4,
     .full = 1},
    {.batch = 1,
     .heads = 2,
     .dim = 128,
     .tq = 30,
     .tk = 211,
     .group = 11,
     .unit = 1,
     .density = 0.4},
    {.batch = 1,
     .heads = 2,
     .dim = 128,
     .tq = 100,
     .tk = 300,
     .group = 32,
     .unit = 64,
     .density = 0.5},
    {.batch = 1,
     .heads = 2,
     .dim = 128,
     .tq = 193,
     .tk = 333,
     .group = 64,
     .unit = 1,
     .density = 0.2,
     .token_major = 1},
    {.batch = 1,
     .heads = 1,
     .dim = 128,
     .tq = 260,
     .tk = 300,
     .group = 128,
     .unit = 16,
     .density = 0.4},
    {.batch = 1,
     .heads = 2,
     .dim = 64,
     .tq = 137,
     .tk = 150,
     .group = 0,
     .unit = 1,
     .density = 0.4},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static int up_to(int group)
{
    return group <= 16 ? 16 : group <= 32 ? 32 : group <= 64 ? 64 : 128;
}

static void forward(const gpu_case *c, u32 seed)
{
    const int most = largest_group(c), bm = up_to(most), shift = __builtin_ctz((u32)c->p.unit);
    char name[64];
    snprintf(name, sizeof name, "forward_d%d_g%d_%s", c->p.dim, bm, c->p.fp16 ? "fp16" : "bf16");
    const emulated_kernel *const kernel = find_emulated(name);
    assert_non_null(kernel);
    const tess_gpu_forward_args args = {
        .lists = {(const long long *)c->lists.offsets, c->lists.indices, c->bounds_q, c->p.heads,
                  (int)c->p.tq, (int)c->p.tk, c->lists.shape.n_q, c->lists.shape.n_k, shift},
        .q = rows_of(c, GPU_Q, c->q),
        .k = rows_of(c, GPU_K, c->k),
        .v = rows_of(c, GPU_V, c->v),
        .o = rows_of(c, GPU_O, c->o),
        .lse = c->lse,
        .tiles = (most + bm - 1) / bm,
        .scale2 = (float)(1.4426950408889634 / sqrt(c->p.dim)),
    };
    const char *const problem =
        emulation_run(&(emulation_launch){kernel->run, &args, c->lists.lists * args.tiles,
                                          kernel->threads, kernel->shared_bytes, seed});
    if (problem)
        fail_msg("%s, seed %u: %s", name, seed, problem);
}

static void compare(const gpu_case *c)
{
    const size_t rows = (size_t)(c->p.batch * c->p.heads * c->p.tq), n = rows * (size_t)c->p.dim;
    const tess_attn_shape shape = shape_of(c);
    const tess_view q = view_of(c, c->q32, TESS_DTYPE_F32, c->p.tq);
    const tess_view k = view_of(c, c->k32, TESS_DTYPE_F32, c->p.tk);
    const tess_view v = view_of(c, c->v32, TESS_DTYPE_F32, c->p.tk);
    double *const o = malloc(n * sizeof *o), *const lse = malloc(rows * sizeof *lse);
    double *const got = in_order(c, GPU_O, c->o);
    CHECK_OK(ref_attn_forward(c->ctx, &shape, &c->lists, &q, &k, &v, o, lse));
    /* P and o are rounded to 8 or 11 bits: half a unit in the last place of each. */
    CHECK_CLOSE(got, o, n, c->p.fp16 ? 6e-4 : 4e-3);
    CHECK_CLOSE(c->lse, lse, rows, 2e-6);
    free(o);
    free(lse);
    free(got);
}

/* Types of the problems take turns; every seed is an order of blocks, warps and lanes. */
static void test_error_and_bits(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++)
        for (int fp16 = 0; fp16 < (SANITIZED ? 1 : 2); fp16++) {
            const u32 orders = SANITIZED ? 4 : 16;
            gpu_problem p = problems[i];
            p.fp16 = fp16;
            p.apart = 1;
            gpu_case c = make_case(ctx, &p, (uint64_t)(10 * i + 1));
            const size_t bytes = device_bytes(&c, GPU_O);
            const size_t lse_bytes = (size_t)(p.batch * p.heads * p.tq) * sizeof *c.lse;
            forward(&c, 0);
            compare(&c);
            u16 *const o = memcpy(malloc(bytes), c.o, bytes);
            float *const lse = memcpy(malloc(lse_bytes), c.lse, lse_bytes);
            for (u32 seed = 1; seed < orders; seed++) {
                spoilt(c.o, bytes);
                spoilt(c.lse, lse_bytes);
                forward(&c, seed);
                assert_memory_equal(c.o, o, bytes);
                assert_memory_equal(c.lse, lse, lse_bytes);
            }
            free(o);
            free(lse);
            free_case(&c);
        }
}

/* Rows of K and V: 4 D bytes for each key and block of BM queries, which make 4 D BM flop of it. Q
 * comes once. No two rows of a matrix are in the same banks. */
static void test_bytes_per_flop(void **state)
{
    (void)state;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int group = 16; group <= 128; group *= 2) {
            const gpu_problem p = {.batch = 1,
                                   .heads = 1,
                                   .dim = dim,
                                   .tq = 2 * group,
                                   .tk = 512,
                                   .group = group,
                                   .unit = 1,
                                   .density = 1.0,
                                   .full = 1};
            gpu_case c = make_case(ctx, &p, 5);
            emulation_reset();
            forward(&c, 0);
            const emulation_counts n = emulation_read();
            const i64 flop = n.mma * 2 * 16 * 8 * 16, q_bytes = p.tq * dim * 2;
            assert_int_equal(n.conflicts, 0);
            assert_true(n.ldmatrix > 0);
            assert_int_equal(flop, 4 * p.tq * p.tk * dim);
            assert_int_equal((n.copied_bytes - q_bytes) * group, flop);
            free_case(&c);
        }
}

/* A NaN in one query stays in its row; a query without keys has o = 0 and lse = -inf. */
static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    gpu_problem p = problems[2];
    gpu_case c = make_case(ctx, &p, 3);
    const int d = p.dim;
    forward(&c, 0);
    u16 *const o = malloc((size_t)(p.heads * p.tq * d) * sizeof *o);
    memcpy(o, c.o, (size_t)(p.heads * p.tq * d) * sizeof *o);
    c.q[5 * d + 7] = 0x7fff;
    forward(&c, 0);
    for (int64_t i = 0; i < p.heads * p.tq * d; i++)
        if (i / d == 5)
            assert_true((c.o[i] & 0x7fff) > 0x7f80);
        else
            assert_int_equal(c.o[i], o[i]);
    assert_true(isnan(c.lse[5]));
    const int64_t row = p.tq + c.bounds_q[0]; /* list 3 is group 0 of head 1: it is empty */
    assert_int_equal(c.lists.offsets[3], c.lists.offsets[4]);
    assert_true(c.lse[row] == -INFINITY);
    assert_int_equal(c.o[row * d], 0);
    free(o);
    free_case(&c);
}

/* Logits of +-100: the softmax is that of their differences. */
static void test_large_logits(void **state)
{
    (void)state;
    for (int i = 2; i < PROBLEMS; i += 2) {
        gpu_case c = make_case(ctx, &problems[i], (uint64_t)(90 + i));
        const int d = c.p.dim;
        for (int64_t s = 0; s < c.p.heads * c.p.tq; s++) {
            const float large = (s % 2 ? 100.0f : -100.0f) * (d == 64 ? 8.0f : 11.25f);
            c.q[s * d] = round_half(c.p.fp16, large, &c.q32[s * d]);
        }
        for (int64_t s = 0; s < c.p.heads * c.p.tk; s++)
            c.k[s * d] = round_half(c.p.fp16, 1.0f, &c.k32[s * d]);
        forward(&c, 2);
        compare(&c);
        free_case(&c);
    }
}

static int setup(void **state)
{
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tess_ctx_destroy(ctx);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_error_and_bits),
    cmocka_unit_test(test_bytes_per_flop),
    cmocka_unit_test(test_nan_stays_in_its_row),
    cmocka_unit_test(test_large_logits),
};
RUN_TESTS_WITH(tests, setup, teardown)
