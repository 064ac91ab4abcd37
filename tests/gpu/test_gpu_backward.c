/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_backward.c - the backward kernels in the emulation: error, bits, rounds, conflicts. */
#include "gpu_data.h"
#include "gpu_kernels.h"

static tess_ctx *ctx;

static const gpu_problem token_problems[] = {
    {.batch = 1,
     .heads = 2,
     .dim = 64,
     .tq = 70,
     .tk = 130,
     .group = 32,
     .unit = 1,
     .density = 0.4},
    {.batch = 2,
     .heads = 1,
     .dim = 64,
     .tq = 130,
     .tk = 150,
     .group = 64,
     .unit = 4,
     .density = 0.4,
     .token_major = 1},
    {.batch = 1,
     .heads = 2,
     .dim = 128,
     .tq = 70,
     .tk = 90,
     .group = 20,
     .unit = 1,
     .density = 0.5},
    {.batch = 1,
     .heads = 1,
     .dim = 128,
     .tq = 150,
     .tk = 130,
     .group = 100,
     .unit = 1,
     .density = 0.4,
     .full = 1},
    {.batch = 1, .heads = 2, .dim = 64, .tq = 95, .tk = 100, .group = 0, .unit = 1, .density = 0.4},
};
static const gpu_problem block_problems[] = {
    {.batch = 1,
     .heads = 2,
     .dim = 64,
     .tq = 130,
     .tk = 200,
     .group = 64,
     .unit = 64,
     .density = 0.5,
     .full = 1},
    {.batch = 2,
     .heads = 1,
     .dim = 64,
     .tq = 137,
     .tk = 150,
     .group = 0,
     .unit = 16,
     .density = 0.5,
     .token_major = 1},
    {.batch = 1,
     .heads = 1,
     .dim = 128,
     .tq = 100,
     .tk = 300,
     .group = 50,
     .unit = 128,
     .density = 0.6},
    {.batch = 1,
     .heads = 1,
     .dim = 128,
     .tq = 90,
     .tk = 110,
     .group = 33,
     .unit = 32,
     .density = 0.6},
    {.batch = 1,
     .heads = 1,
     .dim = 64,
     .tq = 130,
     .tk = 90,
     .group = 64,
     .unit = 16,
     .density = 0.6,
     .full = 1},
};

typedef struct {
    float *dq, *dk, *dv, *delta;
    float *rows[2];
    int *first, *group, *place;
    size_t dq_bytes, dk_bytes, dv_bytes;
} gradients;

static void launch(const char *name, const void *args, i64 blocks, u32 seed)
{
    const emulated_kernel *const kernel = find_emulated(name);
    if (!kernel)
        fail_msg("%s: no such kernel", name);
    const char *const problem = emulation_run(&(emulation_launch){
        kernel->run, args, blocks, kernel->threads, kernel->shared_bytes, seed});
    if (problem)
        fail_msg("%s, seed %u: %s", name, seed, problem);
}

static tess_gpu_lists lists_of(const gpu_case *c)
{
    return (tess_gpu_lists){(const long long *)c->lists.offsets,
                            c->lists.indices,
                            c->bounds_q,
                            c->p.heads,
                            (int)c->p.tq,
                            (int)c->p.tk,
                            c->lists.shape.n_q,
                            c->lists.shape.n_k,
                            __builtin_ctz((u32)c->p.unit)};
}

/* o and lse, in the type of the problem, from double precision. */
static void make_output(gpu_case *c)
{
    const size_t rows = (size_t)(c->p.batch * c->p.heads * c->p.tq), n = rows * (size_t)c->p.dim;
    const tess_attn_shape shape = shape_of(c);
    const tess_view q = view_of(c, c->q32, TESS_DTYPE_F32, c->p.tq);
    const tess_view k = view_of(c, c->k32, TESS_DTYPE_F32, c->p.tk);
    const tess_view v = view_of(c, c->v32, TESS_DTYPE_F32, c->p.tk);
    const tess_view o = device_view(c, GPU_O, c->o);
    double *const out = malloc(n * sizeof *out), *const lse = malloc(rows * sizeof *lse);
    CHECK_OK(ref_attn_forward(c->ctx, &shape, &c->lists, &q, &k, &v, out, lse));
    for (size_t i = 0; i < rows; i++) {
        const int64_t s = (int64_t)i % c->p.tq, h = (int64_t)i / c->p.tq % c->p.heads;
        const int64_t b = (int64_t)i / c->p.tq / c->p.heads;
        for (int d = 0; d < c->p.dim; d++) {
            float value;
            c->o[b * o.stride_b + h * o.stride_h + s * o.stride_s + d] =
                round_half(c->p.fp16, (float)out[i * (size_t)c->p.dim + (size_t)d], &value);
        }
        c->lse[i] = (float)lse[i];
    }
    free(out);
    free(lse);
}

static gradients make_gradients(const gpu_case *c)
{
    const size_t heads = (size_t)(c->p.batch * c->p.heads),
                 n = (size_t)c->lists.offsets[c->lists.lists];
    gradients g = {.dq_bytes = device_bytes(c, GPU_DQ),
                   .dk_bytes = device_bytes(c, GPU_DK),
                   .dv_bytes = device_bytes(c, GPU_DV)};
    /* A kernel that takes a stride too large is to fail a comparison, not to destroy the heap. */
    const size_t room = SANITIZED ? 1 : 2;
    g.dq = malloc(room * g.dq_bytes);
    g.dk = malloc(room * g.dk_bytes);
    g.dv = malloc(room * g.dv_bytes);
    g.delta = malloc(heads * (size_t)c->p.tq * sizeof(float));
    g.first = malloc(heads * (size_t)(c->lists.shape.n_k + 1) * sizeof(int));
    g.group = malloc(n * sizeof(int) + 1);
    g.place = malloc(n * sizeof(int) + 1);
    const tess_gpu_transpose_args args = {lists_of(c), g.first, g.group, g.place};
    const i64 strips = (c->lists.shape.n_k + 255) / 256;
    launch("count_entries", &args, (i64)heads * strips, 0);
    launch("sum_entries", &args, (i64)heads, 0);
    launch("fill_entries", &args, (i64)heads * strips, 0);
    return g;
}

static void free_gradients(gradients *g)
{
    void *const all[] = {g->dq, g->dk, g->dv, g->delta, g->first, g->group, g->place};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int block_rows(const gpu_case *c)
{
    return largest_group(c) <= 32 ? 32 : 64;
}

static tess_gpu_backward_args backward_args(const gpu_case *c, const gradients *g, int mode)
{
    const int bm = block_rows(c);
    return (tess_gpu_backward_args){
        .lists = lists_of(c),
        .q = rows_of(c, GPU_Q, c->q),
        .k = rows_of(c, GPU_K, c->k),
        .v = rows_of(c, GPU_V, c->v),
        .o = rows_of(c, GPU_O, c->o),
        .dout = rows_of(c, GPU_DOUT, c->dout),
        .dq = rows_of(c, GPU_DQ, g->dq),
        .dk = rows_of(c, GPU_DK, g->dk),
        .dv = rows_of(c, GPU_DV, g->dv),
        .lse = c->lse,
        .dlse = c->dlse,
        .tiles = (largest_group(c) + bm - 1) / bm,
        .mode = mode,
        .scale = (float)(1.0 / sqrt(c->p.dim)),
    };
}

static const char *kernel_name(char *name, const gpu_case *c, const char *what, int size)
{
    snprintf(name, 64, "%s%d_%c%d_%s", what, c->p.dim, strncmp(what, "key", 3) == 0 ? 'k' : 'g',
             size, c->p.fp16 ? "fp16" : "bf16");
    return name;
}

static tess_gpu_sum_args sum_args(const gpu_case *c, const gradients *g)
{
    const int bm = block_rows(c);
    return (tess_gpu_sum_args){.lists = lists_of(c),
                               .dk = rows_of(c, GPU_DK, g->dk),
                               .dv = rows_of(c, GPU_DV, g->dv),
                               .first = g->first,
                               .group = g->group,
                               .place = g->place,
                               .tiles = (largest_group(c) + bm - 1) / bm,
                               .rows = bm};
}

/* Lists in rounds of `lists_each`, with a workspace that has exactly the rows of a round. */
static void backward_ordered(const gpu_case *c, gradients *g, int64_t lists_each, u32 seed)
{
    char name[64], sum_name[64];
    const int shift = __builtin_ctz((u32)c->p.unit);
    snprintf(sum_name, sizeof sum_name, "sum_rows_d%d", c->p.dim);
    tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_ORDERED);
    tess_gpu_sum_args sum = sum_args(c, g);
    for (int64_t l = 0; l < c->lists.lists; l += lists_each) {
        const int64_t end = l + lists_each < c->lists.lists ? l + lists_each : c->lists.lists;
        sum.entry0 = args.entry0 = c->lists.offsets[l];
        sum.entry1 = c->lists.offsets[end];
        const size_t rows = (size_t)((sum.entry1 - sum.entry0) * args.tiles) << shift;
        const size_t bytes = rows * (size_t)c->p.dim * sizeof(float) + 16;
        args.row_dk = malloc(bytes);
        args.row_dv = malloc(bytes);
        memset(args.row_dk, 0xff, bytes);
        memset(args.row_dv, 0xff, bytes);
        sum.row_dk = args.row_dk;
        sum.row_dv = args.row_dv;
        sum.begin = l == 0;
        sum.scale = end == c->lists.lists ? args.scale : 1.0f;
        args.list0 = (int)l;
        launch(kernel_name(name, c, "backward_d", block_rows(c)), &args, (end - l) * args.tiles,
               seed);
        launch(sum_name, &sum, (i64)c->p.batch * c->p.heads * c->p.tk, seed);
        free(args.row_dk);
        free(args.row_dv);
    }
}

static void backward_atomic(const gpu_case *c, gradients *g, u32 seed)
{
    char name[64], zero_name[64];
    snprintf(zero_name, sizeof zero_name, "zero_rows_d%d", c->p.dim);
    const tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_ATOMIC);
    const tess_gpu_sum_args sum = sum_args(c, g);
    launch(zero_name, &sum, (i64)c->p.batch * c->p.heads * c->p.tk, seed);
    launch(kernel_name(name, c, "backward_d", block_rows(c)), &args, c->lists.lists * args.tiles,
           seed);
}

static void backward_blocks(const gpu_case *c, gradients *g, u32 seed)
{
    char name[64], delta_name[64];
    const i64 heads = (i64)c->p.batch * c->p.heads;
    const int keys = c->p.unit >= 64 ? 64 : 16;
    snprintf(delta_name, sizeof delta_name, "delta_d%d_%s", c->p.dim, c->p.fp16 ? "fp16" : "bf16");
    const tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_QUERIES);
    const tess_gpu_delta_args delta = {args.o,   args.dout,  c->dlse,
                                       g->delta, c->p.heads, (int)c->p.tq};
    const tess_gpu_keys_args own = {args.lists, args.q, args.k,   args.v,   args.dout, args.dk,
                                    args.dv,    c->lse, g->delta, g->first, g->group,  args.scale};
    launch(kernel_name(name, c, "backward_d", block_rows(c)), &args, c->lists.lists * args.tiles,
           seed);
    launch(delta_name, &delta, heads * ((c->p.tq + 3) / 4), seed);
    launch(kernel_name(name, c, "key_blocks_d", keys), &own, heads * ((c->p.tk + keys - 1) / keys),
           seed);
}

/* S, P and dS are rounded once each, and o: about twice the error of the forward pass. */
static void compare(const gpu_case *c, const gradients *g)
{
    const size_t row = (size_t)(c->p.batch * c->p.heads * c->p.dim);
    const size_t nq = row * (size_t)c->p.tq, nk = row * (size_t)c->p.tk;
    const double bar = c->p.fp16 ? 6e-4 : 5e-3;
    const tess_attn_shape shape = shape_of(c);
    const tess_view q = view_of(c, c->q32, TESS_DTYPE_F32, c->p.tq);
    const tess_view k = view_of(c, c->k32, TESS_DTYPE_F32, c->p.tk);
    const tess_view v = view_of(c, c->v32, TESS_DTYPE_F32, c->p.tk);
    const tess_view dout = view_of(c, c->dout32, TESS_DTYPE_F32, c->p.tq);
    double *const dq = malloc(nq * sizeof *dq);
    double *const dk = malloc(nk * sizeof *dk), *const dv = malloc(nk * sizeof *dv);
    double *const got_q = in_order(c, GPU_DQ, g->dq);
    double *const got_k = in_order(c, GPU_DK, g->dk);
    double *const got_v = in_order(c, GPU_DV, g->dv);
    CHECK_OK(ref_attn_backward(c->ctx, &shape, &c->lists, &q, &k, &v, &dout, c->dlse, dq, dk, dv));
    CHECK_CLOSE(got_q, dq, nq, bar);
    CHECK_CLOSE(got_k, dk, nk, bar);
    CHECK_CLOSE(got_v, dv, nk, bar);
    void *const all[] = {dq, dk, dv, got_q, got_k, got_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void spoil(gradients *g)
{
    spoilt(g->dq, g->dq_bytes);
    spoilt(g->dk, g->dk_bytes);
    spoilt(g->dv, g->dv_bytes);
}

static void test_token_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof token_problems / sizeof *token_problems; i++)
        for (int fp16 = 0; fp16 < (SANITIZED ? 1 : 2); fp16++) {
            gpu_problem p = token_problems[i];
            p.fp16 = fp16;
            p.apart = 1;
            gpu_case c = make_case(ctx, &p, 30 + i);
            make_output(&c);
            gradients g = make_gradients(&c), other = make_gradients(&c);
            spoil(&g);
            backward_ordered(&c, &g, c.lists.lists, 0);
            compare(&c, &g);
            const u32 orders = SANITIZED ? 3 : 16;
            for (u32 seed = 1; seed < orders; seed++) { /* any number of rounds, any order */
                spoil(&other);
                backward_ordered(&c, &other, 1 + seed % 4, seed);
                assert_memory_equal(other.dq, g.dq, g.dq_bytes);
                assert_memory_equal(other.dk, g.dk, g.dk_bytes);
                assert_memory_equal(other.dv, g.dv, g.dv_bytes);
            }
            for (u32 seed = 0; seed < 4; seed++) {
                spoil(&other);
                backward_atomic(&c, &other, seed);
                compare(&c, &other);
                assert_memory_equal(other.dq, g.dq, g.dq_bytes);
            }
            free_gradients(&g);
            free_gradients(&other);
            free_case(&c);
        }
}

static void test_block_lists(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof block_problems / sizeof *block_problems; i++)
        for (int fp16 = 0; fp16 < (SANITIZED ? 1 : 2); fp16++) {
            gpu_problem p = block_problems[i];
            p.fp16 = fp16;
            p.apart = 1;
            gpu_case c = make_case(ctx, &p, 50 + i);
            make_output(&c);
            gradients g = make_gradients(&c), other = make_gradients(&c);
            spoil(&g);
            backward_blocks(&c, &g, 0);
            compare(&c, &g);
            for (u32 seed = 1; seed < (SANITIZED ? 3u : 16u); seed++) {
                spoil(&other);
                backward_blocks(&c, &other, seed);
                assert_memory_equal(other.dq, g.dq, g.dq_bytes);
                assert_memory_equal(other.dk, g.dk, g.dk_bytes);
                assert_memory_equal(other.dv, g.dv, g.dv_bytes);
            }
            free_gradients(&g);
            free_gradients(&other);
            free_case(&c);
        }
}

/* Five products of 2 D flop for each pair; rows of K and V come as in the forward pass, and no two
 * rows of a matrix are in the same banks. */
static void test_products_and_bytes(void **state)
{
    (void)state;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int group = 32; group <= 64; group *= 2) {
            const gpu_problem p = {.batch = 1,
                                   .heads = 1,
                                   .dim = dim,
                                   .tq = 2 * group,
                                   .tk = 128,
                                   .group = group,
                                   .unit = 1,
                                   .density = 1.0,
                                   .full = 1};
            gpu_case c = make_case(ctx, &p, 5);
            make_output(&c);
            gradients g = make_gradients(&c);
            emulation_reset();
            backward_atomic(&c, &g, 0);
            const emulation_counts n = emulation_read();
            const i64 pairs = p.tq * p.tk, q_bytes = 2 * p.tq * dim * 2;
            assert_int_equal(n.conflicts, 0);
            assert_int_equal(n.mma * 4096, 10 * pairs * dim);
            assert_int_equal((n.copied_bytes - q_bytes) * group, 4 * pairs * dim);
            emulation_reset();
            gpu_problem blocks = p;
            blocks.unit = 64;
            gpu_case d = make_case(ctx, &blocks, 5);
            make_output(&d);
            gradients e = make_gradients(&d);
            emulation_reset();
            backward_blocks(&d, &e, 0);
            assert_int_equal(emulation_read().conflicts, 0);
            assert_int_equal(emulation_read().mma * 4096, (6 + 8) * pairs * dim);
            /* dq: q and dout once, k and v for each group. Blocks of 64 keys: k and v once, q and
             * dout for each block. */
            assert_int_equal(emulation_read().copied_bytes,
                             4 * dim * (p.tq + pairs / group + p.tk + pairs / 64));
            free_gradients(&g);
            free_gradients(&e);
            free_case(&c);
            free_case(&d);
        }
}

/* A NaN in one query reaches its own gradient and those of the keys it attends to, no others. */
static void test_nan_stays_with_its_keys(void **state)
{
    (void)state;
    gpu_case c = make_case(ctx, &token_problems[0], 3);
    make_output(&c);
    gradients g = make_gradients(&c);
    const int d = c.p.dim;
    c.q[5 * d + 7] = 0x7fff;
    backward_ordered(&c, &g, 2, 0);
    for (int64_t s = 0; s < c.p.heads * c.p.tq; s++)
        assert_int_equal(isnan(g.dq[s * d]) != 0, s == 5);
    for (int64_t s = 0; s < c.p.heads * c.p.tk; s++) {
        int listed = 0;
        for (int64_t j = c.lists.offsets[0]; j < c.lists.offsets[1]; j++)
            listed |= c.lists.indices[j] == s;
        assert_int_equal(isnan(g.dk[s * d]) != 0, listed);
        assert_int_equal(isnan(g.dv[s * d]) != 0, listed);
    }
    free_gradients(&g);
    free_case(&c);
}

/* The same of blocks of keys: every key of the units that the query's group has. */
static void test_nan_stays_with_its_units(void **state)
{
    (void)state;
    gpu_case c = make_case(ctx, &block_problems[3], 3);
    make_output(&c);
    gradients g = make_gradients(&c);
    const int d = c.p.dim, unit = c.p.unit;
    c.q[40 * d + 7] = 0x7fff; /* of group 1 */
    backward_blocks(&c, &g, 0);
    for (int64_t s = 0; s < c.p.tq; s++)
        assert_int_equal(isnan(g.dq[s * d]) != 0, s == 40);
    int listed = 0;
    for (int64_t s = 0; s < c.p.tk; s++) {
        int own = 0;
        for (int64_t j = c.lists.offsets[1]; j < c.lists.offsets[2]; j++)
            own |= c.lists.indices[j] == s / unit;
        assert_int_equal(isnan(g.dk[s * d]) != 0, own);
        assert_int_equal(isnan(g.dv[s * d]) != 0, own);
        listed += own;
    }
    assert_in_range(listed, 1, c.p.tk - 1);
    free_gradients(&g);
    free_case(&c);
}

/* Logits that are all -inf, of one query: o = 0 and lse = -inf, and it has no part in gradients. */
static void test_logits_of_minus_infinity(void **state)
{
    (void)state;
    const gpu_problem *const from[] = {&token_problems[0], &block_problems[0]};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        gpu_case c = make_case(ctx, from[i], 3);
        const int d = c.p.dim;
        make_output(&c);
        for (int64_t s = 0; s < c.p.heads * c.p.tq; s++)
            c.q[s * d] = 0;
        for (int64_t s = 0; s < c.p.heads * c.p.tk; s++)
            c.k[s * d] = (u16)round_bf16(-0x1p100f);
        c.q[5 * d] = (u16)round_bf16(0x1p100f);
        memset(c.o + 5 * d, 0, (size_t)d * sizeof *c.o);
        c.lse[5] = -INFINITY;
        gradients g = make_gradients(&c);
        spoil(&g);
        if (c.p.unit < 16)
            backward_ordered(&c, &g, 2, 0);
        else
            backward_blocks(&c, &g, 0);
        for (int j = 0; j < d; j++)
            assert_true(g.dq[5 * d + j] == 0.0f);
        for (int64_t j = 0; j < c.p.heads * c.p.tk * d; j++)
            assert_true(isfinite(g.dk[j]) && isfinite(g.dv[j]));
        free_gradients(&g);
        free_case(&c);
    }
}

/* Logits of +-100, whose exponentials are out of the range of floats, in lists whose last chunk is
 * not whole: what is beyond a list must not meet an lse of -100. */
static void test_large_logits(void **state)
{
    (void)state;
    const gpu_problem *const from[] = {&token_problems[0], &token_problems[2], &block_problems[2]};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        gpu_case c = make_case(ctx, from[i], 80 + i);
        const int d = c.p.dim;
        for (int64_t s = 0; s < c.p.heads * c.p.tq; s++) {
            const float large = (s % 2 ? 100.0f : -100.0f) * (d == 64 ? 8.0f : 11.25f);
            c.q[s * d] = round_half(c.p.fp16, large, &c.q32[s * d]);
        }
        for (int64_t s = 0; s < c.p.heads * c.p.tk; s++)
            c.k[s * d] = round_half(c.p.fp16, 1.0f, &c.k32[s * d]);
        make_output(&c);
        gradients g = make_gradients(&c);
        spoil(&g);
        if (c.p.unit < 16)
            backward_ordered(&c, &g, 3, 2);
        else
            backward_blocks(&c, &g, 2);
        compare(&c, &g);
        free_gradients(&g);
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
    cmocka_unit_test(test_token_lists),
    cmocka_unit_test(test_block_lists),
    cmocka_unit_test(test_products_and_bytes),
    cmocka_unit_test(test_nan_stays_with_its_keys),
    cmocka_unit_test(test_nan_stays_with_its_units),
    cmocka_unit_test(test_logits_of_minus_infinity),
    cmocka_unit_test(test_large_logits),
};
RUN_TESTS_WITH(tests, setup, teardown)
