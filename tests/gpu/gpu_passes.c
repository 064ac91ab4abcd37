/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_passes.c - the arguments of each kernel from a case, as src/gpu makes them from views. */
#include "gpu_passes.h"

#include "gpu_kernels.h"
#include "ref/ref.h"

#include <stdlib.h>

void launch(const char *name, const void *args, i64 blocks, u32 seed)
{
    const emulated_kernel *const kernel = find_emulated(name);
    if (!kernel)
        fail_msg("%s: no such kernel", name);
    const char *const problem = emulation_run(&(emulation_launch){
        kernel->run, args, blocks, kernel->threads, kernel->shared_bytes, seed});
    if (problem)
        fail_msg("%s, seed %u: %s", name, seed, problem);
}

static const char *type_name(const gpu_case *c)
{
    return c->p.options & FP16 ? "fp16" : "bf16";
}

/* "forward_d64_g32_bf16": of the head_dim and type of the case. */
static void launch_sized(const gpu_case *c, const char *kernel, char what, int size,
                         const void *args, i64 blocks, u32 seed)
{
    char name[64];
    snprintf(name, sizeof name, "%s_d%d_%c%d_%s", kernel, c->p.dim, what, size, type_name(c));
    launch(name, args, blocks, seed);
}

static void launch_rows(const gpu_case *c, const char *kernel, const void *args, u32 seed)
{
    char name[64];
    snprintf(name, sizeof name, "%s_d%d", kernel, c->p.dim);
    launch(name, args, (i64)c->p.batch * c->p.heads * c->p.tk, seed);
}

static int unit_shift(const gpu_case *c)
{
    return __builtin_ctz((u32)c->p.unit);
}

tess_gpu_lists lists_of(const gpu_case *c)
{
    return (tess_gpu_lists){(const long long *)c->lists.offsets,
                            c->lists.indices,
                            c->bounds_q,
                            c->p.heads,
                            (int)c->p.tq,
                            (int)c->p.tk,
                            c->lists.shape.n_q,
                            c->lists.shape.n_k,
                            unit_shift(c)};
}

static i64 heads_of(const gpu_case *c)
{
    return (i64)c->p.batch * c->p.heads;
}

static size_t rows_q(const gpu_case *c)
{
    return (size_t)(heads_of(c) * c->p.tq);
}

/* ---- forward --------------------------------------------------------------------------------- */

void forward_pass(gpu_case *c, u32 seed)
{
    const int most = largest_group(c);
    const int bm = most <= 16 ? 16 : most <= 32 ? 32 : most <= 64 ? 64 : 128;
    const tess_gpu_forward_args args = {
        .lists = lists_of(c),
        .q = rows_of(c, GPU_Q, c->q),
        .k = rows_of(c, GPU_K, c->k),
        .v = rows_of(c, GPU_V, c->v),
        .o = rows_of(c, GPU_O, c->o),
        .lse = c->lse,
        .tiles = (most + bm - 1) / bm,
        .scale2 = (float)(1.4426950408889634 / sqrt(c->p.dim)),
    };
    launch_sized(c, "forward", 'g', bm, &args, c->lists.lists * args.tiles, seed);
}

/* o (heads, tokens_q, dim) and lse in double precision. */
static void reference_output(const gpu_case *c, double *o, double *lse)
{
    const tess_attn_shape shape = shape_of(c);
    const tess_view q = view_of(c, c->q32, TESS_DTYPE_F32, c->p.tq);
    const tess_view k = view_of(c, c->k32, TESS_DTYPE_F32, c->p.tk);
    const tess_view v = view_of(c, c->v32, TESS_DTYPE_F32, c->p.tk);
    CHECK_OK(ref_attn_forward(ctx, &shape, &c->lists, &q, &k, &v, o, lse));
}

void make_output(gpu_case *c)
{
    const size_t rows = rows_q(c), dim = (size_t)c->p.dim;
    const tess_view o = device_view(c, GPU_O, c->o);
    double *const out = malloc(rows * dim * sizeof *out), *const lse = malloc(rows * sizeof *lse);
    reference_output(c, out, lse);
    for (size_t i = 0; i < rows; i++) {
        const int64_t s = (int64_t)i % c->p.tq, h = (int64_t)i / c->p.tq % c->p.heads;
        const int64_t b = (int64_t)i / c->p.tq / c->p.heads;
        u16 *const to = c->o + b * o.stride_b + h * o.stride_h + s * o.stride_s;
        for (size_t d = 0; d < dim; d++) {
            float value;
            to[d] = round_half(c, (float)out[i * dim + d], &value);
        }
        c->lse[i] = (float)lse[i];
    }
    free(out);
    free(lse);
}

/* P and o are rounded to 8 or 11 bits: half a unit in the last place of each. */
void check_output(const gpu_case *c, const void *o, const float *lse)
{
    const size_t rows = rows_q(c), n = rows * (size_t)c->p.dim;
    double *const want = malloc(n * sizeof *want), *const want_lse = malloc(rows * sizeof *want);
    double *const got = in_order(c, GPU_O, o);
    reference_output(c, want, want_lse);
    CHECK_CLOSE(got, want, n, c->p.options & FP16 ? 6e-4 : 4e-3);
    CHECK_CLOSE(lse, want_lse, rows, 2e-6);
    free(want);
    free(want_lse);
    free(got);
}

/* ---- backward -------------------------------------------------------------------------------- */

void transpose_lists(const tess_gpu_transpose_args *args, i64 heads, u32 seed)
{
    const i64 strips = (args->lists.n_k + 255) / 256;
    launch("count_entries", args, heads * strips, seed);
    launch("sum_entries", args, heads, seed);
    launch("fill_entries", args, heads * strips, seed);
}

gradients make_gradients(const gpu_case *c)
{
    const size_t heads = (size_t)heads_of(c), n = (size_t)c->lists.offsets[c->lists.lists];
    gradients g = {.dq_bytes = device_bytes(c, GPU_DQ),
                   .dk_bytes = device_bytes(c, GPU_DK),
                   .dv_bytes = device_bytes(c, GPU_DV)};
    /* A kernel that takes a stride too large is to fail a comparison, not to destroy the heap. */
    const size_t room = SANITIZED ? 1 : 2;
    g.dq = malloc(room * g.dq_bytes);
    g.dk = malloc(room * g.dk_bytes);
    g.dv = malloc(room * g.dv_bytes);
    g.delta = malloc(rows_q(c) * sizeof(float));
    g.first = malloc(heads * (size_t)(c->lists.shape.n_k + 1) * sizeof(int));
    g.group = malloc(n * sizeof(int) + 1);
    g.place = malloc(n * sizeof(int) + 1);
    transpose_lists(&(tess_gpu_transpose_args){lists_of(c), g.first, g.group, g.place}, heads_of(c),
                    0);
    spoil_gradients(&g);
    return g;
}

void spoil_gradients(gradients *g)
{
    spoilt(g->dq, g->dq_bytes);
    spoilt(g->dk, g->dk_bytes);
    spoilt(g->dv, g->dv_bytes);
}

void free_gradients(gradients *g)
{
    void *const all[] = {g->dq, g->dk, g->dv, g->delta, g->first, g->group, g->place};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void check_same_gradients(const gradients *g, const gradients *want)
{
    assert_memory_equal(g->dq, want->dq, want->dq_bytes);
    assert_memory_equal(g->dk, want->dk, want->dk_bytes);
    assert_memory_equal(g->dv, want->dv, want->dv_bytes);
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

static void launch_backward(const gpu_case *c, const tess_gpu_backward_args *args, i64 lists,
                            u32 seed)
{
    launch_sized(c, "backward", 'g', block_rows(c), args, lists * args->tiles, seed);
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

void backward_ordered(const gpu_case *c, gradients *g, int64_t lists_each, u32 seed)
{
    tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_ORDERED);
    tess_gpu_sum_args sum = sum_args(c, g);
    for (int64_t l = 0; l < c->lists.lists; l += lists_each) {
        const int64_t end = l + lists_each < c->lists.lists ? l + lists_each : c->lists.lists;
        sum.entry0 = args.entry0 = c->lists.offsets[l];
        sum.entry1 = c->lists.offsets[end];
        const size_t rows = (size_t)((sum.entry1 - sum.entry0) * args.tiles) << unit_shift(c);
        const size_t bytes = rows * (size_t)c->p.dim * sizeof(float) + 16;
        sum.row_dk = args.row_dk = spoilt(malloc(bytes), bytes);
        sum.row_dv = args.row_dv = spoilt(malloc(bytes), bytes);
        sum.begin = l == 0;
        sum.scale = end == c->lists.lists ? args.scale : 1.0f;
        args.list0 = (int)l;
        launch_backward(c, &args, end - l, seed);
        launch_rows(c, "sum_rows", &sum, seed);
        free(args.row_dk);
        free(args.row_dv);
    }
}

void backward_atomic(const gpu_case *c, gradients *g, u32 seed)
{
    const tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_ATOMIC);
    const tess_gpu_sum_args sum = sum_args(c, g);
    launch_rows(c, "zero_rows", &sum, seed);
    launch_backward(c, &args, c->lists.lists, seed);
}

void backward_blocks(const gpu_case *c, gradients *g, u32 seed)
{
    char name[64];
    const int keys = c->p.unit >= 64 ? 64 : 16;
    const tess_gpu_backward_args args = backward_args(c, g, TESS_GPU_QUERIES);
    const tess_gpu_delta_args delta = {args.o,   args.dout,  c->dlse,
                                       g->delta, c->p.heads, (int)c->p.tq};
    const tess_gpu_keys_args own = {args.lists, args.q, args.k,   args.v,   args.dout, args.dk,
                                    args.dv,    c->lse, g->delta, g->first, g->group,  args.scale};
    launch_backward(c, &args, c->lists.lists, seed);
    snprintf(name, sizeof name, "delta_d%d_%s", c->p.dim, type_name(c));
    launch(name, &delta, heads_of(c) * ((c->p.tq + 3) / 4), seed);
    launch_sized(c, "key_blocks", 'k', keys, &own, heads_of(c) * ((c->p.tk + keys - 1) / keys),
                 seed);
}

void backward_by_unit(const gpu_case *c, gradients *g, u32 seed)
{
    if (c->p.unit < 16)
        backward_ordered(c, g, 1 + seed % 4, seed);
    else
        backward_blocks(c, g, seed);
}

/* S, P and dS are rounded once each, and o: about twice the error of the forward pass. */
void check_gradients(const gpu_case *c, const void *dq, const void *dk, const void *dv)
{
    static const gpu_tensor tensors[] = {GPU_DQ, GPU_DK, GPU_DV};
    static const char *const names[] = {"dq", "dk", "dv"};
    const size_t dim = (size_t)c->p.dim, keys = (size_t)(heads_of(c) * c->p.tk) * dim;
    const size_t n[] = {rows_q(c) * dim, keys, keys};
    const void *const got[] = {dq, dk, dv};
    const tess_attn_shape shape = shape_of(c);
    const tess_view q = view_of(c, c->q32, TESS_DTYPE_F32, c->p.tq);
    const tess_view k = view_of(c, c->k32, TESS_DTYPE_F32, c->p.tk);
    const tess_view v = view_of(c, c->v32, TESS_DTYPE_F32, c->p.tk);
    const tess_view dout = view_of(c, c->dout32, TESS_DTYPE_F32, c->p.tq);
    double *want[3];
    for (int i = 0; i < 3; i++)
        want[i] = malloc(n[i] * sizeof **want);
    CHECK_OK(ref_attn_backward(ctx, &shape, &c->lists, &q, &k, &v, &dout, c->dlse, want[0], want[1],
                               want[2]));
    for (int i = 0; i < 3; i++) {
        double *const found = in_order(c, tensors[i], got[i]);
        check_close_(names[i], 1, found, want[i], n[i], c->p.options & FP16 ? 6e-4 : 5e-3, __FILE__,
                     __LINE__);
        free(found);
        free(want[i]);
    }
}
