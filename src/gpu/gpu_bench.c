/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_bench.c - times of selection and attention on a device, by events of its default stream.
 *
 * Keys are chosen by the selection itself, from random features: lists of single keys, or of units,
 * all of one length. Each time is the median of repeated runs after one that is not counted.
 */
#include "gpu_internal.h"

#include <math.h>

static const char who[] = "tess_gpu_bench";

enum { REPEATS = 20, REPEATS_MAX = 10000, DRAWN = 1 << 24 };
enum { SELECT_PASS, FORWARD_PASS, BACKWARD_PASS };

typedef struct {
    tess_gpu *gpu;
    const tess_gpu_bench_problem *p;
    int repeats;
    int32_t n_q, n_k, keep;
    tess__arena arena;
    tess_gpu_memory memory;
    tess_gpu_selection *sel;
    tess_gpu_select_in in;
    tess_view q, k, v, o, dout, dq, dk, dv, sel_q, sel_k;
    float *lse;
    void *work;
    int64_t work_bytes;
    void *events[2];
    double *times;
} bench;

static tess_status check(const tess_gpu_bench_problem *p)
{
    const tess_attn_shape *const a = &p->shape.attn;
    TESS_TRY(tess__check_range(who, "shape.attn.batch", a->batch, 1, 1));
    TESS_TRY(tess__check_range(who, "shape.attn.heads", a->heads, 1, 65536));
    TESS_TRY(tess__check_range(who, "shape.attn.tokens_q", a->tokens_q, 1, 1 << 30));
    TESS_TRY(tess__check_range(who, "shape.attn.tokens_k", a->tokens_k, 1, 1 << 30));
    if (a->head_dim != 64 && a->head_dim != 128)
        return tess__fail(TESS_ENOTSUP, "%s: head_dim is %d, must be 64 or 128", who, a->head_dim);
    if (p->dtype != TESS_DTYPE_BF16 && p->dtype != TESS_DTYPE_F16)
        return tess__fail(TESS_ENOTSUP, "%s: dtype is %s, must be BF16 or F16", who,
                          tess_dtype_name(p->dtype));
    TESS_TRY(tess__check_range(who, "group", p->group, 1, 1 << 30));
    TESS_TRY(tess__check_range(who, "unit", p->unit, 1, 1 << 30));
    if ((p->unit & (p->unit - 1)) != 0)
        return tess__invalid(who, "unit is %d, must be a power of two", (int)p->unit);
    TESS_TRY(tess__check_number(who, "density", p->density, 1e-9, 1.0));
    TESS_TRY(tess__check_range(who, "rank", p->rank, 1, 64));
    return tess__check_range(who, "repeats", p->repeats, 0, REPEATS_MAX);
}

/* (heads, tokens, dim) on the device: random numbers, the same again after so many that the host
 * draws in a second, or with stream 0 what was there. */
static tess_status make_tensor(bench *b, uint64_t stream, int64_t tokens, int64_t dim,
                               tess_dtype dtype, tess_view *view)
{
    const size_t n = (size_t)(b->p->shape.attn.heads * tokens * dim);
    const size_t drawn = TESS_MIN(n, DRAWN), size = tess_dtype_size(dtype);
    *view = (tess_view){NULL, dtype, b->p->shape.attn.heads * tokens * dim, tokens * dim, dim};
    TESS_TRY(tess__gpu_allocate(&b->memory, n * size, &view->data));
    if (stream == 0)
        return TESS_OK;
    tess__arena arena = {.ctx = b->gpu->ctx}; /* freed at once: eight such would add up */
    float *x = NULL;
    tess_status status = tess__gpu_random(&arena, stream, drawn, &x);
    void *const given = status == TESS_OK ? tess__arena_take(&arena, drawn * size) : NULL;
    if (status == TESS_OK && !given)
        status = TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess_convert(b->gpu->ctx, TESS_DTYPE_F32, x, dtype, given, drawn);
    if (status == TESS_OK)
        status = tess__gpu_repeat(&b->memory, view->data, n * size, given, drawn * size);
    tess__arena_free(&arena);
    return status;
}

static tess_status make_selection(bench *b)
{
    const tess_gpu_bench_problem *const p = b->p;
    const tess_attn_shape *const a = &p->shape.attn;
    const int row = (p->rank + 3) / 4 * 4; /* rows begin at 16 bytes */
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = a->heads,
                                  .tokens_q = a->tokens_q,
                                  .tokens_k = a->tokens_k,
                                  .group = p->group,
                                  .unit = p->unit};
    int32_t *const keep = TESS_TAKE(&b->arena, sizeof *keep * (size_t)a->heads);
    for (int h = 0; h < a->heads; h++)
        keep[h] = b->keep;
    TESS_TRY(make_tensor(b, 11, b->n_q, row, TESS_DTYPE_F32, &b->sel_q));
    TESS_TRY(make_tensor(b, 12, b->n_k, row, TESS_DTYPE_F32, &b->sel_k));
    b->in = (tess_gpu_select_in){&b->sel_q, &b->sel_k, p->rank, keep};
    return tess_gpu_selection_create(b->gpu, &shape, (int64_t)a->heads * b->n_q * b->keep, &b->sel);
}

static tess_status prepare(bench *b)
{
    const tess_gpu_bench_problem *const p = b->p;
    const tess_attn_shape *const a = &p->shape.attn;
    const int64_t d = a->head_dim;
    void *lse = NULL;
    b->n_q = (int32_t)((a->tokens_q + p->group - 1) / p->group);
    b->n_k = (int32_t)((a->tokens_k + p->unit - 1) / p->unit);
    b->keep = (int32_t)TESS_MAX(1, llround(p->density * b->n_k));
    b->times = TESS_TAKE(&b->arena, sizeof *b->times * (size_t)b->repeats);
    TESS_TRY(make_selection(b));
    TESS_TRY(make_tensor(b, 1, a->tokens_q, d, p->dtype, &b->q));
    TESS_TRY(make_tensor(b, 2, a->tokens_k, d, p->dtype, &b->k));
    TESS_TRY(make_tensor(b, 3, a->tokens_k, d, p->dtype, &b->v));
    TESS_TRY(make_tensor(b, 4, a->tokens_q, d, p->dtype, &b->dout));
    TESS_TRY(make_tensor(b, 0, a->tokens_q, d, p->dtype, &b->o));
    TESS_TRY(make_tensor(b, 0, a->tokens_q, d, TESS_DTYPE_F32, &b->dq));
    TESS_TRY(make_tensor(b, 0, a->tokens_k, d, TESS_DTYPE_F32, &b->dk));
    TESS_TRY(make_tensor(b, 0, a->tokens_k, d, TESS_DTYPE_F32, &b->dv));
    TESS_TRY(tess__gpu_allocate(&b->memory, (size_t)(a->heads * a->tokens_q) * 4, &lse));
    b->lse = lse;
    return TESS_OK;
}

/* All rows of a backward pass, or as many as a quarter of the device's memory has. */
static tess_status make_work(bench *b)
{
    TESS_TRY(tess_gpu_attn_workspace(b->gpu, &b->p->shape, b->sel, 0, &b->work_bytes));
    if (b->work_bytes > b->gpu->info.memory / 4)
        TESS_TRY(tess_gpu_attn_workspace(b->gpu, &b->p->shape, b->sel, b->gpu->info.memory / 4,
                                         &b->work_bytes));
    return tess__gpu_allocate(&b->memory, (size_t)b->work_bytes, &b->work);
}

static tess_status run_pass(bench *b, int pass)
{
    const tess_attn_saved saved = {&b->q, &b->k, &b->v, &b->o, b->lse};
    if (pass == SELECT_PASS)
        return tess_gpu_select(b->gpu, &b->in, b->sel, NULL);
    if (pass == FORWARD_PASS)
        return tess_gpu_attn_forward(b->gpu, &b->p->shape, b->sel, &b->q, &b->k, &b->v, &b->o,
                                     b->lse, NULL);
    return tess_gpu_attn_backward(b->gpu, &b->p->shape, b->sel, &saved, &b->dout, NULL, &b->dq,
                                  &b->dk, &b->dv, b->work, b->work_bytes, NULL);
}

static tess_status time_run(bench *b, int pass, double *milliseconds)
{
    float elapsed = 0.0f;
    TESS_CUDA(who, b->gpu, cuEventRecord, b->events[0], NULL);
    TESS_TRY(run_pass(b, pass));
    TESS_CUDA(who, b->gpu, cuEventRecord, b->events[1], NULL);
    TESS_CUDA(who, b->gpu, cuEventSynchronize, b->events[1]);
    TESS_CUDA(who, b->gpu, cuEventElapsedTime, &elapsed, b->events[0], b->events[1]);
    *milliseconds = (double)elapsed;
    return TESS_OK;
}

/* The device's context is that of the thread around events; calls inside enter it once more. */
static tess_status time_pass(bench *b, int pass, double *median)
{
    double warm;
    TESS_TRY(tess__gpu_enter(who, b->gpu));
    tess_status status = time_run(b, pass, &warm);
    for (int i = 0; i < b->repeats && status == TESS_OK; i++)
        status = time_run(b, pass, &b->times[i]);
    tess__gpu_leave(b->gpu);
    if (status == TESS_OK)
        *median = tess__median(b->times, (size_t)b->repeats);
    return status;
}

static tess_status make_events(bench *b)
{
    TESS_TRY(tess__gpu_enter(who, b->gpu));
    tess_cuda_result result = TESS_CUDA_OK;
    for (int i = 0; i < 2 && result == TESS_CUDA_OK; i++)
        result = b->gpu->driver.cuEventCreate(&b->events[i], 0);
    tess__gpu_leave(b->gpu);
    return result == TESS_CUDA_OK ? TESS_OK
                                  : tess__gpu_failed(who, b->gpu, "cuEventCreate", result);
}

static void free_events(bench *b)
{
    if (tess__gpu_enter(who, b->gpu) != TESS_OK)
        return;
    for (int i = 0; i < 2; i++)
        if (b->events[i])
            b->gpu->driver.cuEventDestroy_v2(b->events[i]);
    tess__gpu_leave(b->gpu);
}

/* Rows of the lists: the last unit may be shorter, and whether a list has it is up to the draw. */
static double pairs_of(const bench *b)
{
    const tess_attn_shape *const a = &b->p->shape.attn;
    const double rows = fmin((double)b->keep * b->p->unit, (double)a->tokens_k);
    return (double)a->heads * (double)a->tokens_q * rows;
}

tess_status tess_gpu_bench(tess_gpu *gpu, const tess_gpu_bench_problem *problem,
                           tess_gpu_bench_result *result)
{
    TESS_REQUIRE(gpu, problem, result);
    TESS_TRY(check(problem));
    bench b = {.gpu = gpu,
               .p = problem,
               .repeats = problem->repeats ? problem->repeats : REPEATS,
               .arena = {.ctx = gpu->ctx},
               .memory = {.gpu = gpu, .who = who}};
    tess_gpu_bench_result r = {0};
    tess_status status = make_events(&b);
    if (status == TESS_OK)
        status = prepare(&b);
    if (status == TESS_OK)
        status = time_pass(&b, SELECT_PASS, &r.select);
    if (status == TESS_OK)
        status = make_work(&b);
    if (status == TESS_OK)
        status = time_pass(&b, FORWARD_PASS, &r.forward);
    if (status == TESS_OK)
        status = time_pass(&b, BACKWARD_PASS, &r.backward);
    r.pairs = pairs_of(&b);
    free_events(&b);
    tess_gpu_selection_destroy(b.sel);
    tess__gpu_free(&b.memory);
    tess__arena_free(&b.arena);
    if (status == TESS_OK)
        *result = r;
    return status;
}
