/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_data.c - tensors and lists of a problem, from its seed. */
#include "gpu_data.h"

#include <stdlib.h>

tess_ctx *ctx;

int open_context(void **state)
{
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    return 0;
}

int close_context(void **state)
{
    tess_ctx_info info;
    (void)state;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
    return 0;
}

u16 round_half(const gpu_case *c, float x, float *value)
{
    const int fp16 = c->p.options & FP16;
    const u16 h = (u16)(fp16 ? round_fp16(x) : round_bf16(x));
    *value = fp16 ? emulation_fp16(h) : as_float((u32)h << 16);
    return h;
}

void *spoilt(void *data, size_t bytes)
{
    return memset(data, 0xff, bytes);
}

/* ---- tensors --------------------------------------------------------------------------------- */

tess_view view_of(const gpu_case *c, const void *data, tess_dtype dtype, int64_t tokens)
{
    const int64_t d = c->p.dim, h = c->p.heads;
    if (c->p.options & TOKEN_MAJOR)
        return (tess_view){(void *)(uintptr_t)data, dtype, tokens * h * d, d, h * d};
    return (tess_view){(void *)(uintptr_t)data, dtype, tokens * h * d, tokens * d, d};
}

static int64_t tokens_of(const gpu_case *c, gpu_tensor t)
{
    return t == GPU_K || t == GPU_V || t == GPU_DK || t == GPU_DV ? c->p.tk : c->p.tq;
}

/* Apart: no two tensors have the same bytes from row to row, or from head to head, or from sample
 * to sample; the padding is a multiple of 16 bytes. */
tess_view device_view(const gpu_case *c, gpu_tensor t, const void *data)
{
    const tess_dtype half = c->p.options & FP16 ? TESS_DTYPE_F16 : TESS_DTYPE_BF16;
    const int token_major = c->p.options & TOKEN_MAJOR;
    const int64_t tokens = tokens_of(c, t), pad = 8 * ((int64_t)t + 1);
    tess_view v = view_of(c, data, t >= GPU_DQ ? TESS_DTYPE_F32 : half, tokens);
    if (!(c->p.options & APART))
        return v;
    int64_t *const inner = token_major ? &v.stride_h : &v.stride_s;
    int64_t *const outer = token_major ? &v.stride_s : &v.stride_h;
    *inner = c->p.dim + pad;
    *outer = *inner * (token_major ? c->p.heads : tokens) + pad + 8;
    v.stride_b = *outer * (token_major ? tokens : c->p.heads) + pad + 16;
    return v;
}

tess_gpu_rows rows_of(const gpu_case *c, gpu_tensor t, const void *data)
{
    const tess_view v = device_view(c, t, data);
    const int64_t bytes = (int64_t)tess_dtype_size(v.dtype);
    return (tess_gpu_rows){v.data, v.stride_b * bytes, v.stride_h * bytes,
                           (int)(v.stride_s * bytes), 0};
}

size_t device_bytes(const gpu_case *c, gpu_tensor t)
{
    const tess_view v = device_view(c, t, NULL);
    const int64_t last = (c->p.batch - 1) * v.stride_b + (c->p.heads - 1) * v.stride_h +
                         (tokens_of(c, t) - 1) * v.stride_s;
    return (size_t)(last + c->p.dim) * tess_dtype_size(v.dtype);
}

double *in_order(const gpu_case *c, gpu_tensor t, const void *got)
{
    const tess_view v = device_view(c, t, got);
    const int64_t tokens = tokens_of(c, t);
    double *const x = malloc(sizeof *x * (size_t)(c->p.batch * c->p.heads * tokens * c->p.dim) + 1);
    size_t i = 0;
    for (int b = 0; b < c->p.batch; b++)
        for (int h = 0; h < c->p.heads; h++)
            for (int64_t s = 0; s < tokens; s++)
                for (int d = 0; d < c->p.dim; d++) {
                    const int64_t at = b * v.stride_b + h * v.stride_h + s * v.stride_s + d;
                    const u16 *const half = v.data;
                    x[i++] = v.dtype == TESS_DTYPE_F32   ? ((const float *)v.data)[at]
                             : v.dtype == TESS_DTYPE_F16 ? emulation_fp16(half[at])
                                                         : as_float((u32)half[at] << 16);
                }
    return x;
}

/* Values and their roundings. */
static void make_tensor(const gpu_case *c, gpu_tensor t, uint64_t seed, u16 **half, float **value)
{
    const int64_t tokens = tokens_of(c, t), h = c->p.heads, dim = c->p.dim;
    const size_t n = (size_t)(c->p.batch * h * tokens * dim), bytes = device_bytes(c, t);
    *half = spoilt(malloc(bytes), bytes);
    *value = malloc(n * sizeof **value);
    fill_normal(*value, n, seed);
    const tess_view to = device_view(c, t, *half);
    const tess_view from = view_of(c, *value, TESS_DTYPE_F32, tokens);
    for (int64_t i = 0; i < (int64_t)n; i++) {
        const int64_t d = i % dim, s = i / dim % tokens, head = i / dim / tokens;
        const int64_t b = head / h;
        float *const x =
            *value + b * from.stride_b + head % h * from.stride_h + s * from.stride_s + d;
        (*half)[b * to.stride_b + head % h * to.stride_h + s * to.stride_s + d] =
            round_half(c, *x, x);
    }
}

void make_large_logits(gpu_case *c)
{
    const int64_t d = c->p.dim, heads = c->p.batch * c->p.heads;
    assert_int_equal(c->p.options & APART, 0);
    for (int64_t s = 0; s < heads * c->p.tq; s++) {
        const float large = (s % 2 ? 100.0f : -100.0f) * (d == 64 ? 8.0f : 11.25f);
        c->q[s * d] = round_half(c, large, &c->q32[s * d]);
    }
    for (int64_t s = 0; s < heads * c->p.tk; s++)
        c->k[s * d] = round_half(c, 1.0f, &c->k32[s * d]);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int64_t *growing_bounds(int64_t tokens, int32_t *n)
{
    int64_t *const bounds = malloc(sizeof *bounds * (size_t)(tokens + 1));
    int32_t i = 0;
    bounds[0] = 0;
    for (int64_t at = 0; at < tokens; bounds[++i] = at)
        at = at + i + 1 < tokens ? at + i + 1 : tokens;
    *n = i;
    return bounds;
}

static void make_lists(gpu_case *c, uint64_t seed)
{
    const gpu_problem *const p = &c->p;
    tess_sel_shape shape = {.batch = p->batch,
                            .heads = p->heads,
                            .tokens_q = p->tq,
                            .tokens_k = p->tk,
                            .group = p->group,
                            .unit = p->unit};
    int64_t *bounds_q = NULL, *bounds_k = NULL;
    if (p->group == 0)
        shape.bounds_q = bounds_q = growing_bounds(p->tq, &shape.n_q);
    if (p->unit == 0)
        shape.bounds_k = bounds_k = growing_bounds(p->tk, &shape.n_k);
    CHECK_OK(tess_selection_create(ctx, &shape, 0, &c->sel));
    CHECK_OK(tess_selection_view(c->sel, &c->lists));
    tess_selection_destroy(c->sel);
    const int32_t n_k = c->lists.shape.n_k;
    const int64_t lists = (int64_t)p->batch * p->heads * c->lists.shape.n_q;
    int64_t *const offsets = malloc(sizeof *offsets * (size_t)(lists + 1));
    int32_t *const indices = malloc(sizeof *indices * (size_t)(lists * n_k) + 1);
    float *const draws = malloc(sizeof *draws * (size_t)(n_k + 1));
    offsets[0] = 0;
    for (int64_t i = 0; i < lists; i++) {
        offsets[i + 1] = offsets[i];
        CHECK_OK(tess_random_uniform(seed, (uint64_t)i, 0, draws, (size_t)n_k));
        for (int32_t j = 0; j < n_k; j++)
            if ((p->options & FULL || i % 5 != 3) && draws[j] < p->density)
                indices[offsets[i + 1]++] = j;
    }
    CHECK_OK(tess_selection_create(ctx, &shape, offsets[lists], &c->sel));
    CHECK_OK(tess_selection_set_lists(c->sel, offsets, indices));
    CHECK_OK(tess_selection_view(c->sel, &c->lists));
    free(offsets);
    free(indices);
    free(draws);
    free(bounds_q);
    free(bounds_k);
}

/* ---- cases ----------------------------------------------------------------------------------- */

gpu_case make_case(const gpu_problem *p, uint64_t seed)
{
    gpu_case c = {.p = *p};
    const size_t rows = (size_t)(p->batch * p->heads * p->tq);
    make_lists(&c, seed);
    make_tensor(&c, GPU_Q, seed + 1, &c.q, &c.q32);
    make_tensor(&c, GPU_K, seed + 2, &c.k, &c.k32);
    make_tensor(&c, GPU_V, seed + 3, &c.v, &c.v32);
    make_tensor(&c, GPU_DOUT, seed + 4, &c.dout, &c.dout32);
    c.o = spoilt(malloc(device_bytes(&c, GPU_O)), device_bytes(&c, GPU_O));
    c.lse = spoilt(malloc(rows * sizeof *c.lse), rows * sizeof *c.lse);
    c.dlse = malloc(rows * sizeof *c.dlse);
    fill_normal(c.dlse, rows, seed + 5);
    c.bounds_q = malloc(sizeof *c.bounds_q * (size_t)(c.lists.shape.n_q + 1));
    for (int32_t i = 0; i <= c.lists.shape.n_q; i++)
        c.bounds_q[i] = (int)c.lists.shape.bounds_q[i];
    return c;
}

void free_case(gpu_case *c)
{
    tess_selection_destroy(c->sel);
    void *const all[] = {c->q,    c->k,   c->v,   c->o,   c->dout,   c->lse,
                         c->dlse, c->q32, c->k32, c->v32, c->dout32, c->bounds_q};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

tess_attn_shape shape_of(const gpu_case *c)
{
    return (tess_attn_shape){.batch = c->p.batch,
                             .heads = c->p.heads,
                             .head_dim = c->p.dim,
                             .tokens_q = c->p.tq,
                             .tokens_k = c->p.tk};
}

int largest_group(const gpu_case *c)
{
    int most = 0;
    for (int32_t i = 0; i < c->lists.shape.n_q; i++) {
        const int rows = c->bounds_q[i + 1] - c->bounds_q[i];
        most = rows > most ? rows : most;
    }
    return most;
}
