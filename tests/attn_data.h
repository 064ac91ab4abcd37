/* SPDX-License-Identifier: Apache-2.0 */
/* attn_data.h - problems of attention for the tests: tensors, selections, a run forward and
 * backward, and the comparison with the double-precision reference. */
#ifndef TESS_ATTN_DATA_H
#define TESS_ATTN_DATA_H

#include "attn/attention.h"
#include "ref/ref.h"
#include "tessera/advanced/clusters.h"
#include "tessera/advanced/selection.h"
#include "test.h"

#include <stdlib.h>

typedef enum { DENSE, RANDOM, FULL, EMPTY_ROWS } pattern;

/* A group or unit of 0 stands for bounds that grow: 1, 2, 3, ... rows. */
typedef struct {
    int batch, heads, dim;
    int64_t tq, tk;
    pattern pattern;
    int32_t group, unit;
    double density;
    int token_major; /* [B,S,H,D] instead of [B,H,S,D] */
    int bf16;
    int dlse;
    int compensate;
    const tess_token_roles *roles; /* of the selection; NULL: none */
} problem;

/* Samples, heads, size of a head, queries, keys; then other members by name. */
#define PROBLEM(b, h, d, q, k, ...)                                                                \
    {                                                                                              \
        .batch = (b), .heads = (h), .dim = (d), .tq = (q), .tk = (k), __VA_ARGS__                  \
    }
#define LISTS(kind, rows, keys, share)                                                             \
    .pattern = (kind), .group = (rows), .unit = (keys), .density = (share)

/* Lists of every kind, with and without virtual keys. */
static const problem list_problems[] = {
    PROBLEM(1, 1, 8, 1, 1, LISTS(RANDOM, 1, 1, 1.0), .dlse = 1),        /* the smallest */
    PROBLEM(2, 2, 64, 256, 256, LISTS(RANDOM, 64, 64, 0.4), .dlse = 1), /* block masks */
    /* the last unit is shorter */
    PROBLEM(1, 2, 128, 300, 500, LISTS(RANDOM, 128, 64, 0.3), .token_major = 1),
    PROBLEM(1, 2, 72, 250, 333, LISTS(RANDOM, 100, 16, 0.3), .dlse = 1),
    PROBLEM(1, 3, 64, 256, 700, LISTS(RANDOM, 64, 1, 0.2), .dlse = 1), /* token lists */
    PROBLEM(2, 2, 128, 130, 1000, LISTS(RANDOM, 64, 1, 0.1), .token_major = 1, .bf16 = 1),
    /* groups narrower than a vector */
    PROBLEM(1, 2, 24, 77, 500, LISTS(RANDOM, 5, 1, 0.2), .dlse = 1),
    PROBLEM(1, 1, 16, 40, 90, LISTS(RANDOM, 1, 1, 0.3)),                 /* no grouping at all */
    PROBLEM(1, 2, 64, 600, 300, LISTS(RANDOM, 256, 32, 0.5), .dlse = 1), /* groups cut into tiles */
    PROBLEM(1, 2, 64, 137, 211, LISTS(RANDOM, 0, 0, 0.4), .dlse = 1),    /* bounds on both sides */
    /* rows that see nothing */
    PROBLEM(1, 2, 64, 128, 256, LISTS(EMPTY_ROWS, 16, 8, 0.3), .dlse = 1),
    PROBLEM(1, 2, 64, 200, 200, LISTS(FULL, 64, 8, 1.0), .token_major = 1, .dlse = 1),
    PROBLEM(1, 1, 64, 96, 2500, LISTS(RANDOM, 64, 1, 0.9), .dlse = 1), /* several ranges of keys */
    /* the virtual key is the only one */
    PROBLEM(1, 1, 8, 1, 1, LISTS(RANDOM, 1, 1, 0.0), .dlse = 1),
    /* small groups of single keys */
    PROBLEM(2, 2, 48, 100, 512, LISTS(RANDOM, 8, 1, 0.125), .token_major = 1, .dlse = 1),
    PROBLEM(1, 3, 64, 256, 700, LISTS(RANDOM, 64, 1, 0.2)),
    /* bf16 storage */
    PROBLEM(2, 2, 128, 130, 1000, LISTS(RANDOM, 64, 1, 0.1), .token_major = 1, .bf16 = 1,
            .dlse = 1),
    /* as many listed as dropped */
    PROBLEM(1, 1, 256, 65, 400, LISTS(RANDOM, 32, 1, 0.5), .dlse = 1),
    /* fewer dropped than listed */
    PROBLEM(1, 2, 72, 97, 300, LISTS(RANDOM, 16, 1, 0.9), .dlse = 1),
    /* a few dropped, some lists full */
    PROBLEM(1, 2, 40, 97, 300, LISTS(RANDOM, 16, 1, 0.995), .token_major = 1, .bf16 = 1),
    PROBLEM(1, 2, 64, 137, 211, LISTS(RANDOM, 0, 0, 0.8), .token_major = 1, .bf16 = 1, .dlse = 1),
    PROBLEM(1, 1, 64, 96, 2500, LISTS(RANDOM, 64, 1, 0.3), .dlse = 1), /* several ranges of keys */
    PROBLEM(1, 1, 8, 16, 9000, LISTS(RANDOM, 8, 1, 0.05), .dlse = 1),  /* keys summed in slices */
    /* exactly a chunk, all of it */
    PROBLEM(1, 1, 40, 20, 96, LISTS(RANDOM, 20, 1, 1.0), .dlse = 1),
    PROBLEM(1, 1, 40, 0, 50, LISTS(RANDOM, 4, 1, 0.5)), /* no queries */
    PROBLEM(1, 1, 40, 50, 0, LISTS(RANDOM, 4, 1, 0.5)), /* no keys */
};
enum { LIST_PROBLEMS = sizeof list_problems / sizeof list_problems[0] };

/* The same with virtual keys: list i with counts[(from + i) % n] of them. */
static inline void with_virtual_keys(const int *counts, int n, int from, problem p[LIST_PROBLEMS])
{
    for (int i = 0; i < LIST_PROBLEMS; i++) {
        p[i] = list_problems[i];
        p[i].compensate = counts[(from + i) % n];
    }
}

/* Buffers hold exactly what is needed, so that the address sanitizer sees a step outside. */
typedef struct {
    const problem *p;
    tess_attn_shape shape;
    float *q, *k, *v, *o, *lse, *dout, *dlse, *dq, *dk, *dv;
    uint16_t *k16, *v16;
    tess_view vq, vk, vv, vo, vdout, vdq, vdk, vdv;
    tess_selection *sel;
    uint8_t *labels; /* of the last run, where keys have clusters */
} setting;

static inline float *buffer(size_t n, uint64_t seed)
{
    float *x = malloc(n ? n * sizeof *x : 1);
    assert_non_null(x);
    if (seed)
        fill_normal(x, n, seed);
    else
        memset(x, 0xff, n * sizeof *x); /* NaN: what is not written shows */
    return x;
}

static inline tess_view view_of(const problem *p, void *data, tess_dtype dtype, int64_t tokens)
{
    if (p->token_major)
        return (tess_view){data, dtype, tokens * p->heads * p->dim, p->dim,
                           (int64_t)p->heads * p->dim};
    return (tess_view){data, dtype, p->heads * tokens * p->dim, tokens * p->dim, p->dim};
}

static inline int64_t *growing_bounds(int64_t tokens, int32_t *n)
{
    int64_t *bounds = malloc((size_t)(tokens + 1) * sizeof *bounds);
    assert_non_null(bounds);
    bounds[0] = 0;
    *n = 0;
    for (int64_t at = 0; at < tokens; bounds[*n] = at) {
        at += *n + 1;
        at = at < tokens ? at : tokens;
        ++*n;
    }
    return bounds;
}

static inline tess_selection *make_selection(tess_ctx *ctx, const problem *p)
{
    tess_sel_shape shape = {.batch = p->batch,
                            .heads = p->heads,
                            .tokens_q = p->tq,
                            .tokens_k = p->tk,
                            .group = p->group,
                            .unit = p->unit};
    int64_t *bounds_q = NULL, *bounds_k = NULL;
    if (!p->group)
        shape.bounds_q = bounds_q = growing_bounds(p->tq, &shape.n_q);
    if (!p->unit)
        shape.bounds_k = bounds_k = growing_bounds(p->tk, &shape.n_k);
    const int64_t nq = p->group ? (p->tq + p->group - 1) / p->group : shape.n_q;
    const int64_t nk = p->unit ? (p->tk + p->unit - 1) / p->unit : shape.n_k;
    const size_t n = (size_t)(p->batch * p->heads * nq * nk);
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(ctx, &shape, (int64_t)n, &sel));
    float *u = malloc(n * sizeof *u);
    uint8_t *mask = malloc(n);
    assert_true(u && mask);
    CHECK_OK(tess_random_uniform(7, 1, 0, u, n));
    for (size_t i = 0; i < n; i++) {
        const size_t group = i / (size_t)nk % (size_t)nq;
        mask[i] = (double)u[i] < p->density && !(p->pattern == EMPTY_ROWS && group % 3 == 0);
    }
    CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
    if (p->roles)
        CHECK_OK(tess_selection_roles(sel, p->roles));
    free(u);
    free(mask);
    free(bounds_q);
    free(bounds_k);
    return sel;
}

static inline uint16_t *round_bf16(float *x, size_t n)
{
    uint16_t *half = malloc(n * sizeof *half);
    assert_non_null(half);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return half;
}

static inline setting make(tess_ctx *ctx, const problem *p)
{
    const size_t heads = (size_t)(p->batch * p->heads);
    const size_t rows_q = heads * (size_t)p->tq, nq = rows_q * (size_t)p->dim;
    const size_t nk = heads * (size_t)p->tk * (size_t)p->dim;
    setting s = {
        .p = p,
        .shape = {.batch = p->batch,
                  .heads = p->heads,
                  .head_dim = p->dim,
                  .tokens_q = p->tq,
                  .tokens_k = p->tk,
                  .compensate = p->compensate},
        .q = buffer(nq, 1),
        .k = buffer(nk, 2),
        .v = buffer(nk, 3),
        .o = buffer(nq, 0),
        .lse = buffer(rows_q, 0),
        .dout = buffer(nq, 4),
        .dlse = p->dlse ? buffer(rows_q, 5) : NULL,
        .dq = buffer(nq, 0),
        .dk = buffer(nk, 0),
        .dv = buffer(nk, 0),
    };
    s.vq = view_of(p, s.q, TESS_DTYPE_F32, p->tq);
    s.vk = view_of(p, s.k, TESS_DTYPE_F32, p->tk);
    s.vv = view_of(p, s.v, TESS_DTYPE_F32, p->tk);
    if (p->bf16) {
        s.k16 = round_bf16(s.k, nk);
        s.v16 = round_bf16(s.v, nk);
        s.vk.data = s.k16;
        s.vv.data = s.v16;
        s.vk.dtype = s.vv.dtype = TESS_DTYPE_BF16;
    }
    s.vo = view_of(p, s.o, TESS_DTYPE_F32, p->tq);
    s.vdout = view_of(p, s.dout, TESS_DTYPE_F32, p->tq);
    s.vdq = view_of(p, s.dq, TESS_DTYPE_F32, p->tq);
    s.vdk = view_of(p, s.dk, TESS_DTYPE_F32, p->tk);
    s.vdv = view_of(p, s.dv, TESS_DTYPE_F32, p->tk);
    if (p->pattern != DENSE)
        s.sel = make_selection(ctx, p);
    return s;
}

static inline void drop(setting *s)
{
    tess_selection_destroy(s->sel);
    void *all[] = {s->q,  s->k,  s->v,  s->o,   s->lse, s->dout,  s->dlse,
                   s->dq, s->dk, s->dv, s->k16, s->v16, s->labels};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static inline void run(tess_ctx *ctx, setting *s)
{
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &s->shape, &attn));
    CHECK_OK(tess_attn_forward(attn, s->sel, &s->vq, &s->vk, &s->vv, &s->vo, s->lse));
    const tess_attn_saved saved = {&s->vq, &s->vk, &s->vv, &s->vo, s->lse};
    CHECK_OK(
        tess_attn_backward(attn, s->sel, &saved, &s->vdout, s->dlse, &s->vdq, &s->vdk, &s->vdv));
    if (s->shape.compensate > 1) {
        const size_t n = (size_t)(s->p->batch * s->p->heads) * (size_t)s->p->tk;
        const uint8_t *labels;
        CHECK_OK(tess_attn_labels(attn, &labels));
        free(s->labels);
        s->labels = malloc(n + 1);
        assert_non_null(s->labels);
        memcpy(s->labels, labels, s->sel ? n : 0);
    }
    tess_attn_destroy(attn);
}

/* Copies (b, h, s, d) of a view into the reference's order. */
static inline float *in_order(const problem *p, const tess_view *view, int64_t tokens)
{
    float *out = buffer((size_t)(p->batch * p->heads * tokens * p->dim), 0), *to = out;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t t = 0; t < tokens; t++, to += p->dim)
                memcpy(to, tess__view_row(view, b, h, t), (size_t)p->dim * sizeof *to);
    return out;
}

static inline void check_close(const problem *p, const tess_view *got, const double *want,
                               int64_t tokens, double tolerance)
{
    float *x = in_order(p, got, tokens);
    CHECK_CLOSE(x, want, (size_t)(p->batch * p->heads * tokens * p->dim), tolerance);
    free(x);
}

/* A score is a dot product of head_dim normal numbers, scaled to unit variance, so rarely beyond 6;
 * its rounding errors add up to about 6 * 2^-24 * sqrt(256) = 6e-6 in the exponent, the polynomial
 * adds 2e-7 and the sums over at most 2500 keys 50 * 2^-24 = 3e-6. The gradients pass through two
 * such products and a difference (dP - delta), which may cancel by a few times. */
static const double tol_forward = 1e-5, tol_backward = 4e-5;

static inline void check_problem(tess_ctx *ctx, const problem *p)
{
    setting s = make(ctx, p);
    run(ctx, &s);
    tess_selection_lists lists;
    if (s.sel)
        CHECK_OK(tess_selection_view(s.sel, &lists));
    const size_t heads = (size_t)(p->batch * p->heads), rows_q = heads * (size_t)p->tq;
    const size_t nq = rows_q * (size_t)p->dim, nk = heads * (size_t)p->tk * (size_t)p->dim;
    double *want = malloc((nq + rows_q + 2 * nk + 1) * sizeof *want);
    assert_non_null(want);
    double *lse = want + nq, *dk = lse + rows_q, *dv = dk + nk;
    CHECK_OK(ref_cluster_forward(ctx, &s.shape, s.sel ? &lists : NULL, s.labels, &s.vq, &s.vk,
                                 &s.vv, want, lse));
    check_close(p, &s.vo, want, p->tq, tol_forward);
    CHECK_CLOSE(s.lse, lse, rows_q, tol_forward);
    CHECK_OK(ref_cluster_backward(ctx, &s.shape, s.sel ? &lists : NULL, s.labels, &s.vq, &s.vk,
                                  &s.vv, &s.vdout, s.dlse, want, dk, dv));
    check_close(p, &s.vdq, want, p->tq, tol_backward);
    check_close(p, &s.vdk, dk, p->tk, tol_backward);
    check_close(p, &s.vdv, dv, p->tk, tol_backward);
    free(want);
    drop(&s);
}

static inline void check_same_bits(const setting *a, const setting *b)
{
    const problem *p = a->p;
    const size_t heads = (size_t)(p->batch * p->heads), rows_q = heads * (size_t)p->tq;
    const size_t nq = rows_q * (size_t)p->dim, nk = heads * (size_t)p->tk * (size_t)p->dim;
    assert_memory_equal(a->o, b->o, nq * sizeof(float));
    assert_memory_equal(a->lse, b->lse, rows_q * sizeof(float));
    assert_memory_equal(a->dq, b->dq, nq * sizeof(float));
    assert_memory_equal(a->dk, b->dk, nk * sizeof(float));
    assert_memory_equal(a->dv, b->dv, nk * sizeof(float));
}

/* Each problem against the reference, on every instruction set of the machine. */
static inline void check_on_every_isa(const problem *problems, int n)
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (isa.bf16) /* all that is not bf16 is that of another */
            continue;
        if (!isa.available) {
            print_message("skipped %s: %s\n", isa.name, isa.why);
            continue;
        }
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa.name, .threads = 3}, &ctx));
        for (int k = 0; k < n; k++) {
            print_message("%s: problem %d\n", isa.name, k);
            check_problem(ctx, &problems[k]);
        }
        tess_ctx_destroy(ctx);
    }
}

static inline void check_bits_of_any_threads(const problem *p)
{
    static const int counts[] = {1, 2, 7};
    setting s[3];
    tess_ctx *ctx[3];
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = counts[i]}, &ctx[i]));
        s[i] = make(ctx[i], p);
        run(ctx[i], &s[i]);
    }
    check_same_bits(&s[0], &s[1]);
    check_same_bits(&s[0], &s[2]);
    for (int i = 0; i < 3; i++) {
        drop(&s[i]);
        tess_ctx_destroy(ctx[i]);
    }
}

static inline int make_ctx(void **state)
{
    return tess_ctx_create(NULL, (tess_ctx **)state);
}

static inline int drop_ctx(void **state)
{
    tess_ctx_destroy(*state);
    return 0;
}

#endif
