/* SPDX-License-Identifier: Apache-2.0 */
/* workload.c - tensors and selections of a problem, and the calls on them. */
#include "workload.h"

#include "choices.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/selection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 12, RANK = 16 };

/* Streams of random numbers, one for each input. */
enum { STREAM_Q = 1, STREAM_K, STREAM_V, STREAM_DOUT, STREAM_LOW_Q, STREAM_LOW_K, STREAM_BIAS };

/* ---- buffers ------------------------------------------------------------------------------ */

/* Refused before the machine starts to swap. */
tess_status workload_take(workload *w, int64_t n, tess_dtype dtype, void **data)
{
    char need[32], have[32];
    const int64_t bytes = n * (int64_t)tess_dtype_size(dtype), rounded = (bytes + 64) / 64 * 64;
    void *memory = w->bytes + rounded <= w->bytes_max ? aligned_alloc(64, (size_t)rounded) : NULL;
    if (!memory)
        return out_fail(w->c, TESS_ENOMEM, "the problem needs at least %s, and %s are available",
                        out_bytes(w->bytes + rounded, need), out_bytes(w->bytes_max, have));
    memset(memory, 0xff, (size_t)rounded);
    w->buffers[w->n_buffers++] = memory;
    w->bytes += rounded;
    *data = memory;
    return TESS_OK;
}

/* Fills n elements of F32 or BF16 with the normal numbers of a stream. */
static tess_status fill(const workload *w, void *data, tess_dtype dtype, int64_t n, uint64_t stream)
{
    static _Thread_local float numbers[CHUNK]; /* ranks may be threads */
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t count = n - i < CHUNK ? n - i : CHUNK;
        void *to = (char *)data + i * (int64_t)tess_dtype_size(dtype);
        if (signals_caught())
            return TESS_ESTOPPED;
        TRY(tess_random_normal((uint64_t)w->p.seed, stream, (uint64_t)i, numbers, (size_t)count));
        TRY(tess_convert(w->c->ctx, TESS_DTYPE_F32, numbers, dtype, to, count));
    }
    return TESS_OK;
}

/* Rounds floats to numbers of bf16, ties to even. */
static void round_bf16(void *data, int64_t n)
{
    uint32_t *bits = data;
    for (int64_t i = 0; i < n; i++)
        bits[i] = (bits[i] + 0x7fff + (bits[i] >> 16 & 1)) & 0xffff0000u;
}

/* A (batch, heads, tokens, dim) tensor in the problem's layout. stream 0: an output. */
static tess_status tensor(workload *w, int64_t tokens, int64_t dim, tess_dtype dtype, int stream,
                          tess_view *view)
{
    const problem *p = &w->p;
    const int64_t n = p->batch * p->heads * tokens * dim;
    const int token_major = p->layout && strcmp(p->layout, "bshd") == 0;
    void *data;
    TRY(workload_take(w, n, dtype, &data));
    if (stream)
        TRY(fill(w, data, dtype, n, (uint64_t)stream));
    if (stream && dtype == TESS_DTYPE_F32 && problem_in_bf16(p))
        round_bf16(data, n);
    *view = (tess_view){data, dtype, p->heads * tokens * dim, token_major ? dim : tokens * dim,
                        token_major ? p->heads * dim : dim};
    return TESS_OK;
}

tess_status workload_matrix(workload *w, int64_t rows, int64_t columns, int stream, float **data)
{
    void *memory;
    TRY(workload_take(w, rows * columns, TESS_DTYPE_F32, &memory));
    *data = memory;
    return stream ? fill(w, memory, TESS_DTYPE_F32, rows * columns, (uint64_t)stream) : TESS_OK;
}

/* ---- selections --------------------------------------------------------------------------- */

static tess_sel_shape sel_shape(const problem *p)
{
    return (tess_sel_shape){.batch = (int)p->batch,
                            .heads = (int)p->heads,
                            .tokens_q = p->tokens_q,
                            .tokens_k = p->tokens_k,
                            .group = (int32_t)p->group,
                            .unit = (int32_t)p->unit};
}

/* The density, rounded to whole units, at least one. */
static int32_t units_selected(const problem *p)
{
    const int64_t units = (p->tokens_k + p->unit - 1) / p->unit;
    const double wanted = round(p->density * (double)units);
    return wanted < 1 ? 1 : (int32_t)wanted;
}

/* Indices that a text adds at most. */
static int64_t text_room(const problem *p)
{
    const int64_t groups = (p->tokens_q + p->group - 1) / p->group,
                  units = (p->tokens_k + p->unit - 1) / p->unit;
    const int64_t dense = (p->text + p->group - 1) / p->group,
                  pinned = (p->text + p->unit - 1) / p->unit;
    return p->batch * p->heads * (groups * pinned + dense * units);
}

static tess_status empty_selection(workload *w, tess_selector *selector, const tess_select_in *in,
                                   int64_t more, tess_selection **sel)
{
    const tess_sel_shape shape = sel_shape(&w->p);
    int64_t capacity;
    TRY(tess_selector_capacity(selector, &shape, in, &capacity));
    return tess_selection_create(w->c->ctx, &shape, capacity + more, sel);
}

/* The first tokens are a text's. */
static tess_status add_text(workload *w)
{
    const tess_row_range text = {0, w->p.text};
    const tess_token_roles roles = {&text, 1, &text, 1};
    return w->p.text > 0 ? tess_selection_roles(w->sel, &roles) : TESS_OK;
}

/* w->sel: as many units for every group, chosen at random for each. */
static tess_status select_at_random(workload *w)
{
    const tess_select_in in = {.seed = (uint64_t)w->p.seed, .budget.keys = units_selected(&w->p)};
    tess_selection_lists lists;
    tess_selector *selector = NULL;
    tess_status status = tess_selector_create(
        w->c->ctx, &(tess_selector_opts){.kind = TESS_SELECT_RANDOM}, &selector);
    if (status == TESS_OK)
        status = empty_selection(w, selector, &in, text_room(&w->p), &w->sel);
    if (status == TESS_OK)
        status = tess_selector_run(selector, &in, w->sel);
    if (status == TESS_OK)
        status = add_text(w);
    if (status == TESS_OK)
        status = tess_selection_view(w->sel, &lists);
    if (status == TESS_OK)
        w->density = lists.density;
    tess_selector_destroy(selector);
    return status;
}

static tess_select_kind kind_named(const char *name)
{
    int kind = 0;
    while (strcmp(tess_select_kind_name((tess_select_kind)kind), name) != 0)
        kind++;
    return (tess_select_kind)kind;
}

/* The selector of a select problem, or the one that stands beside an attn problem. */
static tess_status make_selector(workload *w)
{
    const problem *p = &w->p;
    const int64_t dim = p->kind == PROBLEM_SELECT ? p->rank : RANK;
    if (p->selector)
        w->rule.kind = kind_named(p->selector);
    if (p->proxy)
        w->rule.proxy = (tess_proxy)choices_value(TESS_OPTIONS_ATTENTION, "proxy", p->proxy);
    TRY(tensor(w, p->tokens_q, dim, TESS_DTYPE_F32, STREAM_LOW_Q, &w->low_q));
    TRY(tensor(w, p->tokens_k, dim, TESS_DTYPE_F32, STREAM_LOW_K, &w->low_k));
    w->in = (tess_select_in){
        .q = &w->low_q, .k = &w->low_k, .head_dim = (int)dim, .budget.keys = units_selected(p)};
    TRY(tess_selector_create(w->c->ctx, &w->rule, &w->selector));
    return empty_selection(w, w->selector, &w->in, 0, &w->chosen);
}

/* ---- the kinds ---------------------------------------------------------------------------- */

/* q, k, v and what the passes write. */
static tess_status make_tensors(workload *w, tess_dtype storage)
{
    const problem *p = &w->p;
    const tess_dtype f32 = TESS_DTYPE_F32;
    void *lse;
    TRY(tensor(w, p->tokens_q, p->dim, f32, STREAM_Q, &w->q));
    TRY(tensor(w, p->tokens_k, p->dim, storage, STREAM_K, &w->k));
    TRY(tensor(w, p->tokens_k, p->dim, storage, STREAM_V, &w->v));
    TRY(tensor(w, p->tokens_q, p->dim, f32, 0, &w->o));
    TRY(workload_take(w, p->batch * p->heads * p->tokens_q, f32, &lse));
    w->lse = lse;
    if (!p->backward)
        return TESS_OK;
    TRY(tensor(w, p->tokens_q, p->dim, f32, STREAM_DOUT, &w->dout));
    TRY(tensor(w, p->tokens_q, p->dim, f32, 0, &w->dq));
    TRY(tensor(w, p->tokens_k, p->dim, f32, 0, &w->dk));
    return tensor(w, p->tokens_k, p->dim, f32, 0, &w->dv);
}

static tess_status make_attn(workload *w)
{
    const problem *p = &w->p;
    const tess_dtype storage = strcmp(p->storage, "f32") == 0 ? TESS_DTYPE_F32 : TESS_DTYPE_BF16;
    w->shape = (tess_attn_shape){.batch = (int)p->batch,
                                 .heads = (int)p->heads,
                                 .head_dim = (int)p->dim,
                                 .tokens_q = p->tokens_q,
                                 .tokens_k = p->tokens_k,
                                 .compensate = (int)p->compensate,
                                 .precision = problem_in_bf16(p) ? TESS_PRECISION_BF16
                                                                 : TESS_PRECISION_FP32};
    TRY(tess_attn_create(w->c->ctx, &w->shape, &w->attn));
    if (p->density < 1)
        TRY(select_at_random(w));
    return make_tensors(w, storage);
}

/* One sample, whose heads have densities of their own; cp_lists.c makes the lists. */
static tess_status make_context(workload *w)
{
    const problem *p = &w->p;
    w->shape = (tess_attn_shape){.batch = 1,
                                 .heads = (int)p->heads,
                                 .head_dim = (int)p->dim,
                                 .tokens_q = p->tokens_q,
                                 .tokens_k = p->tokens_k};
    TRY(workload_densities(w));
    return make_tensors(w, TESS_DTYPE_F32);
}

static tess_status make_linear(workload *w)
{
    const problem *p = &w->p;
    TRY(workload_matrix(w, p->m, p->k, STREAM_Q, &w->x));
    TRY(workload_matrix(w, p->n, p->k, STREAM_K, &w->w));
    TRY(workload_matrix(w, 1, p->n, STREAM_BIAS, &w->bias));
    if (p->forward)
        TRY(workload_matrix(w, p->m, p->n, 0, &w->y));
    if (!p->backward)
        return TESS_OK;
    TRY(workload_matrix(w, p->m, p->n, STREAM_DOUT, &w->dy));
    TRY(workload_matrix(w, p->m, p->k, 0, &w->dx));
    TRY(workload_matrix(w, p->n, p->k, 0, &w->dw));
    return workload_matrix(w, 1, p->n, 0, &w->dbias);
}

tess_status workload_make(cli *c, const problem *p, int with_select, workload *w)
{
    tess_machine machine;
    *w = (workload){.c = c, .p = *p, .timed = with_select, .density = 1, .comm = w->comm};
    TRY(tess_machine_query(c->ctx, &machine));
    w->bytes_max = machine.memory_available;
    if (p->kind == PROBLEM_LINEAR)
        return make_linear(w);
    if (p->kind == PROBLEM_STEP)
        return workload_make_step(w);
    if (p->kind == PROBLEM_CP)
        return make_context(w);
    if (p->kind == PROBLEM_ATTN)
        TRY(make_attn(w));
    return p->kind == PROBLEM_SELECT || (with_select && w->sel) ? make_selector(w) : TESS_OK;
}

tess_status workload_find_products(const workload *w, workload_products *products)
{
    tess_bf16_use use;
    tess_ctx_info info;
    *products = (workload_products){0};
    TRY(tess_ctx_query(w->c->ctx, &info));
    snprintf(products->isa, sizeof products->isa, "%s", info.isa);
    if ((w->p.kind != PROBLEM_ATTN && w->p.kind != PROBLEM_STEP) || !problem_in_bf16(&w->p))
        return TESS_OK;
    TRY(precision_text(w->c, &use, products->text));
    products->precision = use.precision;
    snprintf(products->isa, sizeof products->isa, "%s", use.isa);
    return TESS_OK;
}

void workload_head(const cli *c)
{
    tess_ctx_info info;
    if (tess_ctx_query(c->ctx, &info) == TESS_OK)
        fprintf(c->out, "%s, %d thread%s\n", info.isa, info.threads, out_plural(info.threads));
}

void workload_free(workload *w)
{
    for (int i = 0; i < w->n_buffers; i++)
        free(w->buffers[i]);
    tess_selection_destroy(w->sel);
    tess_selection_destroy(w->chosen);
    tess_selector_destroy(w->selector);
    tess_attn_destroy(w->attn);
    workload_free_step(w);
}

/* ---- the calls ---------------------------------------------------------------------------- */

tess_status workload_forward(workload *w, const tess_selection *sel)
{
    return tess_attn_forward(w->attn, sel, &w->q, &w->k, &w->v, &w->o, w->lse);
}

tess_status workload_attn(workload *w, const tess_selection *sel)
{
    const tess_attn_saved saved = {&w->q, &w->k, &w->v, &w->o, w->lse};
    if (w->p.forward)
        TRY(workload_forward(w, sel));
    if (w->p.backward)
        TRY(tess_attn_backward(w->attn, sel, &saved, &w->dout, NULL, &w->dq, &w->dk, &w->dv));
    return TESS_OK;
}

tess_status workload_select(workload *w)
{
    return tess_selector_run(w->selector, &w->in, w->chosen);
}

#ifdef CLI_TRAIN
tess_status workload_linear(workload *w)
{
    const problem *p = &w->p;
    const tess_linear_shape shape = {.rows = p->m, .in = p->k, .out = p->n};
    if (p->forward)
        TRY(tess_linear_forward(w->c->ctx, &shape, w->x, w->w, w->bias, w->y));
    if (p->backward)
        TRY(tess_linear_backward(w->c->ctx, &shape, w->x, w->w, w->dy, w->dx, w->dw, w->dbias));
    return TESS_OK;
}
#else
tess_status workload_linear(workload *w)
{
    return out_fail(w->c, TESS_ENOTSUP, "linear: this build has no oneDNN");
}
#endif

double workload_attn_flop(const problem *p, double density)
{
    const double pairs = density * (double)p->tokens_q * (double)p->tokens_k;
    return (TESS_FLOP_FORWARD * (double)p->forward + TESS_FLOP_BACKWARD * (double)p->backward) *
           pairs * (double)(p->dim * p->batch * p->heads);
}

/* Products of scores alone: pooled by units, proxies by keys, masses by queries and keys. */
double workload_select_flop(const workload *w)
{
    const problem *p = &w->p;
    const double groups = ceil((double)p->tokens_q / (double)p->group);
    const double units = ceil((double)p->tokens_k / (double)p->unit);
    const int by_queries =
        w->rule.kind == TESS_SELECT_ORACLE ||
        (w->rule.kind == TESS_SELECT_PREDICTOR && w->rule.proxy == TESS_PROXY_SOFTMAX);
    const double rows = by_queries ? (double)p->tokens_q : groups;
    const double columns = w->rule.kind == TESS_SELECT_POOLED ? units : (double)p->tokens_k;
    return 2.0 * rows * columns * (double)(p->batch * p->heads * w->in.head_dim);
}

double workload_linear_flop(const problem *p)
{
    return (2.0 * p->forward + 4.0 * p->backward) * (double)p->m * (double)p->n * (double)p->k;
}
